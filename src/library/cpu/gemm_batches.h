// Products of one matrix with the windows of many small images: each lane has an image. A row of a small
// image has few points, so vectors of them would have idle lanes, and packing would write each element as
// often as windows have it. Here an image's elements are written once, those of a register's images side by
// side; the sums are written back image by image. Each sum is that of other ways, to the bit.
#pragma once

#include "device/cpu/run.h"
#include "device/cpu/threads.h"
#include "library/cpu/gemm_pack.h"
#include "library/cpu/gemm_shared.h"
#include "library/cpu/window_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace kiln::cpu {

template <class T>
class BatchProduct {
 public:
  using C = typename ComputeOf<T>::type;

  /// Whether all batches share `a`, and windows lie so that vectors of one image's points would not be full.
  static bool fits(const Matmul& call) {
    if constexpr (kFloats) {
      if (call.k < kLeastSteps || !strided(call.a) || !(call.b.row_offsets && call.b.col_offsets))
        return false;
      for (int i = 0; i < call.batch_rank; ++i)
        if (call.batch[i] > 1 && call.a.batch_strides[i] != 0) return false;
      const std::int64_t lanes = micro_of(call.strict).lanes;
      if (batches(call) < kLeastGroups * lanes || call.m * call.n * lanes > kMostSums) return false;
      const Span span = span_of(call);
      return span.length * lanes <= kMostStage && 3 * span.length <= 2 * call.n * call.k &&
             has_short_rows(call, lanes);
    }
    return false;
  }

  /// Of the packed matrix.
  static std::size_t workspace_bytes(const Matmul& call) {
    return static_cast<std::size_t>(round_up(call.m, kMostRows) + kMostRows) *
           static_cast<std::size_t>(call.k * kSize);
  }

  /// Pre: fits(call). The call outlives this.
  BatchProduct(const Matmul& call, std::byte* workspace)
      : call_(call),
        micro_(micro_of(call.strict)),
        height_(height_of(call.m, micro_.rows)),
        pitch_(call.epilogue ? round_up(call.n, 64 / kSize) : call.n),
        span_(span_of(call)),
        a_packed_(reinterpret_cast<C*>(workspace)) {
    const Lines rows{call.a.row_stride}, steps{call.a.col_stride};
    for (std::int64_t r = 0; r < call.m; r += height_)
      pack_panel(static_cast<const T*>(call.a.data), rows.from(r), steps, std::min(height_, call.m - r),
                 height_, call.k, a_packed_ + r * call.k);
    for (std::int64_t p = 0; p < call.k; ++p) steps_.push_back(call.b.row_offsets[p] * micro_.lanes);
  }

