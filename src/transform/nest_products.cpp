// Terminates: one walk in topological order; a product becomes six nodes at most, a pick eight. A look at
// what is made of a value is of at most kMostMaps maps and kMostAfter nodes behind its reductions.
#include "transform/nest_products.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <unordered_map>

namespace kiln::transform {
namespace {

constexpr std::size_t kMostMaps = 12, kMostAfter = 64;
constexpr std::size_t kMostReductions = 3;  // of a row
constexpr std::int64_t kLeastColumns = 12, kLeastTerms = 3;

/// The last axis that is longer than 1.
std::optional<std::size_t> last_axis(ir::Dims dims) {
  for (std::size_t a = dims.size(); a-- > 0;)
    if (dims[a] > 1) return a;
  return std::nullopt;
}

}  // namespace

NestedPairs::NestedPairs(const Graph& graph, const NestCosts& costs)
    : g_(graph), costs_(costs), uses_(graph), root_(graph.size()) {
  for (const NodeId r : graph.roots) root_[r] = true;
}

bool NestedPairs::is_pick(NodeId id) const {
  const GraphNode& n = g_[id];
  if (n.op != Op::gather) return false;
  const std::optional<std::size_t> axis = last_axis(g_[n.in[0]].dims);
  const auto how = ir::attributes<ir::Gather>(n);
  return axis && how.axis == *axis && how.joined.empty() && is_signed_int(g_[n.in[1]].dtype) &&
         g_[n.in[1]].numel == n.numel && n.numel * g_[n.in[0]].dims[*axis] == g_[n.in[0]].numel;
}

bool NestedPairs::reduces_columns(NodeId reader, std::size_t axis) const {
  const GraphNode& n = g_[reader];
  switch (n.op) {
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_argmax:
    case Op::reduce_argmin: break;
    case Op::reduce_logaddexp:
      if (n.dtype == DType::Float64) return false;
      break;
    default: return false;
  }
  const auto over = ir::attributes<ir::Reduce>(n);
  const ir::Dims dims = g_[n.in[0]].dims;
  for (std::size_t a = 0; a < dims.size(); ++a)
    if (dims[a] > 1 && over.over(a) != (a == axis)) return false;
  return true;
}

/// Whether there are so many results of pairs, in one axis of rows and one of columns: other axes would be a
/// batch's, of which columns have a matrix each.
bool NestedPairs::is_large(const GraphNode& n) const {
  if (costs_.results == 0 || !is_float(n.dtype)) return false;
  const std::optional<std::size_t> axis = last_axis(n.dims);
  if (!axis || std::ranges::count_if(n.dims, [](std::int64_t d) { return d > 1; }) != 2) return false;
  const std::int64_t columns = n.dims[*axis];
  return columns >= kLeastColumns && n.numel / columns >= costs_.rows && n.numel >= costs_.results;
}

bool NestedPairs::is_map(NodeId reader, const GraphNode& of) const {
  const GraphNode& r = g_[reader];
  return r.numel == of.numel && (ir::is_elementwise(r.op) || r.op == Op::reshape);
}

bool NestedPairs::is_stored(NodeId id) const {
  const GraphNode& n = g_[id];
  if (!ir::is_reduce(n.op) || ir::has(n.op, ir::POSITION) || n.op == Op::reduce_logaddexp || !is_large(n) ||
      g_[n.in[0]].numel < kLeastTerms * n.numel)
    return false;
  std::vector<NodeId> maps{id};
  for (std::size_t at = 0; at < maps.size(); ++at) {
    if (maps.size() > kMostMaps) return false;
    for (const auto& [reader, operand] : uses_[maps[at]]) {
      if (!is_map(reader, n)) return false;
      if (std::ranges::count(maps, reader) == 0) maps.push_back(reader);
    }
  }
  return true;
}

bool NestedPairs::contains(NodeId id, bool picks) const {
  const GraphNode& n = g_[id];
  if (!is_large(n)) return false;
  const std::int64_t columns = n.dims[*last_axis(n.dims)];
  std::vector<NodeId> maps{id}, results;
  for (std::size_t at = 0; at < maps.size(); ++at) {
    const NodeId map = maps[at];
    if (root_[map] || g_[map].held || maps.size() > kMostMaps) return false;
    const std::optional<std::size_t> last = last_axis(g_[map].dims);
    if (!last || g_[map].dims[*last] != columns) return false;
    for (const auto& [reader, operand] : uses_[map]) {
      const bool found = std::ranges::count(maps, reader) > 0 || std::ranges::count(results, reader) > 0;
      if (found) continue;
      const GraphNode& r = g_[reader];
      if (is_map(reader, n))
        maps.push_back(reader);
      else if (reduces_columns(reader, *last) || (picks && r.in[0] == map && is_pick(reader)))
        results.push_back(reader);
      else
        return false;
    }
  }
  const bool reduced = std::ranges::any_of(results, [&](NodeId r) { return ir::is_reduce(g_[r].op); });
  if (!reduced || results.size() > kMostReductions) return false;
  // One sweep: no map is made of a row's results.
  const NodeId last = *std::ranges::max_element(maps);
  for (std::size_t at = 0; at < results.size(); ++at) {
    if (results.size() > kMostAfter) return false;
    for (const auto& [reader, operand] : uses_[results[at]]) {
      if (reader > last || std::ranges::count(results, reader) > 0) continue;
      if (std::ranges::count(maps, reader) > 0) return false;
      results.push_back(reader);
    }
  }
  return true;
}

bool NestedPairs::is_product(NodeId id, bool picks) const {
  const GraphNode& n = g_[id];
  if (n.op != Op::matmul || n.dtype == DType::Float64) return false;
  if (std::ranges::any_of(n.dims.first(n.dims.size() - 2), [](std::int64_t d) { return d != 1; }))
    return false;
  const std::int64_t terms = g_[n.in[0]].dims.back();
  return terms >= kLeastTerms && terms <= (is_half(n.dtype) ? costs_.most_of_halves : costs_.most_terms) &&
         contains(id, picks);
}

namespace {

class Picker {
 public:
  Picker(Graph& graph, const NestCosts& costs) : g_(graph), add_(graph), picked_(graph.size()) {
    const NestedPairs pairs(graph, costs);
    std::vector<bool> of_pairs(graph.size());
    for (NodeId id = 0; id < graph.size(); ++id) {
      const GraphNode& n = graph[id];
      of_pairs[id] = pairs.is_product(id, true);
      for (const NodeId in : n.in)
        of_pairs[id] = of_pairs[id] || (of_pairs[in] && graph[in].numel == n.numel);
      picked_[id] = pairs.is_pick(id) && of_pairs[n.in[0]];
    }
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) { return picked_[id] ? sum(n) : add_.push(n); });
  }

