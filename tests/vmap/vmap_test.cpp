// What a user sees of vmap: axes, trees, errors, loops, random numbers, derivatives.
#include <kiln/vmap.h>

#include "api/expect.h"
#include "modes.h"
#include "vmap/check.h"

#include <kiln/custom_kernel.h>
#include <kiln/custom_vjp.h>
#include <kiln/random.h>

#include <map>

namespace kiln {
namespace {

using namespace kiln::testing;

Tensor floats(const Shape& shape) { return reshape(arange(shape.numel()), shape).astype(DType::Float32); }

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

struct Pair {
  Tensor weight, bias;
  KILN_FIELDS(weight, bias)
};

TEST(Vmap, MapsAlongTheAxesThatAreGiven) {
  in_every_mode([] {
    const auto dot = [](const Tensor& x, const Tensor& y) { return sum(x * y); };
    const Tensor x = floats({3, 2}), y = floats({2, 3});
    expect_equal<float>(vmap(dot)(x, x), {1, 13, 41});
    expect_equal<float>(vmap(dot, {0, 1})(x, y), {3, 14, 33});
    expect_equal<float>(vmap(dot, {0, none})(x, x(0)), {1, 3, 5});
    const auto twice = [](const Tensor& v) { return stack({v, v * 2}, 0); };
    EXPECT_EQ(vmap(twice, 0, -1)(x).shape().str(), "(2, 2, 3)");
    EXPECT_TRUE(array_equal(vmap(twice, 0, 1)(x)(1, 2), x(2) * 2));
    EXPECT_TRUE(array_equal(vmap(twice, -1)(x)(1, 1), x(all(), 1) * 2));
    EXPECT_TRUE(array_equal(vmap([&](const Tensor&) { return y; })(x), broadcast_to(y, {3, 2, 3})));
  });
}

TEST(Vmap, TakesAndReturnsTrees) {
  in_every_mode([] {
    const Pair p{floats({3, 2, 2}), floats({3, 2})};
    const auto f = [](const Pair& q, const Tensor& x, int times) {
      return std::map<std::string, Tensor>{{"y", matmul(q.weight, x) + q.bias}, {"n", q.bias * times}};
    };
    const Tensor x = floats({2, 3});
    const auto y = vmap(f, {0, 1, none})(p, x, 4);
    for (int i = 0; i < 3; ++i) {
      const auto want = f({p.weight(i), p.bias(i)}, x(all(), i), 4);
      EXPECT_TRUE(allclose(y.at("y")(i), want.at("y"))) << y.at("y");
      EXPECT_TRUE(array_equal(y.at("n")(i), want.at("n")));
    }
  });
}

TEST(Vmap, Nests) {
  in_every_mode([] {
    const Tensor x = floats({3, 2}), y = floats({4, 2});
    const auto distance = [](const Tensor& a, const Tensor& b) { return sum((a - b) * (a - b)); };
    const auto all_pairs = [&](const Tensor& a, const Tensor& b) {
      return vmap([&](const Tensor& row) { return vmap(distance, {none, 0})(row, b); })(a);
    };
    const Tensor want = sum(square(expand_dims(x, 1) - y), 2);
    EXPECT_TRUE(array_equal(all_pairs(x, y), want));
    EXPECT_TRUE(array_equal(vmap(vmap(distance, {none, 0}), {0, none})(x, y), want));
    EXPECT_TRUE(array_equal(vmap(all_pairs, {none, 0})(x, stack({y, y + 1}, 0))(0), want));
  });
}

TEST(Vmap, OfNoExamplesHasTheShapeOfTheirResults) {
  in_every_mode([] {
    const Tensor x = zeros({0, 4});
    EXPECT_EQ(vmap([](const Tensor& v) { return stack({v, v}, 1); })(x).shape().str(), "(0, 4, 2)");
    EXPECT_EQ(vmap([](const Tensor& v) { return argsort(v); }, 0, 1)(x).shape().str(), "(4, 0)");
    const auto loop = [](const Tensor& v) {
      return while_loop([](const Tensors& s) { return any(s[0] < 3.0f); },
                        [](const Tensors& s) { return Tensors{s[0] + 1.0f}; }, {v})[0];
    };
    EXPECT_EQ(vmap(loop)(x).shape().str(), "(0, 4)");
    EXPECT_EQ(vmap(loop, 1)(x).shape().str(), "(4, 0)");
  });
}

TEST(Vmap, ReadingAnExampleIsAnErrorThatNamesOperationAndLine) {
  in_every_mode([] {
    const Tensor x = floats({3, 2});
    const std::string read = message([&] {
      (void)vmap([](const Tensor& v) {
        const Tensor half = v * 0.5f;
        return half.to_vector<float>()[0] > 0 ? half : v;
      })(x);
    });
    EXPECT_EQ(read.substr(0, 6), "[vmap]") << read;
    EXPECT_NE(read.find("multiply, float32 (2,)"), read.npos) << read;
    EXPECT_NE(read.find("vmap_test.cpp:"), read.npos) << read;
    const std::string added =
        message([&] { (void)vmap([](const Tensor& v) { return v * sum(v).item<float>(); })(x); });
    EXPECT_NE(added.find("has none: sum, float32 ("), added.npos) << added;
    const std::string argument =
        message([&] { (void)vmap([](const Tensor& v) { return v * v(0).item<float>(); })(x); });
    EXPECT_EQ(argument.substr(0, 6), "[vmap]") << argument;
    const std::string shaped = message([&] { (void)vmap([](const Tensor& v) { return unique(v); })(x); });
    EXPECT_EQ(shaped.substr(0, 6), "[vmap]") << shaped;
    const Tensor outside = x + 1.0f;  // may be read
    EXPECT_TRUE(array_equal(vmap([&](const Tensor& v) { return v * outside(0, 0).item<float>(); })(x), x));
    Tensor kept;
    (void)vmap([&](const Tensor& v) { return kept = v + 1.0f; })(x);
    EXPECT_THROW(kept.eval(), UserError);
  });
}

TEST(Vmap, SaysWhatIsWrongWithItsArguments) {
  const auto f = [](const Tensor& x, const Tensor& y) { return x + y; };
  const Tensor x = floats({3, 2});
  EXPECT_NE(message([&] { (void)vmap(f)(x, x(range(0, 2))); })
                .find("argument 1 is float32 (2, 2), 2 examples along axis 0; argument 0 is float32 (3, 2), "
                      "3 examples"),
            std::string::npos);
  EXPECT_NE(
      message([&] { (void)vmap(f, {0, 2})(x, x); }).find("argument 1 is float32 (3, 2), which has no axis 2"),
      std::string::npos);
  EXPECT_NE(message([&] { (void)vmap(f, {0})(x, x); }).find("[vmap] 1 axes for 2 arguments"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)vmap(f, {none, none})(x, x); }).find("no argument is mapped"),
            std::string::npos);
  EXPECT_NE(message([&] {
              (void)vmap([](const Tensor& a, int n) { return a * n; })(x, 2);
            }).find("argument 1 is no tree of tensors: give it the axis none"),
            std::string::npos);
  EXPECT_NE(message([&] { (void)vmap(f, 0, 2)(x, x); }).find("has no axis 2 for the examples"),
            std::string::npos);
  const Pair p{x, zeros({2})};
  EXPECT_NE(
      message([&] { (void)vmap([](const Pair& q) { return q.weight; })(p); }).find("argument 0, bias, is"),
      std::string::npos);
  // an error of the function itself leaves nothing behind
  EXPECT_NE(message([&] {
              (void)vmap([](const Tensor& a) { return matmul(a, floats({3})); })(x);
            }).find("[matmul]"),
            std::string::npos);
  EXPECT_EQ((x + 1.0f)(0, 0).item<float>(), 1);
}

