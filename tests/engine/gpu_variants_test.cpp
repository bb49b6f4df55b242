// Other schedules of a GPU's regions, as adaptive mode tries them: what they compute, and which there are.
#include "device/cuda/cuda_test.h"
#include "device/cuda/driver.h"
#include "engine/plan.h"
#include "engine/plan_variants.h"
#include "modes.h"

#include <kiln/fusion_report.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace kiln {
namespace {

using Program = std::function<std::vector<Tensor>()>;

std::atomic<FusionVariant> wanted{FusionVariant::Default};

class GpuVariants : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (IsSkipped()) return;
    before_ = config();
    Config c = before_;
    c.device = "cuda";
    c.mode = Mode::Lazy;
    c.tier = Tier::Jit;
    c.adapt = Adapt::Kept;
    c.cache = "off";
    c.check_nan = c.check_diff = false;
    configure(c);
    engine::set_variant_hook([](std::span<const FusionVariant> ways) {
      const FusionVariant v = wanted;
      const bool there = ways.empty() || std::ranges::find(ways, v) != ways.end();
      return there && v != FusionVariant::Default ? std::vector{v} : std::vector<FusionVariant>{};
    });
  }
  void TearDown() override {
    if (IsSkipped()) return;
    engine::set_variant_hook(nullptr);
    wanted = FusionVariant::Default;
    configure(before_);
    engine::clear_plan_cache();
  }

  /// Small whole numbers, so that every order of additions gives the same.
  static Tensor numbers(const Shape& shape, DType type = DType::Float32) {
    std::vector<float> v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 37 % 61) - 30;
    return Tensor::from(v, shape).astype(type).eval();
  }

  struct Ran {
    std::vector<std::vector<double>> values;
    std::set<std::string> kernels;
    std::set<FusionVariant> variants;
  };
  static Ran run(const Program& program, FusionVariant variant) {
    wanted = variant;
    engine::clear_plan_cache();
    std::vector<Tensor> out = program();
    Ran ran;
    {
      const FusionRecorder recorder;
      eval(std::span<const Tensor>(out));
      for (const FusionReport::Region& r : recorder.last().regions) {
        ran.variants.insert(r.variants.begin(), r.variants.end());
        for (const FusionReport::Kernel& k : r.kernels) ran.kernels.insert(k.key);
      }
    }
    wanted = FusionVariant::Default;
    for (const Tensor& t : out) ran.values.push_back(t.astype(DType::Float64).to_vector<double>());
    return ran;
  }

  Config before_;
};

struct Case {
  FusionVariant variant;  // which gives it another kernel
  Shape shape;
  DType type;
  std::function<Tensor(const Tensor&)> program;
};

/// How near the rows of x are to the columns of y.
Tensor nearness(const Tensor& x, const Tensor& y) { return sum(abs(x.reshape({-1, x.dim(1), 1}) - y), 1); }

std::vector<Case> cases() {
  using V = FusionVariant;
  const std::int64_t more = std::max(1, cuda::device(0).sm_count / 4);  // work for all multiprocessors
  constexpr DType kF32 = DType::Float32, kF16 = DType::Float16;
  return {
      {V::SmallerBlocks, {more << 14}, kF32, [](const Tensor& x) { return x * 2.0f + 1.0f; }},
      {V::FewerLanes, {130, 64}, kF16, [](const Tensor& x) { return abs(x) - 3.0f; }},
      {V::Untiled, {70, 90}, kF32, [](const Tensor& x) { return x.T() + 1.0f; }},
      {V::RowsOnLanes, {3000, 5}, kF32, [](const Tensor& x) { return sum(x, 1); }},
      {V::RowsOnLanes, {3000, 6}, kF32, [](const Tensor& x) { return x - max(x, 1, true); }},
      {V::FewerLanes, {40, 300}, kF32, [](const Tensor& x) { return x - max(x, 1, true); }},
      {V::FewerLanes, {40, 512}, kF16, [](const Tensor& x) { return max(x, 1); }},
      {V::WholeRows, {1 << 17}, kF32, [](const Tensor& x) { return sum(x); }},
      {V::FewerLanes, {4, 1 << 15}, kF32, [](const Tensor& x) { return max(abs(x), 1); }},
      {V::Chunks, {16 * more, 1 << 15}, kF32, [](const Tensor& x) { return max(abs(x), 1); }},
      {V::WholeRows, {3000, 24}, kF32, [](const Tensor& x) { return sum(x, 0); }},
      {V::FewerLanes, {20, 3000}, kF32, [](const Tensor& x) { return sum(x, 0); }},
      {V::FewerThreads, {40, 512}, kF32, [](const Tensor& x) { return x - max(x, 1, true); }},
      {V::MoreThreads, {40, 512}, kF32, [](const Tensor& x) { return x - max(x, 1, true); }},
      {V::FewerThreads, {20, 5000}, kF32, [](const Tensor& x) { return sum(x, 1); }},
      {V::MoreThreads, {20, 500}, kF32, [](const Tensor& x) { return cumsum(x, 1); }},
      {V::FewerThreads, {20, 5000}, kF32, [](const Tensor& x) { return cumsum(x, 1); }},
      {V::FewerThreads, {900, 300}, kF16, [](const Tensor& x) { return argmax(x, 0); }},
      {V::MoreThreads, {900, 300}, kF32, [](const Tensor& x) { return x - max(x, 0, true); }},
      {V::KnownSizes, {5, 300}, kF32, [](const Tensor& x) { return cumsum(x, 1); }},
      {V::LargerBlocks, {more << 14}, kF32, [](const Tensor& x) { return tanh(sin(tanh(exp(cos(x))))); }},
      {V::KnownSizes, {300, 40}, kF32, [](const Tensor& x) { return argmax(x, 0); }},
      {V::KnownSizes, {6, 30, 20}, kF32, [](const Tensor& x) { return x - max(x, {0, 2}, true); }},
      {V::Untiled,
       {more << 9, 8},
       kF32,
       [](const Tensor& x) { return nearness(x, x(range(0, 128)).reshape({8, 128})); }},
      {V::KnownSizes, {5, 40, 40}, kF32, [](const Tensor& x) { return sum(max(x, 2), 1); }},
  };
}

