// Integers of four bits as plain operations on bytes. What reads them takes these along like any other map.
// Shifts are parts of arange, not numbers beside a tensor: those would be arguments of kernels, and a planner
// could not know which bits are meant (lower/region_nibbles.cpp).
#include <kiln/int4.h>
#include <kiln/ops.h>

#include "api/record.h"
#include "support/call_scope.h"
#include "support/check.h"

#include <array>

namespace kiln {
namespace {

/// x's extents without the last, then `last`.
Shape with_last(const ir::Node* x, std::span<const std::int64_t> last) {
  Shape out;
  out.resize(x->rank - 1 + static_cast<int>(last.size()));
  int axis = 0;
  for (; axis + 1 < x->rank; ++axis) out[axis] = x->dims()[static_cast<std::size_t>(axis)];
  for (const std::int64_t extent : last) out[axis++] = extent;
  return out;
}

const ir::Node* checked_bytes(std::string_view op, const Tensor& x) {
  const ir::Node* const node = api::checked(op, x);
  if (!is_int(node->dtype) || size_of(node->dtype) != 1)
    throw UserError(cat("[", op, "] needs int8 or uint8, got ", api::describe(node)));
  if (node->rank == 0 || node->rank == kMaxRank)
    throw UserError(cat("[", op, "] needs 1 to ", kMaxRank - 1, " axes, got ", api::describe(node)));
  return node;
}

}  // namespace

Tensor pack_int4(const Tensor& x, SourceLocation loc) {
  const CallScope scope("pack_int4", loc);
  const ir::Node* const node = checked_bytes("pack_int4", x);
  const std::int64_t extent = node->dims().back();
  if (extent % 2 != 0)
    throw UserError(cat("[pack_int4] the last axis needs an even extent, got ", api::describe(node)));
  const Tensor pairs = reshape(x, with_last(node, std::array{extent / 2, std::int64_t{2}}));
  const auto each = [&](std::int64_t i) {
    return pairs.index(std::array<Slice, 2>{slice::ellipsis, Slice(i)}, loc);
  };
  return (each(0) & 15) | (each(1) << 4);
}

Tensor unpack_int4(const Tensor& x, SourceLocation loc) {
  const CallScope scope("unpack_int4", loc);
  const ir::Node* const node = checked_bytes("unpack_int4", x);
  const std::int64_t extent = node->dims().back();
  const Tensor bytes = reshape(x, with_last(node, std::array{extent, std::int64_t{1}}));
  const Tensor shifts = arange(5, node->dtype);  // to the upper half, and back with its sign or zeros
  const Tensor up = shifts.index(std::array{slice::range(none, none, -4)}, loc),
               down = shifts.index(std::array{slice::range(4, 5)}, loc);
  return reshape((bytes << up) >> down, with_last(node, std::array{2 * extent}));
}

}  // namespace kiln
