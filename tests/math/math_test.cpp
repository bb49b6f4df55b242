// The expansions' values where a sweep of errors does not look: integers, edges, order, cost.
#include "math/math.h"
#include "math/math_function.h"

#include "oracle/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>

namespace kiln::lower {
namespace {

TEST(Math, FloorDivideIsTheFloorOfTheExactQuotient) {
  EXPECT_EQ(call2<float>(math::floor_divide, 1.0f, 0.1f), 9.0f);
  EXPECT_EQ(call2<double>(math::floor_divide, 1.0, 0.1), 9.0);
  EXPECT_EQ(call2<float>(math::floor_divide, -7.0f, 2.0f), -4.0f);
  EXPECT_EQ(call2<double>(math::remainder, -7.0, 3.0), 2.0);
  EXPECT_EQ(call2<double>(math::remainder, 7.0, -3.0), -2.0);
}

TEST(Math, SaturatingFunctionsStayInRangeAndMonotone) {
  for (E (*expand)(E) : {math::tanh, math::erf, math::sigmoid}) {
    Function f([&](E x, E) { return expand(x); });
    float x[kLanes], out[kLanes], last = -1;
    for (int block = 0; block < 500; ++block) {
      for (int i = 0; i < kLanes; ++i)
        x[i] = -20 + 40.0f * static_cast<float>(block * kLanes + i) / (500 * kLanes);
      f.run(kLanes, x, x, out);
      for (int i = 0; i < kLanes; ++i) {
        ASSERT_LE(std::abs(out[i]), 1.0f) << x[i];
        ASSERT_GE(out[i], last - 0x1p-23f * std::abs(last)) << x[i];
        last = out[i];
      }
    }
    EXPECT_EQ(last, 1.0f);
  }
}

TEST(Math, PowIntMatchesPow) {
  std::mt19937 gen(5);
  for (const std::int64_t n : {-1000001, -127, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 16, 63, 149, 1 << 20,
                               (1 << 20) + 1, (1 << 24) + 1}) {
    Function f([&](E x, E) { return math::pow_int(x, n); });
    Worst worst;
    float x[kLanes], out[kLanes];
    for (int block = 0; block < 40; ++block) {
      for (int i = 0; i < kLanes; ++i) {
        const float spread =
            std::uniform_real_distribution<float>(-140, 128)(gen) / static_cast<float>(n ? n : 1);
        x[i] = block % 2 ? std::bit_cast<float>(static_cast<std::uint32_t>(gen()))
                         : std::exp2(spread) * (i % 2 ? 1.0f : -1.0f);
      }
      const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, kInfF, -kInfF, kNaNF, 0x1p-149f};
      if (block == 0) std::copy(std::begin(special), std::end(special), x);
      f.run(kLanes, x, x, out);
      for (int i = 0; i < kLanes; ++i) {
        const double want = std::pow(static_cast<double>(x[i]), static_cast<double>(n));
        worst.take(ulp_error(out[i], want), x[i], 0, out[i], want);
      }
    }
    EXPECT_LE(worst.error, n >= 1 && n <= 4 ? 2.0 : 0.51)
        << "n = " << n << " x = " << std::hexfloat << worst.x << " got " << worst.got << " want "
        << worst.want;
  }
}

TEST(Math, PowIntOfIntegersWrapsAndTruncates) {
  const auto power = [](std::int64_t n) { return [n](E x, E) { return math::pow_int(x, n); }; };
  EXPECT_EQ(call2<std::int32_t>(power(5), -3), -243);
  EXPECT_EQ(call2<std::int32_t>(power(32), 2), 0);
  EXPECT_EQ(call2<std::int32_t>(power(-3), -1), -1);
  EXPECT_EQ(call2<std::int32_t>(power(-3), 2), 0);
  EXPECT_EQ(call2<std::uint8_t>(power(0), 7), 1);
}

TEST(Math, NextafterStepsAmongTheValuesOfAHalfType) {
  for (const DType type : {DType::Float16, DType::BFloat16}) {
    Function f([&](E x, E y) { return math::nextafter(x, y, type); });
    const auto value = [&](std::uint32_t bits) {
      float16 h;
      bfloat16 b;
      h.bits = b.bits = static_cast<std::uint16_t>(bits);
      return type == DType::Float16 ? float(h) : float(b);
    };
    const std::uint32_t inf = type == DType::Float16 ? 0x7c00 : 0x7f80;
    for (std::uint32_t bits = 0; bits <= inf; ++bits) {
      const float x[] = {value(bits), value(bits), -value(bits), -value(bits)},
                  y[] = {kInfF, -kInfF, kInfF, -kInfF};
      float out[4];
      f.run(4, x, y, out);
      const float up = value(std::min(bits + 1, inf)), down = bits ? value(bits - 1) : -value(1);
      const float want[] = {up, down, bits ? -down : value(1), -up};
      for (int i = 0; i < 4; ++i) ASSERT_EQ(out[i], want[i]) << x[i] << " towards " << y[i];
    }
  }
}

TEST(Math, IntegerDivisionFloorsAndShiftsOutOfRangeVanish) {
  EXPECT_EQ(call2<std::int32_t>(math::floor_divide, -7, 2), -4);
  EXPECT_EQ(call2<std::int32_t>(math::floor_divide, 7, 0), 0);
  EXPECT_EQ(call2<std::int8_t>(math::floor_divide, -128, -1), -128);
  EXPECT_EQ(call2<std::int32_t>(math::remainder, -7, 2), 1);
  EXPECT_EQ(call2<std::int32_t>(math::remainder, 7, -4), -1);
  EXPECT_EQ(call2<std::int32_t>(math::remainder, 7, 0), 0);
  EXPECT_EQ(call2<std::uint8_t>(math::remainder, 200, 7), 4);
  EXPECT_EQ(call2<std::int32_t>(math::shift_left, 1, 31), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(call2<std::int32_t>(math::shift_left, 1, 32), 0);
  EXPECT_EQ(call2<std::int32_t>(math::shift_left, 1, -1), 0);
  EXPECT_EQ(call2<std::int32_t>(math::shift_right, -8, 1), -4);
  EXPECT_EQ(call2<std::int32_t>(math::shift_right, -8, 99), -1);
  EXPECT_EQ(call2<std::int32_t>(math::shift_right, -8, -99), -1);
  EXPECT_EQ(call2<std::uint8_t>(math::shift_right, 200, 8), 0);
}

TEST(Math, IntegerPowerWithATensorExponent) {
  const std::function<E(E, E)> power = [](E x, E y) { return math::pow_int(x, y); };
  std::mt19937 gen(9);
  for (int i = 0; i < 2000; ++i) {
    const auto x = static_cast<std::int16_t>(gen()), y = static_cast<std::int16_t>(gen() >> (i % 16));
    std::int64_t want = 1;
    if (y < 0) {
      want = x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    } else {
      for (int k = 0; k < y; ++k) want = static_cast<std::int16_t>(want * x);
    }
    ASSERT_EQ(call2<std::int16_t>(power, x, y), want) << x << " ^ " << y;
  }
  EXPECT_EQ(call2<std::uint64_t>(power, 3, 40), 12157665459056928801u);
  EXPECT_EQ(call2<std::int64_t>(power, -1, -3), -1);
  EXPECT_EQ(call2<std::uint8_t>(power, 0, 0), 1);
}

TEST(Math, SignsKeepNaNsAndTheSignBitSeesZeros) {
  const auto sign = [](E x, E) { return math::sign(x); };
  EXPECT_EQ(call2<float>(sign, -3.0f), -1.0f);
  EXPECT_TRUE(std::isnan(call2<float>(sign, kNaNF)));
  EXPECT_FALSE(std::signbit(call2<float>(sign, -0.0f)));
  EXPECT_EQ(call2<float>(sign, 0x1p-149f), 1.0f);
  EXPECT_EQ(call2<std::uint8_t>(sign, 200), 1);
  EXPECT_EQ(call2<std::int64_t>(sign, -9), -1);
  const auto signbit = [](E x, E) { return select(math::signbit(x), x.lit(1), x.lit(0)); };
  EXPECT_EQ(call2<float>(signbit, -0.0f), 1.0f);
  EXPECT_EQ(call2<double>(signbit, 0.0), 0.0);
  EXPECT_EQ(call2<std::int8_t>(signbit, -1), 1);
}

TEST(Math, TheSmallChainIsShort) {
  // tanh(a b + 1) sigmoid(a - b) + relu(a) / 2 - |b|: compute must hide under the memory traffic of three
  // floats.
  Function f([](E a, E b) {
    return math::tanh(a * b + 1.0) * math::sigmoid(a - b) + max(a, a.lit(0)) * 0.5 - abs(b);
  });
  EXPECT_LE(f.primitives(), 60);
}

}  // namespace
}  // namespace kiln::lower
