// Library: work that is not generated (yet) for a backend, behind one interface that a generated kernel can
// take over.
#pragma once

#include "device/launch.h"
#include "library/choices.h"

#include <kiln/combine.h>
#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <cstddef>
#include <cstdint>

namespace kiln::library {

/// A strided stack of matrices. Strides are in elements, of either sign; 0 repeats.
struct MatrixStack {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
  std::int64_t batch_strides[kMaxRank] = {};
  /// Not null: the offset of each row (column) from the first, in elements, instead of a stride: windows of
  /// an image are such a matrix. On a CPU alone.
  const std::int64_t* row_offsets = nullptr;
  const std::int64_t* col_offsets = nullptr;
};

/// A kernel that makes an operand in pieces, on a CPU, while these are in a cache: item i of its grid makes
/// the elements [i * piece, (i + 1) * piece) in row-major order, and the operand has no memory of its own.
struct Maker {
  const device::Bound* kernel = nullptr;
  std::int64_t piece = 0;  // 0: the operand is in memory
};

/// out[…, m, n] = a[…, m, k] · b[…, k, n], out row-major contiguous. Float16 and bfloat16 accumulate in
/// float32, integers wrap, bool is "or of ands". k = 0 gives zeros. A bias is added to every row before it is
/// rounded.
struct Matmul {
  DType dtype = DType::Float32;
  bool unrounded = false;  // of halves: out, bias and addend are float32; only where a library supports it
  bool strict = false;     // each product and each sum rounds, k ascending
  bool tf32 = false;       // of float32: 11 bits of each number may do, where a library has tensor cores
  int batch_rank = 0;
  std::int64_t batch[kMaxRank] = {};
  std::int64_t m = 0, n = 0, k = 0;
  MatrixStack a, b;
  const void* bias = nullptr;    // n adjacent elements; only where a library supports it
  const void* addend = nullptr;  // as many elements as out, in its order; likewise
  void* out = nullptr;
  /// Not null: a kernel that gets every sum once, a device::Rectangle at a time while it is in cache, and
  /// stores the results; `out` is not written. On a CPU alone. Pre: k > 0.
  const device::Bound* epilogue = nullptr;
};

/// A strided array. Strides are in elements, of either sign; 0 repeats.
struct Array {
  const void* data = nullptr;
  int rank = 0;
  std::int64_t dims[kMaxRank] = {};
  std::int64_t strides[kMaxRank] = {};
  /// As MatrixStack has them, of the last two axes; for products alone.
  const std::int64_t* row_offsets = nullptr;
  const std::int64_t* col_offsets = nullptr;
};

/// The first `kept` elements of every sorted row along `axis`, row-major. NaN is the greatest. By position:
/// equal elements stay in their order, -0 and +0 and all NaN among them, and values have the bits of `in`.
/// Otherwise -0 stands before +0, NaN come out as the dtype's quiet NaN, and there are no positions.
struct Sort {
  DType dtype = DType::Float32;
  Array in;
  int axis = 0;
  std::int64_t kept = 0;
  bool descending = false;
  bool by_position = false;
  void *values = nullptr, *positions = nullptr;  // int64. Null: nobody asks
  // How, where adaptive mode tries another way; the results are the same.
  Choices choices;
  bool one_thread = false;
};

/// out (int64, row-major, shaped like values): how many elements of `sorted` (one axis, ascending) stand
/// before each value: those less than it, or with `right` those not greater.
struct Search {
  DType dtype = DType::Float32;
  Array sorted, values;
  bool right = false;
  void* out = nullptr;
};

/// out (row-major, shaped like x): x after each value has met the element at its own place, with its index as
/// the coordinate along `axis`. `indices` and `values` have equal extents, and x's but along the axis. A
/// negative index counts from the back; a value whose index is out of range is left out. Values meet in
/// row-major order; float16 and bfloat16 are added and multiplied in float32 and rounded once. On a GPU
/// floats are added and multiplied in that order only if `ordered`. `out` may be x's memory when x is
/// row-major.
struct Scatter {
  DType dtype = DType::Float32, index_dtype = DType::Int64;
  Array x, indices, values;
  int axis = 0;
  Combine how = Combine::Set;
  bool ordered = true;
  void* out = nullptr;
  // How, where adaptive mode tries another way; the results are the same.
  Choices choices;
  bool one_thread = false;
  Maker maker;  // of the indices, on a CPU
};

class Library {
 public:
  virtual ~Library() = default;
  /// False: this call is for somebody else.
  virtual bool supports(const Matmul& call) const { return !call.bias && !call.addend && !call.unrounded; }
  /// Bytes of 64-byte aligned workspace that matmul wants.
  virtual std::size_t workspace_bytes(const Matmul& call) const = 0;
  virtual void matmul(const Matmul& call, std::byte* workspace) const = 0;
};

}  // namespace kiln::library
