// A small classifier at work: 8×8 images of handwritten digits through a perceptron 64 → 48 → 10.
// Weights and images are read from files (examples/data/README.md says where they come from).
#include "inputs.h"

#include <kiln/kiln.h>

#include <cstdio>
#include <vector>

using namespace kiln;

namespace {

/// A terminal's picture of one image.
void draw(const std::vector<float>& pixels, std::int64_t image) {
  constexpr char kInk[] = " .:-=+*#%@";
  for (std::int64_t y = 0; y < 8; ++y) {
    for (std::int64_t x = 0; x < 8; ++x) {
      const float ink = pixels[static_cast<std::size_t>(image * 64 + y * 8 + x)];  // 0 … 16
      const char c = kInk[static_cast<int>(ink / 16 * 9)];
      std::printf("%c%c", c, c);
    }
    std::printf("\n");
  }
}

}  // namespace

int main() {
  const tool::Digits digits = tool::read_digits(tool::find_data("digits.csv.gz"));
  const std::vector<tool::Layer> layers = tool::read_layers(tool::find_data("digits_mlp.csv"));
  const auto count = static_cast<std::int64_t>(digits.labels.size());
  const Tensor images = Tensor::from(digits.pixels, {count, 64}), labels = Tensor::from(digits.labels);

  Tensor x = images / 16;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const tool::Layer& layer = layers[i];
    x = nn::linear(x, Tensor::from(layer.weight, {layer.outputs, layer.inputs}), Tensor::from(layer.bias));
    if (i + 1 < layers.size()) x = relu(x);
  }
  const Tensor confidence = nn::softmax(x);
  const Tensor guess = argmax(confidence, -1);
  const Tensor right = guess == labels;

  constexpr std::int64_t kTrained = 1200;  // the weights were fitted to the first 1,200
  const Tensor held_out = right(range(kTrained, none));
  eval({confidence, guess, right});
  const float accuracy = mean(astype(held_out, DType::Float32)).item<float>();
  std::printf("held-out images: %lld, right: %.1f %%\n", static_cast<long long>(count - kTrained),
              100 * accuracy);
  std::printf("images it was trained on: right %.1f %%\n",
              100 * mean(astype(right(range(none, kTrained)), DType::Float32)).item<float>());

  const Tensor doubt = where(held_out, 2.0f, max(confidence(range(kTrained, none)), -1));
  const std::int64_t worst = kTrained + argmin(doubt).item<std::int64_t>();
  std::printf("the mistake it is least sure of, a %d taken for a %lld (%.0f %%):\n",
              digits.labels[static_cast<std::size_t>(worst)],
              static_cast<long long>(guess(worst).item<std::int64_t>()),
              100 * max(confidence(worst)).item<float>());
  draw(digits.pixels, worst);
  return accuracy > 0.9f ? 0 : 1;
}
