#include "lower/attention_form.h"

#include <algorithm>
#include <cstring>

namespace kiln::lower {
namespace {

using plan::Attention;
using plan::kNoTerm;
using plan::MatrixMemory;
using plan::Term;
using plan::TermId;

constexpr std::int64_t kMostCoordinate = 1 << 24;  // that main loops for the copy engine divide in 32 bits

/// As struct AttentionShape in kernels_templates/attention.cuh.
struct Shape {
  std::int32_t rows, columns, batch, blocks;
  std::int64_t q_row, k_row, v_row;
};
static_assert(sizeof(Shape) == 40);

/// As struct AttentionParts there.
struct Parts {
  std::int32_t divisor[3][3], extent[3][3];
  std::int32_t group, items;
  std::int32_t again, unused;
};
static_assert(sizeof(Parts) == 88);

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit * unit; }
std::int64_t blocks_of(const Attention& a, const AttentionForm& form) {
  return round_up(a.rows, form.rows) / form.rows;
}

/// Few rows against narrow heads take the time of reading k and v: blocks of a warp or two, of which several
/// share a multiprocessor, wait for memory side by side. Of halves that pays in many matrices, where there
/// are few keys, or large blocks would have hardly a row, or half of each copy nothing.
bool is_small(const Attention& a) {
  constexpr std::int64_t kHardly = 8, kNarrow = 64, kNarrowest = 32, kMany = 256;
  if (a.q.dtype == DType::Float32) return plan::has_few_rows(a);
  const std::int64_t width = std::max(a.depth, a.width);
  return a.rows <= plan::kFewPairRows && width <= kNarrow && a.batch >= kMany &&
         (a.columns <= kFewPairColumns || a.rows <= kHardly || width <= kNarrowest);
}
std::int64_t small_rows(const Attention& a) { return round_up(a.rows, 16); }

AttentionForm mma_form(const Attention& a) {
  if (is_small(a)) {
    const std::int64_t rows = small_rows(a), columns = 64, depth = round_up(a.depth, 16),
                       width = round_up(a.width, 16);
    return {false, rows,  columns,  rows / 16,
            1,     width, 2 * rows, 2 * ((rows + columns) * (depth + 8) + columns * (width + 8))};
  }
  const bool tall = a.depth <= 128 && a.width <= 128;
  const std::int64_t rows = 128, columns = 64, warps = tall ? 4 : 8;
  const std::int64_t depth = round_up(a.depth, 16), width = round_up(a.width, 16);
  const std::int64_t pitches = 2 * (rows + columns) * (depth + 8) + 2 * columns * (width + 8);
  return {false, rows, columns, warps, tall ? 2 : 1, width, 32 * warps, pitches};
}

/// Shared memory that a block may have, in KiB.
std::int64_t shared_limit(int architecture) {
  switch (architecture) {
    case 80:
    case 87: return 163;
    case 90:
    case 100:
    case 103: return 227;
    default: return 99;
  }
}

/// Sums of a row, scores and, for as many columns, what is left out of the factors' high parts fill
/// registers.
AttentionForm float_form(const Attention& a, int architecture) {
  const std::int64_t depth = round_up(a.depth, 8), width = round_up(a.width, 8);
  constexpr std::int64_t columns = 32;
  std::int64_t rows = is_small(a) ? small_rows(a) : 64;
  const auto shared = [&] { return 4 * ((rows + columns) * (depth + 4) + columns * (width + 4)); };
  const std::int64_t limit = (shared_limit(architecture) - 1) << 10;
  if (shared() > limit) rows = 32;
  return {false, rows, columns, rows / 16, 1, width, 2 * rows, shared()};
}

/// Slabs of 64 columns, stages of k and v, barriers and notes, and what is left out before a multiple of
/// 1024. Registers decide: scores, weights and results of 64 rows must fit those of a warpgroup.
AttentionForm wgmma_form(const Attention& a) {
  constexpr std::int64_t kSlab = 64, kUnit = 1024, kShared = 227 * kUnit, kMostStages = 4;
  const bool small = a.depth <= 64 && a.width <= 64, large = a.depth > 192 || a.width > 128;
  const bool few = a.columns <= kFewPairColumns && a.depth <= 128 && a.width <= 128;
  const std::int64_t columns = (few && !small) || large ? 64 : 128,
                     groups = few     ? 1
                              : small ? 3
                                      : 2,
                     rows = 64 * groups, warps = 4 * groups, blocks = few ? 2 : 1;
  const std::int64_t depth = round_up(a.depth, kSlab), width = round_up(a.width, kSlab);
  const std::int64_t piece = width % 128 == 0 ? 128 : 64;
  const auto shared = [&](std::int64_t stages, std::int64_t q_stages) {
    return 2 * (q_stages * rows * depth + stages * columns * (depth + width)) +
           8 * (3 * q_stages + 8 * stages) + kUnit;
  };
  const std::int64_t most = kShared / blocks - (blocks - 1) * kUnit;
  std::int64_t stages = kMostStages;
  while (stages > 2 && shared(stages, 1) > most) --stages;
  const std::int64_t q_stages = shared(stages, 2) <= most ? 2 : 1;
  return {true,   rows,   columns, warps, 1, piece, 32 * warps + 128, shared(stages, q_stages),
          blocks, stages, q_stages};
}

/// Whether the copy engine takes q, k and v, which are aligned: at most five axes, strides that are positive.
/// An only row's may be anything.
bool copied_by_tiles(const Attention& a) {
  const auto fits = [](const MatrixMemory& m, std::int64_t rows) {
    return m.parts.size() <= 3 && (m.row > 0 || rows == 1) &&
           std::ranges::all_of(m.parts, [](const MatrixMemory::Part& p) {
             return p.stride > 0 && p.extent < kMostCoordinate && p.divisor < kMostCoordinate;
           });
  };
  return std::min({a.rows, a.columns, a.depth, a.width}) > 0 && fits(a.q, a.rows) && fits(a.k, a.columns) &&
         fits(a.v, a.columns) && a.batch < kMostCoordinate && a.batch * a.rows < std::int64_t{1} << 31;
}

/// Whether t is a number, the same everywhere, where `mask` chooses its other value.
bool uniform_without(const Attention& a, TermId mask) {
  std::vector<bool> uniform;
  for (const Term& t : a.terms) {
    const auto of = [&](TermId x) { return uniform[static_cast<std::size_t>(x)]; };
    const bool number = t.kind == Term::Kind::Scalar || t.kind == Term::Kind::Constant;
    const bool masks = static_cast<TermId>(uniform.size()) == mask;
    uniform.push_back(number || (t.kind == Term::Kind::Operation &&
                                 (masks ? of(t.in[2]) : std::all_of(t.in, t.in + t.n_in, of))));
  }
  return uniform[static_cast<std::size_t>(a.t)];
}

const MatrixMemory& operand(const Attention& a, int which) {
  return which == 0 ? a.q : which == 1 ? a.k : a.v;
}

}  // namespace

