// Whole training steps: gradients of layers against differences, steps that settle, curves that do not depend
// on how programs are evaluated, half types over float32 parameters.
#include <kiln/grad.h>
#include <kiln/layers.h>
#include <kiln/optim.h>
#include <kiln/training.h>

#include "api/expect.h"
#include "counted.h"
#include "device/cpu/pool.h"
#include "modes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace kiln {
namespace {

Tensor wide(const Shape& shape, int seed) { return test::data(shape, DType::Float64, seed); }

/// The derivative of f at p along a direction, by the gradient and by differences.
template <class P, class F>
void expect_gradient(F f, const P& p) {
  int seed = 40;
  const P along = tree_map([&](const Tensor& x) { return wide(x.shape(), seed++); }, p);
  const auto at = [&](double h) {
    return f(tree_map([&](const Tensor& x, const Tensor& v) { return x + h * v; }, p, along))
        .template item<double>();
  };
  const P gradient = grad(f, p);
  double slope = 0;
  tree_for_each([&](const Tensor& g, const Tensor& v) { slope += sum(g * v).item<double>(); }, gradient,
                along);
  constexpr double h = 1e-4;
  const double differences = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  EXPECT_NE(slope, 0);
  EXPECT_NEAR(slope, differences, 1e-8 * (1 + std::abs(differences)));
}

/// A sum of the result with weights, so that no derivative cancels.
Tensor mixed(const Tensor& y) { return sum(y * wide(y.shape(), 91)); }

template <class L>
struct Given {
  L layer;
  Tensor x;
  KILN_FIELDS(layer, x)
};
/// A layer's derivative by its parameters and by what it is given.
template <class L>
void expect_layer(const L& layer, const Shape& shape) {
  expect_gradient([](const Given<L>& p) { return mixed(p.layer(p.x)); },
                  Given<L>{tree_astype(layer, DType::Float64), wide(shape, 17)});
}

TEST(TrainingSteps, GradientsOfLayers) {
  const random::Key key(5);
  expect_layer(nn::Linear::init(key, 5, 3), {4, 5});
  expect_layer(nn::Conv::init(key, 2, 3, {3, 2}, {.padding = {1, 0}}), {2, 2, 4, 5});
  expect_layer(nn::Conv::init(key, 4, 6, {3}, {.stride = {2}, .padding = {1}, .groups = 2}), {2, 4, 7});
  expect_layer(nn::Conv::init(key, 1, 2, {2, 2}, {.dilation = {2, 1}}), {1, 1, 5, 4});
  expect_layer(nn::LayerNorm::init(6), {3, 6});
  expect_layer(nn::RmsNorm::init(6), {3, 6});
  expect_layer(nn::GroupNorm::init(4, 2), {2, 4, 3});
  expect_layer(nn::MultiHeadAttention::init(key, 8, 2, true), {2, 3, 8});
}

TEST(TrainingSteps, GradientsOfFunctionsOverWindows) {
  const Tensor x = wide({2, 3, 6, 7}, 3);
  expect_gradient([](const Tensor& v) { return mixed(nn::max_pool(v, {2, 2})); }, x);
  expect_gradient([](const Tensor& v) { return mixed(nn::max_pool(v, {3, 2}, {1, 1})); }, x);
  expect_gradient([](const Tensor& v) { return mixed(nn::mean_pool(v, {3, 3})); }, x);
  expect_gradient([](const Tensor& v) { return mixed(nn::mean_pool(v, {2, 3}, {2, 1})); }, x);
  expect_gradient([](const Tensor& v) { return mixed(nn::dropout(random::Key(1), v, 0.3)); }, x);
}

TEST(TrainingSteps, GradientsThroughEmbeddingsAndBatchNorm) {
  const Tensor words = Tensor({1, 0, 3, 1, 1, 2}, {2, 3});
  expect_gradient([&](const nn::Embedding& e) { return mixed(e(words)); },
                  tree_astype(nn::Embedding::init(random::Key(2), 4, 5), DType::Float64));
  const nn::BatchNorm norm = tree_astype(nn::BatchNorm::init(3), DType::Float64);
  expect_gradient(
      [](const Given<nn::BatchNorm>& p) {
        nn::BatchNorm::Statistics running = p.layer.statistics();
        return mixed(p.layer.train(p.x, running));
      },
      Given<nn::BatchNorm>{norm, wide({5, 3, 2}, 8)});
}

struct Mlp {
  nn::Linear hidden, out;
  KILN_FIELDS(hidden, out)
  Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
};
struct Net {
  nn::Conv first;
  nn::Linear out;
  KILN_FIELDS(first, out)
  Tensor operator()(const Tensor& x) const {
    return out(flatten(nn::max_pool(relu(first(x.reshape({-1, 1, 4, 4}))), {2, 2}), 1));
  }
};
Mlp mlp() { return {nn::Linear::init(random::Key(1), 16, 24), nn::Linear::init(random::Key(2), 24, 4)}; }
Net net() {
  return {nn::Conv::init(random::Key(1), 1, 6, {3, 3}, {.padding = {1, 1}}),
          nn::Linear::init(random::Key(2), 24, 4)};
}

/// Four kinds of rows of sixteen, and which kind each is.
std::pair<Tensor, Tensor> kinds(std::int64_t count) {
  const Tensor y = (arange(count) % 4).eval();
  const Tensor x = take(test::data({4, 16}), y, 0) + 0.5 * random::normal(random::Key(9), {count, 16});
  return {x.eval(), y};
}

/// The losses of AdamW's steps.
template <class Model>
std::vector<float> curve(Model model, int epochs) {
  auto state = optim::adam_state(model);
  tree_eval(model, state);
  const auto loss = [](const Model& m, const Tensor& x, const Tensor& y) {
    return nn::cross_entropy(m(x), y);
  };
  std::vector<float> out;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [x, y] :
         batches(kinds(64), 16, random::fold_in(random::Key(3), static_cast<std::uint64_t>(epoch)))) {
      const auto [value, gradient] = value_and_grad(loss, model, x, y);
      optim::adamw(model, gradient, state, {.rate = optim::warmup(1e-2, static_cast<int>(out.size()), 4)});
      tree_eval(model, state, value);
      out.push_back(value.template item<float>());
    }
  return out;
}

