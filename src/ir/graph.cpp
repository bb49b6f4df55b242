// Graph's arena, its text form and its verifier. Blocks of the arena never move or grow once filled, so spans
// into them stay valid when the graph is moved.
#include "ir/graph.h"

#include "ir/custom.h"
#include "ir/infer.h"
#include "ir/pad_fill.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kiln::ir {
namespace {

constexpr std::size_t kFirstBlock = 128, kBlock = 4096;  // words

// ---- text ----

std::string file_name(const SourceLocation& loc) {
  const std::string_view path = loc.file_name();
  return std::string(path.substr(path.find_last_of('/') + 1));
}

std::string constant_text(DType type, std::uint64_t bits) {
  return dispatch_stored(type, [&]<class T>() -> std::string {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    if constexpr (std::is_same_v<T, bool>)
      return value ? "true" : "false";
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
      return std::to_string(int{value});
    else if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
      return cat(value);
    else
      return cat(static_cast<float>(value));
  });
}

/// " reads [2*i0 + i2, i1]": the operand's coordinates, of the result's.
std::string map_text(const GraphNode& n, Dims from) {
  const ViewMap map = view_map(n, from);
  std::string out;
  for (std::size_t a = 0; a < map.first.size(); ++a) {
    out += a ? ", " : " reads [";
    std::string sum = map.first[a] != 0 ? cat(map.first[a]) : "";
    for (const ViewMap::Term& t : map.terms)
      if (t.operand_axis == a)
        sum += cat(sum.empty() ? "" : " + ", t.step == 1 ? "" : cat(t.step, "*"), "i", t.axis);
    out += sum.empty() ? "0" : sum;
  }
  return out + "]";
}

std::string attribute_text(const Graph& g, const GraphNode& n) {
  std::string out;
  switch (n.op) {
    case Op::leaf: return cat(" arg ", n.arg);
    case Op::scalar: return cat(" slot ", n.arg);
    case Op::constant: return " " + constant_text(n.dtype, attributes<Constant>(n).bits);
    case Op::iota: return cat(" axis ", attributes<Iota>(n).axis);
    case Op::permute:
      out = " axes";
      for (std::size_t a = 0; a < n.dims.size(); ++a) out += cat(" ", attributes<Permute>(n)[a]);
      return out;
    case Op::slice:
    case Op::pad: {
      const auto box = attributes<Box>(n);
      const std::string_view from = n.op == Op::slice ? " from " : " at ";
      for (std::size_t a = 0; a < box.rank(); ++a)
        out += cat(a ? ", " : from, box.first(a), " step ", box.step(a));
      return out;
    }
    case Op::slice_at:
    case Op::update_at: {
      const auto [axis, factor, from_back] = attributes<Position>(n);
      return cat(" axis ", axis, factor == 1 ? "" : cat(" multiple of ", factor),
                 from_back ? " from either end" : "");
    }
    case Op::join: return cat(" axis ", attributes<Join>(n).axis);
    case Op::gather: return cat(" axis ", attributes<Gather>(n).axis);
    case Op::sort:
    case Op::argsort:
    case Op::sort_with_positions:
      return cat(" axis ", attributes<Sort>(n).axis, attributes<Sort>(n).descending ? " descending" : "");
    case Op::scatter:
      return cat(" axis ", attributes<Scatter>(n).axis, " combine ",
                 static_cast<int>(attributes<Scatter>(n).how));
    case Op::searchsorted: return attributes<Search>(n).right ? " right" : " left";
    case Op::part: return cat(" result ", attributes<Part>(n).index);
    case Op::loop_result: return cat(" state ", attributes<LoopResult>(n).index);
    default: break;  // known by their kind, or without attributes that are shown
  }
  if (is_scan(n.op)) {
    const auto [axis, exclusive, reverse] = attributes<Scan>(n);
    return cat(" axis ", axis, exclusive ? " exclusive" : "", reverse ? " reverse" : "");
  }
  if (has(n.op, AFFINE) && n.op != Op::broadcast) return map_text(n, g[n.in[0]].dims);
  if (!is_reduce(n.op)) return "";
  out = " over";
  for (std::size_t a = 0; a < n.dims.size(); ++a)
    if (attributes<Reduce>(n).over(a)) out += cat(" ", a);
  return out;
}

// ---- verifier ----

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : g_(graph) {}

  void run() {
    for (id_ = 0; id_ < g_.size(); ++id_) node(g_[id_]);
    for (NodeId root : g_.roots)
      require(root < g_.size() && !has(g_[root].op, BUNDLE), "is not a root: no such node, or no value");
  }

 private:
  void require(bool holds, const char* what) const {
    KILN_CHECK_THAT(holds, "node %", id_, " (", id_ < g_.size() ? info(g_[id_].op).name : "", ") ", what);
  }
  const GraphNode& in(const GraphNode& n, std::size_t k) const { return g_[n.in[k]]; }

