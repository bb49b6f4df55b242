// Cycles per 16 floats of the Float32 functions, and of expressions that stand for fused kernels: each
// compiled by the CPU backend as one vector loop over arrays that stay in the first cache. The clock is the
// rate at which a chain of additions runs, measured beside each. MICRO_ASSEMBLY=1 prints the code.
#include "device/cpu/jit.h"
#include "kernel/kernel.h"
#include "math/math.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

namespace {

using kiln::DType;
using kiln::kernel::E;
namespace kernel = kiln::kernel;
namespace math = kiln::lower::math;

constexpr std::int64_t kCount = 2048;

/// for i in lanes: out[i] = f(a[i], b[i], c[i])
kernel::Kernel elementwise(const std::function<E(E, E, E)>& f, int lanes) {
  kernel::Kernel k;
  k.n_vars = k.n_params = 1;
  kernel::LoopDecl loop;
  loop.kind = kernel::LoopKind::Vector;
  loop.lanes = static_cast<std::uint16_t>(lanes);
  kernel::ExprNode extent{kernel::Prim::Param, DType::Int64}, index{kernel::Prim::Var, DType::Int64};
  loop.extent = k.pool.intern(extent);
  const kernel::ExprId i = k.pool.intern(index);
  E in[3];
  for (std::uint64_t b = 0; b < 3; ++b) {
    k.buffers.push_back({kernel::BufferDecl::Role::In, DType::Float32, 64});
    kernel::ExprNode load{kernel::Prim::Load, DType::Float32, i};
    load.imm = b;
    in[b] = {&k.pool, k.pool.intern(load)};
  }
  k.buffers.push_back({kernel::BufferDecl::Role::Out, DType::Float32, 64});
  loop.body.push_back({kernel::Stmt::Kind::Store, 3, i, f(in[0], in[1], in[2]).id});
  k.loops.push_back(loop);
  k.body.push_back({kernel::Stmt::Kind::Loop, 0});
  return k;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Core cycles a second: a chain of additions takes one each.
double clock_rate() {
  double best = 0;
  for (int run = 0; run < 20; ++run) {
    constexpr std::int64_t kSteps = 1 << 20;
    std::uint64_t x = 1;
    const double start = seconds();
    for (std::int64_t i = 0; i < kSteps; ++i) asm volatile("add %0, %0" : "+r"(x));
    best = std::max(best, static_cast<double>(kSteps) / (seconds() - start));
  }
  return best;
}

void run(benchmark::State& state, const std::function<E(E, E, E)>& f, float low, float high) {
  const kiln::cpu::CpuTarget target = kiln::cpu::host_target();
  const kernel::Kernel k = elementwise(f, target.vector_bytes / 4);
  if (std::getenv("MICRO_ASSEMBLY")) std::puts(kiln::cpu::assembly_text(k, "f", target).c_str());
  const kiln::cpu::MachineCode e = kiln::cpu::load(kiln::cpu::compile(k, "f", target), "f");
  std::mt19937 gen(1);
  std::uniform_real_distribution<float> any(low, high);
  alignas(64) static float memory[4][kCount];
  for (int b = 0; b < 3; ++b)
    for (float& v : memory[b]) v = any(gen);
  void* const buffers[] = {memory[0], memory[1], memory[2], memory[3]};
  const std::int64_t params[] = {kCount};
  const kernel::Frame frame{buffers, params, nullptr};
  double best = HUGE_VAL;
  for (auto _ : state) {
    const double start = seconds();
    for (int repeat = 0; repeat < 16; ++repeat) e.body(&frame, 0, 1, nullptr);
    best = std::min(best, (seconds() - start) / 16);
  }
  state.counters["cycles/16"] = best * clock_rate() / (kCount / 16);
  state.counters["ns/float"] = best * 1e9 / kCount;
}

struct Case {
  const char* name;
  std::function<E(E, E, E)> f;
  float low, high;
};

E erf_cdf(E d) { return fma(math::erf(d * 0x1.6a09e667f3bcdp-1), d.lit(0.5), d.lit(0.5)); }

/// Call price: spot a, strike b, time c; rate 0.02, volatility 0.3.
E black_scholes(E s, E k, E t) {
  const E width = sqrt(t) * 0.3;
  const E d1 = (math::log(s / k) + t * (0.02 + 0.3 * 0.3 / 2)) / width;
  return s * erf_cdf(d1) - k * math::exp(t * -0.02) * erf_cdf(d1 - width);
}

const Case kCases[] = {
    {"exp", [](E a, E, E) { return math::exp(a); }, -10, 10},
    {"exp2", [](E a, E, E) { return math::exp2(a); }, -10, 10},
    {"log", [](E a, E, E) { return math::log(a); }, 0.1f, 10},
    {"log2", [](E a, E, E) { return math::log2(a); }, 0.1f, 10},
    {"tanh", [](E a, E, E) { return math::tanh(a); }, -3, 3},
    {"sigmoid", [](E a, E, E) { return math::sigmoid(a); }, -3, 3},
    {"erf", [](E a, E, E) { return math::erf(a); }, -3, 3},
    {"gelu", [](E a, E, E) { return math::gelu(a); }, -3, 3},
    {"gelu_tanh", [](E a, E, E) { return math::gelu_tanh(a); }, -3, 3},
    {"silu", [](E a, E, E) { return math::silu(a); }, -3, 3},
    {"sin", [](E a, E, E) { return math::sin(a); }, -3, 3},
    {"sqrt", [](E a, E, E) { return sqrt(a); }, 0.1f, 3},
    {"div", [](E a, E b, E) { return a / b; }, 0.1f, 3},
    {"relu", [](E a, E, E) { return max(a.lit(0), a); }, -3, 3},
    {"chain10",
     [](E a, E b, E) {
       return fma(max(a.lit(0), a), a.lit(0.5), math::tanh(fma(a, b, a.lit(1))) * math::sigmoid(a - b)) -
              abs(b);
     },
     -2, 2},
    {"black_scholes", black_scholes, 0.5f, 2},
};

const int kRegistered = [] {
  for (const Case& c : kCases)
    benchmark::RegisterBenchmark((std::string("function/") + c.name).c_str(), [&c](benchmark::State& s) {
      run(s, c.f, c.low, c.high);
    })->Unit(benchmark::kMicrosecond);
  return 0;
}();

}  // namespace
