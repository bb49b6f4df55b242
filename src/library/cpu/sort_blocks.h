// Keys of rows as lines of a tile, and values of lines as rows (sort_network.h), by blocks of a piece of each
// row.
//
// A register takes a piece of 16 bytes of four rows, which lie as far apart as their places in a line, from
// memory; then elements only change places within pieces. That takes half the permutations of whole lines or,
// of elements of two bytes, which no single instruction permutes across a register, a fifth. Keys are made on
// the way, so that rows are read once.
#pragma once

#include "library/cpu/sort_network.h"

#include <cstdint>

namespace kiln::cpu {

/// Rows with fewer elements are not worth a piece each (sort_lines.h).
inline constexpr std::int64_t kLeastOfBlocks = 8;

template <class T>
struct BlockFunctions {
  /// Element i of row r, which begins at from + r * pitch, as a key to to[i * kNetworkRows<Key<T>> + r], of
  /// `columns` elements and kNetworkRows<Key<T>> rows. Writes whole pieces of lines behind the last; `to` is
  /// aligned to kNetworkLine.
  void (*lines)(const T* from, std::int64_t pitch, std::int64_t columns, bool merge_zeros, bool descending,
                Key<T>* to);
  /// The same back, as values. Reads whole pieces of lines.
  void (*rows)(const Key<T>* from, std::int64_t columns, bool descending, T* to, std::int64_t pitch);
  /// The same of floats as numbers of the same order (number_sort), the other way round if `descending`.
  /// False: one of them is NaN or -0, and `to` holds anything. Null: T is no float.
  bool (*number_lines)(const T* from, std::int64_t pitch, std::int64_t columns, bool descending, Key<T>* to);
  void (*number_rows)(const Key<T>* from, std::int64_t columns, bool descending, T* to, std::int64_t pitch);
  /// So many lines of memory, past the caches. Both are aligned to kPastLine.
  void (*past)(const T* from, std::int64_t lines, T* to);
};
/// Those for the instruction set in force; null: it has none.
template <class T>
BlockFunctions<T> block_functions();

}  // namespace kiln::cpu
