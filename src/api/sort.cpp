// Sorting, and the operations whose result has as many elements as the values say. The latter evaluate what
// decides the shape, a mask, and record the rest.
#include "api/record.h"
#include "engine/nonzero.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::checked;
using api::describe;
using api::elementwise;
using ir::NodeRef;
using ir::Op;

/// The node of a sort, whose arguments are checked here.
NodeRef ordered_node(std::string_view name, Op op, const Tensor& x, Axis axis, bool descending,
                     std::optional<std::int64_t> k) {
  ir::Node* const node = checked(name, x);
  const int a = api::checked_axis(name, axis, node);
  const std::int64_t extent = node->dims()[static_cast<std::size_t>(a)];
  const std::int64_t kept = k.value_or(extent);
  if (kept < 0 || kept > extent)
    throw UserError(
        cat("[", name, "] ", kept, " elements along axis ", axis.value(), " of ", describe(node)));
  if (op != Op::sort && extent > std::int64_t{1} << 32)
    throw UserError(
        cat("[", name, "] axis ", axis.value(), " of ", describe(node), " has more than 2^32 elements"));
  return api::sort_node(op, api::cast_node(node, computed_as(node->dtype)).get(), a, descending, kept);
}

Tensor ordered(std::string_view name, Op op, const Tensor& x, Axis axis, bool descending,
               SourceLocation loc) {
  const CallScope scope(name, loc);
  return api::finish(ordered_node(name, op, x, axis, descending, std::nullopt));
}

/// Values and their positions.
Sorted ordered_pair(std::string_view name, const Tensor& x, Axis axis, bool descending,
                    std::optional<std::int64_t> k, SourceLocation loc) {
  const CallScope scope(name, loc);
  const NodeRef both = ordered_node(name, Op::sort_with_positions, x, axis, descending, k);
  const std::vector<NodeRef> parts = api::part_nodes(both, 2);
  const Tensor indices = api::finish(parts[1]);
  return {api::finish(parts[0]), indices};
}

/// Flat positions where a bool tensor is true. Evaluates it.
Tensor true_positions(const Tensor& mask) {
  const auto* const bytes = static_cast<const std::uint8_t*>(mask.data());
  const engine::Positions found = engine::nonzero_positions(bytes, mask.numel());
  const Tensor positions =
      Tensor::adopt(ir::new_leaf(found.buffer, DType::Int64, Shape{found.count}, 0, nullptr));
  return positions.to(mask.device());
}

Tensor flattened(const Tensor& x) { return reshape(x, {x.numel()}); }

/// x[from : to] of a vector.
Tensor part(const Tensor& x, std::int64_t from, std::int64_t to) {
  const Slice slices[] = {range(from, to)};
  return x.index(slices);
}

/// The flattened x in order, and where each new value begins.
struct Groups {
  Tensor order, sorted, starts;
};
Groups groups(std::string_view name, const Tensor& x) {
  checked(name, x);
  const Tensor flat = flattened(x);
  Groups g;
  const Sorted both = sort_with_indices(flat, 0, false);
  g.order = both.indices;
  g.sorted = both.values;
  const std::int64_t n = flat.numel();
  if (n == 0) {
    g.starts = zeros({0}, DType::Int64);
    return g;
  }
  const Tensor differs = elementwise(Op::not_equal, part(g.sorted, 1, n), part(g.sorted, 0, n - 1));
  g.starts = true_positions(concat({ones({1}, DType::Bool), differs}, 0));
  return g;
}

}  // namespace

Tensor sort(const Tensor& x, Axis axis, Flag descending, SourceLocation loc) {
  return ordered("sort", Op::sort, x, axis, descending, loc);
}

Tensor argsort(const Tensor& x, Axis axis, Flag descending, SourceLocation loc) {
  return ordered("argsort", Op::argsort, x, axis, descending, loc);
}

Sorted sort_with_indices(const Tensor& x, Axis axis, Flag descending, SourceLocation loc) {
  return ordered_pair("sort_with_indices", x, axis, descending, std::nullopt, loc);
}

