// Recording without reading: loops of any length in bounded memory, with a constant number of plans and
// kernels.
#include "api/expect.h"
#include "counted.h"
#include "device/cpu/pool.h"
#include "modes.h"
#include "record/recorded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using testing::expect_near;

std::size_t live_nodes() {
  const ir::RecordLog& log = ir::recorded;
  return log.size();
}

/// n operations on x, one of seven each time in an order without a period of its own; values stay small.
Tensor body(Tensor x, int n, const Tensor& w, float number) {
  for (int k = 0; k < n; ++k) {
    switch (k * k % 11 % 7) {
      case 0: x = x * 0.5f; break;
      case 1: x = x + w; break;
      case 2: x = sin(x); break;
      case 3: x = x - number; break;
      case 4: x = x * w; break;
      case 5: x = abs(x); break;
      default: x = cos(x);
    }
  }
  return x;
}

struct Figures {
  std::uint64_t compiled, plans;
  std::size_t most_nodes = 0;
  double value;
};

Figures run_loop(int operations, int turns) {
  const Tensor w = Tensor::from(std::vector<float>(256, 0.25f));
  Tensor x = Tensor::from(std::vector<float>(256, 0.5f));
  Figures f{};
  const auto counted = test::count([&] {
    for (int i = 0; i < turns; ++i) {
      x = body(x, operations, w, static_cast<float>(i % 3) * 0.1f);
      f.most_nodes = std::max(f.most_nodes, live_nodes());
    }
    f.value = x(0).item<double>();
  });
  f.compiled = counted.compiled;
  f.plans = counted.plan_misses;
  return f;
}

double expected(int operations, int turns) {
  const double w = 0.25;
  double x = 0.5;
  for (int i = 0; i < turns; ++i)
    for (int k = 0; k < operations; ++k) switch (k * k % 11 % 7) {
        case 0: x *= 0.5; break;
        case 1: x += w; break;
        case 2: x = std::sin(x); break;
        case 3: x -= static_cast<double>(static_cast<float>(i % 3) * 0.1f); break;
        case 4: x *= w; break;
        case 5: x = std::fabs(x); break;
        default: x = std::cos(x);
      }
  return x;
}

class LongLoop : public ::testing::TestWithParam<int> {};

TEST_P(LongLoop, TakesBoundedMemoryAndAConstantNumberOfPlans) {
  const int operations = GetParam();
  clear_memory_caches();
  const Figures shorter = run_loop(operations, 2000);
  const Figures longer = run_loop(operations, 10000);
  EXPECT_NEAR(shorter.value, expected(operations, 2000), 1e-5);
  EXPECT_NEAR(longer.value, expected(operations, 10000), 1e-5);
  EXPECT_LE(longer.most_nodes, 2 * ir::kRecordedLimit + 1000);
  EXPECT_LE(shorter.plans, 8u);
  // the end of another length
  EXPECT_LE(longer.plans, 2u) << "the blocks of the shorter loop should have served";
  EXPECT_LE(longer.compiled, 40u);
}
INSTANTIATE_TEST_SUITE_P(Bodies, LongLoop, ::testing::Values(7, 70, 301),
                         [](const auto& p) { return std::to_string(p.param); });

TEST(LongTrace, ALoopInsideTheBodyMultipliesPlansByABoundedNumber) {
  Tensor x = ones({64});
  std::uint64_t early = 0;
  const auto counted = test::count([&] {
    const std::uint64_t before = statistics().plan_misses;
    for (int i = 0; i < 6000; ++i) {
      Tensor y = x;  // x is held while y moves on
      for (int k = 0; k < 40; ++k) y = y * 0.5f + 1.0f;
      x = y;
      if (i == 3000) early = statistics().plan_misses - before;
    }
  });
  EXPECT_LE(early, 80u);
  EXPECT_EQ(counted.plan_misses, early);
  EXPECT_NEAR(x(0).item<double>(), 2, 1e-6);
}

