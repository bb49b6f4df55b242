// The functions of kiln/grad.h: what they return for trees, several arguments and auxiliary values,
// derivatives of derivatives, functions that read what they compute, and errors.
#include "api/expect.h"
#include "grad/check.h"
#include "modes.h"
#include "record/tape.h"

#include <array>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace kiln {
namespace {

using namespace kiln::testing;

Tensor doubles(std::vector<double> values) { return Tensor::from(values); }

TEST(Grad, OfASumOfSquares) {
  in_every_mode([] {
    const Tensor x = floats({1, -2, 3});
    const auto [value, gradient] = value_and_grad([](const Tensor& at) { return sum(at * at); }, x);
    expect_equal<float>(value, {}, {14});
    expect_equal<float>(gradient, {2, -4, 6});
    expect_equal<float>(grad([](const Tensor& at) { return sum(at * at); }, x), {2, -4, 6});
  });
}

TEST(Grad, HigherOrdersKeepApart) {
  in_every_mode([] {
    const auto cube = [](const Tensor& x) { return sum(x * x * x); };
    const Tensor x(2.0);
    EXPECT_EQ(grad(cube)(x).item<double>(), 12);
    EXPECT_EQ(grad(grad(cube))(x).item<double>(), 12);
    EXPECT_EQ(grad(grad(grad(cube)))(x).item<double>(), 6);
    // d/dx (x * d/dy (x + y)) = 1: the inner derivative does not take x for y
    const auto outer = [](const Tensor& a) {
      return a * grad([&](const Tensor& b) { return a + b; }, Tensor(1.0));
    };
    EXPECT_EQ(grad(outer, Tensor(5.0)).item<double>(), 1);
    // the same through forward mode, and forward mode over itself
    const auto slope = [&](const Tensor& a) { return jvp(cube, a, ones_like(a)).second; };
    EXPECT_EQ(grad(slope, x).item<double>(), 12);
    EXPECT_EQ(jvp(slope, x, ones_like(x)).second.item<double>(), 12);
  });
}

TEST(Grad, TheFunctionMayReadWhatItComputes) {
  in_every_mode([] {
    const auto f = [](const Tensor& x) {
      Tensor y = x * x;
      while (sum(y).item<double>() < 100) y = y * 2.0;  // evaluates y's sum, not y
      y.eval();
      const Tensor z = y + x;
      return sum(z).eval();
    };
    const auto [value, gradient] = value_and_grad(f, doubles({1, 2}));
    EXPECT_EQ(value.item<double>(), 5 * 32 + 3);
    expect_near(gradient, {65, 129});
    EXPECT_FALSE(ir::OpenTape::any());
  });
}

TEST(Grad, ALeafInTheSlotOfADeadValueIsAConstant) {
  const auto f = [](const Tensor& x) {
    Tensor total = x * 0.0;
    for (int i = 0; i < 50; ++i) {
      {
        (x * static_cast<double>(i)).eval();
      }  // dies with its edge kept
      total = total + Tensor::from(std::vector<double>{1}).reshape({}) * 2.0;
    }
    return total;
  };
  EXPECT_EQ(grad(f, Tensor(3.0)).item<double>(), 0);
}

TEST(Grad, UnusedArgumentsAndConstants) {
  const Tensor outside = doubles({4, 5});
  const auto f = [&](const Tensor& a, const Tensor& b) {
    return sum(stop_gradient(a) * outside) + sum(a) + 0.0 * sum(outside) + (b.rank() - 1);
  };
  const auto [a, b] = grad(f, wrt<0, 1>, outside, doubles({7}));
  expect_near(a, {1, 1});
  expect_near(b, {0});
  expect_near(grad([&](const Tensor&) { return sum(outside * outside); }, outside), {0, 0});
  expect_near(grad([](const Tensor& x) { return x; }, Tensor(2.0)), Shape{}, {1});
}

TEST(Grad, WrtNamesArguments) {
  const auto f = [](const Tensor& a, double factor, const Tensor& b) { return sum(a * b) * factor; };
  const Tensor a = doubles({1, 2}), b = doubles({3, 4});
  const auto [value, gradients] = value_and_grad(f, wrt<2, 0>, a, 10.0, b);
  EXPECT_EQ(value.item<double>(), 110);
  expect_near(std::get<0>(gradients), {10, 20});
  expect_near(std::get<1>(gradients), {30, 40});
  expect_near(grad(f, wrt<2>, a, 10.0, b), {10, 20});
}

struct Layer {
  Tensor weight, bias;
  KILN_FIELDS(weight, bias)
};
struct Net {
  std::vector<Layer> layers;
  std::map<std::string, Tensor> scales;
  std::optional<Tensor> extra;
  KILN_FIELDS(layers, scales, extra)
};

TEST(Grad, OfATreeIsATree) {
  const Net net{{{ones({2, 3}), {}}, {ones({1, 2}), zeros({1})}}, {{"s", Tensor(2.f)}}, std::nullopt};
  const auto f = [](const Net& n, const Tensor& x) {
    const Tensor h = nn::linear(x, n.layers[0].weight, n.layers[0].bias);
    return sum(nn::linear(h, n.layers[1].weight, n.layers[1].bias)) * n.scales.at("s");
  };
  const Net g = grad(f, net, ones({4, 3}));
  expect_equal<float>(g.layers[0].weight, {2, 3}, {8, 8, 8, 8, 8, 8});
  EXPECT_FALSE(g.layers[0].bias.valid());
  expect_equal<float>(g.layers[1].weight, {1, 2}, {24, 24});
  expect_equal<float>(g.layers[1].bias, {1}, {8});
  expect_equal<float>(g.scales.at("s"), {}, {24});
  EXPECT_FALSE(g.extra.has_value());
}

/// A pair or a tuple that is the only argument stays one.
TEST(Grad, OfAPairIsAPair) {
  using Pair = std::pair<Tensor, Tensor>;
  const auto f = [](const Pair& p) { return sum(p.first * p.second); };
  const Pair p(floats({1, 2}), floats({3, 4}));
  const Pair g = grad(f, p);
  expect_equal<float>(g.first, {3, 4});
  expect_equal<float>(g.second, {1, 2});
  const auto [value, both] = value_and_grad(f, p);
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(both)>, Pair>);
  expect_equal<float>(value, {}, {11});
  const auto [y, pull] = vjp(f, p);
  const Pair pulled = pull(ones({}));
  expect_equal<float>(pulled.first, {3, 4});
  const std::tuple<Tensor> one(floats({5}));
  const std::tuple<Tensor> of_one =
      grad([](const std::tuple<Tensor>& t) { return sum(square(std::get<0>(t))); }, one);
  expect_equal<float>(std::get<0>(of_one), {10});
}

