// What a BLAS takes, out of what a Matmul says: plain arithmetic on extents and strides, no device.
#pragma once

#include "device/cuda/strided_copy.h"
#include "library/library.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace kiln::cuda {

/// A dense matrix, or a stack of them. Row-major: `ld` elements from row to row, columns adjacent;
/// column-major: from column to column, rows adjacent.
struct BlasOperand {
  const std::byte* data = nullptr;
  std::int64_t ld = 0;
  bool column_major = false;
  std::int64_t batch_stride = 0;
};

/// out[i] = a[i] · b[i] for `batch` products, repeated along outer axes that no single batch covers.
struct BlasProduct {
  struct Axis {
    std::int64_t extent, a_stride, b_stride, out_stride;  // elements
  };
  DType dtype = DType::Float32, result = DType::Float32;  // of the operands; of out, bias and addend
  bool tf32 = false;                                      // of float32: tensor cores may multiply
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  BlasOperand a, b;
  const std::byte* bias = nullptr;    // of every row of out
  const std::byte* addend = nullptr;  // laid out as out
  std::byte* out = nullptr;           // row-major, ld = n
  std::int64_t out_batch_stride = 0;
  int outer_rank = 0;
  Axis outer[kMaxRank] = {};
  int packings = 0;
  std::array<StridedCopy, 2> packing;  // of operands that no BLAS reads as they lie, to be done first
  std::size_t pack_bytes = 0;          // of workspace, a multiple of 256
};

/// Pre: m, n, k and all batch extents are above zero. `workspace` (256-byte aligned; null to learn
/// pack_bytes) is where packed operands go.
BlasProduct blas_product(const library::Matmul& call, std::byte* workspace);

/// The dtype of out, bias and addend.
DType result_of(const library::Matmul& call);

/// Elements of a and b and out that the i-th outer repetition starts at.
struct OuterOffsets {
  std::int64_t a = 0, b = 0, out = 0;
};
std::int64_t outer_count(const BlasProduct& product);
OuterOffsets outer_offsets(const BlasProduct& product, std::int64_t i);

}  // namespace kiln::cuda
