// Many small tensors in one launch: where launches may move, and that they compute what they did.
#include "engine/group_launches.h"

#include "counted.h"
#include "device/cuda/cuda_test.h"

#include <kiln/config.h>
#include <kiln/gpu.h>

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace kiln::engine {
namespace {

/// Plans of launches alone: each with the buffers it reads and the one it writes; buffer 0 … n - 1 are
/// written before.
struct Drawn {
  Plan plan;
  std::vector<LaunchClass> classes;

  void launch(std::uint64_t kernel, std::initializer_list<std::uint32_t> reads, std::uint32_t writes,
              int most = 100) {
    Launch l;
    for (std::uint32_t r : reads) l.buffers.push_back({Place::Kind::Buffer, r, 0, false});
    l.buffers.push_back({Place::Kind::Buffer, writes, 0, true});
    l.extents = std::to_string(plan.launches.size());
    if (plan.buffers.size() <= writes) plan.buffers.resize(writes + 1, {256});
    plan.steps.push_back({Step::Kind::Launch, static_cast<std::uint32_t>(plan.launches.size())});
    plan.launches.push_back(std::move(l));
    classes.push_back({{kernel, kernel}, most});
  }
  /// "0 1 2 3 | 4": launches by their old numbers, a bar between steps.
  std::string grouped() {
    const std::vector<std::uint32_t> order = group_launches(plan, classes);
    set_lifetimes(plan);
    std::string out;
    for (const Step& s : plan.steps) {
      if (!out.empty()) out += "| ";
      for (std::uint32_t i = s.index; i < s.index + s.count; ++i) {
        EXPECT_EQ(plan.launches[i].extents, std::to_string(order[i]));
        out += plan.launches[i].extents + " ";
      }
    }
    return out;
  }
};

TEST(GroupLaunches, IndependentOnesOfAKernelBecomeOneStep) {
  Drawn d;
  for (std::uint32_t i = 0; i < 5; ++i) d.launch(7, {}, i);
  EXPECT_EQ(d.grouped(), "0 1 2 3 4 ");
}

/// A launch that writes into an argument stays behind what reads the old value, and before what reads the new
/// one.
TEST(GroupLaunches, ReadersOfAnArgumentStayOnTheirSide) {
  Drawn d;
  const auto with_argument = [&](std::uint64_t kernel, std::uint32_t arg, bool written,
                                 std::uint32_t writes) {
    d.launch(kernel, {}, writes);
    d.plan.launches.back().buffers.push_back({Place::Kind::Arg, arg, 0, written});
  };
  with_argument(7, 1, false, 0);
  with_argument(8, 1, true, 1);
  for (std::uint32_t i = 2; i < 5; ++i) with_argument(7, 1, false, i);
  EXPECT_EQ(d.grouped(), "0 | 1 | 2 | 3 | 4 ");
  EXPECT_EQ(d.plan.first_write, 1);
  EXPECT_EQ(d.plan.buffers[4].first, 1) << "allocated before the first write";
}

TEST(GroupLaunches, AFewStayAlone) {
  Drawn d;
  for (std::uint32_t i = 0; i < 3; ++i) d.launch(7, {}, i);
  EXPECT_EQ(d.grouped(), "0 | 1 | 2 ");
}

TEST(GroupLaunches, AChainStaysAChain) {
  Drawn d;
  d.launch(7, {}, 0);
  for (std::uint32_t i = 1; i < 6; ++i) d.launch(7, {i - 1}, i);
  EXPECT_EQ(d.grouped(), "0 | 1 | 2 | 3 | 4 | 5 ");
}

TEST(GroupLaunches, ChainsSideBySideAreGroupedLinkByLink) {
  Drawn d;
  for (std::uint32_t chain = 0; chain < 4; ++chain) {
    d.launch(7, {}, 2 * chain);
    d.launch(8, {2 * chain}, 2 * chain + 1);
  }
  EXPECT_EQ(d.grouped(), "0 2 4 6 | 1 3 5 7 ");
  EXPECT_EQ(d.plan.buffers[0].last, 1);
}

TEST(GroupLaunches, WhatAllReadComesFirst) {
  Drawn d;
  d.launch(1, {}, 0);
  for (std::uint32_t i = 1; i < 6; ++i) d.launch(7, {0}, i);
  EXPECT_EQ(d.grouped(), "0 | 1 2 3 4 5 ");
}

TEST(GroupLaunches, NothingMovesBeforeAReaderOfWhatItWrites) {
  Drawn d;
  d.launch(1, {}, 0);
  for (std::uint32_t i = 1; i < 5; ++i) d.launch(7, {}, i);
  d.launch(2, {0}, 5);
  d.launch(7, {}, 0);  // in place
  EXPECT_EQ(d.grouped(), "0 | 1 2 3 4 | 5 | 6 ");
}

TEST(GroupLaunches, AGroupHoldsWhatALaunchTakes) {
  Drawn d;
  for (std::uint32_t i = 0; i < 12; ++i) d.launch(7, {}, i, 5);
  EXPECT_EQ(d.grouped(), "0 1 2 3 4 | 5 6 7 8 9 | 10 | 11 ");
}

TEST(GroupLaunches, ABoundOnIntermediatesThatAreMadeEarly) {
  Drawn d;
  for (std::uint32_t i = 0; i < 9; ++i) d.launch(7, {}, i);
  for (Plan::BufferPlan& b : d.plan.buffers) b.bytes = 16 << 20;
  EXPECT_EQ(d.grouped(), "0 1 2 3 4 | 5 6 7 8 ");
  Drawn results;
  for (std::uint32_t i = 0; i < 9; ++i) results.launch(7, {}, i);
  for (Plan::BufferPlan& b : results.plan.buffers) b = {16 << 20, -1, -1, true};
  EXPECT_EQ(results.grouped(), "0 1 2 3 4 5 6 7 8 ") << "results live on anyway";
}

// ---- on a GPU, real or not ----

class GpuGroups : public testing::CudaTest {};

struct Parameter {
  Tensor value, gradient, mean;
};

std::vector<Parameter> parameters(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> out;
  int seed = 0;
  for (std::int64_t n : sizes) {
    out.push_back({test::data({n}, DType::Float32, seed), test::data({n}, DType::Float32, seed + 1),
                   test::data({n}, DType::Float32, seed + 2)});
    seed += 3;
  }
  return out;
}

std::vector<Tensor> step(const std::vector<Parameter>& all, float rate) {
  std::vector<Tensor> out;
  for (const Parameter& p : all) {
    const Tensor mean = 0.9f * p.mean + 0.1f * p.gradient;
    out.push_back(p.value - rate * mean / (sqrt(mean * mean) + 1e-8f));
    out.push_back(mean);
  }
  return out;
}

void expect_step(const std::vector<Parameter>& all, const std::vector<Tensor>& out, float rate) {
  if (!cuda::computes()) return;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto value = all[i].value.to_vector<float>(), gradient = all[i].gradient.to_vector<float>(),
               mean = all[i].mean.to_vector<float>();
    const auto got = out[2 * i].to_vector<float>(), moment = out[2 * i + 1].to_vector<float>();
    for (std::size_t k = 0; k < value.size(); ++k) {
      const float m = 0.9f * mean[k] + 0.1f * gradient[k];
      ASSERT_NEAR(moment[k], m, 1e-6) << "tensor " << i << " element " << k;
      ASSERT_NEAR(got[k], value[k] - rate * m / (std::fabs(m) + 1e-8f), 1e-5)
          << "tensor " << i << " element " << k;
    }
  }
}

TEST_F(GpuGroups, AnOptimizersStepIsOneLaunchWhateverTheSizes) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 40; ++i) sizes.push_back(4 * (1 + i * 37 % 700));
  for (const float rate : {0.25f, 0.5f}) {
    const auto all = parameters(sizes);
    std::vector<Tensor> out = step(all, rate);
    EXPECT_EQ(test::count([&] { eval(out); }).launches, 1u);
    expect_step(all, out, rate);
  }
}

