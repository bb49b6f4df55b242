// Movement: everything here records index maps (reshape, permute, broadcast, slice, pad) and nothing else.
#include "api/record.h"
#include "ir/infer.h"
#include "support/check.h"

#include <algorithm>
#include <numeric>

namespace kiln {
namespace {

using api::checked;
using api::describe;
using api::finish;
using ir::NodeRef;

std::vector<int> identity_axes(int rank) {
  std::vector<int> axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// The user's shape with -1 filled in; UserError unless it has as many elements as x.
Shape resolved_shape(const ir::Node* x, const Shape& shape) {
  Shape out = shape;
  int unknown = -1;
  std::int64_t known = 1;
  bool good = true;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      good = good && unknown < 0;
      unknown = i;
    } else {
      good = good && shape[i] >= 0 && !__builtin_mul_overflow(known, shape[i], &known);
    }
  }
  if (good && unknown >= 0) {
    good = known != 0 && x->numel % known == 0;
    if (good) out[unknown] = x->numel / known;
  } else {
    good = good && known == x->numel;
  }
  if (!good) throw UserError(cat("[reshape] ", describe(x), " cannot take the shape ", shape.str()));
  return out;
}

/// Slice of one axis, every other whole.
NodeRef slice_axis(ir::Node* x, int axis, std::int64_t start, std::int64_t step, std::int64_t count) {
  Shape starts, steps, dims = x->shape();
  starts.resize(x->rank, 0);
  steps.resize(x->rank, 1);
  starts[axis] = start;
  steps[axis] = step;
  dims[axis] = count;
  return api::slice_node(x, starts, steps, dims);
}

Tensor rolled(const Tensor& x, std::int64_t shift, int axis) {
  ir::Node* const node = x.node();
  const std::int64_t extent = node->dims()[static_cast<std::size_t>(axis)];
  if (extent == 0) return x;
  std::int64_t by = shift % extent;
  if (by == 0) return x;
  if (by < 0) by += extent;
  const Tensor head = Tensor::adopt(slice_axis(node, axis, extent - by, 1, by).take());
  const Tensor tail = Tensor::adopt(slice_axis(node, axis, 0, 1, extent - by).take());
  return concat({head, tail}, axis);
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape, SourceLocation loc) {
  const CallScope scope("reshape", loc);
  ir::Node* const node = checked("reshape", x);
  return finish(api::reshape_node(node, resolved_shape(node, shape)));
}

Tensor flatten(const Tensor& x, Axis start, Axis end, SourceLocation loc) {
  const CallScope scope("flatten", loc);
  ir::Node* const node = checked("flatten", x);
  if (node->rank == 0) return reshape(x, {1});
  const auto dims = node->dims();
  const int first = api::checked_axis("flatten", start, node), last = api::checked_axis("flatten", end, node);
  if (first > last)
    throw UserError(cat("[flatten] axes ", start.value(), " to ", end.value(), " of ", describe(node)));
  Shape out;
  for (int i = 0; i < node->rank; ++i) {
    const std::int64_t extent = dims[static_cast<std::size_t>(i)];
    if (i > first && i <= last)
      out[out.rank() - 1] *= extent;
    else
      out.push_back(extent);
  }
  return finish(api::reshape_node(node, out));
}

Tensor permute_dims(const Tensor& x, const Axes& axes, SourceLocation loc) {
  const CallScope scope("permute_dims", loc);
  ir::Node* const node = checked("permute_dims", x);
  api::checked_axes("permute_dims", axes, node);
  if (axes.all() || static_cast<int>(axes.list().size()) != node->rank)
    throw UserError(cat("[permute_dims] needs ", int{node->rank}, " axes for ", describe(node), ", got ",
                        axes.list().size()));
  std::vector<int> order;
  for (std::int64_t axis : axes.list())
    order.push_back(static_cast<int>(axis < 0 ? axis + node->rank : axis));
  return finish(api::permute_node(node, order));
}

Tensor transpose(const Tensor& x, SourceLocation loc) {
  const CallScope scope("transpose", loc);
  ir::Node* const node = checked("transpose", x);
  std::vector<int> order = identity_axes(node->rank);
  std::ranges::reverse(order);
  return finish(api::permute_node(node, order));
}

Tensor swapaxes(const Tensor& x, Axis a, Axis b, SourceLocation loc) {
  const CallScope scope("swapaxes", loc);
  ir::Node* const node = checked("swapaxes", x);
  std::vector<int> order = identity_axes(node->rank);
  std::swap(order[static_cast<std::size_t>(api::checked_axis("swapaxes", a, node))],
            order[static_cast<std::size_t>(api::checked_axis("swapaxes", b, node))]);
  return finish(api::permute_node(node, order));
}

Tensor matrix_transpose(const Tensor& x, SourceLocation loc) {
  const CallScope scope("matrix_transpose", loc);
  if (checked("matrix_transpose", x)->rank < 2)
    throw UserError(cat("[matrix_transpose] needs two axes, got ", describe(x.node())));
  return swapaxes(x, -2, -1);
}

Tensor moveaxis(const Tensor& x, const Axes& source, const Axes& destination, SourceLocation loc) {
  const CallScope scope("moveaxis", loc);
  ir::Node* const node = checked("moveaxis", x);
  const std::uint64_t from = api::checked_axes("moveaxis", source, node);
  const std::uint64_t to = api::checked_axes("moveaxis", destination, node);
  if (source.all() || destination.all() || source.list().size() != destination.list().size())
    throw UserError(cat("[moveaxis] ", source.list().size(), " axes to ", destination.list().size(),
                        " places, on ", describe(node)));
  std::vector<int> order(node->rank, -1);
  for (std::size_t i = 0; i < source.list().size(); ++i) {
    const std::int64_t s = source.list()[i], d = destination.list()[i];
    order[static_cast<std::size_t>(d < 0 ? d + node->rank : d)] =
        static_cast<int>(s < 0 ? s + node->rank : s);
  }
  int next = 0;
  for (int i = 0; i < node->rank; ++i) {
    if ((to >> i) & 1) continue;
    while ((from >> next) & 1) ++next;
    order[static_cast<std::size_t>(i)] = next++;
  }
  return finish(api::permute_node(node, order));
}

Tensor expand_dims(const Tensor& x, const Axes& axes, SourceLocation loc) {
  const CallScope scope("expand_dims", loc);
  ir::Node* const node = checked("expand_dims", x);
  const int rank = node->rank + static_cast<int>(axes.list().size());
  Shape out;
  out.resize(rank);
  const std::uint64_t added = api::checked_axes("expand_dims", axes.all() ? Axes{} : axes, node,
                                                static_cast<int>(axes.list().size()));
  for (int i = 0, from = 0; i < rank; ++i)
    out[i] = (added >> i) & 1 ? 1 : node->dims()[static_cast<std::size_t>(from++)];
  return finish(api::reshape_node(node, out));
}

Tensor squeeze(const Tensor& x, const Axes& axes, SourceLocation loc) {
  const CallScope scope("squeeze", loc);
  ir::Node* const node = checked("squeeze", x);
  const std::uint64_t mask = api::checked_axes("squeeze", axes, node);
  Shape out;
  for (int i = 0; i < node->rank; ++i) {
    const std::int64_t extent = node->dims()[static_cast<std::size_t>(i)];
    const bool drop = (mask >> i) & 1;
    if (drop && extent != 1 && !axes.all())
      throw UserError(cat("[squeeze] axis ", i, " of ", describe(node), " is not of extent 1"));
    if (!drop || extent != 1) out.push_back(extent);
  }
  return finish(api::reshape_node(node, out));
}

Tensor broadcast_to(const Tensor& x, const Shape& shape, SourceLocation loc) {
  const CallScope scope("broadcast_to", loc);
  ir::Node* const node = checked("broadcast_to", x);
  const int lead = shape.rank() - node->rank;
  bool good = lead >= 0;
  for (int i = 0; i < node->rank && good; ++i) {
    const std::int64_t extent = node->dims()[static_cast<std::size_t>(i)];
    good = extent == 1 || extent == shape[lead + i];
  }
  if (!good) throw UserError(cat("[broadcast_to] ", describe(node), " does not broadcast to ", shape.str()));
  return finish(api::broadcast_node(node, shape));
}

std::vector<Tensor> broadcast_arrays(std::span<const Tensor> tensors, SourceLocation loc) {
  const CallScope scope("broadcast_arrays", loc);
  Shape shape;
  for (const Tensor& t : tensors) {
    const ir::Node* node = checked("broadcast_arrays", t);
    const std::optional<Shape> both = ir::broadcast_dims(shape, node->dims());
    if (!both) {
      std::string all;
      for (const Tensor& each : tensors) all += (all.empty() ? "" : " and ") + api::describe(each);
      throw UserError(cat("[broadcast_arrays] ", all, " do not broadcast"));
    }
    shape = *both;
  }
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(broadcast_to(t, shape));
  return out;
}

Tensor flip(const Tensor& x, const Axes& axes, SourceLocation loc) {
  const CallScope scope("flip", loc);
  ir::Node* const node = checked("flip", x);
  const std::uint64_t mask = api::checked_axes("flip", axes, node);
  Shape start, step;
  for (int i = 0; i < node->rank; ++i) {
    const std::int64_t extent = node->dims()[static_cast<std::size_t>(i)];
    const bool turn = ((mask >> i) & 1) && extent > 1;
    start.push_back(turn ? extent - 1 : 0);
    step.push_back(turn ? -1 : 1);
  }
  return finish(api::slice_node(node, start, step, node->dims()));
}

Tensor roll(const Tensor& x, Whole shift, const Axes& axes, SourceLocation loc) {
  const CallScope scope("roll", loc);
  ir::Node* const node = checked("roll", x);
  if (axes.all()) return reshape(rolled(reshape(x, {node->numel}), shift, 0), node->shape());
  const std::uint64_t mask = api::checked_axes("roll", axes, node);
  Tensor out = x;
  for (int i = 0; i < node->rank; ++i)
    if ((mask >> i) & 1) out = rolled(out, shift, i);
  return out;
}

Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, Scalar value,
           SourceLocation loc) {
  const CallScope scope("pad", loc);
  ir::Node* const node = checked("pad", x);
  if (widths.size() != node->rank)
    throw UserError(cat("[pad] needs ", int{node->rank}, " pairs of widths for ", describe(node), ", got ",
                        widths.size()));
  Shape start, step, inner, low, outer;
  for (int i = 0; i < node->rank; ++i) {
    const auto [before, after] = widths[static_cast<std::size_t>(i)];
    const std::int64_t extent = node->dims()[static_cast<std::size_t>(i)];
    std::int64_t whole = 0;
    if (__builtin_add_overflow(extent, before, &whole) || __builtin_add_overflow(whole, after, &whole) ||
        whole < 0)
      throw UserError(cat("[pad] widths ", before, " and ", after, " on axis ", i, " of ", describe(node)));
    const std::int64_t from = before >= 0 ? 0 : before < -extent ? extent : -before;
    const std::int64_t to = std::max(from, extent + std::min<std::int64_t>(after, 0));
    start.push_back(from);
    step.push_back(1);
    inner.push_back(to - from);
    low.push_back(std::max<std::int64_t>(0, before));
    outer.push_back(whole);
  }
  const NodeRef body = api::slice_node(node, start, step, inner);
  if (inner == outer) return finish(body);
  return finish(api::pad_node(body.get(), nullptr, api::scalar_bits(value, node->dtype), low, step, outer));
}

