// Products of float32 by tensor cores that read 11 bits of a number (Config::tf32): where they are asked for,
// and only there.
#include "engine/gpu_products.h"
#include "engine/plan.h"

#include <kiln/layers.h>

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

using test::data;

class GpuTf32 : public test::GpuProducts {
 protected:
  void SetUp() override {
    GpuProducts::SetUp();
    if (!IsSkipped()) engine::prefer_templates(true);
  }
  void TearDown() override {
    engine::prefer_templates(false);
    GpuProducts::TearDown();
  }

  static void set(bool tf32, bool strict = false) {
    Config c = config();
    c.tf32 = tf32;
    c.strict = strict;
    configure(c);
  }
  /// A number whose 13th bit is set: tensor cores read 1.
  static Tensor ones(const Shape& shape) { return (zeros(shape) + (1 + 0x1p-12)).eval(); }
  /// Whether each sum of so many products of such numbers is one of ones.
  static bool reads_ones(const Tensor& sums, std::int64_t terms) {
    const std::vector<float> x = sums.eval().to_vector<float>();
    const auto n = static_cast<float>(terms);
    for (const float e : x) EXPECT_TRUE(e == n || std::abs(e / n - (1 + 0x1p-11f)) < 1e-5f) << e;
    return std::ranges::all_of(x, [&](float e) { return e == n; });
  }

  /// Results are those of the interpreter, but for 2^-9 of the sums of magnitudes: `sums` of magnitudes.
  static void expect_close(const std::function<Tensor()>& program, double sums) {
    std::vector<float> expected;
    {
      const testing::ModeScope scope(Mode::Interpret);
      expected = program().eval().to_vector<float>();
    }
    const std::vector<float> got = program().eval().to_vector<float>();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 0x1p-9 * sums) << "element " << i;
  }
};

TEST_F(GpuTf32, IsReadWhereItIsAskedForAndNowhereElse) {
  const Tensor a = ones({70, 40}), b = ones({40, 72}), wide = ones({130, 64}), other = ones({64, 132});
  for (const bool on : {false, true, false, true}) {
    set(on);
    EXPECT_EQ(reads_ones(matmul(a, b), 40), on);
    EXPECT_EQ(reads_ones(relu(matmul(wide, other)), 64), on);
    EXPECT_EQ(reads_ones(einsum("mk,nk->mn", {wide, matrix_transpose(other)}), 64), on);
  }
  {
    Config c = config();
    c.tf32 = false;
    const ScopedConfig off(c);
    EXPECT_FALSE(reads_ones(matmul(a, b), 40));
  }
  EXPECT_TRUE(reads_ones(matmul(a, b), 40));
}

TEST_F(GpuTf32, TheStrictModeRefusesIt) {
  const Tensor a = ones({70, 40}), b = ones({40, 72});
  set(true, true);
  EXPECT_FALSE(reads_ones(matmul(a, b), 40));
}

TEST_F(GpuTf32, OtherTypesAreAsBefore) {
  set(true);
  const Tensor a = astype(ones({70, 40}), DType::Float64), b = astype(ones({40, 72}), DType::Float64);
  for (const double x : matmul(a, b).eval().to_vector<double>()) ASSERT_NEAR(x, 40 * (1 + 0x1p-11), 1e-4);
}

TEST_F(GpuTf32, OperandsInAnyOrderWithEpilogues) {
  set(true);
  const Tensor a = data({2, 66, 36}), b = data({36, 68}, DType::Float32, 1),
               bias = data({68}, DType::Float32, 2), c = data({68, 36}, DType::Float32, 3),
               d = data({36, 66}, DType::Float32, 4);
  expect_close([&] { return matmul(a, b) + bias; }, 80);
  expect_close([&] { return relu(matmul(a, matrix_transpose(c)) + bias); }, 80);
  expect_close([&] { return matmul(matrix_transpose(d), b) * 0.5; }, 80);
  expect_close([&] { return matmul(matrix_transpose(d), matrix_transpose(c)); }, 80);
  const Tensor odd = data({33, 37}), other = data({37, 35}, DType::Float32, 1);
  expect_close([&] { return matmul(odd, other); }, 80);
  expect_close([&] { return matmul(matrix_transpose(other), matrix_transpose(odd)); }, 80);
}

TEST_F(GpuTf32, SideBySideByTheCopyEngine) {
  set(true);
  const Tensor x = data({130, 68}), g = data({136, 68}, DType::Float32, 1),
               u = data({136, 68}, DType::Float32, 2);
  expect_launches([&] { return silu(matmul(x, matrix_transpose(g))) * matmul(x, matrix_transpose(u)); }, 1);
}

TEST_F(GpuTf32, ConvolutionsReadWindowsWhereTheyLie) {
  set(true);
  const auto conv = [&](const Shape& x, const Shape& weight, nn::ConvOptions options, std::int64_t terms) {
    SCOPED_TRACE(::testing::Message() << x << " conv " << weight);
    options.channels_last = true;
    const Tensor image = data(x), filters = data(weight, DType::Float32, 1), bias = data({weight[0]});
    expect_launches([&] { return relu(nn::conv(image, filters, bias, options)); }, 1);
    EXPECT_TRUE(reads_ones(nn::conv(ones(x), ones(weight), {}, options), terms));
  };
  conv({1, 10, 9, 32}, {72, 3, 3, 32}, {}, 9 * 32);               // the copy engine
  conv({2, 45, 32}, {72, 3, 32}, {}, 3 * 32);                     // along one axis
  conv({2, 9, 10, 8}, {24, 3, 3, 8}, {.stride = {1, 2}}, 9 * 8);  // copies by threads
  conv({1, 13, 12, 3}, {8, 3, 3, 3}, {}, 27);
  const nn::ConvOptions padded{.padding = {1, 1}, .channels_last = true};
  const Tensor x = data({1, 9, 10, 32}), w = data({72, 3, 3, 32}, DType::Float32, 1);
  expect_launches([&] { return nn::conv(x, w, {}, padded); }, 1);
}

TEST_F(GpuTf32, ChannelsThatLieApartAreTurned) {
  set(true);
  const Tensor x = data({2, 32, 9, 10}), w = data({40, 32, 3, 3}, DType::Float32, 1);
  expect_launches([&] { return relu(nn::conv(x, w, {}, {.padding = {1, 1}})); }, 0);
  EXPECT_TRUE(reads_ones(nn::conv(ones({2, 32, 9, 10}), ones({40, 32, 3, 3})), 288));
}

}  // namespace
}  // namespace kiln
