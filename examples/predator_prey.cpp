// The parameters of a differential equation from observations of its solution, by differentiating the
// simulation: Lotka and Volterra's equations for the furs of hares and lynxes that the Hudson's Bay Company
// collected from 1900 to 1920 (E. P. Odum, "Fundamentals of Ecology", 1953; in thousands).
//
//     hares' = a hares - b hares lynxes,  lynxes' = c hares lynxes - d lynxes
//
// In logarithms z of both numbers: z' = (a, -d) + (-b, c) exp(z with its places exchanged).
#include "progress.h"

#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/optim.h>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace kiln;

namespace {

constexpr int kYears = 20, kStepsAYear = 4;

const std::vector<double> kHares = {30,   47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22,   25.4, 27.1,
                                    40.3, 57,   76.6, 52.3, 19.5, 11.2, 7.6,  14.6, 16.2, 24.7};
const std::vector<double> kLynxes = {4, 6.1,  9.8,  35.2, 59.4, 41.7, 19,   13,  8.3,  9.1, 7.4,
                                     8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6};

/// Logarithms of the rates a, b, c, d and of both numbers at the start.
struct Params {
  Tensor rates, start;
  KILN_FIELDS(rates, start)
};

/// Logarithms of both numbers at the start of each year, (kYears + 1, 2), by the classical Runge-Kutta
/// method.
Tensor simulate(const Params& p) {
  const Tensor signs = Tensor({1., -1., 1., -1.}), rates = signs * exp(p.rates);
  const Tensor alone = concat({rates(range(0, 1)), rates(range(3, 4))}), met = rates(range(1, 3));
  const auto slope = [&](const Tensor& z) { return alone + met * exp(flip(z)); };
  Tensor now = p.start;
  std::vector<Tensor> years = {now};
  const double h = 1.0 / kStepsAYear;
  for (int step = 1; step <= kYears * kStepsAYear; ++step) {
    const Tensor k1 = slope(now), k2 = slope(now + h / 2 * k1);
    const Tensor k3 = slope(now + h / 2 * k2), k4 = slope(now + h * k3);
    now = now + h / 6 * (k1 + 2 * (k2 + k3) + k4);
    if (step % kStepsAYear == 0) years.push_back(now);
  }
  return stack(years);
}

}  // namespace

int main() {
  const Tensor seen = log(stack({Tensor::from(kHares), Tensor::from(kLynxes)}, 1)).eval();
  const auto misfit = [&](const Params& p) { return mean(square(simulate(p) - seen)); };
  Params p = {log(Tensor({0.5, 0.02, 0.02, 0.7})), seen(0)};
  auto state = optim::adam_state(p);
  tree_eval(p, state);

  constexpr int kSteps = 150;
  Progress bar(kSteps);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    const auto [value, gradient] = value_and_grad(misfit, p);
    optim::adam(p, gradient, state, {.rate = optim::cosine(0.03, step, kSteps), .beta2 = 0.99});
    tree_eval(p, state, value);
    curve.add(value.item<double>());
    bar.step(step, value.item<double>());
  }
  curve.save("predator_prey.svg", "hares and lynxes: mean squared error of logarithms");

  const auto rates = exp(p.rates).to_vector<double>();
  const double error = std::sqrt(misfit(p).item<double>());
  std::printf("a %.3f  b %.4f  c %.4f  d %.3f; typical error %.0f %%\n", rates[0], rates[1], rates[2],
              rates[3], 100 * error);
  std::printf("year  hares seen  simulated   lynxes seen  simulated\n");
  const auto fitted = exp(simulate(p)).to_vector<double>();
  for (std::size_t i = 0; i <= kYears; i += 4)
    std::printf("%zu  %10.1f %10.1f   %11.1f %10.1f\n", 1900 + i, kHares[i], fitted[2 * i], kLynxes[i],
                fitted[2 * i + 1]);
  return error < 0.3 ? 0 : 1;
}
