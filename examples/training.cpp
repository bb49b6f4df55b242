// The programs of docs/training.md, from a gradient to a trained model in a file.
#include "inputs.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <random>
// [headers]
#include <kiln/grad.h>      // value_and_grad
#include <kiln/kiln.h>      // tensors
#include <kiln/layers.h>    // nn::Linear, …
#include <kiln/optim.h>     // optim::adamw, …
#include <kiln/training.h>  // batches, save_tree

using namespace kiln;
// [headers]

namespace {

void line() {
  // [gradient]
  const Tensor x = linspace(0, 1, 50), y = 2 * x + 1;
  const auto misfit = [&](const Tensor& p) { return mean(square(p(0) * x + p(1) - y)); };
  Tensor p = zeros(2);
  for (int step = 0; step < 200; ++step) {
    const auto [loss, gradient] = value_and_grad(misfit, p);
    p = p - 0.5 * gradient;
    eval(p, loss);
  }
  std::cout << round(p * 1000) / 1000 << "\n";  // [2., 1.]
  // [gradient]
}

// [model]
struct Model {
  nn::Linear hidden, out;
  KILN_FIELDS(hidden, out)
  Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
};
Model fresh(random::Key key) {
  const auto [a, b] = random::split<2>(key);
  return {nn::Linear::init(a, 64, 128), nn::Linear::init(b, 128, 10)};
}
// [model]

// [test]
double percent_right(const Model& model, const Tensor& images, const Tensor& labels) {
  return 100 * mean((argmax(model(images), -1) == labels).astype(DType::Float32)).item<float>();
}
// [test]

using Examples = std::pair<Tensor, Tensor>;  // images and their labels

void train_in_halves(Model model, auto state, const Examples& data) {
  // [half]
  const auto half_loss = [&](const Model& m, const Tensor& x, const Tensor& y, const Tensor& scale) {
    const Model half = tree_astype(m, DType::Float16);
    return scale * nn::cross_entropy(half(x.astype(DType::Float16)), y);
  };
  optim::LossScale scale = optim::loss_scale();
  for (const auto& [x, y] : batches(data, 64, random::Key(4))) {
    auto [value, gradient] = value_and_grad(half_loss, model, x, y, scale.scale);
    const Tensor finite = optim::unscale(gradient, scale);
    const auto before = std::pair(model, state);
    optim::adamw(model, gradient, state, {.rate = 1e-4});
    optim::keep_if(finite, model, before.first);
    optim::keep_if(finite, state, before.second);
    tree_eval(model, state, scale, value);
  }
  // [half]
}

void count_work(Model model, auto state, const Examples& data) {
  const auto loss = [](const Model& m, const Tensor& x, const Tensor& y) {
    return nn::cross_entropy(m(x), y);
  };
  // [cost]
  const auto [x, y] = *batches(data, 64, random::Key(5)).begin();
  eval(x, y);
  for (int i = 0; i < 4; ++i) {
    if (i == 3) reset_statistics();  // three steps later all plans are there
    const auto [value, gradient] = value_and_grad(loss, model, x, y);
    optim::adamw(model, gradient, state);
    tree_eval(model, state, value);
  }
  const Statistics s = statistics();
  std::cout << s.launches << " kernels, " << s.library_calls << " library calls, " << s.plan_misses
            << " plans made\n";
  // [cost]
}

double train() {
  const tool::Digits digits = tool::read_digits(tool::find_data("digits.csv.gz"));
  const auto count = static_cast<std::int64_t>(digits.labels.size());
  // [data]
  const Tensor order = random::permutation(random::Key(1), count);
  const Tensor images = (take(Tensor::from(digits.pixels, {count, 64}), order, 0) / 16).eval();
  const Tensor labels = take(Tensor::from(digits.labels), order).eval();
  const Slice held_out = range(none, count / 5), rest = range(count / 5, none);
  const auto data = std::pair(images(rest).eval(), labels(rest).eval());
  // [data]

  // [loop]
  Model model = fresh(random::Key(2));
  auto state = optim::adam_state(model);
  tree_eval(model, state);

  const auto loss = [](const Model& m, const Tensor& x, const Tensor& y) {
    return nn::cross_entropy(m(x), y);
  };
  const int epochs = 12, steps = epochs * static_cast<int>(batches(data, 64, random::Key(3)).size());
  int step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [x, y] : batches(data, 64, random::fold_in(random::Key(3), epoch))) {
      auto [value, gradient] = value_and_grad(loss, model, x, y);
      optim::clip_by_global_norm(gradient, 1.0);
      optim::adamw(model, gradient, state, {.rate = optim::cosine(4e-3, step++, steps)});
      tree_eval(model, state, value);
    }
  const double right = percent_right(model, images(held_out), labels(held_out));
  // [loop]

  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kiln_" + std::to_string(std::random_device()()));
  // [files]
  save_tree(path, std::pair(model, state));  // hidden.weight is "0.hidden.weight" in the file
  const auto [again, state_again] = load_tree(path, std::pair(fresh(random::Key(0)), state));
  std::printf("loaded: %.1f %%\n", percent_right(again, images(held_out), labels(held_out)));
  // [files]
  std::filesystem::remove(path);

  train_in_halves(model, state, data);
  count_work(model, state, data);
  return right;
}

}  // namespace

int main() {
  line();
  const double right = train();
  std::printf("right: %.1f %%\n", right);
  return right > 95 ? 0 : 1;
}
