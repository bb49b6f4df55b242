// Indexing by tensors, in every mode.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/config.h>

#include <functional>
#include <numeric>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_evaluation_error;
using testing::expect_user_error;
using testing::floats;
using testing::in_every_mode;

Tensor ints(std::vector<std::int32_t> v) { return Tensor::from(v); }
Tensor ints(const Shape& shape, std::vector<std::int32_t> v) { return Tensor::from(v, shape); }

TEST(Gather, TakesSlicesAlongAnAxis) {
  in_every_mode([] {
    const Tensor x = counting({3, 4});
    expect_equal<float>(take(x, ints({2, 0, -1}), 0), {3, 4}, {8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11});
    expect_equal<float>(take(x, ints({1, 1}), 1), {3, 2}, {1, 1, 5, 5, 9, 9});
    expect_equal<float>(take(x, ints({2, 1}, {-1, 0}), -1), {3, 2, 1}, {3, 0, 7, 4, 11, 8});
    expect_equal<float>(take(x, ints({5, -12})), {5, 0});
    expect_equal<float>(take(x, Tensor(1), 0), Shape{4}, {4, 5, 6, 7});
  });
}

TEST(Gather, OutOfRangeGivesZero) {
  in_every_mode([] {
    const Tensor x = counting({3}) + 1.0;
    expect_equal<float>(take(x, ints({0, 3, -3, -4, 2147483647, -2147483647 - 1}), 0), {1, 0, 1, 0, 0, 0});
    const std::vector<std::uint64_t> large{2, ~std::uint64_t{0}, std::uint64_t{1} << 63, 3};
    expect_equal<float>(take(x, Tensor::from(large), 0), {3, 0, 0, 0});
    const std::vector<std::uint8_t> bytes{255, 1};
    expect_equal<float>(take(x, Tensor::from(bytes), 0), {0, 2});
    expect_equal<float>(take(x * 2.0, ints({1, 5}), 0) + 1.0, {5, 1});
    expect_equal<float>(take(floats({7}), ints({0, 1, -1}), 0), {7, 0, 7});
  });
}

TEST(Gather, EveryDtypeOfValuesAndIndices) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      const Tensor x = (counting({40}) % 2.0).astype(type).eval();
      std::vector<float> want(40);
      for (std::size_t i = 0; i < 40; ++i) want[i] = static_cast<float>((i * 7 % 40) % 2);
      const Tensor order = (counting({40}) * 7.0) % 40.0;
      expect_equal<float>(take(x, order.astype(DType::Int64), 0).astype(DType::Float32), want);
      if (is_int(type)) expect_equal<float>(take(counting({40}) % 2.0, order.astype(type), 0), want);
    }
  });
}

TEST(Gather, AlongAnAxis) {
  in_every_mode([] {
    const Tensor x = counting({2, 3});
    expect_equal<float>(take_along_axis(x, ints({2, 2}, {2, 0, -1, 1}), 1), {2, 2}, {2, 0, 5, 4});
    expect_equal<float>(take_along_axis(x, ints({1, 3}, {1, 0, 1}), 0), {1, 3}, {3, 1, 5});
    expect_equal<float>(take_along_axis(x, argmax(-x, 1, true), 1), {2, 1}, {0, 3});
    expect_equal<float>(take_along_axis(counting({1, 3}), ints({2, 1}, {2, 0})), {2, 1}, {2, 0});
    expect_equal<float>(take_along_axis(transpose(x), ints({3, 1}, {1, 0, 1})), {3, 1}, {3, 1, 5});
  });
}

TEST(Gather, SeveralIndices) {
  in_every_mode([] {
    const Tensor x = counting({3, 4, 2});
    expect_equal<float>(gather(x, {ints({0, 2}), ints({1, -1})}), {2, 2}, {2, 3, 22, 23});
    expect_equal<float>(gather(x, {ints({2, 1}, {0, 1}), ints({3}), Tensor(1)}), {2, 1}, {7, 15});
    // The second index is out of range although the position would not be.
    expect_equal<float>(gather(x, {ints({0, 0, -4}), ints({4, -5, 0}), ints({0, 0, 0})}), {0, 0, 0});
    expect_equal<float>(gather(x, {ints({1})}), {1, 4, 2}, {8, 9, 10, 11, 12, 13, 14, 15});
  });
}

