// An operand of a product that its main loop makes on the way: a hook for runs of eight adjacent elements of
// a line. Most of what it is made of is one array, whose elements the main loop has copied; the hook gets
// these with the call and loads the rest.
//
// It is lowered as a kernel of its own, since its space is another than the product's, and taken over.
#include "lower/region_lowering.h"
#include "plan/made_operands.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace kiln::lower {
namespace {

constexpr int kRun = 8;                     // elements of a call
constexpr std::int64_t kCopyUnit = 16;      // bytes that the main loop copies
constexpr std::int64_t kPlanned = 64;       // alignment of memory that a plan allocates
constexpr std::int64_t kLeastOfOthers = 8;  // parts of the copied array's bytes, of which the others are one

/// Whether a value is that of this load of integers, as a float.
bool is_integer_of(const Pulled& p, const plan::Graph& g, EntryId id, EntryId load) {
  while (id != load) {
    const Entry& e = p.entries[id];
    if (e.kind != Entry::Kind::Op || g[e.node].op != Op::cast || !is_float(g[e.node].dtype)) return false;
    id = e.in[0];
  }
  return is_int(g[p.entries[load].node].dtype);
}

}  // namespace

/// The axes of lines and those along one, each side's adjacent ones as one where every access walks them so.
/// False: the space has no such two sides.
bool RegionLowering::collapse_lines(std::int64_t length) {
  int cut = p_.domain.rank();
  std::int64_t inside = 1;
  while (cut > 0 && inside < length) inside *= p_.domain[--cut];
  if (inside != length) return false;
  for (int a = 0; a < p_.domain.rank(); ++a) {
    if (p_.domain[a] == 1) continue;
    const bool along = a >= cut;
    const Group g{std::uint64_t{1} << a, a, p_.domain[a], false, -1, 1, {}};
    bool joins = !groups_.empty() && (groups_.back().last >= cut) == along;
    if (joins) {
      const int outer = groups_.back().last;
      each_index([&](const Index& i) { joins &= i.coef(outer) == i.coef(a) * g.extent; });
    }
    if (joins) {
      groups_.back().last = a;
      groups_.back().axes |= g.axes;
      groups_.back().extent *= g.extent;
      continue;
    }
    groups_.push_back(g);
    (along ? run_groups_ : line_groups_).push_back(last_group());
  }
  if (run_groups_.empty()) return false;
  std::int64_t last = groups_.back().extent;  // or two elements made of one, and what these are a part of
  if (last == 2 && run_groups_.size() > 1) last *= groups_[groups_.size() - 2].extent;
  return last % kRun == 0;
}

/// How many adjacent elements of a line are made of one of a load: 1, or 2 of bytes.
int RegionLowering::share_of(const Entry& e) const {
  const Group& last = groups_[static_cast<std::size_t>(run_groups_.back())];
  const bool shares = run_groups_.size() > 1 && last.extent == 2 && size_of(g_[e.node].dtype) == 1 &&
                      e.index.coef(last.last) == 0;
  return shares ? 2 : 1;
}

/// How far one line of a load is from the next, if its elements lie side by side and its lines at one
/// distance; or -1.
std::int64_t RegionLowering::pitch_of(const Entry& e) const {
  if (e.kind != Entry::Kind::Load || e.predicates >= 0) return -1;
  for (const Term& t : std::span(e.index.terms, static_cast<std::size_t>(e.index.n)))
    if (t.atom >= p_.space.axis_count() && !moves_buffer(t)) return -1;
  const auto steps = [&](const std::vector<int>& groups) -> std::int64_t {
    if (groups.empty()) return 0;
    const std::int64_t step = e.index.coef(groups_[static_cast<std::size_t>(groups.back())].last);
    for (std::size_t i = groups.size() - 1; i-- > 0;) {
      const Group &outer = groups_[static_cast<std::size_t>(groups[i])],
                  &inner = groups_[static_cast<std::size_t>(groups[i + 1])];
      if (e.index.coef(outer.last) != e.index.coef(inner.last) * inner.extent) return -1;
    }
    return step;
  };
  std::vector<int> along = run_groups_;
  if (share_of(e) > 1) along.pop_back();
  return steps(along) == 1 ? steps(line_groups_) : -1;
}

