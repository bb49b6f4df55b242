// Which products read windows where they lie. The memory below an operand's views is read by the product
// itself then, so that nothing may store a view in between: whoever asks what a region reads would stop
// there.
#include "ir/layout.h"
#include "plan/made_operands.h"
#include "plan/window_view.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace kiln::plan {
namespace {

constexpr std::int64_t kLeastUnit = 4, kMostUnit = 16;  // bytes that are copied at a time
/// Lines beside windows from which on a library is as fast although it reads windows that were stored. Its
/// float64 takes tensor cores.
constexpr std::int64_t kMostBeside = 192, kMostBesideDouble = 64, kMostBesideStrips = 96;
constexpr std::int64_t kLongRow = 5;   // elements of a window: product_strips takes such rows
constexpr std::int64_t kPlanned = 64;  // alignment of memory that a plan allocates
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
constexpr std::int64_t kFewPoints = 16, kManyChannels = 32, kManyBeside = 32;
/// A main loop keeps a bit for each element of a window along an axis, in 32 bits for all axes.
constexpr std::int64_t kMostTaps[] = {32, 16, 10};
constexpr std::int64_t kSpared = 1;  // of these, where single threads multiply

/// Whether everything can be counted in 32 bits, and nothing lies backwards.
bool has_usual_extents(const WindowView& v, std::int64_t spared) {
  std::int64_t farthest = v.channels * v.groups * v.channel_stride + (v.images - 1) * v.image_stride;
  if (v.image_stride < 0 || v.channel_stride < 1) return false;
  for (const WindowView::Axis& a : v.axes) {
    const std::int64_t reach = std::max(a.extent, a.count * a.step + a.taps * a.gap);
    if (a.stride < 1 || a.taps > kMostTaps[v.axes.size() - 1] - spared || reach >= kMostElements ||
        a.first <= -kMostElements)
      return false;
    farthest += reach * a.stride;
  }
  return farthest < kMostElements;
}

/// Whether an operand may be windows at all.
bool may_have_windows(const Graph& g, NodeId id) {
  const ir::GraphNode& n = g[id];
  return n.op == ir::Op::matmul && is_float(n.dtype) && g[n.in[0]].dtype == n.dtype && n.numel > 0 &&
         !reads_operand_once(g, id);
}
std::int64_t points_of(const Graph& g, NodeId id, std::size_t which) {
  const ir::Dims dims = g[id].dims;
  return dims[dims.size() - (which == 0 ? 2 : 1)];
}

bool suits_tensor_cores(const Graph& g, const schedule::Target& target, const WindowView& v) {
  return target.on_tensor_cores(g[v.memory.base].dtype) && v.channel_stride == 1 && !v.channels_outer &&
         unit_of_windows(g, v) >= kLeastUnit;
}

/// Those of tensor cores.
std::optional<WindowView> windows_of_tensor_cores(const Graph& g, const schedule::Target& target, NodeId id) {
  if (!may_have_windows(g, id) || !target.on_tensor_cores(g[id].dtype)) return std::nullopt;
  for (const std::size_t which : {0u, 1u}) {
    if (points_of(g, id, which) <= kFewPoints) continue;
    std::optional<WindowView> v = window_view(g, id, which);
    if (!v || !has_usual_extents(*v, 0) || !suits_tensor_cores(g, target, *v)) continue;
    v->tensor_cores = true;
    return v;
  }
  return std::nullopt;
}

/// Whether maps are made of a value, and nothing but maps and products of these.
bool is_read_by_maps(const Graph& g, NodeId id) {
  bool found = false;
  std::vector<bool> made(g.size());
  made[id] = true;
  for (NodeId reader = id + 1; reader < g.size(); ++reader) {
    if (std::ranges::none_of(g[reader].in, [&](NodeId in) { return made[in]; })) continue;
    const ir::OpKind kind = ir::info(g[reader].op).kind;
    const bool map = kind == ir::OpKind::Elementwise || kind == ir::OpKind::Cast;
    if (!map && kind != ir::OpKind::View && kind != ir::OpKind::Contraction) return false;
    made[reader] = kind != ir::OpKind::Contraction;
    found |= map;
  }
  return found;
}

/// Axes that windows of one element walk as one are one.
void join_axes(WindowView& v) {
  const auto plain = [](const WindowView::Axis& a) {
    return a.taps == 1 && a.step == 1 && a.first == 0 && a.count == a.extent;
  };
  WindowView::Axis& inner = v.axes[0];
  const auto joins = [&](std::int64_t stride) { return stride == inner.stride * inner.extent; };
  const auto join = [&](std::int64_t count) { inner.extent = inner.count *= count; };
  while (v.axes.size() > 1 && plain(inner) && plain(v.axes[1]) && joins(v.axes[1].stride)) {
    join(v.axes[1].count);
    v.axes.erase(v.axes.begin() + 1);
  }
  if (v.axes.size() > 1 || !plain(inner) || v.images_are_batch || !joins(v.image_stride)) return;
  join(std::exchange(v.images, 1));
  v.image_stride = 0;
}

/// Windows of one element: a product of many short rows takes as long as its bytes, and a second pass over
/// its result would take as long again.
std::optional<WindowView> windows_of_matrix(const Graph& g, NodeId id) {
  // Of more terms a library's rate makes up for the second pass.
  constexpr std::int64_t kMostTerms = 128, kMostLines = 128, kLeastPoints = std::int64_t{1} << 15;
  constexpr std::int64_t kMostOfHalves = 16;  // lines, which leave a library's tiles of halves empty
  const bool half = is_half(g[id].dtype);
  if ((!half && g[id].dtype != DType::Float32) || g[g[id].in[0]].dims.back() > kMostTerms)
    return std::nullopt;
  for (const std::size_t which : {0u, 1u}) {
    const std::int64_t beside = points_of(g, id, 1 - which);
    if (beside > (half ? kMostOfHalves : kMostLines) || g[id].numel / beside < kLeastPoints) continue;
    std::optional<WindowView> v = window_view(g, id, which, WindowChannels::OfMatrix);
    if (v && half && v->channel_stride == 1) continue;
    if (!v || v->groups != 1 || v->taps() != 1 || !has_usual_extents(*v, kSpared)) continue;
    join_axes(*v);
    const bool adjacent = v->channel_stride == 1 || (v->axes[0].stride == 1 && v->axes[0].step == 1);
    if (!adjacent || is_read_by_maps(g, id)) return v;
  }
  return std::nullopt;
}

std::optional<WindowView> windows_of(const Graph& g, const schedule::Target& target, NodeId id) {
  if (!may_have_windows(g, id)) return std::nullopt;
  if (std::optional<WindowView> v = windows_of_tensor_cores(g, target, id)) return v;
  for (const std::size_t which : {0u, 1u}) {
    const std::int64_t beside = points_of(g, id, 1 - which), points = g[id].numel / beside;
    // A gradient's sum over all images has few results, which would leave multiprocessors without a tile.
    const bool doubles = g[id].dtype == DType::Float64;
    if (points <= kFewPoints || points < g[g[id].in[0]].dims.back() ||
        beside > (doubles ? kMostBesideStrips : kMostBeside))
      continue;
    std::optional<WindowView> v = window_view(g, id, which, WindowChannels::Any);
    if (!v || !has_usual_extents(*v, kSpared)) continue;
    if (!doubles || beside <= kMostBesideDouble || (v->axes[0].taps >= kLongRow && v->channel_stride > 1))
      return v;
  }
  return windows_of_matrix(g, id);
}

}  // namespace

