#include "library/cpu/sort_lines.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"
#include "library/cpu/past_caches.h"

namespace kiln::cpu {
namespace {

template <class KeyType, class Item>
[[gnu::always_inline]] inline void to_items(const KeyType* keys, const Item* places, std::int64_t n,
                                            Item* to) {
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = static_cast<Item>(Item{keys[i]} << (4 * sizeof(Item)) | places[i]);
}

template <class Item>
[[gnu::always_inline]] inline void to_positions(const Item* items, std::int64_t n, Item mask,
                                                std::int64_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int64_t>(items[i] & mask);
}

template <class Item>
void order_base(const LineOrder<Item>& order, const Item* from, Item* to) {
  const std::int64_t n = order.lines * LineOrder<Item>::kRows;
  for (std::int64_t e = 0; e < n; ++e) to[e] = from[order.from[e]];
}
template <class KeyType, class Item>
void items_base(const KeyType* keys, const Item* places, std::int64_t n, Item* to) {
  to_items(keys, places, n, to);
}
template <class Item>
void positions_base(const Item* items, std::int64_t n, Item mask, bool, std::int64_t* to) {
  to_positions(items, n, mask, to);
}

#if defined(__x86_64__)

template <class Item>
KILN_AVX512 inline __m512i permuted(__m512i a, __m512i places, __m512i b) {
  if constexpr (sizeof(Item) == 2)
    return _mm512_permutex2var_epi16(a, places, b);
  else if constexpr (sizeof(Item) == 4)
    return _mm512_permutex2var_epi32(a, places, b);
  else
    return _mm512_permutex2var_epi64(a, places, b);
}

/// What a line takes from a pair of others.
template <class Item>
KILN_AVX512 inline __m512i from_pair(const Item* pair, const Item* places) {
  return permuted<Item>(_mm512_loadu_si512(pair), _mm512_load_si512(places),
                        _mm512_loadu_si512(pair + LineOrder<Item>::kRows));
}

template <class Item>
KILN_AVX512 void order_avx512(const LineOrder<Item>& order, const Item* from, Item* to) {
  constexpr std::int64_t kRows = LineOrder<Item>::kRows;
  const std::int64_t pairs = (order.lines + 1) / 2;
  for (std::int64_t line = 0; line < order.lines; ++line) {
    __m512i made = from_pair(from, order.places[line * pairs]);
    for (std::int64_t p = 1; p < pairs; ++p) {
      const __m512i part = from_pair(from + 2 * p * kRows, order.places[line * pairs + p]);
      const __m512i chosen = _mm512_load_si512(order.chosen[line * pairs + p]);
      made = _mm512_ternarylogic_epi64(chosen, part, made, 0xca);  // chosen ? part : made
    }
    _mm512_storeu_si512(to + line * kRows, made);
  }
}
/// The same of bytes, whose permutation is an instruction of its own set.
KILN_AVX512_VBMI void order_bytes(const LineOrder<std::uint8_t>& order, const std::uint8_t* from,
                                  std::uint8_t* to) {
  constexpr std::int64_t kRows = LineOrder<std::uint8_t>::kRows;
  const std::int64_t pairs = (order.lines + 1) / 2;
  for (std::int64_t line = 0; line < order.lines; ++line) {
    __m512i made = _mm512_setzero_si512();
    for (std::int64_t p = 0; p < pairs; ++p) {
      const std::uint8_t* const pair = from + 2 * p * kRows;
      const __m512i part = _mm512_permutex2var_epi8(_mm512_loadu_si512(pair),
                                                    _mm512_load_si512(order.places[line * pairs + p]),
                                                    _mm512_loadu_si512(pair + kRows));
      const __m512i chosen = _mm512_load_si512(order.chosen[line * pairs + p]);
      made = _mm512_ternarylogic_epi64(chosen, part, made, 0xca);  // chosen ? part : made
    }
    _mm512_storeu_si512(to + line * kRows, made);
  }
}
template <class KeyType, class Item>
KILN_AVX2 void items_avx2(const KeyType* keys, const Item* places, std::int64_t n, Item* to) {
  to_items(keys, places, n, to);
}
template <class KeyType, class Item>
KILN_AVX512 void items_avx512(const KeyType* keys, const Item* places, std::int64_t n, Item* to) {
  to_items(keys, places, n, to);
}
/// kLinePast: what writes a line past the caches.
template <auto kLinePast, class Item>
[[gnu::always_inline]] inline void to_positions_past(const Item* items, std::int64_t n, Item mask, bool past,
                                                     std::int64_t* to) {
  constexpr auto kElements = kPastLine / static_cast<std::int64_t>(sizeof(std::int64_t));
  std::int64_t i = 0;
  for (alignas(kPastLine) std::int64_t line[kElements]; past && i + kElements <= n; i += kElements) {
    to_positions(items + i, kElements, mask, line);
    kLinePast(line, to + i);
  }
  to_positions(items + i, n - i, mask, to + i);
}
template <class Item>
KILN_AVX2 void positions_avx2(const Item* items, std::int64_t n, Item mask, bool past, std::int64_t* to) {
  to_positions_past<line_past_avx2>(items, n, mask, past, to);
}
template <class Item>
KILN_AVX512 void positions_avx512(const Item* items, std::int64_t n, Item mask, bool past, std::int64_t* to) {
  to_positions_past<line_past_avx512>(items, n, mask, past, to);
}
#endif

}  // namespace

template <class Item>
OrderLines<Item> order_lines() {
#if defined(__x86_64__)
  if constexpr (sizeof(Item) > 1) {
    if (host_instruction_sets().avx512) return order_avx512<Item>;
  } else {
    if (host_instruction_sets().avx512_vbmi) return order_bytes;
  }
#endif
  return order_base<Item>;
}
template <class Item>
bool orders_registers() {
  return order_lines<Item>() != order_base<Item>;
}
template bool orders_registers<std::uint8_t>();
template bool orders_registers<std::uint16_t>();
template bool orders_registers<std::uint32_t>();
template bool orders_registers<std::uint64_t>();
template OrderLines<std::uint8_t> order_lines<std::uint8_t>();
template OrderLines<std::uint16_t> order_lines<std::uint16_t>();
template OrderLines<std::uint32_t> order_lines<std::uint32_t>();
template OrderLines<std::uint64_t> order_lines<std::uint64_t>();

template <class KeyType, class Item>
ItemFunctions<KeyType, Item> item_functions() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return {items_avx512<KeyType, Item>, positions_avx512<Item>};
  if (target.avx2) return {items_avx2<KeyType, Item>, positions_avx2<Item>};
#endif
  return {items_base<KeyType, Item>, positions_base<Item>};
}
template ItemFunctions<std::uint8_t, std::uint32_t> item_functions<std::uint8_t, std::uint32_t>();
template ItemFunctions<std::uint16_t, std::uint32_t> item_functions<std::uint16_t, std::uint32_t>();
template ItemFunctions<std::uint32_t, std::uint64_t> item_functions<std::uint32_t, std::uint64_t>();
template ItemFunctions<std::uint32_t, std::uint32_t> item_functions<std::uint32_t, std::uint32_t>();
template ItemFunctions<std::uint64_t, std::uint64_t> item_functions<std::uint64_t, std::uint64_t>();

}  // namespace kiln::cpu
