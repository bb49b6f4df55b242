// Running values, in every mode and form: short and long axes, rows and columns, fused and alone.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <cmath>
#include <functional>
#include <numeric>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_near;
using testing::expect_user_error;
using testing::floats;
using testing::in_every_mode;
using testing::kInf;
using testing::kNan;

/// Small whole numbers, so that every order of addition is exact.
Tensor whole(const Shape& shape, DType dtype = DType::Float32) {
  std::vector<std::int32_t> v(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<std::int32_t>(i * 7919 % 11) - (is_unsigned_int(dtype) ? 0 : 5);
  return Tensor::from(v, shape).astype(dtype).eval();
}

/// A loop along an axis of row-major values.
template <class T>
std::vector<T> looped(std::vector<T> v, const Shape& shape, int axis, T start, bool exclusive,
                      const std::function<T(T, T)>& f, bool reverse = false) {
  std::int64_t inner = 1, outer = 1;
  for (int a = 0; a < shape.rank(); ++a) (a < axis ? outer : inner) *= a == axis ? 1 : shape[a];
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      T total = start;
      for (std::int64_t k = 0; k < shape[axis]; ++k) {
        const std::int64_t at = reverse ? shape[axis] - 1 - k : k;
        T& x = v[static_cast<std::size_t>((o * shape[axis] + at) * inner + i)];
        const T next = f(total, x);
        x = exclusive ? total : next;
        total = next;
      }
    }
  return v;
}

TEST(Scan, SmallExamples) {
  in_every_mode([] {
    const Tensor x = floats({2, 3}, {3, 1, 2, 0, 5, 4});
    expect_equal<float>(cumsum(x, 1), {2, 3}, {3, 4, 6, 0, 5, 9});
    expect_equal<float>(cumsum(x, 0), {2, 3}, {3, 1, 2, 3, 6, 6});
    expect_equal<float>(cumsum(x), {6}, {3, 4, 6, 6, 11, 15});
    expect_equal<float>(cumsum(x, -1, true), {2, 3}, {0, 3, 4, 0, 0, 5});
    expect_equal<float>(cumsum(x, 1, false, true), {2, 3}, {6, 3, 2, 9, 9, 4});
    expect_equal<float>(cumsum(x, 1, true, true), {2, 3}, {3, 2, 0, 9, 4, 0});
    expect_equal<float>(cumsum(x, 0, false, true), {2, 3}, {3, 6, 6, 0, 5, 4});
    expect_equal<float>(cumsum(x, std::nullopt, true, true), {6}, {12, 11, 9, 9, 4, 0});
    expect_equal<float>(cumprod(x + 1.0, 1, false, true), {2, 3}, {24, 6, 3, 30, 30, 5});
    expect_equal<float>(cummax(x, 1, false, true), {2, 3}, {3, 2, 2, 5, 5, 4});
    expect_equal<float>(cummin(x, 1, true, true), {2, 3}, {1, 2, kInf, 4, 4, kInf});
    expect_equal<float>(cummax(floats({1, kNan, 3}), 0, false, true), {kNan, kNan, 3});
    expect_equal<float>(cumprod(x + 1.0, 1), {2, 3}, {4, 8, 24, 1, 6, 30});
    expect_equal<float>(cummax(x, 1), {2, 3}, {3, 3, 3, 0, 5, 5});
    expect_equal<float>(cummin(x, 1, true), {2, 3}, {kInf, 3, 1, kInf, 0, 0});
    expect_equal<float>(cummax(floats({1, kNan, 3}), 0), {1, kNan, kNan});
    expect_equal<std::int64_t>(cumsum(Tensor({true, false, true})), {1, 1, 2});
    expect_equal<bool>(cummax(Tensor({false, true, false})), {false, true, true});
    expect_equal<std::int32_t>(cummax(Tensor({-3, -4}), 0, true), {-2147483647 - 1, -3});
    expect_equal<std::uint64_t>(cumsum(Tensor::from(std::vector<std::uint8_t>{200, 100})), {200, 300});
    expect_equal<std::int64_t>(cumprod(Tensor({3, -4})), {3, -12});
  });
}

