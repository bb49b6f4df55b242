#include "device/cuda/module.h"

#include <cuda.h>

#include "device/cuda/cuda_compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "support/check.h"

namespace kiln::cuda {
namespace {

/// What is wrong with the device, not with the code that was to be loaded.
bool is_device_failure(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT: return true;
    default: return is_sticky(result);
  }
}

struct LaunchAttributes {
  CUlaunchConfig config{};
  CUlaunchAttribute attributes[3];

  LaunchAttributes(const LaunchShape& shape, CUstream stream, bool early = false) {
    config.gridDimX = shape.grid[0];
    config.gridDimY = shape.grid[1];
    config.gridDimZ = shape.grid[2];
    config.blockDimX = shape.block[0];
    config.blockDimY = shape.block[1];
    config.blockDimZ = shape.block[2];
    config.sharedMemBytes = shape.dynamic_shared;
    config.hStream = stream;
    config.attrs = attributes;
    if (shape.has_clusters()) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      a.value.clusterDim.x = shape.cluster[0];
      a.value.clusterDim.y = shape.cluster[1];
      a.value.clusterDim.z = shape.cluster[2];
    }
    if (shape.cooperative) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      a.value.cooperative = 1;
    }
    if (early) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      a.value.programmaticStreamSerializationAllowed = 1;
    }
  }
  LaunchAttributes(const LaunchAttributes&) = delete;
  LaunchAttributes& operator=(const LaunchAttributes&) = delete;
};

}  // namespace

Module load_module(int device_index, std::span<const std::uint8_t> image) {
  KILN_CHECK_THAT(!image.empty());
  const Enter in(device_index);
  char log[8192] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule handle = nullptr;
  const CUresult result = api().cuModuleLoadDataEx(&handle, image.data(), 2, options, values);
  if (result == CUDA_SUCCESS) return {device_index, handle};
  if (is_device_failure(result)) in.check(result, "cuModuleLoadDataEx");
  throw CompileError(cat("[compile] cuda:", device_index, " (", device(device_index).name,
                         ") does not load a kernel: ", error_text(result), *log ? "\n" : "", log));
}

Function find_function(const Module& module, const std::string& symbol) {
  const Enter in(module.device);
  Function out;
  out.device = module.device;
  const CUresult result = api().cuModuleGetFunction(&out.handle, module.handle, symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) throw CompileError("[compile] no kernel " + symbol + " in its module");
  in.check(result, "cuModuleGetFunction");
  const auto get = [&](CUfunction_attribute attribute) {
    int value = 0;
    KILN_CU(in, cuFuncGetAttribute, &value, attribute, out.handle);
    return value;
  };
  out.registers = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  out.shared_bytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  out.local_bytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  out.max_threads = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out.architecture = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  return out;
}

void allow_dynamic_shared(const Function& function, int bytes) {
  const int most = device(function.device).shared_per_block_optin - function.shared_bytes;
  if (bytes > most)
    throw DeviceError(cat("[cuda] a kernel asks for ", bytes, " bytes of dynamic shared memory; cuda:",
                          function.device, " has ", most, " beside its static ", function.shared_bytes));
  const Enter in(function.device);
  KILN_CU(in, cuFuncSetAttribute, function.handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

int blocks_per_sm(const Function& function, int threads, int dynamic_shared) {
  const Enter in(function.device);
  int blocks = 0;
  KILN_CU(in, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function.handle, threads,
          static_cast<std::size_t>(dynamic_shared));
  return blocks;
}

int parameter_bytes(int device_index) {
  constexpr int kSince = 12010;  // CUDA 12.1
  const CompilerIdentity compiler = compiler_identity(device_index);
  const bool many = driver().version >= kSince && 1000 * compiler.major + 10 * compiler.minor >= kSince;
  return many && device(device_index).major >= 7 ? kManyParameterBytes : kFewParameterBytes;
}

int clusters_per_device(const Function& function, const LaunchShape& shape) {
  const Enter in(function.device);
  LaunchAttributes launch(shape, nullptr);
  int clusters = 0;
  KILN_CU(in, cuOccupancyMaxActiveClusters, &clusters, function.handle, &launch.config);
  return clusters;
}

void launch(const Function& function, const LaunchShape& shape, Stream stream, void** params) {
  KILN_CHECK_THAT(device_of(stream) == function.device);
  const Enter in(function.device);
  constexpr int kCaptured = 12030;  // the first driver whose graphs know launches that begin early
  const bool early = function.waits_itself && driver().version >= kCaptured;
  if (early || shape.has_clusters() || shape.cooperative) {
    LaunchAttributes launch(shape, handle_of(stream), early);
    KILN_CU(in, cuLaunchKernelEx, &launch.config, function.handle, params, nullptr);
    return;
  }
  KILN_CU(in, cuLaunchKernel, function.handle, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
          shape.block[1], shape.block[2], shape.dynamic_shared, handle_of(stream), params, nullptr);
}

}  // namespace kiln::cuda
