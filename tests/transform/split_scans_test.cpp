#include "transform/split_scans.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// Splits the scan over the axis; whether values stay, and how many chunks there are (1: it is whole).
std::int64_t chunks_of(Op op, DType dtype, const GraphBuilder::Extents& dims, const ir::Scan& how,
                       const ScanCosts& costs) {
  GraphBuilder b;
  b.root(b.scan(op, b.leaf(dtype, dims), how));
  const auto before = b.values();
  split_scans(b.graph, costs);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  EXPECT_EQ(b.graph[b.graph.roots[0]].dtype, dtype);
  for (const ir::GraphNode& n : b.graph.nodes)
    if (ir::is_reduce(n.op)) return n.dims[how.axis];
  return 1;
}

TEST(SplitScans, EveryKindInEveryDirection) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true})
      for (const std::int64_t extent : {96, 97, 127})
        for (std::size_t axis : {0, 1}) {
          SCOPED_TRACE(testing::Message() << exclusive << reverse << extent << axis);
          GraphBuilder::Extents dims = {2, 2, 8};
          dims[axis] = extent;
          const ir::Scan how{axis, exclusive, reverse};
          const ScanCosts costs{.wanted = 48, .least = 1, .least_extent = 1};
          for (const Op op : {Op::scan_sum, Op::scan_max, Op::scan_min})
            EXPECT_GT(chunks_of(op, DType::Float64, dims, how, costs), 1);
          for (const DType t : {DType::Int32, DType::UInt8, DType::Int64})
            EXPECT_GT(chunks_of(Op::scan_min, t, {dims[0], dims[1], 32}, how,
                                {.wanted = 192, .least = 1, .least_extent = 1}),
                      1);
        }
}

TEST(SplitScans, ChunksRatherDivideTheExtent) {
  const auto chunks = [](std::int64_t extent) {
    return chunks_of(Op::scan_max, DType::Float32, {extent, 16}, {0},
                     {.wanted = 160, .least = 1, .least_extent = 1});
  };
  EXPECT_EQ(chunks(1000), 10);
  EXPECT_EQ(chunks(900), 10);
  EXPECT_EQ(chunks(896), 8);
  EXPECT_EQ(chunks(907), 10);  // a prime: the last chunk is filled up
}

TEST(SplitScans, WhatIsBusyOrShortStays) {
  const ScanCosts costs{.wanted = 160, .least = 1000, .least_extent = 100};
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {200, 160}, {0}, costs), 1);  // enough of them
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {200, 4}, {0}, costs), 1);    // few elements
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {90, 16}, {0}, costs), 1);    // a short axis
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {16, 200}, {1}, costs), 1);   // along memory
  EXPECT_GT(chunks_of(Op::scan_max, DType::Float32, {200, 16}, {0}, costs), 1);
}

}  // namespace
}  // namespace kiln::transform
