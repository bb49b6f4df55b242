// Values of a region as scalar expressions: parameters, buffers, indices, entries.
//
// Invariant: build() gives the value of an entry in the current environment; within one environment an entry
// is built once. Sizes reach expressions only as parameters.
#include "kernel/halves.h"
#include "lower/exponentials.h"
#include "lower/region_lowering.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <limits>
#include <span>

namespace kiln::lower {

E RegionLowering::divide(E x, E d) {
  const ExprNode by = d.node();
  if (by.prim == Prim::Const && by.imm == 1) return x;
  if (by.prim != Prim::Param || !target_.gpu) return kernel::index_div(x, d);
  const std::int64_t inverse = (std::int64_t{1} << 32) / std::max<std::int64_t>(1, out_.params[by.imm]);
  return kernel::index_div(
      x, d, param(role(kInverse, by.imm), static_cast<std::int32_t>(inverse - (inverse >> 32))));
}

std::pair<E, E> RegionLowering::divide_with_rest(E x, E d) {
  const E q = divide(x, d);
  return {q, x - q * d};
}

// ---- parameters, buffers ----

E RegionLowering::unset_param(std::uint64_t role) {
  auto [it, fresh] = params_.try_emplace(role, static_cast<std::uint32_t>(out_.params.size()));
  if (fresh) out_.params.push_back(0);
  return leaf(Prim::Param, DType::Int64, it->second);
}

E RegionLowering::param(std::uint64_t role, std::int64_t value) {
  const auto [it, fresh] = params_.try_emplace(role, static_cast<std::uint32_t>(out_.params.size()));
  if (fresh) out_.params.push_back(value);
  KILN_CHECK_THAT(out_.params[it->second] == value, "one parameter has two values");
  return leaf(Prim::Param, DType::Int64, it->second);
}

/// How many elements of a sum make a block. Loops over different axes of a slab may have blocks of different
/// lengths: each length is a parameter of its own.
E RegionLowering::sum_block(std::int64_t length) {
  for (std::uint64_t part = 0;; ++part) {
    const std::uint64_t block = role(kSize, kSumBlock, part);
    const auto at = params_.find(block);
    if (at == params_.end() || out_.params[at->second] == length) return param(block, length);
  }
}

E RegionLowering::extent(int group) {
  const auto g = static_cast<std::size_t>(group);
  return param(role(kExtent, g), groups_[g].extent);
}

std::uint32_t RegionLowering::new_buffer(BufferDecl decl, BufferSource source) {
  k_.buffers.push_back(decl);
  out_.buffers.push_back(source);
  return static_cast<std::uint32_t>(k_.buffers.size() - 1);
}

/// Whether a part of a load's index is a start that the host knows before the kernel runs: it moves the
/// buffer, and the kernel is that of a slice whose start is a number.
bool RegionLowering::moves_buffer(const Term& term) const {
  const Atom& atom = p_.space.atom(term.atom);
  return atom.kind == Atom::Kind::Position && atom.of.c == 0 &&
         g_[p_.entries[atom.entry].node].op == Op::scalar;
}

constexpr std::int64_t kFarFetch = 8 << 10;  // bytes ahead, where adaptive mode asks for more than is usual

/// Whether so many bytes are not where loads find them at once, so that loops ask for them ahead: those that
/// the second cache of a CPU does not hold. A GPU's loops do not ask ahead, and have one kernel for all
/// sizes.
static bool is_far(const schedule::Target& t, std::int64_t bytes) { return !t.gpu && bytes >= t.l2_bytes; }

/// The buffer of a load, shared by the loads that begin at the same element. `at_vectors`: so does whatever
/// else is read by it.
std::uint32_t RegionLowering::input_buffer(const Entry& e, bool at_vectors) {
  const GraphNode& n = g_[e.node];
  const bool leaf = n.op == Op::leaf;
  const std::uint32_t id = leaf ? static_cast<std::uint32_t>(n.arg) : e.node;
  const std::int64_t offset = e.index.c * size_of(n.dtype);
  const auto kind = leaf ? BufferSource::Kind::Arg : BufferSource::Kind::Node;
  const std::int64_t bytes = n.numel * size_of(n.dtype);
  bool stream = is_far(target_, bytes);
  if (p_.space.jumps(e.index)) stream = false;
  if ((read_again(e) && phase_ < last_phase(e)) || reading_ == Reading::First) stream = false;
  std::int64_t later = bytes_ahead(e);
  const bool fetched_before = s_.form == Form::Stripes && first_phase(e) < phase_;  // whole columns ago
  // What is where an index says is near nothing else.
  if (!fetched_before && elements_to_next_item(e.index) != 0 && !p_.space.jumps(e.index) &&
      fetched_nearby(kind, id, offset))
    later = 0, stream = false;
  if (s_.fetches < 0) later = 0, stream = false;
  if (s_.fetches > 0 && !target_.gpu && !walks_back(e.index) && !p_.space.jumps(e.index))
    later = later != 0 ? 2 * later : stream ? kFarFetch : 0;
  stream |= later != 0;
  const bool ahead = stream && (item_ || later != 0) && !target_.gpu;
  const bool vector = target_.gpu && !unaligned_ && (s_.lanes > 1 || s_.run_lanes > 1) &&
                      (!walks_back(e.index) || !scans_.empty()) && at_vectors && begins_at_vectors(e);
  std::vector<BufferSource::Position> positions;
  for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n))) {
    if (!moves_buffer(term)) continue;
    const Atom& atom = p_.space.atom(term.atom);
    positions.push_back({g_[p_.entries[atom.entry].node].arg, (atom.extent - 1) * atom.divisor,
                         term.coef * size_of(n.dtype), atom.divisor});
  }
  bool first = true;
  for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
    const BufferSource& s = out_.buffers[b];
    if (k_.buffers[b].role != BufferDecl::Role::In || s.kind != kind || s.id != id ||
        s.byte_offset != offset || s.positions != positions)
      continue;
    if (ahead == (k_.buffers[b].ahead_param >= 0) && vector == k_.buffers[b].vector)
      return static_cast<std::uint32_t>(b);
    first = false;
  }
  // Of a slice or a gather no more than the points that read it; iterations of a loop may read others each.
  if (first) out_.bytes += e.inside ? bytes : std::min(bytes, p_.domain.numel() * size_of(n.dtype));
  BufferDecl decl{BufferDecl::Role::In, n.dtype, static_cast<std::uint8_t>(size_of(n.dtype))};
  decl.stream =
      stream || (!target_.gpu && s_.fetches >= 0 && bytes >= target_.l2_bytes && p_.space.jumps(e.index));
  decl.vector = vector;
  if (later != 0)
    decl.ahead_param =
        static_cast<std::int32_t>(param(role(kSize, kAhead, 16 + out_.buffers.size()), later).node().imm);
  else if (ahead)
    decl.ahead_param = static_cast<std::int32_t>(bytes_to_next_chunk(e).node().imm);
  return new_buffer(decl, {kind, id, offset, 0, std::move(positions)});
}

