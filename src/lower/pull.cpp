#include "lower/pull.h"

#include "lower/pull_points.h"
#include "lower/pull_predicates.h"
#include "support/check.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace kiln::lower {
namespace {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;
using ir::OpKind;

class Puller {
 public:
  Puller(const plan::Graph& g, const plan::Regions& regions, const plan::Region& region, Domain domain)
      : g_(g), regions_(regions), region_(region), p_(domain.axes), points_(p_, std::move(domain)) {
    p_.nest = region.nest;
  }

  Pulled run() {
    pull_outputs();
    if (!points_.has_halves()) return std::move(p_);
    const std::vector<Index> first = p_.linear;
    points_.take(1);
    pull_outputs();
    p_.linear = first;
    add_product();
    const std::size_t count = p_.outputs.size() / 2;
    for (std::size_t o = 0; o < count; ++o)
      p_.outputs[count + o].behind = p_.outputs[count + o].at.c - p_.outputs[o].at.c;
    return std::move(p_);
  }

 private:
  void pull_outputs() {
    for (NodeId out : region_.outputs) {
      if (out == region_.product && reads_partners()) continue;
      const int level = level_of(out);
      const bool stack = g_[out].op == Op::loop_stack;
      const EntryId entry =
          stack ? loop_stack(out, level > 0) : value(out, points_.base(g_[out].dims, level), -1);
      p_.outputs.push_back({out, entry, level > 0, level, p_.linear[static_cast<std::size_t>(level)]});
      if (const auto at = regions_.placements.find(out); at != regions_.placements.end() && !at->second.whole)
        place(p_.outputs.back(), at->second);
    }
  }

  /// Whether others read the product's columns in pairs, perhaps in another order than its own.
  bool reads_partners() const { return points_.has_halves() && region_.nodes.size() > 1; }

  /// A product that is stored as well, in its own order: halves stand where those of other outputs do.
  void add_product() {
    if (!reads_partners() || !std::ranges::binary_search(region_.outputs, region_.product)) return;
    std::vector<Pulled::Output> both;
    for (EntryId e = 0; e < p_.entries.size(); ++e)
      if (p_.entries[e].kind == Entry::Kind::Product)
        both.push_back({region_.product, e, false, 0, p_.entries[e].index});
    if (both.size() != 2) return;  // refused by those who ask for such a region
    if (both[0].at.c > both[1].at.c) std::swap(both[0], both[1]);
    p_.outputs.insert(p_.outputs.begin() + static_cast<std::ptrdiff_t>(p_.outputs.size() / 2), both[0]);
    p_.outputs.push_back(both[1]);
  }

  /// Gives an output its index in memory that is not its own.
  void place(Pulled::Output& o, const plan::Placement& at) {
    IndexSpace& s = p_.space;
    const ir::Dims dims = g_[o.node].dims;
    const CoordsId here = points_.base(dims, o.level);
    o.placed = true;
    o.at = s.constant(at.offset);
    for (std::size_t a = 0; a < dims.size(); ++a)
      if (dims[a] != 1) o.at = s.add(o.at, s.mul(points_[here][a], at.strides[a]));
    for (const plan::Placement::Position& p : at.positions)
      o.at = s.add(
          o.at,
          s.mul(s.position(value(p.start, points_.intern({}), -1), p.last, p.factor, p.from_back), p.stride));
  }

  bool own(NodeId id) const { return std::binary_search(region_.nodes.begin(), region_.nodes.end(), id); }

  int level_of(NodeId id) const {
    if (region_.axes.empty()) return std::binary_search(region_.rows.begin(), region_.rows.end(), id);
    const auto at = std::lower_bound(region_.nodes.begin(), region_.nodes.end(), id);
    return region_.places[static_cast<std::size_t>(at - region_.nodes.begin())];
  }
  /// Where a reduction reads.
  int level_below(NodeId id) const { return region_.nest ? level_of(id) - 1 : 0; }

  EntryId push(Entry&& e) {
    p_.each_operand(e, [&](EntryId in) { e.phase = std::max(e.phase, p_.entries[in].phase); });
    if (e.kind == Entry::Kind::Reduce) e.phase = std::max(e.phase + 1, region_.nest ? level_of(e.node) : 0);
    p_.entries.push_back(std::move(e));
    return static_cast<EntryId>(p_.entries.size() - 1);
  }

