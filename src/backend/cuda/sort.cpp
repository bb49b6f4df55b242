#include "backend/cuda/sort.h"

#include "backend/cuda/axes.h"
#include "backend/cuda/template_kernels.h"
#include "codegen/cuda_expr.h"
#include "backend/cuda/workspace.h"
#include "kernels_templates.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

namespace kiln::cuda {
namespace {

using backend::Sort;

constexpr std::int64_t kShort = 512;           // rows of up to so many elements share a block
constexpr std::int64_t kTileBytes = 32 << 10;  // of shared memory, for longer ones
constexpr std::int64_t kLongestTile = 4096;
constexpr std::int64_t kChunk = 2048;          // items that a block merges

/// The kernels' Rows.
struct Rows {
  Axes axes;
  std::int64_t count = 1, length = 0, stride = 0, kept = 0, inner = 1;
  std::int32_t descending = 0, unused = 0;
};
static_assert(sizeof(Rows) == sizeof(Axes) + 48);

/// What rows are sorted as.
struct Items {
  const char* order;
  std::int64_t bytes, tile;
  bool merged;  // rows are longer than a tile
  Items(DType dtype, bool positions, std::int64_t length) {
    if (!positions) {
      order = "KeyAlone";
      bytes = size_of(dtype);
    } else if (size_of(dtype) <= 4 && length <= std::numeric_limits<std::uint32_t>::max()) {
      order = "KeyAbovePosition";
      bytes = 8;
    } else {
      order = "KeyBesidePosition";
      bytes = 16;
    }
    tile = length <= kShort ? kShort : std::min(kLongestTile, kTileBytes / bytes);
    merged = length > tile;
  }
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

LaunchShape blocks(std::int64_t count) {
  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(count, 1 << 20));
  shape.block[0] = 256;
  return shape;
}

}  // namespace

std::string sort_source(DType dtype, bool positions, std::int64_t length) {
  const Items items(dtype, positions, length);
  return cat(template_prologue(), "typedef ", codegen::cuda_memory_type(dtype), " Element;\n#define KILN_ORDER ", items.order,
             "\nconstexpr int kTile = ", items.tile, ";\n", codegen::templates::sort, items.merged ? codegen::templates::sort_merge : "");
}

void sort(const Sort& call, Stream stream) {
  Rows rows;
  rows.axes = joined_axes(call.in, call.axis);
  for (int a = 0; a < call.in.rank; ++a) {
    if (a != call.axis) rows.count *= call.in.dims[a];
    if (a > call.axis) rows.inner *= call.in.dims[a];
  }
  rows.length = call.in.dims[call.axis];
  rows.stride = call.in.strides[call.axis];
  rows.kept = call.kept;
  rows.descending = call.descending;
  if (rows.count == 0 || rows.kept == 0) return;

  const Items items(call.dtype, call.positions, rows.length);
  static constexpr const char* kSymbols[] = {"sort_tiles", "merge_runs"};
  const std::string name = cat("sort_", codegen::cuda_memory_type(call.dtype), '_', items.order, '_', items.tile, items.merged ? "_merged" : "");
  const auto& kernels = template_kernels(device_of(stream), name, std::span(kSymbols).first(items.merged ? 2 : 1),
                                         [&] { return sort_source(call.dtype, call.positions, rows.length); });

  // Runs of `span` elements, `distance` items apart, `runs` in a row.
  std::int64_t span = items.tile, runs = ceil_div(rows.length, span), distance = std::min(rows.kept, span);
  std::int64_t most = 0;  // items of a row that there are memory's places for
  for (std::int64_t r = runs, s = span; r > 1; r = ceil_div(r, 2), s *= 2) most = std::max(most, r * std::min(rows.kept, s));
  const auto bytes = static_cast<std::uint64_t>(rows.count * most * items.bytes);
  std::optional<Workspace> from, to;
  if (runs > 1) from.emplace(bytes, stream);
  if (runs > 2) to.emplace(bytes, stream);

  void* out = call.out;
  const void* in = call.in.data;
  void* made = from ? from->data() : nullptr;
  std::int32_t log_padded = std::bit_width(static_cast<std::uint64_t>(std::min(rows.length, items.tile) - 1));
  const std::int64_t together = items.tile >> log_padded;
  void* tile_params[] = {&made, &out, &in, &rows, &runs, &log_padded, &distance};
  launch(kernels[0], blocks(ceil_div(rows.count * runs, together)), stream, tile_params);

  void* next = to ? to->data() : nullptr;
  while (runs > 1) {
    std::int64_t after = ceil_div(runs, 2), apart = std::min(rows.kept, 2 * span);
    void* target = after == 1 ? nullptr : next;
    void* params[] = {&target, &out, &made, &rows, &span, &runs, &distance, &after, &apart};
    launch(kernels[1], blocks(rows.count * after * ceil_div(apart, kChunk)), stream, params);
    std::swap(made, next);
    span *= 2;
    runs = after;
    distance = apart;
  }
}

}  // namespace kiln::cuda
