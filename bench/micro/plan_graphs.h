// Graphs for measuring the planner by itself: no compiler, no memory.
#pragma once

#include "ir/graph_builder.h"

#include <cstdint>
#include <random>
#include <vector>

namespace kiln::bench {

/// About `n` nodes, drawn: maps over three shapes, sums along either axis, spreads, transpositions and
/// slices, which read one of the last sixteen nodes of their shape. One node in 64 is a root.
inline ir::GraphBuilder random_graph(int n) {
  using ir::NodeId;
  using ir::Op;
  ir::GraphBuilder b;
  std::mt19937 gen(7);
  const auto below = [&](std::size_t k) { return static_cast<std::size_t>(gen() % k); };
  const std::int64_t rows = 96, columns = 160;
  std::vector<NodeId> full, turned, row;
  for (int i = 0; i < 4; ++i) full.push_back(b.leaf(DType::Float32, {rows, columns}));
  turned.push_back(b.permute(full[0], {1, 0}));
  row.push_back(b.leaf(DType::Float32, {rows, 1}));
  const auto late = [&](const std::vector<NodeId>& of) {
    return of[of.size() - 1 - below(std::min<std::size_t>(of.size(), 16))];
  };
  constexpr Op kMaps[] = {Op::add, Op::multiply, Op::subtract, Op::maximum};
  while (static_cast<int>(b.graph.size()) < n) {
    const std::size_t kind = below(16);
    if (kind < 8)
      full.push_back(b.op(kMaps[kind % 4], {late(full), late(full)}));
    else if (kind < 10)
      full.push_back(b.op(kMaps[kind % 4], {late(full), late(row)}));
    else if (kind == 10)
      row.push_back(b.reduce(Op::reduce_sum, late(full), 2));
    else if (kind == 11)
      row.push_back(b.op(Op::exp, {late(row)}));
    else if (kind == 12)
      turned.push_back(b.permute(late(full), {1, 0}));
    else if (kind == 13)
      full.push_back(b.permute(late(turned), {1, 0}));
    else if (kind == 14)
      turned.push_back(b.op(Op::add, {late(turned), late(turned)}));
    else
      full.push_back(b.op(Op::tanh, {late(full)}));
    if (below(64) == 0) b.root(full.back());
  }
  b.root(full.back());
  return b;
}

/// So many layers of x = x + gelu(norm(x) @ w) @ v, each with weights of its own; 21 nodes a layer.
inline ir::GraphBuilder layers(int n) {
  using ir::NodeId;
  using ir::Op;
  ir::GraphBuilder b;
  const std::int64_t batch = 32, width = 64, hidden = 256;
  const DType f = DType::Float32;
  NodeId x = b.leaf(f, {batch, width});
  const NodeId count = b.scalar(f, 0), small = b.scalar(f, 0);
  for (int i = 0; i < n; ++i) {
    const NodeId mean = b.op(Op::divide, {b.reduce(Op::reduce_sum, x, 2), count});
    const NodeId centred = b.op(Op::subtract, {x, mean});
    const NodeId variance =
        b.op(Op::divide, {b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2), count});
    const NodeId normal = b.op(Op::multiply, {centred, b.op(Op::rsqrt, {b.op(Op::add, {variance, small})})});
    const NodeId scaled =
        b.op(Op::add, {b.op(Op::multiply, {normal, b.leaf(f, {width})}), b.leaf(f, {width})});
    const NodeId up =
        b.op(Op::gelu, {b.op(Op::add, {b.matmul(scaled, b.leaf(f, {width, hidden})), b.leaf(f, {hidden})})});
    const NodeId down = b.op(Op::add, {b.matmul(up, b.leaf(f, {hidden, width})), b.leaf(f, {width})});
    x = b.op(Op::add, {x, down});
  }
  b.root(x);
  return b;
}

/// One value that so many kernels read at other points.
inline ir::GraphBuilder star(int n) {
  ir::GraphBuilder b;
  const ir::NodeId x = b.op(ir::Op::exp, {b.leaf(DType::Float32, {96, 160})}), turned = b.permute(x, {1, 0});
  for (int i = 0; i < n; ++i) b.root(b.op(ir::Op::add, {turned, b.leaf(DType::Float32, {160, 96})}));
  return b;
}

inline std::int64_t edges(const ir::Graph& g) {
  std::int64_t n = 0;
  for (const ir::GraphNode& node : g.nodes) n += node.in.size();
  return n;
}

}  // namespace kiln::bench
