// Kernel cache: structural key → executable, in memory, then on disk, then the compiler. One compile a key however
// many threads ask; different keys compile in parallel.
#pragma once

#include "backend/cpu/jit.h"
#include "kernel/kernel.h"

#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace kiln::runtime {

enum class Verdict : std::uint8_t { Memory, Disk, Compiled };

struct CachedKernel {
  cpu::Executable executable;
  Hash128 key;
  std::string name;              // label and short hash: names of dump files
  Verdict verdict = Verdict::Compiled;
  double compile_ms = 0;
};

struct KernelRequest {
  const kernel::Kernel* kernel;
  Hash128 key;
  std::shared_ptr<const CachedKernel> result;
  Verdict verdict = Verdict::Memory;  // how this request was served
};

/// Fills `result` of every request. CompileError of the first kernel that cannot be compiled.
void obtain(std::span<KernelRequest> requests);
/// Called with every kernel before it is compiled, for tests: it may throw CompileError or take its time. Null: none.
using CompileHook = void (*)(const kernel::Kernel&);
void set_compile_hook(CompileHook hook);
std::mutex& kernel_cache_mutex();  // for fork
/// Drops kernels from memory (machine code stays mapped).
void clear_kernel_cache();

}  // namespace kiln::runtime
