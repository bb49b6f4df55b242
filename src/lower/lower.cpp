// From pulled entries to a Kernel: collapse axes while sizes are known, ask for a schedule, then abstract every size
// into a parameter and build the loops.
//
// Parameters have roles (this load's stride over that axis, the extent of that axis …): one role is one parameter
// whatever its value, so regions that differ in sizes only give equal kernels. Only strides 0 and 1 are baked.
#include "lower/lower.h"

#include "lower/expand.h"
#include "lower/pull.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

namespace kiln::lower {
namespace {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;
using kernel::AccDecl;
using kernel::BufferDecl;
using kernel::E;
using kernel::ExprId;
using kernel::Kernel;
using kernel::kNoExpr;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Monoid;
using kernel::Prim;
using kernel::Stmt;
using schedule::Form;

constexpr float kCacheCost = 10;               // primitives above which a value is kept for the next phase
constexpr std::int64_t kScratchLimit = 128 << 10;  // bytes of a row kept in scratch: within L2

/// A run of adjacent domain axes that every access walks as one.
struct Group {
  int first, last;      // axes; `last` is the innermost, whose coefficient serves the group
  std::int64_t extent;
  bool reduced;
};

struct Reduction {
  EntryId entry;
  int phase;            // loop that computes it
  std::uint32_t acc;
  std::uint32_t final_acc = 0;                  // Split: accumulator of the finish section
  std::uint32_t partial[2] = {};                // Split: buffers of value and position
};

Monoid monoid_of(Op op) {
  switch (op) {
    case Op::reduce_sum: return Monoid::Sum;
    case Op::reduce_prod: return Monoid::Prod;
    case Op::reduce_max: return Monoid::Max;
    case Op::reduce_min: return Monoid::Min;
    case Op::reduce_argmax: return Monoid::ArgMax;
    case Op::reduce_argmin: return Monoid::ArgMin;
    default: KILN_CHECK_THAT(false, "not a reduction: ", ir::info(op).name); return Monoid::Sum;
  }
}
bool has_position(Op op) { return op == Op::reduce_argmax || op == Op::reduce_argmin; }

class Builder {
 public:
  Builder(const plan::Graph& g, const plan::Regions& regions, const plan::Region& region,
          const schedule::Target& target)
      : g_(g), target_(target), p_(pull(g, regions, region)), k_(out_.kernel) {}

  Lowered run() {
    measure();
    collapse();
    choose();
    mark_uses();
    switch (s_.form) {
      case Form::Flat:
      case Form::Rows: build_rows(); break;
      case Form::Tiles: build_tiles(); break;
      case Form::Columns: build_columns(); break;
      case Form::Stripes: build_stripes(); break;
      case Form::Split:
      case Form::SplitColumns: build_split(); break;
    }
    k_.n_params = static_cast<std::uint32_t>(out_.params.size());
    k_.fma = target_.fma;
    out_.form = s_.form;
    finish_figures();
    return std::move(out_);
  }

 private:
  // ---- facts -----------------------------------------------------------------------------------------------------

  void measure() {
    for (Entry& e : p_.entries) {
      if (e.kind == Entry::Kind::Op) e.cost = target_.cost_of(static_cast<int>(g_[e.node].op));
      prims_ += e.kind == Entry::Kind::Load ? 1 : e.cost;
      phases_ = std::max(phases_, e.phase);
      widest_ = std::max(widest_, static_cast<int>(size_of(compute_type(g_[e.node].dtype))));
      if (e.kind == Entry::Kind::Reduce) reductions_.push_back({entry_id(e), e.phase - 1, 0});
    }
  }
  EntryId entry_id(const Entry& e) const { return static_cast<EntryId>(&e - p_.entries.data()); }

  // ---- collapsing ------------------------------------------------------------------------------------------------

  /// Calls f on every index that will be evaluated.
  template <class F>
  void each_index(F f) const {
    std::vector<bool> seen(static_cast<std::size_t>(p_.space.atom_count()));
    auto visit = [&](auto&& self, const Index& i) -> void {
      f(i);
      for (int t = 0; t < i.n; ++t) {
        const AtomId a = i.terms[t].atom;
        if (a < p_.space.axis_count() || seen[static_cast<std::size_t>(a)]) continue;
        seen[static_cast<std::size_t>(a)] = true;
        self(self, p_.space.atom(a).of);
      }
    };
    for (const Entry& e : p_.entries) {
      if (e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota) visit(visit, e.index);
      if (e.kind == Entry::Kind::Reduce && has_position(g_[e.node].op)) visit(visit, e.index);
    }
    for (const PredicateLink& l : p_.links) visit(visit, l.predicate.t);
    for (const auto& o : p_.outputs) visit(visit, o.row ? p_.row_linear : p_.full_linear);
  }

  void collapse() {
    std::vector<Group> groups;
    for (int a = 0; a < p_.domain.rank(); ++a) {
      if (p_.domain[a] == 1) continue;
      groups.push_back({a, a, p_.domain[a], ((p_.reduced >> a) & 1) != 0});
    }
    if (phases_ > 0 && std::none_of(groups.begin(), groups.end(), [](const Group& g) { return g.reduced; }))
      groups.insert(groups.begin(), {-1, -1, 1, true});  // a reduction over extents of 1 still has its loop
    if (groups.empty()) groups.push_back({0, 0, 1, false});
    for (const Group& g : groups) {
      if (!groups_.empty() && groups_.back().reduced == g.reduced) {
        Group& outer = groups_.back();
        bool joins = true;
        each_index([&](const Index& i) { joins &= i.coef(outer.last) == i.coef(g.first) * g.extent; });
        if (joins) {
          outer.last = g.last;
          outer.extent *= g.extent;
          continue;
        }
      }
      groups_.push_back(g);
    }
  }

  // ---- schedule --------------------------------------------------------------------------------------------------

