// Rows of floats added, one after the other, to rows that lie anywhere: the inner loop of a scatter that
// adds.
#pragma once

#include <cstdint>

namespace kiln::cpu {

/// Where rows of elements and the values that meet them begin, in the order in which they meet.
struct RowList {
  const std::int32_t *elements, *values;
  std::int64_t count;
  bool few = false;  // the rows may be the same ones again and again
};

/// elements[list.elements[j] + i] += values[list.values[j] + i], i < n, for each j in order. `cached`: the
/// elements stay in a cache; otherwise those of later rows are asked for ahead.
template <class A, class T>
using AddRows = void (*)(const RowList& list, A* elements, const T* values, std::int64_t n, bool cached);
/// The one for the instruction set in force; null where that has none. <float, float>, <float, float16>,
/// <float, bfloat16> and <double, double>.
template <class A, class T>
AddRows<A, T> add_rows();

/// Asks for the elements and the values of row `at` of a list, or of its last row. (Inlined early, because
/// GCC takes a function that only prefetches for one without effects and leaves calls of it out.)
template <class A, class T>
[[gnu::always_inline]] inline void fetch_row(const RowList& list, std::int64_t at, const A* elements,
                                             const T* values, std::int64_t n) {
  const std::int64_t j = at < list.count ? at : list.count - 1;
  const auto* const row = reinterpret_cast<const char*>(elements + list.elements[j]);
  const auto* const from = reinterpret_cast<const char*>(values + list.values[j]);
  __builtin_prefetch(row, 1);
  __builtin_prefetch(from);
  if (n * static_cast<std::int64_t>(sizeof(A)) > 64)
    __builtin_prefetch(row + 64, 1), __builtin_prefetch(from + 64);
}

}  // namespace kiln::cpu
