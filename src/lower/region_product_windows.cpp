// Operands of products that are windows of an array (plan/window_view.h): what the main loop is told of them.
//
// On Hopper the copy engine knows windows itself: a map says how they lie beside each other, a copy says from
// which window on, and which of its elements. Elsewhere, and where the map has no room for the numbers,
// single threads copy the channels of an element.
#include "lower/region_product_windows.h"

#include "lower/region_lowering.h"
#include "lower/region_product_strips.h"
#include "support/check.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace kiln::lower {
namespace {

/// As struct Windows in kernels_templates/product_windows.cuh.
struct WindowsHead {
  std::int32_t channels, groups;
  std::int32_t count[3], taps[3], step[3], gap[3], first[3], extent[3];
  std::int32_t strips_x, strips_y, strips_images, depth, tiles, blocks, shared, unused;
  std::int64_t stride[3], image, channel;
};
static_assert(sizeof(WindowsHead) == 152);

constexpr std::int64_t kMapUnit = 16;  // bytes
constexpr std::int64_t kRow = 128;     // bytes of channels of a step of a main loop that copies boxes

/// Whether numbers fit a map of windows along so many axes.
bool fits_map(const plan::WindowView& v) {
  const std::size_t axes = v.axes.size();
  const std::int64_t most = axes == 1   ? 1 << 15
                            : axes == 2 ? 1 << 7
                                        : 1 << 4;  // of a corner, which has a sign
  constexpr std::int64_t kMostStep = 8;
  return std::ranges::all_of(v.axes, [&](const plan::WindowView::Axis& a) {
    const std::int64_t upper = a.first + (a.count - 1) * a.step + 1 - a.extent;
    return std::min(a.first, upper) >= -most && std::max(a.first, upper) < most && a.step <= kMostStep &&
           (a.taps - 1) * a.gap < 2 * most;
  });
}

/// How the copy engine takes windows.
device::TiledBuffer map_of(const plan::WindowView& v, std::uint32_t buffer, DType dtype) {
  const std::size_t axes = v.axes.size();
  device::TiledBuffer t{buffer, dtype, static_cast<int>(axes + 2), {}, {}, {1, 1, 1, 1, 1}};
  t.windows = true;
  t.dims[0] = v.channels * v.groups;
  t.strides[0] = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    const plan::WindowView::Axis& a = v.axes[i];
    t.dims[i + 1] = a.extent;
    t.strides[i + 1] = a.stride;
    t.lower[i] = static_cast<std::int32_t>(a.first);
    t.upper[i] = static_cast<std::int32_t>(a.first + (a.count - 1) * a.step + 1 - a.extent);
    t.step[i] = static_cast<std::int32_t>(a.step);
  }
  t.dims[axes + 1] = v.images;
  t.strides[axes + 1] = v.images > 1 ? v.image_stride : v.axes.back().extent * v.axes.back().stride;
  return t;
}

/// How the copy engine takes the operand beside windows: (channels, lines, elements of a window, batch).
/// `line`: its axis that is not the sum's.
std::optional<device::TiledBuffer> beside_windows(const plan::Graph& g, NodeId product,
                                                  const plan::WindowView& v, const ProductOperand& other,
                                                  std::size_t line, std::size_t along) {
  const std::vector<std::int64_t>& s = other.strides;
  if (s[along] != 1 || s[line] < 1 || s[line] * size_of(g[product].dtype) % kMapUnit != 0 ||
      other.alignment % kMapUnit != 0)
    return std::nullopt;
  const ir::Dims dims = g[product].dims;
  // groups are the innermost axes of the batch; all images share the operand
  std::int64_t step = 0, inside = 1;
  for (std::size_t a = dims.size() - 2; a-- > 0;) {
    if (dims[a] == 1) continue;
    if (inside == v.groups && v.groups > 1) {
      if (s[a] != 0) return std::nullopt;
      continue;
    }
    if (inside == 1)
      step = s[a];
    else if (s[a] != step * inside)
      return std::nullopt;
    inside *= dims[a];
  }
  if (step < 0 || (v.groups > 1 && inside != v.groups)) return std::nullopt;
  const std::int64_t lines = g[g[product].in[1 - v.operand]].dims[line], taps = v.taps();
  device::TiledBuffer t{other.buffer, g[product].dtype, 4, {}, {}, {1, 1, 1, 1, 1}};
  const std::int64_t extents[] = {v.channels, lines, taps, step == 0 ? 1 : inside},
                     strides[] = {1, s[line], v.channels, step == 0 ? v.channels * taps : step};
  std::copy_n(extents, 4, t.dims);
  std::copy_n(strides, 4, t.strides);
  return t;
}

}  // namespace

