// Sorting, searching, and results whose shape depends on values: every dtype, axes, views, order of equals
// and of NaN.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "counted.h"
#include "modes.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_user_error;
using testing::in_every_mode;
using testing::kInf;
using testing::kNan;
using Ints = std::vector<std::int64_t>;

/// Values of a dtype with many equal ones, its extremes, and for floats NaN, infinities and both zeros.
Tensor values(DType dtype, const Shape& shape, std::uint64_t seed = 1) {
  std::uint64_t state = seed * 977;
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.numel() * size_of(dtype)) + 1);
  dispatch(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const std::uint64_t r = state >> 33;
      T v;
      if constexpr (is_float(dtype_of<T>)) {
        const float special[] = {kNan, kInf, -kInf, 0.0f, -0.0f};
        v = T(r % 16 < 5 ? special[r % 16] : static_cast<float>(static_cast<int>(r % 2000) - 1000) / 8);
      } else if constexpr (std::is_same_v<T, bool>) {
        v = r & 1;
      } else {
        v = r % 8 == 0   ? std::numeric_limits<T>::min()
            : r % 8 == 1 ? std::numeric_limits<T>::max()
                         : static_cast<T>(static_cast<int>(r % 100) - 50);
      }
      std::memcpy(bytes.data() + i * size_of(dtype), &v, sizeof(T));
    }
  });
  return Tensor::copy_of(bytes.data(), shape, dtype);
}

/// Bits of a tensor; NaN all alike.
std::vector<std::byte> bits_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  if (!is_float(t.dtype())) {
    t.copy_to(out.data(), t.dtype());
    return out;
  }
  const Tensor plain = where(isnan(t), 12345.0, t);
  plain.copy_to(out.data(), t.dtype());
  return out;
}

/// f under each mode gives the bits that the interpreter gives.
template <class F>
void expect_modes_agree(F f, const std::string& what) {
  std::vector<std::byte> want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = bits_of(f());
  }
  for (Mode mode : {Mode::Lazy, Mode::Eager}) {
    const testing::ModeScope scope(mode);
    ASSERT_EQ(bits_of(f()), want) << what;
  }
}

/// Bits of a tensor, those of NaN too.
std::vector<std::byte> exact_bits(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

TEST(Sort, OrdersNumbersNanLast) {
  in_every_mode([] {
    const Tensor x = Tensor({3.0f, kNan, -1.0f, kInf, -kInf, 3.0f, 0.0f});
    expect_equal<float>(sort(x), {-kInf, -1, 0, 3, 3, kInf, kNan});
    expect_equal<float>(sort(x, 0, true), {kNan, kInf, 3, 3, 0, -1, -kInf});
    expect_equal<std::int64_t>(argsort(x), {4, 2, 6, 0, 5, 3, 1});
    expect_equal<std::int64_t>(argsort(x, 0, true), {1, 3, 0, 5, 6, 2, 4});
  });
}

TEST(Sort, EqualElementsKeepTheirOrder) {
  in_every_mode([] {
    const Tensor zeros_mixed = Tensor({0.0f, -0.0f, 0.0f, -0.0f});
    expect_equal<std::int64_t>(argsort(zeros_mixed), {0, 1, 2, 3});
    expect_equal<std::int64_t>(argsort(zeros_mixed, 0, true), {0, 1, 2, 3});
    expect_equal<float>(sort(zeros_mixed), {-0.0f, -0.0f, 0.0f, 0.0f});
    expect_equal<std::int64_t>(argsort(Tensor({true, false, true, false}), 0, true), {0, 2, 1, 3});
  });
}

TEST(Sort, AgreesWithTheOracleOnEveryDtypeAxisAndLayout) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (bool descending : {false, true})
      for (int axis : {0, 1, 2}) {
        const auto what = cat(name(dtype), " axis ", axis, descending ? " descending" : "");
        expect_modes_agree([&] { return sort(values(dtype, {5, 41, 3}), axis, descending); }, what);
        expect_modes_agree([&] { return argsort(values(dtype, {5, 41, 3}), axis, descending); }, what);
      }
    const auto view = [&] { return values(dtype, {90, 7})(range(none, none, -2), range(1, none, 2)).T(); };
    expect_modes_agree([&] { return sort(view()); }, "a view");
    expect_modes_agree([&] { return argsort(view(), 0); }, "a view");
    expect_modes_agree([&] { return sort(broadcast_to(values(dtype, {4, 1}), {4, 9})); }, "a broadcast");
  }
}

