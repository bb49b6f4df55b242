// Invariant: a hook reads the launch's parameters and memory and what comes with its call, nothing else. Rows
// and columns that a tile has beyond the attention's read no memory.
#include "lower/attention_kernel.h"

#include "kernel/canonical.h"
#include "lower/attention_form.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <map>
#include <type_traits>

namespace kiln::lower {
namespace {

using kernel::BufferDecl;
using kernel::E;
using kernel::Hook;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Prim;
using kernel::Stmt;
using plan::Attention;
using plan::kNoTerm;
using plan::MatrixMemory;
using plan::Term;
using plan::TermId;

constexpr std::int64_t kWord = 16;
constexpr std::int64_t kNarrowExtent = 1 << 24;  // of coordinates whose sums fit 32 bits
constexpr int kNarrowDepth = 6;

class AttentionLowering {
 public:
  AttentionLowering(const plan::Graph& g, const Attention& a, const schedule::Target& target)
      : g_(g), a_(a), target_(target), k_(out_.kernel) {}

  Lowered run() {
    k_.fma = target_.fma;
    k_.exact = k_.pool.exact = target_.exact;
    const bool aligned = aligned_operands();
    const AttentionForm form = attention_form(a_, target_.architecture, aligned);
    k_.threads = {static_cast<std::uint16_t>(form.threads), 1, false};
    kernel::Template t{form.hopper ? "attention_wgmma" : "attention_mma", a_.q.dtype, {}, {}};
    const bool low = reads_flags(a_);
    t.config = {{"kWidth", 2},
                {"kHead", a_.depth},
                {"kOut", a_.width},
                {"kAligned", aligned},
                {"kSums", static_cast<std::int64_t>(a_.sums.size())},
                {"kBase2", a_.exponential == ir::Op::exp2},
                {"kMasks", !a_.masks.empty()},
                {"kLow", low},
                {"kRows", form.rows},
                {"kColumns", form.columns},
                {"kWarps", form.warps},
                {"kFragments", form.fragments},
                {"kPiece", form.piece}};
    if (form.hopper)
      for (const auto& [name, m] : {std::pair{"kQRank", &a_.q}, {"kKRank", &a_.k}, {"kVRank", &a_.v}})
        t.config.push_back({name, static_cast<std::int64_t>(2 + m->parts.size())});
    t.hooks.push_back(matrix("q_matrix", a_.q));
    t.hooks.push_back(matrix("k_matrix", a_.k));
    t.hooks.push_back(matrix("v_matrix", a_.v));
    t.hooks.push_back(scores("score", false));
    t.hooks.push_back(scores("score_whole", true));
    t.hooks.push_back(tile_kind(low));
    t.hooks.push_back(greatest(low));
    t.hooks.push_back(flag(low));
    t.hooks.push_back(weights());
    t.hooks.push_back(finish());
    k_.main_loop = std::move(t);
    k_.n_params = static_cast<std::uint32_t>(out_.params.size());
    launch(form);
    if (form.hopper) describe_tiles(form);
    number();
    return std::move(out_);
  }

 private:
  // ---- expressions

  E param(std::int64_t value) {
    out_.params.push_back(value);
    return leaf(Prim::Param, DType::Int64, out_.params.size() - 1);
  }
  E leaf(Prim prim, DType type, std::uint64_t imm) {
    return {&k_.pool, k_.pool.intern({prim, type, kernel::kNoExpr, kernel::kNoExpr, kernel::kNoExpr, imm})};
  }
  E integer(std::int64_t value) {
    return kernel::constant(k_.pool, DType::Int64, static_cast<double>(value));
  }
  E yes(bool value) { return kernel::constant_bits(k_.pool, DType::Bool, value); }
  E load(std::uint32_t buffer, DType type, E index, E predicate = {}) {
    return {&k_.pool, k_.pool.intern({Prim::Load, type, index.id, predicate ? predicate.id : kernel::kNoExpr,
                                      kernel::kNoExpr, buffer})};
  }
  std::uint32_t buffer(BufferDecl decl, BufferSource source) {
    k_.buffers.push_back(decl);
    out_.buffers.push_back(std::move(source));
    return static_cast<std::uint32_t>(k_.buffers.size() - 1);
  }

