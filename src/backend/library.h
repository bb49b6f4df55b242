// Library: work that is not generated (yet) for a backend, behind one interface that a generated kernel can
// take over.
#pragma once

#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <cstddef>
#include <cstdint>

namespace kiln::backend {

/// A strided stack of matrices. Strides are in elements, of either sign; 0 repeats.
struct MatrixStack {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
  std::int64_t batch_strides[kMaxRank] = {};
};

/// out[…, m, n] = a[…, m, k] · b[…, k, n], out row-major contiguous. Float16 and bfloat16 accumulate in
/// float32, integers wrap, bool is "or of ands". k = 0 gives zeros.
struct Matmul {
  DType dtype = DType::Float32;
  int batch_rank = 0;
  std::int64_t batch[kMaxRank] = {};
  std::int64_t m = 0, n = 0, k = 0;
  MatrixStack a, b;
  void* out = nullptr;
};

class Library {
 public:
  virtual ~Library() = default;
  /// False: this call is for somebody else.
  virtual bool supports(const Matmul&) const { return true; }
  /// Bytes of 64-byte aligned workspace that matmul wants.
  virtual std::size_t workspace_bytes(const Matmul& call) const = 0;
  virtual void matmul(const Matmul& call, std::byte* workspace) const = 0;
};

}  // namespace kiln::backend
