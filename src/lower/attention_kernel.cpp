#include "lower/attention_kernel.h"

#include "lower/attention_form.h"
#include "lower/pair_kernel.h"
#include "math/expand.h"

#include <algorithm>
#include <optional>

namespace kiln::lower {
namespace {

using kernel::BufferDecl;
using plan::Attention;
using plan::kNoTerm;

class AttentionLowering final : PairKernel {
 public:
  AttentionLowering(const plan::Graph& g, const Attention& a, const schedule::Target& target)
      : PairKernel(g, a, target), a_(a), factor_(find_factor()) {}

  Lowered run() {
    const bool aligned = is_aligned(a_.q) && is_aligned(a_.k) && is_aligned(a_.v);
    const AttentionForm form = attention_form(a_, target_.architecture, aligned);
    k_.threads = {static_cast<std::uint16_t>(form.threads), 1, false};
    kernel::Template t{form.hopper ? "attention_wgmma" : "attention_mma", a_.q.dtype, {}, {}};
    const bool low = reads_flags(a_), checks = finds_flags(a_, form, target_);
    t.config = {{"kWidth", 2},
                {"kHead", a_.depth},
                {"kOut", a_.width},
                {"kAligned", aligned},
                {"kSums", static_cast<std::int64_t>(a_.sums.size())},
                {"kBase2", a_.exponential == ir::Op::exp2},
                {"kScaled", factor_.has_value()},
                {"kMasks", !a_.masks.empty()},
                {"kLow", low},
                {"kChecks", checks},
                {"kRowResults", !a_.row_outputs.empty()},
                {"kRows", form.rows},
                {"kColumns", form.columns},
                {"kWarps", form.warps},
                {"kFragments", form.fragments},
                {"kPiece", form.piece},
                {"kFinish", finish_width(form)},
                {"kSlack", slack()}};
    if (form.hopper) {
      t.config.push_back({"kStages", form.stages});
      t.config.push_back({"kQStages", form.q_stages});
    }
    if (form.hopper)
      for (const auto& [name, m] : {std::pair{"kQRank", &a_.q}, {"kKRank", &a_.k}, {"kVRank", &a_.v}})
        t.config.push_back({name, static_cast<std::int64_t>(2 + m->parts.size())});
    t.hooks.push_back(matrix("q_matrix", a_.q));
    t.hooks.push_back(matrix("k_matrix", a_.k));
    t.hooks.push_back(matrix("v_matrix", a_.v));
    t.hooks.push_back(scores("score", false));
    t.hooks.push_back(scores("score_whole", true));
    t.hooks.push_back(score_factor("score_scale", true));
    t.hooks.push_back(score_factor("score_inside", false));
    t.hooks.push_back(tile_kind(low));
    t.hooks.push_back(greatest(low));
    t.hooks.push_back(is_finite(low, checks));
    if (checks) t.hooks.push_back(flag());
    t.hooks.push_back(weights());
    t.hooks.push_back(finish(finish_width(form)));
    t.hooks.push_back(finish_row());
    k_.main_loop = std::move(t);
    launch(form);
    if (form.hopper) describe_tiles(form);
    if (checks) out_.again = attention_head(a_, form, true);
    return finished();
  }

 private:
  /// What the copy engine reads, and blocks that stay and walk.
  void describe_tiles(const AttentionForm& form) {
    const MatrixMemory* const matrices[] = {&a_.q, &a_.k, &a_.v};
    for (int i = 0; i < 3; ++i) {
      out_.tiled.push_back(attention_tiles(a_, form, i));
      out_.tiled.back().buffer = memory_buffer(*matrices[i]);
    }
    out_.grid = std::min(out_.grid, form.blocks * target_.threads);
    out_.shape->grid[0] = static_cast<std::uint32_t>(out_.grid);
  }

  // ---- hooks