  EntryId load(NodeId id, CoordsId at, std::int32_t predicates) {
    const GraphNode& n = g_[id];
    Entry e{Entry::Kind::Load, id};
    e.predicates = needed_predicates(p_, predicates, points_[at]);
    e.cost = 1;
    IndexSpace& s = p_.space;
    if (n.op == Op::leaf) {
      const ir::Dims strides = g_.args[static_cast<std::size_t>(n.arg)].strides;
      for (std::size_t a = 0; a < n.dims.size(); ++a)
        if (n.dims[a] != 1) e.index = s.add(e.index, s.mul(points_[at][a], strides[a]));
    } else {
      e.index = s.linearize(points_[at], n.dims);
    }
    return push(std::move(e));
  }

  /// A value that is being made of operands: an operation, or what one operand shows at other points.
  struct Pending {
    NodeId id;
    CoordsId at;
    std::int32_t predicates;
    std::size_t run = 0;    // its memo
    std::uint64_t key = 0;  // its place there
    std::size_t asked = 0;  // operands
    Entry e{};
  };

  /// Chains of operations and views are as long as a caller makes them, and threads have small stacks: these
  /// wait in a list, not in calls. What else calls itself is bounded by the planner's caps.
  EntryId value(NodeId id, CoordsId at, std::int32_t predicates) {
    const std::size_t bottom = pending_.size();
    EntryId made = begin(id, at, predicates);
    while (pending_.size() > bottom) {
      Pending& p = pending_.back();
      const GraphNode& n = g_[p.id];
      const bool operation = !ir::is_view(n.op);
      if (p.asked > 0 && operation) p.e.in[p.asked - 1] = made;
      if (p.asked < (operation ? n.in.size() : 1)) {
        const std::size_t k = p.asked++;
        const std::int32_t chain = p.predicates;
        const CoordsId there = operation ? points_.operand(p.at, n.dims, g_[n.in[k]].dims) : seen_at(n, p.at);
        made = begin(n.in[k], there, chain);  // `p` may have moved
        continue;
      }
      Pending done = std::move(p);
      pending_.pop_back();
      made = keep(done, operation ? push(std::move(done.e)) : made);
    }
    return made;
  }

  /// The value if it is known or made at once; else it is pending.
  EntryId begin(NodeId id, CoordsId at, std::int32_t predicates) {
    Pending p{id, at, predicates};
    p.key = (std::uint64_t{id} << 40) ^ (std::uint64_t{at} << 16) ^ static_cast<std::uint16_t>(predicates);
    const NodeId loop = regions_.loops.owner_of(id);
    p.run = loop == ir::kNoNode ? 0 : 1 + static_cast<std::size_t>(current_.at(loop));
    if (memo_.size() <= p.run) memo_.resize(p.run + 1);
    if (const auto it = memo_[p.run].find(p.key); it != memo_[p.run].end()) return it->second;
    if (!waits_for_operands(id)) return keep(p, compute(id, at, predicates));
    p.e.kind = Entry::Kind::Op;
    p.e.node = id;
    p.e.cost = 1;
    pending_.push_back(std::move(p));
    return kNoEntry;
  }

  EntryId keep(const Pending& p, EntryId e) {
    if (p.run != 0) p_.entries[e].inside = true;
    memo_[p.run].emplace(p.key, e);
    return e;
  }

  bool waits_for_operands(NodeId id) const {
    const GraphNode& n = g_[id];
    const ir::OpKind kind = ir::info(n.op).kind;
    if (n.numel == 0 || n.op == Op::leaf || (regions_.stored[id] && !own(id)) || n.op == Op::pad ||
        n.op == Op::update_at || n.op == Op::join)
      return false;
    return kind == OpKind::Cast || kind == OpKind::Elementwise || kind == OpKind::View;
  }

