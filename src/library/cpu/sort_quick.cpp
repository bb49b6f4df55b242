#include "library/cpu/sort_quick.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {
namespace {

#if defined(__x86_64__)

template <class Item>
constexpr int kLanes = 64 / static_cast<int>(sizeof(Item));
template <class Item>
using Line __attribute__((vector_size(64), may_alias)) = Item;

/// `count` asks for a mask's bits by name: GCC 12 and 13 widen a mask of 8 bits that was spilled by reading
/// bytes beside it, too.
template <class Item>
struct Register;
template <>
struct Register<std::uint32_t> {
  using Mask = __mmask16;
  KILN_AVX512 static __m512i all(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  KILN_AVX512 static Mask less(__m512i a, __m512i b) { return _mm512_cmplt_epu32_mask(a, b); }
  KILN_AVX512 static int count(Mask k) { return std::popcount(_cvtmask16_u32(k)); }
  KILN_AVX512 static __m512i chosen(Mask k, __m512i a) { return _mm512_maskz_compress_epi32(k, a); }
  KILN_AVX512 static __m512i blend(Mask k, __m512i a, __m512i b) { return _mm512_mask_blend_epi32(k, a, b); }
  KILN_AVX512 static __m512i load(__m512i other, Mask k, const void* from) {
    return _mm512_mask_loadu_epi32(other, k, from);
  }
  KILN_AVX512 static void store(void* to, Mask k, __m512i a) { _mm512_mask_storeu_epi32(to, k, a); }
};
template <>
struct Register<std::uint64_t> {
  using Mask = __mmask8;
  KILN_AVX512 static __m512i all(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  KILN_AVX512 static Mask less(__m512i a, __m512i b) { return _mm512_cmplt_epu64_mask(a, b); }
  KILN_AVX512 static int count(Mask k) { return std::popcount(_cvtmask8_u32(k)); }
  KILN_AVX512 static __m512i chosen(Mask k, __m512i a) { return _mm512_maskz_compress_epi64(k, a); }
  KILN_AVX512 static __m512i blend(Mask k, __m512i a, __m512i b) { return _mm512_mask_blend_epi64(k, a, b); }
  KILN_AVX512 static __m512i load(__m512i other, Mask k, const void* from) {
    return _mm512_mask_loadu_epi64(other, k, from);
  }
  KILN_AVX512 static void store(void* to, Mask k, __m512i a) { _mm512_mask_storeu_epi64(to, k, a); }
};

/// The first `count` lanes.
template <class Item>
typename Register<Item>::Mask first_lanes(std::int64_t count) {
  return static_cast<typename Register<Item>::Mask>((1u << std::min<std::int64_t>(count, kLanes<Item>)) - 1);
}
/// Lanes whose number has `bit`.
template <class Item>
constexpr auto lanes_with(int bit) {
  unsigned mask = 0;
  for (int lane = 0; lane < kLanes<Item>; ++lane) mask |= static_cast<unsigned>((lane & bit) != 0) << lane;
  return static_cast<typename Register<Item>::Mask>(mask);
}

/// Lane i of the result is lane i ^ Bits.
template <class Item, int Bits, std::size_t... I>
KILN_AVX512 inline __m512i lanes_turned(__m512i a, std::index_sequence<I...>) {
  const auto line = reinterpret_cast<Line<Item>>(a);
  return reinterpret_cast<__m512i>(__builtin_shufflevector(line, line, (I ^ Bits)...));
}
template <class Item, bool Second, std::size_t... I>
KILN_AVX512 inline __m512i halves_in_turn(__m512i a, __m512i b, std::index_sequence<I...>) {
  constexpr std::size_t kHalf = sizeof...(I) / 2;
  return reinterpret_cast<__m512i>(
      __builtin_shufflevector(reinterpret_cast<Line<Item>>(a), reinterpret_cast<Line<Item>>(b),
                              (I / 2 + Second * kHalf + I % 2 * sizeof...(I))...));
}

/// Up to N registers of numbers, sorted in registers: element i of lane r is the one at r * N + i. Columns
/// are sorted by a network first. Sorted columns are then merged in pairs, pairs in fours, ...: the second
/// half of a merge meets the first from its end.
template <class Item, int N>
struct Leaf {
  using R = Register<Item>;
  static constexpr int kCount = N * kLanes<Item>;
  static constexpr auto kOrder = std::make_index_sequence<kLanes<Item>>();

