#include "plan/product_rows.h"

#include "ir/layout.h"
#include "support/check.h"

#include <algorithm>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;

/// The product that operand k of a sum shows through reshapes, or kNoNode.
NodeId product_below(const Graph& g, NodeId id) {
  while (g[id].op == Op::reshape) id = g[id].in[0];
  return g[id].op == Op::matmul ? id : kNoNode;
}

class Joining {
 public:
  Joining(const Graph& g, Regions& regions) : g_(g), regions_(regions), uses_(g.size()) {
    for (const GraphNode& n : g.nodes)
      for (const NodeId in : n.in) ++uses_[in];
    for (NodeId root : g.roots) ++uses_[root];
  }

  void run(const std::function<bool(const ProductRow&)>& library_adds) {
    std::vector<bool> joined(g_.size());
    for (Region& r : regions_.regions) {
      const std::optional<ProductRow> found = find(r, library_adds);
      if (!found) continue;
      r = {};
      r.kind = Region::Kind::Library;
      r.nodes = {found->product, found->sum};
      r.outputs = {found->sum};
      regions_.stored[found->product] = false;
      joined[found->product] = true;
    }
    std::erase_if(regions_.regions,
                  [&](const Region& r) { return r.nodes.size() == 1 && joined[r.nodes[0]]; });
    std::erase_if(regions_.refusals, [&](const Refusal& f) { return joined[f.producer]; });
    regions_.regions.insert(regions_.regions.begin(), made_.begin(), made_.end());
  }

 private:
  bool is_read_once(NodeId id) const { return uses_[id] == 1 && !g_[id].held; }

  std::optional<ProductRow> find(const Region& r,
                                 const std::function<bool(const ProductRow&)>& library_adds) {
    const NodeId sum = r.nodes.front();
    const GraphNode& s = g_[sum];
    if (r.kind != Region::Kind::Fused || r.nodes.size() != 1 || s.op != Op::add) return std::nullopt;
    if (s.numel == 0 || s.dims.empty() || (s.dtype != DType::Float32 && !is_half(s.dtype)))
      return std::nullopt;
    for (int k = 0; k < 2; ++k) {
      const NodeId row = s.in[1 - k], product = product_below(g_, s.in[k]);
      if (product == kNoNode || g_[row].dtype != s.dtype) continue;
      const GraphNode& p = g_[product];
      if (p.numel != s.numel || p.dims.back() != s.dims.back() || g_[p.in[0]].dims.back() == 0) continue;
      bool alone = is_read_once(product);
      for (NodeId id = s.in[k]; id != product; id = g_[id].in[0]) alone = alone && is_read_once(id);
      if (!alone) continue;
      const std::vector<NodeId> maps = maps_of(row, s.dims.back());
      if (!maps.empty()) regions_.stored[row] = true;
      const ProductRow found{product, sum, row};
      const bool adds = repeated_row(g_, regions_, row, s.dims.back()) && library_adds(found);
      if (adds && !maps.empty()) made_.push_back({Region::Kind::Fused, maps, {row}});
      if (!adds && !maps.empty()) regions_.stored[row] = false;
      if (adds) return found;
    }
    return std::nullopt;
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
  std::vector<Region> made_;  // rows that were made on the way
};

}  // namespace

ProductRow product_row(const Graph& g, const Region& region) {
  KILN_CHECK_THAT(region.nodes.size() == 2 && region.kind == Region::Kind::Library,
                  "no product with a row added");
  const NodeId product = region.nodes[0], sum = region.nodes[1];
  const int k = product_below(g, g[sum].in[0]) == product ? 0 : 1;
  return {product, sum, g[sum].in[1 - k]};
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

void join_product_rows(const Graph& graph, Regions& regions,
                       const std::function<bool(const ProductRow&)>& library_adds) {
  Joining(graph, regions).run(library_adds);
}

}  // namespace kiln::plan
