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

/// Batcher's merge exchange for any n (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): in each
/// pass element i meets i + d where bit p of i is that of r.
template <class Item>
[[gnu::always_inline]] inline void network(Item* tile, std::int64_t n) {
  constexpr std::int64_t kRows = kNetworkRows<Item>;
  tile = static_cast<Item*>(__builtin_assume_aligned(tile, kNetworkLine));
  const auto top = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)) / 2);
  for (std::int64_t p = top; p > 0; p /= 2)
    for (std::int64_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      for (std::int64_t begin = r; begin < n - d; begin += 2 * p)
        for (std::int64_t i = begin, end = std::min(begin + p, n - d); i < end; ++i)
          exchange(tile + i * kRows, tile + (i + d) * kRows);
      if (q == p) break;
    }
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
#endif
template <class Item>
void network_base(Item* tile, std::int64_t n) {
  network(tile, n);
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

}  // namespace kiln::cpu
