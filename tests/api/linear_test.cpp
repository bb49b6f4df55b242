// Cholesky factors and triangular systems: values by hand, against products, batches, views, dtypes, edges.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/config.h>

#include <limits>

namespace kiln {
namespace {

using namespace testing;

/// Random numbers in [-1, 1), the same each time.
Tensor drawn(const Shape& shape, DType dtype = DType::Float32) {
  std::uint64_t state = 12345;
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    values.push_back(static_cast<float>(state >> 40) / 8388608.0f - 1);
  }
  return Tensor::from(values, shape).astype(dtype).eval();
}

Tensor diagonal(std::int64_t n, double value, DType dtype) {
  const Tensor row = arange(n);
  return where(reshape(row, {n, 1}) == row, full({}, value, dtype), 0);
}

/// Well conditioned.
Tensor positive_definite(Shape batch, std::int64_t n, DType dtype) {
  batch.push_back(n);
  batch.push_back(n);
  const Tensor x = drawn(batch, DType::Float64);
  return (matmul(x, matrix_transpose(x)) / static_cast<double>(n) + diagonal(n, 1, DType::Float64))
      .astype(dtype);
}
Tensor lower_triangular(Shape batch, std::int64_t n, DType dtype) {
  batch.push_back(n);
  batch.push_back(n);
  return (tril(drawn(batch, DType::Float64)) / static_cast<double>(n) + diagonal(n, 1, DType::Float64))
      .astype(dtype);
}

/// Greatest difference of two tensors.
double distance(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  return max(abs(a.astype(DType::Float64) - b.astype(DType::Float64))).item<double>();
}

/// Of results of order 1.
double bound(DType t) {
  switch (t) {
    case DType::Float16: return 4e-3;
    case DType::BFloat16: return 3e-2;
    case DType::Float64: return 1e-12;
    default: return 1e-5;
  }
}
constexpr DType kFloats[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};

TEST(Cholesky, ByHand) {
  in_every_mode([] {
    const Tensor x = floats({3, 3}, {4, 99, 99, 2, 10, 99, -2, 5, 14});
    expect_equal<float>(cholesky(x), {3, 3}, {2, 0, 0, 1, 3, 0, -1, 2, 3});
    expect_equal<float>(cholesky(x, true), {3, 3}, {2, 1, -1, 0, 3, 2, 0, 0, 3});
    expect_equal<float>(cholesky(floats({1, 1}, {9})), {1, 1}, {3});
    expect_equal<float>(cholesky(Tensor({4, 2, 2, 5}).reshape({2, 2})), {2, 2}, {2, 0, 1, 2});  // integers
  });
}

TEST(Cholesky, GivesBackItsMatrix) {
  in_every_mode([] {
    for (DType t : kFloats)
      for (std::int64_t n : {1, 2, 31, 32, 33, 64, 65, 130}) {
        SCOPED_TRACE(std::string(name(t)) + " " + std::to_string(n));
        const Tensor x = positive_definite({}, n, t), l = cholesky(x);
        EXPECT_EQ(l.dtype(), t);
        const Tensor wide = l.astype(DType::Float64);
        EXPECT_LE(distance(matmul(wide, matrix_transpose(wide)), x), bound(t));
        EXPECT_EQ(distance(tril(l), l), 0);
      }
  });
}

TEST(Cholesky, BatchesAndViews) {
  in_every_mode([] {
    const Tensor x = positive_definite({3, 2}, 70, DType::Float32);
    const Tensor all = cholesky(x);
    EXPECT_EQ(all.shape().str(), "(3, 2, 70, 70)");
    EXPECT_LE(distance(all(1, 1), cholesky(x(1, 1))), 1e-6);
    EXPECT_LE(distance(cholesky(matrix_transpose(x.eval())), all), 1e-5);
    EXPECT_LE(distance(cholesky(permute_dims(x, {1, 0, 2, 3}).eval()), permute_dims(all, {1, 0, 2, 3})),
              1e-6);
    EXPECT_LE(distance(cholesky(broadcast_to(x(0, 0).eval(), {4, 70, 70}))(3), all(0, 0)), 1e-6);
    EXPECT_LE(distance(cholesky(flip(flip(x, {2, 3}).eval(), {2, 3})), all), 1e-6);
    EXPECT_LE(distance(cholesky(x * 4.0) / 2.0, all), 1e-6);
    EXPECT_EQ(cholesky(zeros({2, 0, 0})).shape().str(), "(2, 0, 0)");
    EXPECT_EQ(cholesky(zeros({0, 3, 3})).shape().str(), "(0, 3, 3)");
    const Tensor many = cholesky(positive_definite({200}, 5, DType::Float64));
    EXPECT_LE(distance(matmul(many, matrix_transpose(many)), positive_definite({200}, 5, DType::Float64)),
              1e-12);
  });
}

TEST(Cholesky, OfOtherMatricesIsNanFromTheirPivotOn) {
  in_every_mode([] {
    expect_equal<float>(cholesky(floats({2, 2}, {-1, 0, 0, 1})), {2, 2}, {kNan, 0, kNan, kNan});
    expect_equal<float>(cholesky(floats({3, 3}, {4, 0, 0, 2, 1, 0, 2, 5, 9})), {3, 3},
                        {2, 0, 0, 1, kNan, 0, 1, kNan, kNan});  // the pivot is 0
    expect_equal<float>(cholesky(floats({2, 2}, {kNan, 0, 0, 1})), {2, 2}, {kNan, 0, kNan, kNan});
    expect_equal<float>(cholesky(floats({2, 2}, {1, kNan, 3, 10})), {2, 2}, {1, 0, 3, 1});  // is not read
    for (std::int64_t at : {3, 40, 99}) {
      const Tensor row = arange(100), here = row == at;
      const Tensor bad =
          cholesky(where(reshape(here, {100, 1}) && here, -1, positive_definite({}, 100, DType::Float32)));
      const Tensor from = reshape(row, {100, 1}) >= row && row >= at;
      EXPECT_TRUE(array_equal(isnan(bad), from)) << at;
    }
  });
}

TEST(SolveTriangular, ByHand) {
  in_every_mode([] {
    const Tensor a = floats({2, 2}, {2, kNan, 4, 8}), b = floats({2, 3}, {2, 4, -6, 12, 0, 4});
    expect_equal<float>(solve_triangular(a, b), {2, 3}, {1, 2, -3, 1, -1, 2});
    expect_equal<float>(solve_triangular(a, floats({4, 16})), {2, 1});
    expect_equal<float>(solve_triangular(floats({2, 2}, {kNan, kNan, 3, kNan}), floats({1, 5}), false, true),
                        {1, 2});
    expect_equal<float>(solve_triangular(floats({2, 2}, {2, 6, kNan, 4}), floats({8, 4}), true), {1, 1});
    expect_equal<float>(solve_triangular(floats({2, 2}, {kNan, 6, kNan, kNan}), floats({8, 1}), true, true),
                        {2, 1});
    expect_equal<float>(solve_triangular(floats({2, 2}, {2, 0, 1, 0}), floats({2, 3})), {1, kInf});
    expect_equal<float>(solve_triangular(Tensor({2, 9, 1, 1}).reshape({2, 2}), Tensor({4, 5})),
                        {2, 3});  // integers
    expect_equal<double>(solve_triangular(floats({1, 1}, {2}), Tensor({3.0})), {1.5});
  });
}

TEST(SolveTriangular, GivesBackItsRightSides) {
  in_every_mode([] {
    for (DType t : kFloats)
      for (const auto& [n, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 1}, {2, 5}, {32, 1}, {33, 64}, {64, 65}, {100, 3}, {130, 130}})
        for (const bool upper : {false, true}) {
          SCOPED_TRACE(std::string(name(t)) + " " + std::to_string(n) + " " + std::to_string(m));
          Tensor a = lower_triangular({}, n, t);
          if (upper) a = matrix_transpose(a);
          const Tensor b = drawn({n, m}, t), x = solve_triangular(a.eval(), b, upper);
          EXPECT_EQ(x.dtype(), t);
          EXPECT_LE(distance(matmul(a.astype(DType::Float64), x.astype(DType::Float64)), b), bound(t));
        }
  });
}

