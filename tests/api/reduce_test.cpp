#include "api/expect.h"
#include "modes.h"

namespace kiln {
namespace {

using namespace testing;

TEST(Reduce, OverAnyAxes) {
  const Tensor x = counting({2, 3, 2});
  expect_equal<float>(sum(x), Shape{}, {66});
  expect_equal<float>(sum(x, 0), {3, 2}, {6, 8, 10, 12, 14, 16});
  expect_equal<float>(sum(x, {0, -1}), {14, 22, 30});
  expect_equal<float>(sum(x, 1, true), {2, 1, 2}, {6, 9, 24, 27});
  expect_equal<float>(max(x, {1, 2}), {5, 11});
  expect_equal<float>(min(x, {1, 2}, true), {2, 1, 1}, {0, 6});
  expect_equal<float>(prod(floats({2, 3, 4})), Shape{}, {24});
  EXPECT_EQ(sum(x, {}).node(), x.node());
  expect_equal<float>(sum(Tensor(3.f)), Shape{}, {3});
  expect_user_error([&] { sum(x, 3); }, "[sum] axis 3 is out of range for float32 (2, 3, 2)");
  expect_user_error([&] { sum(x, {1, -2}); }, "[sum] axis -2 is given twice for float32 (2, 3, 2)");
}

TEST(Reduce, IntegersWiden) {
  expect_equal<std::int64_t>(sum(full({3}, 100, DType::Int8)), Shape{}, {300});
  expect_equal<std::uint64_t>(sum(full({3}, 200, DType::UInt8)), Shape{}, {600});
  expect_equal<std::int64_t>(sum(ones({3}, DType::Bool)), Shape{}, {3});
  expect_equal<std::int64_t>(prod(full({10}, 10, DType::Int32)), Shape{}, {10000000000});
  expect_equal<std::int64_t>(sum(zeros({2}, DType::Int8), {}), {0, 0});
  expect_equal<std::int64_t>(count_nonzero(floats({0, 1, kNan, -0.f})), Shape{}, {2});
  EXPECT_EQ(sum(ones({3}, DType::Float16)).dtype(), DType::Float16);
}

TEST(Reduce, NanAndLogic) {
  expect_equal<float>(max(floats({1, kNan, 3})), Shape{}, {kNan});
  expect_equal<float>(min(floats({kNan, 3})), Shape{}, {kNan});
  expect_equal<float>(max(floats({-kInf, -5})), Shape{}, {-5});
  expect_equal<bool>(any(floats({2, 2}, {0, 0, 0, kNan}), 1), {false, true});
  expect_equal<bool>(all(floats({2, 2}, {1, 0, 2, kNan}), 1), {false, true});
  expect_equal<bool>(max(Tensor({true, false})), Shape{}, {true});
}

TEST(Reduce, Positions) {
  const Tensor x = floats({2, 3}, {1, 5, 5, 7, 0, 7});
  expect_equal<std::int64_t>(argmax(x, 1), {1, 0});
  expect_equal<std::int64_t>(argmin(x, 0), {0, 1, 0});
  expect_equal<std::int64_t>(argmax(x), Shape{}, {3});
  expect_equal<std::int64_t>(argmin(x, std::nullopt, true), {1, 1}, {4});
  expect_equal<std::int64_t>(argmax(floats({1, kNan, kNan, kInf})), Shape{}, {1});
  expect_equal<std::int64_t>(argmin(floats({1, kNan, -kInf})), Shape{}, {1});
  expect_equal<std::int64_t>(argmax(Tensor({false, true})), Shape{}, {1});
}

/// Rows, columns, a stack's middle axis, and all elements of them, of lengths that one thread, a team and
/// several blocks take.
TEST(Reduce, PositionsOfTheWorstValuesAndOfTies) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t n : {1, 5, 64, 1000, 3000, 70000}) {
    const Tensor worst = full({3, n}, -kInf), place = arange(n), middle = full({}, n / 2);
    const std::vector<std::int64_t> first(3, 0), half(3, n / 2);
    for (const bool columns : {false, true}) {
      const auto laid = [&](const Tensor& x) { return columns ? (x.T() + 0).eval() : x; };
      const int axis = columns ? 0 : 1;
      expect_equal<std::int64_t>(argmax(laid(worst), axis), first);
      expect_equal<std::int64_t>(argmin(laid(-worst), axis), first);
      expect_equal<std::int64_t>(argmax(laid(full({3, n}, kLowest)), axis), first);
      expect_equal<std::int64_t>(argmax(laid(where(place < middle, worst, 2.0)), axis), half);
      expect_equal<std::int64_t>(argmax(laid(where(place < middle, worst, kNan)), axis), half);
      expect_equal<std::int64_t>(
          argmin(laid(where(place < middle, 0.0, where(place == middle, -kInf, worst))), axis), half);
      expect_equal<std::int64_t>(
          argmax(laid(where(place < middle, worst, 2.0)).astype(DType::BFloat16), axis), half);
    }
    expect_equal<std::int64_t>(argmax(worst), Shape{}, {0});
    expect_equal<std::int64_t>(argmax(where(place < middle, worst, -1.0)), Shape{}, {n / 2});
    const Tensor stack = where(place.reshape({n, 1}) < middle, zeros({2, n, 4}), 1.0).eval();
    expect_equal<std::int64_t>(argmax(stack, 1), {2, 4}, std::vector<std::int64_t>(8, n / 2));
    expect_equal<std::int64_t>(argmax(stack), Shape{}, {n / 2 * 4});
  }
}

