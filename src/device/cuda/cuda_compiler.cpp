#include "device/cuda/cuda_compiler.h"

#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_template.h"
#include "device/cuda/driver.h"
#include "support/check.h"
#include "support/log.h"

namespace kiln::cuda {
namespace {

/// The options that kernels are compiled with; part of what KILN_GENERATOR_HASH stands for.
CompileOptions kernel_options() {
  CompileOptions options;
  options.fmad = false;  // the kernel says where a multiplication and an addition round once
  return options;
}

Arch arch_of(int index) {
  const DeviceInfo& d = device(index);
  return {d.major, d.minor};
}

class CudaCompiler final : public SourceCompiler {
 public:
  explicit CudaCompiler(int index) : SourceCompiler(arch_of(index)), index_(index) {}

  std::string key() const override { return compiler_key(index_); }
  Hash128 memory_key() const override {
    return {0x9e3779b97f4a7c15u * (1u + static_cast<std::uint64_t>(index_)), 0};
  }
  device::Binary compile(const device::Unit& unit) const override {
    const device::EditedSource source = chosen(unit);
    return cuda::compile(source.text, source.name, arch_for(unit), kernel_options()).image;
  }
  std::shared_ptr<device::Code> new_code() const override { return std::make_shared<CudaCode>(); }
  void load(device::Code& code, const device::Binary& binary, const device::Unit& unit) const override {
    constexpr int kWaits = 90;  // the first architecture that can
    Function& function = static_cast<CudaCode&>(code).function;
    function = find_function(load_module(index_, binary), unit.symbol);
    const bool waits = !unit.edited || unit.edited->text.find(codegen::kWaitForPrevious) != std::string::npos;
    function.waits_itself = waits && function.architecture >= kWaits;
  }

 private:
  const int index_;
};

}  // namespace

Arch SourceCompiler::arch_for(const device::Unit& unit) const {
  Arch arch = arch_;
  if (unit.kernel == nullptr) return arch;  // a source that somebody gave
  const auto& t = unit.kernel->main_loop;
  arch.specific = t && codegen::template_text(t->name).specific == arch.number();
  return arch;
}

std::string SourceCompiler::source(const device::Unit& unit) const {
  return codegen::emit_cuda(*unit.kernel, unit.symbol, unit.instances);
}

device::EditedSource SourceCompiler::chosen(const device::Unit& unit) const {
  return unit.edited ? *unit.edited : device::EditedSource{unit.symbol, source(unit)};
}

std::span<const device::Stage> SourceCompiler::stages() const {
  static constexpr device::Stage kStages[] = {{"cu", ".cu"}, {"ptx", ".ptx"}, {"sass", ".sass"}};
  return kStages;
}

std::optional<std::string> SourceCompiler::text(std::string_view stage, const device::Unit& unit) const {
  const device::EditedSource source = chosen(unit);
  if (stage == "cu") return source.text;
  if (!nvrtc().available) {
    warn_once("nvrtc", cat("no PTX and no SASS is written: ", nvrtc().reason));
    return std::nullopt;
  }
  if (stage == "ptx") return ptx_text(source.text, source.name, arch_for(unit), kernel_options());
  const Code code = cuda::compile(source.text, source.name, arch_for(unit), kernel_options());
  if (code.ptx) {
    warn_once("sass", cat("no SASS is written: ", compiler_version(), " makes PTX for this device"));
    return std::nullopt;
  }
  std::string sass = sass_text(code.image);
  if (!sass.starts_with("//")) return sass;
  warn_once("sass", cat("no SASS is written: ", sass.substr(3, sass.find('\n') - 3)));
  return std::nullopt;
}

std::shared_ptr<const device::Compiler> make_compiler(int index) {
  return std::make_shared<const CudaCompiler>(index);
}

std::string compiler_key(const std::string& compiler, const std::string& target, int driver) {
  return cat("device cuda\ncompiler ", compiler, "\ntarget ", target,
             target.starts_with("compute_") ? cat("\ndriver ", driver) : std::string());
}

std::string compiler_key(int index) {
  return compiler_key(compiler_version(), compile_target(arch_of(index)), driver().version);
}

}  // namespace kiln::cuda
