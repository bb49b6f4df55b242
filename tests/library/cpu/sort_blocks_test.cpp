// Keys of rows as lines, and values of lines as rows, for every dtype: what single elements become.
#include "library/cpu/sort_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::cpu {
namespace {

/// The bits of any elements, and every few of them of a zero of either sign, an infinity or a NaN.
template <class T>
std::vector<Key<T>> elements(std::size_t n) {
  std::vector<Key<T>> out(n);
  std::uint64_t state = 88172645463325252u;
  for (std::size_t i = 0; i < n; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    Key<T> bits = static_cast<Key<T>>(state >> 5);
    if constexpr (std::is_same_v<T, bool>) bits &= 1;
    if constexpr (!std::is_integral_v<T>) {
      const Key<T> magnitudes[] = {0, kInfinity<T>, static_cast<Key<T>>(kInfinity<T> + 1)};
      if (i % 3 == 0) bits = static_cast<Key<T>>(magnitudes[state % 3] | (bits & kSign<T>));
    }
    out[i] = bits;
  }
  return out;
}

template <class T>
void blocks_are_as_single_elements(const char* name) {
  const BlockFunctions<T> f = block_functions<T>();
  if (!f.lines) GTEST_SKIP() << "this host has no such instructions";
  constexpr std::int64_t kRows = kNetworkRows<Key<T>>, kPiece = 16 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t n = 1; n <= 35; ++n)
    for (const std::int64_t pitch : {n, n + 5})
      for (const int flags : {0, 1, 2, 3}) {
        const bool merge = (flags & 1) != 0, descending = (flags & 2) != 0;
        const auto from = elements<T>(static_cast<std::size_t>((kRows - 1) * pitch + n));
        const std::int64_t whole = (n + kPiece - 1) / kPiece * kPiece;
        std::vector<Key<T>> memory(static_cast<std::size_t>((whole + 2) * kRows));
        const auto place = reinterpret_cast<std::uintptr_t>(memory.data()) % kNetworkLine;
        Key<T>* const lines =
            memory.data() + (place ? (kNetworkLine - place) / sizeof(Key<T>) : std::size_t{0});
        f.lines(reinterpret_cast<const T*>(from.data()), pitch, n, merge, descending, lines);
        for (std::int64_t r = 0; r < kRows; ++r)
          for (std::int64_t i = 0; i < n; ++i) {
            const Key<T> key = key_of(std::bit_cast<T>(from[static_cast<std::size_t>(r * pitch + i)]), merge);
            ASSERT_EQ(lines[i * kRows + r], descending ? static_cast<Key<T>>(~key) : key)
                << name << " n " << n << " row " << r << " element " << i << " flags " << flags;
          }
        std::vector<Key<T>> back(static_cast<std::size_t>((kRows - 1) * pitch + n + 1), Key<T>{77});
        f.rows(lines, n, descending, reinterpret_cast<T*>(back.data()), pitch);
        for (std::int64_t at = 0; at < std::ssize(back); ++at) {
          const auto e = static_cast<std::size_t>(at);
          const std::int64_t r = at / pitch, i = at % pitch;
          Key<T> expected = 77;
          if (r < kRows && i < n) {
            const Key<T> line = lines[i * kRows + r];
            expected = bits_of(value_of<T>(descending ? static_cast<Key<T>>(~line) : line));
          }
          ASSERT_EQ(back[e], expected)
              << name << " n " << n << " pitch " << pitch << " row " << r << " element " << i;
        }
      }
}

/// Numbers in their own order, or the other one; one float that has no place there is found wherever it is.
template <class T>
void numbers_are_lines_and_rows() {
  const BlockFunctions<T> f = block_functions<T>();
  const TileSort<Key<T>> order = number_sort<T>();
  if (!f.number_lines || !order) GTEST_SKIP() << "this host has no such instructions";
  constexpr std::int64_t kRows = kNetworkRows<Key<T>>;
  struct alignas(kNetworkLine) Line {
    Key<T> rows[kRows];
  };
  const Key<T> nan = bits_of(quiet_nan<T>()), specials[] = {nan, static_cast<Key<T>>(nan | kSign<T>),
                                                            static_cast<Key<T>>(kInfinity<T> + 1), kSign<T>};
  for (const std::int64_t n : {1, 4, 7, 8, 17, 40, 300})
    for (const bool descending : {false, true}) {
      std::vector<Key<T>> rows = elements<T>(static_cast<std::size_t>(kRows * n));
      for (Key<T>& x : rows) {
        const bool is_nan = static_cast<Key<T>>(x & ~kSign<T>) > kInfinity<T>;
        if (x == kSign<T> || is_nan) x = static_cast<Key<T>>(kInfinity<T> >> 1);
        if (std::is_same_v<T, bfloat16>) x = static_cast<Key<T>>(x & 0xbfff);  // no NaN of float16
      }
      std::vector<Line> lines(static_cast<std::size_t>((n + 31) / 16 * 16));
      const auto* const from = reinterpret_cast<const T*>(rows.data());
      ASSERT_TRUE(f.number_lines(from, n, n, descending, lines.front().rows)) << n;
      order(lines.front().rows, n, n);
      std::vector<Key<T>> sorted(rows.size());
      f.number_rows(lines.front().rows, n, descending, reinterpret_cast<T*>(sorted.data()), n);
      for (std::int64_t r = 0; r < kRows; ++r) {
        std::vector<Key<T>> expected(rows.begin() + r * n, rows.begin() + (r + 1) * n);
        std::ranges::sort(expected, {}, [&](Key<T> x) {
          const Key<T> key = key_of(std::bit_cast<T>(x), false);
          return descending ? static_cast<Key<T>>(~key) : key;
        });
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), sorted.begin() + r * n)) << n << " " << r;
      }
      for (const Key<T> special : specials)
        for (const std::size_t at : {std::size_t{0}, rows.size() / 2, rows.size() - 1}) {
          const Key<T> before = std::exchange(rows[at], special);
          EXPECT_FALSE(f.number_lines(from, n, n, descending, lines.front().rows)) << n << " " << at;
          rows[at] = before;
        }
    }
}

TEST(SortBlocks, Float16AreLinesAndRowsAsNumbers) { numbers_are_lines_and_rows<float16>(); }
TEST(SortBlocks, BFloat16AreLinesAndRowsAsNumbers) { numbers_are_lines_and_rows<bfloat16>(); }
TEST(SortBlocks, Float32AreLinesAndRowsAsNumbers) { numbers_are_lines_and_rows<float>(); }
TEST(SortBlocks, Float64AreLinesAndRowsAsNumbers) { numbers_are_lines_and_rows<double>(); }

#define KILN_DTYPE(Name, Type, ...) \
  TEST(SortBlocks, RowsOf##Name##BecomeLinesAndRowsAgain) { blocks_are_as_single_elements<Type>(#Name); }
#include <kiln/dtype.def>
#undef KILN_DTYPE

}  // namespace
}  // namespace kiln::cpu