TEST(Reduce, EmptyAxes) {
  expect_equal<float>(sum(zeros({0})), Shape{}, {0});
  expect_equal<float>(prod(zeros({2, 0}), 1), {1, 1});
  expect_equal<bool>(any(zeros({0})), Shape{}, {false});
  expect_equal<bool>(all(zeros({0})), Shape{}, {true});
  expect_equal<float>(mean(zeros({0})), Shape{}, {kNan});
  expect_equal<float>(logsumexp(zeros({0})), Shape{}, {-kInf});
  EXPECT_EQ(max(zeros({0, 3}), 1).shape().str(), "(0,)");
  expect_user_error([] { max(zeros({0, 3}), 0); }, "[max] no elements to choose from in float32 (0, 3)");
  expect_user_error([] { argmax(zeros({0})); }, "[argmax] no elements to choose from in float32 (0,)");
}

TEST(Reduce, Moments) {
  const Tensor x = floats({2, 2}, {1, 3, 2, 6});
  expect_near(mean(x, 1), {2, 4});
  expect_near(var(x, 1), {1, 4});
  expect_near(var(x, 1, false, 1), {2, 8});
  expect_near(std(x, 1, true), {2, 1}, {1, 2});
  expect_near(mean(Tensor({1, 2})), Shape{}, {1.5});
  EXPECT_EQ(mean(Tensor({1, 2})).dtype(), DType::Float32);
  EXPECT_EQ(mean(ones({3}, DType::BFloat16)).dtype(), DType::BFloat16);
  expect_near(mean(full({70000}, 2, DType::Float16)), Shape{}, {2});  // the sum alone is beyond float16
  expect_near(var(floats({5}), all_axes, false, 1), Shape{}, {NAN});
}