 private:
  NodeId number(DType dtype, std::uint64_t bits) {
    return add_.add(Op::constant, {}, ir::Constant{bits}, {.dtype = dtype, .dims = Shape{}});
  }

  NodeId sum(const GraphNode& n) {
    add_.loc = n.loc;
    const NodeId x = n.in[0];
    const std::size_t axis = ir::attributes<ir::Gather>(n).axis;
    Shape columns, rows;
    for (std::size_t a = 0; a < g_[x].dims.size(); ++a) {
      columns.push_back(a == axis ? g_[x].dims[a] : 1);
      rows.push_back(a == axis ? 1 : g_[x].dims[a]);
    }
    NodeId at = add_.add(Op::reshape, {n.in[1]}, {}, {.dims = rows});
    if (g_[at].dtype != DType::Int32) at = add_.add(Op::cast, {at}, {}, {.dtype = DType::Int32});
    const NodeId extent = number(DType::Int32, static_cast<std::uint64_t>(g_[x].dims[axis])),
                 negative = add_.add(Op::less, {at, number(DType::Int32, 0)});
    at = add_.add(Op::where, {negative, add_.add(Op::add, {at, extent}), at});
    const NodeId column = add_.add(Op::iota, {}, ir::Iota{axis}, {.dtype = DType::Int32, .dims = columns}),
                 here = add_.add(Op::equal, {column, at}),
                 alone = add_.add(Op::where, {here, x, number(g_[x].dtype, 0)});
    NodeId sum = add_.add(Op::reduce_sum, {alone}, ir::Reduce{std::uint64_t{1} << axis});
    sum = add_.add(Op::reshape, {sum}, {}, {.dims = n.dims});
    g_[sum].held = n.held;
    return sum;
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<bool> picked_;
};

class Nester {
 public:
  Nester(Graph& graph, const NestCosts& costs) : g_(graph), add_(graph), nested_(graph.size()) {
    const NestedPairs pairs(graph, costs);
    for (NodeId id = 0; id < graph.size(); ++id) nested_[id] = pairs.is_product(id);
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (nested_[id]) return sum(n);
      // as it was before it became a half, which nobody stores
      const auto whole = n.op == Op::cast && n.dtype == DType::Float32 ? whole_.find(n.in[0]) : whole_.end();
      return whole != whole_.end() ? whole->second : add_.push(n);
    });
  }

 private:
  NodeId shown(NodeId x, std::int64_t a, std::int64_t b, std::int64_t c) {
    if (g_[x].dtype != DType::Float32) x = add_.add(Op::cast, {x}, {}, {.dtype = DType::Float32});
    return add_.add(Op::reshape, {x}, {}, {.dims = Shape{a, b, c}});
  }

  NodeId sum(const GraphNode& n) {
    add_.loc = n.loc;
    const std::int64_t rows = n.dims[n.dims.size() - 2], columns = n.dims.back(),
                       terms = g_[n.in[0]].dims.back();
    const NodeId products =
        add_.add(Op::multiply, {shown(n.in[0], rows, terms, 1), shown(n.in[1], 1, terms, columns)});
    const NodeId sum =
        add_.add(Op::reshape, {add_.add(Op::reduce_sum, {products}, ir::Reduce{2})}, {}, {.dims = n.dims});
    if (n.dtype == DType::Float32) return sum;
    const NodeId half = add_.add(Op::cast, {sum}, {}, {.dtype = n.dtype});
    whole_[half] = sum;
    return half;
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<bool> nested_;
  std::unordered_map<NodeId, NodeId> whole_;  // Float32 sums, by their halves
};

}  // namespace

Renumbering sum_picks(Graph& graph, const NestCosts& costs) { return Picker(graph, costs).run(); }

Renumbering nest_products(Graph& graph, const NestCosts& costs) { return Nester(graph, costs).run(); }

}  // namespace kiln::transform
