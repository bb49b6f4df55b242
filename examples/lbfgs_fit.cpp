// Curve fitting by L-BFGS: the brightness of a photograph's pixels, as a histogram, is fitted by a sum of
// normal curves. The parameters are one vector in float64; L-BFGS needs nothing but f and its gradient, and
// is a page of C++.
#include "inputs.h"
#include "progress.h"

#include <kiln/grad.h>
#include <kiln/kiln.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <utility>

using namespace kiln;

namespace {

constexpr int kBins = 48, kCurves = 4;

/// Heights, centres and the logarithms of widths, kCurves of each; x: the bins' centres.
Tensor curves(const Tensor& p, const Tensor& x) {
  const Tensor rows = p.reshape({3, kCurves, 1});
  const Tensor away = (x - rows(1)) * exp(-rows(2));
  return sum(rows(0) * exp(-0.5 * away * away), 0);
}

/// Minimises f from p on (Nocedal and Wright, "Numerical Optimization", algorithms 7.4 and 7.5, with
/// backtracking until the function has fallen enough). Values are read where the algorithm branches on them.
Tensor lbfgs(const std::function<Tensor(const Tensor&)>& f, Tensor p, int steps, Curve& curve) {
  constexpr std::size_t kHistory = 10;
  std::deque<std::pair<Tensor, Tensor>> history;  // differences of p and of the gradient
  auto [value, gradient] = value_and_grad(f, p);
  Progress bar(steps);
  for (int step = 0; step < steps; ++step) {
    Tensor direction = -gradient;
    std::deque<Tensor> parts;
    for (auto it = history.rbegin(); it != history.rend(); ++it) {
      const auto& [s, y] = *it;
      parts.push_front(vecdot(s, direction) / vecdot(s, y));
      direction = direction - parts.front() * y;
    }
    if (!history.empty()) {
      const auto& [s, y] = history.back();
      direction = direction * (vecdot(s, y) / vecdot(y, y));
    }
    for (std::size_t i = 0; i < history.size(); ++i) {
      const auto& [s, y] = history[i];
      direction = direction + (parts[i] - vecdot(y, direction) / vecdot(s, y)) * s;
    }
    eval(direction, value, gradient);
    const double now = value.item<double>(), slope = vecdot(gradient, direction).item<double>();
    curve.add(now);
    bar.step(step, now);
    if (!(slope < -1e-14 * now)) break;  // nothing more to gain
    double length = history.empty() ? 1e-2 / std::sqrt(-slope) : 1;
    for (int tries = 0; tries < 30; ++tries, length *= 0.5) {
      const Tensor there = p + length * direction;
      const auto [value_there, gradient_there] = value_and_grad(f, there);
      if (!(value_there.item<double>() <= now + 1e-4 * length * slope)) continue;
      const Tensor s = there - p, y = gradient_there - gradient;
      eval(s, y, there, gradient_there);
      if (vecdot(s, y).item<double>() > 0) history.emplace_back(s, y);
      if (history.size() > kHistory) history.pop_front();
      p = there, value = value_there, gradient = gradient_there;
      break;
    }
  }
  return p;
}

}  // namespace

int main() {
  const tool::Photo photo = tool::read_photo(tool::find_data("astronaut.png"));
  const Tensor rgb = Tensor::from(photo.rgb, {photo.height * photo.width, 3}).astype(DType::Float64);
  const Tensor brightness = matmul(rgb, Tensor({0.2126, 0.7152, 0.0722}));
  const Tensor bins = minimum(floor(brightness * (kBins / 256.0)), kBins - 1).astype(DType::Int32);
  const Tensor counts = scatter_add(zeros(kBins, DType::Float64), bins, 1.0);
  const Slice used = range(1, none);  // the first bin is the black background
  const Tensor seen = (counts(used) / max(counts(used))).eval();
  const Tensor x = linspace(0.0, 10.0, kBins, true, DType::Float64)(used).eval();

  const Tensor centres = linspace(1.0, 8.0, kCurves, true, DType::Float64);
  const Tensor start = concat({full(kCurves, 0.3, DType::Float64), centres, zeros(kCurves, DType::Float64)});
  const auto misfit = [&](const Tensor& p) { return sum(square(curves(p, x) - seen)); };

  Curve curve;
  const double before = misfit(start).item<double>();
  const Tensor fitted = lbfgs(misfit, start.eval(), 200, curve);
  curve.save("lbfgs_fit.svg", "histogram: sum of squared differences");
  const double after = misfit(fitted).item<double>();
  const double slope = max(abs(grad(misfit, fitted))).item<double>();
  const double unexplained = after / sum(square(seen - mean(seen))).item<double>();
  std::printf("sum of squares %.4f -> %.5f, %.2f %% of the variance unexplained\n", before, after,
              100 * unexplained);
  std::printf("greatest part of the gradient: %.1e\n", slope);
  const auto p = fitted.to_vector<double>();
  for (std::size_t i = 0; i < kCurves; ++i)
    std::printf("  height %7.3f  centre %6.3f  width %.3f\n", p[i], p[kCurves + i],
                std::exp(p[2 * kCurves + i]));
  return slope < 1e-6 && unexplained < 0.2 ? 0 : 1;
}
