#include "library/call.h"

#include "support/check.h"

#include <algorithm>
#include <iterator>

#define KILN_DEVICE(Name, name, room)         \
  namespace kiln::room {                      \
  const library::Routine& routine(ir::Op op); \
  }
#define KILN_DEVICES(Name, name, most, room) KILN_DEVICE(Name, name, room)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES

namespace kiln::library {
namespace {

/// An array under broadcasting to the extents of another.
Array repeated(const Array& a, const Array& like) {
  Array out = like;
  out.data = a.data;
  for (int axis = 0; axis < like.rank; ++axis) {
    const int own = axis - (like.rank - a.rank);
    const bool shown = own >= 0 && a.dims[own] == like.dims[axis];
    out.strides[axis] = shown ? a.strides[own] : 0;
  }
  return out;
}

}  // namespace

const Routine& routine_of(std::span<const OpRoutine> all, ir::Op op) {
  const auto row = std::ranges::find(all, op, &OpRoutine::op);
  KILN_CHECK_THAT(row != all.end(), ir::info(op).name, " is no library op");
  return row->routine();
}

const Routine& routine(ir::Op op, Device device) {
  switch (device.kind) {
#define KILN_DEVICE(Name, name, room) \
  case Device::Kind::Name: return room::routine(op);
#define KILN_DEVICES(Name, name, most, room) KILN_DEVICE(Name, name, room)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  }
  KILN_CHECK_THAT(false, "a device of no kind");
  return cpu::routine(op);
}

Matmul matmul_of(const Call& call) {
  Matmul m;
  m.dtype = call.operands[0].dtype;
  m.unrounded = call.dtype != m.dtype;
  m.strict = call.strict;
  m.tf32 = call.tf32 && m.dtype == DType::Float32;
  m.batch_rank = call.rank - 2;
  std::copy_n(call.dims.begin(), m.batch_rank, m.batch);
  m.m = call.dims[static_cast<std::size_t>(call.rank) - 2];
  m.n = call.dims[static_cast<std::size_t>(call.rank) - 1];
  m.k = call.operands[0].array.dims[call.operands[0].array.rank - 1];
  const auto stack = [&](const Array& a, MatrixStack& s) {
    s.data = a.data;
    s.row_stride = a.strides[a.rank - 2];
    s.col_stride = a.strides[a.rank - 1];
    s.row_offsets = a.row_offsets;
    s.col_offsets = a.col_offsets;
    for (int i = 0; i + 2 < a.rank; ++i)
      s.batch_strides[i] = a.dims[i] == 1 && m.batch[i] != 1 ? 0 : a.strides[i];
  };
  stack(call.operands[0].array, m.a);
  stack(call.operands[1].array, m.b);
  for (std::size_t i = 2; i < call.n_operands; ++i) {
    const Array& added = call.operands[i].array;
    (added.rank == 1 ? m.bias : m.addend) = added.data;
  }
  m.out = call.out;
  m.epilogue = call.epilogue;
  return m;
}

Sort sort_of(const Call& call) {
  Sort s;
  s.dtype = call.operands[0].dtype;
  s.in = call.operands[0].array;
  const auto how = ir::attributes<ir::Sort>(call);
  s.axis = static_cast<int>(how.axis);
  s.kept = call.dims[how.axis];
  s.descending = how.descending;
  if (call.op == ir::Op::argsort)
    s.positions = call.out;
  else
    s.values = call.out;
  if (call.op == ir::Op::sort_with_positions) s.positions = call.others[0];
  s.choices = Choices(call.ways);
  s.one_thread = call.ways.has(FusionVariant::OneThread);
  // Equal integers cannot be told apart: of their values alone the positions need not be known.
  s.by_position = call.op == ir::Op::argsort ||
                  (call.op == ir::Op::sort_with_positions && (is_float(s.dtype) || is_wanted(call, 1)));
  return s;
}

Search search_of(const Call& call) {
  Search s;
  s.dtype = call.operands[0].dtype;
  s.sorted = call.operands[0].array;
  s.values = call.operands[1].array;
  s.right = ir::attributes<ir::Search>(call).right;
  s.out = call.out;
  return s;
}

Scatter scatter_of(const Call& call) {
  Scatter s;
  s.dtype = call.dtype;
  s.index_dtype = call.operands[1].dtype;
  s.x = call.operands[0].array;
  s.values = call.operands[2].array;
  s.indices = repeated(call.operands[1].array, s.values);
  const auto at = ir::attributes<ir::Scatter>(call);
  s.axis = static_cast<int>(at.axis);
  s.how = at.how;
  s.ordered = call.exact;
  s.choices = Choices(call.ways);
  s.one_thread = call.ways.has(FusionVariant::OneThread);
  s.maker = call.maker;
  s.out = call.out;
  return s;
}

}  // namespace kiln::library
