// The CUDA C emitter and NVRTC, as the kernel cache sees them.
#pragma once

#include "device/compiler.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"

#include <memory>
#include <string>

namespace kiln::cuda {

/// What is done without a device: kernels become CUDA C for an architecture, and that the stages of
/// KILN_DUMP.
class SourceCompiler : public device::Compiler {
 public:
  explicit SourceCompiler(const Arch& arch) : arch_(arch) {}
  std::string source(const device::Unit& unit) const override;
  std::string_view edited_extension() const override { return ".cu"; }
  std::span<const device::Stage> stages() const override;
  std::optional<std::string> text(std::string_view stage, const device::Unit& unit) const override;

 protected:
  /// What is compiled: the edited text, or the generated one.
  device::EditedSource chosen(const device::Unit& unit) const;
  /// The architecture, with the instructions of that chip alone where a main loop needs them.
  Arch arch_for(const device::Unit& unit) const;
  const Arch arch_;
};

/// A kernel on a device.
struct CudaCode final : device::Code {
  Function function;
  device::Resources resources() const override {
    if (!function.handle) return {};  // not loaded yet
    return {function.registers, function.local_bytes};
  }
};

/// DeviceError when there is no such device.
std::shared_ptr<const device::Compiler> make_compiler(int device);

/// What compiles for a device here; without NVRTC what compiled the binaries that the disk cache has for such
/// a device. `target` is empty where there is neither.
struct CompilerIdentity {
  int major = 0, minor = 0;  // of NVRTC
  std::string target;        // "sm_90"
};
CompilerIdentity compiler_identity(int device);
/// Lets other processes find what this one compiles for a device.
void remember_compiler(int device);

/// What decides a binary besides its source, see device::Compiler::key(). `target`: an architecture (sm_90),
/// or PTX (compute_90), which the driver turns into code and the driver's version then counts.
std::string compiler_key(const std::string& compiler, const std::string& target, int driver);
/// That of a device. CompileError when nothing compiles for it.
std::string compiler_key(int device);

}  // namespace kiln::cuda
