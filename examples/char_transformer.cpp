// A small transformer learns the next character of a text, then writes some of its own.
//
//     char_transformer [FILE [STEPS [LAYERS WIDTH CONTEXT]]]
//
// FILE is any text; without one it is a page of Kiln's documentation, and training is short.
#include "inputs.h"
#include "progress.h"

#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/layers.h>
#include <kiln/optim.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace kiln;

namespace {

struct Block {
  nn::LayerNorm before, between;
  nn::MultiHeadAttention attention;
  nn::Linear up, down;
  KILN_FIELDS(before, between, attention, up, down)
  Tensor operator()(const Tensor& x) const {
    const Tensor seen = x + attention(before(x));
    return seen + down(gelu(up(between(seen))));
  }
};

struct Model {
  nn::Embedding characters, places;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear out;
  KILN_FIELDS(characters, places, blocks, norm, out)
  /// Integers (n, context) -> logits (n, context, characters).
  Tensor operator()(const Tensor& text) const {
    Tensor x = characters(text) + places.weight;
    for (const Block& block : blocks) x = block(x);
    return out(norm(x));
  }
};

Model fresh(random::Key key, int kinds, int layers, int width, int context) {
  Model model = {nn::Embedding::init(random::fold_in(key, 0), kinds, width),
                 nn::Embedding::init(random::fold_in(key, 1), context, width),
                 {},
                 nn::LayerNorm::init(width),
                 nn::Linear::init(random::fold_in(key, 2), width, kinds)};
  model.characters.weight = 0.3 * model.characters.weight;
  model.places.weight = 0.3 * model.places.weight;
  for (int i = 0; i < layers; ++i) {
    const auto k = random::split<3>(random::fold_in(key, static_cast<std::uint64_t>(3 + i)));
    model.blocks.push_back({nn::LayerNorm::init(width), nn::LayerNorm::init(width),
                            nn::MultiHeadAttention::init(k[0], width, std::max(width / 32, 1), true),
                            nn::Linear::init(k[1], width, 4 * width),
                            nn::Linear::init(k[2], 4 * width, width)});
  }
  return model;
}

/// The characters that occur, and the text as their numbers.
struct Text {
  std::string kinds;
  std::vector<std::int32_t> numbers;
};
Text read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Text text;
  std::vector<std::int32_t> number(256, -1);
  for (const char c : all)
    if (number[static_cast<unsigned char>(c)] < 0) {
      number[static_cast<unsigned char>(c)] = static_cast<std::int32_t>(text.kinds.size());
      text.kinds += c;
    }
  for (const char c : all) text.numbers.push_back(number[static_cast<unsigned char>(c)]);
  return text;
}

/// Draws characters one after the other; the model always sees the last `context` of them.
std::string write(const Model& model, const Text& text, int context, int count, random::Key key) {
  std::vector<std::int32_t> seen(text.numbers.begin(), text.numbers.begin() + context);
  std::string out;
  for (int i = 0; i < count; ++i) {
    const Tensor logits = model(Tensor::from(seen, {1, context}))(0, -1) / 0.8;
    const Tensor u = random::uniform(random::fold_in(key, static_cast<std::uint64_t>(i)), logits.shape());
    const auto next = argmax(logits - log(-log(u + 1e-9))).item<std::int64_t>();  // Gumbel: a draw by softmax
    out += text.kinds[static_cast<std::size_t>(next)];
    seen.erase(seen.begin());
    seen.push_back(static_cast<std::int32_t>(next));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const auto option = [&](int i, int standard) { return argc > i ? std::atoi(argv[i]) : standard; };
  const Text text = read_text(argc > 1 ? argv[1] : tool::find_data("../../docs/semantics.md"));
  const int steps = option(2, 120), layers = option(3, 2), width = option(4, 64), context = option(5, 64);
  const int kinds = static_cast<int>(text.kinds.size()), batch = 16;
  if (static_cast<int>(text.numbers.size()) < 2 * context)
    return std::fprintf(stderr, "too short a text\n"), 1;

  const auto [initial, order, writing] = random::split<3>(random::Key(3));
  Model model = fresh(initial, kinds, layers, width, context);
  auto state = optim::adam_state(model);
  const Tensor all = Tensor::from(text.numbers);
  tree_eval(model, state);

  const auto loss = [](const Model& m, const Tensor& x, const Tensor& y) {
    return nn::cross_entropy(m(x), y);
  };
  Progress bar(steps);
  Curve curve;
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const random::Key key = random::fold_in(order, static_cast<std::uint64_t>(step));
    const Tensor starts = random::randint(key, {batch, 1}, 0, text.numbers.size() - context);
    const Tensor places = starts + arange(context);
    auto [value, gradient] = value_and_grad(loss, model, take(all, places), take(all, places + 1));
    optim::clip_by_global_norm(gradient, 1);
    const double rate = optim::warmup(optim::cosine(3e-3, step, steps, 3e-4), step, 20);
    optim::adamw(model, gradient, state, {.rate = rate, .beta2 = 0.99, .decay = 0.1, .decay_rank = 2});
    tree_eval(model, state, value);
    last = step == 0 ? value.item<float>() : 0.9 * last + 0.1 * value.item<float>();
    if (step == 0) first = last;
    curve.add(value.item<float>());
    bar.step(step, last);
  }
  curve.save("char_transformer.svg", "characters: loss of a batch");

  const Statistics s = statistics();
  std::printf("%zu characters of %d kinds, %zu parameters' tensors\n", text.numbers.size(), kinds,
              tree_size(model));
  std::printf("%d steps: loss %.2f -> %.2f, %llu plans made, %llu found\n", steps, first, last,
              static_cast<unsigned long long>(s.plan_misses), static_cast<unsigned long long>(s.plan_hits));
  std::printf("---\n%s\n---\n", write(model, text, context, 200, writing).c_str());
  return last < 0.75 * first ? 0 : 1;
}
