// An image with noise, restored: descent on the squared distance to the noisy image plus the total variation
// of the result (Rudin, Osher and Fatemi, 1992). The gradient of the whole objective is one traced program.
#include "inputs.h"
#include "progress.h"

#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/optim.h>

#include <cmath>
#include <cstdio>
#include <string>

using namespace kiln;

namespace {

/// The sum of the lengths of all gradients of an image (3, height, width), rounded off near 0.
Tensor total_variation(const Tensor& x) {
  const Slice but_last = range(none, -1), but_first = range(1, none);
  const Tensor down = x(all(), but_first, but_last) - x(all(), but_last, but_last);
  const Tensor right = x(all(), but_last, but_first) - x(all(), but_last, but_last);
  return sum(sqrt(sum(down * down + right * right, 0) + 1e-6));  // one length for the three colours
}

/// Peak signal-to-noise ratio in decibels, for values in [0, 1].
double psnr(const Tensor& x, const Tensor& truth) {
  return -10 * std::log10(mean(square(x - truth)).item<float>());
}

void save(const std::string& path, const Tensor& x) {
  const Tensor bytes = permute_dims(round(clip(x, 0, 1) * 255), {1, 2, 0}).astype(DType::UInt8);
  tool::write_photo(path, {x.dim(1), x.dim(2), bytes.to_vector<std::uint8_t>()});
}

}  // namespace

int main(int argc, char** argv) {
  const tool::Photo photo = tool::read_photo(argc > 1 ? argv[1] : tool::find_data("astronaut.png"));
  const Tensor rgb = Tensor::from(photo.rgb, {photo.height, photo.width, 3});
  const Tensor truth = (permute_dims(rgb, {2, 0, 1}).astype(DType::Float32) / 255).eval();
  const Tensor noisy = (truth + random::normal(random::Key(1), truth.shape(), 0, 0.1)).eval();

  constexpr int kSteps = 60;
  const auto objective = [&](const Tensor& x) {
    return 0.5 * sum(square(x - noisy)) + 0.14 * total_variation(x);
  };
  Tensor x = noisy;
  auto state = optim::adam_state(x);
  Progress bar(kSteps);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    const auto [value, gradient] = value_and_grad(objective, x);
    optim::adam(x, gradient, state, {.rate = optim::cosine(0.03, step, kSteps), .beta2 = 0.9});
    tree_eval(x, state, value);
    curve.add(value.item<float>());
    bar.step(step, value.item<float>());
  }
  curve.save("tv_restore.svg", "total variation: objective");

  const double before = psnr(noisy, truth), after = psnr(x, truth);
  const Statistics s = statistics();
  std::printf("noisy: %.1f dB, restored: %.1f dB\n", before, after);
  std::printf("%d steps: %llu kernels ran, %llu plans made\n", kSteps,
              static_cast<unsigned long long>(s.launches), static_cast<unsigned long long>(s.plan_misses));
  save("noisy.png", noisy);
  save("restored.png", x);
  return after > before + 6 ? 0 : 1;
}
