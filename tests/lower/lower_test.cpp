#include "lower/lower.h"
#include "lower/gpu_target.h"

#include "lower/lowered_graph.h"

#include <kiln/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i64 = DType::Int64;

schedule::Target target(int threads = 2) {
  schedule::Target t;
  t.threads = threads;
  t.vector_bytes = 64;
  return t;
}

/// Runs the builder's graph both ways; expects equal bytes (tests compute with integers).
std::vector<Form> check(GraphBuilder& b, int threads = 2) {
  const auto expected = b.values();
  const std::string before = ir::print(b.graph);
  LoweredGraph lowered(b, target(threads));
  EXPECT_EQ(lowered.values(), expected) << before << "became\n" << lowered.text();
  LoweredGraph on_gpu = lowered.on(gpu_target(132));
  EXPECT_EQ(on_gpu.values(), expected) << before << "became, for a GPU,\n" << on_gpu.text();
  return lowered.forms;
}

TEST(Lower, AMapIsOneFlatKernel) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {40, 300}), y = b.op(Op::add, {x, b.scalar(i64, 3)});
  b.root(b.op(Op::multiply, {y, y}));
  EXPECT_EQ(check(b), std::vector{Form::Flat});
}

/// The forms on a GPU, after the same check.
std::vector<Form> check_gpu(GraphBuilder& b) {
  const auto expected = b.values();
  const std::string before = ir::print(b.graph);
  LoweredGraph on_gpu = LoweredGraph(b, target()).on(gpu_target(132));
  EXPECT_EQ(on_gpu.values(), expected) << before << "became, for a GPU,\n" << on_gpu.text();
  return on_gpu.forms;
}

/// The same for a map whose kernel is in tiles for both.
void check_tiles(GraphBuilder& b) {
  const auto expected = b.values();
  const std::string before = ir::print(b.graph);
  LoweredGraph lowered(b, target());
  for (LoweredGraph& on : std::array{lowered, lowered.on(gpu_target(132))}) {
    EXPECT_EQ(on.values(), expected) << before << "became\n" << on.text();
    EXPECT_EQ(on.forms, std::vector{Form::Tiles}) << on.text();
  }
}

TEST(Lower, ReductionsRunAlongMemoryWhateverTheViewsBefore) {
  {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_sum, b.permute(b.leaf(i64, {3000, 40}), {1, 0}),
                    2));  // columns, as memory has them
    EXPECT_EQ(check_gpu(b), std::vector{Form::SplitColumns});
  }
  {
    GraphBuilder b;
    const NodeId rows =
        b.wide(Op::gather, i64, {600, 400}, {b.leaf(i64, {50, 400}), b.leaf(i64, {600, 1})}, ir::Gather{0});
    b.root(b.reduce(Op::reduce_sum, rows, 2));
    EXPECT_EQ(check_gpu(b), std::vector{Form::Rows});  // of gathered rows, which are anywhere
  }
}

/// Expects one kernel of a small GPU whose teams have four rows' results of two reductions each.
void check_rows_of_teams(GraphBuilder& b) {
  const auto expected = b.values();
  schedule::Target small = gpu_target(132);
  small.threads = 2;
  LoweredGraph lowered = LoweredGraph(b, target()).on(small);
  EXPECT_EQ(lowered.values(), expected) << lowered.text();
  EXPECT_EQ(lowered.forms, std::vector{Form::Rows});
  EXPECT_NE(lowered.text().find("reducing a4"), std::string::npos) << lowered.text();
}

/// What an index picks of a row once does not keep the row's reductions from sharing what they read with
/// other rows'.
TEST(Lower, RowsOfPairsOfWhichAnElementIsPickedShareATeam) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {303, 1}), y = b.leaf(i64, {1, 264});
  const NodeId pairs = b.op(Op::abs, {b.op(Op::subtract, {x, y})});
  const NodeId picked = b.wide(Op::gather, i64, {303, 1}, {pairs, b.leaf(i64, {303, 1})}, ir::Gather{1});
  const NodeId most = b.reduce(Op::reduce_max, pairs, 2);
  b.root(b.op(Op::subtract, {b.reduce(Op::reduce_sum, b.op(Op::minimum, {pairs, most}), 2), picked}));
  check_rows_of_teams(b);
}