TEST(Scan, EmptyAndSingle) {
  in_every_mode([] {
    EXPECT_EQ(cumsum(zeros({0, 3}), 0).eval().shape().str(), "(0, 3)");
    EXPECT_EQ(cumsum(zeros({3, 0}), 0).eval().shape().str(), "(3, 0)");
    EXPECT_EQ(cumsum(zeros({0})).eval().shape().str(), "(0,)");
    expect_equal<float>(cumsum(floats({2, 1}, {4, 5}), 1), {2, 1}, {4, 5});
    expect_equal<float>(cumsum(floats({2, 1}, {4, 5}), 1, true), {2, 1}, {0, 0});
    expect_equal<float>(cumsum(Tensor(3.0f)), {3});
    expect_equal<float>(cummax(floats({1}), 0, true), {-kInf});
    EXPECT_EQ(cumsum(zeros({0, 3}), 0, false, true).eval().shape().str(), "(0, 3)");
    EXPECT_EQ(cumsum(zeros({3, 0}), 0, true, true).eval().shape().str(), "(3, 0)");
    expect_equal<float>(cumsum(floats({2, 1}, {4, 5}), 1, false, true), {2, 1}, {4, 5});
    expect_equal<float>(cumprod(floats({2, 1}, {4, 5}), 1, true, true), {2, 1}, {1, 1});
    expect_equal<float>(cumsum(Tensor(3.0f), std::nullopt, false, true), {3});
  });
  expect_user_error([] { cumsum(zeros({2, 3}), 2); }, "[cumsum] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([] { cummax(Tensor()); }, "[cummax] an operand is an empty Tensor");
}

TEST(Scan, EveryShapeAxisAndOpEqualsALoop) {
  const Shape shapes[] = {{7},         {100},    {3, 5},     {40, 33},   {33, 40},      {5, 3, 17},
                          {2, 100, 3}, {200000}, {3, 70001}, {70001, 3}, {2, 40000, 5}, {1000, 130}};
  in_every_mode([&] {
    for (const Shape& shape : shapes)
      for (int axis = 0; axis < shape.rank(); ++axis)
        for (const auto& [exclusive, reverse] :
             {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
          SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis) + (exclusive ? " exclusive" : "") +
                       (reverse ? " reverse" : ""));
          const Tensor x = whole(shape), signs = where(x >= 0, 1.0, -1.0);
          const std::vector<float> v = x.to_vector<float>();
          const auto expect = [&](const Tensor& have, const std::vector<float>& from, float start,
                                  const std::function<float(float, float)>& f) {
            ASSERT_EQ(have.to_vector<float>(),
                      looped<float>(from, shape, axis, start, exclusive, f, reverse));
          };
          expect(cumsum(x, axis, exclusive, reverse), v, 0, [](float a, float b) { return a + b; });
          expect(cummin(x, axis, exclusive, reverse), v, kInf,
                 [](float a, float b) { return std::min(a, b); });
          if (exclusive || !reverse) continue;
          expect(cumprod(signs, axis, exclusive, reverse), signs.to_vector<float>(), 1,
                 [](float a, float b) { return a * b; });
          expect(cummax(x, axis, exclusive, reverse), v, -kInf,
                 [](float a, float b) { return std::max(a, b); });
        }
  });
}

TEST(Scan, EveryDtype) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      SCOPED_TRACE(name(type));
      for (const Shape& shape : {Shape{40}, Shape{3, 30}, Shape{70000}}) {
        if (shape.numel() > 1000 && is_half(type)) continue;  // sums beyond what they hold
        const Tensor x = is_bool(type) ? whole(shape) > 0.0 : whole(shape, type);
        const std::vector<double> v = x.astype(DType::Float64).to_vector<double>();
        const int axis = shape.rank() - 1;
        ASSERT_EQ(cumsum(x, axis).astype(DType::Float64).to_vector<double>(),
                  looped<double>(v, shape, axis, 0, false, [](double a, double b) { return a + b; }));
        ASSERT_EQ(
            cummax(x, axis).astype(DType::Float64).to_vector<double>(),
            looped<double>(v, shape, axis, -kInf, false, [](double a, double b) { return std::max(a, b); }));
        ASSERT_EQ(cumsum(x, axis, false, true).astype(DType::Float64).to_vector<double>(),
                  looped<double>(v, shape, axis, 0, false, [](double a, double b) { return a + b; }, true));
      }
    }
  });
}

