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

NodeId scan(GraphBuilder& b, Op op, NodeId x, std::uint64_t axis) {
  const NodeId s = b.wide(op, b.graph[x].dtype, b.extents(x), {x});
  b.graph[s].attr64 = axis;
  return s;
}

TEST(CudaC, ScansAlongRowsOfAnyLength) {
  for (const GraphBuilder::Extents& dims : {GraphBuilder::Extents{5000, 6}, {300, 20}, {300, 301}, {64, 5000}, {1, 1 << 20}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, dims), twice = b.op(Op::add, {x, x});
    b.root(b.op(Op::multiply, {scan(b, Op::scan_sum, twice, 1), x}));
    b.root(scan(b, Op::scan_max, b.leaf(DType::Int8, dims), 1 | ir::kExclusive));
    compiles(sources(b));
  }
}

TEST(CudaC, ScansDownColumnsAndBesideReductions) {
  GraphBuilder b;
  b.root(scan(b, Op::scan_prod, b.leaf(DType::Float64, {70, 1000}), 0));
  const NodeId x = b.leaf(f32, {1000, 700}), c = scan(b, Op::scan_sum, x, 1), most = scan(b, Op::scan_max, c, 1);
  b.root(b.op(Op::subtract, {most, b.reduce(Op::reduce_max, c, 2)}));
  compiles(sources(b));
}

TEST(CudaC, ALoopIsOneElementsOwn) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{1000, 40};
  const auto state = [&](NodeId init) { return b.wide(Op::loop_state, b.graph[init].dtype, dims, {init}); };
  const NodeId s = state(b.leaf(f32, dims)), count = state(b.constant(DType::Int32, 0, dims));
  const NodeId go = b.op(Op::greater, {s, b.constant(f32, 0x3f800000)});
  const NodeId first = b.wide(Op::loop_next, DType::Bool, {}, {s, b.op(Op::sqrt, {s})});
  const NodeId both = b.wide(Op::loop_next, DType::Bool, {}, {count, b.op(Op::add, {count, b.constant(DType::Int32, 1)}), first});
  const NodeId result = b.wide(Op::loop_result, DType::Int32, dims, {b.wide(Op::loop, DType::Bool, {}, {both, go})});
  b.root(b.op(Op::add, {result, result}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("for (;;)"), std::string::npos);
  compiles(list);
}

TEST(CudaC, AScanWithABodyStoresInEachIteration) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {50, 1000}), zero = b.constant(DType::Int64, 0);
  const NodeId carry = b.wide(Op::loop_state, f32, {1000}, {b.constant(f32, 0, {1000})});
  const NodeId i = b.wide(Op::loop_state, DType::Int64, {}, {zero});
  const NodeId row = b.reshape(b.wide(Op::gather, f32, {1, 1000}, {x, b.reshape(i, {1, 1})}), {1000});
  const NodeId next = b.op(Op::maximum, {carry, row});
  const NodeId yield = b.wide(Op::loop_yield, DType::Bool, {}, {next});
  const NodeId first = b.wide(Op::loop_next, DType::Bool, {}, {carry, next, yield});
  const NodeId both = b.wide(Op::loop_next, DType::Bool, {}, {i, b.op(Op::add, {i, b.constant(DType::Int64, 1)}), first});
  const NodeId loop = b.wide(Op::loop, DType::Bool, {}, {both, b.op(Op::less, {i, b.constant(DType::Int64, 50)})});
  b.graph[loop].attr64 = 50;
  b.root(b.wide(Op::loop_stack, f32, {50, 1000}, {loop}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].find("wrap_mul"), std::string::npos) << "the count is an index";
  compiles(list);
}

}  // namespace
}  // namespace kiln::codegen
