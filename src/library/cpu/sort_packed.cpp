#include "library/cpu/sort_packed.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

#include <algorithm>
#include <bit>

namespace kiln::cpu {
namespace {

[[gnu::always_inline]] inline Packed pack(const std::uint64_t* keys, std::int64_t n, std::uint64_t* to) {
  std::uint64_t least = keys[0], bits = 0;
  for (std::int64_t i = 1; i < n; ++i) least = keys[i] < least ? keys[i] : least;
  for (std::int64_t i = 0; i < n; ++i) bits |= keys[i] - least;
  const int unused = std::min(std::countl_zero(bits), 63);
  const std::uint64_t positions = std::bit_ceil(static_cast<std::uint64_t>(n)) - 1;
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = ((keys[i] - least) << unused & ~positions) | static_cast<std::uint64_t>(i);
  return {positions, (bits << unused & positions) == 0};
}

[[gnu::always_inline]] inline bool any_alike(const std::uint64_t* items, std::int64_t n,
                                             std::uint64_t positions) {
  std::uint64_t any = 0;
  for (std::int64_t i = 0; i + 1 < n; ++i)
    any |= (items[i] ^ items[i + 1]) <= positions ? ~std::uint64_t{0} : std::uint64_t{0};
  return any != 0;
}

void settle_alike(std::uint64_t positions, const std::uint64_t* keys, std::uint64_t* items, std::int64_t n) {
  const auto before = [&](std::uint64_t a, std::uint64_t b) {
    const std::uint64_t x = keys[a & positions], y = keys[b & positions];
    return x < y || (x == y && a < b);
  };
  for (std::int64_t i = 0; i < n;) {
    std::int64_t end = i + 1;
    bool in_order = true;
    for (; end < n && (items[i] ^ items[end]) <= positions; ++end)
      in_order &= keys[items[end - 1] & positions] <= keys[items[end] & positions];
    if (!in_order) std::sort(items + i, items + end, before);
    i = end;
  }
}

#if defined(__x86_64__)
KILN_AVX2 Packed pack_avx2(const std::uint64_t* keys, std::int64_t n, std::uint64_t* to) {
  return pack(keys, n, to);
}
KILN_AVX512 Packed pack_avx512(const std::uint64_t* keys, std::int64_t n, std::uint64_t* to) {
  return pack(keys, n, to);
}
KILN_AVX512 void settle_avx512(const Packed& packed, const std::uint64_t* keys, std::uint64_t* items,
                               std::int64_t n) {
  if (!packed.exact && any_alike(items, n, packed.positions)) settle_alike(packed.positions, keys, items, n);
}
#endif
Packed pack_base(const std::uint64_t* keys, std::int64_t n, std::uint64_t* to) { return pack(keys, n, to); }
void settle_base(const Packed& packed, const std::uint64_t* keys, std::uint64_t* items, std::int64_t n) {
  if (!packed.exact) settle_alike(packed.positions, keys, items, n);
}

}  // namespace

PackFunctions pack_functions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return {pack_avx512, settle_avx512};
  if (target.avx2) return {pack_avx2, settle_base};
#endif
  return {pack_base, settle_base};
}

}  // namespace kiln::cpu
