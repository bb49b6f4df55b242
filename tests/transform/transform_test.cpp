#include "transform/transform.h"

#include "transform/transformed.h"

#include <chrono>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;

constexpr DType f = DType::Float32;

TEST(Transform, TellsWhereEveryNodeWent) {
  GraphBuilder b;
  const NodeId x = b.leaf(f, {2, 3}), flat = b.reshape(x, {6}), back = b.reshape(flat, {3, 2});
  const NodeId e = b.op(Op::exp, {back}), twin = b.op(Op::exp, {back});
  b.root(b.op(Op::add, {e, twin}));
  const Transformed t = checked_transform(b);
  EXPECT_EQ(t.now, (Renumbering{0, kNoNode, 1, 2, 2, 3}));
}

TEST(Transform, RootsKeepTheirOrderEvenWhenTheyMeet) {
  GraphBuilder b;
  const NodeId x = b.leaf(f, {2, 3});
  b.root(b.op(Op::negative, {b.op(Op::negative, {x})}));
  b.root(b.op(Op::exp, {x}));
  b.root(b.reshape(b.reshape(x, {6}), {2, 3}));
  const Transformed t = checked_transform(b);
  EXPECT_EQ(t.graph.roots, (std::vector<NodeId>{0, 1, 0}));
}

/// What a reduction of all begins with is the reduction of rows that is there.
TEST(Transform, SharedReductionsAreOne) {
  GraphBuilder b;
  const NodeId x = b.leaf(f, {64, 32, 16});
  b.root(b.reduce(Op::reduce_sum, x, 2));
  b.root(b.reduce(Op::reduce_sum, x, 3));
  const Transformed t = transform(
      std::move(b.graph), {.reductions = ReductionCosts{.launch_bytes = 1024}, .shares_reductions = true});
  EXPECT_EQ(std::ranges::count_if(t.graph.nodes, [](const auto& n) { return ir::is_reduce(n.op); }), 2);
}

/// n nodes: a chain of arithmetic with views, casts and repeated subexpressions.
GraphBuilder long_trace(NodeId n) {
  GraphBuilder b;
  NodeId x = b.leaf(f, {64, 32});
  while (b.graph.size() < n) {
    const NodeId a = b.op(Op::multiply, {x, b.scalar(f, 0x3f000000)}), c = b.op(Op::exp, {a}),
                 d = b.op(Op::exp, {a});
    const NodeId turned = b.permute(b.permute(b.op(Op::add, {c, d}), {1, 0}), {1, 0});
    x = b.cast(b.cast(b.op(Op::tanh, {turned}), DType::Float64), f);
  }
  b.root(x);
  return b;
}

TEST(Transform, TakesLinearTime) {
  double per_node[2];
  int at = 0;
  for (NodeId n : {10u, 10000u}) {
    double best = 1e9;
    for (int run = 0; run < 20; ++run) {
      GraphBuilder b = long_trace(n);
      const NodeId nodes = b.graph.size();
      const auto start = std::chrono::steady_clock::now();
      const Transformed t = transform(std::move(b.graph));
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count() / nodes);
      EXPECT_LT(t.graph.size(), nodes);
    }
    per_node[at++] = best;
  }
  std::printf("transform: %.3f us a node of 10, %.3f of 10,000\n", per_node[0], per_node[1]);
  EXPECT_LT(per_node[1], 5);  // a bound for any machine and build; 0.03 us where it was written
}

}  // namespace
}  // namespace kiln::transform
