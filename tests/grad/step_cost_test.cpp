// What a training step costs, by the counters of reports: work backward beside work forward, memory with
// checkpoints, kernels of a norm, planning of a deep network.
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/layers.h>
#include <kiln/optim.h>
#include <kiln/report.h>

#include "allocated_bytes.h"
#include "counted.h"
#include "engine/plan.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using Tensors = std::vector<Tensor>;

FusionReport report_of(const Tensors& values) {
  const FusionRecorder recorder;
  eval(values);
  return recorder.last();
}

/// Operations on numbers in all kernels and products.
double operations_in(const FusionReport& report) {
  double total = 0;
  for (const FusionReport::Region& r : report.regions) total += r.operations;
  return total;
}

/// The gradient by all parameters takes at most five times the operations of the function.
template <class F>
void expect_little_work(const char* name, F f, const Tensors& parameters) {
  eval(parameters);
  const FusionReport forward = report_of({f(parameters)});
  auto [value, gradient] = value_and_grad(f, parameters);
  gradient.push_back(value);
  const FusionReport both = report_of(gradient);
  ASSERT_GT(operations_in(forward), 0) << name;
  EXPECT_LE(operations_in(both), 6 * operations_in(forward)) << name;
  std::printf("%s: backward %.2f x forward\n", name, operations_in(both) / operations_in(forward) - 1);
}

Tensor drawn(int seed, const Shape& shape) {
  return random::normal(random::Key(static_cast<std::uint64_t>(seed)), shape).eval();
}

/// The models of the examples, one step each.
TEST(StepCost, BackwardIsAtMostFiveTimesForward) {
  const Tensor images = drawn(1, {64, 64}), labels = random::randint(random::Key(2), {64}, 0, 10).eval();
  expect_little_work("digits_mlp",
                     [&](const Tensors& p) {
                       return nn::cross_entropy(matmul(relu(matmul(images, p[0]) + p[1]), p[2]) + p[3],
                                                labels);
                     },
                     {drawn(3, {64, 128}), drawn(4, {128}), drawn(5, {128, 10}), drawn(6, {10})});
  expect_little_work("digits_conv",
                     [&](const Tensors& p) {
                       const nn::ConvOptions same = {.padding = {1, 1}};
                       const Tensor a = relu(nn::conv(images.reshape({64, 1, 8, 8}), p[0], {}, same));
                       const Tensor b = nn::max_pool(relu(nn::conv(a, p[1], {}, same)), {2, 2});
                       return nn::cross_entropy(matmul(flatten(b, 1), p[2]), labels);
                     },
                     {drawn(7, {16, 1, 3, 3}), drawn(8, {32, 16, 3, 3}), drawn(9, {512, 10})});
  const Tensor text = random::randint(random::Key(10), {4, 32}, 0, 40).eval();
  expect_little_work("char_transformer",
                     [&](const Tensors& p) {
                       Tensor x = take(p[0], text, 0) + p[1];
                       const Tensor h = nn::layer_norm(x, p[2], p[3]);
                       const auto head = [&](const Tensor& w) {
                         return swapaxes(matmul(h, w).reshape({4, 32, 2, 32}), 1, 2);
                       };
                       const Tensor seen = nn::attention(head(p[4]), head(p[5]), head(p[6]), true);
                       x = x + swapaxes(seen, 1, 2).reshape({4, 32, 64});
                       x = x + matmul(gelu(matmul(nn::layer_norm(x, p[2], p[3]), p[7])), p[8]);
                       return nn::cross_entropy(matmul(x, p[9]), text);
                     },
                     {drawn(11, {40, 64}), drawn(12, {32, 64}), drawn(13, {64}), drawn(14, {64}),
                      drawn(15, {64, 64}), drawn(16, {64, 64}), drawn(17, {64, 64}), drawn(18, {64, 256}),
                      drawn(19, {256, 64}), drawn(20, {64, 40})});
  const Tensor at = linspace(0, 1, 400).eval(), seen = sin(at * 6).eval();
  expect_little_work(
      "lbfgs_fit",
      [&](const Tensors& p) { return mean(square(p[0] * exp(-p[1] * at) * cos(p[2] * at + p[3]) - seen)); },
      {drawn(21, {1}), drawn(22, {1}), drawn(23, {1}), drawn(24, {1})});
  const Tensor photograph = drawn(25, {96, 96});
  expect_little_work("tv_restore",
                     [&](const Tensors& p) {
                       const Tensor &x = p[0], right = roll(x, -1, 1) - x, down = roll(x, -1, 0) - x;
                       return mean(square(x - photograph)) +
                              0.1 * mean(sqrt(square(right) + square(down) + 1e-4));
                     },
                     {drawn(26, {96, 96})});
  expect_little_work("predator_prey",
                     [&](const Tensors& p) {
                       Tensor prey = full({64}, 1.5), predator = full({64}, 0.5);
                       for (int i = 0; i < 20; ++i) {
                         const Tensor met = prey * predator;
                         prey = prey + 0.05 * (p[0] * prey - p[1] * met);
                         predator = predator + 0.05 * (p[2] * met - p[3] * predator);
                       }
                       return mean(square(prey - 1) + square(predator - 1));
                     },
                     {abs(drawn(27, {64})).eval(), abs(drawn(28, {64})).eval(), abs(drawn(29, {64})).eval(),
                      abs(drawn(30, {64})).eval()});
}

