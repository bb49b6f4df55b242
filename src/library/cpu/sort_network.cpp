#include "library/cpu/sort_network.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kiln::cpu {
namespace {

constexpr std::int64_t kFewWide = 16;  // elements of 8 bytes of a row, or so many rows: moved one by one
constexpr std::int64_t kBlock = 256;   // lines that the first cache holds beside what else is in it

/// Two lines, the least of each row into the first.
template <class Item>
[[gnu::always_inline]] inline void exchange_lines(Item* __restrict a, Item* __restrict b) {
  for (int row = 0; row < kNetworkRows<Item>; ++row) {
    const Item x = a[row], y = b[row];
    a[row] = x < y ? x : y;
    b[row] = x < y ? y : x;
  }
}

/// Batcher's merge exchange for any n (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): in each
/// pass element i meets i + d where bit p of i is that of r.
template <class Exchange>
[[gnu::always_inline]] inline void merge_exchange(std::int64_t n, Exchange exchange_lines) {
  const auto top = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)) / 2);
  for (std::int64_t p = top; p > 0; p /= 2)
    for (std::int64_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      for (std::int64_t begin = r; begin < n - d; begin += 2 * p)
        for (std::int64_t i = begin, end = std::min(begin + p, n - d); i < end; ++i) exchange_lines(i, i + d);
      if (q == p) break;
    }
}

/// Sorts lines by Batcher's bitonic merges of eights, which are sorted and merged in registers. Every
/// exchange puts the least before the greatest, so lines that a power of two would have beyond the last are
/// as if they held the greatest of all: exchanges with them are left out. Invariant: ends are whole eights.
/// It sorts as many rows as a register of `Bytes` has. Elements are numbers of type `Number`, which NaN is
/// none of, and each exchange keeps the bits of both.
template <class Number, int Bytes>
struct Bitonic {
  typedef Number V __attribute__((vector_size(Bytes), may_alias));
  struct Lines {
    V* const first;
    [[gnu::always_inline]] V& operator[](std::int64_t i) const { return first[i * (kNetworkLine / Bytes)]; }
  };
  const Lines lines;

  explicit Bitonic(void* tile) : lines{static_cast<V*>(__builtin_assume_aligned(tile, Bytes))} {}

  /// No number is greater.
  static constexpr Number greatest() {
    if constexpr (std::is_integral_v<Number>)
      return static_cast<Number>(~Number{});
    else
      return static_cast<Number>(__builtin_inff());
  }

  /// The least of each row into the first.
  [[gnu::always_inline]] static void exchange(V& a, V& b) {
    const V x = a, y = b;
    a = x < y ? x : y;
    b = x < y ? y : x;
  }
  [[gnu::always_inline]] void at(std::int64_t i, std::int64_t j) const { exchange(lines[i], lines[j]); }

