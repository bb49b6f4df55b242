#include "transform/transform.h"

#include "allocated_bytes.h"
#include "transform/transformed.h"

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

/// The first two of an order are reductions, of which a product that they alone read is no more stored than
/// for others; the first eight want it in memory.
TEST(Transform, AProductOfWhichTheFirstAreWantedIsWrittenOut) {
  for (const std::int64_t kept : {1, 2, 8}) {
    GraphBuilder b;
    const NodeId product = b.matmul(b.leaf(f, {40, 3}), b.leaf(f, {3, 40})),
                 x = b.op(Op::multiply, {product, b.scalar(f, 0x3f000000)});
    const NodeId both = b.add(Op::sort_with_positions, {x}, ir::Sort{1, true}, {.dims = Shape{40, kept}});
    b.root(b.add(Op::part, {both}, ir::Part{0}, {.dtype = f, .dims = Shape{40, kept}}));
    const auto before = b.values();
    const Transformed t = transform(std::move(b.graph), {.finds_products = true,
                                                         .writes_out = TermCosts{.most_terms = 4},
                                                         .extremes = true,
                                                         .seconds = {.seconds = true}});
    EXPECT_EQ(before, b.values(t.graph));
    EXPECT_EQ(std::ranges::count(t.graph.nodes, Op::matmul, &ir::GraphNode::op), kept == 8 ? 1 : 0) << kept;
  }
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
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const auto of_a_node = [](NodeId n) {
    GraphBuilder b = long_trace(n);
    const NodeId nodes = b.graph.size();
    const testing::Allocated memory =
        testing::allocated_in([&] { EXPECT_LT(transform(std::move(b.graph)).graph.size(), nodes); });
    return static_cast<double>(memory.bytes) / nodes;
  };
  const double few = of_a_node(100), many = of_a_node(10000);
  std::printf("transform: %.0f bytes a node of 100, %.0f of 10,000\n", few, many);
  EXPECT_LT(many, 1.5 * few);
}

}  // namespace
}  // namespace kiln::transform
