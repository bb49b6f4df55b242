// Ends of processes and threads, forks, failing compiles and many threads: what an evaluation survives.
#include "cache/kernel_cache.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

namespace kiln {
namespace {

using test::count;
using test::data;

/// A hook for the life of a scope; what failing compiles write goes to a directory of the scope's.
class HookScope {
 public:
  explicit HookScope(engine::CompileHook hook) {
    setenv("TMPDIR", directory_.path().c_str(), 1);
    engine::set_compile_hook(hook);
  }
  ~HookScope() {
    engine::set_compile_hook(nullptr);
    unsetenv("TMPDIR");
  }

 private:
  testing::TemporaryDirectory directory_;
};

void refuse_fused(const kernel::Kernel& k) {
  if (k.label.find('_') != std::string::npos) throw CompileError("[compile] refused by a test");
}
void refuse_all(const kernel::Kernel&) { throw CompileError("[compile] refused by a test"); }
void take_long(const kernel::Kernel&) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

Tensor some_chain(const Tensor& x, int k) {
  Tensor y = x;
  for (int i = 0; i <= k; ++i) y = y * 0.5 + 1.0;
  return y;
}

// ---- failing compiles
// ------------------------------------------------------------------------------------------

TEST(CompileFailure, OfAKernelRunsItByTheVm) {  // FAULTS 18
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const Tensor x = data({100});
  clear_memory_caches();
  const HookScope hook(refuse_fused);
  const Statistics before = statistics();
  const Tensor y = (abs(x) * 2.0 + 1.0).eval();
  EXPECT_EQ(statistics().fallbacks - before.fallbacks, 1u);
  EXPECT_EQ(statistics().launches - before.launches, 1u);
  EXPECT_EQ(statistics().vm_launches - before.vm_launches, 1u);
  EXPECT_EQ(y.to_vector<float>()[5], std::abs(x.to_vector<float>()[5]) * 2 + 1);
}

TEST(CompileFailure, OfEveryKernelLeavesTheVmAndKeepsTheSource) {  // FAULTS 18
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const Tensor x = data({100});
  clear_memory_caches();
  const HookScope hook(refuse_all);
  ::testing::internal::CaptureStderr();
  const Tensor m = max(x), y = abs(x) * 2.0 + m;
  y.eval();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(y.to_vector<float>()[5], std::abs(x.to_vector<float>()[5]) * 2 + m.item<float>());
  EXPECT_NE(log.find("refused by a test"), std::string::npos) << log;
  const std::size_t at = log.find("source is in ");
  ASSERT_NE(at, std::string::npos) << log;
  const std::string path = log.substr(at + 13, log.find(';', at) - at - 13);
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("define"), std::string::npos) << path << ": " << text;  // LLVM IR
}

TEST(CompileFailure, IsForgottenOnceTheCompilerWorks) {  // FAULTS 21
  KILN_NEEDS_COMPILER();
  const Tensor x = data({100});
  clear_memory_caches();
  {
    const HookScope hook(refuse_all);
    exp(x * 3.0).eval();
  }
  const Statistics before = statistics();
  EXPECT_EQ(test::kernels({exp(x * 3.0) + 1.0}), 1u);
  EXPECT_EQ(statistics().fallbacks, before.fallbacks);
}

TEST(Evaluation, ThatFailsLeavesTheNextOneWorking) {  // FAULTS 21
  const Tensor x = data({100});
  const Tensor huge = broadcast_to(x, {std::int64_t{1} << 45, 100}) * 2.0;
  EXPECT_THROW(huge.eval(), DeviceError);
  EXPECT_EQ((x + 1.0).to_vector<float>()[3], x.to_vector<float>()[3] + 1);
  EXPECT_THROW(huge.eval(), DeviceError);
}

TEST(Evaluation, OfAHundredThousandOperationsIsRecordedRunAndFreed) {  // FAULTS 22
  Tensor x = data({8});
  const float first = x.to_vector<float>()[0];
  for (int i = 0; i < 100000; ++i) x = x + 1.0;
  EXPECT_NEAR(x.to_vector<float>()[0], first + 100000, 1);
  Tensor unread = data({8});
  for (int i = 0; i < 100000; ++i) unread = unread * 1.5;
}

// ---- threads
// -----------------------------------------------------------------------------------------------------

TEST(SharedGraphs, ThatWantOneColdKernelCompileItOnce) {  // FAULTS 29
  KILN_NEEDS_COMPILER();
  const Tensor x = data({64});
  clear_memory_caches();
  const HookScope hook(take_long);
  std::atomic<int> right{0};
  const test::Counted c = count([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&] {
        const Tensor y = x * 2.0 + 1.0;
        right += y.to_vector<float>()[3] == std::fma(x.to_vector<float>()[3], 2.f, 1.f);
      });
    for (std::thread& t : threads) t.join();
  });
  EXPECT_EQ(c.compiled, 1u);
  EXPECT_EQ(right, 16);
}