/// The element at the position that a row's own reduction found, likewise.
TEST(Lower, RowsOfPairsWithTheElementAtTheirExtremeShareATeam) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {303, 1}), y = b.leaf(i64, {1, 264});
  const NodeId pairs = b.op(Op::abs, {b.op(Op::subtract, {x, y})});
  const NodeId at = b.reduce(Op::reduce_argmax, pairs, 2);
  b.root(b.wide(Op::gather, i64, {303, 1}, {pairs, at}, ir::Gather{1}));
  b.root(b.reduce(Op::reduce_argmin, b.op(Op::add, {pairs, at}), 2));
  check_rows_of_teams(b);
}

TEST(Lower, TransposedReadsGoThroughTiles) {
  for (const DType type : {DType::Int8, DType::Int16, DType::Int32, i64, DType::Bool})
    for (const auto& [rows, columns] :
         {std::pair{64, 128}, std::pair{70, 90}, std::pair{300, 5}, std::pair{129, 257}}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, {rows, columns}), y = b.leaf(type, {columns, rows});
      b.root(b.op(is_bool(type) ? Op::logical_xor : Op::add, {b.permute(x, {1, 0}), y}));
      check_tiles(b);
    }
}

TEST(Lower, OnAGpuTilesMayBeNarrow) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {4, 300}), y = b.leaf(i64, {300, 4});
  b.root(b.op(Op::add, {b.permute(x, {1, 0}), y}));
  EXPECT_EQ(check_gpu(b), std::vector{Form::Tiles});
}

/// Tiles that write parts of the same sectors of memory follow each other.
TEST(Lower, OnAGpuTilesGoAlongRowsThatAreNoWholeSectors) {
  for (const std::int64_t row : {40000, 40003}) {
    GraphBuilder b;
    b.root(b.op(Op::negative, {b.permute(b.leaf(DType::Int32, {row, 130}), {1, 0})}));
    const LoweredGraph on_gpu = checked(b, {gpu_target(132)}).front();
    EXPECT_EQ(on_gpu.forms, std::vector{Form::Tiles});
    const std::string columns = "let x1: i64 = (i0 - (x0 * p1)) * 64";
    EXPECT_EQ(on_gpu.text().find(columns) != std::string::npos, row == 40003) << on_gpu.text();
  }
}

/// A last axis too short for tiles: blocks that read the same sectors follow each other, where the second
/// cache would lose these meanwhile.
TEST(Lower, OnAGpuPartsBetweenWhichOperandsLieTakeTurns) {
  for (const std::int64_t row : {5, 2100000}) {
    GraphBuilder b;
    b.root(b.op(Op::negative, {b.permute(b.leaf(i64, {row, 3}), {1, 0})}));
    const LoweredGraph on_gpu = checked(b, {gpu_target(132)}).front();
    EXPECT_EQ(on_gpu.text().find("let x0: i64 = indexdiv(i0, p1)") != std::string::npos, row > 5)
        << on_gpu.text();
  }
}

TEST(Lower, TilesTakeSeveralShortAxesTogether) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {2, 3, 4, 2, 3, 2, 2, 4});
  b.root(b.op(Op::add, {b.permute(x, {7, 6, 5, 4, 3, 2, 1, 0}), b.scalar(DType::Int32, 1)}));
  check_tiles(b);
}

TEST(Lower, OperandsAcrossDifferentAxesShareAKernel) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {12, 20, 33}), y = b.leaf(i64, {33, 20, 12}), z = b.leaf(i64, {20, 33, 12});
  b.root(b.op(Op::add, {b.op(Op::multiply, {b.permute(x, {2, 1, 0}), y}), b.permute(z, {1, 0, 2})}));
  check_tiles(b);
}

