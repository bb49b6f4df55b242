#include "lower/pair_sums_form.h"

#include "lower/attention_form.h"

#include <algorithm>

namespace kiln::lower {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kOwn = kKiB;  // of a block, beside what it asks for
constexpr std::int64_t kMostRegisters =
    176;  // of a thread, for products and sums: the rest holds weights and places

/// Shared memory of a multiprocessor (CUDA C Programming Guide, "Technical Specifications per Compute
/// Capability").
std::int64_t shared_memory(int architecture) {
  switch (architecture) {
    case 80:
    case 87: return 164 * kKiB;
    case 90:
    case 100:
    case 103: return 228 * kKiB;
    default: return 100 * kKiB;
  }
}

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit * unit; }

/// Of a row in shared memory, for each of these widths.
std::int64_t pitches(std::span<const std::int64_t> widths) {
  std::int64_t total = 0;
  for (const std::int64_t w : widths) total += 2 * round_up(w, 16) + 16;
  return total;
}

/// The form of so many warpgroups of 64 rows: one, with a second block beside it, or two.
std::optional<PairForm> wgmma_form(const PairSizes& s, std::int64_t groups) {
  constexpr std::int64_t kSlab = 64, kPieceMost = 128, kUnit = kKiB, kMostStages = 4;
  const std::int64_t blocks = 3 - groups, rows = 64 * groups, warps = 4 * groups;
  // for products, sums, weights and values of rows; the rest holds places
  const std::int64_t most_registers = groups == 1 ? 222 : 230;
  const std::int64_t most = shared_memory(90) / blocks - kOwn;
  const auto slabs = [](std::span<const std::int64_t> widths) {
    std::int64_t total = 0;
    for (const std::int64_t w : widths) total += round_up(w, kSlab);
    return total;
  };
  const auto products = static_cast<std::int64_t>(s.depths.size());
  const std::int64_t padded = round_up(s.width, kSlab), piece = padded % kPieceMost == 0 ? kPieceMost : kSlab;
  if (s.adds && (groups != 2 || padded > kPieceMost)) return std::nullopt;
  for (const std::int64_t columns : {128, 64}) {
    if (s.adds && columns != kSlab) continue;
    // a sum over rows takes the place of products
    const std::int64_t registers = s.sums * (padded / 2 + columns / 4) +
                                   std::max(products * columns / 2, s.adds ? padded / 4 + columns / 2 : 0) +
                                   2 * s.row_values;
    if (registers > most_registers) continue;
    const std::int64_t block = 2 * rows * slabs(s.depths),  // of rows
        added = s.adds ? 2 * 2 * rows * columns + 4 * columns * padded : 0,
                       stage = columns * (2 * slabs(s.operands) + 4 * s.column_values);
    const auto shared = [&](std::int64_t stages, std::int64_t x_stages) {
      return x_stages * block + added + stages * stage + 8 * (3 * x_stages + 3 * stages) + kUnit;
    };
    for (std::int64_t stages = kMostStages; stages >= 2; --stages) {
      if (shared(stages, 1) > most) continue;
      const std::int64_t x_stages = shared(stages, 2) <= most ? 2 : 1;
      return PairForm{
          true,    rows, columns, warps, 1, stages, blocks, piece, 32 * warps + 128, shared(stages, x_stages),
          x_stages};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<PairForm> mma_form(const PairSizes& s, int architecture) {
  struct Choice {
    std::int64_t warps, fragments, columns, blocks;
  };
  // The more rows a warp has, the fewer loads of shared memory are there for each product; two blocks, or
  // eight warps, keep a multiprocessor busy while others make weights.
  constexpr Choice kChoices[] = {{4, 2, 64, 2}, {4, 2, 32, 2}, {8, 1, 64, 1}, {8, 1, 32, 1},
                                 {4, 1, 64, 2}, {4, 1, 32, 2}, {4, 1, 32, 1}, {4, 1, 16, 1}};
  const auto products = static_cast<std::int64_t>(s.depths.size());
  const std::int64_t piece = round_up(std::max<std::int64_t>(s.width, 1), 16);
  for (const Choice& c : kChoices) {
    const std::int64_t registers =
        c.fragments * (s.sums * round_up(s.width, 16) / 2 + products * c.columns / 2 + 2 * s.row_values);
    if (registers > kMostRegisters) continue;
    const std::int64_t rows = 16 * c.warps * c.fragments,
                       most = shared_memory(architecture) / c.blocks - kOwn;
    for (const std::int64_t stages : {2, 1}) {
      const std::int64_t stage = c.columns * (pitches(s.operands) + 4 * s.column_values);
      const std::int64_t shared = rows * pitches(s.depths) + stages * stage;
      if (shared <= most)
        return PairForm{false,  rows,     c.columns, c.warps,      c.fragments,
                        stages, c.blocks, piece,     32 * c.warps, shared};
    }
  }
  return std::nullopt;
}

std::optional<PairForm> wgmma_form(const PairSizes& s) {
  // Few tiles: a block's begin and end count, so two blocks of one warpgroup share a multiprocessor.
  if (s.columns <= kFewPairColumns && !s.adds)
    if (const auto form = wgmma_form(s, 1)) return form;
  return wgmma_form(s, 2);
}

}  // namespace kiln::lower
