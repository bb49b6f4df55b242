// Kernels of the user's own: values in every mode and on the default device, views as operands, several
// results, numbers, fusion around them, derivatives, names in reports, errors, threads, checks, the disk
// cache.
#include "api/expect.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "modes.h"

#include <kiln/custom_kernel.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using namespace testing;

KernelTypes like_first(const KernelTypes& in, KernelNumbers) {
  if (in.size() != 1 || in[0].dtype != DType::Float32) throw UserError("takes one float32 array");
  return {in[0]};
}

constexpr const char* kRoll = R"(
extern "C" __global__ void roll(const float* x, float* y, long long n, long long by) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[(i + by) % n];
}
)";

/// y[i] = x[(i + numbers[0]) mod n] of all elements in order. Its derivative turns the other way.
CustomKernel roll() {
  static const CustomKernel kernel = custom_kernel({
      .name = "roll",
      .results = like_first,
      .cpu =
          [](const KernelCall& call) {
            const std::int64_t n = call.in[0].numel(), by = call.numbers[0];
            const auto* x = call.in[0].as<const float>();
            auto* y = call.out[0].as<float>();
            call.parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t i = begin; i < end; ++i) y[i] = x[(i + by) % n];
            });
          },
      .cuda = {.source = kRoll,
               .function = "roll",
               .launch =
                   [](const KernelCall& call) {
                     CudaLaunch l = CudaLaunch::each(call.in[0].numel());
                     l.numbers.push_back(call.numbers[0]);
                     return l;
                   }},
      .same_bits = true,
      .backward =
          [](std::span<const Tensor> g, std::span<const Tensor>, std::span<const Tensor> in) {
            return roll().call(g, std::vector<std::int64_t>{in[0].numel() - 1});
          },
      .forward = [](std::span<const Tensor> t, std::span<const Tensor>,
                    std::span<const Tensor>) { return roll().call(t, std::vector<std::int64_t>{1}); },
  });
  return kernel;
}

constexpr const char* kExtremes = R"(
extern "C" __global__ void extremes(const float* x, double* least, int* place, bool* any, long long rows, long long n) {
  long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (row >= rows) return;
  int at = 0;
  for (int i = 1; i < n; ++i)
    if (x[row * n + i] < x[row * n + at]) at = i;
  least[row] = x[row * n + at];
  place[row] = at;
  if (row == 0) any[0] = rows > 0;
}
)";

/// Of each row of (m, n) the least element as float64 and its place as int32, and a bool of rank 0.
CustomKernel extremes() {
  static const CustomKernel kernel = custom_kernel({
      .name = "extremes",
      .results =
          [](const KernelTypes& in, KernelNumbers) {
            const Shape rows{in[0].shape[0]};
            return KernelTypes{{rows, DType::Float64}, {rows, DType::Int32}, {{}, DType::Bool}};
          },
      .cpu =
          [](const KernelCall& call) {
            const std::int64_t rows = call.in[0].shape[0], n = call.in[0].shape[1];
            const auto* x = call.in[0].as<const float>();
            for (std::int64_t row = 0; row < rows; ++row) {
              const float* const least = std::min_element(x + row * n, x + (row + 1) * n);
              call.out[0].as<double>()[row] = *least;
              call.out[1].as<std::int32_t>()[row] = static_cast<std::int32_t>(least - (x + row * n));
            }
            call.out[2].as<bool>()[0] = rows > 0;
          },
      .cuda = {.source = kExtremes,
               .function = "extremes",
               .launch =
                   [](const KernelCall& call) {
                     CudaLaunch l = CudaLaunch::each(call.in[0].shape[0]);
                     l.numbers.push_back(call.in[0].shape[1]);
                     return l;
                   }},
  });
  return kernel;
}

std::vector<float> rolled(const std::vector<float>& x, std::size_t by) {
  std::vector<float> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[(i + by) % x.size()];
  return out;
}

bool on_gpu() { return config().device.starts_with("cuda"); }