  Hook scores(const char* name, bool whole) {
    Place at;
    E column;
    Hook h = begin(name, {&at.batch, &at.row, &column});
    const std::uint32_t from = given(h, false), to = given(h, true);
    if (is_half(a_.q.dtype)) errors_count_as_such(summands_of_t());
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      at.column = column + lane_;
      at.scores = {load(from, DType::Float32, lane_)};
      if (whole) at.first = a_.masks;
      const E t = factor_ ? over_factor(at, whole) : term(a_.t, at);
      store(body, to, lane_, kernel::cast(t, DType::Float32));
    });
    return h;
  }

  // ---- a factor of all scores

  /// t is a number times scores, perhaps behind masks that choose other numbers. If it is positive, the
  /// factor of exponentials takes it in: hooks give t over the number.
  struct Factor {
    TermId number, scores;
    std::vector<TermId> masks;  // the outermost first
  };

  bool is_number(TermId id) const {
    const Term& t = term_at(id);
    return t.kind == Term::Kind::Scalar || t.kind == Term::Kind::Constant ||
           (t.kind == Term::Kind::Operation && t.n_in > 0 &&
            std::all_of(t.in, t.in + t.n_in, [&](TermId x) { return is_number(x); }));
  }
  std::optional<Factor> find_factor() const {
    Factor f{};
    TermId at = a_.t;
    if (at == kNoTerm) return std::nullopt;
    for (;; at = term_at(at).in[1]) {
      const Term& t = term_at(at);
      if (t.kind != Term::Kind::Operation || t.dtype != DType::Float32) return std::nullopt;
      if (t.op == ir::Op::multiply) break;
      if (std::ranges::find(a_.masks, at) == a_.masks.end() || !is_number(t.in[2])) return std::nullopt;
      f.masks.push_back(at);
    }
    const Term& t = term_at(at);
    const bool second = is_number(t.in[1]);
    if (!second && !is_number(t.in[0])) return std::nullopt;
    f.number = t.in[second ? 1 : 0];
    f.scores = t.in[second ? 0 : 1];
    return f;
  }

  E real(double x) { return kernel::constant(k_.pool, DType::Float32, x); }

  /// The factor, or 1; of exponentials, or of what hooks give.
  E factor(bool of_exponentials) {
    constexpr double kLeast = 1e-20;  // numbers that masks choose are divided by it
    const E number = term(factor_->number, {}), taken = (real(kLeast) < number) & (number < real(1 / kLeast));
    return of_exponentials ? kernel::select(taken, number, real(1)) : kernel::select(taken, real(1), number);
  }

  E over_scale(E x) { return expand_gpu(ir::Op::divide, true, x, factor(true), {}, DType::Float32); }

  /// t over the factor of exponentials. `whole`: every mask chooses the scores, and what the main loop gets
  /// it multiplies itself.
  E over_factor(const Place& at, bool whole) {
    E value = term(factor_->scores, at);
    if (whole) return value;
    value = value * factor(false);
    for (std::size_t i = factor_->masks.size(); i-- > 0;) {
      const Term& mask = term_at(factor_->masks[i]);
      value = kernel::select(term(mask.in[0], at), value, over_scale(term(mask.in[2], at)));
    }
    return value;
  }

  Hook score_factor(const char* name, bool of_exponentials) {
    Hook h = begin(name, {});
    h.results.push_back((factor_ ? factor(of_exponentials) : real(1)).id);
    return h;
  }