std::uint32_t RegionLowering::output_buffer(NodeId node, bool whole, bool ragged) {
  const bool stream = whole || ragged;
  const DType t = g_[node].dtype;
  out_.bytes += g_[node].numel * size_of(t);
  const auto at = regions_.placements.find(node);
  const bool placed = at != regions_.placements.end() && !at->second.whole;
  BufferDecl decl{BufferDecl::Role::Out, t, static_cast<std::uint8_t>(placed ? size_of(t) : 64)};
  decl.stream = stream, decl.ragged = ragged;
  const std::int64_t later = elements_to_next_item(p_.full_linear()) * size_of(t);
  if (later != 0 && !stream && is_far(target_, g_[node].numel * size_of(t)))
    decl.ahead_param =
        static_cast<std::int32_t>(param(role(kSize, kAhead, 16 + out_.buffers.size()), later).node().imm);
  decl.vector = target_.gpu && !unaligned_ && (s_.lanes > 1 || s_.run_lanes > 1);
  return new_buffer(decl, {BufferSource::Kind::Node, node, 0, 0});
}

std::uint32_t RegionLowering::scratch_buffer(DType type, std::int64_t bytes) {
  const std::uint32_t b =
      new_buffer({BufferDecl::Role::Scratch, type, 64}, {BufferSource::Kind::Scratch, 0, 0, bytes});
  const E offset = param(role(kOffset, kScratchOwner, b), out_.scratch_bytes);
  k_.buffers[b].offset_param = static_cast<std::uint32_t>(offset.node().imm);
  out_.scratch_bytes += bytes + (target_.gpu ? 0 : 16 * std::max({s_.lanes, s_.run_lanes, 4}));  // a vector
  return b;
}