namespace {

/// A list of sliding_window: UserError unless it has an entry of at least 1 for each of `count` axes.
const Shape& one_for_each(const Shape& list, int count, std::string_view what, const ir::Node* x) {
  if (list.rank() != count)
    throw UserError(cat("[sliding_window] needs a ", what, " for each of ", count, " axes of ", describe(x),
                        ", got ", list.rank()));
  for (const std::int64_t entry : list)
    if (entry < 1)
      throw UserError(
          cat("[sliding_window] a ", what, " must be at least 1, got ", list.str(), " for ", describe(x)));
  return list;
}

}  // namespace

Tensor sliding_window(const Tensor& x, const Shape& size, const Axes& axes, const Shape& stride,
                      const Shape& dilation, SourceLocation loc) {
  const CallScope scope("sliding_window", loc);
  ir::Node* const node = checked("sliding_window", x);
  api::checked_axes("sliding_window", axes, node);
  std::vector<std::int64_t> over(axes.list().begin(), axes.list().end());
  if (axes.all())
    for (int a = 0; a < node->rank; ++a) over.push_back(a);
  const int count = static_cast<int>(over.size());
  Shape ones;
  ones.resize(count, 1);
  const Shape sizes = one_for_each(size, count, "size", node),
              steps = one_for_each(stride.empty() ? ones : stride, count, "stride", node),
              gaps = one_for_each(dilation.empty() ? ones : dilation, count, "dilation", node);
  if (count == 0) return x;
  if (node->rank + count > kMaxRank)
    throw UserError(cat("[sliding_window] ", count, " windows over ", describe(node), " make more than ",
                        kMaxRank, " axes"));
  Shape dims = node->shape();
  std::vector<std::int64_t> words;
  for (int k = 0; k < count; ++k) {
    const auto given = static_cast<int>(over[static_cast<std::size_t>(k)]);
    const int axis = given < 0 ? given + node->rank : given;
    std::int64_t reach = 0;  // from the first element of a window to its last
    if (__builtin_mul_overflow(sizes[k] - 1, gaps[k], &reach) || reach >= dims[axis])
      throw UserError(cat("[sliding_window] a window of ", sizes[k], " elements, ", gaps[k],
                          " apart, does not fit axis ", axis, " of ", describe(node)));
    dims[axis] = (dims[axis] - 1 - reach) / steps[k] + 1;
    dims.push_back(sizes[k]);
    // Distances nobody goes are 1: products with them cannot overflow.
    words.insert(words.end(), {axis, dims[axis] == 1 ? 1 : steps[k], sizes[k] == 1 ? 1 : gaps[k]});
  }
  auto windows = NodeRef::adopt(ir::new_node(ir::Op::sliding_window, node->dtype, dims));
  windows->n_in = 1;
  ir::set_input(windows.get(), 0, node);
  ir::set_attributes(windows.get(), ir::Windows(words));
  return finish(std::move(windows));
}