  EntryId compute(NodeId id, CoordsId at, std::int32_t predicates) {
    const GraphNode& n = g_[id];
    // no point reads it: any value that is not loaded will do
    if (n.numel == 0) return push({Entry::Kind::Iota, id});
    if (n.op == Op::leaf || (regions_.stored[id] && !own(id))) return load(id, at, predicates);
    switch (ir::info(n.op).kind) {
      case OpKind::Leaf: break;
      case OpKind::Scalar: return push({Entry::Kind::Scalar, id});
      case OpKind::Iota: {
        Entry e{Entry::Kind::Iota, id};
        e.index = points_[at][ir::attributes<ir::Iota>(n).axis];
        e.cost = 1;
        return push(std::move(e));
      }
      case OpKind::Cast:
      case OpKind::Elementwise: break;  // value() makes them
      case OpKind::View:
        return n.op == Op::pad    ? pad(n, at, predicates, id)
               : n.op == Op::join ? join(n, at, predicates, id)
                                  : update_at(n, at, predicates, id);
      case OpKind::Reduce: {
        KILN_CHECK_THAT(own(id) && at == points_.base(n.dims, level_of(id)), "reduction ", id,
                        " read off its row");
        Entry e{Entry::Kind::Reduce, id};
        e.place = level_of(id);
        e.in[0] = value(n.in[0], points_.base(g_[n.in[0]].dims, level_below(id)), -1);
        if (ir::has(n.op, ir::POSITION)) e.index = reduced_position(n, level_below(id));
        return push(std::move(e));
      }
      case OpKind::Scan: {
        KILN_CHECK_THAT(own(id) && at == points_.base(n.dims, 0), "scan ", id, " read off its place");
        Entry e{Entry::Kind::Scan, id};
        e.in[0] = value(n.in[0], at, -1);
        e.cost = 1;
        return push(std::move(e));
      }
      case OpKind::LoopState: {
        const LoopRun& run = p_.loops[static_cast<std::size_t>(current_.at(regions_.loops.owner[id]))];
        return run.states[place_in(run, id)];
      }
      case OpKind::LoopResult: return loop_result(id, at, predicates);
      case OpKind::LoopNext:
      case OpKind::LoopStack:
      case OpKind::Loop: break;
      case OpKind::Gather: return gather(n, at, predicates, id);
      case OpKind::Contraction: {
        if (!own(id)) break;
        KILN_CHECK_THAT(region_.partner > 0 || at == points_.base(n.dims, false), "product ", id,
                        " read off its place");
        Entry e{Entry::Kind::Product, id};
        if (region_.partner > 0) e.index = p_.space.linearize(points_[at], n.dims);
        e.cost = 1;
        return push(std::move(e));
      }
      case OpKind::Library:
      case OpKind::Part: break;
    }
    KILN_CHECK_THAT(false, ir::info(n.op).name, " cannot be computed inside a region");
    return kNoEntry;
  }

  /// Position of the current point among the reduced axes of a reduction, row-major.
  Index reduced_position(const GraphNode& n, int level) {
    const ir::Dims dims = g_[n.in[0]].dims;
    const Coords& c = points_[points_.base(dims, level)];
    Index position;
    std::int64_t stride = 1;
    for (std::size_t a = dims.size(); a-- > 0;) {
      if (!ir::attributes<ir::Reduce>(n).over(a)) continue;
      if (dims[a] != 1) position = p_.space.add(position, p_.space.mul(c[a], stride));
      stride *= dims[a];
    }
    return position;
  }

  /// Where a view but a pad sees its operand.
  CoordsId seen_at(const GraphNode& n, CoordsId at) {
    IndexSpace& s = p_.space;
    const GraphNode& in = g_[n.in[0]];
    Coords c;
    switch (n.op) {
      case Op::reshape:
        // The current point seen in other extents is the current point: going through its position and back
        // would end at coordinates that are equal without looking equal.
        for (int level = 0; level < points_.levels(); ++level)
          if (n.numel == points_.count(level) && at == points_.base(n.dims, level))
            return points_.base(in.dims, level);
        c = s.reshaped(points_[at], n.dims, in.dims);
        break;
      case Op::arrange: return at;
      case Op::slice_at: {
        const std::size_t axis = ir::attributes<ir::Position>(n).axis;
        c = points_[at];
        if (in.dims[axis] != 1) c[axis] = s.add(c[axis], position(n, 1, in.dims[axis], n.dims[axis]));
        break;
      }
      default: return seen_by_map(n, at);
    }
    return points_.intern(std::move(c));
  }

