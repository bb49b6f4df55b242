// Writing at indices, in every mode.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_evaluation_error;
using testing::expect_user_error;
using testing::floats;
using testing::in_every_mode;
using testing::kInf;
using testing::kNan;

constexpr Combine kAll[] = {Combine::Set, Combine::Add, Combine::Multiply, Combine::Max, Combine::Min};

Tensor ints(std::vector<std::int32_t> v) { return Tensor::from(v); }
Tensor ints(const Shape& shape, std::vector<std::int32_t> v) { return Tensor::from(v, shape); }

TEST(Scatter, WritesSlicesAlongAnAxis) {
  in_every_mode([] {
    const Tensor x = zeros({3, 4});
    expect_equal<float>(scatter(x, ints({2, 0}), counting({2, 4})), {3, 4},
                        {4, 5, 6, 7, 0, 0, 0, 0, 0, 1, 2, 3});
    expect_equal<float>(scatter(x, ints({-1, 1}), floats({3, 1}, {1, 2, 3}), 1), {3, 4},
                        {0, 1, 0, 1, 0, 2, 0, 2, 0, 3, 0, 3});
    expect_equal<float>(scatter(counting({4}), Tensor(1), 9), {0, 9, 2, 3});
    expect_equal<float>(scatter(counting({2, 2}), ints({2, 1}, {1, 0}), 7, -1), {2, 2}, {7, 7, 7, 7});
    expect_equal<float>(x.reshape({12}), std::vector<float>(12, 0.0f));
  });
}

/// Rows with the same indices are written several at a time; equal indices meet in order.
TEST(Scatter, RowsThatShareIndices) {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::Int32})
    for (const std::int64_t rows : {2, 7, 8, 9, 24, 1003})
      for (const Combine how : kAll) {
        const Tensor at = ints({3, 3, -1, 0, 9, 3, -6, 5, 0});  // of five: 9 and -6 are none
        const Tensor x = (counting({rows, 5}) % 11).astype(dtype).eval(),
                     values = (counting({9, rows}) * 31 % 7 - 2).astype(dtype).eval();
        for (const bool turned : {false, true}) {
          const Tensor v = turned ? values.T() : values.reshape({rows, 9});
          const auto written = [&] { return scatter(x, at, v, 1, how); };
          Tensor want;
          {
            const testing::ModeScope scope(Mode::Interpret);
            want = written().eval();
          }
          EXPECT_TRUE(array_equal(written(), want, true))
              << name(dtype) << " rows " << rows << " how " << static_cast<int>(how);
        }
      }
}

TEST(Scatter, AddsShortRowsOfEveryLength) {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int32})
    for (const std::int64_t row : {1, 2, 3, 4, 5, 8, 16, 17}) {
      const Tensor place = arange(40000 / row * row, DType::Int64), at = arange(40000 / row, DType::Int64);
      const Tensor values = (place * place % 7).astype(dtype).reshape({40000 / row, row}).eval();
      const Tensor rows = (at * at * 31 % 97).astype(DType::Int32).eval();
      const auto added = [&] { return scatter_add(ones({97, row}, dtype), rows, values, 0); };
      Tensor want;
      {
        const testing::ModeScope scope(Mode::Interpret);
        want = added().eval();
      }
      EXPECT_TRUE(array_equal(added(), want, true)) << name(dtype) << " rows of " << row;
    }
}

/// Some indices are out of range and some count from the back; sums depend on the order of their values, of
/// which the base's on one thread is the reference.
TEST(Scatter, AddsRowsInOrderOnEveryTarget) {
  KILN_NEEDS_CPU();
  const Config before = config();
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16})
    for (const std::int64_t row : {1, 2, 3, 6, 7, 8, 12, 31, 64, 200, 515}) {
      const std::int64_t count = 70000 / row;
      const Tensor values =
          sin(arange(count * row, DType::Float32)).astype(dtype).reshape({count, row}).eval();
      const Tensor rows = (((arange(count, DType::Int32) * 40503) >> 5) % 41 - 2).eval();
      const auto added = [&](const std::string& target, int threads) {
        Config c = before;
        c.cpu_target = target;
        c.num_threads = threads;
        configure(c);
        std::vector<Tensor> out = {
            scatter_add(ones({37, row}, dtype), rows, values),
            scatter_add(ones({3, 37, row}, dtype), rows(range(0, count / 3)),
                        values(range(0, count / 3 * 3)).reshape({3, count / 3, row}), 1),
            scatter_add(Tensor(ones({37, 2 * row}, dtype)(range(0, 37), range(none, none, 2))), rows,
                        values)};
        eval(out);
        configure(before);
        return out;
      };
      const std::vector<std::string> targets = testing::different_cpu_targets();
      const std::vector<Tensor> want = added(targets.back(), 1);
      for (const std::string& target : targets)
        for (const int threads : {1, 3}) {
          const std::vector<Tensor> got = added(target, threads);
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(array_equal(got[i], want[i], true))
                << name(dtype) << " rows of " << row << " on KILN_CPU=" << target << ", " << threads
                << " threads, " << i;
        }
    }
}

