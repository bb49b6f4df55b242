// That NVRTC accepts sources of kernels.
#pragma once

#include "codegen/other_targets.h"
#include "device/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace kiln::codegen {

/// NVRTC accepts these sources for every architecture that it knows, of these: optimised for sm_90 or,
/// without that, for the last one, and with KILN_TEST_LONG for all. For the others its assembler takes them
/// as they come. (Once NVRTC's own optimisation is turned off, by --device-debug or --Ofast-compile, what it
/// compiles later in the same process is another code, too, and spills.)
inline void compiles(const std::vector<std::string>& list,
                     const std::vector<int>& architectures = testing::kCudaArchitectures) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const int optimised = std::ranges::count(architectures, 90) != 0 ? 90 : architectures.back();
  for (const std::string& source : list)
    for (int number : architectures) {
      if (std::ranges::count(cuda::nvrtc().architectures, number) == 0) continue;
      cuda::CompileOptions options;
      if (number != optimised && !std::getenv("KILN_TEST_LONG"))
        options.extra.emplace_back("--ptxas-options=-O0");
      EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {number / 10, number % 10}, options)) << source;
    }
}

}  // namespace kiln::codegen