TEST(Scan, FusesWithWhatSurroundsIt) {
  using test::data;
  using test::kernels;
  const Tensor x = data({64, 100});
  EXPECT_EQ(kernels({cumsum(exp(x) * 2.0, 1) + 1.0}), 1u);
  EXPECT_EQ(kernels({cumsum(exp(x) * 2.0, 0) + 1.0}), 1u);
  EXPECT_EQ(kernels({cumsum(x, 1), cumprod(x, 1)}), 1u);
  EXPECT_EQ(kernels({cumsum(nn::softmax(x), 1)}), 1u);
  EXPECT_EQ(kernels({sum(cumsum(x, 1) * x, 1)}), 1u);
  EXPECT_EQ(kernels({nn::softmax(cumsum(cumsum(x, 1), 1))}), 1u);
  const Tensor y = data({300000});
  EXPECT_EQ(kernels({cumsum(y * 0.5, 0) * y}), 1u);
  EXPECT_EQ(kernels({take(cumsum(y, 0), Tensor({0, -1}), 0)}), 2u);
  EXPECT_EQ(kernels({exp(logcumsumexp(x * 2.0, 1) - 1.0)}), 1u);
  EXPECT_EQ(kernels({exp(logcumsumexp(x * 2.0, 0) - 1.0)}), 1u);
  EXPECT_EQ(kernels({logcumsumexp(y * 0.5, 0) * y}), 1u);
  EXPECT_EQ(kernels({logcumsumexp(y * 0.5, 0, false, true) * y}), 1u);
  EXPECT_EQ(kernels({sum(logcumsumexp(x, 1, true) + cumsum(x, 1), 1)}), 1u);
}

TEST(Scan, AReversedOneFusesLikeAForwardOne) {
  using test::data;
  using test::kernels;
  for (const Shape& shape :
       {Shape{64, 100}, Shape{600, 200}, Shape{2, 600, 200}, Shape{300000}, Shape{3, 100000}})
    for (int axis = 0; axis < shape.rank(); ++axis) {
      SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
      const Tensor x = data(shape);
      // A GPU cuts long scans beside few others: the totals of chunks, what comes before them, and the scans.
      const std::uint64_t forward = kernels({cumsum(x * 2, axis) * 3 + 1});
      EXPECT_TRUE(forward == 1 || (forward == 3 && config().device != "cpu")) << forward;
      EXPECT_EQ(kernels({cumsum(x * 2, axis, false, true) * 3 + 1}), forward);
      EXPECT_EQ(kernels({cummax(exp(x), axis, true, true) * x}), forward);
    }
  const Tensor x = data({64, 100});
  EXPECT_EQ(kernels({cumsum(x, 1, false, true), cumprod(x, 1, true, true)}), 1u);
  EXPECT_EQ(kernels({nn::softmax(cumsum(cumsum(x, 1, false, true), 1, false, true))}), 1u);
  EXPECT_EQ(kernels({sum(cumsum(x, 1, false, true) * x, 1)}), 1u);
  EXPECT_EQ(kernels({cumsum(arange(1000) * arange(1000), 0, false, true) - arange(1000)}), 1u);
  EXPECT_EQ(kernels({cumsum(random::uniform(random::Key(1), {1000}), 0, false, true) * 2.0}), 1u);
}