/// The elements that values meet one after the other, sums of halves rounded at the end. Value k goes to
/// `places[k]`, none at -1.
template <class T>
std::vector<T> met(const std::vector<T>& x, const std::vector<T>& values,
                   const std::vector<std::int64_t>& places, std::int64_t row, Combine how) {
  using A = std::conditional_t<sizeof(T) == 2, float, T>;
  std::vector<A> sums(x.begin(), x.end());
  for (std::size_t k = 0; k < places.size(); ++k)
    for (std::int64_t i = 0; i < row && places[k] >= 0; ++i) {
      A& sum = sums[static_cast<std::size_t>(places[k] * row + i)];
      const auto value =
          static_cast<A>(values[k * static_cast<std::size_t>(row) + static_cast<std::size_t>(i)]);
      sum = how == Combine::Add ? sum + value : sum * value;
    }
  std::vector<T> out;
  for (const A sum : sums) out.push_back(static_cast<T>(sum));
  return out;
}

/// Rows of a table that leaves the second cache: each destination is written once, with all its values.
template <class T>
void long_rows_meet_in_order(std::int64_t extent, std::int64_t row, std::int64_t count) {
  const auto made = [](std::int64_t n, std::int64_t m, int from) {
    return sin(arange(n * m, DType::Float32) + from).astype(dtype_of<T>).reshape({n, m}).eval();
  };
  const Tensor x = made(extent, row, 7), values = made(count, row, 3);
  const Tensor at = (arange(count) * 7919 % (extent + 3) - 1).eval();  // one from the back, some out of range
  std::vector<std::int64_t> places = at.to_vector<std::int64_t>();
  for (std::int64_t& p : places) p = p >= extent ? -1 : p < 0 ? p + extent : p;
  const Tensor x_columns = (x.T() + 0).eval(), value_columns = (values.T() + 0).eval();
  const Config before = config();
  for (const Combine how : {Combine::Add, Combine::Multiply}) {
    const Tensor want =
        Tensor::from(met(x.to_vector<T>(), values.to_vector<T>(), places, row, how), {extent, row});
    for (const std::string& target : testing::different_cpu_targets())
      for (const int threads : {1, 3}) {
        Config c = before;
        c.cpu_target = target;
        c.num_threads = threads;
        configure(c);
        const auto what =
            cat(name(dtype_of<T>), " (", extent, ", ", row, ") on KILN_CPU=", target, ", ", threads);
        EXPECT_TRUE(array_equal(scatter(x, at, values, 0, how), want)) << what;
        EXPECT_TRUE(array_equal(scatter(x + 0, at, values, 0, how), want)) << what << " in place";
        EXPECT_TRUE(array_equal(scatter(x_columns.T(), at, value_columns.T(), 0, how), want))
            << what << " columns";
        const Tensor both = scatter(stack({x, x}), at, stack({values, values}), 1, how);
        EXPECT_TRUE(array_equal(both(1), want)) << what << " of two";
        configure(before);
      }
  }
}

TEST(Scatter, LongRowsMeetTheirValuesOneDestinationAfterTheOther) {
  KILN_NEEDS_CPU();
  for (const auto& [extent, row, count] :
       {std::array<std::int64_t, 3>{700, 523, 1000}, {130, 2100, 300}, {2500, 520, 40}}) {
    long_rows_meet_in_order<float>(extent, row, count);
    long_rows_meet_in_order<double>(extent, row, count);
    long_rows_meet_in_order<float16>(extent, row, count);
    long_rows_meet_in_order<bfloat16>(extent, row, count);
  }
}

