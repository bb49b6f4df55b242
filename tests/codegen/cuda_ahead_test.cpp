// CUDA C of kernels whose loads come before what is computed from them, and of what is prepared once for many
// elements.
#include "codegen/cuda_sources.h"

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Elements of all steps are loaded before the first is stored; whole blocks ask for no end.
TEST(CudaAhead, AMapOfElementsLoadsAheadOfItsStores) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {100000, 33}), y = b.leaf(f32, {100000, 33});
  b.root(b.add(Op::join, {x, y}, ir::Join{1}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  const std::size_t load = list[0].find("[k] = "), store = list[0].find("out2[");
  ASSERT_NE(load, std::string::npos) << list[0];
  EXPECT_LT(load, store);
  EXPECT_LT(list[0].find("#pragma unroll", load), store) << list[0];
  EXPECT_EQ(count(list[0], "if (i1 < n"), 1) << list[0];
  compiles(list);
}

/// The indices of all steps are loaded before the first vector that one of them chooses.
TEST(CudaAhead, IndicesComeBeforeTheVectorsThatTheyChoose) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::BFloat16, {524288, 32}), at = b.leaf(DType::Int32, {2097152});
  const GraphBuilder::Extents dims{2097152, 32};
  b.root(b.wide(Op::gather, DType::BFloat16, dims, {x, b.broadcast(b.reshape(at, {2097152, 1}), dims)},
                ir::Gather{0}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  const std::size_t index = list[0].find("[k] = in"), vector = list[0].find("load<8>(in");
  ASSERT_NE(index, std::string::npos) << list[0];
  EXPECT_LT(index, vector);
  EXPECT_LT(list[0].find("for (int k = 0;", index), vector) << "another loop over the steps\n" << list[0];
  compiles(list);
}

/// Threads go along rows in a block's memory by words, which are copied there by vectors.
TEST(CudaAhead, RowsOfABunchAreReadAndWrittenByWords) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{2097152, 32};
  const NodeId x = b.cast(b.leaf(DType::BFloat16, dims), f32);
  const NodeId most = b.reduce(Op::reduce_max, x, 2);
  b.root(b.cast(b.op(Op::divide, {x, b.broadcast(b.reshape(most, {2097152, 1}), dims)}), DType::BFloat16));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], "= load<8>(tile"), 3) << "two phases and the copy to memory\n" << list[0];
  EXPECT_EQ(count(list[0], " copy_beside<8>(tile"), 1) << "the copy from memory\n" << list[0];
  EXPECT_EQ(count(list[0], "store(tile"), 1) << "the results\n" << list[0];
  compiles(list);
}

/// Loops down few rows are written out, and the second takes what the first has loaded.
TEST(CudaAhead, ColumnsOfFewElementsAreLoadedOnce) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{7, 9571571};
  const NodeId x = b.cast(b.leaf(DType::Float16, dims), f32);
  const NodeId most = b.reduce(Op::reduce_max, x, 1);
  b.root(b.cast(b.op(Op::divide, {x, b.broadcast(b.reshape(most, {1, 9571571}), dims)}), DType::Float16));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], " = in0["), 1) << list[0];
  EXPECT_EQ(count(list[0], "for (int k = 0; k < 8; ++k)"), 3) << list[0];
  compiles(list);
}

/// Neighbours along a row are one load where all of them are there: of the vectors around a whole one.
TEST(CudaAhead, NeighboursAlongARowAreLoadedOnce) {
  GraphBuilder b;
  const GraphBuilder::Extents wide{64, 65540}, dims{64, 65536};
  const NodeId x = b.pad(b.leaf(DType::Float16, dims), b.constant(DType::Float16, 0), wide, {0, 1, 2, 1});
  NodeId most = b.slice(x, dims, {0, 1, 2, 1});
  for (const std::int64_t first : {0, 1, 3, 4})
    most = b.op(Op::maximum, {most, b.slice(x, dims, {0, 1, first, 1})});
  b.root(most);
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], "= load_around<8, -2, 2>("), 1) << list[0];
  EXPECT_EQ(count(list[0], "= load_any<8>("), 0) << list[0];
  EXPECT_EQ(count(list[0], "? load_any<8>("), 4) << "beside a border\n" << list[0];
  compiles(list);
}

