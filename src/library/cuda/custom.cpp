// Kernels that the user gave as CUDA C: compiled by NVRTC when a call is planned, kept on disk by their
// source.
#include "library/custom.h"

#include "device/cuda/strided_copy.h"
#include "device/cuda/template_kernels.h"
#include "library/cuda/routines.h"
#include "support/check.h"
#include "support/hash128.h"

#include <kiln/error.h>

#include <algorithm>

namespace kiln::cuda {
namespace {

using library::Call;
using library::CustomCall;

/// The compiled function. CompileError.
const Function& function_of(const ir::CustomCode& code, int device) {
  const char* const symbols[] = {code.cuda_function.c_str()};
  const std::string name = cat("custom_", code.cuda_function, "_", hash128(code.cuda_source).hex());
  return template_kernels(device, name, symbols, [&] { return code.cuda_source; })[0];
}

CudaLaunch launch_of(const CustomCall& custom) {
  const ir::CustomCode& code = custom.code();
  try {
    return code.cuda_launch(custom.kernel_call());
  } catch (const std::exception& e) {
    throw UserError(cat("[", code.name, "] its launch function failed: ", e.what()));
  }
}

/// UserError for a shape that no GPU runs.
LaunchShape shape_of(const ir::CustomCode& code, const CudaLaunch& l) {
  LaunchShape shape;
  std::uint64_t threads = 1, blocks = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    shape.grid[i] = l.grid[i];
    shape.block[i] = l.block[i];
    threads *= l.block[i];
    blocks *= l.grid[i];
  }
  shape.dynamic_shared = l.shared_bytes;
  if (threads == 0 || blocks == 0 || threads > 1024)
    throw UserError(cat("[", code.name, "] its launch has blocks of ", threads, " threads and ", blocks,
                        " blocks: 1 to 1024 threads and at least one block are possible"));
  return shape;
}

void copy(const CustomCall::Copy& c, Stream stream) {
  StridedCopy copy;
  copy.to = static_cast<std::byte*>(c.to);
  copy.from = static_cast<const std::byte*>(c.from->data);
  copy.rank = c.from->rank;
  std::copy_n(c.from->dims, copy.rank, copy.extents);
  std::copy_n(c.from->strides, copy.rank, copy.strides);
  copy_strided(copy, c.element_bytes, stream);
}

struct Custom final : library::Routine {
  void prepare(const Call& call) const override {
    const CustomCall custom(call);
    const ir::CustomCode& code = custom.code();
    custom.check_bits();
    if (code.cuda_source.empty())
      throw UserError(
          cat("[", code.name, "] has no CUDA C for ", call.device.str(), ": CustomKernelOptions::cuda"));
    const LaunchShape shape = shape_of(code, launch_of(custom));
    try {
      const Function& function = function_of(code, call.device.index);
      if (shape.dynamic_shared > 0) allow_dynamic_shared(function, static_cast<int>(shape.dynamic_shared));
    } catch (const CompileError& e) {
      throw UserError(cat("[", code.name, "] its CUDA C does not compile: ", e.what()));
    }
  }
  bool is_recordable(const Call&) const override { return true; }
  std::size_t workspace_bytes(const Call& call) const override { return CustomCall(call).workspace_bytes(); }
  void run(const Call& call, std::byte* workspace) const override {
    CustomCall custom(call);
    custom.place(workspace);
    const Stream stream = current_stream(call.device.index);
    for (const CustomCall::Copy& c : custom.copies()) copy(c, stream);
    const CudaLaunch how = launch_of(custom);
    const KernelCall arrays = custom.kernel_call();
    std::vector<const void*> pointers;
    for (const KernelArray& a : arrays.in) pointers.push_back(a.data);
    for (const KernelArray& a : arrays.out) pointers.push_back(a.data);
    std::vector<void*> params;
    for (const void*& p : pointers) params.push_back(&p);
    for (const std::int64_t& n : how.numbers) params.push_back(const_cast<std::int64_t*>(&n));
    launch(function_of(custom.code(), call.device.index), shape_of(custom.code(), how), stream,
           params.data());
  }
};

}  // namespace

const library::Routine& custom_routine() {
  static const Custom routine;
  return routine;
}

}  // namespace kiln::cuda