  /// The same of an affine view.
  CoordsId seen_by_map(const GraphNode& n, CoordsId at) {
    IndexSpace& s = p_.space;
    const ir::Dims from = g_[n.in[0]].dims;
    const ir::ViewMap map = ir::view_map(n, from);
    Coords c(from.size());
    for (std::size_t a = 0; a < from.size(); ++a)
      if (from[a] != 1) c[a] = s.constant(map.first[a]);
    for (const ir::ViewMap::Term& t : map.terms)
      if (from[t.operand_axis] != 1)
        c[t.operand_axis] = s.add(s.mul(points_[at][t.axis], t.step), c[t.operand_axis]);
    return points_.intern(std::move(c));
  }

  /// The start that operand k of a node holds, which is the same at every point.
  Index position(const GraphNode& n, std::size_t k, std::int64_t extent, std::int64_t size) {
    const EntryId start = value(n.in[k], points_.intern({}), -1);
    const auto how = ir::attributes<ir::Position>(n);
    return p_.space.position(start, extent - size, how.factor, how.from_back ? extent : 0);
  }

  EntryId update_at(const GraphNode& n, CoordsId at, std::int32_t outer, NodeId id) {
    const GraphNode& update = g_[n.in[0]];
    if (update.numel == 0) return value(n.in[1], at, outer);
    const std::size_t axis = ir::attributes<ir::Position>(n).axis;
    const Index start = position(n, 2, n.dims[axis], update.dims[axis]);
    const Index t = p_.space.add(points_[at][axis], p_.space.mul(start, -1));
    p_.links.push_back({predicate_of(t, update.dims[axis]), outer});
    const auto chain = static_cast<std::int32_t>(p_.links.size() - 1);
    Coords c = points_[at];
    c[axis] = update.dims[axis] == 1 ? Index{} : t;
    Entry e{Entry::Kind::Pad, id};
    e.in[0] = value(n.in[0], points_.intern(std::move(c)), chain);
    e.in[1] = value(n.in[1], at, outer);
    e.predicates = chain;
    e.predicates_end = outer;
    e.cost = 3;
    return push(std::move(e));
  }

  EntryId pad(const GraphNode& n, CoordsId at, std::int32_t outer, NodeId id) {
    IndexSpace& s = p_.space;
    const GraphNode& body = g_[n.in[0]];
    const auto box = ir::attributes<ir::Box>(n);
    Coords c(body.dims.size());
    std::int32_t chain = outer;
    bool never = body.numel == 0;
    for (std::size_t a = 0; a < n.dims.size() && !never; ++a) {
      const std::int64_t low = box.first(a);
      std::int64_t step = box.step(a);
      Index t = s.add(points_[at][a], -low);
      const IndexSpace::Divides hits = IndexSpace::divides(step, t);
      never |= hits == IndexSpace::Divides::Never;
      if (hits == IndexSpace::Divides::Always) {
        t = s.floor_div(t, step);
        step = 1;
      }
      const auto [lo, hi] = s.range(t);
      if (step != 1 || lo < 0 || hi >= body.dims[a]) {
        never |= hi < 0 || lo >= body.dims[a] * step;
        p_.links.push_back({predicate_of(t, body.dims[a], step), chain});
        chain = static_cast<std::int32_t>(p_.links.size() - 1);
      }
      if (body.dims[a] != 1) c[a] = step == 1 ? t : s.floor_div(t, step);
    }
    if (never) return value(n.in[1], at, outer);
    const EntryId inside = value(n.in[0], points_.intern(std::move(c)), chain);
    if (chain == outer) return inside;
    Entry e{Entry::Kind::Pad, id};
    e.in[0] = inside;
    e.in[1] = value(n.in[1], points_.operand(at, n.dims, g_[n.in[1]].dims), outer);
    e.predicates = chain;
    e.predicates_end = outer;
    e.cost = 3;
    return push(std::move(e));
  }