/// Rows that are sorted side by side, of every length around the powers of two, in whole and cut tiles.
TEST(Sort, ManyShortRowsAgreeWithTheOracleOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (int d = 0; d < kDTypeCount; ++d) {
      const DType dtype = static_cast<DType>(d);
      for (const std::int64_t n :
           {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64, 100, 128, 200, 255, 256, 257, 521, 1023}) {
        const Tensor x = values(dtype, {67, n}, static_cast<std::uint64_t>(n));
        const auto what = cat(name(dtype), " rows of ", n, " on KILN_CPU=", target);
        const bool descending = n % 2;
        expect_modes_agree([&] { return sort(x, 1, descending); }, what);
        expect_modes_agree([&] { return argsort(x, 1, descending); }, what);
        expect_modes_agree([&] { return topk(x, (n + 2) / 3).values; }, what);
      }
      const Tensor box = values(dtype, {70, 5, 6});
      expect_modes_agree([&] { return sort(box, 1); }, cat(name(dtype), " a middle axis"));
      expect_modes_agree([&] { return argsort(box, 0); }, cat(name(dtype), " the first axis"));
      expect_modes_agree([&] { return sort(permute_dims(box, {2, 0, 1}), 2, true); }, "a permuted view");
      expect_modes_agree([&] { return sort(box(range(none, none, -2), range(1, none, 2)), 0); }, "a view");
    }
  }
}

/// Rows without NaN and -0, some of which have one of them, are compared as numbers where that is faster.
TEST(Sort, RowsOfNumbersAgreeWithTheOracleOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
      for (const std::int64_t n : {8, 9, 17, 64, 100}) {
        const Tensor place = arange(200 * n, DType::Int64), mixed = place * 7919 % 997;
        const Tensor some = (mixed.astype(DType::Float64) - 500) * (dtype == DType::Float16 ? 0.125 : 1e-38);
        const Tensor x = where(mixed == 3, kInf, where(mixed == 5, -kInf, some));
        const Tensor odd = where(place == 70 * n, kNan, where(place == 150 * n + 3, -0.0, x));
        const Tensor rows = odd.astype(dtype).reshape({200, n}).eval();
        const auto what = cat(name(dtype), " rows of ", n, " on KILN_CPU=", target);
        for (const bool descending : {false, true})
          expect_modes_agree([&] { return sort(rows, 1, descending); }, what);
        for (const std::int64_t kept : {2, 8})
          expect_modes_agree([&] { return topk(rows, kept).values; }, what);
      }
  }
}

/// Values that no cache holds are written past them, but for a last tile that is not full.
TEST(Sort, LargeResultsAreThoseOfSmallOnes) {
  const testing::ConfigScope scope("native");
  const std::int64_t rows = 33001, n = 70;
  const Tensor x = (arange(rows * n, DType::Int64) * 7919 % 99991).astype(DType::Float32).reshape({rows, n});
  const Tensor all = sort(x.eval(), 1).eval();
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{16}, rows / 2, rows - 20}) {
    const Tensor part = x(range(first, first + 20));
    EXPECT_TRUE(array_equal(all(range(first, first + 20)), sort(part.eval(), 1))) << first;
  }
}

