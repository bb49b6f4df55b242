// Optimisers against PyTorch's figures, schedules, clipping and loss scales against their formulas; a step
// that has settled plans, compiles and allocates nothing, whatever its rate.
#include <kiln/optim.h>

#include "counted.h"
#include "device/cpu/pool.h"
#include "expect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using testing::expect_near;
using testing::expect_unplaced_error;
using testing::expect_user_error;

struct Params {
  Tensor w, b;
  KILN_FIELDS(w, b)
};

Params params(DType dtype = DType::Float64) {
  return {Tensor({1., -2., 3., 0.5, 0., -1.}, {2, 3}).astype(dtype), Tensor({0.25, -0.75}).astype(dtype)};
}

/// Gradients that depend on step and parameters, so that four steps see every term of a formula.
Params gradients(const Params& p, int t) {
  const Tensor w = Tensor({.1, -.2, .3, -1., .5, 0.}, {2, 3}), b = Tensor({2., -.01});
  return {w * (t + 1.) - 0.05 * p.w, b / (t + 1.)};
}

/// Four steps from params() give these numbers in float64.
template <class Step>
void expect_after_four(Step step, const std::vector<double>& w, const std::vector<double>& b) {
  Params p = params();
  for (int t = 0; t < 4; ++t) step(p, gradients(p, t));
  expect_near(p.w, {2, 3}, w, 2e-8);  // the figures have nine digits
  expect_near(p.b, {2}, b, 2e-8);
}

// Figures: torch 2.15, float64, torch.optim.{SGD, Adam, AdamW, RMSprop} on the same program.

TEST(Optim, Sgd) {
  expect_after_four([](Params& p, const Params& g) { optim::sgd(p, g, 0.1); },
                    {0.919649249, -1.8392985, 2.75894775, 1.51508776, -0.502506256, -1.0201505},
                    {-0.166666667, -0.747916667});
}

TEST(Optim, ARateIsANumberOrAFloatTensorOfOneElement) {
  Tensor p = Tensor({1.f, 2.f});
  const Tensor g = Tensor({1.f, 1.f});
  optim::sgd(p, g, Tensor({0.5}, {1, 1}));
  testing::expect_equal<float>(p, {0.5f, 1.5f});
  const std::string message = "[sgd] a rate is a number or a float tensor of one element, not ";
  expect_user_error([&] { optim::sgd(p, g, Tensor(1)); }, message + "int32 ()");
  expect_user_error([&] { optim::sgd(p, g, g); }, message + "float32 (2,)");
}

TEST(Optim, SgdWithMomentum) {
  auto state = optim::sgd_state(params());
  expect_after_four([&](Params& p, const Params& g) { optim::sgd(p, g, state, {.rate = 0.1}); },
                    {0.859018162, -1.71803632, 2.57705449, 2.38853006, -0.932867131, -1.04559159},
                    {-0.885466667, -0.744322667});
}

TEST(Optim, SgdWithNesterovMomentumAndDecay) {
  auto state = optim::sgd_state(params());
  expect_after_four(
      [&](Params& p, const Params& g) {
        optim::sgd(p, g, state, {.rate = 0.1, .momentum = 0.8, .decay = 0.05, .nesterov = true});
      },
      {0.762144, -1.524288, 2.286432, 2.87856, -1.18928, -1.0}, {-0.96128091, -0.704966241});
}

TEST(Optim, Adam) {
  auto state = optim::adam_state(params());
  expect_after_four([&](Params& p, const Params& g) { optim::adam(p, g, state, {.rate = 0.01}); },
                    {0.96234289, -1.96233867, 2.96233726, 0.538872154, -0.0388344582, -1.04002122},
                    {0.21373423, -0.713734278});
  EXPECT_EQ(state.steps.item<int>(), 4);
}

TEST(Optim, AdamWithOtherOptions) {
  auto state = optim::adam_state(params());
  expect_after_four(
      [&](Params& p, const Params& g) {
        optim::adam(p, g, state, {.rate = 0.1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3});
      },
      {0.624078839, -1.62194338, 2.62121658, 0.890567043, -0.389938135, -1.39405194},
      {-0.110134452, -0.433015489});
}

TEST(Optim, AdamW) {
  auto state = optim::adam_state(params());
  expect_after_four(
      [&](Params& p, const Params& g) { optim::adamw(p, g, state, {.rate = 0.01, .decay = 0.1}); },
      {0.958407257, -1.95440904, 2.95041363, 0.536816308, -0.0387756168, -1.03596523},
      {0.212793065, -0.710796111});
}

TEST(Optim, DecayMaySpareVectors) {
  auto state = optim::adam_state(params());
  expect_after_four(
      [&](Params& p, const Params& g) {
        optim::adamw(p, g, state, {.rate = 0.01, .decay = 0.1, .decay_rank = 2});
      },
      {0.958407257, -1.95440904, 2.95041363, 0.536816308, -0.0387756168, -1.03596523},
      {0.21373423, -0.713734278});  // Adam's
}