Program program_of(const Case& c, const Tensor& x) {
  return [&c, x] { return std::vector<Tensor>{c.program(x)}; };
}

TEST_F(GpuVariants, AreOtherKernelsOfTheSameValues) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::string(name(c.variant)) + " of " + c.shape.str());
    const Program program = program_of(c, numbers(c.shape, c.type));
    const Ran first = run(program, FusionVariant::Default), other = run(program, c.variant);
    EXPECT_EQ(other.values, first.values);
    EXPECT_NE(other.kernels, first.kernels);
  }
}

TEST_F(GpuVariants, OfEveryProgramComputeTheSame) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Case& c : cases()) {
    const Program program = program_of(c, numbers(c.shape, c.type));
    const Ran first = run(program, FusionVariant::Default);
    for (int v = 1; v <= static_cast<int>(FusionVariant::Joined); ++v) {
      SCOPED_TRACE(std::string(name(static_cast<FusionVariant>(v))) + " of " + c.shape.str());
      EXPECT_EQ(run(program, static_cast<FusionVariant>(v)).values, first.values);
    }
  }
}

TEST_F(GpuVariants, NestsOverPairsKeepTheirMainLoop) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Tensor x = numbers({std::max(1, cuda::device(0).sm_count / 4) << 9, 8}), y = numbers({8, 128});
  const Program program = [&] { return std::vector<Tensor>{nearness(x, y)}; };
  const Ran first = run(program, FusionVariant::Default);
  EXPECT_EQ(run(program, FusionVariant::FewerThreads).kernels, first.kernels);
  EXPECT_EQ(run(program, FusionVariant::KnownSizes).kernels, first.kernels);
}

/// Counted, combined in a block's memory, added up for whole rows, and listed by row: or in the result
/// itself.
TEST_F(GpuVariants, ScattersCombineInTheResult) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  constexpr std::int64_t kMany = 20000;
  const Tensor at = (arange(kMany, DType::Int32) * 7919) % 50;
  const Tensor value = numbers({kMany}), rows = numbers({kMany, 4}), wide = numbers({kMany, 64});
  const Tensor spread = (arange(kMany, DType::Int32) * 7919) % 8000;
  for (const std::function<Tensor()>& scatter : std::vector<std::function<Tensor()>>{
           [&] { return scatter_add(zeros({50}, DType::Int32), at, 1); },
           [&] { return scatter_add(zeros({50}), at, value); },
           [&] { return scatter_add(zeros({8000, 4}), spread, rows); },
           [&] { return scatter_max(zeros({8000, 64}), spread, wide); },
       }) {
    const Program program = [&] { return std::vector<Tensor>{scatter()}; };
    const Ran first = run(program, FusionVariant::Default), other = run(program, FusionVariant::OneTable);
    EXPECT_EQ(other.values, first.values);
    EXPECT_TRUE(other.variants.contains(FusionVariant::OneTable));
  }
}

/// Selected and sorted whole, merged and by digits, keys by twos and alone: the same values.
TEST_F(GpuVariants, SortsHaveOtherWays) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  using V = FusionVariant;
  const Tensor rows = numbers({2100, 512}), line = numbers({100000}),
               halves = numbers({300, 200}, DType::Float16);
  const std::function<std::vector<Tensor>()> first = [&] {
    const TopK top = topk(rows, 16);
    return std::vector{top.values, top.indices};
  };
  struct Sorted {
    V variant;
    Program program;
  };
  for (const Sorted& s : std::vector<Sorted>{
           {V::SortAll, first},
           {V::MoreThreads, [&] { return std::vector{sort(rows, 1), argsort(rows, 1)}; }},
           {V::FewerLanes, [&] { return std::vector{sort(halves, 1)}; }},
           {V::ByDigits, [&] { return std::vector{sort(line), argsort(line)}; }},
       }) {
    SCOPED_TRACE(name(s.variant));
    const Ran plain = run(s.program, V::Default), other = run(s.program, s.variant);
    EXPECT_EQ(other.values, plain.values);
    EXPECT_TRUE(other.variants.contains(s.variant));
  }
}

/// Where bits count, only maps are varied: no order of additions changes.
TEST_F(GpuVariants, KeepBitsInTheStrictMode) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  Config c = config();
  c.strict = true;
  const ScopedConfig scope(c);
  const Tensor x = random::normal(random::Key(3), {1 << 16}).eval();
  const Program total = [x] { return std::vector<Tensor>{sum(x * 1.1f)}; };
  const Program map = [x] { return std::vector<Tensor>{exp(x) * 1.1f}; };
  const Ran sum_first = run(total, FusionVariant::Default), map_first = run(map, FusionVariant::Default);
  for (const FusionVariant v :
       {FusionVariant::FewerLanes, FusionVariant::SmallerBlocks, FusionVariant::WholeRows}) {
    const Ran sum_other = run(total, v), map_other = run(map, v);
    EXPECT_EQ(sum_other.kernels, sum_first.kernels) << name(v);
    EXPECT_EQ(sum_other.values, sum_first.values) << name(v);
    EXPECT_EQ(map_other.values, map_first.values) << name(v);
  }
}

}  // namespace
}  // namespace kiln
