// Who runs a kernel: the vm while the compiler works in the background, machine code after that.
#include "cache/background.h"
#include "cache/kernel_cache.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

namespace kiln {
namespace {

using test::data;
using testing::ModeScope;

constexpr std::chrono::milliseconds kLong{400};

void take_long(const kernel::Kernel&) { std::this_thread::sleep_for(kLong); }

/// Compiles wait while this is true, for a minute: whoever waits for them then sees a kernel compiled.
std::atomic<bool> compiles_wait{false};
void wait_for_the_test(const kernel::Kernel&) {
  for (int i = 0; compiles_wait && i < 6000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}
void refuse(const kernel::Kernel&) { throw CompileError("[compile] refused by a test"); }

/// KILN_TIER=auto and a hook, cold caches before and after.
class Tiers : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_NEEDS_COMPILER();
    auto_ = std::make_unique<ModeScope>(Mode::Lazy, Tier::Auto);
    setenv("TMPDIR", directory_.path().c_str(), 1);
    wait_for_compiles();  // of tests before
    clear_memory_caches();
  }
  void TearDown() override {
    wait_for_compiles();
    engine::set_compile_hook(nullptr);
    clear_memory_caches();
    unsetenv("TMPDIR");
  }

 private:
  testing::TemporaryDirectory directory_;
  std::unique_ptr<ModeScope> auto_;
};

struct Moved {
  std::uint64_t compiled, vm, fallbacks;
};
template <class F>
Moved moved(F f) {
  const Statistics a = statistics();
  f();
  const Statistics b = statistics();
  return {b.kernels_compiled - a.kernels_compiled, b.vm_launches - a.vm_launches, b.fallbacks - a.fallbacks};
}

TEST_F(Tiers, AFirstResultDoesNotWaitForTheCompiler) {
  KILN_NEEDS_CPU();
  const Tensor x = data({1000}).eval();
  wait_for_compiles();
  compiles_wait = true;
  engine::set_compile_hook(wait_for_the_test);
  const auto program = [&] { return (exp(x) * 2.0 + 1.0).to_vector<float>(); };
  std::vector<float> first, second;
  const Moved cold = moved([&] { first = program(); });
  compiles_wait = false;
  EXPECT_EQ(cold.compiled, 0u);
  EXPECT_EQ(cold.vm, 1u);
  EXPECT_EQ(moved([] { wait_for_compiles(); }).compiled, 1u);
  const Moved warm = moved([&] { second = program(); });
  EXPECT_EQ(warm.vm, 0u);
  EXPECT_EQ(warm.compiled, 0u);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], second[i], 1e-5 * std::abs(second[i]));
}

TEST_F(Tiers, ARunningKernelChangesOverToMachineCode) {
  const Tensor x = data({1 << 22}).eval();
  wait_for_compiles();
  for (int round = 0; round < 4; ++round) {
    clear_memory_caches();
    Tensor y = x;
    for (int i = 0; i < 30; ++i) y = y * 0.5 + 0.25;  // exact enough that both give the same bits
    const std::vector<float> first = y.to_vector<float>();
    wait_for_compiles();
    Tensor z = x;
    for (int i = 0; i < 30; ++i) z = z * 0.5 + 0.25;
    ASSERT_EQ(first, z.to_vector<float>());
  }
}

TEST_F(Tiers, SumsHaveTheSameBitsInBoth) {
  for (const Shape& shape : {Shape{100, 1000}, Shape{1, 300000}, Shape{3000, 7}, Shape{200, 300}}) {
    const Tensor x = data(shape).eval();
    for (int axis : {0, 1}) {
      const auto program = [&] { return (sum(x * x + 0.125, axis) * 0.5).to_vector<float>(); };
      clear_memory_caches();
      const std::vector<float> first = program();
      wait_for_compiles();
      EXPECT_EQ(first, program()) << shape.str() << ", axis " << axis;
    }
  }
}

TEST_F(Tiers, ManyThreadsThatWantOneColdKernelCompileItOnce) {  // FAULTS 29
  const Tensor x = data({64}).eval();
  wait_for_compiles();
  engine::set_compile_hook(take_long);
  std::atomic<int> right{0};
  const Moved m = moved([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&] {
        const Tensor y = x * 2.0 + 1.0;
        right += y.to_vector<float>()[3] == std::fma(x.to_vector<float>()[3], 2.f, 1.f);
      });
    for (std::thread& t : threads) t.join();
    wait_for_compiles();
  });
  EXPECT_EQ(m.compiled, 1u);
  EXPECT_EQ(right, 16);
}

