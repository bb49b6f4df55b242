#include "library/cpu/gemm_tiles.h"

#include <gtest/gtest.h>

using kiln::cpu::Tiles;

namespace {

TEST(Tiles, CoverTheProductInWholePanels) {
  for (const std::int64_t m : {1, 14, 15, 168, 169, 800, 1024})
    for (const std::int64_t n : {1, 31, 32, 33, 256, 257, 1000})
      for (const int threads : {1, 2, 7, 64}) {
        Tiles tiles(m, 14, 168, n, 32, 256);
        tiles.cut(threads, 2, 1);
        const std::int64_t cols = tiles.count() / tiles.rows();
        ASSERT_EQ(tiles.row(0), 0);
        ASSERT_EQ(tiles.col(0), 0);
        ASSERT_EQ(tiles.row(tiles.rows()), m);
        ASSERT_EQ(tiles.col(cols), n);
        for (std::int64_t i = 0; i < tiles.rows(); ++i) {
          ASSERT_LT(tiles.row(i), tiles.row(i + 1));
          ASSERT_LE(tiles.row(i + 1) - tiles.row(i), 168);
          ASSERT_EQ(tiles.row(i) % 14, 0);
        }
        for (std::int64_t i = 0; i < cols; ++i) {
          ASSERT_LT(tiles.col(i), tiles.col(i + 1));
          ASSERT_LE(tiles.col(i + 1) - tiles.col(i), 256);
          ASSERT_EQ(tiles.col(i) % 32, 0);
        }
      }
}

/// 800 x 800 was four tiles of 168 rows and one of 128 by three of 256 columns and one of 32.
TEST(Tiles, ThreadsHaveAsManyOfThemAsLarge) {
  Tiles tiles(800, 14, 168, 800, 32, 256);
  tiles.cut(2, 2, 2);
  EXPECT_EQ(tiles.count() % 2, 0);
  const std::int64_t cols = tiles.count() / tiles.rows();
  std::int64_t least = 800 * 800, most = 0;
  for (std::int64_t i = 0; i + 1 < tiles.rows(); ++i)  // the last rows do not fill their panel
    for (std::int64_t j = 0; j < cols; ++j) {
      const std::int64_t size = (tiles.row(i + 1) - tiles.row(i)) * (tiles.col(j + 1) - tiles.col(j));
      least = std::min(least, size), most = std::max(most, size);
    }
  EXPECT_LE(most * 2, least * 3);
}

TEST(Tiles, AnAxisThatMayNotBeCutIsOneTile) {
  Tiles tiles(100, 14, 168, 5000, 32, 256);
  tiles.cut(64, 0, 1);
  EXPECT_EQ(tiles.rows(), 1);
  EXPECT_GE(tiles.count(), 150);
}

}  // namespace
