#include "device/cuda/pool.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

#include <random>
#include <set>
#include <thread>

namespace kiln::cuda {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class DevicePool : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    stream_ = default_stream(0);
    trim(0);
  }
  void TearDown() override {
    if (available()) set_memory_limit(0, 0);
  }

  static std::uint64_t driver_allocations() { return pool_statistics(0).driver_allocations; }

  Stream stream_ = nullptr;
};

TEST_F(DevicePool, BlocksAreAlignedWritableAndDistinct) {
  const std::uint64_t sizes[] = {
      0,        1,        255,          256,      257,         64 << 10, (64 << 10) + 1, kMiB,
      kMiB + 1, 8 * kMiB, 8 * kMiB + 1, 9 * kMiB, 100'000'001, 1000,     2 * kMiB,       2 * kMiB - 1,
      5000};
  std::vector<Block*> blocks;
  std::set<std::pair<std::byte*, std::byte*>> spans;
  for (const std::uint64_t bytes : sizes) {
    Block* block = allocate(bytes, stream_);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data) % 256, 0u);
    EXPECT_GE(block->bytes, bytes);
    EXPECT_LE(block->bytes, std::max(bytes + bytes / 4, bytes + 2 * kMiB));
    EXPECT_EQ(block->device, 0);
    fill(block->data, static_cast<std::uint32_t>(blocks.size()), 1, block->bytes, stream_);
    spans.emplace(block->data, block->data + block->bytes);
    blocks.push_back(block);
  }
  for (auto it = spans.begin(), next = std::next(it); next != spans.end(); ++it, ++next)
    EXPECT_LE(it->second, next->first);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::uint64_t at : {std::uint64_t{0}, blocks[i]->bytes - 1}) {
      std::uint8_t byte = 0xff;
      copy_to_host(&byte, blocks[i]->data + at, 1, stream_);
      EXPECT_EQ(byte, i);
    }
    release(blocks[i], stream_);
  }
}

TEST_F(DevicePool, ExactBlocksEndWhereTheyEndAndAreNotKept) {
  const std::uint64_t held = pool_statistics(0).held;
  Block* carved = allocate(300, stream_);
  set_exact_blocks(true);
  Block* exact = allocate(301, stream_);
  EXPECT_EQ(exact->bytes, 301u);
  fill(exact->data, 7, 1, exact->bytes, stream_);
  std::uint8_t byte = 0;
  copy_to_host(&byte, exact->data + 300, 1, stream_);
  EXPECT_EQ(byte, 7);
  const std::uint64_t before = pool_statistics(0).held;
  release(exact, stream_);
  EXPECT_EQ(pool_statistics(0).held, before - 301);
  set_exact_blocks(false);
  release(carved, stream_);
  trim(0);
  EXPECT_LE(pool_statistics(0).held, held);
}

TEST_F(DevicePool, ReusesWhatWasFreedWithoutAskingTheDriver) {
  for (const std::uint64_t bytes : {std::uint64_t{100}, 300'000 * std::uint64_t{1}, 3 * kMiB, 50 * kMiB}) {
    Block* first = allocate(bytes, stream_);
    std::byte* data = first->data;
    release(first, stream_);
    const std::uint64_t before = driver_allocations();
    for (int i = 0; i < 100; ++i) {
      Block* block = allocate(bytes - static_cast<std::uint64_t>(i % 7), stream_);
      EXPECT_EQ(block->data, data);
      release(block, stream_);
    }
    EXPECT_EQ(driver_allocations(), before);
  }
}

TEST_F(DevicePool, ASlightlySmallerLargeRequestReusesALargerBlock) {
  Block* large = allocate(100 * kMiB, stream_);
  std::byte* data = large->data;
  release(large, stream_);
  Block* block = allocate(92 * kMiB, stream_);
  EXPECT_EQ(block->data, data);
  release(block, stream_);
  block = allocate(50 * kMiB, stream_);  // would waste half
  EXPECT_NE(block->data, data);
  release(block, stream_);
}

TEST_F(DevicePool, AnotherStreamWaitsForABusyOneToRest) {
  Stream busy = new_stream(0), other = new_stream(0);
  Block* block = allocate(40 * kMiB, busy);
  std::byte* data = block->data;
  spin(busy, 300);
  release(block, busy);
  Block* fresh = allocate(40 * kMiB, other);
  EXPECT_NE(fresh->data, data);
  synchronize(busy);
  Block* reused = allocate(40 * kMiB, other);
  EXPECT_EQ(reused->data, data);
  release(fresh, other);
  release(reused, other);
}

TEST_F(DevicePool, AtItsLimitItTakesABusyStreamsBlockBehindItsWork) {
  const Function add = add_kernel();
  Stream busy = new_stream(0), other = new_stream(0);
  const std::size_t n = 10 * kMiB;
  Block* block = allocate(n * 4, busy);
  std::byte* data = block->data;
  set_memory_limit(0, pool_statistics(0).held + 8 * kMiB);
  fill(block->data, 0, 4, n, busy);
  spin(busy, 50);
  run_add(add, block, 1, busy, n);  // must not come after the other's fill
  release(block, busy);
  Block* taken = allocate(n * 4, other);
  EXPECT_EQ(taken->data, data);
  fill(taken->data, 5, 4, n, other);
  EXPECT_EQ(read_ints(taken, n, other), std::vector<int>(n, 5));
  release(taken, other);
}

TEST_F(DevicePool, OutOfMemoryIsAClearErrorAndTheNextCallWorks) {
  const std::uint64_t wanted = device(0).memory_bytes * 2;
  try {
    allocate(wanted, stream_);
    FAIL();
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(std::to_string(wanted) + " bytes wanted"), std::string::npos) << text;
    EXPECT_NE(text.find("free"), std::string::npos) << text;
  }
  EXPECT_THROW(allocate(~std::uint64_t{0}, stream_), DeviceError);
  Block* block = allocate(1000, stream_);
  fill(block->data, 1, 4, 250, stream_);
  EXPECT_EQ(read_ints(block, 250, stream_), std::vector<int>(250, 1));
  release(block, stream_);
}