  void choose() {
    schedule::Facts f;
    std::vector<schedule::Facts::Axis> axes;
    for (const Group& g : groups_) axes.push_back({g.extent, g.reduced});
    f.axes = axes;
    f.phases = phases_;
    f.prims = static_cast<int>(prims_);
    f.widest_bytes = widest_;
    for (const auto& o : p_.outputs) {
      if (o.row) continue;
      f.stores_full |= p_.entries[o.entry].phase > 0;
      // Stores past the caches need whole cache lines: every row must begin on one.
      const std::int64_t row_bytes = groups_.back().extent * size_of(g_[o.node].dtype);
      if (groups_.size() == 1 || row_bytes % 64 == 0)
        f.out_bytes = std::max(f.out_bytes, g_[o.node].numel * size_of(g_[o.node].dtype));
    }
    f.across = axis_across();
    auto answer = schedule::schedule(f, target_);
    KILN_CHECK_THAT(std::holds_alternative<schedule::Schedule>(answer), std::get<std::string>(answer));
    s_ = std::get<schedule::Schedule>(answer);
  }

  /// The group that a strided load walks with the smallest stride, when that is not the last group; -1 without one.
  int axis_across() const {
    const auto last = static_cast<int>(groups_.size()) - 1;
    int across = -1;
    for (const Entry& e : p_.entries) {
      if (e.kind != Entry::Kind::Load) continue;
      std::int64_t least = std::abs(e.index.coef(groups_[static_cast<std::size_t>(last)].last));
      if (least <= 1) continue;
      for (int g = 0; g < last; ++g) {
        const std::int64_t stride = std::abs(e.index.coef(groups_[static_cast<std::size_t>(g)].last));
        if (stride == 0 || stride >= least) continue;
        least = stride;
        across = g;
      }
    }
    return across;
  }

  /// Which phases need which entries; expensive values needed again later are kept in scratch memory.
  void mark_uses() {
    std::vector<Entry>& es = p_.entries;
    for (const Reduction& r : reductions_) {
      es[es[r.entry].in[0]].used_in |= 1u << r.phase;
    }
    for (const auto& o : p_.outputs)
      if (!o.row) es[o.entry].used_in |= 1u << es[o.entry].phase;
    scratch_.assign(es.size(), -1);
    std::int64_t row = 1;
    for (const Group& g : groups_)
      if (g.reduced) row *= g.extent;
    std::vector<float> tree(es.size());
    for (std::size_t i = 0; i < es.size(); ++i) {
      tree[i] = es[i].cost;
      if (es[i].kind == Entry::Kind::Op || es[i].kind == Entry::Kind::Pad)
        for (EntryId in : es[i].in)
          if (in != kNoEntry && es[in].kind != Entry::Kind::Reduce) tree[i] += tree[in];
    }
    const bool may_keep = s_.form == Form::Rows && phases_ > 0;
    for (std::size_t i = es.size(); i-- > 0;) {
      Entry& e = es[i];
      if (!e.used_in || e.kind == Entry::Kind::Reduce) continue;
      std::uint32_t pass = e.used_in;
      const std::uint32_t first = pass & (~pass + 1);
      if (may_keep && pass != first && tree[i] >= kCacheCost && (e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Pad)) {
        const std::int64_t bytes = (row * size_of(compute_type(g_[e.node].dtype)) + 63) / 64 * 64;
        if (out_.scratch_bytes + bytes <= kScratchLimit && varies(static_cast<EntryId>(i))) {
          scratch_[i] = static_cast<std::int32_t>(new_buffer({BufferDecl::Role::Scratch, compute_type(g_[e.node].dtype), 64}));
          const auto b = static_cast<std::uint32_t>(scratch_[i]);
          const E offset = param(role(kOffset, 0xfffd0000u, b), out_.scratch_bytes);
          k_.buffers[b].offset_param = static_cast<std::uint32_t>(offset.node().imm);
          set_source(b, {BufferSource::Kind::Scratch, 0, 0, bytes});
          out_.scratch_bytes += bytes;
          pass = first;
        }
      }
      for (EntryId in : e.in)
        if (in != kNoEntry) es[in].used_in |= pass;
    }
  }

  /// Whether a value differs inside a row (it reaches a load or coordinate over a reduced axis).
  bool varies(EntryId id) const {
    const Entry& e = p_.entries[id];
    switch (e.kind) {
      case Entry::Kind::Scalar:
      case Entry::Kind::Reduce: return false;
      case Entry::Kind::Load:
      case Entry::Kind::Iota:
        for (const Group& g : groups_)
          if (g.reduced && e.index.coef(g.last) != 0) return true;
        for (int t = 0; t < e.index.n; ++t)
          if (e.index.terms[t].atom >= p_.space.axis_count()) return true;
        return false;
      case Entry::Kind::Pad: return true;
      case Entry::Kind::Op:
        for (EntryId in : e.in)
          if (in != kNoEntry && varies(in)) return true;
    }
    return false;
  }

  // ---- parameters, buffers -----------------------------------------------------------------------------------------

  E konst(std::int64_t v) { return kernel::constant_bits(k_.pool, DType::Int64, static_cast<std::uint64_t>(v)); }

  /// The parameter of a role. role: kind in the top byte, then what it belongs to.
  E param(std::uint64_t role, std::int64_t value) {
    auto [it, fresh] = params_.try_emplace(role, static_cast<std::uint32_t>(out_.params.size()));
    if (fresh) out_.params.push_back(value);
    return {&k_.pool, k_.pool.intern({Prim::Param, DType::Int64, kNoExpr, kNoExpr, kNoExpr, it->second})};
  }
  enum RoleKind : std::uint64_t { kExtent = 1, kStride, kOffset, kAtomCoef, kDivisor, kPredicate, kGridExtent };
  static std::uint64_t role(RoleKind kind, std::uint64_t owner, std::uint64_t part) {
    return kind << 56 | owner << 16 | part;
  }

  std::uint32_t new_buffer(BufferDecl decl) {
    k_.buffers.push_back(decl);
    return static_cast<std::uint32_t>(k_.buffers.size() - 1);
  }
  void set_source(std::uint32_t buffer, BufferSource source) {
    out_.buffers.resize(std::max<std::size_t>(out_.buffers.size(), buffer + 1), {BufferSource::Kind::Partial, 0, 0, 0});
    out_.buffers[buffer] = source;
  }