  /// Begins a hook with these coordinates, which come with its calls.
  Hook begin(const char* name, std::initializer_list<E*> coordinates) {
    Hook h;
    h.name = name;
    for (E* c : coordinates) {
      *c = param(0);
      h.params.push_back(static_cast<std::uint32_t>(c->node().imm));
    }
    known_.clear();
    return h;
  }
  /// An array of the main loop's: values of two adjacent columns.
  std::uint32_t given(Hook& h, bool made) {
    const auto role = made ? BufferDecl::Role::Out : BufferDecl::Role::In;
    const std::uint32_t b = buffer({role, DType::Float32, 4}, {BufferSource::Kind::Scratch, 0, 0});
    h.buffers.push_back(b);
    return b;
  }

  template <class F>
  void on_lanes(Hook& h, E extent, bool ragged, F f) {
    LoopDecl l;
    l.kind = LoopKind::Vector;
    l.var = k_.n_vars++;
    l.extent = extent.id;
    l.lanes = 2;
    l.steps = 1;
    l.ragged = ragged;
    lane_ = leaf(Prim::Var, DType::Int64, l.var);
    f(l.body);
    k_.loops.push_back(std::move(l));
    h.body.push_back({Stmt::Kind::Loop, static_cast<std::uint32_t>(k_.loops.size() - 1)});
  }
  static void store(std::vector<Stmt>& body, std::uint32_t buffer, E index, E value) {
    body.push_back({Stmt::Kind::Store, buffer, index.id, value.id});
  }

  // ---- memory

  std::uint32_t memory_buffer(const MatrixMemory& m) {
    const auto known = buffers_.find(&m);
    if (known != buffers_.end()) return known->second;
    const std::int64_t bytes = size_of(m.dtype);
    BufferSource source{BufferSource::Kind::Node, m.base, m.offset * bytes};
    if (g_[m.base].op == ir::Op::leaf) {
      source.kind = BufferSource::Kind::Arg;
      source.id = static_cast<std::uint32_t>(g_[m.base].arg);
    }
    for (const plan::Alias::Position& p : m.positions)
      source.positions.push_back({p.slot, p.last, p.stride * bytes, 1});
    out_.bytes += g_[m.base].numel * bytes;
    const std::uint32_t b =
        buffer({BufferDecl::Role::In, m.dtype, static_cast<std::uint8_t>(bytes)}, std::move(source));
    buffers_.emplace(&m, b);
    return b;
  }

  struct Parameters {
    E row, column;
    std::vector<E> divisors, extents, strides;
  };
  /// A matrix's parameters are the same in all hooks.
  const Parameters& parameters(const MatrixMemory& m) {
    const auto [at, fresh] = parameters_.try_emplace(&m);
    Parameters& p = at->second;
    if (!fresh) return p;
    for (const MatrixMemory::Part& part : m.parts) {
      p.divisors.push_back(param(part.divisor));
      p.extents.push_back(param(part.extent));
      p.strides.push_back(param(part.stride));
    }
    if (m.row != 0) p.row = param(m.row);
    if (m.column != 0 && m.column != 1) p.column = param(m.column);
    return p;
  }
  E coordinate(E number, E divisor, E extent) {
    const E at = kernel::index_div(number, divisor);
    return at - kernel::index_div(at, extent) * extent;
  }
  E first_element(const MatrixMemory& m, E batch) {
    const Parameters& p = parameters(m);
    E at{};
    for (std::size_t i = 0; i < m.parts.size(); ++i) {
      const E step = coordinate(batch, p.divisors[i], p.extents[i]) * p.strides[i];
      at = at ? at + step : step;
    }
    return at ? at : integer(0);
  }

  Hook matrix(const char* name, const MatrixMemory& m) {
    E batch;
    Hook h = begin(name, {&batch});
    h.address = static_cast<std::int32_t>(memory_buffer(m));
    h.results.push_back(first_element(m, batch).id);
    return h;
  }

