#include "library/cpu/positions.h"

#include "device/cpu/target.h"

#include <type_traits>

namespace kiln::cpu {
namespace {

/// Without branches, so that the compiler makes registers of it. Values of UInt64 from 2^63 become negative
/// and stay out of range: no extent is added to them.
template <class Index>
[[gnu::always_inline]] inline void resolve(const Index* from, std::int64_t stride, std::int64_t n,
                                           std::int64_t extent, std::int64_t none, std::int64_t* to) {
  const auto end = static_cast<std::uint64_t>(extent);
  const auto one = [&](Index index) {
    const auto at = static_cast<std::int64_t>(index);
    const auto from_front = static_cast<std::uint64_t>(std::is_signed_v<Index> && at < 0 ? at + extent : at);
    return from_front < end ? static_cast<std::int64_t>(from_front) : none;
  };
  if (stride == 1)
    for (std::int64_t i = 0; i < n; ++i) to[i] = one(from[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = one(from[i * stride]);
}

#if defined(__x86_64__)
#define KILN_AVX2 __attribute__((target("avx2"), optimize("O3")))
#define KILN_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,prefer-vector-width=512"), optimize("O3")))
template <class Index>
KILN_AVX2 void resolve_avx2(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                            std::int64_t none, std::int64_t* to) {
  resolve(from, stride, n, extent, none, to);
}
template <class Index>
KILN_AVX512 void resolve_avx512(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                                std::int64_t none, std::int64_t* to) {
  resolve(from, stride, n, extent, none, to);
}
#endif
template <class Index>
void resolve_base(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                  std::int64_t none, std::int64_t* to) {
  resolve(from, stride, n, extent, none, to);
}

}  // namespace

template <class Index>
ResolvePositions<Index> resolve_positions() {
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return resolve_avx512<Index>;
  if (target.avx2) return resolve_avx2<Index>;
#endif
  return resolve_base<Index>;
}
template ResolvePositions<std::int8_t> resolve_positions<std::int8_t>();
template ResolvePositions<std::int16_t> resolve_positions<std::int16_t>();
template ResolvePositions<std::int32_t> resolve_positions<std::int32_t>();
template ResolvePositions<std::int64_t> resolve_positions<std::int64_t>();
template ResolvePositions<std::uint8_t> resolve_positions<std::uint8_t>();
template ResolvePositions<std::uint16_t> resolve_positions<std::uint16_t>();
template ResolvePositions<std::uint32_t> resolve_positions<std::uint32_t>();
template ResolvePositions<std::uint64_t> resolve_positions<std::uint64_t>();

}  // namespace kiln::cpu
