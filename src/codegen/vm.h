// The vm: the emitter that needs no compiler. Translates a Kernel to bytecode in microseconds and runs it with
// ahead-of-time compiled loops (vm_loops.h) over blocks of some thousand lanes, so that what an instruction costs
// besides its lanes hardly counts.
//
// A program computes what compiled code computes, in the same order: accumulators have the kernel's lanes, sums of
// products round once where the kernel allows it. Where the two may differ is prims.def's freedom (DivBounded) and the
// last bits of Float64 functions.
#pragma once

#include "codegen/vm_code.h"
#include "kernel/kernel.h"

#include <cstddef>
#include <cstdint>

namespace kiln::codegen {

/// Immutable; any number of threads may run it.
class VmProgram {
 public:
  /// Pre: kernel::verify(kernel). `loops` are of an instruction set that this CPU has.
  VmProgram(const kernel::Kernel& kernel, const VmLoops& loops);

  /// Working memory of one call, besides the kernel's own scratch memory. Aligned to 64 bytes by the caller.
  std::int64_t memory_bytes() const;
  bool has_finish() const { return !finish_.code.empty(); }
  /// As KernelFn, with the working memory.
  void body(const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::byte* scratch, std::byte* memory) const;
  void finish(const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::byte* scratch, std::byte* memory) const;

  const VmSection& body_code() const { return body_; }
  const VmSection& finish_code() const { return finish_; }

 private:
  std::vector<VmBuffer> buffers_;
  VmSection body_, finish_;
};

}  // namespace kiln::codegen