TEST(SolveTriangular, BatchesBroadcast) {
  in_every_mode([] {
    const Tensor a = lower_triangular({3, 1}, 40, DType::Float32), b = drawn({2, 40, 7});
    const Tensor x = solve_triangular(a, b);
    EXPECT_EQ(x.shape().str(), "(3, 2, 40, 7)");
    EXPECT_LE(distance(matmul(a, x), broadcast_to(b, {3, 2, 40, 7})), 1e-5);
    EXPECT_LE(distance(x(2, 1), solve_triangular(a(2, 0), b(1))), 1e-6);
    const Tensor vector = solve_triangular(a(slice::all(), 0), drawn({40}));
    EXPECT_EQ(vector.shape().str(), "(3, 40)");
    EXPECT_LE(distance(vector(1), solve_triangular(a(1, 0), drawn({40}))), 1e-6);
    EXPECT_LE(distance(solve_triangular(a, matrix_transpose(matrix_transpose(b).eval())), x), 1e-6);
    EXPECT_EQ(solve_triangular(zeros({0, 0}), zeros({0, 3})).shape().str(), "(0, 3)");
    EXPECT_EQ(solve_triangular(a, zeros({40, 0})).shape().str(), "(3, 1, 40, 0)");
    EXPECT_EQ(solve_triangular(zeros({0, 2, 2}), zeros({2})).shape().str(), "(0, 2)");
  });
}