TEST(Grad, AuxiliaryValuesComeBetween) {
  const auto f = [](const Tensor& x) { return std::tuple(sum(x * x), x + 1.f, std::string("seen")); };
  const auto [value, moved, word, gradient] = value_and_grad(f, floats({1, 2}));
  expect_equal<float>(value, {}, {5});
  expect_equal<float>(moved, {2, 3});
  EXPECT_EQ(word, "seen");
  expect_equal<float>(gradient, {2, 4});
  expect_equal<float>(grad([](const Tensor& x) { return std::pair(sum(x), 3); }, floats({1, 2})), {1, 1});
}

TEST(Grad, VjpTakesCotangentsOfAnyTree) {
  const auto f = [](const Tensor& a, const std::vector<Tensor>& b) {
    return std::vector<Tensor>{a * b[0], argmax(a), b[1]};
  };
  const Tensor a = doubles({1, 5}), b = doubles({3, 4});
  const auto [y, pull] = vjp(f, a, std::vector<Tensor>{b, b});
  EXPECT_EQ(y[1].item<int>(), 1);
  for (const double scale : {1.0, 2.0}) {  // any number of times
    const auto [ga, gb] = pull({doubles({scale, 0}), y[1], doubles({0, 7})});
    expect_near(ga, {3 * scale, 0});
    expect_near(gb[0], {scale, 0});
    expect_near(gb[1], {0, 7});
  }
  y[0].eval();
  expect_near(std::get<0>(pull({b, y[1], b})), {9, 16});  // after its values are computed
}

TEST(Grad, JvpTakesTangents) {
  const auto [y, change] =
      jvp([](const Tensors& x) { return Tensors{x[0] * x[1], x[0].astype(DType::Int32)}; },
          Tensors{doubles({2, 3}), doubles({5, 7})}, {doubles({1, 0}), doubles({0, 10})});
  expect_near(y[0], {10, 21});
  expect_near(change[0], {5, 30});
  expect_equal<std::int32_t>(change[1], {0, 0});
}

