// Scans in chunks (form Chain) in CUDA C: what a block's threads exchange fits static shared memory, whatever
// the type and however many scans share a kernel.
#include "codegen/cuda_sources.h"

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;

/// For one architecture: static shared memory has the same 48 KiB on all.
void fits(const GraphBuilder& b) {
  for (const std::string& source : sources(b)) {
    EXPECT_NE(source.find("ColumnTotals<"), std::string::npos) << source;
    EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {9, 0})) << source;
  }
}

TEST(CudaChains, ColumnsOfEveryTypeFitSharedMemory) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const DType type : {DType::UInt8, DType::Float16}) {
    GraphBuilder b;
    b.root(b.scan(Op::scan_sum, b.leaf(type, {3000, 512}), {0}));
    fits(b);
  }
  for (const DType type : {DType::Float16, DType::Float64}) {  // a value has two parts
    GraphBuilder b;
    b.root(b.scan(Op::scan_logaddexp, b.leaf(type, {3000, 512}), {0}));
    fits(b);
  }
}

TEST(CudaChains, ScansOfSeveralKindsShareTheirMemory) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {3000, 512});
  const NodeId both = b.op(Op::add, {b.scan(Op::scan_sum, x, {0}), b.scan(Op::scan_max, x, {0})});
  b.root(b.op(Op::multiply, {both, b.scan(Op::scan_logaddexp, x, {0})}));
  fits(b);
}

}  // namespace
}  // namespace kiln::codegen