TEST(Scatter, OfSeveralWrittenToOnePlaceTheLastStays) {
  in_every_mode([] {
    expect_equal<float>(scatter(zeros({3}), ints({1, 1, 0, 1}), floats({1, 2, 3, 4})), {3, 4, 0});
    expect_equal<float>(scatter_add(ones({3}), ints({1, 1, 0, 1}), floats({1, 2, 3, 4})), {4, 8, 1});
    expect_equal<float>(scatter_multiply(ones({3}), ints({1, 1, 0, 1}), floats({1, 2, 3, 4})), {3, 8, 1});
    expect_equal<float>(scatter_max(ones({3}), ints({1, 1, 2, 1}), floats({1, 5, -3, 4})), {1, 5, 1});
    expect_equal<float>(scatter_min(ones({3}), ints({1, 1, 2, 1}), floats({1, 5, -3, 4})), {1, 1, -3});
  });
}

TEST(Scatter, NanIsGreaterAndLessThanEverything) {
  in_every_mode([] {
    const Tensor values = floats({kNan, 5, kInf, -kInf});
    expect_equal<float>(scatter_max(zeros({2}), ints({0, 0, 1, 1}), values), {kNan, kInf});
    expect_equal<float>(scatter_min(zeros({2}), ints({0, 0, 1, 1}), values), {kNan, -kInf});
    expect_equal<float>(scatter_max(floats({kNan, 1}), ints({0}), 3), {kNan, 1});
    expect_equal<float>(scatter(floats({kNan, 1}), ints({0}), 3), {3, 1});
  });
}

TEST(Scatter, ValuesOutOfRangeAreLeftOut) {
  in_every_mode([] {
    const Tensor x = counting({3});
    expect_equal<float>(scatter(x, ints({3, -4, 2147483647, -2147483647 - 1, -3}), 9), {9, 1, 2});
    const std::vector<std::uint64_t> large{2, ~std::uint64_t{0}, std::uint64_t{1} << 63, 3};
    expect_equal<float>(scatter_add(x, Tensor::from(large), 1), {0, 1, 3});
    expect_equal<float>(scatter(x, Tensor::from(std::vector<std::uint8_t>{255, 1}), 5), {0, 5, 2});
    EXPECT_EQ(scatter(zeros({0}), ints({0}), 1).eval().shape().str(), "(0,)");
    EXPECT_EQ(scatter(zeros({2, 0}), ints({0}), 1).eval().shape().str(), "(2, 0)");
    expect_equal<float>(scatter(x, zeros({0}, DType::Int32), zeros({0})), {0, 1, 2});
  });
}

TEST(Scatter, SeveralIndices) {
  in_every_mode([] {
    const Tensor x = zeros({2, 3});
    expect_equal<float>(scatter(x, {ints({0, 1}), ints({2, -2})}, floats({5, 6})), {2, 3},
                        {0, 0, 5, 0, 6, 0});
    // The second index is out of range although the position would not be.
    expect_equal<float>(scatter(x, {ints({0, 0}), ints({3, 0})}, 4, Combine::Add), {2, 3},
                        {4, 0, 0, 0, 0, 0});
    expect_equal<float>(scatter(x, {ints({1})}, floats({1, 2, 3})), {2, 3}, {0, 0, 0, 1, 2, 3});
    expect_equal<float>(scatter(x, {ints({2, 1}, {0, 1}), ints({0, 1})}, counting({2, 2})), {2, 3},
                        {0, 1, 0, 2, 3, 0});
  });
}

TEST(Scatter, PutsAlongAnAxis) {
  in_every_mode([] {
    const Tensor x = counting({2, 3});
    expect_equal<float>(put_along_axis(x, ints({2, 2}, {2, 0, -1, 1}), floats({2, 2}, {6, 7, 8, 9})), {2, 3},
                        {7, 1, 6, 3, 9, 8});
    expect_equal<float>(put_along_axis(x, ints({1, 3}, {1, 0, 1}), 0, 0), {2, 3}, {0, 0, 2, 0, 4, 0});
    expect_equal<float>(put_along_axis(x, argmax(x, 1, true), -1, 1, Combine::Add), {2, 3},
                        {0, 1, 1, 3, 4, 4});
    // What take_along_axis reads is what it writes.
    const Tensor order = argsort(-x, 1);
    expect_equal<float>(put_along_axis(zeros({2, 3}), order, take_along_axis(x, order, 1)), {2, 3},
                        {0, 1, 2, 3, 4, 5});
  });
}

