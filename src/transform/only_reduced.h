// OnlyReduced: which values of a graph are reduced to fewer results, or have few of their elements picked,
// and are not wanted otherwise.
#pragma once

#include "ir/uses.h"
#include "transform/nouns.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kiln::transform {

/// Pre: the graph's nodes at the time of construction; what a pass adds afterwards is not known.
class OnlyReduced {
 public:
  explicit OnlyReduced(const Graph& graph);

  std::span<const ir::Use> uses(NodeId id) const { return uses_[id]; }
  bool is_root(NodeId id) const { return root_[id]; }
  /// Whether all that is made of a value is fewer results, through a few maps.
  bool contains(NodeId id) const;

 private:
  bool contains(NodeId id, std::size_t& steps) const;

  struct Seen {
    Op op;
    std::int64_t numel;
    NodeId first;  // operand
    bool held;
  };
  std::vector<Seen> nodes_;
  ir::Uses uses_;
  std::vector<bool> root_;
};

}  // namespace kiln::transform
