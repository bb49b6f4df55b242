#include "transform/reduce_in_order.h"

#include "ir/graph_builder.h"
#include "transform/dce.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// (5, 3, 4, 8) as (8, 5, 4, 3).
NodeId turned(GraphBuilder& b, DType type = DType::Float32) {
  ir::Permute order;
  order.show(0, 3), order.show(1, 0), order.show(2, 2), order.show(3, 1);
  return b.add(Op::permute, {b.leaf(type, {5, 3, 4, 8})}, order);
}

/// What the only root reads: the operation whose operand a leaf is by so many maps.
void expect_in_order(GraphBuilder& b, std::uint64_t over, int maps) {
  const auto expected = b.values();
  reduce_in_order(b.graph, 64);
  dce(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(b.values(), expected);
  const ir::GraphNode& shown = b.graph[b.graph.roots[0]];
  ASSERT_EQ(shown.op, Op::permute);
  NodeId at = shown.in[0];
  EXPECT_EQ(ir::attributes<ir::Reduce>(b.graph[at]).mask, over);
  for (int i = 0; i < maps; ++i) EXPECT_TRUE(ir::is_elementwise(b.graph[at = b.graph[at].in[0]].op));
  EXPECT_EQ(b.graph[b.graph[at].in[0]].op, Op::leaf);
}

TEST(ReduceInOrder, APermutedArrayIsReducedAsItLies) {
  GraphBuilder b;
  b.root(b.add(Op::reduce_max, {turned(b)}, ir::Reduce{0b0110}));
  expect_in_order(b, 0b0101, 0);
}

TEST(ReduceInOrder, SumsMayBeOfAnotherOrder) {
  GraphBuilder b;
  b.root(b.add(Op::reduce_sum, {turned(b, DType::Int32)}, ir::Reduce{0b0011}));
  expect_in_order(b, 0b1001, 0);
}

TEST(ReduceInOrder, MapsOfItComeAlong) {
  GraphBuilder b;
  const NodeId wide = b.add(Op::cast, {turned(b)}, {}, {.dtype = DType::Float64});
  b.root(b.add(Op::reduce_max, {b.add(Op::abs, {wide})}, ir::Reduce{0b0110}));
  expect_in_order(b, 0b0101, 2);
}

TEST(ReduceInOrder, APositionAlongOneAxisStays) {
  GraphBuilder b;
  b.root(b.add(Op::reduce_argmax, {turned(b)}, ir::Reduce{0b0001}));
  expect_in_order(b, 0b1000, 0);

  GraphBuilder c;
  ir::Permute order;
  order.show(0, 1), order.show(1, 0);
  c.root(c.add(Op::reduce_argmax, {c.add(Op::permute, {c.leaf(DType::Float32, {40, 6})}, order)},
               ir::Reduce{0b10}));
  expect_in_order(c, 0b01, 0);
}

/// Results in another order would be stored far apart, however few elements there are to each.
TEST(ReduceInOrder, ResultsMayBeMany) {
  for (const std::int64_t each : {2, 3}) {
    GraphBuilder b;
    ir::Permute order;
    order.show(0, 2), order.show(1, 0), order.show(2, 1);
    const NodeId x = b.add(Op::permute, {b.leaf(DType::Float32, {17, each, 32})}, order);
    b.root(b.add(Op::reduce_max, {x}, ir::Reduce{0b100}));
    expect_in_order(b, 0b010, 0);
  }
}

/// Positions among several axes, few elements, a norm, and what lies in order already.
TEST(ReduceInOrder, OthersStayAsTheyAre) {
  const auto stays = [](GraphBuilder& b, std::int64_t least) {
    const std::string before = ir::print(b.graph);
    reduce_in_order(b.graph, least);
    EXPECT_EQ(ir::print(b.graph), before);
  };
  GraphBuilder positions, few, norm, plain;
  positions.root(positions.add(Op::reduce_argmin, {turned(positions)}, ir::Reduce{0b0011}));
  stays(positions, 64);
  few.root(few.add(Op::reduce_max, {turned(few)}, ir::Reduce{0b0011}));
  stays(few, 1000);
  const NodeId x = turned(norm);
  norm.root(norm.add(Op::subtract, {x, norm.add(Op::reduce_max, {x}, ir::Reduce{0b0011})}));
  stays(norm, 64);
  plain.root(plain.add(Op::reduce_max, {plain.leaf(DType::Float32, {40, 6})}, ir::Reduce{0b10}));
  stays(plain, 64);
}

}  // namespace
}  // namespace kiln::transform