  bool aligned_operands() const {
    const auto aligned = [&](const MatrixMemory& m) {
      const std::int64_t elements = kWord / size_of(m.dtype);
      const bool base = g_[m.base].op != ir::Op::leaf ||
                        g_.args[static_cast<std::size_t>(g_[m.base].arg)].alignment >= kWord;
      return base && m.positions.empty() && m.offset % elements == 0 && m.row % elements == 0 &&
             std::all_of(m.parts.begin(), m.parts.end(),
                         [&](const MatrixMemory::Part& p) { return p.stride % elements == 0; });
    };
    return aligned(a_.q) && aligned(a_.k) && aligned(a_.v);
  }

  /// What the copy engine reads, and blocks that stay and walk.
  void describe_tiles(const AttentionForm& form) {
    const MatrixMemory* const matrices[] = {&a_.q, &a_.k, &a_.v};
    for (int i = 0; i < 3; ++i) {
      out_.tiled.push_back(attention_tiles(a_, form, i));
      out_.tiled.back().buffer = memory_buffer(*matrices[i]);
    }
    out_.grid = std::min(out_.grid, static_cast<std::int64_t>(target_.threads));
    out_.shape->grid[0] = static_cast<std::uint32_t>(out_.grid);
  }

  // ---- terms

  /// Where terms are evaluated.
  struct Place {
    E batch, row, column;  // column: of the lane at hand
    E score, max;
    std::vector<E> sums;
    bool whole = false;     // masks choose the scores
    TermId left = kNoTerm;  // a mask that chooses its other value
  };

  E term(TermId id, const Place& at) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Term& t = a_.terms[static_cast<std::size_t>(id)];
    const bool mask = at.whole && std::find(a_.masks.begin(), a_.masks.end(), id) != a_.masks.end();
    const E value = mask ? term(t.in[1], at) : id == at.left ? term(t.in[2], at) : make(t, at);
    known_.emplace(id, value);
    return value;
  }

  E make(const Term& t, const Place& at) {
    const DType type = compute_type(t.dtype);
    switch (t.kind) {
      case Term::Kind::Score: return at.score;
      case Term::Kind::Max: return at.max;
      case Term::Kind::Sum: return at.sums[static_cast<std::size_t>(t.index)];
      case Term::Kind::Statistic: break;  // an attention has none
      case Term::Kind::Memory: return element(a_.memory[static_cast<std::size_t>(t.index)], at);
      case Term::Kind::Row: return counted(at.row, type);
      case Term::Kind::Column: return counted(at.column, type);
      case Term::Kind::Batch:
        return counted(coordinate(at.batch, integer(t.divisor), integer(t.extent)), type);
      case Term::Kind::Scalar: return kernel::cast(slot(t), type);
      case Term::Kind::Constant: return kernel::cast(kernel::constant_bits(k_.pool, t.dtype, t.bits), type);
      case Term::Kind::Operation: return operation(t, at);
    }
    return {};
  }

  E counted(E index, DType type) { return kernel::cast(kernel::from_index(index), type); }

  E slot(const Term& t) {
    const auto at = std::find(out_.slots.begin(), out_.slots.end(), t.index);
    const auto number = static_cast<std::uint64_t>(at - out_.slots.begin());
    if (at == out_.slots.end()) {
      out_.slots.push_back(t.index);
      k_.slots.push_back(t.dtype);
    }
    return leaf(Prim::Slot, t.dtype, number);
  }

  E element(const MatrixMemory& m, const Place& at) {
    const std::uint32_t b = memory_buffer(m);
    E index = first_element(m, at.batch), inside{};
    const Parameters& p = parameters(m);
    const auto also = [&](E condition) { inside = inside ? inside & condition : condition; };
    if (m.row != 0) {
      index = index + at.row * p.row;
      also(at.row < extent(rows_, a_.rows));
    }
    if (m.column != 0) {
      index = index + (m.column == 1 ? at.column : at.column * p.column);
      also(at.column < extent(columns_, a_.columns));
    }
    return kernel::cast(load(b, m.dtype, index, inside), compute_type(m.dtype));
  }
  E extent(E& known, std::int64_t value) {
    if (!known) known = param(value);
    return known;
  }

