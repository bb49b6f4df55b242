// Two steps. A trace goes down from the operand through its views and says of each of its axes which parts
// move along which axis of the array. Then the parts are sorted into windows, their elements, channels and
// images, or refused.
#include "plan/window_view.h"

#include "ir/layout.h"
#include "ir/pad_fill.h"
#include "plan/deal_parts.h"

#include <algorithm>

namespace kiln::plan {
namespace {

/// Of an operand's axis: so many positions, each `step` further along an axis of the array.
struct Part {
  std::int64_t extent, step;
  std::size_t along;
};
using Parts = std::vector<Part>;  // outermost first

struct Trace {
  NodeId array = ir::kNoNode;
  Alias memory;
  std::vector<std::int64_t> extents, first;  // of the array
  std::vector<Parts> axes;                   // of the operand
};

/// Every element of the array `id` is an element of the operand; axes begin at `first`.
std::optional<Trace> whole(const Graph& g, NodeId id, ir::Dims dims, std::vector<std::int64_t> first) {
  const ir::GraphNode& n = g[id];
  Trace t{id, resolve_alias(g, id), {n.dims.begin(), n.dims.end()}, std::move(first), {}};
  if (t.memory.base == ir::kNoNode) t.memory = {id, 0, {}, ir::row_major_strides(n.dims)};
  for (std::size_t a = 0; a < dims.size(); ++a) {
    t.axes.emplace_back();
    if (dims[a] != 1) t.axes.back().push_back({dims[a], 1, a});
  }
  return t;
}

/// The parts of all axes in row-major order, dealt to axes of other extents.
bool regroup(std::vector<Parts>& axes, ir::Dims to) {
  Parts parts;
  for (const Parts& a : axes) parts.insert(parts.end(), a.begin(), a.end());
  return deal_parts(parts, to, axes,
                    [](const Part& p, std::int64_t extent, std::int64_t factor) {
                      return Part{extent, p.step * factor, p.along};
                    }) &&
         parts.empty();
}

/// What an affine view shows of what its operand shows.
bool compose(Trace& t, const ir::ViewMap& map, ir::Dims from, ir::Dims to) {
  std::vector<Parts> out(to.size());
  for (std::size_t a = 0; a < from.size(); ++a) {
    if (map.first[a] == 0 || from[a] == 1) continue;
    if (t.axes[a].size() != 1) return false;
    t.first[t.axes[a][0].along] += map.first[a] * t.axes[a][0].step;
  }
  for (const ir::ViewMap::Term& term : map.terms) {
    const Parts& parts = t.axes[term.operand_axis];
    if (to[term.axis] == 1 || parts.empty()) continue;
    if (!out[term.axis].empty()) return false;  // moves along two axes at once
    if (term.step == 1 && map.first[term.operand_axis] == 0 && from[term.operand_axis] == to[term.axis])
      out[term.axis] = parts;
    else if (parts.size() == 1)
      out[term.axis] = {{to[term.axis], parts[0].step * term.step, parts[0].along}};
    else
      return false;
  }
  for (std::size_t a = 0; a < to.size(); ++a)
    if (to[a] != 1 && out[a].empty()) return false;  // repeated
  t.axes = std::move(out);
  return true;
}

/// Down to what is no view, or to a view whose value a program asks for.
std::optional<Trace> trace(const Graph& g, NodeId id) {
  const ir::GraphNode& n = g[id];
  const bool stored = std::ranges::find(g.roots, id) != g.roots.end();
  if (!ir::is_view(n.op) || is_written_in_place(n) || n.numel == 0 || stored)
    return whole(g, id, n.dims, std::vector<std::int64_t>(n.dims.size()));
  if (ir::fills_with_zeros(g, n)) {
    const auto box = ir::attributes<ir::Box>(n);
    std::vector<std::int64_t> first;
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      if (box.step(a) != 1) return std::nullopt;
      first.push_back(-box.first(a));
    }
    return whole(g, n.in[0], n.dims, std::move(first));
  }
  if (n.op != ir::Op::reshape && !ir::has(n.op, ir::AFFINE))
    return whole(g, id, n.dims, std::vector<std::int64_t>(n.dims.size()));
  std::optional<Trace> t = trace(g, n.in[0]);
  if (!t) return std::nullopt;
  const ir::Dims from = g[n.in[0]].dims;
  const bool follows =
      n.op == ir::Op::reshape ? regroup(t->axes, n.dims) : compose(*t, ir::view_map(n, from), from, n.dims);
  if (!follows) return std::nullopt;
  return t;
}

bool is_matrix(const Graph& g, NodeId operand) {
  return resolve_alias(g, operand).base != ir::kNoNode || !ir::is_view(g[operand].op);
}

/// Of a product's operand that is views, but no matrix in memory, which a product reads as it is.
std::optional<Trace> trace_operand(const Graph& g, NodeId operand) {
  if (g[operand].numel == 0 || is_matrix(g, operand)) return std::nullopt;
  return trace(g, operand);
}

/// Sorts the parts of a trace.
class Sorter {
 public:
  Sorter(Trace t, std::size_t points, std::size_t terms, WindowChannels channels)
      : t_(std::move(t)), points_(points), terms_(terms), channels_(channels), of_(t_.extents.size()) {}

