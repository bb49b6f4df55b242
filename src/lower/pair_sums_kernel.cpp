#include "lower/pair_sums_kernel.h"

#include "lower/pair_kernel.h"
#include "lower/pair_sums_form.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

namespace kiln::lower {
namespace {

using kernel::BufferDecl;
using plan::kNoTerm;
using plan::PairSums;

constexpr std::int64_t kFlagColumns = 64;  // as in pair_tiles.cuh
constexpr std::int64_t kFlagWarps = 4;     // of a block of pair_flags.cuh
constexpr std::size_t kMostProducts = 3, kMostOperands = 4, kMostValues = 4;

/// As struct PairShape in kernels_templates/pair_sums.cuh.
struct Shape {
  std::int32_t rows, columns, batch, blocks;
  std::int64_t x_row[kMostProducts], y_row[kMostOperands];
};
static_assert(sizeof(Shape) == 72);

std::int64_t quotient_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit; }

class PairSumsLowering final : PairKernel {
 public:
  PairSumsLowering(const plan::Graph& g, const PairSums& s, PairPass pass, const schedule::Target& target)
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
  }

  std::optional<PairForm> form() const {
    if (x_.size() > kMostProducts || y_.size() > kMostOperands || values_.size() > kMostValues)
      return std::nullopt;
    std::vector<std::int64_t> depths(widths_.begin(),
                                     widths_.begin() + static_cast<std::ptrdiff_t>(x_.size()));
    return pair_form(depths, widths_, static_cast<std::int64_t>(pass_.sums.size()), width(),
                     target_.architecture);
  }
  bool leaves_out() const { return !low_.empty(); }

  Lowered run() { return pass_.kind == PairPass::Kind::Flags ? flags() : sums(); }

 private:
  // ---- what the pass is made of

  /// A weight is rounded to the operands' dtype as it becomes an operand.
  TermId before_rounding(TermId id) const {
    const auto casts_to = [&](TermId t, DType type) {
      return term_at(t).kind == Term::Kind::Operation && term_at(t).op == ir::Op::cast &&
             term_at(t).dtype == type;
    };
    if (!casts_to(id, DType::Float32)) return id;
    const TermId half = term_at(id).in[0];
    return casts_to(half, element()) ? term_at(half).in[0] : id;
  }
  DType element() const { return s_.products.front().x.dtype; }

  /// Terms that the pass's values are made of.
  void find_reached() {
    reached_.assign(s_.terms.size(), false);
    for (const TermId v : values_) reached_[static_cast<std::size_t>(v)] = true;
    for (std::size_t i = s_.terms.size(); i-- > 0;)
      for (int k = 0; k < s_.terms[i].n_in && reached_[i]; ++k)
        reached_[static_cast<std::size_t>(s_.terms[i].in[k])] = true;
  }
  template <class F>
  void each_reached(Term::Kind kind, const F& f) const {
    for (std::size_t i = 0; i < s_.terms.size(); ++i)
      if (reached_[i] && s_.terms[i].kind == kind) f(s_.terms[i]);
  }

  static bool same(const MatrixMemory& x, const MatrixMemory& y) {
    return x.base == y.base && x.dtype == y.dtype && x.row == y.row && x.column == y.column &&
           x.offset == y.offset && x.batch == y.batch && x.positions.empty() && y.positions.empty();
  }

