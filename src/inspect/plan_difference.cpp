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

std::string where(const GraphNode& n) {
  return cat(ir::info(n.op).name, " at ", n.loc.file_name(), ":", n.loc.line());
}

std::string numbers(ir::Dims list) { return to_string(list); }

std::string was(std::string_view what, const std::string& now, const std::string& before) {
  return cat(what, " ", now, ", was ", before);
}

/// What differs between two leaves' memory; empty: nothing.
std::string memory_difference(const ir::ArgInfo& now, const ir::ArgInfo& before) {
  if (!std::ranges::equal(now.strides, before.strides))
    return was("strides", numbers(now.strides), numbers(before.strides));
  if (now.alignment != before.alignment)
    return was("alignment", cat(now.alignment, " bytes"), cat(before.alignment, " bytes"));
  return {};
}

/// What differs between two nodes at one place of the graphs; empty: nothing that a plan key sees.
std::string node_difference(const Graph& g, const GraphNode& now, const Graph& h, const GraphNode& before) {
  if (now.op != before.op)
    return was("the operation is", std::string(ir::info(now.op).name), std::string(ir::info(before.op).name));
  if (now.dtype != before.dtype)
    return was("dtype", std::string(name(now.dtype)), std::string(name(before.dtype)));
  if (!std::ranges::equal(now.dims, before.dims))
    return was("shape", numbers(now.dims), numbers(before.dims));
  if (!std::ranges::equal(now.attrs, before.attrs))
    return was("attributes", numbers(now.attrs), numbers(before.attrs));
  if (now.attr64 != before.attr64) return was("attribute", cat(now.attr64), cat(before.attr64));
  if (now.op == ir::Op::leaf)
    return memory_difference(g.args[static_cast<std::size_t>(now.arg)],
                             h.args[static_cast<std::size_t>(before.arg)]);
  if (now.op == ir::Op::scalar && now.arg != before.arg)
    return "equal numbers on one line, not equal before, or the reverse";
  if (now.in != before.in) return "other operands than before";
  if (now.held != before.held)
    return now.held ? "a handle keeps the value, none did before"
                    : "no handle keeps the value, one did before";
  return {};
}

}  // namespace

std::string plan_difference(const Graph& now, const Graph& before) {
  const std::size_t both = std::min(now.nodes.size(), before.nodes.size());
  for (std::size_t i = 0; i < both; ++i)
    if (std::string difference = node_difference(now, now.nodes[i], before, before.nodes[i]);
        !difference.empty())
      return cat(where(now.nodes[i]), ": ", difference);
  if (now.nodes.size() != before.nodes.size())
    return cat(now.nodes.size(), " recorded operations, ", before.nodes.size(), " before");
  for (NodeId root : now.roots)
    if (std::ranges::find(before.roots, root) == before.roots.end())
      return cat(where(now[root]), ": the value is stored, was not before");
  for (NodeId root : before.roots)
    if (std::ranges::find(now.roots, root) == now.roots.end())
      return cat(where(now[root]), ": the value is not stored, was before");
  return {};
}

std::string note_missed_plan(Graph graph) {
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
    return "nothing of this line was planned before";
  }
  std::string difference = plan_difference(graph, it->second);
  it->second = std::move(graph);
  return difference.empty() ? "the options, the device or the plans kept differ" : difference;
}

}  // namespace kiln::engine
