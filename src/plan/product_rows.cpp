#include "plan/product_rows.h"

#include "ir/layout.h"
#include "support/check.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;

NodeId below_reshapes(const Graph& g, NodeId id) {
  while (g[id].op == Op::reshape) id = g[id].in[0];
  return id;
}

/// The product that operand k of a sum shows through reshapes, or kNoNode.
NodeId product_below(const Graph& g, NodeId id) {
  id = below_reshapes(g, id);
  return g[id].op == Op::matmul ? id : kNoNode;
}

/// The conversion of a product's sums that a value shows through reshapes, or kNoNode.
NodeId converted_below(const Graph& g, NodeId id) {
  id = below_reshapes(g, id);
  const bool unrounded = g[id].op == Op::cast && ir::attributes<ir::Cast>(g[id]).unrounded;
  return unrounded && product_below(g, g[id].in[0]) != kNoNode ? id : kNoNode;
}

bool contains(const std::vector<NodeId>& all, NodeId id) { return std::ranges::find(all, id) != all.end(); }

class Joining {
 public:
  Joining(const Graph& g, Regions& regions)
      : g_(g), regions_(regions), uses_(g.size()), by_library_(g.size()) {
    for (const Region& r : regions.regions)
      if (r.kind == Region::Kind::Library && r.nodes.size() == 1) by_library_[r.nodes.front()] = true;
    for (const GraphNode& n : g.nodes)
      for (const NodeId in : n.in) ++uses_[in];
    for (NodeId root : g.roots) ++uses_[root];
  }

  void run(const std::function<bool(const ProductRow&)>& library_adds) {
    std::vector<bool> joined(g_.size());
    std::vector<Region> regions;
    for (Region& r : regions_.regions) {
      const std::optional<ProductRow> found = find(r, library_adds);
      if (found) {
        Region& library = regions.emplace_back();
        library.kind = Region::Kind::Library;
        library.nodes = {found->product};
        if (found->cast != kNoNode) library.nodes.push_back(found->cast);
        if (found->row != kNoNode && found->whole != kNoNode) library.nodes.push_back(row_sum(*found));
        if (found->sum != found->cast) library.nodes.push_back(found->sum);
        library.outputs = {found->sum};
        regions_.stored[found->product] = false;
        joined[found->product] = true;
        take_out(r, library.nodes);
      }
      if (!r.nodes.empty()) regions.push_back(std::move(r));
    }
    std::erase_if(regions, [&](const Region& r) { return r.nodes.size() == 1 && joined[r.nodes[0]]; });
    // that its rows were cut into blocks stays true
    std::erase_if(regions_.refusals, [&](const Refusal& f) {
      return joined[f.producer] && f.why.reason() != FusionReason::InBlocks;
    });
    regions_.regions = std::move(made_);
    std::ranges::move(regions, std::back_inserter(regions_.regions));
  }

 private:
  bool is_read_once(NodeId id) const { return uses_[id] == 1 && !g_[id].held; }

  /// Whether nobody else reads the nodes from the one on that shows a product or sum down to that one.
  bool is_alone(NodeId from, NodeId to) const {
    bool alone = is_read_once(to);
    for (NodeId id = from; id != to; id = g_[id].in[0]) alone = alone && is_read_once(id);
    return alone;
  }

  /// The first of products that are added in turn has nothing to be added to: it is stored as floats.
  std::optional<ProductRow> find_cast(NodeId cast,
                                      const std::function<bool(const ProductRow&)>& library_adds) {
    if (converted_below(g_, cast) != cast) return std::nullopt;
    const NodeId product = product_below(g_, g_[cast].in[0]);
    const ProductRow found{product, cast, cast};
    const bool fits =
        by_library_[product] && may_multiply(product, cast) && is_alone(g_[cast].in[0], product);
    return fits && library_adds(found) ? std::optional(found) : std::nullopt;
  }

  std::optional<ProductRow> find(const Region& r,
                                 const std::function<bool(const ProductRow&)>& library_adds) {
    if (r.kind != Region::Kind::Fused) return std::nullopt;
    if (r.nodes.size() == 1) {
      if (const auto found = find_row(r.nodes.front(), library_adds)) return found;
      if (const auto found = find_cast(r.nodes.front(), library_adds)) return found;
    }
    for (const NodeId sum : r.outputs)
      if (const auto found = find_whole(r, sum, library_adds)) return found;
    return std::nullopt;
  }

