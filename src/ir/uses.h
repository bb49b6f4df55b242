// Uses: who reads each node of a graph, and as which operand, as the graph was when they were listed. Two
// lists in all, however many nodes there are.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <span>
#include <vector>

namespace kiln::ir {

struct Use {
  NodeId reader;
  int operand;
};

class Uses {
 public:
  explicit Uses(const Graph& g) : end_(g.size() + 1) {
    for (const GraphNode& n : g.nodes)
      for (const NodeId in : n.in) ++end_[in + 1];
    for (std::size_t id = 1; id < end_.size(); ++id) end_[id] += end_[id - 1];
    all_.resize(end_.back());
    std::vector<std::uint32_t> next(end_.begin(), end_.end() - 1);
    for (NodeId id = 0; id < g.size(); ++id)
      for (std::size_t k = 0; k < g[id].in.size(); ++k) all_[next[g[id].in[k]]++] = {id, static_cast<int>(k)};
  }

  /// By readers, ascending.
  std::span<const Use> operator[](NodeId id) const {
    return std::span(all_).subspan(end_[id], end_[id + 1] - end_[id]);
  }

 private:
  std::vector<std::uint32_t> end_;  // of each node's uses, behind that of the node before
  std::vector<Use> all_;
};

}  // namespace kiln::ir