/// The load that the main loop copies: the largest, if the others are few bytes beside it.
EntryId RegionLowering::find_copied() const {
  EntryId found = kNoEntry;
  const auto bytes = [&](const Entry& e) { return g_[e.node].numel * size_of(g_[e.node].dtype); };
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    if (e.kind == Entry::Kind::Load && (found == kNoEntry || bytes(e) > bytes(p_.entries[found]))) found = id;
  }
  if (found == kNoEntry) return kNoEntry;
  const Entry& e = p_.entries[found];
  const DType type = g_[e.node].dtype;
  std::int64_t others = 0;
  for (const Entry& o : p_.entries)
    if (o.kind == Entry::Kind::Load && &o != &e) others += bytes(o);
  const std::int64_t points = p_.domain.numel();
  const bool fits = !is_bool(type) && size_of(type) <= 4 && others * kLeastOfOthers <= points * size_of(type);
  return fits && pitch_of(e) > 0 ? found : kNoEntry;
}

/// Whether a load of 8 bits is asked for as a float alone, which the main loop makes of several at a time.
bool RegionLowering::only_widened(EntryId id) const {
  if (size_of(g_[p_.entries[id].node].dtype) != 1) return false;
  return std::ranges::all_of(p_.entries, [&](const Entry& e) {
    bool reads = false;
    p_.each_operand(e, [&](EntryId in) { reads |= in == id; });
    const GraphNode& n = g_[e.node];
    return !reads ||
           (e.kind == Entry::Kind::Op && n.op == Op::cast && (is_half(n.dtype) || n.dtype == DType::Float32));
  });
}

/// Whether a value of 8-bit integers stays small: they themselves, as floats, less or plus what others are.
bool RegionLowering::is_bounded(EntryId id) const {
  const Entry& e = p_.entries[id];
  if (id == copied_ && e.kind == Entry::Kind::Op) return true;
  if (e.kind == Entry::Kind::Load)
    return id != copied_ || (size_of(g_[e.node].dtype) == 1 && is_int(g_[e.node].dtype));
  if (e.kind == Entry::Kind::Scalar) return true;
  const Op op = g_[e.node].op;
  if (e.kind != Entry::Kind::Op || (op != Op::cast && op != Op::add && op != Op::subtract)) return false;
  bool all = true;
  p_.each_operand(e, [&](EntryId in) { all = all && is_bounded(in); });
  return all;
}

/// Whether a value is the same along these groups.
bool RegionLowering::is_same_along(EntryId id, const std::vector<int>& groups) const {
  const Entry& e = p_.entries[id];
  if (e.kind == Entry::Kind::Scalar) return true;
  if (id == copied_) return false;
  if (e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota) {
    if (e.kind == Entry::Kind::Load && e.predicates >= 0) return false;
    for (const Term& t : std::span(e.index.terms, static_cast<std::size_t>(e.index.n)))
      if (t.atom >= p_.space.axis_count() && !moves_buffer(t)) return false;
    return std::ranges::all_of(groups, [&](int g) {
      const std::uint64_t axes = groups_[static_cast<std::size_t>(g)].axes;
      for (int a = 0; a < p_.domain.rank(); ++a)
        if ((axes >> a & 1) != 0 && e.index.coef(a) != 0) return false;
      return true;
    });
  }
  if (e.kind != Entry::Kind::Op) return false;
  bool all = true;
  p_.each_operand(e, [&](EntryId in) { all = all && is_same_along(in, groups); });
  return all;
}

/// The operand as a value of 8-bit integers and factors behind it that are the same along k: the sums are
/// multiplied by these instead. Or the operand alone. A product's operand is rounded like a store, up to a
/// factor of its row or column (docs/contractions.md); float16 could overflow without the factor.
std::vector<EntryId> RegionLowering::factors_of_columns(const plan::MadeOperand& what) const {
  const EntryId operand = p_.outputs[0].entry;
  if (g_[p_.outputs[0].node].dtype != DType::BFloat16) return {operand};
  const auto is = [&](EntryId id, Op op) {
    const Entry& e = p_.entries[id];
    return e.kind == Entry::Kind::Op && g_[e.node].op == op && is_float(g_[e.node].dtype);
  };
  const std::vector<int>& along_k = what.by_k ? run_groups_ : line_groups_;
  std::vector<EntryId> out{is(operand, Op::cast) ? p_.entries[operand].in[0] : operand};
  while (is(out[0], Op::multiply)) {
    const auto [first, second, none] = p_.entries[out[0]].in;
    const bool leads = is_same_along(first, along_k);
    if (!leads && !is_same_along(second, along_k)) break;
    out.push_back(leads ? first : second);
    out[0] = leads ? second : first;
  }
  return out.size() > 1 && is_bounded(out[0]) ? out : std::vector{operand};
}

