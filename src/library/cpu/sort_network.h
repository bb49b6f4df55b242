// Short rows sorted side by side: a sorting network whose comparisons are whole registers, one row a lane.
//
// A network compares the same places whatever the values are, so there is no branch to mispredict: rows of 64
// numbers of 2 bytes take about one instruction an element, where a sort by comparisons waits for a branch
// at each of them.
#pragma once

#include "library/cpu/sort_keys.h"

#include <cstddef>
#include <cstdint>

namespace kiln::cpu {

/// Rows above this many elements are not for a network: its comparisons an element grow with log(n)^2. One of
/// narrow items compares more of them at a time. With positions, of half as many: there are tiles of keys,
/// and of items that their last bits do not tell apart.
template <class Item>
inline constexpr std::int64_t kNetworkMost = 32768 / static_cast<std::int64_t>(sizeof(Item));
/// The same of rows of which few elements are kept, which grow with log(kept)^2; and of so few that another
/// way passes over blocks without any (sort_rows.h).
inline constexpr std::int64_t kNetworkSelects = 16384;
template <class Item>
inline constexpr std::int64_t kNetworkFilters = sizeof(Item) <= 4 ? 4096 : 1024;
/// Rows up to this length are sorted side by side whatever the number of tiles. Where they are longer, there
/// is a tile for each thread.
inline constexpr std::int64_t kNetworkAlways = 1024;
/// Whether the instruction set in force has registers of 32 bytes or more. By those of 16 bytes rows of a
/// quarter as many elements are for a network, and no longer ones of which few are kept.
bool has_wide_network();
/// Bytes of a line of a tile: one element of each row.
inline constexpr std::int64_t kNetworkLine = 64;
/// Rows of a tile.
template <class Item>
inline constexpr int kNetworkRows = static_cast<int>(kNetworkLine / sizeof(Item));

/// Sorts each row of a tile of `n` lines; element i of row r is tile[i * kNetworkRows<Item> + r]. Equal items
/// cannot be told apart. Only the first `kept` lines of the result are asked for: the others may hold
/// anything. Pre: tile is aligned to kNetworkLine and has whole eights of lines; 1 <= kept <= n.
template <class Item>
using TileSort = void (*)(Item* tile, std::int64_t n, std::int64_t kept);
/// The one for the instruction set in force. Item: an unsigned integer of 1 to 8 bytes.
template <class Item>
TileSort<Item> tile_sort();

/// The same of floats, none of which is NaN or -0, by instructions for floats, of which a processor with
/// AVX-512 has twice as many at a time. Bits of bfloat16 are compared as those of float16, whose order they
/// have. Null: the instruction set in force has no such instructions for T, which needs keys.
template <class T>
TileSort<Key<T>> number_sort();

/// Transposes `count` squares of kNetworkRows<Item> numbers each way: the k-th begins at from + k *
/// from_square, its rows are from_pitch apart; likewise where it goes.
template <class Item>
using TransposeSquares = void (*)(const Item* from, std::int64_t from_pitch, std::int64_t from_square,
                                  Item* to, std::int64_t to_pitch, std::int64_t to_square,
                                  std::int64_t count);
/// The one for the instruction set in force; null: it has none, see transpose_rows. Item: as for tile_sort.
template <class Item>
TransposeSquares<Item> transpose_squares();

/// to[j * to_pitch + i] = from[i * from_pitch + j] for i < rows and j < columns: lines of a tile made of its
/// rows, and rows of its first lines. By registers of 16 bytes: less than a register behind each row, and the
/// rows up to the next whole number of them, are read and written, too. Rows written may adjoin all the same.
template <class Item>
using TransposeRows = void (*)(const Item* from, std::int64_t from_pitch, std::int64_t rows,
                               std::int64_t columns, Item* to, std::int64_t to_pitch);
/// Null where the instruction set in force has better.
template <class Item>
TransposeRows<Item> transpose_rows();

/// Elements whose keys are compared with a limit together.
inline constexpr std::int64_t kKeyBlock = 64;

/// What rows become keys and values with, for the instruction set in force.
template <class T>
struct KeyFunctions {
  /// to[i] = the key of from[i * stride], all bits of it turned if `descending`.
  void (*keys)(const T* from, std::int64_t stride, std::int64_t n, bool merge_zeros, bool descending,
               Key<T>* to);
  /// to[i] = the value of from[i].
  void (*values)(const Key<T>* from, std::int64_t n, bool descending, T* to);
  bool (*any_equal)(const T* values, std::int64_t n);
  /// Where the first kKeyBlock elements begin, of those at whole multiples of it, of which one has a key
  /// below `limit`: their keys are then in `keys`. Beyond the last whole block: no block has one. Adjacent
  /// elements.
  std::int64_t (*below)(const T* from, std::int64_t n, bool merge_zeros, bool descending, Key<T> limit,
                        Key<T>* keys);
};
template <class T>
KeyFunctions<T> key_functions();

}  // namespace kiln::cpu
