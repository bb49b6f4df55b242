// Programs of products on a GPU, by launches and against the interpreter.
#pragma once

#include "counted.h"
#include "device/cuda/require.h"
#include "modes.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <vector>

namespace kiln::test {

class GpuProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
    Config c = before_;
    c.device = "cuda";
    c.tier = Tier::Jit;  // waits for the main loop
    configure(c);
  }
  void TearDown() override { configure(before_); }

  /// Evaluates in as many launches without a library call; 0: however.
  static void expect_launches(const std::function<std::vector<Tensor>()>& program, std::uint64_t launches) {
    std::vector<std::vector<double>> expected;
    {
      const testing::ModeScope scope(Mode::Interpret);
      for (const Tensor& t : program())
        expected.push_back(astype(t, DType::Float64).eval().to_vector<double>());
    }
    std::vector<Tensor> out;
    const auto counted = count([&] {
      out = program();
      eval(std::span<const Tensor>(out));
    });
    if (launches > 0) {
      EXPECT_EQ(counted.launches, launches);
      EXPECT_EQ(counted.library_calls, 0u);
    }
    for (std::size_t t = 0; t < out.size(); ++t) {
      const std::vector<double> got = astype(out[t], DType::Float64).eval().to_vector<double>();
      ASSERT_EQ(got.size(), expected[t].size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[t][i], 0.02 * (1 + std::abs(expected[t][i])))
            << "element " << i << " of result " << t;
    }
  }
  static void expect_launches(const std::function<Tensor()>& program, std::uint64_t launches) {
    expect_launches([&] { return std::vector{program()}; }, launches);
  }

 private:
  const Config before_ = config();
};

}  // namespace kiln::test