/// The same value many times: each addition that rounds does so the same way.
TEST(Reduce, LongSumsStayAccurate) {
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  const Case cases[] = {{{100000, 3}, {0}},     {{100000, 300}, {0}}, {{3000, 200, 9}, {0}},
                        {{300000}, {0}},        {{6, 300000}, {1}},   {{9, 400, 200, 3}, {1, 2}},
                        {{20000, 3, 5}, {0, 1}}};
  for (const auto& [shape, axes] : cases) {
    const Tensor x = (zeros(shape) + 0.1f).eval();
    double count = 1;
    for (const int axis : axes) count *= static_cast<double>(shape[static_cast<std::size_t>(axis)]);
    const double value = 0.1f, want = value * count;
    for (const double have :
         sum(x, axes).reshape({-1})(range(0, 3)).astype(DType::Float64).to_vector<double>())
      EXPECT_NEAR(have, want, 1e-5 * want) << "sum over " << count << " of " << shape.str();
    const Tensor y = where((arange(shape.numel()) % 4).reshape(shape) == 0, 0.25f, 3.0f).eval();
    const Tensor total = sum(y.astype(DType::Float64), axes) / count;
    const Tensor exact =
        (sum(square(y.astype(DType::Float64)), axes) / count - square(total)).reshape({-1})(range(0, 1));
    const double spread = exact.to_vector<double>().front();
    const Tensor have = var(y, axes).reshape({-1})(range(0, 1)).astype(DType::Float64);
    EXPECT_NEAR(have.to_vector<double>().front(), spread, 1e-5 * spread)
        << "variance over " << count << " of " << shape.str();
  }
}

TEST(Reduce, Logsumexp) {
  expect_near(logsumexp(floats({1000, 1000})), Shape{}, {1000.6931471805599});
  expect_near(logsumexp(floats({2, 2}, {-kInf, -kInf, 0, -kInf}), 1), {-HUGE_VAL, 0});
  expect_near(logsumexp(floats({kInf, 0})), Shape{}, {HUGE_VAL});
  expect_near(logsumexp(floats({kNan, 0})), Shape{}, {NAN});
  expect_near(logsumexp(Tensor({1, 1, 1, 1})), Shape{}, {2.3862943611});
  EXPECT_EQ(logsumexp(ones({3}, DType::Float16)).dtype(), DType::Float16);
}

/// Rows, columns, chunks of either, and lanes that share a row: each against what it is made of, in Float64.
TEST(Reduce, LogsumexpOfEveryForm) {
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  const Case cases[] = {{{7, 5}, {1}},      {{7, 500}, {1}},   {{500, 7}, {0}},
                        {{1000, 3}, {1}},   {{300, 600}, {0}}, {{100000}, {0}},
                        {{2, 70000}, {1}},  {{40000, 3}, {0}}, {{3, 50, 40}, {0, 2}},
                        {{4, 300, 5}, {1}}, {{6000, 40}, {0}}, {{9, 40, 20, 3}, {1, 2}}};
  for (const auto& [shape, axes] : cases) {
    const std::int64_t n = shape.numel();
    // between -30 and 30, some of them -inf
    const Tensor place = arange(n), drawn = (place * 7919 % 6007).astype(DType::Float32) / 100.0 - 30.0;
    const Tensor x = where(place % 11 == 0, -kInf, drawn).reshape(shape).eval();
    const Tensor wide = x.astype(DType::Float64);
    const std::vector<double> want = log(sum(exp(wide), axes)).to_vector<double>();
    for (const bool strict : {false, true})
      for (const Engine& engine : kEngines) {
        const EngineScope scope(engine);
        Config changed = config();
        changed.strict = strict;
        configure(changed);  // until the scope ends
        const std::vector<double> have = logsumexp(x, axes).astype(DType::Float64).to_vector<double>();
        ASSERT_EQ(have.size(), want.size());
        for (std::size_t i = 0; i < have.size(); ++i)
          ASSERT_NEAR(have[i], want[i], 4e-6) << shape.str() << ", " << engine.name << " strict " << strict;
      }
    const std::vector<double> halves =
        logsumexp(x.astype(DType::Float16), axes).astype(DType::Float64).to_vector<double>();
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(halves[i], want[i], 0.04) << shape.str();
    const std::vector<double> same = logsumexp(wide, axes).to_vector<double>();
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(same[i], want[i], 1e-13) << shape.str();
  }
}

