// CUDA C of the shared loop IR: what the text of a few kernels must and must not contain, and that NVRTC accepts it for
// every architecture.
#include "codegen/cuda_c.h"

#include "backend/cuda/nvrtc.h"
#include "lower/lowered_graph.h"

#include <cstdlib>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;

schedule::Target gpu() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 132;
  return t;
}

std::vector<std::string> sources(GraphBuilder& b) {
  const ir::Graph g = transform::transform(std::move(b.graph)).graph;
  const plan::Regions regions = plan::fuse(g, gpu());
  std::vector<std::string> out;
  for (const plan::Region& r : regions.regions) {
    const lower::Lowered l = lower::lower(g, regions, r, gpu());
    kernel::verify(l.kernel);
    out.push_back(emit_cuda(l.kernel, "kiln_test"));
    if (std::getenv("KILN_TEST_PRINT")) std::printf("%s\n%s\n", kernel::print(l.kernel).c_str(), out.back().c_str());
  }
  return out;
}

void compiles(const std::vector<std::string>& list) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const std::string& source : list)
    for (int number : cuda::nvrtc().architectures)
      EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {number / 10, number % 10})) << source;
}

TEST(CudaC, AMapLoadsWholeVectorsBeforeItComputes) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1000, 1001}), y = b.leaf(f32, {1000, 1001});
  b.root(b.op(Op::add, {b.op(Op::exp, {x}), y}));
  compiles(sources(b));
}

TEST(CudaC, ANormReadsItsRowOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {64, 4096});
  const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)})});
  b.root(b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)}));
  compiles(sources(b));
}

TEST(CudaC, ASoftmaxOfHalves) {
  GraphBuilder b;
  const NodeId x = b.cast(b.leaf(DType::BFloat16, {16384, 4096}), f32);
  const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)})});
  b.root(b.cast(b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)}), DType::BFloat16));
  const auto list = sources(b);
  EXPECT_EQ(list.size(), 1u);
  compiles(list);
}

TEST(CudaC, ALayerNorm) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {32768, 2048}), n = b.constant(f32, 0x45000000);  // 2048
  const NodeId centred = b.op(Op::subtract, {x, b.op(Op::divide, {b.reduce(Op::reduce_sum, x, 2), n})});
  const NodeId variance = b.op(Op::divide, {b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2), n});
  const NodeId y = b.op(Op::multiply, {centred, b.op(Op::rsqrt, {b.op(Op::add, {variance, b.scalar(f32, 0x3727c5ac)})})});
  b.root(b.op(Op::add, {b.op(Op::multiply, {y, b.leaf(f32, {2048})}), b.leaf(f32, {2048})}));
  const auto list = sources(b);
  EXPECT_EQ(list.size(), 1u);
  compiles(list);
}

TEST(CudaC, FullReduction) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1 << 20});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
  compiles(sources(b));
}

TEST(CudaC, AColumnIsDividedByItsSum) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {512, 4096});
  b.root(b.op(Op::divide, {x, b.reduce(Op::reduce_sum, x, 1)}));
  compiles(sources(b));
}

TEST(CudaC, ColumnReduction) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {4096, 512});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
  b.root(b.reduce(Op::reduce_argmax, b.leaf(f32, {8, 4096}), 1));
  compiles(sources(b));
}

}  // namespace
}  // namespace kiln::codegen
