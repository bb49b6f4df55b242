// Loops that carry state and read little of it: after a few iterations each one does the same work, finds its
// plan and keeps the same memory, although nobody calls eval on the state.
#include "counted.h"
#include "device/cpu/pool.h"
#include "engine/growth.h"
#include "lattice_boltzmann.h"
#include "modes.h"
#include "record/learned_lines.h"
#include "record/recorded.h"

#include <kiln/random.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using test::data;

constexpr int kSettled = 6;  // iterations until a loop is steady

/// What one iteration did and what was there after it.
struct Iteration {
  std::uint64_t work, misses, bytes;
  std::size_t pending;
  bool operator==(const Iteration&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Iteration& i) {
  return out << "work " << i.work << ", plan misses " << i.misses << ", bytes " << i.bytes << ", pending "
             << i.pending;
}

Iteration run_one(const std::function<void()>& body) {
  const auto counted = test::count(body);
  return {counted.launches + counted.library_calls, counted.plan_misses, cpu::pool_statistics().in_use,
          ir::recorded.alive};
}

std::string all_of(const std::vector<Iteration>& seen) {
  std::ostringstream out;
  for (const Iteration& i : seen) out << "\n  " << i;
  return out.str();
}

/// Runs the body many times and expects iterations after the first few to be alike, `period` by `period`.
/// `kept`: bytes that the program itself keeps of every iteration.
void expect_steady(const std::function<void(int)>& body, int period = 1, std::uint64_t kept = 0) {
  ir::forget_lines();
  engine::forget_growth();
  clear_memory_caches();
  std::vector<Iteration> seen;
  for (int i = 0; i < 8 * period + kSettled; ++i) {
    seen.push_back(run_one([&] { body(i); }));
    seen.back().bytes -= std::min(seen.back().bytes, kept * static_cast<std::uint64_t>(i));
  }
  for (std::size_t i = static_cast<std::size_t>(kSettled + period); i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].misses, 0u) << "iteration " << i << all_of(seen);
    EXPECT_EQ(seen[i], seen[i - static_cast<std::size_t>(period)]) << "iteration " << i << all_of(seen);
  }
}

/// A linear model by Adam, written by hand.
struct Adam {
  Tensor x, y, w, m, v;
  explicit Adam(int seed = 0)
      : x(data({64, 16}, DType::Float32, seed)),
        y(data({64, 1}, DType::Float32, seed + 1)),
        w(data({16, 1}, DType::Float32, seed + 2)),
        m(zeros({16, 1})),
        v(zeros({16, 1})) {}

  struct Step {
    Tensor prediction, error, loss, gradient;
  };
  Step forward() const {
    Step s;
    s.prediction = matmul(x, w);
    s.error = s.prediction - y;
    s.loss = mean(s.error * s.error);
    s.gradient = matmul(x.T(), s.error) * (2.0 / 64);
    return s;
  }
  void update(const Tensor& gradient, int t) {
    m = m * 0.9 + gradient * 0.1;
    v = v * 0.999 + gradient * gradient * 0.001;
    const Tensor m_hat = m / (1 - std::pow(0.9, t + 1));
    const Tensor v_hat = v / (1 - std::pow(0.999, t + 1));
    w = w - m_hat * 0.05 / (sqrt(v_hat) + 1e-8);
  }
};

/// The same in plain C++, for the loss after n steps.
double adam_loss(int steps) {
  const std::vector<float> x = data({64, 16}).to_vector<float>(),
                           y = data({64, 1}, DType::Float32, 1).to_vector<float>();
  const std::vector<float> first = data({16, 1}, DType::Float32, 2).to_vector<float>();
  std::vector<double> w(first.begin(), first.end()), m(16), v(16);
  double loss = 0;
  for (int t = 0; t < steps; ++t) {
    std::vector<double> error(64), g(16);
    loss = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      error[i] = -static_cast<double>(y[i]);
      for (std::size_t k = 0; k < 16; ++k) error[i] += static_cast<double>(x[i * 16 + k]) * w[k];
      loss += error[i] * error[i] / 64;
    }
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t i = 0; i < 64; ++i) g[k] += static_cast<double>(x[i * 16 + k]) * error[i] * 2 / 64;
      m[k] = m[k] * 0.9 + g[k] * 0.1;
      v[k] = v[k] * 0.999 + g[k] * g[k] * 0.001;
      w[k] -=
          m[k] / (1 - std::pow(0.9, t + 1)) * 0.05 / (std::sqrt(v[k] / (1 - std::pow(0.999, t + 1))) + 1e-8);
    }
  }
  return loss;
}