Tensor concat(std::span<const Tensor> tensors, Axis axis, SourceLocation loc) {
  const CallScope scope("concat", loc);
  if (tensors.empty()) throw UserError("[concat] no tensors");
  const ir::Node* head = checked("concat", tensors[0]);
  const int at = api::checked_axis("concat", axis, head);
  Shape dims = head->shape();
  DType dtype = head->dtype;
  for (const Tensor& t : tensors.subspan(1)) {
    const ir::Node* node = checked("concat", t);
    bool good = node->rank == head->rank;
    for (int i = 0; i < head->rank && good; ++i)
      good = i == at || node->dims()[static_cast<std::size_t>(i)] == dims[i];
    if (!good)
      throw UserError(cat("[concat] ", describe(head), " and ", describe(node), " differ off axis ", at));
    if (__builtin_add_overflow(dims[at], node->dims()[static_cast<std::size_t>(at)], &dims[at]))
      throw UserError(cat("[concat] the extent of axis ", at, " overflows 63 bits"));
    dtype = promote(dtype, node->dtype);
  }
  std::vector<NodeRef> pieces;  // those that have elements
  for (const Tensor& t : tensors)
    if (t.node()->dims()[static_cast<std::size_t>(at)] != 0)
      pieces.push_back(api::cast_node(t.node(), dtype));
  if (pieces.empty()) return finish(api::cast_node(tensors[0].node(), dtype));
  return finish(api::join_node(pieces, at, dims));
}
Tensor concat(std::initializer_list<Tensor> tensors, Axis axis, SourceLocation loc) {
  return concat(std::span(tensors.begin(), tensors.size()), axis, loc);
}

