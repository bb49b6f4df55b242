// Terminates: one walk in topological order; a conversion becomes three nodes at most.
#include "transform/bits_of_floats.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <unordered_map>

namespace kiln::transform {
namespace {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;

Op from_bits(DType type) {
  return type == DType::Float8E4M3FN ? Op::from_float8_e4m3fn : Op::from_float8_e5m2;
}
Op to_bits(DType type) { return type == DType::Float8E4M3FN ? Op::to_float8_e4m3fn : Op::to_float8_e5m2; }

/// The float that has every value of a type, or all that an 8-bit float can tell apart.
DType widened(DType type) {
  const bool small = is_float(type) || size_of(type) <= 2;
  return type != DType::Float64 && small ? DType::Float32 : DType::Float64;
}

}  // namespace

bool has_stored_floats(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return is_only_stored(n.dtype); });
}

Renumbering bits_of_floats(ir::Graph& graph) {
  ir::Builder add(graph);
  std::unordered_map<NodeId, DType> stored;  // what bytes of the new graph are
  return rebuild(graph, [&](NodeId, GraphNode n) {
    const DType to = n.dtype;
    const auto found = n.op == Op::cast ? stored.find(n.in[0]) : stored.end();
    if (is_only_stored(to)) n.dtype = DType::UInt8;
    add.loc = n.loc;
    if (n.op == Op::cast && (found != stored.end() || is_only_stored(to)) &&
        !(found != stored.end() && found->second == to)) {
      NodeId x = n.in[0];
      if (found != stored.end() && to == DType::Float32) {
        add.redefine(n, from_bits(found->second), {x});
      } else {
        if (found != stored.end()) x = add.add(from_bits(found->second), {x});
        const DType wide = widened(graph[x].dtype);
        if (is_only_stored(to) && graph[x].dtype != wide) x = add.add(Op::cast, {x}, {}, {.dtype = wide});
        if (is_only_stored(to))
          add.redefine(n, to_bits(to), {x});
        else
          n.in[0] = x;
      }
    }
    const NodeId now = add.push(n);
    if (is_only_stored(to)) stored.emplace(now, to);
    return now;
  });
}

}  // namespace kiln::transform