  KILN_AVX512 static __m512i least(__m512i a, __m512i b) {
    const auto x = reinterpret_cast<Line<Item>>(a), y = reinterpret_cast<Line<Item>>(b);
    return reinterpret_cast<__m512i>(x < y ? x : y);
  }
  KILN_AVX512 static __m512i greatest(__m512i a, __m512i b) {
    const auto x = reinterpret_cast<Line<Item>>(a), y = reinterpret_cast<Line<Item>>(b);
    return reinterpret_cast<__m512i>(x < y ? y : x);
  }
  KILN_AVX512 static void exchange(__m512i& a, __m512i& b) {
    const __m512i x = a, y = b;
    a = least(x, y);
    b = greatest(x, y);
  }
  /// What lane `x` is to have of itself and y: the greater one in lanes that have the bit.
  template <int Bit>
  KILN_AVX512 static __m512i kept(__m512i x, __m512i y) {
    return R::blend(lanes_with<Item>(Bit), least(x, y), greatest(x, y));
  }

  /// Merges along the columns: distances of `Half` registers and less.
  KILN_AVX512 static void merge_columns(__m512i (&v)[N]) {
#pragma GCC unroll 8
    for (int half = N / 2; half > 0; half /= 2)
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i)
        if ((i & half) == 0) exchange(v[i], v[i + half]);
  }
  KILN_AVX512 static void sort_columns(__m512i (&v)[N]) {
#pragma GCC unroll 8
    for (int size = 2; size <= N; size *= 2) {
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i)
        if ((i & (size / 2)) == 0) exchange(v[i], v[i ^ (size - 1)]);
#pragma GCC unroll 8
      for (int half = size / 4; half > 0; half /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i)
          if ((i & half) == 0) exchange(v[i], v[i + half]);
    }
  }
  template <int Bit>
  KILN_AVX512 static void merge_lanes(__m512i (&v)[N]) {
    if constexpr (Bit > 0) {
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) v[i] = kept<Bit>(v[i], lanes_turned<Item, Bit>(v[i], kOrder));
      merge_lanes<Bit / 2>(v);
    }
  }
  /// Merges of so many columns, and of twice as many, ...
  template <int Columns>
  KILN_AVX512 static void merge_from(__m512i (&v)[N]) {
    if constexpr (Columns <= kLanes<Item>) {
      constexpr int kBit = Columns / 2;
      if constexpr (N == 1) {
        v[0] = kept<kBit>(v[0], lanes_turned<Item, Columns - 1>(v[0], kOrder));
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < N / 2; ++i) {
          const __m512i x = v[i], y = v[N - 1 - i];
          v[i] = kept<kBit>(x, lanes_turned<Item, Columns - 1>(y, kOrder));
          v[N - 1 - i] = kept<kBit>(y, lanes_turned<Item, Columns - 1>(x, kOrder));
        }
      }
      merge_lanes<kBit / 2>(v);
      merge_columns(v);
      merge_from<2 * Columns>(v);
    }
  }
  /// From one column after the other to one register after the other: each step moves a bit of the number of
  /// a register to the number of its lane.
  KILN_AVX512 static void to_rows(__m512i (&v)[N]) {
#pragma GCC unroll 8
    for (int step = 1; step < N; step *= 2) {
      __m512i turned[N];
#pragma GCC unroll 16
      for (int i = 0; i < N / 2; ++i) {
        turned[2 * i] = halves_in_turn<Item, false>(v[i], v[i + N / 2], kOrder);
        turned[2 * i + 1] = halves_in_turn<Item, true>(v[i], v[i + N / 2], kOrder);
      }
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) v[i] = turned[i];
    }
  }

  /// Pre: 1 <= n <= kCount.
  KILN_AVX512 static void sort(Item* items, std::int64_t n) {
    __m512i v[N];
    const __m512i greatest = R::all(std::numeric_limits<Item>::max());
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const std::int64_t here = std::max<std::int64_t>(n - i * kLanes<Item>, 0);
      v[i] = R::load(greatest, first_lanes<Item>(here), items + i * kLanes<Item>);
    }
    sort_columns(v);
    merge_from<2>(v);
    to_rows(v);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const std::int64_t here = std::max<std::int64_t>(n - i * kLanes<Item>, 0);
      R::store(items + i * kLanes<Item>, first_lanes<Item>(here), v[i]);
    }
  }
};