/// The memory of an operand whose elements are windows of it.
ProductOperand RegionLowering::window_operand() {
  const plan::WindowView& v = *windows_;
  const GraphNode &base = g_[v.memory.base], &n = g_[g_[product_].in[v.operand]];
  const std::int64_t bytes = size_of(n.dtype);
  BufferSource source{BufferSource::Kind::Node, v.memory.base, v.memory.offset * bytes};
  if (base.op == Op::leaf) {
    source.kind = BufferSource::Kind::Arg;
    source.id = static_cast<std::uint32_t>(base.arg);
  }
  for (const plan::Alias::Position& p : v.memory.positions)
    source.positions.push_back({p.slot, p.last, p.stride * bytes, 1});
  out_.bytes += base.numel * bytes;
  const auto b =
      new_buffer({BufferDecl::Role::In, n.dtype, static_cast<std::uint8_t>(bytes)}, std::move(source));
  return {b, std::vector<std::int64_t>(n.dims.size()), plan::unit_of_windows(g_, v)};
}

namespace {

/// A tile of product_gather.cuh: windows, lines beside them, and those of a thread (product_fma.cuh) or of a
/// warp (product_fragments.cuh).
struct GatherTile {
  std::int64_t windows, beside, each_windows, each_beside;
  double slowness;  // of a multiply-add, for what a step costs beside them
};
constexpr GatherTile kFloats[] = {{512, 8, 4, 8, 1.9},   {512, 16, 8, 8, 1.45}, {256, 16, 4, 8, 1.7},
                                  {256, 32, 8, 8, 1.25}, {128, 32, 4, 8, 1.5},  {128, 64, 8, 8, 1.15},
                                  {64, 64, 4, 8, 1.4},   {64, 128, 8, 8, 1.15}};
// Of adjacent channels whose stages are deep: whole lines of memory are copied, which take shared memory.
constexpr GatherTile kDeepFloats[] = {{256, 8, 4, 4, 1.9},   {256, 16, 4, 8, 1.45}, {128, 32, 4, 8, 1.25},
                                      {128, 64, 8, 8, 1.15}, {96, 64, 6, 8, 1.17},  {64, 64, 4, 8, 1.4},
                                      {64, 128, 8, 8, 1.15}};
constexpr GatherTile kDoubles[] = {
    {256, 16, 64, 16, 1.6}, {128, 16, 32, 16, 1.7}, {128, 32, 32, 32, 1.2}, {64, 64, 32, 32, 1.1}};
// What tensor cores do with halves is little beside the copies of windows.
constexpr GatherTile kManyHalves[] = {{128, 16, 32, 16, 3}, {128, 32, 32, 32, 1.7}, {128, 64, 32, 64, 1}};

/// How windows are multiplied that are copied element by element.
struct GatherForm {
  std::span<const GatherTile> tiles;
  std::int64_t resident, depth;  // blocks of a multiprocessor; of a stage
};
GatherForm gather_form(DType element, bool together, std::int64_t terms) {
  constexpr std::int64_t kShortSum = 16;
  if (is_half(element)) return {kManyHalves, 2, terms > kShortSum ? 32 : 16};
  if (element == DType::Float64) return {kDoubles, 3, 8};
  return together ? GatherForm{kDeepFloats, 3, 16} : GatherForm{kFloats, 4, 8};
}

/// The tile whose blocks take the least time of all multiprocessors.
const GatherTile& gather_tile(std::span<const GatherTile> all, std::int64_t windows, std::int64_t beside,
                              std::int64_t batches, std::int64_t resident, int sms) {
  return *std::ranges::min_element(all, {}, [&](const GatherTile& t) {
    const std::int64_t tiles = batches * ceil_div(windows, t.windows) * ceil_div(beside, t.beside);
    return rounds_of_blocks(tiles, resident, sms) * static_cast<double>(t.windows * t.beside) * t.slowness;
  });
}

/// Whether matrices of a batch are images that share the operand beside the windows: they are one then.
bool images_are_one(const plan::WindowView& v, const ProductOperand& beside, std::int64_t lines,
                    std::int64_t batches) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31, kMostPad = 4;
  return v.images_are_batch && v.groups == 1 && batches * (lines + kMostPad) < kMost &&
         std::all_of(
             beside.strides.begin(), beside.strides.end() - 2,
             [](std::int64_t stride) { return stride == 0; });
}

