// Compiled functions: what a call by a kept trace makes is what the function makes, and where a call cannot
// be told by its arguments the function runs.
#include <kiln/compile.h>
#include <kiln/gpu.h>
#include <kiln/layers.h>
#include <kiln/optim.h>

#include "counted.h"
#include "expect.h"
#include "modes.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using testing::expect_equal;
using testing::ModeScope;

/// Calls that recorded nothing while f runs.
template <class F>
std::uint64_t replays(F f) {
  const std::uint64_t before = statistics().replays;
  f();
  return statistics().replays - before;
}

/// The modes in which compiled functions keep anything.
class Compile : public ::testing::Test {
 protected:
  ModeScope lazy_{Mode::Lazy};
};

struct Linear {
  Tensor weight, bias;
  KILN_FIELDS(weight, bias)
};

struct Model {
  Linear up, down;
  KILN_FIELDS(up, down)
};

TEST_F(Compile, LaterCallsRecordNothing) {
  int runs = 0;
  const auto f = compile([&](const Tensor& x, const Tensor& y) {
    ++runs;
    return std::pair(tanh(x) * y, sum(x + y));
  });
  const Tensor x = Tensor({1.f, 2.f, 3.f}), y = Tensor({4.f, 5.f, 6.f});
  const auto first = f(x, y);
  EXPECT_TRUE(first.first.evaluated());
  EXPECT_EQ(replays([&] {
              for (int i = 0; i < 5; ++i) {
                const Tensor a = (x + static_cast<float>(i)).eval();
                const auto [p, s] = f(a, y);
                EXPECT_TRUE(p.evaluated() && s.evaluated());
                EXPECT_TRUE(array_equal(p, tanh(a) * y));
                EXPECT_EQ(s.item<float>(), sum(a + y).item<float>());
              }
            }),
            5u);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(f.recorded_because(), "");
}

TEST_F(Compile, PendingArgumentsAreComputedFirst) {
  const auto f = compile([](const Tensor& x) { return x * 2.0f; });
  const Tensor x = Tensor({1.f, 2.f});
  f(x + 1.0f);
  EXPECT_EQ(replays([&] { expect_equal<float>(f(x + 2.0f), {6.f, 8.f}); }), 1u);
}

TEST_F(Compile, ShapesDtypesStridesNumbersAndStructuresAreRecordedInTheirTurn) {
  int runs = 0;
  const auto f = compile([&](const std::vector<Tensor>& x, double by) {
    ++runs;
    Tensor out = x[0] * by;
    for (std::size_t i = 1; i < x.size(); ++i) out = out + x[i];
    return out;
  });
  using List = std::vector<Tensor>;
  const Tensor a = Tensor({1.f, 2.f, 3.f, 4.f}, {2, 2}), c = Tensor({1.f, 2.f}), i = Tensor({1, 2});
  const auto twice = [&](const List& x, double by, const List& same, std::vector<double> want) {
    const int before = runs;
    f(x, by);
    EXPECT_EQ(runs, before + 1);
    EXPECT_EQ(f(same, by).astype(DType::Float64).to_vector<double>(), want);
    EXPECT_EQ(runs, before + 1);
  };
  twice({a}, 2, {a}, {2, 4, 6, 8});
  twice({c}, 2, {c}, {2, 4});
  twice({i}, 2, {i}, {2, 4});
  twice({a, a}, 2, {a, a}, {3, 6, 9, 12});
  const Tensor b = Tensor({5.f, 6.f, 7.f, 8.f}, {2, 2});
  twice({a, b}, 2, {b, a}, {11, 14, 17, 20});  // two tensors are no tensor twice
  twice({a}, 3, {a}, {3, 6, 9, 12});
  const Tensor t = swapaxes(a, 0, 1).eval();
  twice({t}, 2, {t}, {2, 6, 4, 8});
}

TEST_F(Compile, TreesOfAllKindsAreTakenApart) {
  using Map = std::map<std::string, Tensor>;
  const auto f = compile([](const Map& m, const std::optional<Tensor>& o, const Linear& l) {
    Tensor out = l.weight * 2.0f;
    for (const auto& [name, t] : m) out = out + t * static_cast<float>(name.size());
    if (o) out = out - *o;
    return Linear{out, l.bias};
  });
  const Tensor one = Tensor({1.f, 1.f});
  const std::optional<Tensor> none;
  const Linear l{one, Tensor({7.f})};
  for (int round = 0; round < 2; ++round) {
    expect_equal<float>(f(Map{{"a", one}}, none, l).weight, {3.f, 3.f});
    expect_equal<float>(f(Map{{"bb", one}}, none, l).weight, {4.f, 4.f});
    expect_equal<float>(f(Map{{"bb", one}}, std::optional(one), l).weight, {3.f, 3.f});
    expect_equal<float>(f(Map{{"bb", one}, {"ccc", one}}, std::optional(one), l).weight, {6.f, 6.f});
    expect_equal<float>(f(Map{}, std::optional(one), l).bias, {7.f});
    const Linear empty_bias{one, Tensor()};
    EXPECT_FALSE(f(Map{}, std::optional(one), empty_bias).bias.valid());
  }
}

