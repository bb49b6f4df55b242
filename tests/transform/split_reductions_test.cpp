#include "transform/split_reductions.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

const ReductionCosts kCosts{.run_bytes = 32, .launch_bytes = 0, .held = 1000};

/// The masks of the reductions that a reduction becomes, operand first.
std::vector<std::uint64_t> masks_of(const GraphBuilder::Extents& dims, std::uint64_t mask,
                                    DType dtype = DType::Float32, const ReductionCosts& costs = kCosts,
                                    Op op = Op::reduce_max) {
  GraphBuilder b;
  b.root(b.reduce(op, b.leaf(dtype, dims), mask));
  const auto before = b.values();
  const bool splits = is_split(b.graph, b.graph.roots.front(), costs);
  split_reductions(b.graph, costs);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  std::vector<std::uint64_t> masks;
  for (const ir::GraphNode& n : b.graph.nodes)
    if (ir::is_reduce(n.op)) masks.push_back(ir::attributes<ir::Reduce>(n).mask);
  EXPECT_EQ(splits, masks.size() > 1);
  return masks;
}

using Masks = std::vector<std::uint64_t>;

TEST(SplitReductions, AxesWithShortRunsBehindThemComeFirst) {
  EXPECT_EQ(masks_of({100, 12, 3}, 0b101), (Masks{0b001, 0b100}));
  EXPECT_EQ(masks_of({5, 100, 12, 3}, 0b1010), (Masks{0b0010, 0b1000}));
  EXPECT_EQ(masks_of({50, 4, 40, 3}, 0b0101), (Masks{0b0001, 0b0100}));
  EXPECT_EQ(masks_of({50, 1, 12, 1, 3}, 0b11001), (Masks{0b00001, 0b11000}));
}

TEST(SplitReductions, WhatReadsWholeRunsStays) {
  EXPECT_EQ(masks_of({100, 12, 8}, 0b101), (Masks{0b101}));  // 32 bytes next to each other
  EXPECT_EQ(masks_of({100, 12, 3}, 0b011), (Masks{0b011}));  // one run of axes
  EXPECT_EQ(masks_of({100, 12, 3}, 0b110), (Masks{0b110}));
  EXPECT_EQ(masks_of({2, 1000, 6}, 0b101), (Masks{0b101}));  // half as many results between
  EXPECT_EQ(masks_of({100, 1, 3}, 0b101), (Masks{0b101}));   // nothing between the axes
  EXPECT_EQ(masks_of({100, 12, 3}, 0b101, DType::Float32, {32, 1e9, 0}),
            (Masks{0b101}));  // a launch costs more
}

// Axes of (100, 12, 3), permuted: the operand's order decides.
TEST(SplitReductions, OfPermutedOperandsTheMemoryIsSplit) {
  for (const bool whole_runs : {false, true}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {100, 12, whole_runs ? 8 : 3});
    b.root(b.reduce(Op::reduce_max, b.permute(x, {2, 0, 1}), 0b011));
    const auto before = b.values();
    split_reductions(b.graph, kCosts);
    ir::verify(b.graph);
    EXPECT_EQ(before, b.values()) << ir::print(b.graph);
    Masks masks;
    for (const ir::GraphNode& n : b.graph.nodes)
      if (ir::is_reduce(n.op)) masks.push_back(ir::attributes<ir::Reduce>(n).mask);
    EXPECT_EQ(masks, whole_runs ? (Masks{0b011}) : (Masks{0b001, 0b100})) << ir::print(b.graph);
  }
}

// Where a kernel has the axes inside a reduced one on its lanes.
TEST(SplitReductions, WhatAKernelFoldsStays) {
  ReductionCosts costs = kCosts;
  costs.folded = 36;
  costs.items = 5;
  EXPECT_EQ(masks_of({5, 100, 12, 3}, 0b1010, DType::Float32, costs), (Masks{0b1010}));
  EXPECT_EQ(masks_of({4, 100, 12, 3}, 0b1010, DType::Float32, costs), (Masks{0b0010, 0b1000}));
  EXPECT_EQ(masks_of({5, 100, 13, 3}, 0b1010, DType::Float32, costs), (Masks{0b0010, 0b1000}));
}