// ---- loops ----

TEST(Vmap, OfLoops) {
  in_every_mode([] {
    const Tensor x = floats({4, 3}) * 0.25f, n = Tensor::from(std::vector<std::int64_t>{0, 3, 1, 7});
    const Function counted = [](const Tensors& a) {  // runs as often as an example wants
      return while_loop([&](const Tensors& s) { return s[1] < a[1]; },
                        [](const Tensors& s) { return Tensors{s[0] * 1.5f + 1.0f, s[1] + 1}; },
                        {a[0], zeros({}, DType::Int64)});
    };
    expect_mapped(counted, {x, n}, {0, 0}, 4);
    const Function whole = [](const Tensors& a) {  // a condition of each element, states of other ranks
      return while_loop([](const Tensors& s) { return s[0] < 5.0f; },
                        [&](const Tensors& s) { return Tensors{s[0] + sum(a[0]) + 0.5f, s[1] + s[0]}; },
                        {a[0](0), a[0]});
    };
    expect_mapped(whole, {x}, {0}, 4);
    const Function recurrent = [](const Tensors& a) {
      const Scanned out = scan(
          [&](const Tensors& c, const Tensors& s) {
            return Scanned{{c[0] * 0.5f + s[0] * a[1], c[1] + 1}, {c[0] + s[0], c[1]}};
          },
          {zeros({}), zeros({}, DType::Int32)}, {a[0]}, 0, true);
      return Tensors{out.carry[0], out.carry[1], out.ys[0], out.ys[1]};
    };
    expect_mapped(recurrent, {x, x(all(), 0)}, {0, 0}, 4);
  });
}

