// Matrix products by cuBLASLt, opened at run time: float16 and bfloat16 (summed in float32), float32
// (through TF32 only where a call says so), float64; any strides and batches. Operands that cuBLASLt cannot
// read as they lie are copied first.
#pragma once

#include "library/library.h"

#include <span>
#include <string>

namespace kiln::cuda {

/// What opening cuBLASLt found.
struct BlasReport {
  bool available = false;
  std::string reason;   ///< why not, one line
  std::string library;  ///< the library opened
  std::string version;  ///< "13.0.0"
};
/// The process's, opened by the first call. Never throws.
const BlasReport& blas();
/// The same for other library names, looked at but not used.
BlasReport probe_blas(std::span<const std::string> libraries);

/// The device's library. Its calls are enqueued to the thread's current stream of the device; pointers are
/// the device's, the workspace is 256-byte aligned. The choice of algorithm is kept by shape: the first call
/// with one is slower. DeviceError when there is no such device.
const library::Library& library(int device);

}  // namespace kiln::cuda
