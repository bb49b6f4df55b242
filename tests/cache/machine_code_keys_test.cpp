// What machine code on disk is found by: code for another processor, GPU, compiler or driver is never run.
#include "cache/kernel_cache.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "device/cpu/cpu_compiler.h"
#include "device/cuda/cuda_compiler.h"
#include "needs_cpu.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <set>

namespace kiln {
namespace {

constexpr Hash128 kKernel{1, 2};

std::string gpu_key(const std::string& compiler, const std::string& target, int driver) {
  return engine::disk_key(kKernel, cuda::compiler_key(compiler, target, driver));
}

std::string cpu_key(const cpu::CpuTarget& target) {
  return engine::disk_key(kKernel, cpu::compiler_key(target));
}

TEST(MachineCodeKeys, TellGpuArchitecturesApart) {  // FAULTS 11
  std::set<std::string> keys;
  const char* targets[] = {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "compute_90", "compute_100"};
  for (const char* target : targets) keys.insert(gpu_key("NVRTC 13.0", target, 13000));
  EXPECT_EQ(keys.size(), std::size(targets));
}

TEST(MachineCodeKeys, TellCompilersApart) {  // FAULTS 12
  EXPECT_NE(gpu_key("NVRTC 13.0", "sm_90", 13000), gpu_key("NVRTC 13.1", "sm_90", 13000));
}

TEST(MachineCodeKeys, TellDriversApartWhereTheDriverCompiles) {  // FAULTS 12
  EXPECT_NE(gpu_key("NVRTC 13.0", "compute_90", 13000), gpu_key("NVRTC 13.0", "compute_90", 13010));
  EXPECT_EQ(gpu_key("NVRTC 13.0", "sm_90", 13000), gpu_key("NVRTC 13.0", "sm_90", 13010))
      << "a driver runs the machine code of an older one";
}

TEST(MachineCodeKeys, TellProcessorsCompilersAndLibrariesApart) {  // FAULTS 13
  cpu::CpuTarget a;
  a.llvm_cpu = "x86-64-v3";
  a.features = "+avx2,-avx512f";
  cpu::CpuTarget b = a, c = a, d = a;
  b.llvm_cpu = "x86-64-v4";
  c.features = "+avx2,+avx512f";
  d.vector_math = !a.vector_math;
  const std::set<std::string> keys{cpu_key(a), cpu_key(b), cpu_key(c), cpu_key(d)};
  EXPECT_EQ(keys.size(), 4u);
  EXPECT_NE(engine::disk_key({1, 3}, cpu::compiler_key(a)), cpu_key(a));
}

TEST(MachineCodeKeys, ADirectorySharedWithARicherProcessorGivesItsOwnCodeToEach) {  // FAULTS 13
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const Config before = config();
  if (!before.cpu_target.empty()) GTEST_SKIP() << "the target is set";
  const testing::TemporaryDirectory directory;
  const auto run = [&](const char* level) {
    Config options = before;
    options.cache = "rw";
    options.cache_dir = directory / "cache";
    options.cpu_target = level;
    configure(options);
    clear_memory_caches();
    const Statistics a = statistics();
    const Tensor y = tanh(test::data({1000}) * 3 + 1).eval();
    const Statistics b = statistics();
    const std::uint64_t compiled = b.kernels_compiled - a.kernels_compiled,
                        loaded = b.kernels_from_disk - a.kernels_from_disk;
    configure(before);
    return std::pair(compiled > 0, loaded > 0);
  };
  EXPECT_EQ(run(""), std::pair(true, false)) << "the richer one fills the directory";
  EXPECT_EQ(run("sse4.2"), std::pair(true, false)) << "its entries are misses for the poorer one";
  EXPECT_EQ(run("sse4.2"), std::pair(false, true));
  EXPECT_EQ(run(""), std::pair(false, true));
  clear_memory_caches();
}

}  // namespace
}  // namespace kiln
