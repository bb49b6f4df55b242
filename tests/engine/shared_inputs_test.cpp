// Products of the same rows in plans of a GPU: those that meet at the same points are made side by side in
// one kernel, others share a launch.
#include "counted.h"
#include "device/cuda/require.h"
#include "engine/plan.h"
#include "modes.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace kiln {
namespace {

using test::count;
using test::data;
using testing::ModeScope;

class GpuSharedInputs : public ::testing::Test {
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
      const ModeScope scope(Mode::Interpret);
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

  static Tensor halves(const Shape& shape, int seed = 0, DType type = DType::BFloat16) {
    return astype(data(shape, DType::Float32, seed) * 0.25, type).eval();
  }
  static Tensor bytes(const Shape& shape, int seed) {
    return astype(round(data(shape, DType::Float32, seed) * 25), DType::Int8).eval();
  }

  const Config before_ = config();
};

TEST_F(GpuSharedInputs, GateAndUpOfFewRows) {
  for (const std::int64_t rows : {1, 11}) {
    SCOPED_TRACE(rows);
    const Tensor x = halves({rows, 264}), g = halves({264, 256}, 1), u = halves({264, 256}, 2);
    expect_launches([&] { return std::vector{silu(matmul(x, g)) * matmul(x, u)}; }, 1);
  }
  const Tensor x = halves({2, 1, 272}), g = halves({251, 272}, 1), u = halves({251, 272}, 2),
               bias = halves({251}, 3);
  expect_launches(
      [&] {
        const Tensor up = matmul(x, matrix_transpose(u)) + bias;
        return std::vector{up * sigmoid(matmul(x, matrix_transpose(g))), up};
      },
      1);
}

TEST_F(GpuSharedInputs, GateAndUpOfBytes) {
  const Tensor x = halves({3, 272}), g = bytes({250, 272}, 1), u = bytes({250, 272}, 2),
               scale = halves({250, 1}, 4), other = halves({250, 1}, 5);
  const auto made = [](const Tensor& w, const Tensor& s) {
    return matrix_transpose(astype(w, DType::BFloat16) * s * 0.25);
  };
  expect_launches([&] { return std::vector{silu(matmul(x, made(g, scale))) * matmul(x, made(u, other))}; },
                  1);
  // one of bytes, one of halves
  const Tensor w = halves({250, 272}, 6);
  expect_launches(
      [&] { return std::vector{silu(matmul(x, made(g, scale))) * matmul(x, matrix_transpose(w))}; }, 0);
  // lines along the columns
  const Tensor a = bytes({272, 256}, 1), b = bytes({272, 256}, 2), row = halves({256}, 3);
  expect_launches(
      [&] {
        const Tensor up = matmul(x, astype(a, DType::BFloat16) * row);
        return std::vector{silu(matmul(x, astype(b, DType::BFloat16) * row)) * up};
      },
      0);
}

TEST_F(GpuSharedInputs, QueriesKeysAndValuesOfFewRows) {
  const Tensor x = halves({5, 264}), q = halves({264, 512}, 1), k = halves({264, 256}, 2),
               v = halves({264, 264}, 3), bias = halves({512}, 4), tile = halves({5, 264}, 5);
  expect_launches(
      [&] {
        return std::vector{relu(matmul(x, q) + bias), matmul(x, k),
                           astype(matmul(x, v) * 0.5, DType::Float32) + tile};
      },
      1);
  const Tensor y = halves({1, 272}, 1, DType::Float16), a = halves({251, 272}, 1, DType::Float16),
               b = halves({263, 272}, 2, DType::Float16);
  expect_launches(
      [&] {
        return std::vector{matmul(y, matrix_transpose(a)), exp(matmul(y, matrix_transpose(b)) * 0.125)};
      },
      1);
}

TEST_F(GpuSharedInputs, QueriesAndKeysOfBytes) {
  const Tensor x = halves({2, 272}), q = bytes({264, 272}, 1), k = bytes({248, 272}, 2),
               scale = halves({264, 1}, 4), other = halves({248, 1}, 5);
  expect_launches(
      [&] {
        return std::vector{matmul(x, matrix_transpose(astype(q, DType::BFloat16) * scale)),
                           matmul(x, matrix_transpose(astype(k, DType::BFloat16) * other)) * 0.5};
      },
      1);
}

TEST_F(GpuSharedInputs, WhatDependsOnTheOtherWaits) {
  const Tensor x = halves({2, 264}), a = halves({264, 264}, 1), b = halves({264, 256}, 2);
  expect_launches(
      [&] {
        const Tensor y = matmul(x, a);
        return std::vector{y, matmul(x, b) * sum(astype(y, DType::Float32), {0, 1})};
      },
      0);
  expect_launches(
      [&] {
        const Tensor y = matmul(x, a);
        return std::vector{matmul(y, b), matmul(x, b)};
      },
      2);
}

TEST_F(GpuSharedInputs, SideBySideByTheCopyEngine) {
  engine::prefer_templates(true);
  for (const bool lines_of_k : {true, false}) {
    SCOPED_TRACE(lines_of_k);
    const Tensor x = halves({2, 130, 72}), g = halves(lines_of_k ? Shape{136, 72} : Shape{72, 136}, 1),
                 u = halves(lines_of_k ? Shape{136, 72} : Shape{72, 136}, 2);
    const auto shown = [&](const Tensor& w) { return lines_of_k ? matrix_transpose(w) : w; };
    expect_launches([&] { return std::vector{silu(matmul(x, shown(g))) * matmul(x, shown(u))}; }, 1);
  }
  engine::prefer_templates(false);
}

}  // namespace
}  // namespace kiln
