#include "library/cpu/sort_network.h"

#include "device/cpu/target.h"

#include <algorithm>
#include <bit>

namespace kiln::cpu {
namespace {

/// Two lines, the least of each row into the first.
template <class Item>
[[gnu::always_inline]] inline void exchange(Item* __restrict a, Item* __restrict b) {
  for (int row = 0; row < kNetworkRows<Item>; ++row) {
    const Item x = a[row], y = b[row];
    a[row] = x < y ? x : y;
    b[row] = x < y ? y : x;
  }
}

/// Masks, not truth values: compilers make registers of these.
[[gnu::always_inline]] inline void exchange_pairs(std::uint64_t* __restrict a, std::uint64_t* __restrict b,
                                                  std::uint64_t* __restrict at_a,
                                                  std::uint64_t* __restrict at_b) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (int row = 0; row < kNetworkRows<std::uint64_t>; ++row) {
    const std::uint64_t x = a[row], y = b[row], p = at_a[row], q = at_b[row];
    const std::uint64_t less = y < x ? kAll : 0, equal = x == y ? kAll : 0, before = q < p ? kAll : 0;
    const std::uint64_t turned = less | (equal & before);
    const std::uint64_t items = (x ^ y) & turned, places = (p ^ q) & turned;
    a[row] = x ^ items;
    b[row] = y ^ items;
    at_a[row] = p ^ places;
    at_b[row] = q ^ places;
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

template <class Item>
[[gnu::always_inline]] inline void network(Item* tile, std::int64_t n) {
  constexpr std::int64_t kRows = kNetworkRows<Item>;
  tile = static_cast<Item*>(__builtin_assume_aligned(tile, kNetworkLine));
  merge_exchange(n, [&](std::int64_t i, std::int64_t j)
                        __attribute__((always_inline)) { exchange(tile + i * kRows, tile + j * kRows); });
}

[[gnu::always_inline]] inline void pair_network(std::uint64_t* keys, std::uint64_t* at, std::int64_t n) {
  constexpr std::int64_t kRows = kNetworkRows<std::uint64_t>;
  keys = static_cast<std::uint64_t*>(__builtin_assume_aligned(keys, kNetworkLine));
  at = static_cast<std::uint64_t*>(__builtin_assume_aligned(at, kNetworkLine));
  merge_exchange(n, [&](std::int64_t i, std::int64_t j) __attribute__((always_inline)) {
    exchange_pairs(keys + i * kRows, keys + j * kRows, at + i * kRows, at + j * kRows);
  });
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

#if defined(__x86_64__)
#define KILN_AVX2 __attribute__((target("avx2"), optimize("O3")))
#define KILN_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,prefer-vector-width=512"), optimize("O3")))
template <class Item>
KILN_AVX2 void network_avx2(Item* tile, std::int64_t n) {
  network(tile, n);
}
template <class Item>
KILN_AVX512 void network_avx512(Item* tile, std::int64_t n) {
  network(tile, n);
}
KILN_AVX2 void pairs_avx2(std::uint64_t* keys, std::uint64_t* at, std::int64_t n) {
  pair_network(keys, at, n);
}
KILN_AVX512 void pairs_avx512(std::uint64_t* keys, std::uint64_t* at, std::int64_t n) {
  pair_network(keys, at, n);
}
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
KILN_AVX2 void values_avx2(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}
template <class T>
KILN_AVX512 void values_avx512(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}
#endif
template <class Item>
void network_base(Item* tile, std::int64_t n) {
  network(tile, n);
}
void pairs_base(std::uint64_t* keys, std::uint64_t* at, std::int64_t n) { pair_network(keys, at, n); }
template <class T>
void keys_base(const T* from, std::int64_t stride, std::int64_t n, bool merge_zeros, bool descending,
               Key<T>* to) {
  to_keys(from, stride, n, merge_zeros, descending, to);
}
template <class T>
void values_base(const Key<T>* from, std::int64_t n, bool descending, T* to) {
  to_values(from, n, descending, to);
}

}  // namespace

template <class Item>
TileSort<Item> tile_sort() {
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return network_avx512<Item>;
  if (target.avx2) return network_avx2<Item>;
#endif
  return network_base<Item>;
}
template TileSort<std::uint8_t> tile_sort<std::uint8_t>();
template TileSort<std::uint16_t> tile_sort<std::uint16_t>();
template TileSort<std::uint32_t> tile_sort<std::uint32_t>();
template TileSort<std::uint64_t> tile_sort<std::uint64_t>();

PairSort pair_sort() {
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return pairs_avx512;
  if (target.avx2) return pairs_avx2;
#endif
  return pairs_base;
}

template <class T>
KeyFunctions<T> key_functions() {
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return {keys_avx512<T>, values_avx512<T>};
  if (target.avx2) return {keys_avx2<T>, values_avx2<T>};
#endif
  return {keys_base<T>, values_base<T>};
}
#define KILN_DTYPE(Name, Type, ...) template KeyFunctions<Type> key_functions<Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE

}  // namespace kiln::cpu
