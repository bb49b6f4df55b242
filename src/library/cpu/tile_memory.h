// What routines that go tile by tile share: packed operands of the micro-kernels, and calls of the generated
// kernels.
#pragma once

#include "device/cpu/executable.h"
#include "library/attention.h"
#include "library/cpu/gemm_pack.h"
#include "support/check.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace kiln::cpu {

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// n lines in as few blocks as there can be of up to `most`, which differ by one line at most.
struct EvenBlocks {
  std::int64_t n, count;
  EvenBlocks(std::int64_t lines, std::int64_t most) : n(lines), count((lines + most - 1) / most) {}
  std::int64_t begin(std::int64_t i) const { return i * (n / count) + std::min(i, n % count); }
  std::int64_t size(std::int64_t i) const { return n / count + (i < n % count); }
};

/// Rows and columns of tiles of about `most` columns.
inline std::pair<std::int64_t, std::int64_t> tile_within(std::int64_t columns, std::int64_t most) {
  const Micro<float>& m = micro<float>(false);
  return {m.nr, std::min(round_up(columns, m.mr), most / m.mr * m.mr)};
}

/// `lines` lines of n elements as columns of a panel: to[p · width + l].
template <class T>
void pack(const T* from, std::int64_t line, std::int64_t step, std::int64_t lines, std::int64_t width,
          std::int64_t n, float* to) {
  if (lines < width) std::fill_n(to, width * n, 0.0f);
  pack_strided(from, line, step, lines, width, n, to);
}

template <class F>
void with_type(DType type, F f) {
  switch (type) {
    case DType::Float32: return f(float{});
    case DType::Float16: return f(float16{});
    case DType::BFloat16: return f(bfloat16{});
    case DType::Bool:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Float64: break;
  }
  KILN_CHECK_THAT(false, "an attention of ", name(type));
}

/// The bits of the greatest magnitude: of inf and above if an element is not finite.
inline std::uint32_t greatest_bits(const float* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  return most;
}
inline bool all_finite(const float* x, std::int64_t n) { return greatest_bits(x, n) < 0x7f800000u; }

/// The address of an element.
inline std::byte* element(const library::AttentionMatrix& m, std::int64_t number, std::int64_t row,
                          std::int64_t column) {
  const plan::MatrixMemory& l = *m.layout;
  return m.data +
         (l.batch[static_cast<std::size_t>(number)] + row * l.row + column * l.column) * size_of(l.dtype);
}

/// Where a tile begins.
struct TilePlace {
  std::int64_t number, row, column;  // number: of the matrix
};

inline std::uint64_t slot_value(const library::TileSlot& s, std::span<const std::uint64_t> plan,
                                const TilePlace& at) {
  switch (s.kind) {
    case library::TileSlot::Kind::Plan: return plan[s.slot];
    case library::TileSlot::Kind::Row: return static_cast<std::uint64_t>(at.row);
    case library::TileSlot::Kind::Column: return static_cast<std::uint64_t>(at.column);
    case library::TileSlot::Kind::Batch: return static_cast<std::uint64_t>(at.number / s.divisor % s.extent);
  }
  return 0;
}

/// Runs kernels one after the other. `plan`: the values of the plan's scalars. address_of: TileBuffer ->
/// void*.
template <class A>
void run_tile_kernels(std::span<const library::TileKernel> kernels, std::span<const std::uint64_t> plan,
                      const TilePlace& at, A address_of) {
  for (const library::TileKernel& t : kernels) {
    constexpr std::size_t kMost = 128;
    void* buffers[kMost];
    std::uint64_t slots[kMost];
    KILN_CHECK_THAT(t.buffers.size() <= kMost && t.slots.size() <= kMost,
                    "a tile's kernel has too many operands");
    for (std::size_t i = 0; i < t.buffers.size(); ++i) buffers[i] = address_of(t.buffers[i]);
    for (std::size_t i = 0; i < t.slots.size(); ++i) slots[i] = slot_value(t.slots[i], plan, at);
    const auto& code = static_cast<const Executable&>(*t.launch.code);
    const kernel::Frame frame{buffers, t.launch.params.data(), slots};
    code.body(frame, 0, t.launch.grid, t.launch.scratch_bytes, t.launch.grid);
    code.finish(frame, t.launch.finish_grid);
  }
}

}  // namespace kiln::cpu
