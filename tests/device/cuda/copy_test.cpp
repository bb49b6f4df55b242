#include "device/cuda/copy.h"

#include "device/cuda/require.h"
#include "device/cuda/strided_copy.h"

#include <kiln/error.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace kiln::cuda {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::vector<std::uint8_t> noise(std::size_t n, unsigned seed = 1) {
  std::vector<std::uint8_t> out(n);
  std::uint32_t x = seed * 2654435761u + 1;
  for (std::uint8_t& byte : out) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(x >> 24);
  }
  return out;
}

class Copies : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    stream_ = default_stream(0);
  }
  Stream stream_ = nullptr;
};

TEST_F(Copies, OddSizesAndAddressesGoThereAndBack) {
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{255},
                                std::uint64_t{65535}, std::uint64_t{65536}, std::uint64_t{65537},
                                2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 9 * kMiB + 7, 100 * kMiB + 13}) {
    const std::vector<std::uint8_t> sent = noise(n + 3, static_cast<unsigned>(n));
    Block* a = allocate(n + 5, stream_);
    Block* b = allocate(n + 9, stream_);
    copy_to_device(a->data + 5, sent.data() + 3, n, stream_);
    copy_on_device(b->data + 9, a->data + 5, n, stream_);
    std::vector<std::uint8_t> got(n + 1, 0);
    copy_to_host(got.data() + 1, b->data + 9, n, stream_);
    EXPECT_TRUE(std::equal(got.begin() + 1, got.end(), sent.begin() + 3, sent.end())) << n;
    EXPECT_EQ(got[0], 0);
    release(a, stream_);
    release(b, stream_);
  }
  EXPECT_GT(staging_bytes(), 0u);
  EXPECT_LE(staging_bytes(), 128 * kMiB);
}

