// Adaptive mode: what is tried, when a variant is taken, that verdicts are kept, and that results stay the
// same. Most tests replace the clock of trials, so that they do not depend on the machine's speed.
#include "cache/cache_bundle.h"
#include "cache/disk_cache.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "engine/plan_variants.h"
#include "engine/trial.h"
#include "schedule/variants.h"

#include <kiln/adapt.h>
#include <kiln/fusion_report.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

namespace kiln {
namespace {

using engine::Candidate;
using engine::Decision;
using test::data;
using testing::TemporaryDirectory;

constexpr int kMostRuns = 4000;  // of a program until everything is settled

/// What the clock of trials shows.
std::atomic<FusionVariant> fast{FusionVariant::Default};
std::atomic<bool> all_fast{false};
double clock_of_one(const Candidate& c, bool challenger) {
  if (!challenger) return 1;
  return all_fast || c.choice.variant == fast ? 0.5 : 1.25;
}
double noisy_clock(const Candidate&, bool) {
  static std::mutex mutex;
  static std::mt19937 random(3);
  const std::lock_guard lock(mutex);
  return std::lognormal_distribution<double>(0, 0.2)(random);
}

class AdaptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_NEEDS_COMPILER();
    clear_memory_caches();
    Config c = before_;
    c.mode = Mode::Lazy;
    c.tier = Tier::Jit;
    c.device = "cpu";
    c.adapt = Adapt::On;
    c.cache = "off";
    c.num_threads = 2;
    c.check_diff = c.check_nan = false;
    configure(c);
    fast = FusionVariant::Default;
    all_fast = false;
    engine::set_trial_clock(clock_of_one);
  }
  void TearDown() override {
    engine::set_trial_clock(nullptr);
    engine::set_variant_hook(nullptr);
    schedule::set_schedule_hook(nullptr);
    configure(before_);
    clear_memory_caches();
  }

  /// Evaluates until an evaluation neither times nor plans anything.
  template <class F>
  static int settle(F program) {
    int quiet = 0, runs = 0;
    for (; runs < kMostRuns && quiet < 5; ++runs) {
      const Statistics a = statistics();
      eval(program());
      wait_for_compiles();
      const Statistics b = statistics();
      const bool moved = a.variant_runs != b.variant_runs || a.variants_tried != b.variants_tried ||
                         a.plan_misses != b.plan_misses;
      quiet = moved ? 0 : quiet + 1;
    }
    EXPECT_LT(runs, kMostRuns);
    return runs;
  }

  template <class F>
  static FusionReport report_of(F program) {
    const FusionRecorder recorder;
    eval(program());
    return recorder.last();
  }

  const Config before_ = config();
};

std::vector<Tensor> results(Tensor t) { return {std::move(t)}; }

TEST(AdaptDecision, NeedsFifteenPairsAndThreePercent) {
  const auto decided = [](std::size_t pairs, double before, double with) {
    return engine::decide(std::vector<double>(pairs, before), std::vector<double>(pairs, with));
  };
  EXPECT_EQ(decided(7, 2.0, 1.0), Decision::Open);
  EXPECT_EQ(decided(14, 2.0, 1.0), Decision::Open);
  EXPECT_EQ(decided(15, 2.0, 1.0), Decision::Wins);
  EXPECT_EQ(decided(15, 1.04, 1.0), Decision::Wins);
  EXPECT_EQ(decided(15, 1.02, 1.0), Decision::Loses);
  EXPECT_EQ(decided(6, 1.0, 2.0), Decision::Open);
  EXPECT_EQ(decided(7, 1.0, 2.0), Decision::Loses);
}

TEST(AdaptDecision, WhatIsFarSlowerLosesSoon) {
  EXPECT_EQ(engine::decide({1, 1, 1, 1}, {1.2, 1.3, 1.2, 1.5}), Decision::Loses);
  EXPECT_EQ(engine::decide({1, 1, 1, 1}, {1.2, 1.3, 1.05, 1.5}), Decision::Open);
  EXPECT_EQ(engine::decide({1, 1, 1}, {2, 2, 2}), Decision::Open);
  EXPECT_EQ(engine::decide({2, 2, 2, 2}, {1, 1, 1, 1}), Decision::Open);
}

