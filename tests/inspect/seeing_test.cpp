// What a program says of itself: topics, levels, explanations, counters, checks. Pages: docs/seeing.md.
#include "api/expect.h"
#include "cache/kernel_cache.h"
#include "cache/temporary_directory.h"
#include "device/cpu/jit.h"
#include "modes.h"
#include "support/log.h"

#include <kiln/report.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace kiln {
namespace {

using testing::floats;

class Seeing : public ::testing::Test {
 protected:
  void TearDown() override {
    configure(before_);
    clear_memory_caches();
  }
  /// What a few evaluations print, planned anew.
  std::string printed(const std::function<void(Config&)>& options,
                      const std::function<void()>& program = {}) {
    clear_memory_caches();
    Config c = before_;
    c.log_topics.clear();
    c.debug = 0;
    options(c);
    configure(c);
    ::testing::internal::CaptureStderr();
    if (program) {
      program();
    } else {
      const Tensor x = floats({1, 2, 3});
      for (int i = 0; i < 2; ++i) sum(exp(x) * 2).eval();
      matmul(x.reshape({1, 3}), x.reshape({3, 1})).eval();
      wait_for_compiles();
      // held, so that the next one is fresh memory
      kept_.push_back((arange(9 << 20) + sum(x).item<float>()).eval());
    }
    configure(before_);
    return ::testing::internal::GetCapturedStderr();
  }
  bool cpu() const { return before_.device == "cpu"; }

  const Config before_ = config();
  std::vector<Tensor> kept_;
};

constexpr const char* kTopicLines[][2] = {{"kernel", " GB/s "},
                                          {"plan", "[kiln] plan of "},
                                          {"trace", " operations, by a plan in memory ("},
                                          {"cache", " compiled in "},
                                          {"memory", " bytes from the "}};

TEST_F(Seeing, EveryTopicPrintsItsLinesAndNoOthers) {
  for (const auto& [topic, line] : kTopicLines) {
    const std::string text = printed(
        [&](Config& c) { c.log_topics = {topic}, c.tier = cpu::has_compiler() ? Tier::Jit : c.tier; });
    for (const auto& [other, its] : kTopicLines) {
      const bool found = text.find(its) != std::string::npos;
      if (std::string(other) == "cache" && !cpu::has_compiler()) continue;
      EXPECT_EQ(found, std::string(other) == topic) << topic << " and " << other << ":\n" << text;
    }
  }
}

TEST_F(Seeing, EveryLevelPrintsMore) {
  const int from[] = {2, 3, 4, 4, 5};  // as kTopicLines
  for (int level = 0; level <= 5; ++level) {
    const std::string text =
        printed([&](Config& c) { c.debug = level, c.tier = cpu::has_compiler() ? Tier::Jit : c.tier; });
    for (std::size_t t = 0; t < std::size(kTopicLines); ++t) {
      if (std::string(kTopicLines[t][0]) == "cache" && !cpu::has_compiler()) continue;
      EXPECT_EQ(text.find(kTopicLines[t][1]) != std::string::npos, level >= from[t])
          << level << " " << kTopicLines[t][0] << "\n"
          << text;
    }
  }
}

TEST_F(Seeing, DumpsGoToStderrToo) {
  const std::string text =
      printed([](Config& c) { c.dump = "stderr", c.dump_stages = {"graph"}, c.dump_filter = "^(a|exp_)+"; });
  EXPECT_NE(text.find("==== exp_"), std::string::npos) << text;
  EXPECT_NE(text.find(".ops.txt\n"), std::string::npos) << text;
}

TEST_F(Seeing, TrafficOfAGatherAndASliceIsWhatTheyRead) {
  const Tensor table = zeros({1 << 16, 64}).eval(), one = Tensor::from(std::vector<std::int64_t>{77});
  for (const auto& read : {std::function([&] { (take(table, one, 0) + 1).eval(); }),
                           std::function([&] { (table(3) + 1).eval(); })}) {
    const std::string text = printed([](Config& c) { c.log_topics = {"kernel"}; }, read);
    double us = 0, gbps = 0;
    const std::size_t at = text.rfind("[kiln] ");
    ASSERT_NE(at, std::string::npos) << text;
    ASSERT_EQ(std::sscanf(text.c_str() + at, "[kiln] %lf us %lf GB/s", &us, &gbps), 2) << text;
    // of a table of 16 MB; both figures are rounded
    EXPECT_LT(us * gbps * 1000, 4 * 64 * 4 + us * 6) << text;
  }
}

void take_long(const kernel::Kernel&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST_F(Seeing, CompileTimeIsWorkNotWaiting) {
  if (!cpu::has_compiler() || !cpu()) GTEST_SKIP() << "nothing is compiled in the background";
  clear_memory_caches();
  Config c = before_;
  c.tier = Tier::Auto;
  c.cache = "off";
  configure(c);
  wait_for_compiles();
  engine::set_compile_hook(take_long);
  const Statistics before = statistics();
  const auto start = std::chrono::steady_clock::now();
  Tensor x = floats({1, 2, 3});
  for (int i = 0; i < 24; ++i) {  // one kernel each
    Tensor y = x;
    for (int k = 0; k <= i; ++k) y = sin(y) + y;
    y.eval();
  }
  wait_for_compiles();
  engine::set_compile_hook(nullptr);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Statistics now = statistics();
  const double counted = 1e-9 * static_cast<double>(now.compile_ns - before.compile_ns);
  const std::uint64_t kernels = now.kernels_compiled - before.kernels_compiled;  // the planner may share some
  EXPECT_GE(kernels, 12u);
  EXPECT_GE(counted, 0.02 * static_cast<double>(kernels));
  EXPECT_LE(counted, wall * (std::thread::hardware_concurrency() + 1));
}

// ---- KILN_CHECK=nan ----

TEST_F(Seeing, ANanIsBlamedOnTheOperationThatMadeItInEveryMode) {
  const Tensor x = floats({1, -1, 4});
  for (const Mode mode : {Mode::Lazy, Mode::Eager, Mode::Interpret}) {
    Config c = before_;
    c.mode = mode;
    c.check_nan = true;
    configure(c);
    int line = 0;
    try {
      line = __LINE__ + 1;
      const Tensor y = log(x);
      (sum(y * 2) + 1).eval();
      ADD_FAILURE() << "no error";
    } catch (const EvaluationError& e) {
      const std::string at = "seeing_test.cpp:" + std::to_string(line), text = e.what();
      EXPECT_TRUE(text.starts_with("[log] element 1 of float32 (3), recorded at ") ||
                  text.starts_with("[log] element 1 of float32 (3,), recorded at "))
          << text;
      EXPECT_NE(text.find(at + " is NaN, and no argument is"), std::string::npos) << text;
    }
    configure(before_);
  }
}

TEST_F(Seeing, ANanOfASumNamesTheSum) {
  Config c = before_;
  c.check_nan = true;
  configure(c);
  const Tensor x = floats({HUGE_VALF, -HUGE_VALF});
  testing::expect_evaluation_error([&] { return sum(x); }, "[sum] element 0 of float32 ");
}

}  // namespace
}  // namespace kiln