TEST(Gather, ThroughViewsAndComputedValues) {
  in_every_mode([] {
    const Tensor x = counting({5, 6});
    expect_equal<float>(take(flip(x, 1)(slice::all(), range(0, 4)), ints({3, 0}), 1), {5, 2},
                        {2, 5, 8, 11, 14, 17, 20, 23, 26, 29});
    expect_equal<float>(take(pad(floats({1, 2}), {{1, 1}}, 9), ints({0, 1, 2, 3, 4, -1}), 0),
                        {9, 1, 2, 9, 0, 9});
    expect_equal<float>(take(arange(10), arange(3) * 2, 0).astype(DType::Float32), {0, 2, 4});
    expect_equal<float>(take(take(floats({5, 6, 7}), ints({2, 2, 0}), 0), ints({2, 0}), 0), {5, 7});
    expect_equal<float>(take(x, ints({7, 11, 29, 2})).reshape({2, 2}), {2, 2}, {7, 11, 29, 2});
  });
}

TEST(Gather, Empty) {
  in_every_mode([] {
    EXPECT_EQ(take(counting({3, 4}), zeros({0}, DType::Int32), 0).eval().shape().str(), "(0, 4)");
    EXPECT_EQ(take(zeros({3, 0}), ints({1}), 0).eval().shape().str(), "(1, 0)");
    EXPECT_EQ(take(zeros({0}), zeros({0, 2}, DType::Int64), 0).eval().shape().str(), "(0, 2)");
  });
}

TEST(Gather, Errors) {
  const Tensor x = counting({3, 4});
  expect_user_error([&] { take(x, floats({1}), 0); }, "[take] indices must be integers, not float32 (1,)");
  expect_user_error([&] { take(x, ints({1}), 2); }, "[take] axis 2 is out of range for float32 (3, 4)");
  expect_user_error([&] { take(zeros({0, 4}), ints({1}), 0); },
                    "[take] nothing to take from in float32 (0, 4)");
  expect_user_error([&] { take(x, Tensor(), 0); }, "[take] an operand is an empty Tensor");
  expect_user_error([&] { take_along_axis(x, ints({1}), 0); },
                    "[take_along_axis] needs indices of x's rank: x float32 (3, 4), indices int32 (1,)");
  expect_user_error(
      [&] { take_along_axis(x, ints({2, 1}, {0, 0}), 1); },
      "[take_along_axis] x float32 (3, 4) and indices int32 (2, 1) do not broadcast along axis 0");
  expect_user_error([&] { gather(x, {ints({1}), ints({1}), ints({1})}); },
                    "[gather] 3 indices for float32 (3, 4)");
}

TEST(Gather, CheckNamesAnIndexOutOfRange) {
  const Config before = config();
  Config options = before;
  options.check_bounds = true;
  for (const Mode mode : {Mode::Lazy, Mode::Interpret}) {
    options.mode = Mode::Lazy;
    configure(options);
    const Tensor x = counting({3, 4});
    const Tensor bad = take(x, ints({1, 3}), 0) + 1.0;
    options.mode = mode;
    configure(options);
    try {
      bad.eval();
      ADD_FAILURE() << "no error";
    } catch (const UserError& e) {
      EXPECT_TRUE(
          std::string(e.what()).starts_with("[gather] index 3 is out of range for axis 0 of float32 (3, 4), "
                                            "recorded at "))
          << e.what();
      EXPECT_NE(std::string(e.what()).find("gather_test.cpp:"), std::string::npos) << e.what();
    }
  }
  configure(before);
}

TEST(Gather, CheckNamesTheIndexAndTheAxisOfSeveralIndices) {
  const Config before = config();
  Config options = before;
  options.check_bounds = true;
  const Tensor x = counting({3, 3});
  for (const Mode mode : {Mode::Lazy, Mode::Eager, Mode::Interpret}) {
    options.mode = mode;
    configure(options);
    expect_evaluation_error([&] { return gather(x, {ints({2}, {0, 1}), ints({2}, {0, 7})}); },
                            "[gather] index 7 is out of range for axis 1 of float32 (3, 3)");
    expect_evaluation_error([&] { return gather(x, {ints({2}, {0, -4}), ints({2}, {0, 7})}); },
                            "[gather] index -4 is out of range for axis 0 of float32 (3, 3)");
    expect_evaluation_error(
        [&] { return gather(x, {ints({2}, {0, 1}), full({2}, std::int64_t{1} << 60)}); },
        "[gather] index 144115188075855872 or more is out of range for axis 1 of float32 (3, 3)");
    expect_evaluation_error(
        [&] {
          return gather(
              x, {ints({2}, {0, 1}).astype(DType::UInt8), full({2}, std::int64_t{-1}).astype(DType::UInt64)});
        },
        "[gather] index 144115188075855872 or more is out of range for axis 1 of float32 (3, 3)");
    expect_evaluation_error(
        [&] { return take(x, Tensor(std::uint64_t{18446744073709551615u}).reshape({1}), 0); },
        "[gather] index 18446744073709551615 is out of range for axis 0 of float32 (3, 3)");
    EXPECT_NO_THROW(gather(x, {ints({2}, {0, -1}), ints({2}, {-3, 2})}).eval());
  }
  configure(before);
  const Tensor recorded_before = gather(x, {ints({1}, {0}), ints({1}, {7})});
  options.mode = Mode::Lazy;
  configure(options);
  expect_evaluation_error([&] { return recorded_before; },
                          "[gather] an index is out of range of float32 (3, 3)");
  configure(before);
}

TEST(Gather, FusesWithItsIndicesAndItsReaders) {
  const Tensor table = test::data({50, 70}), at = (test::data({40}) * 25.0).astype(DType::Int32).eval();
  EXPECT_EQ(test::kernels({sum(exp(take(table, at, 0)), -1)}), 1u);
  EXPECT_EQ(test::kernels({sum(take(table, at * 2 - 1, 0) * 0.5 + 1.0, -1)}), 1u);
  const Tensor rows = take(table, at, 0);
  EXPECT_EQ(test::kernels({nn::softmax(rows)}), 1u);
  const Tensor logits = test::data({40, 50});
  EXPECT_EQ(test::kernels({take_along_axis(logits, expand_dims(abs(at), 1), 1)(slice::all(), 0) -
                           logsumexp(logits, -1)}),
            1u);
}

/// Many rows that the same indices lead through, near each other, far apart, backwards and out of range: the
/// places are found once for several rows, and short rows share the lanes.
TEST(Gather, RowsThatShareIndices) {
  const std::int64_t outer = 130, extent = 90;
  for (const DType type : {DType::UInt8, DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t inner : {1, 2, 7})
      for (const std::int64_t count : {5, 14, 33, 180}) {
        const std::int64_t points = outer * extent * inner;
        const Tensor x = (arange(points) * 7 % 251).astype(type).reshape({outer, extent, inner}).eval();
        for (const std::int64_t step : {1, 2, 37, -3}) {
          std::vector<std::int32_t> index(static_cast<std::size_t>(count));
          for (std::size_t i = 0; i < index.size(); ++i)
            index[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * step / 2 % 200);
          const Tensor taken = take(x, Tensor::from(index), 1).astype(DType::Float32);
          const std::vector<float> got = (taken + 1.0).to_vector<float>();
          for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t i = 0; i < count; ++i)
              for (std::int64_t c = 0; c < inner; ++c) {
                const std::int64_t asked = index[static_cast<std::size_t>(i)],
                                   at = asked < 0 ? asked + extent : asked;
                const bool there = at >= 0 && at < extent;
                const std::int64_t want = there ? ((o * extent + at) * inner + c) * 7 % 251 : 0;
                ASSERT_EQ(got[static_cast<std::size_t>((o * count + i) * inner + c)],
                          static_cast<float>(want + 1))
                    << static_cast<int>(type) << ' ' << inner << ' ' << count << ' ' << step << ": " << o
                    << ' ' << i;
              }
        }
      }
}

