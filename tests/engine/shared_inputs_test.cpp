// Products of the same rows in plans of a GPU: those that meet at the same points are made side by side in
// one kernel, others share a launch.
#include "engine/gpu_products.h"
#include "engine/plan.h"

namespace kiln {
namespace {

using test::data;

class GpuSharedInputs : public test::GpuProducts {
 protected:
  static Tensor halves(const Shape& shape, int seed = 0, DType type = DType::BFloat16) {
    return astype(data(shape, DType::Float32, seed) * 0.25, type).eval();
  }
  /// Scales that no rounding of weights feels: a product may multiply its sums by them instead.
  static Tensor powers(const Shape& shape, int seed) {
    return astype(exp2(round(data(shape, DType::Float32, seed) * 2)), DType::BFloat16).eval();
  }
  static Tensor bytes(const Shape& shape, int seed) {
    return astype(round(data(shape, DType::Float32, seed) * 25), DType::Int8).eval();
  }
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
               scale = powers({250, 1}, 4), other = powers({250, 1}, 5);
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
  const Tensor a = bytes({272, 256}, 1), b = bytes({272, 256}, 2), row = powers({256}, 3);
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
               scale = powers({264, 1}, 4), other = powers({248, 1}, 5);
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

/// Calls of the epilogue follow each other then, whatever it reads and stores.
TEST_F(GpuSharedInputs, WholeTilesByTheCopyEngine) {
  engine::prefer_templates(true);
  const Tensor x = halves({256, 72}), g = halves({72, 256}, 1), u = halves({72, 256}, 2),
               row = halves({256}, 3), tile = halves({256, 256}, 4);
  const auto gated = [&] { return silu(matmul(x, g) + row) * matmul(x, u); };
  expect_launches([&] { return std::vector{gated()}; }, 1);
  expect_launches([&] { return std::vector{gated() + tile}; }, 1);
  expect_launches([&] { return std::vector{gated(), astype(gated(), DType::Float32) * 2.0}; }, 1);
  expect_launches([&] { return std::vector{relu(matmul(x, g) * row)}; }, 1);
  expect_launches([&] { return std::vector{matmul(x, g) + arange(256).astype(DType::BFloat16)}; }, 1);
  engine::prefer_templates(false);
}

}  // namespace
}  // namespace kiln