  void run() const {
    const std::int64_t count = batches(call_), groups = (count + micro_.lanes - 1) / micro_.lanes;
    const double work = multiply_adds(call_) * static_cast<double>(micro_.lanes);
    const auto grain = static_cast<std::int64_t>(kSerialWork / 2 / work) + 1;
    parallel_for(groups, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        group(i * micro_.lanes, std::min<std::int64_t>(micro_.lanes, count - i * micro_.lanes));
    });
  }

 private:
  static constexpr bool kFloats = std::is_same_v<C, float> || std::is_same_v<C, double>;
  static constexpr std::int64_t kSize = sizeof(C);
  static constexpr std::int64_t kLeastSteps = 16,  // of a sum, for sums to be written back
      kLeastGroups = 2,                            // of images
      kMostStage = (512 << 10) / kSize,
                                kMostSums = (512 << 10) / kSize;  // elements: the second cache has both
  static constexpr std::int64_t kDepth = 192;  // steps of a panel of rows that stay in the first cache

  static WindowMicro<C> micro_of(bool strict) {
    if constexpr (kFloats) return window_micro<C>(best_sum_level(), strict);
    return {};
  }
  static std::int64_t height_of(std::int64_t m, std::int64_t most) {
    const std::int64_t panels = (m + most - 1) / most;
    return (m + panels - 1) / panels;
  }

  /// What windows of an image read, from the first element of its windows' first step on.
  struct Span {
    std::int64_t least, length;
  };
  static Span span_of(const Matmul& call) {
    const auto [row0, row1] = std::minmax_element(call.b.row_offsets, call.b.row_offsets + call.k);
    const auto [col0, col1] = std::minmax_element(call.b.col_offsets, call.b.col_offsets + call.n);
    return {*row0 + *col0, *row1 - *row0 + *col1 - *col0 + 1};
  }

  /// Whether a quarter of the lanes along rows of adjacent columns would be idle.
  static bool has_short_rows(const Matmul& call, std::int64_t lanes) {
    const Lines columns{0, call.b.col_offsets};
    std::int64_t all = 0, step = 0;
    for (std::int64_t i = 0, run; i < call.n; i += run) {
      run = columns.from(i).run(call.n - i, step);
      all += round_up(run, lanes);
    }
    return 4 * call.n <= 3 * all;
  }

  /// So many images from one on.
  void group(std::int64_t first, std::int64_t count) const {
    const std::int64_t lanes = micro_.lanes, size = call_.m * pitch_;
    const auto aligned = [](std::int64_t elements) { return round_up(elements, 64 / kSize); };
    const std::int64_t stage = aligned(span_.length * lanes), sums = aligned(call_.m * call_.n * lanes);
    const bool direct = std::is_same_v<T, C> && !call_.epilogue && count == lanes;
    const std::int64_t results = direct ? 0 : aligned(size * lanes);
    std::byte* const memory = scratch(static_cast<std::size_t>((stage + sums + results) * kSize) +
                                      (call_.epilogue ? epilogue_memory(*call_.epilogue->launch) : 0));
    C* const staged = reinterpret_cast<C*>(memory);
    C* const sum = staged + stage;
    stage_images(first, count, staged);
    multiply(staged, sum);
    C* to = sum + sums;
    if constexpr (std::is_same_v<T, C>)
      if (direct) to = static_cast<T*>(call_.out) + first * size;
    for (std::int64_t r = 0; r < call_.m; ++r)
      pack_strided(sum + r * call_.n * lanes, lanes, 1, call_.n, size, lanes, to + r * pitch_);
    if (!direct) finish(first, count, to, memory + (stage + sums + results) * kSize);
  }

  void stage_images(std::int64_t first, std::int64_t count, C* to) const {
    const T* const from = static_cast<const T*>(call_.b.data) + span_.least;
    std::int64_t at[kMostColumns];
    bool even = true;
    for (std::int64_t i = 0; i < count; ++i) {
      at[i] = batch_offset(call_, call_.b, first + i);
      even &= at[i] - at[0] == i * (at[std::min<std::int64_t>(i, 1)] - at[0]);
    }
    const Lines along{1};
    if (even)
      pack_panel(from + at[0], Lines{count > 1 ? at[1] - at[0] : 0}, along, count, micro_.lanes, span_.length,
                 to);
    else
      pack_panel(from, Lines{0, at}, along, count, micro_.lanes, span_.length, to);
  }

  /// The sums of a row's columns side by side, each a register.
  void multiply(const C* staged, C* sum) const {
    const std::int64_t lanes = micro_.lanes, ld = call_.n * lanes;
    const C* const from = staged - span_.least * lanes;
    for (std::int64_t p = 0; p < call_.k; p += kDepth)
      for (std::int64_t r = 0; r < call_.m; r += height_) {
        const std::int64_t rows = std::min(height_, call_.m - r), most = window_vectors(rows);
        const C* const a = a_packed_ + r * call_.k + p * height_;
        for (std::int64_t c = 0; c < call_.n; c += most) {
          WindowVector<C> vectors[kMostWindowVectors];
          for (std::int64_t j = 0; j < most; ++j) {
            const std::int64_t column = std::min(c + j, call_.n - 1);
            vectors[j] = {from + call_.b.col_offsets[column] * lanes, steps_.data() + p, column * lanes};
          }
          micro_.sums[rows - 1](std::min(kDepth, call_.k - p), a, height_, vectors, sum + r * ld, ld, p == 0);
        }
      }
  }

  /// Hands each image's sums to the epilogue, or rounds and stores them.
  void finish(std::int64_t first, std::int64_t count, const C* sums, std::byte* memory) const {
    const std::int64_t size = call_.m * pitch_;
    for (std::int64_t i = 0; i < count; ++i, sums += size) {
      if (call_.epilogue)
        run_epilogue(*call_.epilogue, {first + i, 0, 0, call_.n, pitch_, call_.m, sums}, memory);
      else
        narrow(sums, static_cast<T*>(call_.out) + (first + i) * size, size);
    }
  }

  const Matmul& call_;
  const WindowMicro<C> micro_;
  const std::int64_t height_, pitch_;
  const Span span_;
  C* const a_packed_;
  std::vector<std::int64_t> steps_;
};

}  // namespace kiln::cpu
