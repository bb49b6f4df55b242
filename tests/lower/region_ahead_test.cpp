// What loads ask for ahead: by which bytes, and of which operands.
#include "lower/lowered_graph.h"
#include "schedule/two_threads.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// No phase but the last has time to fetch the rows that come next, and it knows how far they are.
TEST(RegionAhead, TheLastPhaseThatReadsARowAsksForALaterOne) {
  for (const bool stored : {false, true}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int64, {20, 300});
    const NodeId centred = b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)});
    b.root(stored ? centred : b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2));
    const auto expected = b.values();
    schedule::Target t = schedule::two_threads();
    t.stream_bytes = t.l2_bytes = 1;
    LoweredGraph lowered(b, t);
    EXPECT_EQ(lowered.values(), expected) << lowered.text();
    const std::string text = lowered.text();
    std::size_t plain = 0, ahead = 0;
    for (std::size_t at = 0; (at = text.find("\nin", at)) != std::string::npos; ++at) {
      const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
      plain += line.find("stream") == std::string::npos;
      ahead += line.find("ahead") != std::string::npos;
    }
    EXPECT_EQ(plain, 1u) << text;
    EXPECT_EQ(ahead, 1u) << text;
  }
}

/// The bytes that the loads of a graph's only region ask for ahead; none where they do not.
std::vector<std::int64_t> bytes_ahead(const GraphBuilder& b, const schedule::Target& t) {
  const plan::Regions regions = plan::fuse(b.graph, t);
  EXPECT_EQ(regions.regions.size(), 1u);
  const Lowered lowered = lower(b.graph, regions, regions.regions[0], t);
  std::vector<std::int64_t> out;
  for (const kernel::BufferDecl& d : lowered.kernel.buffers)
    if (d.role == kernel::BufferDecl::Role::In && d.ahead_param >= 0)
      out.push_back(lowered.params[static_cast<std::size_t>(d.ahead_param)]);
  return out;
}

/// Columns that go down several rows, one vector after the other: each asks for the lines of the next.
TEST(RegionAhead, ColumnsAskForTheNextColumns) {
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_logaddexp, b.leaf(DType::Float32, {29, 40000}), 1));
  const schedule::Target t = schedule::two_threads();
  const std::vector<std::int64_t> ahead = bytes_ahead(b, t);
  ASSERT_EQ(ahead.size(), 1u);
  EXPECT_GE(ahead[0], 64);
  EXPECT_LT(ahead[0], 40000 * 4);
}

/// Results of less than stream_bytes are stored through the caches; loads from beyond the second cache wait
/// all the same.
TEST(RegionAhead, ItemsOfRowsAskForTheNextWhereTheSecondCacheDoesNotHoldThem) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {4000, 33}), bias = b.leaf(DType::Float32, {33});
  b.root(b.op(Op::add, {x, bias}));
  schedule::Target t = schedule::two_threads();
  const std::int64_t bytes = 4000 * 33 * 4;
  ASSERT_LT(bytes, t.stream_bytes);
  t.l2_bytes = bytes;
  EXPECT_EQ(bytes_ahead(b, t).size(), 1u);
  t.l2_bytes = bytes + 1;
  EXPECT_TRUE(bytes_ahead(b, t).empty());
}

/// Large results go past the caches, unless the last cache holds them and what they are made of: an operand
/// that is read twice counts once.
TEST(RegionAhead, ResultsThatTheLastCacheHoldsAreStoredThroughTheCaches) {
  GraphBuilder b;
  constexpr std::int64_t kBytes = 4096 * 64 * 4;
  const NodeId x = b.leaf(DType::Float32, {4096, 64});
  b.root(b.op(Op::add, {b.op(Op::multiply, {x, x}), x}));
  const plan::Regions regions = plan::fuse(b.graph, schedule::two_threads());
  ASSERT_EQ(regions.regions.size(), 1u);
  const auto streams = [&](std::int64_t last_cache, std::int64_t stream) {
    schedule::Target t = schedule::two_threads();
    t.last_cache_bytes = last_cache;
    t.stream_bytes = stream;
    const Lowered lowered = lower(b.graph, regions, regions.regions[0], t);
    return std::ranges::any_of(lowered.kernel.buffers, [](const kernel::BufferDecl& d) {
      return d.role == kernel::BufferDecl::Role::Out && d.stream;
    });
  };
  EXPECT_TRUE(streams(0, kBytes));
  EXPECT_TRUE(streams(2 * kBytes, kBytes));
  EXPECT_FALSE(streams(2 * kBytes + 1, kBytes));
  EXPECT_FALSE(streams(0, kBytes + 1));
}

/// The elements of a group of channels are runs, and those of the next group lie beside them.
TEST(RegionAhead, RowsOfRunsAskForTheRowsAmongThem) {
  GraphBuilder b;
  constexpr std::int64_t kRun = 32 * 4, kGroups = 8;
  const NodeId x = b.leaf(DType::Float32, {40, 50, kGroups, 32});
  b.root(b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2 | 8)}));
  schedule::Target t = schedule::two_threads();
  t.l2_bytes = 1;
  const std::vector<std::int64_t> ahead = bytes_ahead(b, t);
  ASSERT_EQ(ahead.size(), 1u);
  EXPECT_GT(ahead[0], 0);
  EXPECT_EQ(ahead[0] % kRun, 0);
  EXPECT_LE(ahead[0], kGroups * kRun);
}

/// Stripes of columns are read whole by each phase; what the one before asked for is far by then.
TEST(RegionAhead, EachPhaseOfStripesAsksForItsRows) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {600, 20000});
  b.root(b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 1)}));
  const plan::Regions regions = plan::fuse(b.graph, schedule::two_threads());
  ASSERT_EQ(regions.regions.size(), 1u);
  const Lowered lowered = lower(b.graph, regions, regions.regions[0], schedule::two_threads());
  for (const kernel::BufferDecl& d : lowered.kernel.buffers)
    EXPECT_TRUE(d.role != kernel::BufferDecl::Role::In || d.ahead_param >= 0);
  EXPECT_EQ(LoweredGraph(b, schedule::two_threads()).forms, std::vector{schedule::Form::Stripes});
}

/// Of a narrow stripe's rows, which begin anywhere in a line, many lines would go past the caches in parts.
TEST(RegionAhead, NarrowStripesOfSuchRowsGoThroughTheCaches) {
  for (const int threads : {2, 128}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {1310, 6151});
    b.root(b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 1)}));
    schedule::Target t = schedule::two_threads();
    t.threads = threads;
    t.vector_bytes = 64;
    t.stream_bytes = 1 << 20;
    const plan::Regions regions = plan::fuse(b.graph, t);
    ASSERT_EQ(regions.regions.size(), 1u);
    const Lowered lowered = lower(b.graph, regions, regions.regions[0], t);
    for (const kernel::BufferDecl& d : lowered.kernel.buffers)
      EXPECT_TRUE(d.role != kernel::BufferDecl::Role::Out || d.ragged == (threads == 2)) << threads;
  }
}

}  // namespace
}  // namespace kiln::lower