  E rounded(E value, DType type) {
    return is_half(type) ? kernel::cast(kernel::cast(value, type), DType::Float32) : value;
  }

  static bool compares(ir::Op op) {
    return op == ir::Op::less || op == ir::Op::less_equal || op == ir::Op::greater ||
           op == ir::Op::greater_equal || op == ir::Op::equal || op == ir::Op::not_equal;
  }

  /// A sum or difference of a few coordinates in 32 bits, or nothing: conversions of 64 bits are slow.
  E narrow(TermId id, const Place& at, int depth) {
    const Term& t = a_.terms[static_cast<std::size_t>(id)];
    const bool few = std::max({a_.rows, a_.columns, a_.batch}) < kNarrowExtent;
    if (!few || depth == 0 || (t.dtype != DType::Int64 && t.dtype != DType::Int32)) return {};
    switch (t.kind) {
      case Term::Kind::Row:
      case Term::Kind::Column:
      case Term::Kind::Batch: return kernel::cast(term(id, at), DType::Int32);
      case Term::Kind::Operation: break;
      default: return {};
    }
    if (t.op == ir::Op::cast) return narrow(t.in[0], at, depth - 1);
    if (t.op != ir::Op::add && t.op != ir::Op::subtract) return {};
    const E x = narrow(t.in[0], at, depth - 1), y = narrow(t.in[1], at, depth - 1);
    if (!x || !y) return {};
    return t.op == ir::Op::add ? x + y : x - y;
  }

  E operation(const Term& t, const Place& at) {
    E in[3];
    for (int k = 0; k < t.n_in; ++k) {
      const Term& x = a_.terms[static_cast<std::size_t>(t.in[k])];
      in[k] = term(t.in[k], at);
      const bool stored = x.kind != Term::Kind::Operation || x.op == ir::Op::cast;
      if (ir::has(t.op, ir::JUMPS) && !stored) in[k] = rounded(in[k], x.dtype);
    }
    if (t.op == ir::Op::cast && is_float(t.dtype))
      if (const E small = narrow(t.in[0], at, kNarrowDepth)) in[0] = small;
    if (t.op == ir::Op::cast)
      return is_half(t.dtype) ? rounded(in[0], t.dtype) : kernel::cast(in[0], t.dtype);
    if (compares(t.op)) {
      const E x = narrow(t.in[0], at, kNarrowDepth), y = narrow(t.in[1], at, kNarrowDepth);
      if (x && y) return expand_gpu(t.op, true, x, y, {}, DType::Int32);
    }
    const DType recorded = a_.terms[static_cast<std::size_t>(t.in[t.n_in - 1])].dtype;
    return expand_gpu(t.op, true, in[0], in[1], in[2], recorded);
  }

  // ---- hooks

