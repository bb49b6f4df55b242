// Compares derivatives with differences: Ridders' extrapolation (Advances in Engineering Software 4, 1982) of
// central differences in float64, along random directions, within its own estimate of its error.
#pragma once

#include <kiln/grad.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace kiln::testing {

using Function = std::function<Tensors(const Tensors&)>;

inline Tensor random_like(const Tensor& x, std::mt19937& random, double low = -1, double high = 1) {
  std::uniform_real_distribution<double> some(low, high);
  std::vector<double> values(static_cast<std::size_t>(x.numel()));
  for (double& v : values) v = some(random);
  return Tensor::from(values, x.shape());
}
inline Tensor random_tensor(const Shape& shape, std::mt19937& random, double low = -1, double high = 1) {
  return random_like(zeros(shape), random, low, high);
}

inline double dot(const Tensors& a, const Tensors& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].numel() > 0 && is_float(a[i].dtype())) total += sum(a[i] * b[i]).item<double>();
  return total;
}

struct Difference {
  double value = 0, error = 0;
};

/// The derivative of a function of one number at 0.
template <class F>
Difference ridders(F f, double step) {
  constexpr int kSteps = 8;
  constexpr double kShrink = 1.6;
  double table[kSteps][kSteps];
  Difference best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kSteps; ++i, step /= kShrink) {
    table[0][i] = (f(step) - f(-step)) / (2 * step);
    double factor = kShrink * kShrink;
    for (int j = 1; j <= i; ++j, factor *= kShrink * kShrink) {
      table[j][i] = (table[j - 1][i] * factor - table[j - 1][i - 1]) / (factor - 1);
      const double error =
          std::max(std::fabs(table[j][i] - table[j - 1][i]), std::fabs(table[j][i] - table[j - 1][i - 1]));
      if (error <= best.error) best = {table[j][i], error};
    }
    if (i > 0 && std::fabs(table[i][i] - table[i - 1][i - 1]) >= 2 * best.error) break;
  }
  return best;
}

/// The derivative of f at x, forward and backward, is that of differences; both agree within 1e-12.
inline void expect_derivative(const Function& f, const Tensors& x, unsigned seed = 1, double step = 0.02,
                              bool nonzero = true) {
  std::mt19937 random(seed);
  const auto [y, pull] = vjp(f, x);
  Tensors u, v;
  for (const Tensor& result : y) u.push_back(random_like(result, random).astype(result.dtype()));
  for (const Tensor& each : x) v.push_back(random_like(each, random));
  const Tensors back = pull(u);
  const Tensors forth = jvp(f, x, v).second;
  ASSERT_EQ(back.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(back[i].shape().str(), x[i].shape().str());
    EXPECT_EQ(back[i].dtype(), x[i].dtype());
  }
  const double reverse = dot(back, v), forward = dot(forth, u);
  const auto along = [&](double t) {
    Tensors moved;
    for (std::size_t i = 0; i < x.size(); ++i) moved.push_back(x[i] + t * v[i]);
    return dot(f(moved), u);
  };
  Difference want = ridders(along, step);
  for (int tries = 0; tries < 4 && want.error > 1e-6 * std::max(1.0, std::fabs(want.value)); ++tries)
    want = ridders(along, step /= 8);  // a corner or a jump is near
  const double scale = std::max(1.0, std::fabs(want.value));
  EXPECT_NEAR(forward, reverse, 1e-12 * std::max(1.0, std::fabs(reverse)));
  EXPECT_LT(want.error, 1e-4 * scale) << "the differences do not converge";
  EXPECT_NEAR(reverse, want.value, 4 * want.error + 1e-9 * scale);
  if (nonzero) {
    EXPECT_NE(reverse, 0);
  }
}

/// The same of the derivative itself: second derivatives.
inline void expect_second_derivative(const Function& f, const Tensors& x, unsigned seed = 1,
                                     double step = 0.02, bool nonzero = true) {
  std::mt19937 random(seed + 17);
  Tensors u;
  for (const Tensor& result : f(x)) u.push_back(random_like(result, random).astype(result.dtype()));
  expect_derivative([&](const Tensors& at) { return vjp(f, at).second(u); }, x, seed, step, nonzero);
}

}  // namespace kiln::testing