TEST(LongTrace, AListOfLossesStaysSmall) {
  const Tensor w = Tensor::from(std::vector<float>(1024, 0.25f));
  Tensor x = Tensor::from(std::vector<float>(1024, 0.5f));
  std::vector<Tensor> history;
  std::size_t most = 0;
  std::uint64_t plans_early = 0;
  const auto counted = test::count([&] {
    const std::uint64_t before = statistics().plan_misses;
    for (int i = 0; i < 10000; ++i) {
      x = body(x, 7, w, 0.1f);
      history.push_back(mean(x * x));
      most = std::max(most, live_nodes());
      if (i == 2000) plans_early = statistics().plan_misses - before;
    }
  });
  EXPECT_LE(most, 2 * ir::kRecordedLimit);
  EXPECT_LE(counted.plan_misses, plans_early);
  EXPECT_GT(counted.plan_hits, 100u);
  std::size_t computed = 0;
  for (const Tensor& t : history) computed += t.evaluated();
  EXPECT_GT(computed, 9000u);
  EXPECT_NEAR(history.back().item<double>(), history[9000].item<double>(), 1e-6);
}

TEST(LongTrace, SeveralStatesAndReductionsRepeatToo) {
  Tensor m = zeros({64}), v = zeros({64}), x = ones({64});
  const Tensor target = test::data({64});
  const auto step = [&](int i) {
    const Tensor g = 2 * (x - target) / 64.0f;
    m = 0.9f * m + 0.1f * g;
    v = 0.999f * v + 0.001f * g * g;
    const float rate = 0.1f / (1 + static_cast<float>(i) / 100);
    x = x - rate * m / (sqrt(v) + 1e-8f);
  };
  std::uint64_t early = 0;
  const auto counted = test::count([&] {
    const std::uint64_t before = statistics().plan_misses;
    for (int i = 0; i < 5000; ++i) {
      step(i);
      if (i == 1500) early = statistics().plan_misses - before;
    }
  });
  EXPECT_LE(counted.plan_misses, early);
  expect_near(x - target, std::vector<double>(64, 0.0), 1e-2);
}

TEST(LongTrace, ScalarsThatAreEqualByChanceMakeNoNewPlans) {
  Tensor x = ones({32});
  std::uint64_t state = 1, early = 0;
  const auto counted = test::count([&] {
    const std::uint64_t before = statistics().plan_misses;
    for (int i = 0; i < 20000; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      x = x * (state >> 63 ? 0.5f : 0.25f) + 1.0f;
      if (i == 6000) early = statistics().plan_misses - before;
    }
  });
  EXPECT_EQ(counted.plan_misses, early);
  const double value = x(0).item<double>();
  EXPECT_TRUE(value >= 4.0 / 3 && value <= 2) << value;
}

TEST(LongTrace, WhatIsHeldAlongTheWayHasItsValue) {
  Tensor x = zeros({8});
  std::vector<Tensor> kept;
  for (int i = 1; i <= 9000; ++i) {
    x = x + 1.0f;
    if (i % 1000 == 0) kept.push_back(x);
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i](3).item<int>(), static_cast<int>(i + 1) * 1000);
}

TEST(LongTrace, ReadingALongTraceCutsItToo) {
  clear_memory_caches();
  Tensor x = zeros({100});
  for (int i = 0; i < 1000; ++i) x = sqrt(x * x + 1.0f);
  const auto counted = test::count([&] { EXPECT_NEAR(x(5).item<double>(), std::sqrt(1000.0), 1e-3); });
  EXPECT_LE(counted.plan_misses, 3u);
  EXPECT_LE(counted.compiled, 6u);
}

