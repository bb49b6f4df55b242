// The fixture of tests whose tensors live on a GPU.
#pragma once

#include "device/cuda/require.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

namespace kiln::testing {

/// Skips where there is no GPU. A SetUp() of its own calls this one, and returns if IsSkipped().
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    Config c = before_;
    c.device = "cuda";
    configure(c);
  }
  void TearDown() override { configure(before_); }

  /// What a program gives on the CPU.
  template <class Program>
  static auto on_cpu(const Program& program) {
    Config c = config();
    c.device = "cpu";
    const ScopedConfig scope(c);
    return program();
  }

  const Config before_ = config();
};

}  // namespace kiln::testing
