#include "inspect/plan_difference.h"

#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace kiln::engine {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::NodeId;

constexpr std::size_t kMostLines = 256;

std::string numbers(ir::Dims list) { return to_string(list); }

/// A field of a node with both values. No field: nothing that a plan key sees differs.
struct Field {
  std::string_view name;
  std::string now = {}, was = {};
};

/// What differs between two leaves' memory.
Field memory_difference(const ir::ArgInfo& now, const ir::ArgInfo& before) {
  if (!std::ranges::equal(now.strides, before.strides))
    return {"strides", numbers(now.strides), numbers(before.strides)};
  if (now.alignment != before.alignment)
    return {"alignment", cat(now.alignment, " bytes"), cat(before.alignment, " bytes")};
  return {};
}

/// What differs between two nodes at one place of the graphs.
Field node_difference(const Graph& g, const GraphNode& now, const Graph& h, const GraphNode& before) {
  if (now.op != before.op)
    return {"the operation is", std::string(ir::info(now.op).name), std::string(ir::info(before.op).name)};
  if (now.dtype != before.dtype)
    return {"dtype", std::string(name(now.dtype)), std::string(name(before.dtype))};
  if (!std::ranges::equal(now.dims, before.dims)) return {"shape", numbers(now.dims), numbers(before.dims)};
  if (!std::ranges::equal(now.attrs, before.attrs))
    return {"attributes", numbers(now.attrs), numbers(before.attrs)};
  if (now.attr64 != before.attr64) return {"attribute", cat(now.attr64), cat(before.attr64)};
  if (now.op == ir::Op::leaf)
    return memory_difference(g.args[static_cast<std::size_t>(now.arg)],
                             h.args[static_cast<std::size_t>(before.arg)]);
  if (now.op == ir::Op::scalar && now.arg != before.arg)
    return {"equal numbers on one line, not equal before, or the reverse"};
  if (now.in != before.in) return {"other operands than before"};
  if (now.held != before.held)
    return {now.held ? "a handle keeps the value, none did before"
                     : "no handle keeps the value, one did before"};
  return {};
}

PlanDifference at(const GraphNode& n, Field field) {
  return {std::string(ir::info(n.op).name), n.loc.file_name(),    n.loc.line(),
          std::string(field.name),          std::move(field.now), std::move(field.was)};
}

}  // namespace

PlanDifference plan_difference(const Graph& now, const Graph& before) {
  const std::size_t both = std::min(now.nodes.size(), before.nodes.size());
  for (std::size_t i = 0; i < both; ++i)
    if (Field field = node_difference(now, now.nodes[i], before, before.nodes[i]); !field.name.empty())
      return at(now.nodes[i], std::move(field));
  if (now.nodes.size() != before.nodes.size())
    return at(now[now.roots.front()],
              {"recorded operations", cat(now.nodes.size()), cat(before.nodes.size())});
  for (NodeId root : now.roots)
    if (std::ranges::find(before.roots, root) == before.roots.end())
      return at(now[root], {"the value is stored, was not before"});
  for (NodeId root : before.roots)
    if (std::ranges::find(now.roots, root) == now.roots.end())
      return at(now[root], {"the value is not stored, was before"});
  return {};
}

PlanDifference note_missed_plan(Graph graph) {
  struct Latest {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, DType>, Graph> graphs;  // by the line and dtype of the first root
  };
  static Latest* const latest = new Latest;  // detached threads may evaluate during exit
  const GraphNode& root = graph[graph.roots.front()];
  std::uint64_t line;
  static_assert(sizeof line == sizeof root.loc);
  std::memcpy(&line, &root.loc, sizeof line);
  const std::lock_guard lock(latest->mutex);
  const auto it = latest->graphs.find({line, root.dtype});
  if (it == latest->graphs.end()) {
    const std::pair<std::uint64_t, DType> key{line, root.dtype};
    if (latest->graphs.size() < kMostLines) latest->graphs.emplace(key, std::move(graph));
    return {.field = "nothing of this line was planned before"};
  }
  PlanDifference difference = plan_difference(graph, it->second);
  it->second = std::move(graph);
  if (difference.field.empty()) return {.field = "the options, the device or the plans kept differ"};
  return difference;
}

}  // namespace kiln::engine
