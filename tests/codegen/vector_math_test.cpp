// Float64 functions on vectors against the C library's long double: the errors that docs/accuracy.md states,
// special values, and nothing left over from the masked lanes of a tail.
#include "codegen/on_target.h"
#include "needs_cpu.h"
#include "tolerance.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace kiln {
namespace {

using testing::ConfigScope;
using Wide = long double;

struct Function {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  Wide (*exact)(Wide, Wide);
  double bound;  // ulp
};

#define KILN_UNARY(f, bound)                                      \
  {#f, [](const Tensor& x, const Tensor&) { return kiln::f(x); }, \
   [](Wide x, Wide) -> Wide { return ::f##l(x); }, bound}
#define KILN_BINARY(f, bound)                                          \
  {#f, [](const Tensor& x, const Tensor& y) { return kiln::f(x, y); }, \
   [](Wide x, Wide y) -> Wide { return ::f##l(x, y); }, bound}
const Function kFunctions[] = {
    KILN_UNARY(exp, 1),     KILN_UNARY(exp2, 2),  KILN_UNARY(log, 2),    KILN_UNARY(log1p, 2),
    KILN_UNARY(log2, 2),    KILN_UNARY(log10, 2), KILN_UNARY(acos, 2),   KILN_UNARY(atan, 1),
    KILN_UNARY(sinh, 2),    KILN_UNARY(cosh, 2),  KILN_UNARY(tanh, 2.3), KILN_UNARY(asinh, 2),
    KILN_UNARY(acosh, 2.2), KILN_UNARY(atanh, 2), KILN_UNARY(erfc, 3.5), KILN_BINARY(pow, 2),
    KILN_BINARY(hypot, 2),  KILN_UNARY(expm1, 2), KILN_UNARY(sin, 1),    KILN_UNARY(erf, 2),
    KILN_UNARY(cos, 1),     KILN_UNARY(tan, 1.5), KILN_UNARY(asin, 1.5), KILN_BINARY(atan2, 1.5),
};
#undef KILN_UNARY
#undef KILN_BINARY

constexpr double kSpecials[] = {0.0,
                                -0.0,
                                1,
                                -1,
                                0.5,
                                -0.5,
                                2,
                                -2,
                                3,
                                1.5,
                                HUGE_VAL,
                                -HUGE_VAL,
                                NAN,
                                5e-324,
                                -5e-324,
                                0x1p-1022,
                                -0x1p-1022,
                                0x1.fffffffffffffp-1023,
                                0x1.fffffffffffffp+1023,
                                -0x1.fffffffffffffp+1023,
                                1e300,
                                1e22,
                                0x1p53,
                                -0x1p53,
                                709.78271289338397,
                                709.782712893384,
                                -708.4,
                                -745.13,
                                -745.14,
                                1024,
                                -1074,
                                -1075,
                                26.5,
                                27.3,
                                0x1p-27,
                                0x1p-54,
                                1 + 0x1p-52,
                                1 - 0x1p-53,
                                -1 + 0x1p-53};

/// All exponents, the range where functions change, the neighbourhood of 1, and pairs of specials.
void operands(std::vector<double>& x, std::vector<double>& y) {
  std::mt19937_64 rng(11);
  const auto unit = [&] { return std::ldexp(static_cast<double>(rng() >> 11), -53); };
  const auto sign = [&] { return rng() & 1 ? 1.0 : -1.0; };
  for (double a : kSpecials)
    for (double b : kSpecials) x.push_back(a), y.push_back(b);
  for (int i = 0; i < 60000; ++i) {
    const std::uint64_t random = rng();
    x.push_back(std::bit_cast<double>(random));
    y.push_back(sign() * std::exp2(20 * unit() - 10));
    x.push_back(sign() * std::exp2(44 * unit() - 34));
    y.push_back(sign() * 40 * unit());
    x.push_back(sign() * (1 + sign() * std::exp2(-1 - 50 * unit())));
    y.push_back(sign() * std::exp2(60 * unit()));
    x.push_back(1500 * unit() - 750);
    y.push_back(unit());
    x.push_back(sign() * unit());
    y.push_back(sign() * unit());
  }
  // By themselves, since one lane that a reduction does not reach sends a whole vector elsewhere: next to the
  // zeros of sin and cos, and anywhere below 2^30.
  for (int i = 0; i < 60000; ++i) {
    x.push_back(sign() * static_cast<double>(rng() >> (35 + rng() % 29)) * 1.5707963267948966);
    x.push_back(sign() * std::exp2(70 * unit() - 40));
    y.push_back(unit());
    y.push_back(unit());
  }
}

/// |have - want| in units of the last place of `want` as a double.
double error(double have, Wide want) {
  const double rounded = static_cast<double>(want);
  if (have != have || rounded != rounded) return (have != have) == (rounded != rounded) ? 0 : HUGE_VAL;
  if (std::isinf(have) || std::isinf(rounded) || want == 0)
    return testing::ulp_distance(have, rounded, DType::Float64) == 0 ? 0 : HUGE_VAL;
  return static_cast<double>(fabsl(have - want) / ldexpl(1, std::max(ilogbl(want), -1022) - 52));
}

TEST(VectorMath, Float64FunctionsKeepTheirBounds) {
  KILN_NEEDS_CPU();
  std::vector<double> x, y;
  operands(x, y);
  x.push_back(1), y.push_back(1);  // an odd count: the last vector is partly masked
  if (x.size() % 2 == 0) x.pop_back(), y.pop_back();
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const Tensor a = Tensor::copy_of(x.data(), shape, DType::Float64),
               b = Tensor::copy_of(y.data(), shape, DType::Float64);
  for (const Function& f : kFunctions) {
    std::vector<Wide> want(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) want[i] = f.exact(x[i], y[i]);
    for (const std::string& target : testing::cpu_targets()) {
      const ConfigScope scope(target);
      const std::vector<double> have = f.op(a, b).to_vector<double>();
      double worst = 0;
      std::size_t at = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (const double e = error(have[i], want[i]); e > worst) worst = e, at = i;
      RecordProperty(f.name + ("_" + target), std::to_string(worst));
      EXPECT_LE(worst, f.bound) << f.name << " on " << (target.empty() ? "the host" : target) << " at "
                                << x[at] << ", " << y[at] << " is " << have[at];
    }
  }
}

}  // namespace
}  // namespace kiln
