// What only a GPU can get wrong, through the public API: its memory running out, work of two threads on two
// streams, failures that show later. Skipped by name where there is none.
#include "api/expect.h"
#include "device/cuda/require.h"
#include "engine/device_memory.h"

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace kiln {
namespace {

/// New tensors live on the GPU.
class DeviceScope {
 public:
  DeviceScope() : before_(config()) {
    Config options = before_;
    options.device = "cuda";
    configure(options);
  }
  ~DeviceScope() { configure(before_); }

 private:
  Config before_;
};

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    scope_.emplace();
  }
  void TearDown() override { scope_.reset(); }

 private:
  std::optional<DeviceScope> scope_;
};

std::string device_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "";
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// ---- memory that runs out ----

class GpuMemory : public OnGpu {
 protected:
  void TearDown() override {
    if (cuda::available()) cuda::set_memory_limit(0, 0);
    OnGpu::TearDown();
  }
};

TEST_F(GpuMemory, ThatRunsOutIsAnErrorThatNamesBytesAndTheNextOperationWorks) {  // FAULTS 23
  const std::uint64_t before = cuda::pool_statistics(0).in_use;
  const auto total = static_cast<std::int64_t>(cuda::memory_info(0).total);
  for (int again = 0; again < 3; ++again) {
    const std::string error = device_error_of([&] { (ones({total}, DType::UInt8) + 1).eval(); });
    EXPECT_NE(error.find("out of memory"), std::string::npos) << error;
    EXPECT_NE(error.find(std::to_string(total)), std::string::npos) << error;
    EXPECT_EQ(sum(ones({1000})).item<float>(), 1000);
  }
  EXPECT_LE(cuda::pool_statistics(0).in_use, before + (1 << 20)) << "a failed evaluation keeps nothing";
}

TEST_F(GpuMemory, CachedByEarlierWorkIsGivenBackBeforeGivingUp) {  // FAULTS 23
  cuda::set_memory_limit(0, 3 * kGiB);
  // half GiB each, then cached
  for (int i = 0; i < 8; ++i) (ones({kGiB / 8 + i}, DType::Float32) + i).eval();
  const Tensor big = (ones({2 * kGiB}, DType::UInt8) + 1).eval();
  EXPECT_EQ(big(-1).item<std::uint8_t>(), 2);
}

TEST_F(GpuMemory, ThatRunsOutInTheMiddleOfAnEvaluationLeavesArgumentsWhole) {  // FAULTS 21, 23
  cuda::set_memory_limit(0, kGiB);
  const Tensor x = (arange(kGiB / 16, DType::Int32) % 1000).eval();  // a quarter
  const auto wants_more = [&] {
    std::vector<Tensor> roots;
    for (int i = 1; i <= 8; ++i) roots.push_back(x + i);
    eval(roots);
  };
  for (int again = 0; again < 3; ++again)
    EXPECT_NE(device_error_of(wants_more).find("out of memory"), std::string::npos);
  EXPECT_EQ(max(x + 1).item<std::int32_t>(), 1000);
  cuda::set_memory_limit(0, 0);
  EXPECT_EQ(device_error_of(wants_more), "");
}

// ---- threads and streams ----

class GpuStreams : public OnGpu {};

