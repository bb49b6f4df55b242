// What NVRTC takes for a small kernel, and what headers and threads add to it. Needs no GPU.
#include "device/cuda/nvrtc.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

namespace {

using namespace kiln::cuda;

constexpr Arch kArch{9, 0};

const std::string kEmpty = "extern \"C\" __global__ void k(float* p) { *p = 1; }\n";
const std::string kFunctions = R"(
extern "C" __global__ void __launch_bounds__(256) k(float* __restrict__ y, const float* __restrict__ x, float a,
                                                    int n) {
  const int i = (blockIdx.x * 256 + threadIdx.x) * 4;
  if (i + 4 > n) return;
  float4 v = *(const float4*)(x + i);
  v.x = expf(v.x) * a + v.y;
  v.y = sqrtf(v.y) * tanhf(v.z);
  v.z = expf(v.z) + logf(v.w);
  v.w = fmaxf(v.w, v.x) / v.y;
  *(float4*)(y + i) = v;
}
)";

CompileOptions with_headers() {
  const char* home = std::getenv("CUDA_HOME");
  return {.extra = {std::string("--include-path=") + (home ? home : "/usr/local/cuda") + "/include"}};
}

/// `to_ptx` stops before machine code.
void run(benchmark::State& state, const std::string& source, const CompileOptions& options = {},
         bool to_ptx = false) {
  if (!nvrtc().available) return state.SkipWithError(nvrtc().reason.c_str());
  try {
    compile(source, "k", kArch, options);  // the library's first compile costs more
    for (auto _ : state) {
      if (to_ptx)
        benchmark::DoNotOptimize(ptx_text(source, "k", kArch, options));
      else
        benchmark::DoNotOptimize(compile(source, "k", kArch, options));
    }
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

void NvrtcEmpty(benchmark::State& state) { run(state, kEmpty); }
void NvrtcFunctions(benchmark::State& state) { run(state, kFunctions); }
void NvrtcFunctionsToPtx(benchmark::State& state) { run(state, kFunctions, {}, true); }
void NvrtcFunctionsFp16(benchmark::State& state) {
  run(state, "#include <cuda_fp16.h>\n" + kFunctions, with_headers());
}
void NvrtcFunctionsFp16Bf16(benchmark::State& state) {
  run(state, "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + kFunctions, with_headers());
}

BENCHMARK(NvrtcEmpty)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(NvrtcFunctions)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(NvrtcFunctions)->Unit(benchmark::kMillisecond)->UseRealTime()->Threads(2);
BENCHMARK(NvrtcFunctionsToPtx)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(NvrtcFunctionsFp16)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(NvrtcFunctionsFp16Bf16)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