/// Rows of few elements, each where an index says.
TEST(Gather, RowsOfTwoAndThree) {
  for (const DType type : {DType::Int8, DType::Float16, DType::Float32, DType::Float64})
    for (const std::int64_t row : {2, 3}) {
      const std::int64_t rows = 61, n = 3001;
      const Tensor table = (arange(rows * row) % 120).astype(type).reshape({rows, row}).eval();
      const Tensor index = (arange(n) * 7919 % 140 - 70).eval();
      const std::vector<float> got = take(table, index, 0).astype(DType::Float32).to_vector<float>();
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t c = 0; c < row; ++c) {
          const std::int64_t asked = i * 7919 % 140 - 70, at = asked < 0 ? asked + rows : asked;
          const float want = at >= 0 && at < rows ? static_cast<float>((at * row + c) % 120) : 0.0f;
          ASSERT_EQ(got[static_cast<std::size_t>(i * row + c)], want) << static_cast<int>(type) << ' ' << i;
        }
    }
}

/// What tells two elements apart is whether an index is in range: the only place is 0.
TEST(Gather, RowsThatReadOneElementOrNone) {
  for (const std::int64_t length : {2, 8, 70})
    in_every_mode([&] {
      const std::int64_t rows = 8;
      const Tensor at = (arange(rows * length).astype(DType::Int64) % 3 - 1).reshape({rows, length});
      const Tensor there = take(floats({3}), at.eval() + 1 - 1, 0);
      const Tensor apart = there - mean(there, 1, true);
      std::vector<double> expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto value = [&](std::int64_t i) { return (r * length + i) % 3 == 2 ? 0.0 : 3.0; };
        double whole = 0, squares = 0;
        for (std::int64_t i = 0; i < length; ++i) whole += value(i);
        const double middle = whole / static_cast<double>(length);
        for (std::int64_t i = 0; i < length; ++i) squares += (value(i) - middle) * (value(i) - middle);
        for (std::int64_t i = 0; i < length; ++i) expected.push_back((value(i) - middle) * squares);
      }
      testing::expect_near(apart * sum(apart * apart, 1, true), {rows, length}, expected, 1e-4);
    });
}

TEST(Gather, LargeRandomGathersEqualALoop) {
  const std::int64_t rows = 1000, columns = 37, n = 5000;
  const Tensor table = test::data({rows, columns});
  const std::vector<float> t = table.to_vector<float>();
  std::vector<std::int64_t> index(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(i * 7919 % 2100) - 1050;
  const std::vector<float> out = (take(table, Tensor::from(index), 0) * 2.0).to_vector<float>();
  const std::vector<float> flat = (take(table, Tensor::from(index), std::nullopt) * 2.0).to_vector<float>();
  const std::vector<float> total = sum(take(table, Tensor::from(index), 0), 0).to_vector<float>();
  std::vector<double> sums(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::int64_t at = index[i] < 0 ? index[i] + rows : index[i];
    for (std::int64_t c = 0; c < columns; ++c) {
      const float want = at < 0 || at >= rows ? 0 : t[static_cast<std::size_t>(at * columns + c)];
      ASSERT_EQ(out[i * 37 + static_cast<std::size_t>(c)], 2 * want) << i << ", " << c;
      sums[static_cast<std::size_t>(c)] += want;
    }
    const std::int64_t place = index[i] < 0 ? index[i] + rows * columns : index[i];
    ASSERT_EQ(flat[i], 2 * t[static_cast<std::size_t>(place)]) << i;
  }
  for (std::size_t c = 0; c < sums.size(); ++c) EXPECT_NEAR(total[c], sums[c], 1e-2);
}

}  // namespace
}  // namespace kiln
