#include "library/cpu/scatter_count.h"

namespace kiln::cpu {
namespace {

constexpr std::int64_t kAtOnce = 4;

template <int kTables>
void count_wide(const std::int32_t* cells, std::int64_t n, std::int64_t pitch, std::uint16_t* counters) {
  std::uint16_t* tables[kTables];
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

}  // namespace

void count_cells(const std::int32_t* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                 std::uint16_t* counters) {
  if (tables == 1) return count_wide<1>(cells, n, pitch, counters);
  if (tables == 2) return count_wide<2>(cells, n, pitch, counters);
  count_wide<4>(cells, n, pitch, counters);
}

std::int64_t count_cells(const std::int32_t* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                         std::uint8_t* counters, std::int32_t* overflowed) {
  if (tables == 1) return count_bytes<1>(cells, n, pitch, counters, overflowed);
  return count_bytes<2>(cells, n, pitch, counters, overflowed);
}

}  // namespace kiln::cpu
