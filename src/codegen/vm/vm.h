// The vm: the emitter that needs no compiler. Translates a Kernel to bytecode in microseconds and runs it
// with ahead-of-time compiled loops (vm_loops.h) over blocks of some thousand lanes, so that what an
// instruction costs besides its lanes hardly counts.
//
// A program computes what compiled code computes, in the same order: accumulators have the kernel's lanes,
// sums of products round once where the kernel allows it. Where the two may differ is prims.def's freedom
// (DivBounded) and the last bits of Float64 functions.
#pragma once

#include "codegen/vm/vm_code.h"
#include "kernel/kernel.h"

#include <cstddef>
#include <cstdint>

namespace kiln::codegen {

enum class VmPart : std::uint8_t { Body, Link, Second, Finish };

/// Immutable; any number of threads may run it.
class VmProgram {
 public:
  /// Pre: kernel::verify(kernel). `loops` are of an instruction set that this CPU has.
  VmProgram(const kernel::Kernel& kernel, const VmLoops& loops);

  /// Working memory of one call, besides the kernel's own scratch memory. Aligned to 64 bytes by the caller.
  std::int64_t memory_bytes() const { return memory_bytes_; }
  bool has(VmPart part) const { return !code(part).code.empty(); }
  /// As KernelFn, with the working memory; nothing when there is no such section.
  void run(VmPart part, const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::byte* scratch,
           std::byte* memory) const;
  const VmSection& code(VmPart part) const { return sections_[static_cast<std::size_t>(part)]; }

 private:
  std::vector<VmBuffer> buffers_;
  VmSection sections_[4];
  std::int64_t memory_bytes_ = 0;
};

}  // namespace kiln::codegen
