// Kernels that are made from kernels_templates alone, not from the loop IR: compiled when first wanted, once
// for each device and source; binaries are kept in device::binary_store().
#pragma once

#include "device/cuda/module.h"

#include <kiln/dtype.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kiln::cuda {

/// The kernels of a source, in the order of `symbols`. `name` says which source it is. CompileError,
/// DeviceError.
const std::vector<Function>& template_kernels(int device, const std::string& name,
                                              std::span<const char* const> symbols,
                                              const std::function<std::string()>& source);

/// The texts that every such source begins with: types.cuh, integer.cuh and elements.cuh.
std::string template_prologue();

/// For one item a thread, in blocks of 256; threads take more where there are too many. Pre: count > 0.
LaunchShape thread_each(std::int64_t count);

}  // namespace kiln::cuda
