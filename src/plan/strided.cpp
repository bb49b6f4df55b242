#include "plan/strided.h"

#include "ir/layout.h"
#include "plan/deal_parts.h"

#include <algorithm>

namespace kiln::plan {
namespace {

using Axis = std::vector<AxisPart>;

constexpr std::int64_t kMostLines = 1 << 20;  // rows or columns whose offsets a plan may hold

/// Parts without extents of 1, neighbours joined where they lie next to each other.
Axis joined(const Axis& parts) {
  Axis out;
  for (const AxisPart& p : parts) {
    if (p.extent == 1) continue;
    if (!out.empty() && out.back().stride == p.stride * p.extent)
      out.back() = {out.back().extent * p.extent, p.stride};
    else
      out.push_back(p);
  }
  return out;
}

StridedView memory_of(const Graph& g, NodeId id) {
  const ir::GraphNode& n = g[id];
  StridedView v;
  v.base = id;
  std::vector<std::int64_t> strides = ir::row_major_strides(n.dims);
  if (n.op == ir::Op::leaf) {
    const ir::Dims own = g.args[static_cast<std::size_t>(n.arg)].strides;
    strides.assign(own.begin(), own.end());
  }
  for (std::size_t a = 0; a < n.dims.size(); ++a) v.axes.push_back({{n.dims[a], strides[a]}});
  return v;
}

/// The parts of all axes in row-major order, dealt to axes of other extents.
bool regroup(const std::vector<Axis>& from, ir::Dims to, std::vector<Axis>& out) {
  Axis parts;
  for (const Axis& a : from) parts.insert(parts.end(), a.begin(), a.end());
  parts = joined(parts);
  return deal_parts(parts, to, out, [](const AxisPart& p, std::int64_t extent, std::int64_t factor) {
    return AxisPart{extent, p.stride * factor};
  });
}

}  // namespace

std::optional<std::int64_t> stride_of(const std::vector<AxisPart>& axis) {
  const Axis parts = joined(axis);
  if (parts.empty()) return 0;
  if (parts.size() > 1) return std::nullopt;
  return parts[0].stride;
}

std::int64_t offset_along(const std::vector<AxisPart>& axis, std::int64_t at) {
  std::int64_t offset = 0;
  for (std::size_t p = axis.size(); p-- > 0;) {
    offset += at % axis[p].extent * axis[p].stride;
    at /= axis[p].extent;
  }
  return offset;
}

StridedView strided_view(const Graph& g, NodeId node, const std::function<bool(NodeId)>& stored) {
  const ir::GraphNode& n = g[node];
  const bool followed = ir::is_view(n.op) && !is_written_in_place(n) && n.numel > 0 &&
                        n.op != ir::Op::arrange && n.op != ir::Op::pad && n.op != ir::Op::update_at &&
                        n.op != ir::Op::join && !(stored && stored(node));
  if (!followed) return memory_of(g, node);
  StridedView in = strided_view(g, n.in[0], stored);
  StridedView out{in.base, in.offset, in.positions, {}};
  switch (n.op) {
    case ir::Op::slice_at: {
      const auto at = ir::attributes<ir::Position>(n);
      const std::optional<std::int64_t> stride = stride_of(in.axes[at.axis]);
      if (g[n.in[1]].op != ir::Op::scalar || at.from_back || !stride) return memory_of(g, node);
      out.positions.push_back({g[n.in[1]].arg, g[n.in[0]].dims[at.axis] - n.dims[at.axis], *stride});
      out.axes = std::move(in.axes);
      out.axes[at.axis] = {{n.dims[at.axis], *stride}};
      return out;
    }
    case ir::Op::reshape: return regroup(in.axes, n.dims, out.axes) ? out : memory_of(g, node);
    default: break;
  }
  const ir::ViewMap map = ir::view_map(n, g[n.in[0]].dims);
  out.axes.resize(n.dims.size());
  for (std::size_t a = 0; a < n.dims.size(); ++a) out.axes[a] = {{n.dims[a], 0}};
  std::vector<int> terms(n.dims.size());
  for (std::size_t a = 0; a < in.axes.size(); ++a) out.offset += offset_along(in.axes[a], map.first[a]);
  for (const ir::ViewMap::Term& t : map.terms) {
    const Axis& from = in.axes[t.operand_axis];
    const bool whole = t.step == 1 && map.first[t.operand_axis] == 0 && terms[t.axis] == 0 &&
                       g[n.in[0]].dims[t.operand_axis] == n.dims[t.axis];
    if (whole) {
      out.axes[t.axis] = from;
    } else if (g[n.in[0]].dims[t.operand_axis] != 1) {
      const std::optional<std::int64_t> stride = stride_of(from);
      if (!stride || out.axes[t.axis].size() > 1) return memory_of(g, node);
      out.axes[t.axis] = {{n.dims[t.axis], out.axes[t.axis][0].stride + t.step * *stride}};
    }
    ++terms[t.axis];
  }
  return out;
}

std::optional<StridedView> matrix_view(const Graph& g, NodeId node,
                                       const std::function<bool(NodeId)>& stored) {
  const ir::GraphNode& n = g[node];
  if (!ir::is_view(n.op) || n.numel == 0) return std::nullopt;
  StridedView v = strided_view(g, node, stored);
  if (v.base == node) return std::nullopt;
  const ir::GraphNode& base = g[v.base];
  const ir::OpKind kind = ir::info(base.op).kind;
  if (kind == ir::OpKind::Scalar || kind == ir::OpKind::Iota) return std::nullopt;
  // What would be stored for this alone is no larger than the copy that it saves.
  if (ir::is_view(base.op) && base.numel > n.numel && !(stored && stored(v.base))) return std::nullopt;
  const std::size_t rank = n.dims.size();
  for (std::size_t a = 0; a < rank; ++a)
    if (a + 2 < rank ? !stride_of(v.axes[a]) : n.dims[a] > kMostLines) return std::nullopt;
  return v;
}

Alias shown_matrix(const Graph& g, const Regions& regions, NodeId node) {
  const auto v = matrix_view(g, node, [&](NodeId id) { return regions.stored[id]; });
  if (!v) return {};
  Alias out{v->base, v->offset, v->positions, {}};
  for (const Axis& axis : v->axes) {
    const std::optional<std::int64_t> stride = stride_of(axis);
    if (!stride) return {};
    out.strides.push_back(*stride);
  }
  return out;
}

bool shows_lines(const StridedView& matrix) {
  const std::size_t rank = matrix.axes.size();
  const auto row = stride_of(matrix.axes[rank - 2]), col = stride_of(matrix.axes[rank - 1]);
  return row && col && (*row == 1 || *col == 1);
}

}  // namespace kiln::plan