TEST_F(Compile, ATrainingStepIsTheSameStepByStep) {
  const auto keys = random::split<4>(random::Key(3));
  const Model start = {{random::normal(keys[0], {6, 9}), zeros({9})},
                       {random::normal(keys[1], {9, 3}), zeros({3})}};
  const Tensor x = random::normal(keys[2], {8, 6}).eval(), y = random::randint(keys[3], {8}, 0, 3).eval();
  const auto step = [](const Model& m, const optim::AdamState<Model>& s, const Tensor& x, const Tensor& y) {
    const auto loss = [&](const Model& p) {
      return nn::cross_entropy(matmul(relu(matmul(x, p.up.weight) + p.up.bias), p.down.weight) + p.down.bias,
                               y);
    };
    const auto [value, gradient] = value_and_grad(loss, m);
    Model to = m;
    optim::AdamState<Model> state = s;
    optim::adamw(to, gradient, state, {.rate = 1e-2});
    return std::tuple(to, state, value);
  };
  const auto train = [&](auto f) {
    Model m = start;
    optim::AdamState<Model> s = optim::adam_state(m);
    tree_eval(m, s);
    std::vector<float> losses;
    for (int i = 0; i < 6; ++i) {
      auto [to, state, loss] = f(std::move(m), std::move(s), x, y);
      tree_eval(to, state, loss);
      m = std::move(to);
      s = std::move(state);
      losses.push_back(loss.template item<float>());
    }
    return losses;
  };
  const std::vector<float> plain = train(step);
  std::vector<float> kept;
  const auto compiled = compile(step);
  EXPECT_GE(replays([&] { kept = train(compiled); }), 4u);
  for (std::size_t i = 0; i < plain.size(); ++i)  // a GPU's first plan may be another one
    EXPECT_NEAR(plain[i], kept[i], 1e-5 * plain[i]) << i;
  EXPECT_LT(kept.back(), kept.front());
}

TEST_F(Compile, RatesThatAreTensorsAreArguments) {
  const auto step = [](const Tensor& p, const optim::AdamState<Tensor>& s, const Tensor& rate) {
    std::pair<Tensor, optim::AdamState<Tensor>> next(p, s);
    optim::adamw(next.first, p * 2.0f, next.second, {.rate = rate});
    return next;
  };
  const auto compiled = compile(step);
  Tensor plain = Tensor({1.f, -2.f, 3.f}), kept = plain;
  auto s = optim::adam_state(plain), t = s;
  EXPECT_EQ(replays([&] {
              for (int i = 0; i < 6; ++i) {
                const double rate = optim::cosine(1e-2, i, 6);
                optim::adamw(plain, plain * 2.0f, s, {.rate = rate});
                std::tie(kept, t) = compiled(kept, t, Tensor(static_cast<float>(rate)));
              }
            }),
            5u);
  EXPECT_EQ(plain.to_vector<float>(), kept.to_vector<float>());
}

TEST_F(Compile, WhatTheFunctionTakesFromOutsideKeepsItsValue) {
  Tensor outside = Tensor({1.f, 2.f});
  const Tensor pending = Tensor({10.f, 20.f}) + 1.0f;
  const auto f = compile([&](const Tensor& x) { return x + outside + pending; });
  const Tensor x = Tensor({0.f, 0.f});
  expect_equal<float>(f(x), {12.f, 23.f});
  outside = Tensor({5.f, 5.f});
  EXPECT_EQ(replays([&] { expect_equal<float>(f(x), {12.f, 23.f}); }), 1u);
}

