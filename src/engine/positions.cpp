#include "engine/positions.h"

#include "engine/near_map.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace kiln::engine {
namespace {

/// What is known of the starts of one structure. Rules only learn: each start turns from static to varying at
/// most once, and leaves a group of equals at most as often as there are starts, so that a structure has a
/// bounded number of plans.
struct Rule {
  static constexpr std::uint32_t kStatic = Walk::kNone;
  std::vector<std::int64_t> first;  // values when the structure was first met
  // kStatic, or the first of the starts that have always been equal to this one
  std::vector<std::uint32_t> group;

  bool holds(const std::vector<Walk::Start>& starts) const {
    for (std::size_t i = 0; i < starts.size(); ++i)
      if (starts[i].value != (group[i] == kStatic ? first[i] : starts[group[i]].value)) return false;
    return true;
  }

  /// The rule that these starts follow too. Starts of one group that part with the same value stay together.
  Rule learn(const std::vector<Walk::Start>& starts) const {
    Rule next = *this;
    for (std::uint32_t i = 0; i < starts.size(); ++i) {
      const std::uint32_t was = group[i];
      if (starts[i].value == (was == kStatic ? first[i] : starts[was].value)) continue;
      next.group[i] = i;
      for (std::uint32_t j = 0; j < i && next.group[i] == i; ++j)
        if (next.group[j] == j && group[j] != j && group[j] == was && first[j] == first[i] &&
            starts[j].value == starts[i].value)
          next.group[i] = j;
    }
    return next;
  }
};
using RuleRef = std::shared_ptr<const Rule>;

using Rules = NearMap<RuleRef, 4096, 64>;  // what is dropped is forgotten

/// The rule for these starts; it stays until this thread asks for another.
const Rule& find_rule(const Hash128& key, const std::vector<Walk::Start>& starts) {
  if (const RuleRef* const near = Rules::near(key); near && (*near)->holds(starts)) return **near;
  const std::lock_guard lock(Rules::mutex());
  RuleRef& rule = Rules::at(key);
  if (!rule) {
    Rule fresh;
    for (const Walk::Start& s : starts) fresh.first.push_back(s.value);
    fresh.group.assign(starts.size(), Rule::kStatic);
    rule = std::make_shared<const Rule>(std::move(fresh));
  } else if (!rule->holds(starts)) {
    rule = std::make_shared<const Rule>(rule->learn(starts));
  }
  return *Rules::remember(key, rule);
}

/// Equal structures on other lines learn apart: two uses of one shape of program, each with starts of its
/// own, stay static.
Hash128 rule_key(Walk& w) {
  w.words.assign({w.key.lo, w.key.hi});
  for (const Walk::Start& s : w.starts) {
    std::uint64_t line = 0;
    static_assert(sizeof line == sizeof s.loc);
    std::memcpy(&line, &s.loc, sizeof line);
    w.words.push_back(line);
  }
  return hash128(std::span<const std::uint64_t>(w.words));
}

}  // namespace

void resolve_positions(Walk& w) {
  const Rule& rule = find_rule(rule_key(w), w.starts);
  w.words.assign({w.key.lo, w.key.hi});
  for (std::uint32_t i = 0; i < w.starts.size(); ++i) {
    Walk::Start& s = w.starts[i];
    const std::uint32_t group = rule.group[i];
    w.words.push_back(group);
    if (group == Rule::kStatic) {
      w.words.push_back(static_cast<std::uint64_t>(s.value));
      continue;
    }
    if (group == i) w.slots.push_back(static_cast<std::uint64_t>(s.value));
    s.slot = group == i ? static_cast<std::uint32_t>(w.slots.size() - 1) : w.starts[group].slot;
    if (s.value % s.factor != 0) s.factor = 1;  // no whole accesses of a GPU then
    w.words.push_back(static_cast<std::uint64_t>(s.factor));
  }
  w.key = hash128(std::span<const std::uint64_t>(w.words));
}

namespace {

/// Builds what stands for one slice or pad.
class Placer {
 public:
  Placer(ir::Graph& graph, const ir::GraphNode& node,
         const std::function<ir::NodeId(const Walk::Start&)>& scalar)
      : g_(graph), n_(node), box_(ir::attributes<ir::Box>(n_)), scalar_(scalar) {}

