#include "plan/reuse.h"

#include "ir/layout.h"
#include "plan/fuse.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kiln::plan {
namespace {

using ir::Op;

class Reuse {
 public:
  Reuse(const Graph& graph, Regions& regions, std::span<const NodeId> leaves, std::span<const NodeId> wanted,
        bool epilogues)
      : g_(graph),
        regions_(regions),
        wanted_(wanted),
        epilogues_(epilogues),
        leaf_(graph.size()),
        readers_(graph.size()),
        seen_(graph.size(), 0),
        moved_(regions.regions.size()) {
    for (const NodeId leaf : leaves) leaf_[leaf] = true;
  }

  std::unordered_map<NodeId, Placement> run() {
    drop_leaves_that_stay();
    for (std::size_t r = 0; r < regions_.regions.size(); ++r)
      for (const NodeId input : inputs(regions_.regions[r], regions_.regions[r].nodes))
        readers_[input].push_back(r);
    keep_.assign(g_.size(), false);
    for (const NodeId id : g_.roots) keep_[id] = true;
    for (const NodeId id : wanted_) keep_[id] = true;
    for (std::size_t r = 0; r < regions_.regions.size(); ++r)
      if (may_move(r)) place_results(r);
    move();
    return std::move(out_);
  }

 private:
  /// Somebody is handed their memory.
  void drop_leaves_that_stay() {
    for (const auto list : {std::span<const NodeId>(g_.roots), wanted_})
      for (const NodeId id : list)
        if (const NodeId base = resolve_alias(g_, id).base; base != ir::kNoNode) leaf_[base] = false;
  }

  /// Leaves and stored nodes that are read for these nodes of a region.
  std::vector<NodeId> inputs(const Region& r, std::span<const NodeId> nodes) {
    ++stamp_;
    std::vector<NodeId> found, stack(nodes.begin(), nodes.end());
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      for (const NodeId in : g_[id].in) {
        if (std::exchange(seen_[in], stamp_) == stamp_) continue;
        const bool own = std::binary_search(r.nodes.begin(), r.nodes.end(), in);
        if (!own && (g_[in].op == Op::leaf || regions_.stored[in]))
          found.push_back(in);
        else
          stack.push_back(in);
      }
    }
    return found;
  }

  /// A region of maps, perhaps behind a product, whose results no other region reads.
  bool may_move(std::size_t r) const {
    const Region& region = regions_.regions[r];
    const bool product = is_product(region);
    const auto is_map = [&](NodeId id) {
      return ir::is_elementwise(g_[id].op) || ir::is_view(g_[id].op) || (product && id == region.product);
    };
    return (region.kind == Region::Kind::Fused || product) && region.rows.empty() && region.axes.empty() &&
           std::ranges::all_of(region.nodes, is_map) &&
           std::ranges::all_of(region.outputs, [&](NodeId id) { return readers_[id].empty(); });
  }
  bool is_product(const Region& r) const {
    return epilogues_ && r.kind == Region::Kind::Contraction && r.second == ir::kNoNode && r.parts.empty();
  }

  /// The leaf of the fewest results chooses first: of p - lr * m(g), m(g) the old p can only become the
  /// first.
  void place_results(std::size_t r) {
    const Region& region = regions_.regions[r];
    std::vector<NodeId> operands;  // a product reads them at other points than it writes
    if (is_product(region)) operands = inputs(region, std::span(&region.product, 1));
    std::unordered_map<NodeId, std::vector<NodeId>> results;  // by leaf
    for (const NodeId o : region.outputs) {
      if (!keep_[o] || regions_.placements.contains(o)) continue;
      for (const NodeId leaf : inputs(region, std::span(&o, 1)))
        if (leaf_[leaf] && last_to_move(leaf) == r && fits(o, leaf) &&
            std::ranges::find(operands, leaf) == operands.end())
          results[leaf].push_back(o);
    }
    std::vector<NodeId> order;
    for (const auto& [leaf, list] : results) order.push_back(leaf);
    std::ranges::sort(order, {}, [&](NodeId leaf) { return std::pair(results[leaf].size(), leaf); });
    for (const NodeId leaf : order)
      for (const NodeId o : results[leaf]) {
        Placement at;
        at.arg = static_cast<std::uint32_t>(g_[leaf].arg);
        at.whole = true;
        if (!out_.emplace(o, std::move(at)).second) continue;
        moved_[r] = true;
        break;
      }
  }

  /// Of a leaf's readers the last that may move: it runs behind all of them.
  std::size_t last_to_move(NodeId leaf) const {
    const auto& readers = readers_[leaf];
    const auto last =
        std::find_if(readers.rbegin(), readers.rend(), [&](std::size_t r) { return may_move(r); });
    return *last;
  }

  bool fits(NodeId result, NodeId leaf) const {
    return std::ranges::equal(g_[result].dims, g_[leaf].dims) &&
           size_of(g_[result].dtype) == size_of(g_[leaf].dtype);
  }

  void move() {
    std::vector<Region> first, last;
    for (std::size_t r = 0; r < moved_.size(); ++r)
      (moved_[r] ? last : first).push_back(std::move(regions_.regions[r]));
    std::ranges::move(last, std::back_inserter(first));
    regions_.regions = std::move(first);
  }

  const Graph& g_;
  Regions& regions_;
  std::span<const NodeId> wanted_;
  const bool epilogues_;
  std::vector<bool> leaf_, keep_;                  // by node
  std::vector<std::vector<std::size_t>> readers_;  // by node: regions, ascending
  std::vector<std::uint32_t> seen_;                // by node: stamp
  std::uint32_t stamp_ = 0;
  std::vector<bool> moved_;  // by region
  std::unordered_map<NodeId, Placement> out_;
};

}  // namespace

std::unordered_map<NodeId, Placement> reuse(const Graph& graph, Regions& regions,
                                            std::span<const NodeId> leaves, std::span<const NodeId> wanted,
                                            bool epilogues) {
  return Reuse(graph, regions, leaves, wanted, epilogues).run();
}

}  // namespace kiln::plan
