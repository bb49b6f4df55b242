// European calls under Black and Scholes: price and two sensitivities of a million options in one kernel,
// then the volatility back from the price by Newton's method, every iteration of it fused too.
//
// F. Black, M. Scholes, "The Pricing of Options and Corporate Liabilities", Journal of Political Economy 81
// (1973).
#include <kiln/kiln.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>

using namespace kiln;

namespace {

constexpr double kRate = 0.03;
constexpr int kNewtonSteps = 6;

Tensor normal_cdf(const Tensor& x) { return 0.5 * erfc(x * -std::numbers::sqrt2 / 2); }
Tensor normal_density(const Tensor& x) { return exp(-0.5 * x * x) * std::sqrt(0.5 / std::numbers::pi); }

struct Quote {
  Tensor price;  // of the call
  Tensor delta;  // change of the price with the spot
  Tensor vega;   // change of the price with the volatility
};

Quote quote(const Tensor& spot, const Tensor& strike, const Tensor& years, const Tensor& volatility) {
  const Tensor spread = volatility * sqrt(years);
  const Tensor d1 = (log(spot / strike) + (kRate + 0.5 * volatility * volatility) * years) / spread;
  const Tensor delta = normal_cdf(d1);
  const Tensor price = spot * delta - strike * exp(-kRate * years) * normal_cdf(d1 - spread);
  return {price, delta, spot * normal_density(d1) * sqrt(years)};
}

/// The same price in double precision, for the check.
double reference_price(double spot, double strike, double years, double volatility) {
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const double spread = volatility * std::sqrt(years);
  const double d1 = (std::log(spot / strike) + (kRate + 0.5 * volatility * volatility) * years) / spread;
  return spot * cdf(d1) - strike * std::exp(-kRate * years) * cdf(d1 - spread);
}

}  // namespace

int main() {
  // Options spread over the ranges with steps that share no factor, so that every combination is met.
  constexpr std::int64_t n = 1 << 20;
  const Tensor i = arange(n);
  const Tensor strike = (80 + 40.0 / 1021 * (i % 1021)).eval();
  const Tensor years = (0.25 + 1.75 / 509 * (i % 509)).eval();
  const Tensor volatility = (0.15 + 0.35 / 251 * (i % 251)).eval();
  const Tensor spot = full({n}, 100.0);

  reset_statistics();
  const Quote q = quote(spot, strike, years, volatility);
  eval({q.price, q.delta, q.vega});
  std::printf("price, delta and vega: %d kernel\n", static_cast<int>(statistics().launches));

  const float *price = q.price.data<float>(), *k = strike.data<float>(), *t = years.data<float>(),
              *v = volatility.data<float>();
  double worst = 0;
  for (std::int64_t at = 0; at < n; at += 37)
    worst = std::fmax(worst, std::fabs(price[at] - reference_price(100, k[at], t[at], v[at])));
  std::printf("greatest error of a price against double precision: %.1e\n", worst);

  // Newton: volatility -= (price(volatility) - price) / vega(volatility).
  reset_statistics();
  const auto start = std::chrono::steady_clock::now();
  Tensor implied = full({n}, 0.3);
  for (int step = 0; step < kNewtonSteps; ++step) {
    const Quote now = quote(spot, strike, years, implied);
    implied = implied - (now.price - q.price) / now.vega;
  }
  const float recovered = max(abs(implied - volatility)).item<float>();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  std::printf("implied volatility, %d Newton steps: %d kernels, greatest error %.1e\n", kNewtonSteps,
              static_cast<int>(statistics().launches), recovered);
  std::printf("that took %.0f ms with compiling them\n", taken.count());
  const bool right = worst < 1e-4 && recovered < 1e-3f;
  std::printf("%s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}