TEST(AdaptDecision, ATieOfNoisyTimesSeldomWins) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> times(0, 0.3);
  int wins = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> before, with;
    Decision d = Decision::Open;
    while (d == Decision::Open) {
      before.push_back(times(random));
      with.push_back(times(random));
      d = engine::decide(before, with);
    }
    wins += d == Decision::Wins;
  }
  EXPECT_LE(wins, kTrials * 0.03);
}

TEST_F(AdaptTest, NothingIsTriedWhenItIsOff) {
  Config c = config();
  c.adapt = Adapt::Off;
  configure(c);
  const Tensor x = data({256, 512});
  const Statistics a = statistics();
  for (int i = 0; i < 40; ++i) eval(results(sum(x * x, 1)));
  EXPECT_EQ(statistics().variant_runs, a.variant_runs);
}

TEST_F(AdaptTest, AFasterScheduleIsTakenAndReported) {
  fast = FusionVariant::MoreLanes;
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(exp(x) * x + 1.0); };
  const std::vector<float> want = program()[0].to_vector<float>();
  settle(program);
  const FusionReport r = report_of(program);
  ASSERT_EQ(r.regions.size(), 1u);
  // Again and again, until there is no wider schedule.
  const std::vector<FusionVariant>& taken = r.regions[0].variants;
  ASSERT_GE(taken.size(), 2u);
  for (const FusionVariant v : taken) EXPECT_EQ(v, FusionVariant::MoreLanes);
  const double gain = std::pow(2.0, static_cast<double>(taken.size()));
  EXPECT_DOUBLE_EQ(r.regions[0].gain, gain);
  EXPECT_NE(to_text(r).find("twice as many lanes, twice as many lanes"), std::string::npos) << to_text(r);
  EXPECT_NE(to_text(r).find(": measured " + std::to_string(static_cast<int>(gain)) + ".00 times as fast"),
            std::string::npos);
  EXPECT_EQ(fusion_report_from_json(to_json(r)), r);
  EXPECT_EQ(program()[0].to_vector<float>(), want);
  bool found = false;
  for (const AdaptResult& a : adapt_results()) {
    if (a.variant != FusionVariant::MoreLanes) EXPECT_EQ(a.won, 0u) << name(a.variant);
    if (a.variant != FusionVariant::MoreLanes) continue;
    found = true;
    EXPECT_EQ(a.won, taken.size());
    EXPECT_DOUBLE_EQ(a.gain, 2.0);
  }
  EXPECT_TRUE(found);
  EXPECT_NE(to_text(adapt_results()).find("MoreLanes"), std::string::npos);
}

TEST_F(AdaptTest, AFasterWayOfALibraryCallIsTaken) {
  const Tensor rows = data({512, 64}), numbers = (arange(100000) * 7 % 97).eval();
  const auto histogram = [&](std::int64_t bins) {
    return results(scatter_add(zeros({bins}, DType::Int32), numbers, Tensor(1), 0));
  };
  struct Case {
    FusionVariant way;
    std::function<std::vector<Tensor>()> program;
  };
  const Case cases[] = {
      {FusionVariant::RowsAlone, [&] { return results(sort(rows, 1)); }},
      {FusionVariant::RowsAlone, [&] { return results(argsort(rows, 1)); }},
      {FusionVariant::OneThread, [&] { return results(argsort(rows, 1)); }},
      {FusionVariant::OneTable, [&] { return histogram(97); }},
      {FusionVariant::OwnTables, [&] { return histogram(50000); }},
      {FusionVariant::OneThread, [&] { return histogram(97); }},
      {FusionVariant::OneThread,
       [&] { return results(scatter_add(zeros({97, 3}), numbers, data({100000, 3}), 0)); }},
  };
  for (const Case& c : cases) {
    clear_memory_caches();
    fast = c.way;
    const std::vector<double> want = c.program()[0].astype(DType::Float64).to_vector<double>();
    settle(c.program);
    const FusionReport r = report_of(c.program);
    EXPECT_TRUE(
        std::ranges::any_of(r.regions, [&](const auto& x) { return x.variants == std::vector{c.way}; }))
        << name(c.way) << "\n"
        << to_text(r);
    EXPECT_EQ(c.program()[0].astype(DType::Float64).to_vector<double>(), want) << name(c.way);
  }
}

