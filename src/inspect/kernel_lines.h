// Which nodes of the graph a line of a kernel's text belongs to: statements and expressions by marks
// (kernel/marks.h), nodes by what lowering noted of each expression.
#pragma once

#include "kernel/marks.h"
#include "lower/lower.h"

#include <cstdint>
#include <vector>

namespace kiln::engine {

class KernelLines {
 public:
  /// Keeps a reference.
  explicit KernelLines(const lower::Lowered& lowered);
  /// False: lowering noted nothing, as of main loops.
  bool known() const { return !lowered_.origins.empty(); }
  /// Of each line the nodes whose values it computes, loads or stores, ascending.
  std::vector<std::vector<std::uint32_t>> nodes_of(const kernel::Unmarked& text) const;

 private:
  ir::NodeId node_of(kernel::Mark mark) const;

  const lower::Lowered& lowered_;
  std::vector<ir::NodeId> of_accumulator_;
};

}  // namespace kiln::engine
