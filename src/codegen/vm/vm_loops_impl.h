// Every primitive as a loop over strips. Included once for each instruction set, by a file compiled for it.
//
// Invariant: nothing here has external linkage but the table, and nothing is called but compiler builtins: an
// inline function of the standard library, emitted here with wide instructions, could be the copy that the
// linker keeps for everybody. Compiled with -O3 in every build, without fast-math; -fno-math-errno and
// -fno-trapping-math change no value.
#include "codegen/vm/vm_loops.h"
#include "codegen/vm/vm_values_impl.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace kiln::codegen {
namespace {
namespace KILN_VM_ISA {

// ---- one primitive on strips ----

#define KILN_LANES KILN_INDEPENDENT for (std::int64_t i = 0; i < kStrip; ++i)

template <Prim P, class T>
void loop_apply(std::int64_t strips, void* out, const void* a, const void* b, const void* c, unsigned steps) {
  T* o = static_cast<T*>(out);
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b), *z = static_cast<const T*>(c);
  const std::int64_t sx = steps & 1 ? kStrip : 0, sy = steps & 2 ? kStrip : 0, sz = steps & 4 ? kStrip : 0;
  constexpr bool three = P == Prim::Fma;
  constexpr bool one = P == Prim::Neg || P == Prim::Abs || P == Prim::Sqrt || P == Prim::Floor ||
                       P == Prim::Ceil || P == Prim::Trunc || P == Prim::RoundEven || P == Prim::Not ||
                       P == Prim::Exponent || P == Prim::Mantissa || P == Prim::FromIndex;
  for (; strips > 0; --strips, o += kStrip, x += sx, y += sy, z += sz) {
    if constexpr (one)
      KILN_LANES o[i] = apply<P, T>(x[i], x[i], x[i]);
    else if constexpr (three)
      KILN_LANES o[i] = apply<P, T>(x[i], y[i], z[i]);
    else
      KILN_LANES o[i] = apply<P, T>(x[i], y[i], y[i]);
  }
}

template <Prim P, class T>
void loop_compare(std::int64_t strips, void* out, const void* a, const void* b, const void*, unsigned steps) {
  Truth* o = static_cast<Truth*>(out);
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  const std::int64_t sx = steps & 1 ? kStrip : 0, sy = steps & 2 ? kStrip : 0;
  for (; strips > 0; --strips, o += kStrip, x += sx, y += sy) KILN_LANES o[i] = compare<P, T>(x[i], y[i]);
}

/// Values that are only moved, as integers: compilers vectorise those, but not the half types' structures.
template <std::size_t Bytes>
struct MovedOf {
  using type = std::uint64_t;
};
template <>
struct MovedOf<1> {
  using type = std::uint8_t;
};
template <>
struct MovedOf<2> {
  using type = std::uint16_t;
};
template <>
struct MovedOf<4> {
  using type = std::uint32_t;
};
template <class T>
using Moved = typename MovedOf<sizeof(T)>::type;

template <class T>
void loop_select(std::int64_t strips, void* out, const void* a, const void* b, const void* c,
                 unsigned steps) {
  T* o = static_cast<T*>(out);
  const std::uint8_t* p = static_cast<const std::uint8_t*>(a);
  const T *x = static_cast<const T*>(b), *y = static_cast<const T*>(c);
  const std::int64_t sp = steps & 1 ? kStrip : 0, sx = steps & 2 ? kStrip : 0, sy = steps & 4 ? kStrip : 0;
  for (; strips > 0; --strips, o += kStrip, p += sp, x += sx, y += sy) KILN_LANES {
      const T yes = x[i], no = y[i];
      o[i] = p[i] ? yes : no;
    }
}

template <class To, class From>
void loop_convert(std::int64_t strips, void* out, const void* a, const void*, const void*, unsigned steps) {
  To* o = static_cast<To*>(out);
  const From* x = static_cast<const From*>(a);
  const std::int64_t sx = steps & 1 ? kStrip : 0;
  for (; strips > 0; --strips, o += kStrip, x += sx) {
#if defined(__F16C__)
    if constexpr (same<From, Half> && same<To, float>) {
      for (std::int64_t i = 0; i < kStrip; i += 8)
        _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
      continue;
    }
    if constexpr (same<From, float> && same<To, Half>) {
      for (std::int64_t i = 0; i < kStrip; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(o + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
      continue;
    }
#endif
    KILN_LANES o[i] = convert<To, From>(x[i]);
  }
}

template <class T>
void loop_copy(std::int64_t strips, void* out, const void* a, const void*, const void*, unsigned steps) {
  T* o = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const std::int64_t sx = steps & 1 ? kStrip : 0;
  for (; strips > 0; --strips, o += kStrip, x += sx) KILN_LANES o[i] = x[i];
}

// ---- reductions ----

template <Monoid M, class T>
KILN_INLINE T merge(T acc, T x) {
  if constexpr (M == Monoid::Sum) return apply<same<T, Truth> ? Prim::Or : Prim::Add, T>(acc, x, x);
  if constexpr (M == Monoid::Prod) return apply<same<T, Truth> ? Prim::And : Prim::Mul, T>(acc, x, x);
  if constexpr (M == Monoid::Max) return apply<same<T, Truth> ? Prim::Or : Prim::Max, T>(x, acc, acc);
  if constexpr (M == Monoid::Min) return apply<same<T, Truth> ? Prim::And : Prim::Min, T>(x, acc, acc);
}

/// Calls f(first, at, count) for runs of at most a strip of the elements in [0, n): elements from `first` on
/// belong to the lanes from `at` on. The common lane counts are constants to the loops inside.
template <class F>
KILN_INLINE void by_lanes(std::int64_t n, std::int64_t lanes, F f) {
  if (lanes > kStrip) {
    for (std::int64_t first = 0; first < n; first += kStrip)
      f(first, first & (lanes - 1), n - first < kStrip ? n - first : kStrip);
    return;
  }
  const std::int64_t whole = n & ~(lanes - 1);
  switch (lanes) {
    case 8:
      for (std::int64_t first = 0; first < whole; first += 8) f(first, 0, 8);
      break;
    case 16:
      for (std::int64_t first = 0; first < whole; first += 16) f(first, 0, 16);
      break;
    case 32:
      for (std::int64_t first = 0; first < whole; first += 32) f(first, 0, 32);
      break;
    case 64:
      for (std::int64_t first = 0; first < whole; first += 64) f(first, 0, 64);
      break;
    default:
      for (std::int64_t first = 0; first < whole; first += lanes) f(first, 0, lanes);
  }
  if (whole < n) f(whole, 0, n - whole);
}

/// Where element `first` of an operand is: one that does not advance is a strip.
template <class T>
KILN_INLINE const T* element(const T* x, std::int64_t first, bool advances) {
  return x + (advances ? first : first & (kStrip - 1));
}

#if defined(__AVX512F__)
constexpr std::int64_t kRegisterBytes = 64;
#elif defined(__AVX__)
constexpr std::int64_t kRegisterBytes = 32;
#else
constexpr std::int64_t kRegisterBytes = 16;
#endif

/// Accumulators stay in registers from group to group: through memory each group would wait for the one
/// before it.
template <std::int64_t Lanes, class T, class F>
KILN_INLINE std::int64_t in_registers(std::int64_t n, T* total, const T* x, const T* y, unsigned steps,
                                      F merge_vectors) {
  constexpr std::int64_t size = sizeof(T),
                         bytes = Lanes * size < kRegisterBytes ? Lanes * size : kRegisterBytes;
  constexpr std::int64_t width = bytes / size, count = Lanes / width;
  if constexpr (count > 4) return 0;
  typedef T Vector __attribute__((vector_size(bytes)));
  Vector acc[count];
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < count; ++k) __builtin_memcpy(&acc[k], total + k * width, bytes);
  std::int64_t first = 0;
  for (; first + Lanes <= n; first += Lanes) {
    const T *p = element(x, first, steps & 1), *q = element(y, first, steps & 2);
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < count; ++k) {
      Vector a, b;
      __builtin_memcpy(&a, p + k * width, bytes);
      __builtin_memcpy(&b, q + k * width, bytes);
      acc[k] = merge_vectors(acc[k], a, b);
    }
  }
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < count; ++k) __builtin_memcpy(total + k * width, &acc[k], bytes);
  return first;
}