AttentionForm attention_form(const Attention& a, int architecture, bool aligned) {
  constexpr int kHopper = 90;
  if (a.q.dtype == DType::Float32) return float_form(a, architecture);
  return architecture == kHopper && !is_small(a) && aligned && copied_by_tiles(a) ? wgmma_form(a)
                                                                                  : mma_form(a);
}

std::vector<std::byte> attention_head(const Attention& a, const AttentionForm& form, bool again) {
  std::vector<std::byte> out(sizeof(Shape) + (form.hopper ? sizeof(Parts) : 0));
  const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
  const Shape shape{narrow(a.rows), narrow(a.columns), narrow(a.batch), narrow(blocks_of(a, form)),
                    a.q.row,        a.k.row,           a.v.row};
  std::memcpy(out.data(), &shape, sizeof shape);
  if (!form.hopper) return out;
  Parts parts{};
  for (int i = 0; i < 3; ++i) {
    const MatrixMemory& m = operand(a, i);
    for (std::size_t p = 0; p < m.parts.size(); ++p) {
      parts.divisor[i][p] = narrow(m.parts[p].divisor);
      parts.extent[i][p] = narrow(m.parts[p].extent);
    }
  }
  // matrices whose k and v the second cache holds together
  constexpr std::int64_t kHeld = 16 << 20, kMostMatrices = 64;
  const std::int64_t bytes = a.columns * (a.depth + a.width) * size_of(a.k.dtype);
  parts.group = narrow(std::clamp<std::int64_t>(kHeld / bytes, 1, kMostMatrices));
  parts.items = narrow(a.batch * blocks_of(a, form));
  parts.again = again;
  std::memcpy(out.data() + sizeof shape, &parts, sizeof parts);
  return out;
}

device::TiledBuffer attention_tiles(const Attention& a, const AttentionForm& form, int which) {
  const MatrixMemory& m = operand(a, which);
  device::TiledBuffer t{0, m.dtype, static_cast<int>(2 + m.parts.size()), {}, {}, {1, 1, 1, 1, 1}};
  t.dims[0] = which == 2 ? a.width : a.depth;
  t.dims[1] = which == 0 ? a.rows : a.columns;
  t.strides[0] = 1;
  t.strides[1] = t.dims[1] == 1 ? round_up(t.dims[0], 64) : m.row;
  t.box[0] = 64;
  t.box[1] = static_cast<std::int32_t>(which == 0 ? form.rows : form.columns);
  for (std::size_t p = 0; p < m.parts.size(); ++p) {
    t.dims[2 + p] = m.parts[p].extent;
    t.strides[2 + p] = m.parts[p].stride;
  }
  return t;
}

TermId leaving_mask(const Attention& a) {
  if (a.t == kNoTerm || a.weight != kNoTerm) return kNoTerm;
  if (std::ranges::any_of(a.sums, [](TermId u) { return u != kNoTerm; })) return kNoTerm;
  const auto found = std::ranges::find_if(a.masks, [&](TermId m) { return uniform_without(a, m); });
  return found == a.masks.end() ? kNoTerm : *found;
}

bool reads_flags(const Attention& a) { return leaving_mask(a) != kNoTerm; }

bool finds_flags(const Attention& a, const AttentionForm& form, const schedule::Target& target) {
  const bool tests = target.templates == schedule::Target::Templates::All;
  constexpr std::int64_t kWarps = 8,  // beside fewer, registers are short
      kWidth = 128;                   // wider ones take longer so
  return form.hopper && form.warps >= kWarps && a.width <= kWidth && reads_flags(a) &&
         (tests || a.rows > kFewPairColumns);
}

}  // namespace kiln::lower
