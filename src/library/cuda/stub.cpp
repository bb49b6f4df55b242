// Stands for the files of this directory that need CUDA's headers in a build that had none: there is never a
// device.
#include "library/cuda/blas.h"

#include <kiln/error.h>

namespace kiln::cuda {
namespace {

constexpr const char* kReason = "Kiln was built without CUDA headers";

}  // namespace

const BlasReport& blas() {
  static const BlasReport report{.reason = kReason};
  return report;
}
BlasReport probe_blas(std::span<const std::string>) { return blas(); }
const library::Library& library(int) { throw DeviceError(std::string("[cuda] no CUDA device: ") + kReason); }

}  // namespace kiln::cuda
