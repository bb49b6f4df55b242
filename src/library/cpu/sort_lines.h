// Lines of a tile made of rows that lie one after the other, and rows of lines, where rows have few elements:
// each line is then made of few others, by permutations of pairs of registers. Squares of a line's length
// would move mostly what no row has.
#pragma once

#include "library/cpu/sort_network.h"

#include <cstdint>

namespace kiln::cpu {

/// Which element of some lines each element of as many others is.
template <class Item>
struct alignas(kNetworkLine) LineOrder {
  static constexpr std::int64_t kMost = 8;  // lines
  static constexpr std::int64_t kRows = kNetworkRows<Item>;
  Item places[kMost * kMost / 2][kRows];  // for each line made, of each pair of lines: places in the pair
  Item chosen[kMost * kMost / 2][kRows];  // all bits where the element is in the pair
  std::uint16_t from[kMost * kRows];
  std::int64_t lines = 0;

  /// Element e is to be element source(e). Pre: 1 <= count <= kMost.
  template <class Source>
  void set(std::int64_t count, Source source) {
    lines = count;
    const std::int64_t pairs = (count + 1) / 2;
    for (std::int64_t e = 0; e < count * kRows; ++e) {
      const std::int64_t at = source(e);
      from[e] = static_cast<std::uint16_t>(at);
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const bool here = at / (2 * kRows) == pair;
        const std::int64_t entry = e / kRows * pairs + pair;
        places[entry][e % kRows] = static_cast<Item>(here ? at - pair * 2 * kRows : 0);
        chosen[entry][e % kRows] = static_cast<Item>(here ? ~Item{0} : Item{0});
      }
    }
  }
};

/// to[e] = from[order.from[e]]. Reads a whole number of pairs of lines.
template <class Item>
using OrderLines = void (*)(const LineOrder<Item>& order, const Item* from, Item* to);
/// The one for the instruction set in force. Item: an unsigned integer of 1 to 8 bytes.
template <class Item>
OrderLines<Item> order_lines();
/// Whether that one moves whole registers; else it goes from element to element.
template <class Item>
bool orders_registers();

/// What items are made of, and what positions of items.
template <class KeyType, class Item>
struct ItemFunctions {
  /// to[i] = the key in the upper half and the place in the lower one.
  void (*items)(const KeyType* keys, const Item* places, std::int64_t n, Item* to);
  /// to[i] = the bits of `mask` of items[i]. `past`: whole lines go past the caches.
  void (*positions)(const Item* items, std::int64_t n, Item mask, bool past, std::int64_t* to);
};
/// Those for the instruction set in force.
template <class KeyType, class Item>
ItemFunctions<KeyType, Item> item_functions();

}  // namespace kiln::cpu