/// Values alone are sorted without positions; zeros of both signs and NaN stay in the order of the row.
TEST(Sort, ValuesOfTopkKeepTheOrderOfZerosOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
      for (const std::int64_t n : {5, 40, 300, 3000}) {
        const Tensor place = arange(70 * n, DType::Int64);
        const Tensor sign = where(place * 7 % 11 < 5, -1.0f, 1.0f);
        const Tensor x = (where(place % 3 == 0, 0.0f,
                                where(place % 17 == 1, kNan, (place % 5 - 2).astype(DType::Float32))) *
                          sign)
                             .astype(dtype)
                             .reshape({70, n})
                             .eval();
        for (const std::int64_t kept : {std::int64_t{1}, std::min<std::int64_t>(n, 30)}) {
          const Tensor got = topk(x, kept).values, by_index = take_along_axis(x, topk(x, kept).indices, 1);
          EXPECT_TRUE(array_equal(got, by_index, true));
          EXPECT_TRUE(array_equal(signbit(got), signbit(by_index))) << name(dtype) << " rows of " << n;
        }
        expect_modes_agree([&] { return topk(permute_dims(x, {1, 0}), 3, 0).values; },
                           "along the first axis");
      }
  }
}

TEST(Sort, LongRowsAgreeWithTheOracle) {
  for (DType dtype :
       {DType::UInt8, DType::Int16, DType::Float16, DType::Float32, DType::Int64, DType::Float64}) {
    expect_modes_agree([&] { return sort(values(dtype, {200003})); }, std::string(name(dtype)));
    expect_modes_agree([&] { return argsort(values(dtype, {200003}), 0, true); }, std::string(name(dtype)));
    expect_modes_agree([&] { return sort(values(dtype, {3, 3001})); }, std::string(name(dtype)));
    expect_modes_agree([&] { return topk(values(dtype, {2, 5000}), 17).indices; }, std::string(name(dtype)));
  }
}

/// As many rows as make tiles for two threads, of lengths at which a network, blocks without anything to take
/// and partitions are chosen.
TEST(Sort, ManyLongRowsAgreeWithTheOracleOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    testing::ConfigScope scope(target);
    for (const DType dtype : {DType::UInt8, DType::Float16, DType::Float32, DType::Float64})
      for (const auto& [n, kept] :
           {std::pair<std::int64_t, std::int64_t>{1100, 300}, {2500, 50}, {4100, 5}}) {
        const Tensor x = values(dtype, {dtype == DType::UInt8 ? 131 : 67, n});
        const auto what = cat(name(dtype), " rows of ", n, " on KILN_CPU=", target);
        expect_modes_agree([&] { return sort(x, 1); }, what);
        expect_modes_agree([&] { return argsort(x, 1, true); }, what);
        expect_modes_agree([&] { return topk(x, kept).values; }, what);
        expect_modes_agree([&] { return topk(x, kept).indices; }, what);
      }
  }
}

/// Rows of 8-byte numbers that differ in more bits than positions leave: those that are alike in the other
/// bits are put in order afterwards. Each row has runs of such numbers, some of them equal.
TEST(Sort, WideNumbersThatDifferInTheirLastBitsOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (const std::int64_t n : {5, 100, 700, 3000}) {
      const Tensor place = arange(20 * n, DType::Int64).reshape({20, n}), near = place * 7919 % 31;
      const Tensor whole = (where(place % 3 == 0, std::numeric_limits<std::int64_t>::min(),
                                  where(place % 3 == 1, Tensor(std::int64_t{1} << 60), place * 0)) +
                            near)
                               .eval();
      const Tensor real = (where(place % 4 == 0, -1.0, where(place % 4 == 1, 1e-300, 1.0)) *
                           (1 + near.astype(DType::Float64) * std::numeric_limits<double>::epsilon()))
                              .eval();
      for (const Tensor& x : {whole, real})
        for (const std::int64_t kept : {n, (n + 2) / 3, std::int64_t{2}}) {
          const auto what = cat(name(x.dtype()), " ", kept, " of ", n, " on KILN_CPU=", target);
          expect_modes_agree([&] { return topk(x, kept, 1, false).indices; }, what);
          expect_modes_agree([&] { return topk(x, kept).indices; }, what);
          expect_modes_agree([&] { return topk(x.T(), kept, 0).indices; }, what);
        }
    }
  }
}