/// A step of so many layers, with a checkpoint around each segment, as one plan.
FusionReport checkpointed(int layers, int segment) {
  Config two = config();
  two.num_threads = 2;  // whose caches do not hold all
  const ScopedConfig scope(two);
  const Tensor x = drawn(1, {4096, 64});
  Tensors weights;
  for (int i = 0; i < layers; ++i) weights.push_back((drawn(2 + i, {64, 64}) * 0.1f).eval());
  const auto run = [](const Tensor& h, const Tensors& w) {
    Tensor y = h;
    for (const Tensor& each : w) y = y + gelu(matmul(y, each));
    return y;
  };
  const auto loss = [&](const Tensors& w) {
    Tensor h = x;
    for (auto at = w.begin(); at != w.end(); at += segment) {
      const Tensors part(at, at + segment);
      h = segment > 1 ? checkpoint(run)(h, part) : run(h, part);
    }
    return mean(square(h));
  };
  auto [value, gradient] = value_and_grad(loss, weights);
  gradient.push_back(value);
  const FusionRecorder recorder;
  eval(gradient);
  EXPECT_EQ(recorder.reports().size(), 1u) << "the step was planned in parts";
  return recorder.last();
}
std::int64_t peak(int layers, int segment) { return checkpointed(layers, segment).after.peak_bytes; }
/// Products of the plan: those that are the same are one.
std::ptrdiff_t products(int layers, int segment) {
  return std::ranges::count(checkpointed(layers, segment).nodes, "matmul", &FusionReport::Node::op);
}

TEST(StepCost, CheckpointsMakeMemoryGrowAsTheRootOfTheDepth) {
  const auto ratio = [](std::int64_t more, std::int64_t less) {
    return static_cast<double>(more) / static_cast<double>(less);
  };
  EXPECT_GT(ratio(peak(64, 1), peak(16, 1)), 3.5);
  EXPECT_LT(ratio(peak(64, 8), peak(16, 4)), 2.7);
  EXPECT_LT(ratio(peak(64, 8), peak(64, 1)), 0.5);
  EXPECT_LT(ratio(peak(16, 4), peak(16, 1)), 0.8);
}

/// A checkpoint's function runs once more, but for the first segment, whose arguments are in memory anyway.
TEST(StepCost, CheckpointsRunTheirFunctionAgain) {
  EXPECT_EQ(products(16, 1), 16 + 31);
  EXPECT_GE(products(16, 4), 16 + 31 + 12 - 3);
}

