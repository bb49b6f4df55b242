#include "device/cuda/cuda_compiler.h"

#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_template.h"
#include "device/cuda/driver.h"
#include "kernel/marks.h"
#include "support/check.h"
#include "support/log.h"
#include "support/trace_option.h"

#include <kiln/config.h>

#include <filesystem>
#include <sstream>
#include <system_error>

namespace kiln::cuda {
namespace {

/// Whether tools show the lines of kernels' CUDA C.
bool has_lines() { return !config().trace.empty() && trace_has(config().trace, "nvtx"); }

/// Where KILN_DUMP writes sources; empty: to no files.
std::string dump_directory() {
  const std::string& dump = config().dump;
  if (dump.empty() || dump == "stdout" || dump == "stderr") return {};
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(dump, error);
  return error ? dump : whole.string();
}

/// Line information names the file that KILN_DUMP writes.
std::string line_directive(const device::Unit& unit) {
  const std::string directory = has_lines() ? dump_directory() : std::string();
  if (directory.empty()) return {};
  if (unit.edited) return cat("#line 1 \"", unit.edited->name, "\"\n");
  constexpr std::size_t kPrefix = 5, kDigits = 10;  // of kiln_0123…: as in names of dumps
  return cat("#line 1 \"", directory, "/", unit.kernel->label, "-", unit.symbol.substr(kPrefix, kDigits),
             ".cu\"\n");
}

/// The options that kernels are compiled with; part of what KILN_GENERATOR_HASH stands for.
CompileOptions kernel_options() {
  CompileOptions options;
  options.fmad = false;  // the kernel says where a multiplication and an addition round once
  if (has_lines()) options.extra.emplace_back("--generate-line-info");
  return options;
}

Arch arch_of(int index) {
  const DeviceInfo& d = device(index);
  return {d.major, d.minor};
}

/// What a machine without NVRTC knows of its device.
std::string remembered_by(const Arch& arch) { return cat("cuda sm_", arch.number()); }

class CudaCompiler final : public SourceCompiler {
 public:
  explicit CudaCompiler(int index) : SourceCompiler(arch_of(index)), index_(index) {}

  std::string key() const override {
    return compiler_key(index_) + (has_lines() ? "\nwith lines of " + dump_directory() : "");
  }
  Hash128 memory_key() const override {
    return {0x9e3779b97f4a7c15u * (1u + static_cast<std::uint64_t>(index_)), has_lines() ? 1u : 0u};
  }
  device::Binary compile(const device::Unit& unit) const override {
    const device::EditedSource source = chosen(unit);
    remember_compiler(index_);
    return cuda::compile(line_directive(unit) + source.text, source.name, arch_for(unit), kernel_options())
        .image;
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
  if (unit.kernel == nullptr) {  // a source that somebody gave
    arch.specific = unit.edited->text.find(codegen::kChipAlone) != std::string::npos;
    return arch;
  }
  const auto& t = unit.kernel->main_loop;
  arch.specific = t && codegen::template_text(t->name).specific == arch.number();
  return arch;
}

std::string SourceCompiler::source(const device::Unit& unit) const {
  return codegen::emit_cuda(*unit.kernel, unit.symbol, unit.instances, unit.marked);
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
  if (stage == "ptx" && unit.marked) {  // by the lines of the CUDA C
    const kernel::Unmarked plain = kernel::unmark(source.text);
    CompileOptions options = kernel_options();
    options.extra.emplace_back("--generate-line-info");
    const auto of_line = [&](std::uint32_t line, std::uint32_t) {
      return line <= plain.lines.size() ? plain.lines[line - 1] : std::vector<kernel::Mark>();
    };
    return kernel::mark_assembly(ptx_text(plain.text, source.name, arch_for(unit), options), of_line);
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
  const CompilerIdentity c = compiler_identity(index);
  if (c.target.empty()) (void)compile_target(arch_of(index));  // throws, and says why
  return compiler_key(cat("NVRTC ", c.major, '.', c.minor), c.target, driver().version);
}

CompilerIdentity compiler_identity(int index) {
  const NvrtcReport& report = nvrtc();
  const Arch arch = arch_of(index);
  if (report.available) return {report.major, report.minor, compile_target(arch)};
  CompilerIdentity out;
  if (const auto said = device::remembered_compiler(remembered_by(arch))) {
    std::istringstream text(*said);
    text >> out.major >> out.minor >> out.target;
  }
  return out;
}

void remember_compiler(int index) {
  const CompilerIdentity c = compiler_identity(index);
  device::remember_compiler(remembered_by(arch_of(index)), cat(c.major, ' ', c.minor, ' ', c.target));
}

}  // namespace kiln::cuda