TEST(Vmap, OfLoopsInsideEachOtherAndBranches) {
  in_every_mode([] {
    const Tensor x = floats({4, 3}) * 0.25f;
    const Function nested = [](const Tensors& a) {
      return scan(
                 [](const Tensors& c, const Tensors& s) {
                   const Tensor grown = while_loop(
                       [](const Tensors& t) { return t[0] < 4.0f; },
                       [&](const Tensors& t) { return Tensors{t[0] * 1.5f + s[0]}; }, {c[0] + 0.25f})[0];
                   return Scanned{{grown * 0.25f}, {grown}};
                 },
                 {a[1]}, {a[0]})
          .ys;
    };
    expect_mapped(nested, {x, x(all(), 1)}, {0, 0}, 4);
    const Function branch = [](const Tensors& a) {
      return cond(
          sum(a[0]) > a[1], [](const Tensors& s) { return Tensors{cumsum(s[0])}; },
          [](const Tensors& s) { return Tensors{s[0] * 2.0f}; }, {a[0]});
    };
    expect_mapped(branch, {x, Tensor::from(std::vector<float>{2, 2, 2, 20})}, {0, 0}, 4);
  });
}

TEST(Vmap, InsideALoop) {
  in_every_mode([] {
    const Tensor x = floats({4, 3}) * 0.25f;
    const auto scaled = [](const Tensor& row, const Tensor& by) { return row * by + sum(row); };
    const Tensor got =
        scan([&](const Tensors& c,
                 const Tensors& s) { return Scanned{{vmap(scaled, {0, none})(c[0], s[0])}, {}}; },
             {x}, {x(0)})
            .carry[0];
    Tensor want = x;
    for (int i = 0; i < 3; ++i) want = want * x(0, i) + sum(want, 1, true);
    EXPECT_TRUE(allclose(got, want));
  });
}

// ---- random numbers ----

TEST(Vmap, DrawsByTheKeysOfTheExamples) {
  in_every_mode([] {
    const random::Key key(7);
    const Tensor keys = random::bits(key, {3}, DType::UInt64);
    const auto draw = [](const Tensor& bits) {
      const auto [a, b] = random::split<2>(random::Key(bits));
      return random::uniform(a, {2, 3}) + random::uniform(b, {3});
    };
    const Tensor all = vmap(draw)(keys);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(array_equal(all(i), draw(keys(i))));
    const auto same = [&](const Tensor& x) { return x + random::uniform(key, {2}); };
    EXPECT_TRUE(array_equal(vmap(same)(zeros({3, 2}))(1), random::uniform(key, {2})));
    const Function shuffled = [](const Tensors& a) {
      return Tensors{random::permutation(random::Key(a[0]), a[1])};
    };
    expect_mapped(shuffled, {keys, floats({3, 5})}, {0, 0}, 3);
  });
}