/// Bytes a layer that planning asks for, of a step of so many layers of eleven operations each.
double planned_in(std::size_t layers, std::int64_t width) {
  const Tensor x = drawn(1, {16, width});
  const Tensors weights(layers, (drawn(2, {width, width}) * 0.1f).eval());
  const auto loss = [&](const Tensors& w) {
    Tensor h = x;
    for (const Tensor& each : w) h = h + nn::layer_norm(tanh(matmul(h, each)));
    return mean(square(h));
  };
  auto [value, gradient] = value_and_grad(loss, weights);
  gradient.push_back(value);
  const Statistics before = statistics();
  const testing::Allocated memory = testing::allocated_in([&] { eval(gradient); });
  EXPECT_EQ(statistics().plan_misses - before.plan_misses, 1u);
  return static_cast<double>(memory.bytes) / static_cast<double>(layers);
}

/// A deep step is one plan, and its work grows with its depth.
TEST(StepCost, ADeepStepIsPlannedInLinearTime) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  for (const std::size_t layers : {75, 300}) planned_in(layers, 32);  // kernels are compiled
  const double few = planned_in(75, 48), many = planned_in(300, 48);
  std::printf("plan: %.0f bytes a layer of 75, %.0f of 300\n", few, many);
  EXPECT_LT(many, 1.5 * few);  // 4 times as many where all of it is quadratic
}

/// Bytes a block that are asked for while the regions of a step with AdamW of so many residual blocks with a
/// norm are found.
double fused_in(int blocks) {
  constexpr std::int64_t kWidth = 16;
  const Tensor x = drawn(1, {8, kWidth}), w = (drawn(2, {kWidth, kWidth}) * 0.1f).eval();
  Tensors p;
  for (int i = 0; i < blocks; ++i)
    for (const Tensor& each : {ones({kWidth}).eval(), zeros({kWidth}).eval(), w, w}) p.push_back(each);
  const auto loss = [&](const Tensors& q) {
    Tensor h = x;
    for (std::size_t i = 0; i < q.size(); i += 4)
      h = h + matmul(gelu(matmul(nn::layer_norm(h, q[i], q[i + 1]), q[i + 2])), q[i + 3]);
    return mean(square(h));
  };
  optim::AdamState<Tensors> state = optim::adam_state(p);
  tree_eval(state);
  const auto [value, gradient] = value_and_grad(loss, p);
  optim::adamw(p, gradient, state);
  static std::uint64_t bytes;
  bytes = 0;
  engine::set_graph_hook([](const ir::Graph& graph) {
    const testing::Allocated memory = testing::allocated_in(
        [&] { EXPECT_GT(plan::fuse(graph, engine::planning_target()).regions.size(), 40u); });
    bytes = std::max(bytes, memory.bytes);
  });
  tree_eval(p, state, value);
  engine::set_graph_hook(nullptr);
  return static_cast<double>(bytes) / blocks;
}

/// Values of pairs of rows are looked for around each product; what is found and given up again is looked at
/// together.
TEST(StepCost, RegionsOfADeepStepAreFoundInLinearTime) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const double few = fused_in(40), many = fused_in(320);
  std::printf("fuse: %.0f bytes a block of 40, %.0f of 320\n", few, many);
  EXPECT_LT(many, 4 * few);  // 12 times as many with a look at all nodes for each product
}

/// Puts a configuration back.
class Configured {
 public:
  explicit Configured(const char* device) : before_(config()) {
    Config options = before_;
    options.device = device;
    options.null_target = "sm_90";
    options.tier = Tier::Jit;
    configure(options);
  }
  ~Configured() { configure(before_); }
  Configured(const Configured&) = delete;
  Configured& operator=(const Configured&) = delete;