TEST(CustomKernels, RunInEveryMode) {
  in_every_mode([] {
    const Tensor x = test::data({7, 11});
    expect_equal(roll()({x}, {3}), {7, 11}, rolled(x.to_vector<float>(), 3));
    expect_equal(roll()({x * 2.0f}, {70}) + 1.0f, {7, 11},
                 (Tensor::from(rolled(x.to_vector<float>(), 70), {7, 11}) * 2.0f + 1.0f).to_vector<float>());
  });
}

TEST(CustomKernels, SeeViewsAsRowMajorArrays) {
  const Tensor x = test::data({6, 10});
  const std::vector<Tensor> views = {transpose(x), x(slice::range(1, 5), slice::range({}, {}, 3)),
                                     flip(x, Axes{0}), broadcast_to(x(0), {4, 10}), x(slice::range(2, 4))};
  for (const Tensor& view : views) {
    const Tensor stored = Tensor::from(view.to_vector<float>(), view.shape());
    expect_equal(roll()({view}, {5}), view.shape(), rolled(stored.to_vector<float>(), 5));
    const Tensor computed = view * 3.0f;  // a view of what a kernel made, and of what no kernel stores
    expect_equal(roll()({computed}, {5}), view.shape(), rolled((stored * 3.0f).to_vector<float>(), 5));
  }
}

TEST(CustomKernels, HaveSeveralResultsOfTheirOwnTypes) {
  in_every_mode([] {
    const Tensor x = test::data({5, 9});
    const std::vector<Tensor> all = extremes().call({&x, 1});
    ASSERT_EQ(all.size(), 3u);
    expect_equal(all[1], {5}, argmin(x, 1).astype(DType::Int32).to_vector<std::int32_t>());
    expect_equal(all[0], {5}, min(x, 1).astype(DType::Float64).to_vector<double>());
    expect_equal<bool>(all[2], {}, {true});
  });
}

TEST(CustomKernels, WriteResultsThatNobodyReadsElsewhere) {
  const Tensor x = test::data({5, 9});
  expect_equal(extremes().call({&x, 1})[1] + 1, {5},
               (argmin(x, 1).astype(DType::Int32) + 1).to_vector<std::int32_t>());
  expect_equal<bool>(extremes().call({&x, 1})[2], {}, {true});
}

TEST(CustomKernels, RunOnceForAllResultsThatAreHeld) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const Tensor x = test::data({5, 9});
  const std::vector<Tensor> all = extremes().call({&x, 1});
  EXPECT_EQ(test::count([&] { all[0].eval(); }).library_calls, 1u);
  EXPECT_EQ(test::count([&] { all[1].eval(); }).library_calls, 0u);
}

TEST(CustomKernels, TakeEmptyArraysAndScalars) {
  expect_equal<float>(roll()({zeros({0, 3})}, {1}), {0, 3}, {});
  expect_equal<float>(roll()({full({}, 2.5f)}, {4}), {}, {2.5f});
  const Tensor none = zeros({0, 4});
  expect_equal<bool>(extremes().call({&none, 1})[2], {}, {false});  // its first result has no elements
}

TEST(CustomKernels, EqualCallsAreOneAndOthersAreNot) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const Tensor x = test::data({64});
  EXPECT_EQ(test::count([&] { (roll()({x}, {1}) + roll()({x}, {1})).eval(); }).library_calls, 1u);
  EXPECT_EQ(test::count([&] { (roll()({x}, {1}) + roll()({x}, {2})).eval(); }).library_calls, 2u);
}

TEST(CustomKernels, PlansAreFoundAgain) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const Tensor x = test::data({64});
  const auto step = [&] {
    const CustomKernel again = custom_kernel(
        {.name = "again",
         .results = like_first,
         .cpu =
             [](const KernelCall& call) {
               const auto n = static_cast<std::size_t>(call.in[0].numel());
               std::copy_n(call.in[0].as<const float>(), n, call.out[0].as<float>());
             },
         .cuda = {
             .source =
                 "extern \"C\" __global__ void again(const float* x, float* y, long long n) { "
                 "long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = x[i]; }",
             .function = "again",
             .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }}});
    expect_equal((again({x + 1.0f}) * 2.0f), {64}, ((x + 1.0f) * 2.0f).to_vector<float>());
  };
  step();
  const test::Counted second = test::count(step);
  EXPECT_EQ(second.plan_misses, 0u);
  EXPECT_EQ(second.compiled, 0u);
}