TEST_F(Compile, ResultsThatAreArgumentsOrEachOther) {
  const auto f = compile([](const Tensor& x, const Tensor& y) {
    const Tensor s = x + y;
    return std::vector<Tensor>{x, s, s, y, s.reshape({2, 1})};
  });
  const Tensor x = Tensor({1.f, 2.f}), y = Tensor({3.f, 4.f}), z = Tensor({5.f, 6.f});
  f(x, y);
  std::vector<Tensor> all;
  EXPECT_EQ(replays([&] { all = f(z, y); }), 1u);
  expect_equal<float>(all[0], {5.f, 6.f});
  expect_equal<float>(all[1], {8.f, 10.f});
  expect_equal<float>(all[2], {8.f, 10.f});
  expect_equal<float>(all[3], {3.f, 4.f});
  expect_equal<float>(all[4], Shape{2, 1}, {8.f, 10.f});
}

/// Memory is let go with the last of the results that show it, and not before.
TEST_F(Compile, ResultsInOneBufferHaveAReferenceEach) {
  constexpr std::int64_t kN = 1 << 16;
  const auto f = compile([](const Tensor& x) {
    const Tensor s = x + 1.0f;
    return std::vector<Tensor>{s, s.reshape({256, 256}), swapaxes(s.reshape({256, 256}), 0, 1), x * 2.0f};
  });
  const Tensor x = full({kN}, 3.0f).eval(), other = full({kN}, 5.0f).eval();
  f(x);
  for (std::size_t last = 0; last < 4; ++last) {
    const std::uint64_t before = memory_use(Device::cpu()).in_use;
    std::vector<Tensor> all;
    EXPECT_EQ(replays([&] { all = f(other); }), 1u);
    for (std::size_t i = 0; i < 4; ++i)
      if (i != last) all[i] = Tensor();
    const Tensor more = full({kN}, 9.0f).eval();  // in memory that was let go, if any was too early
    EXPECT_EQ(min(all[last]).item<float>(), last == 3 ? 10.0f : 6.0f);
    EXPECT_EQ(max(all[last]).item<float>(), last == 3 ? 10.0f : 6.0f);
    EXPECT_EQ(more(kN - 1).item<float>(), 9.0f);
    all.clear();
    EXPECT_LE(memory_use(Device::cpu()).in_use, before + kN * 4 + 4096) << last;
  }
}

TEST_F(Compile, KernelsAndProductsAreCountedOnceEach) {
  const auto f = compile([](const Tensor& x) { return matmul(x, x) + sum(x); });
  const Tensor x = full({20, 20}, 1.0f).eval();
  const test::Counted first = test::count([&] { f(x).eval(); }), second = test::count([&] { f(x).eval(); });
  EXPECT_EQ(first.library_calls, 1u);
  EXPECT_GE(first.launches, 1u);
  EXPECT_EQ(second.library_calls, first.library_calls);
  EXPECT_EQ(second.launches, first.launches);
}

TEST_F(Compile, AFunctionThatReadsAValueRunsEachTime) {
  int runs = 0;
  const auto f = compile([&](const Tensor& x) {
    ++runs;
    return sum(x).item<float>() > 0 ? x * 2.0f : x - 1.0f;
  });
  expect_equal<float>(f(Tensor({1.f, 2.f})), {2.f, 4.f});
  expect_equal<float>(f(Tensor({-1.f, -2.f})), {-2.f, -3.f});
  EXPECT_EQ(runs, 2);
  EXPECT_NE(f.recorded_because().find("compile_test.cpp:"), std::string::npos) << f.recorded_because();
  int reads = 0;
  const auto of_argument = compile([&](const Tensor& x) {
    ++reads;
    return x * x(0).item<float>();
  });
  expect_equal<float>(of_argument(Tensor({2.f, 3.f})), {4.f, 6.f});
  expect_equal<float>(of_argument(Tensor({3.f, 3.f})), {9.f, 9.f});
  EXPECT_EQ(reads, 2);
}

TEST_F(Compile, AFunctionThatKeepsATensorRunsEachTime) {
  Tensor total = Tensor({0.f, 0.f});
  const auto f = compile([&](const Tensor& x) {
    total = total + x;  // no result needs it
    return x * 2.0f;
  });
  for (int i = 0; i < 3; ++i) expect_equal<float>(f(Tensor({1.f, 2.f})), {2.f, 4.f});
  expect_equal<float>(total, {3.f, 6.f});
  EXPECT_NE(f.recorded_because().find("keeps a value"), std::string::npos) << f.recorded_because();
  Tensor inner;
  const auto g = compile([&](const Tensor& x) {
    inner = x + 1.0f;
    return inner * 2.0f;
  });
  for (float i = 0; i < 3; ++i) {
    expect_equal<float>(g(Tensor({i})), {2 * i + 2});
    expect_equal<float>(inner, {i + 1});
  }
  EXPECT_NE(g.recorded_because().find("keeps a value"), std::string::npos) << g.recorded_because();
}