TEST(Lower, OperandsOfDifferentWidthsCrossATile) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {70, 90}), y = b.leaf(DType::Int8, {70, 90});
  b.root(b.op(Op::add, {b.permute(x, {1, 0}), b.cast(b.permute(y, {1, 0}), DType::Int32)}));
  check_tiles(b);
}

TEST(Lower, TilesReadSlicesAndPaddedOperands) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {40, 30});
  const NodeId part = b.slice(x, {18, 14}, {2, 2, 1, 2});
  const NodeId wide = b.pad(part, b.scalar(i64, 7), {20, 20}, {1, 1, 3, 1});
  b.root(b.op(Op::add, {b.permute(wide, {1, 0}), b.leaf(i64, {20, 20})}));
  check_tiles(b);
}

TEST(Lower, ATransposedReadKeepsItsAxes) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {40, 30}), y = b.leaf(i64, {30, 40});
  b.root(b.op(Op::add, {b.permute(x, {1, 0}), y}));
  EXPECT_EQ(check(b), std::vector{Form::Tiles});
}

TEST(Lower, ARowReductionAndWhatFollowsIsOneKernel) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {20, 300});
  const NodeId centred = b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)});
  b.root(b.op(Op::subtract, {centred, b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2)}));
  EXPECT_EQ(check(b), std::vector{Form::Rows});
}

/// Running sums of i64 values along an axis, plus 1.
std::vector<Form> check_scan(const GraphBuilder::Extents& dims, std::size_t axis, ir::Scan how,
                             Op op = Op::scan_sum) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, dims), twice = b.op(Op::add, {x, x});
  how.axis = axis;
  b.root(b.op(Op::add, {b.scan(op, twice, how), b.scalar(i64, 1)}));
  return check(b);
}

constexpr ir::Scan kScans[] = {{0, false, false}, {0, true, false}, {0, false, true}, {0, true, true}};

TEST(Lower, AScanAlongRowsRunsOnLanes) {
  for (const ir::Scan& kind : kScans) {
    EXPECT_EQ(check_scan({20, 300}, 1, kind), std::vector{Form::Rows});
    EXPECT_EQ(check_scan({3, 5}, 1, kind, Op::scan_max), std::vector{Form::Rows});
  }
}

TEST(Lower, AScanDownColumnsRunsRowByRow) {
  for (const ir::Scan& kind : kScans) {
    EXPECT_EQ(check_scan({20, 77}, 0, kind), std::vector{Form::Columns});
    EXPECT_EQ(check_scan({600, 77}, 0, kind), std::vector{Form::Stripes});
    EXPECT_EQ(check_scan({2, 600, 77}, 1, kind, Op::scan_min), std::vector{Form::Stripes});
  }
}

TEST(Lower, ALongScanRunsInLinkedChunks) {
  for (const ir::Scan& kind : kScans) {
    EXPECT_EQ(check_scan({100000}, 0, kind), std::vector{Form::Chain});
    EXPECT_EQ(check_scan({100000}, 0, kind, Op::scan_prod), std::vector{Form::Chain});
  }
  for (const ir::Scan& kind : kScans) {  // rows of chunks, more threads than rows
    GraphBuilder b;
    const GraphBuilder::Extents dims{3, 40000};
    b.root(b.scan(Op::scan_sum, b.leaf(i64, dims), {1, kind.exclusive, kind.reverse}));
    EXPECT_EQ(check(b, 8), std::vector{Form::Chain});
  }
}

