// Rows added to listed rows, and the lists themselves, on every target.
#include "library/cpu/add_rows.h"

#include "codegen/on_target.h"
#include "library/cpu/positions.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace kiln::cpu {
namespace {

/// Rows of every length: some come several times, also one after the other; sums depend on their order.
template <class A, class T>
void rows_meet_in_order(const char* types) {
  for (const std::string& target : testing::cpu_targets()) {
    const testing::ConfigScope scope(target);
    const AddRows<A, T> add = add_rows<A, T>();
    if (!add) continue;  // the base
    for (std::int64_t n = 1; n <= 35; ++n)
      for (const bool cached : {true, false}) {
        constexpr std::int64_t kRows = 9, kCount = 70;
        std::vector<std::int64_t> elements, starts;
        std::vector<T> values(static_cast<std::size_t>(kCount * n));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<T>(static_cast<float>(i * i % 101) / 7.0f - 3.0f);
        std::vector<A> got(static_cast<std::size_t>(kRows * n + 1), A{1} / 3), want = got;
        for (std::int64_t j = 0; j < kCount; ++j) {
          elements.push_back(j / 3 * j % kRows * n);
          starts.push_back(j * n);
          for (std::int64_t i = 0; i < n; ++i)
            want[static_cast<std::size_t>(elements.back() + i)] +=
                static_cast<A>(values[static_cast<std::size_t>(j * n + i)]);
        }
        add({elements.data(), starts.data(), kCount}, got.data(), values.data(), n, cached);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(A)), 0)
            << types << ", rows of " << n << " on KILN_CPU=" << target;
        add({elements.data(), starts.data(), 0}, got.data(), values.data(), n, cached);
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

/// Positions before, in and behind a range, none of them, or all; nothing is written behind the n-th.
TEST(KeepPositions, ListsThoseOfARange) {
  constexpr std::int64_t kLow = 10, kHigh = 30, kPitch = 7, kStep = -3, kBehind = 99;
  for (const std::string& target : testing::cpu_targets()) {
    const testing::ConfigScope scope(target);
    const KeepPositions keep = keep_positions();
    for (std::int64_t n = 0; n <= 40; ++n)
      for (const std::int64_t range : {1, 25, 60}) {
        std::vector<std::int64_t> positions, elements, values;
        for (std::int64_t i = 0; i < n; ++i) {
          positions.push_back(i % 5 == 4 ? -1 : i * 31 % range);
          if (positions.back() < kLow || positions.back() >= kHigh) continue;
          elements.push_back(positions.back() * kPitch);
          values.push_back(i * kStep);
        }
        std::vector<std::int64_t> got[2];
        for (auto& list : got) list.assign(static_cast<std::size_t>(n) + 1, kBehind);
        const std::int64_t found =
            keep(positions.data(), n, kLow, kHigh, kPitch, kStep, got[0].data(), got[1].data());
        EXPECT_EQ(got[0].back(), kBehind) << target << " " << n;
        EXPECT_EQ(got[1].back(), kBehind) << target << " " << n;
        for (auto& list : got) list.resize(static_cast<std::size_t>(found));
        EXPECT_EQ(got[0], elements) << target << " " << n;
        EXPECT_EQ(got[1], values) << target << " " << n;
      }
  }
}

}  // namespace
}  // namespace kiln::cpu