/// Against the same with flips written out.
TEST(Scan, AReversedOneBesideWhatElseAKernelHas) {
  in_every_mode([] {
    for (const Shape& shape :
         {Shape{5, 40}, Shape{7, 33}, Shape{3, 70000}, Shape{1, 70000}, Shape{600, 50}, Shape{2, 3, 40}})
      for (int axis = 0; axis < shape.rank(); ++axis) {
        SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
        const Tensor x = whole(shape), index = counting(shape) % 7.0;
        const auto from_end = [&](const Tensor& t, bool exclusive = false) {
          return flip(cumsum(flip(t, axis), axis, exclusive), axis);
        };
        const Tensor want = from_end(x).eval(), have = cumsum(x, axis, false, true);
        EXPECT_EQ(have.to_vector<float>(), want.to_vector<float>());
        const auto expect_same = [](const Tensor& a, const Tensor& b) {
          ASSERT_EQ(a.to_vector<float>(), b.to_vector<float>());
        };
        const auto suffix = [&](bool exclusive = false) { return cumsum(x, axis, exclusive, true); };
        expect_same(max(suffix() * 2, axis), max(want * 2, axis));
        expect_same(sum(suffix() % 3.0, axis), sum(want % 3.0, axis));
        expect_same(suffix() - max(suffix(), axis, true), want - max(want, axis, true));
        expect_same(cumsum(x - max(x, axis, true), axis, false, true), from_end(x - max(x, axis, true)));
        expect_same(cummax(suffix(), axis, true, true), flip(cummax(flip(want, axis), axis, true), axis));
        expect_same(cumsum(index, axis, true, true) * 2 + index, from_end(index, true) * 2 + index);
        expect_same((suffix() + 1).reshape({-1}) * 2, (want + 1).reshape({-1}) * 2);
        expect_same(flip(suffix(), axis) + x, flip(want, axis) + x);
        expect_same(cumsum(flip(x, axis), axis, false, true) + 1, from_end(flip(x, axis)) + 1);
        const Tensor place = argmax(suffix() % 5.0, axis), first = argmax(want % 5.0, axis);
        EXPECT_EQ(place.to_vector<std::int64_t>(), first.to_vector<std::int64_t>());
        // the first of equals, beside a scan from the end
        const Tensor least = argmin(x, axis), c = suffix();
        eval({least, c});
        EXPECT_EQ(least.to_vector<std::int64_t>(), argmin(x, axis).to_vector<std::int64_t>());
        expect_same(c, want);
      }
  });
}

TEST(Scan, BothDirectionsInOneExpression) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{5, 40}, Shape{200, 33}, Shape{2, 70000}})
      for (int axis = 0; axis < 2; ++axis) {
        SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
        const Tensor x = whole(shape);
        const std::vector<float> v = x.to_vector<float>();
        const std::function<float(float, float)> add = [](float a, float b) { return a + b; };
        const std::vector<float> up = looped<float>(v, shape, axis, 0, false, add),
                                 down = looped<float>(v, shape, axis, 0, true, add, true);
        const std::vector<float> all = (cumsum(x, axis) + cumsum(x, axis, true, true)).to_vector<float>();
        for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(all[i], up[i] + down[i]) << i;
        ASSERT_EQ(
            cumsum(cumsum(x, axis) % 4.0, axis, false, true).to_vector<float>(),
            looped<float>((cumsum(x, axis) % 4.0).to_vector<float>(), shape, axis, 0, false, add, true));
        const Tensor first = cumsum(x, axis), second = cumsum(x, axis, true, true);
        eval({first, second});
        ASSERT_EQ(first.to_vector<float>(), up);
        ASSERT_EQ(second.to_vector<float>(), down);
      }
  });
  const Tensor x = test::data({64, 100});
  EXPECT_EQ(test::kernels({cumsum(x, 1) * cumsum(x, 1, false, true)}), 2u);
  EXPECT_EQ(test::kernels({cumsum(x, 1), cumsum(x, 1, false, true)}), 2u);
}

TEST(Scan, RandomDrawsFromTheEndAreThoseFromTheStart) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{1000}, Shape{3, 333}, Shape{70001}}) {
      const int axis = shape.rank() - 1;
      const auto draw = [&] { return floor(random::uniform(random::Key(5), shape) * 8.0); };
      const Tensor x = draw().eval();
      EXPECT_EQ((cumsum(draw(), axis, false, true) + 1).to_vector<float>(),
                (cumsum(x, axis, false, true) + 1).to_vector<float>());
      const auto wide = [&] { return random::bits(random::Key(5), shape, DType::UInt64); };
      const Tensor w = wide().eval();
      EXPECT_EQ(cummax(wide(), axis, false, true).to_vector<std::uint64_t>(),
                cummax(w, axis, false, true).to_vector<std::uint64_t>());
    }
  });
}

