#include "lower/pair_sums_form.h"

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

}  // namespace

std::optional<PairForm> pair_form(std::span<const std::int64_t> depths,
                                  std::span<const std::int64_t> operands, std::int64_t sums,
                                  std::int64_t width, int architecture) {
  struct Choice {
    std::int64_t warps, fragments, columns, blocks;
  };
  // The more rows a warp has, the fewer loads of shared memory are there for each product; two blocks, or
  // eight warps, keep a multiprocessor busy while others make weights.
  constexpr Choice kChoices[] = {{4, 2, 64, 2}, {4, 2, 32, 2}, {8, 1, 64, 1}, {8, 1, 32, 1},
                                 {4, 1, 64, 2}, {4, 1, 32, 2}, {4, 1, 32, 1}, {4, 1, 16, 1}};
  const auto products = static_cast<std::int64_t>(depths.size());
  for (const Choice& c : kChoices) {
    const std::int64_t registers = c.fragments * (sums * round_up(width, 16) / 2 + products * c.columns / 2);
    if (registers > kMostRegisters) continue;
    const std::int64_t rows = 16 * c.warps * c.fragments,
                       most = shared_memory(architecture) / c.blocks - kOwn;
    for (const std::int64_t stages : {2, 1}) {
      const std::int64_t shared = rows * pitches(depths) + stages * c.columns * pitches(operands);
      if (shared <= most) return PairForm{rows, c.columns, c.warps, c.fragments, stages, c.blocks, shared};
    }
  }
  return std::nullopt;
}

}  // namespace kiln::lower
