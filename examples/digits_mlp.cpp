// A perceptron 64 → 128 → 10 learns handwritten digits: AdamW, a rate that falls along a cosine, noise on the
// pixels, a fifth of the images held out. One step (forward, backward, update) is one plan, recorded once:
// what changes from step to step, the batch, the key of the noise and the rate, comes as arguments.
#include "inputs.h"
#include "progress.h"

#include <kiln/compile.h>
#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/layers.h>
#include <kiln/optim.h>
#include <kiln/training.h>

#include <cstdio>
#include <tuple>
#include <utility>

using namespace kiln;

namespace {

struct Model {
  nn::Linear hidden, out;
  KILN_FIELDS(hidden, out)
  Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
};

double percent_right(const Model& model, const Tensor& images, const Tensor& labels) {
  return 100 * mean((argmax(model(images), -1) == labels).astype(DType::Float32)).item<float>();
}

}  // namespace

int main() {
  const tool::Digits digits = tool::read_digits(tool::find_data("digits.csv.gz"));
  const auto count = static_cast<std::int64_t>(digits.labels.size()), kept = count / 5;
  const auto [shuffle, first, second, order, draws] = random::split<5>(random::Key(1));
  const Tensor mixed = random::permutation(shuffle, count);
  const Tensor images = (take(Tensor::from(digits.pixels, {count, 64}), mixed, 0) / 16).eval();
  const Tensor labels = take(Tensor::from(digits.labels), mixed).eval();
  const Slice held_out = range(none, kept), rest = range(kept, none);
  const auto data = std::pair(images(rest).eval(), labels(rest).eval());

  Model model = {nn::Linear::init(first, 64, 128), nn::Linear::init(second, 128, 10)};
  auto state = optim::adam_state(model);
  tree_eval(model, state);

  constexpr int kEpochs = 60, kBatch = 64;
  const int steps = kEpochs * static_cast<int>((count - kept) / kBatch);
  const auto loss = [](const Model& m, const Tensor& x, const Tensor& y) {
    return nn::cross_entropy(m(x), y);
  };
  const auto next = compile([&](const Model& before, const optim::AdamState<Model>& moments, const Tensor& x,
                                const Tensor& y, const Tensor& noise, const Tensor& rate) {
    const Tensor noisy = x + random::normal(random::Key(noise), x.shape(), 0, 0.1);
    const auto [value, gradient] = value_and_grad(loss, before, noisy, y);
    std::tuple after(before, moments, value);
    optim::adamw(std::get<0>(after), gradient, std::get<1>(after), {.rate = rate, .decay = 0.05});
    return after;
  });
  Progress bar(steps);
  Curve curve;
  int step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const auto& [x, y] :
         batches(data, kBatch, random::fold_in(order, static_cast<std::uint64_t>(epoch)))) {
      const random::Key noise = random::fold_in(draws, static_cast<std::uint64_t>(step));
      const Tensor rate(static_cast<float>(optim::cosine(4e-3, step++, steps)));
      Tensor value;
      std::tie(model, state, value) = next(std::move(model), std::move(state), x, y, noise.tensor(), rate);
      curve.add(value.item<float>());
      bar.step(step, value.item<float>());
    }
  curve.save("digits_mlp.svg", "digits, perceptron: loss of a batch", 10);

  const double right = percent_right(model, images(held_out), labels(held_out));
  const Statistics s = statistics();
  std::printf("%d steps; right: %.1f %% of %lld held-out images, %.1f %% of the others\n", steps, right,
              static_cast<long long>(kept), percent_right(model, data.first, data.second));
  std::printf("%llu plans made, %llu found; %llu steps recorded nothing\n",
              static_cast<unsigned long long>(s.plan_misses), static_cast<unsigned long long>(s.plan_hits),
              static_cast<unsigned long long>(s.replays));
  return right >= 97.5 ? 0 : 1;
}
