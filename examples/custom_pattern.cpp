// A rule of one's own: wherever the program computes silu(gate) * up, in whatever layer, a hand-written
// kernel does it. The rule has a condition; where that fails, the report says so and the planner's own
// kernels run.
//
//     KILN_DEVICE=cuda custom_pattern      # on a GPU
//     KILN_FUSE_OFF=user.gated custom_pattern   # without the rule
#include <kiln/fusion_pattern.h>
#include <kiln/fusion_report.h>
#include <kiln/kiln.h>

#include <cmath>
#include <iostream>

namespace {

using namespace kiln;
namespace f = kiln::fusion;

constexpr const char* kSource = R"(
extern "C" __global__ void gated(const float* gate, const float* up, float* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}
)";

CustomKernel gated() {
  return custom_kernel({
      .name = "gated",
      .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
      .cpu =
          [](const KernelCall& call) {
            const auto* gate = call.in[0].as<const float>();
            const auto* up = call.in[1].as<const float>();
            auto* y = call.out[0].as<float>();
            call.parallel_for(call.in[0].numel(), 4096, [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t i = begin; i < end; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
            });
          },
      .cuda = {.source = kSource,
               .function = "gated",
               .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }},
      .same_bits = true,
  });
}

f::Pattern pattern() {
  return {.name = "gated",
          .match = f::op("multiply", f::op("silu", f::any("gate")), f::any("up")),
          .legal = [](const f::Match& m) -> std::string {
            if (m["gate"].dtype != DType::Float32) return "the kernel takes float32";
            return m["gate"].shape == m["up"].shape ? "" : "gate and up have different shapes";
          },
          .kernel = gated(),
          .operands = {"gate", "up"}};
}

/// What became of the pattern in an evaluation.
void tell(const char* what, const FusionReport& r) {
  const auto calls = r.by_kind.find("hand-written kernel");
  std::cout << what << ": " << (calls == r.by_kind.end() ? 0 : calls->second) << " hand-written kernel(s)\n";
  for (const FusionReport::NearMiss& m : r.near_misses) std::cout << "  near miss: " << m.text() << "\n";
}

}  // namespace

int main() {
  const f::ScopedPattern rule(pattern());
  const FusionRecorder recorder;
  const Tensor x = sin(arange(64 * 32.0)).reshape({64, 32}).eval();
  const Tensor w = cos(arange(32 * 96.0)).reshape({32, 96}).eval(),
               v = sin(arange(32 * 96.0) * 0.5f).reshape({32, 96}).eval();

  const Tensor hidden = silu(matmul(x, w)) * matmul(x, v);
  hidden.eval();
  tell("a gated layer", recorder.last());
  const Tensor row = silu(matmul(x, w)) * v(0);  // up is one row, which broadcasts
  row.eval();
  tell("a gate of one row", recorder.last());

  const Tensor g = matmul(x, w);
  std::cout << "greatest difference: " << max(abs(hidden - g / (1.0f + exp(-g)) * matmul(x, v))).item<float>()
            << "\n";
}