/// What belongs to a row is found for the two rows that a vector has a part of, not for each lane; not where
/// rows are shorter than vectors.
TEST(CudaAhead, AVectorHasValuesOfTwoRowsAtMost) {
  for (const std::int64_t columns : {641, 9, 7}) {
    GraphBuilder b;
    const GraphBuilder::Extents dims{104001, columns};
    const NodeId x = b.leaf(DType::BFloat16, dims), rows = b.leaf(DType::BFloat16, {104001, 1});
    b.root(b.op(Op::add, {x, b.broadcast(rows, dims)}));
    const auto list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(list[0].find("(v < grows") != std::string::npos, columns > 8) << list[0];
    compiles(list);
  }
}

/// What divides whole columns is prepared once for each, not for each element.
TEST(CudaAhead, ADivisorOfEachColumnIsPreparedOnce) {
  for (const std::int64_t columns : {65536, 65537}) {
    GraphBuilder b;
    const GraphBuilder::Extents dims{300, columns};
    const NodeId x = b.leaf(f32, dims);
    b.root(b.op(Op::divide, {x, b.broadcast(b.reduce(Op::reduce_max, x, 1), dims)}));
    const auto list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], " = divisor("), 1) << list[0];
    compiles(list);
  }
}

/// Columns of single halves have as many loads in flight as their few bytes ask for. Positions take the
/// registers of these.
TEST(CudaAhead, ColumnsOfSingleHalvesHaveMoreLoadsInFlight) {
  const auto loads = [](DType type, Op op) {
    GraphBuilder b;
    b.root(b.reduce(op, b.leaf(type, {4000, 8191}), 1));
    const auto list = sources(b);
    EXPECT_EQ(list.size(), 1u);
    compiles(list);
    int most = 0;
    for (const int n : {4, 8, 16})
      if (list[0].find("#pragma unroll " + std::to_string(n) + "\n") != std::string::npos) most = n;
    return most;
  };
  EXPECT_EQ(loads(DType::Float16, Op::reduce_max), 16);
  EXPECT_EQ(loads(DType::Int8, Op::reduce_max), 16);
  EXPECT_EQ(loads(f32, Op::reduce_max), 8);
  EXPECT_LT(loads(DType::Float16, Op::reduce_argmax), 16);
}

/// The sum over k, or another reduction, of the lesser of x[i, k] and y[k, j].
std::vector<std::string> of_pairs(std::int64_t rows, std::int64_t columns, std::int64_t length,
                                  Op reduction = Op::reduce_sum) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{rows, columns, length};
  const NodeId x = b.leaf(f32, {rows, 1, length}), y = b.leaf(f32, {length, columns});
  const NodeId across = b.broadcast(b.reshape(b.permute(y, {1, 0}), {1, columns, length}), dims);
  b.root(b.reduce(reduction, b.op(Op::minimum, {b.broadcast(x, dims), across}), 4));
  return sources(b);
}

/// Results of pairs leave room for the loads of several iterations, which are one where rows are vectors, and
/// have narrow indices where none is wide.
TEST(CudaAhead, ResultsOfPairsAreComputedSeveralIterationsAtATime) {
  for (const std::int64_t length : {64, 61}) {
    const auto list = of_pairs(8192, 4096, length);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], "load<4>(in0"), length == 64 ? 8 : 0) << list[0];
    EXPECT_NE(list[0].find(length == 64 ? "for (int k = 0; k < 4; ++k)" : "#pragma unroll 4"),
              std::string::npos)
        << list[0];
    EXPECT_EQ(count(list[0], "int64 i"), 0) << list[0];
    EXPECT_EQ(count(list[0], " += least("), 8) << list[0];
    compiles(list);
  }
}