/// An optimizer's step: the same operations on each of many tensors.
TEST(LongTrace, ALongEvaluationOfIndependentPeriodsIsOnePlanWhenItComesAgain) {
  constexpr std::size_t kTensors = 150;
  std::vector<Tensor> x, gradient, average(kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) {
    const auto n = static_cast<std::int64_t>(16 + i % 5);
    x.push_back(Tensor::from(std::vector<float>(static_cast<std::size_t>(n), 1)));
    gradient.push_back(Tensor::from(std::vector<float>(static_cast<std::size_t>(n), static_cast<float>(i))));
    average[i] = zeros({n}).eval();
  }
  std::uint64_t evaluations = 0;
  test::Counted last{};
  constexpr int kSteps = 6;
  for (int step = 0; step < kSteps; ++step) {
    const std::uint64_t before = statistics().evaluations;
    last = test::count([&] {
      std::vector<Tensor> all;
      for (std::size_t i = 0; i < kTensors; ++i) {
        average[i] = average[i] * 0.5f + gradient[i] * 0.5f;
        x[i] = x[i] - (average[i] / (sqrt(average[i] * average[i] + 1.0f) + 1e-3f)) * 0.25f;
        all.push_back(x[i]), all.push_back(average[i]);
      }
      eval(all);
    });
    evaluations = statistics().evaluations - before;
  }
  EXPECT_EQ(evaluations, 1u);
  EXPECT_EQ(last.plan_misses, 0u);
  EXPECT_EQ(last.launches, config().device == "cpu" ? kTensors : 1u);  // a GPU's launches are grouped
  for (const std::size_t i : {std::size_t{0}, std::size_t{7}, kTensors - 1}) {
    double at = 1, mean = 0;
    for (int step = 0; step < kSteps; ++step) {
      mean = mean * 0.5 + static_cast<double>(i) * 0.5;
      at -= mean / (std::sqrt(mean * mean + 1) + 1e-3) * 0.25;
    }
    EXPECT_NEAR(x[i](3).item<double>(), at, 1e-5) << i;
  }
}

TEST(LongTrace, IndependentPeriodsOfManyNumbersAreFewPlans) {
  const auto counted = test::count([&] {
    for (const int count : {130, 150, 170, 190, 210, 230, 250}) {
      std::vector<Tensor> all;
      for (int i = 0; i < count; ++i) {
        Tensor x = Tensor::from(std::vector<float>(16, static_cast<float>(i)));
        for (int k = 0; k < 10; ++k) x = sqrt(x + 2.0f);
        all.push_back(x);
      }
      eval(all);
    }
  });
  EXPECT_LE(counted.plan_misses, 16u);
}

TEST(LongTrace, WhatMayBeAnywhereIsComputedWithTheRest) {
  const Tensor anywhere = zeros({8}) + 1.0f, given = Tensor::from(std::vector<float>(8, 2)) + 1.0f;
  const std::uint64_t before = statistics().evaluations;
  eval({anywhere, given});
  EXPECT_EQ(statistics().evaluations, before + 1);
  EXPECT_EQ(anywhere(3).item<double>() + given(3).item<double>(), 4);
}

TEST(LongTrace, BigLeavesAreNotPiledUp) {
  Tensor total = zeros({1 << 22});  // 16 MiB
  const std::vector<float> batch(1 << 22, 1.0f);
  const std::uint64_t before = statistics().cuts;
  for (int i = 0; i < 100; ++i) total = total + Tensor::from(batch);
  EXPECT_GE(statistics().cuts - before, 2u);
  EXPECT_EQ(total(7).item<int>(), 100);
}

TEST(LongTrace, ATraceWithoutRepetitionIsLeftAlone) {
  Tensor x = Tensor::from(std::vector<float>(16, 0.5f));
  const Tensor start = x;
  std::uint64_t state = 7;
  const std::uint64_t before = statistics().cuts;
  for (int i = 0; i < 5000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    switch (state >> 61) {
      case 0: x = x + start; break;
      case 1: x = x * start; break;
      case 2: x = sin(x); break;
      case 3: x = x - start; break;
      case 4: x = abs(x); break;
      case 5: x = cos(x); break;
      case 6: x = minimum(x, start); break;
      default: x = tanh(x);
    }
  }
  EXPECT_EQ(statistics().cuts, before);
}

TEST(LongTrace, ThreadsCutTheirOwn) {
  std::vector<std::thread> threads;
  std::vector<double> found(4);
  for (std::size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] {
      Tensor x = zeros({16});
      for (int i = 0; i < 10000; ++i) x = x + static_cast<float>(t);
      found[t] = x(2).item<double>();
    });
  for (std::thread& t : threads) t.join();
  for (std::size_t t = 0; t < found.size(); ++t) EXPECT_EQ(found[t], 10000.0 * static_cast<double>(t));
}

