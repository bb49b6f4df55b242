// ViewMap: where an affine view (ir::AFFINE) reads its operand. Planning and lowering ask for the map instead
// of naming views: an operation that has one is followed as strides of memory and as an index of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kiln::ir {

using Dims = std::span<const std::int64_t>;
struct GraphNode;
struct Stored;
enum class Op : std::uint16_t;

/// Coordinate a of the operand is first[a] plus, for each term of operand axis a, step times the result's
/// coordinate along `axis`. An axis of the operand without terms is read at first[a] alone.
struct ViewMap {
  struct Term {
    std::size_t operand_axis, axis;
    std::int64_t step;
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::vector<std::int64_t> first;  // one for each axis of the operand
  std::vector<Term> terms;
  const char* fault = nullptr;  // why the attributes do not fit the extents; then nothing else holds

  static ViewMap wrong(const char* why) { return {{}, {}, why}; }
  /// Whether a view of a tensor of these extents, with a result of equal extents, shows it unchanged.
  bool is_identity(Dims dims) const;
  /// Whether every coordinate lies in an operand of extents `from`, for every element of a result of `to`.
  bool stays_inside(Dims from, Dims to) const;
};

/// The map of an affine view whose operand has the extents `from` and whose result has the extents `to`.
/// InternalError for any other op, and of a node whose map has a fault.
ViewMap view_map(Op op, const Stored& attributes, Dims from, Dims to);
ViewMap view_map(const GraphNode& view, Dims from);

}  // namespace kiln::ir
