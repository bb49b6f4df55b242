// The reference column of ops.def: what each operation means, written for one element with the C library in
// double. Shares no code with lower/math.h, so that either can prove the other wrong.
#pragma once

#include <kiln/dtype.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace kiln::ir::ref {

/// The type a storage type is computed in: double for every float, itself otherwise.
template <class S>
using Compute = std::conditional_t<std::is_integral_v<S>, S, double>;

/// double -> a narrower float than float32, with one rounding: through a float rounded to odd, which keeps
/// the sticky bit.
template <class H>
H to_half(double value) {
  float f = static_cast<float>(value);
  if (static_cast<double>(f) != value && value == value && std::isfinite(f) &&
      (std::bit_cast<std::uint32_t>(f) & 1u) == 0)
    f = std::nextafter(f, static_cast<double>(f) < value ? HUGE_VALF : -HUGE_VALF);
  return H(f);
}

/// The value of an 8-bit float H with these bits, and the bits of the H nearest to a value.
template <class H, class T>
float from_float8(T bits) {
  H h;
  h.bits = static_cast<std::uint8_t>(bits);
  return h;
}
template <class H, class T>
std::uint8_t to_float8(T value) {
  return to_half<H>(static_cast<double>(value)).bits;
}

/// Value conversion (array API astype): float to integer truncates, saturates, NaN gives 0; integers wrap;
/// anything to bool is x != 0.
template <class To, class From>
To cast(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (is_storage_float<From>) {
    return cast<To>(static_cast<double>(static_cast<float>(from)));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (is_storage_float<To>) {
    return to_half<To>(static_cast<double>(from));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    const double v = static_cast<double>(from);
    if (v != v) return 0;
    constexpr int digits = std::numeric_limits<To>::digits;
    const double above = std::ldexp(1.0, digits);  // the first value that does not fit
    if (v >= above) return std::numeric_limits<To>::max();
    if (v <= (std::is_signed_v<To> ? -above : 0.0)) return std::numeric_limits<To>::min();
    return static_cast<To>(v);
  } else {
    return static_cast<To>(from);
  }
}

// Integer arithmetic goes through uint64_t: it wraps, and small types cannot overflow int on the way.
template <std::integral T>
T wrap(std::uint64_t v) {
  return static_cast<T>(v);
}
template <std::integral T>
std::uint64_t word(T v) {
  return static_cast<std::uint64_t>(v);
}

inline double add(double x, double y) { return x + y; }
inline double subtract(double x, double y) { return x - y; }
inline double multiply(double x, double y) { return x * y; }
inline double negative(double x) { return -x; }
inline double abs(double x) { return std::fabs(x); }
template <std::integral T>
T add(T x, T y) {
  return wrap<T>(word(x) + word(y));
}
template <std::integral T>
T subtract(T x, T y) {
  return wrap<T>(word(x) - word(y));
}
template <std::integral T>
T multiply(T x, T y) {
  return wrap<T>(word(x) * word(y));
}
template <std::integral T>
T negative(T x) {
  return wrap<T>(0 - word(x));
}
template <std::integral T>
T abs(T x) {
  return x < 0 ? negative(x) : x;
}

template <std::integral T>
T fmod(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (y == -1) return 0;  // MIN % -1 traps on x86
  return static_cast<T>(x % y);
}
template <std::integral T>
T remainder(T x, T y) {
  const T r = fmod(x, y);
  return r != 0 && ((r < 0) != (y < 0)) ? static_cast<T>(r + y) : r;
}
template <std::integral T>
T floor_divide(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (y == -1) return negative(x);
  const T q = static_cast<T>(x / y);
  return x % y != 0 && ((x < 0) != (y < 0)) ? static_cast<T>(q - 1) : q;
}
inline double fmod(double x, double y) { return std::fmod(x, y); }
inline double remainder(double x, double y) {  // CPython's float_rem
  const double r = std::fmod(x, y);
  if (r != r) return r;
  if (r == 0) return std::copysign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
inline double floor_divide(double x, double y) {  // CPython's float_floor_div; by zero as numpy: x / 0
  if (y == 0) return x / y;
  const double r = std::fmod(x, y);
  double quotient = (x - r) / y;
  if (r != 0 && ((r < 0) != (y < 0))) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, x / y);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1.0 : down;
}

template <std::integral T>
T multiply_high(T x, T y) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>((Wide{x} * Wide{y}) >> (8 * sizeof(T)));
}

