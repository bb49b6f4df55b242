// The .npy format: a header that describes one array, then its elements.
//
//   6 bytes "\x93NUMPY", 2 bytes version (1.0, 2.0, 3.0), header length (2 bytes in 1.0, else 4,
//   little-endian), a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
//   elements. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include "io/file.h"

#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <string>

namespace kiln::io {

struct NpyHeader {
  DType dtype = DType::Float32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::uint64_t bytes = 0;  // of the elements
};

/// Reads a header and checks it against what follows: exactly header.bytes are left in `source`.
NpyHeader read_npy_header(Source& source, const Where& where);
/// The header (version 1.0, padded to a multiple of 64 bytes) of a row-major little-endian array. bfloat16,
/// which NumPy has not, is written as '<V2', as the ml_dtypes package does.
std::string npy_header(DType dtype, const Shape& shape);
/// Reads a header's elements to `to`, as this machine stores them: bytes swapped where needed, bools 0 or 1.
void read_npy_elements(const NpyHeader& header, Source& source, std::byte* to);

/// Makes every byte 0 or 1, as a bool is stored.
void normalise_bools(std::byte* bytes, std::uint64_t count);
bool are_bools(const std::byte* bytes, std::uint64_t count);

/// Bytes of `shape` elements of `dtype`; UserError for shapes that no tensor can have.
std::uint64_t checked_bytes(DType dtype, const Shape& shape, const Where& where);

}  // namespace kiln::io
