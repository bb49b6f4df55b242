// Floats rounded to bfloat16 in registers give the bits of one conversion at a time.
#include "library/cpu/gemm_micro.h"

#include <kiln/dtype.h>

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace kiln::cpu {
namespace {

TEST(NarrowBfloat, EveryUpperHalfRoundsAsOneByOne) {
  std::vector<float> floats;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)  // zeros, subnormals, infinities and NaN among them
    for (const std::uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      floats.push_back(std::bit_cast<float>(upper << 16 | lower));
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, floats.size() - 37}) {
    const std::size_t n = floats.size() - first;
    std::vector<std::uint16_t> got(n + 1, 0x1234);
    narrow_bfloat(floats.data() + first, got.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(got[i], bfloat16(floats[first + i]).bits)
          << std::hex << std::bit_cast<std::uint32_t>(floats[first + i]);
    EXPECT_EQ(got[n], 0x1234);
  }
}

}  // namespace
}  // namespace kiln::cpu
