// Direct products: operands are read where they lie, which for small ones saves the time of packing, and for
// larger ones that of threads that wait for each other between packing and multiplying. Each element is the
// same sum in the same order as that of a packed product, for any number of threads.
#pragma once

#include "device/cpu/run.h"
#include "device/cpu/threads.h"
#include "library/cpu/gemm_micro.h"
#include "library/cpu/gemm_pack.h"
#include "library/cpu/gemm_shared.h"
#include "library/cpu/gemm_tiles.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kiln::cpu {

/// Products of one size, without addresses; C is stored and computed.
template <class C>
class DirectProduct {
 public:
  /// Whether packing would take a good part of the time.
  static bool is_small(const Matmul& call) {
    return multiply_adds(call) < kSerialWork && epilogue_work(call) < kSerialEpilogue && call.k <= kDepth &&
           call.n <= kTileCols && call.m <= kTileRows && call.n >= kLeastColumns && strided(call.a) &&
           (has_rows(call.b) || call.m >= kLeastRows);
  }
  /// Whether operands stay in caches where they lie. Rows of the second one that are a multiple of a page
  /// apart share their sets. Panels of columns that are not adjacent are packed for all rows, which have to
  /// stay near meanwhile, with their sums for an epilogue.
  static bool stays_near(const Matmul& call) {
    constexpr std::int64_t kCached = (5 << 19) / kSize, kNear = (2 << 20) / kSize, kFewSteps = 512,
                           kManySteps = 128;
    if (!strided(call.a) || !strided(call.b) || call.n < kLeastColumns || call.k * call.n > kCached)
      return false;
    if (has_rows(call.b))
      return (call.m * call.k <= kCached || call.k >= kManySteps) &&
             (!shares_sets(call.b.row_stride) || call.k <= kFewSteps);
    return call.m >= kLeastRows && call.m * call.k <= kNear && (!call.epilogue || call.m * call.n <= kNear) &&
           !shares_sets(call.a.row_stride) && !shares_sets(call.b.col_stride);
  }

  /// Pre: is_small(call) or stays_near(call). The tables of offsets outlive this.
  explicit DirectProduct(const Matmul& call)
      : micro_(micro<C>(call.strict)),
        m_(call.m),
        n_(call.n),
        k_(call.k),
        a_row_(call.a.row_stride),
        a_col_(call.a.col_stride),
        b_row_(call.b.row_stride),
        b_rows_{call.b.row_stride, call.b.row_offsets},
        b_cols_{call.b.col_stride, call.b.col_offsets},
        packs_(!has_rows(call.b)),
        shared_(multiply_adds(call) >= kAlone || epilogue_work(call) >= kSerialEpilogue) {}