template <class T, class F>
KILN_INLINE std::int64_t whole_groups(std::int64_t n, std::int64_t lanes, T* total, const T* x, const T* y,
                                      unsigned steps, F merge_vectors) {
  switch (lanes) {
    case 8: return in_registers<8>(n, total, x, y, steps, merge_vectors);
    case 16: return in_registers<16>(n, total, x, y, steps, merge_vectors);
    case 32: return in_registers<32>(n, total, x, y, steps, merge_vectors);
    default: return 0;
  }
}

template <Monoid M, class V>
KILN_INLINE V merge_vectors(V acc, V x) {
  if constexpr (M == Monoid::Sum) return acc + x;
  if constexpr (M == Monoid::Prod) return acc * x;
  if constexpr (M == Monoid::Max) {
    const V m = x > acc ? x : acc;
    return x != x ? x : m;
  }
  if constexpr (M == Monoid::Min) {
    const V m = x < acc ? x : acc;
    return x != x ? x : m;
  }
}

template <Monoid M, class T>
void loop_reduce(std::int64_t n, std::int64_t lanes, void* acc, const void* x, const void*, unsigned steps) {
  T* const total = static_cast<T*>(acc);
  std::int64_t done = 0;
  if constexpr (is_fp<T>)  // integers of a signed type would overflow where they must wrap
    done = whole_groups(n, lanes, total, static_cast<const T*>(x), static_cast<const T*>(x), steps,
                        [](auto a, auto v, auto)
                            __attribute__((always_inline)) { return merge_vectors<M>(a, v); });
  by_lanes(n - done, lanes,
           [&](std::int64_t first, std::int64_t at, std::int64_t count) __attribute__((always_inline)) {
             const T* in = element(static_cast<const T*>(x), done + first, steps & 1);
             KILN_INDEPENDENT
             for (std::int64_t i = 0; i < count; ++i) total[at + i] = merge<M, T>(total[at + i], in[i]);
           });
}

