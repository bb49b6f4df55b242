// Heat in a square plate whose edges are held at 0: du/dt = d²u/dx² + d²u/dy², stepped forward in time.
//
// The plate starts as sin(πx)·sin(πy), which keeps its shape and decays as exp(-2π²t): every line printed can
// be compared with that. A step is written with slices; it runs as one kernel, and all steps share one plan.
#include <kiln/kiln.h>

#include <cmath>
#include <cstdio>
#include <numbers>

using namespace kiln;

int main() {
  constexpr int kPoints = 129, kSteps = 4000, kReports = 5;
  constexpr double kSpacing = 1.0 / (kPoints - 1),
                   kTimeStep = 0.2 * kSpacing * kSpacing;  // stable below 0.25
  const Slice inner = range(1, -1), before = range(none, -2), after = range(2, none);

  const Tensor wave = sin(std::numbers::pi * linspace(0, 1, kPoints));
  Tensor u = outer(wave, wave).eval();
  reset_statistics();
  const double energy_at_start = sum(u * u).item<float>();
  double worst = 0;
  std::printf("   time   greatest   expected    energy   expected\n");
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor neighbours = u(before, inner) + u(after, inner) + u(inner, before) + u(inner, after);
    u(inner, inner) += 0.2 * (neighbours - 4 * u(inner, inner));
    u.eval();
    if (step % (kSteps / kReports) != 0) continue;
    const double time = step * kTimeStep, decay = std::exp(-2 * std::numbers::pi * std::numbers::pi * time);
    const double greatest = max(u).item<float>(), energy = sum(u * u).item<float>() / energy_at_start;
    std::printf("%7.4f   %.6f   %.6f   %.5f   %.5f\n", time, greatest, decay, energy, decay * decay);
    worst = std::fmax(worst, std::fabs(greatest - decay) / decay);
  }
  wait_for_compiles();
  const Statistics s = statistics();
  std::printf("%d steps: %llu kernels ran, %llu different ones\n", kSteps,
              static_cast<unsigned long long>(s.launches),
              static_cast<unsigned long long>(s.kernels_compiled + s.kernels_from_disk));
  std::printf("greatest relative error %.1e: %s\n", worst, worst < 1e-3 ? "right" : "WRONG");
  return worst < 1e-3 ? 0 : 1;
}