TEST(Scan, BesideReductionsAndOtherScans) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{5, 40}, Shape{3, 70000}, Shape{1, 70000}, Shape{600, 50}}) {
      SCOPED_TRACE(shape.str());
      const Tensor x = whole(shape);
      const std::vector<float> v = x.to_vector<float>();
      const std::function<float(float, float)> add = [](float a, float b) { return a + b; };
      const std::vector<float> once = looped<float>(v, shape, 1, 0, false, add);
      const Tensor centred = cumsum(x - max(x, 1, true), 1);
      std::vector<float> shifted = v;
      for (float& s : shifted) s -= 5;
      ASSERT_EQ(centred.to_vector<float>(), looped<float>(shifted, shape, 1, 0, false, add));
      const Tensor c = cumsum(x, 1), d = cummax(c, 1), total = max(c, 1), spread = c - total.reshape({-1, 1});
      eval({d, total, spread, c});
      const std::vector<float> best =
          looped<float>(once, shape, 1, -kInf, false, [](float a, float b) { return std::max(a, b); });
      ASSERT_EQ(d.to_vector<float>(), best);
      std::vector<float> want = once, greatest;
      const auto n = static_cast<std::size_t>(shape[1]);
      for (std::size_t i = 0; i < want.size(); ++i) want[i] -= best[i / n * n + n - 1];
      ASSERT_EQ(spread.to_vector<float>(), want);
    }
  });
}

std::vector<double> log_sums(const std::vector<double>& x, const Shape& shape, int axis) {
  return looped<double>(x, shape, axis, -HUGE_VAL, false, [](double a, double b) {
    const double m = std::max(a, b);
    return std::isinf(m) ? (a != a || b != b ? a + b : m) : m + std::log(std::exp(a - m) + std::exp(b - m));
  });
}

TEST(LogCumSumExp, IsStable) {
  in_every_mode([] {
    expect_near(logcumsumexp(floats({0, 0, 0})), {0, 0.6931472, 1.0986123});
    expect_near(logcumsumexp(floats({1000, 1000, -1000})), {1000, 1000.6931472, 1000.6931472});
    expect_near(logcumsumexp(floats({-1000, -1000, 1000})), {-1000, -999.3068528, 1000});
    expect_near(logcumsumexp(floats({-kInf, -kInf, -2000, 3})), {-kInf, -kInf, -2000, 3});
    expect_near(logcumsumexp(floats({1, kInf, 0, -kInf})), {1, kInf, kInf, kInf});
    expect_near(logcumsumexp(floats({1, kNan, 0})), {1, kNan, kNan});
    expect_near(logcumsumexp(floats({0, 0, 0}), 0, true), {-kInf, 0, 0.6931472});
    expect_near(logcumsumexp(floats({0, 0, 0}), 0, false, true), {1.0986123, 0.6931472, 0});
    EXPECT_EQ(logcumsumexp(zeros({0, 2}), 0).eval().shape().str(), "(0, 2)");
    expect_near(logcumsumexp(Tensor(2.5f)), Shape{1}, {2.5});
  });
}

TEST(LogCumSumExp, LongAxesGoInChunks) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{4096}, Shape{5000}, Shape{2, 9001}, Shape{4500, 3}}) {
      SCOPED_TRACE(shape.str());
      const int axis = shape[0] > 100 ? 0 : 1;
      Tensor x = (counting(shape) * 0.37) % 9.0 - 4.0;
      x = where(counting(shape) < 7, -kInf, x);
      const std::vector<double> want = log_sums(x.astype(DType::Float64).to_vector<double>(), shape, axis);
      expect_near(logcumsumexp(x, axis), shape, want, 1e-5);
      const Tensor back = logcumsumexp(flip(x, axis), axis, false, true);
      expect_near(flip(back, axis), shape, want, 1e-5);
    }
    std::vector<float> v(6000, 1.0f);
    v[2000] = kInf;
    v[5000] = kNan;
    const std::vector<float> out = logcumsumexp(floats(v), 0, true).to_vector<float>();
    EXPECT_EQ(out[0], -kInf);
    EXPECT_EQ(out[1], 1.0f);
    EXPECT_TRUE(std::isfinite(out[2000]));
    EXPECT_EQ(out[2001], kInf);
    EXPECT_EQ(out[5000], kInf);
    EXPECT_TRUE(std::isnan(out[5001]));
  });
}