/// Threads sort parts of a row and merge them, in any number.
TEST(Sort, AnyNumberOfThreadsSortsARow) {
  for (const int threads : {1, 2, 3, 5, 8}) {
    const Config before = config();
    Config c = before;
    c.num_threads = threads;
    configure(c);
    for (const DType dtype : {DType::Float16, DType::Float32, DType::Float64}) {
      const Tensor x = values(dtype, {150001});
      expect_modes_agree([&] { return sort(x); }, cat(name(dtype), ", ", threads, " threads"));
      expect_modes_agree([&] { return argsort(x, 0, true); }, cat(name(dtype), ", ", threads, " threads"));
    }
    configure(before);
  }
}

TEST(Sort, EmptyAndShortAxes) {
  in_every_mode([] {
    EXPECT_EQ(sort(zeros({3, 0})).shape().str(), "(3, 0)");
    EXPECT_EQ(argsort(zeros({0, 3}), 1).shape().str(), "(0, 3)");
    expect_equal<float>(sort(Tensor({2.0f})), {2});
    expect_equal<float>(sort(counting({4, 1}), 1), {4, 1}, {0, 1, 2, 3});
  });
}

TEST(Sort, IsOneStepAndNeighboursFuseUpToIt) {
  const Tensor x = test::data({1000});
  const auto counted = test::count([&] { (sort(exp(x) * 2) + 1).eval(); });
  EXPECT_EQ(counted.launches, 2u);
  EXPECT_EQ(counted.library_calls, 1u);
  const auto again = test::count([&] { (sort(exp(x) * 2) + 1).eval(); });
  EXPECT_EQ(again.plan_misses, 0u);
}

TEST(Sort, WithIndicesGivesValuesAndTheirPositions) {
  in_every_mode([] {
    const Tensor x = Tensor({3.0f, kNan, -1.0f, 0.0f, -0.0f, 3.0f});
    const Sorted up = sort_with_indices(x), down = sort_with_indices(x, 0, true);
    expect_equal<float>(up.values, {-1, 0, -0.0f, 3, 3, kNan});  // equal elements in their order
    expect_equal<std::int64_t>(up.indices, {2, 3, 4, 0, 5, 1});
    expect_equal<float>(down.values, {kNan, 3, 3, 0, -0.0f, -1});
    expect_equal<std::int64_t>(down.indices, {1, 0, 5, 3, 4, 2});
    const Sorted rows = sort_with_indices(Tensor::from(std::vector<int>{4, 2, 1, 3}, {2, 2}), 0);
    expect_equal<int>(rows.values, {2, 2}, {1, 2, 4, 3});
    expect_equal<std::int64_t>(rows.indices, {2, 2}, {1, 0, 0, 1});
    EXPECT_EQ(sort_with_indices(zeros({3, 0})).indices.shape().str(), "(3, 0)");
  });
  expect_user_error([] { sort_with_indices(Tensor(1.f)); },
                    "[sort_with_indices] axis -1 is out of range for float32 ()");
}

/// Values have the bits of x, whichever results are asked for.
TEST(Sort, WithIndicesAgreesWithTheOracleOnEveryDtypeAndLayout) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    SCOPED_TRACE(name(dtype));
    for (const std::int64_t n : {1, 9, 300}) {
      const Tensor x = values(dtype, {3, n, 5});
      for (const Tensor& v : {x, flip(moveaxis(x, 1, 2), 1)}) {
        const int axis = v.dim(1) == n ? 1 : 2;
        for (const bool descending : {false, true})
          for (const std::int64_t k : {n, std::min<std::int64_t>(n, 3)}) {
            const auto made = [&] { return topk(v, k, axis, descending); };
            std::vector<std::byte> values_wanted;
            Ints positions_wanted;
            {
              const testing::ModeScope scope(Mode::Interpret);
              const TopK want = made();
              values_wanted = exact_bits(want.values);
              positions_wanted = want.indices.to_vector<std::int64_t>();
            }
            const TopK both = made();
            eval({both.values, both.indices});
            EXPECT_EQ(exact_bits(both.values), values_wanted);
            EXPECT_EQ(both.indices.to_vector<std::int64_t>(), positions_wanted);
            EXPECT_EQ(exact_bits(made().values), values_wanted);
            EXPECT_EQ(made().indices.to_vector<std::int64_t>(), positions_wanted);
          }
      }
    }
  }
}