/// On a GPU whose lanes have columns, where these are long and few.
TEST(Lower, AScanDownLongColumnsRunsInLinkedChunksOnAGpu) {
  const auto form = [](const GraphBuilder::Extents& dims, const ir::Scan& kind, Op op) {
    GraphBuilder b;
    b.root(b.op(Op::add, {b.scan(op, b.leaf(i64, dims), kind), b.scalar(i64, 1)}));
    return check_gpu(b);
  };
  for (const ir::Scan& kind : kScans) {
    EXPECT_EQ(form({700, 77}, kind, Op::scan_sum), std::vector{Form::Chain});
    EXPECT_EQ(form({2500, 64}, kind, Op::scan_max), std::vector{Form::Chain});
    EXPECT_EQ(form({3, 300, 32}, {1, kind.exclusive, kind.reverse}, Op::scan_sum), std::vector{Form::Chain});
    EXPECT_NE(form({200, 64}, kind, Op::scan_sum), std::vector{Form::Chain});
    EXPECT_NE(form({700, 40}, kind, Op::scan_sum), std::vector{Form::Chain});
  }
}

/// A GPU takes rows of this length in chunks, and one kernel for both: the second scan's totals need the
/// first one's values.
TEST(Lower, AScanOfALongScanIsNotCutIntoChunks) {
  for (const GraphBuilder::Extents& dims : {GraphBuilder::Extents{70000}, GraphBuilder::Extents{3, 70000}}) {
    GraphBuilder b;
    const std::size_t axis = dims.size() - 1;
    const NodeId inner = b.scan(Op::scan_sum, b.leaf(i64, dims), {axis});
    b.root(b.scan(Op::scan_max, b.op(Op::add, {inner, b.scalar(i64, 1)}), {axis, true}));
    EXPECT_EQ(check_gpu(b), std::vector{Form::Rows});
  }
}

/// The values of float32 graphs, which other orders of additions change in the last bits.
void expect_near(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); i += sizeof(float)) {
    float x, y;
    std::memcpy(&x, &a[i], sizeof(float));
    std::memcpy(&y, &b[i], sizeof(float));
    if (x != y) ASSERT_NEAR(x, y, 1e-5f * std::max(1.0f, std::abs(y))) << i / sizeof(float);
  }
}

/// On a GPU, which has such scans begin with the value that is combined with each of theirs.
TEST(Lower, AScanBeginsWithWhatComesBeforeIt) {
  constexpr DType f32 = DType::Float32;
  for (const ir::Scan& kind : kScans)
    for (const std::int64_t rows : {200, 300})  // of a thread, and in chunks
      for (const bool first : {true, false}) {
        GraphBuilder b;
        const NodeId x = b.leaf(f32, {rows, 77}), before = b.broadcast(b.leaf(f32, {1, 77}), {rows, 77}),
                     scan = b.scan(Op::scan_logaddexp, x, {0, kind.exclusive, kind.reverse});
        b.root(first ? b.op(Op::logaddexp, {before, scan}) : b.op(Op::logaddexp, {scan, before}));
        const auto expected = b.values();
        LoweredGraph on_gpu = LoweredGraph(b, target()).on(gpu_target(132));
        expect_near(on_gpu.values()[0], expected[0]);
        EXPECT_TRUE(on_gpu.begins_behind) << on_gpu.text();
      }
}

TEST(Lower, AScanThatIsReadTwiceOrFollowsWhatChangesBeginsWithNothing) {
  constexpr DType f32 = DType::Float32;
  for (const bool twice : {true, false}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {200, 77}), scan = b.scan(Op::scan_logaddexp, x, {0}),
                 before = twice ? b.broadcast(b.leaf(f32, {1, 77}), {200, 77}) : b.leaf(f32, {200, 77});
    const NodeId joined = b.op(Op::logaddexp, {before, scan});
    b.root(twice ? b.op(Op::add, {joined, scan}) : joined);
    const auto expected = b.values();
    LoweredGraph on_gpu = LoweredGraph(b, target()).on(gpu_target(132));
    expect_near(on_gpu.values()[0], expected[0]);
    EXPECT_FALSE(on_gpu.begins_behind) << on_gpu.text();
  }
}

/// What comes before a chunk is no more merged into each value either.
TEST(Lower, ALongLogcumsumexpBeginsEachChunkWithWhatComesBefore) {
  for (const ir::Scan& kind : kScans) {
    GraphBuilder b;
    b.root(b.scan(Op::scan_logaddexp, b.leaf(DType::Float32, {70000}), kind));
    const auto expected = b.values();
    LoweredGraph on_gpu(b, gpu_target(132));
    EXPECT_EQ(on_gpu.forms, std::vector{Form::Chain});
    expect_near(on_gpu.values()[0], expected[0]);
    EXPECT_TRUE(on_gpu.begins_behind) << on_gpu.text();
  }
}

TEST(Lower, AColumnReductionRunsAcrossRows) {
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_sum, b.leaf(i64, {30, 77}), 1));
  EXPECT_EQ(check(b), std::vector{Form::Columns});
}

TEST(Lower, ALongReductionIsSplit) {
  for (Op op : {Op::reduce_sum, Op::reduce_min, Op::reduce_argmax, Op::reduce_argmin}) {
    GraphBuilder b;
    b.root(b.op(Op::add, {b.reduce(op, b.leaf(i64, {1, 40000}), 2), b.scalar(i64, 1)}));
    EXPECT_EQ(check(b), std::vector{Form::Split});
  }
}

TEST(Lower, ALongReductionIsSplitAlsoWhenWhatItReducesIsStored) {
  GraphBuilder b;
  const NodeId doubled = b.op(Op::add, {b.leaf(i64, {40000}), b.scalar(i64, 1)});
  b.root(doubled);
  b.root(b.reduce(Op::reduce_sum, doubled, 1));
  EXPECT_EQ(check(b), std::vector{Form::Split});
}

TEST(Lower, ALongColumnReductionIsSplit) {
  for (Op op : {Op::reduce_sum, Op::reduce_argmax}) {
    GraphBuilder b;
    b.root(b.reduce(op, b.leaf(i64, {9000, 8}), 1));
    EXPECT_EQ(check(b), std::vector{Form::SplitColumns});
  }
}

TEST(Lower, ATallColumnReductionRunsInStripesAndChunks) {
  for (Op op : {Op::reduce_sum, Op::reduce_min, Op::reduce_argmax, Op::reduce_argmin}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i64, {300, 150});
    const NodeId best = b.reduce(op, x, 1);
    b.root(b.op(Op::add, {best, best}));
    EXPECT_EQ(check(b), std::vector{Form::Stripes});
  }
}

TEST(Lower, DependentColumnReductionsRunInStripes) {
  for (Op op : {Op::reduce_max, Op::reduce_argmax}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i64, {2, 90, 210});
    const NodeId centred = b.op(Op::subtract, {x, b.reduce(op, x, 2)});
    b.root(b.op(Op::multiply, {centred, b.reduce(Op::reduce_sum, centred, 2)}));
    EXPECT_EQ(check(b), std::vector{Form::Stripes});
  }
}

TEST(Lower, ShortLastAxesShareTheLanes) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {9, 31, 3}), channel = b.leaf(i64, {3}), column = b.leaf(i64, {31, 1});
  b.root(b.op(Op::multiply, {b.op(Op::add, {x, channel}), column}));
  EXPECT_EQ(check(b), std::vector{Form::Rows});
}

TEST(Lower, RowsShorterThanTheLanesLieAcrossThem) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {500, 3});
  b.root(b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)}));
  EXPECT_EQ(check(b), std::vector{Form::Columns});
}

TEST(Lower, BakedConstantsNeedNoSlot) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {5}), one = b.reduce(Op::reduce_prod, b.leaf(i64, {5, 0}), 2);
  b.root(b.op(Op::add, {x, b.reshape(one, {5})}));
  b.root(one);
  check(b);
}

TEST(Lower, PadsReadNothingOutsideTheirBodies) {
  GraphBuilder c;
  const NodeId y = c.leaf(i64, {6, 7});
  const NodeId p = c.pad(y, c.scalar(i64, 9), {13, 9}, {1, 2, 2, 1});
  c.root(c.op(Op::add, {p, c.slice(p, {13, 9}, {12, -1, 8, -1})}));
  check(c);
}

TEST(Lower, RegionsThatDifferInSizesOnlyGiveEqualKernels) {
  const auto key = [](std::int64_t rows, std::int64_t columns) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {rows, columns});
    b.root(b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)}));
    const plan::Regions regions = plan::fuse(b.graph, target());
    EXPECT_EQ(regions.regions.size(), 1u);
    return kernel::hash(lower(b.graph, regions, regions.regions[0], target()).kernel);
  };
  EXPECT_EQ(key(100, 1000), key(213, 777));    // in the second cache
  EXPECT_EQ(key(1000, 1000), key(513, 1777));  // beyond it
}

// ---- random graphs ----

class RandomGraph {
 public:
  RandomGraph(unsigned seed, bool large) : rng_(seed) {
    static const Extents kLarge[] = {{40000},   {1, 20000},   {2, 20, 1000},
                                     {9000, 4}, {3000, 2, 4}, {2, 17000, 1}};
    for (int i = 0; i < 2; ++i) values_.push_back(b.leaf(i64, large ? kLarge[pick(6)] : random_extents()));
    const int nodes = large ? 2 + pick(4) : 4 + pick(14);
    for (int i = 0; i < nodes; ++i) values_.push_back(next());
    b.root(values_.back());
    for (NodeId id : values_) {
      if (b.graph[id].op == Op::leaf || b.graph[id].held) continue;
      if (pick(6) == 0)
        b.root(id);
      else
        b.graph[id].held = pick(4) == 0;
    }
  }

  GraphBuilder b;

 private:
  using Extents = GraphBuilder::Extents;

  int pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  std::int64_t extent() {
    static constexpr std::int64_t kExtents[] = {1, 2, 3, 4, 5, 7, 8, 17};
    return kExtents[pick(8)];
  }
  Extents random_extents() {
    Extents dims(static_cast<std::size_t>(1 + pick(3)));
    for (auto& d : dims) d = extent();
    return dims;
  }
  NodeId any() { return values_[static_cast<std::size_t>(pick(static_cast<int>(values_.size())))]; }

  bool fits(NodeId small, NodeId big) const {
    const auto s = b.graph[small].dims, d = b.graph[big].dims;
    if (s.size() > d.size()) return false;
    for (std::size_t i = 0; i < s.size(); ++i)
      if (s[i] != 1 && s[i] != d[d.size() - s.size() + i]) return false;
    return true;
  }
  NodeId partner(NodeId x) {
    for (int tries = 0; tries < 8; ++tries)
      if (const NodeId y = any(); fits(y, x)) return y;
    return pick(2) ? x : b.scalar(i64, static_cast<std::uint64_t>(pick(9)));
  }

  NodeId next() {
    const NodeId x = any();
    const Extents dims = b.extents(x);
    switch (pick(12)) {
      case 0:
      case 1:
      case 2: {
        static constexpr Op kOps[] = {Op::add, Op::subtract, Op::multiply, Op::maximum, Op::minimum};
        const NodeId y = partner(x);
        return b.wide(kOps[pick(5)], i64, dims, {x, y});
      }
      case 3: {
        const NodeId y = partner(x);
        return b.wide(Op::where, i64, dims, {b.wide(Op::less, DType::Bool, dims, {x, y}), y, x});
      }
      case 4: return b.cast(b.cast(x, DType::Int16), i64);
      case 5: {
        const auto axis = static_cast<std::uint64_t>(pick(static_cast<int>(dims.size())));
        return b.wide(Op::add, i64, dims, {x, b.iota(i64, dims, axis)});
      }
      case 6: return reshaped(x);
      case 7: return permuted(x);
      case 8: return sliced(x);
      case 9: return padded(x);
      default: return reduced(x);
    }
  }
  NodeId reshaped(NodeId x) {
    Extents dims = b.extents(x);
    if (dims.size() > 1 && pick(2)) {
      const auto at = static_cast<std::size_t>(pick(static_cast<int>(dims.size()) - 1));
      dims[at] *= dims[at + 1];
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    } else if (dims.size() < 4) {
      const auto at = static_cast<std::size_t>(pick(static_cast<int>(dims.size())));
      const std::int64_t part = dims[at] % 2 == 0 ? 2 : 1;
      dims[at] /= part;
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), part);
    }
    return b.reshape(x, dims);
  }
  NodeId permuted(NodeId x) {
    Extents axes(b.graph[x].dims.size());
    for (std::size_t a = 0; a < axes.size(); ++a) axes[a] = static_cast<std::int64_t>(a);
    std::shuffle(axes.begin(), axes.end(), rng_);
    return b.permute(x, axes);
  }
  NodeId sliced(NodeId x) {
    Extents dims = b.extents(x), attrs;
    for (auto& d : dims) {
      const bool back = pick(3) == 0;
      const std::int64_t step = 1 + pick(2), first = pick(static_cast<int>(std::min<std::int64_t>(d, 3)));
      attrs.push_back(back ? d - 1 - first : first);
      attrs.push_back(back ? -step : step);
      d = (d - first + step - 1) / step;
    }
    return b.slice(x, dims, attrs);
  }
  NodeId padded(NodeId x) {
    Extents dims = b.extents(x), attrs;
    for (auto& d : dims) {
      const std::int64_t low = pick(2), step = 1 + (pick(4) == 0);
      attrs.push_back(low);
      attrs.push_back(step);
      d = low + step * (d - 1) + 1 + pick(2);
    }
    const NodeId fill = pick(2) ? b.scalar(i64, 7) : b.iota(i64, dims, 0);
    return b.pad(x, fill, dims, attrs);
  }
  NodeId reduced(NodeId x) {
    static constexpr Op kOps[] = {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod,
                                  Op::reduce_argmax};
    const auto masks = 1 << b.graph[x].dims.size();
    const NodeId r = b.reduce(kOps[pick(5)], x, static_cast<std::uint64_t>(1 + pick(masks - 1)));
    if (pick(2)) return r;
    return b.wide(Op::subtract, i64, b.extents(x), {x, r});
  }

  std::mt19937 rng_;
  std::vector<NodeId> values_;
};

TEST(Lower, RandomGraphsEqualTheOracle) {
  for (unsigned seed = 0; seed < 1600; ++seed) {
    RandomGraph r(seed, seed >= 1500);
    SCOPED_TRACE(seed);
    ir::verify(r.b.graph);
    try {
      check(r.b, 1 + static_cast<int>(seed % 3));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    if (HasFailure()) break;
  }
}

/// Positions have half the bits on a CPU's lanes, unless there are too many.
TEST(Lower, PositionsAreNarrowWhereTheyFit) {
  for (const bool many : {false, true}) {
    const std::int64_t length = many ? std::int64_t{1} << 32 : 1000;
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_argmax, b.leaf(DType::Int8, {length, 3}), 1));
    for (const schedule::Target& t : {target(), gpu_target(132)}) {
      const plan::Regions regions = plan::fuse(b.graph, t);
      const Lowered lowered = lower(b.graph, regions, regions.regions.front(), t);
      ASSERT_FALSE(lowered.kernel.accs.empty());
      for (const kernel::AccDecl& a : lowered.kernel.accs)
        EXPECT_EQ(a.narrow, (a.monoid == kernel::Monoid::ArgMax) && !many && !t.gpu);
    }
  }
}

}  // namespace
}  // namespace kiln::lower
