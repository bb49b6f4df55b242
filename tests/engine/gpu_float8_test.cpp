// Products of 8-bit floats on a GPU whose tensor cores multiply them: their bytes are read, in one launch
// with the maps of the result. Others are made of halves.
#include "engine/gpu_products.h"
#include "engine/plan.h"

#include <limits>

namespace kiln {
namespace {

using test::data;

class GpuFloat8 : public test::GpuProducts {
 protected:
  void SetUp() override {
    GpuProducts::SetUp();
    if (!IsSkipped()) engine::prefer_templates(true);  // for the others, too
  }
  void TearDown() override {
    engine::prefer_templates(false);
    GpuProducts::TearDown();
  }

  static Tensor floats8(const Shape& shape, int seed = 0, DType type = DType::Float8E4M3FN) {
    return astype(data(shape, DType::Float32, seed), type).eval();
  }
};

TEST_F(GpuFloat8, AreOneLaunchWithTheMapsOfTheResult) {
  const Tensor x = floats8({130, 144}), w = floats8({136, 144}, 1), bias = data({136}, DType::Float32, 2);
  expect_launches([&] { return matmul(x, matrix_transpose(w)); }, 1);
  expect_launches([&] { return relu(astype(matmul(x, matrix_transpose(w)), DType::Float32) * 0.25 + bias); },
                  1);
  expect_launches([&] { return matmul(x, astype(matrix_transpose(w), DType::BFloat16)); }, 1);
  expect_launches(
      [&] { return matmul(astype(x, DType::Float16), matrix_transpose(astype(w, DType::Float16))); }, 1);
}

TEST_F(GpuFloat8, OfEitherFormat) {
  constexpr DType kTypes[] = {DType::Float8E4M3FN, DType::Float8E5M2};
  for (const DType a : kTypes)
    for (const DType b : kTypes) {
      const Tensor x = floats8({72, 272}, 0, a), w = floats8({80, 272}, 1, b);
      expect_launches(
          [&] { return matmul(astype(x, DType::BFloat16), astype(matrix_transpose(w), DType::BFloat16)); },
          1);
    }
}

TEST_F(GpuFloat8, OfBatchesAndPartsOfArrays) {
  const Tensor x = floats8({3, 70, 32}), w = floats8({3, 66, 32}, 1), one = floats8({66, 32}, 2),
               wide = floats8({70, 64}, 3);
  expect_launches([&] { return matmul(x, matrix_transpose(w)) * 0.5; }, 1);
  expect_launches([&] { return matmul(x, matrix_transpose(one)); }, 1);
  expect_launches(
      [&] {
        return matmul(wide.index(std::vector<Slice>{slice::all(), slice::range(16, 48)}),
                      matrix_transpose(one));
      },
      1);
}

TEST_F(GpuFloat8, MadeByTheProgram) {
  const Tensor x = data({72, 48}), w = floats8({80, 48}, 1);
  expect_launches([&] { return matmul(astype(x * 2, DType::Float8E4M3FN), matrix_transpose(w)); }, 2);
}

TEST_F(GpuFloat8, InfinitiesAndNaNGoThrough) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor at = arange(80 * 48).reshape({80, 48}), x = floats8({72, 48}, 0, DType::Float8E5M2);
  const Tensor w = astype(where(at == 48, Tensor(inf), data({80, 48})), DType::Float8E5M2).eval();
  const std::vector<float> y =
      astype(matmul(x, matrix_transpose(w)), DType::Float32).eval().to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isfinite(y[i]), i % 80 != 1) << i;
}

// Rows that begin anywhere, another order, few rows, another operand, more digits.
TEST_F(GpuFloat8, OthersAreMadeOfHalves) {
  const Tensor x = floats8({72, 40}), w = floats8({80, 40}, 1), across = floats8({48, 80}, 2),
               y = floats8({72, 48}), few = floats8({8, 48}),
               halves = astype(data({48, 80}, DType::Float32, 3), DType::BFloat16).eval();
  expect_launches([&] { return matmul(x, matrix_transpose(w)); }, 0);
  expect_launches([&] { return matmul(y, across); }, 0);
  expect_launches([&] { return matmul(few, across); }, 0);
  expect_launches([&] { return matmul(astype(y, DType::BFloat16), halves); }, 0);
  expect_launches([&] { return matmul(astype(y, DType::Float32), astype(across, DType::Float32)); }, 0);
}

TEST_F(GpuFloat8, TheStrictModeTakesHalves) {
  Config c = config();
  c.strict = true;
  const ScopedConfig strict(c);
  const Tensor x = floats8({72, 48}), w = floats8({80, 48}, 1);
  expect_launches([&] { return matmul(x, matrix_transpose(w)); }, 0);
}

}  // namespace
}  // namespace kiln
