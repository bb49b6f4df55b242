// Loops and branches in every mode: inside a kernel, and over whole tensors.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <cstdint>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_near;
using testing::expect_user_error;
using testing::floats;
using testing::in_every_mode;

/// Steps of Collatz's sequence down to 1.
Tensor collatz(const Tensor& start) {
  return while_loop([](const Tensors& s) { return s[0] > 1; },
                    [](const Tensors& s) {
                      return Tensors{where(s[0] % 2 == 0, floor_divide(s[0], 2), s[0] * 3 + 1), s[1] + 1};
                    },
                    {start, zeros({}, DType::Int32)})[1];
}

std::vector<std::int32_t> collatz_counts(std::int64_t n) {
  std::vector<std::int32_t> want;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int32_t steps = 0;
    for (std::int64_t x = i; x > 1; ++steps) x = x % 2 == 0 ? x / 2 : 3 * x + 1;
    want.push_back(steps);
  }
  return want;
}

struct Mandelbrot {
  Tensor count, re, im;
};
Mandelbrot mandelbrot(const Tensor& cr, const Tensor& ci, int limit) {
  const Tensors out = while_loop(
      [&](const Tensors& s) { return s[0] * s[0] + s[1] * s[1] <= 4.0 & s[2] < limit; },
      [&](const Tensors& s) { return Tensors{s[0] * s[0] - s[1] * s[1] + cr, 2.0 * s[0] * s[1] + ci, s[2] + 1}; },
      {zeros({}), zeros({}), zeros({}, DType::Int32)});
  return {out[2], out[0], out[1]};
}

TEST(Loop, EachElementRunsToItsOwnEnd) {
  in_every_mode([] {
    expect_equal<std::int32_t>(collatz(arange(28)), collatz_counts(28));
    expect_equal<std::int32_t>(collatz(arange(1000).reshape({25, 40})).reshape({1000}), collatz_counts(1000));
    expect_equal<std::int32_t>(collatz(Tensor(std::int64_t{27})), Shape{}, {111});
  });
}

TEST(Loop, IsOneKernelWithWhatSurroundsIt) {
  const Tensor x = arange(1000).eval();
  EXPECT_EQ(test::kernels({collatz(x + 1) * 2}), 1u);
  EXPECT_EQ(test::kernels({sum(collatz(x + 1))}), 1u);
  const Tensor c = test::data({30, 40});
  const Mandelbrot m = mandelbrot(c * 1.5 - 0.5, c * c, 50);
  EXPECT_EQ(test::kernels({m.count}), 1u);
  EXPECT_EQ(test::kernels({m.re + m.im}), 0u + 1u);  // the states were stored along with the count
  EXPECT_TRUE(m.re.evaluated());
}

TEST(Loop, MandelbrotEqualsAPlainLoop) {
  const std::int64_t n = 200;
  in_every_mode([&] {
    const Tensor cr = (linspace(-2.0, 0.6, n).reshape({1, n})), ci = linspace(-1.2, 1.2, n).reshape({n, 1});
    eval({cr, ci});
    const std::vector<float> x = cr.to_vector<float>(), y = ci.to_vector<float>();
    const std::vector<std::int32_t> counts = mandelbrot(cr, ci, 200).count.to_vector<std::int32_t>();
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        float re = 0, im = 0;
        std::int32_t count = 0;
        while (re * re + im * im <= 4 && count < 200) {
          const float next = re * re - im * im + x[static_cast<std::size_t>(j)];
          im = 2 * re * im + y[static_cast<std::size_t>(i)];
          re = next;
          ++count;
        }
        ASSERT_EQ(counts[static_cast<std::size_t>(i * n + j)], count) << i << ", " << j;
      }
  });
}

TEST(Loop, NewtonRunsToConvergence) {
  in_every_mode([] {
    const Tensor a = counting({100}) + 1.0;
    const Tensor root = while_loop([&](const Tensors& s) { return abs(s[0] * s[0] - a) > 1e-5 * a; },
                                   [&](const Tensors& s) { return Tensors{0.5 * (s[0] + a / s[0])}; }, {a})[0];
    std::vector<double> want;
    for (int i = 1; i <= 100; ++i) want.push_back(std::sqrt(i));
    expect_near(root, want, 1e-5);
  });
}

TEST(Loop, EveryDtypeOfStates) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      if (is_bool(type)) continue;
      SCOPED_TRACE(name(type));
      const Tensor start = arange(20).astype(type);
      const Tensor doubled = while_loop([](const Tensors& s) { return (s[0] < 50) & (s[0] > 0); },
                                        [](const Tensors& s) { return Tensors{s[0] + s[0]}; }, {start})[0];
      std::vector<double> want;
      for (int i = 0; i < 20; ++i) {
        int x = i;
        while (x > 0 && x < 50) x += x;
        want.push_back(x);
      }
      ASSERT_EQ(doubled.astype(DType::Float64).to_vector<double>(), want);
    }
    const Tensor flips = while_loop([](const Tensors& s) { return s[0]; }, [](const Tensors& s) { return Tensors{!s[0]}; },
                                    {Tensor({true, false})})[0];
    expect_equal<bool>(flips, {false, false});
  });
}

