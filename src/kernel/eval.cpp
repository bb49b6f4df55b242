// The meaning of every primitive, once, as scalar C++ (`apply`, `convert`), and the three ways to use it:
// eval_prim on bits, evaluate over a DAG, BlockProgram over arrays.
//
// Host arithmetic must be IEEE: this file is compiled with -ffp-contract=off and without fast-math.
#include "kernel/eval.h"

#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace kiln::kernel {
namespace {

template <class T>
inline constexpr bool is_half_v = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool is_fp_v = std::is_floating_point_v<T> || is_half_v<T>;

template <class T>
T from_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else {
    T value;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
  }
}

template <class T>
std::uint64_t to_bits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// ---- conversions ----

/// `value` as a float whose last bit is sticky (round to odd), so that a second rounding to a half type is
/// right.
template <class From>
float to_float_odd(From value) {
  const float f = static_cast<float>(value);
  bool exact, below;
  if constexpr (std::is_same_v<From, double>) {
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) return f;
    exact = static_cast<double>(f) == value;
    below = static_cast<double>(f) < value;
  } else {
    exact = static_cast<__int128>(f) == static_cast<__int128>(value);
    below = static_cast<__int128>(f) < static_cast<__int128>(value);
  }
  if (exact || (std::bit_cast<std::uint32_t>(f) & 1)) return f;
  const float inf = std::numeric_limits<float>::infinity();
  return std::nextafter(f, below ? inf : -inf);
}

template <class To, class From>
To saturate(From value) {
  if (value != value) return To{0};
  constexpr To lo = std::numeric_limits<To>::min(), hi = std::numeric_limits<To>::max();
  // 2^digits is exact in both float types; `hi` need not be.
  const From bound = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (value >= bound) return hi;
  if (value <= static_cast<From>(lo)) return lo;
  return static_cast<To>(value);
}

