// Views of the reference interpreter: the operand's memory with other extents and strides, or a copy where
// that is not enough.
#include "oracle/interpret_value.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace kiln::ir::oracle {
namespace {

Value reshape(const GraphNode& node, const Value& x) {
  Value out = new_value(node.dtype, {});
  const Value flat = densified(x);
  out = flat;
  out.dims.assign(node.dims.begin(), node.dims.end());
  out.strides.assign(node.dims.size(), 1);
  for (std::size_t i = node.dims.size(); i-- > 1;) out.strides[i - 1] = out.strides[i] * node.dims[i];
  return out;
}

Value permute(const GraphNode& node, const Value& x) {
  Value out = x;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    const std::size_t from = attributes<Permute>(node)[i];
    out.dims[i] = x.dims[from];
    out.strides[i] = x.strides[from];
  }
  return out;
}

Value slice(const GraphNode& node, const Value& x) {
  const auto box = attributes<Box>(node);
  Value out = x;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    first += box.first(i) * x.strides[i];
    out.strides[i] = box.step(i) * x.strides[i];
    out.dims[i] = node.dims[i];
  }
  if (node.numel != 0) out.data += first * size_of(x.dtype);
  return out;
}

Value sliding_window(const GraphNode& node, const Value& x) {
  const auto windows = attributes<Windows>(node);
  Value out = x;
  out.dims.assign(node.dims.begin(), node.dims.end());
  for (std::size_t k = 0; k < windows.count(); ++k)
    out.strides.push_back(x.strides[windows.axis(k)] * windows.dilation(k));
  for (std::size_t k = 0; k < windows.count(); ++k) out.strides[windows.axis(k)] *= windows.stride(k);
  return out;
}

Value pad(const GraphNode& node, const Box& box, const Value& body, const Value& fill) {
  // densified may share the fill's memory: write into a copy.
  const Value source = densified(broadcast(fill, node.dims));
  Value out = new_value(node.dtype, node.dims);
  const std::int64_t bytes = size_of(node.dtype);
  if (node.numel != 0) std::memcpy(out.writable(), source.data, static_cast<std::size_t>(node.numel * bytes));
  Value place = out;  // the elements the body covers
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    first += box.first(i) * out.strides[i];
    place.strides[i] = box.step(i) * out.strides[i];
    place.dims[i] = body.dims[i];
  }
  Cursor from(body), to(place);
  for (std::int64_t i = 0, count = body.numel(), a = 0, b = 0; i < count; ++i) {
    from.take(&a, 1);
    to.take(&b, 1);
    std::memcpy(out.writable() + (first + b) * bytes, body.data + a * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

/// The first of `size` adjacent elements out of `extent`, moved to where they all are.
std::int64_t position(const Position& how, const Value& start, std::int64_t extent, std::int64_t size) {
  std::int64_t at = 0;
  std::memcpy(&at, start.data, sizeof at);
  if (at < 0 && how.from_back) at += extent;
  return std::max<std::int64_t>(0, std::min(at, extent - size));
}

Value slice_at(const GraphNode& node, const Value& x, const Value& start) {
  const auto how = attributes<Position>(node);
  const std::size_t axis = how.axis;
  Value out = x;
  out.dims[axis] = node.dims[axis];
  if (node.numel != 0)
    out.data += position(how, start, x.dims[axis], node.dims[axis]) * x.strides[axis] * size_of(x.dtype);
  return out;
}

Value update_at(const GraphNode& node, const Value& update, const Value& x, const Value& start) {
  const auto how = attributes<Position>(node);
  std::vector<std::int64_t> first(node.dims.size(), 0), step(node.dims.size(), 1);
  first[how.axis] = position(how, start, x.dims[how.axis], update.dims[how.axis]);
  return pad(node, Box(first, step), update, x);
}

/// Each operand written behind the one before.
Value join(const GraphNode& node, std::span<const Value> in) {
  const std::size_t axis = attributes<Join>(node).axis;
  Value out = new_value(node.dtype, node.dims), place = out;
  const std::int64_t bytes = size_of(node.dtype);
  std::int64_t first = 0;
  for (const Value& piece : in) {
    place.dims = piece.dims;
    Cursor from(piece), to(place);
    for (std::int64_t i = 0, count = piece.numel(), a = 0, b = 0; i < count; ++i) {
      from.take(&a, 1);
      to.take(&b, 1);
      std::memcpy(out.writable() + (first + b) * bytes, piece.data + a * bytes,
                  static_cast<std::size_t>(bytes));
    }
    first += piece.dims[axis] * out.strides[axis];
  }
  return out;
}

}  // namespace

Value view(const GraphNode& node, std::span<const Value> in) {
  switch (node.op) {
    case Op::reshape: return reshape(node, in[0]);
    case Op::permute: return permute(node, in[0]);
    case Op::arrange:
    case Op::alias: return in[0];
    case Op::broadcast: return broadcast(in[0], node.dims);
    case Op::slice: return slice(node, in[0]);
    case Op::sliding_window: return sliding_window(node, in[0]);
    case Op::slice_at: return slice_at(node, in[0], in[1]);
    case Op::update_at: return update_at(node, in[0], in[1], in[2]);
    case Op::join: return join(node, in);
    default:
      KILN_CHECK_THAT(node.op == Op::pad, info(node.op).name);
      return pad(node, attributes<Box>(node), in[0], in[1]);
  }
}

}  // namespace kiln::ir::oracle