  std::uint32_t input_buffer(const Entry& e) {
    const GraphNode& n = g_[e.node];
    const bool leaf = n.op == Op::leaf;
    const std::uint32_t id = leaf ? static_cast<std::uint32_t>(n.arg) : e.node;
    const std::int64_t offset = e.index.c * size_of(n.dtype);
    const auto kind = leaf ? BufferSource::Kind::Arg : BufferSource::Kind::Node;
    for (std::size_t b = 0; b < out_.buffers.size(); ++b)
      if (k_.buffers[b].role == BufferDecl::Role::In && out_.buffers[b].kind == kind && out_.buffers[b].id == id &&
          out_.buffers[b].byte_offset == offset)
        return static_cast<std::uint32_t>(b);
    const bool stream = n.numel * size_of(n.dtype) >= target_.stream_bytes;
    const std::uint32_t b =
        new_buffer({BufferDecl::Role::In, n.dtype, static_cast<std::uint8_t>(size_of(n.dtype)), stream});
    set_source(b, {kind, id, offset, 0});
    out_.bytes += n.numel * size_of(n.dtype);
    return b;
  }

  std::uint32_t output_buffer(NodeId node, bool stream) {
    const DType t = g_[node].dtype;
    const std::uint32_t b = new_buffer({BufferDecl::Role::Out, t, 64, stream});
    set_source(b, {BufferSource::Kind::Node, node, 0, 0});
    out_.bytes += g_[node].numel * size_of(t);
    return b;
  }

  // ---- expressions -----------------------------------------------------------------------------------------------

  E var(std::uint32_t v) { return {&k_.pool, k_.pool.intern({Prim::Var, DType::Int64, kNoExpr, kNoExpr, kNoExpr, v})}; }
  std::uint32_t new_var() { return k_.n_vars++; }

  /// floor(x / d) for 0 <= x < 2^50 by a reciprocal: (x + 1/2)/d is at least 1/(2d) away from every integer, which is
  /// more than the product's rounding error.
  E divide(E x, E d) {
    if (d.node().prim == Prim::Const && d.node().imm == 1) return x;
    const E reciprocal = x.lit(DType::Float64, 1.0) / kernel::cast(d, DType::Float64);
    return kernel::cast_in_range((kernel::cast(x, DType::Float64) + 0.5) * reciprocal, DType::Int64);
  }

  /// Whether the axes that share the lanes are walked by this index as one.
  bool runs_along_lanes(const Index& index) const {
    if (!position_) return false;
    for (std::size_t g = static_cast<std::size_t>(s_.lane_axis); g + 1 < groups_.size(); ++g)
      if (index.coef(groups_[g].last) != index.coef(groups_[g + 1].last) * groups_[g + 1].extent) return false;
    return true;
  }

  E to_expr(const Index& index, std::uint64_t owner, RoleKind kind, bool with_constant) {
    E sum{};
    auto add = [&](E term) { sum = sum ? sum + term : term; };
    const bool along = runs_along_lanes(index);
    for (int t = 0; t < index.n; ++t) {
      const Term term = index.terms[t];
      E value{};
      if (along && term.atom < p_.space.axis_count()) {
        const int group = group_of_last(term.atom);
        const int last = static_cast<int>(groups_.size()) - 1;
        if (group >= s_.lane_axis && group < last) continue;  // counted by the position
        if (group == last) {
          add(term.coef == 1 ? position_ : position_ * param(role(kind, owner, static_cast<std::uint64_t>(term.atom)), term.coef));
          continue;
        }
      }
      if (term.atom < p_.space.axis_count()) {
        const int group = group_of_last(term.atom);
        if (group < 0) continue;  // an outer axis of its group
        value = axis_[static_cast<std::size_t>(group)];
        KILN_CHECK_THAT(value, "axis ", term.atom, " has no loop here");
      } else {
        value = atom_expr(term.atom);
      }
      if (term.coef == 1)
        add(value);
      else if (term.coef == -1)
        add(-value);
      else
        add(value * param(role(kind, owner, static_cast<std::uint64_t>(term.atom)), term.coef));
    }
    if (with_constant && index.c != 0) add(param(role(kOffset, owner, static_cast<std::uint64_t>(kind)), index.c));
    return sum ? sum : konst(0);
  }

  int group_of_last(int axis) const {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].last == axis) return static_cast<int>(g);
    return -1;
  }

  E atom_expr(AtomId id) {
    const Atom& a = p_.space.atom(id);
    const E of = to_expr(a.of, static_cast<std::uint64_t>(id), kAtomCoef, true);
    if (a.kind == Atom::Kind::Sum) return of;
    const E d = param(role(kDivisor, static_cast<std::uint64_t>(id), 0), a.divisor);
    const E q = divide(of, d);
    return a.kind == Atom::Kind::Div ? q : of - q * d;
  }

  E predicate_expr(std::int32_t chain, std::int32_t end) {
    E all{};
    for (std::int32_t l = chain; l != end; l = p_.links[static_cast<std::size_t>(l)].next) {
      const Predicate& p = p_.links[static_cast<std::size_t>(l)].predicate;
      const auto owner = static_cast<std::uint64_t>(l);
      const E t = to_expr(p.t, owner, kPredicate, true);
      const E span = param(role(kExtent, owner, 0xffff), p.extent * p.step);
      E holds = (konst(0) <= t) & (t < span);
      if (p.step != 1) {
        const E step = param(role(kDivisor, owner, 0xffff), p.step);
        holds = holds & (t == divide(t, step) * step);
      }
      all = all ? all & holds : holds;
    }
    return all;
  }

  /// The value of an entry in the current environment (axis_, phase_).
  E build(EntryId id) {
    if (memo_[id]) return memo_[id];
    const Entry& e = p_.entries[id];
    const DType type = compute_type(g_[e.node].dtype);
    E v{};
    if (scratch_[id] >= 0 && phase_ > first_phase(e)) {
      v = load_expr(static_cast<std::uint32_t>(scratch_[id]), type, inner_position(), E{});
    } else {
      switch (e.kind) {
        case Entry::Kind::Load: v = build_load(id, e); break;
        case Entry::Kind::Scalar: v = scalar(e.node); break;
        case Entry::Kind::Iota: v = kernel::cast(to_expr(e.index, id, kStride, true), type); break;
        case Entry::Kind::Op: v = build_op(e); break;
        case Entry::Kind::Pad:
          v = kernel::select(predicate_expr(e.predicates, e.predicates_end), build(e.in[0]), build(e.in[1]));
          break;
        case Entry::Kind::Reduce: v = reduce_value(id); break;
      }
    }
    return memo_[id] = v;
  }