  bool may_sum(NodeId sum) const {
    const GraphNode& s = g_[sum];
    return s.op == Op::add && s.numel > 0 && !s.dims.empty() &&
           (s.dtype == DType::Float32 || is_half(s.dtype));
  }

  bool may_multiply(NodeId product, NodeId sum) const {
    const GraphNode &p = g_[product], &s = g_[sum];
    const auto terms = g_[p.in[0]].dims;  // of a sum one of the operands may be a single number
    return p.numel == s.numel && p.dims.back() == s.dims.back() && !terms.empty() && terms.back() != 0;
  }

  /// A product and a row, one node with nothing else.
  std::optional<ProductRow> find_row(NodeId sum, const std::function<bool(const ProductRow&)>& library_adds) {
    if (!may_sum(sum)) return std::nullopt;
    const GraphNode& s = g_[sum];
    for (int k = 0; k < 2; ++k) {
      const NodeId row = s.in[1 - k], product = product_below(g_, s.in[k]);
      if (product == kNoNode || g_[row].dtype != s.dtype) continue;
      if (regions_.windows.contains(product)) continue;  // no library reads its operand
      if (!may_multiply(product, sum) || !is_alone(s.in[k], product)) continue;
      const ProductRow found{product, sum, kNoNode, row};
      if (with_row_stored(row, s.dims.back(), [&] { return library_adds(found); })) return found;
    }
    return std::nullopt;
  }

  /// A product, perhaps a row, and an array that is in memory, which a region stores the sum of.
  std::optional<ProductRow> find_whole(const Region& r, NodeId sum,
                                       const std::function<bool(const ProductRow&)>& library_adds) {
    const GraphNode& s = g_[sum];
    const bool doubles = s.op == Op::add && s.dtype == DType::Float64 && s.numel > 0 && !s.dims.empty();
    if ((!may_sum(sum) && !doubles) || regions_.placements.contains(sum) || !r.axes.empty())
      return std::nullopt;
    for (int k = 0; k < 2; ++k) {
      const NodeId whole = s.in[1 - k];
      if (g_[whole].dtype != s.dtype || !std::ranges::equal(g_[whole].dims, s.dims) ||
          contains(r.nodes, whole) || !whole_array(g_, regions_, whole))
        continue;
      const NodeId cast = converted_below(g_, s.in[k]);
      const NodeId product = product_below(g_, cast == kNoNode ? s.in[k] : g_[cast].in[0]);
      if (product != kNoNode) {
        const ProductRow found{product, sum, cast, kNoNode, whole};
        if (by_library_[product] && (cast == kNoNode || contains(r.nodes, cast)) &&
            may_multiply(product, sum) && is_alone(s.in[k], product) && library_adds(found))
          return found;
        continue;
      }
      const NodeId first = below_reshapes(g_, s.in[k]);  // the sum with a row
      if (!may_sum(first) || regions_.stored[first] || !contains(r.nodes, first) ||
          g_[first].dtype != s.dtype || !may_multiply(first, sum) || !is_alone(s.in[k], first))
        continue;
      for (int j = 0; j < 2; ++j) {
        const NodeId row = g_[first].in[1 - j], below = product_below(g_, g_[first].in[j]);
        if (below == kNoNode || !by_library_[below] || g_[row].dtype != s.dtype ||
            !may_multiply(below, first) || !is_alone(g_[first].in[j], below))
          continue;
        const ProductRow found{below, sum, kNoNode, row, whole};
        if (with_row_stored(row, s.dims.back(), [&] { return library_adds(found); })) return found;
      }
    }
    return std::nullopt;
  }

  /// The sum of a product and a row that an array is added to.
  NodeId row_sum(const ProductRow& p) const {
    const GraphNode& s = g_[p.sum];
    return below_reshapes(g_, s.in[s.in[0] == p.whole ? 1 : 0]);
  }

  /// What is left of a region without these nodes reads the last of them from memory.
  static void take_out(Region& r, const std::vector<NodeId>& nodes) {
    const auto gone = [&](NodeId id) { return contains(nodes, id); };
    std::erase_if(r.nodes, gone);
    std::erase_if(r.outputs, gone);
    std::erase_if(r.rows, gone);
  }