TEST(Scatter, ThroughViewsAndComputedValues) {
  in_every_mode([] {
    const Tensor x = counting({3, 4});
    expect_equal<float>(scatter(transpose(x), ints({1}), floats({-1, -2, -3})), {4, 3},
                        {0, 4, 8, -1, -2, -3, 2, 6, 10, 3, 7, 11});
    expect_equal<float>(scatter(flip(x, 1)(range(0, 2)), ints({3}), x(range(0, 2), range(0, 1)) * 2.0, 1) + 1,
                        {2, 4}, {4, 3, 2, 1, 8, 7, 6, 9});
    expect_equal<float>(scatter_add(x * 0.0, arange(3) * 0, x), {3, 4},
                        {12, 15, 18, 21, 0, 0, 0, 0, 0, 0, 0, 0});
    // The operands may be the result of another one, which stays as it is.
    const Tensor first = scatter(zeros({4}), ints({1}), 1), second = scatter(first, ints({2}), 2);
    expect_equal<float>(second, {0, 1, 2, 0});
    expect_equal<float>(first, {0, 1, 0, 0});
    const Tensor made = x(0) + 1.0, twice = scatter_add(made, made.astype(DType::Int32) % 4, made);
    expect_equal<float>(twice, {5, 3, 5, 7});
    expect_equal<float>(made, {1, 2, 3, 4});
  });
}

TEST(Scatter, IntoTheMiddleAxis) {
  in_every_mode([] {
    const Tensor x = zeros({2, 3, 2, 2});
    std::vector<float> want(24);
    const Tensor at = ints({2, 2, 1, 2}, {0, 1, 2, 0, 1, 1, 0, 2});
    const Tensor values = counting({2, 2, 2, 2}) + 1.0;
    const std::vector<int> index{0, 1, 2, 0, 1, 1, 0, 2};
    for (int o = 0; o < 2; ++o)
      for (int k = 0; k < 2; ++k)
        for (int r = 0; r < 2; ++r)
          for (int i = 0; i < 2; ++i)
            want[static_cast<std::size_t>(o * 12 + index[static_cast<std::size_t>(o * 4 + k * 2 + i)] * 4 +
                                          r * 2 + i)] += static_cast<float>(o * 8 + k * 4 + r * 2 + i + 1);
    expect_equal<float>(put_along_axis(x, at, values, 1, Combine::Add), {2, 3, 2, 2}, want);
  });
}

/// Rows that are added four elements at a time where they begin at whole vectors.
TEST(Scatter, AddsRowsThatBeginAnywhere) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int32, DType::Float64})
    for (const std::int64_t skip : {0, 1, 4}) {
      const Tensor wide = (arange(6 * 12) % 7).astype(dtype).reshape({6, 12}).eval();
      const Tensor values = wide(range(none, none), range(skip, skip + 8)),
                   at = Tensor::from(std::vector<std::int64_t>{2, 0, 2, 1, 2, 9});
      const Tensor got = scatter_add(ones({3, 8}, dtype), at, values, 0);
      const Tensor want = stack({values(1), values(3), values(0) + values(2) + values(4)}, 0) + 1;
      EXPECT_TRUE(kiln::all(got == want).item<bool>()) << name(dtype) << ", from " << skip;
    }
}

TEST(Scatter, EveryDtypeOfValuesAndIndices) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      SCOPED_TRACE(name(type));
      const Tensor x = zeros({5}, type), values = floats({1, 1, 0, 1, 1, 1}).astype(type);
      const Tensor at = ints({0, 1, 1, 3, 3, 3});
      expect_equal<float>(scatter(x, at, values).astype(DType::Float32), {1, 0, 0, 1, 0});
      expect_equal<float>(scatter_max(x, at, values).astype(DType::Float32), {1, 1, 0, 1, 0});
      expect_equal<float>(scatter_min(ones({5}, type), at, values).astype(DType::Float32), {1, 0, 1, 1, 1});
      if (!is_bool(type)) {
        expect_equal<float>(scatter_add(x, at, values).astype(DType::Float32), {1, 1, 0, 3, 0});
        expect_equal<float>(scatter_multiply(ones({5}, type), at, values + values).astype(DType::Float32),
                            {2, 0, 1, 8, 1});
      }
      if (is_int(type)) expect_equal<float>(scatter(zeros({2}), ints({1}).astype(type), 4), {0, 4});
    }
  });
}

