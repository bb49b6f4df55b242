// Why a kernel had to be made although others of the same operations are there.
#pragma once

#include "kernel/kernel.h"

#include <string>

namespace kiln::engine {

/// The part of two kernels' loop IR that differs and tells most; an empty field: none does.
struct KernelDifference {
  std::string field;     // "loops", "buffer in0", "parameters", …
  std::string now, was;  // lines of the loop IR
};
KernelDifference kernel_difference(const std::string& now, const std::string& was);

/// Remembers the loop IR of a new kernel under its label, and returns its difference from that one of the
/// same label which shares the most lines with it. Nothing: it is the first.
KernelDifference note_new_kernel(const kernel::Kernel& kernel);

/// Forgets them: kernels that no cache has any more are nobody's neighbours.
void forget_new_kernels();

}  // namespace kiln::engine