TEST_F(GpuStreams, OfTwoThreadsWorkSideBySide) {
  std::atomic<int> wrong{0};
  const auto work = [&](int seed) {
    const cuda::Stream own = cuda::new_stream(0);
    cuda::set_current_stream(0, own);
    for (int i = 0; i < 300; ++i) {
      const std::int64_t n = 1000 + 4096 * (i % 5);
      Tensor x = arange(n, DType::Int64) + seed;
      for (int k = 0; k < 3; ++k) x = (x * 3 + k).eval();
      const std::int64_t want = 27 * (n * (n - 1) / 2 + n * seed) + n * (0 * 9 + 1 * 3 + 2);
      wrong += sum(x).item<std::int64_t>() != want;
    }
    cuda::set_current_stream(0, nullptr);
  };
  std::thread a(work, 1), b(work, 1000);
  a.join();
  b.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(GpuStreams, HandTensorsToEachOther) {
  // Each thread reads what the other has enqueued, frees it, and is given its memory again by the pool.
  constexpr int kTurns = 200;
  std::barrier turn(2);
  Tensor handed[2];
  std::atomic<int> wrong{0};
  const auto work = [&](int me) {
    cuda::set_current_stream(0, cuda::new_stream(0));
    for (int i = 0; i < kTurns; ++i) {
      const std::int64_t n = (1 << 20) + i;
      handed[me] = ((arange(n, DType::Int32) % 10) + (me + i)).eval();
      turn.arrive_and_wait();
      const Tensor theirs = std::move(handed[1 - me]);
      const Tensor more = (theirs * 2).eval();
      wrong += max(more).item<std::int32_t>() != 2 * (9 + 1 - me + i);
      turn.arrive_and_wait();
    }
    cuda::set_current_stream(0, nullptr);
  };
  std::thread a(work, 0), b(work, 1);
  a.join();
  b.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(GpuStreams, ReductionsInOneLaunchDoNotShareCounters) {
  std::atomic<int> wrong{0};
  const auto work = [&] {
    cuda::set_current_stream(0, cuda::new_stream(0));
    const Tensor x = ones({1 << 22}, DType::Int32).eval();
    for (int i = 0; i < 200; ++i) wrong += sum(x + i).item<std::int64_t>() != std::int64_t{1 << 22} * (1 + i);
    cuda::set_current_stream(0, nullptr);
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(GpuStreams, ThreadsThatShareTheDefaultStreamAgree) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Tensor x = (arange(100000 + t, DType::Int64) + i).eval();
        wrong += max(x).item<std::int64_t>() != 100000 + t - 1 + i;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// ---- failures that show later ----

class GpuFailureDeathTest : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own: its context is lost
  }
};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

void lose_the_context() {
  const cuda::Stream stream = cuda::current_stream(0);
  const cuda::Function bad =
      cuda::make_function("extern \"C\" __global__ void bad(int* p) { p[threadIdx.x] = 1; }", "bad");
  int* nowhere = reinterpret_cast<int*>(std::uintptr_t{0x10});
  void* params[] = {&nowhere};
  cuda::launch(bad, {}, stream, params);
}

TEST_F(GpuFailureDeathTest, ComesOutOfTheNextReadAndOfEveryLaterOne) {  // FAULTS 24, 28
  EXPECT_EXIT(
      {
        const DeviceScope scope;
        const Tensor before = (ones({1000}) * 2).eval();
        synchronize(Device::cuda());
        lose_the_context();
        const Tensor dependent = before + 1;
        const std::string first = device_error_of([&] { dependent.to_vector<float>(); });
        require(!first.empty(), "the read after the failure fails");
        require(!device_error_of([&] { before.to_vector<float>(); }).empty(), "no stale data is read");
        require(!device_error_of([&] { sum(ones({10})).item<float>(); }).empty(), "new work fails too");
        require(!device_error_of([&] { synchronize(Device::cuda()); }).empty(), "and waiting");
        std::fprintf(stderr, "%s\n", first.c_str());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "illegal address|ILLEGAL_ADDRESS|illegal memory access");
}

TEST_F(GpuFailureDeathTest, LeavesTheCpuWorking) {  // FAULTS 24
  EXPECT_EXIT(
      {
        {
          const DeviceScope scope;
          const Tensor lost = (ones({1000}) * 2).eval();
          lose_the_context();
          require(!device_error_of([&] { lost.to_vector<float>(); }).empty(), "the device is lost");
        }
        Config options = config();
        options.device = "cpu";
        configure(options);
        require(sum(ones({1000})).item<float>() == 1000, "the processor works");
        std::exit(0);  // with tensors of the lost device freed
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuFailureDeathTest, ExitWithWorkUnderWayIsClean) {  // FAULTS 27
  EXPECT_EXIT(
      {
        const DeviceScope scope;
        static Tensor kept = (ones({1 << 26}) * 2).eval();
        for (int i = 0; i < 50; ++i) kept = (kept + 1).eval();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln
