#include "transform/narrow_indices.h"

#include "ir/graph_builder.h"

#include <gtest/gtest.h>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr std::int64_t kCount = 1 << 16;

/// Counts of indices that a cast makes, many of them no places.
NodeId counts(GraphBuilder& b, std::int64_t places, DType type) {
  const NodeId x = b.leaf(DType::Int64, {places}), at = b.cast(b.leaf(DType::Float32, {kCount}), type);
  const NodeId ones = b.broadcast(b.reshape(b.constant(DType::Int64, 1), {1}), {kCount});
  const NodeId out = b.add(Op::scatter, {x, at, ones}, ir::Scatter{0, Combine::Add});
  b.root(out);
  return out;
}

TEST(NarrowIndices, ComputedOnesTakeWhatTheirAxisNeeds) {
  for (const auto& [places, type] :
       {std::pair{std::int64_t{10}, DType::UInt8}, std::pair{std::int64_t{255}, DType::UInt8},
        std::pair{std::int64_t{256}, DType::UInt16}, std::pair{std::int64_t{65535}, DType::UInt16},
        std::pair{std::int64_t{65536}, DType::Int32}}) {
    GraphBuilder b;
    counts(b, places, DType::Int32);
    const auto expected = b.values();
    narrow_indices(b.graph);
    ir::verify(b.graph);
    EXPECT_EQ(b.graph[b.graph[b.graph.roots[0]].in[1]].dtype, type) << places;
    EXPECT_EQ(b.values(), expected) << places;
  }
}

/// In memory already, or wanted by somebody else.
TEST(NarrowIndices, OthersStay) {
  GraphBuilder leaf, shared;
  const NodeId x = leaf.leaf(DType::Int64, {10}), at = leaf.leaf(DType::Int32, {kCount});
  const NodeId ones = leaf.broadcast(leaf.reshape(leaf.constant(DType::Int64, 1), {1}), {kCount});
  leaf.root(leaf.add(Op::scatter, {x, at, ones}, ir::Scatter{0, Combine::Add}));
  narrow_indices(leaf.graph);
  EXPECT_EQ(leaf.graph[leaf.graph[leaf.graph.roots[0]].in[1]].op, Op::leaf);

  const NodeId out = counts(shared, 10, DType::Int64);
  shared.root(shared.graph[out].in[1]);
  narrow_indices(shared.graph);
  EXPECT_EQ(shared.graph[shared.graph[shared.graph.roots[0]].in[1]].dtype, DType::Int64);
}

}  // namespace
}  // namespace kiln::transform