  void take_operands() {
    std::vector<bool> read(s_.products.size());
    each_reached(Term::Kind::Score, [&](const Term& t) { read[static_cast<std::size_t>(t.index)] = true; });
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

  std::int64_t width() const { return pass_.sums.empty() ? 0 : s_.sums[pass_.sums.front()].width; }
  std::int64_t kernel_rows() const { return pass_.over_rows ? s_.columns : s_.rows; }
  std::int64_t kernel_columns() const { return pass_.over_rows ? s_.rows : s_.columns; }

  // ---- masks

  /// where(c, x, y) with a condition of indices and numbers.
  void find_masks() {
    std::vector<bool> read(s_.terms.size());
    for (std::size_t i = 0; i < s_.terms.size(); ++i) {
      const Term& t = s_.terms[i];
      read[i] =
          t.kind == Term::Kind::Score || t.kind == Term::Kind::Memory || t.kind == Term::Kind::Statistic;
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

  bool is_low(TermId id) const { return std::ranges::find(low_, id) != low_.end(); }

  /// Whether a term depends on i alone where the masks of low_ choose their other value.
  bool is_of_row(TermId id) const {
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

  /// A condition that is known of a row; nothing: it is not known.
  using Known = std::optional<E>;
  static Known both(const Known& x, const Known& y) { return x && y ? Known(*x & *y) : std::nullopt; }
  static Known either(const Known& x, const Known& y) { return x && y ? Known(*x | *y) : x ? x : y; }

  /// That a term is 0 where the masks of low_ choose their other value, whatever products are.
  Known is_zero(TermId id, const Place& at) {
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
      case ir::Op::negative: return is_zero(t.in[0], at);
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
  Known is_finite(TermId id, const Place& at) {
    if (!is_of_row(id) || !is_float(term_at(id).dtype)) return std::nullopt;
    const E x = kernel::abs(term(id, at));
    return x < x.lit(std::numeric_limits<float>::infinity());
  }

  /// That all weights of row i are 0 in a low tile.
  Known adds_nothing(E batch, E row) {
    Place at = place(batch, row, {});
    at.other = low_;
    Known all = yes(true);
    for (const TermId v : values_) all = both(all, is_zero(v, at));
    return all;
  }

  // ---- memory that passes share

  std::uint32_t shared_memory(std::size_t number, BufferDecl::Role role, DType type, std::int64_t elements) {
    const auto [at, fresh] = shared_.try_emplace({number, role});
    if (fresh)
      at->second = buffer({role, type, static_cast<std::uint8_t>(size_of(type))},
                          {BufferSource::Kind::Partial, static_cast<std::uint32_t>(number), 0,
                           elements * static_cast<std::int64_t>(size_of(type))});
    return at->second;
  }
  std::uint32_t statistic_memory(std::size_t i, BufferDecl::Role role) {
    return shared_memory(i, role, DType::Float32, s_.batch * s_.rows);
  }
  std::int64_t flag_tiles() const { return quotient_up(kernel_columns(), kFlagColumns); }
  std::uint32_t flag_memory(BufferDecl::Role role) {
    return shared_memory(static_cast<std::size_t>(pass_.flags), role, DType::Bool, s_.batch * flag_tiles());
  }
  E flag_index(E batch, E tile) {
    if (!flag_tiles_) flag_tiles_ = param(flag_tiles());
    return batch * flag_tiles_ + tile;
  }

  /// Where a pair's terms are evaluated.
  Place place(E batch, E row, E column) {
    Place at;
    at.batch = batch;
    at.row = row;
    at.column = column;
    at.scores.resize(s_.products.size());
    at.statistics.resize(s_.statistics.size());
    each_reached(Term::Kind::Statistic, [&](const Term& t) {
      const auto i = static_cast<std::size_t>(t.index);
      at.statistics[i] =
          load(statistic_memory(i, BufferDecl::Role::In), DType::Float32, batch * rows() + row, row < rows());
    });
    return at;
  }

  // ---- hooks

  Hook weights(const char* name, bool whole) {
    E batch, r, c;
    Hook h = begin(name, {&batch, &r, &c});
    std::vector<std::uint32_t> from, to;
    for (std::size_t p = 0; p < products_.size(); ++p) from.push_back(given(h, false));
    for (std::size_t v = 0; v < values_.size(); ++v) to.push_back(given(h, true));
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      const E column = c + lane_;
      Place at = pass_.over_rows ? place(batch, column, r) : place(batch, r, column);
      for (std::size_t p = 0; p < products_.size(); ++p)
        at.scores[products_[p]] = load(from[p], DType::Float32, lane_);
      if (whole) at.first = masks_;
      for (std::size_t v = 0; v < values_.size(); ++v)
        store(body, to[v], lane_, kernel::cast(term(values_[v], at), DType::Float32));
    });
    return h;
  }

  Hook finish() {
    E batch, r, d, left;
    Hook h = begin("finish", {&batch, &r, &d, &left});
    std::vector<std::uint32_t> from;
    for (std::size_t i = 0; i < std::max<std::size_t>(pass_.sums.size(), 1); ++i)
      from.push_back(given(h, false));
    if (pass_.sums.empty()) return h;
    const bool ragged = width() % 2 != 0;
    const E each = param(kernel_rows() * width());
    on_lanes(h, ragged ? left : integer(2), ragged, [&](std::vector<Stmt>& body) {
      for (std::size_t i = 0; i < pass_.sums.size(); ++i) {
        const PairSums::Sum& sum = s_.sums[pass_.sums[i]];
        BufferDecl decl{BufferDecl::Role::Out, sum.dtype, 64};
        decl.vector = !ragged && sum.across == 1;
        const std::uint32_t to = buffer(decl, {BufferSource::Kind::Node, sum.node, 0});
        out_.bytes += g_[sum.node].numel * static_cast<std::int64_t>(size_of(sum.dtype));
        const E column = d + lane_, first = batch * each + (sum.point == 1 ? r : r * param(sum.point));
        store(body, to, first + (sum.across == 1 ? column : column * param(sum.across)),
              kernel::cast(load(from[i], DType::Float32, lane_), sum.dtype));
      }
    });
    return h;
  }

  Hook finish_row() {
    E batch, r;
    Hook h = begin("finish_row", {&batch, &r});
    std::vector<std::uint32_t> from;
    for (std::size_t i = 0; i < std::max<std::size_t>(reduced_.size(), 1); ++i)
      from.push_back(given(h, false));
    for (std::size_t i = 0; i < reduced_.size(); ++i)
      store(h.body, statistic_memory(reduced_[i], BufferDecl::Role::Out), batch * rows() + r,
            load(from[i], DType::Float32, integer(0)));
    return h;
  }

  Hook tile_kind() {
    E batch, r0, r1, c0, c1;
    Hook h = begin("tile_kind", {&batch, &r0, &r1, &c0, &c1});
    const TilePlace at =
        pass_.over_rows ? TilePlace{batch, c0, c1, r0, r1} : TilePlace{batch, r0, r1, c0, c1};
    E whole = yes(true);
    for (const TermId m : masks_) whole = whole & ~truth(term_at(m).in[0], at).can_be_false;
    E kind = kernel::select(whole, whole.lit(DType::Int32, 1), whole.lit(DType::Int32, 0));
    if (pass_.flags >= 0)
      kind = kernel::select(truth(term_at(low_.front()).in[0], at).can_be_true, kind, kind.lit(2));
    h.results.push_back(kind.id);
    return h;
  }

  Hook adds_nothing_hook(const char* name, bool known) {
    E batch, row;
    Hook h = begin(name, {&batch, &row});
    h.results.push_back((known ? *adds_nothing(batch, row) : yes(true)).id);
    return h;
  }

  Hook is_finite_hook() {
    E batch, tile;
    Hook h = begin("is_finite", {&batch, &tile});
    const E odd = pass_.flags < 0
                      ? yes(false)
                      : load(flag_memory(BufferDecl::Role::In), DType::Bool, flag_index(batch, tile));
    h.results.push_back((~odd).id);
    return h;
  }

  void add_matrices(kernel::Template& t, const char* name, const std::vector<const MatrixMemory*>& of,
                    std::size_t most) {
    for (std::size_t i = 0; i < most; ++i)
      t.hooks.push_back(matrix(cat(name, i), *of[std::min(i, of.size() - 1)]));
  }

  // ---- kernels

  bool all_aligned(const std::vector<const MatrixMemory*>& of) const {
    return std::ranges::all_of(of, [&](const MatrixMemory* m) { return is_aligned(*m); });
  }

  void set_head(const std::vector<const MatrixMemory*>& y, std::int64_t blocks) {
    const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
    Shape shape{narrow(kernel_rows()), narrow(kernel_columns()), narrow(s_.batch), narrow(blocks), {}, {}};
    for (std::size_t p = 0; p < x_.size(); ++p) shape.x_row[p] = x_[p]->row;
    for (std::size_t o = 0; o < y.size(); ++o) shape.y_row[o] = y[o]->row;
    out_.head.resize(sizeof shape);
    std::memcpy(out_.head.data(), &shape, sizeof shape);
  }

  void launch(std::int64_t grid, std::int64_t threads, std::int64_t shared) {
    out_.grid = grid;
    out_.shape.emplace();
    out_.shape->grid[0] = static_cast<std::uint32_t>(grid);
    out_.shape->block[0] = static_cast<std::uint32_t>(threads);
    out_.shape->dynamic_shared = static_cast<std::uint32_t>(shared);
    k_.threads = {static_cast<std::uint16_t>(threads), 1, false};
  }

  Lowered sums() {
    const std::optional<PairForm> chosen = form();
    KILN_CHECK_THAT(chosen, "sums over pairs fit no main loop");
    const PairForm& form = *chosen;
    kernel::Template t{"pair_sums_mma", element(), {}, {}};
    const auto at = [](const auto& list, std::size_t i, std::int64_t otherwise) {
      return i < list.size() ? static_cast<std::int64_t>(list[i]) : otherwise;
    };
    t.config = {{"kWidth", 2},
                {"kProducts", static_cast<std::int64_t>(x_.size())},
                {"kOperands", static_cast<std::int64_t>(y_.size())},
                {"kSums", static_cast<std::int64_t>(pass_.sums.size())},
                {"kOut", std::max<std::int64_t>(width(), 1)},
                {"kReductions", static_cast<std::int64_t>(reduced_.size())},
                {"kAligned", all_aligned(x_) && all_aligned(y_)},
                {"kMasks", !masks_.empty()},
                {"kLow", pass_.flags >= 0},
                {"kRows", form.rows},
                {"kColumns", form.columns},
                {"kWarps", form.warps},
                {"kFragments", form.fragments},
                {"kPiece", (std::max<std::int64_t>(width(), 1) + 15) / 16 * 16},
                {"kStages", form.stages},
                {"kBlocks", form.blocks},
                {"kFirst", pass_.over_rows}};
    for (std::size_t i = 0; i < kMostOperands; ++i) {
      t.config.push_back({cat("kDepth", i), at(widths_, i, 1)});
      t.config.push_back({cat("kSum", i), at(operand_of_sum_, i, 0)});
      t.config.push_back({cat("kReduction", i), i < reduced_.size() ? kind_of(reduced_[i]) : 0});
    }
    add_matrices(t, "x_matrix", x_, kMostProducts);
    add_matrices(t, "y_matrix", y_, kMostOperands);
    t.hooks.push_back(weights("weights", false));
    t.hooks.push_back(weights("weights_whole", true));
    t.hooks.push_back(tile_kind());
    t.hooks.push_back(is_finite_hook());
    t.hooks.push_back(adds_nothing_hook("adds_nothing", pass_.flags >= 0 && !pass_.over_rows));
    t.hooks.push_back(finish());
    t.hooks.push_back(finish_row());
    k_.main_loop = std::move(t);
    const std::int64_t blocks = quotient_up(kernel_rows(), form.rows);
    set_head(y_, blocks);
    launch(s_.batch * blocks, 32 * form.warps, form.shared);
    std::int64_t depth = static_cast<std::int64_t>(pass_.sums.size()) * width();
    for (std::size_t p = 0; p < x_.size(); ++p) depth += widths_[p];
    out_.work = 2.0 * static_cast<double>(s_.batch) * static_cast<double>(s_.rows) *
                static_cast<double>(s_.columns) * static_cast<double>(depth);
    return finished();
  }

  std::int64_t kind_of(std::size_t statistic) const {
    const ir::Op op = s_.statistics[statistic].reduction;
    return op == ir::Op::reduce_sum ? 0 : op == ir::Op::reduce_max ? 1 : 2;  // as in pair_sums.cuh
  }

  Lowered flags() {
    std::vector<const MatrixMemory*> multiplied;
    for (const std::size_t o : operand_of_sum_)
      if (std::ranges::find(multiplied, y_[o]) == multiplied.end()) multiplied.push_back(y_[o]);
    kernel::Template t{"pair_flags", element(), {}, {}};
    t.config = {{"kOperands", static_cast<std::int64_t>(multiplied.size())},
                {"kOut", width()},
                {"kAligned", all_aligned(multiplied)}};
    add_matrices(t, "y_matrix", multiplied, kMostOperands);
    t.hooks.push_back(adds_nothing_hook("column_adds_nothing", pass_.over_rows));
    E batch, tile;
    Hook h = begin("flag", {&batch, &tile});
    h.address = static_cast<std::int32_t>(flag_memory(BufferDecl::Role::Out));
    h.results.push_back(flag_index(batch, tile).id);
    t.hooks.push_back(std::move(h));
    k_.main_loop = std::move(t);
    set_head(multiplied, flag_tiles());
    launch(quotient_up(s_.batch * flag_tiles(), kFlagWarps), 32 * kFlagWarps, 0);
    out_.work = static_cast<double>(s_.batch) * static_cast<double>(kernel_columns() * width());
    return finished();
  }

  const PairSums& s_;
  const PairPass pass_;
  std::vector<TermId> values_;        // weights of the sums, then what is reduced
  std::vector<std::size_t> reduced_;  // statistics
  std::vector<bool> reached_;
  std::vector<std::size_t> products_;
  std::vector<const MatrixMemory*> x_, y_;  // of the products; behind them of y what sums alone multiply
  std::vector<std::int64_t> widths_;        // of y_; of x_ too
  std::vector<std::size_t> operand_of_sum_;
  std::vector<TermId> masks_;
  std::vector<TermId> low_;  // masks with one condition: where it is false, all weights may be 0
  std::map<std::pair<std::size_t, BufferDecl::Role>, std::uint32_t> shared_;
  E flag_tiles_;
};

}  // namespace

std::vector<PairPass> pair_passes(const plan::Graph& graph, const PairSums& s,
                                  const schedule::Target& target) {
  std::vector<PairPass> out;
  for (int level = 0; level < s.levels; ++level)
    out.push_back({PairPass::Kind::Statistics, false, level, {}, -1});
  auto shared = static_cast<int>(s.statistics.size());
  std::vector<bool> done(s.sums.size());
  for (std::size_t i = 0; i < s.sums.size(); ++i) {
    if (done[i]) continue;
    PairPass pass{PairPass::Kind::Sums, s.sums[i].over_rows, 0, {}, -1};
    for (std::size_t k = i; k < s.sums.size(); ++k) {
      if (done[k] || s.sums[k].over_rows != pass.over_rows || s.sums[k].width != s.sums[i].width) continue;
      pass.sums.push_back(k);
      done[k] = k == i || PairSumsLowering(graph, s, pass, target).form().has_value();
      if (!done[k]) pass.sums.pop_back();
    }
    if (PairSumsLowering(graph, s, pass, target).leaves_out()) {
      pass.flags = shared++;
      out.push_back(pass);
      out.back().kind = PairPass::Kind::Flags;
    }
    out.push_back(std::move(pass));
  }
  return out;
}

Lowered lower_pair_pass(const plan::Graph& graph, const PairSums& sums, const PairPass& pass,
                        const schedule::Target& target) {
  return PairSumsLowering(graph, sums, pass, target).run();
}

}  // namespace kiln::lower