TEST_F(GpuGroups, ALongRecordingOfOneIsOnePlan) {
  const auto all = parameters(std::vector<std::int64_t>(160, 8));
  std::vector<Tensor> out = step(all, 0.25f);
  const auto counted = test::count([&] { eval(out); });
  EXPECT_EQ(counted.plan_misses, 1u);
  EXPECT_EQ(counted.launches, 1u);
  expect_step(all, out, 0.25f);
}

TEST_F(GpuGroups, MoreThanATableHoldsIsSeveralLaunches) {
  const auto all = parameters(std::vector<std::int64_t>(700, 4));
  std::vector<Tensor> out;
  for (const Parameter& p : all) out.push_back(p.value + p.gradient);
  const auto counted = test::count([&] { eval(out); });
  EXPECT_GE(counted.launches, 1u);
  EXPECT_LE(counted.launches, 4u);
  if (!cuda::computes()) return;
  for (std::size_t i : {0u, 350u, 699u})
    EXPECT_FLOAT_EQ(out[i].to_vector<float>()[1],
                    all[i].value.to_vector<float>()[1] + all[i].gradient.to_vector<float>()[1]);
}

TEST_F(GpuGroups, OneKernelForEveryNumberThatFits) {
  const auto run = [](std::size_t n) {
    const auto all = parameters(std::vector<std::int64_t>(n, 16));
    std::vector<Tensor> out;
    for (const Parameter& p : all) out.push_back(p.value * 3.0f - p.gradient);
    return test::count([&] { eval(out); });
  };
  run(6);
  const auto counted = run(7);
  EXPECT_EQ(counted.compiled, 0u);
  EXPECT_EQ(counted.launches, 1u);
}