  /// Static starts first, then those that vary, then steps along the axes of those.
  ir::NodeId slice(std::span<const Walk::Start> varying) {
    const Shape from(g_[n_.in[0]].dims);
    Shape dims(n_.dims), start, step;
    bool fixed = false, steps = false;
    for (int a = 0; a < dims.rank(); ++a) {
      start.push_back(box_.first(static_cast<std::size_t>(a)));
      step.push_back(box_.step(static_cast<std::size_t>(a)));
    }
    Shape later_start, later_step;
    later_start.resize(dims.rank(), 0);
    later_step.resize(dims.rank(), 1);
    for (const Walk::Start& s : varying) {
      const int a = static_cast<int>(s.axis);
      if (dims[a] > 1 && step[a] != 1) {
        later_step[a] = step[a];
        later_start[a] = step[a] < 0 ? span(dims[a], step[a]) - 1 : 0;
        steps = true;
      }
      start[a] = 0;
      step[a] = 1;
      dims[a] = from[a];
    }
    for (int a = 0; a < dims.rank(); ++a) fixed |= dims[a] != from[a] || start[a] != 0 || step[a] != 1;
    ir::NodeId x = n_.in[0];
    if (fixed) x = push(ir::Op::slice, dims, {x}, ir::Box(start, step));
    for (const Walk::Start& s : varying) {
      const int a = static_cast<int>(s.axis);
      dims[a] = span(n_.dims[s.axis], box_.step(s.axis));
      x = at(ir::Op::slice_at, dims, {x, scalar_(s)}, s);
    }
    if (steps) x = push(ir::Op::slice, Shape(n_.dims), {x}, ir::Box(later_start, later_step));
    return x;
  }

  /// A box of `fill` with the body in it: at starts that vary one axis after the other, then at the static
  /// ones.
  ir::NodeId pad(ir::NodeId fill, Shape dims, std::span<const Walk::Start> varying) {
    const ir::NodeId body = n_.in[0];
    if (varying.empty()) {
      if (plain() && std::ranges::equal(dims, g_[body].dims)) return body;
      Shape low, step;
      for (std::size_t a = 0; a < n_.dims.size(); ++a) {
        low.push_back(varies_[a] ? 0 : box_.first(a));
        step.push_back(box_.step(a));
      }
      return push(ir::Op::pad, dims, {body, fill}, ir::Box(low, step));
    }
    const Walk::Start& s = varying.front();
    Shape inner = dims;
    inner[static_cast<int>(s.axis)] = span(g_[body].dims[s.axis], box_.step(s.axis));
    const ir::NodeId start = scalar_(s);
    const bool whole = plain() && std::ranges::equal(inner, g_[body].dims);
    const ir::NodeId update =
        whole ? body : pad(at(ir::Op::slice_at, inner, {fill, start}, s), inner, varying.subspan(1));
    return at(ir::Op::update_at, dims, {update, fill, start}, s);
  }

  ir::NodeId pad(std::span<const Walk::Start> varying) {
    for (const Walk::Start& s : varying) varies_[s.axis] = true;
    ir::NodeId fill = n_.in[1];
    const Shape dims(n_.dims);
    if (!std::ranges::equal(g_[fill].dims, dims)) fill = push(ir::Op::broadcast, dims, {fill});
    return pad(fill, dims, varying);
  }

 private:
  static std::int64_t span(std::int64_t count, std::int64_t step) {
    return (count - 1) * (step < 0 ? -step : step) + 1;
  }
  bool plain() const {
    for (std::size_t a = 0; a < n_.dims.size(); ++a)
      if (box_.step(a) != 1) return false;
    return true;
  }

  template <class A = ir::Nothing>
  ir::NodeId push(ir::Op op, const Shape& dims, std::initializer_list<ir::NodeId> in,
                  const A& attributes = {}) {
    ir::GraphNode x = n_;
    x.op = op;
    x.dims = g_.keep(dims);
    x.numel = dims.numel();
    x.held = false;
    x.in = in;
    ir::set_attributes(g_, x, attributes);
    g_.nodes.push_back(x);
    return static_cast<ir::NodeId>(g_.nodes.size() - 1);
  }
  ir::NodeId at(ir::Op op, const Shape& dims, std::initializer_list<ir::NodeId> in, const Walk::Start& s) {
    return push(op, dims, in, ir::Position{s.axis, s.factor});
  }

  ir::Graph& g_;
  const ir::GraphNode n_;
  const ir::Box box_;
  const std::function<ir::NodeId(const Walk::Start&)>& scalar_;
  bool varies_[kMaxRank] = {};
};

}  // namespace

ir::NodeId add_at_positions(ir::Graph& graph, const ir::GraphNode& node, std::span<const Walk::Start> starts,
                            const std::function<ir::NodeId(const Walk::Start&)>& scalar) {
  std::vector<Walk::Start> varying;
  for (const Walk::Start& s : starts)
    if (s.slot != Walk::kNone) varying.push_back(s);
  Placer placer(graph, node, scalar);
  const ir::NodeId id = node.op == ir::Op::slice ? placer.slice(varying) : placer.pad(varying);
  graph[id].held = node.held;
  return id;
}

std::mutex& positions_mutex() { return Rules::mutex(); }

void clear_positions() {
  const std::lock_guard lock(Rules::mutex());
  Rules::clear();
}

}  // namespace kiln::engine
