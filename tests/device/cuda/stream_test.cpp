#include "device/cuda/stream.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

#include <dlfcn.h>

#include <chrono>
#include <thread>

namespace kiln::cuda {
namespace {

class Streams : public testing::Test {
 protected:
  void SetUp() override { KILN_REQUIRE_GPU(); }
};

TEST_F(Streams, EveryThreadStartsWithTheDefaultOne) {
  Stream stream = default_stream(0);
  EXPECT_EQ(device_of(stream), 0);
  EXPECT_NE(handle_of(stream), nullptr);
  EXPECT_EQ(current_stream(0), stream);
  std::thread([&] { EXPECT_EQ(current_stream(0), stream); }).join();
}

TEST_F(Streams, AThreadsOwnIsItsAlone) {
  Stream own = new_stream(0);
  EXPECT_NE(own, default_stream(0));
  EXPECT_EQ(set_current_stream(0, own), nullptr);
  EXPECT_EQ(current_stream(0), own);
  std::thread([&] { EXPECT_EQ(current_stream(0), default_stream(0)); }).join();
  EXPECT_EQ(set_current_stream(0, nullptr), own);
  EXPECT_EQ(current_stream(0), default_stream(0));
}

TEST_F(Streams, OneWaitsForAnother) {
  const Function add = add_kernel();
  Stream a = new_stream(0), b = new_stream(0);
  Block* block = allocate(400, a);
  fill(block->data, 0, 4, 100, a);
  spin(a, 300);
  run_add(add, block, 1, a, 100);
  EXPECT_FALSE(idle(a));
  EXPECT_TRUE(idle(b));
  order(a, b);
  EXPECT_EQ(read_ints(block, 100, b), std::vector<int>(100, 1));
  EXPECT_TRUE(idle(a));
  release(block, b);
}

TEST_F(Streams, EventsAreDoneWhenTheWorkBeforeThemIs) {
  Stream stream = new_stream(0);
  EXPECT_TRUE(Event().done());
  Event().synchronize();
  Event().wait_on(stream);
  const Event before = record(stream, true);
  spin(stream, 300);
  const Event after = record(stream, true);
  EXPECT_FALSE(after.done());
  after.synchronize();
  EXPECT_TRUE(before.done() && after.done());
  const double ms = elapsed_ms(before, after);
  EXPECT_GT(ms, 299);
  EXPECT_LT(ms, 2000);
  synchronize(stream);
  synchronize_device(0);
}

TEST_F(Streams, AUsersStreamIsWrappedOnceAndRetired) {
  void* library = dlopen(driver().library.c_str(), RTLD_NOW);
  ASSERT_TRUE(library);
  const auto create = reinterpret_cast<int (*)(CUstream_st**, unsigned)>(dlsym(library, "cuStreamCreate"));
  const auto destroy = reinterpret_cast<int (*)(CUstream_st*)>(dlsym(library, "cuStreamDestroy_v2"));
  const Function add = add_kernel();
  for (int round = 0; round < 3; ++round) {  // the driver may give the same handle again
    CUstream_st* handle = nullptr;
    ASSERT_EQ(create(&handle, 1), 0);
    Stream stream = wrap_stream(0, handle);
    EXPECT_EQ(handle_of(stream), handle);
    EXPECT_EQ(wrap_stream(0, handle), stream);
    Block* block = allocate(4000, stream);
    fill(block->data, 0, 4, 1000, stream);
    run_add(add, block, round, stream, 1000);
    EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, round));
    release(block, stream);
    retire(stream);
    EXPECT_EQ(destroy(handle), 0);
  }
  Stream legacy = wrap_stream(0, nullptr);
  Block* block = allocate(4, legacy);
  fill(block->data, 9, 4, 1, legacy);
  EXPECT_EQ(read_ints(block, 1, legacy)[0], 9);
  release(block, legacy);
}

/// Its memory, its part in an order, and its place among the streams that are asked for idle memory.
TEST_F(Streams, ARetiredOneThatIsDestroyedIsNamedOn) {
  void* library = dlopen(driver().library.c_str(), RTLD_NOW);
  ASSERT_TRUE(library);
  const auto create = reinterpret_cast<int (*)(CUstream_st**, unsigned)>(dlsym(library, "cuStreamCreate"));
  const auto destroy = reinterpret_cast<int (*)(CUstream_st*)>(dlsym(library, "cuStreamDestroy_v2"));
  const Stream other = new_stream(0);  // makes the device's context current
  CUstream_st* handle = nullptr;
  ASSERT_EQ(create(&handle, 1), 0);
  const Stream stream = wrap_stream(0, handle);
  Block* block = allocate(24 << 20, stream);
  fill(block->data, 7, 4, 1000, stream);
  retire(stream);
  ASSERT_EQ(destroy(handle), 0);
  order(stream, other);
  EXPECT_EQ(read_ints(block, 1000, other), std::vector<int>(1000, 7));
  synchronize(stream);
  EXPECT_TRUE(idle(stream));
  release(block, stream);
  const std::uint64_t asked = pool_statistics(0).driver_allocations;
  Block* again = allocate(24 << 20, other);
  EXPECT_EQ(pool_statistics(0).driver_allocations, asked) << "its memory serves other streams";
  release(again, other);
}

TEST_F(Streams, TwoThreadsWorkOnTwoStreams) {
  const Function add = add_kernel();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      set_current_stream(0, new_stream(0));
      for (int round = 0; round < 100; ++round) {
        Stream stream = current_stream(0);
        const std::size_t n = static_cast<std::size_t>(1000 + 37 * round);
        Block* block = allocate(n * 4, stream);
        fill(block->data, static_cast<std::uint32_t>(t), 4, n, stream);
        run_add(add, block, round, stream, static_cast<std::int64_t>(n));
        ASSERT_EQ(read_ints(block, n, stream), std::vector<int>(n, t + round));
        release(block, stream);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(Streams, DevicesAreApart) {
  KILN_REQUIRE_GPUS(2);
  EXPECT_NE(default_stream(0), default_stream(1));
  Stream there = default_stream(1);
  Block* block = allocate(400, there);
  EXPECT_EQ(block->device, 1);
  fill(block->data, 1, 4, 100, there);
  run_add(add_kernel(1), block, 2, there, 100);
  EXPECT_EQ(read_ints(block, 100, there), std::vector<int>(100, 3));
  release(block, there);
}

}  // namespace
}  // namespace kiln::cuda