  Hook scores(const char* name, bool whole) {
    Place at;
    E column;
    Hook h = begin(name, {&at.batch, &at.row, &column});
    const std::uint32_t from = given(h, false), to = given(h, true);
    on_lanes(h, integer(2), false, [&](std::vector<Stmt>& body) {
      at.column = column + lane_;
      at.score = load(from, DType::Float32, lane_);
      at.whole = whole;
      store(body, to, lane_, kernel::cast(term(a_.t, at), DType::Float32));
    });
    return h;
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

  Hook finish() {
    Place at;
    E column, left;
    Hook h = begin("finish", {&at.batch, &at.row, &column, &left});
    const std::uint32_t sum = given(h, false), max = given(h, false);
    std::vector<std::uint32_t> sums;
    for (std::size_t i = 0; i < a_.sums.size(); ++i) sums.push_back(given(h, false));
    const DType type = g_[a_.product].dtype;
    BufferDecl decl{BufferDecl::Role::Out, type, 64};
    const bool ragged = a_.width % 2 != 0;
    decl.vector = !ragged;
    const std::uint32_t result = buffer(decl, {BufferSource::Kind::Node, a_.product, 0});
    out_.bytes += g_[a_.product].numel * size_of(type);
    const E rows = extent(rows_, a_.rows), width = param(a_.width);
    on_lanes(h, ragged ? left : integer(2), ragged, [&](std::vector<Stmt>& body) {
      at.max = load(max, DType::Float32, integer(0));
      for (const std::uint32_t s : sums) at.sums.push_back(load(s, DType::Float32, integer(0)));
      E value = load(sum, DType::Float32, lane_);
      if (a_.factor != kNoTerm) value = value * term(a_.factor, at);
      store(body, result, (at.batch * rows + at.row) * width + (column + lane_), kernel::cast(value, type));
    });
    return h;
  }

  Hook greatest(bool low) {
    E batch;
    Hook h = begin("tile_greatest", {&batch});
    Place at;
    at.left = leaving_mask(a_);
    const E value =
        low ? kernel::cast(term(a_.t, at), DType::Float32) : kernel::constant(k_.pool, DType::Float32, 0);
    h.results.push_back(value.id);
    return h;
  }

  Hook flag(bool low) {
    E batch, tile;
    Hook h = begin("v_is_finite", {&batch, &tile});
    if (!low) {
      h.results.push_back(yes(true).id);
      return h;
    }
    const std::int64_t tiles = (a_.columns + kAttentionColumns - 1) / kAttentionColumns;
    std::int64_t matrices = 1;
    for (const MatrixMemory::Part& p : a_.v.parts) matrices *= p.extent;
    const std::uint32_t b = buffer({BufferDecl::Role::In, DType::Bool, 64},
                                   {BufferSource::Kind::Partial, 0, 0, matrices * tiles});
    const Parameters& p = parameters(a_.v);
    E at = integer(0);
    for (std::size_t i = a_.v.parts.size(); i-- > 0;)  // the last part is the outermost
      at = at * p.extents[i] + coordinate(batch, p.divisors[i], p.extents[i]);
    h.results.push_back(
        (~load(b, DType::Bool, at * param(tiles) + tile)).id);  // a flag says what is not finite
    return h;
  }

  // ---- bounds of masks

  struct Range {
    E low, high;  // Int64
  };
  struct Truth {
    E can_be_false, can_be_true;
  };
  struct TilePlace {
    E batch, row0, row1, column0, column1;
  };

  /// Where integers of a tile lie, if that follows from its coordinates.
  std::optional<Range> range(TermId id, const TilePlace& at) {
    const Term& t = a_.terms[static_cast<std::size_t>(id)];
    if (!is_int(t.dtype)) return std::nullopt;
    const auto same = [](E x) { return Range{x, x}; };
    switch (t.kind) {
      case Term::Kind::Row: return Range{kernel::from_index(at.row0), kernel::from_index(at.row1)};
      case Term::Kind::Column: return Range{kernel::from_index(at.column0), kernel::from_index(at.column1)};
      case Term::Kind::Batch:
        return same(kernel::from_index(coordinate(at.batch, integer(t.divisor), integer(t.extent))));
      case Term::Kind::Scalar: return same(kernel::cast(slot(t), DType::Int64));
      case Term::Kind::Constant:
        return same(kernel::cast(kernel::constant_bits(k_.pool, t.dtype, t.bits), DType::Int64));
      case Term::Kind::Operation: break;
      default: return std::nullopt;
    }
    if (size_of(t.dtype) < 4) return std::nullopt;  // it may wrap
    std::optional<Range> x = range(t.in[0], at), y;
    if (t.n_in > 1) y = range(t.in[1], at);
    if (!x || (t.n_in > 1 && !y)) return std::nullopt;
    switch (t.op) {
      case ir::Op::cast: return x;
      case ir::Op::add: return Range{x->low + y->low, x->high + y->high};
      case ir::Op::subtract: return Range{x->low - y->high, x->high - y->low};
      case ir::Op::negative: return Range{-x->high, -x->low};
      case ir::Op::maximum: return Range{kernel::max(x->low, y->low), kernel::max(x->high, y->high)};
      case ir::Op::minimum: return Range{kernel::min(x->low, y->low), kernel::min(x->high, y->high)};
      case ir::Op::multiply: {
        const E a = x->low * y->low, b = x->low * y->high, c = x->high * y->low, d = x->high * y->high;
        return Range{kernel::min(kernel::min(a, b), kernel::min(c, d)),
                     kernel::max(kernel::max(a, b), kernel::max(c, d))};
      }
      default: return std::nullopt;
    }
  }

  Truth truth(TermId id, const TilePlace& at) {
    const Term& t = a_.terms[static_cast<std::size_t>(id)];
    const Truth unknown{yes(true), yes(true)};
    if (t.kind != Term::Kind::Operation) return unknown;
    const auto both = [&](auto f) {
      const std::optional<Range> x = range(t.in[0], at), y = range(t.in[1], at);
      return x && y ? f(*x, *y) : unknown;
    };
    const auto less = [](const Range& x, const Range& y) { return Truth{x.high >= y.low, x.low < y.high}; };
    const auto not_less = [&](const Range& x, const Range& y) {
      const Truth l = less(x, y);
      return Truth{l.can_be_true, l.can_be_false};
    };
    switch (t.op) {
      case ir::Op::less: return both(less);
      case ir::Op::greater_equal: return both(not_less);
      case ir::Op::greater: return both([&](const Range& x, const Range& y) { return less(y, x); });
      case ir::Op::less_equal: return both([&](const Range& x, const Range& y) { return not_less(y, x); });
      case ir::Op::logical_and:
      case ir::Op::bitwise_and: {
        const Truth x = truth(t.in[0], at), y = truth(t.in[1], at);
        return {x.can_be_false | y.can_be_false, x.can_be_true & y.can_be_true};
      }
      case ir::Op::logical_or:
      case ir::Op::bitwise_or: {
        const Truth x = truth(t.in[0], at), y = truth(t.in[1], at);
        return {x.can_be_false & y.can_be_false, x.can_be_true | y.can_be_true};
      }
      case ir::Op::logical_not:
      case ir::Op::bitwise_invert: {
        const Truth x = truth(t.in[0], at);
        return {x.can_be_true, x.can_be_false};
      }
      default: return unknown;
    }
  }

  /// 0: mixed, 1: every mask chooses the scores, 2: the leaving one never does.
  Hook tile_kind(bool low) {
    TilePlace at;
    Hook h = begin("tile_kind", {&at.batch, &at.row0, &at.row1, &at.column0, &at.column1});
    E whole = yes(true);
    for (const TermId m : a_.masks)
      whole = whole & ~truth(a_.terms[static_cast<std::size_t>(m)].in[0], at).can_be_false;
    E kind = kernel::select(whole, whole.lit(DType::Int32, 1), whole.lit(DType::Int32, 0));
    if (low) {
      const E can = truth(a_.terms[static_cast<std::size_t>(leaving_mask(a_))].in[0], at).can_be_true;
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

  void number() {
    const kernel::OldNumbers old = kernel::canonicalise(k_);
    const auto reorder = [](auto& list, const std::vector<std::uint32_t>& numbers) {
      std::remove_reference_t<decltype(list)> out;
      for (const std::uint32_t n : numbers) out.push_back(std::move(list[n]));
      list = std::move(out);
    };
    reorder(out_.params, old.params);
    reorder(out_.slots, old.slots);
    reorder(out_.buffers, old.buffers);
    for (device::TiledBuffer& t : out_.tiled)
      t.buffer = static_cast<std::uint32_t>(std::find(old.buffers.begin(), old.buffers.end(), t.buffer) -
                                            old.buffers.begin());
  }

  const plan::Graph& g_;
  const Attention& a_;
  const schedule::Target& target_;
  Lowered out_;
  kernel::Kernel& k_;
  std::map<const MatrixMemory*, std::uint32_t> buffers_;
  std::map<const MatrixMemory*, Parameters> parameters_;
  std::map<TermId, E> known_;  // of the hook at hand
  E lane_, rows_, columns_;
};

}  // namespace

Lowered lower_attention(const plan::Graph& graph, const Attention& attention,
                        const schedule::Target& target) {
  return AttentionLowering(graph, attention, target).run();
}

}  // namespace kiln::lower