TEST(CustomKernels, StandInsideLoops) {
  const auto one = [](const Tensor& x) { return roll()({x}, {1}); };
  Tensor x = test::data({6});
  const std::vector<Tensor> last =
      while_loop([](const std::vector<Tensor>& s) { return s[0] < 4; },
                 [&](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0] + 1, one(s[1])}; },
                 {full({}, 0, DType::Int64), x});
  expect_equal(last[1], {6}, rolled(x.to_vector<float>(), 4));
}

// ---- derivatives ----

TEST(CustomKernels, HaveTheDerivativeThatTheyAreGiven) {
  const Tensor x = test::data({8}), w = test::data({8}) * 3.0f;
  const auto loss = [&](const Tensor& v) { return sum(roll()({v * v}, {1}) * w); };
  const auto [value, gradient] = value_and_grad(loss, x);
  const Tensor turned = Tensor::from(rolled(w.to_vector<float>(), 7), {8});
  EXPECT_TRUE(allclose(gradient, 2.0f * x * turned)) << gradient;
  EXPECT_NEAR(value.item<float>(),
              sum(Tensor::from(rolled((x * x).to_vector<float>(), 1), {8}) * w).item<float>(), 1e-4f);
}

TEST(CustomKernels, DerivativesNest) {
  const CustomKernel cube = custom_kernel(
      {.name = "cube",
       .results = like_first,
       .cpu =
           [](const KernelCall& call) {
             for (std::int64_t i = 0; i < call.in[0].numel(); ++i) {
               const float x = call.in[0].as<const float>()[i];
               call.out[0].as<float>()[i] = x * x * x;
             }
           },
       .cuda = {.source = "extern \"C\" __global__ void cube(const float* x, float* y, long long n) { "
                          "long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = "
                          "x[i] * x[i] * x[i]; }",
                .function = "cube",
                .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }},
       // 3 y / x: made of the result, which must pass derivatives too
       .backward = [](std::span<const Tensor> g, std::span<const Tensor> y,
                      std::span<const Tensor> x) { return std::vector<Tensor>{g[0] * 3.0f * y[0] / x[0]}; }});
  const auto f = [&](const Tensor& x) { return sum(cube({x})); };
  const Tensor x = full({}, 2.0f);
  EXPECT_NEAR(grad(f, x).item<float>(), 12, 1e-4);
  EXPECT_NEAR(grad([&](const Tensor& v) { return sum(grad(f, v)); }, x).item<float>(), 12, 1e-4);
}

