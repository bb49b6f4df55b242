// A convolutional network learns handwritten digits: two convolutions with pooling and a linear layer,
// trained on shifted copies of four fifths of the images, tested on the fifth that is held out.
#include "inputs.h"
#include "progress.h"

#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/layers.h>
#include <kiln/optim.h>
#include <kiln/training.h>

#include <cstdio>
#include <utility>

using namespace kiln;

namespace {

struct Model {
  nn::Conv first, second;
  nn::Linear out;
  KILN_FIELDS(first, second, out)
  /// x (n, 1, 8, 8) -> what the linear layer sees, (n, 512).
  Tensor features(const Tensor& x) const {
    return flatten(nn::max_pool(relu(second(relu(first(x)))), {2, 2}), 1);
  }
  Tensor operator()(const Tensor& x) const { return out(features(x)); }
};

Model fresh(random::Key key) {
  const auto [a, b, c] = random::split<3>(key);
  const nn::ConvOptions same = {.padding = {1, 1}};
  return {nn::Conv::init(a, 1, 16, {3, 3}, same), nn::Conv::init(b, 16, 32, {3, 3}, same),
          nn::Linear::init(c, 512, 10)};
}

double percent_right(const Model& model, const Tensor& images, const Tensor& labels) {
  return 100 * mean((argmax(model(images), -1) == labels).astype(DType::Float32)).item<float>();
}

}  // namespace

int main() {
  const tool::Digits digits = tool::read_digits(tool::find_data("digits.csv.gz"));
  const auto count = static_cast<std::int64_t>(digits.labels.size()), kept = count / 5;
  const auto [shuffle, initial, order, draws] = random::split<4>(random::Key(1));
  const Tensor mixed = random::permutation(shuffle, count);
  const Tensor images = (take(Tensor::from(digits.pixels, {count, 1, 8, 8}), mixed, 0) / 16).eval();
  const Tensor labels = take(Tensor::from(digits.labels), mixed).eval();
  const Slice held_out = range(none, kept), rest = range(kept, none);
  const auto data = std::pair(images(rest).eval(), labels(rest).eval());

  Model model = fresh(initial);
  auto state = optim::adam_state(model);
  tree_eval(model, state);

  constexpr int kEpochs = 25, kBatch = 64;
  const int steps = kEpochs * static_cast<int>((count - kept) / kBatch);
  const auto loss = [](const Model& m, random::Key key, const Tensor& x, const Tensor& y) {
    const auto [noise, mask] = random::split<2>(key);
    const Tensor seen = m.features(x + random::normal(noise, x.shape(), 0, 0.15));
    return nn::cross_entropy(m.out(nn::dropout(mask, seen, 0.5)), y);
  };
  Progress bar(steps);
  Curve curve;
  int step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const auto& [x, y] :
         batches(data, kBatch, random::fold_in(order, static_cast<std::uint64_t>(epoch)))) {
      const random::Key key = random::fold_in(draws, static_cast<std::uint64_t>(step));
      const auto [value, gradient] = value_and_grad(loss, model, key, x, y);
      optim::adamw(model, gradient, state, {.rate = optim::cosine(4e-3, step++, steps), .decay = 0.02});
      tree_eval(model, state, value);
      curve.add(value.item<float>());
      bar.step(step, value.item<float>());
    }
  curve.save("digits_conv.svg", "digits, convolutions: loss of a batch", 10);

  const double right = percent_right(model, images(held_out), labels(held_out));
  std::printf("%d steps; right: %.1f %% of %lld held-out images, %.1f %% of the others\n", steps, right,
              static_cast<long long>(kept), percent_right(model, data.first, data.second));
  return right >= 98.5 ? 0 : 1;
}