  [[gnu::always_inline]] void sort_eight(std::int64_t first) const {
    V v[8];
    for (int i = 0; i < 8; ++i) v[i] = lines[first + i];
    // Knuth, The Art of Computer Programming 3, 5.3.4
    constexpr int kPairs[19][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6},
                                   {3, 7}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {2, 4}, {3, 5},
                                   {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
#pragma GCC unroll 19
    for (int k = 0; k < 19; ++k) exchange(v[kPairs[k][0]], v[kPairs[k][1]]);
    for (int i = 0; i < 8; ++i) lines[first + i] = v[i];
  }

  /// The last three steps of a merge.
  [[gnu::always_inline]] void merge_eight(std::int64_t first) const {
    V v[8];
    for (int i = 0; i < 8; ++i) v[i] = lines[first + i];
    for (int i = 0; i < 4; ++i) exchange(v[i], v[i + 4]);
    for (int i = 0; i < 8; i += 4) exchange(v[i], v[i + 2]), exchange(v[i + 1], v[i + 3]);
    for (int i = 0; i < 8; i += 2) exchange(v[i], v[i + 1]);
    for (int i = 0; i < 8; ++i) lines[first + i] = v[i];
  }

  /// One step of merges of `size` lines each.
  [[gnu::always_inline]] void step(std::int64_t first, std::int64_t end, std::int64_t size) const {
    for (std::int64_t begin = first; begin < end - size / 2; begin += size)
      for (std::int64_t i = begin, last = std::min(begin, end - size) + size / 2; i < last; ++i)
        at(i, i + size / 2);
  }

  /// Two steps, of `size` lines and of halves.
  [[gnu::always_inline]] void two_steps(std::int64_t first, std::int64_t end, std::int64_t size) const {
    std::int64_t begin = first;
    const std::int64_t part = size / 4;
    for (; begin + size <= end; begin += size)
      for (std::int64_t i = begin; i < begin + part; ++i) {
        V a = lines[i], b = lines[i + part], c = lines[i + 2 * part], d = lines[i + 3 * part];
        exchange(a, c), exchange(b, d), exchange(a, b), exchange(c, d);
        lines[i] = a, lines[i + part] = b, lines[i + 2 * part] = c, lines[i + 3 * part] = d;
      }
    step(begin, end, size);
    step(begin, end, size / 2);
  }

  /// Merges of `size` lines each, in blocks that stay in the first cache.
  [[gnu::always_inline]] void merge_halves(std::int64_t first, std::int64_t end, std::int64_t size) const {
    for (; size > kBlock; size /= 2) step(first, end, size);
    for (std::int64_t begin = first; begin < end; begin += kBlock) {
      const std::int64_t last = std::min(begin + kBlock, end);
      std::int64_t part = size;
      for (; part > 16; part /= 4) two_steps(begin, last, part);
      if (part == 16) step(begin, last, part);
      for (std::int64_t i = begin; i < last; i += 8) merge_eight(i);
    }
  }

  /// Two sorted halves of `size` lines each: the second meets the first from its end.
  [[gnu::always_inline]] void merge(std::int64_t first, std::int64_t end, std::int64_t size) const {
    const std::int64_t last = std::min(first + 2 * size, end);
    for (std::int64_t j = first + size, i = first + size - 1; j < last; ++j, --i) at(i, j);
    merge_halves(first, last, size);
  }

  [[gnu::always_inline]] void sort_eights(std::int64_t n) const {
    for (std::int64_t block = 0; block < n; block += kBlock) {
      const std::int64_t end = std::min(block + kBlock, n);
      for (std::int64_t i = block; i < end; i += 8) sort_eight(i);
      for (std::int64_t size = 8; size < end - block; size *= 2)
        for (std::int64_t first = block; first + size < end; first += 2 * size) merge(first, end, size);
    }
    for (std::int64_t size = kBlock; size < n; size *= 2)
      for (std::int64_t first = 0; first + size < n; first += 2 * size) merge(first, n, size);
  }

  [[gnu::always_inline]] void sort_four(std::int64_t n) const {
    V v[4];
    for (int i = 0; i < 4; ++i) v[i] = i < n ? lines[i] : V{} + greatest();
    exchange(v[0], v[1]), exchange(v[2], v[3]), exchange(v[0], v[2]), exchange(v[1], v[3]);
    exchange(v[1], v[2]);
    for (int i = 0; i < n; ++i) lines[i] = v[i];
  }

  /// The least `size` lines of blocks of as many, which are sorted one by one: of two sorted blocks each
  /// takes the lesser of its first and the other's last. Pre: size is a power of two, from 8 on.
  [[gnu::always_inline]] void select(std::int64_t n, std::int64_t size) const {
    sort_eights(std::min(size, n));
    for (std::int64_t block = size; block < n; block += size) {
      const std::int64_t here = std::min(size, n - block);
      const Bitonic next{&lines[block]};
      next.sort_eights(here);
      for (std::int64_t j = 0, i = size - 1; j < here; ++j, --i) {
        const V x = lines[i], y = lines[block + j];
        lines[i] = x < y ? x : y;
      }
      merge_halves(0, size, size);
    }
  }

  [[gnu::always_inline]] void sort(std::int64_t n, std::int64_t kept) const {
    if (kept == 1) {
      V least = lines[0];
      for (std::int64_t i = 1; i < n; ++i) {
        const V x = lines[i];
        least = x < least ? x : least;
      }
      lines[0] = least;
      return;
    }
    if (n <= 4) return sort_four(n);
    const std::int64_t whole = (n + 7) / 8 * 8;
    for (std::int64_t i = n; i < whole; ++i) lines[i] = V{} + greatest();
    const auto size =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(kept, 8))));
    2 * size <= whole ? select(whole, size) : sort_eights(whole);
  }
};

