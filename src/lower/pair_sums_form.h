// The form of a main loop for sums over pairs on a GPU: the sizes of its tiles, by what fits registers and
// shared memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kiln::lower {

/// Constants of the main loop's Config, see kernels_templates/pair_sums.cuh, and what a block needs.
struct PairForm {
  std::int64_t rows, columns, warps, fragments, stages, blocks;
  std::int64_t shared;  // bytes
};

/// `depths`: of the products; `operands`: widths of what is read tile by tile; `sums`: how many, `width` wide
/// each. Nothing: there is no form.
std::optional<PairForm> pair_form(std::span<const std::int64_t> depths,
                                  std::span<const std::int64_t> operands, std::int64_t sums,
                                  std::int64_t width, int architecture);

}  // namespace kiln::lower