TEST(SolveTriangular, WithCholeskyItSolvesSystems) {
  in_every_mode([] {
    const Tensor x = positive_definite({2}, 90, DType::Float64), b = drawn({2, 90, 4}, DType::Float64);
    const Tensor l = cholesky(x);
    const Tensor solved = solve_triangular(matrix_transpose(l), solve_triangular(l, b), true);
    EXPECT_LE(distance(matmul(x, solved), b), 1e-12);
    const Tensor u = cholesky(x, true);
    EXPECT_LE(distance(solve_triangular(u, solve_triangular(matrix_transpose(u), b), true), solved), 1e-12);
  });
}

/// Every variant is the lower-triangular case seen otherwise, so it costs one library call and no kernel.
TEST(SolveTriangular, VariantsAreViews) {
  if (config().mode != Mode::Lazy) GTEST_SKIP() << "nothing is fused";
  const Tensor a = lower_triangular({}, 50, DType::Float32).eval(), b = drawn({50, 3});
  for (const Tensor& x :
       {solve_triangular(a, b), solve_triangular(matrix_transpose(a), b, true), cholesky(a, true)}) {
    const test::Counted counted = test::count([&] { eval(x); });
    EXPECT_EQ(counted.launches, 0u);
    EXPECT_EQ(counted.library_calls, 1u);
  }
}

TEST(SolveTriangular, StrictBitsDoNotDependOnTheMode) {
  const Config before = config();
  Config strict = before;
  strict.strict = true;
  configure(strict);
  const Tensor x = positive_definite({}, 200, DType::Float32), b = drawn({200, 9});
  std::vector<std::vector<float>> bits;
  for (const Engine& e : kEngines) {
    const EngineScope scope(e);
    const Tensor l = cholesky(x);
    bits.push_back(concat({l, solve_triangular(l * 2.0, b + 1.0)}, 1).to_vector<float>());
  }
  configure(before);
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
}

TEST(SolveTriangular, Errors) {
  const Tensor a = zeros({2, 3, 3});
  expect_user_error([] { cholesky(zeros({2, 3})); }, "[cholesky] needs square matrices, got float32 (2, 3)");
  expect_user_error([] { cholesky(zeros({3})); }, "[cholesky] needs square matrices, got float32 (3,)");
  expect_user_error([] { cholesky(zeros({2, 2}, DType::Bool)); }, "[cholesky] is not defined for bool");
  expect_user_error([] { cholesky(Tensor()); }, "[cholesky] an operand is an empty Tensor");
  expect_user_error([] { solve_triangular(zeros({2, 3}), zeros({3})); },
                    "[solve_triangular] needs square matrices, got float32 (2, 3)");
  expect_user_error([&] { solve_triangular(a, zeros({4, 2})); },
                    "[solve_triangular] a float32 (2, 3, 3) does not fit b float32 (4, 2)");
  expect_user_error([&] { solve_triangular(a, zeros({4})); },
                    "[solve_triangular] a float32 (2, 3, 3) does not fit b float32 (4,)");
  expect_user_error([&] { solve_triangular(a, zeros({5, 3, 2})); },
                    "[solve_triangular] a float32 (2, 3, 3) does not fit b float32 (5, 3, 2)");
  expect_user_error([&] { solve_triangular(a, Tensor(1.f)); },
                    "[solve_triangular] a float32 (2, 3, 3) does not fit b float32 ()");
  expect_user_error([] { solve_triangular(zeros({1, 1}, DType::Bool), zeros({1}, DType::Bool)); },
                    "[solve_triangular] is not defined for bool");
}

}  // namespace
}  // namespace kiln