TEST(CarriedState, AdamThatReadsOnlyTheLossAfterItsStep) {
  Adam a;
  double loss = 0;
  expect_steady([&](int t) {
    const Adam::Step s = a.forward();
    a.update(s.gradient, t);
    loss = s.loss.item<float>();
  });
  EXPECT_NEAR(loss, adam_loss(14), 1e-4);
}

TEST(CarriedState, AdamThatReadsOnlyTheLossBeforeItsStep) {
  Adam a;
  double loss = 0;
  expect_steady([&](int t) {
    const Adam::Step s = a.forward();
    loss = s.loss.item<float>();
    a.update(s.gradient, t);
  });
  EXPECT_NEAR(loss, adam_loss(14), 1e-4);
}

TEST(CarriedState, AnOptimizerThatPrintsEveryTenthStep) {
  Adam a;
  double loss = 0;
  expect_steady([&](int i) {
    for (int k = 0; k < 10; ++k) {
      const Adam::Step s = a.forward();
      a.update(s.gradient, 10 * i + k);
      if (k == 9) loss = s.loss.item<float>();
    }
  });
  EXPECT_NEAR(loss, adam_loss(140), 1e-4);
}

TEST(CarriedState, MomentumOfElementsAlone) {
  const Tensor target = data({4096});
  Tensor w = zeros({4096}), m = zeros({4096});
  double loss = 0;
  expect_steady([&](int) {
    const Tensor d = w - target;
    loss = sum(d * d).item<float>();
    m = m * 0.5 + d;
    w = w - m * 0.1;
  });
  EXPECT_GT(loss, 0);
}

TEST(CarriedState, AccumulatedGradients) {
  Adam a;
  expect_steady([&](int t) {
    Tensor total;
    for (int k = 0; k < 4; ++k) {
      const Adam::Step s = a.forward();
      total = k == 0 ? s.gradient : total + s.gradient;
      EXPECT_GT(s.loss.item<float>(), 0);
    }
    a.update(total / 4, t);
  });
}

TEST(CarriedState, TwoModelsInTurn) {
  Adam a(0), b(7);
  expect_steady([&](int t) {
    const Adam::Step first = a.forward();
    a.update(first.gradient + mean(b.w), t);
    EXPECT_GT(first.loss.item<float>(), 0);
    const Adam::Step second = b.forward();
    b.update(second.gradient + mean(a.w), t);
    EXPECT_GT(second.loss.item<float>(), 0);
  });
}

TEST(CarriedState, ARunningAverageThatIsReadAtTheEnd) {
  Adam a;
  Tensor average = zeros({16, 1});
  expect_steady([&](int t) {
    const Adam::Step s = a.forward();
    a.update(s.gradient, t);
    average = average * 0.9 + a.w * 0.1;
    EXPECT_GT(s.loss.item<float>(), 0);
  });
  EXPECT_TRUE(std::isfinite(sum(average).item<float>()));
}

/// Sums are computed as they pile up.
void expect_sums_joined() {
  Tensor now = data({64, 96}), total = zeros({64, 96});
  const std::size_t before = ir::recorded.alive;
  for (int step = 0; step < 12; ++step) {
    now = now - 0.1f * tanh(now);
    total = total + now;
    EXPECT_TRUE(std::isfinite(mean(now).item<float>()));
  }
  EXPECT_LT(ir::recorded.alive, before + 10);
}

/// Threads compute what another one recorded, which that one does not see: it counts such values as pending,
/// looks for what piles up, and finds nothing. It goes on looking.
TEST(CarriedState, ARunningSumAfterThreadsSharedValues) {
  engine::forget_growth();
  for (int round = 0; round < 60; ++round) {
    const Tensor x = data({32, 32}, DType::Float32, round), changed = x * 2, total = sum(x, 1);
    std::vector<std::thread> threads;
    for (const Tensor& shared : {changed, total})
      threads.emplace_back([mine = shared] { EXPECT_TRUE(std::isfinite(sum(mine).item<float>())); });
    for (std::thread& t : threads) t.join();
    EXPECT_TRUE(std::isfinite(sum(x).item<float>()));
  }
  expect_sums_joined();
}

/// Values of no device (draws) are not computed on the way: looks for them are in vain. When they are gone,
/// sums may pile up.
TEST(CarriedState, ARunningSumAfterLooksInVain) {
  engine::forget_growth();
  const Tensor x = data({16});
  {
    std::vector<Tensor> counters;
    for (int step = 0; step < 300; ++step) {
      counters.push_back(random::uniform(random::Key(static_cast<std::uint64_t>(step)), {16}));
      EXPECT_TRUE(std::isfinite(sum(x * 2).item<float>()));
    }
  }
  expect_sums_joined();
}