TEST(SplitReductions, ShortRowsComeFirstWhereTheyAreTurned) {
  ReductionCosts costs = kCosts;
  const auto masks = [&](const GraphBuilder::Extents& dims) {
    return masks_of(dims, 0b1010, DType::Float16, costs, Op::reduce_sum);
  };
  EXPECT_EQ(masks({9, 2, 100, 5}), (Masks{0b0010, 0b1000}));
  costs.turned = 5;
  EXPECT_EQ(masks({9, 2, 100, 5}), (Masks{0b1000, 0b0010}));
  EXPECT_EQ(masks({9, 20, 100, 5}), (Masks{0b0010, 0b1000})) << "fewer results between";
  costs.turned = 4;
  EXPECT_EQ(masks({9, 2, 100, 5}), (Masks{0b0010, 0b1000})) << "long rows";
  costs.turned = 5;
  costs.folded = 1000;
  EXPECT_EQ(masks({9, 4, 100, 5}), (Masks{0b1010})) << "a kernel folds";
  EXPECT_EQ(masks({9, 2, 100, 5}), (Masks{0b1000, 0b0010})) << "too few points to be folded";
}

TEST(SplitReductions, PositionsStay) {
  EXPECT_EQ(masks_of({100, 12, 3}, 0b101, DType::Float32, kCosts, Op::reduce_argmax), (Masks{0b101}));
}

TEST(SplitReductions, RowsThatAreHeldAndReadAgainStay) {
  for (const std::int64_t held : {0, 1000}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {100, 12, 4});
    const NodeId top = b.broadcast(b.reduce(Op::reduce_max, x, 0b101), {100, 12, 4});
    b.root(b.op(Op::subtract, {x, top}));
    split_reductions(b.graph, {.run_bytes = 32, .launch_bytes = 0, .held = held});
    EXPECT_EQ(std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                            [](const auto& n) { return ir::is_reduce(n.op); }),
              held ? 1 : 2);
  }
}

/// On a CPU what is near is in memory, too: short runs take their time whenever they are read.
TEST(SplitReductions, ShortRunsThatAreReadAgainAreSplit) {
  for (const bool read_again : {false, true}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float16, {4096, 32, 16});
    const NodeId top = b.broadcast(b.reduce(Op::reduce_max, x, 0b101), {4096, 32, 16});
    b.root(b.op(Op::subtract, {x, top}));
    split_reductions(b.graph,
                     {.run_bytes = 64, .launch_bytes = 0, .held = 1 << 17, .read_again = read_again});
    EXPECT_EQ(std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                            [](const auto& n) { return ir::is_reduce(n.op); }),
              read_again ? 2 : 1);
  }
}

TEST(SplitReductions, HalvesAreAddedUpAsFloats) {
  GraphBuilder b;
  const NodeId sum = b.reduce(Op::reduce_sum, b.leaf(DType::Float16, {100, 12, 3}), 0b101);
  b.root(sum);
  split_reductions(b.graph, kCosts);
  ir::verify(b.graph);
  EXPECT_EQ(b.graph[b.graph.roots[0]].dtype, DType::Float16);
  for (const ir::GraphNode& n : b.graph.nodes)
    if (ir::is_reduce(n.op)) {
      EXPECT_EQ(n.dtype, DType::Float32);
    }
}

// Where a kernel keeps columns of which adjacent ones have a result together, of values that lie so.
TEST(SplitReductions, GroupsOfColumnsThatAKernelKeepsStay) {
  ReductionCosts costs = kCosts;
  costs.keeps_groups = [](const ReductionCosts::Columns& c) {
    return c.items == 5 && c.rows == 50 && c.columns == 36 && c.together == 3 && c.bytes == 4;
  };
  const auto reductions = [&](std::int64_t rows, bool sliced, bool read_again) {
    GraphBuilder b;
    const GraphBuilder::Extents dims = {5, rows, 12, 3};
    const NodeId x = sliced
                         ? b.slice(b.leaf(DType::Float32, {5, rows, 12, 4}), dims, {0, 1, 0, 1, 0, 1, 0, 1})
                         : b.leaf(DType::Float32, dims);
    const NodeId most = b.reduce(Op::reduce_max, x, 0b1010);
    b.root(read_again ? b.op(Op::subtract, {x, b.broadcast(b.reshape(most, {5, 1, 12, 1}), dims)}) : most);
    split_reductions(b.graph, costs);
    return std::ranges::count_if(b.graph.nodes, [](const ir::GraphNode& n) { return ir::is_reduce(n.op); });
  };
  EXPECT_EQ(reductions(50, false, true), 1);
  EXPECT_EQ(reductions(51, false, true), 2);
  EXPECT_EQ(reductions(50, true, true), 2);
  EXPECT_EQ(reductions(50, false, false), 2);
}

}  // namespace
}  // namespace kiln::transform
