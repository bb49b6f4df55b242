// strided_view: the memory that a node shows, where an axis may be made of several parts of it. A head that
// is repeated for a group of queries is such an axis: (groups, repeats) with strides (s, 0). resolve_alias
// knows one stride an axis and so calls for a copy.
#pragma once

#include "plan/fuse.h"

#include <functional>
#include <optional>
#include <vector>

namespace kiln::plan {

/// A part of an axis: so many positions, this many elements apart.
struct AxisPart {
  std::int64_t extent, stride;
};

struct StridedView {
  NodeId base = ir::kNoNode;  // a node that is no view, or one that must be stored
  std::int64_t offset = 0;    // elements
  std::vector<Alias::Position> positions;
  std::vector<std::vector<AxisPart>> axes;  // for each axis its parts, outermost first
};

/// The memory under a node, through every view that it can be followed through. Where a view cannot be
/// followed, that view is the base: it is row-major memory once somebody stores it. So is a view that
/// `stored` names.
StridedView strided_view(const Graph& graph, NodeId node, const std::function<bool(NodeId)>& stored = {});

/// The memory that shows a product's operand, row by row and column by column; its batches have a stride
/// each. Nothing: that takes a copy in any case, or is memory of its own.
std::optional<StridedView> matrix_view(const Graph& graph, NodeId node,
                                       const std::function<bool(NodeId)>& stored);

/// The same by one stride an axis, of what is stored. No base: there is none.
Alias shown_matrix(const Graph& graph, const Regions& regions, NodeId node);

/// Whether a matrix view has a stride along either axis, which is 1 along one of them.
bool shows_lines(const StridedView& matrix);

/// The stride of an axis as a whole, or nothing where its parts lie apart.
std::optional<std::int64_t> stride_of(const std::vector<AxisPart>& axis);

/// The offset of position `at` along an axis.
std::int64_t offset_along(const std::vector<AxisPart>& axis, std::int64_t at);

}  // namespace kiln::plan
