// A build without compilers (KILN_COMPILERS=OFF): every kernel is run by the vm.
#include "device/cpu/host_cpu.h"
#include "device/cpu/jit.h"
#include "support/check.h"

namespace kiln::cpu {
namespace {

[[noreturn]] void none() {
  throw CompileError("[compile] this build of Kiln has no compiler (KILN_COMPILERS=OFF)");
}

}  // namespace

bool has_compiler() { return false; }
std::vector<std::uint8_t> compile(const kernel::Kernel&, const std::string&, const CpuTarget&) { none(); }
Hash128 llvm_fingerprint(const kernel::Kernel&, const std::string&, const CpuTarget&) { none(); }
std::string llvm_text(const kernel::Kernel&, const std::string&, const CpuTarget&, bool) { none(); }
std::string assembly_text(const kernel::Kernel&, const std::string&, const CpuTarget&, bool) { none(); }
MachineCode load(const std::vector<std::uint8_t>&, const std::string&) { none(); }
std::vector<std::uint8_t> compile_text(const std::string&, const std::string&, const CpuTarget&) { none(); }
std::string compiler_version() { return "none"; }
std::string llvm_version() { return "none"; }
bool has_vector_math() { return false; }

std::map<std::string, bool> read_host_features() {
  std::map<std::string, bool> out;
#if defined(__x86_64__)
#define KILN_FEATURE(Name) out[Name] = __builtin_cpu_supports(Name) != 0;
  KILN_FEATURE("popcnt")
  KILN_FEATURE("sse4.2")
  KILN_FEATURE("avx")
  KILN_FEATURE("avx2")
  KILN_FEATURE("fma")
  KILN_FEATURE("f16c")
  KILN_FEATURE("bmi2")
  KILN_FEATURE("avx512f")
  KILN_FEATURE("avx512bw")
  KILN_FEATURE("avx512cd")
  KILN_FEATURE("avx512dq")
  KILN_FEATURE("avx512vl")
#undef KILN_FEATURE
#endif
  return out;
}

std::string host_cpu_name() {
#if defined(__x86_64__)
  const std::map<std::string, bool> has = read_host_features();
  return has.at("avx512vl") ? "x86-64-v4"
         : has.at("avx2")   ? "x86-64-v3"
         : has.at("sse4.2") ? "x86-64-v2"
                            : "x86-64";
#else
  return "generic";
#endif
}

}  // namespace kiln::cpu