TEST(LongTrace, ManyThreadsBeforeDoNotUnboundRecording) {
  for (int i = 0; i < 4200; ++i)  // more than there are identities of traces
    std::thread([] { EXPECT_EQ((ones({2}) + 1.0f).numel(), 2); }).join();
  const std::uint64_t before = statistics().cuts;
  Tensor x = zeros({16});
  std::size_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    x = x + 1.0f;
    most = std::max(most, live_nodes());
  }
  EXPECT_GE(statistics().cuts - before, 3u);
  EXPECT_LE(most, 2 * ir::kRecordedLimit);
  EXPECT_EQ(x(2).item<int>(), 20000);
}

TEST(LongTrace, WhatShortThreadsRecordOneAfterAnotherIsCut) {
  Tensor x = zeros({16});
  const std::uint64_t before = statistics().cuts;
  for (int t = 0; t < 200; ++t)
    std::thread([&] {
      for (int i = 0; i < 100; ++i) x = x + 1.0f;
    }).join();
  EXPECT_GE(statistics().cuts - before, 3u);
  EXPECT_EQ(x(2).item<int>(), 20000);
}

TEST(LongTrace, BigLeavesOfShortThreadsAreNotPiledUp) {
  Tensor total = zeros({1 << 22});  // 16 MiB
  const std::vector<float> batch(1 << 22, 1.0f);
  const std::uint64_t before = statistics().cuts;
  std::uint64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    std::thread([&] { total = total + Tensor::from(batch); }).join();
    most = std::max(most, cpu::pool_statistics().in_use);
  }
  EXPECT_GE(statistics().cuts - before, 2u);
  EXPECT_LE(most, ir::kLeafBytesLimit + (std::uint64_t{256} << 20));
  EXPECT_EQ(total(7).item<int>(), 100);
}

TEST(LongTrace, BigLeavesThatAnotherThreadMakesAreNotPiledUp) {
  Tensor total = zeros({1 << 22});
  const std::vector<float> batch(1 << 22, 1.0f);
  const std::uint64_t before = statistics().cuts;
  for (int i = 0; i < 100; ++i) {
    Tensor made;
    std::thread([&] { made = Tensor::from(batch); }).join();
    total = total + made;
  }
  EXPECT_GE(statistics().cuts - before, 2u);
  EXPECT_EQ(total(7).item<int>(), 100);
}

TEST(LongTrace, BigComputedLeavesAreNotPiledUp) {
  Tensor total = zeros({1 << 22});
  const std::uint64_t before = statistics().cuts;
  for (int i = 0; i < 100; ++i) {
    const Tensor batch = (ones({1 << 22}) * static_cast<float>(i % 2)).eval();
    total = total + batch;
  }
  EXPECT_GE(statistics().cuts - before, 2u);
  EXPECT_EQ(total(7).item<int>(), 50);
}

TEST(LongTrace, MemoryThatHandlesKeepIsNoReasonToCut) {
  const Tensor weights = ones({100 << 20}, DType::Int8).eval();  // every reader shows them
  Tensor more = ones({200 << 20}, DType::Int8).eval(), last;
  Tensor x = zeros({});
  const std::uint64_t before = statistics().cuts;
  for (int i = 0; i < 20; ++i) {
    x = x + weights(i) + more(i);
    last = ones({100 << 20}, DType::Int8).eval();  // memory that has nothing to do with it
  }
  EXPECT_EQ(statistics().cuts, before);
  EXPECT_EQ(x.item<int>(), 40);
}

TEST(LongTrace, ABodyOfManyOperationsIsNotCut) {
  const auto body = [](const Tensors& s) {
    Tensor x = s[0];
    for (int i = 0; i < 6000; ++i) x = x * 0.5f + 1.0f;
    return Tensors{x, s[1] + 1};
  };
  const Tensors done =
      while_loop([](const Tensors& s) { return s[1] < 2; }, body, {zeros({4}), Tensor(std::int64_t{0})});
  EXPECT_NEAR(done[0](1).item<double>(), 2, 1e-6);
}