/// By registers of `Bytes`, of which there are more than eight.
template <int Bytes, class Number, class Item>
[[gnu::always_inline]] inline void network(Item* tile, std::int64_t n, std::int64_t kept) {
  constexpr auto kStep = static_cast<std::int64_t>(Bytes / sizeof(Item));
  for (std::int64_t row = 0; row < kNetworkRows<Item>; row += kStep)
    Bitonic<Number, Bytes>(tile + row).sort(n, kept);
}

/// The first halves of two registers, or the second ones, one element of each in turn.
template <bool Second, class V, std::size_t... I>
[[gnu::always_inline]] inline V halves_in_turn(V a, V b, std::index_sequence<I...>) {
  constexpr std::size_t kHalf = sizeof...(I) / 2;
  return __builtin_shufflevector(a, b, (I / 2 + Second * kHalf + I % 2 * sizeof...(I))...);
}

template <class Item>
constexpr int kSide = 16 / static_cast<int>(sizeof(Item));
template <class Item>
using Short __attribute__((vector_size(16), aligned(alignof(Item)), may_alias)) = Item;

/// Turns the bits of the number of each element of N registers, which follow each other, to the left: the
/// greatest becomes the least, and so `Steps` times.
template <class Item, int Steps, int N>
[[gnu::always_inline]] inline void turn_numbers(Short<Item> (&lines)[N]) {
  constexpr auto kOrder = std::make_index_sequence<kSide<Item>>();
#pragma GCC unroll 4
  for (int step = 0; step < Steps; ++step) {
    Short<Item> turned[N];
#pragma GCC unroll 16
    for (int k = 0; k < N / 2; ++k) {
      turned[2 * k] = halves_in_turn<false>(lines[k], lines[k + N / 2], kOrder);
      turned[2 * k + 1] = halves_in_turn<true>(lines[k], lines[k + N / 2], kOrder);
    }
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) lines[k] = turned[k];
  }
}

template <class Item, int N, int Steps>
[[gnu::always_inline]] inline void turn_square(const Item* from, std::int64_t from_pitch, Item* to,
                                               std::int64_t to_pitch) {
  Short<Item> lines[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) lines[k] = *reinterpret_cast<const Short<Item>*>(from + k * from_pitch);
  turn_numbers<Item, Steps>(lines);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) *reinterpret_cast<Short<Item>*>(to + k * to_pitch) = lines[k];
}

/// Adjoining rows of N elements, fewer than a register has, to lines and back.
template <class Item, int N>
void rows_to_lines(const Item* from, std::int64_t rows, Item* to, std::int64_t to_pitch) {
  constexpr int kBits = std::bit_width(static_cast<unsigned>(kSide<Item>)) - 1;
  for (std::int64_t i = 0; i < rows; i += kSide<Item>)
    turn_square<Item, N, kBits>(from + i * N, kSide<Item>, to + i, to_pitch);
}
template <class Item, int N>
void lines_to_rows(const Item* from, std::int64_t from_pitch, std::int64_t columns, Item* to) {
  constexpr int kBits = std::bit_width(static_cast<unsigned>(N)) - 1;
  for (std::int64_t j = 0; j < columns; j += kSide<Item>)
    turn_square<Item, N, kBits>(from + j, from_pitch, to + j * N, kSide<Item>);
}

