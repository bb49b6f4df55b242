#include "lower/widened.h"

#include "math/expand.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

using kernel::E;

bool widens(const ir::Graph& graph, const ir::GraphNode& reduction) {
  return ir::info(reduction.op).fold == ir::Fold::LogAddExp && reduction.dtype == DType::Float64 &&
         graph[reduction.in[0]].dtype != DType::Float64;
}

kernel::AccDecl widened(kernel::Kernel& kernel, const std::function<kernel::AccDecl()>& make) {
  const std::size_t before = kernel.customs.size();
  kernel::CustomMonoid m = kernel.customs[make().custom];
  kernel.customs.resize(before);  // that of Float32 values, unless another has it
  const auto part = [&](kernel::Prim prim, DType type, std::uint64_t imm) {
    return E{&kernel.pool, kernel.pool.intern({.prim = prim, .type = type, .imm = imm})};
  };
  const E value = part(kernel::Prim::Later, DType::Float64, 0);
  const auto wide = [&](std::uint64_t p) {
    return kernel::cast(part(kernel::Prim::Earlier, DType::Float32, p), DType::Float64);
  };
  m.lift[0] = kernel::cast(value, DType::Float32).id;
  m.show = (wide(0) + expand(ir::Op::log, wide(1), {}, {}, DType::Float64)).id;
  const auto at = static_cast<std::uint32_t>(std::ranges::find(kernel.customs, m) - kernel.customs.begin());
  if (at == kernel.customs.size()) kernel.customs.push_back(std::move(m));
  return {kernel::Monoid::Custom, DType::Float64, at};
}

std::vector<bool> made_of_rows(const Pulled& pulled) {
  std::vector<bool> rows(pulled.entries.size());
  for (EntryId id = 0; id < pulled.entries.size(); ++id) {
    const Entry& e = pulled.entries[id];
    bool all = e.kind == Entry::Kind::Op, any = false;
    if (all)
      pulled.each_operand(e, [&](EntryId in) {
        any |= rows[in];
        all &= rows[in] || pulled.entries[in].kind == Entry::Kind::Scalar;
      });
    rows[id] = e.kind == Entry::Kind::Reduce || (all && any);
  }
  return rows;
}

}  // namespace kiln::lower