TEST_F(AdaptTest, ARegionThatIsFasterApartIsCut) {
  Config c = config();
  c.device = before_.device;  // on a GPU too
  configure(c);
  fast = FusionVariant::ReductionsApart;
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(nn::softmax(x)); };
  EXPECT_EQ(report_of(program).after.kernels, 1);
  settle(program);
  engine::clear_plan_cache();  // of the plan for that report, which was made before
  const FusionReport r = report_of(program);
  EXPECT_GT(r.after.kernels, 1);
  bool said = false;
  for (const FusionReport::Boundary& b : r.boundaries) said |= b.reason == FusionReason::MeasuredApart;
  EXPECT_TRUE(said);
}

TEST_F(AdaptTest, AVariantThatIsSlowerIsNotTaken) {
  const Tensor x = data({256, 512}), w = data({512, 128}, DType::Float32, 1);
  const Statistics a = statistics();
  settle([&] { return results(relu(matmul(nn::softmax(x), w) + 1.0)); });
  EXPECT_GT(statistics().variants_tried, a.variants_tried);
  EXPECT_EQ(statistics().variants_won, a.variants_won);
}

TEST_F(AdaptTest, ANoisyTieDoesNotSwitch) {
  engine::set_trial_clock(noisy_clock);
  const Tensor x = data({256, 512});
  const Statistics a = statistics();
  settle([&] { return results(sum(x * x, 1)); });
  EXPECT_GT(statistics().variants_tried, a.variants_tried);
  EXPECT_EQ(statistics().variants_won, a.variants_won);
}

TEST_F(AdaptTest, AllVariantsOfAUnitAreTriedOnce) {
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(sum(x * x, 1)); };
  settle(program);
  const Statistics a = statistics();
  clear_memory_caches();  // verdicts too: without a disk cache they are lost
  settle(program);
  const std::uint64_t tried = statistics().variants_tried - a.variants_tried;
  EXPECT_GT(tried, 0u);
  engine::clear_plan_cache();  // the verdicts stay
  EXPECT_LT(settle(program), 10);
  EXPECT_EQ(statistics().variants_tried - a.variants_tried, tried);
}

TEST_F(AdaptTest, VerdictsSurviveTheProcessAndShipWithABundle) {
  const TemporaryDirectory directory;
  Config c = config();
  c.cache = "rw";
  c.cache_dir = directory / "first";
  configure(c);
  fast = FusionVariant::MoreLanes;
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(exp(x) * x + 1.0); };
  settle(program);
  std::ostringstream bundle;
  {
    engine::DiskCache cache({engine::DiskCacheOptions::Mode::ReadWrite, c.cache_dir});
    engine::export_bundle(cache, bundle);
  }
  clear_memory_caches();
  const Statistics a = statistics();
  EXPECT_EQ(report_of(program).regions.at(0).variants.at(0), FusionVariant::MoreLanes);
  for (int i = 0; i < 5; ++i) eval(program());
  EXPECT_EQ(statistics().variant_runs, a.variant_runs);
  EXPECT_EQ(statistics().kernels_compiled, a.kernels_compiled);
  const std::vector<AdaptResult> kept = kept_adapt_results();
  EXPECT_FALSE(kept.empty());

  c.cache_dir = directory / "second";
  c.adapt = Adapt::Kept;
  configure(c);
  clear_memory_caches();
  {
    engine::DiskCache cache({engine::DiskCacheOptions::Mode::ReadWrite, c.cache_dir});
    std::istringstream in(bundle.str());
    engine::import_bundle(cache, in);
  }
  EXPECT_EQ(kept_adapt_results(), kept);
  const FusionReport r = report_of(program);
  EXPECT_EQ(r.regions.at(0).variants.at(0), FusionVariant::MoreLanes);
  EXPECT_EQ(r.regions.at(0).kernels.at(0).verdict, "disk");
}

