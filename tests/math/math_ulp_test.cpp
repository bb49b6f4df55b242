// Accuracy of the Float32 expansions against double and long double libm, confirmed by MPFR.
//
// Every function is swept over all exponents, both signs, subnormals, specials and the neighbourhoods where
// behaviour changes. Prints one row a function: | name | max ulp | at | primitives |, the table of
// docs/accuracy.md. KILN_TEST_EXHAUSTIVE=n sweeps every n-th of all 2^32 operands (1: all of them).
#include "math/expand.h"
#include "math/math.h"
#include "math/math_function.h"

#include "oracle/reference.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>

namespace kiln::lower {
namespace {

// ---- references
// -------------------------------------------------------------------------------------------------

using Mp = mpfr_t;
using MpUnary = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
/// Value of a formula on one float, in 300-bit arithmetic.
using MpFormula = void (*)(mpfr_ptr out, mpfr_srcptr x);

struct Scratch {
  Mp v;
  explicit Scratch(int bits = 300) { mpfr_init2(v, bits); }
  ~Scratch() { mpfr_clear(v); }
  operator mpfr_ptr() { return v; }
};

template <MpUnary F>
void mp(mpfr_ptr out, mpfr_srcptr x) {
  F(out, x, MPFR_RNDN);
}

void mp_one_plus_exp_minus(mpfr_ptr out, mpfr_srcptr x) {
  mpfr_neg(out, x, MPFR_RNDN);
  mpfr_exp(out, out, MPFR_RNDN);
  mpfr_add_ui(out, out, 1, MPFR_RNDN);
}
void mp_sigmoid(mpfr_ptr out, mpfr_srcptr x) {
  mp_one_plus_exp_minus(out, x);
  mpfr_ui_div(out, 1, out, MPFR_RNDN);
}
void mp_silu(mpfr_ptr out, mpfr_srcptr x) {
  Scratch d;
  mp_one_plus_exp_minus(d, x);
  mpfr_div(out, x, d, MPFR_RNDN);
}
void mp_softplus(mpfr_ptr out, mpfr_srcptr x) {
  if (mpfr_cmp_ui(x, 1000) > 0) {  // e^x may leave MPFR's range
    mpfr_set(out, x, MPFR_RNDN);
    return;
  }
  mpfr_exp(out, x, MPFR_RNDN);
  mpfr_log1p(out, out, MPFR_RNDN);
}
void mp_mish(mpfr_ptr out, mpfr_srcptr x) {
  Scratch t;
  mp_softplus(t, x);
  mpfr_tanh(t, t, MPFR_RNDN);
  mpfr_mul(out, x, t, MPFR_RNDN);
}
void mp_gelu(mpfr_ptr out, mpfr_srcptr x) {
  Scratch t;
  mpfr_sqrt_ui(t, 2, MPFR_RNDN);
  mpfr_div(t, x, t, MPFR_RNDN);
  mpfr_neg(t, t, MPFR_RNDN);
  mpfr_erfc(t, t, MPFR_RNDN);
  mpfr_mul(out, x, t, MPFR_RNDN);
  mpfr_div_ui(out, out, 2, MPFR_RNDN);
}
void mp_gelu_tanh(mpfr_ptr out, mpfr_srcptr x) {
  Scratch t, u;
  mpfr_sqr(t, x, MPFR_RNDN);
  mpfr_mul(t, t, x, MPFR_RNDN);
  mpfr_mul_ui(t, t, 44715, MPFR_RNDN);
  mpfr_div_ui(t, t, 1000000, MPFR_RNDN);
  mpfr_add(t, t, x, MPFR_RNDN);
  mpfr_const_pi(u, MPFR_RNDN);
  mpfr_ui_div(u, 2, u, MPFR_RNDN);
  mpfr_sqrt(u, u, MPFR_RNDN);
  mpfr_mul_ui(u, u, 2, MPFR_RNDN);
  mpfr_mul(t, t, u, MPFR_RNDN);
  mp_one_plus_exp_minus(u, t);
  mpfr_div(out, x, u, MPFR_RNDN);
}
void mp_lgamma(mpfr_ptr out, mpfr_srcptr x) {
  int sign = 0;
  mpfr_lgamma(out, &sign, x, MPFR_RNDN);
}
/// 0 at -inf: the limit of x times something that vanishes faster.
double at_minus_inf(double x, double value) { return x == -HUGE_VAL ? -0.0 : value; }

double mp_value(MpFormula f, float x) {
  Scratch in(24), out;
  mpfr_set_flt(in, x, MPFR_RNDN);
  f(out, in);
  return mpfr_get_d(out, MPFR_RNDN);
}

using Fast = double (*)(double);
double fast_sigmoid(double x) {
  return static_cast<double>(1 / (1 + std::exp(static_cast<long double>(-x))));
}
double fast_silu(double x) {
  return at_minus_inf(x, static_cast<double>(x / (1 + std::exp(static_cast<long double>(-x)))));
}
double fast_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double fast_mish(double x) { return at_minus_inf(x, x > 50 ? x : x * std::tanh(std::log1p(std::exp(x)))); }
double fast_gelu(double x) {
  return at_minus_inf(x, static_cast<double>(0.5L * x * std::erfc(-x / std::sqrt(2.0L))));
}
double fast_gelu_tanh(double x) {
  const long double u = 2 * std::sqrt(2 / 3.14159265358979323846264L) * (x + 0.044715L * x * x * x);
  return at_minus_inf(x, static_cast<double>(x / (1 + std::exp(-u))));
}
double fast_lgamma(double x) {
  int sign = 0;
  return static_cast<double>(::lgammal_r(x, &sign));
}
double fast_rsqrt(double x) { return 1 / std::sqrt(x); }

struct Unary {
  const char* name;
  double bound;  // ulp
  E (*expand)(E);
  Fast fast;
  MpFormula exact;
};

/// The one table of Float32 tolerances.
const Unary kUnary[] = {
    {"exp", 1.0, math::exp, std::exp, mp<mpfr_exp>},
    {"exp2", 1.0, math::exp2, std::exp2, mp<mpfr_exp2>},
    {"expm1", 0.51, math::expm1, std::expm1, mp<mpfr_expm1>},
    {"log", 1.0, math::log, std::log, mp<mpfr_log>},
    {"log2", 1.9, math::log2, std::log2, mp<mpfr_log2>},
    {"log10", 0.51, math::log10, std::log10, mp<mpfr_log10>},
    {"log1p", 0.51, math::log1p, std::log1p, mp<mpfr_log1p>},
    {"sin", 1.7, math::sin, std::sin, mp<mpfr_sin>},
    {"cos", 1.7, math::cos, std::cos, mp<mpfr_cos>},
    {"tan", 0.51, math::tan, std::tan, mp<mpfr_tan>},
    {"asin", 0.51, math::asin, std::asin, mp<mpfr_asin>},
    {"acos", 0.51, math::acos, std::acos, mp<mpfr_acos>},
    {"atan", 0.51, math::atan, std::atan, mp<mpfr_atan>},
    {"sinh", 0.51, math::sinh, std::sinh, mp<mpfr_sinh>},
    {"cosh", 0.51, math::cosh, std::cosh, mp<mpfr_cosh>},
    {"tanh", 2.0, math::tanh, std::tanh, mp<mpfr_tanh>},
    {"asinh", 0.51, math::asinh, std::asinh, mp<mpfr_asinh>},
    {"acosh", 0.51, math::acosh, std::acosh, mp<mpfr_acosh>},
    {"atanh", 0.51, math::atanh, std::atanh, mp<mpfr_atanh>},
    {"erf", 2.0, math::erf, std::erf, mp<mpfr_erf>},
    {"erfc", 0.51, math::erfc, std::erfc, mp<mpfr_erfc>},
    {"sigmoid", 2.1, math::sigmoid, fast_sigmoid, mp_sigmoid},
    {"silu", 2.0, math::silu, fast_silu, mp_silu},
    {"sigmoid_by_shift", 2.1, expand_sigmoid_by_shift, fast_sigmoid, mp_sigmoid},
    {"silu_by_shift", 2.0, expand_silu_by_shift, fast_silu, mp_silu},
    {"gelu", 2.0, math::gelu, fast_gelu, mp_gelu},
    {"gelu_tanh", 2.0, math::gelu_tanh, fast_gelu_tanh, mp_gelu_tanh},
    {"gelu_by_shift", 2.0, expand_gelu_by_shift, fast_gelu, mp_gelu},
    {"gelu_tanh_by_shift", 2.0, expand_gelu_tanh_by_shift, fast_gelu_tanh, mp_gelu_tanh},
    {"softplus", 0.51, math::softplus, fast_softplus, mp_softplus},
    {"mish", 0.51, math::mish, fast_mish, mp_mish},
    {"ndtri", 4.6, math::ndtri, ir::ref::ndtri, nullptr},
    {"lgamma", 0.51, math::lgamma, fast_lgamma, mp_lgamma},
    {"digamma", 0.51, math::digamma, ir::ref::digamma, mp<mpfr_digamma>},
    {"cbrt", 0.51, math::cbrt, std::cbrt, mp<mpfr_cbrt>},
    {"rsqrt", 1.5, math::rsqrt, fast_rsqrt, nullptr},
};

// ---- the sweep
// --------------------------------------------------------------------------------------------------

std::uint64_t exhaustive_stride() {
  const char* text = std::getenv("KILN_TEST_EXHAUSTIVE");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

/// Calls visit(float) over the operands of a sweep.
template <class Visit>
void for_each_operand(Visit&& visit) {
  const auto bits = [&](std::uint64_t b) { visit(std::bit_cast<float>(static_cast<std::uint32_t>(b))); };
  if (const std::uint64_t stride = exhaustive_stride()) {
    for (std::uint64_t b = 0; b < (std::uint64_t{1} << 32); b += stride) bits(b);
    return;
  }
  std::mt19937 gen(20);
  // All exponents (subnormals, infinity and NaN are two of them), both signs.
  for (std::uint32_t high = 0; high < 512; ++high) {
    for (const std::uint32_t edge : {0u, 1u, 2u, 0x3fffffu, 0x400000u, 0x7ffffeu, 0x7fffffu})
      bits(high << 23 | edge);
    for (int i = 0; i < 1000; ++i) bits(high << 23 | (gen() & 0x7fffff));
  }
  // Where most work and most branches of behaviour are.
  for (int i = 0; i < 300000; ++i) {
    visit(std::uniform_real_distribution<float>(-16, 16)(gen));
    visit(std::uniform_real_distribution<float>(-110, 110)(gen));
  }
  for (const float limit : {2.0f, 1.0f}) {
    for (int i = 0; i < 100000; ++i) visit(std::uniform_real_distribution<float>(-limit, limit)(gen));
  }
  // Overflow, underflow, saturation, multiples of ln2 / 2 and pi / 4: forty floats either side.
  std::vector<double> centers = {88.722839, 87.336544, 103.972077, 9.010913, 3.92, 10.0, 13.0,
                                 14.2,      60,        89,         104,      128,  149,  126};
  // Zeros of lgamma and digamma (signs are both taken).
  for (const double zero :
       {2.4570247, 2.7476827, 3.1435809, 3.9552943, 4.0391615, 4.9915445, 5.0082182, 5.9986066, 1.4616321,
        0.50408301, 1.5734985, 2.6107209, 3.6352934, 4.6532378, 5.6671624})
    centers.push_back(zero);
  for (int i = 1; i <= 64; ++i) {
    centers.push_back(i * 0.34657359);
    centers.push_back(i * 0.78539816);
    centers.push_back(std::ldexp(0.78539816, i));
    centers.push_back(i * 0.5);
  }
  for (const double center : centers) {
    const std::uint32_t mid = std::bit_cast<std::uint32_t>(static_cast<float>(center));
    for (std::uint32_t b = mid - 40; b <= mid + 40; ++b) {
      bits(b);
      bits(b | 0x80000000u);
    }
  }
}

/// Batches operands through the expansion and compares with the double reference, then MPFR on a sample and
/// near `bound`.
Worst sweep(const Unary& u, Function& f) {
  Worst worst;
  float x[kLanes], out[kLanes];
  int n = 0;
  std::uint64_t seen = 0;
  const auto flush = [&] {
    f.run(n, x, x, out);
    for (int i = 0; i < n; ++i) {
      double want = u.fast(x[i]);
      double error = ulp_error(out[i], want);
      const bool confirm = error > 0.95 * u.bound || ++seen % 1009 == 0;
      if (confirm && u.exact && std::isfinite(x[i]) && x[i] != 0) {
        want = mp_value(u.exact, x[i]);
        error = ulp_error(out[i], want);
      }
      worst.take(error, x[i], 0, out[i], want);
    }
    n = 0;
  };
  for_each_operand([&](float value) {
    x[n++] = value;
    if (n == kLanes) flush();
  });
  flush();
  return worst;
}

class MathUlp : public ::testing::TestWithParam<Unary> {};

TEST_P(MathUlp, StaysWithinItsBound) {
  const Unary& u = GetParam();
  Function f([&](E x, E) { return u.expand(x); });
  const Worst w = sweep(u, f);
  std::printf("| %s | %.3f | %a | %d |\n", u.name, w.error, w.x, f.primitives());
  EXPECT_LE(w.error, u.bound) << u.name << "(" << std::hexfloat << w.x << ") got " << w.got << " want "
                              << w.want;
}

INSTANTIATE_TEST_SUITE_P(F32, MathUlp, ::testing::ValuesIn(kUnary),
                         [](const auto& param) { return std::string(param.param.name); });

/// e^x below a maximum and the logarithm of the sum of such, in the ranges that they are made for.
TEST(MathUlpInRange, ExpByShiftAndLogFromOne) {
  const auto inside = [](float x, float low, float high) { return std::min(std::max(x, low), high); };
  struct Case {
    const char* name;
    E (*expand)(E);
    double (*want)(double);
    float low, high;
    double bound;
  } const cases[] = {{"exp", expand_exp_by_shift, std::exp, -87, 88, 1.0},
                     {"log", expand_log_from_one, std::log, 1, 0x1p100f, 1.0}};
  for (const Case& c : cases) {
    Function f([&](E x, E) { return c.expand(x); });
    double worst = 0;
    for (std::uint64_t k = 0; k < (std::uint64_t{1} << 32); k += 65521) {
      const float any = std::bit_cast<float>(static_cast<std::uint32_t>(k));
      if (std::isnan(any)) continue;
      const float x = inside(any, c.low, c.high);
      float got = 0;
      f.run(1, &x, &x, &got);
      const double want = c.want(static_cast<double>(x));
      if (want != 0) worst = std::max(worst, std::abs(got - want) / std::ldexp(1.0, std::ilogb(want) - 23));
      if (want == 0) EXPECT_EQ(got, 0.0f);
    }
    EXPECT_LE(worst, c.bound) << c.name;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float got = 0;
    f.run(1, &nan, &nan, &got);
    EXPECT_TRUE(std::isnan(got)) << c.name;
  }
  Function log([&](E x, E) { return expand_log_from_one(x); });
  const float zero = 0;
  float got = 0;
  log.run(1, &zero, &zero, &got);
  EXPECT_TRUE(std::isfinite(got));
}

// ---- functions of two operands
// ----------------------------------------------------------------------------------

double ref_remainder(double x, double y) {
  const double r = std::fmod(x, y);
  if (std::isnan(r)) return r;
  if (r == 0) return std::copysign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

double ref_floor_divide(double x, double y) {
  if (y == 0 || std::isnan(x) || std::isnan(y)) return x / y;
  if (std::isinf(x)) return NAN;
  const bool negative = std::signbit(x) != std::signbit(y);
  if (std::isinf(y)) return x == 0 || !negative ? (negative ? -0.0 : 0.0) : -1;
  if (std::abs(x / y) >= 0x1p60) return x / y;
  // Exact: the quotient of x less its remainder, whose bits all fit 113.
  const __float128 whole = (static_cast<__float128>(x) - std::fmod(x, y)) / y;
  const double q = static_cast<double>(whole - (negative && std::fmod(x, y) != 0 ? 1 : 0));
  return q == 0 ? (negative ? -0.0 : 0.0) : q;
}

double ref_logaddexp(double x, double y) {
  if (x == y) return x + std::log(2.0);
  return std::max(x, y) + std::log1p(std::exp(-std::abs(x - y)));
}

double ref_nextafter(double x, double y) {
  return std::nextafterf(static_cast<float>(x), static_cast<float>(y));
}

struct Binary {
  const char* name;
  double bound;
  E (*expand)(E, E);
  double (*want)(double, double);
};

const Binary kBinary[] = {
    {"pow", 0.51, math::pow, std::pow},
    {"atan2", 0.51, math::atan2, std::atan2},
    {"hypot", 0.51, math::hypot, std::hypot},
    {"fmod", 0, math::fmod, std::fmod},
    {"remainder", 0.5, math::remainder, ref_remainder},
    {"floor_divide", 0.5, math::floor_divide, ref_floor_divide},
    {"logaddexp", 0.51, math::logaddexp, ref_logaddexp},
    {"copysign", 0, math::copysign, std::copysign},
    {"nextafter", 0, [](E x, E y) { return math::nextafter(x, y, DType::Float32); }, ref_nextafter},
};

class MathUlp2 : public ::testing::TestWithParam<Binary> {};

TEST_P(MathUlp2, StaysWithinItsBound) {
  const Binary& b = GetParam();
  Function f([&](E x, E y) { return b.expand(x, y); });
  Worst worst;
  float x[kLanes], y[kLanes], out[kLanes];
  int n = 0;
  const auto flush = [&] {
    f.run(n, x, y, out);
    for (int i = 0; i < n; ++i) {
      const double want = b.want(x[i], y[i]);
      worst.take(ulp_error(out[i], want), x[i], y[i], out[i], want);
    }
    n = 0;
  };
  const auto visit = [&](float xx, float yy) {
    x[n] = xx;
    y[n++] = yy;
    if (n == kLanes) flush();
  };
  std::vector<float> special = {0,
                                0x1p-149f,
                                0x1.8p-140f,
                                0x1p-126f,
                                1e-30f,
                                0.1f,
                                0x1.fffffep-2f,
                                0.5f,
                                1 - 0x1p-24f,
                                1,
                                1 + 0x1p-23f,
                                1.5f,
                                2,
                                2.5f,
                                3,
                                7,
                                10,
                                100,
                                0x1.fffffep22f,
                                0x1p23f,
                                0x1.000002p23f,
                                0x1.fffffep23f,
                                0x1p24f,
                                1e20f,
                                0x1.fffffep127f,
                                kInfF,
                                kNaNF};
  for (std::size_t i = special.size(); i-- > 0;) special.push_back(-special[i]);
  for (const float xx : special) {
    for (const float yy : special) visit(xx, yy);
  }
  std::mt19937 gen(3);
  const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(gen())); };
  const auto near = [&](float limit) { return std::uniform_real_distribution<float>(-limit, limit)(gen); };
  for (int i = 0; i < 150000; ++i) {
    visit(any(), any());
    visit(any(), near(3));
    visit(near(100), near(100));
    visit(near(2), near(130));
    visit(near(1000), std::round(near(20)));
    visit(std::round(near(1000)), std::round(near(20)));
    const float a = near(10);
    visit(a, std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) ^ static_cast<std::uint32_t>(gen() & 7)));
    visit(a * std::round(near(50)), a);
  }
  flush();
  std::printf("| %s | %.3f | %a, %a | %d |\n", b.name, worst.error, worst.x, worst.y, f.primitives());
  EXPECT_LE(worst.error, b.bound) << b.name << "(" << std::hexfloat << worst.x << ", " << worst.y << ") got "
                                  << worst.got << " want " << worst.want;
}

