#include "device/cpu/threads.h"

#include "device/cpu/host_limits.h"
#include "with_threads.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

namespace kiln::cpu {
namespace {

class Threads : public testing::WithThreads {};

TEST_F(Threads, CountFollowsTheOption) {
  use(3);
  EXPECT_EQ(thread_count(), 3);
  EXPECT_EQ(thread_count_reason(), "3: KILN_NUM_THREADS");
  use(0);
  EXPECT_GE(thread_count(), 1);
  EXPECT_LE(thread_count(), affinity_cpus());
}

TEST_F(Threads, EveryIndexIsVisitedOnce) {
  for (int threads : {1, 2, 5}) {
    use(threads);
    for (std::int64_t n : {0, 1, 2, 7, 100, 12345})
      for (std::int64_t grain : {1, 3, 1000, 100000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
        parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
          EXPECT_LT(begin, end);
          EXPECT_GE(slot, 0);
          EXPECT_LT(slot, threads);
          EXPECT_TRUE(end - begin >= grain || end - begin == n);
          for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
        });
        for (const auto& s : seen) ASSERT_EQ(s, 1);
      }
  }
}

TEST_F(Threads, ChunkBoundariesAreTheSameEveryTime) {
  use(4);
  const auto chunks = [] {
    std::mutex mutex;
    std::set<std::pair<std::int64_t, std::int64_t>> out;
    parallel_for(1001, 10, [&](std::int64_t begin, std::int64_t end, int) {
      const std::lock_guard lock(mutex);
      out.emplace(begin, end);
    });
    return out;
  };
  const auto first = chunks();
  EXPECT_EQ(first.size(), 16u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(chunks(), first);
}

TEST_F(Threads, SharesOfSlotsDifferByOneIteration) {
  use(2);
  for (int n = 8; n < 40; ++n) {
    std::mutex mutex;
    std::vector<int> begins;
    parallel_for(n, 1, [&](std::int64_t begin, std::int64_t, int) {
      const std::lock_guard lock(mutex);
      begins.push_back(static_cast<int>(begin));
    });
    std::sort(begins.begin(), begins.end());
    ASSERT_EQ(begins.size(), 8u);
    EXPECT_EQ(begins[4], n / 2);  // the second slot's share begins here
  }
}

TEST_F(Threads, SlotsAreNeverSharedAtOneTime) {
  use(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> busy[4] = {};
    parallel_for(64, 1, [&](std::int64_t, std::int64_t, int slot) {
      EXPECT_EQ(busy[slot].fetch_add(1), 0);
      for (int i = 0; i < 200; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      busy[slot].fetch_sub(1);
    });
  }
}

TEST_F(Threads, NestedLoopsRunInlineOnTheSameSlot) {
  use(4);
  std::atomic<std::int64_t> sum{0};
  parallel_for(16, 1, [&](std::int64_t begin, std::int64_t end, int slot) {
    const auto outer = std::this_thread::get_id();
    for (std::int64_t i = begin; i < end; ++i)
      parallel_for(100, 1, [&](std::int64_t b, std::int64_t e, int inner) {
        EXPECT_EQ(b, 0);
        EXPECT_EQ(e, 100);
        EXPECT_EQ(inner, slot);
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += e - b;
      });
  });
  EXPECT_EQ(sum, 1600);
}

TEST_F(Threads, AnExceptionReachesTheCallerAndTheNextLoopWorks) {
  for (int threads : {1, 4}) {
    use(threads);
    EXPECT_THROW(parallel_for(1000, 1,
                              [](std::int64_t begin, std::int64_t, int) {
                                if (begin >= 0) throw std::runtime_error("chunk");
                              }),
                 std::runtime_error);
    std::atomic<std::int64_t> count{0};
    parallel_for(1000, 1, [&](std::int64_t b, std::int64_t e, int) { count += e - b; });
    EXPECT_EQ(count, 1000);
  }
}

TEST_F(Threads, SeveralUserThreadsMayLoopAtOnce) {
  use(2);
  std::vector<std::thread> users;
  std::atomic<std::int64_t> total{0};
  for (int u = 0; u < 6; ++u)
    users.emplace_back([&] {
      for (int round = 0; round < 100; ++round)
        parallel_for(1000, 10, [&](std::int64_t b, std::int64_t e, int) {
          std::byte* mine = scratch(1024);
          std::fill(mine, mine + 1024, static_cast<std::byte>(round));
          for (int i = 0; i < 1024; ++i) ASSERT_EQ(mine[i], static_cast<std::byte>(round));
          total += e - b;
        });
    });
  for (std::thread& t : users) t.join();
  EXPECT_EQ(total, 6 * 100 * 1000);
}

TEST_F(Threads, JobsAllRunAndTheFirstExceptionIsRethrown) {
  for (int threads : {1, 3}) {
    use(threads);
    std::atomic<int> ran{0};
    std::vector<std::function<void()>> jobs;
    for (int i = 0; i < 20; ++i)
      jobs.push_back([&ran, i] {
        ran++;
        if (i == 7) throw std::runtime_error("seven");
        if (i == 9) throw std::logic_error("nine");
      });
    try {
      run_jobs(jobs);
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "seven");
    }
    EXPECT_EQ(ran, 20);
  }
}

TEST_F(Threads, ScratchIsAlignedAndGrows) {
  std::byte* a = scratch(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(scratch(50), a);
  std::byte* b = scratch(1 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0u);
  b[(1 << 20) - 1] = std::byte{1};
}

#if !defined(__SANITIZE_THREAD__)
TEST_F(Threads, AForkedChildRunsOnItsOwn) {
  use(2);
  parallel_for(1000, 1, [](std::int64_t, std::int64_t, int) {});
  const pid_t child = fork();
  if (child == 0) {
    std::int64_t count = 0;
    parallel_for(1000, 1, [&](std::int64_t b, std::int64_t e, int) { count += e - b; });
    _exit(thread_count() == 1 && count == 1000 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

/// A made-up control-group tree.
class HostLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kiln_cgroup_XXXXXX";
    root_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  CgroupFiles files() const { return {root_ + "/fs", root_ + "/self"}; }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  std::string root_;
};

TEST_F(HostLimits, VersionTwoTakesTheTightestEnclosingGroup) {
  write("/self", "0::/a/b\n");
  write("/fs/a/b/cpu.max", "max 100000\n");
  write("/fs/a/cpu.max", "150000 100000\n");
  write("/fs/a/b/memory.max", "1000000\n");
  write("/fs/a/memory.max", "max\n");
  EXPECT_EQ(cpu_quota(files()), 1.5);
  EXPECT_EQ(memory_quota(files()), 1000000u);
}

TEST_F(HostLimits, VersionOneReadsItsControllers) {
  write("/self", "5:memory:/x\n3:cpu,cpuacct:/x\n0::/\n");
  write("/fs/cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
  write("/fs/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  write("/fs/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/fs/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/fs/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cpu_quota(files()), 4);
  EXPECT_EQ(memory_quota(files()), 0u);
}

TEST_F(HostLimits, AContainerWhosePathIsHiddenReadsTheMount) {
  write("/self", "0::/docker/0123\n");
  write("/fs/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(files()), 2);
}

TEST_F(HostLimits, NothingReadableMeansNoLimit) {
  EXPECT_EQ(cpu_quota(files()), 0);
  EXPECT_EQ(memory_quota(files()), 0u);
  EXPECT_GT(memory_limit(), 0u);
}

}  // namespace
}  // namespace kiln::cpu
