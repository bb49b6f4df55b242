#include "library/cpu/positions.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {
namespace {

/// Without branches, so that the compiler makes registers of it. Unsigned values from half of their range on
/// stay out of range: no extent is added to them.
template <class Index, class Position>
[[gnu::always_inline]] inline void resolve(const Index* from, std::int64_t stride, std::int64_t n,
                                           std::int64_t extent, std::int64_t none, Position* to) {
  constexpr bool kAlike = std::is_unsigned_v<Index> && sizeof(Index) == sizeof(Position);
  using Wide = std::conditional_t<
      kAlike, Index,
      std::conditional_t<sizeof(Index) <= 4 && sizeof(Position) <= 4, std::uint32_t, std::uint64_t>>;
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

[[gnu::always_inline]] inline void join(const std::int32_t* positions, std::int64_t n, std::int64_t count,
                                        std::int64_t pitch, std::int32_t* to) {
  const auto times = static_cast<std::int32_t>(pitch);
  const std::int32_t* last = positions + (count - 1) * n;
  std::copy_n(last, n, to);
  while (last != positions) {
    last -= n;
    for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] * times + last[i];
  }
}

#if defined(__x86_64__)
KILN_AVX2 void join_avx2(const std::int32_t* positions, std::int64_t n, std::int64_t count,
                         std::int64_t pitch, std::int32_t* to) {
  join(positions, n, count, pitch, to);
}
KILN_AVX512 void join_avx512(const std::int32_t* positions, std::int64_t n, std::int64_t count,
                             std::int64_t pitch, std::int32_t* to) {
  join(positions, n, count, pitch, to);
}
#endif
void join_base(const std::int32_t* positions, std::int64_t n, std::int64_t count, std::int64_t pitch,
               std::int32_t* to) {
  join(positions, n, count, pitch, to);
}

/// Without branches: whether a thread owns a position is anybody's guess.
template <class Position>
[[gnu::always_inline]] inline std::int64_t list(const Position* positions, std::int64_t first, std::int64_t n,
                                                const ListedPart& part, std::int32_t* elements,
                                                std::int32_t* values) {
  const auto range = static_cast<std::uint64_t>(part.high - part.low);
  std::int64_t found = 0;
  for (std::int64_t i = first; i < n; ++i) {
    const auto p = static_cast<std::uint64_t>(std::int64_t{positions[i]} - part.low);
    elements[found] = static_cast<std::int32_t>(p * static_cast<std::uint64_t>(part.pitch));
    values[found] = static_cast<std::int32_t>(i * part.step);
    found += static_cast<std::int64_t>(p < range);
  }
  return found;
}

template <class Index>
std::int64_t list_base(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                       const ListedPart& part, std::int32_t* elements, std::int32_t* values) {
  std::int64_t positions[kMostListed];
  resolve_positions<Index, std::int64_t>()(from, stride, n, extent, -1, positions);
  return list(positions, 0, n, part, elements, values);
}

#if defined(__x86_64__)
/// Positions from the front. Whole registers are stored, which is faster than their kept lanes alone: found +
/// kLanes <= n.
KILN_AVX512 std::int64_t list_narrow(const std::int32_t* positions, std::int64_t n, const ListedPart& part,
                                     std::int32_t* elements, std::int32_t* values) {
  constexpr std::int64_t kLanes = 16;
  const auto low = static_cast<int>(part.low), high = static_cast<int>(part.high);
  const auto pitch = static_cast<int>(part.pitch), step = static_cast<int>(part.step);
  const __m512i least = _mm512_set1_epi32(low), range = _mm512_set1_epi32(high - low),
                times = _mm512_set1_epi32(pitch), next = _mm512_set1_epi32(static_cast<int>(kLanes) * step);
  __m512i value = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                     _mm512_set1_epi32(step));
  std::int64_t found = 0, i = 0;
  for (; i + kLanes <= n; i += kLanes, value = _mm512_add_epi32(value, next)) {
    const __m512i p = _mm512_sub_epi32(_mm512_loadu_si512(positions + i), least);
    const __mmask16 kept = _mm512_cmplt_epu32_mask(p, range);
    _mm512_storeu_si512(elements + found, _mm512_maskz_compress_epi32(kept, _mm512_mullo_epi32(p, times)));
    _mm512_storeu_si512(values + found, _mm512_maskz_compress_epi32(kept, value));
    // asked for by name: GCC 12 and 13 widen a mask that was spilled by reading bytes beside it, too
    found += std::popcount(_cvtmask16_u32(kept));
  }
  return found + list(positions, i, n, part, elements + found, values + found);
}

