// Matrix products with the maps around them: values in every mode, for every dtype, layout and edge.
#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"

#include <cmath>
#include <functional>
#include <limits>

namespace kiln {
namespace {

using test::count;
using test::data;
using testing::in_every_mode;
using testing::ModeScope;

/// A program evaluated fused, by machine code and by the vm, against the interpreter.
void expect_as_interpreted(const std::function<std::vector<Tensor>()>& program, double tolerance) {
  std::vector<std::vector<double>> expected;
  {
    const ModeScope scope(Mode::Interpret);
    for (const Tensor& t : program())
      expected.push_back(astype(t, DType::Float64).eval().to_vector<double>());
  }
  for (const testing::Engine& engine : testing::kEngines) {
    SCOPED_TRACE(engine.name);
    const testing::EngineScope scope(engine);
    std::vector<Tensor> outputs = program();
    eval(outputs);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const std::vector<double> got = astype(outputs[o], DType::Float64).eval().to_vector<double>();
      ASSERT_EQ(got.size(), expected[o].size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[o][i], tolerance * (1 + std::abs(expected[o][i])))
            << "output " << o << ", element " << i;
    }
  }
}

TEST(Products, AMapOfTheResultIsNoKernel) {
  KILN_NEEDS_CPU();
  const Tensor a = data({40, 30}), b = data({30, 50}), bias = data({50}), residual = data({40, 50});
  const auto counted = count([&] { (gelu(matmul(a, b) + bias) * 2 + residual).eval(); });
  EXPECT_EQ(counted.launches, 0u);
  EXPECT_EQ(counted.library_calls, 1u);
}

TEST(Products, OperandsByRowsByColumnsAndByTile) {
  for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 7, 5}, Shape{7, 1, 5}, Shape{7, 5, 1}, Shape{33, 65, 17},
                         Shape{180, 300, 100}, Shape{3, 1000, 2}}) {
    const std::int64_t m = s[0], n = s[1], k = s[2];
    SCOPED_TRACE(s.str());
    const Tensor a = data({m, k}), b = data({k, n}), row = data({n}, DType::Float32, 1),
                 column = data({m, 1}, DType::Float32, 2), tile = data({m, n}, DType::Float32, 3);
    expect_as_interpreted(
        [&] {
          const Tensor y = matmul(a, b) * column + row;
          return std::vector<Tensor>{tanh(y) + tile * 0.5, astype(y, DType::BFloat16), y > 0};
        },
        1e-2);
  }
}

TEST(Products, ManyLinesTimesFewVectorsWithMaps) {
  for (const DType t : {DType::Float32, DType::Float64, DType::BFloat16})
    for (const std::int64_t few : {1, 2, 5, 8, 16})
      for (const std::int64_t lines : {37, 1500}) {
        SCOPED_TRACE(std::string(name(t)) + ", " + std::to_string(lines) + " times " + std::to_string(few));
        const Tensor x = astype(data({lines, 20}), t), w = astype(data({20, few}, DType::Float32, 1), t),
                     queries = astype(data({few, 20}, DType::Float32, 2), t),
                     of_line = astype(data({lines, 1}, DType::Float32, 3), t),
                     of_vector = astype(data({few}, DType::Float32, 4), t);
        expect_as_interpreted(
            [&] {
              const Tensor scores = matmul(queries, matrix_transpose(x)) * reshape(of_line, {lines});
              return std::vector<Tensor>{tanh(matmul(x, w) * of_line + of_vector),
                                         scores + reshape(of_vector, {few, 1}), sum(matmul(x, w), 1)};
            },
            t == DType::BFloat16 ? 5e-2 : 1e-3);
      }
}

