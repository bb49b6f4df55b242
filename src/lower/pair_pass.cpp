#include "lower/pair_pass.h"

#include "lower/attention_form.h"
#include "math/expand.h"

#include <algorithm>
#include <limits>
#include <span>

namespace kiln::lower {

using kernel::BufferDecl;
using kernel::E;
using plan::kNoTerm;
using plan::MatrixMemory;
using plan::PairSums;
using plan::Term;
using plan::TermId;

constexpr std::int64_t kFlagColumns = 64;  // as in pair_tiles.cuh
constexpr std::size_t kMostStaged = 6;     // values of a row in registers, of a column in shared memory
constexpr std::size_t kTiledParts = 3;     // of a batch, that pair_sums_wgmma finds matrices by
constexpr std::int64_t kMostCoordinate = 1 << 24;  // that it divides in 32 bits

static bool same(const MatrixMemory& x, const MatrixMemory& y) {
  return x.base == y.base && x.dtype == y.dtype && x.row == y.row && x.column == y.column &&
         x.offset == y.offset && x.batch == y.batch && x.positions.empty() && y.positions.empty();
}

PairPassKernel::PairPassKernel(const plan::Graph& g, const PairSums& s, PairPass pass,
                               const schedule::Target& target)
    : PairKernel(g, s, target), s_(s), pass_(std::move(pass)) {
  for (const std::size_t i : pass_.sums)
    values_.push_back(before_rounding(s_.weights[static_cast<std::size_t>(s_.sums[i].weight)]));
  for (std::size_t i = 0; i < s_.statistics.size() && pass_.kind == PairPass::Kind::Statistics; ++i)
    if (s_.statistics[i].level == pass_.level) {
      reduced_.push_back(i);
      values_.push_back(s_.statistics[i].of);
    }
  find_reached();
  take_operands();
  find_masks();
  for (const TermId v : values_) stage(v);
  if (const auto chosen = form(); chosen && chosen->hopper) find_early();
}

std::optional<PairForm> PairPassKernel::form() const {
  if (x_.size() > kMostProducts || y_.size() > kMostOperands || values_.size() > kMostValues)
    return std::nullopt;
  const std::span<const std::int64_t> widths = widths_;
  PairSizes sizes{widths.first(x_.size()),
                  widths,
                  static_cast<std::int64_t>(pass_.sums.size()),
                  width(),
                  static_cast<std::int64_t>(of_rows_.size()),
                  static_cast<std::int64_t>(of_columns_.size()),
                  kernel_columns(),
                  pass_.adds >= 0};
  if (sizes.adds && !(added() && copied_by_tiles())) return std::nullopt;
  if (copied_by_tiles()) {
    if (const auto form = wgmma_form(sizes)) return form;
    if (sizes.adds) return std::nullopt;
    PairSizes one = sizes;
    one.sums = 1;
    if (sizes.sums > 1 && wgmma_form(one)) return std::nullopt;  // each sum is a launch of its own
  }
  return mma_form(sizes, target_.architecture);
}

std::optional<PairPassKernel::Added> PairPassKernel::added() const {
  if (pass_.adds < 0) return std::nullopt;
  const PairSums::Sum& sum = s_.sums[static_cast<std::size_t>(pass_.adds)];
  const TermId weight = before_rounding(s_.weights[static_cast<std::size_t>(sum.weight)]);
  for (std::size_t x = 0; x < x_.size(); ++x)
    for (std::size_t m = 0; m < pass_.sums.size(); ++m)
      if (values_[m] == weight && widths_[x] == sum.width && same(*x_[x], sum.other)) return Added{x, m};
  return std::nullopt;
}

bool PairPassKernel::adds() const {
  constexpr std::int64_t kLeastRows = 1024;  // memory of the sum is written twice and read once
  constexpr std::int64_t kUnit = 8;          // columns of a thread in pair_added.cuh
  return !target_.exact && form() && s_.sums[static_cast<std::size_t>(pass_.adds)].width % kUnit == 0 &&
         s_.batch * kernel_columns() < std::int64_t{1} << 31 &&
         kernel_rows() >=
             (target_.templates == schedule::Target::Templates::All ? kFewPairColumns + 1 : kLeastRows);
}

bool PairPassKernel::checks() const {
  if (pass_.adds >= 0) return false;  // what is made again would be added again
  constexpr int kWarps = 8;           // beside fewer, registers are short
  constexpr std::int64_t kWidth = 128;
  const auto chosen = form();
  return leaves_out() && chosen && chosen->hopper && chosen->warps == kWarps && width() <= kWidth &&
         (target_.templates == schedule::Target::Templates::All || kernel_rows() > kFewPairColumns);
}

// ---- what the pass is made of

/// A weight is rounded to the operands' dtype as it becomes an operand.
TermId PairPassKernel::before_rounding(TermId id) const {
  const auto casts_to = [&](TermId t, DType type) {
    return term_at(t).kind == Term::Kind::Operation && term_at(t).op == ir::Op::cast &&
           term_at(t).dtype == type;
  };
  if (!casts_to(id, DType::Float32)) return id;
  const TermId half = term_at(id).in[0];
  return casts_to(half, element()) ? term_at(half).in[0] : id;
}

/// Terms that the pass's values are made of.
void PairPassKernel::find_reached() {
  reached_.assign(s_.terms.size(), false);
  for (const TermId v : values_) reached_[static_cast<std::size_t>(v)] = true;
  for (std::size_t i = s_.terms.size(); i-- > 0;)
    for (int k = 0; k < s_.terms[i].n_in && reached_[i]; ++k)
      reached_[static_cast<std::size_t>(s_.terms[i].in[k])] = true;
}
template <class F>
void PairPassKernel::each_reached(Term::Kind kind, const F& f) const {
  for (std::size_t i = 0; i < s_.terms.size(); ++i)
    if (reached_[i] && s_.terms[i].kind == kind) f(s_.terms[i]);
}

void PairPassKernel::take_operands() {
  std::vector<bool> read(s_.products.size());
  PairPassKernel::each_reached(Term::Kind::Score,
                               [&](const Term& t) { read[static_cast<std::size_t>(t.index)] = true; });
  for (std::size_t p = 0; p < s_.products.size(); ++p) {
    if (!read[p]) continue;
    const PairSums::Product& product = s_.products[p];
    products_.push_back(p);
    x_.push_back(pass_.over_rows ? &product.y : &product.x);
    y_.push_back(pass_.over_rows ? &product.x : &product.y);
    widths_.push_back(product.depth);
  }
  for (const std::size_t i : pass_.sums) {
    const PairSums::Sum& sum = s_.sums[i];
    std::size_t o = 0;
    while (o < y_.size() && !(same(*y_[o], sum.other) && widths_[o] == sum.width)) ++o;
    if (o == y_.size()) {
      y_.push_back(&sum.other);
      widths_.push_back(sum.width);
    }
    operand_of_sum_.push_back(o);
  }
}

/// Whether pair_sums_wgmma takes the pass: the copy engine reads at most five axes of positive strides.
bool PairPassKernel::copied_by_tiles() const {
  constexpr int kHopper = 90;
  if (target_.architecture != kHopper || pass_.sums.empty() || !reduced_.empty() || x_.empty() ||
      x_.size() > kTiledProducts || y_.size() > kTiledOperands || !all_aligned(x_) || !all_aligned(y_))
    return false;
  const auto fits = [](const MatrixMemory* m) {
    return m->parts.size() <= kTiledParts && m->row > 0 &&
           std::ranges::all_of(m->parts, [](const MatrixMemory::Part& p) {
             return p.stride > 0 && p.extent < kMostCoordinate && p.divisor < kMostCoordinate;
           });
  };
  return std::ranges::all_of(x_, fits) && std::ranges::all_of(y_, fits) &&
         s_.batch * kernel_rows() < std::int64_t{1} << 31;
}

bool PairPassKernel::all_aligned(const std::vector<const MatrixMemory*>& of) const {
  return std::ranges::all_of(of, [&](const MatrixMemory* m) { return is_aligned(*m); });
}

// ---- values of rows and of columns

/// Whether a term is worth a place: it reads memory, or computes with floats of a row or a column.
bool PairPassKernel::is_work(TermId id) const {
  const Term& t = term_at(id);
  if (t.kind == Term::Kind::Memory || t.kind == Term::Kind::Statistic) return true;
  if (t.kind != Term::Kind::Operation) return false;
  if (t.op != ir::Op::cast && is_float(t.dtype) && (t.along_rows || t.along_columns)) return true;
  return std::any_of(t.in, t.in + t.n_in, [&](TermId x) { return is_work(x); });
}

/// Finds the greatest terms below this one that depend on a row alone, or on a column alone.
void PairPassKernel::stage(TermId id, bool reciprocal) {
  const Term& t = term_at(id);
  if (!(along_rows(id) && along_columns(id))) {
    std::vector<Staged>& to = along_columns(id) ? of_columns_ : of_rows_;
    const bool fits = compute_type(t.dtype) == DType::Float32 || (is_bool(t.dtype) && !reciprocal);
    const bool known =
        std::ranges::any_of(to, [&](const Staged& s) { return s.term == id && s.reciprocal == reciprocal; });
    if (known || !is_work(id)) return;
    if (fits && to.size() < kMostStaged) {
      to.push_back({id, reciprocal});
      return;
    }
  }
  for (int k = 0; k < t.n_in; ++k) stage(t.in[k], t.op == ir::Op::divide && k == 1);
}

// ---- the early value

bool PairPassKernel::is_staged(TermId id) const {
  const auto among = [&](const std::vector<Staged>& of) {
    return std::ranges::any_of(of, [&](const Staged& s) { return s.term == id && !s.reciprocal; });
  };
  return among(of_rows_) || among(of_columns_);
}

/// Marks terms that are read for the values of the pass if `without` is known.
std::vector<bool> PairPassKernel::read_without(TermId without) const {
  std::vector<bool> read(s_.terms.size());
  for (const TermId v : values_) read[static_cast<std::size_t>(v)] = true;
  for (std::size_t i = s_.terms.size(); i-- > 0;) {
    const auto id = static_cast<TermId>(i);
    if (!read[i] || id == without || is_staged(id)) continue;
    for (int k = 0; k < s_.terms[i].n_in; ++k) read[static_cast<std::size_t>(s_.terms[i].in[k])] = true;
  }
  return read;
}

/// Bits of the products that each term is made of.
std::vector<unsigned> PairPassKernel::products_of_terms() const {
  std::vector<unsigned> out(s_.terms.size());
  for (std::size_t i = 0; i < s_.terms.size(); ++i) {
    const Term& t = s_.terms[i];
    if (t.kind == Term::Kind::Score) out[i] = 1u << t.index;
    for (int k = 0; k < t.n_in; ++k) out[i] |= out[static_cast<std::size_t>(t.in[k])];
  }
  return out;
}

int PairPassKernel::operations_below(TermId id) const {
  const Term& t = term_at(id);
  if (is_staged(id) || t.kind != Term::Kind::Operation) return 0;
  int count = t.op == ir::Op::cast ? 0 : 1;
  for (int k = 0; k < t.n_in; ++k) count += operations_below(t.in[k]);
  return count;
}

/// The value made of one product alone by which that product reaches all weights: with the most operations,
/// so that most is made while the other products run. That product becomes the first.
void PairPassKernel::find_early() {
  if (products_.size() < 2) return;
  const std::vector<unsigned> of = products_of_terms();
  int most = 0;
  std::size_t first = 0;
  for (std::size_t p = 0; p < products_.size(); ++p)
    for (std::size_t i = s_.terms.size(); i-- > 0;) {
      const auto id = static_cast<TermId>(i);
      if (!reached_[i] || of[i] != 1u << products_[p] || term_at(id).dtype != DType::Float32) continue;
      const std::vector<bool> read = read_without(id);
      bool all = read[i];
      for (std::size_t s = 0; s < s_.terms.size(); ++s)
        all = all && !(read[s] && s_.terms[s].kind == Term::Kind::Score &&
                       static_cast<std::size_t>(s_.terms[s].index) == products_[p]);
      if (!all) continue;
      if (const int operations = operations_below(id); operations > most) {
        most = operations;
        early_ = id;
        first = p;
      }
      break;
    }
  // operands of rows and of columns are in the products' order
  std::swap(products_[0], products_[first]);
  std::swap(x_[0], x_[first]);
  std::swap(y_[0], y_[first]);
  std::swap(widths_[0], widths_[first]);
  for (std::size_t& o : operand_of_sum_) o = o == 0 ? first : o == first ? 0 : o;
}

// ---- masks

/// where(c, x, y) with a condition of indices and numbers.
void PairPassKernel::find_masks() {
  std::vector<bool> read(s_.terms.size());
  for (std::size_t i = 0; i < s_.terms.size(); ++i) {
    const Term& t = s_.terms[i];
    read[i] = t.kind == Term::Kind::Score || t.kind == Term::Kind::Memory || t.kind == Term::Kind::Statistic;
    for (int k = 0; k < t.n_in; ++k) read[i] = read[i] || read[static_cast<std::size_t>(t.in[k])];
    if (reached_[i] && t.kind == Term::Kind::Operation && t.op == ir::Op::where &&
        !read[static_cast<std::size_t>(t.in[0])])
      masks_.push_back(static_cast<TermId>(i));
  }
  if (pass_.sums.empty()) return;
  for (const TermId m : masks_) {
    low_.clear();
    for (const TermId other : masks_)
      if (term_at(other).in[0] == term_at(m).in[0]) low_.push_back(other);
    E batch, row;
    begin("", {&batch, &row});
    const bool known = adds_nothing(batch, row).has_value();
    if (known) return;
  }
  low_.clear();
}

bool PairPassKernel::is_low(TermId id) const { return std::ranges::find(low_, id) != low_.end(); }

/// Whether a term depends on i alone where the masks of low_ choose their other value.
bool PairPassKernel::is_of_row(TermId id) const {
  const Term& t = term_at(id);
  switch (t.kind) {
    case Term::Kind::Row:
    case Term::Kind::Batch:
    case Term::Kind::Scalar:
    case Term::Kind::Constant:
    case Term::Kind::Statistic: return true;
    case Term::Kind::Memory: return !t.along_columns;
    case Term::Kind::Score:
    case Term::Kind::Max:
    case Term::Kind::Sum:
    case Term::Kind::Column: return false;
    case Term::Kind::Operation: break;
  }
  if (is_low(id)) return is_of_row(t.in[2]);
  return std::all_of(t.in, t.in + t.n_in, [&](TermId x) { return is_of_row(x); });
}

static std::optional<E> both(const std::optional<E>& x, const std::optional<E>& y) {
  return x && y ? std::optional(*x & *y) : std::nullopt;
}
static std::optional<E> either(const std::optional<E>& x, const std::optional<E>& y) {
  return x && y ? std::optional(*x | *y) : x ? x : y;
}

/// That a term is 0 where the masks of low_ choose their other value, whatever products are.
PairPassKernel::Known PairPassKernel::is_zero(TermId id, const Place& at) {
  const Term& t = term_at(id);
  if (!is_float(t.dtype)) return std::nullopt;
  if (is_low(id)) return is_zero(t.in[2], at);
  if (is_of_row(id)) {
    const E x = term(id, at);
    return x == x.lit(0);
  }
  if (t.kind != Term::Kind::Operation) return std::nullopt;
  switch (t.op) {
    case ir::Op::cast:
    case ir::Op::negative: return PairPassKernel::is_zero(t.in[0], at);
    case ir::Op::multiply:
      return either(both(is_zero(t.in[0], at), is_finite(t.in[1], at)),
                    both(is_zero(t.in[1], at), is_finite(t.in[0], at)));
    case ir::Op::divide: {
      if (!is_of_row(t.in[1])) return std::nullopt;
      const E y = term(t.in[1], at);
      return both(is_zero(t.in[0], at), (y < 0.0) | (y > 0.0));
    }
    case ir::Op::where: return both(is_zero(t.in[1], at), is_zero(t.in[2], at));
    default: return std::nullopt;
  }
}
PairPassKernel::Known PairPassKernel::is_finite(TermId id, const Place& at) {
  if (!is_of_row(id) || !is_float(term_at(id).dtype)) return std::nullopt;
  const E x = kernel::abs(term(id, at));
  return x < x.lit(std::numeric_limits<float>::infinity());
}

/// That all weights of row i are 0 in a low tile.
PairPassKernel::Known PairPassKernel::adds_nothing(E batch, E row) {
  Place at = place(batch, row, {});
  at.other = low_;
  Known all = yes(true);
  for (const TermId v : values_) all = both(all, is_zero(v, at));
  return all;
}

// ---- memory that passes share

std::uint32_t PairPassKernel::shared_memory(std::size_t number, BufferDecl::Role role, DType type,
                                            std::int64_t elements) {
  const auto [at, fresh] = shared_.try_emplace({number, role});
  if (fresh)
    at->second = buffer({role, type, static_cast<std::uint8_t>(size_of(type))},
                        {BufferSource::Kind::Partial, static_cast<std::uint32_t>(number), 0,
                         elements * static_cast<std::int64_t>(size_of(type))});
  return at->second;
}
std::uint32_t PairPassKernel::statistic_memory(std::size_t i, BufferDecl::Role role) {
  return PairPassKernel::shared_memory(i, role, DType::Float32, s_.batch * s_.rows);
}
std::int64_t PairPassKernel::flag_tiles() const {
  return (kernel_columns() + kFlagColumns - 1) / kFlagColumns;
}
std::uint32_t PairPassKernel::flag_memory(BufferDecl::Role role) {
  return PairPassKernel::shared_memory(static_cast<std::size_t>(pass_.flags), role, DType::Bool,
                                       s_.batch * flag_tiles());
}
std::int64_t PairPassKernel::added_tiles() const {
  const std::int64_t rows = pass_.kind == PairPass::Kind::Sums ? kernel_columns() : kernel_rows();
  return (rows + kAddedRows - 1) / kAddedRows;
}
std::int64_t PairPassKernel::added_width() const {
  constexpr std::int64_t kSlab = 64;
  const std::size_t sum =
      pass_.kind == PairPass::Kind::Sums ? static_cast<std::size_t>(pass_.adds) : pass_.sums.front();
  return (s_.sums[sum].width + kSlab - 1) / kSlab * kSlab;
}
std::uint32_t PairPassKernel::added_memory(BufferDecl::Role role) {
  return PairPassKernel::shared_memory(static_cast<std::size_t>(pass_.added), role, DType::Float32,
                                       s_.batch * added_tiles() * kAddedRows * added_width());
}
std::uint32_t PairPassKernel::row_flag_memory() {
  return PairPassKernel::shared_memory(static_cast<std::size_t>(pass_.row_flags), BufferDecl::Role::In,
                                       DType::Bool,
                                       s_.batch * ((kernel_rows() + kFlagColumns - 1) / kFlagColumns));
}
E PairPassKernel::flag_index(E batch, E tile) {
  if (!flag_tiles_) flag_tiles_ = param(flag_tiles());
  return batch * flag_tiles_ + tile;
}

/// Where a pair's terms are evaluated.
PairPassKernel::Place PairPassKernel::place(E batch, E row, E column) {
  Place at;
  at.batch = batch;
  at.row = row;
  at.column = column;
  at.scores.resize(s_.products.size());
  at.statistics.resize(s_.statistics.size());
  if (!row) return at;
  each_reached(Term::Kind::Statistic, [&](const Term& t) {
    const auto i = static_cast<std::size_t>(t.index);
    at.statistics[i] =
        load(statistic_memory(i, BufferDecl::Role::In), DType::Float32, batch * rows() + row, row < rows());
  });
  return at;
}

}  // namespace kiln::lower