TEST(CustomKernels, ForwardMode) {
  const Tensor x = test::data({8}), t = test::data({8}) + 1.0f;
  const auto [y, dy] = jvp([](const Tensor& v) { return roll()({v * 2.0f}, {1}); }, x, t);
  EXPECT_TRUE(allclose(dy, Tensor::from(rolled(t.to_vector<float>(), 1), {8}) * 2.0f));
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(CustomKernels, WithoutADerivativeAreRefusedByName) {
  const Tensor x = test::data({2, 3});
  const std::string said =
      message_of([&] { (void)grad([](const Tensor& v) { return sum(extremes().call({&v, 1})[0]); }, x); });
  EXPECT_TRUE(
      said.starts_with("[extremes] the kernel has no derivative: its CustomKernelOptions have no backward"))
      << said;
  // a value that no derivative passes needs none
  const auto constant = [](const Tensor& v) {
    return sum(v * extremes().call(std::vector{stop_gradient(v)})[0].astype(DType::Float32)(slice::all(),
                                                                                            slice::newaxis));
  };
  EXPECT_TRUE(allclose(grad(constant, x), broadcast_to(min(x, 1, true), {2, 3})));
}

// ---- errors ----

TEST(CustomKernels, RefuseWhatTheirResultsRefuse) {
  EXPECT_TRUE(message_of([] {
                (void)roll()({zeros({2}, DType::Int32)}, {1});
              }).starts_with("[roll] takes one float32 array, called at "));
  EXPECT_TRUE(
      message_of([] { (void)roll()({Tensor()}, {1}); }).starts_with("[roll] an operand is an empty Tensor"));
  const Tensor x = zeros({2, 2});
  EXPECT_TRUE(message_of([&] { (void)extremes()({x}); }).starts_with("[extremes] has 3 results: use call()"));
  EXPECT_TRUE(message_of([&] {
                (void)roll().call(std::vector<Tensor>(9, x));
              }).starts_with("[roll] called with 9 operands and 0 numbers: at most 8 and 32"));
  const CustomKernel bad = custom_kernel(
      {.name = "bad",
       .results = [](const KernelTypes&, KernelNumbers) { return KernelTypes{{{-2}, DType::Float32}}; },
       .cpu = [](const KernelCall&) {},
       .cuda = {}});
  if (!on_gpu())
    EXPECT_NE(message_of([&] { (void)bad({x}); }).find("[bad] negative extent"), std::string::npos);
}

TEST(CustomKernels, DefinitionsAreChecked) {
  const auto no_cpu = [](CustomKernelOptions o) {
    return message_of([&] { (void)custom_kernel(std::move(o)); });
  };
  EXPECT_TRUE(no_cpu({}).starts_with("[custom_kernel] a kernel has no name"));
  EXPECT_NE(no_cpu({.name = "k"}).find("k has no function `results`"), std::string::npos);
  EXPECT_NE(no_cpu({.name = "k", .results = like_first}).find("neither a function for the CPU nor CUDA C"),
            std::string::npos);
  EXPECT_NE(no_cpu({.name = "k", .results = like_first, .cuda = {.source = "x", .function = {}}})
                .find("without the name"),
            std::string::npos);
}

TEST(CustomKernels, ErrorsOfTheFunctionNameTheKernel) {
  if (on_gpu()) GTEST_SKIP() << "a function for the CPU";
  const CustomKernel fails = custom_kernel({.name = "fails",
                                            .results = like_first,
                                            .cpu =
                                                [](const KernelCall& call) {
                                                  if (call.numbers.empty())
                                                    throw std::runtime_error("nothing to do");
                                                  (void)call.in[0].as<double>();
                                                },
                                            .cuda = {}});
  const Tensor x = test::data({3});
  EXPECT_NE(message_of([&] { fails({x}).eval(); }).find("[fails] its function threw: nothing to do"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              fails({x}, {1}).eval();
            }).find("[fails] [kernel] an array of float32 was asked for its elements as float64"),
            std::string::npos);
  expect_equal(roll()({x}, {1}), {3}, rolled(x.to_vector<float>(), 1));  // later evaluations run
}

TEST(CustomKernels, NeedCodeForTheDevice) {
  if (config().mode == Mode::Interpret) GTEST_SKIP();
  const CustomKernel other =
      on_gpu()
          ? custom_kernel(
                {.name = "host_only", .results = like_first, .cpu = [](const KernelCall&) {}, .cuda = {}})
          : custom_kernel(
                {.name = "gpu_only",
                 .results = like_first,
                 .cuda = {.source = kRoll, .function = "roll", .launch = [](const KernelCall& call) {
                            return CudaLaunch::each(call.in[0].numel());
                          }}});
  const std::string said = message_of([&] { (void)other({test::data({3})}); });
  EXPECT_TRUE(said.starts_with(on_gpu() ? "[host_only] has no CUDA C, and its operands are on cuda"
                                        : "[gpu_only] has no function for the CPU, where its operands are"))
      << said;
  // of a value that lives anywhere only the evaluation knows
  const std::string later = message_of([&] { other({arange(3, DType::Float32)}).eval(); });
  EXPECT_NE(later.find(other.name()), std::string::npos) << later;
  EXPECT_NE(later.find("custom_kernel_test.cpp"), std::string::npos) << later;
}

TEST(CustomKernels, CudaThatDoesNotCompileGivesTheCompilersLog) {
  if (!on_gpu()) GTEST_SKIP() << "CUDA C";
  const CustomKernel wrong = custom_kernel(
      {.name = "wrong",
       .results = like_first,
       .cuda = {.source = "extern \"C\" __global__ void wrong(const float* x) { undeclared = 1; }\n",
                .function = "wrong",
                .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }}});
  const std::string said = message_of([&] { wrong({test::data({3})}).eval(); });
  EXPECT_NE(said.find("[wrong] its CUDA C does not compile"), std::string::npos) << said;
  EXPECT_NE(said.find("undeclared"), std::string::npos) << said;
  EXPECT_NE(said.find("recorded at "), std::string::npos) << said;
}

