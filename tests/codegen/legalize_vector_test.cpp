// Integer division on vectors goes through floating point: every operand pair of 8 bits, and for 16 and 32
// bits the pairs next to whole quotients, give what prims.def says, on every instruction set.
#include "codegen/on_target.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace kiln {
namespace {

using testing::ConfigScope;

struct Results {
  std::int64_t floor, remainder, fmod;
};

template <class T>
Results expected(T x, T y) {
  if (y == 0) return {0, 0, 0};
  const std::int64_t a = x, b = y, q = a / b, r = a % b;
  const bool down = r != 0 && (r < 0) != (b < 0);
  return {static_cast<T>(down ? q - 1 : q), down ? r + b : r, r};
}

template <class T>
void check(const std::vector<T>& x, const std::vector<T>& y, const Tensor& a, const Tensor& b,
           const std::string& what) {
  const Tensor quotient = floor_divide(a, b), rest = remainder(a, b), truncated = fmod(a, b);
  eval({quotient, rest, truncated});
  const std::vector<T> q = quotient.to_vector<T>(), r = rest.to_vector<T>(), f = truncated.to_vector<T>();
  int shown = 0;
  for (std::size_t i = 0; i < q.size() && shown < 5; ++i) {
    const T u = x[i % x.size()], v = y[y.size() == q.size() ? i : i / x.size()];
    const Results want = expected(u, v);
    if (q[i] == static_cast<T>(want.floor) && r[i] == static_cast<T>(want.remainder) &&
        f[i] == static_cast<T>(want.fmod))
      continue;
    ++shown;
    ADD_FAILURE() << name(dtype_of<T>) << ' ' << what << ": " << +u << " by " << +v << " gives " << +q[i]
                  << ", " << +r[i] << ", " << +f[i] << "; expected " << want.floor << ", " << want.remainder
                  << ", " << want.fmod;
  }
}

/// Divisors in a column, so that a row has one; then the same pairs written out.
template <class T>
void check_table(const std::vector<T>& x, const std::vector<T>& y) {
  const Shape row{1, static_cast<std::int64_t>(x.size())}, column{static_cast<std::int64_t>(y.size()), 1};
  const Shape both{column[0], row[1]};
  const Tensor a = Tensor::copy_of(x.data(), row, dtype_of<T>),
               b = Tensor::copy_of(y.data(), column, dtype_of<T>);
  check(x, y, a, b, "one divisor a row");
  std::vector<T> xs, ys;
  for (const T d : y)
    for (const T n : x) xs.push_back(n), ys.push_back(d);
  const Tensor all_a = Tensor::copy_of(xs.data(), both, dtype_of<T>),
               all_b = Tensor::copy_of(ys.data(), both, dtype_of<T>);
  check(xs, ys, all_a, all_b, "pairs");
}

template <class T>
std::vector<T> edges() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> out;
  for (int k = -3; k <= 3; ++k)
    for (T base : {T(0), Limits::min(), Limits::max(), T(Limits::max() / 2), T(Limits::max() / 3)})
      out.push_back(static_cast<T>(static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(k)));
  return out;
}

/// Random of every magnitude.
template <class T>
T any(std::mt19937_64& rng) {
  const int digits = std::numeric_limits<std::make_unsigned_t<T>>::digits;
  const auto bits =
      static_cast<std::make_unsigned_t<T>>(static_cast<std::make_unsigned_t<T>>(rng()) >> rng() % digits);
  return static_cast<T>(rng() & 1 ? 0 - bits : bits);
}

template <class T>
void check_type() {
  std::vector<T> x = edges<T>(), y = edges<T>();
  if constexpr (sizeof(T) == 1) {
    x.clear();
    for (int i = 0; i < 256; ++i) x.push_back(static_cast<T>(i));
    y = x;
    check_table(x, y);
  } else {
    std::mt19937_64 rng(sizeof(T));
    while (x.size() < 1003) x.push_back(any<T>(rng));
    while (y.size() < 99) y.push_back(any<T>(rng));
    check_table(x, y);
    // Dividends on and beside multiples of their divisor.
    std::vector<T> near, by;
    while (near.size() < 100001) {
      const T d = any<T>(rng), times = any<T>(rng);
      near.push_back(
          static_cast<T>(static_cast<std::uint64_t>(d) * static_cast<std::uint64_t>(times) + rng() % 3 - 1));
      by.push_back(d);
    }
    const Shape flat{static_cast<std::int64_t>(near.size())};
    check(near, by, Tensor::copy_of(near.data(), flat, dtype_of<T>),
          Tensor::copy_of(by.data(), flat, dtype_of<T>), "beside multiples");
    for (const T d : y) {
      std::vector<T> multiples;
      const auto wide = static_cast<std::uint64_t>(d);  // which wraps
      const auto most =
          static_cast<std::uint64_t>(std::numeric_limits<T>::max() / (d == 0 ? T(1) : d)) * wide;
      for (int k = -500; k <= 500; ++k)
        multiples.push_back(static_cast<T>(most + wide * static_cast<std::uint64_t>(k / 3) +
                                           static_cast<std::uint64_t>(k % 3)));
      const Shape shape{static_cast<std::int64_t>(multiples.size())};
      check(multiples, {d}, Tensor::copy_of(multiples.data(), shape, dtype_of<T>), full({1}, d, dtype_of<T>),
            "one divisor");
    }
  }
  // A divisor the compiler knows.
  for (const T d : {T(0), T(1), T(-1), T(7), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
    const std::vector<T> q =
        floor_divide(Tensor::copy_of(x.data(), Shape{static_cast<std::int64_t>(x.size())}, dtype_of<T>), d)
            .template to_vector<T>();
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(+q[i], +static_cast<T>(expected(x[i], d).floor)) << +x[i] << " // " << +d;
  }
}

TEST(LegalizeVector, IntegerDivisionIsExact) {
  for (const std::string& target : testing::cpu_targets()) {
    SCOPED_TRACE("KILN_CPU=" + target);
    const ConfigScope scope(target);
    check_type<std::int8_t>();
    check_type<std::uint8_t>();
    check_type<std::int16_t>();
    check_type<std::uint16_t>();
    check_type<std::int32_t>();
    check_type<std::uint32_t>();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace kiln
