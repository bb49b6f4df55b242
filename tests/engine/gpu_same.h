// A fixture for plans of tensors that a GPU and a CPU run.
#pragma once

#include "device/cuda/cuda_test.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace kiln::testing {

class GpuSame : public CudaTest {
 protected:
  /// Small whole numbers, so that every order of additions gives the same.
  static Tensor numbers(const Shape& shape, DType type, int step = 37) {
    std::vector<float> v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(i * static_cast<std::size_t>(step) % 61) - 30;
    return Tensor::from(v, shape).astype(type).eval();
  }

  /// The program, which makes its own arguments, has the same values on the GPU and on the CPU.
  static void same(const std::function<Tensor()>& program) {
    const auto run = [&] { return program().astype(DType::Float32).to_vector<float>(); };
    const std::vector<float> here = run();
    Config c = config();
    c.device = "cpu";
    const ScopedConfig scope(c);
    EXPECT_EQ(here, run());
  }
};

}  // namespace kiln::testing
