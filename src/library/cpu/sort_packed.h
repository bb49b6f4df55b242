// Keys of 8 bytes and their positions in one word.
//
// Keys less the least of a row often begin with zeros, which leave room for positions. Where that is too
// little, the last bits of the keys make room as well: items whose other bits are equal, which are few where
// keys differ that much, are put in order afterwards. So a row of 8-byte numbers is sorted like one of 4
// bytes.
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

}  // namespace kiln::cpu
