#include "device/cpu/pool.h"

#include "support/size_class.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace kiln::cpu {
namespace {

void free_buffer(ir::Buffer* sole_owner) { sole_owner->free(sole_owner); }

TEST(Pool, BuffersAreAlignedWritableAndDistinct) {
  std::vector<ir::Buffer*> live;
  for (std::uint64_t bytes :
       {0ull, 1ull, 4ull, 64ull, 65ull, 4096ull, 65536ull, 65537ull, 1048576ull, 1048577ull, 5000000ull}) {
    ir::Buffer* b = allocate(bytes);
    EXPECT_GE(b->bytes, bytes);
    EXPECT_TRUE(b->writable);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data) % 64, 0u);
    if (bytes > kLocalMax) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data) % (2 << 20), 0u);
    }
    std::memset(b->data, static_cast<int>(live.size()), b->bytes);
    live.push_back(b);
  }
  for (std::size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(live[i]->data[0], static_cast<std::byte>(i));
    EXPECT_EQ(live[i]->data[live[i]->bytes - 1], static_cast<std::byte>(i));
    free_buffer(live[i]);
  }
}

TEST(Pool, ReusesWhatWasFreedWithoutAskingTheSystem) {
  for (std::uint64_t bytes : {1000ull, 300000ull, 40000000ull}) {
    ir::Buffer* a = allocate(bytes);
    std::byte* data = a->data;
    free_buffer(a);
    const std::uint64_t before = pool_statistics().system_allocations;
    ir::Buffer* b = allocate(bytes);
    EXPECT_EQ(b->data, data);
    EXPECT_EQ(pool_statistics().system_allocations, before);
    free_buffer(b);
  }
}

TEST(Pool, CountsBytesInUseAcrossThreads) {
  const std::uint64_t before = pool_statistics().in_use;
  ir::Buffer* b = allocate(1024);
  ir::Buffer* large = allocate(3 << 20);
  EXPECT_EQ(pool_statistics().in_use, before + b->bytes + large->bytes);
  std::thread([&] {
    free_buffer(b);
    free_buffer(large);
  }).join();
  EXPECT_EQ(pool_statistics().in_use, before);
}

TEST(Pool, TrimReturnsLargeAndMediumBlocks) {
  trim();
  free_buffer(allocate(64 << 20));
  free_buffer(allocate(512 << 10));
  EXPECT_GE(trim(), (64u << 20) + (512u << 10));
  EXPECT_EQ(trim(), 0u);
}

TEST(Pool, OneEighthLargerBlocksServeLargeRequests) {
  trim();
  ir::Buffer* a = allocate(9 << 20);
  std::byte* data = a->data;
  free_buffer(a);
  ir::Buffer* b = allocate(8 << 20);
  EXPECT_EQ(b->data, data);
  free_buffer(b);
}

class PoolLimit : public ::testing::Test {
 protected:
  void TearDown() override { set_memory_limit(0); }
};

TEST_F(PoolLimit, RefusesWithTheBytesWantedAndAvailableAndGoesOn) {
  trim();
  const PoolStatistics now = pool_statistics();
  set_memory_limit(now.in_use + now.cached + (32 << 20));
  try {
    allocate(64 << 20);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("67108864 bytes wanted, 33554432 available"), std::string::npos)
        << e.what();
  }
  free_buffer(allocate(16 << 20));
}

TEST_F(PoolLimit, TrimsItsCacheBeforeItRefuses) {
  trim();
  const PoolStatistics now = pool_statistics();
  set_memory_limit(now.in_use + now.cached + (128 << 20));
  free_buffer(allocate(60 << 20));
  ir::Buffer* b = allocate(100 << 20);
  EXPECT_GE(b->bytes, 100u << 20);
  free_buffer(b);
}

TEST_F(PoolLimit, KeepsAtMostHalfOfTheLimitCached) {
  trim();
  set_memory_limit(256 << 20);
  std::vector<ir::Buffer*> live;
  for (int i = 0; i < 12; ++i) live.push_back(allocate(16 << 20));
  for (ir::Buffer* b : live) free_buffer(b);
  EXPECT_LE(trim(), 128u << 20);
}

TEST(Pool, AbsurdSizesAreRefused) {
  EXPECT_THROW(allocate(std::uint64_t{1} << 45), DeviceError);
  EXPECT_THROW(allocate(~std::uint64_t{0}), DeviceError);
}

TEST(Pool, ThreadsAllocateAndFreeEachOthersBlocks) {
  constexpr int kThreads = 4, kRounds = 3000;
  std::mutex mutex;
  std::vector<ir::Buffer*> shared;
  const std::uint64_t before = pool_statistics().in_use;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        ir::Buffer* mine = allocate(rng() % 2 ? rng() % 2000 : rng() % 3000000);
        std::memset(mine->data, t, std::min<std::uint64_t>(mine->bytes, 64));
        ir::Buffer* other = nullptr;
        {
          const std::lock_guard lock(mutex);
          shared.push_back(mine);
          if (shared.size() > 50) {
            std::swap(shared[rng() % shared.size()], shared.back());
            other = shared.back();
            shared.pop_back();
          }
        }
        if (other) free_buffer(other);
      }
    });
  for (std::thread& t : threads) t.join();
  for (ir::Buffer* b : shared) free_buffer(b);
  EXPECT_EQ(pool_statistics().in_use, before);
}

struct FreesAtThreadEnd {
  ir::Buffer* buffer = nullptr;
  ~FreesAtThreadEnd() {
    if (buffer) free_buffer(buffer);
    free_buffer(allocate(100));  // and the pool still serves
  }
};

TEST(Pool, ServesAThreadAfterItsOwnListsAreGone) {
  const std::uint64_t before = pool_statistics().in_use;
  std::thread([] {
    thread_local FreesAtThreadEnd early;  // made before the pool's thread state, so destroyed after it
    early.buffer = allocate(5000);
  }).join();
  EXPECT_EQ(pool_statistics().in_use, before);
}

struct FreesAtExit {
  ir::Buffer* buffer = nullptr;
  ~FreesAtExit() {
    if (buffer) free_buffer(buffer);
  }
};

TEST(PoolDeathTest, ExitFreesBuffersOfStaticObjects) {
  static FreesAtExit holder;
  EXPECT_EXIT(
      {
        holder.buffer = allocate(1000);
        std::thread([] { free_buffer(allocate(1 << 20)); }).join();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln::cpu
