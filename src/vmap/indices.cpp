// Reading and writing at indices, for many examples at once.
#include "support/check.h"
#include "vmap/rules.h"

#include <bit>

namespace kiln::mapped {
namespace {

using api::finish;
using ir::NodeRef;

Tensor shared(const NodeRef& n) { return Tensor::adopt(NodeRef::share(n.get()).take()); }
NodeRef node_of(const Tensor& t) { return NodeRef::share(t.node()); }

/// 0, 1, … along an axis of a value of this rank.
Tensor counted(std::int64_t extent, std::size_t axis, std::size_t rank) {
  Shape dims;
  dims.resize(static_cast<int>(rank), 1);
  dims[static_cast<int>(axis)] = extent;
  return Tensor::adopt(api::iota_node(dims, static_cast<int>(axis), DType::Int64).take());
}

/// The starts of all examples as a slice_at takes them: inside [0, extent - size], one for each element of
/// the first axis of a value of this rank.
Tensor starts(const Step& s, std::size_t k, std::int64_t extent, std::int64_t size, std::size_t rank) {
  Tensor at = shared(with_rank(s.in[k].node.get(), rank - 1));
  if (s.attributes<ir::Position>().from_back) at = where(at < 0, at + extent, at);
  return minimum(maximum(at, 0), extent - size);
}

}  // namespace

/// x repeats along axes of extent 1, the indices broadcast.
NodeRef map_gather(const Step& s) {
  auto at = s.attributes<ir::Gather>();
  ++at.axis;
  const NodeRef x = s.in[0].mapped ? s.in[0].node : repeated(s.in[0].node.get(), 1);
  return s.made({{x, s.aligned(1)}}, at);
}

NodeRef map_scatter(const Step& s) {
  auto at = s.attributes<ir::Scatter>();
  ++at.axis;
  return s.made({{s.all(0), s.aligned(1), s.all(2)}}, at);
}

/// Where each example has a start of its own, the elements are gathered.
NodeRef map_slice_at(const Step& s) {
  auto how = s.attributes<ir::Position>();
  const std::size_t axis = how.axis + 1, rank = s.rank() + 1;
  const std::int64_t size = s.node.dims()[how.axis];
  if (!s.in[1].mapped) {
    how.axis = axis;
    return s.made({{s.in[0].node, s.in[1].node}}, how);
  }
  const NodeRef x = s.in[0].mapped ? s.in[0].node : repeated(s.in[0].node.get(), 1);
  const Tensor at = starts(s, 1, x->dims()[axis], size, rank) + counted(size, axis, rank);
  return api::gather_node(x.get(), at.node(), {axis}, s.dims());
}

/// Where each example has a start of its own, each element of the result is x's or the update's.
NodeRef map_update_at(const Step& s) {
  auto how = s.attributes<ir::Position>();
  const std::size_t axis = how.axis + 1, rank = s.rank() + 1;
  const NodeRef update = s.all(0), x = s.all(1);
  if (!s.in[2].mapped) {
    how.axis = axis;
    return s.made({{update, x, s.in[2].node}}, how);
  }
  const std::int64_t size = update->dims()[axis], extent = x->dims()[axis];
  if (size == 0) return x;
  const Tensor place = counted(extent, axis, rank) - starts(s, 2, extent, size, rank);
  const Tensor inside = (place >= 0) & (place < size);
  const Tensor near = minimum(maximum(place, 0), size - 1);
  const Tensor there = finish(api::gather_node(update.get(), near.node(), {axis}, s.dims()));
  return node_of(where(inside, there, shared(x)));
}

/// Where each example searches a row of its own: by halves, as many steps as the row's length has digits.
NodeRef map_searchsorted(const Step& s) {
  if (!s.in[0].mapped) return s.made({{s.in[0].node, s.in[1].node}}, s.attributes<ir::Search>());
  const bool right = s.attributes<ir::Search>().right;
  const std::int64_t n = s.in[0].node->dims()[1], each = s.node.numel;
  const auto plain = [](const Tensor& x) { return is_bool(x.dtype()) ? x.astype(DType::UInt8) : x; };
  const Tensor row = plain(shared(s.in[0].node));
  const Tensor value = plain(finish(api::reshape_node(s.all(1).get(), Shape{s.count, each})));
  const auto before = [](const Tensor& a, const Tensor& b) {  // NaN is greatest
    return is_float(a.dtype()) ? (a < b) | (isnan(b) & !isnan(a)) : a < b;
  };
  Tensor place = zeros({s.count, each}, DType::Int64);
  for (auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n))); step > 0;
       step /= 2) {
    const Tensor next = place + step;
    const Tensor at = minimum(next, n) - 1;
    const Tensor found = finish(api::gather_node(row.node(), at.node(), {1}, Shape{s.count, each}));
    const Tensor passed = right ? !before(value, found) : before(found, value);
    place = where((next <= n) & passed, next, place);
  }
  return api::reshape_node(place.node(), s.dims());
}

}  // namespace kiln::mapped
