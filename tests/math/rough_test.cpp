// Approximations for values that half types will hold: each operation of one operand that has one, over every
// value of both half types, against the reference in double.
#include "math/expand.h"
#include "math/math_function.h"
#include "oracle/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <type_traits>

namespace kiln {
namespace {

namespace ref = ir::ref;
using ir::Op;
using kernel::E;

struct Approximation {
  const char* name;
  Op op;
  double (*want)(double);
};

const Approximation kAll[] = {
    {"exp", Op::exp, std::exp},
    {"exp2", Op::exp2, std::exp2},
    {"sqrt", Op::sqrt, std::sqrt},
    {"reciprocal", Op::reciprocal, [](double x) { return 1 / x; }},
    {"tanh", Op::tanh, std::tanh},
    {"sigmoid", Op::sigmoid, [](double x) { return ref::sigmoid(x); }},
    {"silu", Op::silu, [](double x) { return ref::silu(x); }},
    {"erfc", Op::erfc, std::erfc},
    {"gelu", Op::gelu, [](double x) { return ref::gelu(x); }},
    {"gelu_tanh", Op::gelu_tanh, [](double x) { return ref::gelu_tanh(x); }},
    {"softplus", Op::softplus, [](double x) { return ref::softplus(x); }},
    {"mish", Op::mish, [](double x) { return ref::mish(x); }},
};

// On a CPU, by a short polynomial.
const Approximation kOnCpu[] = {
    {"exp", Op::exp, std::exp},
    {"exp2", Op::exp2, std::exp2},
    {"tanh", Op::tanh, std::tanh},
    {"sigmoid", Op::sigmoid, [](double x) { return ref::sigmoid(x); }},
    {"silu", Op::silu, [](double x) { return ref::silu(x); }},
    {"erfc", Op::erfc, std::erfc},
    {"gelu", Op::gelu, [](double x) { return ref::gelu(x); }},
    {"gelu_tanh", Op::gelu_tanh, [](double x) { return ref::gelu_tanh(x); }},
    {"softplus", Op::softplus, [](double x) { return ref::softplus(x); }},
    {"mish", Op::mish, [](double x) { return ref::mish(x); }},
};

class Roughly : public ::testing::TestWithParam<Approximation> {};

template <class H>
H of_bits(std::uint32_t bits) {
  H h;
  h.bits = static_cast<std::uint16_t>(bits);
  return h;
}

/// In units of the last place of H at `want`.
template <class H>
double error_of(float got, double want) {
  constexpr bool kBFloat = std::is_same_v<H, bfloat16>;
  constexpr int kLeast = kBFloat ? -126 : -14, kFraction = kBFloat ? 7 : 10;
  return std::ldexp(std::abs(static_cast<double>(got) - want),
                    kFraction - std::max(std::ilogb(want), kLeast));
}

using Expand = E (*)(Op, bool, E, E, E, DType);

template <class H>
void check(const Approximation& a, Expand expand) {
  lower::Function f([&](E x, E) { return expand(a.op, true, x, {}, {}, DType::Float32); });
  double worst = 0;
  float at = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = of_bits<H>(bits);
    float got = 0;
    f.run(1, &x, &x, &got);
    const double want = a.want(static_cast<double>(x));
    const float stored = static_cast<float>(ref::to_half<H>(want));
    if (std::isnan(stored) || std::isinf(stored) || stored == 0) {
      const float mine = static_cast<float>(H(got));
      EXPECT_TRUE(std::isnan(stored) ? std::isnan(mine) : mine == stored)
          << a.name << "(" << x << ") is " << got << ", not " << stored;
      continue;
    }
    const double error = error_of<H>(got, want);
    if (error > worst) worst = error, at = x;
  }
  std::printf("| %s | %.3f at %g |\n", a.name, worst, at);
  EXPECT_LE(worst, 0.05) << a.name << "(" << at << ")";
}

TEST_P(Roughly, IsWithinATwentiethOfAnUlpOfFloat16) { check<float16>(GetParam(), lower::expand_gpu); }
TEST_P(Roughly, IsWithinATwentiethOfAnUlpOfBFloat16) { check<bfloat16>(GetParam(), lower::expand_gpu); }

INSTANTIATE_TEST_SUITE_P(Math, Roughly, ::testing::ValuesIn(kAll),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(RoughTanh, BesideOneIsWithinAnErrorAsSuch) {
  lower::Function f([&](E x, E) { return lower::expand_tanh_beside_one(x); });
  double worst = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = of_bits<bfloat16>(bits);
    float got = 0;
    f.run(1, &x, &x, &got);
    if (std::isnan(x))
      EXPECT_TRUE(std::isnan(got));
    else
      worst = std::max(worst, std::abs(double{got} - std::tanh(double{x})));
  }
  EXPECT_LE(worst, 0x1p-22);
}

class RoughlyOnCpu : public ::testing::TestWithParam<Approximation> {};

TEST_P(RoughlyOnCpu, IsWithinATwentiethOfAnUlpOfFloat16) { check<float16>(GetParam(), lower::expand_cpu); }
TEST_P(RoughlyOnCpu, IsWithinATwentiethOfAnUlpOfBFloat16) { check<bfloat16>(GetParam(), lower::expand_cpu); }

TEST_P(RoughlyOnCpu, IsWithinATwentiethOfAnUlpOfFloat16WithAvx512) {
  check<float16>(GetParam(), lower::expand_avx512);
}
TEST_P(RoughlyOnCpu, IsWithinATwentiethOfAnUlpOfBFloat16WithAvx512) {
  check<bfloat16>(GetParam(), lower::expand_avx512);
}

INSTANTIATE_TEST_SUITE_P(Math, RoughlyOnCpu, ::testing::ValuesIn(kOnCpu),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace kiln