TEST(LogCumSumExp, BesideAReductionThatKeepsSeveralValues) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{2000, 40}, Shape{500, 300}, Shape{60, 900}})
      for (int axis = 0; axis < 2; ++axis) {
        SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
        const Tensor x = (counting(shape) * 0.37) % 9.0 - 4.0;
        const std::vector<double> sums = log_sums(x.astype(DType::Float64).to_vector<double>(), shape, axis);
        const Tensor all = logsumexp(x, axis), scanned = logcumsumexp(x, axis), added = cumsum(x, axis);
        eval(all, scanned, added);
        expect_near(scanned, shape, sums, 1e-5);
        const Tensor last = axis == 0 ? scanned(-1) : scanned(kiln::slice::all(), -1);
        expect_near(all, Shape{shape[1 - axis]}, last.astype(DType::Float64).to_vector<double>(), 1e-5);
      }
  });
}

/// Among others: rows of a team's length on a GPU, long columns, chunks, and each with what comes before and
/// after it.
TEST(LogCumSumExp, WithItsSurroundings) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{70, 6}, Shape{9, 300}, Shape{1300, 33}, Shape{2, 70001}}) {
      for (int axis = 0; axis < 2; ++axis) {
        SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
        const Tensor x = (counting(shape) * 0.37) % 9.0 - 4.0;
        std::vector<double> want =
            log_sums((x * 2.0).astype(DType::Float64).to_vector<double>(), shape, axis);
        for (double& w : want) w = 3 * w + 1;
        expect_near(logcumsumexp(x * 2.0, axis) * 3.0 + 1.0, shape, want, 1e-5);
        expect_near(logcumsumexp(x * 2.0, axis).astype(DType::Float16).astype(DType::Float32) * 3.0 + 1.0,
                    shape, want, 2e-3);
      }
    }
  });
}

/// Relative to the greatest value the sum keeps its digits, however many values there are.
TEST(LogCumSumExp, ManyEqualValuesStayAccurate) {
  in_every_mode([] {
    const std::int64_t n = 300000;
    const std::vector<float> out = logcumsumexp(full({n}, 100.0), 0).to_vector<float>();
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{999}, n / 2, n - 1}) {
      const double want = 100 + std::log(static_cast<double>(i + 1));
      EXPECT_NEAR(out[static_cast<std::size_t>(i)], want, 2e-7 * want) << i;
    }
  });
}

TEST(LogCumSumExp, AnyAxisAndDtype) {
  in_every_mode([] {
    for (const Shape& shape : {Shape{3, 70}, Shape{40, 3, 5}, Shape{2000}}) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Tensor x = (counting(shape) * 0.37) % 9.0 - 4.0;
        const std::vector<double> want = log_sums(x.astype(DType::Float64).to_vector<double>(), shape, axis);
        expect_near(logcumsumexp(x, axis), shape, want, 1e-5);
        expect_near(logcumsumexp(x.astype(DType::Float64), axis - shape.rank()), shape, want, 1e-5);
      }
    }
    const Tensor half = logcumsumexp(ones({3}, DType::Float16), 0);
    EXPECT_EQ(half.dtype(), DType::Float16);
    expect_near(half, {1, 1.6931472, 2.0986123}, 1e-3);
    EXPECT_EQ(logcumsumexp(Tensor({1, 2})).dtype(), DType::Float32);
  });
}

TEST(Scan, AsAnIndexInTheSameKernel) {
  in_every_mode([] {
    const Tensor keep = counting({40}) % 3.0 == 0.0;
    const Tensor place = cumsum(keep, 0) - 1;
    expect_equal<float>(where(keep, take(counting({14}) * 2.0, place, 0), -1)(range(0, 7)),
                        {0, -1, -1, 2, -1, -1, 4});
  });
}

TEST(Scan, ThreadsAgree) {
  const Tensor x = test::data({1 << 20});
  std::vector<std::vector<float>> values;
  for (const int threads : {1, 2, 5}) {
    const Config before = config();
    Config options = before;
    options.num_threads = threads;
    configure(options);
    values.push_back(cumsum(x).to_vector<float>());
    configure(before);
  }
  EXPECT_EQ(values[1], values[2]);
  double total = 0;
  const std::vector<float> v = x.to_vector<float>();
  for (std::size_t i = 0; i < v.size(); ++i) {
    total += v[i];
    ASSERT_NEAR(values[0][i], total, 1e-2) << i;
    ASSERT_NEAR(values[1][i], total, 1e-2) << i;
  }
}

}  // namespace
}  // namespace kiln
