#pragma once

#include "bench_device.h"

namespace kiln::tool {

/// How much longer kernels take that do not know their sizes, over random shapes. Prints a line a program.
void bench_shapes(const BenchDevice& device, int shapes);

}  // namespace kiln::tool