TopK topk(const Tensor& x, Whole k, Axis axis, Flag largest, SourceLocation loc) {
  const Sorted found = ordered_pair("topk", x, axis, largest, k, loc);
  return {found.values, found.indices};
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, Flag right, SourceLocation loc) {
  const CallScope scope("searchsorted", loc);
  api::check_both("searchsorted", sorted, values);
  ir::Node *const in = sorted.node(), *const wanted = values.node();
  if (in->rank != 1) throw UserError(cat("[searchsorted] searches one axis, got ", describe(in)));
  const DType dtype = computed_as(promote(in->dtype, wanted->dtype));
  auto node = NodeRef::adopt(ir::new_node(Op::searchsorted, DType::Int64, wanted->dims()));
  node->n_in = 2;
  node->in[0] = api::cast_node(in, dtype).take();
  node->in[1] = api::cast_node(wanted, dtype).take();
  ir::set_attributes(node.get(), ir::Search{right});
  return api::finish(std::move(node));
}

std::vector<Tensor> nonzero(const Tensor& x, SourceLocation loc) {
  const CallScope scope("nonzero", loc);
  const ir::Node* const node = checked("nonzero", x);
  if (node->rank == 0) throw UserError(cat("[nonzero] needs an axis, got ", describe(node)));
  const Shape dims = node->shape();
  const Tensor flat = true_positions(astype(x, DType::Bool));
  if (dims.rank() == 1) return {flat};
  // Vectors of int32 divide faster.
  Tensor rest = dims.numel() <= INT32_MAX ? astype(flat, DType::Int32) : flat;
  std::vector<Tensor> out(static_cast<std::size_t>(dims.rank()));
  for (int axis = dims.rank(); axis-- > 0;) {
    const Scalar extent = dims[axis];
    out[static_cast<std::size_t>(axis)] =
        astype(axis == 0 ? rest : elementwise(Op::remainder, rest, extent), DType::Int64);
    if (axis > 0) rest = elementwise(Op::floor_divide, rest, extent);
  }
  return out;
}

Tensor compress(const Tensor& x, const Tensor& mask, SourceLocation loc) {
  const CallScope scope("compress", loc);
  api::check_both("compress", x, mask);
  const ir::Node *const node = x.node(), *const chosen = mask.node();
  bool fits = is_bool(chosen->dtype) && chosen->rank <= node->rank;
  for (std::size_t i = 0; i < chosen->rank && fits; ++i) fits = chosen->dims()[i] == node->dims()[i];
  if (!fits)
    throw UserError(cat("[compress] needs a bool mask over leading axes: x ", describe(node), ", mask ",
                        describe(chosen)));
  Shape dims{chosen->numel};
  for (std::size_t i = chosen->rank; i < node->rank; ++i) dims.push_back(node->dims()[i]);
  const Tensor rows = reshape(x, dims);
  const Tensor positions = true_positions(mask);
  if (positions.numel() == 0) {  // nothing to take, and maybe nothing to take from
    dims[0] = 0;
    return zeros(dims, node->dtype);
  }
  return take(rows, positions, 0);
}

Unique unique_all(const Tensor& x, SourceLocation loc) {
  const CallScope scope("unique_all", loc);
  const Groups g = groups("unique_all", x);
  const std::int64_t n = x.numel(), found = g.starts.numel();
  Unique out;
  if (n == 0) {
    out.values = reshape(x, {0});
    out.indices = out.counts = g.starts;
    out.inverse = reshape(g.starts, x.shape());
    return out;
  }
  out.values = take(g.sorted, g.starts, 0);
  out.indices = take(g.order, g.starts, 0);
  const Tensor ends = concat({part(g.starts, 1, found), full({1}, n, DType::Int64)}, 0);
  out.counts = elementwise(Op::subtract, ends, g.starts);
  const Tensor group =
      elementwise(Op::subtract, searchsorted(g.starts, arange(n, std::nullopt), true), Scalar(1));
  out.inverse = reshape(take(group, argsort(g.order, 0, false), 0), x.shape());
  return out;
}

Tensor unique(const Tensor& x, SourceLocation loc) {
  const CallScope scope("unique", loc);
  const Groups g = groups("unique", x);
  return x.numel() == 0 ? reshape(x, {0}) : take(g.sorted, g.starts, 0);
}

}  // namespace kiln
