// What a CUDA test needs, or it is skipped by name.
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/nvrtc.h"

#include <gtest/gtest.h>

/// Skips the test where kernels cannot be compiled.
#define KILN_REQUIRE_NVRTC() \
  if (!::kiln::cuda::nvrtc().available) GTEST_SKIP() << "no CUDA compiler: " << ::kiln::cuda::nvrtc().reason

/// Skips the test where kernels cannot be compiled and run.
#define KILN_REQUIRE_GPU() \
  KILN_REQUIRE_NVRTC();    \
  if (!::kiln::cuda::available()) GTEST_SKIP() << "NO GPU, NOT TESTED: " << ::kiln::cuda::driver().reason