INSTANTIATE_TEST_SUITE_P(F32, MathUlp2, ::testing::ValuesIn(kBinary),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Math, Float64FormsOutsideTheLibraryAreAccurate) {
  const struct {
    const char* name;
    E (*expand)(E);
    MpFormula exact;
    double bound;  // relative
  } cases[] = {{"sigmoid", math::sigmoid, mp_sigmoid, 4e-16},
               {"silu", math::silu, mp_silu, 5e-16},
               {"gelu", math::gelu, mp_gelu, 3e-14},
               {"softplus", math::softplus, mp_softplus, 5e-16},
               {"mish", math::mish, mp_mish, 1e-15},
               {"cbrt", math::cbrt, mp<mpfr_cbrt>, 5e-16},
               {"gelu_tanh", math::gelu_tanh, mp_gelu_tanh, 3e-14}};
  for (const auto& c : cases) {
    Function f([&](E x, E) { return c.expand(x); }, DType::Float64);
    std::mt19937 gen(11);
    for (int i = 0; i < 3000; ++i) {
      // Float-valued operands, within the range where results are normal.
      const float limit = i % 2 ? 12 : 1;
      const double x = std::uniform_real_distribution<float>(-limit, limit)(gen);
      double got;
      f.run(1, &x, &x, &got);
      const double want = mp_value(c.exact, static_cast<float>(x));
      ASSERT_LE(std::abs(got - want), c.bound * std::abs(want))
          << c.name << "(" << x << ") got " << got << " want " << want;
    }
    for (const double x : {-HUGE_VAL, HUGE_VAL, double(kNaNF), 0.0, -0.0}) {
      Function g([&](E y, E) { return c.expand(y); });
      double got;
      float single, xf = static_cast<float>(x);
      f.run(1, &x, &x, &got);
      g.run(1, &xf, &xf, &single);
      EXPECT_EQ(std::isnan(got), std::isnan(single)) << c.name << x;
      if (!std::isnan(got)) {
        EXPECT_FLOAT_EQ(static_cast<float>(got), single) << c.name << x;
      }
    }
  }
}

