// Rows added to listed rows, and the lists themselves, on every target.
#include "library/cpu/add_rows.h"

#include "codegen/on_target.h"
#include "library/cpu/positions.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln::cpu {
namespace {

/// Rows of every length: some come several times, also one after the other; sums depend on their order.
template <class A, class T>
void rows_meet_in_order(const char* types) {
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    const AddRows<A, T> add = add_rows<A, T>();
    if (!add) continue;  // the base
    for (std::int64_t n = 1; n <= 35; ++n)
      for (const auto [cached, few] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
        constexpr std::int64_t kRows = 9, kCount = 70;
        std::vector<std::int32_t> elements, starts;
        std::vector<T> values(static_cast<std::size_t>(kCount * n));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<T>(static_cast<float>(i * i % 101) / 7.0f - 3.0f);
        std::vector<A> got(static_cast<std::size_t>(kRows * n + 1), A{1} / 3), want = got;
        for (std::int64_t j = 0; j < kCount; ++j) {
          elements.push_back(static_cast<std::int32_t>(j / 3 * j % kRows * n));
          starts.push_back(static_cast<std::int32_t>(j * n));
          for (std::int64_t i = 0; i < n; ++i)
            want[static_cast<std::size_t>(elements.back() + i)] +=
                static_cast<A>(values[static_cast<std::size_t>(j * n + i)]);
        }
        add({elements.data(), starts.data(), kCount, few}, got.data(), values.data(), n, cached);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(A)), 0)
            << types << ", rows of " << n << " on KILN_CPU=" << target;
        add({elements.data(), starts.data(), 0, few}, got.data(), values.data(), n, cached);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(A)), 0) << "an empty list";
      }
  }
}

TEST(AddRows, MeetInTheOrderOfTheirList) {
  rows_meet_in_order<float, float>("floats");
  rows_meet_in_order<float, float16>("float16");
  rows_meet_in_order<float, bfloat16>("bfloat16");
  rows_meet_in_order<double, double>("doubles");
}

/// Indices before, in and behind a range, negative and out of range, of any stride; nothing is written behind
/// the n-th. An extent that 32 bits do not hold.
template <class Index>
void lists_those_of_a_range(std::int64_t extent, std::int64_t low, std::int64_t high) {
  constexpr std::int64_t kPitch = 7, kStep = -3;
  constexpr std::int32_t kBehind = 99;
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    const ListPositions<Index> list = list_positions<Index>();
    for (const std::int64_t stride : {1, 3})
      for (const std::int64_t n : {0, 1, 7, 15, 16, 17, 31, 32, 40, 255, 256}) {
        std::vector<Index> indices(static_cast<std::size_t>(n * stride + 1));
        std::vector<std::int32_t> elements, values, got[2];
        for (std::int64_t i = 0; i < n; ++i) {
          auto index = static_cast<Index>(low - 5 + i * 31 % (high - low + 10));
          if (i % 5 == 4) index = static_cast<Index>(i % 2 ? extent : i % 3 ? -1 - i : -extent - 1);
          indices[static_cast<std::size_t>(i * stride)] = index;
          const auto at = static_cast<std::int64_t>(index);
          const std::int64_t p = std::is_signed_v<Index> && index < 0 ? at + extent : at;
          if (p < low || p >= high) continue;
          elements.push_back(static_cast<std::int32_t>((p - low) * kPitch));
          values.push_back(static_cast<std::int32_t>(i * kStep));
        }
        for (auto& l : got) l.assign(static_cast<std::size_t>(n) + 1, kBehind);
        const std::int64_t found =
            list(indices.data(), stride, n, extent, {low, high, kPitch, kStep}, got[0].data(), got[1].data());
        EXPECT_EQ(got[0].back(), kBehind) << target << " " << n;
        EXPECT_EQ(got[1].back(), kBehind) << target << " " << n;
        for (auto& l : got) l.resize(static_cast<std::size_t>(found));
        EXPECT_EQ(got[0], elements) << target << " " << n << ", extent " << extent;
        EXPECT_EQ(got[1], values) << target << " " << n << ", extent " << extent;
      }
  }
}

TEST(ListPositions, ListsThoseOfARange) {
  constexpr std::int64_t kLarge = std::int64_t{5} << 32;
  lists_those_of_a_range<std::int64_t>(60, 10, 30);
  lists_those_of_a_range<std::int64_t>(60, 0, 60);
  lists_those_of_a_range<std::int64_t>(kLarge, 0, 60);
  lists_those_of_a_range<std::int64_t>(kLarge, kLarge - 60, kLarge);
  lists_those_of_a_range<std::int64_t>(std::numeric_limits<std::int32_t>::max(), 10, 30);
  lists_those_of_a_range<std::int32_t>(60, 10, 30);
  lists_those_of_a_range<std::int32_t>(kLarge, 10, 30);
  lists_those_of_a_range<std::int16_t>(60, 30, 60);
  lists_those_of_a_range<std::int8_t>(120, 30, 100);
  lists_those_of_a_range<std::uint8_t>(200, 0, 190);
  lists_those_of_a_range<std::uint16_t>(40000, 20000, 40000);
  lists_those_of_a_range<std::uint32_t>(60, 10, 30);
  lists_those_of_a_range<std::uint64_t>(60, 10, 30);
}

}  // namespace
}  // namespace kiln::cpu
