// Sorts by partitions against std::sort: lengths around those of leaves, and rows that are hard to partition.
#include "library/cpu/sort_quick.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace kiln::cpu {
namespace {

constexpr int kKinds = 8;

/// Numbers of a kind: any, few different ones, ascending, descending, a saw, the greatest among others, equal
/// ones, and rows whose samples are all among the least.
template <class Item>
std::vector<Item> numbers(int kind, std::int64_t n) {
  std::vector<Item> out(static_cast<std::size_t>(n));
  std::uint64_t state = 12345;
  const std::int64_t step = n / 9 + 1;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto any = static_cast<Item>(state >> 13);
    const auto place = static_cast<Item>(i);
    const Item of_kind[kKinds] = {any,
                                  static_cast<Item>(any % 5),
                                  place,
                                  static_cast<Item>(n - i),
                                  static_cast<Item>(i % 37),
                                  any % 3 ? std::numeric_limits<Item>::max() : any,
                                  Item{7},
                                  (i + step / 2) % step < 2 ? place : any};
    out[static_cast<std::size_t>(i)] = of_kind[kind];
  }
  return out;
}

template <class Item>
void sorts_like_the_standard(const char* type) {
  const QuickSort<Item> quick = quick_sort<Item>();
  if (!quick) GTEST_SKIP() << "this host has none";
  for (const std::int64_t n : {0,  1,  2,   3,   7,   8,   9,   15,  16,  17,  31,   32,   33,   63,
                               64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 1000, 4097, 70001})
    for (int kind = 0; kind < kKinds; ++kind) {
      std::vector<Item> items = numbers<Item>(kind, n), want = items;
      std::vector<Item> other(items.size() + 1, Item{99});
      std::sort(want.begin(), want.end());
      items.push_back(Item{55});
      quick(items.data(), other.data(), n);
      EXPECT_EQ(items.back(), Item{55}) << "behind the row";
      EXPECT_EQ(other.back(), Item{99}) << "behind its help";
      items.pop_back();
      EXPECT_TRUE(items == want) << type << ", " << n << " numbers of kind " << kind;
    }
}

TEST(SortQuick, NumbersOf4Bytes) { sorts_like_the_standard<std::uint32_t>("4 bytes"); }
TEST(SortQuick, NumbersOf8Bytes) { sorts_like_the_standard<std::uint64_t>("8 bytes"); }

}  // namespace
}  // namespace kiln::cpu