  /// The operand that has the current point. Every point is in one of them, so what is not in those before is
  /// in the last.
  EntryId join(const GraphNode& n, CoordsId at, std::int32_t outer, NodeId id) {
    struct Piece {
      EntryId value;
      std::int32_t chain;
    };
    IndexSpace& s = p_.space;
    const std::size_t axis = ir::attributes<ir::Join>(n).axis;
    std::vector<Piece> pieces;
    std::int64_t first = 0;
    for (const NodeId in : n.in) {
      const ir::Dims dims = g_[in].dims;
      const std::int64_t extent = dims[axis];
      const Index t = s.add(points_[at][axis], -first);
      first += extent;
      const auto [lo, hi] = s.range(t);
      if (hi < 0 || lo >= extent) continue;
      std::int32_t chain = outer;
      if (lo < 0 || hi >= extent) {
        p_.links.push_back({predicate_of(t, extent), outer});
        chain = static_cast<std::int32_t>(p_.links.size() - 1);
      }
      Coords c(dims.size());
      for (std::size_t a = 0; a < dims.size(); ++a)
        if (dims[a] != 1) c[a] = a == axis ? t : points_[at][a];
      pieces.push_back({value(in, points_.intern(std::move(c)), chain), chain});
      if (chain == outer) break;
    }
    if (pieces.empty()) return push({Entry::Kind::Iota, id});  // no point reads it
    EntryId made = pieces.back().value;
    for (std::size_t i = pieces.size() - 1; i-- > 0;) {
      Entry e{Entry::Kind::Pad, id};
      e.in[0] = pieces[i].value;
      e.in[1] = made;
      e.predicates = pieces[i].chain;
      e.predicates_end = outer;
      e.cost = 3;
      made = push(std::move(e));
    }
    return made;
  }

  static std::size_t place_in(const LoopRun& run, NodeId state) {
    const auto at = std::find(run.state_nodes.begin(), run.state_nodes.end(), state);
    KILN_CHECK_THAT(at != run.state_nodes.end(), "state ", state, " is not part of its loop's run");
    return static_cast<std::size_t>(at - run.state_nodes.begin());
  }

  EntryId loop_result(NodeId id, CoordsId at, std::int32_t predicates) {
    const ir::LoopParts& l = regions_.loops.of_result(g_, id);
    const std::int32_t i = loop_run(l, at, g_[id].dims, predicates);
    const auto run = static_cast<std::size_t>(i);
    Entry e{Entry::Kind::LoopResult, id};
    e.loop = i;
    e.in[0] =
        p_.loops[run].states[place_in(p_.loops[run], l.states[ir::attributes<ir::LoopResult>(g_[id]).index])];
    const EntryId result = push(std::move(e));
    p_.loops[run].results.push_back(result);
    return result;
  }

  /// What an iteration adds to a stack; its entry stands for the run that stores all of them.
  EntryId loop_stack(NodeId id, bool row) {
    const ir::LoopParts& l = regions_.loops.of_result(g_, id);
    const ir::Dims dims = g_[id].dims.subspan(1);
    const CoordsId at = points_.base(dims, row ? 1 : 0);
    const std::int32_t i = loop_run(l, at, dims, -1);
    const auto run = static_cast<std::size_t>(i);
    current_[l.node] = i;
    const EntryId yielded = value(l.yields[ir::attributes<ir::LoopResult>(g_[id]).index], at, -1);
    Entry e{Entry::Kind::LoopResult, id};
    e.loop = i;
    e.in[0] = yielded;
    const EntryId entry = push(std::move(e));
    p_.loops[run].yields.push_back({yielded, entry, id, row});
    return entry;
  }

  static bool fits_inside(ir::Dims small, ir::Dims big) {
    if (std::all_of(small.begin(), small.end(), [](std::int64_t d) { return d == 1; })) return true;
    if (small.size() > big.size()) return false;
    const std::size_t lead = big.size() - small.size();
    for (std::size_t a = 0; a < small.size(); ++a)
      if (small[a] != 1 && small[a] != big[lead + a]) return false;
    return true;
  }