TEST(Scatter, IntegersWrapAndHalvesRoundOnce) {
  in_every_mode([] {
    expect_equal<std::int8_t>(scatter_add(full({1}, 100, DType::Int8), ints({0, 0}), 100), {44});
    expect_equal<std::uint8_t>(scatter_multiply(full({1}, 16, DType::UInt8), ints({0}), 17), {16});
    // 4096 ones added to 4096 one by one in float16 would stay.
    const Tensor sum = scatter_add(full({1}, 4096, DType::Float16), zeros({4096}, DType::Int32), 1);
    expect_equal<float>(sum.astype(DType::Float32), {8192});
    const Tensor coarse = scatter_add(zeros({2}, DType::BFloat16), arange(2048) % 2, 1);
    expect_equal<float>(coarse.astype(DType::Float32), {1024, 1024});
  });
}

/// The same program for one thread and for several gives the same bits.
/// Many values into few elements, where integers of several threads meet in tables of their own.
TEST(Scatter, ManyValuesIntoFewElements) {
  const std::int64_t count = 100003;
  const Tensor at = ((arange(count, DType::Int32) * 40503) >> 5) % 37 - 2;  // some from the back
  const Tensor outside = where(at == 30, 1000, at);
  for (const Combine how : kAll)
    for (const DType dtype : {DType::Bool, DType::Int8, DType::UInt8, DType::Int16, DType::Int32,
                              DType::UInt32, DType::Int64, DType::UInt64, DType::Float32, DType::Float16}) {
      if (is_bool(dtype) && (how == Combine::Add || how == Combine::Multiply)) continue;
      if (is_float(dtype) && how == Combine::Multiply) continue;  // beyond the greatest number, and times 0
      const Tensor values = ((arange(count, DType::Int32) * 977) >> 4).astype(DType::Int8).astype(dtype);
      const auto f = [&] {
        Tensor x = (arange(40, DType::Int32) - 3).astype(dtype);
        const Tensor one =
            full({count}, 3, DType::Int8).astype(dtype);  // integers that are all equal are counted
        return std::vector{scatter(x, outside, values, 0, how), scatter(x, outside, one, 0, how),
                           scatter(broadcast_to(x.reshape({-1, 1}), {40, 3}), outside,
                                   broadcast_to(values.reshape({-1, 1}), {count, 3}), 0, how)};
      };
      for (const int threads : {1, 2, 5}) {
        Config c = config();
        const Config before = c;
        std::vector<Tensor> want;
        c.mode = Mode::Interpret;
        configure(c);
        want = f();
        eval(want);
        c.mode = Mode::Lazy;
        c.num_threads = threads;
        configure(c);
        const std::vector<Tensor> got = f();
        eval(got);
        configure(before);
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(array_equal(got[i], want[i], true))
              << name(dtype) << ", combined by " << static_cast<int>(how) << ", " << threads << " threads";
      }
    }
}

/// Many floats are added to few elements in parts, as many whatever the number of threads.
TEST(Scatter, ManyFloatsIntoFewElements) {
  KILN_NEEDS_CPU();
  const Config before = config();
  const auto with = [&](int threads, bool deterministic, const auto& f) {
    Config c = before;
    c.num_threads = threads;
    c.deterministic = deterministic;
    configure(c);
    const std::vector<float> out = f().astype(DType::Float32).template to_vector<float>();
    configure(before);
    return out;
  };
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16})
    for (const std::int64_t width : {1, 2, 7, 33}) {
      const std::int64_t count = 300007 / width;
      const Tensor rows =
          (((arange(count, DType::Int32) * 40503) >> 5) % 61 - 2).eval();  // -1 … -2, and beyond
      const Tensor whole =
          (arange(count * width, DType::Int32) % 3 - 1).astype(dtype).reshape({count, width}).eval();
      const Tensor any =
          sin(arange(count * width, DType::Float32)).astype(dtype).reshape({count, width}).eval();
      const auto into = [&](const Tensor& values) {
        return [&] {
          return scatter_add(full({50, width}, -0.0, dtype), where(rows == 20, 1000, rows), values);
        };
      };
      std::vector<float> exact;
      {
        const testing::ModeScope scope(Mode::Interpret);
        exact = into(whole)().astype(DType::Float32).to_vector<float>();
      }
      const std::string name_of = cat(name(dtype), " rows of ", width);
      const std::vector<float> of_one = with(1, false, into(any)), in_turn = with(1, true, into(any));
      for (const int threads : {1, 2, 5}) {
        EXPECT_EQ(with(threads, false, into(whole)), exact) << name_of << ", " << threads << " threads";
        EXPECT_EQ(with(threads, false, into(any)), of_one) << name_of << ", " << threads << " threads";
        EXPECT_EQ(with(threads, true, into(any)), in_turn) << name_of << ", " << threads << " threads";
      }
      EXPECT_TRUE(std::signbit(of_one[static_cast<std::size_t>(20 * width)]))
          << name_of;  // no value meets it
      if (dtype == DType::Float32) EXPECT_NE(of_one, in_turn) << name_of;
    }
}

