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
    if (ir::is_scan(n.op) && n.dims.size() > dims.size()) return n.dims[how.axis];
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

/// Beside few others a chunk is what fits shared memory.
TEST(SplitScans, ChunksBesideFewFitSharedMemory) {
  const auto chunks = [](const GraphBuilder::Extents& dims, const ir::Scan& how) {
    return chunks_of(Op::scan_max, DType::Float32, dims, how,
                     {.wanted = 160, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256});
  };
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      EXPECT_EQ(chunks({1000, 6}, {0, exclusive, reverse}), 40);     // of 25: at most 32, rather a divisor
      EXPECT_EQ(chunks({3, 1009, 6}, {1, exclusive, reverse}), 32);  // a prime: the last one is filled up
      EXPECT_EQ(chunks({1000, 2}, {0, exclusive, reverse}), 40);
    }
  EXPECT_EQ(chunks({1000, 40}, {0, false, false}), 100);  // of 10: as many as there is room for
  EXPECT_EQ(chunks({1000, 128}, {0, false, false}), 1);   // no room
  EXPECT_EQ(chunks({16, 1000}, {1, false, false}), 1);    // along memory
}

/// A column of few bytes is never one thread's, however its chunks are read.
TEST(SplitScans, ColumnsOfFewBytesAreSplit) {
  for (const bool reverse : {false, true})
    for (const DType type : {DType::Float16, DType::Int8, DType::Int16})
      EXPECT_EQ(
          chunks_of(Op::scan_max, type, {1009, 3}, {0, false, reverse},
                    {.wanted = 160, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256}),
          16)
          << kiln::name(type) << reverse;
}

/// Totals are scanned in chunks, too, while one thread would take many.
TEST(SplitScans, ManyTotalsAreScannedInChunks) {
  GraphBuilder b;
  b.root(b.scan(Op::scan_min, b.leaf(DType::Float32, {20000, 2}), {0}));
  const auto before = b.values();
  split_scans(b.graph, {.wanted = 160, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256});
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values());
  std::vector<std::int64_t> extents;
  for (const ir::GraphNode& n : b.graph.nodes)
    if (ir::is_scan(n.op)) extents.push_back(n.dims[ir::attributes<ir::Scan>(n).axis]);
  EXPECT_EQ(extents, (std::vector<std::int64_t>{25, 25, 32}));
}

/// One kernel of the totals and of the scans would have to store the latter.
TEST(SplitScans, TotalsAreOfAConversionOfTheirOwn) {
  GraphBuilder b;
  b.root(b.scan(Op::scan_sum, b.cast(b.leaf(DType::UInt8, {1000, 6}), DType::UInt64), {0}));
  const auto before = b.values();
  split_scans(b.graph, {.wanted = 160, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256});
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values());
  EXPECT_EQ(std::ranges::count_if(b.graph.nodes, [](const auto& n) { return n.op == Op::cast; }), 2);
}

/// Of few chunks all but the last are read for their totals.
TEST(SplitScans, TheLastOfFewChunksHasNoTotal) {
  for (const bool reverse : {false, true})
    for (const std::int64_t extent : {1024, 1009}) {
      GraphBuilder b;
      b.root(b.scan(Op::scan_sum, b.leaf(DType::Float32, {extent, 20}), {0, false, reverse}));
      const auto before = b.values();
      split_scans(b.graph, {.wanted = 80, .least = 1, .least_extent = 1});
      ir::verify(b.graph);
      EXPECT_EQ(before, b.values());
      const auto sum =
          std::ranges::find_if(b.graph.nodes, [](const ir::GraphNode& n) { return ir::is_reduce(n.op); });
      ASSERT_NE(sum, b.graph.nodes.end());
      EXPECT_EQ(b.graph[sum->in[0]].numel, (extent + 3) / 4 * 3 * 20);
    }
}

/// Words have more under way than halves.
TEST(SplitScans, FewerScansOfWordsAreWhole) {
  const ScanCosts costs{.wanted = 120, .least = 1, .least_extent = 1};
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float16, {1024, 44}, {0}, costs), 2);
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {1024, 44}, {0}, costs), 1);
  EXPECT_EQ(chunks_of(Op::scan_max, DType::Float32, {1024, 20}, {0}, costs), 4);
}

/// One kernel makes them in chunks.
TEST(SplitScans, LongColumnsThatFillAWarpStay) {
  const ScanCosts costs{.wanted = 1600, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256};
  EXPECT_EQ(chunks_of(Op::scan_sum, DType::Float32, {1000, 64}, {0}, costs), 1);
  EXPECT_EQ(chunks_of(Op::scan_sum, DType::Float16, {2, 300, 96}, {1}, costs), 1);
  EXPECT_EQ(chunks_of(Op::scan_sum, DType::Float16, {2, 300, 30}, {1}, costs), 1);
  EXPECT_EQ(chunks_of(Op::scan_sum, DType::Float64, {3000}, {0}, costs), 1);      // nor a row
  EXPECT_GT(chunks_of(Op::scan_sum, DType::Int8, {2, 300, 30}, {1}, costs), 1);   // of few bytes
  EXPECT_GT(chunks_of(Op::scan_sum, DType::Float32, {200, 64}, {0}, costs), 1);   // short
  EXPECT_GT(chunks_of(Op::scan_sum, DType::Float32, {1000, 40}, {0}, costs), 1);  // many idle lanes
}

/// A chunk of values in parts takes as long for its totals as for its scan.
TEST(SplitScans, LongColumnsOfSumsOfExponentialsStayWhereTheyAreWholeLines) {
  const auto scans = [](std::int64_t across) {
    GraphBuilder b;
    b.root(b.scan(Op::scan_logaddexp, b.leaf(DType::Float16, {2, 300, across}), {1}));
    split_scans(b.graph,
                {.wanted = 16000, .least = 1, .least_extent = 1, .slab_bytes = 4096, .row_bytes = 256});
    ir::verify(b.graph);
    return std::ranges::count_if(b.graph.nodes, [](const auto& n) { return ir::is_scan(n.op); });
  };
  EXPECT_EQ(scans(64), 1);
  EXPECT_EQ(scans(30), 2);
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