std::uint32_t RegionLowering::partial_buffer(DType type, std::int64_t results) {
  return new_buffer({BufferDecl::Role::Partial, type, 64},
                    {BufferSource::Kind::Partial, 0, 0, results * size_of(type)});
}

// ---- indices ----

/// Whether the axes that share the lanes are walked by this index as one.
bool RegionLowering::runs_along_lanes(const Index& index) const {
  if (!position_) return false;
  for (std::size_t i = 0; i + 1 < along_.size(); ++i) {
    const Group &outer = groups_[static_cast<std::size_t>(along_[i])],
                &inner = groups_[static_cast<std::size_t>(along_[i + 1])];
    if (index.coef(outer.last) != index.coef(inner.last) * inner.extent) return false;
  }
  return true;
}

/// Where an axis stands whose coefficient counts: the last of a group, or of a piece.
RegionLowering::AxisPlace RegionLowering::place_of(int axis) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t p = 0; p < groups_[g].pieces.size(); ++p)
      if (groups_[g].pieces[p].last == axis) return {static_cast<int>(g), static_cast<int>(p)};
    if (groups_[g].last == axis) return {static_cast<int>(g)};
  }
  return {};
}

/// Whether an index walks all pieces of a group as one.
bool RegionLowering::walks_as_one(const Index& index, const Group& g) {
  for (std::size_t p = 0; p + 1 < g.pieces.size(); ++p)
    if (index.coef(g.pieces[p].last) != index.coef(g.pieces[p + 1].last) * g.pieces[p + 1].extent)
      return false;
  return true;
}

/// The coordinate along one piece of a group.
E RegionLowering::piece_value(const AxisPlace& at) {
  const Group& g = groups_[static_cast<std::size_t>(at.group)];
  const auto owner = static_cast<std::uint64_t>(at.group), part = static_cast<std::uint64_t>(at.piece);
  std::int64_t inner = 1;
  for (std::size_t p = g.pieces.size(); p-- > static_cast<std::size_t>(at.piece) + 1;)
    inner *= g.pieces[p].extent;
  const bool innermost = part + 1 == g.pieces.size();
  const E position = axis_[owner];
  if (!position) return {};
  const E outer = innermost ? position : divide(position, param(role(kExtent, owner, 2 * part + 1), inner));
  return at.piece == 0
             ? outer
             : divide_with_rest(outer, param(role(kExtent, owner, 2 * part + 2), g.pieces[part].extent))
                   .second;
}

/// An index in the current environment; `kind` and `owner` are the role of its coefficients.
E RegionLowering::to_expr(const Index& index, std::uint64_t owner, RoleKind kind) {
  E sum{};
  auto add = [&](E term) { sum = sum ? sum + term : term; };
  const bool along = runs_along_lanes(index);
  const std::int64_t steps = strip_row_ >= 0 ? strip_steps(index, s_.tile_axis, false) : 0;
  for (const Term& term : std::span(index.terms, static_cast<std::size_t>(index.n))) {
    const bool is_axis = term.atom < p_.space.axis_count();
    const AxisPlace place = is_axis ? place_of(term.atom) : AxisPlace{};
    const int group = place.group;
    if (is_axis && group < 0) continue;  // an outer axis of its group
    auto coef = [&] { return param(role(kind, owner, static_cast<std::uint64_t>(term.atom)), term.coef); };
    if (along && std::find(along_.begin(), along_.end(), group) != along_.end()) {
      if (group != along_.back()) continue;  // counted by the position
      add(term.coef == 1 ? position_ : position_ * coef());
      continue;
    }
    E value = is_axis ? axis_[static_cast<std::size_t>(group)] : atom_expr(term.atom);
    if (steps != 0 && is_axis && group == s_.tile_axis) value = strip_place(steps);
    if (place.piece >= 0) {
      const Group& g = groups_[static_cast<std::size_t>(group)];
      if (!walks_as_one(index, g))
        value = piece_value(place);
      else if (term.atom != g.last)
        continue;  // counted by the last piece
    }
    KILN_CHECK_THAT(value, "axis ", term.atom, " has no loop here");
    if (term.coef == 1)
      add(value);
    else if (term.coef == -1)
      add(-value);
    else
      add(value * coef());
  }
  const std::int64_t rest =
      steps == 0 ? index.c
                 : index.c - steps * index.coef(groups_[static_cast<std::size_t>(s_.tile_axis)].last);
  if (rest != 0) add(param(role(kOffset, owner, static_cast<std::uint64_t>(kind)), rest));
  return sum ? sum : konst(0);
}