TEST(Optim, Rmsprop) {
  auto state = optim::rmsprop_state(params());
  expect_after_four([&](Params& p, const Params& g) { optim::rmsprop(p, g, state); },
                    {0.643236919, -1.64353724, 2.64364009, 0.842697572, -0.343351943, -1.29144224},
                    {0.0550678704, -0.555069694});
}

TEST(Optim, RmspropWithMomentum) {
  auto state = optim::rmsprop_state(params(), true);
  expect_after_four(
      [&](Params& p, const Params& g) { optim::rmsprop(p, g, state, {.alpha = 0.9, .momentum = 0.7}); },
      {0.782680112, -1.78278227, 2.78281671, 0.710336197, -0.210640657, -1.18296783},
      {0.113312881, -0.6133133});
}

// Figures: the formula of the header in NumPy, float64.
TEST(Optim, Lion) {
  auto state = optim::lion_state(params());
  expect_after_four([&](Params& p, const Params& g) { optim::lion(p, g, state, {.rate = 0.01}); },
                    {0.96, -1.96, 2.96, 0.54, -0.04, -1.04}, {0.21, -0.71});
}

TEST(Optim, LionWithDecay) {
  auto state = optim::lion_state(params());
  expect_after_four(
      [&](Params& p, const Params& g) {
        optim::lion(p, g, state, {.rate = 0.05, .beta1 = 0.5, .beta2 = 0.6, .decay = 0.3});
      },
      {0.745791719375, -1.68712827, 2.628464820625, 0.6662131065625, -0.19554483125, -1.136881381875},
      {0.03978930640625, -0.51045758171875});
}

/// Runs 40 steps of a linear model, with a rate that warms up, falls along a cosine, and meets the constants
/// of Adam (0.1, 0.001) on its way; expects that steps do nothing new once they have settled.
template <class Init, class Step>
void expect_steady(Init init, Step step) {
  const Tensor x = test::data({64, 16}), y = test::data({64, 8}, DType::Float32, 1);
  Params p = {test::data({16, 8}, DType::Float32, 2), zeros({8})};
  auto state = init(p);
  const double rates[] = {0.1, 0.9, 0.001, 0.999, 1e-8, 0.01, 0};
  std::uint64_t launches = 0, bytes = 0, system = 0;
  for (int t = 0; t < 40; ++t) {
    const double rate =
        t % 3 == 0 ? rates[(t / 3) % 7] * 1e-2 : optim::cosine(optim::warmup(1e-2, t, 10), t, 40);
    const auto counted = test::count([&] {
      const Tensor error = matmul(x, p.w) + p.b - y;
      const Params g = {matmul(x.T(), error) / 64, mean(error, 0)};
      step(p, g, state, t % 3 == 0 ? rate * 1e2 : rate);
      tree_eval(p, state);
    });
    const auto pool = cpu::pool_statistics();
    if (t > 4) {
      EXPECT_EQ(counted.plan_misses, 0u) << "step " << t;
      EXPECT_EQ(counted.compiled, 0u) << "step " << t;
      EXPECT_EQ(counted.launches + counted.library_calls, launches) << "step " << t;
      EXPECT_EQ(pool.in_use, bytes) << "step " << t;
      EXPECT_EQ(pool.system_allocations, system) << "step " << t;
    }
    launches = counted.launches + counted.library_calls, bytes = pool.in_use,
    system = pool.system_allocations;
  }
}

TEST(Optim, StepsSettle) {
  expect_steady(
      [](const Params& p) { return optim::sgd_state(p); },
      [](Params& p, const Params& g, auto& s, double rate) { optim::sgd(p, g, s, {.rate = rate}); });
  expect_steady(
      [](const Params& p) { return optim::adam_state(p); },
      [](Params& p, const Params& g, auto& s, double rate) { optim::adam(p, g, s, {.rate = rate}); });
  expect_steady([](const Params& p) { return optim::adam_state(p); },
                [](Params& p, Params g, auto& s, double rate) {
                  optim::clip_by_global_norm(g, 1.0);
                  optim::adamw(p, g, s, {.rate = rate, .decay = 0.01});
                });
  expect_steady(
      [](const Params& p) { return optim::lion_state(p); },
      [](Params& p, const Params& g, auto& s, double rate) { optim::lion(p, g, s, {.rate = rate}); });
  expect_steady([](const Params& p) { return optim::rmsprop_state(p, true); },
                [](Params& p, const Params& g, auto& s, double rate) {
                  optim::rmsprop(p, g, s, {.rate = rate, .momentum = 0.9});
                });
}