template <class To, class From>
To convert(From value) {
  if constexpr (is_half_v<From>) {
    if constexpr (std::is_same_v<To, From>)
      return value;
    else
      return convert<To, float>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (is_half_v<To>) {
    if constexpr (std::is_same_v<From, float>)
      return To(value);
    else if constexpr (std::is_same_v<From, bool>)
      return To(value ? 1.0f : 0.0f);
    else
      return To(to_float_odd(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// ---- one primitive on values ----

constexpr bool is_compare(Prim p) { return p == Prim::Eq || p == Prim::Ne || p == Prim::Lt || p == Prim::Le; }

template <Prim P, class T>
bool compare(T a, T b) {
  if constexpr (P == Prim::Eq) return a == b;
  if constexpr (P == Prim::Ne) return a != b;
  if constexpr (P == Prim::Lt) return a < b;
  if constexpr (P == Prim::Le) return a <= b;
}

/// Whether `apply<P, T>` has a meaning.
template <Prim P, class T>
constexpr bool applies() {
  constexpr bool fp = is_fp_v<T>;
  switch (P) {
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Running:
    case Prim::Before:
    case Prim::Earlier:
    case Prim::Later:
    case Prim::Load:
    case Prim::Cast:
    case Prim::CastInRange:
    case Prim::Bitcast:
    case Prim::Call1:
    case Prim::Call2:
    case Prim::Native:
    case Prim::Select:
    case Prim::Philox:
    case Prim::Eq:
    case Prim::Ne:
    case Prim::Lt:
    case Prim::Le: return false;
    case Prim::Neg:
    case Prim::Abs:
    case Prim::Add:
    case Prim::Sub:
    case Prim::Mul:
    case Prim::Div:
    case Prim::Min:
    case Prim::Max: return true;
    case Prim::Sqrt:
    case Prim::Floor:
    case Prim::Ceil:
    case Prim::Trunc:
    case Prim::RoundEven:
    case Prim::Fma: return fp;
    case Prim::Not:
    case Prim::Rem:
    case Prim::And:
    case Prim::Or:
    case Prim::Xor:
    case Prim::Shl:
    case Prim::Shr: return !fp;
    case Prim::DivBounded:
    case Prim::Scale:
    case Prim::Exponent:
    case Prim::Mantissa: return std::is_same_v<T, float>;
    case Prim::FromIndex:
    case Prim::IndexDiv: return std::is_same_v<T, std::int64_t>;
  }
  return false;
}

/// a/b from a reciprocal of 2^-14, the least that the primitive promises, so that a sweep shows the worst any
/// machine may give.
float div_bounded_value(float a, float b) {
  const float r = std::bit_cast<float>((std::bit_cast<std::uint32_t>(1.0f / b) + 0x200u) & ~0x3ffu);
  const float q = a * r;
  return std::fma(std::fma(-q, b, a), r, q);
}

float scale_value(float a, float b) { return b == b ? std::ldexp(a, static_cast<int>(b)) : a + b; }

/// log2 of the power of two that takes `a`, which is positive and finite, to [3/4, 3/2).
int exponent_value(float a) {
  int n;
  return std::frexp(a, &n) < 0.75f ? n - 1 : n;
}
float exponent_of(float a) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  if (a == 0) return -inf;
  if (a < 0) return std::numeric_limits<float>::quiet_NaN();
  return a < inf ? static_cast<float>(exponent_value(a)) : a;
}
float mantissa_of(float a) {
  return a > 0 && a < std::numeric_limits<float>::infinity() ? std::ldexp(a, -exponent_value(a)) : 1.0f;
}

template <Prim P, class T>
T apply_float(T a, T b, T c) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits sign = Bits{1} << (sizeof(T) * 8 - 1);
  if constexpr (P == Prim::Neg) return std::bit_cast<T>(std::bit_cast<Bits>(a) ^ sign);
  if constexpr (P == Prim::Abs) return std::bit_cast<T>(std::bit_cast<Bits>(a) & ~sign);
  if constexpr (P == Prim::Sqrt) return std::sqrt(a);
  if constexpr (P == Prim::Floor) return std::floor(a);
  if constexpr (P == Prim::Ceil) return std::ceil(a);
  if constexpr (P == Prim::Trunc) return std::trunc(a);
  if constexpr (P == Prim::RoundEven) return std::nearbyint(a);  // the host mode is round-to-nearest
  if constexpr (P == Prim::Add) return a + b;
  if constexpr (P == Prim::Sub) return a - b;
  if constexpr (P == Prim::Mul) return a * b;
  if constexpr (P == Prim::Div) return a / b;
  if constexpr (P == Prim::Min) return a != a ? a : (a < b ? a : b);
  if constexpr (P == Prim::Max) return a != a ? a : (a > b ? a : b);
  if constexpr (P == Prim::Fma) return std::fma(a, b, c);
  if constexpr (P == Prim::DivBounded) return div_bounded_value(a, b);
  if constexpr (P == Prim::Scale) return scale_value(a, b);
  if constexpr (P == Prim::Exponent) return exponent_of(a);
  if constexpr (P == Prim::Mantissa) return mantissa_of(a);
}

template <Prim P, class T>
T apply_int(T a, T b) {
  // Wide unsigned arithmetic wraps; narrowing keeps the low bits.
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  constexpr std::uint64_t width = sizeof(T) * 8;
  if constexpr (P == Prim::Neg) return static_cast<T>(0 - ua);
  if constexpr (P == Prim::Abs) return a < T{0} ? static_cast<T>(0 - ua) : a;
  if constexpr (P == Prim::Not) return static_cast<T>(~ua);
  if constexpr (P == Prim::Add) return static_cast<T>(ua + ub);
  if constexpr (P == Prim::Sub) return static_cast<T>(ua - ub);
  if constexpr (P == Prim::Mul) return static_cast<T>(ua * ub);
  if constexpr (P == Prim::FromIndex) return a;
  // b > 0 wherever it is used
  if constexpr (P == Prim::IndexDiv) return b != T{0} ? static_cast<T>(a / b) : T{0};
  if constexpr (P == Prim::Div || P == Prim::Rem) {
    if (b == T{0}) return T{0};
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return P == Prim::Div ? static_cast<T>(0 - ua) : T{0};
    }
    return static_cast<T>(P == Prim::Div ? a / b : a % b);
  }
  if constexpr (P == Prim::Min) return a < b ? a : b;
  if constexpr (P == Prim::Max) return a > b ? a : b;
  if constexpr (P == Prim::And) return static_cast<T>(ua & ub);
  if constexpr (P == Prim::Or) return static_cast<T>(ua | ub);
  if constexpr (P == Prim::Xor) return static_cast<T>(ua ^ ub);
  if constexpr (P == Prim::Shl) return ub < width ? static_cast<T>(ua << ub) : T{0};
  if constexpr (P == Prim::Shr) {
    if (ub >= width && !std::is_signed_v<T>) return T{0};
    return static_cast<T>(a >> std::min(ub, width - 1));
  }
}

template <Prim P, class T>
T apply(T a, T b, T c) {
  if constexpr (std::is_same_v<T, bool>) {
    if constexpr (P == Prim::Not)
      return !a;
    else
      return apply_int<P, std::uint8_t>(a, b) != 0;
  } else if constexpr (is_half_v<T>) {
    return T(apply_float<P, float>(a, b, c));
  } else if constexpr (std::is_floating_point_v<T>) {
    return apply_float<P, T>(a, b, c);
  } else {
    return apply_int<P, T>(a, b);
  }
}

// ---- one primitive on arrays ----

using Fn = ArrayFn;

template <Prim P, class T>
void block_apply(int n, void* out, const void* a, const void* b, const void* c) {
  T* o = static_cast<T*>(out);
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b), *z = static_cast<const T*>(c);
  for (int i = 0; i < n; ++i) o[i] = apply<P, T>(x[i], y[i], z[i]);  // unused operands alias the first
}

template <Prim P, class T>
void block_compare(int n, void* out, const void* a, const void* b, const void*) {
  bool* o = static_cast<bool*>(out);
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (int i = 0; i < n; ++i) o[i] = compare<P, T>(x[i], y[i]);
}

template <class To, class From>
void block_convert(int n, void* out, const void* a, const void*, const void*) {
  To* o = static_cast<To*>(out);
  const From* x = static_cast<const From*>(a);
  for (int i = 0; i < n; ++i) o[i] = convert<To, From>(x[i]);
}

template <class T>
void block_copy(int n, void* out, const void* a, const void*, const void*) {
  std::memmove(out, a, static_cast<std::size_t>(n) * sizeof(T));
}

template <class T>
void block_select(int n, void* out, const void* a, const void* b, const void* c) {
  T* o = static_cast<T*>(out);
  const bool* p = static_cast<const bool*>(a);
  const T *x = static_cast<const T*>(b), *y = static_cast<const T*>(c);
  for (int i = 0; i < n; ++i) o[i] = p[i] ? x[i] : y[i];
}

/// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
template <class T>
T philox_value(std::uint64_t index, std::uint64_t key) {
  constexpr std::uint64_t each = 16 / sizeof(T);
  const std::uint64_t block = index / each;
  std::uint32_t c[4] = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0};
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
    const std::uint64_t p = std::uint64_t{0xd2511f53u} * c[0], q = std::uint64_t{0xcd9e8d57u} * c[2];
    c[0] = static_cast<std::uint32_t>(q >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<std::uint32_t>(q);
    c[2] = static_cast<std::uint32_t>(p >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<std::uint32_t>(p);
  }
  T out;
  std::memcpy(&out, reinterpret_cast<const std::byte*>(c) + index % each * sizeof(T), sizeof(T));
  return out;
}

template <class T>
void block_philox(int n, void* out, const void* a, const void* b, const void*) {
  T* o = static_cast<T*>(out);
  const auto *x = static_cast<const std::uint64_t*>(a), *y = static_cast<const std::uint64_t*>(b);
  for (int i = 0; i < n; ++i) o[i] = philox_value<T>(x[i], y[i]);
}

template <double (*F)(double)>
void block_call1(int n, void* out, const void* a, const void*, const void*) {
  double* o = static_cast<double*>(out);
  const double* x = static_cast<const double*>(a);
  for (int i = 0; i < n; ++i) o[i] = F(x[i]);
}

template <double (*F)(double, double)>
void block_call2(int n, void* out, const void* a, const void* b, const void*) {
  double* o = static_cast<double*>(out);
  const double *x = static_cast<const double*>(a), *y = static_cast<const double*>(b);
  for (int i = 0; i < n; ++i) o[i] = F(x[i], y[i]);
}

template <int Arity>
struct CallTable;
template <>
struct CallTable<1> {
  template <double (*F)(double)>
  static constexpr Fn fn = block_call1<F>;
};
template <>
struct CallTable<2> {
  template <double (*F)(double, double)>
  static constexpr Fn fn = block_call2<F>;
};

constexpr Fn kCalls[] = {
#define KILN_MATH_FN(Name, Symbol, Arity) CallTable<Arity>::fn<&::Symbol>,
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
};

template <float (*F)(float)>
void block_native(int n, void* out, const void* a, const void*, const void*) {
  float* o = static_cast<float*>(out);
  const float* x = static_cast<const float*>(a);
  for (int i = 0; i < n; ++i) o[i] = F(x[i]);
}

constexpr Fn kNative[] = {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) \
  block_native<+[](float a) -> float { return Reference; }>,
#define KILN_NATIVE_FN(Name, Symbol, Reference) block_native<+[](float a) -> float { return Reference; }>,
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
};

