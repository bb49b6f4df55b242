// The models whose training steps are timed: the same as in bench/peers/training_torch.py and
// training_jax.py.
#pragma once

#include <kiln/compile.h>
#include <kiln/grad.h>
#include <kiln/layers.h>
#include <kiln/optim.h>

#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln::bench {

/// 64 -> 128 -> 10 with a relu.
struct Mlp {
  nn::Linear hidden, out;
  KILN_FIELDS(hidden, out)
  static Mlp init(random::Key key) {
    const auto [a, b] = random::split<2>(key);
    return {nn::Linear::init(a, 64, 128), nn::Linear::init(b, 128, 10)};
  }
  Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
};

/// Two 3×3 convolutions of 16 and 32 channels with relus, a pooling by 2, and a linear layer.
struct ConvNet {
  nn::Conv first, second;
  nn::Linear out;
  KILN_FIELDS(first, second, out)
  static ConvNet init(random::Key key) {
    const auto [a, b, c] = random::split<3>(key);
    const nn::ConvOptions same = {.padding = {1, 1}};
    return {nn::Conv::init(a, 1, 16, {3, 3}, same), nn::Conv::init(b, 16, 32, {3, 3}, same),
            nn::Linear::init(c, 512, 10)};
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor a = relu(second(relu(first(x.reshape({-1, 1, 8, 8})))));
    return out(flatten(nn::max_pool(a, {2, 2}), 1));
  }
};

/// A causal transformer over characters; norms before the parts, gelu, learned places.
struct Transformer {
  struct Block {
    nn::LayerNorm before, between;
    nn::MultiHeadAttention attention;
    nn::Linear up, down;
    KILN_FIELDS(before, between, attention, up, down)
  };
  nn::Embedding characters, places;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear out;
  KILN_FIELDS(characters, places, blocks, norm, out)

  static Transformer init(random::Key key, int layers, int width, int context, int kinds) {
    const auto keys = random::split(key, static_cast<std::size_t>(3 + 3 * layers));
    Transformer m = {nn::Embedding::init(keys[0], kinds, width),
                     nn::Embedding::init(keys[1], context, width),
                     {},
                     nn::LayerNorm::init(width),
                     nn::Linear::init(keys[2], width, kinds, false)};
    for (std::size_t i = 3; i < keys.size(); i += 3)
      m.blocks.push_back({nn::LayerNorm::init(width), nn::LayerNorm::init(width),
                          nn::MultiHeadAttention::init(keys[i], width, width / 64, true),
                          nn::Linear::init(keys[i + 1], width, 4 * width),
                          nn::Linear::init(keys[i + 2], 4 * width, width)});
    return m;
  }
  Tensor operator()(const Tensor& text) const {
    Tensor x = characters(text) + places.weight;
    for (const Block& b : blocks) {
      x = x + b.attention(b.before(x));
      x = x + b.down(gelu(b.up(b.between(x))));
    }
    return out(norm(x));
  }
};

/// A model, its optimiser's state and one batch; `compute` is the dtype that the model runs in, over float32
/// parameters. Each step is recorded anew, or the first one is kept for all (kiln/compile.h), which is what
/// jax.jit does.
template <class Model>
class Training {
 public:
  using State = optim::AdamState<Model>;

  Training(Model model, Tensor x, Tensor y, DType compute, bool keep)
      : model_(std::move(model)),
        state_(optim::adam_state(model_)),
        x_(x.eval()),
        y_(y.eval()),
        keep_(keep),
        recorded_(step_in(compute)),
        kept_(compile(recorded_)) {
    tree_eval(model_, state_);
  }

  /// Forward, backward and AdamW; enqueued on a GPU, complete on a CPU.
  Tensor step() {
    Tensor loss;
    if (keep_) {
      std::tie(model_, state_, loss) = kept_(std::move(model_), std::move(state_), x_, y_);
    } else {
      std::tie(model_, state_, loss) = recorded_(model_, state_, x_, y_);
      tree_eval(model_, state_, loss);
    }
    return loss;
  }

 private:
  using Step = std::function<std::tuple<Model, State, Tensor>(const Model&, const State&, const Tensor&,
                                                              const Tensor&)>;

  static Step step_in(DType compute) {
    return [compute](const Model& model, const State& before, const Tensor& x, const Tensor& y) {
      const auto loss = [&](const Model& m) {
        const Model narrow = compute == DType::Float32 ? m : tree_astype(m, compute);
        return nn::cross_entropy(narrow(x), y);
      };
      const auto [value, gradient] = value_and_grad(loss, model);
      std::tuple<Model, State, Tensor> out(model, before, value);
      optim::adamw(std::get<0>(out), gradient, std::get<1>(out), {.rate = 1e-3});
      return out;
    };
  }

  Model model_;
  State state_;
  Tensor x_, y_;
  bool keep_;
  Step recorded_;
  Compiled<Step> kept_;
};

}  // namespace kiln::bench
