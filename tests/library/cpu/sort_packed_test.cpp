// Keys and positions in one word: rows whose keys differ in their last bits only, beside keys far away, are
// in the order of the whole keys; and results that go past the caches are the same.
#include "library/cpu/sort_packed.h"
#include "library/cpu/past_caches.h"
#include "library/cpu/sort_lines.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <vector>

namespace kiln::cpu {
namespace {

/// Lines of rows with all bits of a key in use: each row says whether its items are exact.
template <class Item>
void rows_are_packed(bool near) {
  constexpr std::int64_t kRows = kNetworkRows<Item>, n = 21;
  constexpr Item kPositions = 31;
  struct alignas(kNetworkLine) Line {
    Item rows[kRows];
  };
  std::vector<Line> lines(24), keys;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto x = static_cast<Item>((i * 11 + r) % n);
      lines[static_cast<std::size_t>(i)].rows[r] = near     ? static_cast<Item>(Item{1000} + x)
                                                   : x == 3 ? static_cast<Item>(~Item{0})
                                                            : x;
    }
  keys = lines;
  const PackLines<Item> packing = pack_lines<Item>();
  constexpr auto kAll = static_cast<std::uint32_t>((1u << kRows) - 1);
  EXPECT_EQ(packing.pack(lines.front().rows, n, kPositions), near ? kAll : 0u);
  const TileSort<Item> order = tile_sort<Item>();
  order(lines.front().rows, n, n);
  EXPECT_EQ(packing.alike(lines.front().rows, n, kPositions), near ? 0u : kAll);
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::vector<Item> items, row;
    for (std::int64_t i = 0; i < n; ++i) {
      items.push_back(lines[static_cast<std::size_t>(i)].rows[r]);
      row.push_back(keys[static_cast<std::size_t>(i)].rows[r]);
    }
    if (!near) packing.settle(kPositions, row.data(), items.data(), n);
    for (std::int64_t i = 0; i + 1 < n; ++i)
      EXPECT_LT(row[items[static_cast<std::size_t>(i)] & kPositions],
                row[items[static_cast<std::size_t>(i + 1)] & kPositions])
          << r << " " << i;
  }
}

TEST(SortPacked, KeysOf4BytesNearEachOther) { rows_are_packed<std::uint32_t>(true); }
TEST(SortPacked, KeysOf8BytesNearEachOther) { rows_are_packed<std::uint64_t>(true); }
TEST(SortPacked, KeysOf4BytesFarFromEachOther) { rows_are_packed<std::uint32_t>(false); }
TEST(SortPacked, KeysOf8BytesFarFromEachOther) { rows_are_packed<std::uint64_t>(false); }

/// Floats that differ in their last bit, equal ones, and far ones of both signs.
TEST(SortPacked, OrdersOfRowsAreThoseOfTheInterpreter) {
  const Config before = config();
  Config here = before;
  here.device = "cpu";
  for (const DType dtype : {DType::Float32, DType::Int32, DType::UInt32, DType::Float64})
    for (const std::int64_t n : {9, 33, 64, 200}) {
      configure(here);
      const Tensor i = arange(0, 71 * n, 1, DType::Int64) * 7919 % 997;
      Tensor x = (i % 29).astype(DType::Float64) * 0x1p-22 + 1;
      x = where(i % 31 == 0, -x * 1e8, where(i % 37 == 0, x * 1e9, x));
      if (!is_float(dtype)) x = where(i % 31 == 0, i % 29, i % 29 + 2000000000);
      x = x.astype(dtype).reshape({71, n});
      eval({x});
      std::vector<std::int64_t> orders[2];
      for (const Mode mode : {Mode::Interpret, Mode::Lazy}) {
        Config c = here;
        c.mode = mode;
        configure(c);
        for (const bool descending : {false, true}) {
          const std::vector<std::int64_t> order = argsort(x, 1, descending).to_vector<std::int64_t>();
          orders[mode == Mode::Lazy].insert(orders[mode == Mode::Lazy].end(), order.begin(), order.end());
        }
      }
      EXPECT_TRUE(orders[1] == orders[0]) << name(dtype) << " rows of " << n;
    }
  configure(before);
}

TEST(SortPacked, PositionsGoPastTheCaches) {
  constexpr std::int64_t kRoom = 100;
  std::vector<std::uint32_t> items(kRoom);
  for (std::uint32_t i = 0; i < kRoom; ++i) items[i] = i * 12345677;
  struct Results {
    alignas(kPastLine) std::int64_t positions[kRoom];
  } got{};
  const auto functions = item_functions<std::uint32_t, std::uint32_t>();
  for (const std::int64_t n : {1, 7, 8, 9, 99}) {
    got = {};
    functions.positions(items.data(), n, 0xff, true, got.positions);
    end_past_caches();
    for (std::int64_t i = 0; i < kRoom; ++i)
      ASSERT_EQ(got.positions[i], i < n ? items[static_cast<std::size_t>(i)] & 0xff : 0) << n << " " << i;
  }
}

}  // namespace
}  // namespace kiln::cpu