/// Rows of halves are widened many at a time: every width around those numbers, every half value.
TEST(Scatter, RowsOfHalvesOfEveryWidth) {
  KILN_NEEDS_CPU();  // on a GPU values meet in any order
  for (const DType dtype : {DType::Float16, DType::BFloat16})
    for (const std::int64_t width : {1, 2, 7, 8, 9, 31, 32, 33, 255, 256, 257, 300, 519}) {
      const std::int64_t rows = 65536 / width + 1;
      const Tensor bits = arange(rows * width, DType::Int32).astype(DType::UInt16).reshape({rows, width});
      const Tensor values = bitcast(bits, dtype), at = (arange(rows, DType::Int32) * 7) % (rows + 3);
      const auto f = [&] {
        return std::vector{scatter_add(zeros({rows, width}, dtype), at, values),
                           scatter_add(zeros({width, rows}, dtype), at, values.T(), 1),
                           scatter_multiply(ones({rows, width}, dtype), arange(rows), values)};
      };
      std::vector<Tensor> want;
      {
        const testing::ModeScope scope(Mode::Interpret);
        want = f();
        eval(want);
      }
      const std::vector<Tensor> got = f();
      eval(got);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(array_equal(got[i], want[i], true)) << name(dtype) << ", width " << width << ", " << i;
    }
}

TEST(Scatter, DoesNotDependOnTheNumberOfThreads) {
  const Config before = config();
  const std::int64_t n = 200000;
  for (Combine how : kAll) {
    std::vector<std::vector<float>> runs[3];
    for (int threads : {1, 2, 5}) {
      Config options = before;
      options.num_threads = threads;
      options.deterministic = before.device != "cpu";  // a GPU adds floats in any order otherwise
      configure(options);
      const Tensor at = (arange(n) * 7919) % 611, values = sin(arange(n).astype(DType::Float32));
      runs[0].push_back(scatter(ones({600}), at, values, 0, how).to_vector<float>());  // one long line
      runs[1].push_back(scatter(ones({60, 100}), at(range(0, 2000)), values.reshape({2000, 100}), 0, how)
                            .to_vector<float>());
      runs[2].push_back(scatter(ones({100, 60}), at(range(0, 2000)), values.reshape({100, 2000}), 1, how)
                            .to_vector<float>());
    }
    configure(before);
    for (const auto& results : runs)
      for (const auto& r : results)
        EXPECT_EQ(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)), 0);
  }
}

TEST(Scatter, IsOneStepAndTakesItsOperandsMemory) {
  const Tensor at = ints({1, 2, 1}).eval(), values = floats({1, 2, 3}).eval();
  const auto counted = test::count([&] { (scatter_add(zeros({4}), at, exp(values)) * 2).eval(); });
  EXPECT_EQ(counted.library_calls, 1u);
  const auto again = test::count([&] { (scatter_add(zeros({4}), at, exp(values)) * 2).eval(); });
  EXPECT_EQ(again.plan_misses, 0u);
}

TEST(Scatter, InALoop) {
  in_every_mode([] {
    const auto done = while_loop(
        [](const Tensors& s) { return s[1] < 4; },
        [](const Tensors& s) { return Tensors{scatter(s[0], s[1].reshape({1}), s[1] * s[1]), s[1] + 1}; },
        {zeros({5}, DType::Int64), Tensor(std::int64_t{0})});
    expect_equal<std::int64_t>(done[0], {0, 1, 4, 9, 0});
  });
}