TEST(LongTrace, HeldResultsAreNotComputedBeyondAQuarterOfTheMemoryThereIs) {
  const auto cuts = [] {
    const std::uint64_t before = statistics().cuts;
    std::vector<Tensor> held;
    Tensor x = zeros({1024});
    for (int i = 0; i < 6000; ++i) held.push_back(x = x + 1.0f);  // 24 MB
    return statistics().cuts - before;
  };
  EXPECT_GE(cuts(), 1u);
  cpu::set_memory_limit(std::uint64_t{32} << 20);
  EXPECT_EQ(cuts(), 0u);
  cpu::set_memory_limit(0);
}

TEST(LongTrace, NodesMayDieOnOtherThreads) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> handed;
    Tensor x = zeros({16});
    for (int i = 0; i < 3000; ++i) {
      x = x + 1.0f;
      if (i % 3 == 0) handed.push_back(x * 2.0f);
    }
    std::thread other([h = std::move(handed)]() mutable {
      Tensor y = zeros({16});
      for (Tensor& t : h) {
        t = Tensor();
        y = y + 1.0f;
      }
      y.eval();
    });
    for (int i = 0; i < 3000; ++i) x = x + 1.0f;
    EXPECT_EQ(x(0).item<int>(), 6000);
    other.join();
  }
}

TEST(LongTrace, EagerAndInterpretedLoopsCutNothing) {
  for (Mode mode : {Mode::Eager, Mode::Interpret}) {
    const testing::ModeScope scope(mode);
    const std::uint64_t before = statistics().cuts;
    Tensor x = zeros({4});
    for (int i = 0; i < 6000; ++i) x = x + 1.0f;
    EXPECT_EQ(x(0).item<int>(), 6000);
    EXPECT_EQ(statistics().cuts, before);
  }
}

TEST(LongTrace, WhatBelongsToABodyIsNotNoted) {
  const Tensor x = ones({4}), noted = x + 1.0f;
  const std::size_t before = ir::recorded.size();
  std::vector<Tensor> body;
  {
    const ir::UnnotedRecording scope;
    for (int i = 0; i < 10; ++i) body.push_back(x * 2.0f);
  }
  EXPECT_EQ(ir::recorded.size(), before);
  EXPECT_EQ(body[3](0).item<int>(), 2);
  EXPECT_EQ(noted(0).item<int>(), 2);
}

/// How often `word` stands in what `f` writes to stderr.
int times_said(const std::string& word, const std::function<void()>& f) {
  ::testing::internal::CaptureStderr();
  f();
  const std::string text = ::testing::internal::GetCapturedStderr();
  int times = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++times;
  return times;
}

/// Other tests may have had all the lines that are named without being asked for.
class LongTraceNotice : public ::testing::Test {
 protected:
  void log_traces() {
    Config options = before_;
    options.log_topics = {"trace"};
    configure(options);
  }
  ~LongTraceNotice() override { configure(before_); }

 private:
  const Config before_ = config();
};

TEST_F(LongTraceNotice, NamesALineOnce) {
  log_traces();
  int line = 0;
  const auto loop = [&] {
    Tensor x = zeros({4});
    for (int i = 0; i < 40000; ++i) {
      line = __LINE__ + 1;
      x = x + 1.0f;
    }
  };
  const std::string word = "recording cut at ";
  EXPECT_EQ(times_said(word, loop), 1);
  EXPECT_EQ(times_said(word, loop), 0);
}

TEST_F(LongTraceNotice, IsGivenUnaskedForAFewLines) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, in which nothing has been said
  EXPECT_EXIT(
      {
        Tensor x = zeros({4});
        for (int i = 0; i < 10000; ++i) x = x + 1.0f;
        std::exit(statistics().cuts > 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "warning: recording cut at .*long_trace_test.cpp:");
}

TEST_F(LongTraceNotice, EndsAfterAFewLines) {
  EXPECT_LE(times_said("recording cut at ",
                       [] {
                         Tensor x = zeros({4});
                         for (int i = 0; i < 4000; ++i) {
                           x = x + 1.0f;
                           x = x * 0.5f;
                           x = sin(x);
                           x = x - 1.0f;
                           x = abs(x);
                           x = cos(x);
                           x = x * 0.25f;
                           x = x + 2.0f;
                           x = x - 0.5f;
                           x = tanh(x);
                           x = minimum(x, 3.0f);
                         }
                       }),
            5);
}

}  // namespace
}  // namespace kiln