/// What product_strips.cuh is told of strips.
std::vector<kernel::Constant> strips_config(const plan::WindowView& v, const WindowStrips& strips,
                                            std::int64_t width) {
  const plan::WindowView::Axis& x = v.axes[0];
  return {{"kWidth", width},
          {"kEach", strips.each},
          {"kTileBeside", strips.beside},
          {"kBlocks", strips.resident},
          {"kUnit", strips.unit},
          {"kShift", strips.shift},
          {"kTaps", x.taps},
          {"kStep", x.step},
          {"kGap", x.gap},
          {"kChannelsOuter", v.channels_outer, true},
          {"kWindows", 2}};
}

}  // namespace

/// The main loops that copy single elements: see product_gather.cuh and product_strips.cuh.
void RegionLowering::choose_gathering_loop(kernel::Template& t, const ProductOperand& windows,
                                           const ProductOperand& beside, std::int64_t batches) {
  // Of so few adjacent ones that are copied one by one, adjacent threads copy those of adjacent windows.
  constexpr std::int64_t kFewChannels = 4;
  const plan::WindowView& v = *windows_;
  const ir::Dims dims = g_[product_].dims;
  const std::size_t rank = dims.size(), last = rank - 1, before = rank - 2;
  const bool of_a = v.operand == 0;
  const std::int64_t bytes = size_of(t.element);
  std::int64_t lines = dims[of_a ? before : last];
  const bool flat = images_are_one(v, beside, lines, batches);
  if (const StripLoop loop = strip_loop(g_, product_, v, target_); loop != StripLoop::None) {
    t.name = loop == StripLoop::Threads ? "product_strips" : "product_strips_mma";
    t.config = strips_config(v, window_strips(g_, product_, v, loop, flat, target_.threads), s_.lanes);
    t.config.push_back({"kFragments", loop == StripLoop::TensorCores, true});
    t.config.push_back({"kByK", beside.strides[last] == 1, true});
    t.config.push_back({"kFlat", flat, true});
    return;
  }
  const bool adjacent = !v.channels_outer && v.channel_stride == 1,
             together = adjacent && (windows.alignment > bytes || v.channels > kFewChannels);
  if (flat) lines *= std::exchange(batches, 1);
  const GatherForm form = gather_form(t.element, together, g_[g_[product_].in[0]].dims.back());
  const GatherTile& tile =
      gather_tile(form.tiles, lines, dims[of_a ? last : before], batches, form.resident, target_.threads);
  t.name = t.element == DType::Float32 ? "product_fma" : "product_fragments";
  t.config = {{"kWidth", s_.lanes},
              {"kTileM", of_a ? tile.windows : tile.beside},
              {"kTileN", of_a ? tile.beside : tile.windows},
              {"kEachM", of_a ? tile.each_windows : tile.each_beside},
              {"kEachN", of_a ? tile.each_beside : tile.each_windows},
              {"kBlocks", form.resident},
              {"kDepth", form.depth},
              {"kUnit", together && !is_half(t.element) ? windows.alignment / bytes : 1},
              {"kByK", beside.strides[of_a ? before : last] == 1, true},
              {"kTogether", together, true},
              {"kChannelsOuter", v.channels_outer, true},
              {"kFlat", flat, true},
              {"kWindows", of_a ? 1 : 2},
              {"kWindowAxes", static_cast<std::int64_t>(v.axes.size())}};
}