Tensor stack(std::span<const Tensor> tensors, Axis axis, SourceLocation loc) {
  const CallScope scope("stack", loc);
  if (tensors.empty()) throw UserError("[stack] no tensors");
  const ir::Node* head = checked("stack", tensors[0]);
  std::vector<Tensor> pieces;
  for (const Tensor& t : tensors) {
    const ir::Node* node = checked("stack", t);
    if (!std::ranges::equal(head->dims(), node->dims()))
      throw UserError(cat("[stack] shapes differ: ", describe(head), " and ", describe(node)));
    pieces.push_back(expand_dims(t, axis));
  }
  return concat(pieces, axis.value() < 0 ? axis.value() + head->rank + 1 : axis.value());
}
Tensor stack(std::initializer_list<Tensor> tensors, Axis axis, SourceLocation loc) {
  return stack(std::span(tensors.begin(), tensors.size()), axis, loc);
}

namespace {

/// x (outer, inner) with each row `times` times behind itself, seen in the extents `out`: three axes,
/// whatever x's rank is.
NodeRef rows_repeated(ir::Node* x, std::int64_t outer, std::int64_t inner, std::int64_t times,
                      const Shape& out) {
  const NodeRef rows = api::reshape_node(x, Shape{outer, 1, inner});
  const NodeRef repeated = api::broadcast_node(rows.get(), Shape{outer, times, inner});
  return api::reshape_node(repeated.get(), out);
}

/// The product of the extents of some axes.
std::int64_t extent_of(const Shape& dims, int from, int to) {
  std::int64_t n = 1;
  for (int i = from; i < to; ++i) n *= dims[i];
  return n;
}

/// The last axes first: each in its turn.
NodeRef tiled_by_axes(ir::Node* x, Shape dims, const Shape& out) {
  NodeRef tiled = NodeRef::share(x);
  for (int i = dims.rank(); i-- > 0;) {
    const std::int64_t outer = extent_of(dims, 0, i), inner = extent_of(dims, i, dims.rank());
    if (dims[i] == out[i]) continue;
    const std::int64_t times = dims[i] == 0 ? 0 : out[i] / dims[i];
    dims[i] = out[i];
    tiled = rows_repeated(tiled.get(), outer, inner, times, dims);
  }
  return tiled;
}

}  // namespace

