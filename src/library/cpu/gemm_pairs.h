// Products of bfloat16 by instructions that multiply and add two terms of a sum at once (AVX512_BF16): twice
// as fast as float32. Panels have pairs of steps, 32 bits each, where those of float32 have steps. The
// instructions take subnormal numbers for zero, so the strict mode does without.
#pragma once

#include "library/cpu/gemm_pack.h"

#include <cstdint>

namespace kiln::cpu {

struct PairMicro {
  static constexpr int kRows = 14, kColumns = 32;  // of panels
  /// c[rows × columns] = (first ? 0 : c) + Σ_p a[p] · b[p] of pairs of steps, for rows 1 to 14 and half a
  /// panel or a whole one of columns.
  using Sums = void(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* c,
                    std::int64_t ldc, bool first);
  Sums* sums[kRows][2];
};

/// Null where the processor has no such instructions.
const PairMicro* pair_micro();

/// One panel, as pack_panel() makes it, of lines at strides: to[p·width + w] = steps 2·p and 2·p + 1 of line
/// w. A last step alone is beside a zero.
void pack_pairs(const bfloat16* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                std::int64_t depth, std::uint32_t* to);

}  // namespace kiln::cpu