/// Which lanes of eight a mask keeps, those first.
constexpr std::array<std::array<std::uint8_t, 8>, 256> kKeptLanes = [] {
  std::array<std::array<std::uint8_t, 8>, 256> lanes{};
  for (std::size_t mask = 0; mask < lanes.size(); ++mask) {
    std::size_t found = 0;
    for (std::uint8_t lane = 0; lane < 8; ++lane)
      if ((mask >> lane & 1) != 0) lanes[mask][found++] = lane;
  }
  return lanes;
}();

/// The same of eight at a time, with a table instead of an instruction that keeps lanes.
KILN_AVX2 std::int64_t list_eights(const std::int32_t* positions, std::int64_t n, const ListedPart& part,
                                   std::int32_t* elements, std::int32_t* values) {
  constexpr std::int64_t kLanes = 8;
  const auto low = static_cast<int>(part.low), range = static_cast<int>(part.high - part.low);
  const auto pitch = static_cast<int>(part.pitch), step = static_cast<int>(part.step);
  const __m256i least = _mm256_set1_epi32(low), last = _mm256_set1_epi32(range - 1),
                times = _mm256_set1_epi32(pitch), next = _mm256_set1_epi32(static_cast<int>(kLanes) * step);
  __m256i value = _mm256_mullo_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(step));
  std::int64_t found = 0, i = 0;
  for (; i + kLanes <= n && range > 0; i += kLanes, value = _mm256_add_epi32(value, next)) {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(positions + i));
    const __m256i p = _mm256_sub_epi32(at, least);
    const __m256i in = _mm256_cmpeq_epi32(_mm256_min_epu32(p, last), p);
    const auto kept = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(in)));
    const __m256i lanes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kKeptLanes[kept].data())));
    const __m256i element = pitch == 1 ? p : _mm256_mullo_epi32(p, times);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(elements + found),
                        _mm256_permutevar8x32_epi32(element, lanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + found),
                        _mm256_permutevar8x32_epi32(value, lanes));
    found += std::popcount(kept);
  }
  return found + list(positions, i, n, part, elements + found, values + found);
}

/// Lists by `Resolve` and `List` of one instruction set, where elements have 32 bits.
template <class Index, auto Resolve, auto List>
std::int64_t list_resolved(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                           const ListedPart& part, std::int32_t* elements, std::int32_t* values) {
  if (extent > std::numeric_limits<std::int32_t>::max())
    return list_base(from, stride, n, extent, part, elements, values);
  std::int32_t positions[kMostListed];
  Resolve(from, stride, n, extent, extent, positions);
  return List(positions, n, part, elements, values);
}
#endif

}  // namespace

template <class Index>
ListPositions<Index> list_positions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return list_resolved<Index, resolve_avx512<Index, std::int32_t>, list_narrow>;
  if (target.avx2) return list_resolved<Index, resolve_avx2<Index, std::int32_t>, list_eights>;
#endif
  return list_base<Index>;
}

JoinPositions join_positions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return join_avx512;
  if (target.avx2) return join_avx2;
#endif
  return join_base;
}

template <class Index, class Position>
ResolvePositions<Index, Position> resolve_positions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return resolve_avx512<Index, Position>;
  if (target.avx2) return resolve_avx2<Index, Position>;
#endif
  return resolve_base<Index, Position>;
}
#define KILN_POSITIONS(Index)                                                                \
  template ListPositions<Index> list_positions<Index>();                                     \
  template ResolvePositions<Index, std::uint8_t> resolve_positions<Index, std::uint8_t>();   \
  template ResolvePositions<Index, std::uint16_t> resolve_positions<Index, std::uint16_t>(); \
  template ResolvePositions<Index> resolve_positions<Index>();                               \
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