/// Below 0 terms as large as the function at 1 - x cancel beside its zeros; the error is relative to those,
/// or to 1.
TEST(Math, GammaFunctionsOfFloat64AreAccurate) {
  const struct {
    const char* name;
    E (*expand)(E);
    MpFormula exact;
    double bound;           // above 0, relative
    double negative_bound;  // below, relative to 1, itself or the function at 1 - x
  } cases[] = {{"lgamma", math::lgamma, mp_lgamma, 8e-16, 8e-16},
               {"digamma", math::digamma, mp<mpfr_digamma>, 8e-16, 8e-16}};
  std::mt19937 gen(12);
  const auto exact = [](MpFormula f, double x) {
    Scratch in(53), out;
    mpfr_set_d(in, x, MPFR_RNDN);
    f(out, in);
    return mpfr_get_d(out, MPFR_RNDN);
  };
  for (const auto& c : cases) {
    Function f([&](E x, E) { return c.expand(x); }, DType::Float64);
    const auto value = [&](double x) {
      double got;
      f.run(1, &x, &x, &got);
      return got;
    };
    double worst = 0, worst_negative = 0;
    for (int i = 0; i < 20000; ++i) {
      const double limit = i % 4 == 0 ? 1 : i % 4 == 1 ? 4 : i % 4 == 2 ? 12 : 1000;
      const double x = std::uniform_real_distribution<double>(0, limit)(gen), want = exact(c.exact, x);
      worst = std::max(worst, std::abs(value(x) - want) / std::abs(want));
      const double low = exact(c.exact, -x);
      const double scale = std::max({1.0, std::abs(low), std::abs(exact(c.exact, 1 + x))});
      worst_negative = std::max(worst_negative, std::abs(value(-x) - low) / scale);
    }
    std::printf("| %s | %.3g | %.3g |\n", c.name, worst, worst_negative);
    EXPECT_LE(worst, c.bound) << c.name;
    EXPECT_LE(worst_negative, c.negative_bound) << c.name;
  }
  for (const double x : {0.0, -0.0, -1.0, -2.0, -1e300, -HUGE_VAL})
    EXPECT_EQ(call2<double>([](E y, E) { return math::lgamma(y); }, x), HUGE_VAL) << x;
  const auto digamma = [](double x) { return call2<double>([](E y, E) { return math::digamma(y); }, x); };
  EXPECT_EQ(digamma(0.0), -HUGE_VAL);
  EXPECT_EQ(digamma(-0.0), HUGE_VAL);
  EXPECT_EQ(digamma(HUGE_VAL), HUGE_VAL);
  for (const double x : {-1.0, -2.0, -1e300, -HUGE_VAL, std::nan("")})
    EXPECT_TRUE(std::isnan(digamma(x))) << x;
  EXPECT_EQ(call2<double>([](E y, E) { return math::lgamma(y); }, 1e306), HUGE_VAL);
}

}  // namespace
}  // namespace kiln::lower
