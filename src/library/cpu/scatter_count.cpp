#include "library/cpu/scatter_count.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"

namespace kiln::cpu {
namespace {

constexpr std::int64_t kAtOnce = 4;

template <int kTables, class Cell, class Counter>
void count_wide(const Cell* cells, std::int64_t n, std::int64_t pitch, Counter* counters) {
  Counter* tables[kTables];
  for (int t = 0; t < kTables; ++t) tables[t] = counters + t * pitch;
  std::int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce)
    for (int j = 0; j < kAtOnce; ++j) ++tables[j % kTables][cells[i + j]];
  for (; i < n; ++i) ++counters[cells[i]];
}

template <int kTables>
std::int64_t count_bytes(const std::int32_t* cells, std::int64_t n, std::int64_t pitch,
                         std::uint8_t* counters, std::int32_t* overflowed) {
  std::uint8_t* tables[kTables];
  for (int t = 0; t < kTables; ++t) tables[t] = counters + t * pitch;
  std::int64_t found = 0, i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce)
    for (int j = 0; j < kAtOnce; ++j)
      if (++tables[j % kTables][cells[i + j]] == 0) [[unlikely]]
        overflowed[found++] = cells[i + j];
  for (; i < n; ++i)
    if (++counters[cells[i]] == 0) overflowed[found++] = cells[i];
  return found;
}

/// By registers of `Bytes`: GCC takes vectors that are wider than the target's apart, element by element.
template <int Bytes>
[[gnu::always_inline]] inline void compare(const std::uint8_t* positions, std::int64_t n, std::int64_t count,
                                           std::uint8_t* counters) {
  typedef std::uint8_t V __attribute__((vector_size(Bytes)));
  typedef std::uint8_t Memory __attribute__((vector_size(Bytes), aligned(1), may_alias));
  constexpr int kParts = static_cast<int>(kComparedTogether) / Bytes;
  for (std::int64_t position = 0; position < count; ++position) {
    const V here = V{} + static_cast<std::uint8_t>(position);
    V sums[kParts];
    Memory* const counted = reinterpret_cast<Memory*>(counters + position * kComparedTogether);
    for (int part = 0; part < kParts; ++part) sums[part] = counted[part];
    for (std::int64_t i = 0; i < n; ++i) {
      const Memory* const from = reinterpret_cast<const Memory*>(positions + i * kComparedTogether);
      for (int part = 0; part < kParts; ++part) {
        const V at = from[part];
        sums[part] -= reinterpret_cast<V>(at == here);
      }
    }
    for (int part = 0; part < kParts; ++part) counted[part] = sums[part];
  }
}

#if defined(__x86_64__)
KILN_AVX2 void compare_avx2(const std::uint8_t* positions, std::int64_t n, std::int64_t count,
                            std::uint8_t* counters) {
  compare<32>(positions, n, count, counters);
}
KILN_AVX512 void compare_avx512(const std::uint8_t* positions, std::int64_t n, std::int64_t count,
                                std::uint8_t* counters) {
  compare<64>(positions, n, count, counters);
}
#endif
void compare_base(const std::uint8_t* positions, std::int64_t n, std::int64_t count, std::uint8_t* counters) {
  compare<16>(positions, n, count, counters);
}

}  // namespace

CountCompared count_compared() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx512) return compare_avx512;
  if (target.avx2) return compare_avx2;
#endif
  return compare_base;
}

template <class Cell, class Counter>
void count_cells(const Cell* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                 Counter* counters) {
  if (tables == 1) return count_wide<1>(cells, n, pitch, counters);
  if (tables == 2) return count_wide<2>(cells, n, pitch, counters);
  count_wide<4>(cells, n, pitch, counters);
}
template void count_cells(const std::int32_t*, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*);
template void count_cells(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*);
template void count_cells(const std::int32_t*, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*);
template void count_cells(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*);

std::int64_t count_cells(const std::int32_t* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                         std::uint8_t* counters, std::int32_t* overflowed) {
  if (tables == 1) return count_bytes<1>(cells, n, pitch, counters, overflowed);
  return count_bytes<2>(cells, n, pitch, counters, overflowed);
}

}  // namespace kiln::cpu
