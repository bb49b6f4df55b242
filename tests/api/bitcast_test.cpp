// The bits of one dtype as another: of memory, of values computed in wider types, in every way of evaluating.
#include "api/expect.h"
#include "modes.h"

#include <bit>
#include <cstring>

namespace kiln {
namespace {

using namespace testing;

std::vector<DType> of_size(std::int64_t bytes) {
  std::vector<DType> out;
  for (int d = 0; d < kDTypeCount; ++d)
    if (const auto t = static_cast<DType>(d); size_of(t) == bytes && !is_bool(t)) out.push_back(t);
  return out;
}

/// Row-major bytes of a value.
std::vector<std::byte> bytes_of(const Tensor& x) {
  std::vector<std::byte> out(static_cast<std::size_t>(x.numel() * size_of(x.dtype())));
  x.copy_to(out.data(), x.dtype());
  return out;
}

/// Numbers of the dtype that are no NaN: whose payload is not promised.
Tensor numbers(DType dtype, std::int64_t count) {
  return ((arange(count) * 37 % 251) - (is_unsigned_int(dtype) ? 0 : 100)).astype(dtype).eval();
}

TEST(Bitcast, KeepsEveryBitBetweenAllDtypesOfASize) {
  in_every_mode([] {
    for (const std::int64_t bytes : {1, 2, 4, 8})
      for (const DType from : of_size(bytes))
        for (const DType to : of_size(bytes)) {
          SCOPED_TRACE(std::string(name(from)) + " as " + std::string(name(to)));
          const Tensor x = numbers(from, 77);
          const Tensor y = bitcast(x, to);
          ASSERT_EQ(y.dtype(), to);
          EXPECT_EQ(bytes_of(y), bytes_of(x));
          EXPECT_EQ(bytes_of(bitcast(bitcast(x, to), from)), bytes_of(x));
        }
  });
}

TEST(Bitcast, OfHalvesSeesTheRoundedValue) {
  in_every_mode([] {
    for (const DType half : {DType::Float16, DType::BFloat16}) {
      const Tensor x = (arange(100.0) / 7).astype(half);
      const Tensor sum = x + 1.0f / 3;  // held in float32 inside a kernel
      const Tensor bits = bitcast(sum, DType::UInt16);
      const Tensor stored = sum.astype(half);
      stored.eval();
      EXPECT_EQ(bytes_of(bits), bytes_of(stored)) << name(half);
      const Tensor back = bitcast(bits + 1, half).astype(DType::Float32);  // the next value up
      EXPECT_TRUE(all(back > stored.astype(DType::Float32)).item<bool>()) << name(half);
    }
  });
}

TEST(Bitcast, FusesWithWhatIsAroundIt) {
  in_every_mode([] {
    const Tensor x = counting({40, 50}) - 1000;
    const Tensor magnitude = bitcast(bitcast(x.T(), DType::Int32) & 0x7fffffff, DType::Float32);
    expect_equal<float>(magnitude - abs(x.T()), {50, 40}, std::vector<float>(2000, 0));
    const Tensor low = sum(bitcast(x(slice::all(), range(none, none, 3)), DType::UInt32) & 1, 1);
    std::vector<std::uint64_t> expected;
    for (int i = 0; i < 40; ++i) {
      std::uint64_t n = 0;
      for (int j = 0; j < 50; j += 3)
        n += std::bit_cast<std::uint32_t>(static_cast<float>(i * 50 + j - 1000)) & 1;
      expected.push_back(n);
    }
    expect_equal<std::uint64_t>(low, expected);
  });
}

TEST(Bitcast, InALoopAndOfNumbers) {
  in_every_mode([] {
    // The fast inverse square root, refined in a loop.
    const Tensor x = floats({0.25f, 1, 4, 100});
    const Tensor guess = bitcast(0x5f3759df - (bitcast(x, DType::Int32) >> 1), DType::Float32);
    const Tensors r = while_loop(
        [](const Tensors& s) { return s[1] < 4; },
        [&](const Tensors& s) { return Tensors{s[0] * (1.5f - 0.5f * x * s[0] * s[0]), s[1] + 1}; },
        {guess, Tensor(0)});
    expect_near(r[0], {2, 1, 0.5, 0.1}, 1e-6);
    const Tensors bits =
        while_loop([](const Tensors& s) { return s[0] < 3; },
                   [](const Tensors& s) {
                     return Tensors{s[0] + 1, bitcast(bitcast(s[1], DType::UInt32) + 1u, DType::Float32)};
                   },
                   {Tensor(0), floats({1, 2})});
    expect_equal<float>(bits[1], {std::bit_cast<float>(0x3f800003u), std::bit_cast<float>(0x40000003u)});
    EXPECT_EQ(bitcast(full({}, 1.0f), DType::Int32).item<int>(), 0x3f800000);
    EXPECT_EQ(bitcast(full({2}, -0.0f), DType::UInt32)(1).item<std::uint32_t>(), 0x80000000u);
  });
}

TEST(Bitcast, SaysWhatItDoesNotTake) {
  in_every_mode([] { expect_equal<std::uint8_t>(bitcast(Tensor({true, false}), DType::UInt8), {1, 0}); });
  expect_user_error([] { bitcast(zeros({2, 3}), DType::Float64); },
                    "[bitcast] float32 (2, 3) as float64, which has another size");
  expect_user_error([] { bitcast(zeros({2}, DType::UInt8), DType::Bool); },
                    "[bitcast] uint8 (2,) as bool: write x != 0");
  expect_user_error([] { bitcast(Tensor(), DType::Int32); }, "[bitcast] an operand is an empty Tensor");
}

}  // namespace
}  // namespace kiln