// ---- derivatives ----

TEST(Vmap, OfGradientsIsOneForEachExample) {
  in_every_mode([] {
    const Tensor w = floats({3, 2}) * 0.1f, x = floats({4, 3}) * 0.25f, y = floats({4, 2}) * 0.5f;
    const auto loss = [](const Tensor& p, const Tensor& a, const Tensor& b) {
      return mean(square(tanh(matmul(a, p)) - b));
    };
    const Tensor each = vmap(grad(loss), {none, 0, 0})(w, x, y);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(allclose(each(i), grad(loss, w, x(i), y(i)), 1e-5, 1e-6));
    const auto total = [&](const Tensor& p) { return sum(vmap(loss, {none, 0, 0})(p, x, y)); };
    EXPECT_TRUE(allclose(grad(total, w), sum(each, 0), 1e-5, 1e-6));
    const auto [value, change] = jvp(total, w, ones_like(w));
    EXPECT_TRUE(allclose(change, sum(each), 1e-5, 1e-6));
  });
}

TEST(Vmap, OfGradientsThroughLoops) {
  in_every_mode([] {
    const Tensor x = Tensor::from(std::vector<double>{0.5, 1.5, -0.5, 2, 0.25, 1}, {2, 3});
    const auto f = [](const Tensor& v) {
      return scan([](const Tensors& c, const Tensors& s) { return Scanned{{sin(c[0]) * s[0]}, {c[0]}}; },
                  {Tensor(1.0)}, {v});
    };
    const auto loss = [&](const Tensor& v) {
      const Scanned out = f(v);
      return out.carry[0] + sum(out.ys[0] * out.ys[0]);
    };
    const Tensor each = vmap(grad(loss))(x);
    const Tensor total = grad([&](const Tensor& all) { return sum(vmap(loss)(all)); }, x);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(allclose(each(i), grad(loss, x(i)), 1e-13));
      EXPECT_TRUE(allclose(total(i), each(i), 1e-13));
    }
    const auto branch = [](const Tensor& v) {
      return sum(cond(
          sum(v) > 2.0, [](const Tensors& s) { return Tensors{flip(s[0]) * s[0]}; },
          [](const Tensors& s) { return Tensors{sin(s[0])}; }, {v})[0]);
    };
    const Tensor branches = vmap(grad(branch))(x);
    const Tensor both = grad([&](const Tensor& all) { return sum(vmap(branch)(all)); }, x);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(allclose(branches(i), grad(branch, x(i)), 1e-13));
      EXPECT_TRUE(allclose(both(i), branches(i), 1e-13));
    }
  });
}

TEST(Vmap, OfFunctionsWithDerivativesOfTheirOwn) {
  in_every_mode([] {
    const Tensor x = floats({3, 2}) * 0.3f + 0.1f, w = floats({2}) + 1.0f;
    const auto own = custom_vjp([](const Tensor& a, const Tensor& b) { return std::pair(a * b, sum(a)); },
                                [](const auto& g, const auto& r, const Tensor& a, const Tensor& b) {
                                  return std::tuple(g.first * b * 10.0f + g.second, g.first * a + r.second);
                                });
    const auto again =
        checkpoint([](const Tensor& a, const Tensor& b) { return std::pair(sin(a) * b, sum(a * a)); });
    const auto check = [&](const auto& f) {
      const auto loss = [&](const Tensor& a, const Tensor& b) {
        const auto y = f(a * 2.0f, b);
        return sum(y.first * y.first) + y.second;
      };
      const auto each =
          vmap(grad([&](const Tensor& a, const Tensor& b) { return loss(a, b); }), {0, none})(x, w);
      const auto total = [&](const Tensor& a, const Tensor& b) { return sum(vmap(loss, {0, none})(a, b)); };
      const auto [of_x, of_w] = grad(total, wrt<0, 1>, x, w);
      Tensor want_w = zeros({2});
      for (int i = 0; i < 3; ++i) {
        const auto [gx, gw] = grad(loss, wrt<0, 1>, x(i), w);
        EXPECT_TRUE(allclose(each(i), gx, 1e-5));
        EXPECT_TRUE(allclose(of_x(i), gx, 1e-5)) << of_x(i) << gx;
        want_w = want_w + gw;
      }
      EXPECT_TRUE(allclose(of_w, want_w, 1e-5)) << of_w << want_w;
    };
    check(own);
    check(again);
    const auto forward = [&](const Tensor& a) {
      return sum(vmap([&](const Tensor& v) { return again(v, w).first; })(a));
    };
    EXPECT_NEAR(jvp(forward, x, ones_like(x)).second.item<float>(), sum(cos(x) * w).item<float>(), 1e-5);
  });
}

