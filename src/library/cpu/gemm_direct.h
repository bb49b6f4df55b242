// Direct products: so small that packing would take a good part of their time. Operands are read where they
// lie. Each element is the same sum in the same order as that of a packed product, for any number of threads.
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
  static bool fits(const Matmul& call) {
    return (panels_stay_near(call) || multiply_adds(call) < kSerialWork) &&
           epilogue_work(call) < kSerialEpilogue && call.k <= kDepth && call.n <= kTileCols &&
           call.m <= kTileRows && call.n >= 8 && strided(call.a) && (has_rows(call.b) || call.m >= 16);
  }

  /// Pre: fits(call). The tables of offsets outlive this.
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
        shared_(multiply_adds(call) >= kAlone) {}

  /// `epilogue`: gets the sums, and `out` is not written. Threads share out the rows where there is work for
  /// them.
  void run(const C* a, const C* b, C* out, const device::Bound* epilogue, std::int64_t batch) const {
    const std::int64_t parts =
        shared_ ? std::clamp<std::int64_t>(m_ / (micro_.mr / 2 + 1), 1, thread_count()) : 1;
    if (parts == 1) return rows(0, m_, a, b, out, epilogue, batch);
    parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end, int) {
      rows(m_ * begin / parts, m_ * end / parts - m_ * begin / parts, a, b, out, epilogue, batch);
    });
  }

 private:
  static constexpr double kAlone = 450e3;  // multiply-adds: there is one loop to begin, and nothing to pack

  /// So many rows from one on. Columns in panels of nr, half of that, or few. The last panel may share
  /// columns with the one before. A panel of b is packed first where it has columns that are not there, or
  /// not adjacent ones.
  void rows(std::int64_t row, std::int64_t count, const C* a, const C* b, C* out,
            const device::Bound* epilogue, std::int64_t batch) const {
    const std::int64_t nr = micro_.nr, half = nr / 2, few = micro_.few_columns,
                       ld = epilogue || n_ < few ? round_up(n_, nr) : n_;
    const bool whole = !epilogue && n_ >= few;
    const auto aligned = [](std::int64_t elements) {
      return (static_cast<std::size_t>(elements) * sizeof(C) + 63) / 64 * 64;
    };
    const std::size_t panel = aligned(k_ * nr), tile = whole ? 0 : aligned(count * ld);
    std::byte* const memory = scratch(panel + tile + (epilogue ? epilogue_memory(*epilogue->launch) : 0));
    C* const packed = reinterpret_cast<C*>(memory);
    C* const sums = reinterpret_cast<C*>(memory + panel);
    C* const to = whole ? out + row * n_ : sums;
    for (std::int64_t c = 0, width; c < n_; c += width) {
      const std::int64_t left = n_ - c;
      width = left >= nr || (left > half + few && n_ >= nr) ? nr : left > few && n_ >= half ? half : few;
      const std::int64_t at = n_ >= width ? std::min(c, n_ - width) : c, used = std::min(width, n_ - at);
      const bool packs = packs_ || used < width;
      if (packs) pack_panel(b, b_cols_.from(at), b_rows_, used, width, k_, packed);
      columns(count, a + row * a_row_, packs ? packed : b + at, packs ? width : b_row_, width, to + at, ld);
    }
    if (whole) return;
    if (epilogue) return run_epilogue(*epilogue, {batch, row, 0, n_, ld, count, sums}, memory + panel + tile);
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(sums + r * ld, n_, out + (row + r) * n_);
  }

  /// One panel of columns times so many rows of a, in blocks of nearly equal heights.
  void columns(std::int64_t rows, const C* a, const C* b, std::int64_t b_row, std::int64_t width, C* to,
               std::int64_t ld) const {
    const std::int64_t blocks = (rows + micro_.mr - 1) / micro_.mr, least = rows / blocks,
                       higher = rows % blocks;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t height = least + (i < higher);
      micro_.direct(height, width)(k_, a, a_row_, a_col_, b, b_row, to, ld, true, false);
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
