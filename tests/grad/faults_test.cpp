// Derivatives where a function has a corner, a pole or a NaN, and of updates whose source is what they write.
// docs/gradients.md states the values; fused and op by op they are the same.
#include "api/expect.h"
#include "grad/check.h"
#include "modes.h"

#include <functional>
#include <string>
#include <vector>

namespace kiln {
namespace {

using namespace kiln::testing;

constexpr double kNone = NAN, kPole = HUGE_VAL;

Tensor doubles(std::vector<double> values) { return Tensor::from(values); }

struct Corner {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  std::vector<double> at, want;
};

const std::vector<Corner>& corners() {
  static const std::vector<Corner> all = {
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, {0, 4}, {kPole, 0.25}},
      {"sqrt of a square", [](const Tensor& x) { return sqrt(x * x); }, {0, -2}, {kNone, -1}},
      {"norm", [](const Tensor& x) { return sqrt(sum(x * x)); }, {0, 0}, {kNone, kNone}},
      {"pow(x, 2)", [](const Tensor& x) { return pow(x, 2.0); }, {0, -3}, {0, -6}},
      {"pow(x, 0)", [](const Tensor& x) { return pow(x, 0.0); }, {0, 3}, {0, 0}},
      {"pow(x, 0.5)", [](const Tensor& x) { return pow(x, 0.5); }, {0, 4}, {kPole, 0.25}},
      {"pow(0, y)", [](const Tensor& y) { return pow(0.0, y); }, {0, 1, 2}, {0, 0, 0}},
      {"abs", [](const Tensor& x) { return abs(x); }, {0, -1, 2}, {0, -1, 1}},
      {"relu", [](const Tensor& x) { return relu(x); }, {0, -1, 2}, {0, 0, 1}},
      {"where of a dead NaN",
       [](const Tensor& x) { return where(x > 0.0, log(x), 0.0); },
       {-1, 2},
       {-0.0, 0.5}},
      {"where of a dead pole",
       [](const Tensor& x) { return where(x > 0.0, sqrt(x), 0.0); },
       {-1, 0, 4},
       {kNone, kNone, 0.25}},
      {"where twice",
       [](const Tensor& x) {
         const Tensor alive = x > 0.0;
         return where(alive, sqrt(where(alive, x, 1.0)), 0.0);
       },
       {-1, 0, 4},
       {0, 0, 0.25}},
      {"a branch that is not taken",
       [](const Tensor& x) { return clip(x, 0.0, 1.0) * 2.0; },
       {-3, 0.5, 7},
       {0, 2, 0}},
      {"max", [](const Tensor& x) { return max(x) * 6.0; }, {2, 1, 2, 2}, {2, 0, 2, 2}},
      {"max of NaN", [](const Tensor& x) { return max(x); }, {kNone, 1}, {0, 0}},
      {"maximum of NaN", [](const Tensor& x) { return maximum(x, 3.0); }, {kNone, 1, 4}, {0, 0, 1}},
      {"minimum", [](const Tensor& x) { return minimum(x, x); }, {2, 1}, {1, 1}},
      {"prod", [](const Tensor& x) { return prod(x); }, {0, 2, 3}, {6, 0, 0}},
      {"cumprod", [](const Tensor& x) { return cumprod(x); }, {2, 0, 3, 0}, {1, 8, 0, 0}},
      {"cumprod of two zeros", [](const Tensor& x) { return cumprod(x); }, {0, 5, 0}, {6, 0, 0}},
      {"cummax", [](const Tensor& x) { return cummax(x); }, {1, 1, 0, 3}, {1, 2, 0, 1}},
      {"scatter to one place",
       [](const Tensor& x) { return scatter(zeros({2}, DType::Float64), Tensor({1, 1, 1}), x) * 5.0; },
       {7, 8, 9},
       {0, 0, 5}},
      {"scatter_max that ties",
       [](const Tensor& x) { return scatter_max(zeros({2}, DType::Float64), Tensor({0, 0, 1}), x) * 4.0; },
       {3, 3, -1},
       {2, 2, 0}},
      {"scatter out of range",
       [](const Tensor& x) { return scatter_add(zeros({2}, DType::Float64), Tensor({0, 9}), x); },
       {3, 4},
       {1, 0}},
      {"logsumexp of -inf", [](const Tensor& x) { return logsumexp(x); }, {-kPole, -kPole}, {0, 0}},
      {"hypot", [](const Tensor& x) { return hypot(x, 0.0); }, {0, 3}, {0, 1}},
  };
  return all;
}

/// Fused with what follows, so that the derivative is made inside of a kernel.
Tensor derivative(const Corner& c) {
  return grad([&](const Tensor& x) { return sum(c.f(x)); }, doubles(c.at)) + 0.0;
}

TEST(GradFaults, F43_CornersPolesAndNanAreAsDocumented) {
  for (const Corner& c : corners()) {
    SCOPED_TRACE(c.name);
    in_every_mode([&] { expect_near(derivative(c), c.want, 1e-14); });
  }
}

TEST(GradFaults, F43_TheSameBitsFusedAndOneByOneInTheStrictMode) {
  Config strict = config();
  strict.strict = true;
  const ScopedConfig scope(strict);
  for (const Corner& c : corners()) {
    SCOPED_TRACE(c.name);
    const Tensor fused = derivative(c).eval();
    const ModeScope eager(Mode::Eager);
    EXPECT_TRUE(array_equal(fused, derivative(c), true)) << fused;
  }
}

/// Reads come before writes, also of what is differentiated: each update is one of a copy.
TEST(GradFaults, F44_UpdatesFromViewsOfTheirOwnArray) {
  in_every_mode([] {
    const Tensor weight = doubles({1, 10, 100, 1000, 10000});
    const auto shifted = [&](const Tensor& x) {
      Tensor y = x * 1.0;
      y(range(1, 5)) = y(range(0, 4)) * 2.0;  // x0, 2x0, 2x1, 2x2, 2x3
      return sum(y * weight);
    };
    expect_near(grad(shifted, doubles({1, 2, 3, 4, 5})), {21, 200, 2000, 20000, 0}, 1e-14);
    const auto turned = [&](const Tensor& x) {
      Tensor y = x;  // the argument itself stays as it is
      y(all()) = flip(y) * y;
      return sum(y * weight) + sum(x);
    };
    expect_near(grad(turned, doubles({1, 2, 3, 4, 5})),
                {1 + 5 * 10001., 1 + 4 * 1010., 1 + 2 * 3 * 100., 1 + 2 * 1010., 1 + 10001.}, 1e-14);
    const auto added = [&](const Tensor& x) {
      Tensor y = x * x;
      y(range(0, 3)) += y(range(2, 5));
      y(range(2, 5)) += y(range(0, 3));
      return sum(y);
    };
    // y0+y2, y1+y3, then y2+y4+(y0+y2), y3+(y1+y3), y4+(y2+y4)
    expect_derivative([&](const Tensors& x) { return Tensors{added(x[0])}; }, {doubles({1, 2, 3, 4, 5})});
    expect_near(grad(added, doubles({1, 1, 1, 1, 1})), {4, 4, 8, 6, 6}, 1e-14);
  });
}

}  // namespace
}  // namespace kiln