  int first_phase(const Entry& e) const { return std::countr_zero(e.used_in ? e.used_in : 1u); }

  E load_expr(std::uint32_t buffer, DType type, E index, E predicate) {
    return {&k_.pool, k_.pool.intern({Prim::Load, type, index.id, predicate ? predicate.id : kNoExpr, kNoExpr, buffer})};
  }

  E build_load(EntryId id, const Entry& e) {
    const DType stored = g_[e.node].dtype;
    const std::uint32_t b = input_buffer(e);
    const E at = to_expr(e.index, id, kStride, false);
    const E v = load_expr(b, stored, at, e.predicates >= 0 ? predicate_expr(e.predicates, -1) : E{});
    return kernel::cast(v, compute_type(stored));
  }

  E scalar(NodeId node) {
    const std::int32_t graph_slot = g_[node].arg;
    const DType type = g_[node].dtype;
    if (g_[node].op == Op::constant)
      return kernel::cast(kernel::constant_bits(k_.pool, type, g_[node].attr64), compute_type(type));
    auto it = std::find(out_.slots.begin(), out_.slots.end(), graph_slot);
    const auto index = static_cast<std::uint64_t>(it - out_.slots.begin());
    if (it == out_.slots.end()) {
      out_.slots.push_back(graph_slot);
      k_.slots.push_back(type);
    }
    const E raw{&k_.pool, k_.pool.intern({Prim::Slot, type, kNoExpr, kNoExpr, kNoExpr, index})};
    return kernel::cast(raw, compute_type(type));
  }

  E build_op(const Entry& e) {
    const GraphNode& n = g_[e.node];
    if (n.op == Op::cast) {
      const E x = build(e.in[0]);
      if (!is_half(n.dtype)) return kernel::cast(x, n.dtype);
      if (g_[n.in[0]].dtype == n.dtype) return x;
      return kernel::cast(kernel::cast(x, n.dtype), DType::Float32);  // the rounding the user asked for
    }
    E in[3];
    for (int k = 0; k < n.n_in; ++k) in[k] = build(e.in[k]);
    if (E fused = multiply_add(n, in)) return fused;
    return expand(n.op, in[0], in[1], in[2], g_[n.in[n.n_in - 1]].dtype);
  }

  /// a·b + c, a·b - c and c - a·b with one rounding, where the target has it.
  E multiply_add(const GraphNode& n, const E (&in)[3]) {
    const bool subtract = n.op == Op::subtract;
    if (!target_.fma || !is_float(n.dtype) || !(subtract || n.op == Op::add)) return {};
    auto factors = [&](E x) { return std::pair<E, E>{{x.pool, x.node().a}, {x.pool, x.node().b}}; };
    if (in[0].node().prim == Prim::Mul) {
      const auto [a, b] = factors(in[0]);
      return kernel::fma(a, b, subtract ? -in[1] : in[1]);
    }
    if (in[1].node().prim == Prim::Mul) {
      const auto [a, b] = factors(in[1]);
      return kernel::fma(subtract ? -a : a, b, in[0]);
    }
    return {};
  }

  Reduction& reduction(EntryId entry) {
    for (Reduction& r : reductions_)
      if (r.entry == entry) return r;
    KILN_CHECK_THAT(false, "unknown reduction");
    return reductions_.front();
  }

  E reduce_value(EntryId id) {
    const Reduction& r = reduction(id);
    const GraphNode& n = g_[p_.entries[id].node];
    if (s_.form == Form::Stripes && !in_finish_) return stripe_load(r, has_position(n.op));
    const std::uint32_t acc = in_finish_ ? r.final_acc : r.acc;
    return {&k_.pool, k_.pool.intern({Prim::Acc, compute_type(n.dtype), kNoExpr, kNoExpr, kNoExpr, acc})};
  }