// [prim][dtype of the operands]; null where the primitive has no meaning for the type.
struct ApplyTable {
  Fn fn[static_cast<int>(Prim::Mantissa) + 1][kDTypeCount] = {};
};

template <Prim P, class T>
constexpr Fn apply_fn() {
  if constexpr (is_compare(P))
    return block_compare<P, T>;
  else if constexpr (applies<P, T>())
    return block_apply<P, T>;
  else if constexpr (P == Prim::Select)
    return block_select<T>;
  else if constexpr (P == Prim::Bitcast)
    return block_copy<T>;
  else
    return nullptr;
}

template <Prim P>
constexpr void fill_row(ApplyTable& t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  t.fn[static_cast<int>(P)][static_cast<int>(DType::Enum)] = apply_fn<P, Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE
}

constexpr ApplyTable make_apply_table() {
  ApplyTable t;
#define KILN_PRIM(Name, Operands) fill_row<Prim::Name>(t);
#include "kernel/prims.def"
#undef KILN_PRIM
  return t;
}
constexpr ApplyTable kApply = make_apply_table();

Fn convert_fn(DType to, DType from) {
  return dispatch(to, [&]<class To>() {
    return dispatch(from, []<class From>() -> Fn { return block_convert<To, From>; });
  });
}

}  // namespace

