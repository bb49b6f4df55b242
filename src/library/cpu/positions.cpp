#include "library/cpu/positions.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

#include <type_traits>

namespace kiln::cpu {
namespace {

/// Without branches, so that the compiler makes registers of it. Unsigned values from half of their range on
/// stay out of range: no extent is added to them.
template <class Index, class Position>
[[gnu::always_inline]] inline void resolve(const Index* from, std::int64_t stride, std::int64_t n,
                                           std::int64_t extent, std::int64_t none, Position* to) {
  using Wide = std::conditional_t<sizeof(Index) <= 4 && sizeof(Position) == 4, std::uint32_t, std::uint64_t>;
  const auto end = static_cast<Wide>(extent);
  const auto one = [&](Index index) {
    const auto at = static_cast<Wide>(index);
    const auto from_front = static_cast<Wide>(std::is_signed_v<Index> && index < 0 ? at + end : at);
    return from_front < end ? static_cast<Position>(from_front) : static_cast<Position>(none);
  };
  if (stride == 1)
    for (std::int64_t i = 0; i < n; ++i) to[i] = one(from[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = one(from[i * stride]);
}

#if defined(__x86_64__)
template <class Index, class Position>
KILN_AVX2 void resolve_avx2(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                            std::int64_t none, Position* to) {
  resolve(from, stride, n, extent, none, to);
}
template <class Index, class Position>
KILN_AVX512 void resolve_avx512(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                                std::int64_t none, Position* to) {
  resolve(from, stride, n, extent, none, to);
}
#endif
template <class Index, class Position>
void resolve_base(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                  std::int64_t none, Position* to) {
  resolve(from, stride, n, extent, none, to);
}

}  // namespace

template <class Index, class Position>
ResolvePositions<Index, Position> resolve_positions() {
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return resolve_avx512<Index, Position>;
  if (target.avx2) return resolve_avx2<Index, Position>;
#endif
  return resolve_base<Index, Position>;
}
#define KILN_POSITIONS(Index)                                  \
  template ResolvePositions<Index> resolve_positions<Index>(); \
  template ResolvePositions<Index, std::int32_t> resolve_positions<Index, std::int32_t>()
KILN_POSITIONS(std::int8_t);
KILN_POSITIONS(std::int16_t);
KILN_POSITIONS(std::int32_t);
KILN_POSITIONS(std::int64_t);
KILN_POSITIONS(std::uint8_t);
KILN_POSITIONS(std::uint16_t);
KILN_POSITIONS(std::uint32_t);
KILN_POSITIONS(std::uint64_t);
#undef KILN_POSITIONS

}  // namespace kiln::cpu