  /// Position inside a row: the scratch index.
  E inner_position() {
    E at{};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].reduced) continue;
      at = at ? at * extent(static_cast<int>(g)) + axis_[g] : axis_[g];
    }
    return at ? at : konst(0);
  }

  E extent(int group) {
    return param(role(kExtent, static_cast<std::uint64_t>(group), 0), groups_[static_cast<std::size_t>(group)].extent);
  }

  // ---- loops -----------------------------------------------------------------------------------------------------

  Stmt loop(LoopDecl decl) {
    k_.loops.push_back(std::move(decl));
    return {Stmt::Kind::Loop, static_cast<std::uint32_t>(k_.loops.size() - 1)};
  }

  void forget() { std::fill(memo_.begin(), memo_.end(), E{}); }

  /// Splits a flattened position into the given groups' coordinates (outermost first).
  void decompose(E position, std::span<const int> groups) {
    for (std::size_t i = groups.size(); i-- > 0;) {
      const auto g = static_cast<std::size_t>(groups[i]);
      if (i == 0) {
        axis_[g] = position;
      } else {
        const E q = divide(position, extent(groups[i]));
        axis_[g] = position - q * extent(groups[i]);
        position = q;
      }
    }
  }

  Stmt store(std::uint32_t buffer, E index, E value) {
    return {Stmt::Kind::Store, buffer, index.id, kernel::cast(value, k_.buffers[buffer].dtype).id};
  }

  void store_outputs(std::vector<Stmt>& body, bool row, int phase) {
    for (const auto& o : p_.outputs) {
      if (o.row != row || p_.entries[o.entry].phase != phase) continue;
      std::uint32_t& buffer = out_buffer_.try_emplace(o.node, 0xffffffffu).first->second;
      if (buffer == 0xffffffffu) buffer = output_buffer(o.node, !row && s_.stream);
      const E at = to_expr(row ? p_.row_linear : p_.full_linear, 0xffff0000u + o.node, kStride, true);
      body.push_back(store(buffer, at, build(o.entry)));
    }
  }

  void update(std::vector<Stmt>& body, const Reduction& r, std::uint32_t acc) {
    const Entry& e = p_.entries[r.entry];
    Stmt s{Stmt::Kind::Update, acc};
    s.value = build(e.in[0]).id;
    if (has_position(g_[e.node].op)) s.index = to_expr(e.index, r.entry, kStride, true).id;
    body.push_back(s);
  }

  /// The innermost statements of one phase: reductions, full outputs, values kept for later phases.
  void phase_body(std::vector<Stmt>& body) {
    for (const Reduction& r : reductions_)
      if (r.phase == phase_) update(body, r, r.acc);
    for (std::size_t i = 0; i < p_.entries.size(); ++i)
      if (scratch_[i] >= 0 && first_phase(p_.entries[i]) == phase_)
        body.push_back({Stmt::Kind::Store, static_cast<std::uint32_t>(scratch_[i]), inner_position().id,
                        build(static_cast<EntryId>(i)).id});
    store_outputs(body, false, phase_);
  }

  std::vector<std::uint32_t> accs_of_phase() const {
    std::vector<std::uint32_t> accs;
    for (const Reduction& r : reductions_)
      if (r.phase == phase_) accs.push_back(r.acc);
    return accs;
  }

  void declare_accs() {
    for (Reduction& r : reductions_) {
      r.acc = static_cast<std::uint32_t>(k_.accs.size());
      const GraphNode& n = g_[p_.entries[r.entry].node];
      const NodeId in = p_.entries[p_.entries[r.entry].in[0]].node;
      (void)in;
      k_.accs.push_back({monoid_of(n.op), compute_type(g_[n.in[0]].dtype)});
    }
  }

  /// One phase as nested loops over `order` (groups, outermost first), the last on lanes when `vector`.
  void phase_loops(std::vector<Stmt>& into, std::span<const int> order, bool vector) {
    forget();
    std::vector<LoopDecl> nest;
    for (std::size_t i = 0; i < order.size(); ++i) {
      LoopDecl l;
      l.kind = vector && i + 1 == order.size() ? LoopKind::Vector : LoopKind::Serial;
      l.lanes = static_cast<std::uint16_t>(l.kind == LoopKind::Vector ? s_.lanes : 1);
      l.var = new_var();
      l.extent = extent(order[i]).id;
      axis_[static_cast<std::size_t>(order[i])] = var(l.var);
      nest.push_back(std::move(l));
    }
    nest.front().accs = accs_of_phase();
    phase_body(nest.back().body);
    for (std::size_t i = nest.size(); i-- > 1;) nest[i - 1].body.push_back(loop(std::move(nest[i])));
    if (nest.front().accs.empty() && nest.front().body.empty()) return;
    into.push_back(loop(std::move(nest.front())));
  }

  LoopDecl grid_loop() {
    LoopDecl l;
    l.kind = LoopKind::Grid;
    l.var = new_var();
    l.extent = param(role(kGridExtent, 0, 0), 0).id;
    return l;
  }
  void set_grid(std::int64_t n) {
    out_.grid = n;
    out_.params[params_.at(role(kGridExtent, 0, 0))] = n;
  }

  std::vector<int> groups(bool reduced, bool without_last = false) const {
    std::vector<int> list;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].reduced == reduced && !(without_last && g + 1 == groups_.size()))
        list.push_back(static_cast<int>(g));
    return list;
  }
  std::int64_t product(std::span<const int> list) const {
    std::int64_t n = 1;
    for (int g : list) n *= groups_[static_cast<std::size_t>(g)].extent;
    return n;
  }

  void start() {
    memo_.assign(p_.entries.size(), E{});
    axis_.assign(groups_.size(), E{});
    declare_accs();
  }

  /// Extent of the part of a blocked axis that block `b` covers, and its first element.
  std::pair<E, E> block_range(E b, E block, int group) {
    const E first = b * block;
    return {first, kernel::min(extent(group) - first, block)};
  }

  void build_rows() {
    start();
    LoopDecl grid = grid_loop();
    const int last = static_cast<int>(groups_.size()) - 1;
    if (phases_ == 0) {  // a map: the last axis (or the last few as one) in blocks
      std::vector<int> outer, together;
      for (int g = 0; g <= last; ++g) (g < s_.lane_axis ? outer : together).push_back(g);
      const std::int64_t run = product(together);
      const std::int64_t blocks = (run + s_.block - 1) / s_.block;
      E g = var(grid.var);
      if (!outer.empty()) {
        const E nb = param(role(kGridExtent, 1, 0), blocks);
        const E q = divide(g, nb);
        decompose(q, outer);
        g = g - q * nb;
      }
      const E run_extent = together.size() == 1 ? extent(last) : param(role(kGridExtent, 5, 0), run);
      const E first = g * konst(s_.block);
      LoopDecl v;
      v.kind = LoopKind::Vector;
      v.lanes = static_cast<std::uint16_t>(s_.lanes);
      v.var = new_var();
      v.extent = kernel::min(run_extent - first, konst(s_.block)).id;
      const E at = first + var(v.var);
      if (together.size() > 1) position_ = at;
      decompose(at, together);
      phase_body(v.body);
      grid.body.push_back(loop(std::move(v)));
      set_grid(product(outer) * blocks);
    } else {
      const std::vector<int> kept = groups(false), reduced = groups(true);
      if (!kept.empty()) decompose(var(grid.var), kept);
      store_outputs(grid.body, true, 0);
      for (phase_ = 0; phase_ <= phases_; ++phase_) {
        phase_loops(grid.body, reduced, true);
        forget();
        store_outputs(grid.body, true, phase_ + 1);
      }
      set_grid(product(kept));
    }
    k_.body.push_back(loop(std::move(grid)));
  }

  void build_columns() {
    start();
    LoopDecl grid = grid_loop();
    const int last = s_.lane_axis;
    const std::vector<int> reduced = groups(true);
    std::vector<int> outer = groups(false);
    std::erase(outer, last);
    const std::int64_t blocks = (groups_[last].extent + s_.block - 1) / s_.block;
    E g = var(grid.var);
    if (!outer.empty()) {
      const E nb = param(role(kGridExtent, 1, 0), blocks);
      const E q = divide(g, nb);
      decompose(q, outer);
      g = g - q * nb;
    }
    const auto [first, count] = block_range(g, konst(s_.block), last);
    LoopDecl v;
    v.kind = LoopKind::Vector;
    v.lanes = static_cast<std::uint16_t>(s_.lanes);
    v.var = new_var();
    v.extent = count.id;
    axis_[last] = first + var(v.var);
    store_outputs(v.body, true, 0);
    for (phase_ = 0; phase_ <= phases_; ++phase_) {
      phase_loops(v.body, reduced, false);
      forget();
      store_outputs(v.body, true, phase_ + 1);
    }
    grid.body.push_back(loop(std::move(v)));
    set_grid(product(outer) * blocks);
    k_.body.push_back(loop(std::move(grid)));
  }

  /// A Vector loop over `count` elements of the lane axis, beginning at `first`; `body` fills it.
  template <class F>
  Stmt lane_loop(E first, E count, int axis, F body) {
    LoopDecl v;
    v.kind = LoopKind::Vector;
    v.lanes = static_cast<std::uint16_t>(s_.lanes);
    v.var = new_var();
    v.extent = count.id;
    lane_ = var(v.var);
    axis_[static_cast<std::size_t>(axis)] = first + lane_;
    forget();
    body(v.body);
    return loop(std::move(v));
  }

  /// The grid position as coordinates of the outer groups and a block of the last one.
  E block_of(E g, std::span<const int> outer, std::int64_t blocks) {
    if (outer.empty()) return g;
    const E nb = param(role(kGridExtent, 1, 0), blocks);
    const E q = divide(g, nb);
    decompose(q, outer);
    return g - q * nb;
  }

  void build_tiles() {
    start();
    LoopDecl grid = grid_loop();
    const int last = static_cast<int>(groups_.size()) - 1;
    int across = axis_across();
    std::vector<int> outer = groups(false, true);
    std::erase(outer, across);
    const std::int64_t blocks = (groups_[static_cast<std::size_t>(last)].extent + s_.block - 1) / s_.block;
    const std::int64_t runs = (groups_[static_cast<std::size_t>(across)].extent + s_.run - 1) / s_.run;
    const E n_runs = param(role(kGridExtent, 2, 0), runs);
    const E q = divide(var(grid.var), n_runs);
    const E run = var(grid.var) - q * n_runs;
    const E b = block_of(q, outer, blocks);
    const auto [first, count] = block_range(b, konst(s_.block), last);
    const auto [top, height] = block_range(run, konst(s_.run), across);
    LoopDecl row;
    row.var = new_var();
    row.extent = height.id;
    axis_[static_cast<std::size_t>(across)] = top + var(row.var);
    row.body.push_back(lane_loop(first, count, last, [&](std::vector<Stmt>& body) { phase_body(body); }));
    grid.body.push_back(loop(std::move(row)));
    set_grid(product(outer) * blocks * runs);
    k_.body.push_back(loop(std::move(grid)));
  }

  // ---- stripes -----------------------------------------------------------------------------------------------------

  E identity(Monoid m, DType t) {
    const bool fp = is_float(t);
    const double inf = std::numeric_limits<double>::infinity();
    const bool greatest = m == Monoid::Max || m == Monoid::ArgMax;
    if (m == Monoid::Sum || m == Monoid::Prod) return kernel::constant(k_.pool, t, m == Monoid::Prod);
    if (fp) return kernel::constant(k_.pool, t, greatest ? -inf : inf);
    const int bits = is_bool(t) ? 1 : static_cast<int>(8 * size_of(t));
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits), top = std::uint64_t{1} << (bits - 1);
    const std::uint64_t least = is_signed_int(t) ? top : 0, most = is_signed_int(t) ? all >> 1 : all;
    return kernel::constant_bits(k_.pool, t, greatest ? least : most);
  }

  E combine(Monoid m, E x, E acc) {
    switch (m) {
      case Monoid::Sum: return acc + x;
      case Monoid::Prod: return acc * x;
      case Monoid::Max: return kernel::max(x, acc);
      case Monoid::Min: return kernel::min(x, acc);
      case Monoid::ArgMax:
      case Monoid::ArgMin: break;
    }
    KILN_CHECK_THAT(false, "positional monoid");
    return {};
  }

  E stripe_load(const Reduction& r, bool position) {
    const std::uint32_t buffer = r.partial[position];
    return load_expr(buffer, k_.buffers[buffer].dtype, stripe_index(), E{});
  }

  /// Where the current column's accumulator is: in scratch memory, or among the chunk's partial results.
  E stripe_index() {
    return chunk_base_ ? chunk_base_ + to_expr(p_.row_linear, 0xfffe0000u, kStride, true) : lane_;
  }

  std::uint32_t stripe_buffer(DType type, std::int64_t partial_results) {
    if (chunk_base_) {
      const std::uint32_t b = new_buffer({BufferDecl::Role::Partial, type, 64});
      set_source(b, {BufferSource::Kind::Partial, 0, 0, partial_results * size_of(type)});
      return b;
    }
    const std::uint32_t b = new_buffer({BufferDecl::Role::Scratch, type, 64});
    const E offset = param(role(kOffset, 0xfffc0000u, b), out_.scratch_bytes);
    k_.buffers[b].offset_param = static_cast<std::uint32_t>(offset.node().imm);
    const std::int64_t bytes = s_.block * size_of(type);
    set_source(b, {BufferSource::Kind::Scratch, 0, 0, bytes});
    out_.scratch_bytes += bytes;
    return b;
  }

  /// Combines the current element of a reduction into its accumulators in memory.
  void stripe_update(std::vector<Stmt>& body, const Reduction& r) {
    const Entry& e = p_.entries[r.entry];
    const Monoid m = k_.accs[r.acc].monoid;
    const E x = build(e.in[0]), acc = stripe_load(r, false);
    if (!has_position(g_[e.node].op)) {
      body.push_back(store(r.partial[0], stripe_index(), combine(m, x, acc)));
      return;
    }
    // Positions ascend, so the first of equals stays; a NaN beats everything but an earlier NaN.
    E better = m == Monoid::ArgMax ? acc < x : x < acc;
    if (is_float(x.type())) better = (better & (acc == acc)) | ((x != x) & (acc == acc));
    const E at = to_expr(e.index, r.entry, kStride, true);
    body.push_back(store(r.partial[1], stripe_index(), kernel::select(better, at, stripe_load(r, true))));
    body.push_back(store(r.partial[0], stripe_index(), kernel::select(better, x, acc)));
  }

  void build_stripes() {
    start();
    LoopDecl grid = grid_loop();
    const int last = static_cast<int>(groups_.size()) - 1;
    const std::vector<int> outer = groups(false, true), reduced = groups(true);
    const std::int64_t blocks = (groups_[static_cast<std::size_t>(last)].extent + s_.block - 1) / s_.block;
    const std::int64_t n_rows = product(groups(false));
    const std::int64_t chunks = s_.chunk ? chunk_of(groups_[static_cast<std::size_t>(reduced.front())].extent) : 1;
    E g = var(grid.var), n_chunks, rows_param;
    std::pair<E, E> chunk_range{};
    if (s_.chunk) {
      n_chunks = param(role(kGridExtent, 2, 0), chunks);
      rows_param = param(role(kGridExtent, 3, 0), n_rows);
      const E q = divide(g, n_chunks);
      const E c = g - q * n_chunks;
      chunk_base_ = c * rows_param;
      chunk_range = block_range(c, param(role(kGridExtent, 6, 0), s_.chunk), reduced.front());
      g = q;
    }
    const E b = block_of(g, outer, blocks);
    const auto [first, count] = block_range(b, param(role(kGridExtent, 4, 0), s_.block), last);
    for (Reduction& r : reductions_) {
      r.partial[0] = stripe_buffer(k_.accs[r.acc].type, n_rows * chunks);
      if (has_position(g_[p_.entries[r.entry].node].op)) r.partial[1] = stripe_buffer(DType::Int64, n_rows * chunks);
    }
    auto rows = [&, first = first, count = count](int phase) {
      if (s_.chunk) return;  // the finish section's part
      grid.body.push_back(lane_loop(first, count, last, [&](auto& body) { store_outputs(body, true, phase); }));
    };
    rows(0);
    for (phase_ = 0; phase_ <= phases_; ++phase_) {
      stripe_phase(grid.body, reduced, chunk_range, first, count);
      rows(phase_ + 1);
    }
    std::erase_if(grid.body, [&](const Stmt& s) { return k_.loops[s.target].body.empty(); });
    const std::vector<AccDecl> accs = std::exchange(k_.accs, {});
    set_grid(product(outer) * blocks * chunks);
    k_.body.push_back(loop(std::move(grid)));
    if (!s_.chunk) return;
    for (Reduction& r : reductions_) {  // the finish section combines in registers
      r.final_acc = static_cast<std::uint32_t>(k_.accs.size());
      k_.accs.push_back(accs[r.acc]);
    }
    chunk_base_ = {};
    build_finish(true, n_chunks, rows_param);
  }

  std::int64_t chunk_of(std::int64_t extent) const { return (extent + s_.chunk - 1) / s_.chunk; }

  void stripe_phase(std::vector<Stmt>& into, std::span<const int> reduced, const std::pair<E, E>& chunk, E first, E count) {
    const int last = static_cast<int>(groups_.size()) - 1;
    into.push_back(lane_loop(first, count, last, [&](auto& body) {
      for (const Reduction& r : reductions_) {
        if (r.phase != phase_) continue;
        const AccDecl& a = k_.accs[r.acc];
        body.push_back(store(r.partial[0], stripe_index(), identity(a.monoid, a.type)));
        if (r.partial[1]) body.push_back(store(r.partial[1], stripe_index(), konst(0)));
      }
    }));
    std::vector<LoopDecl> nest;
    for (int g : reduced) {
      const bool cut = nest.empty() && s_.chunk;
      LoopDecl l;
      l.var = new_var();
      l.extent = cut ? chunk.second.id : extent(g).id;
      axis_[static_cast<std::size_t>(g)] = cut ? chunk.first + var(l.var) : var(l.var);
      nest.push_back(std::move(l));
    }
    const Stmt lanes = lane_loop(first, count, last, [&](auto& body) {
      for (const Reduction& r : reductions_)
        if (r.phase == phase_) stripe_update(body, r);
      store_outputs(body, false, phase_);
    });
    if (k_.loops[lanes.target].body.empty()) return;
    nest.back().body.push_back(lanes);
    for (std::size_t i = nest.size(); i-- > 1;) nest[i - 1].body.push_back(loop(std::move(nest[i])));
    into.push_back(loop(std::move(nest.front())));
  }

  /// Partial results per chunk of the outermost reduced axis, combined by the finish section.
  void build_split() {
    start();
    const bool columns = s_.form == Form::SplitColumns;
    const int last = static_cast<int>(groups_.size()) - 1;
    const std::vector<int> outer = groups(false, columns), reduced = groups(true);
    const int cut = reduced.front();
    const std::int64_t chunks = (groups_[cut].extent + s_.chunk - 1) / s_.chunk;
    const std::int64_t rows = product(groups(false));
    const E n_chunks = param(role(kGridExtent, 2, 0), chunks);
    const E n_rows = param(role(kGridExtent, 3, 0), rows);

    LoopDecl grid = grid_loop();
    E g = var(grid.var);
    const E row_block = divide(g, n_chunks);
    const E c = g - row_block * n_chunks;
    std::vector<Stmt>* body = &grid.body;
    LoopDecl v;
    std::int64_t items = 0;
    if (columns) {
      const std::int64_t blocks = (groups_[last].extent + s_.block - 1) / s_.block;
      E b = row_block;
      if (!outer.empty()) {
        const E nb = param(role(kGridExtent, 1, 0), blocks);
        const E q = divide(row_block, nb);
        decompose(q, outer);
        b = row_block - q * nb;
      }
      const auto [first, count] = block_range(b, konst(s_.block), last);
      v.kind = LoopKind::Vector;
      v.lanes = static_cast<std::uint16_t>(s_.lanes);
      v.var = new_var();
      v.extent = count.id;
      axis_[last] = first + var(v.var);
      body = &v.body;
      items = product(outer) * blocks * chunks;
    } else {
      if (!outer.empty()) decompose(row_block, outer);
      items = rows * chunks;
    }
    // Reduced loops, the outermost over this chunk only.
    const auto [first, count] = block_range(c, param(role(kGridExtent, 4, 0), s_.chunk), cut);
    std::vector<LoopDecl> nest;
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      LoopDecl l;
      l.kind = !columns && i + 1 == reduced.size() ? LoopKind::Vector : LoopKind::Serial;
      l.lanes = static_cast<std::uint16_t>(l.kind == LoopKind::Vector ? s_.lanes : 1);
      l.var = new_var();
      l.extent = i == 0 ? count.id : extent(reduced[i]).id;
      axis_[static_cast<std::size_t>(reduced[i])] = i == 0 ? first + var(l.var) : var(l.var);
      nest.push_back(std::move(l));
    }
    phase_ = 0;
    nest.front().accs = accs_of_phase();
    phase_body(nest.back().body);
    for (std::size_t i = nest.size(); i-- > 1;) nest[i - 1].body.push_back(loop(std::move(nest[i])));
    body->push_back(loop(std::move(nest.front())));
    const E row = to_expr(p_.row_linear, 0xfffe0000u, kStride, true);
    for (Reduction& r : reductions_) {
      const Op op = g_[p_.entries[r.entry].node].op;
      const DType type = k_.accs[r.acc].type;
      const auto add_partial = [&](DType t, int i) {
        r.partial[i] = new_buffer({BufferDecl::Role::Partial, t, 64});
        set_source(r.partial[i], {BufferSource::Kind::Partial, 0, 0, rows * chunks * size_of(t)});
      };
      add_partial(has_position(op) ? DType::Int64 : type, 0);
      body->push_back(store(r.partial[0], c * n_rows + row, acc_expr(r.acc, k_.buffers[r.partial[0]].dtype)));
    }
    if (columns) grid.body.push_back(loop(std::move(v)));
    set_grid(items);
    k_.body.push_back(loop(std::move(grid)));
    for (Reduction& r : reductions_) {
      r.final_acc = static_cast<std::uint32_t>(k_.accs.size());
      k_.accs.push_back(AccDecl(k_.accs[r.acc]));
    }
    build_finish(columns, n_chunks, n_rows);
  }

  E acc_expr(std::uint32_t acc, DType type) {
    return {&k_.pool, k_.pool.intern({Prim::Acc, type, kNoExpr, kNoExpr, kNoExpr, acc})};
  }

  void build_finish(bool columns, E n_chunks, E n_rows) {
    in_finish_ = true;
    forget();
    std::fill(axis_.begin(), axis_.end(), E{});
    LoopDecl rows;
    rows.var = new_var();
    if (columns) {
      rows.kind = LoopKind::Vector;
      rows.lanes = static_cast<std::uint16_t>(s_.lanes);
    }
    rows.extent = n_rows.id;
    const E row = var(rows.var);
    const std::vector<int> kept = groups(false);
    if (!kept.empty()) decompose(row, kept);
    LoopDecl chunk;
    chunk.var = new_var();
    chunk.extent = n_chunks.id;
    for (Reduction& r : reductions_) {
      chunk.accs.push_back(r.final_acc);
      Stmt s{Stmt::Kind::Update, r.final_acc};
      const E at = var(chunk.var) * n_rows + row;
      const bool position = has_position(g_[p_.entries[r.entry].node].op);
      const E partial = load_expr(r.partial[0], k_.buffers[r.partial[0]].dtype, at, E{});
      if (r.partial[1]) {
        s.index = load_expr(r.partial[1], DType::Int64, at, E{}).id;
        s.value = partial.id;
      } else if (position) {  // the partial result is a position: its value is read again from the reduced operand
        s.index = partial.id;
        s.value = value_at_position(r, partial).id;
      } else {
        s.value = partial.id;
      }
      chunk.body.push_back(s);
    }
    rows.body.push_back(loop(std::move(chunk)));
    store_outputs(rows.body, true, 1);
    store_outputs(rows.body, true, 0);
    k_.finish.push_back(loop(std::move(rows)));
  }

  /// The reduced operand at a row-major position among the reduced axes.
  E value_at_position(const Reduction& r, E position) {
    const std::vector<int> reduced = groups(true);
    const std::vector<E> saved = axis_;
    decompose(position, reduced);
    forget();
    const E v = build(p_.entries[r.entry].in[0]);
    forget();
    axis_ = saved;
    return v;
  }

  void finish_figures() {
    double points = 1;
    for (const Group& g : groups_) points *= static_cast<double>(g.extent);
    out_.work = points * static_cast<double>(std::max(prims_, 1.0f));
    out_.grain = std::max<std::int64_t>(1, static_cast<std::int64_t>(
        static_cast<double>(out_.grid) * 16384.0 / std::max(points, 1.0)));
  }

  const plan::Graph& g_;
  const schedule::Target& target_;
  Pulled p_;
  Lowered out_;
  Kernel& k_;
  std::vector<Group> groups_;
  schedule::Schedule s_;
  float prims_ = 0;
  int phases_ = 0, widest_ = 1, phase_ = 0;
  bool in_finish_ = false;
  std::vector<Reduction> reductions_;
  std::vector<std::int32_t> scratch_;        // per entry: its scratch buffer, or -1
  std::vector<E> axis_;                      // per group: its coordinate in the current environment
  E lane_;                                   // Stripes, Tiles: the variable of the loop on lanes
  E chunk_base_;                             // Stripes in chunks: where the chunk's partial results begin
  E position_;                               // position along the axes that share the lanes, if several do
  std::vector<E> memo_;
  std::map<std::uint64_t, std::uint32_t> params_;
  std::map<NodeId, std::uint32_t> out_buffer_;
};

}  // namespace

Lowered lower(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
              const schedule::Target& target) {
  return Builder(graph, regions, region, target).run();
}

}  // namespace kiln::lower