/// The four words of a Philox 4x32-10 block: counter (low, high, 0, 0), key (low, high).
struct PhiloxBlock {
  std::uint32_t word[4];
};
inline PhiloxBlock philox(const PhiloxBlock& counter, std::uint64_t key) {
  PhiloxBlock c = counter;
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c.word[0], b = std::uint64_t{0xCD9E8D57} * c.word[2];
    c = {{static_cast<std::uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}
inline PhiloxBlock philox_at(std::uint64_t block, std::uint64_t key) {
  return philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}}, key);
}
inline std::uint32_t philox_word(std::uint64_t index, std::uint64_t key) {
  return philox_at(index >> 2, key).word[index & 3];
}
inline std::uint64_t philox_pair(std::uint64_t index, std::uint64_t key) {
  const PhiloxBlock b = philox_at(index >> 1, key);
  return b.word[2 * (index & 1)] | std::uint64_t{b.word[2 * (index & 1) + 1]} << 32;
}
inline std::uint64_t philox_child(std::uint64_t number, std::uint64_t key, std::uint64_t purpose) {
  const PhiloxBlock b = philox({{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                                 static_cast<std::uint32_t>(purpose), 0}},
                               key);
  return b.word[0] | std::uint64_t{b.word[1]} << 32;
}

inline double pow(double x, double y) { return std::pow(x, y); }
template <std::integral T>
T pow(T x, T y) {
  if (y < 0) {
    if (x == 1) return 1;
    if (x == static_cast<T>(-1)) return (y & 1) ? x : T(1);
    return 0;
  }
  std::uint64_t result = 1, base = word(x);
  for (std::uint64_t n = word(y); n != 0; n >>= 1, base *= base)
    if (n & 1) result *= base;
  return wrap<T>(result);
}

template <class T>
T sign(T x) {
  if (x > 0) return 1;
  if (x == 0) return 0;
  if constexpr (std::is_floating_point_v<T>)
    return x != x ? x : -1;
  else
    return static_cast<T>(-1);
}
template <class T>
T maximum(T x, T y) {
  if (x != x) return x;
  return x > y ? x : y;  // y when it is NaN, and when they are equal
}
template <class T>
T minimum(T x, T y) {
  if (x != x) return x;
  return x < y ? x : y;
}
template <class T>
T relu(T x) {
  return x < 0 ? T(0) : x;
}

/// The neighbour of x toward y among the values of S.
template <class S>
double nextafter(double x, double y) {
  if constexpr (std::is_same_v<S, double>) {
    return std::nextafter(x, y);
  } else if constexpr (std::is_same_v<S, float>) {
    return std::nextafter(static_cast<float>(x), static_cast<float>(y));
  } else {
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    S h(static_cast<float>(x));
    if (x == 0) {
      h.bits = static_cast<std::uint16_t>(y < 0 ? 0x8001u : 1u);
    } else if ((x < y) == (x > 0)) {
      ++h.bits;  // away from zero
    } else {
      --h.bits;
    }
    return static_cast<float>(h);
  }
}