TEST(Vmap, CallsACustomKernelForEachExample) {
  if (config().device != "cpu") GTEST_SKIP() << "the kernel is C++";
  const CustomKernel running = custom_kernel(
      {.name = "running",
       .results = [](const KernelTypes& x, KernelNumbers) { return KernelTypes{x[0], {{}, x[0].dtype}}; },
       .cpu =
           [](const KernelCall& call) {
             float total = 0;
             for (std::int64_t i = 0; i < call.in[0].numel(); ++i) {
               total += call.in[0].as<float>()[i] * call.in[1].as<float>()[0];
               call.out[0].as<float>()[i] = total;
             }
             *call.out[1].as<float>() = total;
           },
       .same_bits = true,
       .backward =
           [](std::span<const Tensor> g, std::span<const Tensor>, std::span<const Tensor> x) {
             const Tensor by = cumsum(g[0], 0, false, true) + g[1];
             return std::vector<Tensor>{by * x[1], sum(by * x[0])};
           }});
  const Tensor x = floats({4, 3}) * 0.5f, s = floats({4}) + 1.0f;
  in_every_mode([&] {
    const Function both = [&](const Tensors& a) {
      const std::vector<Tensor> y = running.call(a);
      return Tensors{y[0], y[1]};
    };
    expect_mapped(both, {x, s}, {0, 0}, 4);
    EXPECT_EQ(vmap([&](const Tensor& a) { return running.call(std::vector{a, s(0)})[0]; })(zeros({0, 3}))
                  .shape()
                  .str(),
              "(0, 3)");
    const auto loss = [&](const Tensor& a, const Tensor& b) {
      return sum(square(running.call(std::vector{a, b})[0]));
    };
    const auto total = [&](const Tensor& a) { return sum(vmap(loss, {0, none})(a, s(1))); };
    const Tensor inside = vmap([&](const Tensor& a) { return grad(loss, a, s(1)); })(x),
                 outside = grad(total, x);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(allclose(inside(i), grad(loss, x(i), s(1)), 1e-5));
      EXPECT_TRUE(allclose(outside(i), inside(i), 1e-5));
    }
  });
}

TEST(Vmap, StopsDerivativesWhereTheFunctionDoes) {
  const Tensor x = floats({3, 2});
  const auto f = [](const Tensor& v) { return sum(v * stop_gradient(v)); };
  EXPECT_TRUE(array_equal(grad([&](const Tensor& a) { return sum(vmap(f)(a)); }, x), x));
}

TEST(Vmap, SecondDerivatives) {
  const Tensor x = Tensor::from(std::vector<double>{0.5, 1.5, -0.5});
  const auto f = [](const Tensor& v) { return sum(v * v * v) * v(0); };
  const Tensor h = jacobian(grad(f), x);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(allclose(h(i), hessian_vector_product(f, x, eye(3, -1, 0, DType::Float64)(i)), 1e-12));
  EXPECT_TRUE(allclose(vmap([&](const Tensor& v) { return jacobian(grad(f), v); })(stack({x, x * 2}, 0))(0),
                       h, 1e-12));
}

}  // namespace
}  // namespace kiln