TEST(CustomKernels, StrictModesNeedEqualBits) {
  Config c = config();
  c.strict = true;
  const ScopedConfig scope(c);
  const Tensor x = test::data({4, 5});
  expect_equal(roll()({x}, {2}), {4, 5}, rolled(x.to_vector<float>(), 2));
  const std::string said = message_of([&] { extremes().call({&x, 1})[0].eval(); });
  EXPECT_NE(said.find("[extremes] the strict mode needs kernels that give the same bits each time"),
            std::string::npos)
      << said;
}

// ---- what surrounds them ----

TEST(CustomKernels, WhatIsAroundThemFuses) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const FusionRecorder recorder;
  const Tensor x = test::data({32, 32});
  (exp(roll()({x * 2.0f + 1.0f}, {1})) * 0.5f).eval();
  const FusionReport r = recorder.last();
  ASSERT_TRUE(r.by_op.contains("roll") && r.by_kind.contains("hand-written kernel")) << to_text(r);
  EXPECT_EQ(r.after.kernels, 2) << to_text(r);
  EXPECT_EQ(r.after.library_calls, 1) << to_text(r);
  EXPECT_EQ(r.by_op.at("roll"), 1);
  EXPECT_EQ(r.by_kind.at("hand-written kernel"), 1) << to_text(r);
  EXPECT_EQ(std::ranges::count_if(r.boundaries,
                                  [](const auto& b) { return b.reason == FusionReason::CustomKernel; }),
            2)
      << to_text(r);
}