TEST(Sort, WithIndicesRunsOnceForBothResults) {
  const Tensor x = counting({4, 50});
  const auto ran = [](auto f) { return test::count(f); };
  const auto both = ran([&] {
    const Sorted s = sort_with_indices(x + 1);
    eval({s.values, s.indices});
  });
  EXPECT_EQ(both.library_calls, 1u);
  EXPECT_EQ(both.launches, 1u);   // x + 1
  const auto in_turn = ran([&] {  // what a handle holds is computed with the other
    const Sorted s = sort_with_indices(x);
    EXPECT_EQ(sum(s.values).item<float>(), 199.f * 100);
    EXPECT_EQ(sum(s.indices).item<std::int64_t>(), 4 * 49 * 25);
  });
  EXPECT_EQ(in_turn.library_calls, 1u);
  const auto positions_first = ran([&] {  // values are taken from x at positions in memory
    const Sorted s = sort_with_indices(x);
    EXPECT_EQ(s.indices(3, 7).item<std::int64_t>(), 7);
    EXPECT_EQ(s.values(3, 7).item<float>(), 157);
  });
  EXPECT_EQ(positions_first.library_calls, 1u);
  const auto twice = ran([&] {  // the same sort is recorded twice
    const Tensor y = sort_with_indices(x).values, z = astype(sort_with_indices(x).indices, DType::Float32);
    EXPECT_EQ(sum(y + z).item<float>(), 199.f * 100 + 4 * 49 * 25);
  });
  EXPECT_EQ(twice.library_calls, 1u);
  const auto fused = ran([&] {
    const TopK top = topk(x * 2, 3);
    EXPECT_EQ(sum(top.values * 2 + top.indices).item<float>(), 6480.f);
  });
  EXPECT_EQ(fused.library_calls, 1u);
  EXPECT_LE(fused.launches, 2u);
}

TEST(Sort, WithIndicesOfOneLongRow) {
  const Tensor x = values(DType::Float32, {200000}), k = values(DType::Int64, {70000});
  for (const Tensor& v : {x, k}) {
    const Sorted s = sort_with_indices(v);
    EXPECT_EQ(exact_bits(s.values), exact_bits(take(v, argsort(v), 0)));
    const TopK top = topk(v, 100);
    EXPECT_EQ(exact_bits(top.values), exact_bits(take(v, argsort(v, 0, true), 0)(range(0, 100))));
  }
}

TEST(Sort, WithIndicesInsideALoop) {
  const Tensor x = counting({6}) * -1.0;
  const Tensors last =
      while_loop([](const Tensors& s) { return s[1] < 3; },
                 [](const Tensors& s) {
                   const Sorted up = sort_with_indices(s[0]);
                   return Tensors{up.values * 0.5 - astype(up.indices, DType::Float32), s[1] + 1};
                 },
                 {x, Tensor(0)});
  Tensor y = x;
  for (int i = 0; i < 3; ++i) {
    const Tensor order = argsort(y);
    y = take(y, order, 0) * 0.5 - astype(order, DType::Float32);
  }
  EXPECT_EQ(last[0].to_vector<float>(), y.to_vector<float>());
}