TEST(Grad, JacobianEitherWay) {
  const auto wide = [](const Tensor& x) { return stack({x(0) * x(1), x(2) * x(2)}); };
  expect_near(jacobian(wide, doubles({2, 3, 4})), {2, 3}, {3, 2, 0, 0, 0, 8});
  const auto tall = [](const Tensor& x) { return outer(x, doubles({1, 10})); };
  expect_near(jacobian(tall, doubles({2, 3})), {2, 2, 2}, {1, 0, 10, 0, 0, 1, 0, 10});
  EXPECT_EQ(jacobian(tall, doubles({})).shape().str(), "(0, 2, 0)");
}

TEST(Grad, HessianVectorProduct) {
  const auto f = [](const Tensor& x) { return x(0) * x(0) * x(1) + exp(x(1)); };
  const Tensor x = doubles({2, 0}), v = doubles({1, 3});
  expect_near(hessian_vector_product(f, x, v), {2 * 0 * 1 + 4 * 3, 4 * 1 + 1 * 3});
}

TEST(Grad, ATapeIsCleanAfterAnException) {
  EXPECT_THROW(grad([](const Tensor& x) -> Tensor { throw std::runtime_error(x.str()); }, floats({1})),
               std::runtime_error);
  EXPECT_FALSE(ir::OpenTape::any());
  expect_equal<float>(grad([](const Tensor& x) { return sum(x); }, floats({1})), {1});
}

TEST(Grad, SeesWhatOtherThreadsRecordAndEvaluate) {
  const auto f = [](const Tensor& x) {
    Tensor y, z;
    std::thread([&] { y = x * x; }).join();
    std::thread([&] { z = (y * 3.0).eval(); }).join();
    return sum(y + z);
  };
  expect_near(grad(f, doubles({1, 2})), {8, 16});
}

TEST(Grad, HalvesKeepTheirDtype) {
  const Tensor x = floats({1, 2}).astype(DType::Float16);
  const Tensor g = grad([](const Tensor& at) { return sum(at.astype(DType::Float32) * at); }, x);
  EXPECT_EQ(g.dtype(), DType::Float16);
  expect_near(g, {2, 4});
}

TEST(Grad, TiesShare) {
  expect_near(grad([](const Tensor& x) { return max(x); }, doubles({3, 1, 3})), {0.5, 0, 0.5});
  expect_near(grad([](const Tensor& x) { return sum(maximum(x, 3.0)); }, doubles({3, 4, 1})), {0.5, 1, 0});
  expect_near(grad([](const Tensor& x) { return prod(x); }, doubles({0, 2, 3})), {6, 0, 0});
  expect_near(grad([](const Tensor& x) { return prod(x); }, doubles({0, 2, 0})), {0, 0, 0});
  expect_near(grad([](const Tensor& x) { return sum(hypot(x, x)); }, doubles({0})), {0});
  expect_near(grad([](const Tensor& x) { return sum(pow(x, doubles({0, 2}))); }, doubles({0, 0})), {0, 0});
  expect_near(grad([](const Tensor& x) { return logsumexp(x); }, doubles({-HUGE_VAL, -HUGE_VAL})), {0, 0});
}

TEST(Grad, OfDrawsUsesTheSameMask) {
  const auto f = [](const Tensor& x) {
    const Tensor kept = random::uniform(random::Key(7), x.shape(), DType::Float64) < 0.5;
    return std::pair(sum(where(kept, x * 2.0, 0.0)), kept);
  };
  const auto [value, kept, g] = value_and_grad(f, ones({100}, DType::Float64));
  EXPECT_TRUE(array_equal(g, where(kept, 2.0, zeros({100}, DType::Float64))));
  EXPECT_EQ(value.item<double>(), sum(g).item<double>());
}