TEST_F(AdaptTest, KeptVerdictsAreUsedAndNothingIsMeasured) {
  Config c = config();
  c.adapt = Adapt::Kept;
  configure(c);
  const Tensor x = data({256, 512});
  const Statistics a = statistics();
  for (int i = 0; i < 40; ++i) eval(results(sum(x * x, 1)));
  EXPECT_EQ(statistics().variant_runs, a.variant_runs);
  EXPECT_EQ(statistics().plan_misses, a.plan_misses + 1);
}

TEST_F(AdaptTest, TuningSettlesWithinOneEvaluation) {
  Config c = config();
  c.adapt = Adapt::Tune;
  configure(c);
  fast = FusionVariant::MoreLanes;
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(exp(x) * x + 1.0); };
  const std::vector<float> first = program()[0].to_vector<float>();
  const FusionReport r = report_of(program);  // of a plan for reports: settled by the verdicts
  EXPECT_EQ(r.regions.at(0).variants.at(0), FusionVariant::MoreLanes);
  const Statistics a = statistics();
  EXPECT_EQ(program()[0].to_vector<float>(), first);
  EXPECT_EQ(statistics().variant_runs, a.variant_runs);
}

TEST_F(AdaptTest, AVerdictIsReadBackWhole) {
  engine::UnitVerdict v;
  v.kind = RegionKind::Softmax;
  v.tried.push_back({FusionVariant::MoreLanes, {}, true, {1.1, 1.25, 1.5}, {2, 2.5}, {1, 2}});
  v.tried.push_back({FusionVariant::ReductionsApart, {}, false, {}, {}, {}});
  v.tried.push_back(
      {FusionVariant::KnownSizes, {FusionVariant::MoreLanes}, true, {1.1, 1.5, 1.6}, {2, 2.5}, {1, 2}});
  const auto back = engine::decode_verdict(engine::encode_verdict(v));
  ASSERT_TRUE(back);
  EXPECT_EQ(engine::encode_verdict(*back), engine::encode_verdict(v));
  EXPECT_EQ(back->schedule(), (std::vector{FusionVariant::MoreLanes, FusionVariant::KnownSizes}));
  EXPECT_EQ(back->way(), FusionVariant::Default);
  EXPECT_EQ(back->gain(), 1.25 * 1.5);
  const std::string text = engine::encode_verdict(v);
  for (std::size_t cut = 0; cut < text.size(); cut += 7)
    EXPECT_FALSE(engine::decode_verdict(text.substr(0, cut)));
  std::string other = text;
  other.replace(other.find("MoreLanes"), 9, "Unheardof");
  EXPECT_FALSE(engine::decode_verdict(other));
}

TEST_F(AdaptTest, WhatLostIsComparedAgainOnceAnotherVariantIsTaken) {
  using V = FusionVariant;
  engine::UnitVerdict v;
  const Interval clear{0.5, 0.6, 0.7}, close{0.9, 0.98, 1.01}, won{1.1, 1.2, 1.3};
  v.tried.push_back({V::FewerLanes, {}, false, clear, {1}, {2}});
  v.tried.push_back({V::LargerBlocks, {}, false, close, {1}, {1}});
  v.tried.push_back({V::ReductionsApart, {}, false, close, {1}, {1}});
  EXPECT_TRUE(v.knows(V::FewerLanes) && v.knows(V::LargerBlocks) && v.knows(V::ReductionsApart));
  EXPECT_FALSE(v.knows(V::KnownSizes));
  v.tried.push_back({V::KnownSizes, {}, true, won, {2}, {1}});
  EXPECT_TRUE(v.knows(V::FewerLanes)) << "it was much slower";
  EXPECT_FALSE(v.knows(V::LargerBlocks)) << "it may gain now";
  EXPECT_TRUE(v.knows(V::ReductionsApart)) << "ways are tried once";
  EXPECT_EQ(v.in_force(V::LargerBlocks), std::vector{V::KnownSizes});
  EXPECT_TRUE(v.in_force(V::ReductionsApart).empty());
  // What another process won against another schedule is not in force.
  v.tried.push_back({V::PastCaches, {V::MoreLanes}, true, won, {2}, {1}});
  EXPECT_EQ(v.schedule(), std::vector{V::KnownSizes});
}

