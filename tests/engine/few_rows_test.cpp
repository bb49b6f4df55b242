// Products of few rows in plans of a GPU: one launch that reads the weights once, and makes them on the way
// of what memory has of them, where that is one array and little beside it.
#include "engine/gpu_products.h"

#include <kiln/int4.h>

namespace kiln {
namespace {

using test::data;

class GpuFewRows : public test::GpuProducts {
 protected:
  static Tensor halves(const Shape& shape, int seed = 0, DType type = DType::BFloat16) {
    return astype(data(shape, DType::Float32, seed) * 0.5, type).eval();
  }
  /// Scales that no rounding of weights feels: a product may multiply its sums by them instead.
  static Tensor powers(const Shape& shape, int seed) {
    return astype(exp2(round(data(shape, DType::Float32, seed) * 2)), DType::BFloat16).eval();
  }
  static Tensor bytes(const Shape& shape, DType type = DType::Int8) {
    return astype(round(data(shape, DType::Float32, 3) * 50 + (type == DType::UInt8 ? 128 : 0)), type).eval();
  }
};

TEST_F(GpuFewRows, ReadTheirWeightsOnce) {
  for (const std::int64_t rows : {1, 5, 16}) {
    SCOPED_TRACE(rows);
    const Tensor x = halves({rows, 264}), w = halves({264, 256}, 1), bias = halves({256}, 2);
    expect_launches([&] { return relu(matmul(x, w) + bias); }, 1);
  }
  const Tensor x = halves({2, 264}), w = halves({251, 264}, 1);
  expect_launches([&] { return matmul(x, matrix_transpose(w)); }, 1);
}

TEST_F(GpuFewRows, MakeWeightsOfBytesAndScalesOnTheWay) {
  const Tensor scale = powers({263, 1}, 4), w = bytes({263, 272});
  for (const std::int64_t rows : {1, 16}) {
    SCOPED_TRACE(rows);
    const Tensor x = halves({rows, 272});
    expect_launches([&] { return matmul(x, matrix_transpose(astype(w, DType::BFloat16) * scale)) * 0.5; }, 1);
  }
  const Tensor scales = powers({272}, 4);
  const Tensor rows = bytes({264, 272});
  const Tensor y = halves({3, 264});
  expect_launches([&] { return matmul(y, astype(rows, DType::BFloat16) * scales); }, 1);
}

TEST_F(GpuFewRows, MakeWeightsOfOtherTypesOnTheWay) {
  const Tensor x = halves({4, 272}), zero = bytes({250, 1}, DType::UInt8), scale = powers({250, 1}, 4);
  const Tensor w = bytes({250, 272}, DType::UInt8);
  expect_launches(
      [&] {
        const Tensor steps = astype(w, DType::Float32) - astype(zero, DType::Float32);
        const Tensor made = astype(steps * astype(scale, DType::Float32), DType::BFloat16);
        return matmul(x, matrix_transpose(made));
      },
      1);
  const Tensor wide = data({250, 272}), tall = data({272, 264});
  expect_launches([&] { return matmul(x, matrix_transpose(astype(wide, DType::BFloat16))); }, 1);
  expect_launches([&] { return matmul(x, astype(tall, DType::BFloat16)); }, 1);
  const Tensor y = halves({2, 272}, 1, DType::Float16), half = halves({264, 272}, 2);
  expect_launches([&] { return matmul(y, matrix_transpose(astype(half, DType::Float16))); }, 1);
}

// Integers of 8 bits become halves without a float between: all of them, signed or not, of either type.
TEST_F(GpuFewRows, IntegersAreHalvesExactly) {
  const Tensor all = arange(272, DType::Int32);
  for (const DType stored : {DType::Int8, DType::UInt8})
    for (const DType half : {DType::BFloat16, DType::Float16}) {
      SCOPED_TRACE(static_cast<int>(stored) * 100 + static_cast<int>(half));
      const Tensor line = astype(minimum(all, 255) - (stored == DType::Int8 ? 128 : 0), stored);
      const Tensor q = broadcast_to(line, {264, 272}).eval(), w = roll(q, 1, {1}).eval();
      for (const std::int64_t rows : {1, 9}) {
        const Tensor x = halves({rows, 272}, 5, half), y = halves({rows, 264}, 6, half);
        expect_launches([&] { return matmul(x, matrix_transpose(astype(q, half))); }, 1);
        expect_launches([&] { return matmul(y, astype(w, half)); }, 1);
      }
    }
}

TEST_F(GpuFewRows, RowsOfABatchAreThoseOfOneMatrix) {
  const Tensor x = halves({2, 3, 264}), w = halves({264, 256}, 1), tile = halves({2, 3, 256}, 2),
               row = halves({2, 1, 256}, 3);
  expect_launches([&] { return relu(matmul(x, w) + tile) * row; }, 1);
  const Tensor y = halves({5, 1, 272}), q = bytes({263, 272}), scale = powers({263, 1}, 4);
  expect_launches([&] { return matmul(y, matrix_transpose(astype(q, DType::BFloat16) * scale)); }, 1);
}

// Results are nearer to sums in float64 than the rounding of weights would leave them.
TEST_F(GpuFewRows, ScalesOfColumnsMultiplySums) {
  const Tensor x = halves({2, 272}), q = bytes({264, 272}), scale = halves({264, 1}, 4);
  const auto of = [](const Tensor& t) { return astype(t, DType::Float64).eval().to_vector<double>(); };
  const std::vector<double> a = of(x), b = of(q), s = of(scale),
                            got = of(matmul(x, matrix_transpose(astype(q, DType::BFloat16) * scale * 0.25)));
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t n = 0; n < 264; ++n) {
      double want = 0;
      for (std::size_t k = 0; k < 272; ++k) want += a[row * 272 + k] * b[n * 272 + k];
      want *= s[n] * 0.25;
      ASSERT_NEAR(got[row * 264 + n], want, 0.004 * std::abs(want) + 1e-3) << row << " " << n;
    }
}

// Columns that blocks of 32 would deal to the multiprocessors unevenly.
TEST_F(GpuFewRows, BlocksOfFewColumns) {
  const Tensor scale = powers({136, 1}, 4), w = bytes({136, 528}), v = bytes({136, 528});
  const auto made = [&](const Tensor& q) { return matrix_transpose(astype(q, DType::BFloat16) * scale); };
  for (const std::int64_t rows : {1, 16}) {
    SCOPED_TRACE(rows);
    const Tensor x = halves({rows, 528});
    expect_launches([&] { return matmul(x, made(w)) + 0.5; }, 1);
    expect_launches([&] { return std::vector{matmul(x, made(w)) * 2.0, matmul(x, made(v))}; }, 1);
  }
}

TEST_F(GpuFewRows, ScalesMayBelongToGroups) {
  const Tensor x = halves({2, 256}), w = bytes({264, 8, 32}), scale = powers({264, 8, 1}, 4);
  expect_launches(
      [&] {
        const Tensor made = (astype(w, DType::BFloat16) * scale).reshape({264, 256});
        return matmul(x, matrix_transpose(made));
      },
      1);
}

// Two weights in a byte: of either sign, of columns that no tile ends with, with what may be made of them.
TEST_F(GpuFewRows, UnpackIntegersOfFourBits) {
  for (const DType half : {DType::BFloat16, DType::Float16})
    for (const DType stored : {DType::Int8, DType::UInt8})
      for (const std::int64_t rows : {1, 9}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(half)) + " " + std::to_string(static_cast<int>(stored)));
        const Tensor x = halves({rows, 416}, 5, half);
        const Tensor packed = bitcast(bytes({263, 208}), stored).eval();
        const Tensor scale = astype(powers({263, 13, 1}, 4), half).eval(), column = powers({263, 1}, 6);
        const auto groups = [&] { return astype(unpack_int4(packed), half).reshape({263, 13, 32}); };
        expect_launches([&] { return matmul(x, matrix_transpose(groups().reshape({263, 416}))); }, 1);
        expect_launches(
            [&] { return relu(matmul(x, matrix_transpose((groups() * scale).reshape({263, 416}))) + 0.5); },
            1);
        const Tensor zero = bitcast(bytes({263, 13, 1}) & 15, stored).eval();
        expect_launches(
            [&] {
              const Tensor w = (groups() - astype(zero, half)) * scale;
              return matmul(x, matrix_transpose(w.reshape({263, 416})));
            },
            1);
        expect_launches(
            [&] { return matmul(x, matrix_transpose(groups().reshape({263, 416}) * astype(column, half))); },
            1);
        // zero points in four bits, too; scales in float32; something else than sums and products
        const Tensor zeros = bitcast(bytes({264, 7}), stored).eval();
        expect_launches(
            [&] {
              const Tensor points = unpack_int4(zeros).index(
                  std::vector<Slice>{slice::range(0, 263), slice::range(0, 13), slice::newaxis});
              return matmul(
                  x, matrix_transpose(((groups() - astype(points, half)) * scale).reshape({263, 416})));
            },
            1);
        const Tensor wide = astype(scale, DType::Float32).eval();
        expect_launches(
            [&] {
              const Tensor w = astype(groups(), DType::Float32) * wide;
              return matmul(x, matrix_transpose(astype(w, half).reshape({263, 416})));
            },
            1);
        expect_launches(
            [&] { return matmul(x, matrix_transpose(square(groups()).reshape({263, 416}) * 0.125)); }, 1);
      }
}