ArrayFn array_fn(Prim prim, DType type, DType from, std::uint64_t imm) {
  Fn fn = nullptr;
  if (prim == Prim::Cast || prim == Prim::CastInRange) {
    fn = convert_fn(type, from);
  } else if (prim == Prim::Call1 || prim == Prim::Call2) {
    fn = kCalls[imm];
  } else if (prim == Prim::Native) {
    fn = kNative[imm];
  } else if (prim == Prim::Philox) {
    fn = type == DType::UInt32 ? block_philox<std::uint32_t> : block_philox<std::uint64_t>;
  } else {
    fn = kApply.fn[static_cast<int>(prim)][static_cast<int>(prim == Prim::Select ? type : from)];
  }
  KILN_CHECK_THAT(fn, name(prim), " of ", name(from), " to ", name(type));
  return fn;
}

std::uint64_t const_bits(DType type, double value) {
  return dispatch(type, [&]<class T>() -> std::uint64_t {
    if constexpr (is_fp_v<T> || std::is_same_v<T, bool>) {
      return to_bits(convert<T, double>(value));
    } else {
      if (!std::isfinite(value)) return 0;
      const double whole = std::fmod(std::trunc(value), 0x1p64);
      const std::uint64_t magnitude = static_cast<std::uint64_t>(std::abs(whole));
      return to_bits(static_cast<T>(whole < 0 ? 0 - magnitude : magnitude));
    }
  });
}

std::uint64_t eval_prim(Prim prim, DType type, DType from, std::uint64_t imm, std::uint64_t a,
                        std::uint64_t b, std::uint64_t c) {
  std::uint64_t out = 0;
  array_fn(prim, type, from, imm)(1, &out, &a, &b, &c);
  return out;
}

std::uint64_t evaluate(const ExprPool& pool, ExprId root, const LeafFn& leaf) {
  // Ids are a topological order: mark from the root downwards, then compute upwards.
  std::vector<bool> needed(root + 1, false);
  std::vector<std::uint64_t> value(root + 1, 0);
  needed[root] = true;
  for (ExprId id = root + 1; id-- > 0;) {
    if (!needed[id]) continue;
    each_operand(pool[id], [&](ExprId o) { needed[o] = true; });
  }
  const auto operand = [&](ExprId id) { return id == kNoExpr ? 0 : value[id]; };
  for (ExprId id = 0; id <= root; ++id) {
    if (!needed[id]) continue;
    const ExprNode& n = pool[id];
    if (n.prim == Prim::Const) {
      value[id] = n.imm;
    } else if (n.prim == Prim::Load) {
      const bool live = n.b == kNoExpr || value[n.b] != 0;
      value[id] = live ? leaf(n, static_cast<std::int64_t>(value[n.a])) : 0;
    } else if (operand_count(n.prim) == 0) {
      value[id] = leaf(n, 0);
    } else {
      value[id] = eval_prim(n.prim, n.type, pool[n.a].type, n.imm, operand(n.a), operand(n.b), operand(n.c));
    }
  }
  return value[root];
}