/// Equal values: each addition that rounds does so the same way.
TEST(Reduce, LongLogsumexpStaysAccurate) {
  for (const auto& [shape, axis] :
       {std::pair{Shape{400000}, 0}, {Shape{2, 300000}, 1}, {Shape{200000, 70}, 0}}) {
    const Tensor x = (zeros(shape) + 0.1f).eval();
    const double want = 0.1f + std::log(static_cast<double>(shape[axis]));
    const auto have = logsumexp(x, axis).reshape({-1}).astype(DType::Float64).to_vector<double>();
    for (const double v : have) ASSERT_NEAR(v, want, 2e-6) << shape.str();
  }
}

/// Around the ends of a block and of the parts in which its exponentials are added up: special values in one
/// part count for the whole.
TEST(Reduce, LogsumexpOfBlocksInParts) {
  constexpr std::int64_t kRows = 6;
  for (const std::int64_t length : {511, 513, 1024, 1025, 2049, 4095, 4096, 4097, 9001}) {
    std::vector<float> x;
    for (std::int64_t i = 0; i < kRows * length; ++i) {
      const std::int64_t row = i / length, at = i % length;
      const float number = static_cast<float>(i * 7919 % 601) / 20 - 15;
      const bool last = at == length - 1;
      x.push_back(row == 1                           ? -kInf
                  : row == 2 && at < length * 2 / 3  ? -kInf
                  : row == 3 && last                 ? kInf
                  : row == 4 && at == length * 4 / 5 ? kNan
                  : row == 5 && last                 ? 80.0f
                                                     : number);
    }
    const Tensor values = Tensor::from(x).reshape({kRows, length}).eval();
    const std::vector<float> have = logsumexp(values, 1).to_vector<float>();
    for (std::int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (std::int64_t i = row * length; i < (row + 1) * length; ++i)
        sum += std::exp(static_cast<double>(x[static_cast<std::size_t>(i)]));
      const double want = std::log(sum), got = have[static_cast<std::size_t>(row)];
      if (std::isfinite(want))
        EXPECT_NEAR(got, want, row == 5 ? 8e-6 : 2e-6) << row << " of " << length;
      else
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << row << " of " << length << ": " << got;
    }
  }
}

/// Of columns that are read by blocks of rows, each of which may have the greatest value so far.
TEST(Reduce, LogsumexpOfColumnsInBlocks) {
  constexpr std::int64_t kRows = 1500, kColumns = 150;
  std::vector<float> x;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const std::int64_t row = i / kColumns, kind = i % kColumns % 8;
    const float number = static_cast<float>(i * 7919 % 601) / 64 - 4, rising = static_cast<float>(row) / 32;
    x.push_back(kind == 1                          ? -kInf
                : kind == 2 && row < kRows * 2 / 3 ? -kInf
                : kind == 3 && row == kRows - 1    ? kInf
                : kind == 4 && row == kRows / 2    ? kNan
                : kind == 5                        ? number + rising
                : kind == 6                        ? number - rising
                : kind == 7                        ? 0
                                                   : number);
  }
  for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
    const Tensor values = Tensor::from(x).reshape({kRows, kColumns}).astype(dtype).eval();
    const std::vector<double> read = values.astype(DType::Float64).to_vector<double>(),
                              have = logsumexp(values, 0).astype(DType::Float64).to_vector<double>();
    const double near = dtype == DType::Float16 ? 1e-3 : dtype == DType::BFloat16 ? 8e-3 : 1e-6;
    for (std::int64_t c = 0; c < kColumns; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < kRows; ++r)
        sum += std::exp(read[static_cast<std::size_t>(r * kColumns + c)]);
      const double want = std::log(sum), got = have[static_cast<std::size_t>(c)];
      if (std::isfinite(want))
        EXPECT_NEAR(got, want, near * std::max(1.0, std::abs(want))) << name(dtype) << c;
      else
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << name(dtype) << c << ": " << got;
    }
  }
}

}  // namespace
}  // namespace kiln
