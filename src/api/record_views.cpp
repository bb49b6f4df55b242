// Nodes of the structural operations. Callers have checked every argument; a node that would change nothing
// is not made.
#include "api/record.h"
#include "ir/infer.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::api {
namespace {

ir::NodeRef with_input(ir::NodeRef node, ir::Node* x) {
  node->n_in = 1;
  ir::set_input(node.get(), 0, x);
  return node;
}

}  // namespace

ir::NodeRef reshape_node(ir::Node* x, std::span<const std::int64_t> dims) {
  if (std::ranges::equal(x->dims(), dims)) return ir::NodeRef::share(x);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::reshape, x->dtype, dims)), x);
  KILN_CHECK_THAT(node->numel == x->numel, describe(x), " as ", to_string(dims));
  return node;
}

ir::NodeRef alias_node(ir::Node* x, bool stops) {
  auto node = with_input(ir::NodeRef::adopt(ir::new_node_like(ir::Op::alias, x->dtype, *x, x->loc)), x);
  ir::set_attributes(node.get(), ir::Alias{stops});
  return node;
}

ir::NodeRef permute_node(ir::Node* x, std::span<const int> axes) {
  ir::Permute shown;
  bool moved = false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    shown.show(i, static_cast<std::size_t>(axes[i]));
    moved |= axes[i] != static_cast<int>(i);
  }
  if (!moved) return ir::NodeRef::share(x);
  const Shape dims = ir::permuted_dims(x->dims(), shown);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::permute, x->dtype, dims)), x);
  ir::set_attributes(node.get(), shown);
  return node;
}

ir::NodeRef broadcast_node(ir::Node* x, std::span<const std::int64_t> dims) {
  if (std::ranges::equal(x->dims(), dims)) return ir::NodeRef::share(x);
  return with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::broadcast, x->dtype, dims)), x);
}

ir::NodeRef slice_node(ir::Node* x, std::span<const std::int64_t> start, std::span<const std::int64_t> step,
                       std::span<const std::int64_t> dims) {
  bool whole = std::ranges::equal(x->dims(), dims);
  for (std::size_t i = 0; i < dims.size() && whole; ++i)
    whole = start[i] == 0 && (step[i] == 1 || dims[i] <= 1);
  if (whole) return ir::NodeRef::share(x);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::slice, x->dtype, dims)), x);
  ir::set_attributes(node.get(), ir::Box(start, step));
  return node;
}

ir::NodeRef pad_node(ir::Node* body, ir::Node* fill, std::uint64_t fill_bits,
                     std::span<const std::int64_t> low, std::span<const std::int64_t> step,
                     std::span<const std::int64_t> dims) {
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::pad, body->dtype, dims)), body);
  node->n_in = 2;
  if (fill)
    ir::set_input(node.get(), 1, fill);
  else
    node->imm = fill_bits;
  ir::set_attributes(node.get(), ir::Box(low, step));
  return node;
}

ir::NodeRef join_node(std::span<const ir::NodeRef> pieces, int axis, std::span<const std::int64_t> dims) {
  if (pieces.size() == 1) return pieces[0];
  std::vector<ir::Node*> in;
  for (const ir::NodeRef& piece : pieces) in.push_back(piece.get());
  auto node = ir::NodeRef::adopt(ir::new_node(ir::Op::join, in[0]->dtype, dims));
  ir::set_inputs(node.get(), in);
  ir::set_attributes(node.get(), ir::Join{static_cast<std::size_t>(axis)});
  return node;
}

ir::NodeRef iota_node(std::span<const std::int64_t> dims, int axis, DType dtype,
                      std::optional<Device> device) {
  auto node = ir::NodeRef::adopt(ir::new_node(ir::Op::iota, dtype, dims));
  if (device) node->device = ir::device_code(*device) & 15;
  ir::set_attributes(node.get(), ir::Iota{static_cast<std::size_t>(axis)});
  return node;
}

std::vector<ir::NodeRef> part_nodes(const ir::NodeRef& bundle, std::size_t count) {
  std::vector<ir::NodeRef> parts(count);
  std::vector<ir::Node*> in{bundle.get()};
  for (std::size_t i = count; i-- > 0;) {
    const ir::Inferred made =
        ir::infer_part(bundle->op, {bundle->dtype, bundle->dims()}, i, ir::stored(*bundle));
    parts[i] = ir::NodeRef::adopt(ir::new_node(ir::Op::part, made.dtype, made.dims));
    ir::set_inputs(parts[i].get(), in);
    ir::set_attributes(parts[i].get(), ir::Part{i});
    in.push_back(parts[i].get());
  }
  return parts;
}

ir::NodeRef sort_node(ir::Op op, ir::Node* x, int axis, bool descending, std::int64_t kept) {
  const ir::Sort how{static_cast<std::size_t>(axis), descending};
  const Shape dims = ir::dims_with(x->dims(), how.axis, kept);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(op, ir::structural_dtype(op, x->dtype), dims)), x);
  ir::set_attributes(node.get(), how);
  return node;
}