TEST(CustomKernels, ThreadsShareThem) {
  const Tensor x = test::data({300});
  x.eval();
  const std::vector<float> values = x.to_vector<float>();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        wrong[t] += roll()({x + 0.0f}, {static_cast<std::int64_t>(t) + 1}).to_vector<float>() !=
                    rolled(values, t + 1);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(CustomKernels, AreCheckedAgainstTheirFunctionForTheCpu) {
  Config c = config();
  c.check_diff = c.check_nan = true;
  const ScopedConfig scope(c);
  const Tensor x = test::data({20});
  expect_equal(roll()({x}, {1}) * 1.0f, {20}, rolled(x.to_vector<float>(), 1));
}

TEST(CustomKernels, CompiledCodeIsKeptOnDisk) {
  if (!on_gpu()) GTEST_SKIP() << "CUDA C";
  const TemporaryDirectory directory;
  Config c = config();
  c.cache = "rw";
  c.cache_dir = directory.path().string();
  const ScopedConfig scope(c);
  const CustomKernel kept = custom_kernel({.name = "kept",
                                           .results = like_first,
                                           .cuda = {.source = std::string(kRoll) + "// kept\n",
                                                    .function = "roll",
                                                    .launch = [](const KernelCall& call) {
                                                      CudaLaunch l = CudaLaunch::each(call.in[0].numel());
                                                      l.numbers.push_back(1);
                                                      return l;
                                                    }}});
  const Tensor x = test::data({9});
  expect_equal(kept({x}), {9}, rolled(x.to_vector<float>(), 1));
  EXPECT_GE(std::distance(std::filesystem::recursive_directory_iterator(directory.path()), {}), 1);
}

// ---- formulas ----

TEST(ElementwiseKernels, AreOrdinaryOperationsThatFuse) {
  const ElementwiseKernel swish =
      elementwise_kernel("swish", "x, beta -> s = 1 / (1 + exp(-beta * x)); x * s");
  in_every_mode([&] {
    const Tensor x = test::data({6, 7});
    EXPECT_TRUE(allclose(swish(x, 2.0f), x * sigmoid(x * 2.0f)));
  });
  if (config().mode != Mode::Lazy) return;
  const Tensor x = test::data({64, 64});
  EXPECT_EQ(test::count([&] { sum(swish(x + 1.0f, x), -1).eval(); }).launches, 1u);
  EXPECT_TRUE(allclose(grad([&](const Tensor& v) { return sum(swish(v, 1.0f)); }, x),
                       grad([](const Tensor& v) { return sum(silu(v)); }, x), 1e-4, 1e-5));
}

TEST(ElementwiseKernels, HaveCsPrecedence) {
  const auto value = [](const char* formula, std::int64_t x, std::int64_t y) {
    const Tensor a = full({}, x, DType::Int64), b = full({}, y, DType::Int64);
    return elementwise_kernel("f", formula)(a, b).astype(DType::Int64).item<std::int64_t>();
  };
#define SAME(expression) \
  EXPECT_EQ(value("x, y -> " #expression, 13, 5), std::int64_t{expression}) << #expression
  const std::int64_t x = 13, y = 5;
  SAME(x + y * 2 - 1);
  SAME((x + y) * 2 - -1);
  SAME(x - y - 3);
  SAME(x << 2 + y % 4 & 127);
  SAME((x & 4 | y ^ 2));
  SAME(x > y == true);
  SAME((x < y || x > y && y != 5));
  SAME(x > y ? x : y > 0 ? 7 : 8);
  SAME(x < y ? x : y > 0 ? 7 : 8);
  SAME(~x + !(y > 9));
  SAME(x % 7 * 2 + 3 * -2);
#undef SAME
}

TEST(ElementwiseKernels, NumbersKeepTheTensorsDtype) {
  const ElementwiseKernel f = elementwise_kernel("f", "x -> 2 * 3.5 * x + sqrt(4)");
  EXPECT_EQ(f(zeros({2}, DType::Float16)).dtype(), DType::Float16);
  expect_equal<double>(f(full({2}, 1.0, DType::Float64)), {2}, {9, 9});
  EXPECT_EQ(elementwise_kernel("g", "x -> float64(x) / 3")(zeros({2})).dtype(), DType::Float64);
  expect_equal<float>(elementwise_kernel("h", "x, y -> a = x + y; b = exp(a); a")(full({2}, 1.0f), 2.0f), {2},
                      {3, 3});
}

TEST(ElementwiseKernels, WrongFormulasNameLineAndColumn) {
  const auto said = [](const char* formula) {
    return message_of([&] { (void)elementwise_kernel("f", formula); });
  };
  EXPECT_TRUE(said("x -> x +").starts_with("[f] formula, line 1, column 9: expected a number, a name or `(`"))
      << said("x -> x +");
  EXPECT_TRUE(said("x ->\n y = x;\n y + z")
                  .starts_with("[f] formula, line 3, column 6: nothing is called z\n   y + z\n       ^"))
      << said("x ->\n y = x;\n y + z");
  EXPECT_NE(said("x -> sinus(x)").find("column 6: there is no elementwise function sinus"),
            std::string::npos);
  EXPECT_NE(said("x -> maximum(x)").find("maximum takes 2 operands, not 1"), std::string::npos);
  EXPECT_NE(said("x, x -> x").find("two parameters are called x"), std::string::npos);
  EXPECT_NE(said("x -> y = x; y = 1; y").find("y has a value already"), std::string::npos);
  EXPECT_NE(said("x -> x x").find("expected the end of the formula"), std::string::npos);
  EXPECT_NE(said("-> 1").find("a formula has parameters"), std::string::npos);
  EXPECT_NE(said("x -> 1e999").find("no number"), std::string::npos);
  EXPECT_NE(said((std::string("x -> ") + std::string(1000, '(') + "x").c_str()).find("too deep"),
            std::string::npos);
}

TEST(ElementwiseKernels, WrongOperandsNameTheKernel) {
  const ElementwiseKernel f = elementwise_kernel("f", "x, y -> x * y");
  EXPECT_TRUE(message_of([&] { (void)f(zeros({2})); }).starts_with("[f] takes 2 operands, not 1"));
  EXPECT_TRUE(message_of([&] { (void)f(zeros({2}), zeros({3})); }).starts_with("[f] "))
      << message_of([&] { (void)f(zeros({2}), zeros({3})); });
  EXPECT_TRUE(message_of([&] { (void)f(1.0f, 2.0f); }).starts_with("[f] the result is a number"))
      << message_of([&] { (void)f(1.0f, 2.0f); });
}

}  // namespace
}  // namespace kiln
