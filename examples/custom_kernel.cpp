// A kernel of one's own: a leaky integrator, y[t] = a y[t - 1] + x[t], along the rows of a signal. Each value
// needs the one before, so array operations would take a step for each t. One C++ function and a few lines of
// CUDA C do it in one call, with a derivative; the formulas around it fuse as always.
//
//     KILN_DEVICE=cuda custom_kernel       # on a GPU
#include <kiln/custom_kernel.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/kiln.h>

#include <iostream>

namespace {

using namespace kiln;

constexpr const char* kSource = R"(
extern "C" __global__ void integrate(const float* x, const float* a, float* y, long long rows, long long steps) {
  long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float value = 0;
  for (long long t = 0; t < steps; ++t) {
    value = a[row] * value + x[row * steps + t];
    y[row * steps + t] = value;
  }
}
)";

/// x (rows, steps) and a (rows,), both float32.
KernelTypes types(const KernelTypes& in, KernelNumbers) {
  if (in.size() != 2 || in[0].shape.rank() != 2 || in[1].shape != Shape{in[0].shape[0]} ||
      in[0].dtype != DType::Float32 || in[1].dtype != DType::Float32)
    throw UserError("takes float32 signals (rows, steps) and factors (rows,)");
  return {in[0]};
}

void integrate_on_cpu(const KernelCall& call) {
  const std::int64_t rows = call.in[0].shape[0], steps = call.in[0].shape[1];
  const auto* x = call.in[0].as<const float>();
  const auto* a = call.in[1].as<const float>();
  auto* y = call.out[0].as<float>();
  call.parallel_for(rows, 1 + 10000 / (steps + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float value = 0;
      for (std::int64_t t = row * steps; t < (row + 1) * steps; ++t) y[t] = value = a[row] * value + x[t];
    }
  });
}

CudaLaunch launch(const KernelCall& call) {
  CudaLaunch l = CudaLaunch::each(call.in[0].shape[0]);  // a thread for each row
  l.numbers.push_back(call.in[0].shape[1]);
  return l;
}

const CustomKernel& integrate();

/// What arrives at t also arrived at t + 1, times a: the same recurrence, from the end.
std::vector<Tensor> derivative(std::span<const Tensor> g, std::span<const Tensor> y,
                               std::span<const Tensor> in) {
  const Tensor back = flip(integrate()({flip(g[0], -1), in[1]}), -1);
  const Tensor before = pad(y[0](slice::all(), slice::range({}, -1)), {{0, 0}, {1, 0}});
  return {back, sum(back * before, -1)};
}

const CustomKernel& integrate() {
  static const CustomKernel kernel = custom_kernel({
      .name = "integrate",
      .results = types,
      .cpu = integrate_on_cpu,
      .cuda = {.source = kSource, .function = "integrate", .launch = launch},
      .same_bits = true,
      .backward = derivative,
  });
  return kernel;
}

}  // namespace

int main() {
  const ElementwiseKernel soft =
      elementwise_kernel("soft_clip", "x, limit -> x / sqrt(1 + (x / limit) * (x / limit))");
  const Tensor signal = sin(arange(4 * 1000.0).reshape({4, 1000}) * 0.01f);
  const Tensor target = soft(integrate()({signal, full({4}, 0.9f)}), 5.0f).eval();

  // The factors are found again from the clipped result.
  const auto loss = [&](const Tensor& a) {
    const Tensor error = soft(integrate()({signal, a}), 5.0f) - target;
    return mean(error * error);
  };
  const FusionRecorder recorder;
  Tensor a = full({4}, 0.5f);
  for (int step = 0; step < 60; ++step) {
    const auto [value, gradient] = value_and_grad(loss, a);
    a = (a - 0.02f * gradient).eval();
    if (step % 20 == 0) std::cout << "step " << step << ": loss " << value.item<float>() << "\n";
  }
  std::cout << "factors: " << a << "\n";

  const FusionReport report = recorder.last();
  std::cout << "last step: " << report.by_op.at("integrate") << " calls of integrate, "
            << report.after.kernels << " kernels for the other operations\n";
}