E RegionLowering::atom_expr(AtomId id) {
  if (const auto known = atom_memo_.find(id); known != atom_memo_.end()) return known->second;
  const E made = build_atom(id);
  atom_memo_.emplace(id, made);
  return made;
}

/// An index into an axis. A GPU's index arithmetic is narrow: what leads out of range there meets a predicate
/// that says so.
static E index_of(E made, DType type, std::int64_t extent) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (size_of(type) > 4 && extent <= kMost) {  // what its low word does not hold is far out of range
    const E low = kernel::cast(made, DType::Int32);
    made = kernel::select(kernel::cast(low, type) == made, low,
                          low.lit(std::numeric_limits<std::int32_t>::min()));
    return kernel::cast_in_range(made, DType::Int64);
  }
  return size_of(type) <= 4 ? kernel::cast_in_range(made, DType::Int64) : kernel::cast(made, DType::Int64);
}

E RegionLowering::build_atom(AtomId id) {
  const auto owner = static_cast<std::uint64_t>(id);
  const Atom& a = p_.space.atom(id);
  if (a.kind == Atom::Kind::Value) {  // an index; negative ones count from the back
    const E made = build(a.entry);
    if (made.node().prim == Prim::FromIndex) return {made.pool, made.node().a};  // a loop's count
    const DType type = g_[p_.entries[a.entry].node].dtype;
    const E index =
        target_.gpu && !is_bool(type) ? index_of(made, type, a.extent) : kernel::cast(made, DType::Int64);
    if (!is_signed_int(type)) return index;
    return kernel::select(index < konst(0), index + param(role(kDivisor, owner), a.extent), index);
  }
  if (a.kind == Atom::Kind::Position) {
    const E made = build(a.entry);
    E start = made.node().prim == Prim::FromIndex ? E{made.pool, made.node().a} : made;
    if (a.of.c != 0)
      start = kernel::select(start < konst(0), start + param(role(kOffset, owner), a.of.c), start);
    if (a.divisor != 1) start = start >> konst(std::countr_zero(static_cast<std::uint64_t>(a.divisor)));
    const E last = param(role(kDivisor, owner), a.extent - 1);
    start = kernel::select(start < konst(0), konst(0), start);
    return kernel::select(last < start, last, start);
  }
  const E of = to_expr(a.of, owner, kAtomCoef);
  if (a.kind == Atom::Kind::Sum) return of;
  const E d = param(role(kDivisor, owner), a.divisor);
  const E q = divide(of, d);
  return a.kind == Atom::Kind::Div ? q : of - q * d;
}

/// Whether the predicate of a link holds.
E RegionLowering::link_expr(std::int32_t link) {
  const Predicate& p = p_.links[static_cast<std::size_t>(link)].predicate;
  const auto owner = static_cast<std::uint64_t>(predicate_owner(link));
  const E t = to_expr(p.t, owner, kPredicate);
  const E span = param(role(kExtent, owner, kLinkExtent), p.extent * p.step);
  const E holds = (konst(0) <= t) & (t < span);
  if (p.step == 1) return holds;
  const E step = param(role(kDivisor, owner, kLinkExtent), p.step);
  return holds & (t == divide(t, step) * step);
}

/// Whether the predicates of a chain hold, up to the link `end`. Nothing: they always do (in a strip).
E RegionLowering::predicate_expr(std::int32_t chain, std::int32_t end) {
  if (strip_row_ >= 0) return strip_predicate(chain, end);
  E all{};
  for (std::int32_t l = chain; l != end; l = p_.links[static_cast<std::size_t>(l)].next) {
    const E holds = link_expr(l);
    all = all ? all & holds : holds;
  }
  return all;
}