/// One variant after the other: each on top of those that were taken.
TEST_F(AdaptTest, VariantsOfOneScheduleAreTakenTogether) {
  all_fast = true;
  const Tensor x = data({256, 512});
  const auto program = [&] { return results(exp(x) * x + 1.0); };
  const std::vector<float> want = program()[0].to_vector<float>();
  settle(program);
  engine::clear_plan_cache();
  const FusionReport r = report_of(program);
  ASSERT_FALSE(r.regions.empty());
  bool several = false;
  for (const FusionReport::Region& region : r.regions) several |= region.variants.size() > 1;
  EXPECT_TRUE(several) << to_text(r);
  const std::vector<float> now = program()[0].to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(now[i], want[i], 1e-5);
}

using Recorded = std::vector<Tensor> (*)();
const std::vector<Recorded>& programs() {
  static const std::vector<Recorded> all = {
      [] { return results(exp(data({300, 500})) * 3.0 + 1.0); },
      [] { return results(sum(data({37, 4000}) * 2.0, 1)); },
      [] { return results(sum(data({2000, 70}), 0)); },
      [] { return results(nn::softmax(data({64, 1000}))); },
      [] {
        return results(nn::layer_norm(data({40, 900}, DType::BFloat16), data({900}, DType::BFloat16),
                                      data({900}, DType::BFloat16)));
      },
      [] { return results(cumsum(data({30, 3000}), 1) + 1.0); },
      [] { return results(data({200, 300}).T() * 2.0 + data({300, 200})); },
      [] { return results(gelu(matmul(data({50, 60}), data({60, 70})) + data({70}))); },
      [] {
        const Tensor x = data({100, 200});
        return std::vector{sum(x, 0), sum(x, 1), x * 2.0};
      },
      // Library calls: rows side by side, partitions and digits, the first of rows, lists and tables.
      [] { return std::vector{sort(data({64, 300}), 1), argsort(data({64, 300}, DType::Float16), 1)}; },
      [] { return std::vector{sort(data({5000})), argsort(data({5000}, DType::Int64))}; },
      [] {
        const auto first = topk(data({10, 3000}), 5), second = topk(data({2, 9000}), 700);
        return std::vector{first.values, first.indices, second.values, second.indices};
      },
      [] {
        const Tensor at = (arange(2000, DType::Int32) * 7919) % 500;
        return std::vector{
            scatter_add(data({500, 300}), at, data({2000, 300}), 0),
            scatter_add(data({500, 3}, DType::Float16), at, data({2000, 3}, DType::Float16), 0),
            scatter_add(zeros({500}, DType::Int32), at, Tensor(1), 0),
            scatter_add(zeros({40}, DType::Int32), at % 40, Tensor(1), 0),
            scatter_max(zeros({500}, DType::Int32), at, at, 0)};
      },
  };
  return all;
}

/// Of evaluated tensors of at most 32 bits.
std::vector<std::vector<float>> values_of(std::vector<Tensor> tensors) {
  eval(tensors);
  std::vector<std::vector<float>> out;
  for (const Tensor& t : tensors) out.push_back(t.astype(DType::Float32).to_vector<float>());
  return out;
}

/// Every variant wins, one after the other: the bits of each evaluation are those of the first.
TEST_F(AdaptTest, StrictAndDeterministicModesKeepTheirBits) {
  all_fast = true;
  for (const bool strict : {true, false}) {
    Config c = config();
    c.strict = strict;
    c.deterministic = !strict;
    configure(c);
    for (std::size_t p = 0; p < programs().size(); ++p) {
      SCOPED_TRACE(p);
      c.adapt = Adapt::Off;
      configure(c);
      const auto want = values_of(programs()[p]());
      c.adapt = Adapt::On;
      configure(c);
      int runs = 0;
      settle([&] {
        std::vector<Tensor> made = programs()[p]();
        eval(made);
        if (++runs % 5 == 0) EXPECT_EQ(values_of(made), want);
        return made;
      });
      EXPECT_EQ(values_of(programs()[p]()), want);
    }
  }
  EXPECT_GT(statistics().variants_won, 0u);
}