TEST_F(DevicePool, FlushesItsCacheAndTriesAgainWhenTheDeviceIsFull) {
  const std::uint64_t free = memory_info(0).free;
  Block* half = allocate(free / 2, stream_);
  Block* small = allocate(1000, stream_);
  fill(small->data, 7, 4, 250, stream_);
  release(half, stream_);
  Block* more = allocate(free / 10 * 8, stream_);  // only fits once the half is back at the driver
  EXPECT_EQ(read_ints(small, 250, stream_), std::vector<int>(250, 7));
  EXPECT_THROW(allocate(free / 2, stream_), DeviceError);
  release(more, stream_);
  release(small, stream_);
  trim(0);
  EXPECT_GT(memory_info(0).free, free / 10 * 8);
}

TEST_F(DevicePool, KeepsToItsLimit) {
  const std::uint64_t held = pool_statistics(0).held;
  set_memory_limit(0, held + 64 * kMiB);
  EXPECT_EQ(pool_statistics(0).limit, held + 64 * kMiB);
  Block* a = allocate(40 * kMiB, stream_);
  EXPECT_THROW(allocate(40 * kMiB, stream_), DeviceError);
  release(a, stream_);
  Block* b = allocate(60 * kMiB, stream_);  // a's memory is returned first
  EXPECT_LE(pool_statistics(0).held, held + 64 * kMiB);
  release(b, stream_);
  set_memory_limit(0, 0);
  EXPECT_EQ(pool_statistics(0).limit, device(0).memory_bytes);
}

TEST_F(DevicePool, TrimReturnsChunksAndLargeBlocksThatNothingUses) {
  const std::uint64_t before = pool_statistics(0).held;
  Block* kept = allocate(1000, stream_);
  fill(kept->data, 3, 4, 250, stream_);
  std::vector<Block*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(allocate(200'000, stream_));
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(50 * kMiB, stream_));
  for (int i = 0; i < 20; ++i) blocks.push_back(allocate(3 * kMiB, stream_));
  for (Block* block : blocks) release(block, stream_);
  const std::uint64_t held = pool_statistics(0).held;
  EXPECT_GE(trim(0, held - 10 * kMiB), 10 * kMiB);
  EXPECT_LE(pool_statistics(0).held, held - 10 * kMiB);
  trim(0);
  EXPECT_LE(pool_statistics(0).held, before + 2 * kMiB);  // the chunk of `kept`
  EXPECT_EQ(trim(0), 0u);
  EXPECT_EQ(read_ints(kept, 250, stream_), std::vector<int>(250, 3));
  release(kept, stream_);
}

TEST_F(DevicePool, CountsWhatIsInUse) {
  const PoolStatistics before = pool_statistics(0);
  Block* a = allocate(1000, stream_);
  Block* b = allocate(20 * kMiB, stream_);
  const PoolStatistics during = pool_statistics(0);
  EXPECT_EQ(during.in_use, before.in_use + a->bytes + b->bytes);
  EXPECT_GE(during.peak, during.in_use);
  EXPECT_GE(during.held, during.in_use);
  EXPECT_EQ(during.allocations, before.allocations + 2);
  release(a, stream_);
  release(b, stream_);
  EXPECT_EQ(pool_statistics(0).in_use, before.in_use);
}

TEST_F(DevicePool, ManyThreadsAndStreamsShareIt) {
  const std::uint64_t before = pool_statistics(0).in_use;
  const Function add = add_kernel();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Stream stream = t % 2 ? new_stream(0) : default_stream(0);
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<Block*, int>> live;
      for (int round = 0; round < 300; ++round) {
        if (live.size() < 8) {
          const std::size_t n = std::size_t{1} << (random() % 22);
          Block* block = allocate(n * 4, stream);
          const int value = t * 1000 + round;
          fill(block->data, 0, 4, n, stream);
          run_add(add, block, value, stream, static_cast<std::int64_t>(n));
          live.emplace_back(block, value);
        }
        if (random() % 2 && !live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          const auto [block, value] = live.back();
          live.pop_back();
          EXPECT_EQ(read_ints(block, 1, stream)[0], value);
          release(block, stream);
        }
        if (random() % 100 == 0) trim(0, 64 * kMiB);
      }
      for (const auto& [block, value] : live) {
        EXPECT_EQ(read_ints(block, 1, stream)[0], value);
        release(block, stream);
      }
      if (t % 2) synchronize(stream);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(pool_statistics(0).in_use, before);
}

TEST(DevicePoolWithoutDevice, AllocatingIsADeviceError) {
  if (available()) GTEST_SKIP() << "there is a device";
  EXPECT_THROW(pool_statistics(0), DeviceError);
  EXPECT_THROW(trim(0), DeviceError);
  EXPECT_THROW(default_stream(0), DeviceError);
  EXPECT_THROW(current_stream(0), DeviceError);
}

}  // namespace
}  // namespace kiln::cuda
