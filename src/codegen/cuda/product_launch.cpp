#include "codegen/cuda/product_launch.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::codegen {
namespace {

/// Bytes of stages with this many rows and columns.
constexpr int stages_of(int stages, int lines, int depth) { return stages * lines * depth * 2; }

constexpr ProductTile kMmaTiles[] = {
    {128, 256, 32, 256, stages_of(4, 128 + 256, 32), 1, 0, 0},
    {128, 128, 64, 128, stages_of(3, 128 + 128, 64), 1, 0, 0},
    {64, 64, 32, 128, stages_of(4, 64 + 64, 32), 1, 0, 0},
};
// of two products, windows, or floats
constexpr ProductTile kMmaShallow[] = {
    {128, 256, 32, 256, stages_of(4, 128 + 256, 32), 1, 0, 0},
    {128, 128, 32, 128, stages_of(4, 128 + 128, 32), 1, 0, 0},
    {64, 64, 32, 128, stages_of(4, 64 + 64, 32), 1, 0, 0},
    {128, 32, 32, 128, stages_of(4, 128 + 32, 32), 1, 0, 0},
};

/// Rows of 64 elements, a KiB to begin at a multiple of it, two barriers a stage and one more.
constexpr int ring(int n, int stages) { return stages * ((128 + n) * 128 + 16) + 8 + 1024; }

/// Stages of each warp of few rows and of 32 lines of 64 elements, 64 of 32, 16 or 32 of 128; as many as fit.
ProductTile decode_tile(const ProductChoice& c) {
  constexpr int kShared = 196608, kMost = 4;  // bytes of a multiprocessor; stages
  const int n = c.tile == 1 ? 64 : c.tile == 3 ? 16 : 32, k = c.tile == 1 ? 32 : c.tile >= 3 ? 128 : 64;
  const int stage = c.rows * k * 2 + n * k * (c.made_of > 0 ? c.made_of : 2) / c.share;
  const int stages = std::min(kMost, kShared / c.warps_per_sm / stage);
  return {c.rows, n, k, 32 * c.warps, c.warps * stages * stage, 1, 0, 0};
}

/// Two stages, the table of k, and lines where they are in shared memory.
ProductTile gather_tile(const ProductChoice::Gather& g) {
  constexpr int kTable = 256, kEntry = 8, kWarp = 32;
  const bool halves = g.bytes == 2, fragments = g.bytes != 4, together = g.together || halves;
  const int vector = 16 / g.bytes, lines = g.of_columns ? g.n : g.m, others = g.of_columns ? g.m : g.n;
  const int pitch = g.depth + (g.bytes < 8 ? vector : g.depth % 16 == 0 ? 8 : 0);  // of a line
  const int stage = (together ? lines * pitch : (lines + (fragments ? vector : 0)) * g.depth) +
                    (halves ? others * pitch : (others + vector) * g.depth);
  const int listed = g.together && !halves ? lines : 0;
  const int threads = g.m / g.each_m * (g.n / g.each_n) * (fragments ? kWarp : 1);
  return {g.m, g.n, g.depth, threads, 2 * stage * g.bytes + (kTable + listed) * kEntry, 1, 0, 0};
}

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

/// A batch whose windows are counted through all images.
ProductExtents as_one_matrix(ProductExtents e, const ProductChoice::Gather& g) {
  if (g.of_columns)
    e.n = e.batch * ((e.n + g.width - 1) / g.width * g.width);
  else
    e.m *= e.batch;
  e.batch = 1;
  return e;
}

/// A tile of halves as one of elements with so many bytes.
ProductTile with_elements_of(int bytes, ProductTile tile) {
  tile.k = tile.k * 2 / bytes;
  return tile;
}

std::int64_t tiles(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

ProductTile tile_of(const ProductChoice& choice) {
  switch (choice.kind) {
    case ProductKind::Mma:
      return with_elements_of(choice.bytes, (choice.products == 1 && !choice.windows && choice.bytes == 2
                                                 ? kMmaTiles
                                                 : kMmaShallow)[choice.tile]);
    case ProductKind::Wgmma:
      return with_elements_of(choice.bytes, (choice.products == 1 ? kWgmmaTiles : kWgmmaPairs)[choice.tile]);
    case ProductKind::Decode: return decode_tile(choice);
    case ProductKind::Gather: return gather_tile(choice.gather);
  }
  __builtin_unreachable();
}

device::LaunchShape product_shape(const ProductChoice& choice, const ProductExtents& given, int sms,
                                  std::span<const ProductPart> parts) {
  const ProductTile tile = tile_of(choice);
  const ProductExtents extents = choice.gather.flat ? as_one_matrix(given, choice.gather) : given;
  const std::int64_t along_m = static_cast<std::int64_t>(tile.m) * tile.cluster;
  std::int64_t along_n = tiles(extents.n, tile.n / choice.products);
  for (const ProductPart& p : parts) along_n += tiles(p.n, tile.n / choice.products);
  std::int64_t count = tiles(extents.m, along_m) * along_n * extents.batch;
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
