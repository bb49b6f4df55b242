// Kernel cache: structural key → executable, in memory, then on disk, then the compiler, which works in the
// background while the vm serves. One compile a key however many threads ask; different keys compile in
// parallel.
#pragma once

#include "device/compiler.h"
#include "device/launch.h"
#include "kernel/kernel.h"

#include <kiln/arguments.h>
#include <kiln/device.h>
#include <kiln/error.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace kiln::engine {

class DiskCache;

enum class Verdict : std::uint8_t { Memory, Disk, Compiled, Vm };

/// A kernel in memory emits other code than the one that was asked for under its key (KILN_CHECK=key looks).
class WrongKernel : public InternalError {
 public:
  using InternalError::InternalError;
};

struct CachedKernel {
  std::shared_ptr<device::Code> code;
  Hash128 key;
  std::string name;   // label and short hash: names of dump files
  int instances = 1;  // sets of arguments a launch takes at most; above 1: codegen::InstanceTable
  Verdict verdict = Verdict::Compiled;
  std::atomic<std::uint64_t> compile_ns{0};  // that making or loading the code took; 0: not there yet
};

struct KernelRequest {
  const kernel::Kernel* kernel;
  Hash128 key;
  Device device;
  int instances = 1;  // see CachedKernel; part of the key that the result has
  std::shared_ptr<const CachedKernel> result;
  Verdict verdict = Verdict::Memory;       // how this request was served
  SourceLocation line = SourceLocation();  // of the program, for tools that show code
};

/// Fills `result` of every request: with machine code from memory, disk or the compiler, or, where the device
/// has an interpreter, with what that runs, as config().tier says. A kernel that does not compile is
/// interpreted; a warning says so, and it is not remembered. CompileError where the device has no
/// interpreter. Throws InternalError for a kernel that is not well formed.
void obtain(std::span<KernelRequest> requests);
/// Whether obtain() would find the code of a request in memory or on disk, and so compile nothing.
bool is_at_hand(const KernelRequest& request);
/// What a binary is found by on disk: everything that decides it. `compiler`: device::Compiler::key().
std::string disk_key(const Hash128& kernel, const std::string& compiler);
/// The disk cache that the options name; null: there is none. It lives as long as the process.
DiskCache* disk_cache();
/// Lets devices keep what they compile besides kernels of plans in the disk cache. To be called before they
/// do; calls after the first do nothing.
void keep_binaries_on_disk();
/// Called with every kernel before it is compiled, for tests: it may throw CompileError or take its time.
/// Null: none.
using CompileHook = void (*)(const kernel::Kernel&);
void set_compile_hook(CompileHook hook);
std::mutex& kernel_cache_mutex();  // for fork
/// Drops kernels from memory (machine code stays mapped).
void clear_kernel_cache();

}  // namespace kiln::engine