/// Two stages with counters of their own, each group's apart.
TEST_F(GpuGroups, LongReductionsShareALaunch) {
  std::vector<Tensor> in, out;
  for (int i = 0; i < 5; ++i) in.push_back(test::data({32768 + 4096 * i}, DType::Float32, i));
  for (int turn = 0; turn < 2; ++turn) {
    out.clear();
    for (const Tensor& x : in) out.push_back(sum(x * 0.5f));
    EXPECT_LE(test::count([&] { eval(out); }).launches, 2u);
    if (!cuda::computes()) continue;
    for (std::size_t i = 0; i < in.size(); ++i) {
      double total = 0;
      for (float v : in[i].to_vector<float>()) total += 0.5 * v;
      EXPECT_NEAR(out[i].item<float>(), total, 1e-2) << i;
    }
  }
}

TEST_F(GpuGroups, AThreadsCountersAreFreedWithIt) {
  const Tensor x = test::data({1 << 16}, DType::Float32, 1).eval();
  const auto evaluate = [&] { sum(x * 0.5f).eval(); };
  evaluate();
  const std::uint64_t before = memory_use(Device::cuda(0)).in_use;
  for (int t = 0; t < 3; ++t) std::thread(evaluate).join();
  EXPECT_EQ(memory_use(Device::cuda(0)).in_use, before);
}

TEST_F(GpuGroups, WhatFollowsReadsWhatTheGroupMade) {
  const auto all = parameters({4, 100, 1000, 5000, 8, 12});
  std::vector<Tensor> out;
  Tensor total = full({}, 0.0f);
  for (const Parameter& p : all) total = total + sum(p.gradient * p.gradient);
  for (const Parameter& p : all) out.push_back(p.value - p.gradient / sqrt(total));
  eval(out);
  if (!cuda::computes()) return;
  double squares = 0;
  for (const Parameter& p : all)
    for (float g : p.gradient.to_vector<float>()) squares += double{g} * g;
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_NEAR(
        out[i].to_vector<float>()[3],
        all[i].value.to_vector<float>()[3] - all[i].gradient.to_vector<float>()[3] / std::sqrt(squares),
        1e-4);
}

}  // namespace
}  // namespace kiln::engine