ir::NodeRef reduce_node(ir::Op op, ir::Node* x, std::uint64_t mask, DType dtype, bool keepdims) {
  const bool position = ir::has(op, ir::POSITION);
  dtype = computed_as(dtype);
  const ir::NodeRef body = cast_node(x, position ? computed_as(x->dtype) : dtype);
  if (mask == 0 && !position) return body;
  const ir::Reduce axes{mask};
  auto node =
      with_input(ir::NodeRef::adopt(ir::new_node(op, dtype, ir::reduced_dims(x->dims(), axes))), body.get());
  ir::set_attributes(node.get(), axes);
  if (keepdims) return node;
  Shape kept;
  for (std::size_t a = 0; a < x->rank; ++a)
    if (!axes.over(a)) kept.push_back(x->dims()[a]);
  return reshape_node(node.get(), kept);
}

ir::NodeRef loop_state_node(ir::Node* init) {
  return with_input(ir::NodeRef::adopt(ir::new_node_like(ir::Op::loop_state, init->dtype, *init)), init);
}

LoopNodes loop_nodes(std::span<const ir::NodeRef> states, std::span<const ir::NodeRef> nexts,
                     ir::Node* condition, std::span<const ir::NodeRef> yields, std::int64_t count) {
  ir::NodeRef all;
  for (const ir::NodeRef& y : yields) {
    auto yield = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::loop_yield, DType::Bool, {})), y.get());
    yield->n_in = all ? 2 : 1;
    if (all) ir::set_input(yield.get(), 1, all.get());
    all = std::move(yield);
  }
  for (std::size_t s = 0; s < states.size(); ++s) {
    auto pair =
        with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::loop_next, DType::Bool, {})), states[s].get());
    pair->n_in = all ? 3 : 2;
    ir::set_input(pair.get(), 1, nexts[s].get());
    if (all) ir::set_input(pair.get(), 2, all.get());
    all = std::move(pair);
  }
  const auto loop = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::loop, DType::Bool, {})), all.get());
  loop->n_in = 2;
  ir::set_input(loop.get(), 1, condition);
  ir::set_attributes(loop.get(), ir::Loop{count});
  LoopNodes made;
  for (std::size_t s = 0; s < states.size(); ++s) {
    made.results.push_back(
        with_input(ir::NodeRef::adopt(ir::new_node_like(ir::Op::loop_result, states[s]->dtype, *states[s])),
                   loop.get()));
    ir::set_attributes(made.results.back().get(), ir::LoopResult{states.size() - 1 - s});
  }
  for (std::size_t y = 0; y < yields.size(); ++y) {
    const Shape dims = ir::stacked_dims(count, yields[y]->dims());
    made.stacks.push_back(
        with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::loop_stack, yields[y]->dtype, dims)), loop.get()));
    ir::set_attributes(made.stacks.back().get(), ir::LoopResult{yields.size() - 1 - y});
  }
  return made;
}

ir::NodeRef scan_node(ir::Op op, ir::Node* x, int axis, bool exclusive, bool reverse) {
  auto node = with_input(ir::NodeRef::adopt(ir::new_node_like(op, x->dtype, *x)), x);
  ir::set_attributes(node.get(), ir::Scan{static_cast<std::size_t>(axis), exclusive, reverse});
  return node;
}

ir::NodeRef gather_node(ir::Node* x, ir::Node* indices, const ir::Gather& at,
                        std::span<const std::int64_t> dims) {
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::gather, x->dtype, dims)), x);
  node->n_in = 2;
  ir::set_input(node.get(), 1, indices);
  ir::set_attributes(node.get(), at);
  return node;
}

ir::NodeRef slice_at_node(ir::Node* x, ir::Node* start, int axis, std::int64_t size) {
  const ir::Position how{static_cast<std::size_t>(axis), 1, true};
  if (x->dims()[how.axis] == size) return ir::NodeRef::share(x);
  const Shape dims = ir::dims_with(x->dims(), how.axis, size);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node(ir::Op::slice_at, x->dtype, dims)), x);
  node->n_in = 2;
  ir::set_input(node.get(), 1, start);
  ir::set_attributes(node.get(), how);
  return node;
}

ir::NodeRef update_at_node(ir::Node* x, ir::Node* update, ir::Node* start, int axis) {
  if (std::ranges::equal(x->dims(), update->dims())) return ir::NodeRef::share(update);
  auto node = with_input(ir::NodeRef::adopt(ir::new_node_like(ir::Op::update_at, x->dtype, *x)), update);
  node->n_in = 3;
  ir::set_input(node.get(), 1, x);
  ir::set_input(node.get(), 2, start);
  ir::set_attributes(node.get(), ir::Position{static_cast<std::size_t>(axis), 1, true});
  return node;
}

ir::NodeRef scatter_node(ir::Node* x, ir::Node* indices, ir::Node* values, const ir::Scatter& at) {
  auto node = with_input(ir::NodeRef::adopt(ir::new_node_like(ir::Op::scatter, x->dtype, *x)), x);
  node->n_in = 3;
  ir::set_input(node.get(), 1, indices);
  ir::set_input(node.get(), 2, values);
  ir::set_attributes(node.get(), at);
  return node;
}

}  // namespace kiln::api