TEST(Grad, ErrorsNameOperationAndLine) {
  const Tensor x = floats({1, 2});
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const UserError& e) {
      return std::string(e.message());
    }
    return "no error";
  };
  const auto begins = [](const std::string& text, const std::string& start) {
    EXPECT_EQ(text.substr(0, start.size()), start);
    EXPECT_NE(text.find("grad_test.cpp:"), std::string::npos) << text;
  };
  begins(message([&] { grad([](const Tensor& at) { return at * 2.f; }, x); }),
         "[grad] the function returns float32 (2,), not a float of one element (recorded at ");
  begins(message([&] {
           value_and_grad([](const Net& n) { return sum(n.extra->astype(DType::Float32)); },
                          Net{{}, {}, zeros({3}, DType::Int32)});
         }),
         "[value_and_grad] argument 0, extra, is int32 (3,): only floats have derivatives (recorded at ");
  begins(message([&] { grad([](const Tensor& at) { return sum(at); })(Tensor({1, 2})); }),
         "[grad] argument 0 is int32 (2,): only floats have derivatives (recorded at ");
  begins(message([&] { grad([](const Tensor& at) { return sum(nextafter(at, 3.f)); }, x); }),
         "[grad] nextafter has no derivative: its result is one unit in the last place away");
  begins(message([&] { vjp([](const Tensor& at) { return at * 2.f; }, x).second(ones({3})); }),
         "[vjp] cotangent 0 is float32 (3,), expected float32 (2,) (recorded at ");
  begins(
      message([&] { jvp([](const Tensor& at) { return at * 2.f; }, x + 0.f, zeros({2}, DType::Float64)); }),
      "[jvp] tangent 0 is float64 (2,), expected float32 (2,) (recorded at ");
  EXPECT_FALSE(ir::OpenTape::any());
}

TEST(Grad, SlicesOfOneTensorBecomeOneJoin) {
  const Tensor x = counting({40, 64}).eval();
  const auto f = [](const Tensor& at) {
    Tensor total = sum(at(range(3, 5)) * 2.f);  // overlaps with the rows
    for (int i = 0; i < 40; ++i)
      if (i != 7) total = total + sum(at(i) * static_cast<float>(i));
    return total;
  };
  const Tensor g = grad(f, x);
  const Statistics before = statistics();
  eval(g);
  EXPECT_LE(statistics().launches - before.launches, 2u);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(g(i, 5).item<float>(), (i == 7 ? 0 : i) + (i == 3 || i == 4 ? 2 : 0)) << i;
}

TEST(Grad, AStepIsPlannedWhole) {
  const Tensor x = counting({4, 8}) * 0.01f;
  std::vector<Tensor> weights(60, (counting({8, 8}) * 0.001f).eval());
  const auto loss = [&](const std::vector<Tensor>& w) {
    Tensor h = x;
    for (const Tensor& each : w) h = h + nn::layer_norm(tanh(matmul(h, each)));
    return mean(h * h);
  };
  Statistics before{};
  for (int step = 0; step < 3; ++step) {
    if (step == 2) before = statistics();
    const auto [value, gradient] = value_and_grad(loss, weights);
    weights = tree_map([](const Tensor& w, const Tensor& g) { return w - g * 0.1f; }, weights, gradient);
    std::vector<Tensor> all = weights;
    all.push_back(value);
    eval(all);
  }
  const Statistics now = statistics();
  EXPECT_EQ(now.evaluations - before.evaluations, 1u);
  EXPECT_EQ(now.plan_misses, before.plan_misses);
  EXPECT_EQ(now.kernels_compiled, before.kernels_compiled);
  const Tensors fused = grad(loss, weights);
  eval(fused);
  const ModeScope scope(Mode::Eager);
  const Tensors plain = grad(loss, weights);
  for (std::size_t i = 0; i < plain.size(); i += 7)
    EXPECT_TRUE(allclose(fused[i], plain[i], 1e-3, 1e-6)) << i;
}

TEST(Grad, LongStepsAreRecordedWhole) {
  const auto f = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 3000; ++i) y = y * 1.0001 + 0.0 * x;
    return sum(y);
  };
  expect_near(grad(f, doubles({1, 2})), {std::pow(1.0001, 3000), std::pow(1.0001, 3000)}, 1e-9);
  // what is recorded afterwards is bounded as before
  const Statistics before = statistics();
  Tensor x = doubles({1, 2});
  for (int i = 0; i < 5000; ++i) x = x * 1.0001;
  EXPECT_GT(statistics().cuts, before.cuts);
}

}  // namespace
}  // namespace kiln
