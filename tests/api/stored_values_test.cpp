// Which values evaluations store without being asked, which they forget again, and what threads share.
#include "counted.h"
#include "device/cpu/pool.h"
#include "engine/growth.h"
#include "modes.h"
#include "needs_cpu.h"
#include "record/learned_lines.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using test::data;

class StoredValues : public ::testing::Test {
 protected:
  StoredValues() {
    ir::forget_lines();
    engine::forget_growth();
  }
  ~StoredValues() override { ir::forget_lines(); }
};

TEST_F(StoredValues, AValueThatIsReadAgainIsStoredByTheSecondReader) {
  const Tensor x = data({512, 64});
  const Tensor e = exp(x);
  sum(e, -1).eval();
  EXPECT_FALSE(e.evaluated());
  max(e, -1).eval();
  EXPECT_TRUE(e.evaluated());
}

TEST_F(StoredValues, ALearnedLineStoresAtOnceAndIsForgottenWhenNobodyReadsIt) {
  const Tensor x = data({512, 64});
  const auto stored_at_once = [&](bool read_again) {
    const Tensor e = exp(x);
    sum(e, -1).eval();
    const bool stored = e.evaluated();
    if (read_again) max(e, -1).eval();
    return stored;
  };
  EXPECT_FALSE(stored_at_once(true));  // its line is learned here
  EXPECT_TRUE(stored_at_once(true));
  EXPECT_TRUE(stored_at_once(false));
  EXPECT_TRUE(stored_at_once(true));  // read: the count of unread values begins again
  EXPECT_TRUE(stored_at_once(false));
  EXPECT_TRUE(stored_at_once(false));
  EXPECT_FALSE(stored_at_once(false));
}

TEST_F(StoredValues, ReadingAStoredValueDirectlyCountsAsReading) {
  const Tensor x = data({512, 64});
  for (int i = 0; i < 6; ++i) {
    const Tensor e = exp(x);
    sum(e, -1).eval();
    EXPECT_EQ(e.evaluated(), i > 0) << i;
    EXPECT_GT(e.to_vector<float>()[3], 0);
    if (i == 0) max(e, -1).eval();
  }
}

TEST_F(StoredValues, ValuesOfNoDataAreComputedAgain) {
  const Tensor x = data({100});
  const Tensor ramp = arange(100.0f) * 2 + 1;
  for (int i = 0; i < 5; ++i) (x + ramp).eval();
  EXPECT_FALSE(ramp.evaluated());
}

TEST_F(StoredValues, RandomDrawsOfNoDataAreStored) {
  const Tensor x = data({100});
  const Tensor noise = random::normal(random::Key(7), {100});
  for (int i = 0; i < 3; ++i) (x + noise).eval();
  EXPECT_TRUE(noise.evaluated());
}

TEST_F(StoredValues, ABroadcastOfAComputedRowIsNotWrittenOut) {
  const Tensor row = exp(data({1000}));
  const Tensor wide = broadcast_to(row, {1000, 1000});
  const std::uint64_t before = cpu::pool_statistics().in_use;
  for (int i = 0; i < 4; ++i) sum(wide * (i + 1), 1).eval();
  EXPECT_LT(cpu::pool_statistics().in_use, before + 100000);
}

TEST_F(StoredValues, OneEvaluationStoresAnEighthOfTheMemoryAtMostAndNamesTheLineThatIsComputedAgain) {
  KILN_NEEDS_CPU();
  cpu::set_memory_limit(std::uint64_t{64} << 20);
  const Tensor x = data({1024, 1024});
  // 4 and 16 MiB
  const Tensor small = exp(x), e = broadcast_to(x.reshape({1024, 1, 1024}), {1024, 4, 1024}) * 2;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 40; ++i) (sum(e, {0, 1}) + sum(small, 0) * i).eval();
  const std::string said = ::testing::internal::GetCapturedStderr();
  cpu::set_memory_limit(0);
  EXPECT_TRUE(small.evaluated());
  EXPECT_FALSE(e.evaluated());
  const std::string words = "were computed again in 32 evaluations";
  const std::size_t first = said.find(words);
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(words, first + 1), std::string::npos);
  EXPECT_NE(said.find("stored_values_test.cpp:"), std::string::npos);
}