  /// The loop at the point `at` of a tensor of these extents: its states there, but for those that have more
  /// elements, on which no other can depend. A state of one element is there whatever its rank: views of it
  /// may have another.
  std::int32_t loop_run(const ir::LoopParts& l, CoordsId at, ir::Dims dims, std::int32_t predicates) {
    const RunKey key{l.node, at, predicates, l.parent == ir::kNoNode ? -1 : current_.at(l.parent),
                     Shape(dims)};
    if (const auto known = std::find(runs_.begin(), runs_.end(), key); known != runs_.end())
      return static_cast<std::int32_t>(known - runs_.begin());
    const std::size_t run = p_.loops.size();
    runs_.push_back(key);
    p_.loops.emplace_back().parent = key.parent;
    p_.loops[run].count = l.count;
    current_[l.node] = static_cast<std::int32_t>(run);
    std::vector<std::pair<NodeId, CoordsId>> nexts;
    for (std::size_t s = 0; s < l.states.size(); ++s) {
      const NodeId state = l.states[s];
      if (!fits_inside(g_[state].dims, dims)) continue;
      const CoordsId there = points_.operand(at, dims, g_[state].dims);
      const EntryId init = value(g_[state].in[0], there, predicates);
      Entry e{Entry::Kind::LoopState, state};
      e.loop = static_cast<std::int32_t>(run);
      const EntryId entry = push(std::move(e));
      p_.entries[entry].inside = true;
      p_.loops[run].state_nodes.push_back(state);
      p_.loops[run].states.push_back(entry);
      p_.loops[run].inits.push_back(init);
      nexts.push_back({l.nexts[s], there});
    }
    for (const auto& [next, there] : nexts) {
      const EntryId entry = value(next, there, predicates);
      p_.loops[run].nexts.push_back(entry);
    }
    const EntryId condition = value(l.condition, points_.operand(at, dims, g_[l.condition].dims), predicates);
    p_.loops[run].condition = condition;
    return static_cast<std::int32_t>(run);
  }

  /// x at the current point, but for one coordinate that is a value: where it is no index of x the result is
  /// 0, which is what a load whose predicate does not hold gives.
  EntryId gather(const GraphNode& n, CoordsId at, std::int32_t outer, NodeId id) {
    const GraphNode& x = g_[n.in[0]];
    if (x.numel == 0) return push({Entry::Kind::Iota, id});
    const EntryId index = value(n.in[1], points_.operand(at, n.dims, g_[n.in[1]].dims), outer);
    const std::size_t axis = ir::attributes<ir::Gather>(n).axis;
    const Index coordinate = p_.space.value(index, x.dims[axis]);
    Coords c(x.dims.size());
    for (std::size_t a = 0; a < x.dims.size(); ++a) {
      if (a == axis)
        c[a] = coordinate;
      else if (x.dims[a] != 1)
        c[a] = points_[at][a];
    }
    std::int32_t chain = outer;
    if (!counts_below(n.in[1], x.dims[axis])) {
      p_.links.push_back({{coordinate, x.dims[axis], 1}, outer});
      chain = static_cast<std::int32_t>(p_.links.size() - 1);
    }
    const EntryId inside = value(n.in[0], points_.intern(std::move(c)), chain);
    if (chain == outer || is_zero_outside(inside, chain)) return inside;
    Entry e{Entry::Kind::Pad, id};
    e.in[0] = inside;
    e.predicates = chain;
    e.predicates_end = outer;
    e.cost = 3;
    return push(std::move(e));
  }

  /// Whether a value is an element that the predicates of a chain ask for, or that converted: 0 elsewhere.
  bool is_zero_outside(EntryId id, std::int32_t chain) const {
    const Entry* e = &p_.entries[id];
    while (e->kind == Entry::Kind::Op && g_[e->node].op == Op::cast) e = &p_.entries[e->in[0]];
    return e->kind == Entry::Kind::Load && e->predicates == chain;
  }

  /// Whether an index is the count of a loop of at most `extent` iterations.
  bool counts_below(NodeId index, std::int64_t extent) const {
    while (ir::is_view(g_[index].op) && g_[index].in.size() == 1) index = g_[index].in[0];
    if (g_[index].op != Op::loop_state) return false;
    const ir::LoopParts& l = regions_.loops.of(regions_.loops.owner[index]);
    return l.counts() && l.states.front() == index && l.count <= extent;
  }

  const plan::Graph& g_;
  const plan::Regions& regions_;
  const plan::Region& region_;
  Pulled p_;
  Points points_;
  std::vector<Pending> pending_;  // values that wait for operands, the innermost last
  // of values outside loops, and of each run's
  std::vector<std::unordered_map<std::uint64_t, EntryId>> memo_;
  std::map<NodeId, std::int32_t> current_;  // the run of each loop that is being pulled
  struct RunKey {
    NodeId loop;
    CoordsId at;
    std::int32_t predicates, parent;
    Shape dims;  // they decide which states the run has
    friend bool operator==(const RunKey&, const RunKey&) = default;
  };
  std::vector<RunKey> runs_;
};

}  // namespace

Pulled pull(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region) {
  return Puller(graph, regions, region, choose_domain(graph, region)).run();
}

}  // namespace kiln::lower
