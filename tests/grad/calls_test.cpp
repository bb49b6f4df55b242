// Derivatives of whole calls: functions with derivatives of their own, functions that are computed again,
// loops.
#include "api/expect.h"
#include "grad/check.h"
#include "modes.h"

#include <kiln/custom_vjp.h>

namespace kiln {
namespace {

using namespace kiln::testing;

constexpr Engine kVm{"vm", Mode::Lazy, true};

Tensor doubles(std::vector<double> values) { return Tensor::from(values); }

TEST(GradCalls, CustomVjpTakesItsOwnDerivative) {
  in_every_mode([] {
    const auto f = custom_vjp([](const Tensor& x, const Tensor& y) { return x * y; },
                              [](const Tensor& g, const Tensor& r, const Tensor& x, const Tensor& y) {
                                return std::tuple(g * y * 100.0, g * x + r);
                              });
    expect_near(f(doubles({2, 3}), doubles({4, 5})), {8, 15});  // outside of derivatives it is the function
    const auto loss = [&](const Tensor& x, const Tensor& y) { return sum(f(x * 1.0, y)); };
    const auto [value, both] = value_and_grad(loss, wrt<0, 1>, doubles({2, 3}), doubles({4, 5}));
    EXPECT_EQ(value.item<double>(), 23);
    expect_near(std::get<0>(both), {400, 500});
    expect_near(std::get<1>(both), {10, 18});
  });
}

TEST(GradCalls, CustomVjpOfTreesAndTwice) {
  const auto f = custom_vjp([](const Tensors& x) { return Tensors{sin(x[0]), x[0] * x[1]}; },
                            [](const Tensors& g, const Tensors&, const Tensors& x) {
                              return Tensors{g[0] * cos(x[0]) + g[1] * x[1], g[1] * x[0]};
                            });
  const Function twice = [&](const Tensors& x) {
    Tensors y = f(Tensors{x[0], x[1]});
    y[0].eval();  // and evaluated on the way
    return Tensors{f(y)[1]};
  };
  const Tensors x{doubles({0.3, 1.2}), doubles({0.5, -0.7})};
  const auto pulled = vjp(twice, x).second({ones({2}, DType::Float64)});
  const auto plain = vjp([](const Tensors& a) { return Tensors{sin(a[0]) * (a[0] * a[1])}; }, x)
                         .second({ones({2}, DType::Float64)});
  EXPECT_TRUE(allclose(pulled[0], plain[0], 1e-13));
  EXPECT_TRUE(allclose(pulled[1], plain[1], 1e-13));
  const auto second = [&](const auto& g) {
    return grad([&](const Tensors& a) { return sum(vjp(g, a).second({ones({2}, DType::Float64)})[0]); },
                x)[0];
  };
  const Tensor want = second([](const Tensors& a) { return Tensors{sin(a[0]) * (a[0] * a[1])}; });
  EXPECT_TRUE(allclose(second(twice), want, 1e-13));
}

TEST(GradCalls, CustomVjpRefusesWhatItDoesNotSee) {
  const auto captured = [](const Tensor& outer) {
    const auto f = custom_vjp([&](const Tensor& x) { return x * outer; },
                              [](const Tensor& g, const Tensor&, const Tensor&) { return g; });
    return sum(f(outer));
  };
  EXPECT_THROW(grad(captured, doubles({1})), UserError);
  const auto f = custom_vjp([](const Tensor& x) { return x * 2.0; },
                            [](const Tensor& g, const Tensor&, const Tensor&) { return g; });
  EXPECT_THROW(jvp(f, doubles({1}), doubles({1})), UserError);
}

TEST(GradCalls, CheckpointComputesTheSame) {
  in_every_mode([] {
    const auto layer = [](const Tensor& w, const Tensor& x) { return tanh(matmul(x, w)) + x; };
    const Tensor x = counting({3, 4}) * 0.1f;
    const Tensors w{counting({4, 4}) * 0.02f, counting({4, 4}) * -0.03f, ones({4, 4}) * 0.1f};
    const auto loss = [&](const Tensors& weights, const auto& f) {
      Tensor h = x;
      for (const Tensor& each : weights) h = f(each, h);
      return sum(h * h);
    };
    const Tensors plain = grad([&](const Tensors& p) { return loss(p, layer); }, w);
    const Tensors again = grad([&](const Tensors& p) { return loss(p, checkpoint(layer)); }, w);
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_TRUE(allclose(again[i], plain[i], 1e-5, 1e-6));
    const auto change = [&](const auto& f) {
      return jvp([&](const Tensors& p) { return loss(p, f); }, w, Tensors{w[1], w[2], w[0]}).second;
    };
    EXPECT_TRUE(allclose(change(checkpoint(layer)), change(layer), 1e-5));
  });
}

// ---- loops ----

Function recurrent(bool reverse) {
  return [=](const Tensors& p) {
    const Scanned out = scan(
        [&](const Tensors& carry, const Tensors& x) {
          const Tensor h = tanh(matmul(carry[0], p[0]) + x[0] * p[2]);
          return Scanned{{h, carry[1] + 1.0}, {sum(h * h) * carry[1], x[0] + 1.0}};
        },
        {p[1], Tensor(1.0)}, {p[3]}, 0, reverse);
    return Tensors{out.carry[0], out.ys[0], out.ys[1]};
  };
}

TEST(GradCalls, ScanByItsCarryItsSlicesAndWhatItsBodyReads) {
  const EngineScope scope(kVm);
  std::mt19937 random(3);
  for (const bool reverse : {false, true}) {
    const Tensors p{random_tensor({3, 3}, random), random_tensor({2, 3}, random), random_tensor({3}, random),
                    random_tensor({5, 2, 3}, random)};
    expect_derivative(recurrent(reverse), p);
    expect_second_derivative(recurrent(reverse), p);
  }
}

TEST(GradCalls, ScanIsTheLoopWrittenOut) {
  in_every_mode([] {
    const Tensor x = doubles({0.5, 1.5, -0.5, 2});
    const auto looped = [](const Tensor& at) {
      return scan([](const Tensors& c, const Tensors& s) { return Scanned{{sin(c[0]) * s[0]}, {}}; },
                  {Tensor(1.0)}, {at})
          .carry[0];
    };
    const auto written = [](const Tensor& at) {
      Tensor c(1.0);
      for (int i = 0; i < 4; ++i) c = sin(c) * at(i);
      return c;
    };
    EXPECT_TRUE(allclose(grad(looped, x), grad(written, x), 1e-12));
  });
}

TEST(GradCalls, WhileLoopsHaveTangents) {
  const auto f = [](const Tensor& x) {
    return while_loop([](const Tensors& s) { return s[0] < 100.0; },
                      [&](const Tensors& s) { return Tensors{s[0] * s[0] + x, s[1] + 1.0}; }, {x, x})[0];
  };
  const auto [y, change] = jvp(f, doubles({2, 3}), doubles({1, 0.5}));
  const auto written = [](const Tensor& x) {  // 2, 6, 38, 1446; 3, 12, 147
    const auto step = [&](const Tensor& s) { return s * s + x; };
    return where(x < 2.5, step(step(step(x))), step(step(x)));
  };
  const auto want = jvp(written, doubles({2, 3}), doubles({1, 0.5}));
  EXPECT_TRUE(allclose(y, want.first, 1e-13));
  EXPECT_TRUE(allclose(change, want.second, 1e-13));
}

TEST(GradCalls, WhileLoopsWithABoundHaveGradients) {
  const EngineScope scope(kVm);
  const auto f = [](std::int64_t most) {
    return [=](const Tensors& x) {
      return while_loop([](const Tensors& s) { return s[0] < 10.0; },
                        [&](const Tensors& s) { return Tensors{s[0] * s[0] + x[1], s[1] + sin(s[0])}; },
                        {x[0], x[1]}, MaxIterations{most});
    };
  };
  const Tensors x{doubles({1.5, 2.5, 30}), doubles({0.3, 1.2, 0.7})};  // 3, 2 and no iterations
  for (const std::int64_t most : {8, 2, 0}) {
    expect_derivative(f(most), x);
    expect_second_derivative(f(most), x, 1, 0.005, most != 0);
  }
  const auto whole = [](const Tensors& x) {  // one condition for all, a state of integers, a matrix outside
    return Tensors{
        while_loop([](const Tensors& s) { return (sum(s[0]) < 6.0) & (s[1] < 20); },
                   [&](const Tensors& s) { return Tensors{s[0] + 0.3 * tanh(matmul(x[1], s[0])), s[1] + 1}; },
                   {x[0], Tensor(std::int64_t{0})}, MaxIterations{12})[0]};
  };
  std::mt19937 random(5);
  expect_derivative(whole, {random_tensor({3}, random, 0.5, 1), random_tensor({3, 3}, random, 0, 1)});
  const auto at_its_end = [](const Tensor& v) {  // its body is infinite where it has ended
    return while_loop(
        [](const Tensors& s) { return s[0] > 0.0; },
        [](const Tensors& s) { return Tensors{where(s[0] > 0.5, sqrt(s[0]) * 0.5, s[0] * 0.0)}; }, {v},
        MaxIterations{5})[0];
  };
  EXPECT_TRUE(all(isfinite(grad([&](const Tensor& v) { return sum(at_its_end(v)); }, doubles({0.7, 3}))))
                  .item<bool>());
  EXPECT_THROW((void)while_loop([](const Tensors& s) { return s[0] < 1.0; },
                                [](const Tensors& s) { return s; }, {Tensor(0.0)}, MaxIterations{-1}),
               UserError);
}

TEST(GradCalls, BoundedLoopsInEveryMode) {
  in_every_mode([] {
    const auto f = [](const Tensor& x) {
      return sum(while_loop([](const Tensors& s) { return s[0] < 10.0; },
                            [&](const Tensors& s) { return Tensors{s[0] * s[0] + x}; }, {x},
                            MaxIterations{6})[0]);
    };
    const auto written = [](const Tensor& x) {  // 2, 6, 38; 3, 12
      return sum(where(x < 2.5, square(x * x + x) + x, x * x + x));
    };
    EXPECT_TRUE(allclose(grad(f, doubles({2, 3})), grad(written, doubles({2, 3})), 1e-13));
  });
}

TEST(GradCalls, LoopsInsideEachOther) {
  const EngineScope scope(kVm);
  std::mt19937 random(9);
  const auto scans = [](const Tensors& x) {
    const Scanned out = scan(
        [&](const Tensors& c, const Tensors& row) {
          const Scanned inner =
              scan([&](const Tensors& d,
                       const Tensors& t) { return Scanned{{sin(d[0]) * t[0] + c[0] * x[2]}, {d[0] * c[0]}}; },
                   {c[0]}, {row[0]});
          return Scanned{{inner.carry[0]}, {sum(inner.ys[0])}};
        },
        {x[0]}, {x[1]});
    return Tensors{out.carry[0], out.ys[0]};
  };
  const Tensors x{random_tensor({2}, random), random_tensor({3, 4}, random), random_tensor({}, random)};
  expect_derivative(scans, x);
  expect_second_derivative(scans, x);
  const auto branches = [](const Tensors& p) {  // a branch, and a loop with a bound, in each iteration
    return scan(
               [&](const Tensors& c, const Tensors& s) {
                 const Tensor chosen = cond(
                     s[0] > 0.0, [&](const Tensors& t) { return Tensors{sin(t[0]) * p[1]}; },
                     [](const Tensors& t) { return Tensors{t[0] * t[0]}; }, {c[0] + s[0]})[0];
                 const Tensor grown =
                     while_loop([](const Tensors& t) { return t[0] < 2.0; },
                                [&](const Tensors& t) { return Tensors{t[0] * 1.5 + 0.3 + p[1] * p[1]}; },
                                {chosen}, MaxIterations{6})[0];
                 return Scanned{{grown * 0.25}, {grown}};
               },
               {p[2]}, {p[0]})
        .ys;
  };
  expect_derivative(branches,
                    {doubles({0.5, -1.2, 2, -0.1}), doubles({0.7}).reshape({}), doubles({0.2}).reshape({})},
                    1, 0.002);
}

TEST(GradCalls, CondTakesItsBranchBack) {
  const auto f = [](const Tensor& c) {
    return [=](const Tensors& x) {
      return cond(
          c, [&](const Tensors& s) { return Tensors{sin(s[0]) * x[1], s[0] + 1.0}; },
          [&](const Tensors& s) { return Tensors{s[0] * s[0], s[0] * x[1]}; }, {x[0]});
    };
  };
  const EngineScope scope(kVm);
  const Tensors x{doubles({0.5, -1.2, 2}), doubles({0.7, 0.3, -0.4})};
  for (const bool taken : {false, true}) {
    expect_derivative(f(Tensor(taken)), x);
    expect_second_derivative(f(Tensor(taken)), x);
  }
  const Tensor some = doubles({1, -1, 1}) > 0.0;
  expect_derivative(f(some), x);
  expect_derivative(  // elements that read others
      [=](const Tensors& at) {
        return cond(
            some, [](const Tensors& s) { return Tensors{flip(s[0]) * s[1]}; },
            [](const Tensors& s) { return Tensors{cumsum(s[0]) + sum(s[1] * s[1])}; }, at);
      },
      x);
  const auto safe = [](const Tensor& at) {  // the branch that is not taken would give NaN
    return sum(cond(
        all(at > 0.0), [](const Tensors& s) { return Tensors{log(s[0])}; },
        [](const Tensors& s) { return Tensors{s[0] * 2.0}; }, {at})[0]);
  };
  expect_near(grad(safe, doubles({0, 1})), {2, 2});
}

TEST(GradCalls, LoopsThatCannotBeTakenBackSaySo) {
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string loop = message([] {
    grad(
        [](const Tensor& x) {
          return while_loop([](const Tensors& s) { return s[0] < 9.0; },
                            [](const Tensors& s) { return Tensors{s[0] * 2.0}; }, {x})[0];
        },
        Tensor(1.0));
  });
  EXPECT_EQ(loop.substr(0, 26), "[while_loop] no gradient: ");
  EXPECT_NE(loop.find("calls_test.cpp:"), std::string::npos) << loop;
}

}  // namespace
}  // namespace kiln
