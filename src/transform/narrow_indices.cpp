// Terminates: one walk in topological order; a scatter gets a few more nodes.
//
// A kernel writes the indices and the scatter reads them again: of a histogram that is most of what moves.
// Indices beyond the axis would wrap around in a narrow type, so they become its extent, which is no place,
// and negative ones are counted from the back before.
#include "transform/narrow_indices.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <vector>

namespace kiln::transform {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;
using ir::OpKind;

namespace {

constexpr std::int64_t kLeastIndices = 1 << 16;

/// The narrowest type that has all places and the extent.
DType index_type(std::int64_t extent) {
  return extent <= 0xff ? DType::UInt8 : extent <= 0xffff ? DType::UInt16 : DType::Int64;
}

DType unsigned_type(DType type) {
  return size_of(type) == 8   ? DType::UInt64
         : size_of(type) == 4 ? DType::UInt32
         : size_of(type) == 2 ? DType::UInt16
                              : DType::UInt8;
}

}  // namespace

Renumbering narrow_indices(ir::Graph& graph) {
  constexpr std::size_t kIndices = 1;
  std::vector<int> readers(graph.size(), 0);
  for (const GraphNode& n : graph.nodes)
    for (const NodeId in : n.in) ++readers[in];
  const std::vector<GraphNode> before = graph.nodes;
  ir::Builder add(graph);
  return rebuild(graph, [&](NodeId id, GraphNode n) {
    if (n.op != Op::scatter) return add.push(n);
    const NodeId old = before[id].in[kIndices];
    const GraphNode& indices = before[old];
    const OpKind kind = ir::info(indices.op).kind;
    const std::int64_t extent = n.dims[ir::attributes<ir::Scatter>(n).axis];
    const DType type = index_type(extent);
    if ((kind != OpKind::Cast && kind != OpKind::Elementwise) || readers[old] != 1 || indices.held ||
        indices.numel < kLeastIndices || size_of(indices.dtype) <= size_of(type) ||
        !is_signed_int(indices.dtype))
      return add.push(n);
    add.loc = n.loc;
    // As unsigned numbers: a negative one is greater than all places, and less once the extent is added to it
    // where that makes it one.
    const DType word = unsigned_type(indices.dtype);
    const NodeId x = add.add(Op::cast, {n.in[kIndices]}, {}, {.dtype = word});
    const NodeId end = add.add(Op::constant, {}, ir::Constant{static_cast<std::uint64_t>(extent)},
                               {.dtype = word, .dims = Shape(indices.dims)});
    const NodeId from_front = add.add(Op::minimum, {x, add.add(Op::add, {x, end})});
    n.in[kIndices] = add.add(Op::cast, {add.add(Op::minimum, {from_front, end})}, {}, {.dtype = type});
    return add.push(n);
  });
}

}  // namespace kiln::transform