/// Position inside a row: the index in scratch memory of elements of `type`.
E RegionLowering::inner_position(DType type) {
  if (s_.form == Form::Bunch && !target_.gpu) return turned_index(slab_groups(), type);
  if (const E whole = s_.form == Form::Stripes ? lane_ : inner_) return whole;
  E at{};
  for (const int g : rows_of_columns()) {
    const E coordinate = axis_[static_cast<std::size_t>(g)];
    at = at ? at * extent(g) + coordinate : coordinate;
  }
  return at ? at : konst(0);
}

// ---- entries ----

int RegionLowering::first_phase(const Entry& e) const { return std::countr_zero(e.used_in ? e.used_in : 1u); }

/// The value of an entry in the current environment. Chains of operations may be long and stacks small:
/// operands are built first, in the order in which build_op() asks for them.
E RegionLowering::build(EntryId id) {
  const std::size_t bottom = building_.size();
  building_.push_back(id);
  while (building_.size() > bottom) {
    const EntryId at = building_.back();
    const EntryId operand = memo_[at] ? kNoEntry : unbuilt_operand(at);
    if (operand != kNoEntry) {
      building_.push_back(operand);
      continue;
    }
    building_.pop_back();
    if (memo_[at]) continue;
    const Entry& e = p_.entries[at];
    const kernel::ExprId before = k_.pool.size();
    const E value = build_entry(at);
    memo_[at] = rounds(e) ? rounded(value, g_[e.node].dtype) : value;
    note_origins(e, before);
  }
  return memo_[id];
}

/// Says of the expressions from `first` on, but for those that belong to another entry, that they make the
/// value of this one. The index of a load makes no value.
void RegionLowering::note_origins(const Entry& e, kernel::ExprId first) {
  const kernel::ExprId end = k_.pool.size();
  if (e.kind == Entry::Kind::Load)
    while (first < end && k_.pool[first].prim != Prim::Load) ++first;
  for (; first < end; ++first) note_origin({&k_.pool, first}, e.node);
}

void RegionLowering::note_origin(E value, NodeId node) {
  origins_.resize(k_.pool.size(), ir::kNoNode);
  if (origins_[value.id] == ir::kNoNode) origins_[value.id] = node;
}

/// The first operand of an operation that has no value yet; none of what memory holds.
/// Whether a value is read from scratch memory: a later phase's, or in a slab that of a later sweep with
/// loops over all of its axes.
bool RegionLowering::reads_kept(EntryId id) const {
  if (scratch_[id] < 0) return false;
  return s_.form == Form::Slab ? sweep_ >= 0 : phase_ > first_phase(p_.entries[id]);
}

EntryId RegionLowering::unbuilt_operand(EntryId id) const {
  const Entry& e = p_.entries[id];
  if (e.kind != Entry::Kind::Op || (!staged_.empty() && staged_[id] >= 0)) return kNoEntry;
  if (reads_kept(id) || id == copied_) return kNoEntry;
  for (std::size_t k = 0; k < g_[e.node].in.size(); ++k)
    if (!memo_[e.in[k]]) return e.in[k];
  return kNoEntry;
}

/// Whether a value is computed in a wider type than it is recorded in, and must not keep what that has more.
bool RegionLowering::rounds(const Entry& e) const {
  if (!target_.strict || !is_half(g_[e.node].dtype) || g_[e.node].op == Op::cast) return false;
  return e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Reduce || e.kind == Entry::Kind::Scan ||
         e.kind == Entry::Kind::Iota || e.kind == Entry::Kind::Product;
}

/// A value as it is after it was stored.
E RegionLowering::rounded(E value, DType type) {
  if (!is_half(type) || kernel::is_widened(k_.pool, value.id, type)) return value;
  return kernel::cast(narrow(value, type), DType::Float32);
}

