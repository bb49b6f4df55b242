// The form of a main loop for sums over pairs on a GPU: the sizes of its tiles, by what fits registers and
// shared memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kiln::lower {

/// What a form is chosen by: widths of the products' operands; widths of what is read tile by tile; how many
/// sums, `width` wide each; how many values rows and columns have that come with hooks; how many columns.
struct PairSizes {
  std::span<const std::int64_t> depths, operands;
  std::int64_t sums, width, row_values, column_values;
  std::int64_t columns;  // that a block of rows walks over
  bool adds = false;     // a sum over rows beside them, as wide
};

/// Constants of the main loop's Config, see kernels_templates/pair_sums.cuh, and what a block needs.
struct PairForm {
  bool hopper;  // pair_sums_wgmma, else pair_sums_mma
  std::int64_t rows, columns, warps, fragments, stages, blocks, piece;
  std::int64_t threads, shared;  // shared: bytes
  std::int64_t x_stages = 1;     // of operands of rows
};

/// Nothing: there is no form.
std::optional<PairForm> mma_form(const PairSizes& sizes, int architecture);
std::optional<PairForm> wgmma_form(const PairSizes& sizes);

}  // namespace kiln::lower