#if defined(__AVX512F__)
KILN_INLINE __m512 fused(__m512 x, __m512 y, __m512 acc) { return _mm512_fmadd_ps(x, y, acc); }
KILN_INLINE __m512d fused(__m512d x, __m512d y, __m512d acc) { return _mm512_fmadd_pd(x, y, acc); }
#endif
#if defined(__FMA__)
KILN_INLINE __m256 fused(__m256 x, __m256 y, __m256 acc) { return _mm256_fmadd_ps(x, y, acc); }
KILN_INLINE __m256d fused(__m256d x, __m256d y, __m256d acc) { return _mm256_fmadd_pd(x, y, acc); }
KILN_INLINE __m128 fused(__m128 x, __m128 y, __m128 acc) { return _mm_fmadd_ps(x, y, acc); }
KILN_INLINE __m128d fused(__m128d x, __m128d y, __m128d acc) { return _mm_fmadd_pd(x, y, acc); }
#endif

template <class T>
void loop_sum_of_products(std::int64_t n, std::int64_t lanes, void* acc, const void* x, const void* y,
                          unsigned steps) {
  T* const total = static_cast<T*>(acc);
  std::int64_t done = 0;
#if defined(__FMA__)
  done = whole_groups(n, lanes, total, static_cast<const T*>(x), static_cast<const T*>(y), steps,
                      [](auto a, auto p, auto q) __attribute__((always_inline)) { return fused(p, q, a); });
#endif
  by_lanes(n - done, lanes,
           [&](std::int64_t first, std::int64_t at, std::int64_t count) __attribute__((always_inline)) {
             const T* p = element(static_cast<const T*>(x), done + first, steps & 1);
             const T* q = element(static_cast<const T*>(y), done + first, steps & 2);
             KILN_INDEPENDENT
             for (std::int64_t i = 0; i < count; ++i)
               total[at + i] = apply<Prim::Fma, T>(p[i], q[i], total[at + i]);
           });
}

/// Whether (x, p) beats (best, q): NaN first, then the better value, then the smaller position.
template <bool Greatest, class T>
KILN_INLINE bool beats(T x, std::int64_t p, T best, std::int64_t q) {
  const bool better = Greatest ? x > best : x < best;
  if constexpr (is_fp<T>) {
    const bool wins = (better | ((x == best) & (p < q))) & (best == best);
    return wins | ((x != x) & ((best == best) | (p < q)));
  } else {
    return better | ((x == best) & (p < q));
  }
}