E RegionLowering::build_entry(EntryId id) {
  const Entry& e = p_.entries[id];
  const DType type = compute_type(g_[e.node].dtype);
  if (!staged_.empty() && staged_[id] >= 0)
    return kernel::cast(tile_value(static_cast<std::uint32_t>(staged_[id])), type);
  if (reads_kept(id)) return load(static_cast<std::uint32_t>(scratch_[id]), type, scratch_index(id, type));
  if (!columns_.empty() && columns_[id] >= 0)
    return load(static_cast<std::uint32_t>(columns_[id]), type, lane_);
  switch (e.kind) {
    case Entry::Kind::Load: return build_load(id);
    case Entry::Kind::Scalar: return build_scalar(e.node);
    case Entry::Kind::Iota: {
      const E index = to_expr(e.index, id);
      return type == DType::Int64 ? kernel::from_index(index) : kernel::cast(index, type);
    }
    case Entry::Kind::Op: return build_op(id);
    case Entry::Kind::Pad: return build_pad(id);
    case Entry::Kind::Reduce: return reduce_value(id);
    case Entry::Kind::Product: return product_value(e);
    case Entry::Kind::LoopResult: return loop_result(id);
    case Entry::Kind::LoopState:
    case Entry::Kind::Scan: break;  // run_loop and scan_updates say what their values are
  }
  KILN_CHECK_THAT(false, "a running value is read before it is there");
  return {};
}

E RegionLowering::load(std::uint32_t buffer, DType type, E index, E predicate) {
  return {&k_.pool,
          k_.pool.intern({Prim::Load, type, index.id, predicate ? predicate.id : kNoExpr, kNoExpr, buffer})};
}

/// The first load of the same values with the same steps, whose parameters serve both: on a CPU what an index
/// adds up to beside its beginning is then found once for all taps of a stencil.
EntryId RegionLowering::same_steps(EntryId id) const {
  const auto with_steps = [&](EntryId other) {
    const Entry &a = p_.entries[id], &b = p_.entries[other];
    return b.kind == Entry::Kind::Load && b.node == a.node && b.index.n == a.index.n &&
           std::equal(a.index.terms, a.index.terms + a.index.n, b.index.terms);
  };
  EntryId first = target_.gpu ? id : 0;
  while (first < id && !with_steps(first)) ++first;
  return first;
}

E RegionLowering::build_load(EntryId id) {
  const Entry& e = p_.entries[id];
  const DType stored = g_[e.node].dtype;
  if (id == copied_) {  // as a float where nobody asks for anything else
    const E given = load(copied_buffer_, copied_type_, lane_);
    return copied_type_ == stored ? kernel::cast(given, compute_type(stored)) : given;
  }
  if (strip_row_ >= 0) return kernel::cast(strip_load(id), compute_type(stored));
  const EntryId near = near_window(id);
  const std::uint32_t b = input_buffer(p_.entries[near]);
  Index from_buffer = e.index;
  from_buffer.c = 0;  // the buffer begins there
  from_buffer.n = 0;
  for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n)))
    if (!moves_buffer(term)) from_buffer.terms[from_buffer.n++] = term;
  E at = to_expr(from_buffer, target_.gpu ? stride_owner(id) : same_steps(id));
  if (near != id) at = at + konst(e.index.c - p_.entries[near].index.c);
  const E v = load(b, stored, at, e.predicates >= 0 ? predicate_expr(e.predicates, -1) : E{});
  return kernel::cast(v, compute_type(stored));
}

E RegionLowering::build_scalar(NodeId node) {
  const GraphNode& n = g_[node];
  if (n.op == Op::constant)
    return kernel::cast(kernel::constant_bits(k_.pool, n.dtype, ir::attributes<ir::Constant>(n).bits),
                        compute_type(n.dtype));
  const auto it = std::find(out_.slots.begin(), out_.slots.end(), n.arg);
  const auto slot = static_cast<std::uint64_t>(it - out_.slots.begin());
  if (it == out_.slots.end()) {
    out_.slots.push_back(n.arg);
    k_.slots.push_back(n.dtype);
  }
  return kernel::cast(leaf(Prim::Slot, n.dtype, slot), compute_type(n.dtype));
}

/// Whether an entry's value has no more bits than its dtype. The states of a loop are rounded wherever they
/// are set.
bool RegionLowering::has_stored_bits(const Entry& e) const {
  switch (e.kind) {
    case Entry::Kind::Load:
    case Entry::Kind::Scalar:
    case Entry::Kind::LoopState:
    case Entry::Kind::LoopResult: return true;
    case Entry::Kind::Op:
      return g_[e.node].op == Op::cast || g_[e.node].op == Op::bitcast || !is_half(g_[e.node].dtype);
    case Entry::Kind::Iota:
    case Entry::Kind::Pad:
    case Entry::Kind::Reduce:
    case Entry::Kind::Product:
    case Entry::Kind::Scan: return !is_half(g_[e.node].dtype);
  }
  return false;
}

