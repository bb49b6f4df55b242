#include "library/cuda/blas_product.h"

#include <algorithm>
#include <optional>

namespace kiln::cuda {
namespace {

struct Layout {
  std::int64_t ld;
  bool column_major;
};

/// How a BLAS reads a matrix of these strides, if it can. The stride of an axis of one element means nothing.
std::optional<Layout> layout(std::int64_t rows, std::int64_t row_stride, std::int64_t cols,
                             std::int64_t col_stride) {
  if ((cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= cols))
    return Layout{rows == 1 ? cols : row_stride, false};
  if ((rows == 1 || row_stride == 1) && (cols == 1 || col_stride >= rows))
    return Layout{cols == 1 ? rows : col_stride, true};
  return std::nullopt;
}

/// The operand's axes that repeat nothing, copied next to each other. Changes the strides to the copy's.
StridedCopy pack(const library::Matmul& call, library::MatrixStack& stack, std::int64_t rows,
                 std::int64_t cols) {
  StridedCopy out;
  out.from = static_cast<const std::byte*>(stack.data);
  const auto add = [&](std::int64_t extent, std::int64_t stride) {
    out.extents[out.rank] = extent;
    out.strides[out.rank++] = stride;
  };
  for (int i = 0; i < call.batch_rank; ++i)
    if (stack.batch_strides[i] != 0 && call.batch[i] > 1) add(call.batch[i], stack.batch_strides[i]);
  add(rows, stack.row_stride);
  add(cols, stack.col_stride);
  std::int64_t stride = rows * cols;
  for (int i = call.batch_rank - 1; i >= 0; --i) {
    if (stack.batch_strides[i] == 0 || call.batch[i] <= 1) continue;
    stack.batch_strides[i] = stride;
    stride *= call.batch[i];
  }
  stack.row_stride = cols;
  stack.col_stride = 1;
  return out;
}

/// Batch axes, outermost first, those that both operands walk as one joined.
int collapse(const library::Matmul& call, const library::MatrixStack& a, const library::MatrixStack& b,
             BlasProduct::Axis* axes) {
  int rank = 0;
  for (int i = 0; i < call.batch_rank; ++i) {
    if (call.batch[i] == 1) continue;
    const BlasProduct::Axis axis{call.batch[i], a.batch_strides[i], b.batch_strides[i], 0};
    if (rank > 0 && axes[rank - 1].a_stride == axis.a_stride * axis.extent &&
        axes[rank - 1].b_stride == axis.b_stride * axis.extent)
      axes[rank - 1] = {axes[rank - 1].extent * axis.extent, axis.a_stride, axis.b_stride, 0};
    else
      axes[rank++] = axis;
  }
  std::int64_t stride = call.m * call.n;
  for (int i = rank - 1; i >= 0; --i) {
    axes[i].out_stride = stride;
    stride *= axes[i].extent;
  }
  return rank;
}

/// Rows of a stack times one matrix are one taller product.
void fold_into_rows(BlasProduct& p, BlasProduct::Axis* axes, int& rank) {
  while (rank > 0) {
    const BlasProduct::Axis& inner = axes[rank - 1];
    if (inner.b_stride != 0 || p.a.column_major) return;
    if (p.m == 1 && inner.a_stride >= p.k)
      p.a.ld = inner.a_stride;
    else if (inner.a_stride != p.a.ld * p.m)
      return;
    p.m *= inner.extent;
    --rank;
  }
}

}  // namespace

DType result_of(const library::Matmul& call) { return call.unrounded ? DType::Float32 : call.dtype; }

BlasProduct blas_product(const library::Matmul& call, std::byte* workspace) {
  BlasProduct p;
  p.dtype = call.dtype;
  p.result = result_of(call);
  p.tf32 = call.tf32;
  p.m = call.m;
  p.n = call.n;
  p.k = call.k;
  p.bias = static_cast<const std::byte*>(call.bias);
  p.addend = static_cast<const std::byte*>(call.addend);
  p.out = static_cast<std::byte*>(call.out);
  library::MatrixStack a = call.a, b = call.b;
  const auto operand = [&](library::MatrixStack& stack, std::int64_t rows, std::int64_t cols) {
    auto found = layout(rows, stack.row_stride, cols, stack.col_stride);
    if (!found) {
      StridedCopy& packing = p.packing[static_cast<std::size_t>(p.packings++)];
      packing = pack(call, stack, rows, cols);
      packing.to = workspace + p.pack_bytes;
      stack.data = packing.to;
      p.pack_bytes += (static_cast<std::size_t>(packing.count() * size_of(call.dtype)) + 255) / 256 * 256;
      found = Layout{cols, false};
    }
    return BlasOperand{static_cast<const std::byte*>(stack.data), found->ld, found->column_major, 0};
  };
  p.a = operand(a, call.m, call.k);
  p.b = operand(b, call.k, call.n);

  BlasProduct::Axis axes[kMaxRank];
  int rank = collapse(call, a, b, axes);
  fold_into_rows(p, axes, rank);
  // One axis is the BLAS's own batch: the longest that it takes.
  int batch = -1;
  for (int i = 0; i < rank; ++i)
    if (axes[i].a_stride >= 0 && axes[i].b_stride >= 0 && (batch < 0 || axes[i].extent > axes[batch].extent))
      batch = i;
  for (int i = 0; i < rank; ++i) {
    if (i != batch) {
      p.outer[p.outer_rank++] = axes[i];
      continue;
    }
    p.batch = axes[i].extent;
    p.a.batch_stride = axes[i].a_stride;
    p.b.batch_stride = axes[i].b_stride;
    p.out_batch_stride = axes[i].out_stride;
  }
  return p;
}

std::int64_t outer_count(const BlasProduct& product) {
  std::int64_t n = 1;
  for (int i = 0; i < product.outer_rank; ++i) n *= product.outer[i].extent;
  return n;
}

OuterOffsets outer_offsets(const BlasProduct& product, std::int64_t i) {
  OuterOffsets out;
  for (int axis = product.outer_rank - 1; axis >= 0; --axis) {
    const BlasProduct::Axis& x = product.outer[axis];
    const std::int64_t at = i % x.extent;
    i /= x.extent;
    out.a += at * x.a_stride;
    out.b += at * x.b_stride;
    out.out += at * x.out_stride;
  }
  return out;
}

}  // namespace kiln::cuda