TEST_F(Copies, TheSourceMayChangeOnceTheCallReturns) {
  for (const std::size_t n :
       {std::size_t{100}, std::size_t{50'000}, std::size_t{3 * kMiB}, std::size_t{90 * kMiB}}) {
    const std::vector<std::uint8_t> sent = noise(n);
    std::vector<std::uint8_t> source = sent;
    Block* block = allocate(n, stream_);
    spin(stream_, 20);  // the device is not there yet
    copy_to_device(block->data, source.data(), n, stream_);
    std::memset(source.data(), 0, n);
    copy_to_host(source.data(), block->data, n, stream_);
    EXPECT_TRUE(source == sent) << n;
    release(block, stream_);
  }
}

TEST_F(Copies, TheTargetHoldsTheBytesOnceTheCallReturns) {
  const Function add = add_kernel();
  for (const std::size_t n : {std::size_t{10}, std::size_t{5'000'000}}) {
    Block* block = allocate(n * 4, stream_);
    fill(block->data, 1, 4, n, stream_);
    spin(stream_, 20);
    run_add(add, block, 1, stream_, static_cast<std::int64_t>(n));
    EXPECT_EQ(read_ints(block, n, stream_), std::vector<int>(n, 2));
    release(block, stream_);
  }
}

TEST_F(Copies, ThreadsShareTheStaging) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      Stream stream = t % 2 ? default_stream(0) : new_stream(0);
      for (unsigned round = 0; round < 5; ++round) {
        const std::vector<std::uint8_t> sent = noise(7 * kMiB + 1001 * t + round, t * 10 + round);
        Block* block = allocate(sent.size(), stream);
        copy_to_device(block->data, sent.data(), sent.size(), stream);
        std::vector<std::uint8_t> got(sent.size());
        copy_to_host(got.data(), block->data, got.size(), stream);
        EXPECT_TRUE(got == sent);
        release(block, stream);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(Copies, FillsRepeatAPattern) {
  Block* block = allocate(4004, stream_);
  fill(block->data, 0, 1, 4004, stream_);
  fill(block->data + 1, 0xab, 1, 7, stream_);
  fill(block->data + 10, 0xbeef, 2, 3, stream_);
  fill(block->data + 20, 0xdeadbeef, 4, 5, stream_);
  fill(block->data + 20, 1, 4, 0, stream_);
  std::vector<std::uint8_t> got(4004), want(4004, 0);
  std::memset(want.data() + 1, 0xab, 7);
  const std::uint16_t half = 0xbeef;
  const std::uint32_t word = 0xdeadbeef;
  for (int i = 0; i < 3; ++i) std::memcpy(want.data() + 10 + 2 * i, &half, 2);
  for (int i = 0; i < 5; ++i) std::memcpy(want.data() + 20 + 4 * i, &word, 4);
  copy_to_host(got.data(), block->data, got.size(), stream_);
  EXPECT_TRUE(got == want);
  release(block, stream_);
}

TEST(StridedCopies, CompileForEveryArchitecture) {
  KILN_REQUIRE_NVRTC();
  for (int number : {75, 80, 86, 89, 90, 100, 120})
    EXPECT_NO_THROW(compile(strided_copy_source(), "strided_copy", {number / 10, number % 10}));
}

TEST(StridedCopies, GatherElementsOfEverySize) {
  KILN_REQUIRE_GPU();
  Stream stream = default_stream(0);
  const std::vector<std::uint8_t> sent = noise(1 << 16);
  Block* from = allocate(sent.size(), stream);
  Block* to = allocate(sent.size(), stream);
  copy_to_device(from->data, sent.data(), sent.size(), stream);
  for (const std::size_t size : {1, 2, 4, 8}) {
    const std::int64_t extents[] = {3, 1, 17, 2}, strides[] = {300, 5, -7, 0};
    StridedCopy c;
    c.to = to->data;
    c.from = from->data + 2000 * size;
    c.rank = 4;
    std::copy_n(extents, 4, c.extents);
    std::copy_n(strides, 4, c.strides);
    copy_strided(c, static_cast<std::int64_t>(size), stream);
    std::vector<std::uint8_t> got(static_cast<std::size_t>(c.count()) * size);
    copy_to_host(got.data(), to->data, got.size(), stream);
    std::size_t i = 0;
    for (std::int64_t x = 0; x < 3; ++x)
      for (std::int64_t z = 0; z < 17; ++z)
        for (int repeat = 0; repeat < 2; ++repeat, ++i) {
          const auto at = static_cast<std::size_t>(2000 + 300 * x - 7 * z) * size;
          EXPECT_EQ(std::memcmp(got.data() + i * size, sent.data() + at, size), 0) << size << ' ' << i;
        }
  }
  release(from, stream);
  release(to, stream);
}

TEST_F(Copies, AcrossStreamsOfOneDeviceKeepTheOrderOfBoth) {
  const Function add = add_kernel();
  Stream a = new_stream(0), b = new_stream(0);
  const std::size_t n = 1'000'000;
  Block* from = allocate(n * 4, a);
  Block* to = allocate(n * 4, b);
  fill(from->data, 1, 4, n, a);
  spin(a, 20);
  run_add(add, from, 1, a, n);
  spin(b, 30);
  copy_across(to->data, b, from->data, a, n * 4);
  fill(from->data, 77, 4, n, a);  // after the copy
  EXPECT_EQ(read_ints(to, n, b), std::vector<int>(n, 2));
  release(from, a);
  release(to, b);
}

TEST_F(Copies, AcrossDevices) {
  KILN_REQUIRE_GPUS(2);
  Stream a = default_stream(0), b = default_stream(1);
  const std::size_t n = 3'000'001;
  Block* from = allocate(n * 4, a);
  Block* to = allocate(n * 4, b);
  fill(from->data, 1, 4, n, a);
  spin(a, 20);
  run_add(add_kernel(0), from, 1, a, n);
  copy_across(to->data, b, from->data, a, n * 4);
  run_add(add_kernel(1), to, 5, b, n);
  EXPECT_EQ(read_ints(to, n, b), std::vector<int>(n, 7));
  release(from, a);
  release(to, b);
}

}  // namespace
}  // namespace kiln::cuda