/// Bytes that divide the address of a load's first element and the distance of its lines.
std::int64_t RegionLowering::alignment_of(const BufferSource& source, std::int64_t pitch_bytes) const {
  std::int64_t unit = source.kind == BufferSource::Kind::Arg ? g_.args[source.id].alignment : kPlanned;
  unit = std::gcd(std::gcd(unit, source.byte_offset), pitch_bytes);
  for (const BufferSource::Position& p : source.positions) unit = std::gcd(unit, p.stride);
  return unit;
}

/// A hook that gives the product of these, at `position`: of a part of the launch, and what else it is asked
/// for.
kernel::Hook RegionLowering::factor_hook(const char* name, std::span<const EntryId> factors,
                                         std::span<const E> position) {
  kernel::Hook hook{name, {}, {}, {}, {}, -1};
  for (const E& g : position) hook.params.push_back(static_cast<std::uint32_t>(g.node().imm));
  forget();
  position_ = {};
  body_ = &hook.body;
  E product = kernel::cast(build(factors[0]), DType::Float32);
  for (const EntryId factor : factors.subspan(1))
    product = product * kernel::cast(build(factor), DType::Float32);
  hook.results.push_back(product.id);
  return hook;
}

/// A run of the value that is copied, from its third coordinate on, as the main loop takes it.
kernel::Hook RegionLowering::value_hook(EntryId value, std::uint32_t made, std::span<const E> at) {
  kernel::Hook hook{"b_value", {}, {copied_buffer_, made}, {}, {}, -1};
  for (const E& g : at) hook.params.push_back(static_cast<std::uint32_t>(g.node().imm));
  hook.body.push_back(lane_loop({at[2], konst(kRun)}, run_groups_, [&](Body& body) {
    // The main loop rounds it to the operand's type.
    E x = narrow(build(value), g_[p_.outputs[0].node].dtype);
    const ExprNode& n = x.node();
    if (n.prim == Prim::Cast && k_.pool[n.a].type == DType::Float32) x = {x.pool, n.a};
    body.push_back(store(made, lane_, kernel::cast(x, DType::Float32)));
  }));
  return hook;
}

/// Nothing: the main loop cannot make it.
std::optional<MadeOperand> RegionLowering::make_operand(const plan::MadeOperand& what) {
  measure();
  if (phases_ > 0 || !scans_.empty() || !p_.loops.empty() || random_ || !collapse_lines(what.length))
    return std::nullopt;
  copied_ = find_copied();
  if (copied_ == kNoEntry) return std::nullopt;
  s_.form = Form::Product;
  s_.lanes = kRun;
  s_.steps = 1;
  unaligned_ = vector_elements() < kRun;
  mark_uses();
  find_rough();
  begin();
  const Entry& e = p_.entries[copied_];
  const DType type = g_[e.node].dtype;
  MadeOperand out;
  out.buffer = input_buffer(e);
  out.pitch = pitch_of(e);
  if (alignment_of(out_.buffers[out.buffer], out.pitch * size_of(type)) % kCopyUnit != 0) return std::nullopt;
  out.made_of = static_cast<int>(size_of(type));
  out.share = share_of(e);
  if (out.share > 1 && !what.by_k) return std::nullopt;  // the main loop takes them apart along k alone
  if (const EntryId nibbles = out.share > 1 ? find_nibbles() : kNoEntry; nibbles != kNoEntry) {
    out.nibbles = true;
    copied_ = nibbles;
  }
  out.widens = only_widened(copied_);
  copied_type_ = out.widens ? DType::Float32 : type;
  const auto bytes = static_cast<std::uint8_t>(size_of(copied_type_));
  copied_buffer_ =
      new_buffer({BufferDecl::Role::In, copied_type_, bytes}, {BufferSource::Kind::Scratch, 0, 0});
  const std::uint32_t made =
      new_buffer({BufferDecl::Role::Out, DType::Float32, 4}, {BufferSource::Kind::Scratch, 0, 0});
  const E part = size(kGivenPart, 0), line = size(kGivenRow, 0), first = size(kGivenColumn, 0);
  decompose(line, line_groups_);
  const std::vector<EntryId> factors = factors_of_columns(what);
  out.as_given = out.widens && out.share == 1 && is_integer_of(p_, g_, factors[0], copied_);
  const std::optional<Quantized> common =
      out.nibbles ? quantized(factors[0], g_[p_.outputs[0].node].dtype) : std::nullopt;
  out.as_given |= common.has_value();
  out.zeroed = common && common->zero != kNoEntry;
  out.scaled = common && common->scale != kNoEntry;
  out.hooks.push_back(value_hook(factors[0], made, std::array{part, line, first}));
  if (factors.size() > 1) {
    out.factored = true;
    if (!what.by_k) decompose(first, run_groups_);
    out.hooks.push_back(
        factor_hook("b_factor", std::span(factors).subspan(1), std::array{part, what.by_k ? line : first}));
  }
  if (out.zeroed || out.scaled) decompose(first, run_groups_);
  if (out.zeroed)
    out.hooks.push_back(factor_hook("b_zero", std::array{common->zero}, std::array{part, line, first}));
  if (out.scaled)
    out.hooks.push_back(factor_hook("b_scale", std::array{common->scale}, std::array{part, line, first}));
  k_.n_params = static_cast<std::uint32_t>(out_.params.size());
  k_.threads.narrow = index_is_narrow();
  out.from = std::move(out_);
  return out;
}

