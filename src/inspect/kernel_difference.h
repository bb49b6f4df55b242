// Why a kernel had to be made although others of the same operations are there.
#pragma once

#include "kernel/kernel.h"

#include <cstdint>
#include <string>

namespace kiln::engine {

/// The part of two kernels' loop IR that differs and tells most; an empty field: none does.
struct KernelDifference {
  std::string field;     // "loops", "buffer in0", "parameters", …
  std::string now, was;  // lines of the loop IR
};
KernelDifference kernel_difference(const std::string& now, const std::string& was);

/// Remembers the loop IR of a new kernel of a report under its label, and returns its difference from that
/// one of the same label, of earlier reports, which shares the most lines with it. Nothing: it is the first.
KernelDifference note_new_kernel(const kernel::Kernel& kernel, std::uint64_t report);
/// Another number for each report: the kernels of one, such as an attention's, are not made anew for each
/// other.
std::uint64_t next_report();

/// Forgets them: kernels that no cache has any more are nobody's neighbours.
void forget_new_kernels();

}  // namespace kiln::engine
