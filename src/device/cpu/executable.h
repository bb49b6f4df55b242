// Executable: a kernel that can be run: by the vm at once, as machine code as soon as there is some.
//
// Both take the same launch and write the same buffers, so that a running kernel may change over between two
// grid iterations. Machine code is published once and stays mapped for the life of the process.
#pragma once

#include "device/cpu/target.h"
#include "device/launch.h"
#include "kernel/kernel.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kiln::codegen {
class VmProgram;
enum class VmPart : std::uint8_t;
}  // namespace kiln::codegen

namespace kiln::cpu {

struct MachineCode {
  kernel::KernelFn body = nullptr;
  // Null when the kernel has no such section.
  kernel::KernelFn link = nullptr, second = nullptr, finish = nullptr;
  std::vector<device::HostFunction> functions = {};  // those above with their sizes, where these are known
};

class Executable final : public device::Code {
 public:
  /// Bytecode of the kernel with the loops of a target. Before the executable is shared.
  void translate(const kernel::Kernel& kernel, const CpuTarget& target);
  /// From now on this runs, for every thread.
  void publish(MachineCode code) noexcept;
  std::vector<device::HostFunction> host_functions() const override { return functions_; }
  bool compiled() const noexcept override { return body_.load(std::memory_order_acquire) != nullptr; }
  /// The bytecode.
  std::string program_text() const override;

  /// Grid iterations [begin, end) on the calling thread, with `scratch_bytes` of scratch memory. The vm runs
  /// `grain` of them, or some more, before it looks for machine code again. Pre: translated or published.
  void body(const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::int64_t scratch_bytes,
            std::int64_t grain) const;
  /// The same in memory of the caller's: memory_bytes() of it, aligned to 64 bytes.
  void body_in(const kernel::Frame& frame, std::int64_t begin, std::int64_t end, std::int64_t scratch_bytes,
               std::byte* memory) const;
  std::int64_t memory_bytes(std::int64_t scratch_bytes) const;
  /// Whether there is a link section, and so a second one; an item of theirs.
  bool chained() const noexcept;
  void link(const kernel::Frame& frame, std::int64_t item, std::int64_t scratch_bytes) const;
  void second(const kernel::Frame& frame, std::int64_t item, std::int64_t scratch_bytes) const;
  /// All iterations of the finish section, if there is one.
  void finish(const kernel::Frame& frame, std::int64_t grid) const;

 private:
  void one(const std::atomic<kernel::KernelFn>& section, codegen::VmPart part, const kernel::Frame& frame,
           std::int64_t begin, std::int64_t end, std::int64_t scratch_bytes) const;

  std::atomic<kernel::KernelFn> body_{nullptr}, link_{nullptr}, second_{nullptr}, finish_{nullptr};
  std::shared_ptr<const codegen::VmProgram> program_;
  std::vector<device::HostFunction> functions_;
};

}  // namespace kiln::cpu
