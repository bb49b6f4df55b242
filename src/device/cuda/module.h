// Machine code on a device, and launches of it. Modules are never unloaded: kernels may run until the process
// ends.
#pragma once

#include "device/cuda/stream.h"
#include "device/launch.h"

#include <cstdint>
#include <span>
#include <string>

struct CUmod_st;
struct CUfunc_st;

namespace kiln::cuda {

struct Module {
  int device = 0;
  CUmod_st* handle = nullptr;
};

/// A kernel that can be launched, and what the compiler made of it.
struct Function {
  int device = 0;
  CUfunc_st* handle = nullptr;
  int registers = 0;     ///< per thread
  int shared_bytes = 0;  ///< static, per block
  int local_bytes = 0;   ///< per thread: spills and arrays
  int max_threads = 0;   ///< per block: launch bounds and registers
  int architecture = 0;  ///< 90: what the compiler took __CUDA_ARCH__ for, a tenth of it
  /// Its threads wait for the kernel ahead on the stream themselves (kernels_templates/overlap.cuh): it is
  /// brought onto the device while that one still runs. Pre: architecture >= 90.
  bool waits_itself = false;
};

/// Loads a cubin, or zero-terminated PTX (compiled by the driver). CompileError with the driver's log when
/// the image is damaged or for another device, DeviceError when the device fails or has no memory for it.
Module load_module(int device, std::span<const std::uint8_t> image);
/// CompileError when the module has no such function.
Function find_function(const Module& module, const std::string& symbol);

/// Lets blocks of the function have this much dynamic shared memory; needed above 48 KiB. At most the
/// device's shared_per_block_optin less the static bytes; DeviceError above that.
void allow_dynamic_shared(const Function& function, int bytes);

/// Blocks of this size that one SM holds at once.
int blocks_per_sm(const Function& function, int threads, int dynamic_shared = 0);

/// Bytes that a kernel's parameters may take together: on every device, with CUDA 12.1 from compute
/// capability 7.0 on, and on this device with this driver and compiler.
inline constexpr int kFewParameterBytes = 4096, kManyParameterBytes = 32764;
int parameter_bytes(int device);

using device::LaunchShape;

/// Clusters of this shape that the device holds at once. Pre: the device has clusters.
int clusters_per_device(const Function& function, const LaunchShape& shape);

/// Enqueues. params[i] points to the i-th argument; read before the call returns. DeviceError.
void launch(const Function& function, const LaunchShape& shape, Stream stream, void** params);

}  // namespace kiln::cuda
