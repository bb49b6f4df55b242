#include "transform/keep_numbers.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// A scatter of values into a leaf; `values` makes them.
template <class F>
std::int64_t kept(F values, GraphBuilder& b) {
  const NodeId x = b.leaf(DType::Float32, {5}), at = b.leaf(DType::Int32, {1000});
  b.root(b.add(Op::scatter, {x, at, values(b)}, ir::Scatter{0, Combine::Add}));
  keep_numbers(b.graph);
  ir::verify(b.graph);
  return std::ranges::count_if(b.graph.nodes, [](const auto& n) { return n.op == Op::arrange; });
}

TEST(KeepNumbers, OneNumberForAllIndicesIsOneElement) {
  GraphBuilder b;
  EXPECT_EQ(
      kept([](GraphBuilder& g) { return g.broadcast(g.constant(DType::Float32, 0x3f800000), {1000}); }, b),
      1);
  const NodeId scatter = b.graph.roots[0], values = b.graph[scatter].in[2];
  EXPECT_EQ(b.graph[values].op, Op::broadcast);
  EXPECT_EQ(b.graph[b.graph[values].in[0]].numel, 1);
}

TEST(KeepNumbers, WhatIsInMemoryOrDiffersStays) {
  GraphBuilder leaf, one;
  EXPECT_EQ(kept([](GraphBuilder& g) { return g.leaf(DType::Float32, {1000}); }, leaf), 0);
  EXPECT_EQ(kept([](GraphBuilder& g) { return g.broadcast(g.leaf(DType::Float32, {1}), {1000}); }, one), 0);
}

TEST(KeepNumbers, KeepsValues) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {7}), at = b.leaf(DType::Int32, {64});
  b.root(b.add(Op::scatter, {x, at, b.broadcast(b.constant(DType::Int32, 3), {64})},
               ir::Scatter{0, Combine::Add}));
  checked_transform(b);
}

}  // namespace
}  // namespace kiln::transform
