// Long rows of keys sorted by partitions in whole registers.
//
// Each partition reads a row once and writes the numbers below a pivot to its front, by instructions that
// move the chosen elements of a register together. There is no branch to mispredict and no table of counts,
// and the number of partitions grows with the logarithm of the length, whatever the width of the keys. A
// radix sort of keys of 8 bytes moves each of them eight times.
#pragma once

#include <cstdint>

namespace kiln::cpu {

/// Sorts items[0, n) with the help of other[0, n). Equal items cannot be told apart.
template <class Item>
using QuickSort = void (*)(Item* items, Item* other, std::int64_t n);
/// The one for the instruction set in force; null: it has none. Item: an unsigned integer of 4 or 8 bytes.
template <class Item>
QuickSort<Item> quick_sort();

}  // namespace kiln::cpu