 private:
  Config before_;
};

/// On a GPU the gradient of a weight runs as soon as it is the last to read an activation: memory at its peak
/// is little more than the forward pass leaves.
TEST(StepCost, GradientsOfWeightsFreeActivations) {
  const Configured on("null");
  constexpr std::int64_t kRows = 4096, kWidth = 256, kLayers = 12;
  const Tensor x = zeros({kRows, kWidth}).eval();
  const Tensors weights(2 * kLayers, zeros({kWidth, kWidth}).eval());
  const auto loss = [&](const Tensors& w) {
    Tensor h = x;
    for (std::size_t i = 0; i < w.size(); i += 2) h = h + matmul(gelu(matmul(h, w[i])), w[i + 1]);
    return mean(square(h));
  };
  auto [value, gradient] = value_and_grad(loss, weights);
  gradient.push_back(value);
  const FusionReport report = report_of(gradient);
  const std::int64_t array = kRows * kWidth * 4, results = 2 * kLayers * kWidth * kWidth * 4;
  std::printf("peak %.2f arrays a layer\n",
              static_cast<double>(report.after.peak_bytes - results) / array / kLayers);
  EXPECT_LT(report.after.peak_bytes - results, (3 * kLayers + 5) * array);
}

/// On a GPU a norm between two products of a residual network is one kernel forward, one backward, with the
/// residual's sums, and one for its parameters; nothing of it is stored in float32.
TEST(StepCost, ANormTakesThreeKernelsOfAGpu) {
  const Configured on("null");
  const auto half = DType::BFloat16;
  const Tensor in = zeros({32, 64, 384}).astype(half).eval();
  const Tensors p = {ones({384}).eval(), zeros({384}).eval(), zeros({384, 384}).eval(), zeros({384}).eval()};
  const auto loss = [&](const Tensors& q) {
    const Tensor w = q[2].astype(half), y = in + (matmul(in, w) + q[3].astype(half));
    return mean(square((y + matmul(nn::layer_norm(y, q[0], q[1]).astype(half), w)).astype(DType::Float32)));
  };
  auto [value, gradient] = value_and_grad(loss, p);
  gradient.push_back(value);
  const FusionReport report = report_of(gradient);
  const auto kinds = [&](RegionKind kind) {
    return std::ranges::count(report.regions, kind, &FusionReport::Region::kind);
  };
  EXPECT_EQ(kinds(RegionKind::Norm) + kinds(RegionKind::ResidualNorm), 2);
  for (const FusionReport::Region& r : report.regions)
    for (const std::uint32_t id : r.outputs) {
      const FusionReport::Node& n = report.node(id);
      if (n.dtype != DType::Float32) continue;
      std::int64_t elements = 1;
      for (const std::int64_t extent : n.shape) elements *= extent;
      EXPECT_LE(elements, 384 * 384) << n.op;
    }
}

/// The gradient of a layer's weight sums over all rows of all sequences: one product of arrays as they lie in
/// memory, and one copy where heads have been moved.
TEST(StepCost, GradientsOfWeightsReadActivationsWhereTheyLie) {
  const Configured on("null");
  const auto half = DType::BFloat16;
  const Tensor x = zeros({32, 256, 384}).astype(half).eval(), d = zeros({32, 256, 512}).astype(half).eval(),
               heads = zeros({32, 8, 256, 64}).astype(half).eval();
  const auto kernels = [&](const Tensor& gradient) {
    const Tensor product = matmul(reshape(x, {-1, 384}).T(), reshape(gradient, {-1, 512}));
    const FusionReport report = report_of({product});
    return std::pair(report.after.kernels, report.after.library_calls);
  };
  EXPECT_EQ(kernels(d), std::pair(0, 1));
  EXPECT_EQ(kernels(permute_dims(heads, {0, 2, 1, 3})), std::pair(1, 1));
}

}  // namespace
}  // namespace kiln