TEST(CarriedState, NewtonWithAHeldHistory) {
  const Tensor a = abs(data({1000})) + 1;
  Tensor x = ones({1000});
  std::vector<Tensor> history{x};
  expect_steady(
      [&](int) {
        x = (x + a / x) * 0.5;
        history.push_back(x);
        EXPECT_TRUE(std::isfinite(max(abs(history.back() - history[history.size() - 2])).item<float>()));
      },
      1, 4096);
  EXPECT_LT(max(abs(x * x - a)).item<float>(), 1e-5);
}

TEST(CarriedState, KMeans) {
  const Tensor points = data({2000, 4});
  Tensor centres = points(range(0, 8));
  double before = 1e30;
  expect_steady([&](int) {
    const Tensor difference = points.reshape({2000, 1, 4}) - centres.reshape({1, 8, 4});
    const Tensor distance = sum(difference * difference, -1);
    const Tensor nearest = argmin(distance, 1);
    const Tensor member = one_hot(nearest, 8);
    centres = matmul(member.T(), points) / maximum(sum(member, 0).reshape({8, 1}), 1.0);
    const double inertia = sum(min(distance, 1)).item<float>();
    EXPECT_LE(inertia, before * 1.0001);
    before = inertia;
  });
}

TEST(CarriedState, ACacheThatIsUpdatedEveryStep) {
  const Tensor weights = data({32, 32});
  Tensor cache = zeros({64, 32});
  const Tensor rows = arange(64).reshape({64, 1});
  Tensor token = data({1, 32});
  int t = 0;
  expect_steady([&](int) {
    const Tensor key = matmul(token, weights);
    cache = where(rows == t, key, cache);
    const Tensor scores = matmul(cache, key.T()) + where(rows <= t, Tensor(0.f), Tensor(-1e9f));
    const Tensor attended = matmul(nn::softmax(scores, 0).T(), cache);
    token = attended / (1e-3 + sqrt(mean(attended * attended)));
    EXPECT_GE(argmax(token).item<std::int64_t>(), 0);
    ++t;
  });
}

TEST(CarriedState, LatticeBoltzmannThatReadsItsMass) {
  test::LatticeBoltzmann flow;
  const double before = sum(flow.f[0] + flow.f[3]).item<float>();
  double mass = 0;
  expect_steady([&](int) {
    flow.step();
    mass = sum(flow.density).item<float>();
  });
  EXPECT_GT(before, 0);
  EXPECT_NEAR(mass / (test::LatticeBoltzmann::kRows * test::LatticeBoltzmann::kColumns), 11, 0.1);
}

TEST(CarriedState, ASoftmaxWithEveryStepInALocalStaysOneKernelWithOneStore) {
  const Tensor x = data({256, 1024});
  Iteration last{};
  for (int i = 0; i < 10; ++i)
    last = run_one([&] {
      const Tensor greatest = max(x, -1, true);
      const Tensor e = exp(x - greatest);
      const Tensor total = sum(e, -1, true);
      const Tensor p = e / total;
      p.eval();
    });
  EXPECT_EQ(last.work, 1u);
  EXPECT_EQ(last.misses, 0u);
}

TEST(CarriedState, AProductThatAHandleKeepsRunsOnce) {
  const Tensor a = data({64, 64}), b = data({64, 64});
  for (const Mode mode : {Mode::Lazy, Mode::Interpret}) {
    const testing::ModeScope scope(mode);
    ir::forget_lines();
    const Tensor d = matmul(a, b) + 1;
    const Tensor s = sum(d), m = max(d), n = min(d);
    const auto counted = test::count([&] {
      s.eval();
      m.eval();
      n.eval();
    });
    EXPECT_EQ(counted.library_calls, mode == Mode::Lazy ? 1u : 0u);
    if (mode == Mode::Interpret) {
      EXPECT_TRUE(d.evaluated());
    }
  }
}

TEST(CarriedState, ASortThatAHandleKeepsRunsOnce) {
  const Tensor a = data({4096});
  const Tensor d = sort(a) * 2;
  const auto counted = test::count([&] {
    EXPECT_TRUE(std::isfinite(sum(d).item<float>()));
    EXPECT_TRUE(std::isfinite(max(d).item<float>()));
    EXPECT_TRUE(std::isfinite(d(7).item<float>()));
  });
  EXPECT_EQ(counted.library_calls, 1u);
}

}  // namespace
}  // namespace kiln