TEST_F(GpuFewRows, PackedWeightsMayBeSpelledOut) {
  const Tensor x = halves({3, 416}), packed = bytes({264, 208}, DType::UInt8);
  const Tensor shifts = astype(arange(2) * 4, DType::UInt8).eval();
  expect_launches(
      [&] {
        const Tensor q = (packed.reshape({264, 208, 1}) >> shifts) & 15;
        return matmul(x, matrix_transpose(astype(q.reshape({264, 416}), DType::BFloat16) * 0.25));
      },
      1);
  const Tensor v = bytes({264, 208}), w = bytes({264, 208});
  const auto product = [&](const Tensor& q) {
    return matmul(x, matrix_transpose(astype(unpack_int4(q), DType::BFloat16)));
  };
  expect_launches([&] { return silu(product(v)) * product(w); }, 1);
  expect_launches([&] { return std::vector{product(v) * 2.0, product(w)}; }, 1);
}

TEST_F(GpuFewRows, WhatElseIsReadStaysRight) {
  const Tensor x = halves({2, 272}), w = bytes({264, 272}), scale = powers({264, 1}, 4);
  // weights that somebody else reads, too
  expect_launches(
      [&] {
        const Tensor made = astype(w, DType::BFloat16) * scale;
        return matmul(x, matrix_transpose(made)) + max(made, 1);
      },
      0);
  // of two arrays, neither of which is little
  const Tensor other = halves({264, 272}, 7);
  expect_launches([&] { return matmul(x, matrix_transpose(astype(w, DType::BFloat16) * other)); }, 0);
  // lines that begin anywhere
  const Tensor odd = bytes({264, 275});
  expect_launches(
      [&] {
        const Tensor part = odd.index(std::vector<Slice>{slice::all(), slice::range(1, 273)});
        return matmul(x, matrix_transpose(astype(part, DType::BFloat16) * scale));
      },
      0);
}

}  // namespace
}  // namespace kiln
