// Keys of 4 or 8 bytes and their positions in one word of as many.
//
// Keys less the least of a row often begin with zeros, which leave room for positions. Where that is too
// little, the last bits of the keys make room as well: items whose other bits are equal, which are few where
// keys differ that much, are put in order afterwards. So a row's order takes as long as its values.
#pragma once

#include <cstdint>

namespace kiln::cpu {

/// How a row was packed.
struct Packed {
  std::uint64_t positions = 0;  // the bits of an item that are its position
  bool exact = true;            // the others are all of the difference from the least key
};

/// What packs rows and puts equal items in order, for the instruction set in force.
struct PackFunctions {
  /// to[i]: the i-th key and its position. Pre: 1 <= n <= 2^32.
  Packed (*pack)(const std::uint64_t* keys, std::int64_t n, std::uint64_t* to);
  /// Orders `n` sorted items by the whole keys and then the positions. keys: of the row, by position.
  void (*settle)(const Packed& packed, const std::uint64_t* keys, std::uint64_t* items, std::int64_t n);
};
PackFunctions pack_functions();

/// The same of the rows of a tile (sort_network.h), whose keys are lines already.
template <class Item>
struct PackLines {
  /// Makes the first n lines items. Returns a bit for each row: whether Packed::exact. Pre: tile is aligned
  /// to kNetworkLine; n <= positions + 1.
  std::uint32_t (*pack)(Item* tile, std::int64_t n, Item positions);
  /// Of sorted items: a bit for each row that has two alike but for their positions.
  std::uint32_t (*alike)(const Item* tile, std::int64_t n, Item positions);
  /// As PackFunctions::settle, of a row that is not exact and has such.
  void (*settle)(Item positions, const Item* keys, Item* items, std::int64_t n);
};
/// Those for the instruction set in force. Item: an unsigned integer of 4 or 8 bytes.
template <class Item>
PackLines<Item> pack_lines();

}  // namespace kiln::cpu