TEST(Optim, Schedules) {
  EXPECT_DOUBLE_EQ(optim::warmup(2, 0, 4), 0.5);
  EXPECT_DOUBLE_EQ(optim::warmup(2, 2, 4), 1.5);
  EXPECT_DOUBLE_EQ(optim::warmup(2, 3, 4), 2);
  EXPECT_DOUBLE_EQ(optim::warmup(2, 100, 4), 2);
  EXPECT_DOUBLE_EQ(optim::warmup(2, 0, 0), 2);
  EXPECT_DOUBLE_EQ(optim::cosine(1, 0, 8), 1);
  EXPECT_DOUBLE_EQ(optim::cosine(1, 4, 8), 0.5);
  EXPECT_DOUBLE_EQ(optim::cosine(1, 2, 8, 0.5), 0.5 + 0.25 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(optim::cosine(1, 8, 8, 0.25), 0.25);
  EXPECT_DOUBLE_EQ(optim::cosine(1, 9, 8, 0.25), 0.25);
  EXPECT_DOUBLE_EQ(optim::stairs(1, 9, 10), 1);
  EXPECT_DOUBLE_EQ(optim::stairs(1, 10, 10), 0.1);
  EXPECT_DOUBLE_EQ(optim::stairs(3, 29, 10, 0.5), 0.75);
  EXPECT_THROW(optim::stairs(1, 1, 0), UserError);
}

TEST(Optim, ClippingByTheGlobalNorm) {
  Params g = {Tensor({3.f, 0.f, 4.f}), Tensor({12.f})};
  const Params before = g;
  expect_near(optim::global_norm(g), Shape(), {13});
  expect_near(optim::clip_by_global_norm(g, 6.5), Shape(), {13});
  expect_near(g.w, {1.5, 0, 2});
  expect_near(g.b, {6});
  g = before;
  optim::clip_by_global_norm(g, 100);
  expect_near(g.w, {3, 0, 4}, 0);
  // float16 squares are added in float32
  Params half = {full({3}, 300, DType::Float16), full({1}, 300, DType::Float16)};
  expect_near(optim::clip_by_global_norm(half, 1), Shape(), {600});
  expect_near(half.w, {0.5, 0.5, 0.5});
}

TEST(Optim, HalfParametersStepInFloat32) {
  Params p = params(DType::BFloat16);
  auto state = optim::adam_state(p);
  EXPECT_EQ(state.first.w.dtype(), DType::Float32);
  const Params g = tree_map([](const Tensor& x) { return ones_like(x); }, p);
  for (int t = 0; t < 3; ++t) optim::adam(p, g, state, {.rate = 0.25});
  EXPECT_EQ(p.w.dtype(), DType::BFloat16);
  expect_near(p.w, {2, 3}, {0.25, -2.75, 2.25, -0.25, -0.75, -1.75});
  expect_near(state.first.b, {2}, {0.271, 0.271});
  const Params wide = tree_astype(p, DType::Float32);
  EXPECT_EQ(wide.b.dtype(), DType::Float32);
}

/// A step whose gradients are not finite changes nothing but the scale, which falls; after `interval` finite
/// steps it rises.
TEST(Optim, TheLossScaleFollowsTheGradients) {
  const optim::LossScaleOptions options = {.growth = 2, .backoff = 0.25, .interval = 3};
  optim::LossScale scale = optim::loss_scale(1024);
  Params p = params(DType::Float32);
  auto state = optim::adam_state(p);
  std::vector<float> scales;
  int steps = 0;
  for (const bool overflows : {true, false, false, true, false, false, false, false}) {
    Params g = tree_map([&](const Tensor& x) { return full_like(x, 0.5) * scale.scale; }, p);
    if (overflows) g.b = g.b * INFINITY;
    const Tensor finite = optim::unscale(g, scale, options);
    const auto before = std::pair(p, state);
    optim::adam(p, g, state, {.rate = 0.25});
    optim::keep_if(finite, p, before.first);
    optim::keep_if(finite, state, before.second);
    EXPECT_EQ(finite.item<bool>(), !overflows);
    if (!overflows) expect_near(g.w, full({2, 3}, 0.5).shape(), std::vector<double>(6, 0.5));
    steps += !overflows;
    EXPECT_EQ(state.steps.item<int>(), steps);
    expect_near(p.b, {2}, {0.25 - 0.25 * steps, -0.75 - 0.25 * steps});  // Adam's step is the rate
    scales.push_back(scale.scale.item<float>());
  }
  EXPECT_EQ(scales, (std::vector<float>{256, 256, 256, 64, 64, 64, 128, 128}));
}

TEST(Optim, ErrorsNameThePathOfTheParameter) {
  std::vector<Params> p = {params(), params()};
  auto g = p;
  auto state = optim::adam_state(p);
  g[1].w = zeros({3, 2});
  expect_user_error([&] { optim::adam(p, g, state); },
                    "[adam] 1.w: parameter float64 (2, 3), gradient float32 (3, 2)");
  g[1].w = zeros({2, 3}, DType::Int32);
  expect_user_error([&] { optim::sgd(p, g, 0.1); },
                    "[sgd] 1.w: parameter float64 (2, 3), gradient int32 (2, 3)");
  g.pop_back();
  expect_unplaced_error([&] { optim::adam(p, g, state); },
                        "[adam] the trees differ: different numbers of elements");
  std::vector<Tensor> whole = {Tensor({1, 2})};
  expect_user_error([&] { optim::sgd_state(whole); },
                    "[sgd_state] 0: a parameter is a float, not int32 (2,)");
  auto plain = optim::rmsprop_state(p);
  expect_user_error([&] { optim::rmsprop(p, p, plain, {.momentum = 0.9}); },
                    "[rmsprop] momentum needs a state with a velocity: rmsprop_state(params, true)");
}

}  // namespace
}  // namespace kiln