TEST_F(StoredValues, EveryEngineGivesTheSameValues) {
  const std::vector<float> want = [] {
    const testing::ModeScope scope(Mode::Interpret);
    const Tensor x = data({64, 32});
    Tensor a = x, b = x * 0.5;
    for (int i = 0; i < 6; ++i) {
      a = sin(a) + b * 0.25;
      b = matmul(a.T(), a)(0) * 0.01 + b;
    }
    return sum(a + b).to_vector<float>();
  }();
  testing::in_every_mode([&] {
    ir::forget_lines();
    const Tensor x = data({64, 32});
    Tensor a = x, b = x * 0.5;
    for (int i = 0; i < 6; ++i) {
      a = sin(a) + b * 0.25;
      b = matmul(a.T(), a)(0) * 0.01 + b;
      EXPECT_TRUE(std::isfinite(sum(a).item<float>()));
      const Tensor held = cumsum(b, 1), view = held.T();
      EXPECT_TRUE(std::isfinite(max(view).item<float>()));
      EXPECT_TRUE(std::isfinite(min(held).item<float>()));
    }
    EXPECT_NEAR(sum(a + b).to_vector<float>()[0], want[0], 0.02 * std::abs(want[0]) + 0.01);
  });
}

TEST_F(StoredValues, ValuesOfLoopBodiesAreLeftAlone) {
  const Tensor x = data({50});
  for (int i = 0; i < 5; ++i) {
    const Tensor scale = exp(x);
    const Tensors out =
        while_loop([&](const Tensors& s) { return s[1] < 5; },
                   [&](const Tensors& s) { return Tensors{s[0] * scale + x, s[1] + 1}; }, {x, Tensor(0)});
    EXPECT_TRUE(std::isfinite(sum(out[0]).item<float>()));
    EXPECT_TRUE(std::isfinite(max(scale).item<float>()));
    EXPECT_EQ(out[1].item<int>(), 5);
  }
}

TEST_F(StoredValues, ResultsThatPileUpInAListAreComputed) {
  const Tensor x = data({1000});
  std::vector<Tensor> results;
  Tensor state = x;
  for (int i = 0; i < 20; ++i) {
    state = (state * 0.5 + 1).eval();
    results.push_back(state * state);
    sum(state).eval();
  }
  int computed = 0;
  for (const Tensor& r : results) computed += r.evaluated();
  EXPECT_GE(computed, 12);
}

TEST_F(StoredValues, AnErrorOfAValueThatJoinedIsNotTheReaders) {
  Config options = config();
  options.check_bounds = true;
  const Config before = config();
  configure(options);
  const Tensor x = data({10});
  std::vector<Tensor> bad;
  Tensor state = x;
  for (int i = 0; i < 8; ++i) {
    state = (state * 0.5 + 1).eval();
    bad.push_back(kiln::take(state, Tensor::from(std::vector<std::int64_t>{3, 99})));
    EXPECT_NO_THROW(sum(state).eval());
  }
  configure(before);
}

/// Library calls of several threads that read one pending value at the same time.
std::uint64_t calls_of_threads(const Tensor& shared, int n) {
  std::atomic<int> ready{0};
  const auto counted = test::count([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < n; ++t)
      threads.emplace_back([&, t] {
        ++ready;
        while (ready < n) std::this_thread::yield();
        EXPECT_TRUE(std::isfinite(sum(shared * (t + 1)).item<float>()));
      });
    for (std::thread& t : threads) t.join();
  });
  return counted.library_calls;
}

TEST_F(StoredValues, LazyWorkThatThreadsShareIsComputedOnce) {
  const Tensor a = data({300, 300}), b = data({300, 300});
  for (int i = 0; i < 5; ++i) {
    const Tensor product = matmul(a + i, b);
    EXPECT_EQ(calls_of_threads(product, 6), 1u);
    const Tensor behind = matmul(a - i, b) + 1;
    EXPECT_EQ(calls_of_threads(behind, 6), 1u);
  }
}

TEST_F(StoredValues, ThreadsThatWaitGoOnWhenTheEvaluationFails) {
  Config options = config();
  options.check_bounds = true;
  const Config before = config();
  configure(options);
  const Tensor x = data({1000});
  for (int i = 0; i < 5; ++i) {
    const Tensor bad = kiln::take(x, Tensor::from(std::vector<std::int64_t>{1, 5000 + i}));
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        try {
          bad.eval();
        } catch (const UserError&) {
          ++failed;
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failed, 4);
  }
  configure(before);
}

}  // namespace
}  // namespace kiln
