// Slices at positions that tensors hold: one node an axis whose position is not known, and an ordinary slice
// for the rest.
//
// An update at positions along several axes writes a box of a box: the slice of x that the outer position
// shows, with the rest of the update in it, takes that slice's place.
#include "api/record.h"
#include "support/check.h"

#include <algorithm>
#include <string>
#include <vector>

namespace kiln {
namespace {

using ir::NodeRef;

/// Where a box begins along one axis: a number inside x, or an int64 scalar.
struct Start {
  std::int64_t number = 0;
  NodeRef value;  // null: the number
};

/// A number as dynamic_slice means it: negative ones count from the back, and the box stays inside x.
std::int64_t clamped(std::int64_t start, std::int64_t extent, std::int64_t size) {
  return std::clamp<std::int64_t>(start < 0 ? start + extent : start, 0, extent - size);
}

Start resolve(std::string_view op, const Operand& given, std::int64_t extent, std::int64_t size) {
  if (!given.tensor) {
    if (given.scalar.kind != Scalar::Kind::Int && given.scalar.kind != Scalar::Kind::UInt)
      throw UserError(cat("[", op, "] starts must be integers, not ", api::describe(given.scalar)));
    const bool large = given.scalar.kind == Scalar::Kind::UInt && given.scalar.i < 0;
    return {large ? extent - size : clamped(given.scalar.i, extent, size), {}};
  }
  ir::Node* const node = api::checked(op, *given.tensor);
  if (!is_int(node->dtype) || node->numel != 1)
    throw UserError(cat("[", op, "] a start is one integer, not ", api::describe(node)));
  if (extent == size) return {};
  Tensor at = reshape(*given.tensor, {});
  if (node->dtype == DType::UInt64) at = minimum(at, Operand(extent));  // int64 holds it
  at = astype(at, DType::Int64);
  return {0, NodeRef::share(at.node())};
}

std::vector<Start> resolve(std::string_view op, const ir::Node* x, std::span<const Operand> starts,
                           std::span<const std::int64_t> sizes) {
  if (starts.size() != x->rank || sizes.size() != x->rank)
    throw UserError(
        cat("[", op, "] ", starts.size(), " starts and sizes ", to_string(sizes), " for ", api::describe(x)));
  std::vector<Start> out;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    const std::int64_t extent = x->dims()[a];
    if (sizes[a] < 0 || sizes[a] > extent)
      throw UserError(cat("[", op, "] sizes ", to_string(sizes), " of ", api::describe(x)));
    out.push_back(resolve(op, starts[a], extent, sizes[a]));
  }
  return out;
}

/// The elements of a 1-D tensor as starts; they live in `parts`.
std::vector<Operand> unpacked(std::string_view op, const Tensor& starts, std::vector<Tensor>& parts) {
  const ir::Node* const node = api::checked(op, starts);
  if (node->rank > 1 || !is_int(node->dtype))
    throw UserError(cat("[", op, "] starts must be one row of integers, not ", api::describe(node)));
  const Tensor row = node->rank == 0 ? reshape(starts, {1}) : starts;
  for (std::int64_t i = 0; i < row.shape()[0]; ++i) {
    const std::int64_t one = 1;
    parts.push_back(Tensor::adopt(api::slice_node(row.node(), {&i, 1}, {&one, 1}, {&one, 1}).take()));
  }
  std::vector<Operand> out;
  for (const Tensor& part : parts) out.push_back(Operand(part));
  return out;
}

/// x's box at the starts that are numbers.
NodeRef fixed_box(ir::Node* x, const std::vector<Start>& starts, std::span<const std::int64_t> sizes) {
  Shape start, step, dims;
  for (std::size_t a = 0; a < starts.size(); ++a) {
    start.push_back(starts[a].number);
    step.push_back(1);
    dims.push_back(starts[a].value ? x->dims()[a] : sizes[a]);
  }
  return api::slice_node(x, start, step, dims);
}

/// x with the update at starts from axis `from` on.
NodeRef updated(ir::Node* x, ir::Node* update, const std::vector<Start>& starts, std::size_t from) {
  for (std::size_t a = from; a < starts.size(); ++a) {
    if (!starts[a].value) continue;
    const int axis = static_cast<int>(a);
    const std::int64_t size = update->dims()[a];
    Shape dims = x->shape();
    dims[axis] = size;
    if (std::ranges::equal(dims, update->dims()))
      return api::update_at_node(x, update, starts[a].value.get(), axis);
    const NodeRef whole = api::slice_at_node(x, starts[a].value.get(), axis, size);
    const NodeRef inner = updated(whole.get(), update, starts, a + 1);
    return api::update_at_node(x, inner.get(), starts[a].value.get(), axis);
  }
  if (std::ranges::equal(x->dims(), update->dims())) return NodeRef::share(update);
  Shape low, step;
  for (std::size_t a = 0; a < starts.size(); ++a) {
    low.push_back(starts[a].value ? 0 : starts[a].number);  // x is a slice there already
    step.push_back(1);
  }
  return api::pad_node(update, x, 0, low, step, x->dims());
}

}  // namespace

Tensor dynamic_slice(const Tensor& x, std::span<const Operand> starts, const Shape& sizes,
                     SourceLocation loc) {
  const CallScope scope("dynamic_slice", loc);
  constexpr std::string_view op = "dynamic_slice";
  ir::Node* const node = api::checked(op, x);
  const std::vector<Start> at = resolve(op, node, starts, sizes);
  NodeRef out = fixed_box(node, at, sizes);
  for (std::size_t a = 0; a < at.size(); ++a)
    if (at[a].value)
      out = api::slice_at_node(out.get(), at[a].value.get(), static_cast<int>(a), sizes[static_cast<int>(a)]);
  return api::finish(std::move(out));
}

Tensor dynamic_slice(const Tensor& x, std::initializer_list<Operand> starts, const Shape& sizes,
                     SourceLocation loc) {
  return dynamic_slice(x, std::span(starts.begin(), starts.size()), sizes, loc);
}

Tensor dynamic_slice(const Tensor& x, const Tensor& starts, const Shape& sizes, SourceLocation loc) {
  const CallScope scope("dynamic_slice", loc);
  std::vector<Tensor> parts;
  return dynamic_slice(x, unpacked("dynamic_slice", starts, parts), sizes);
}

Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, std::span<const Operand> starts,
                            SourceLocation loc) {
  const CallScope scope("dynamic_update_slice", loc);
  constexpr std::string_view op = "dynamic_update_slice";
  ir::Node* const node = api::checked(op, x);
  const NodeRef given = api::cast_node(api::checked(op, update), node->dtype);
  const std::vector<Start> at = resolve(op, node, starts, given->dims());
  if (given->numel == 0) return x;
  return api::finish(updated(node, given.get(), at, 0));
}

Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, std::initializer_list<Operand> starts,
                            SourceLocation loc) {
  return dynamic_update_slice(x, update, std::span(starts.begin(), starts.size()), loc);
}

Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, const Tensor& starts, SourceLocation loc) {
  const CallScope scope("dynamic_update_slice", loc);
  std::vector<Tensor> parts;
  return dynamic_update_slice(x, update, unpacked("dynamic_update_slice", starts, parts));
}

}  // namespace kiln
