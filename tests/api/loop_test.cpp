// Loops and branches in every mode: inside a kernel, and over whole tensors.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <cstdint>
#include <functional>

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
  const Tensors out =
      while_loop([&](const Tensors& s) { return (s[0] * s[0] + s[1] * s[1] <= 4.0) & (s[2] < limit); },
                 [&](const Tensors& s) {
                   return Tensors{s[0] * s[0] - s[1] * s[1] + cr, 2.0 * s[0] * s[1] + ci, s[2] + 1};
                 },
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
    const Tensor root =
        while_loop([&](const Tensors& s) { return abs(s[0] * s[0] - a) > 1e-5 * a; },
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
    const Tensor flips =
        while_loop([](const Tensors& s) { return s[0]; }, [](const Tensors& s) { return Tensors{!s[0]}; },
                   {Tensor({true, false})})[0];
    expect_equal<bool>(flips, {false, false});
  });
}

TEST(Loop, ScalarConditionsCountersAndCaptures) {
  in_every_mode([] {
    const Tensor step = floats({1, 2, 3});
    const Tensors out = while_loop(
        [](const Tensors& s) { return s[0] < 5; },
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
    const Tensor total =
        while_loop([&](const Tensors& s) { return s[0] < n; },
                   [&](const Tensors& s) {
                     const Tensors inner =
                         while_loop([&](const Tensors& t) { return t[0] < s[0]; },
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
    const Tensor count =
        while_loop([&](const Tensors& s) { return s[0] < limit; },
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
    expect_equal<std::int64_t>(cumsum(steps, 1)(slice::all(), -1), {total[0], total[1], total[2]});
    const Tensor share = steps.astype(DType::Float32) / max(steps, 1, true).astype(DType::Float32);
    expect_equal<float>(max(share, 1), {1, 1, 1});
  });
}

/// Reduced along an outer axis of a large array: accumulators of columns lie in memory, states of the loop in
/// registers.
TEST(Loop, IsReducedDownLongColumns) {
  in_every_mode([] {
    const Tensor steps = collatz((arange(60 * 700) % 97).reshape({60, 700}) + 1);
    const std::vector<std::int32_t> counts = collatz_counts(98);
    std::vector<std::int32_t> greatest(700);
    std::vector<std::int64_t> at(700);
    for (std::size_t i = 0; i < 60 * 700; ++i) {
      const std::int32_t n = counts[i % 97 + 1];
      if (n <= greatest[i % 700]) continue;
      greatest[i % 700] = n;
      at[i % 700] = static_cast<std::int64_t>(i / 700);
    }
    expect_equal<std::int32_t>(max(steps, 0), greatest);
    expect_equal<std::int64_t>(argmax(steps, 0), at);
  });
}

TEST(Loop, OverWholeTensors) {
  in_every_mode([] {
    // Power iteration: a reduction and a product in the body, a residual in the condition.
    const Tensor a = floats({2, 2}, {2, 1, 1, 3});
    const Tensors out = while_loop([](const Tensors& s) { return (s[1] > 1e-6) & (s[2] < 100); },
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
    const Tensor none =
        while_loop([](const Tensors& s) { return sum(s[0]) > 1e9; },
                   [](const Tensors& s) { return Tensors{s[0] + sum(s[0])}; }, {counting({3})})[0];
    expect_equal<float>(none, {0, 1, 2});
  });
}

TEST(Loop, OverWholeTensorsCompilesOnce) {
  auto smoothed = [](int steps) {
    return while_loop(
        [&](const Tensors& s) { return s[1] < steps; },
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
    const Tensor y = cond(
        x > 0.0, [](const Tensors& v) { return Tensors{sqrt(v[0])}; },
        [](const Tensors& v) { return Tensors{v[0] - 1.0}; }, {x})[0];
    expect_equal<float>(y, {2, 3, -2, -1});
    for (const bool big : {false, true}) {
      const Tensor s = cond(
          Tensor(big), [](const Tensors& v) { return Tensors{cumsum(v[0], 0), sum(v[0])}; },
          [](const Tensors& v) { return Tensors{flip(v[0], 0), max(v[0])}; }, {x})[0];
      expect_equal<float>(s, big ? std::vector<float>{4, 13, 12, 12} : std::vector<float>{0, -1, 9, 4});
    }
  });
}

/// Exponential averages along an axis: the carry, and all of them.
Scanned averages(const Tensor& x, int axis, const Tensor& init, bool reverse = false) {
  return scan(
      [](const Tensors& carry, const Tensors& in) {
        const Tensor next = carry[0] * 0.5 + in[0];
        return Scanned{{next}, {next, carry[0]}};
      },
      {init}, {x}, axis, reverse);
}

TEST(ScanBody, StacksWhatItsBodyReturns) {
  in_every_mode([] {
    const Tensor x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
    const Scanned rows = averages(x, 0, zeros({2}));
    expect_equal<float>(rows.carry[0], {6.75, 8.5});
    expect_equal<float>(rows.ys[0], {3, 2}, {1, 2, 3.5, 5, 6.75, 8.5});
    expect_equal<float>(rows.ys[1], {3, 2}, {0, 0, 1, 2, 3.5, 5});
    const Scanned columns = averages(x, -1, ones({3}));
    expect_equal<float>(columns.carry[0], {2.75, 5.75, 8.75});
    expect_equal<float>(columns.ys[0], {3, 2}, {1.5, 2.75, 3.5, 5.75, 5.5, 8.75});
    const Scanned back = averages(x, 0, zeros({}), true);
    expect_equal<float>(back.carry[0], {3.75, 5.5});
    expect_equal<float>(back.ys[0], {3, 2}, {3.75, 5.5, 5.5, 7, 5, 6});
    expect_equal<float>(averages(floats({1, 2, 4}), 0, zeros({})).ys[0], {1, 2.5, 5.25});
  });
}

TEST(ScanBody, SeveralTensorsOfAnyDtype) {
  in_every_mode([] {
    const Tensor x = Tensor({1, 2, 3, 4}), flag = Tensor({true, false, true, true});
    const Scanned out = scan(
        [](const Tensors& c, const Tensors& in) {
          const Tensor total = c[0] + where(in[1], in[0], 0);
          return Scanned{{total, c[1] & Operand(in[1])},
                         {total > 3, in[0].astype(DType::Float16), c[0] * 0 + 7}};
        },
        {zeros({}, DType::Int32), Tensor(true)}, {x, flag});
    expect_equal<std::int32_t>(out.carry[0], Shape{}, {8});
    expect_equal<bool>(out.carry[1], Shape{}, {false});
    expect_equal<bool>(out.ys[0], {false, false, true, true});
    expect_equal<float>(out.ys[1].astype(DType::Float32), {1, 2, 3, 4});
    expect_equal<std::int32_t>(out.ys[2], {7, 7, 7, 7});
  });
}

TEST(ScanBody, WithoutACarryOrResultsAndOfFewElements) {
  in_every_mode([] {
    const Tensor x = counting({3, 2});
    const Scanned squares =
        scan([](const Tensors&, const Tensors& in) { return Scanned{{}, {in[0] * in[0]}}; }, {}, {x});
    EXPECT_TRUE(squares.carry.empty());
    expect_equal<float>(squares.ys[0], {3, 2}, {0, 1, 4, 9, 16, 25});
    const Scanned sum = scan([](const Tensors& c, const Tensors& in) { return Scanned{{c[0] + in[0]}, {}}; },
                             {zeros({2})}, {x});
    expect_equal<float>(sum.carry[0], {6, 9});
    const Scanned none = averages(zeros({0, 2}), 0, ones({}));
    expect_equal<float>(none.carry[0], {1, 1});
    EXPECT_EQ(none.ys[0].shape().str(), "(0, 2)");
    EXPECT_EQ(averages(zeros({3, 0}), 0, ones({0})).ys[0].eval().shape().str(), "(3, 0)");
    expect_equal<float>(averages(floats({1, 2}, {3, 4}), 0, ones({2})).ys[0], {1, 2}, {3.5, 4.5});
    // What every iteration yields need not depend on it.
    const Tensor constant = exp(zeros({2}));
    const Scanned fixed =
        scan([&](const Tensors& c, const Tensors&) { return Scanned{c, {constant}}; }, {zeros({2})}, {x});
    expect_equal<float>(fixed.ys[0], {3, 2}, {1, 1, 1, 1, 1, 1});
    expect_equal<float>(fixed.carry[0], {0, 0});
  });
}

TEST(ScanBody, ElementwiseIsOneKernel) {
  const Tensor x = test::data({50, 300});
  const Scanned out = averages(x, 0, zeros({300}));
  EXPECT_EQ(test::kernels({out.carry[0], out.ys[0], out.ys[1]}), 1u);
  EXPECT_EQ(test::kernels({averages(x, 0, exp(x(0)) * 2.0).carry[0] + 1.0}), 1u);
  EXPECT_EQ(test::kernels({averages(x, 1, zeros({50})).ys[0]}), 1u);
}

TEST(ScanBody, WhatComesBeforeAndAfter) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{7, 33}, Shape{40, 1}, Shape{1, 5}, Shape{3, 20000}}) {
      SCOPED_TRACE(shape.str());
      const Tensor x = counting(shape) % 5.0, twice = x * 2.0;
      const Scanned out = averages(twice, 0, x(0));
      const Tensor best = max(out.ys[0], 0), last = out.carry[0] + best, all = out.ys[0] - out.ys[1];
      eval({last, all});
      const std::vector<float> v = x.to_vector<float>(), got = last.to_vector<float>(),
                               steps = all.to_vector<float>();
      const auto n = static_cast<std::size_t>(shape[1]);
      for (std::size_t j = 0; j < n; ++j) {
        float c = v[j], most = -1;
        for (std::size_t i = 0; i < static_cast<std::size_t>(shape[0]); ++i) {
          const float next = c * 0.5f + 2 * v[i * n + j];
          ASSERT_EQ(steps[i * n + j], next - c) << i << ' ' << j;
          c = next;
          most = std::max(most, c);
        }
        ASSERT_EQ(got[j], c + most) << j;
      }
    }
  });
}

TEST(ScanBody, OverWholeTensors) {
  in_every_mode([] {
    // A recurrent layer.
    const Tensor w = floats({2, 2}, {0, 1, -1, 0}), x = counting({4, 3, 2});
    const Scanned out = scan(
        [&](const Tensors& c, const Tensors& in) {
          const Tensor h = matmul(c[0], w) + in[0];
          return Scanned{{h}, {sum(h, 1), flip(h, 0), c[0]}};
        },
        {zeros({3, 2})}, {x});
    std::vector<float> h(6), sums, flipped, before;
    for (std::size_t t = 0; t < 4; ++t) {
      std::vector<float> next(6);
      before.insert(before.end(), h.begin(), h.end());
      for (std::size_t i = 0; i < 3; ++i) {
        next[2 * i] = -h[2 * i + 1] + static_cast<float>(6 * t + 2 * i);
        next[2 * i + 1] = h[2 * i] + static_cast<float>(6 * t + 2 * i + 1);
      }
      h = next;
      for (std::size_t i = 0; i < 3; ++i) sums.push_back(h[2 * i] + h[2 * i + 1]);
      for (std::size_t i = 3; i-- > 0;) flipped.insert(flipped.end(), {h[2 * i], h[2 * i + 1]});
    }
    expect_equal<float>(out.carry[0], {3, 2}, h);
    expect_equal<float>(out.ys[0], {4, 3}, sums);
    expect_equal<float>(out.ys[1], {4, 3, 2}, flipped);
    expect_equal<float>(out.ys[2], {4, 3, 2}, before);
  });
}

TEST(ScanBody, OverWholeTensorsCompilesOnce) {
  auto layers = [](std::int64_t steps) {
    const Tensor x = test::data({steps, 20, 20});
    return scan(
               [](const Tensors& c, const Tensors& in) {
                 const Tensor next = matmul(c[0], in[0]) / 8.0;
                 return Scanned{{next}, {max(next)}};
               },
               {ones({20, 20})}, {x})
        .ys[0];
  };
  const Tensor x = layers(500);
  const test::Counted first = test::count([&] { x.eval(); });
  EXPECT_LE(first.plan_misses, 4u);
  EXPECT_LE(first.compiled, 3u);  // the first state, a slice, the step
  EXPECT_GE(first.library_calls, 500u);
  const Tensor again = layers(500);
  const test::Counted second = test::count([&] { again.eval(); });
  EXPECT_EQ(second.plan_misses, 0u);
  EXPECT_EQ(second.compiled, 0u);
}

TEST(ScanBody, InsideOtherLoops) {
  in_every_mode([] {
    const Tensor x = counting({3, 2});
    const Scanned outer = scan(
        [&](const Tensors& c, const Tensors& in) {
          const Scanned inner = averages(x + in[0], 0, c[0]);
          return Scanned{{inner.carry[0]}, {inner.ys[0]}};
        },
        {zeros({2})}, {floats({0, 10})});
    expect_equal<float>(outer.ys[0], {2, 3, 2},
                        {0, 1, 2, 3.5, 5, 6.75, 12.5, 14.375, 18.25, 20.1875, 23.125, 25.09375});
    const Tensor repeated =
        while_loop([](const Tensors& s) { return s[1] < 2; },
                   [&](const Tensors& s) { return Tensors{averages(x, 0, s[0]).carry[0], s[1] + 1}; },
                   {zeros({2}), zeros({}, DType::Int32)})[0];
    expect_equal<float>(repeated, {5.625, 7.59375});
  });
}

TEST(ScanBody, Errors) {
  const Tensor x = counting({3, 2});
  auto same = [](const Tensors& c, const Tensors& in) { return Scanned{c, in}; };
  expect_user_error([&] { scan(same, {}, {}); }, "[scan] needs a tensor to go along");
  expect_user_error([&] { scan(same, {}, {x}, 2); }, "[scan] axis 2 is out of range for float32 (3, 2)");
  expect_user_error([&] { scan(same, {}, {x, counting({4})}); },
                    "[scan] extents along axis 0 differ: float32 (3, 2), float32 (4,)");
  expect_user_error([&] { scan([](const Tensors&, const Tensors&) { return Scanned{}; }, {x}, {x}); },
                    "[scan] the body returns 0 tensors for 1 states");
  expect_user_error(
      [&] {
        scan([](const Tensors& c, const Tensors&) { return Scanned{{c[0] > 0}, {}}; }, {zeros({2})}, {x});
      },
      "[scan] state 0 begins as float32 (2,) and becomes bool (2,)");
  expect_user_error(
      [&] {
        scan([](const Tensors& c, const Tensors&) { return Scanned{c, {Tensor()}}; }, {zeros({2})}, {x});
      },
      "[scan] an operand is an empty Tensor");
  expect_user_error(
      [&] { scan([](const Tensors& c, const Tensors& in) { return Scanned{c, {sum(in[0])}}; }, {}, {x}, 1); },
      "[scan] axis 1 is out of range for float32 (2,)");
  expect_user_error(
      [&] {
        scan([](const Tensors& c, const Tensors& in) { return Scanned{c, {square(in[0] > 0)}}; }, {}, {x});
      },
      "[square] does not take bool operands: bool (2,) and bool (2,)");
}

/// 64 loops and branches stand inside each other; more is an error of the call, which comes at once.
TEST(Loop, StandInsideEachOtherUpToABound) {
  const std::function<Tensor(const Tensor&, int, bool)> nest = [&](const Tensor& x, int depth, bool whole) {
    if (depth == 0) return x + 1.0;
    return while_loop([](const Tensors& s) { return s[1] < 1; },
                      [&](const Tensors& s) { return Tensors{nest(s[0], depth - 1, whole), s[1] + 1}; },
                      {whole ? flip(x) : x, zeros({}, DType::Int32)})[0];
  };
  in_every_mode([&] {
    expect_equal<float>(nest(counting({3}), 64, false), {1, 2, 3});
    expect_equal<float>(nest(counting({3}), 64, true), {1, 2, 3});
    for (const int depth : {65, 3000})
      expect_user_error([&] { nest(counting({3}), depth, false); },
                        "[while_loop] loops and branches inside each other: at most 64 deep");
    expect_equal<float>(nest(counting({3}), 2, false), {1, 2, 3});  // nothing stays of it
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
  expect_user_error(
      [&] { loop(small, [](const Tensors& s) { return Tensors{s[0].astype(DType::Int32)}; }, {x}); },
      "[while_loop] state 0 begins as float32 (3,) and becomes int32 (3,)");
  expect_user_error(
      [&] { loop(small, [](const Tensors& s) { return Tensors{concat({s[0], s[0]})}; }, {x}); },
      "[while_loop] state 0 begins as float32 (3,) and becomes float32 (6,), the condition is bool (3,): "
      "they do not broadcast");
  in_every_mode([&] {
    Tensor leaked;
    auto leaking = [&](const Tensors& s) {
      leaked = s[0] + 1.0;
      return Tensors{leaked};
    };
    const Tensor fine = loop(small, leaking, {x})[0];
    EXPECT_THROW(leaked.eval(), UserError);
    EXPECT_THROW(loop(small, [](const Tensors& s) { return Tensors{s[0] + s[0](0).item<float>()}; }, {x}),
                 UserError);
    expect_equal<float>(loop([](const Tensors& s) { return s[0] < 3.0; },
                             [](const Tensors& s) { return Tensors{s[0] + 2.0}; }, {x})[0],
                        {4, 3, 4});
  });
}

}  // namespace
}  // namespace kiln
