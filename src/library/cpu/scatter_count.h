// How often each position comes: a scatter that adds one number to one element at every index.
#pragma once

#include "library/cpu/positions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kiln::cpu {

constexpr std::int64_t kResolvedAtOnce = 1024;  // indices
constexpr std::int64_t kFetchedTogether = 8;    // indices: no more than a line has

inline std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The tables of a thread that counts. There are several, because an addition need not wait for the one
/// before where that has the same index; but tables that leave the first cache would cost more than such
/// waits. Where the elements take much of that cache, counters have one byte, and the element gets each 256.
struct CountTables {
  static constexpr std::int64_t kMost = 4, kMostBytes = 64 << 10, kWideBytes = 32 << 10,
                                kBytesBytes = 32 << 10;
  std::int64_t elements, element_bytes;
  bool in_bytes;
  std::int64_t count;
  CountTables(std::int64_t elements, std::int64_t element_bytes)
      : elements(elements),
        element_bytes(element_bytes),
        in_bytes(element_bytes > 1 && elements * element_bytes > kWideBytes),
        count(std::clamp<std::int64_t>(
            in_bytes ? kBytesBytes / elements : kMostBytes / (elements * element_bytes), 1, kMost)) {}
  /// Elements of a table: the last counts what is out of range.
  std::int64_t pitch() const { return elements + 1; }
  std::size_t bytes() const {
    return aligned(static_cast<std::size_t>(in_bytes ? pitch() * (element_bytes + count)
                                                     : pitch() * element_bytes * count));
  }
};

/// count(position, table) for each of n indices, those next to each other in different tables.
template <class Index, class Count>
void count_each(const Index* indices, std::int64_t stride, std::int64_t n, const CountTables& tables,
                Count count) {
  const auto positions_of = resolve_positions<Index, std::int32_t>();
  std::int32_t positions[kResolvedAtOnce];  // tables are small
  for (std::int64_t k = 0; k < n; k += kResolvedAtOnce) {
    const std::int64_t here = std::min(kResolvedAtOnce, n - k);
    positions_of(indices + k * stride, stride, here, tables.elements, tables.elements, positions);
    const std::int64_t more = std::min(here, n - k - here);
    std::int64_t j = 0;
    for (; tables.count == CountTables::kMost && j + CountTables::kMost <= here; j += CountTables::kMost) {
      // the processor asks for what comes next when it counts no more
      if (j % kFetchedTogether == 0 && j < more) __builtin_prefetch(indices + (k + here + j) * stride);
      for (std::int64_t t = 0; t < CountTables::kMost; ++t) count(positions[j + t], t);
    }
    for (; j < here; ++j) count(positions[j], 0);
  }
}

/// How often each position comes, in the first table.
template <class T, class Index>
void count_run(const Index* indices, std::int64_t stride, std::int64_t n, const CountTables& tables,
               T* counts) {
  const std::int64_t pitch = tables.pitch();
  const auto add = [](T& counter, std::uint64_t n) {  // wraps
    counter = static_cast<T>(static_cast<std::uint64_t>(counter) + n);
  };
  if (tables.in_bytes) {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(counts + pitch);
    std::fill_n(counts, pitch, T{});
    std::fill_n(bytes, tables.count * pitch, std::uint8_t{0});
    count_each(indices, stride, n, tables, [&](std::int64_t position, std::int64_t table) {
      if (++bytes[table * pitch + position] == 0) [[unlikely]]
        add(counts[position], 256);
    });
    for (std::int64_t t = 0; t < tables.count; ++t)
      for (std::int64_t i = 0; i < tables.elements; ++i) add(counts[i], bytes[t * pitch + i]);
    return;
  }
  std::fill_n(counts, tables.count * pitch, T{});
  count_each(indices, stride, n, tables,
             [&](std::int64_t position, std::int64_t table) { add(counts[table * pitch + position], 1); });
  for (std::int64_t t = 1; t < tables.count; ++t)
    for (std::int64_t i = 0; i < tables.elements; ++i)
      add(counts[i], static_cast<std::uint64_t>(counts[t * pitch + i]));
}

}  // namespace kiln::cpu
