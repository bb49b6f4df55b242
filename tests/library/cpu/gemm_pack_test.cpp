// Panels against their definition: to[p·width + w] = from[across[w] + along[p]].
#include "library/cpu/gemm_pack.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace kiln::cpu {
namespace {

using Offsets = std::vector<std::int64_t>;

constexpr std::int64_t kMemory = 1 << 14;

template <class T>
void expect_panel(Lines across, Lines along, std::int64_t used, std::int64_t width, std::int64_t depth,
                  const std::string& what) {
  using C = typename ComputeOf<T>::type;
  std::vector<T> from(kMemory);
  for (std::int64_t i = 0; i < kMemory; ++i) from[static_cast<std::size_t>(i)] = static_cast<T>(i % 1999);
  const auto cells = static_cast<std::size_t>(width * depth);
  std::vector<C> packed(cells, C{77}), expected(cells, C{});
  for (std::int64_t p = 0; p < depth; ++p)
    for (std::int64_t w = 0; w < used; ++w)
      expected[static_cast<std::size_t>(p * width + w)] =
          static_cast<C>(from[static_cast<std::size_t>(across[w] + along[p])]);
  pack_panel(from.data(), across, along, used, width, depth, packed.data());
  EXPECT_EQ(packed, expected) << what;
}

/// The pixels of rows of an image, a border apart, by the taps of a window.
TEST(PackPanel, PixelsOfRowsByTaps) {
  for (const std::int64_t row : {1, 4, 7, 8, 9, 16, 24, 32, 40})
    for (const std::int64_t used : {1, 8, 13, 16, 24, 31, 32})
      for (const std::int64_t first : {0, 5, 8}) {
        Offsets pixels, taps;
        for (std::int64_t i = 0; i < first + used; ++i) pixels.push_back(i / row * (row + 2) + i % row);
        for (std::int64_t t = 0; t < 29; ++t) taps.push_back(t / 9 * 1000 + t % 9 / 3 * (row + 2) + t % 3);
        const std::string what = std::to_string(used) + " pixels from " + std::to_string(first) +
                                 " of rows of " + std::to_string(row);
        const Lines across{0, pixels.data(), first}, along{0, taps.data(), 2}, stride{50, nullptr, 3};
        expect_panel<float>(across, along, used, 32, 27, what);
        expect_panel<float>(across, stride, used, 32, 27, what + ", steps at a stride");
        expect_panel<std::int32_t>(across, along, used, 32, 27, what + ", int32");
        expect_panel<bfloat16>(across, along, used, 32, 27, what + ", bfloat16");
        expect_panel<double>(across, along, used, 32, 27, what + ", float64");
      }
}

/// Taps as lines, whose steps are the pixels.
TEST(PackPanel, TapsByPixelsOfRows) {
  for (const std::int64_t row : {1, 3, 8, 11, 16})
    for (const std::int64_t used : {1, 3, 4, 6, 10, 14, 27}) {
      Offsets pixels, taps;
      for (std::int64_t i = 0; i < 64; ++i) pixels.push_back(i / row * (row + 2) + i % row);
      for (std::int64_t t = 0; t < 27; ++t) taps.push_back(t / 9 * 1000 + t % 9 / 3 * (row + 2) + t % 3);
      const std::string what = std::to_string(used) + " taps, rows of " + std::to_string(row);
      const Lines across{0, taps.data()}, along{0, pixels.data()};
      expect_panel<float>(across, along, used, 32, 64, what);
      expect_panel<float16>(across, along, used, 32, 64, what + ", float16");
    }
}

/// Rows of a multiple of four pixels, and of others.
TEST(PackPanel, TapsByPixelsThatAdjoinByFours) {
  for (const std::int64_t row : {2, 4, 6, 8, 12, 16, 64})
    for (const std::int64_t depth : {1, 8, 48, 64, 192, 576})
      for (const std::int64_t used : {4, 8, 9, 15, 27, 32}) {
        Offsets pixels, taps;
        for (std::int64_t i = 0; i < depth + 3; ++i) pixels.push_back(i / row * (row + 2) + i % row);
        for (std::int64_t t = 0; t < 32; ++t) taps.push_back(t / 9 * 1000 + t % 9 / 3 * (row + 2) + t % 3);
        const std::string what = std::to_string(used) + " taps, " + std::to_string(depth) +
                                 " pixels of rows of " + std::to_string(row);
        const Lines across{0, taps.data()};
        expect_panel<float>(across, {0, pixels.data()}, used, 32, depth, what);
        expect_panel<float>(across, {0, pixels.data(), 3}, used, 32, depth, what + ", from the fourth on");
        expect_panel<std::int32_t>(across, {1, nullptr, 2}, used, 32, depth, what + ", one run");
        expect_panel<double>(across, {0, pixels.data()}, used, 32, depth, what + ", float64");
      }
}

/// Lines at strides: of adjacent elements, side by side, and neither.
TEST(PackPanel, LinesAtStrides) {
  for (const std::int64_t used : {1, 3, 4, 5, 10, 14, 16})
    for (const std::int64_t depth : {1, 8, 63, 64, 100}) {
      const std::string what = std::to_string(used) + " lines of " + std::to_string(depth);
      expect_panel<float>({101}, {1}, used, 16, depth, what);
      expect_panel<float>({1}, {101}, used, 16, depth, what + ", side by side");
      expect_panel<std::uint32_t>({101}, {2}, used, 16, depth, what + ", every second element");
      expect_panel<float16>({101}, {1}, used, 16, depth, what + ", float16");
    }
}

/// Eight lines at a time, some of them once more where their number is no multiple of eight.
TEST(PackPanel, EightLinesAreTurnedTogether) {
  for (const std::int64_t used : {7, 8, 9, 12, 15, 16, 17, 24, 31, 32})
    for (const std::int64_t depth : {3, 4, 8, 12, 60, 64, 68, 131}) {
      Offsets lines;
      for (std::int64_t w = 0; w < used; ++w) lines.push_back(w * 203 + w % 3);
      const std::string what = std::to_string(used) + " lines of " + std::to_string(depth);
      expect_panel<float>({203}, {1}, used, 32, depth, what);
      expect_panel<std::int32_t>({203}, {1, nullptr, 5}, used, 32, depth, what + ", int32");
      expect_panel<bfloat16>({203}, {1}, used, 32, depth, what + ", bfloat16");
      expect_panel<double>({203}, {1}, used, 32, depth, what + ", float64");
      expect_panel<float>({0, lines.data()}, {1}, used, 32, depth, what + ", anywhere");
    }
}

#if defined(__x86_64__)
TEST(PackEightLines, WritesItsColumnsAlone) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no such registers";
  constexpr std::size_t kSteps = 12, kWidth = 11;
  std::vector<std::uint32_t> from(8 * kSteps), to(kSteps * kWidth, 7);
  std::iota(from.begin(), from.end(), 100u);
  const std::uint32_t* lines[8];
  for (std::size_t w = 0; w < 8; ++w) lines[w] = from.data() + (7 - w) * kSteps;
  const std::int64_t starts[] = {8, 0, 4};
  ASSERT_TRUE(pack_eight_lines(lines, starts, 3, 4, to.data() + 2, kWidth));
  for (std::size_t p = 0; p < kSteps; ++p)
    for (std::size_t w = 0; w < kWidth; ++w)
      EXPECT_EQ(to[p * kWidth + w], w < 2 || w == 10 ? 7u : lines[w - 2][(p + 8) % kSteps]) << p << ", " << w;
}
#endif

}  // namespace
}  // namespace kiln::cpu
