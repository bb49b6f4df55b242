#include "library/cpu/sort_packed.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"
#include "library/cpu/sort_network.h"

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

template <class Item>
void settle_alike(Item positions, const Item* keys, Item* items, std::int64_t n) {
  const auto before = [&](Item a, Item b) {
    const Item x = keys[a & positions], y = keys[b & positions];
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

/// As many rows at a time as a register of `Bytes` has.
template <class Item, int Bytes>
[[gnu::always_inline]] inline std::uint32_t items_of_lines(Item* tile, std::int64_t n, Item positions) {
  typedef Item V __attribute__((vector_size(Bytes), may_alias));
  constexpr int kRows = Bytes / static_cast<int>(sizeof(Item)),
                kPitch = static_cast<int>(kNetworkLine) / Bytes;
  std::uint32_t exact = 0;
  for (int part = 0; part < kPitch; ++part) {
    V* const lines = static_cast<V*>(__builtin_assume_aligned(tile + part * kRows, Bytes));
    V least = lines[0], bits = {}, unused = {};
    for (std::int64_t i = 1; i < n; ++i) {
      const V x = lines[i * kPitch];
      least = x < least ? x : least;
    }
    for (std::int64_t i = 0; i < n; ++i) bits |= lines[i * kPitch] - least;
    for (int r = 0; r < kRows; ++r) {
      const Item of_row = bits[r];
      const int zeros = std::min(std::countl_zero(of_row), static_cast<int>(8 * sizeof(Item)) - 1);
      unused[r] = static_cast<Item>(zeros);
      if ((of_row << zeros & positions) == 0) exact |= 1u << (part * kRows + r);
    }
    for (std::int64_t i = 0; i < n; ++i)
      lines[i * kPitch] =
          (((lines[i * kPitch] - least) << unused) & static_cast<Item>(~positions)) | static_cast<Item>(i);
  }
  return exact;
}

template <class Item, int Bytes>
[[gnu::always_inline]] inline std::uint32_t alike_in_lines(const Item* tile, std::int64_t n, Item positions) {
  typedef Item V __attribute__((vector_size(Bytes), may_alias));
  constexpr int kRows = Bytes / static_cast<int>(sizeof(Item)),
                kPitch = static_cast<int>(kNetworkLine) / Bytes;
  std::uint32_t found = 0;
  for (int part = 0; part < kPitch; ++part) {
    const V* const lines = static_cast<const V*>(__builtin_assume_aligned(tile + part * kRows, Bytes));
    V least = ~V{};
    for (std::int64_t i = 0; i + 1 < n; ++i) {
      const V apart = lines[i * kPitch] ^ lines[(i + 1) * kPitch];
      least = apart < least ? apart : least;
    }
    for (int r = 0; r < kRows; ++r)
      if (least[r] <= positions) found |= 1u << (part * kRows + r);
  }
  return found;
}

#if defined(__x86_64__)
template <class Item>
KILN_AVX2 std::uint32_t lines_avx2(Item* tile, std::int64_t n, Item positions) {
  return items_of_lines<Item, 32>(tile, n, positions);
}
template <class Item>
KILN_AVX512 std::uint32_t lines_avx512(Item* tile, std::int64_t n, Item positions) {
  return items_of_lines<Item, 64>(tile, n, positions);
}
template <class Item>
KILN_AVX2 std::uint32_t alike_avx2(const Item* tile, std::int64_t n, Item positions) {
  return alike_in_lines<Item, 32>(tile, n, positions);
}
template <class Item>
KILN_AVX512 std::uint32_t alike_avx512(const Item* tile, std::int64_t n, Item positions) {
  return alike_in_lines<Item, 64>(tile, n, positions);
}
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

template <class Item>
PackLines<Item> pack_lines() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return {lines_avx512<Item>, alike_avx512<Item>, settle_alike<Item>};
  if (target.avx2) return {lines_avx2<Item>, alike_avx2<Item>, settle_alike<Item>};
#endif
  return {items_of_lines<Item, 16>, alike_in_lines<Item, 16>, settle_alike<Item>};
}
template PackLines<std::uint32_t> pack_lines<std::uint32_t>();
template PackLines<std::uint64_t> pack_lines<std::uint64_t>();

}  // namespace kiln::cpu