/// A half of the columns that come next is loaded while the other half is computed, where sums leave
/// registers for that.
TEST(CudaAhead, ColumnsOfPairsComeByHalves) {
  for (const Op reduction : {Op::reduce_max, Op::reduce_sum}) {
    const auto list = of_pairs(8192, 4096, 64, reduction);
    ASSERT_EQ(list.size(), 1u);
    const bool halves = reduction == Op::reduce_max;
    EXPECT_EQ(count(list[0], "for (int k = 2; k < 4; ++k)"), halves ? 2 : 0) << list[0];
    EXPECT_EQ(count(list[0], "load<4>(in1"), halves ? 3 : 1) << list[0];
    EXPECT_EQ(count(list[0], "__launch_bounds__(128, 4)"), halves ? 1 : 0) << list[0];
    compiles(list);
  }
}

/// A thread has as many results where columns begin anywhere: several columns of each row, a team's threads
/// apart, or where that would leave lanes idle as far apart as there are columns of a strip.
TEST(CudaAhead, ColumnsOfPairsThatBeginAnywhereAreTakenByStrips) {
  for (const std::int64_t columns : {5003, 100}) {
    const auto list = of_pairs(65536, columns, 64);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], " += least("), 32) << list[0];
    EXPECT_EQ(count(list[0], "load<4>(in0"), 8) << list[0];
    EXPECT_EQ(count(list[0], " + 96"), columns == 100 ? 0 : 1) << list[0];
    EXPECT_EQ(count(list[0], " = (3 * p"), columns == 100 ? 1 : 0) << list[0];
    compiles(list);
  }
}

/// Where nothing but a few results takes registers, more threads hide what each element is waited for.
TEST(CudaAhead, StripsOfPairsThatAddNothingHaveMoreThreads) {
  for (const Op reduction : {Op::reduce_max, Op::reduce_sum}) {
    const auto list = of_pairs(65536, 100, 64, reduction);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], "__launch_bounds__(128, 5)"), reduction == Op::reduce_max ? 1 : 0) << list[0];
  }
}

/// Of few columns, those of several rows share a warp: by strips where a thread combines many elements, or
/// where a strip's results fill what is stored together.
TEST(CudaAhead, FewColumnsOfPairsShareTheLanes) {
  struct Case {
    std::int64_t columns, length;
    int results, rows;
  };
  for (const Case& c :
       {Case{16, 64, 32, 8}, Case{37, 64, 32, 8}, Case{16, 8, 16, 16}, Case{37, 40, 32, 16}}) {
    const auto list = of_pairs(100000, c.columns, c.length);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], " += least("), c.results) << list[0];
    EXPECT_EQ(count(list[0], "load<4>(in0"), c.rows) << list[0];
    EXPECT_NE(list[0].find("__launch_bounds__(128"), std::string::npos) << list[0];
    compiles(list);
  }
}

/// Rows that begin anywhere are loaded and stored by the vectors of memory that they lie in; only their own
/// elements are combined.
TEST(CudaAhead, RowsThatBeginAnywhereGoByVectorsOfMemory) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{90000, 769};
  const NodeId x = b.leaf(DType::BFloat16, dims), wide = b.cast(x, f32),
               most = b.reduce(Op::reduce_max, b.op(Op::abs, {wide}), 2);
  const NodeId whole = b.op(Op::round, {b.op(Op::divide, {wide, b.broadcast(most, dims)})});
  b.root(b.cast(whole, DType::Int8));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("= load<8>(in0 + "), std::string::npos) << list[0];
  EXPECT_NE(list[0].find(", from, left);"), std::string::npos) << list[0];
  EXPECT_NE(list[0].find("if (v >= from && v < left) a"), std::string::npos) << list[0];
  EXPECT_NE(list[0].find("round_to<int8>("), std::string::npos) << list[0];
  compiles(list);
}

/// What an index chooses for all rows of a thread, and where it stores them, are addresses that it finds
/// once.
TEST(CudaAhead, RowsOfAThreadAreDistancesBehindOneAddress) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {100000, 20}), places = b.leaf(DType::Int32, {1, 45});
  b.root(b.wide(Op::gather, f32, {100000, 45}, {x, places}, ir::Gather{1}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], "auto* const q"), 2) << list[0];
  compiles(list);
}

}  // namespace
}  // namespace kiln::codegen