/// By squares that fill a register each way. Of the rows that one square writes the last elements go first:
/// what they leave behind the end of a row, where the next begins, is then written again.
template <class Item>
void transpose_rows_16(const Item* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns,
                       Item* to, std::int64_t to_pitch) {
  constexpr int kSquare = kSide<Item>, kBits = std::bit_width(static_cast<unsigned>(kSquare)) - 1;
  if constexpr (kSquare > 2) {
    if (columns == 2 && from_pitch == 2) return rows_to_lines<Item, 2>(from, rows, to, to_pitch);
    if (rows == 2 && to_pitch == 2) return lines_to_rows<Item, 2>(from, from_pitch, columns, to);
  }
  if constexpr (kSquare > 4) {
    if (columns == 4 && from_pitch == 4) return rows_to_lines<Item, 4>(from, rows, to, to_pitch);
    if (rows == 4 && to_pitch == 4) return lines_to_rows<Item, 4>(from, from_pitch, columns, to);
  }
  if constexpr (kSquare > 8) {
    if (columns == 8 && from_pitch == 8) return rows_to_lines<Item, 8>(from, rows, to, to_pitch);
    if (rows == 8 && to_pitch == 8) return lines_to_rows<Item, 8>(from, from_pitch, columns, to);
  }
  // A register of two elements that were stored in different ones waits for both: one by one they do not.
  if (kSquare == 2 && std::min(rows, columns) > 2 && std::min(rows, columns) <= kFewWide) {
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < rows; ++i) to[j * to_pitch + i] = from[i * from_pitch + j];
    return;
  }
  for (std::int64_t j = 0; j < columns; j += kSquare)
    for (std::int64_t i = (rows - 1) / kSquare * kSquare; i >= 0; i -= kSquare)
      turn_square<Item, kSquare, kBits>(from + i * from_pitch + j, from_pitch, to + j * to_pitch + i,
                                        to_pitch);
}

template <class T>
[[gnu::always_inline]] inline void to_keys(const T* from, std::int64_t stride, std::int64_t n,
                                           bool merge_zeros, bool descending, Key<T>* to) {
  const Key<T> turn = static_cast<Key<T>>(descending ? ~Key<T>{0} : Key<T>{0});
  if (stride == 1)
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<Key<T>>(key_of(from[i], merge_zeros) ^ turn);
  else
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = static_cast<Key<T>>(key_of(from[i * stride], merge_zeros) ^ turn);
}

template <class T>
[[gnu::always_inline]] inline void to_values(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  const Key<T> turn = static_cast<Key<T>>(descending ? ~Key<T>{0} : Key<T>{0});
  for (std::int64_t i = 0; i < n; ++i) to[i] = value_of<T>(static_cast<Key<T>>(from[i] ^ turn));
}

template <class T>
[[gnu::always_inline]] inline std::int64_t first_below(const T* from, std::int64_t n, bool merge_zeros,
                                                       bool descending, Key<T> limit, Key<T>* keys) {
  std::int64_t at = 0;
  for (; at + kKeyBlock <= n; at += kKeyBlock) {
    to_keys(from + at, 1, kKeyBlock, merge_zeros, descending, keys);
    Key<T> any = 0;
    for (std::int64_t i = 0; i < kKeyBlock; ++i) any |= static_cast<Key<T>>(keys[i] < limit);
    if (any != 0) break;
  }
  return at;
}

