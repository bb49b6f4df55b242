// Bools from memory of somebody else's: every byte but 0 is true, whoever reads it.
#include "api/expect.h"
#include "modes.h"
#include "needs_cpu.h"

#include <kiln/dlpack.h>

#include <cstdint>

namespace kiln {
namespace {

using testing::expect_equal;

const std::uint8_t kBytes[] = {0, 1, 2, 255, 0, 128, 1, 0};

Tensor lent(const Shape& shape, std::span<const std::int64_t> strides, int* given_back = nullptr,
            int first = 0) {
  return Tensor::borrow(kBytes + first, shape, strides, DType::Bool, [given_back](const void*) {
    if (given_back) ++*given_back;
  });
}

/// What kernels, library steps, views and memory say of it.
void expect_truths(const Tensor& t, const std::vector<bool>& want) {
  std::int64_t count = 0;
  for (const bool b : want) count += b;
  EXPECT_EQ(t.to_vector<bool>(), want);
  EXPECT_EQ(sum(t).item<std::int64_t>(), count);
  EXPECT_EQ(sum(t.astype(DType::UInt8)).item<std::uint64_t>(), static_cast<std::uint64_t>(count));
  EXPECT_EQ((t == true).to_vector<bool>(), want);
  EXPECT_EQ((t ^ false).to_vector<bool>(), want);
  EXPECT_EQ(where(t, 1, 0).astype(DType::Bool).to_vector<bool>(), want);
  EXPECT_EQ(flip(flip(t)).to_vector<bool>(), want);
  EXPECT_EQ(compress(t.reshape({t.numel()}), t.reshape({t.numel()})).numel(), count);
  EXPECT_EQ(sum(sort(t.reshape({t.numel()}))).item<std::int64_t>(), count);
  EXPECT_EQ(unique(t).numel(), count == 0 || count == t.numel() ? 1 : 2);
  EXPECT_EQ(take(t.reshape({t.numel()}), arange(t.numel()), 0).to_vector<bool>(), want);
  const auto* const bytes = static_cast<const std::uint8_t*>(t.data());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(bytes[i], want[i] ? 1 : 0) << i;
}

TEST(Bools, EveryByteButZeroIsTrueInEveryMode) {
  testing::in_every_mode([] {
    int given_back = 0;
    const auto deleter = [&](const void*) { ++given_back; };
    expect_truths(Tensor::borrow(kBytes, {8}, DType::Bool, deleter), {0, 1, 1, 1, 0, 1, 1, 0});
    EXPECT_EQ(given_back, 1);
    const std::int64_t turned[] = {1, 4}, backwards[] = {-1}, repeated[] = {0, 2}, of_one[] = {7, 0};
    expect_truths(lent({4, 2}, turned, &given_back), {0, 0, 1, 1, 1, 1, 1, 0});
    expect_truths(lent({3}, backwards, &given_back, 3), {1, 1, 1});
    expect_truths(lent({2, 3}, repeated, &given_back), {0, 1, 0, 0, 1, 0});
    expect_truths(lent({1, 3}, of_one, &given_back, 2), {1, 1, 1});
    EXPECT_EQ(given_back, 5);
    expect_truths(Tensor::copy_of(kBytes, {8}, DType::Bool), {0, 1, 1, 1, 0, 1, 1, 0});
  });
}

TEST(Bools, OfZeroAndOneAreNotCopied) {
  KILN_NEEDS_CPU();
  static const std::uint8_t good[] = {0, 1, 1, 0};
  const Tensor t = Tensor::borrow(good, {4}, DType::Bool, [](const void*) {});
  EXPECT_EQ(t.data(), good);
}

TEST(Bools, FromDlpackAreCopiedOrRefused) {
  KILN_NEEDS_CPU();
  std::uint8_t bytes[] = {0, 3, 1};
  std::int64_t shape[] = {3};
  const auto managed = [&] {
    auto* m = new dlpack::DLManagedTensor{};
    m->dl_tensor = {bytes, {dlpack::kDLCPU, 0}, 1, {dlpack::kDLBool, 8, 1}, shape, nullptr, 0};
    m->deleter = [](dlpack::DLManagedTensor* self) { delete self; };
    return m;
  };
  expect_truths(from_dlpack(managed()), {0, 1, 1});
  expect_truths(from_dlpack(managed(), {.copy = true}), {0, 1, 1});
  testing::expect_user_error([&] { from_dlpack(managed(), {.copy = false}); },
                             "[from_dlpack] bools with bytes other than 0 and 1 must be copied");
  bytes[1] = 1;
  EXPECT_EQ(from_dlpack(managed(), {.copy = false}).data(), bytes);
}

}  // namespace
}  // namespace kiln
