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

/// Results of pairs leave room for the loads of several iterations, and have narrow indices where none is
/// wide.
TEST(CudaAhead, ResultsOfPairsAreComputedSeveralIterationsAtATime) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{8192, 4096, 64};
  const NodeId x = b.leaf(f32, {8192, 1, 64}), y = b.leaf(f32, {64, 4096});
  const NodeId columns = b.broadcast(b.reshape(b.permute(y, {1, 0}), {1, 4096, 64}), dims);
  b.root(b.reduce(Op::reduce_sum, b.op(Op::minimum, {b.broadcast(x, dims), columns}), 4));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("#pragma unroll 4"), std::string::npos) << list[0];
  EXPECT_EQ(count(list[0], "int64 i"), 0) << list[0];
  EXPECT_GT(count(list[0], " += least("), 0) << list[0];
  compiles(list);
}

}  // namespace
}  // namespace kiln::codegen