TEST_F(AdaptTest, HeldValuesArePublishedTheSameInEveryTurn) {
  all_fast = true;
  const Tensor x = data({128, 512});
  for (int i = 0; i < 300; ++i) {
    const Tensor m = max(x, 1, true), e = exp(x - m), s = sum(e, 1, true);
    Tensor y = e / s;
    y.eval();
    ASSERT_NEAR(y.to_vector<float>()[1541], (e / s).to_vector<float>()[1541], 1e-6);
  }
}

TEST_F(AdaptTest, ThreadsShareATrial) {
  Config c = config();
  c.deterministic = true;  // every variant has the same bits
  configure(c);
  fast = FusionVariant::MoreLanes;
  const Tensor x = data({256, 512});
  const std::vector<float> want = (exp(x) * x + 1.0).to_vector<float>();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 150; ++i)
        if ((exp(x) * x + 1.0).to_vector<float>() != want) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  const auto program = [&] { return results(exp(x) * x + 1.0); };
  settle(program);
  EXPECT_EQ(report_of(program).regions.at(0).variants.at(0), FusionVariant::MoreLanes);
}

TEST_F(AdaptTest, UpdatesInPlaceStayRight) {
  all_fast = true;
  Tensor x = full({1 << 10, 1 << 10}, 0.0);
  x.eval();
  constexpr int kSteps = 150;
  for (int i = 0; i < kSteps; ++i) {
    x = slice_update(x, {Slice(5, 9)}, x(Slice(5, 9)) + 1.0);
    x.eval();
  }
  const std::vector<float> now = x.to_vector<float>();
  EXPECT_EQ(now[5 << 10], kSteps);
  EXPECT_EQ(now[(9 << 10) - 1], kSteps);
  EXPECT_EQ(now[9 << 10], 0);
}

/// A schedule that is made bad on purpose, by the real clock: two lanes for long code.
TEST_F(AdaptTest, ABadScheduleIsLeft) {
  engine::set_trial_clock(nullptr);
  schedule::set_schedule_hook([](const schedule::Facts&, schedule::Schedule& s) {
    if (s.form == schedule::Form::Flat) s.lanes = 2;
  });
  Config c = config();
  c.adapt = Adapt::Tune;
  c.num_threads = 1;
  c.deterministic = true;  // schedules alone
  configure(c);
  const Tensor x = data({1 << 15});
  const auto program = [&] { return results(exp(sin(exp(sin(x))))); };
  eval(program());
  const FusionReport r = report_of(program);
  const std::vector<FusionVariant>& taken = r.regions.at(0).variants;
  ASSERT_FALSE(taken.empty());
  EXPECT_TRUE(taken[0] == FusionVariant::MoreLanes || taken[0] == FusionVariant::FourTimesLanes)
      << name(taken[0]);
  EXPECT_GT(r.regions.at(0).gain, engine::kLeastGain);
}

/// Any variant of any region computes the same.
TEST_F(AdaptTest, EveryVariantIsRight) {
  static std::atomic<int> wanted;
  Config c = config();
  c.adapt = Adapt::Kept;
  configure(c);
  engine::set_variant_hook([](std::span<const FusionVariant> ways) {
    const auto v = static_cast<FusionVariant>(wanted.load());
    const bool there = ways.empty() || std::ranges::find(ways, v) != ways.end();
    return there ? std::vector{v} : std::vector<FusionVariant>{};
  });
  for (const Recorded program : programs()) {
    wanted = 0;
    const std::vector<Tensor> first = program();
    for (int v = 1; v <= static_cast<int>(FusionVariant::Joined); ++v) {
      SCOPED_TRACE(name(static_cast<FusionVariant>(v)));
      wanted = v;
      engine::clear_plan_cache();
      const std::vector<Tensor> now = program();
      for (std::size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(allclose(now[i].astype(DType::Float32), first[i].astype(DType::Float32), 1e-2, 1e-3));
    }
  }
}

}  // namespace
}  // namespace kiln