TEST(Loop, ScalarConditionsCountersAndCaptures) {
  in_every_mode([] {
    const Tensor step = floats({1, 2, 3});
    const Tensors out = while_loop([](const Tensors& s) { return s[0] < 5; },
                                   [&](const Tensors& s) { return Tensors{s[0] + 1, s[1] + step * s[0].astype(DType::Float32)}; },
                                   {zeros({}, DType::Int32), zeros({3})});
    expect_equal<float>(out[1], {10, 20, 30});
    expect_equal<std::int32_t>(out[0], Shape{}, {5});
    const Tensors none = while_loop([](const Tensors& s) { return s[0] < 0.0; },
                                    [](const Tensors& s) { return Tensors{s[0] + 1.0}; }, {step});
    expect_equal<float>(none[0], {1, 2, 3});
    const Tensors empty = while_loop([](const Tensors& s) { return s[0] < 5.0; },
                                     [](const Tensors& s) { return Tensors{s[0] + 1.0}; }, {zeros({0, 2})});
    EXPECT_EQ(empty[0].eval().shape().str(), "(0, 2)");
  });
}

TEST(Loop, LoopsInsideLoops) {
  in_every_mode([] {
    // Sum of i·j over j < i < n, by two loops.
    const Tensor n = arange(12);
    const Tensor total = while_loop(
        [&](const Tensors& s) { return s[0] < n; },
        [&](const Tensors& s) {
          const Tensors inner = while_loop([&](const Tensors& t) { return t[0] < s[0]; },
                                           [&](const Tensors& t) { return Tensors{t[0] + 1, t[1] + t[0] * s[0]}; },
                                           {zeros({}, DType::Int64), zeros({}, DType::Int64)});
          return Tensors{s[0] + 1, s[1] + inner[1]};
        },
        {zeros({}, DType::Int64), zeros({}, DType::Int64)})[1];
    std::vector<std::int64_t> want;
    for (std::int64_t k = 0; k < 12; ++k) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < i; ++j) sum += i * j;
      want.push_back(sum);
    }
    expect_equal<std::int64_t>(total, want);
    // One loop's result in another's body and condition.
    const Tensor limit = collatz(arange(10));
    const Tensor count = while_loop([&](const Tensors& s) { return s[0] < limit; },
                                    [&](const Tensors& s) { return Tensors{s[0] + collatz(arange(10)) * 0 + 1}; },
                                    {zeros({10}, DType::Int32)})[0];
    expect_equal<std::int32_t>(count, collatz_counts(10));
  });
}

TEST(Loop, WithGathersReductionsAndScansAround) {
  in_every_mode([] {
    // Follow links until an element points at itself.
    const Tensor link = Tensor({0, 0, 1, 2, 2, 7, 5, 7});
    const Tensor end = while_loop([&](const Tensors& s) { return take(link, s[0], 0) != s[0]; },
                                  [&](const Tensors& s) { return Tensors{take(link, s[0], 0)}; },
                                  {arange(8).astype(DType::Int32)})[0];
    expect_equal<std::int32_t>(end, {0, 0, 0, 0, 0, 7, 7, 7});
    const Tensor steps = collatz(arange(60).reshape({3, 20}));
    std::vector<std::int32_t> counts = collatz_counts(60), total(3), greatest(3);
    for (std::size_t i = 0; i < 60; ++i) {
      total[i / 20] += counts[i];
      greatest[i / 20] = std::max(greatest[i / 20], counts[i]);
    }
    expect_equal<std::int32_t>(max(steps, 1), greatest);
    expect_equal<std::int64_t>(cumsum(steps, 1)(all(), -1), {total[0], total[1], total[2]});
    const Tensor share = steps.astype(DType::Float32) / max(steps, 1, true).astype(DType::Float32);
    expect_equal<float>(max(share, 1), {1, 1, 1});
  });
}