/// Whether single threads, which read windows where they lie, multiply them before an array would be turned.
static bool has_few_products(const Graph& g, NodeId id, const FarChannels& far, std::int64_t beside) {
  if (far.adjacent || far.channels >= kManyChannels || beside >= kManyBeside) return false;
  const std::optional<WindowView> v = window_view(g, id, far.operand, WindowChannels::Any);
  return v && v->operand == 1 && v->axes[0].taps > 1 && v->axes[0].step <= 2 && v->axes[0].stride == 1;
}

std::optional<FarChannels> far_channels(const Graph& g, const schedule::Target& target, NodeId id) {
  if (!may_have_windows(g, id) || !target.on_tensor_cores(g[id].dtype) ||
      windows_of_tensor_cores(g, target, id))
    return std::nullopt;
  for (const std::size_t which : {1u, 0u}) {
    if (points_of(g, id, which) <= kFewPoints) continue;
    const std::optional<FarChannels> far = far_channels(g, id, which);
    if (!far) continue;
    const std::int64_t beside = points_of(g, id, 1 - which);
    if (has_few_products(g, id, *far, beside)) continue;
    // Narrow copies take long: they are worth it where tensor cores have much to do with each.
    const bool much = far->channels >= kManyChannels && beside >= kManyBeside;
    if (far->channels * size_of(g[id].dtype) % (much ? kMostUnit / 2 : kMostUnit) == 0) return far;
  }
  return std::nullopt;
}

std::int64_t unit_of_windows(const Graph& g, const WindowView& v) {
  const ir::GraphNode& base = g[v.memory.base];
  std::int64_t unit =
      base.op == ir::Op::leaf ? std::int64_t{g.args[static_cast<std::size_t>(base.arg)].alignment} : kPlanned;
  const std::int64_t bytes = size_of(base.dtype);
  unit = std::gcd(unit, kMostUnit);
  for (const std::int64_t elements : {v.memory.offset, v.channels, v.image_stride})
    unit = std::gcd(unit, elements * bytes);
  for (const WindowView::Axis& a : v.axes) unit = std::gcd(unit, a.stride * bytes);
  for (const Alias::Position& p : v.memory.positions) unit = std::gcd(unit, p.stride * bytes);
  return unit;
}

std::map<NodeId, WindowView> products_of_windows(const Graph& g, const schedule::Target& target,
                                                 const std::function<bool(NodeId, const WindowView&)>& may) {
  std::map<NodeId, WindowView> found;
  for (NodeId id = 0; id < g.size(); ++id)
    if (std::optional<WindowView> v = windows_of(g, target, id); v && may(id, *v))
      found.emplace(id, std::move(*v));
  for (bool dropped = !found.empty(); dropped;) {
    std::unordered_set<NodeId> views;
    for (const auto& [product, v] : found) views.insert(v.views.begin(), v.views.end());
    std::unordered_set<NodeId> shared;  // views that somebody else reads, too
    for (NodeId id = 0; id < g.size(); ++id)
      for (std::size_t k = 0; k < g[id].in.size(); ++k) {
        const auto at = found.find(id);
        const bool own = views.contains(id) || (at != found.end() && at->second.operand == k);
        if (!own && views.contains(g[id].in[k])) shared.insert(g[id].in[k]);
      }
    for (const NodeId root : g.roots)
      if (views.contains(root)) shared.insert(root);
    dropped = std::erase_if(found, [&](const auto& x) {
                return std::ranges::any_of(x.second.views, [&](NodeId v) { return shared.contains(v); });
              }) > 0;
  }
  return found;
}

}  // namespace kiln::plan