  /// `epilogue`: gets the sums, and `out` is not written. Threads share out the rows where there is work for
  /// them, and columns where there are few rows, or each panel is packed.
  void run(const C* a, const C* b, C* out, const device::Bound* epilogue, std::int64_t batch) const {
    const Operands all{a, b, out, epilogue, batch};
    if (!shared_) return tile(all, 0, m_, 0, n_);
    const std::int64_t threads = thread_count(), panels = (n_ + micro_.nr - 1) / micro_.nr;
    const bool columns = packs_ && panels >= threads;
    const std::int64_t down = columns ? 1 : row_tiles(threads, epilogue != nullptr),
                       across = columns ? column_tiles(threads, panels)
                                        : std::clamp<std::int64_t>(threads / down, 1, panels);
    parallel_for(down * across, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = m_ * (i / across) / down, col = panels * (i % across) / across * micro_.nr;
        tile(all, row, m_ * (i / across + 1) / down - row, col,
             std::min(panels * (i % across + 1) / across * micro_.nr, n_) - col);
      }
    });
  }

 private:
  static constexpr std::int64_t kSize = sizeof(C), kLeastColumns = 8,
                                kLeastRows = 16;  // that packing a panel of columns pays for
  static constexpr double kAlone = 700e3;  // multiply-adds: there is one loop to begin, and nothing to pack
  static constexpr std::int64_t kSteps =
      256;  // of a panel of columns at a time, in the first cache or near it

  static bool shares_sets(std::int64_t stride) {
    constexpr std::int64_t kPage = 4096;
    return stride * kSize % kPage == 0;
  }

  /// Two a thread where they have rows enough for it, and more where the rows of one, or its sums for an
  /// epilogue, would not stay in the second cache.
  std::int64_t row_tiles(std::int64_t threads, bool keeps_sums) const {
    constexpr std::int64_t kNear = 256 << 10, kBlocks = 4;
    const std::int64_t least = micro_.mr / 2 + 1,
                       most = std::max<std::int64_t>(kNear / kSize / (keeps_sums ? std::max(k_, n_) : k_),
                                                     2 * micro_.mr);
    std::int64_t tiles = std::clamp<std::int64_t>(m_ / least, 1, threads);
    if (m_ >= 2 * threads * kBlocks * micro_.mr) tiles = 2 * threads;
    return m_ <= tiles * most ? tiles : round_up((m_ + most - 1) / most, threads);
  }

  /// The same of columns, unless two a thread would differ more than one a thread.
  static std::int64_t column_tiles(std::int64_t threads, std::int64_t panels) {
    const std::int64_t two = 2 * threads;
    return panels % two == 0 || panels > 2 * two ? two : threads;
  }

  struct Operands {
    const C* a;
    const C* b;
    C* out;
    const device::Bound* epilogue;
    std::int64_t batch;
  };

  /// So many rows and columns from one on. Columns in panels of nr, half of that, or few. The last panel may
  /// share columns with the one before. A panel of b is packed first where it has columns that are not there,
  /// or not adjacent ones. So columns between few and half a panel are one panel of a half, which takes one
  /// register where two of few take as many instructions each.
  void tile(const Operands& all, std::int64_t row, std::int64_t rows, std::int64_t col,
            std::int64_t n) const {
    const std::int64_t nr = micro_.nr, half = nr / 2, few = micro_.few_columns;
    const bool one = n > few && n < half && (packs_ || rows >= 2 * kLeastRows),
               whole = !all.epilogue && n >= few && !one;
    const std::int64_t ld = whole ? n_ : round_up(n, nr), parts = (k_ + kSteps - 1) / kSteps,
                       depth = (k_ + parts - 1) / parts;
    const auto aligned = [](std::int64_t elements) {
      return static_cast<std::size_t>(round_up(elements * kSize, 64));
    };
    const std::size_t panel = aligned(depth * nr), sums = whole ? 0 : aligned(rows * ld);
    std::byte* const memory =
        scratch(panel + sums + (all.epilogue ? epilogue_memory(*all.epilogue->launch) : 0));
    C* const packed = reinterpret_cast<C*>(memory);
    C* const to = whole ? all.out + row * n_ + col : reinterpret_cast<C*>(memory + panel);
    for (std::int64_t c = 0, width; c < n; c += width) {
      const std::int64_t left = n - c;
      width = left >= nr || (left > half + few && n >= nr) ? nr
              : one || (left > few && n >= half)           ? half
                                                           : few;
      const std::int64_t at = n >= width ? std::min(c, n - width) : c, used = std::min(width, n - at);
      const bool packs = packs_ || used < width;
      for (std::int64_t p = 0; p < k_; p += depth) {
        const std::int64_t steps = std::min(depth, k_ - p);
        if (packs) pack_panel(all.b, b_cols_.from(col + at), b_rows_.from(p), used, width, steps, packed);
        columns(rows, steps, all.a + row * a_row_ + p * a_col_,
                packs ? packed : all.b + p * b_row_ + col + at, packs ? width : b_row_, width, to + at, ld,
                p == 0);
      }
    }
    if (whole) return;
    if (all.epilogue)
      return run_epilogue(*all.epilogue, {all.batch, row, col, n, ld, rows, to}, memory + panel + sums);
    for (std::int64_t r = 0; r < rows; ++r) copy_run(to + r * ld, all.out + (row + r) * n_ + col, n);
  }

  /// So many steps of one panel of columns times so many rows of a, in blocks of nearly equal heights.
  void columns(std::int64_t rows, std::int64_t steps, const C* a, const C* b, std::int64_t b_row,
               std::int64_t width, C* to, std::int64_t ld, bool first) const {
    const std::int64_t blocks = (rows + micro_.mr - 1) / micro_.mr, least = rows / blocks,
                       higher = rows % blocks;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t height = least + (i < higher);
      micro_.direct(height, width)(steps, a, a_row_, a_col_, b, b_row, to, ld, first, false);
      a += height * a_row_, to += height * ld;
    }
  }

  const Micro<C>& micro_;
  std::int64_t m_, n_, k_, a_row_, a_col_, b_row_;
  Lines b_rows_, b_cols_;
  bool packs_;   // b's columns are not adjacent
  bool shared_;  // by threads
};

}  // namespace kiln::cpu