TEST(Loop, OverWholeTensors) {
  in_every_mode([] {
    // Power iteration: a reduction and a product in the body, a residual in the condition.
    const Tensor a = floats({2, 2}, {2, 1, 1, 3});
    const Tensors out = while_loop(
        [](const Tensors& s) { return (s[1] > 1e-6) & (s[2] < 100); },
        [&](const Tensors& s) {
          const Tensor y = matmul(a, s[0]), next = y / sqrt(sum(y * y));
          return Tensors{next, max(abs(next - s[0])), s[2] + 1};
        },
        {ones({2}), full({}, 1.0, DType::Float32), zeros({}, DType::Int32)});
    expect_near(out[0], {0.5257311, 0.8506508}, 1e-5);
    EXPECT_LT(out[2].item<std::int32_t>(), 100);
    EXPECT_GT(out[2].item<std::int32_t>(), 5);
    // States that only move, views, and a condition for each row.
    const Tensors turned = while_loop([](const Tensors& s) { return s[1] < 3; },
                                      [](const Tensors& s) { return Tensors{roll(s[0], 1), s[1] + 1}; },
                                      {counting({5}), zeros({}, DType::Int64)});
    expect_equal<float>(turned[0], {2, 3, 4, 0, 1});
    const Tensor halves = while_loop([](const Tensors& s) { return sum(s[0], 1, true) > 10.0; },
                                     [](const Tensors& s) { return Tensors{flip(s[0], 1) * 0.5}; },
                                     {floats({2, 2}, {1, 2, 8, 16})})[0];
    expect_equal<float>(halves, {2, 2}, {1, 2, 2, 4});
    const Tensor strided = while_loop([](const Tensors& s) { return sum(s[0]) < 20.0; },
                                      [](const Tensors& s) { return Tensors{s[0] + sum(s[0])}; },
                                      {transpose(counting({2, 2}))})[0];
    expect_equal<float>(strided, {2, 2}, {6, 8, 7, 9});
    const Tensor none = while_loop([](const Tensors& s) { return sum(s[0]) > 1e9; },
                                   [](const Tensors& s) { return Tensors{s[0] + sum(s[0])}; }, {counting({3})})[0];
    expect_equal<float>(none, {0, 1, 2});
  });
}

TEST(Loop, OverWholeTensorsCompilesOnce) {
  auto smoothed = [](int steps) {
    return while_loop([&](const Tensors& s) { return s[1] < steps; },
                      [](const Tensors& s) { return Tensors{(roll(s[0], 1) + s[0] + roll(s[0], -1)) / 3.0, s[1] + 1}; },
                      {test::data({500}), zeros({}, DType::Int32)})[0];
  };
  const Tensor first = smoothed(10);
  const test::Counted ten = test::count([&] { first.eval(); });
  const Tensor second = smoothed(1000);
  const test::Counted thousand = test::count([&] { second.eval(); });
  EXPECT_EQ(thousand.compiled, 0u);
  EXPECT_EQ(thousand.plan_misses, 0u);
  EXPECT_GE(thousand.launches, 1000u);
  EXPECT_LE(ten.compiled, 4u);
}

TEST(Loop, Branches) {
  in_every_mode([] {
    const Tensor x = floats({4, 9, -1, 0});
    const Tensor y = cond(x > 0.0, [](const Tensors& v) { return Tensors{sqrt(v[0])}; },
                          [](const Tensors& v) { return Tensors{v[0] - 1.0}; }, {x})[0];
    expect_equal<float>(y, {2, 3, -2, -1});
    for (const bool big : {false, true}) {
      const Tensor s = cond(Tensor(big), [](const Tensors& v) { return Tensors{cumsum(v[0], 0), sum(v[0])}; },
                            [](const Tensors& v) { return Tensors{flip(v[0], 0), max(v[0])}; }, {x})[0];
      expect_equal<float>(s, big ? std::vector<float>{4, 13, 12, 12} : std::vector<float>{0, -1, 9, 4});
    }
  });
}

TEST(Loop, Errors) {
  const Tensor x = counting({3});
  auto loop = [&](auto condition, auto body, Tensors state) { return while_loop(condition, body, state); };
  auto small = [](const Tensors& s) { return s[0] < 3.0; };
  auto same = [](const Tensors& s) { return Tensors{s[0]}; };
  expect_user_error([&] { loop(small, same, {}); }, "[while_loop] needs a state");
  expect_user_error([&] { loop([](const Tensors& s) { return s[0]; }, same, {x}); },
                    "[while_loop] the condition is not bool but float32 (3,)");
  expect_user_error([&] { loop(small, [](const Tensors& s) { return Tensors{s[0], s[0]}; }, {x}); },
                    "[while_loop] the body returns 2 tensors for 1 states");
  expect_user_error([&] { loop(small, [](const Tensors& s) { return Tensors{s[0].astype(DType::Int32)}; }, {x}); },
                    "[while_loop] state 0 begins as float32 (3,) and becomes int32 (3,)");
  expect_user_error([&] { loop(small, [](const Tensors& s) { return Tensors{concat({s[0], s[0]})}; }, {x}); },
                    "[while_loop] shapes (3,) and (6,) do not broadcast");
  in_every_mode([&] {
    Tensor leaked;
    auto leaking = [&](const Tensors& s) {
      leaked = s[0] + 1.0;
      return Tensors{leaked};
    };
    const Tensor fine = loop(small, leaking, {x})[0];
    EXPECT_THROW(leaked.eval(), UserError);
    EXPECT_THROW(loop(small, [](const Tensors& s) { return Tensors{s[0] + s[0](0).item<float>()}; }, {x}), UserError);
    expect_equal<float>(loop([](const Tensors& s) { return s[0] < 3.0; }, [](const Tensors& s) { return Tensors{s[0] + 2.0}; }, {x})[0], {4, 3, 4});
  });
}

}  // namespace
}  // namespace kiln