TEST(SharedGraphs, ThatEvaluateOneGraphAllReadItsValues) {
  for (int round = 0; round < 20; ++round) {
    const Tensor x = data({128}, DType::Float32, round);
    const Tensor a = x * 2.0, b = tanh(a), c = sum(b), d = b / (c + 100.0),
                 e = matmul(d.reshape({8, 16}), a.reshape({16, 8}));
    const std::vector<float> want = [&] {
      const Tensor p = x * 2.0, q = tanh(p);
      return (q / (sum(q) + 100.0)).to_vector<float>();
    }();
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&, t] {
        if (t % 4 == 0) e.eval();
        if (t % 4 == 1) c.eval();
        if (t % 4 == 2) (b + static_cast<double>(t)).eval();
        const std::vector<float> got = d.to_vector<float>();
        bool same = true;
        for (std::size_t i = 0; i < want.size(); ++i) same &= std::abs(got[i] - want[i]) < 1e-5f;
        right += same;
      });
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(right, 16);
  }
}

TEST(SharedGraphs, MayEndBeforeWhatTheyRecordedIsEvaluated) {
  Tensor y;
  std::thread([&] { y = data({32}) * 3.0; }).join();
  std::thread([&] { y = y + 1.0; }).join();
  EXPECT_EQ(y.to_vector<float>()[2], std::fma(data({32}).to_vector<float>()[2], 3.f, 1.f));
}

// ---- fork
// --------------------------------------------------------------------------------------------------------

/// Runs f in a forked child, which must end with 0 within ten seconds.
template <class F>
void in_child(F f) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);
    _exit(f());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  if (WIFEXITED(status)) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

#if defined(__SANITIZE_THREAD__)
#define KILN_SKIP_UNDER_TSAN() GTEST_SKIP() << "threads after a multi-threaded fork are not supported by TSan"
#else
#define KILN_SKIP_UNDER_TSAN()
#endif

TEST(Fork, ChildEvaluatesAndCompiles) {  // FAULTS 26
  KILN_NEEDS_CPU();
  KILN_SKIP_UNDER_TSAN();
  const Tensor x = data({300000});
  const Tensor before = (x * 2.0).eval();
  (void)sum(exp(x)).item<float>();  // threads are running
  in_child([&] {
    const Tensor y = before + 1.0;
    const float v = tanh(sum(y * y + 3.0)).item<float>();
    return v == 1.0f && y.to_vector<float>()[1] == before.to_vector<float>()[1] + 1 ? 0 : 1;
  });
}

TEST(Fork, DuringEvaluationsOfOtherThreadsLeavesTheChildNoLockTaken) {  // FAULTS 26
  KILN_NEEDS_CPU();
  KILN_SKIP_UNDER_TSAN();
  const Tensor x = data({2000});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        if (i % 20 == 0 && t == 0) clear_memory_caches();
        some_chain(x, i % 7 + t).eval();
      }
    });
  for (int i = 0; i < 12; ++i)
    in_child([&] { return std::isfinite(sum(some_chain(x, 9 + i)).item<float>()) ? 0 : 1; });
  stop = true;
  for (std::thread& t : threads) t.join();
}

// ---- exit
// --------------------------------------------------------------------------------------------------------

class ExitDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // a new process, not a fork
};

void compile_in_background(bool forever) {
  std::thread([forever] {
    for (int i = 0; forever || i < 1; ++i) {
      if (i % 8 == 0) clear_memory_caches();
      some_chain(data({50}), i % 8 + 1).eval();
    }
  }).detach();
}