TEST_F(Tiers, AKernelThatDoesNotCompileStaysWithTheVm) {  // FAULTS 18
  KILN_NEEDS_CPU();
  const Tensor x = data({100}).eval();
  wait_for_compiles();
  engine::set_compile_hook(refuse);
  ::testing::internal::CaptureStderr();
  const Moved m = moved([&] {
    for (int i = 0; i < 3; ++i) {
      const Tensor y = abs(x) * 2.0 + 1.0;
      EXPECT_EQ(y.to_vector<float>()[5], std::abs(x.to_vector<float>()[5]) * 2 + 1);
      wait_for_compiles();
    }
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("refused by a test; its source is in "), std::string::npos) << log;
  EXPECT_EQ(m.compiled, 0u);
  EXPECT_EQ(m.vm, 3u);
  EXPECT_EQ(m.fallbacks, 1u);
}

TEST_F(Tiers, TheVmAloneCompilesNothing) {
  KILN_NEEDS_CPU();
  const ModeScope vm(Mode::Lazy, Tier::Vm);
  const Tensor x = data({5000});
  const Moved m = moved([&] {
    (void)sum(tanh(x) + 1.0).item<float>();
    wait_for_compiles();
  });
  EXPECT_EQ(m.compiled, 0u);
  EXPECT_GE(m.vm, 1u);
}

TEST_F(Tiers, OneProgramMayUseThemAllInTurn) {
  KILN_NEEDS_CPU();
  const Tensor x = data({777}).eval();
  for (Tier tier : {Tier::Vm, Tier::Jit, Tier::Auto, Tier::Vm}) {
    const ModeScope scope(Mode::Lazy, tier);
    const Moved m = moved([&] { EXPECT_EQ((x + 3.0).to_vector<float>()[7], x.to_vector<float>()[7] + 3); });
    EXPECT_EQ(m.vm, tier == Tier::Jit ? 0u : tier == Tier::Vm ? 1u : m.vm);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST_F(Tiers, AForkedChildFinishesWhatWasQueued) {  // FAULTS 26
  KILN_NEEDS_CPU();
  const Tensor x = data({300}).eval();
  wait_for_compiles();
  engine::set_compile_hook(take_long);
  for (int i = 0; i < 4; ++i) (x * 2.0 + static_cast<double>(i) + (i % 2 ? abs(x) : exp(x))).eval();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    engine::set_compile_hook(nullptr);
    const std::uint64_t before = statistics().kernels_compiled;
    const bool right =
        (tanh(x) + 0.5).to_vector<float>()[2] == std::tanh(x.to_vector<float>()[2]) + 0.5f ||
        std::abs((tanh(x) + 0.5).to_vector<float>()[2] - (std::tanh(x.to_vector<float>()[2]) + 0.5f)) < 1e-6f;
    wait_for_compiles();
    const bool compiled = statistics().kernels_compiled > before;
    _exit(right && compiled ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  if (WIFEXITED(status)) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}
#endif

class TiersExitDeathTest : public Tiers {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, not a fork
    Tiers::SetUp();
  }
};

TEST_F(TiersExitDeathTest, DropsQueuedCompilesAndWaitsForTheOneInFlight) {  // FAULTS 27
  KILN_NEEDS_CPU();
  EXPECT_EXIT(
      {
        alarm(20);
        const Tensor x = data({50}).eval();
        wait_for_compiles();
        engine::set_compile_hook(take_long);
        Tensor y = x;
        for (int i = 0; i < 100; ++i) {  // a hundred kernels of their own: forty seconds of compiling
          y = x;
          for (int k = 0; k <= i; ++k) y = k % 2 ? y * 0.5 : y + 1.0;
          y.eval();
        }
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(TiersExitDeathTest, IsCleanAtAnyMoment) {  // FAULTS 27
  for (int wait : {0, 1, 3, 7, 15, 40})
    EXPECT_EXIT(
        {
          alarm(20);
          const Tensor x = data({50}).eval();
          for (int i = 0; i < 10; ++i)
            (i % 2 ? exp(x) * static_cast<double>(i) : x + abs(x) * static_cast<double>(i)).eval();
          std::this_thread::sleep_for(std::chrono::milliseconds(wait));
          std::exit(7);
        },
        ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace kiln