/// Takes over hooks, with what another kernel has for them; its buffers are numbered from out_.buffers.size()
/// on.
std::vector<kernel::Hook> RegionLowering::adopt(std::vector<kernel::Hook> hooks, const Lowered& from) {
  const Kernel& k = from.kernel;
  const auto params = static_cast<std::uint32_t>(out_.params.size()),
             buffers = static_cast<std::uint32_t>(k_.buffers.size()),
             loops = static_cast<std::uint32_t>(k_.loops.size()), vars = k_.n_vars;
  std::vector<std::uint64_t> slots;
  for (std::size_t s = 0; s < from.slots.size(); ++s) {
    const auto at = std::ranges::find(out_.slots, from.slots[s]) - out_.slots.begin();
    slots.push_back(static_cast<std::uint64_t>(at));
    if (static_cast<std::size_t>(at) < out_.slots.size()) continue;
    out_.slots.push_back(from.slots[s]);
    k_.slots.push_back(k.slots[s]);
  }
  std::vector<kernel::ExprId> now(k.pool.size());
  const auto moved = [&](kernel::ExprId e) { return e == kNoExpr ? kNoExpr : now[e]; };
  for (kernel::ExprId e = 0; e < k.pool.size(); ++e) {
    ExprNode n = k.pool[e];
    for (kernel::ExprId* operand : {&n.a, &n.b, &n.c}) *operand = moved(*operand);
    if (n.prim == Prim::Param || (n.prim == Prim::IndexDiv && n.imm != 0)) n.imm += params;
    if (n.prim == Prim::Slot) n.imm = slots[n.imm];
    if (n.prim == Prim::Var) n.imm += vars;
    if (n.prim == Prim::Load) n.imm += buffers;
    now[e] = k_.pool.intern(n);
  }
  const auto body_of = [&](Body body) {
    for (Stmt& s : body) {
      s.target += s.kind == Stmt::Kind::Loop ? loops : buffers;
      s.index = moved(s.index);
      s.value = moved(s.value);
    }
    return body;
  };
  for (LoopDecl l : k.loops) {
    l.var += vars;
    l.extent = moved(l.extent);
    l.body = body_of(std::move(l.body));
    k_.loops.push_back(std::move(l));
  }
  k_.n_vars += k.n_vars;
  k_.buffers.insert(k_.buffers.end(), k.buffers.begin(), k.buffers.end());
  out_.buffers.insert(out_.buffers.end(), from.buffers.begin(), from.buffers.end());
  out_.params.insert(out_.params.end(), from.params.begin(), from.params.end());
  out_.bytes += from.bytes;
  for (kernel::Hook& hook : hooks) {
    for (std::uint32_t& p : hook.params) p += params;
    for (std::uint32_t& b : hook.buffers) b += buffers;
    if (hook.address >= 0) hook.address += static_cast<std::int32_t>(buffers);
    hook.body = body_of(std::move(hook.body));
    for (kernel::ExprId& e : hook.results) e = moved(e);
  }
  return hooks;
}

bool makes_operands(const plan::Graph& graph, const plan::Regions& regions,
                    std::span<const plan::MadeOperand> operands, const schedule::Target& target) {
  std::optional<MadeOperand> first;
  const auto copied = [](const MadeOperand& m) { return m.from.kernel.buffers[m.buffer].dtype; };
  for (const plan::MadeOperand& operand : operands) {
    auto made = RegionLowering(graph, regions, *operand.maker, target).make_operand(operand);
    // Lines along the columns are as wide as a block's tile, and two products share that.
    if (!made || (operands.size() > 1 && !operand.by_k)) return false;
    if (first && (copied(*first) != copied(*made) || first->widens != made->widens ||
                  first->as_given != made->as_given || first->factored != made->factored ||
                  first->share != made->share || first->nibbles != made->nibbles ||
                  first->zeroed != made->zeroed || first->scaled != made->scaled))
      return false;
    if (!first) first = std::move(made);
  }
  return true;
}

}  // namespace kiln::lower
