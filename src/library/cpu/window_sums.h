// The inner loops of products whose columns are windows: vectors of columns are read where they lie.
#pragma once

#include "library/cpu/gemm_micro.h"
#include "library/cpu/line_sums.h"

#include <cstdint>

namespace kiln::cpu {

/// A vector of columns: step p of the sum at from[steps[p]], the sums from one column on.
template <class C>
struct WindowVector {
  const C* from;
  const std::int64_t* steps;
  std::int64_t column;
};

inline constexpr int kMostWindowVectors = 4;
/// Vectors that are summed at a time, of so many rows: few rows take more, since each step's elements of a
/// are loaded for all of them.
constexpr int window_vectors(std::int64_t rows) { return rows <= 3 ? kMostWindowVectors : 2; }

template <class C>
struct WindowMicro {
  int rows, lanes;
  /// c[i·ldc + v.column + l] = (first ? 0 : c) + Σ_p a[p·a_step + i] · v.from[v.steps[p] + l], for each v of
  /// window_vectors(rows) vectors, l < lanes, and as many rows as the function is for. Vectors may be equal.
  using Sums = void(std::int64_t k, const C* a, std::int64_t a_step, const WindowVector<C>* vectors, C* c,
                    std::int64_t ldc, bool first);
  Sums* sums[kMostRows];
};

/// C: float, double. `strict`: each product rounds before it is added.
template <class C>
WindowMicro<C> window_micro(SumLevel level, bool strict);

/// to[i] = from[2·i], i < n; nothing behind the last of them is read.
void every_second(SumLevel level, const float* from, float* to, std::int64_t n);

}  // namespace kiln::cpu