  /// Terms that t is a sum of, with numbers as factors: exponentials of t make factors of their errors.
  std::vector<TermId> summands_of_t() const {
    std::vector<TermId> out{a_.t};
    const auto is_number = [&](TermId id) {
      return term_at(id).kind == Term::Kind::Scalar || term_at(id).kind == Term::Kind::Constant;
    };
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Term& t = term_at(out[i]);
      if (t.kind != Term::Kind::Operation) continue;
      const bool sum = t.op == ir::Op::add || t.op == ir::Op::subtract;
      const bool scaled = t.op == ir::Op::multiply || t.op == ir::Op::divide;
      if (sum || t.op == ir::Op::cast || t.op == ir::Op::negative || (scaled && is_number(t.in[1])))
        out.push_back(t.in[0]);
      if (sum || t.op == ir::Op::where || (t.op == ir::Op::multiply && is_number(t.in[0])))
        out.push_back(t.in[1]);
      if (t.op == ir::Op::where) out.push_back(t.in[2]);
    }
    return out;
  }

  /// The weights of v, then what each sum adds.
  Hook weights() {
    Place at;
    E column;
    Hook h = begin("weights", {&at.batch, &at.row, &column});
    const std::uint32_t from = given(h, false);
    std::vector<std::uint32_t> to;
    std::vector<TermId> factors{a_.weight};
    factors.insert(factors.end(), a_.sums.begin(), a_.sums.end());
    for (std::size_t i = 0; i < factors.size(); ++i) to.push_back(given(h, true));
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      at.column = column + lane_;
      const E p = load(from, DType::Float32, lane_);
      for (std::size_t i = 0; i < factors.size(); ++i)
        store(body, to[i], lane_,
              factors[i] == kNoTerm ? p : p * kernel::cast(term(factors[i], at), DType::Float32));
    });
    return h;
  }

  /// Columns of the result that a hook gets at a time: 16 bytes where rows begin at multiples of them.
  int finish_width(const AttentionForm& form) const {
    return a_.width % (form.hopper ? 8 : 32) == 0 && is_half(g_[a_.product].dtype) ? 8 : 2;
  }

  /// Weights may be 2 to the power of this: more only where the product with v does not overflow because of
  /// it.
  std::int64_t slack() const {
    constexpr std::int64_t kSlack = 8;
    return a_.q.dtype != DType::Float16 || a_.weight == kNoTerm ? kSlack : 0;
  }

  Hook finish(int lanes) {
    Place at;
    E column, left;
    Hook h = begin("finish", {&at.batch, &at.row, &column, &left});
    const std::uint32_t sum = given(h, false), max = given(h, false);
    std::vector<std::uint32_t> sums;
    for (std::size_t i = 0; i < a_.sums.size(); ++i) sums.push_back(given(h, false));
    const DType type = g_[a_.product].dtype;
    BufferDecl decl{BufferDecl::Role::Out, type, 64};
    const bool ragged = a_.width % lanes != 0;
    decl.vector = !ragged;
    const bool arranged = a_.result.base != ir::kNoNode;
    const std::uint32_t result =
        buffer(decl, {BufferSource::Kind::Node, arranged ? a_.result.base : a_.product, 0});
    out_.bytes += g_[a_.product].numel * size_of(type);
    const E row = arranged ? first_element(a_.result, at.batch) + along_rows(a_.result, at.row)
                           : (at.batch * this->rows() + at.row) * param(a_.width);
    const auto store_lanes = [&](std::vector<Stmt>& body) {
      at.max = load(max, DType::Float32, integer(0));
      for (const std::uint32_t s : sums) at.sums.push_back(load(s, DType::Float32, integer(0)));
      E value = load(sum, DType::Float32, lane_);
      if (a_.factor != kNoTerm) value = value * term(a_.factor, at);
      store(body, result, row + (column + lane_), kernel::cast(value, type));
    };
    on_lanes(h, ragged ? left : integer(lanes), ragged, store_lanes, lanes);
    return h;
  }

  /// Values of a row that others read.
  Hook finish_row() {
    Place at;
    Hook h = begin("finish_row", {&at.batch, &at.row});
    at.max = load(given(h, false), DType::Float32, integer(0));
    for (std::size_t i = 0; i < a_.sums.size(); ++i)
      at.sums.push_back(load(given(h, false), DType::Float32, integer(0)));
    for (const Attention::RowOutput& o : a_.row_outputs) {
      const DType type = o.to.dtype;
      const auto bytes = static_cast<std::uint8_t>(size_of(type));
      const std::uint32_t to =
          buffer({kernel::BufferDecl::Role::Out, type, bytes}, {BufferSource::Kind::Node, o.node, 0});
      out_.bytes += g_[o.node].numel * bytes;
      const E matrix = first_element(o.to, at.batch);
      store(h.body, to, a_.rows == 1 ? matrix : matrix + along_rows(o.to, at.row),
            kernel::cast(term(o.value, at), type));
    }
    return h;
  }

  Hook greatest(bool low) {
    E batch;
    Hook h = begin("tile_greatest", {&batch});
    Place at;
    const TermId mask = leaving_mask(a_);
    if (mask != kNoTerm) at.other = {&mask, 1};
    E value = real(0);
    if (low) value = kernel::cast(term(a_.t, at), DType::Float32);
    if (low && factor_) value = over_scale(value);
    h.results.push_back(value.id);
    return h;
  }

  std::int64_t flag_tiles() const { return (a_.columns + kAttentionColumns - 1) / kAttentionColumns; }

  Hook is_finite(bool low, bool checks) {
    E batch, tile;
    Hook h = begin("is_finite", {&batch, &tile});
    if (!low) {
      h.results.push_back(yes(true).id);
      return h;
    }
    E at = integer(0);
    std::int64_t matrices = 1;
    if (checks) {
      at = batch;
      matrices = a_.batch;
    } else {
      const Parameters& p = parameters(a_.v);
      for (std::size_t i = a_.v.parts.size(); i-- > 0;) {  // the last part is the outermost
        at = at * p.extents[i] + coordinate(batch, a_.v, i);
        matrices *= a_.v.parts[i].extent;
      }
    }
    flags_ = buffer({checks ? BufferDecl::Role::Partial : BufferDecl::Role::In, DType::Bool, 64},
                    {BufferSource::Kind::Partial, 0, 0, matrices * flag_tiles()});
    h.results.push_back(
        (~load(flags_, DType::Bool, at * param(flag_tiles()) + tile)).id);  // a flag says what is not finite
    return h;
  }

  /// Where the launch stores a flag that it finds. Pre: after is_finite.
  Hook flag() {
    E batch, tile;
    Hook h = begin("flag", {&batch, &tile});
    h.address = static_cast<std::int32_t>(flags_);
    h.results.push_back((batch * param(flag_tiles()) + tile).id);
    return h;
  }

  /// 0: mixed, 1: every mask chooses the scores, 2: the leaving one never does.
  Hook tile_kind(bool low) {
    TilePlace at;
    Hook h = begin("tile_kind", {&at.batch, &at.row0, &at.row1, &at.column0, &at.column1});
    E whole = yes(true);
    for (const TermId m : a_.masks) whole = whole & ~truth(term_at(m).in[0], at).can_be_false;
    E kind = kernel::select(whole, whole.lit(DType::Int32, 1), whole.lit(DType::Int32, 0));
    if (low) {
      const E can = truth(term_at(leaving_mask(a_)).in[0], at).can_be_true;
      kind = kernel::select(can, kind, kind.lit(2));
    }
    h.results.push_back(kind.id);
    return h;
  }

  // ---- launch

  void launch(const AttentionForm& form) {
    const std::int64_t blocks = (a_.rows + form.rows - 1) / form.rows;
    out_.head = attention_head(a_, form);
    out_.grid = a_.batch * blocks;
    out_.shape.emplace();
    out_.shape->grid[0] = static_cast<std::uint32_t>(out_.grid);
    out_.shape->block[0] = static_cast<std::uint32_t>(form.threads);
    out_.shape->dynamic_shared = static_cast<std::uint32_t>(form.shared);
    out_.work = 2.0 * static_cast<double>(a_.batch) * static_cast<double>(a_.rows) *
                static_cast<double>(a_.columns) * static_cast<double>(a_.depth + a_.width);
  }

  const Attention& a_;
  const std::optional<Factor> factor_;
  std::uint32_t flags_ = 0;  // buffer
};

}  // namespace

Lowered lower_attention(const plan::Graph& graph, const Attention& attention,
                        const schedule::Target& target) {
  return AttentionLowering(graph, attention, target).run();
}

}  // namespace kiln::lower
