// 8-bit floats: what their bits mean, how numbers round to them, and what operations make of them.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/dlpack.h>
#include <kiln/grad.h>
#include <kiln/io.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace kiln {
namespace {

using namespace testing;

constexpr DType kTypes[] = {DType::Float8E4M3FN, DType::Float8E5M2};

/// What the bits mean, from the definition of the formats.
double value_of(DType type, int bits) {
  const bool e4 = type == DType::Float8E4M3FN;
  const int mantissa_bits = e4 ? 3 : 2, bias = e4 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x80 ? -1 : 1, fraction = std::ldexp(mantissa, -mantissa_bits);
  if (e4 && (bits & 0x7f) == 0x7f) return std::nan("");
  if (!e4 && exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

/// The bits of the nearest number, by a look at all of them.
int nearest(DType type, double x) {
  const int sign = std::signbit(x) ? 0x80 : 0, nan = 0x7f;
  if (x != x) return sign | nan;
  const bool e4 = type == DType::Float8E4M3FN;
  // one more number above the greatest, as if there were no end
  const int greatest = e4 ? 0x7e : 0x7b;
  const double beyond = e4 ? 480 : 65536;
  int best = 0;
  double distance = HUGE_VAL;
  for (int bits = 0; bits <= greatest + 1; ++bits) {
    const double d = std::abs(std::abs(x) - (bits > greatest ? beyond : value_of(type, bits)));
    if (d < distance || (d == distance && bits % 2 == 0)) {
      best = bits;
      distance = d;
    }
  }
  return sign | (best > greatest || std::abs(x) > beyond ? (e4 ? nan : 0x7c) : best);
}

Tensor all_bits() { return arange(256, DType::UInt8).eval(); }

TEST(Float8, BitsMeanWhatTheFormatSays) {
  in_every_mode([] {
    for (const DType type : kTypes) {
      std::vector<float> expected;
      for (int bits = 0; bits < 256; ++bits) expected.push_back(static_cast<float>(value_of(type, bits)));
      const Tensor x = bitcast(all_bits(), type);
      ASSERT_EQ(x.dtype(), type);
      expect_equal<float>(x.astype(DType::Float32), expected);
      expect_equal<float>(x.astype(DType::Float64).astype(DType::Float32), expected);
      expect_equal<float>(x.astype(DType::BFloat16).astype(DType::Float32), expected);
    }
  });
}

/// Every number, the points half way between neighbours, and the floats beside both.
std::vector<double> edges(DType type) {
  std::vector<double> out = {1e-30, 1e30, 3e38, HUGE_VAL, std::nan(""), 0.1, 300};
  for (int bits = 0; bits < 0x7f; ++bits) {
    const double a = value_of(type, bits), b = value_of(type, bits + 1);
    for (const double x : {a, std::isfinite(b) ? (a + b) / 2 : a * 1.125, a * 1.0625})
      if (std::isfinite(x))
        for (const float near : {std::nextafter(static_cast<float>(x), -HUGE_VALF), static_cast<float>(x),
                                 std::nextafter(static_cast<float>(x), HUGE_VALF)})
          out.push_back(near);
  }
  const std::size_t count = out.size();
  for (std::size_t i = 0; i < count; ++i) out.push_back(-out[i]);
  return out;
}

std::vector<std::uint8_t> bits_of(const std::vector<double>& values, DType type) {
  std::vector<std::uint8_t> out;
  for (const double v : values) out.push_back(static_cast<std::uint8_t>(nearest(type, v)));
  return out;
}

TEST(Float8, NumbersRoundToTheNearest) {
  for (const DType type : kTypes) {
    const std::vector<double> values = edges(type);
    const std::vector<std::uint8_t> expected = bits_of(values, type);
    in_every_mode([&] {
      const Tensor x(values);
      expect_equal<std::uint8_t>(bitcast(x.astype(type), DType::UInt8), expected);
      expect_equal<std::uint8_t>(bitcast(x.astype(DType::Float32).astype(type), DType::UInt8), expected);
    });
  }
}

/// A Float64 a little beside the middle of two numbers: rounded to Float32 first it would be the middle.
TEST(Float8, Float64RoundsOnce) {
  for (const DType type : kTypes) {
    const std::vector<double> values = {1.0625 + 0x1p-40, 1.125 + 0x1p-40, 1.1875 - 0x1p-40,
                                        -1.125 - 0x1p-40};
    in_every_mode([&] {
      expect_equal<std::uint8_t>(bitcast(Tensor(values).astype(type), DType::UInt8), bits_of(values, type));
    });
  }
}

TEST(Float8, FromAndToEveryDtype) {
  in_every_mode([] {
    for (const DType type : kTypes)
      for (int d = 0; d < kDTypeCount; ++d) {
        const auto other = static_cast<DType>(d);
        SCOPED_TRACE(std::string(name(type)) + " and " + std::string(name(other)));
        const Tensor whole = arange(9).astype(other);  // exact in all of them
        expect_equal<double>(whole.astype(type).astype(DType::Float64),
                             whole.astype(DType::Float64).to_vector<double>());
        expect_equal<double>(arange(9).astype(type).astype(other).astype(DType::Float64),
                             whole.astype(DType::Float64).to_vector<double>());
      }
    expect_equal<std::uint8_t>(bitcast((arange(3) * 1'000'000'007).astype(DType::Float8E4M3FN), DType::UInt8),
                               {0, 0x7f, 0x7f});
    expect_equal<double>(Tensor(std::vector<double>{448, 0.4375})
                             .astype(DType::Float8E4M3FN)
                             .astype(DType::Float8E5M2)
                             .astype(DType::Float64),
                         {448, 0.4375});
  });
}

TEST(Float8, OperationsThatComputeTakeItAsBFloat16) {
  in_every_mode([] {
    const Tensor x = Tensor(std::vector<float>{1.5f, -2, 3.25f, 0.125f}).astype(DType::Float8E4M3FN);
    const std::vector<float> v = {1.5f, -2, 3.25f, 0.125f};
    EXPECT_EQ((x + x).dtype(), DType::BFloat16);
    EXPECT_EQ((x * 2).dtype(), DType::BFloat16);
    EXPECT_EQ(exp(x).dtype(), DType::BFloat16);
    EXPECT_EQ((x + x.astype(DType::Float8E5M2)).dtype(), DType::BFloat16);
    EXPECT_EQ((x + x.astype(DType::Float16)).dtype(), DType::Float16);
    EXPECT_EQ((x + x.astype(DType::Float32)).dtype(), DType::Float32);
    EXPECT_EQ((x > 0).dtype(), DType::Bool);
    EXPECT_EQ(nn::softmax(x).dtype(), DType::BFloat16);
    EXPECT_EQ(sort(x).dtype(), DType::BFloat16);
    expect_equal<double>((x * x).astype(DType::Float64), {2.25, 4, 10.5625, 0.015625});
    expect_equal<double>(sum(x).astype(DType::Float64), Shape{}, {2.875});
    expect_equal<double>(max(x).astype(DType::Float64), Shape{}, {3.25});
    expect_equal<std::int64_t>(argmin(x), Shape{}, {1});
    expect_equal<double>(cumsum(x).astype(DType::Float64), {1.5, -0.5, 2.75, 2.875});
    expect_equal<double>(sort(x).astype(DType::Float64), {-2, 0.125, 1.5, 3.25});
    expect_equal<double>(mean(x).astype(DType::Float64), Shape{}, {0.71875});
    const Tensor product = matmul(x.reshape({2, 2}), x.reshape({2, 2}));
    EXPECT_EQ(product.dtype(), DType::BFloat16);
    expect_equal<double>(product.astype(DType::Float64), {2, 2},
                         {1.5 * 1.5 - 2 * 3.25, 1.5 * -2 - 0.25, 3.25 * 1.5 + 0.125 * 3.25, -6.5});
    EXPECT_TRUE(allclose(x, Tensor(v)));
  });
}

/// What pads windows, -infinity, is none of the first format's numbers.
TEST(Float8, WindowsTakeItAsBFloat16) {
  in_every_mode([] {
    const Tensor
        x = ((arange(2 * 3 * 8 * 8) * 5 % 17) - 20).reshape({2, 3, 8, 8}).astype(DType::Float8E4M3FN),
        w = (arange(4 * 3 * 3 * 3) % 5).reshape({4, 3, 3, 3}).astype(DType::Float8E4M3FN);
    const Tensor d = x.astype(DType::BFloat16), v = w.astype(DType::BFloat16);
    const auto same = [](const Tensor& have, const Tensor& want) {
      EXPECT_EQ(have.dtype(), DType::BFloat16);
      EXPECT_TRUE(array_equal(have, want));
    };
    same(nn::max_pool(x, {3, 3}, {2, 2}, {1, 1}), nn::max_pool(d, {3, 3}, {2, 2}, {1, 1}));
    same(nn::mean_pool(x, {2, 2}), nn::mean_pool(d, {2, 2}));
    same(nn::adaptive_max_pool(x, {3, 5}), nn::adaptive_max_pool(d, {3, 5}));
    same(nn::adaptive_mean_pool(x, {3, 5}), nn::adaptive_mean_pool(d, {3, 5}));
    same(nn::conv(x, w, {}, {.padding = {1, 1}}), nn::conv(d, v, {}, {.padding = {1, 1}}));
    same(nn::conv_transpose(x, w.reshape({3, 4, 3, 3})), nn::conv_transpose(d, v.reshape({3, 4, 3, 3})));
    same(nn::interpolate(x, {5, 11}, nn::Interpolation::Linear),
         nn::interpolate(d, {5, 11}, nn::Interpolation::Linear));
    EXPECT_EQ(nn::interpolate(x, {5, 11}, nn::Interpolation::Nearest).dtype(), DType::Float8E4M3FN);
  });
}

TEST(Float8, MovesAndChoicesKeepIt) {
  in_every_mode([] {
    const Tensor x = arange(24).reshape({4, 6}).astype(DType::Float8E5M2), d = x.astype(DType::Float32);
    const auto same = [](const Tensor& moved, const Tensor& expected) {
      EXPECT_EQ(moved.dtype(), DType::Float8E5M2);
      EXPECT_TRUE(array_equal(moved.astype(DType::Float32), expected));
    };
    same(x.T(), d.T());
    same(x(slice::all(), range(1, none, 2)), d(slice::all(), range(1, none, 2)));
    same(concat({x, x.T().reshape({4, 6})}, 1), concat({d, d.T().reshape({4, 6})}, 1));
    same(take(x, Tensor(std::vector<std::int64_t>{3, 0, 3}), 0),
         take(d, Tensor(std::vector<std::int64_t>{3, 0, 3}), 0));
    same(where(d > 4, x, x.T().reshape({4, 6})), where(d > 4, d, d.T().reshape({4, 6})));
    same(where(d > 4, x, 2), where(d > 4, d, 2));
    same(pad(x, {{1, 0}, {0, 2}}, 3), pad(d, {{1, 0}, {0, 2}}, 3));
    same(roll(x, 2, 1), roll(d, 2, 1));
    same(slice_update(x, {range(0, 2)}, 7), slice_update(d, {range(0, 2)}, 7));
    same(scatter(x, Tensor(std::vector<std::int64_t>{1}), 5, 0, Combine::Set),
         scatter(d, Tensor(std::vector<std::int64_t>{1}), 5, 0, Combine::Set));
    same(full({3}, 0.5, DType::Float8E5M2), full({3}, 0.5));
    same(linspace(0, 1, 5, true, DType::Float8E5M2), linspace(0, 1, 5));
  });
}

TEST(Float8, IsAsFewKernelsAsAnyConversion) {
  const Tensor x = random::uniform(random::Key(1), {64, 100});
  const Tensor out = (x * 3).astype(DType::Float8E4M3FN).astype(DType::Float32) + 1;
  EXPECT_EQ(test::kernels({out}), 1u);
}

/// Weights of 8 bits with a scale for each column, as they are served.
TEST(Float8, WeightsWithScales) {
  in_every_mode([] {
    const Tensor stored = ((arange(96 * 40) * 7 % 31) - 15).reshape({96, 40}).astype(DType::Float8E4M3FN);
    const Tensor scale = (arange(40) % 3 + 1).astype(DType::BFloat16) * 0.25;
    for (const std::int64_t rows : {1, 2, 5, 33}) {
      const Tensor x = ((arange(rows * 96) % 5) - 2).reshape({rows, 96}).astype(DType::BFloat16);
      const Tensor have = matmul(x, stored.astype(DType::BFloat16) * scale);
      const Tensor want =
          matmul(x.astype(DType::Float64), stored.astype(DType::Float64) * scale.astype(DType::Float64));
      EXPECT_TRUE(allclose(have.astype(DType::Float64), want, 1e-2, 1e-2)) << rows;
    }
  });
}

TEST(Float8, WhatIsNotDefinedSaysSo) {
  const Tensor x = zeros({4}, DType::Float8E4M3FN);
  const Tensor at(std::vector<std::int64_t>{1});
  EXPECT_THROW((void)scatter(x, at, 1, 0, Combine::Add), UserError);
  EXPECT_THROW((void)scatter(x, at, 1, 0, Combine::Max), UserError);
  EXPECT_THROW((void)random::uniform(random::Key(1), {4}, DType::Float8E4M3FN), UserError);
  EXPECT_THROW(save_npy("float8.npy", x), UserError);
}

/// A derivative passes the conversion and is not rounded to so few bits.
TEST(Float8, DerivativesPass) {
  const auto f = [](const Tensor& x) {
    return sum(x.astype(DType::Float8E4M3FN).astype(DType::Float32) *
               Tensor(std::vector<float>{1.0f, 1.03125f, 7}));
  };
  expect_equal<float>(grad(f)(Tensor(std::vector<float>{0.3f, 2, -5})), {1.0f, 1.03125f, 7});
  const Tensor stored = Tensor(std::vector<float>{1, 2}).astype(DType::Float8E5M2);
  const Tensor slope = grad([](const Tensor& w) { return sum(w.astype(DType::Float32) * 3); })(stored);
  EXPECT_EQ(slope.dtype(), DType::BFloat16);
  expect_equal<double>(slope.astype(DType::Float64), {3, 3});
}

TEST(Float8, FilesAndOtherLibraries) {
  const auto path = std::filesystem::temp_directory_path() / "kiln_float8_test.safetensors";
  std::map<std::string, Tensor> saved;
  for (const DType type : kTypes) saved.emplace(std::string(name(type)), bitcast(all_bits(), type));
  save_safetensors(path, saved);
  const auto loaded = load_safetensors(path);
  std::filesystem::remove(path);
  for (const DType type : kTypes) {
    const Tensor& t = loaded.tensors.at(std::string(name(type)));
    ASSERT_EQ(t.dtype(), type);
    EXPECT_TRUE(array_equal(bitcast(t, DType::UInt8), all_bits()));
    const Tensor shared = from_dlpack(to_dlpack(bitcast(all_bits(), type)).release());
    ASSERT_EQ(shared.dtype(), type);
    EXPECT_TRUE(array_equal(bitcast(shared, DType::UInt8), all_bits()));
  }
}

TEST(Float8, Prints) {
  std::ostringstream out;
  out << Tensor(std::vector<float>{0.1f, 448}).astype(DType::Float8E4M3FN);
  EXPECT_EQ(out.str(), "[0.102,  448.]  float8_e4m3fn (2,)");
}

}  // namespace
}  // namespace kiln
