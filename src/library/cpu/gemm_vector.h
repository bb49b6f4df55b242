// A matrix times one vector: lines of the matrix are read once, where they are.
#pragma once

#include "library/cpu/gemm_pack.h"
#include "library/cpu/line_sums.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace kiln::cpu {

template <class T, class C>
class VectorProduct {
 public:
  static constexpr std::int64_t kBlock = 1024;     // elements at a time
  static constexpr std::int64_t kFarApart = 4096;  // bytes from row to row, each in a page of its own

  /// Sums of `count` lines of k elements, matrix[i·across + p·along]. `by_columns`: whole columns are scaled
  /// and added, otherwise each line is summed by itself.
  VectorProduct(const Micro<C>& micro, std::int64_t k, const T* matrix, std::int64_t across,
                std::int64_t along, std::int64_t count, bool by_columns)
      : micro_(micro),
        k_(k),
        matrix_(matrix),
        across_(across),
        along_(along),
        count_(count),
        by_columns_(by_columns) {}

  /// The sums of n lines from one on, n <= kBlock. Which arithmetic an element gets depends on the number of
  /// all lines alone, never on where a thread's part begins.
  void lines(const C* x, std::int64_t first, std::int64_t n, C* sums) const {
    if constexpr (std::is_same_v<T, C>) {
      const std::int64_t wide = micro_.wide_columns;
      if (by_columns_ && across_ == 1 && count_ >= wide) {
        C part[kBlock];
        std::int64_t i = 0;
        if (along_ * static_cast<std::int64_t>(sizeof(C)) >= kFarApart) {
          i = n / wide * wide;
          if (i > 0) micro_.along(k_, x, matrix_ + first, along_, i, sums);
        }
        for (; i < n; i += wide) {  // the last columns once more where fewer are left
          const std::int64_t at = std::min(first + i, count_ - wide), skipped = first + i - at;
          micro_.wide(k_, x, matrix_ + at, along_, part);
          std::copy_n(part + skipped, std::min(wide - skipped, n - i), sums + i);
        }
        return;
      }
    }
    if (by_columns_) return columns(matrix_ + first * across_, x, n, sums);
    for (std::int64_t i = 0; i < n; ++i) sums[i] = dot(matrix_ + (first + i) * across_, x);
  }

 private:
  /// Lines of the matrix lie side by side: whole columns are scaled and added, for at most kBlock lines.
  void columns(const T* matrix, const C* x, std::int64_t n, C* sum) const {
    C run[kBlock];
    std::fill_n(sum, n, C{});
    for (std::int64_t p = 0; p < k_; ++p) {
      const C* values = load(matrix + p * along_, across_, n, run);
      for (std::int64_t i = 0; i < n; ++i) sum[i] += values[i] * x[p];
    }
  }

  /// One line times x, in 16 partial sums, added up as a tree.
  C dot(const T* line, const C* x) const {
    constexpr int kLanes = kLineLanes;
    C lanes[kLanes] = {}, run[kBlock];
    for (std::int64_t p0 = 0; p0 < k_; p0 += kBlock) {
      const std::int64_t n = std::min(kBlock, k_ - p0);
      const C* values = load(line + p0 * along_, along_, n, run);
      std::int64_t p = 0;
      for (; p + kLanes <= n; p += kLanes)
        for (int l = 0; l < kLanes; ++l) lanes[l] += values[p + l] * x[p0 + p + l];
      for (int l = 0; p < n; ++p, ++l) lanes[l] += values[p] * x[p0 + p];
    }
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
  }

  /// n elements `step` apart as C: in place where they are that already, else in `run`.
  static const C* load(const T* from, std::int64_t step, std::int64_t n, C* run) {
    if (step == 1) {
      if constexpr (std::is_same_v<T, C>) return from;
      widen(from, run, n);
    } else {
      for (std::int64_t i = 0; i < n; ++i) run[i] = static_cast<C>(from[i * step]);
    }
    return run;
  }

  const Micro<C>& micro_;
  const std::int64_t k_;
  const T* const matrix_;
  const std::int64_t across_, along_, count_;
  const bool by_columns_;
};

}  // namespace kiln::cpu