TEST(TopK, GivesTheFirstKAndTheirPositions) {
  in_every_mode([] {
    const Tensor x = Tensor::from(std::vector<float>{3, 1, 2, 9, 7, 9}, {2, 3});
    const TopK most = topk(x, 2), least = topk(x, 1, 0, false);
    expect_equal<float>(most.values, {2, 2}, {3, 2, 9, 9});
    expect_equal<std::int64_t>(most.indices, {2, 2}, {0, 2, 0, 2});
    expect_equal<float>(least.values, {1, 3}, {3, 1, 2});
    expect_equal<std::int64_t>(least.indices, {1, 3}, {0, 0, 0});
    EXPECT_EQ(topk(x, 0).values.shape().str(), "(2, 0)");
  });
}

TEST(TopK, OfManyEqualElementsTakesThemInTheirOrder) {
  for (const std::int64_t n : {6000, 200000})
    for (const std::int64_t k : {300, 700, 2900})
      expect_modes_agree([&] { return topk(values(DType::Float32, {n}), k).indices; }, cat(k, " of ", n));
}

/// Few elements of long rows are selected by blocks, of which most have nothing to take.
TEST(TopK, OfFewElementsOfLongRowsOnEveryTarget) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (const DType dtype : {DType::UInt8, DType::Int16, DType::Float16, DType::BFloat16, DType::Float32,
                              DType::Int64, DType::Float64})
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{513, 2}, {2100, 1}, {2100, 20}}) {
        const std::string what = cat(name(dtype), " ", k, " of ", n);
        const Tensor x = values(dtype, {3, n});
        expect_modes_agree([&] { return topk(x, k).values; }, what);
        expect_modes_agree([&] { return topk(x, k, 1, false).indices; }, what);
      }
    // ascending rows, in which each block has something to take, and equal ones, of which none has
    const Tensor ascending = arange(5 * 3000, DType::Int64).astype(DType::Float32).reshape({5, 3000}).eval();
    expect_modes_agree([&] { return topk(ascending, 3).indices; }, "ascending");
    expect_modes_agree([&] { return topk(ascending * 0 + kNan, 3).indices; }, "NaN alone");
    expect_modes_agree([&] { return topk(ascending(range(none, none), range(none, none, 2)), 3).values; },
                       "a view");
  }
}

TEST(SearchSorted, FindsPlacesOnBothSides) {
  in_every_mode([] {
    const Tensor edges = Tensor({1.0f, 2.0f, 2.0f, 5.0f});
    const Tensor v = Tensor::from(std::vector<float>{0, 1, 2, 3, 5, 6, kNan, -kInf}, {2, 4});
    expect_equal<std::int64_t>(searchsorted(edges, v), {2, 4}, {0, 0, 1, 3, 3, 4, 4, 0});
    expect_equal<std::int64_t>(searchsorted(edges, v, true), {2, 4}, {0, 1, 3, 3, 4, 4, 4, 0});
    expect_equal<std::int64_t>(searchsorted(zeros({0}), Tensor({1.0f})), {0});
    // Dtypes promote: 2 in int32 stands among floats.
    expect_equal<std::int64_t>(searchsorted(edges, Tensor({2}), true), {3});
  });
}

TEST(SearchSorted, AgreesWithTheOracleOnEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (bool right : {false, true})
      expect_modes_agree(
          [&] { return searchsorted(sort(values(dtype, {57})), values(dtype, {6, 11}, 5).T(), right); },
          std::string(name(dtype)));
  }
}

TEST(NonZero, GivesCoordinatesInOrder) {
  in_every_mode([] {
    const Tensor x = Tensor::from(std::vector<float>{0, 1, 0, kNan, 0, -2}, {2, 3});
    const std::vector<Tensor> at = nonzero(x);
    ASSERT_EQ(at.size(), 2u);
    expect_equal<std::int64_t>(at[0], {0, 1, 1});
    expect_equal<std::int64_t>(at[1], {1, 0, 2});
    EXPECT_EQ(nonzero(zeros({4}))[0].numel(), 0);
    EXPECT_EQ(nonzero(zeros({0, 4}))[1].numel(), 0);
  });
}