TEST(Scatter, CheckNamesAnIndexOutOfRange) {
  const Config before = config();
  Config options = before;
  options.check_bounds = true;
  for (const Mode mode : {Mode::Lazy, Mode::Interpret}) {
    options.mode = mode;
    configure(options);
    try {
      scatter(zeros({3}), ints({1, 7}), 1).eval();
      ADD_FAILURE() << "no error";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("[scatter] index 7 is out of range for axis 0 of float32 (3,)"),
                std::string::npos)
          << e.what();
    }
    EXPECT_NO_THROW(scatter(zeros({3}), ints({1, -3}), 1).eval());
  }
  configure(before);
}

TEST(Scatter, CheckNamesTheIndexAndTheAxisOfSeveralIndices) {
  const Config before = config();
  Config options = before;
  options.check_bounds = true;
  const Tensor x = counting({3, 3});
  for (const Mode mode : {Mode::Lazy, Mode::Eager, Mode::Interpret}) {
    options.mode = mode;
    configure(options);
    expect_evaluation_error([&] { return scatter(x, {ints({2}, {0, 1}), ints({2}, {0, 7})}, 1.0); },
                            "[scatter] index 7 is out of range for axis 1 of float32 (3, 3)");
    expect_evaluation_error([&] { return scatter(x, {ints({2}, {0, -4}), ints({2}, {0, 7})}, 1.0); },
                            "[scatter] index -4 is out of range for axis 0 of float32 (3, 3)");
    expect_evaluation_error(
        [&] { return scatter(x, {ints({2}, {0, 1}), full({2}, std::int64_t{1} << 60)}, 1.0); },
        "[scatter] index 144115188075855872 or more is out of range for axis 1 of float32 (3, 3)");
    expect_evaluation_error(
        [&] {
          return scatter(
              x, {ints({2}, {0, 1}).astype(DType::UInt8), full({2}, std::int64_t{-1}).astype(DType::UInt64)},
              1.0);
        },
        "[scatter] index 144115188075855872 or more is out of range for axis 1 of float32 (3, 3)");
    EXPECT_NO_THROW(scatter(x, {ints({2}, {0, -1}), ints({2}, {-3, 2})}, 1.0).eval());
  }
  configure(before);
  const Tensor recorded_before = scatter(x, {ints({1}, {0}), ints({1}, {7})}, 1.0);
  options.mode = Mode::Lazy;
  configure(options);
  expect_evaluation_error([&] { return recorded_before; },
                          "[scatter] an index is out of range of float32 (3, 3)");
  configure(before);
}

TEST(Scatter, Errors) {
  const Tensor x = counting({3, 4});
  expect_user_error([&] { scatter(x, floats({1}), 0); },
                    "[scatter] indices must be integers, not float32 (1,)");
  expect_user_error([&] { scatter(x, ints({1}), 0, 2); },
                    "[scatter] axis 2 is out of range for float32 (3, 4)");
  expect_user_error([&] { scatter(Tensor(1.0f), ints({1}), 0); },
                    "[scatter] axis 0 is out of range for float32 ()");
  expect_user_error(
      [&] { scatter(x, ints({1}), counting({3})); },
      "[scatter] values float32 (3,) do not broadcast to the selected shape (1, 4) of float32 (3, 4)");
  expect_user_error([&] { scatter(x, {ints({1}), ints({1}), ints({1})}, 0); },
                    "[scatter] 3 indices for float32 (3, 4)");
  expect_user_error([&] { scatter(x, std::span<const Tensor>{}, 0); },
                    "[scatter] no indices for float32 (3, 4)");
  expect_user_error([&] { scatter_add(x > 0, ints({1}), true); }, "[scatter] cannot add to bool (3, 4)");
  expect_user_error([&] { scatter_multiply(x > 0, ints({1}), true); },
                    "[scatter] cannot multiply bool (3, 4)");
  expect_user_error([&] { scatter(x, Tensor(), 0); }, "[scatter] an operand is an empty Tensor");
  expect_user_error([&] { put_along_axis(x, ints({1}), 0); },
                    "[put_along_axis] needs indices of x's rank: x float32 (3, 4), indices int32 (1,)");
  expect_user_error(
      [&] { put_along_axis(x, ints({2, 1}, {0, 0}), 0); },
      "[put_along_axis] indices int32 (2, 1) do not broadcast to x float32 (3, 4) along axis 0");
}

}  // namespace
}  // namespace kiln
