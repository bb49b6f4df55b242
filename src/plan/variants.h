// Other ways to cut the nodes of a graph into regions, for adaptive mode to measure: the variants of
// FusionVariant whose way is Cut or Join (kiln/fusion.def). Each belongs to one region of the plan as the
// model makes it, and is carried out by orders for another fuse() of the same graph.
#pragma once

#include "plan/fuse.h"
#include "support/hash128.h"

#include <kiln/fusion_report.h>

#include <cstdint>
#include <vector>

namespace kiln::plan {

/// The regions of a graph as units that verdicts are kept for.
class Units {
 public:
  /// Keeps references to its arguments.
  Units(const Graph& graph, const Regions& regions, const schedule::Target& target);

  /// The structure of a region: operations, dtypes, extents, attributes, strides and alignment of the
  /// arguments that it reads, its results, and what the planner knows of the target. Equal regions of
  /// different programs have equal keys; neither names, lines nor values of scalars are part of them.
  const Hash128& key(std::size_t region) const { return keys_[region]; }
  /// The variants that could cut the region otherwise. A variant may turn out to change nothing.
  std::vector<FusionVariant> ways(std::size_t region) const;
  /// Adds what carries a variant out. Pre: it is one of ways(region).
  void order(std::size_t region, FusionVariant variant, Orders& orders) const;

 private:
  void visit(std::size_t region);
  bool reads_inside(std::size_t region, NodeId id) const;
  std::vector<NodeId> stored_by(std::size_t region, FusionVariant variant) const;
  std::vector<NodeId> shared(std::size_t region) const;
  std::vector<NodeId> sinks(std::size_t region) const;
  bool can_store(NodeId id) const;

  const Graph& g_;
  const Regions& regions_;
  const schedule::Target& t_;
  std::vector<Hash128> keys_;
  std::vector<std::vector<NodeId>> inside_;  // what a region computes and the views that it reads through
  std::vector<std::uint32_t> computed_by_;   // of each node: regions that compute it
};

}  // namespace kiln::plan