template <bool Greatest, class T>
void loop_arg(std::int64_t n, std::int64_t lanes, void* acc, std::int64_t* acc_position, const void* x,
              const std::int64_t* position, unsigned steps) {
  using V = typename ComparedAs<T>::type;
  V* const best = static_cast<V*>(acc);
  by_lanes(n, lanes,
           [&](std::int64_t first, std::int64_t at, std::int64_t count) __attribute__((always_inline)) {
             const V* in = element(static_cast<const V*>(x), first, steps & 1);
             const std::int64_t* where = element(position, first, steps & 2);
             KILN_INDEPENDENT
             for (std::int64_t i = 0; i < count; ++i) {
               const V old = best[at + i], x_i = in[i];
               const std::int64_t old_position = acc_position[at + i], p = where[i];
               const bool wins = beats<Greatest, V>(x_i, p, old, old_position);
               best[at + i] = wins ? x_i : old;
               acc_position[at + i] = wins ? p : old_position;
             }
           });
}

// ---- the table ----

template <Prim P, DType D>
constexpr ApplyFn apply_fn() {
  using T = typename Lane<D>::type;
  if constexpr (is_compare(P)) {
    if constexpr (same<T, Truth>)
      return loop_compare<P, std::uint8_t>;
    else if constexpr (is_fp<T> || is_integer<T>)
      return loop_compare<P, T>;
    else
      return nullptr;
  } else if constexpr (applies<P, T>()) {
    return loop_apply<P, T>;
  } else if constexpr (P == Prim::Select) {
    return loop_select<Moved<T>>;
  } else if constexpr (P == Prim::Bitcast) {
    return loop_copy<Moved<T>>;
  } else {
    return nullptr;
  }
}

template <Prim P>
constexpr void fill_apply(VmLoops& t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  t.apply[static_cast<int>(P)][static_cast<int>(DType::Enum)] = apply_fn<P, DType::Enum>();
#include <kiln/dtype.def>
#undef KILN_DTYPE
}

template <DType To, DType From>
constexpr ApplyFn convert_fn() {
  using T = typename Lane<To>::type;
  using F = typename Lane<From>::type;
  if constexpr (converts<T, F>())
    return loop_convert<T, F>;
  else
    return nullptr;
}

template <DType To>
constexpr void fill_convert(VmLoops& t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  t.convert[static_cast<int>(To)][static_cast<int>(DType::Enum)] = convert_fn<To, DType::Enum>();
#include <kiln/dtype.def>
#undef KILN_DTYPE
}

template <DType D>
constexpr void fill_reduce(VmLoops& t) {
  using T = typename Lane<D>::type;
  constexpr int d = static_cast<int>(D);
  if constexpr (!is_half_lane<T>) {
    t.reduce[static_cast<int>(Monoid::Sum)][d] = loop_reduce<Monoid::Sum, T>;
    t.reduce[static_cast<int>(Monoid::Prod)][d] = loop_reduce<Monoid::Prod, T>;
    t.reduce[static_cast<int>(Monoid::Max)][d] = loop_reduce<Monoid::Max, T>;
    t.reduce[static_cast<int>(Monoid::Min)][d] = loop_reduce<Monoid::Min, T>;
    if constexpr (is_fp<T>) t.sum_of_products[d] = loop_sum_of_products<T>;
    t.arg_reduce[0][d] = loop_arg<true, T>;
    t.arg_reduce[1][d] = loop_arg<false, T>;
  }
}

#define KILN_TEXT_OF(x) #x
#define KILN_TEXT(x) KILN_TEXT_OF(x)

constexpr VmLoops make_table() {
  VmLoops t{KILN_TEXT(KILN_VM_ISA)};
#define KILN_PRIM(Name, Operands) fill_apply<Prim::Name>(t);
#include "kernel/prims.def"
#undef KILN_PRIM
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  fill_convert<DType::Enum>(t);                           \
  fill_reduce<DType::Enum>(t);
#include <kiln/dtype.def>
#undef KILN_DTYPE
  return t;
}
constexpr VmLoops kTable = make_table();

}  // namespace KILN_VM_ISA
}  // namespace

const VmLoops* KILN_VM_TABLE() { return &KILN_VM_ISA::kTable; }

}  // namespace kiln::codegen
