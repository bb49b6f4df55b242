#include "device/cpu/cpu_compiler.h"

#include "device/cpu/executable.h"
#include "device/cpu/jit.h"
#include "device/cpu/object_file.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <optional>
#include <string>
#include <utility>

namespace kiln::cpu {
namespace {

bool compiles() { return has_compiler() && !device::hides_compilers(); }

/// What a build without compilers knows of the target.
std::string remembered_by(const CpuTarget& target) { return "cpu " + target.level; }

/// The key of binaries that another build left in the disk cache, if this CPU has the instructions of that
/// one. Empty: there are none that run here.
std::string shipped_key(const CpuTarget& target) {
  if (!links_objects()) return {};
  const std::optional<std::string> said = device::remembered_compiler(remembered_by(target));
  if (!said) return {};
  const std::size_t end = said->rfind('\n');
  if (end == said->npos || !host_has_instructions(said->substr(end + 1))) return {};
  return said->substr(0, end);
}

class CpuCompiler final : public device::Compiler {
 public:
  explicit CpuCompiler(CpuTarget target) : target_(std::move(target)), memory_key_(hash128(target_.key())) {}

  bool available() const override { return compiles(); }
  bool interprets() const override { return true; }
  std::string key() const override { return compiles() ? compiler_key(target_) : shipped_key(target_); }
  Hash128 memory_key() const override { return memory_key_; }

  std::string source(const device::Unit& unit) const override {
    return llvm_text(*unit.kernel, unit.symbol, target_, unit.marked);
  }
  Hash128 fingerprint(const device::Unit& unit) const override {
    return llvm_fingerprint(*unit.kernel, unit.symbol, target_);
  }
  std::span<const device::Stage> stages() const override {
    static constexpr device::Stage kStages[] = {{"ll", ".ll"}, {"asm", ".s"}};
    return compiles() ? std::span<const device::Stage>(kStages) : std::span<const device::Stage>();
  }
  std::optional<std::string> text(std::string_view stage, const device::Unit& unit) const override {
    return stage == "asm" ? assembly_text(*unit.kernel, unit.symbol, target_, unit.marked) : source(unit);
  }

  device::Binary compile(const device::Unit& unit) const override {
    if (unit.edited) return compile_text(unit.edited->text, unit.edited->name, target_);
    device::remember_compiler(remembered_by(target_),
                              compiler_key(target_) + '\n' + host_instructions(target_));
    return cpu::compile(*unit.kernel, unit.symbol, target_);
  }
  std::shared_ptr<device::Code> new_code() const override { return std::make_shared<Executable>(); }
  void load(device::Code& code, const device::Binary& binary, const device::Unit& unit) const override {
    static_cast<Executable&>(code).publish(compiles() ? cpu::load(binary, unit.symbol)
                                                      : machine_code_of(link_object(binary), unit.symbol));
  }
  void interpret(device::Code& code, const device::Unit& unit) const override {
    static_cast<Executable&>(code).translate(*unit.kernel, target_);
  }

 private:
  const CpuTarget target_;
  const Hash128 memory_key_;
};

}  // namespace

std::shared_ptr<const device::Compiler> compiler() {
  struct Kept {
    std::shared_ptr<const device::Compiler> compiler;
    std::string level;
  };
  Kept& kept = thread_own<Kept, CpuCompiler>();
  if (!kept.compiler || kept.level != config().cpu_target) {
    kept.compiler = std::make_shared<const CpuCompiler>(host_target());
    kept.level = config().cpu_target;
  }
  return kept.compiler;
}

std::string compiler_key(const CpuTarget& target) {
  return cat("device cpu\ncompiler ", compiler_version(), "\ncpu ", target.key());
}

}  // namespace kiln::cpu