TEST(Products, EveryDtypeThatIsMultiplied) {
  for (const DType t :
       {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int8, DType::UInt8,
        DType::Int16, DType::Int32, DType::UInt32, DType::Int64, DType::UInt64}) {
    SCOPED_TRACE(name(t));
    const bool real = is_float(t);
    const Tensor a = astype(data({37, 21}) * (real ? 1 : 100), t).eval(),
                 b = astype(data({21, 45}, DType::Float32, 5) * (real ? 1 : 90), t).eval(),
                 row = astype(data({45}) * 10, t).eval();
    expect_as_interpreted([&] { return std::vector<Tensor>{maximum(matmul(a, b), row) + row}; },
                          t == DType::BFloat16  ? 3e-2
                          : t == DType::Float16 ? 4e-3
                                                : 1e-4);
  }
}

TEST(Products, BatchesTranspositionsAndBroadcasts) {
  const Tensor a = data({3, 2, 19, 11}), b = data({2, 23, 11}), scale = data({3, 1, 1, 1}),
               bias = data({2, 1, 23});
  expect_as_interpreted(
      [&] { return std::vector<Tensor>{relu(matmul(a, matrix_transpose(b)) * scale + bias)}; }, 1e-4);
  const Tensor c = data({70, 30}), d = data({64, 70});
  expect_as_interpreted([&] { return std::vector<Tensor>{exp(matmul(c.T(), d.T()) * 0.1)}; }, 1e-4);
  const Tensor many = data({90, 5, 6}), small = data({90, 6, 4});
  expect_as_interpreted([&] { return std::vector<Tensor>{matmul(many, small) + 1}; }, 1e-4);
}

TEST(Products, UnderReshapes) {
  const Tensor x = data({4, 9, 16}), w = data({16, 24}), bias = data({3, 8});
  expect_as_interpreted([&] { return std::vector<Tensor>{reshape(matmul(x, w), {4, 9, 3, 8}) * 2 + bias}; },
                        1e-4);
}

TEST(Products, ScalarsOfTheCallAreArguments) {
  KILN_NEEDS_CPU();
  const Tensor a = data({20, 20}), b = data({20, 20});
  Tensor before = (matmul(a, b) * 1.5).eval();
  const auto counted = count([&] {
    for (int i = 2; i < 5; ++i) (matmul(a, b) * (1.5 * i)).eval();
  });
  EXPECT_LE(counted.plan_misses, 1u);
}

TEST(Products, AHeldProductIsStoredToo) {
  KILN_NEEDS_CPU();
  const Tensor a = data({20, 20}), b = data({20, 20});
  const Tensor product = matmul(a, b), y = relu(product);
  EXPECT_EQ(count([&] { y.eval(); }).library_calls, 1u);
  EXPECT_EQ(count([&] { (product + 1).eval(); }).library_calls, 0u);
}

TEST(Products, LongSumsInSlabs) {
  const Tensor a = data({3, 70000}), b = data({70000, 5});
  expect_as_interpreted([&] { return std::vector<Tensor>{matmul(a, b) * 0.5 + 1}; }, 1e-3);
}

TEST(Products, NothingToSumOrNoElements) {
  in_every_mode([] {
    EXPECT_EQ((matmul(zeros({3, 0}), zeros({0, 2})) + 1).eval().to_vector<float>(),
              std::vector<float>(6, 1.0f));
    EXPECT_EQ((matmul(zeros({0, 4}), zeros({4, 2})) + 1).eval().numel(), 0);
  });
}

TEST(Products, NotANumberGoesThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor a = data({9, 9});
  in_every_mode([&] {
    const Tensor with = where(arange(9).reshape({9, 1}) == 4, Tensor(nan), a);
    const std::vector<float> y = relu(matmul(with, a) + 1).eval().to_vector<float>();
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 9 == 4) << i;
  });
}