  /// Asks with the row in memory. Where it is taken, the maps that made it on the way become a region.
  template <class Ask>
  bool with_row_stored(NodeId row, std::int64_t length, const Ask& ask) {
    const std::vector<NodeId> maps = maps_of(row, length);
    if (!maps.empty()) regions_.stored[row] = true;
    const bool adds = repeated_row(g_, regions_, row, length) && ask();
    if (adds && !maps.empty()) made_.push_back({Region::Kind::Fused, maps, {row}});
    if (!adds && !maps.empty()) regions_.stored[row] = false;
    return adds;
  }

  /// The maps that make a row of arguments, where the sum made it on the way: a parameter's cast. They may
  /// run before anything else.
  std::vector<NodeId> maps_of(NodeId row, std::int64_t length) const {
    constexpr std::size_t kMost = 8;
    std::vector<NodeId> found, stack{row};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      const GraphNode& n = g_[id];
      const ir::OpKind kind = ir::info(n.op).kind;
      if (kind == ir::OpKind::Leaf || kind == ir::OpKind::Scalar ||
          std::ranges::find(found, id) != found.end())
        continue;
      const bool map = kind == ir::OpKind::Elementwise || kind == ir::OpKind::Cast;
      if (!map || n.numel != length || regions_.stored[id] || found.size() == kMost) return {};
      found.push_back(id);
      stack.insert(stack.end(), n.in.begin(), n.in.end());
    }
    std::ranges::sort(found);
    return found;
  }

  const Graph& g_;
  Regions& regions_;
  std::vector<int> uses_;
  std::vector<bool> by_library_;  // alone
  std::vector<Region> made_;      // rows that were made on the way
};

}  // namespace

ProductRow product_row(const Graph& g, const Regions& regions, const Region& region) {
  KILN_CHECK_THAT(
      (region.nodes.size() == 2 || region.nodes.size() == 3) && region.kind == Region::Kind::Library,
      "no product with something added");
  ProductRow out{region.nodes.front(), region.nodes.back()};
  for (std::size_t i = 1; i < region.nodes.size(); ++i) {
    const GraphNode& sum = g[region.nodes[i]];
    if (sum.op == Op::cast) {
      out.cast = region.nodes[i];
      continue;
    }
    NodeId below = sum.in[0];
    while (below != region.nodes[i - 1] && g[below].op == Op::reshape) below = g[below].in[0];
    const NodeId added = sum.in[below == region.nodes[i - 1] ? 1 : 0];
    const bool row = out.row == kNoNode && repeated_row(g, regions, added, sum.dims.back()).has_value();
    (row ? out.row : out.whole) = added;
  }
  return out;
}

std::optional<Alias> repeated_row(const Graph& g, const Regions& regions, NodeId id, std::int64_t length) {
  const GraphNode& n = g[id];
  Alias a = resolve_alias(g, id);
  if (n.op != Op::leaf && regions.stored[id]) a = {id, 0, {}, ir::row_major_strides(n.dims)};
  if (a.base == kNoNode || n.dims.empty() || n.dims.back() != length || a.strides.back() != 1)
    return std::nullopt;
  if (g[a.base].op != Op::leaf && !regions.stored[a.base]) return std::nullopt;
  for (std::size_t i = 0; i + 1 < n.dims.size(); ++i)
    if (n.dims[i] != 1 && a.strides[i] != 0) return std::nullopt;
  return a;
}

std::optional<Alias> whole_array(const Graph& g, const Regions& regions, NodeId id) {
  const GraphNode& n = g[id];
  Alias a = resolve_alias(g, id);
  if (n.op != Op::leaf && regions.stored[id]) a = {id, 0, {}, ir::row_major_strides(n.dims)};
  if (a.base == kNoNode || (g[a.base].op != Op::leaf && !regions.stored[a.base])) return std::nullopt;
  const std::vector<std::int64_t> strides = ir::row_major_strides(n.dims);
  for (std::size_t i = 0; i < n.dims.size(); ++i)
    if (n.dims[i] != 1 && a.strides[i] != strides[i]) return std::nullopt;
  return a;
}

void join_product_rows(const Graph& graph, Regions& regions,
                       const std::function<bool(const ProductRow&)>& library_adds) {
  Joining(graph, regions).run(library_adds);
}

}  // namespace kiln::plan
