#include "inspect/kernel_lines.h"

#include <set>

namespace kiln::engine {

using kernel::Mark;

KernelLines::KernelLines(const lower::Lowered& lowered)
    : lowered_(lowered), of_accumulator_(lowered.kernel.accs.size(), ir::kNoNode) {
  for (std::size_t e = 0; e < lowered.origins.size(); ++e) {
    const kernel::ExprNode& n = lowered.kernel.pool[static_cast<kernel::ExprId>(e)];
    const bool of_acc =
        n.prim == kernel::Prim::Acc || n.prim == kernel::Prim::Running || n.prim == kernel::Prim::Before;
    if (of_acc && lowered.origins[e] != ir::kNoNode) of_accumulator_[n.imm] = lowered.origins[e];
  }
}

ir::NodeId KernelLines::node_of(Mark mark) const {
  switch (mark.of) {
    case Mark::Of::Expression:
      return mark.number < lowered_.origins.size() ? lowered_.origins[mark.number] : ir::kNoNode;
    case Mark::Of::Store: {
      const lower::BufferSource& s = lowered_.buffers[mark.number];
      return s.kind == lower::BufferSource::Kind::Node ? s.id : ir::kNoNode;
    }
    case Mark::Of::Update: return of_accumulator_[mark.number];
  }
  return ir::kNoNode;
}

std::vector<std::vector<std::uint32_t>> KernelLines::nodes_of(const kernel::Unmarked& text) const {
  std::vector<std::vector<std::uint32_t>> out;
  for (const std::vector<Mark>& line : text.lines) {
    std::set<std::uint32_t> nodes;
    for (const Mark mark : line)
      if (const ir::NodeId node = node_of(mark); node != ir::kNoNode) nodes.insert(node);
    out.emplace_back(nodes.begin(), nodes.end());
  }
  return out;
}

}  // namespace kiln::engine