TEST(TrainingSteps, ModelsLearn) {
  EXPECT_LT(curve(mlp(), 10).back(), 0.2f);
  EXPECT_LT(curve(net(), 20).back(), 0.4f);
}

/// Same seed, same numbers: in the strict mode fused and op by op, to the bit.
TEST(TrainingSteps, StrictCurvesAreTheSameFusedAndEager) {
  const Config before = config();
  std::vector<std::vector<float>> mlps, nets;
  for (const Mode mode : {Mode::Lazy, Mode::Eager, Mode::Lazy}) {
    Config options = before;
    options.strict = true;
    options.mode = mode;
    configure(options);
    mlps.push_back(curve(mlp(), 2));
    nets.push_back(curve(net(), 1));
  }
  configure(before);
  for (const auto* curves : {&mlps, &nets}) {
    EXPECT_EQ((*curves)[0], (*curves)[1]);
    EXPECT_EQ((*curves)[0], (*curves)[2]);
  }
}

/// A step that has settled plans nothing, compiles nothing, takes no memory, and launches as often as the one
/// before, however its rate changes.
template <class Model>
void expect_steady(Model model) {
  auto state = optim::adam_state(model);
  const auto [x, y] = kinds(32);
  const auto loss = [](const Model& m, const Tensor& at, const Tensor& labels) {
    return nn::cross_entropy(m(at), labels);
  };
  std::uint64_t launches = 0, bytes = 0, mapped = 0;
  for (int step = 0; step < 20; ++step) {
    const auto counted = test::count([&] {
      auto [value, gradient] = value_and_grad(loss, model, x, y);
      optim::clip_by_global_norm(gradient, 1);
      optim::adamw(model, gradient, state, {.rate = optim::cosine(1e-2, step, 20), .decay_rank = 2});
      tree_eval(model, state, value);
    });
    const auto pool = cpu::pool_statistics();
    if (step > 4) {
      EXPECT_EQ(counted.plan_misses, 0u) << "step " << step;
      EXPECT_EQ(counted.compiled, 0u) << "step " << step;
      EXPECT_EQ(counted.launches + counted.library_calls, launches) << "step " << step;
      EXPECT_EQ(pool.in_use, bytes) << "step " << step;
      EXPECT_EQ(pool.system_allocations, mapped) << "step " << step;
    }
    launches = counted.launches + counted.library_calls, bytes = pool.in_use,
    mapped = pool.system_allocations;
  }
}

TEST(TrainingSteps, Settle) {
  expect_steady(mlp());
  expect_steady(net());
}

/// One step is one plan, and the update of a weight runs in the product that makes its gradient.
TEST(TrainingSteps, UpdatesRunWhereTheirGradientsAreMade) {
  Mlp model = mlp();
  auto state = optim::adam_state(model);
  const auto [x, y] = kinds(32);
  tree_eval(model, state);
  const auto step = [&] {
    const auto [value, gradient] =
        value_and_grad([&](const Mlp& m) { return nn::cross_entropy(m(x), y); }, model);
    optim::adam(model, gradient, state);
    tree_eval(model, state, value);
  };
  for (int i = 0; i < 4; ++i) step();
  const auto counted = test::count(step);
  EXPECT_EQ(counted.plan_hits, 1u);
  EXPECT_EQ(counted.library_calls, 5u);  // two forward, three backward
  // a GPU multiplies float32 in a library
  if (config().device == "cpu") {
    EXPECT_LE(counted.launches, 4u);
  }
}

/// float16 over float32 parameters: small updates arrive, and scales that overflow are survived.
TEST(TrainingSteps, HalfTypesOverFloat32Parameters) {
  const auto [x, y] = kinds(64);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    Mlp model = mlp();
    auto state = optim::adam_state(model);
    optim::LossScale scale =
        optim::loss_scale(std::exp2(40));  // far too great: falls until gradients are finite
    const auto loss = [&](const Mlp& m, const Tensor& factor) {
      return nn::cross_entropy(tree_astype(m, dtype)(x.astype(dtype)), y) * factor;
    };
    float first = 0, last = 0;
    for (int step = 0; step < 80; ++step) {
      auto [value, gradient] = value_and_grad(loss, model, scale.scale);
      EXPECT_EQ(gradient.hidden.weight.dtype(), DType::Float32);
      const float seen = (value / scale.scale).template item<float>();
      const Tensor finite = optim::unscale(gradient, scale);
      const auto before = std::pair(model, state);
      optim::adam(model, gradient, state, {.rate = 1e-2});
      optim::keep_if(finite, model, before.first);
      optim::keep_if(finite, state, before.second);
      tree_eval(model, state, scale);
      if (step == 0) first = seen;
      last = seen;
    }
    EXPECT_LT(last, 0.3f * first) << name(dtype);
    if (dtype == DType::Float16) {
      EXPECT_LT(scale.scale.item<float>(), std::exp2(25.f));
      EXPECT_LT(state.steps.item<int>(), 80);
    }
  }
}

}  // namespace
}  // namespace kiln