TEST(NonZero, FindsAllOfALongMask) {
  const std::int64_t n = 300001;
  const Tensor mask = arange(n) % 7 == 3;
  const Ints at = nonzero(mask)[0].to_vector<std::int64_t>();
  ASSERT_EQ(at.size(), static_cast<std::size_t>((n - 4) / 7 + 1));
  for (std::size_t i = 0; i < at.size(); ++i) ASSERT_EQ(at[i], static_cast<std::int64_t>(7 * i + 3));
}

TEST(Compress, SelectsWhereTheMaskIsTrue) {
  in_every_mode([] {
    const Tensor x = counting({3, 2});
    expect_equal<float>(compress(x, x > 2), {3, 4, 5});
    expect_equal<float>(compress(x, Tensor({true, false, true})), {2, 2}, {0, 1, 4, 5});
    expect_equal<float>(compress(x, Tensor({false, false, false})), {0, 2}, {});
    expect_equal<float>(compress(x, Tensor(true)), {1, 3, 2}, {0, 1, 2, 3, 4, 5});
    EXPECT_EQ(compress(zeros({0, 3}), zeros({0}, DType::Bool)).shape().str(), "(0, 3)");
  });
}

TEST(Compress, EvaluatesTheMaskAlone) {
  const Tensor x = exp(test::data({100}));
  const Tensor chosen = compress(x, test::data({100}) > 0);
  EXPECT_FALSE(x.evaluated());
  EXPECT_FALSE(chosen.evaluated());
}

TEST(Unique, GivesValuesPlacesAndCounts) {
  in_every_mode([] {
    const Tensor x = Tensor::from(std::vector<int>{3, 1, 3, 2, 1, 3}, {2, 3});
    const Unique u = unique_all(x);
    expect_equal<int>(u.values, {1, 2, 3});
    expect_equal<std::int64_t>(u.indices, {1, 3, 0});
    expect_equal<std::int64_t>(u.inverse, {2, 3}, {2, 0, 2, 1, 0, 2});
    expect_equal<std::int64_t>(u.counts, {2, 1, 3});
    expect_equal<int>(unique(x), {1, 2, 3});
    expect_equal<float>(unique(Tensor({kNan, 1.0f, kNan, 0.0f, -0.0f})), {0, 1, kNan, kNan});
    expect_equal<bool>(unique(Tensor({true, true})), {true});
    const Unique none = unique_all(zeros({0, 2}));
    EXPECT_EQ(none.values.shape().str(), "(0,)");
    EXPECT_EQ(none.inverse.shape().str(), "(0, 2)");
    EXPECT_EQ(none.counts.numel(), 0);
  });
}

TEST(Sort, ErrorsSayWhatIsWrong) {
  const Tensor x = zeros({2, 3});
  expect_user_error([&] { sort(x, 2); }, "[sort] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { argsort(Tensor(1.0f)); }, "[argsort] axis -1 is out of range for float32 ()");
  expect_user_error([&] { topk(x, 4); }, "[topk] 4 elements along axis -1 of float32 (2, 3)");
  expect_user_error([&] { topk(x, -1); }, "[topk] -1 elements along axis -1 of float32 (2, 3)");
  expect_user_error([&] { searchsorted(x, x); }, "[searchsorted] searches one axis, got float32 (2, 3)");
  expect_user_error([&] { nonzero(Tensor(1.0f)); }, "[nonzero] needs an axis, got float32 ()");
  expect_user_error([&] { compress(x, x); },
                    "[compress] needs a bool mask over leading axes: x float32 (2, 3), mask float32 (2, 3)");
  expect_user_error([&] { compress(x, Tensor({true})); },
                    "[compress] needs a bool mask over leading axes: x float32 (2, 3), mask bool (1,)");
  expect_user_error([&] { sort(Tensor{}); }, "[sort] an operand is an empty Tensor");
}

}  // namespace
}  // namespace kiln
