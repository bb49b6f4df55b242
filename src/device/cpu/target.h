// What the host CPU is and which part of it generated code may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cpu {

struct CpuTarget {
  std::string level;      ///< as KILN_CPU spells it: native, sse4.2, avx2, avx512
  std::string llvm_cpu;   ///< for llvm::TargetMachine
  std::string features;   ///< for llvm::TargetMachine: "+avx2,-sse4a,…"
  int vector_bytes = 16;  ///< widest register worth using
  bool fma = false;
  bool f16c = false;         ///< converts float16 in hardware
  bool vector_math = false;  ///< the C library has vector functions (glibc's libmvec)
  bool avx2 = false;
  bool avx512 = false;  ///< F, BW, DQ, VL
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;  ///< permutes the bytes of a register
  bool avx512_fp16 = false;
  // Of a named level: what every machine's plans count on, so that one machine's kernels serve another.
  std::int64_t l1d_bytes = 32 << 10;
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t l3_bytes = 32 << 20;

  /// Of the last cache what keeps results for those who read them next: a part of it is other programs'. 0:
  /// it is larger than any that a group of cores shares (Zen with stacked caches), so it lies in slices
  /// behind a mesh, and storing through it takes half as long again as, or twice as long as, past it.
  std::int64_t bytes_kept_for_readers() const {
    constexpr std::int64_t kLargestOfGroup = 96 << 20;
    return l3_bytes > kLargestOfGroup ? 0 : l3_bytes / 8 * 7;
  }

  /// Everything that decides the machine code, for cache keys.
  std::string key() const { return llvm_cpu + " " + features + (vector_math ? " libmvec" : ""); }
};

/// The target in force: the host, or a lower level when config().cpu_target names one. UserError when the
/// level is unknown or the host lacks it.
CpuTarget host_target();
CpuTarget host_target(const std::string& level);

/// What the target in force has, for code that asks at each call.
struct InstructionSets {
  bool avx2 = false, f16c = false, avx512 = false, avx512_vbmi = false,
       avx512_fp16 = false;  ///< as CpuTarget has them
};
InstructionSets host_instruction_sets();

/// What code for a target may use of the host, as the host itself says it, in hexadecimal digits; empty for a
/// target that names a level, which says it all.
std::string host_instructions(const CpuTarget& target);
/// Whether this host has what another one said of itself.
bool host_has_instructions(const std::string& said);

/// LLVM's name of the host CPU, its model name as the system gives it, and LLVM's version ("none" in a build
/// without compilers, which names the CPU by its level).
std::string host_cpu_name();
std::string host_model_name();
std::string llvm_version();
/// Features of the host that generated code can profit from, in reading order: "avx2", "fma", "avx512f"…
std::vector<std::string> host_feature_names();

}  // namespace kiln::cpu
