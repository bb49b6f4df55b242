// Long sums of Float32: what rounding adds up to does not grow with their length.
#include "api/expect.h"
#include "modes.h"

#include <cmath>
#include <random>

namespace kiln {
namespace {

constexpr double kBound = 5e-7;  // relative; NumPy's pairwise sums have 2e-7

class StrictScope {
 public:
  explicit StrictScope(bool strict) : before_(config()) {
    Config c = before_;
    c.strict = strict;
    configure(c);
  }
  ~StrictScope() { configure(before_); }
  StrictScope(const StrictScope&) = delete;

 private:
  Config before_;
};

constexpr double kBoundOfColumns = 1e-6;  // whose sums may be in memory: blocks are twice as long there

/// Every element of `t` is `exact` but for the bound.
void expect_sums(const Tensor& t, double exact, const char* what, double bound = kBound) {
  double worst = 0;
  for (const float v : t.to_vector<float>()) worst = std::max(worst, std::fabs(v / exact - 1));
  EXPECT_LE(worst, bound) << what;
}

/// Sums of `rows` rows of `length` equal numbers, along rows, along columns and of all.
void expect_right(std::int64_t rows, std::int64_t length, float value) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(length) + " of " + std::to_string(value));
  const std::vector<float> memory(static_cast<std::size_t>(rows * length), value);
  const double n = static_cast<double>(length), v = value;
  const Tensor x = Tensor::borrow(memory, {rows, length}, [](const void*) {});
  const Tensor y = Tensor::borrow(memory, {length, rows}, [](const void*) {});
  expect_sums(sum(x), v * n * static_cast<double>(rows), "sum of all");
  expect_sums(sum(x, {1}), v * n, "sums of rows");
  expect_sums(sum(y, {0}), v * n, "sums of columns", kBoundOfColumns);
  expect_sums(mean(y, {0}), v, "means of columns", kBoundOfColumns);
  expect_sums(sum(x * x, {1}), v * v * n, "sums of squares");
  expect_sums(sum(where(x == max(x, {1}, true), x, 0), {1}), v * n, "a sum that depends on another");
  expect_sums(sum(x.reshape({rows, length / 8, 8}), {0, 2}) / static_cast<float>(rows), v * 8,
              "sums over two axes");
}

TEST(LongSum, OfEqualNumbers) {
  testing::in_every_mode([] {
    for (const float value : {0.1f, 1.7f, 3.3333333e-5f}) {
      expect_right(1, 1 << 20, value);
      expect_right(7, 1 << 16, value);
      expect_right(600, 1 << 10, value);
      expect_right(3, 40000, value);
    }
  });
}

TEST(LongSum, InStrictMode) {
  const StrictScope strict(true);
  testing::in_every_mode([] {
    expect_right(1, 1 << 20, 0.1f);
    expect_right(7, 1 << 16, 0.1f);
    expect_right(600, 1 << 10, 1.7f);
  });
}

TEST(LongSum, OfAMillionOfOneNumber) {
  for (const Tier tier : {Tier::Auto, Tier::Vm}) {
    const testing::ModeScope scope(Mode::Lazy, tier);
    EXPECT_NEAR(sum(full({1 << 20}, 0.1f)).item<float>() / (static_cast<double>(0.1f) * (1 << 20)), 1,
                kBound);
    EXPECT_NEAR(sum(full({64 << 20}, 0.1f)).item<float>() / (static_cast<double>(0.1f) * (64 << 20)), 1,
                kBound);
    EXPECT_NEAR(
        sum(full({1 << 14, 1 << 12}, 0.1f), {0})(7).item<float>() / (static_cast<double>(0.1f) * (1 << 14)),
        1, kBoundOfColumns);
  }
}

TEST(LongSum, OfRandomNumbersIsTheRoundedSum) {
  std::mt19937 bits(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values(1 << 20);
  double exact = 0;
  for (float& v : values) exact += v = uniform(bits);
  const Tensor x = Tensor::from(values);
  testing::in_every_mode([&] { EXPECT_NEAR(sum(x).item<float>() / exact, 1, 1.5e-7); });
}

TEST(LongSum, OfHalves) {
  const Tensor h = full({1 << 18}, 0.1, DType::Float16);
  const double exact = static_cast<double>(static_cast<float>(float16(0.1f))) * (1 << 18);
  testing::in_every_mode(
      [&] { EXPECT_NEAR(sum(h.astype(DType::Float32)).item<float>() / exact, 1, kBound); });
}

}  // namespace
}  // namespace kiln