// Compositions go through long double: in double, e^x of a rounded x would be the oracle's own error (tens of
// ulp in the tails of float64 gelu).
inline long double logaddexp_wide(long double x, long double y) {
  if (x == y) return x + 0.693147180559945309417L;  // covers equal infinities
  if (x != x || y != y) return x + y;
  const long double high = x > y ? x : y, low = x > y ? y : x;
  return high + std::log1p(std::exp(low - high));
}
inline double logaddexp(double x, double y) { return static_cast<double>(logaddexp_wide(x, y)); }
inline long double sigmoid_wide(long double x) { return 1.0L / (1.0L + std::exp(-x)); }
inline double sigmoid(double x) { return static_cast<double>(sigmoid_wide(x)); }
inline double selu(double x) {
  constexpr long double kScale = 1.0507009873554804934193349852946L,
                        kAlpha = 1.6732632423543772848170429916717L;
  return static_cast<double>(
      kScale * (x > 0 ? static_cast<long double>(x) : kAlpha * std::expm1(static_cast<long double>(x))));
}
inline double silu(double x) { return x == -HUGE_VAL ? -0.0 : static_cast<double>(x * sigmoid_wide(x)); }
inline double gelu(double x) {
  constexpr long double kHalfRoot = 0.707106781186547524400844362105L;
  return x == -HUGE_VAL ? -0.0 : static_cast<double>(0.5L * x * std::erfc(-x * kHalfRoot));
}
inline double gelu_tanh(double x) {
  // x/2 (1 + tanh u) = x sigmoid(2u), which keeps the tail's relative accuracy.
  const long double v = x, u = 0.797884560802865355879892119869L * (v + 0.044715L * v * v * v);
  return x == -HUGE_VAL ? -0.0 : static_cast<double>(v * sigmoid_wide(2 * u));
}
inline long double softplus_wide(long double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
inline double softplus(double x) { return static_cast<double>(softplus_wide(x)); }
inline double mish(double x) {
  return x == -HUGE_VAL ? -0.0 : static_cast<double>(x * std::tanh(softplus_wide(x)));
}
inline double hardswish(double x) { return x * (minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0); }

/// Newton's method, in the middle on erf and in the tails on the logarithm of erfc, which is concave.
inline double ndtri(double p) {
  constexpr long double kRoot2 = 1.41421356237309504880168872421L, kRootPi = 1.77245385090551602729816748334L;
  if (!(p >= 0 && p <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (p == 0 || p == 1) return p == 0 ? -HUGE_VAL : HUGE_VAL;
  const long double middle = static_cast<long double>(p) - 0.5L;
  long double z = 0;  // erf(z) = 2p - 1; the result is z root 2
  if (std::fabs(middle) < 0.25L) {
    for (int i = 0; i < 8; ++i) z += (2 * middle - std::erf(z)) * kRootPi / 2 * std::exp(z * z);
    return static_cast<double>(z * kRoot2);
  }
  const long double tail = middle < 0 ? static_cast<long double>(p) : 0.5L - middle;  // exact
  const long double log_tail = std::log(2 * tail);
  z = std::sqrt(-log_tail);  // erfc(z) <= e^-z^2: from above no step goes too far
  for (int i = 0; i < 30; ++i) {
    const long double q = std::erfc(z);
    z += (std::log(q) - log_tail) * q * kRootPi / 2 * std::exp(z * z);
  }
  return static_cast<double>(middle < 0 ? -z * kRoot2 : z * kRoot2);
}

/// Euler's reflection where x is negative, the recurrence up to 20, from there on the asymptotic series.
inline double digamma(double x) {
  if (x == 0) return std::signbit(x) ? HUGE_VAL : -HUGE_VAL;
  if (x < 0 && std::floor(x) == x) return std::numeric_limits<double>::quiet_NaN();
  constexpr long double kPi = 3.14159265358979323846264338328L;
  long double y = x, sum = 0;
  if (x < 0) {
    sum = -kPi / std::tan(kPi * (y - std::nearbyint(y)));
    y = 1 - y;
  }
  for (; y < 20; ++y) sum -= 1 / y;
  // B_2k / (2 k), k = 1, 2, ...
  constexpr long double kTerms[] = {1 / 12.0L,   -1 / 120.0L,     1 / 252.0L,
                                    -1 / 240.0L, 1 / 132.0L,      -691 / 32760.0L,
                                    1 / 12.0L,   -3617 / 8160.0L, 43867 / 14364.0L};
  long double power = 1, series = 0;
  for (const long double term : kTerms) series += term * (power /= y * y);
  return static_cast<double>(sum + (std::log(y) - 1 / (2 * y) - series));
}

template <std::integral T>
T bit_and(T x, T y) {
  return static_cast<T>(x & y);
}
template <std::integral T>
T bit_or(T x, T y) {
  return static_cast<T>(x | y);
}
template <std::integral T>
T bit_xor(T x, T y) {
  return static_cast<T>(x ^ y);
}
template <std::integral T>
T bit_not(T x) {
  if constexpr (std::is_same_v<T, bool>)
    return !x;
  else
    return static_cast<T>(~x);
}
template <std::integral T>
bool shift_in_range(T y) {
  return y >= 0 && word(y) < 8 * sizeof(T);
}
template <std::integral T>
T shift_left(T x, T y) {
  return shift_in_range(y) ? wrap<T>(word(x) << y) : T(0);
}
template <std::integral T>
T shift_right(T x, T y) {
  if (!shift_in_range(y)) return x < 0 ? static_cast<T>(-1) : T(0);
  return static_cast<T>(x >> y);
}

}  // namespace kiln::ir::ref
