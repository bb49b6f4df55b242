#include "transform/share_reductions.h"

#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;
constexpr double kLaunch = 1024;      // bytes
constexpr std::int64_t kHeld = 4096;  // elements

/// The axes of all reductions, in order.
std::vector<std::uint64_t> masks(const GraphBuilder& b) {
  std::vector<std::uint64_t> all;
  for (const auto& n : b.graph.nodes)
    if (ir::is_reduce(n.op)) all.push_back(ir::attributes<ir::Reduce>(n).mask);
  return all;
}

std::vector<std::uint64_t> shared(GraphBuilder& b) {
  const auto expected = b.values();
  share_reductions(b.graph, kLaunch, kHeld);
  ir::verify(b.graph);
  EXPECT_EQ(b.values(), expected);
  return masks(b);
}

TEST(ShareReductions, AllOfAnArrayGoesOnFromItsRows) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {64, 32});
  b.root(b.reduce(Op::reduce_max, x, 2));
  b.root(b.reduce(Op::reduce_max, b.op(Op::abs, {x}), 3));
  EXPECT_EQ(shared(b), (std::vector<std::uint64_t>{2, 2, 1}));
}

/// Neither has the axes of the other: both begin with those in common.
TEST(ShareReductions, CommonAxesComeFirst) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {5, 32, 7}), y = b.leaf(f32, {5, 32, 7});
  b.root(b.reduce(Op::reduce_max, b.op(Op::multiply, {x, y}), 3));
  b.root(b.reduce(Op::reduce_min, b.op(Op::add, {y, x}), 6));
  EXPECT_EQ(shared(b), (std::vector<std::uint64_t>{2, 1, 2, 4}));
}

/// What is made of them reads the rows once more, wherever it is computed.
TEST(ShareReductions, LongRowsAreReadOnceForAllThatIsSpreadOverThem) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {8, 8192});
  const NodeId rows = b.broadcast(b.reduce(Op::reduce_max, x, 2), {8, 8192}),
               all = b.broadcast(b.reduce(Op::reduce_max, x, 3), {8, 8192});
  b.root(b.op(Op::multiply, {b.op(Op::subtract, {x, rows}), all}));
  EXPECT_EQ(shared(b), (std::vector<std::uint64_t>{2, 2, 1}));
}

TEST(ShareReductions, OthersStay) {
  const auto stays = [](const std::vector<std::uint64_t>& expected, auto fill) {
    GraphBuilder b;
    fill(b);
    EXPECT_EQ(shared(b), expected);
  };
  stays({1, 2}, [](GraphBuilder& b) {  // nothing in common
    const NodeId x = b.leaf(f32, {64, 32});
    for (const std::uint64_t axes : {1, 2}) b.root(b.reduce(Op::reduce_max, x, axes));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // other memory
    b.root(b.reduce(Op::reduce_max, b.leaf(f32, {64, 32}), 2));
    b.root(b.reduce(Op::reduce_max, b.leaf(f32, {64, 32}), 3));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // one is made of the other
    const NodeId x = b.leaf(f32, {64, 32});
    const NodeId most = b.broadcast(b.reduce(Op::reduce_max, x, 2), {64, 32});
    b.root(b.reduce(Op::reduce_max, b.op(Op::subtract, {x, most}), 3));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // one is what rows are divided by, in a kernel with it
    const NodeId x = b.leaf(f32, {64, 32});
    b.root(b.op(Op::subtract, {x, b.broadcast(b.reduce(Op::reduce_max, x, 2), {64, 32})}));
    b.root(b.reduce(Op::reduce_max, x, 3));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // as much would be left
    const NodeId x = b.leaf(f32, {256, 3});
    for (const std::uint64_t axes : {2, 3}) b.root(b.reduce(Op::reduce_max, x, axes));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // a position needs its value
    const NodeId x = b.leaf(f32, {64, 32});
    b.root(b.reduce(Op::reduce_max, x, 2));
    b.root(b.reduce(Op::reduce_argmax, x, 3));
  });
  stays({2, 3}, [](GraphBuilder& b) {  // another kernel takes longer
    const NodeId x = b.leaf(f32, {4, 16});
    for (const std::uint64_t axes : {2, 3}) b.root(b.reduce(Op::reduce_max, x, axes));
  });
}

/// Sums of halves go on from floats.
TEST(ShareReductions, PartsOfHalvesAreFloats) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::BFloat16, {64, 32});
  b.root(b.reduce(Op::reduce_max, x, 2));
  b.root(b.reduce(Op::reduce_sum, x, 3));
  share_reductions(b.graph, kLaunch, kHeld);
  ir::verify(b.graph);
  EXPECT_EQ(masks(b), (std::vector<std::uint64_t>{2, 2, 1}));
  EXPECT_EQ(std::ranges::count_if(b.graph.nodes, [](const auto& n) { return n.op == Op::cast; }), 2);
}

}  // namespace
}  // namespace kiln::transform