TEST_F(Compile, ANumberThatChangesIsRecordedAndSaid) {
  int runs = 0;
  const auto f = compile([&](const Tensor& x, int i) {
    ++runs;
    return x + i;
  });
  const auto misses = test::count([&] {
                        for (int i = 0; i < 40; ++i)
                          expect_equal<float>(f(Tensor({1.f}), i), {static_cast<float>(1 + i)});
                      }).plan_misses;
  EXPECT_EQ(runs, 40);
  EXPECT_LE(misses, 1u);
  EXPECT_NE(f.recorded_because().find("tensor of rank 0"), std::string::npos) << f.recorded_because();
  EXPECT_EQ(replays([&] { f(Tensor({1.f}), 33); }), 0u);
}

TEST_F(Compile, TreesThatAreGivenAwayAreEmptyAndTheirMemoryIsUsed) {
  const auto f = compile([](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0] + 1.0f}; });
  std::vector<Tensor> x = {full({512, 1024}, 1.0f).eval()};
  for (float i = 2; i < 6; ++i) {
    std::vector<Tensor> next = f(std::move(x));
    for (const Tensor& t : x) EXPECT_FALSE(t.valid());
    x = std::move(next);
    EXPECT_EQ(x[0](0, 0).item<float>(), i);
    EXPECT_EQ(x[0](511, 1023).item<float>(), i);
  }
  const Tensor kept = x[0];  // another handle: its memory stays
  const std::vector<Tensor> next = f(std::move(x));
  EXPECT_EQ(kept(3, 3).item<float>(), 5);
  EXPECT_EQ(next[0](3, 3).item<float>(), 6);
}

TEST_F(Compile, ACallInsideAnotherFunctionIsAPartOfIt) {
  const auto f = compile([](const Tensor& x) { return x * x; });
  f(Tensor({1.f, 2.f}));
  const Tensor x = Tensor({3.f, 4.f});
  EXPECT_EQ(replays([&] {
              expect_equal<float>(grad([&](const Tensor& p) { return sum(f(p)); }, x), {6.f, 8.f});
              expect_equal<float>(vmap([&](const Tensor& each) { return f(each); })(x), {9.f, 16.f});
              const auto outer = compile([&](const Tensor& p) { return f(p) + 1.0f; });
              expect_equal<float>(outer(x), {10.f, 17.f});
            }),
            0u);
}

TEST_F(Compile, ErrorsAreTheFunctionsOwnAndTheNextCallIsGood) {
  const auto f = compile([](const Tensor& x, const Tensor& y) { return x + y; });
  const Tensor x = Tensor({1.f, 2.f});
  EXPECT_THROW(f(x, Tensor({1.f, 2.f, 3.f})), UserError);
  EXPECT_THROW(f(x, Tensor()), UserError);
  expect_equal<float>(f(x, x), {2.f, 4.f});
  EXPECT_EQ(replays([&] { expect_equal<float>(f(x, x), {2.f, 4.f}); }), 1u);
}

TEST_F(Compile, FromSeveralThreads) {
  const auto f = compile([](const Tensor& x, const Tensor& y) { return tanh(x) + y; });
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Tensor y = full({16}, static_cast<float>(i + 100 * static_cast<int>(t))).eval();
        wrong[t] +=
            f(zeros({16}).eval(), y)(7).item<float>() != static_cast<float>(i + 100 * static_cast<int>(t));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(Compile, PlansThatWereDroppedAndOptionsThatChangeAreNoticed) {
  const auto f = compile([](const Tensor& x) { return exp(x) + 1.0f; });
  const Tensor x = Tensor({0.f, 0.f});
  f(x);
  clear_memory_caches();
  expect_equal<float>(f(x), {2.f, 2.f});
  EXPECT_EQ(replays([&] { expect_equal<float>(f(x), {2.f, 2.f}); }), 1u);
  for (const Mode mode : {Mode::Eager, Mode::Interpret}) {
    const ModeScope other(mode);
    EXPECT_EQ(replays([&] { expect_equal<float>(f(x), {2.f, 2.f}); }), 0u);
  }
  Config strict = config();
  strict.strict = true;
  const testing::ModeScope restores(Mode::Lazy);
  configure(strict);
  EXPECT_EQ(replays([&] { expect_equal<float>(f(x), {2.f, 2.f}); }), 0u);
}

}  // namespace
}  // namespace kiln