  std::optional<WindowView> run() {
    if (!find_channels() || !add_terms() || !add_points() || !add_batch()) return std::nullopt;
    if (images_ < 0) find_images();
    return collect();
  }

 private:
  static constexpr int kNone = -1;

  /// Channels are the innermost part of terms, and adjacent. Where it may be any: a part of an axis that
  /// points do not move along, the innermost or the outermost one, or none.
  bool find_channels() {
    Parts& terms = t_.axes[terms_];
    const bool any = channels_ != WindowChannels::Adjacent;
    if (!any && (terms.empty() || t_.memory.strides[terms.back().along] != 1)) return false;
    const auto fits = [&](const Part& p) { return p.step == 1 && !(any && moves_along(p.along)); };
    if (!terms.empty() && fits(terms.back())) {
      take_channels(terms.back());
      terms.pop_back();
      return true;
    }
    if (any && !terms.empty() && fits(terms.front())) {
      out_.channels_outer = true;
      take_channels(terms.front());
      terms.erase(terms.begin());
      return true;
    }
    return any;
  }

  bool moves_along(std::size_t axis) const {
    return std::ranges::any_of(t_.axes[points_], [&](const Part& p) { return p.along == axis; });
  }

  void take_channels(const Part& p) {
    channel_ = static_cast<int>(p.along);
    out_.channels = p.extent;
    out_.channel_stride = t_.memory.strides[p.along];
  }

  bool is_channel(std::size_t axis) const { return static_cast<int>(axis) == channel_; }

  bool add_terms() {
    for (const Part& p : t_.axes[terms_]) {
      WindowView::Axis& axis = of_[p.along];
      if (is_channel(p.along) || axis.taps != 1 || p.step < 1) return false;
      axis.taps = p.extent;
      axis.gap = p.step;
      taps_.push_back(p.along);
    }
    return true;
  }

  bool add_points() {
    for (const Part& p : t_.axes[points_]) {
      if (!add_windows(p)) return false;
      order_.push_back(p.along);
    }
    return true;
  }

  bool add_windows(const Part& p) {
    WindowView::Axis& axis = of_[p.along];
    if (is_channel(p.along) || axis.count != 1 || p.step < 1) return false;
    axis.count = p.extent;
    axis.step = p.step;
    return true;
  }

  /// Whether nothing but one position a step moves along an axis, all of whose positions are shown.
  bool is_plain(std::size_t a) const {
    return of_[a].taps == 1 && of_[a].step == 1 && t_.first[a] == 0 && of_[a].count == t_.extents[a];
  }

  /// Matrices of the batch: images, and groups of channels inside of them.
  bool add_batch() {
    for (std::size_t a = 0; a < t_.axes.size(); ++a) {
      if (a == points_ || a == terms_) continue;
      for (const Part& p : t_.axes[a]) {
        if (is_channel(p.along)) {
          if (out_.groups != 1 || p.step != out_.channels) return false;
          out_.groups = p.extent;
        } else {
          if (images_ >= 0 || out_.groups != 1 || !add_windows(p) || !is_plain(p.along)) return false;
          images_ = static_cast<int>(p.along);
          out_.images_are_batch = true;
        }
      }
    }
    return true;
  }

  void find_images() {
    if (order_.empty() || !is_plain(order_.front())) return;
    if (channels_ == WindowChannels::OfMatrix && order_.size() == 1) return;  // rows
    images_ = static_cast<int>(order_.front());
    order_.erase(order_.begin());
  }