/// An operand as the operation of `e` takes it.
E RegionLowering::operand(const Entry& e, std::size_t k) {
  const E x = build(e.in[k]);
  const GraphNode& n = g_[e.node];
  return ir::has(n.op, ir::JUMPS) && !has_stored_bits(p_.entries[e.in[k]]) ? rounded(x, g_[n.in[k]].dtype)
                                                                           : x;
}

E RegionLowering::build_op(EntryId id) {
  const Entry& e = p_.entries[id];
  const GraphNode& n = g_[e.node];
  if (id == copied_) return load(copied_buffer_, copied_type_, lane_);
  E in[3];
  for (std::size_t k = 0; k < n.in.size(); ++k) in[k] = operand(e, k);
  if (n.op == Op::cast) {
    const bool exact = is_half(n.dtype) && size_of(g_[n.in[0]].dtype) == 1;  // halves have 8 bits and more
    return is_half(n.dtype) && !exact ? rounded(in[0], n.dtype) : kernel::cast(in[0], compute_type(n.dtype));
  }
  if (n.op == Op::bitcast)
    return kernel::cast(kernel::bitcast(narrow(in[0], g_[n.in[0]].dtype), n.dtype), compute_type(n.dtype));
  if (E fused = multiply_add(n, in)) return fused;
  const DType recorded = g_[n.in[n.in.size() - 1]].dtype;
  if (target_.strict) return expand(n.op, in[0], in[1], in[2], recorded);
  if (target_.gpu) return expand_gpu(n.op, rough_[id], in[0], in[1], in[2], recorded);
  const bool avx512 = scales_by_instruction(target_);
  const E below_one = exp_to_one(g_, p_, id, in[0], rough_[id], avx512);
  if (below_one) return below_one;
  return (avx512 ? expand_avx512 : expand_cpu)(n.op, rough_[id], in[0], in[1], in[2], recorded);
}

/// A value as it is stored: one that was rounded to a half type and widened again is that half.
E RegionLowering::narrow(E value, DType type) {
  const kernel::ExprNode& n = value.node();
  if (is_half(type) && n.prim == Prim::Cast && n.type == DType::Float32 && k_.pool[n.a].type == type)
    return {value.pool, n.a};
  return kernel::cast(value, type);
}

/// a·b + c, a·b - c and c - a·b with one rounding, where the target has it.
E RegionLowering::multiply_add(const GraphNode& n, const E (&in)[3]) {
  const bool subtract = n.op == Op::subtract;
  if (!k_.fma || !is_float(n.dtype) || !(subtract || n.op == Op::add)) return {};
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

const Reduction& RegionLowering::reduction(EntryId entry) const {
  const auto r = std::find_if(reductions_.begin(), reductions_.end(),
                              [&](const Reduction& candidate) { return candidate.entry == entry; });
  KILN_CHECK_THAT(r != reductions_.end(), "unknown reduction");
  return *r;
}

E RegionLowering::reduce_value(EntryId id) {
  const Reduction& r = reduction(id);
  const GraphNode& n = g_[p_.entries[id].node];
  if (s_.form == Form::Slab &&
      (s_.slabs > 0 || !groups_of(r.place, true).empty())) {  // a sweep before this one kept it
    const DType type = k_.buffers[r.partial[0]].dtype;
    return kernel::cast(load(r.partial[0], type, row_position(r.place)), compute_type(n.dtype));
  }
  if (s_.batch > 0)  // the loop over the batch before this one
    return kernel::cast(load(r.partial[0], k_.buffers[r.partial[0]].dtype, batch_row_),
                        compute_type(n.dtype));
  if (s_.fold > 0 && !in_finish_) return folded_value(r);
  if (s_.form == Form::Stripes && !in_finish_)
    return kernel::cast(stripe_load(r, has_position(n.op)), compute_type(n.dtype));
  return in_finish_ ? total_of(r.final_acc, n) : total_of(r);
}

}  // namespace kiln::lower
