// What a CUDA test needs, or it is skipped by name; and kernels for tests.
#pragma once

#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/pool.h"
#include "device/cuda/stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

/// Skips the test where kernels cannot be compiled.
#define KILN_REQUIRE_NVRTC() \
  if (!::kiln::cuda::nvrtc().available) GTEST_SKIP() << "no CUDA compiler: " << ::kiln::cuda::nvrtc().reason

/// Skips the test where kernels cannot be compiled and run.
#define KILN_REQUIRE_GPU() \
  KILN_REQUIRE_NVRTC();    \
  if (!::kiln::cuda::available()) GTEST_SKIP() << "NO GPU, NOT TESTED: " << ::kiln::cuda::driver().reason

/// Skips the test on fewer devices.
#define KILN_REQUIRE_GPUS(n)                                  \
  KILN_REQUIRE_GPU();                                         \
  if (::kiln::cuda::driver().devices.size() < std::size_t{n}) \
  GTEST_SKIP() << "NOT TESTED: needs " << n << " GPUs, there are " << ::kiln::cuda::driver().devices.size()

namespace kiln::cuda {

/// Not the tests' own driver.
inline bool is_gpu() { return available() && !device(0).name.starts_with("no GPU"); }

/// Whether kernels of plans run at all: the fake driver computes nothing unless the fake compiler made them.
inline bool computes() {
  return is_gpu() || (available() && nvrtc().library.find("fake") != std::string::npos);
}

inline Arch arch_of(int index) { return {device(index).major, device(index).minor}; }

inline Function make_function(const std::string& source, const std::string& symbol, int index = 0) {
  return find_function(load_module(index, compile(source, symbol, arch_of(index)).image), symbol);
}

/// add(data, value, n): data[i] += value, whatever the launch's size.
inline Function add_kernel(int index = 0) {
  return make_function(R"(
extern "C" __global__ void add(int* data, int value, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    data[i] += value;
})",
                       "add", index);
}

inline void run_add(const Function& function, Block* block, int value, Stream stream, std::int64_t n) {
  void* params[] = {&block->data, &value, &n};
  launch(function, {.grid = {64, 1, 1}, .block = {256, 1, 1}}, stream, params);
}

/// Keeps a stream busy for some milliseconds. Who then looks at it at once finds it busy: on a machine with
/// more to do than processors a process may be held up for tens of them.
inline void spin(Stream stream, double ms) {
  static const std::string source = R"(
extern "C" __global__ void spin(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < ns);
})";
  const Function function = make_function(source, "spin", device_of(stream));
  auto ns = static_cast<unsigned long long>(ms * 1e6);
  void* params[] = {&ns};
  launch(function, {}, stream, params);
}

inline std::vector<int> read_ints(const Block* block, std::size_t n, Stream stream) {
  std::vector<int> out(n);
  copy_to_host(out.data(), block->data, n * sizeof(int), stream);
  return out;
}

}  // namespace kiln::cuda