  /// The order of axes is that of points, and of elements of a window.
  std::optional<WindowView> collect() {
    const auto last = [&](std::size_t a) { return std::ranges::find(order_, a) == order_.end(); };
    for (std::size_t i = 0; i < taps_.size(); ++i) {
      if (!last(taps_[i])) continue;  // an axis with one window
      const auto next = std::find_if(taps_.begin() + static_cast<std::ptrdiff_t>(i), taps_.end(),
                                     [&](std::size_t a) { return !last(a); });
      order_.insert(next == taps_.end() ? order_.end() : std::ranges::find(order_, *next), taps_[i]);
    }
    std::size_t at = 0;
    for (const std::size_t a : taps_) {
      while (at < order_.size() && order_[at] != a) ++at;
      if (at++ == order_.size()) return std::nullopt;
    }
    if (order_.empty() || order_.size() > WindowView::kMostAxes) return std::nullopt;
    out_.memory = t_.memory;
    for (std::size_t i = order_.size(); i-- > 0;) {
      const std::size_t a = order_[i];
      of_[a].extent = t_.extents[a];
      of_[a].stride = t_.memory.strides[a];
      of_[a].first = t_.first[a];
      out_.axes.push_back(of_[a]);
    }
    return place_the_rest() ? std::optional(out_) : std::nullopt;
  }

  /// Axes that nothing moves along are an offset; they, channels and images lie inside of the array.
  bool place_the_rest() {
    for (std::size_t a = 0; a < t_.extents.size(); ++a) {
      if (std::ranges::find(order_, a) != order_.end()) continue;
      const std::int64_t span = is_channel(a)                    ? out_.channels * out_.groups
                                : static_cast<int>(a) == images_ ? of_[a].count
                                                                 : 1;
      if (t_.first[a] < 0 || t_.first[a] + span > t_.extents[a]) return false;
      out_.memory.offset += t_.first[a] * t_.memory.strides[a];
    }
    if (images_ >= 0) {
      out_.images = of_[static_cast<std::size_t>(images_)].count;
      out_.image_stride = t_.memory.strides[static_cast<std::size_t>(images_)];
    }
    return true;
  }

  Trace t_;
  std::size_t points_, terms_;
  WindowChannels channels_;
  std::vector<WindowView::Axis> of_;  // of each axis of the array
  std::vector<std::size_t> taps_, order_;
  int channel_ = kNone, images_ = kNone;
  WindowView out_;
};

}  // namespace

std::int64_t WindowView::taps() const {
  std::int64_t n = 1;
  for (const Axis& a : axes) n *= a.taps;
  return n;
}

std::optional<WindowView> window_view(const Graph& g, NodeId product, std::size_t which,
                                      WindowChannels channels) {
  const NodeId operand = g[product].in[which];
  const bool of_matrix = channels == WindowChannels::OfMatrix;
  if (of_matrix && (g[operand].numel == 0 || !is_matrix(g, operand))) return std::nullopt;
  std::optional<Trace> t = of_matrix ? trace(g, operand) : trace_operand(g, operand);
  if (!t) return std::nullopt;
  const std::size_t rank = g[operand].dims.size();
  std::optional<WindowView> out =
      Sorter(std::move(*t), rank - (which == 0 ? 2 : 1), rank - (which == 0 ? 1 : 2), channels).run();
  if (!out) return std::nullopt;
  out->operand = which;
  for (NodeId id = operand; id != out->memory.base; id = g[id].in[0]) out->views.push_back(id);
  return out;
}

std::optional<FarChannels> far_channels(const Graph& g, NodeId product, std::size_t which) {
  const NodeId operand = g[product].in[which];
  std::optional<Trace> t = trace_operand(g, operand);
  if (!t) return std::nullopt;
  const std::size_t rank = g[operand].dims.size(), points = rank - (which == 0 ? 2 : 1),
                    terms = rank - (which == 0 ? 1 : 2);
  Parts& parts = t->axes[terms];
  if (parts.size() < 2 || parts.front().step != 1) return std::nullopt;
  const std::size_t axis = parts.front().along;
  const std::int64_t channels = parts.front().extent;
  if (channels != t->extents[axis] || t->first[axis] != 0) return std::nullopt;
  FarChannels out{which, 0, axis, channels, t->memory.strides[axis] == 1};
  for (NodeId id = operand; id != t->array; id = g[id].in[0]) ++out.views;
  // the same with channels last
  std::rotate(parts.begin(), parts.begin() + 1, parts.end());
  if (!out.adjacent) {
    std::int64_t stride = channels;
    t->memory = {t->array, 0, {}, std::vector<std::int64_t>(t->extents.size(), 1)};
    for (std::size_t a = t->extents.size(); a-- > 0;) {
      if (a == axis) continue;
      t->memory.strides[a] = stride;
      stride *= t->extents[a];
    }
  }
  const std::optional<WindowView> turned =
      Sorter(std::move(*t), points, terms, WindowChannels::Adjacent).run();
  if (!turned) return std::nullopt;
  // Where each element lies in one window, the operand has no more elements than the array.
  const bool repeats =
      std::ranges::any_of(turned->axes, [](const WindowView::Axis& a) { return a.count > 1 && a.taps > 1; });
  return repeats ? std::optional(out) : std::nullopt;
}

}  // namespace kiln::plan
