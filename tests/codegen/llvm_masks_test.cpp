// Without registers of masks only the last vector of a loop has masks.
#include "codegen/llvm_ir_text.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kiln {
namespace {

using testing::count_of;
using testing::llvm_ir_of;

/// Values and positions of columns are read and written in memory, a vector at a time.
TEST(LlvmMasks, WholeVectorsOfALargeBodyHaveNone) {
  KILN_NEEDS_CPU();
  const std::vector<std::string> targets = testing::cpu_targets();
  if (std::ranges::find(targets, "avx2") == targets.end()) GTEST_SKIP() << "no AVX2";
  const Tensor x = (arange(0, 2000 * 150, 1, DType::Int64) * 37 % 1009).astype(DType::Float32);
  const std::string ir = llvm_ir_of(argmax(x.reshape({2000, 150}), 0), "avx2");
  EXPECT_GT(count_of(ir, "load <8 x i32>, ptr %[0-9]+, align 4"), 0) << ir;
  EXPECT_GT(count_of(ir, "load <8 x float>, ptr %[0-9]+, align 4"), 0) << ir;
}

}  // namespace
}  // namespace kiln
