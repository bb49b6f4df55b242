// Counting of positions: any number of elements, any indices, counters that wrap.
#include "library/cpu/scatter_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace kiln::cpu {
namespace {

/// Multiples of 64 bytes, as a workspace is.
struct alignas(64) Line {
  std::byte bytes[64];
};

/// What Counted makes of `indices` in pieces of `piece`, every `stride`-th of them.
template <class T, class Index>
std::vector<T> counted(const std::vector<Index>& indices, std::int64_t stride, std::int64_t elements,
                       std::int64_t piece) {
  const CountTables tables(elements, sizeof(T));
  std::vector<Line> memory(tables.bytes() / sizeof(Line) + 1);
  auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
  Counted<T> counts(tables, bytes);
  const auto n = static_cast<std::int64_t>(indices.size()) / stride;
  for (std::int64_t i = 0; i < n; i += piece)
    counts.add(indices.data() + i * stride, stride, std::min(piece, n - i), i + 2 * piece <= n);
  counts.finish();
  const auto* const first = reinterpret_cast<const T*>(bytes);
  return {first, first + elements};
}

template <class T, class Index>
std::vector<T> expected(const std::vector<Index>& indices, std::int64_t stride, std::int64_t elements) {
  std::vector<T> out(static_cast<std::size_t>(elements));
  const auto n = static_cast<std::int64_t>(indices.size()) / stride;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::int64_t>(indices[static_cast<std::size_t>(i * stride)]);
    const std::int64_t from_front = at < 0 && std::is_signed_v<Index> ? at + elements : at;
    if (from_front >= 0 && from_front < elements) ++out[static_cast<std::size_t>(from_front)];
  }
  return out;
}

/// Some of them out of range on either side.
template <class Index>
std::vector<Index> random_indices(std::int64_t n, std::int64_t elements) {
  std::vector<Index> out;
  std::uint64_t state = 17;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto at = static_cast<std::int64_t>(state >> 33) % (3 * elements) - elements - elements / 2;
    out.push_back(static_cast<Index>(at));
  }
  return out;
}

constexpr std::int64_t kExtents[] = {1, 2, 10, 16, 17, 100, 127, 128, 1000, 4096, 16383, 16384, 70000};

TEST(CountTables, AreWithinTheFirstCachesAndCompareOrJoinFewPositions) {
  EXPECT_TRUE(CountTables(16, 4).compared);
  EXPECT_FALSE(CountTables(17, 4).compared);
  EXPECT_EQ(CountTables(17, 4).joined, 2);
  EXPECT_EQ(CountTables(127, 4).joined, 2);
  EXPECT_EQ(CountTables(128, 4).joined, 1);
  EXPECT_EQ(CountTables(128, 4).cell_bytes, 4);
  EXPECT_EQ(CountTables(128, 4).tables, 4);
  EXPECT_EQ(CountTables(4096, 4).cell_bytes, 4);
  EXPECT_EQ(CountTables(4096, 4).tables, 2);
  EXPECT_EQ(CountTables(8000, 4).cell_bytes, 2);
  EXPECT_EQ(CountTables(16383, 4).cell_bytes, 2);
  EXPECT_EQ(CountTables(16384, 4).cell_bytes, 1);
  for (const std::int64_t elements : kExtents) {
    const CountTables tables(elements, 4);
    EXPECT_LE(tables.cells * tables.cell_bytes * tables.tables,
              std::max<std::int64_t>(40 << 10, elements + 1));
  }
}

TEST(Counted, EveryNumberOfElements) {
  for (const std::int64_t elements : kExtents) {
    const auto indices = random_indices<std::int32_t>(200003, elements);
    const auto want = expected<std::uint32_t>(indices, 1, elements);
    EXPECT_EQ((counted<std::uint32_t>(indices, 1, elements, 200003)), want) << elements;
    EXPECT_EQ((counted<std::uint32_t>(indices, 1, elements, 1023)), want) << elements;
    EXPECT_EQ((counted<std::uint32_t>(indices, 3, elements, 5000)),
              (expected<std::uint32_t>(indices, 3, elements)))
        << elements;
  }
}

template <class T, class Index>
void expect_counts(std::int64_t elements) {
  const auto indices = random_indices<Index>(70001, elements);
  EXPECT_EQ((counted<T>(indices, 1, elements, 4096)), (expected<T>(indices, 1, elements))) << elements;
}

TEST(Counted, IndicesAndCountersOfEverySize) {
  for (const std::int64_t elements : {2, 13, 100, 1000, 20000}) {
    expect_counts<std::uint8_t, std::int64_t>(elements);
    expect_counts<std::uint16_t, std::uint16_t>(elements);
    expect_counts<std::uint64_t, std::int16_t>(elements);
    expect_counts<std::uint32_t, std::uint64_t>(elements);
    expect_counts<std::uint32_t, std::uint8_t>(elements);
    expect_counts<std::uint32_t, std::int8_t>(elements);
  }
}

TEST(Counted, OneElementForAllIndicesOverflowsNoCounter) {
  for (const std::int64_t elements : kExtents) {
    const std::vector<std::int32_t> indices(1000003, static_cast<std::int32_t>(elements - 1));
    const auto counts = counted<std::uint32_t>(indices, 1, elements, 4096);
    EXPECT_EQ(counts.back(), 1000003u) << elements;
    EXPECT_EQ((counted<std::uint8_t>(indices, 1, elements, 4096)).back(), 1000003u % 256) << elements;
  }
}

TEST(Counted, NoIndices) {
  EXPECT_EQ((counted<std::uint32_t>(std::vector<std::int32_t>(), 1, 3, 10)), std::vector<std::uint32_t>(3));
}

}  // namespace
}  // namespace kiln::cpu
