#include "device/cpu/target.h"

#include "device/cpu/host_cpu.h"
#include "support/check.h"

#include <kiln/config.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <map>
#include <system_error>

namespace kiln::cpu {
namespace {

const std::map<std::string, bool>& host_features() {
  static const auto* const features = new std::map<std::string, bool>(read_host_features());
  return *features;
}

bool host_has(const std::string& feature) {
  const auto it = host_features().find(feature);
  return it != host_features().end() && it->second;
}

bool host_has_all(std::initializer_list<const char*> features) {
  return std::all_of(features.begin(), features.end(), [](const char* f) { return host_has(f); });
}

/// The psABI micro-architecture levels, by the names a user knows.
struct Level {
  const char* name;
  const char* llvm_cpu;
  int vector_bytes;
  bool (*supported)();
};
constexpr Level kLevels[] = {
    {"sse4.2", "x86-64-v2", 16, [] { return host_has_all({"sse4.2", "popcnt"}); }},
    {"avx2", "x86-64-v3", 32, [] { return host_has_all({"avx2", "fma", "f16c", "bmi2"}); }},
    {"avx512", "x86-64-v4", 64,
     [] { return host_has_all({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "fma", "f16c"}); }},
};

std::int64_t cache_bytes(int name, std::int64_t otherwise) {
  const long value = sysconf(name);
  return value > 0 ? value : otherwise;
}

void read_caches(CpuTarget& target) {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  target.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, target.l1d_bytes);
  target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  target.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, target.l3_bytes);
#endif
  // The C library may add up the caches of a package, of which a core sees one.
  std::int64_t kib = 0;
  if (std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index3/size"); size >> kib && size.get() == 'K')
    target.l3_bytes = std::min(target.l3_bytes, kib << 10);
}

CpuTarget native_target() {
  CpuTarget target;
  target.level = "native";
  target.llvm_cpu = host_cpu_name();
  for (const auto& [name, on] : host_features()) target.features += (on ? "+" : "-") + name + ",";
  target.avx2 = kLevels[1].supported();
  target.avx512 = kLevels[2].supported();
  // Server cores' tuning prefers 256-bit registers and would split our 512-bit vectors; our kernels are long
  // streams of wide arithmetic, where the wider registers win.
  if (target.avx512) target.features += "-prefer-256-bit,";
  if (!target.features.empty()) target.features.pop_back();
  target.vector_bytes = target.avx512 ? 64 : target.avx2 ? 32 : 16;
#if defined(__x86_64__)
  target.fma = host_has("fma");
#else
  target.fma = true;
#endif
  target.f16c = host_has("f16c");
  read_caches(target);
  target.avx512_bf16 = target.avx512 && host_has("avx512bf16");
  target.avx512_vbmi = target.avx512 && host_has("avx512vbmi");
  target.avx512_fp16 = target.avx512 && host_has("avx512fp16");
  return target;
}

}  // namespace

CpuTarget host_target() {
  const std::string& level = config().cpu_target;
  return host_target(level.empty() ? "native" : level);
}

CpuTarget host_target(const std::string& level) {
  CpuTarget target;
  if (level == "native") {
    static const auto* const native = new CpuTarget(native_target());  // sizes of caches take 10 us
    target = *native;
  } else {
    const auto* found =
        std::find_if(std::begin(kLevels), std::end(kLevels), [&](const Level& l) { return l.name == level; });
    if (found == std::end(kLevels))
      throw UserError(cat("[config] KILN_CPU=", level, ": expected native, sse4.2, avx2 or avx512"));
    if (!found->supported())
      throw UserError(
          cat("[config] KILN_CPU=", level, ": this CPU (", host_cpu_name(), ") does not have it"));
    target.level = level;
    target.llvm_cpu = found->llvm_cpu;
    target.vector_bytes = found->vector_bytes;
    target.avx2 = target.fma = target.f16c = found->vector_bytes >= 32;
    target.avx512 = found->vector_bytes >= 64;
    if (target.avx512) target.features = "-prefer-256-bit";
  }
  target.vector_math = has_vector_math();
  return target;
}

InstructionSets host_instruction_sets() {
  const auto sets_of = [](const CpuTarget& t) {
    return InstructionSets{t.avx2, t.f16c, t.avx512, t.avx512_vbmi, t.avx512_fp16};
  };
  static const InstructionSets native = sets_of(host_target("native"));
  const std::string& level = config().cpu_target;
  return level.empty() || level == "native" ? native : sets_of(host_target(level));
}

namespace {

/// The words of CPUID that name instructions, and those states of registers that the system keeps.
std::vector<std::uint32_t> instruction_words() {
  std::vector<std::uint32_t> out;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  // bits that say no instruction: of the hypervisor, of the system's settings, and of what differs by core
  constexpr unsigned kHypervisor = 1u << 31, kOsxsave = 1u << 27, kApic = 1u << 9, kMonitor = 1u << 3;
  __get_cpuid_count(1, 0, &a, &b, &c, &d);
  out.insert(out.end(), {c & ~(kHypervisor | kOsxsave | kMonitor), d & ~kApic});
  const bool saves = (c & kOsxsave) != 0;
  a = b = c = d = 0;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  out.insert(out.end(), {b, c});
  a = b = c = d = 0;
  __get_cpuid_count(7, 1, &a, &b, &c, &d);
  out.push_back(a);
  a = b = c = d = 0;
  __get_cpuid_count(0x80000001, 0, &a, &b, &c, &d);
  out.push_back(c);
  std::uint32_t states = 0, ignored = 0;
  if (saves) __asm__("xgetbv" : "=a"(states), "=d"(ignored) : "c"(0));
  out.push_back(states & 0xe7);  // SSE, AVX, AVX-512
#endif
  return out;
}

}  // namespace

std::string host_instructions(const CpuTarget& target) {
  if (target.level != "native") return {};
  std::string out;
  for (const std::uint32_t word : instruction_words()) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", word);
    out += digits;
  }
  return out;
}

bool host_has_instructions(const std::string& said) {
  if (said.empty()) return true;
  const std::vector<std::uint32_t> own = instruction_words();
  if (said.size() != 8 * own.size()) return false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::uint32_t word = 0;
    const char* const from = said.data() + 8 * i;
    const auto [end, error] = std::from_chars(from, from + 8, word, 16);
    if (error != std::errc() || end != from + 8 || (word & ~own[i]) != 0) return false;
  }
  return true;
}

std::string host_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return host_cpu_name();
}

std::vector<std::string> host_feature_names() {
  std::vector<std::string> out;
  for (const char* name : {"sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq",
                           "avx512vl", "avx512bf16", "avx512fp16", "avxvnni", "amx-bf16", "neon", "sve"})
    if (host_has(name)) out.push_back(name);
  return out;
}

}  // namespace kiln::cpu