  void node(const GraphNode& n) {
    require(n.dims.size() <= kMaxRank, "has too many axes");
    for (const NodeId operand : n.in) {
      require(operand < id_, "has a missing or later operand");
      require(n.op == Op::part || !has(g_[operand].op, BUNDLE), "reads an op of several results");
    }
    for (std::int64_t d : n.dims) require(d >= 0, "has a negative extent");
    require(n.numel == Shape(n.dims).numel(), "has a wrong element count");
    Stored attributes = stored(n);
    if (n.op == Op::pad && n.attr64 == kZeroFill) attributes.word = 0;  // known of its fill: ir/pad_fill.h
    if (n.op == Op::matmul) attributes.word = 0;                        // known of its time: ir/again.h
    require(well_stored(n.op, attributes), "has attributes of another op");
    types_.clear();
    for (const NodeId operand : n.in) types_.push_back({g_[operand].dtype, g_[operand].dims});
    const Inferred made = infer(n.op, types_, stored(n), {n.dtype, n.dims});
    require(made.fault == nullptr, made.fault);
    require(n.dtype == made.dtype, "has a wrong dtype");
    require(std::ranges::equal(n.dims, made.dims), "has a wrong extent");
    place(n);
  }

  /// What a node must find beside its operands' dtypes and extents: arguments, slots, the rest of its loop.
  void place(const GraphNode& n) const {
    const auto follows_states = [&](std::size_t own) {
      return n.in.size() == own || info(in(n, own).op).kind == OpKind::LoopNext;
    };
    switch (n.op) {
      case Op::leaf: return leaf(n);
      case Op::scalar:
        return require(static_cast<std::size_t>(n.arg) < g_.slots.size() &&
                           g_.slots[static_cast<std::size_t>(n.arg)] == n.dtype,
                       "has no slot of its dtype");
      case Op::loop_next: {
        const GraphNode &state = in(n, 0), &next = in(n, 1);
        require(follows_states(2), "has no states before it");
        return require(state.op == Op::loop_state && state.dtype == next.dtype &&
                           std::ranges::equal(state.dims, next.dims),
                       "is no state and its next value");
      }
      case Op::loop_yield: return require(follows_states(1), "has no states before it");
      case Op::loop:
        return require(info(in(n, 0).op).kind == OpKind::LoopNext, "needs states and a condition");
      case Op::loop_result: return require(in(n, 0).op == Op::loop, "has no loop");
      case Op::part: return part(n, in(n, 0));
      case Op::loop_stack:
        require(in(n, 0).op == Op::loop, "has no loop");
        return require(!n.dims.empty() && n.dims[0] == attributes<Loop>(in(n, 0)).count,
                       "has not one value of each iteration");
      default: return;  // every other op is what its operands and attributes say
    }
  }

  void part(const GraphNode& n, const GraphNode& bundle) const {
    const Inferred made =
        infer_part(bundle.op, {bundle.dtype, bundle.dims}, attributes<Part>(n).index, stored(bundle));
    require(made.fault == nullptr, made.fault);
    require(n.dtype == made.dtype && std::ranges::equal(n.dims, made.dims), "is another result");
  }

  void leaf(const GraphNode& n) const {
    require(static_cast<std::size_t>(n.arg) < g_.args.size(), "has no argument");
    const ArgInfo& a = g_.args[static_cast<std::size_t>(n.arg)];
    require(a.dtype == n.dtype && std::ranges::equal(a.dims, n.dims) && a.strides.size() == n.dims.size(),
            "differs from its argument");
  }

  const Graph& g_;
  NodeId id_ = 0;
  std::vector<Type> types_;  // of a node's operands
};

}  // namespace

Dims Graph::keep(Dims dims) {
  if (dims.empty()) return {};
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < dims.size())
    blocks_.emplace_back().reserve(std::max(blocks_.size() == 1 ? kFirstBlock : kBlock, dims.size()));
  std::vector<std::int64_t>& block = blocks_.back();
  const std::size_t at = block.size();
  block.insert(block.end(), dims.begin(), dims.end());
  return {block.data() + at, dims.size()};
}

std::string print(const Graph& graph) {
  std::string out;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const GraphNode& n = graph[id];
    out += cat("%", id, " ", info(n.dtype).short_name, to_string(n.dims), " = ", name_of(n));
    for (const NodeId in : n.in) out += cat(" %", in);
    out += attribute_text(graph, n);
    if (n.held) out += " held";
    if (n.loc.line() != 0) out += cat("   ", file_name(n.loc), ":", n.loc.line());
    out += '\n';
  }
  out += "roots";
  for (NodeId root : graph.roots) out += cat(" %", root);
  return out + "\n";
}

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace kiln::ir