Tensor tile(const Tensor& x, const Shape& repetitions, SourceLocation loc) {
  const CallScope scope("tile", loc);
  ir::Node* const node = checked("tile", x);
  const int rank = std::max<int>(node->rank, repetitions.rank());
  Shape dims, times, out;
  int repeated_axes = 0;
  for (int i = 0; i < rank; ++i) {
    const int in_x = i - (rank - node->rank), in_r = i - (rank - repetitions.rank());
    dims.push_back(in_x < 0 ? 1 : node->dims()[static_cast<std::size_t>(in_x)]);
    times.push_back(in_r < 0 ? 1 : repetitions[in_r]);
    std::int64_t total = 0;
    if (times[i] < 0 || __builtin_mul_overflow(dims[i], times[i], &total))
      throw UserError(cat("[tile] repetitions ", repetitions.str(), " of ", describe(node)));
    out.push_back(total);
    repeated_axes += times[i] != 1;
  }
  if (rank + repeated_axes > kMaxRank) return finish(tiled_by_axes(node, dims, out));
  Shape split, wide;
  for (int i = 0; i < rank; ++i) {
    if (times[i] != 1) {
      split.push_back(1);
      wide.push_back(times[i]);
    }
    split.push_back(dims[i]);
    wide.push_back(dims[i]);
  }
  const NodeRef columns = api::reshape_node(node, split);
  const NodeRef repeated = api::broadcast_node(columns.get(), wide);
  return finish(api::reshape_node(repeated.get(), out));
}

Tensor repeat(const Tensor& x, Whole times, Axis axis, SourceLocation loc) {
  const CallScope scope("repeat", loc);
  ir::Node* const node = checked("repeat", x);
  const std::int64_t count = times;
  const int at = api::checked_axis("repeat", axis, node);
  Shape out = node->shape();
  const std::int64_t outer = extent_of(out, 0, at + 1), inner = extent_of(out, at + 1, node->rank);
  if (count < 0 || __builtin_mul_overflow(out[at], count, &out[at]))
    throw UserError(cat("[repeat] ", count, " times along axis ", at, " of ", describe(node)));
  return finish(rows_repeated(node, outer, inner, count, out));
}

std::vector<Tensor> detail::split_at(const Tensor& x, std::span<const std::int64_t> positions, Axis axis,
                                     SourceLocation loc) {
  const CallScope scope("split", loc);
  ir::Node* const node = checked("split", x);
  const int at = api::checked_axis("split", axis, node);
  const std::int64_t extent = node->dims()[static_cast<std::size_t>(at)];
  std::vector<Tensor> out;
  std::int64_t from = 0;
  for (std::size_t i = 0; i <= positions.size(); ++i) {
    const std::int64_t to = i < positions.size() ? positions[i] : extent;
    if (to < from || to > extent)
      throw UserError(cat("[split] position ", to, " on axis ", at, " of ", describe(node)));
    out.push_back(finish(slice_axis(node, at, from, 1, to - from)));
    from = to;
  }
  return out;
}

std::vector<Tensor> split(const Tensor& x, std::initializer_list<Whole> positions, Axis axis,
                          SourceLocation loc) {
  return detail::split_at(x, std::vector<std::int64_t>(positions.begin(), positions.end()), axis, loc);
}

std::vector<Tensor> detail::split_equally(const Tensor& x, std::int64_t sections, Axis axis,
                                          SourceLocation loc) {
  const CallScope scope("split", loc);
  ir::Node* const node = checked("split", x);
  const int at = api::checked_axis("split", axis, node);
  const std::int64_t extent = node->dims()[static_cast<std::size_t>(at)];
  if (sections <= 0 || extent % sections != 0)
    throw UserError(cat("[split] axis ", at, " of ", describe(node), " into ", sections, " equal parts"));
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 1; i < sections; ++i) positions.push_back(i * (extent / sections));
  return split_at(x, positions, at, loc);
}

std::vector<Tensor> unstack(const Tensor& x, Axis axis, SourceLocation loc) {
  const CallScope scope("unstack", loc);
  ir::Node* const node = checked("unstack", x);
  const int at = api::checked_axis("unstack", axis, node);
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < node->dims()[static_cast<std::size_t>(at)]; ++i) {
    const Tensor piece = Tensor::adopt(slice_axis(node, at, i, 1, 1).take());
    out.push_back(squeeze(piece, at));
  }
  return out;
}

}  // namespace kiln