TEST(Products, StrictIsEagerBitForBit) {
  const Config before = config();
  for (const DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
    SCOPED_TRACE(name(t));
    const Tensor a = astype(data({35, 130}), t).eval(), b = astype(data({130, 41}), t).eval(),
                 bias = astype(data({41}), t).eval();
    std::vector<std::vector<double>> results;
    for (const testing::Engine& engine : testing::kEngines) {
      const testing::EngineScope scope(engine);
      Config options = config();
      options.strict = true;
      configure(options);
      results.push_back(astype(silu(matmul(a, b) * 0.7 + bias), DType::Float64).eval().to_vector<double>());
    }
    configure(before);
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Products, TwoProductsOfOneInput) {
  const Tensor x = data({33, 20}), gate = data({20, 40}), up = data({20, 40}, DType::Float32, 9);
  expect_as_interpreted([&] { return std::vector<Tensor>{silu(matmul(x, gate)) * matmul(x, up)}; }, 1e-4);
  if (config().device == "cpu")
    EXPECT_EQ(count([&] { (silu(matmul(x, gate)) * matmul(x, up)).eval(); }).launches, 0u);
}

TEST(Products, ReductionsStayWithTheirMaps) {
  KILN_NEEDS_CPU();
  const Tensor x = data({33, 20}), w = data({20, 40});
  expect_as_interpreted([&] { return std::vector<Tensor>{nn::softmax(matmul(x, w) * 0.3)}; }, 1e-4);
  EXPECT_EQ(count([&] { nn::softmax(matmul(x, w) * 0.3).eval(); }).launches, 1u);
}

TEST(Products, SumsOfProductsAreProducts) {
  const Tensor a = data({5, 40, 32}), b = data({32, 24});
  const auto sums = [&] {
    return std::vector<Tensor>{sum(a.reshape({5, 40, 32, 1}) * b.reshape({1, 1, 32, 24}), 2) + 1};
  };
  expect_as_interpreted(sums, 1e-4);
}

TEST(Products, AnUpdateInPlaceIsNotOverwrittenEarly) {
  Tensor x = data({32, 32});
  const Tensor w = data({32, 32});
  std::vector<float> expected;
  {
    const ModeScope scope(Mode::Interpret);
    expected = (matmul(x, w) * 0.1 + x).eval().to_vector<float>();
  }
  x = matmul(x, w) * 0.1 + x;
  const std::vector<float> got = x.eval().to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4);
}

TEST(Products, OperandsWhoseAxesAPermutationCut) {
  const Tensor x = data({6, 5, 8, 7}), y = data({40, 33}, DType::Float32, 1),
               z = data({6, 7, 5, 8}, DType::Float32, 2);
  const auto program = [&] {
    const Tensor rows = permute_dims(x, {0, 3, 1, 2}).reshape({42, 40});     // two parts and one
    const Tensor columns = permute_dims(z, {2, 3, 0, 1}).reshape({40, 42});  // both axes in parts
    const Tensor windows = permute_dims(sliding_window(x, {3, 2}, {2, 3}, {1, 2}), {0, 1, 4, 5, 2, 3});
    const Tensor flat = windows.reshape({6, 30, 18});  // overlapping parts, a batch
    const Tensor padded = pad(x, {{0, 0}, {0, 0}, {1, 1}, {0, 2}});
    const Tensor around =
        permute_dims(sliding_window(padded, {3, 3}, {2, 3}), {0, 1, 4, 5, 2, 3}).reshape({6, 45, 56});
    return std::vector<Tensor>{
        matmul(rows, y),
        matmul(rows, columns) + 1,
        matmul(matrix_transpose(flat), flat),
        relu(matmul(data({9, 45}), around)),
        sum(matmul(around, matrix_transpose(around)), 0),
        matmul(flip(rows, 1), matrix_transpose(rows)),
        matmul(rows(range(3, 20)), y),
        relu(matmul(rows, data({40, 1}))) * data({42, 1}, DType::Float32, 3) + 1,
        relu(matmul(data({1, 42}), matrix_transpose(columns))) * data({1, 40}, DType::Float32, 4)};
  };
  expect_as_interpreted(program, 1e-4);
}

}  // namespace
}  // namespace kiln
