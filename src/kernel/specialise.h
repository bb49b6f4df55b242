// What a kernel would be that knew its sizes: a measure for what shape-generic kernels cost.
#pragma once

#include "kernel/kernel.h"

#include <span>

namespace kiln::kernel {

/// The kernel with the parameters of one launch as constants. It is launched with the same ones.
Kernel specialise(const Kernel& kernel, std::span<const std::int64_t> params);

}  // namespace kiln::kernel
