// Integers of four bits, two in each byte, as quantised weights are stored. Products unpack such weights
// inside the kernel that reads them (docs/contractions.md, "Few rows"):
//
//     const Tensor q = unpack_int4(packed);  // packed int8 (n, k / 2): q int8 (n, k), from -8 to 7
//     const Tensor w = (astype(q, BFloat16).reshape({n, k / 64, 64}) * scales).reshape({n, k});
//     matmul(x, matrix_transpose(w));        // scales bfloat16 (n, k / 64, 1)
#pragma once

#include <kiln/tensor.h>

namespace kiln {

/// x (..., m) of int8 or uint8, m even, as (..., m / 2) of its dtype: element 2i in the lower half of byte i,
/// element 2i + 1 in the upper one. Of each element the last four bits are kept.
[[nodiscard]] Tensor pack_int4(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// The inverse: x (..., m) becomes (..., 2m), of int8 numbers from -8 to 7, of uint8 from 0 to 15.
[[nodiscard]] Tensor unpack_int4(const Tensor& x, SourceLocation loc = SourceLocation::current());

}  // namespace kiln