namespace {

/// Which expressions of a pool a program computes, and who reads each last; kNoExpr: it is a result.
struct Lives {
  std::vector<bool> needed, is_input;
  std::vector<ExprId> last_use;

  Lives(const ExprPool& pool, std::span<const ExprId> roots, std::span<const ExprId> inputs)
      : needed(pool.size(), false), is_input(pool.size(), false), last_use(pool.size(), 0) {
    for (const ExprId id : inputs) is_input[id] = true;
    for (const ExprId id : roots) {
      needed[id] = true;
      last_use[id] = kNoExpr;
    }
    for (ExprId id = pool.size(); id-- > 0;) {
      if (!needed[id] || is_input[id]) continue;
      each_operand(pool[id], [&](ExprId o) {
        needed[o] = true;
        last_use[o] = std::max(last_use[o], id);
      });
    }
  }
};

}  // namespace

BlockProgram::BlockProgram(const ExprPool& pool, std::span<const ExprId> roots,
                           std::span<const ExprId> inputs) {
  constexpr int kNone = -1;
  const ExprId count = pool.size();
  const auto [needed, is_input, last_use] = Lives(pool, roots, inputs);
  std::vector<int> place(count, kNone), free;
  int registers = 0;
  std::vector<std::pair<int, ExprId>> constants;
  for (const ExprId id : inputs) {
    place[id] = registers++;
    inputs_.push_back({place[id], size_of(pool[id].type)});
  }
  for (ExprId id = 0; id < count; ++id) {
    if (!needed[id] || is_input[id]) continue;
    const ExprNode& n = pool[id];
    if (n.prim == Prim::Const) {
      place[id] = registers++;
      constants.emplace_back(place[id], id);
      continue;
    }
    KILN_CHECK_THAT(operand_count(n.prim) > 0 && n.prim != Prim::Load, name(n.prim),
                    " is not among the inputs");
    Op op{array_fn(n.prim, n.type, pool[n.a].type, n.imm), kNone, place[n.a], place[n.a], place[n.a]};
    if (n.b != kNoExpr) op.b = place[n.b];
    if (n.c != kNoExpr) op.c = place[n.c];
    // The result takes a fresh register before dying operands give theirs back: no array is read and written
    // at once with different element sizes.
    if (free.empty()) {
      place[id] = registers++;
    } else {
      place[id] = free.back();
      free.pop_back();
    }
    op.out = place[id];
    ops_.push_back(op);
    const ExprId operands[] = {n.a, n.b, n.c};
    for (int i = 0; i < 3; ++i) {
      const ExprId x = operands[i];
      if (x == kNoExpr || last_use[x] != id || is_input[x] || pool[x].prim == Prim::Const) continue;
      if (std::find(operands, operands + i, x) == operands + i) free.push_back(place[x]);
    }
  }
  for (const ExprId id : roots) outputs_.push_back({place[id], size_of(pool[id].type)});

  storage_.resize(static_cast<std::size_t>(registers) * kLanes * 8);
  for (const auto& [r, id] : constants) {
    const std::int64_t bytes = size_of(pool[id].type);
    const std::uint64_t bits = pool[id].imm;
    for (int lane = 0; lane < kLanes; ++lane) std::memcpy(reg(r) + lane * bytes, &bits, bytes);
  }
}

void BlockProgram::run(int n, std::span<const void* const> inputs, std::span<void* const> outputs) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    std::memcpy(reg(inputs_[i].reg), inputs[i], static_cast<std::size_t>(n * inputs_[i].bytes));
  }
  for (const Op& op : ops_) op.fn(n, reg(op.out), reg(op.a), reg(op.b), reg(op.c));
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    std::memcpy(outputs[i], reg(outputs_[i].reg), static_cast<std::size_t>(n * outputs_[i].bytes));
  }
}

}  // namespace kiln::kernel
