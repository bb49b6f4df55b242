#include "codegen/cuda/product_launch.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::codegen {
namespace {

constexpr int kStage = 2 * 32;  // bytes of a row in a stage of the mma template

constexpr ProductTile kMmaTiles[] = {
    {128, 256, 32, 256, 4 * (128 + 256) * kStage, 1, 0, 0},
    {128, 128, 32, 128, 3 * (128 + 128) * kStage, 1, 0, 0},
    {64, 64, 32, 128, 4 * (64 + 64) * kStage, 1, 0, 0},
};

/// Rows of 64 elements, a KiB to begin at a multiple of it, two barriers a stage.
constexpr int ring(int n, int stages) { return stages * ((128 + n) * 128 + 16) + 1024; }

constexpr ProductTile kWgmmaTiles[] = {
    {128, 256, 64, 384, ring(256, 4), 1, 128, 128},
    {128, 256, 64, 384, ring(256, 4), 2, 128, 128},
    {128, 128, 64, 384, ring(128, 6), 1, 128, 128},
};
// two products: the columns of one fill a box
constexpr ProductTile kWgmmaPairs[] = {
    {128, 256, 64, 384, ring(256, 4), 1, 128, 128},
    {128, 256, 64, 384, ring(256, 4), 2, 128, 128},
    {128, 128, 64, 384, ring(128, 6), 1, 128, 64},
};

std::int64_t tiles(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

const ProductTile& tile_of(ProductChoice choice) {
  switch (choice.kind) {
    case ProductKind::Mma: return kMmaTiles[choice.tile];
    case ProductKind::Wgmma: return (choice.products == 1 ? kWgmmaTiles : kWgmmaPairs)[choice.tile];
  }
  __builtin_unreachable();
}

device::LaunchShape product_shape(ProductChoice choice, const ProductExtents& extents, int sms) {
  const ProductTile& tile = tile_of(choice);
  const std::int64_t along_m = static_cast<std::int64_t>(tile.m) * tile.cluster;
  std::int64_t count = tiles(extents.m, along_m) * tiles(extents.n, tile.n / choice.products) * extents.batch;
  if (choice.kind == ProductKind::Wgmma) count = std::min<std::int64_t>(count, sms / tile.cluster);
  count *= tile.cluster;
  device::LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(count);
  shape.block[0] = static_cast<std::uint32_t>(tile.threads);
  shape.dynamic_shared = static_cast<std::uint32_t>(tile.shared);
  shape.cluster[0] = static_cast<std::uint32_t>(tile.cluster);
  return shape;
}

}  // namespace kiln::codegen