#if defined(__x86_64__)
template <class Item>
KILN_AVX2 void network_avx2(Item* tile, std::int64_t n, std::int64_t kept) {
  network<32, Item>(tile, n, kept);
}
template <class Item>
KILN_AVX512 void network_avx512(Item* tile, std::int64_t n, std::int64_t kept) {
  network<64, Item>(tile, n, kept);
}
template <class T>
KILN_AVX512 void numbers_avx512(Key<T>* tile, std::int64_t n, std::int64_t kept) {
  network<64, T>(tile, n, kept);
}
#if defined(KILN_AVX512_FP16)
KILN_AVX512_FP16 void halves_avx512(std::uint16_t* tile, std::int64_t n, std::int64_t kept) {
  network<64, _Float16>(tile, n, kept);
}
#endif
template <class T>
KILN_AVX2 void keys_avx2(const T* from, std::int64_t stride, std::int64_t n, bool merge_zeros,
                         bool descending, Key<T>* to) {
  to_keys(from, stride, n, merge_zeros, descending, to);
}
template <class T>
KILN_AVX512 void keys_avx512(const T* from, std::int64_t stride, std::int64_t n, bool merge_zeros,
                             bool descending, Key<T>* to) {
  to_keys(from, stride, n, merge_zeros, descending, to);
}
template <class T>
KILN_AVX2 std::int64_t below_avx2(const T* from, std::int64_t n, bool merge_zeros, bool descending,
                                  Key<T> limit, Key<T>* keys) {
  return first_below(from, n, merge_zeros, descending, limit, keys);
}
template <class T>
KILN_AVX2 bool equal_avx2(const T* values, std::int64_t n) {
  return any_equal(values, n);
}
template <class T>
KILN_AVX512 std::int64_t below_avx512(const T* from, std::int64_t n, bool merge_zeros, bool descending,
                                      Key<T> limit, Key<T>* keys) {
  return first_below(from, n, merge_zeros, descending, limit, keys);
}
template <class T>
KILN_AVX512 bool equal_avx512(const T* values, std::int64_t n) {
  return any_equal(values, n);
}
template <class T>
KILN_AVX2 void values_avx2(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}
template <class T>
KILN_AVX512 void values_avx512(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}
#endif
template <class Item>
void network_base(Item* tile, std::int64_t n, std::int64_t) {
  tile = static_cast<Item*>(__builtin_assume_aligned(tile, kNetworkLine));
  merge_exchange(n, [&](std::int64_t i, std::int64_t j) __attribute__((always_inline)) {
    exchange_lines(tile + i * kNetworkRows<Item>, tile + j * kNetworkRows<Item>);
  });
}
template <class T>
void keys_base(const T* from, std::int64_t stride, std::int64_t n, bool merge_zeros, bool descending,
               Key<T>* to) {
  to_keys(from, stride, n, merge_zeros, descending, to);
}
template <class T>
std::int64_t below_base(const T* from, std::int64_t n, bool merge_zeros, bool descending, Key<T> limit,
                        Key<T>* keys) {
  return first_below(from, n, merge_zeros, descending, limit, keys);
}
template <class T>
bool equal_base(const T* values, std::int64_t n) {
  return any_equal(values, n);
}
template <class T>
void values_base(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}

}  // namespace

bool has_wide_network() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  return target.avx512 || target.avx2;
#else
  return false;
#endif
}

template <class Item>
TileSort<Item> tile_sort() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return network_avx512<Item>;
  if (target.avx2) return network_avx2<Item>;
#endif
  return network_base<Item>;
}
template TileSort<std::uint8_t> tile_sort<std::uint8_t>();
template TileSort<std::uint16_t> tile_sort<std::uint16_t>();
template TileSort<std::uint32_t> tile_sort<std::uint32_t>();
template TileSort<std::uint64_t> tile_sort<std::uint64_t>();

template <class T>
TileSort<Key<T>> number_sort() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
    if (target.avx512) return numbers_avx512<T>;
#if defined(KILN_AVX512_FP16)
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    if (target.avx512_fp16) return halves_avx512;
#endif
#endif
  return nullptr;
}
#define KILN_DTYPE(Name, Type, ...) template TileSort<Key<Type>> number_sort<Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE

template <class Item>
TransposeRows<Item> transpose_rows() {
#if defined(__x86_64__)
  if (host_instruction_sets().avx512 && transpose_squares<Item>()) return nullptr;
#endif
  return transpose_rows_16<Item>;
}
template TransposeRows<std::uint8_t> transpose_rows<std::uint8_t>();
template TransposeRows<std::uint16_t> transpose_rows<std::uint16_t>();
template TransposeRows<std::uint32_t> transpose_rows<std::uint32_t>();
template TransposeRows<std::uint64_t> transpose_rows<std::uint64_t>();

template <class T>
KeyFunctions<T> key_functions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return {keys_avx512<T>, values_avx512<T>, equal_avx512<T>, below_avx512<T>};
  if (target.avx2) return {keys_avx2<T>, values_avx2<T>, equal_avx2<T>, below_avx2<T>};
#endif
  return {keys_base<T>, values_base<T>, equal_base<T>, below_base<T>};
}
#define KILN_DTYPE(Name, Type, ...) template KeyFunctions<Type> key_functions<Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE

}  // namespace kiln::cpu
