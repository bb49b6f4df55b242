// The driver's function table and the way into a device's context, for the .cpp files of this directory
// alone. They include <cuda.h> before this header.
#pragma once

#ifndef CUDA_VERSION
#error "include <cuda.h> first"
#endif

namespace kiln::cuda {

struct DriverApi {
#define KILN_CUDA_FUNCTION(name) decltype(&::name) name = nullptr;
#define KILN_CUDA_OPTIONAL(name) KILN_CUDA_FUNCTION(name)
#include "device/cuda/driver_functions.def"
#undef KILN_CUDA_OPTIONAL
#undef KILN_CUDA_FUNCTION
};

/// The process's driver. DeviceError with the reason when there is none.
const DriverApi& api();

/// True for errors that leave the context unusable.
bool is_sticky(CUresult result);
/// "illegal address (CUDA_ERROR_ILLEGAL_ADDRESS, 700)"
std::string error_text(CUresult result);

/// Inside a device's primary context until the end of the scope: the only way to the driver. The context that
/// was current before is current again afterwards. DeviceError when the device is gone or the process forked.
class Enter {
 public:
  explicit Enter(int device);
  ~Enter();
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;

  CUcontext context() const { return context_; }
  /// Throws DeviceError unless result is success; remembers a sticky one as the device's failure.
  void check(CUresult result, const char* call) const;

 private:
  int device_;
  CUcontext context_ = nullptr;
  CUcontext previous_ = nullptr;
  bool restore_ = false;
};

/// Calls a function of the driver inside `in` (an Enter).
#define KILN_CU(in, function, ...) (in).check(::kiln::cuda::api().function(__VA_ARGS__), #function)

/// The device's primary context. DeviceError.
CUcontext primary_context(int device);

}  // namespace kiln::cuda
