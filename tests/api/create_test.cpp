#include "api/expect.h"

namespace kiln {
namespace {

using namespace testing;

TEST(Create, Constants) {
  expect_equal<float>(zeros({2}), {0, 0});
  expect_equal<std::int8_t>(ones({2}, DType::Int8), {1, 1});
  expect_equal<std::int64_t>(full({2}, 7), {7, 7});
  expect_equal<float>(full({}, 1.5), Shape{}, {1.5f});
  expect_equal<bool>(full({1}, true), {true});
  expect_equal<std::uint8_t>(full({1}, -1, DType::UInt8), {255});
  expect_equal<float>(ones_like(floats({3, 4})), {1, 1});
  expect_equal<std::int32_t>(full_like(floats({3, 4}), 2, DType::Int32), {2, 2});
}

TEST(Create, Arange) {
  expect_equal<std::int64_t>(arange(4), {0, 1, 2, 3});
  expect_equal<float>(arange(2.5), {0, 1, 2});
  expect_equal<std::int64_t>(arange(5, 0, -2), {5, 3, 1});
  expect_equal<std::int64_t>(arange(3, 3), {});
  expect_near(arange(0.0, 1.0, 0.25), {0, 0.25, 0.5, 0.75});
  expect_equal<std::int32_t>(arange(1, 4, 1, DType::Int32), {1, 2, 3});
  expect_equal<std::uint8_t>(arange(254, 256, 1, DType::UInt8), {254, 255});
  expect_equal<std::int64_t>(arange(0.0, 2.0, 0.5, DType::Int64), {0, 0, 1, 1});
  EXPECT_EQ(arange(INT64_MIN, INT64_MIN + 2).to_vector<std::int64_t>()[1], INT64_MIN + 1);
  expect_user_error([] { arange(0, 5, 0); }, "[arange] a range from 0 to 5 by 0");
  EXPECT_THROW(arange(0.0, HUGE_VAL), UserError);
}

TEST(Create, Linspace) {
  expect_near(linspace(0, 1, 5), {0, 0.25, 0.5, 0.75, 1});
  expect_near(linspace(0, 1, 4, false), {0, 0.25, 0.5, 0.75});
  expect_near(linspace(3, 5, 1), {3});
  EXPECT_EQ(linspace(0, 1, 0).numel(), 0);
  EXPECT_EQ(linspace(0.1, 0.7, 17).to_vector<float>().back(), 0.7f);
  expect_equal<std::int32_t>(linspace(0, 10, 3, true, DType::Int32), {0, 5, 10});
}

TEST(Create, Matrices) {
  expect_equal<float>(eye(2), {2, 2}, {1, 0, 0, 1});
  expect_equal<float>(eye(2, 3, 1), {2, 3}, {0, 1, 0, 0, 0, 1});
  expect_equal<float>(eye(2, 2, -1), {2, 2}, {0, 0, 1, 0});
  const Tensor x = counting({2, 3}) + 1;
  expect_equal<float>(tril(x), {2, 3}, {1, 0, 0, 4, 5, 0});
  expect_equal<float>(triu(x, 1), {2, 3}, {0, 2, 3, 0, 0, 6});
  EXPECT_EQ(tril(ones({2, 2}, DType::Bool)).dtype(), DType::Bool);
  expect_equal<float>(tril(floats({2, 2}, {1, kNan, kInf, 1})), {2, 2}, {1, 0, kInf, 1});
  expect_equal<float>(one_hot(Tensor({1, 3, -1}), 3), {3, 3}, {0, 1, 0, 0, 0, 0, 0, 0, 0});
  expect_user_error([] { tril(zeros({3})); }, "[tril] needs two axes, got float32 (3,)");
  expect_user_error([] { one_hot(zeros({3}), 2); }, "[one_hot] needs integer indices, got float32 (3,)");
}

TEST(Create, DiagonalsBeyondTheCornersDoNotOverflow) {
  const Tensor x = ones({2, 3});
  const std::vector<float> none(6, 0), all(6, 1);
  expect_equal<float>(triu(x, INT64_MAX), {2, 3}, none);
  expect_equal<float>(triu(x, INT64_MIN), {2, 3}, all);
  expect_equal<float>(tril(x, INT64_MAX), {2, 3}, all);
  expect_equal<float>(tril(x, INT64_MIN), {2, 3}, none);
  expect_equal<float>(triu(x, 2), {2, 3}, {0, 0, 1, 0, 0, 0});
  expect_equal<float>(tril(x, -1), {2, 3}, {0, 0, 0, 1, 0, 0});
  expect_equal<float>(eye(2, 3, INT64_MAX), {2, 3}, none);
  expect_equal<float>(eye(2, 3, INT64_MIN), {2, 3}, none);
  expect_equal<float>(eye(2, 3, 2), {2, 3}, {0, 0, 1, 0, 0, 0});
}

TEST(Create, RangesOfLargeNumbers) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  expect_equal<std::uint64_t>(arange(kHalf, kHalf + 3), {kHalf, kHalf + 1, kHalf + 2});
  expect_equal<std::uint64_t>(arange(kHalf + 1, kHalf - 1, -1), {kHalf + 1, kHalf});
  expect_equal<std::int64_t>(arange(3u), {0, 1, 2});
  expect_user_error([] { arange(~std::uint64_t{0}); }, "[arange] a range to 18446744073709551615");
  expect_user_error([] { arange(INT64_MIN, INT64_MAX); },
                    "[arange] a range from -9223372036854775808 to 9223372036854775807 by 1");
}

}  // namespace
}  // namespace kiln