/// Which main loop, where an operand is windows.
void RegionLowering::choose_window_loop(kernel::Template& t, const ProductOperand& a, const ProductOperand& b,
                                        std::int64_t batches) {
  constexpr int kHopper = 90;
  constexpr std::int64_t kLeastTile = 48, kFewColumns = 32;
  const plan::WindowView& v = *windows_;
  const ir::Dims dims = g_[product_].dims;
  const std::size_t rank = dims.size(), last = rank - 1, before = rank - 2;
  const bool of_a = v.operand == 0;
  const ProductOperand &windows = of_a ? a : b, &other = of_a ? b : a;
  if (!v.tensor_cores) return choose_gathering_loop(t, windows, other, batches);
  const std::int64_t m = dims[before], n = dims[last];
  const std::size_t line = of_a ? last : before, along = of_a ? before : last;  // of the other operand
  const bool by_k = other.strides[along] == 1 || other.strides[line] != 1;
  const std::int64_t inner = other.strides[by_k ? along : line], outer = other.strides[by_k ? line : along];
  const std::int64_t bytes = size_of(t.element),
                     unit = inner == 1 ? std::gcd(std::gcd(other.alignment, outer * bytes), kMapUnit) : bytes;
  // What all tiles take of multiprocessors that run so many blocks: outside of the result, too.
  const auto cost = [&](std::int64_t rows, std::int64_t columns, std::int64_t blocks, double slowness) {
    const std::int64_t tiles = batches * ceil_div(m, rows) * ceil_div(n, columns);
    return static_cast<double>(ceil_div(tiles, target_.threads * blocks) * blocks * rows * columns) *
           slowness;
  };
  const auto map = by_k ? beside_windows(g_, product_, v, other, line, along) : std::nullopt;
  // a step has the channels of one element of the windows; what it lacks of a row is time lost
  const std::int64_t of_step = kRow / bytes, steps = ceil_div(v.channels, of_step);
  const bool boxes = target_.architecture == kHopper && map && windows.alignment == kMapUnit && fits_map(v) &&
                     m > kLeastTile && n > kLeastTile && 3 * v.channels >= 2 * steps * of_step &&
                     (v.groups == 1 || v.channels % of_step == 0);
  std::int64_t tile = 0;
  if (boxes) {
    t.name = "product_wgmma";
    tile = cost(128, 256, 1, 1) <= cost(128, 128, 1, 1.08) ? 0 : 2;
    const device::TiledBuffer lines = map_of(v, windows.buffer, g_[product_].dtype);
    out_.tiled = of_a ? std::vector{lines, *map} : std::vector{*map, lines};
  } else {
    t.name = "product_mma";
    // narrow copies are many, and each needs registers for its line
    const double costs[] = {cost(128, 256, 1, 1), cost(128, 128, 2, 1), cost(64, 64, 3, 1.3)};
    tile = windows.alignment < kMapUnit ? 2 : std::ranges::min_element(costs) - std::begin(costs);
    if (windows.alignment == kMapUnit && of_a && n <= kFewColumns) tile = 3;
  }
  t.config = {{"kProducts", 1},
              {"kParts", 1},
              {"kTile", tile},
              {"kWidth", s_.lanes},
              {"kAAlign", of_a ? windows.alignment : unit},
              {"kBAlign", of_a ? unit : windows.alignment},
              {"kAKMajor", of_a || by_k, true},
              {"kBKMajor", !of_a || by_k, true},
              {"kABatched", 0, true},
              {"kBBatched", 0, true},
              {"kBatched", map && map->dims[3] > 1, true},
              {"kWindows", of_a ? 1 : 2},
              {"kPartner", 0},
              {"kSpread", 0, true},
              {"kWhole", boxes && has_whole_tiles(m, n, tile, 1), true},
              {"kWindowAxes", static_cast<std::int64_t>(v.axes.size())}};
}

std::vector<std::byte> head_of_windows(const plan::WindowView& v, const std::optional<WindowStrips>& strips) {
  WindowsHead head{};
  for (const std::size_t i : {0u, 1u, 2u})
    head.count[i] = head.taps[i] = head.step[i] = head.gap[i] = head.extent[i] = 1;
  head.channels = static_cast<std::int32_t>(v.channels);
  head.groups = static_cast<std::int32_t>(v.groups);
  for (std::size_t i = 0; i < v.axes.size(); ++i) {
    const plan::WindowView::Axis& a = v.axes[i];
    const std::pair<std::int32_t*, std::int64_t> fields[] = {{head.count, a.count}, {head.taps, a.taps},
                                                             {head.step, a.step},   {head.gap, a.gap},
                                                             {head.first, a.first}, {head.extent, a.extent}};
    for (const auto& [field, value] : fields) field[i] = static_cast<std::int32_t>(value);
    head.stride[i] = a.stride;
  }
  if (strips) {
    const std::pair<std::int32_t*, std::int64_t> fields[] = {
        {&head.strips_x, strips->x},   {&head.strips_y, strips->y},  {&head.strips_images, strips->images},
        {&head.depth, strips->depth},  {&head.tiles, strips->tiles}, {&head.blocks, strips->blocks},
        {&head.shared, strips->shared}};
    for (const auto& [field, value] : fields) *field = static_cast<std::int32_t>(value);
  }
  head.image = v.image_stride;
  head.channel = v.channel_stride;
  const auto bytes = std::as_bytes(std::span(&head, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace kiln::lower
