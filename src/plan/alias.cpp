#include "ir/layout.h"
#include "plan/fuse.h"

namespace kiln::plan {
namespace {

/// Strides that show `from` as `to` without a copy; false when there are none.
bool reshape_strides(ir::Dims from, const std::vector<std::int64_t>& strides, ir::Dims to,
                     std::vector<std::int64_t>& out) {
  // Maximal runs of axes that are contiguous among themselves are matched, innermost first, by element count.
  out.assign(to.size(), 0);
  std::size_t i = from.size(), j = to.size();
  while (i > 0 || j > 0) {
    while (i > 0 && from[i - 1] == 1) --i;
    while (j > 0 && to[j - 1] == 1) --j;
    if (i == 0 || j == 0) break;
    std::int64_t have = from[i - 1], want = to[j - 1];
    std::int64_t stride = strides[i - 1];
    out[j - 1] = stride;
    std::int64_t next = stride * want;
    --i, --j;
    while (have != want) {
      if (have < want) {
        while (i > 0 && from[i - 1] == 1) --i;
        if (i == 0 || strides[i - 1] != stride * have) return false;
        have *= from[--i];
      } else {
        while (j > 0 && to[j - 1] == 1) --j;
        if (j == 0) return false;
        out[j - 1] = next;
        want *= to[j - 1];
        next *= to[j - 1];
        --j;
      }
    }
  }
  return true;
}

/// Whether a node shows another one's memory.
bool shows_memory(const ir::GraphNode& n) {
  return ir::is_view(n.op) && !is_written_in_place(n) && n.op != ir::Op::arrange && n.op != ir::Op::pad &&
         n.op != ir::Op::update_at && n.op != ir::Op::join;
}

/// The memory that a chain of views begins with.
Alias first_alias(const Graph& g, NodeId view) {
  const ir::GraphNode& n = g[view];
  if (!ir::is_view(n.op)) {
    Alias a;
    a.base = view;
    if (n.op == ir::Op::leaf) {
      const ir::Dims strides = g.args[static_cast<std::size_t>(n.arg)].strides;
      a.strides.assign(strides.begin(), strides.end());
    } else if (n.op != ir::Op::scalar && n.op != ir::Op::constant && n.op != ir::Op::iota) {
      a.strides = ir::row_major_strides(n.dims);
    } else {
      a.base = ir::kNoNode;  // scalars and iotas have no memory
    }
    return a;
  }
  if (is_written_in_place(n) || n.op == ir::Op::arrange) return {view, 0, {}, ir::row_major_strides(n.dims)};
  return {};
}

/// What a view shows of its operand's memory.
Alias alias_of_view(const Graph& g, NodeId view, const Alias& in) {
  const ir::GraphNode& n = g[view];
  const ir::Dims from = g[n.in[0]].dims;
  Alias out{in.base, in.offset, in.positions, {}};
  switch (n.op) {
    case ir::Op::slice_at: {
      // Only the host's own starts are known before a kernel runs.
      if (g[n.in[1]].op != ir::Op::scalar || ir::attributes<ir::Position>(n).from_back) return {};
      const std::size_t axis = ir::attributes<ir::Position>(n).axis;
      out.strides = in.strides;
      out.positions.push_back({g[n.in[1]].arg, from[axis] - n.dims[axis], in.strides[axis]});
      return out;
    }
    case ir::Op::reshape:
      if (n.numel == 0) {
        out.strides = ir::row_major_strides(n.dims);
        return out;
      }
      if (reshape_strides(from, in.strides, n.dims, out.strides)) return out;
      return {};
    default: break;
  }
  const ir::ViewMap map = ir::view_map(n, from);
  out.strides.assign(n.dims.size(), 0);
  for (std::size_t a = 0; a < from.size(); ++a) out.offset += map.first[a] * in.strides[a];
  for (const ir::ViewMap::Term& t : map.terms) out.strides[t.axis] += t.step * in.strides[t.operand_axis];
  return out;
}

}  // namespace

Alias resolve_alias(const Graph& g, NodeId view) {
  std::vector<NodeId> views;
  for (; shows_memory(g[view]); view = g[view].in[0]) views.push_back(view);
  Alias found = first_alias(g, view);
  for (; !views.empty() && found.base != ir::kNoNode; views.pop_back())
    found = alias_of_view(g, views.back(), found);
  return found;
}

}  // namespace kiln::plan
