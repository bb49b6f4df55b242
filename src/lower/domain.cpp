#include "lower/domain.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace kiln::lower {
namespace {

using ir::NodeId;
using ir::Op;

/// Row-major cut points of a shape: products of its trailing extents, greatest first, without 1 and the
/// total.
void cuts(std::span<const std::int64_t> dims, std::vector<std::int64_t>& out) {
  out.clear();
  std::int64_t suffix = 1;
  for (std::size_t a = dims.size(); a-- > 1;) {
    suffix *= dims[a];
    if (suffix != 1) out.insert(out.begin(), suffix);
  }
}

/// Cuts the axes of a place where a shape of the values there has cuts that divide them.
void refine(Domain& d, std::vector<std::uint32_t>& has, int place, std::span<const std::int64_t> dims) {
  int axis = 0;
  std::int64_t left = 0;  // of the current axis
  const auto next = [&] {
    while (axis < d.axes.rank() && !(has[static_cast<std::size_t>(axis)] >> place & 1)) ++axis;
    left = axis < d.axes.rank() ? d.axes[axis] : 0;
  };
  next();
  for (std::int64_t extent : dims) {
    while (extent > 1 && left > 0) {
      if (left == 1) {
        ++axis;
        next();
        continue;
      }
      if (left > extent) {
        if (left % extent != 0 || d.axes.rank() >= kMaxRank) return;
        Shape cut;
        for (int a = 0; a < d.axes.rank(); ++a) {
          if (a == axis) cut.push_back(extent);
          cut.push_back(a == axis ? left / extent : d.axes[a]);
        }
        d.axes = cut;
        has.insert(has.begin() + axis, has[static_cast<std::size_t>(axis)]);
        left = extent;
      }
      if (extent % left != 0) return;
      extent /= left;
      ++axis;
      next();
    }
    if (extent != 1) return;
  }
}

/// The domain of several places: the planner's axes, refined.
Domain of_places(const plan::Graph& g, const plan::Region& region) {
  Domain d;
  std::vector<std::uint32_t> has;
  std::uint32_t all = 0;
  for (const plan::Region::Loop& l : region.axes) {
    d.axes.push_back(l.extent);
    has.push_back(l.places);
    all |= l.places;
  }
  for (std::size_t i = 0; i < region.nodes.size(); ++i) {
    const NodeId id = region.nodes[i];
    refine(d, has, region.places[i], g[id].dims);
    if (ir::is_reduce(g[id].op)) refine(d, has, region.nest ? region.places[i] - 1 : 0, g[g[id].in[0]].dims);
  }
  for (std::uint32_t place = 0; all >> place & 1; ++place) {
    d.places.push_back(0);
    for (std::size_t a = 0; a < has.size(); ++a)
      if (has[a] >> place & 1) d.places.back() |= std::uint64_t{1} << a;
  }
  for (std::size_t a = 0; a < has.size(); ++a)
    if (has[a] != all) d.reduced |= std::uint64_t{1} << a;
  return d;
}

Domain of_rows(const plan::Graph& g, const plan::Region& region);

}  // namespace

Domain choose_domain(const plan::Graph& g, const plan::Region& region) {
  if (!region.axes.empty()) return of_places(g, region);
  Domain d = of_rows(g, region);
  const std::uint64_t all = d.axes.rank() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << d.axes.rank()) - 1;
  d.places = {all, all & ~d.reduced};
  return d;
}

namespace {

/// What the nodes of a region say of its rows.
struct Rows {
  std::vector<Shape> shapes;  // distinct shapes of full nodes, the anchor first
  std::uint64_t mask = 0;     // of the anchor's reduced axes
  bool backwards = false;
};

Rows rows_of(const plan::Graph& g, const plan::Region& region) {
  Rows out;
  auto add = [&](std::span<const std::int64_t> dims) {
    for (const Shape& s : out.shapes)
      if (std::equal(s.begin(), s.end(), dims.begin(), dims.end())) return;
    out.shapes.push_back(Shape(dims));
  };
  for (NodeId id : region.nodes)
    if (ir::is_reduce(g[id].op)) {
      add(g[g[id].in[0]].dims);
      out.mask = ir::attributes<ir::Reduce>(g[id]).mask;
      break;
    }
  for (NodeId id : region.nodes) {
    if (!ir::is_scan(g[id].op)) continue;
    const auto scan = ir::attributes<ir::Scan>(g[id]);
    out.backwards |= scan.reverse;
    if (!out.shapes.empty()) continue;
    add(g[id].dims);
    out.mask = std::uint64_t{1} << scan.axis;
  }
  std::size_t next_row = 0;
  for (NodeId id : region.nodes) {
    if (next_row < region.rows.size() && region.rows[next_row] == id) {
      ++next_row;
      if (ir::is_reduce(g[id].op)) add(g[g[id].in[0]].dims);
      continue;
    }
    // What reads pairs of a product's columns may have its points in another order.
    if (region.partner > 0 && id == region.product && region.nodes.size() > 1) continue;
    add(g[id].op == Op::loop_stack ? g[id].dims.subspan(1) : g[id].dims);
  }
  if (out.shapes.size() > 1 && out.mask == 0) {  // a map: the shape of highest rank leads
    const auto widest = std::max_element(out.shapes.begin(), out.shapes.end(),
                                         [](const Shape& a, const Shape& b) { return a.rank() < b.rank(); });
    std::swap(*widest, out.shapes.front());
  }
  return out;
}

/// Where the axis of two points is cut off that one point of the domain stands for.
std::vector<std::int64_t> cuts_of_halves(const plan::Region& region) {
  if (region.partner == 0) return {};
  return {2 * region.partner, region.partner};
}

Domain of_rows(const plan::Graph& g, const plan::Region& region) {
  if (region.product != ir::kNoNode && region.partner == 0) return {Shape(g[region.product].dims), 0, false};
  const auto [shapes, mask, backwards] = rows_of(g, region);
  if (shapes.size() == 1 && region.partner == 0) return {shapes[0], mask, backwards};

  const Shape& anchor = shapes[0];
  const std::int64_t total = anchor.numel();
  std::vector<std::int64_t> points, more;
  cuts(anchor, points);
  for (std::size_t s = 1; s <= shapes.size(); ++s) {
    if (s < shapes.size())
      cuts(shapes[s], more);
    else
      more = cuts_of_halves(region);
    for (std::int64_t cut : more) {
      const auto at = std::lower_bound(points.begin(), points.end(), cut, std::greater<>());
      if (at != points.end() && *at == cut) continue;
      const std::int64_t above = at == points.begin() ? total : *(at - 1);
      const std::int64_t below = at == points.end() ? 1 : *at;
      if (above % cut == 0 && cut % below == 0 && points.size() + 1 < kMaxRank) points.insert(at, cut);
    }
  }
  Domain d;
  d.backwards = backwards;
  std::int64_t above = total;
  points.push_back(1);
  // Reduced or kept is inherited from the anchor's axis that the refined axis lies in.
  int axis = 0;
  std::int64_t axis_below = total;
  for (std::int64_t cut : points) {
    if (above / cut == 1 && cut != 1) continue;
    while (axis < anchor.rank() && (axis_below > cut)) axis_below /= anchor[axis++];
    if (axis > 0 && (mask >> (axis - 1)) & 1) d.reduced |= std::uint64_t{1} << d.axes.rank();
    if (cut == region.partner && above == 2 * cut) {
      d.half = cut;
      d.half_axis = d.axes.rank();
    } else {
      d.axes.push_back(above / cut);
    }
    above = cut;
  }
  return d;
}

}  // namespace

}  // namespace kiln::lower
