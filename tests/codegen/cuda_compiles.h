// That NVRTC accepts sources of kernels.
#pragma once

#include "codegen/other_targets.h"
#include "device/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace kiln::codegen {

/// NVRTC accepts these sources for every architecture that it knows, of these: optimised for sm_90 or,
/// without that, for the last one, and with KILN_TEST_LONG for all.
inline void compiles(const std::vector<std::string>& list,
                     const std::vector<int>& architectures = testing::kCudaArchitectures) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const int optimised = std::ranges::count(architectures, 90) != 0 ? 90 : architectures.back();
  std::vector<testing::CudaJob> quick;
  for (const std::string& source : list)
    for (const int number : architectures) {
      if (std::ranges::count(cuda::nvrtc().architectures, number) == 0) continue;
      if (number != optimised)
        quick.push_back({{source, {}}, number});
      else
        EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {number / 10, number % 10})) << source;
    }
  for (const std::string& wrong : testing::compile_cuda_quickly(quick)) ADD_FAILURE() << wrong;
}

}  // namespace kiln::codegen