/// Moves the items below `pivot` to the front, in any order; returns how many there are. What is stored
/// behind them never reaches an item that was not read yet.
template <class Item>
KILN_AVX512 std::int64_t partition(Item* items, Item* other, std::int64_t n, Item pivot) {
  using R = Register<Item>;
  const __m512i limit = R::all(pivot);
  std::int64_t front = 0, back = 0, i = 0;
  for (; i + kLanes<Item> <= n; i += kLanes<Item>) {
    const __m512i x = _mm512_loadu_si512(items + i);
    const typename R::Mask less = R::less(x, limit);
    _mm512_storeu_si512(items + front, R::chosen(less, x));
    _mm512_storeu_si512(other + back, R::chosen(static_cast<typename R::Mask>(~less), x));
    const int count = R::count(less);
    front += count;
    back += kLanes<Item> - count;
  }
  const auto rest = first_lanes<Item>(n - i);
  const __m512i x = R::load(limit, rest, items + i);
  const auto less = static_cast<typename R::Mask>(R::less(x, limit) & rest);
  const auto others = static_cast<typename R::Mask>(rest & ~less);
  R::store(items + front, first_lanes<Item>(R::count(less)), R::chosen(less, x));
  R::store(other + back, first_lanes<Item>(R::count(others)), R::chosen(others, x));
  front += R::count(less);
  std::memcpy(items + front, other, static_cast<std::size_t>(n - front) * sizeof(Item));
  return front;
}

template <class Item>
Item median(Item a, Item b, Item c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
template <class Item>
Item pivot_of(const Item* items, std::int64_t n) {
  const std::int64_t step = n / 9;
  const Item* const at = items + step / 2;
  return median(median(at[0], at[step], at[2 * step]), median(at[3 * step], at[4 * step], at[5 * step]),
                median(at[6 * step], at[7 * step], at[8 * step]));
}

template <class Item>
KILN_AVX512 void sort_leaf(Item* items, std::int64_t n) {
  if (n <= Leaf<Item, 2>::kCount) return Leaf<Item, 2>::sort(items, n);
  if (n <= Leaf<Item, 4>::kCount) return Leaf<Item, 4>::sort(items, n);
  Leaf<Item, 8>::sort(items, n);
}

/// `depth`: so many partitions more; then the pivots were bad again and again.
template <class Item>
void quick(Item* items, Item* other, std::int64_t n, int depth) {
  while (n > Leaf<Item, 8>::kCount) {
    if (depth-- == 0) return std::sort(items, items + n);
    const Item pivot = pivot_of(items, n);
    std::int64_t below = partition(items, other, n, pivot);
    if (below == 0) {  // the pivot is the least: it and its equals are where they belong
      if (pivot == std::numeric_limits<Item>::max()) return;
      below = partition(items, other, n, static_cast<Item>(pivot + 1));
    } else {
      quick(items, other, below, depth);
    }
    items += below;
    n -= below;
  }
  if (n > 1) sort_leaf(items, n);
}

template <class Item>
void quick_avx512(Item* items, Item* other, std::int64_t n) {
  quick(items, other, n, 4 * std::bit_width(static_cast<std::uint64_t>(n)));
}
#endif

}  // namespace

template <class Item>
QuickSort<Item> quick_sort() {
#if defined(__x86_64__)
  if (host_instruction_sets().avx512) return quick_avx512<Item>;
#endif
  return nullptr;
}
template QuickSort<std::uint32_t> quick_sort<std::uint32_t>();
template QuickSort<std::uint64_t> quick_sort<std::uint64_t>();

}  // namespace kiln::cpu