TEST_F(ExitDeathTest, WaitsForCompilesInFlight) {  // FAULTS 27
  EXPECT_EXIT(
      {
        (data({10}) + 1.0).eval();
        engine::set_compile_hook(take_long);
        compile_in_background(false);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(ExitDeathTest, IsCleanWhileADetachedThreadEvaluates) {  // FAULTS 27
  for (int wait : {0, 3, 20, 60})
    EXPECT_EXIT(
        {
          for (int t = 0; t < 3; ++t) compile_in_background(true);
          std::this_thread::sleep_for(std::chrono::milliseconds(wait));
          std::exit(7);
        },
        ::testing::ExitedWithCode(7), "");
}

TEST_F(ExitDeathTest, FromAnotherThreadIsClean) {  // FAULTS 27
  EXPECT_EXIT(
      {
        (data({10}) + 1.0).eval();
        std::thread([] { std::exit(7); }).detach();
        for (int i = 0;; ++i) {
          if (i % 8 == 0) clear_memory_caches();
          some_chain(data({50}), i % 8 + 1).eval();
        }
      },
      ::testing::ExitedWithCode(7), "");
}

struct EvaluatesAtExit {
  Tensor x;
  ~EvaluatesAtExit() {
    if (!x.valid()) return;
    const float old = (x + 1.0).to_vector<float>()[0];              // a kernel made before
    const float fresh = sqrt(abs(x) + 0.25).to_vector<float>()[0];  // one that is not made any more
    if (old != 2.0f || std::abs(fresh - std::sqrt(1.25f)) > 1e-6f) _exit(3);
  }
};
EvaluatesAtExit at_exit;

TEST_F(ExitDeathTest, StaticTensorsAreEvaluatedAndFreed) {
  KILN_NEEDS_CPU();
  EXPECT_EXIT(
      {
        at_exit.x = ones({4});
        (at_exit.x.eval() + 1.0).eval();
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

/// The vm's, which was the main thread's.
TEST_F(ExitDeathTest, StaticTensorsAreEvaluatedWhereScratchMemoryIsGone) {
  KILN_NEEDS_CPU();
  EXPECT_EXIT(
      {
        Config c = config();
        c.tier = Tier::Vm;
        configure(c);
        at_exit.x = ones({4});
        (at_exit.x.eval() + 1.0).eval();
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// ---- the disk cache between processes
// ------------------------------------------------------------------------------

/// Evaluates six kernels with the cache in KILN_TEST_DIRECTORY and waits for no compiler; the count of those
/// from disk.
std::uint64_t from_disk_without_waiting() {
  Config c = config();
  c.cache = "rw";
  c.cache_dir = std::getenv("KILN_TEST_DIRECTORY");
  c.tier = Tier::Auto;
  configure(c);
  const std::uint64_t before = statistics().kernels_from_disk;
  Tensor x = data({50});
  for (int i = 0; i < 6; ++i) {
    Tensor y = x;
    for (int k = 0; k <= i; ++k) y = k % 2 ? y * 0.5 : y + 1.0;
    y.eval();
  }
  return statistics().kernels_from_disk - before;
}

/// A program need not wait for its compiles that the next one finds them.
TEST_F(ExitDeathTest, OfAShortProgramFillsTheDiskCache) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  std::optional<testing::TemporaryDirectory> directory;
  // else this is one of the processes below, which run the test again
  if (!std::getenv("KILN_TEST_DIRECTORY")) {
    directory.emplace();
    setenv("KILN_TEST_DIRECTORY", directory->path().c_str(), 1);
  }
  EXPECT_EXIT(std::exit(from_disk_without_waiting() == 0 ? 7 : 1), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(std::exit(from_disk_without_waiting() >= 3 ? 7 : 1), ::testing::ExitedWithCode(7), "");
  unsetenv("KILN_TEST_DIRECTORY");
}

/// Evaluates a few programs with the cache in KILN_TEST_DIRECTORY; the count of kernels compiled.
std::uint64_t compiled_with_cache(const std::string& cpu_target = "") {
  Config c = config();
  c.cache = "rw";
  c.cache_dir = std::getenv("KILN_TEST_DIRECTORY");
  c.cpu_target = cpu_target;
  configure(c);
  const Statistics before = statistics();
  const Tensor x = data({40, 30});
  eval({nn::softmax(x), sum(x * x, 0), tanh(x) + 1.0});
  return statistics().kernels_compiled - before.kernels_compiled;
}

TEST_F(ExitDeathTest, NewProcessWithAWarmCacheCompilesNothing) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  std::optional<testing::TemporaryDirectory> directory;
  if (!std::getenv(
          "KILN_TEST_DIRECTORY")) {  // else this is one of the processes below, which run the test again
    directory.emplace();
    setenv("KILN_TEST_DIRECTORY", directory->path().c_str(), 1);
  }
  EXPECT_EXIT(std::exit(compiled_with_cache() > 0 ? 7 : 1), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(std::exit(compiled_with_cache() == 0 && statistics().kernels_from_disk > 0 ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(std::exit(compiled_with_cache("sse4.2") > 0 ? 7 : 1), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(std::exit(compiled_with_cache("sse4.2") == 0 ? 7 : 1), ::testing::ExitedWithCode(7), "");
  unsetenv("KILN_TEST_DIRECTORY");
}

}  // namespace
}  // namespace kiln
