// Threads go to places that a hash of their numbers chooses, so that nothing but the table is read or
// written. The table has 8 MiB, which every second cache keeps.
#include "bench_gpu_rates.h"

#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/pool.h"

namespace kiln::tool {
namespace {

constexpr char kSource[] = R"(
__device__ unsigned int chosen(unsigned int i, unsigned int rows) {
  i ^= i >> 16;
  i *= 0x7feb352du;
  i ^= i >> 15;
  i *= 0x846ca68bu;
  return __umulhi(i ^ i >> 16, rows);
}

// Lanes adjacent threads a row, of 16 bytes each.
template <int Lanes>
__device__ void read(uint4* table, unsigned int rows, unsigned int threads) {
  uint4 seen = {};
  for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < threads; i += gridDim.x * 1024) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const unsigned int j = i + k * gridDim.x * 256;
      const uint4 x = __ldg(table + chosen(j / Lanes, rows) * Lanes + j % Lanes);
      seen = {seen.x ^ x.x, seen.y ^ x.y, seen.z ^ x.z, seen.w ^ x.w};
    }
  }
  if (seen.x == 1 && seen.y == 2 && seen.z == 3 && seen.w == 4) *table = seen;
}
extern "C" __global__ void __launch_bounds__(256)
    kiln_read_sectors(uint4* table, unsigned int rows, unsigned int threads) {
  read<2>(table, rows, threads);
}
extern "C" __global__ void __launch_bounds__(256)
    kiln_read_lines(uint4* table, unsigned int rows, unsigned int threads) {
  read<8>(table, rows, threads);
}

#if __CUDA_ARCH__ >= 900
template <int Lanes>
__device__ void add(float4* sums, unsigned int rows, unsigned int threads) {
  for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < threads; i += gridDim.x * 1024) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const unsigned int j = i + k * gridDim.x * 256;
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(
                       sums + chosen(j / Lanes, rows) * Lanes + j % Lanes),
                   "f"(1.0f)
                   : "memory");
    }
  }
}
extern "C" __global__ void __launch_bounds__(256)
    kiln_add_vectors(float4* sums, unsigned int rows, unsigned int threads) {
  add<1>(sums, rows, threads);
}
extern "C" __global__ void __launch_bounds__(256)
    kiln_add_lines(float4* sums, unsigned int rows, unsigned int threads) {
  add<8>(sums, rows, threads);
}
#endif
)";

}  // namespace

RandomRates measure_random_rates(int device, cuda::Stream stream,
                                 const std::function<double(const std::function<void()>&)>& time) {
  constexpr std::uint64_t kTable = 8 << 20;
  constexpr double kVector = 16, kSector = 32, kLine = 128;
  constexpr int kHopper = 9;
  const cuda::DeviceInfo& info = cuda::device(device);
  const cuda::Code code = cuda::compile(kSource, "kiln_random_rates", {info.major, info.minor});
  const cuda::Module module = cuda::load_module(device, code.image);
  cuda::Block* const table = cuda::allocate(kTable, stream);
  cuda::fill(table->data, 0, 4, kTable / 4, stream);
  cuda::LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(8 * info.sm_count);
  shape.block[0] = 256;
  const auto threads = static_cast<std::uint32_t>(shape.grid[0] * 1024 * 4);
  const auto of_row = [&](const char* name, double bytes) {
    const cuda::Function kernel = cuda::find_function(module, name);
    void* to = table->data;
    auto rows = static_cast<std::uint32_t>(static_cast<double>(kTable) / bytes);
    std::uint32_t count = threads;
    void* params[] = {&to, &rows, &count};
    return time([&] { cuda::launch(kernel, shape, stream, params); }) / count * (bytes / kVector);
  };
  /// From rows of `bytes` and of a line.
  const auto rate = [&](const char* of_bytes, double bytes, const char* of_line) {
    const double least = of_row(of_bytes, bytes), byte = (of_row(of_line, kLine) - least) / (kLine - bytes);
    return RandomRate{least - bytes * byte, byte};
  };
  RandomRates rates;
  rates.read = rate("kiln_read_sectors", kSector, "kiln_read_lines");
  if (info.major >= kHopper) rates.add = rate("kiln_add_vectors", kVector, "kiln_add_lines");
  cuda::release(table, stream);
  return rates;
}

}  // namespace kiln::tool
