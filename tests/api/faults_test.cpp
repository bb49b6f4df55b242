// Faults of values and programs that belong to no single operation: special constants, very wide operations,
// subnormals, a device that is not there.
#include "api/expect.h"
#include "counted.h"
#include "device/cuda/driver.h"
#include "modes.h"

#include <cfenv>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kiln {
namespace {

using testing::in_every_mode;

template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

/// Constants, and recorded scalars, of every float type come out with the bits that went in.
template <class T>
void round_trips(const std::vector<double>& values) {
  constexpr DType dtype = dtype_of<T>;
  for (const double v : values) {
    const T want = static_cast<T>(v);
    SCOPED_TRACE(::testing::Message() << v << " as " << name(dtype));
    const auto expect = [&](const Tensor& t) {
      for (const T have : t.to_vector<T>()) {
        if (v != v)
          EXPECT_TRUE(have != have);
        else
          EXPECT_EQ(bits_of(have), bits_of(want)) << static_cast<double>(have);
      }
    };
    expect(full({5}, v, dtype));
    expect(where(zeros({5}, dtype) == 0, full({5}, v, dtype), ones({5}, dtype)));
    expect(where(ones({5}, dtype) != 0, v, ones({5}, dtype)));  // a scalar: an argument of the kernel
    expect(pad(zeros({0}, dtype), {{2, 3}}, v));
    expect(concat({full({2}, v, dtype), full({3}, v, dtype)}));
    expect(max(full({5}, v, dtype)).reshape({1}));
  }
}

TEST(SpecialConstants, CompileAndComeBack) {  // FAULTS 19
  const double inf = HUGE_VAL;
  in_every_mode([&] {
    round_trips<float>(
        {NAN, inf, -inf, 0.0, -0.0, 1e-45, -1e-45, 1.17549421e-38, 3.4028234e38, -3.4028234e38});
    round_trips<double>({NAN, inf, -inf, 0.0, -0.0, 5e-324, -5e-324, 2.2250738585072009e-308,
                         std::numeric_limits<double>::max()});
    round_trips<float16>({NAN, inf, -inf, 0.0, -0.0, 0x1p-24, -0x1p-24, 0x1.ff8p-15, 65504});
    round_trips<bfloat16>({NAN, inf, -inf, 0.0, -0.0, 0x1p-133, -0x1p-133, 0x1.fep127});
  });
}

TEST(SpecialConstants, OfIntegersKeepTheirExtremes) {  // FAULTS 19
  in_every_mode([] {
    const auto lowest = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(full({3}, lowest, DType::Int64).to_vector<std::int64_t>()[2], lowest);
    EXPECT_EQ(where(ones({3}) != 0, full({3}, lowest, DType::Int64), 0).to_vector<std::int64_t>()[0], lowest);
    EXPECT_EQ((full({3}, lowest, DType::Int64) - 1).to_vector<std::int64_t>()[1],
              std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(full({2}, -1, DType::Int8).astype(DType::UInt64).to_vector<std::uint64_t>()[0],
              ~std::uint64_t{0});
  });
}

TEST(ManyArguments, OfOneOperationAreJoined) {  // FAULTS 20
  constexpr int kMany = 1000;
  std::vector<Tensor> parts;
  std::vector<std::int32_t> want;
  for (int i = 0; i < kMany; ++i) {
    parts.push_back(Tensor({i, -i}));
    want.push_back(i);
    want.push_back(-i);
  }
  testing::expect_equal<std::int32_t>(concat(parts), want);
  testing::expect_equal<std::int32_t>(stack(parts), {kMany, 2}, want);
}

TEST(ManyArguments, OfOneExpressionAreSplit) {  // FAULTS 20
  constexpr int kMany = 2000;
  std::vector<Tensor> terms;
  for (int i = 0; i < kMany; ++i) terms.push_back(Tensor({i, 1}));
  Tensor chain = terms[0];
  for (int i = 1; i < kMany; ++i) chain = chain + terms[static_cast<std::size_t>(i)];
  testing::expect_equal<std::int32_t>(chain, {kMany * (kMany - 1) / 2, kMany});
  std::vector<Tensor> layer = terms;  // the same as a tree
  while (layer.size() > 1) {
    std::vector<Tensor> next;
    for (std::size_t i = 0; i + 1 < layer.size(); i += 2) next.push_back(layer[i] + layer[i + 1]);
    if (layer.size() % 2) next.push_back(layer.back());
    layer = next;
  }
  testing::expect_equal<std::int32_t>(layer[0], {kMany * (kMany - 1) / 2, kMany});
}

TEST(ManyArguments, ManyResultsOfOneEvaluationAreAllRight) {  // FAULTS 20
  const Tensor x = Tensor({1, 2, 3});
  std::vector<Tensor> out;
  for (int i = 0; i < 1500; ++i) out.push_back(x * i);
  eval(out);
  for (int i = 0; i < 1500; ++i)
    ASSERT_EQ(out[static_cast<std::size_t>(i)].to_vector<std::int32_t>()[2], 3 * i);
}

TEST(ManyArguments, ManyScalarsAreAllRight) {  // FAULTS 20
  Tensor x = Tensor({0.0, 1.0});
  double want = 0;
  for (int i = 0; i < 1500; ++i) {
    x = x + (i + 0.5);
    want += i + 0.5;
  }
  testing::expect_equal<double>(x, {want, want + 1});
}

TEST(Subnormals, AreKeptByEveryModeAlike) {  // FAULTS 38
  in_every_mode([] {
    const Tensor x = Tensor({1e-40f, -1e-40f, 1.4e-45f, 1.17549435e-38f});
    const std::vector<float> half = (x * 0.5f).to_vector<float>();
    EXPECT_EQ(half[0], 1e-40f * 0.5f);
    EXPECT_EQ(half[2], 0.0f);
    EXPECT_EQ(half[3], 1.17549435e-38f * 0.5f);
    EXPECT_EQ((x + x).to_vector<float>()[1], -1e-40f * 2);
    EXPECT_EQ(sum(x(range(0, 1))).item<float>(), 1e-40f);
    EXPECT_EQ(max(x(range(2, 3))).item<float>(), 1.4e-45f);
    EXPECT_EQ(Tensor({1e-310}).astype(DType::Float64).to_vector<double>()[0], 1e-310);
    EXPECT_EQ((Tensor({5e-324}) + 5e-324).to_vector<double>()[0], 1e-323);
    EXPECT_EQ(static_cast<float>((Tensor({float16(0x1p-24f)}) * 2).to_vector<float16>()[0]), 0x1p-23f);
    EXPECT_TRUE((x != 0).to_vector<bool>()[2]);
  });
}

TEST(HostMode, OfFloatingPointIsLeftAlone) {  // FAULTS 38
  const int rounding = std::fegetround();
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr() & ~0x3fu;  // without what operations leave behind
#endif
  in_every_mode([] {
    exp(test::data({1000})).eval();
    (sum(test::data({100, 100})) / 0.0).eval();
    matmul(test::data({40, 40}), test::data({40, 40})).eval();
  });
  EXPECT_EQ(std::fegetround(), rounding);
#if defined(__x86_64__)
  EXPECT_EQ(_mm_getcsr() & ~0x3fu, before);
#endif
}

TEST(HostMode, OfAnotherRoundingDirectionWhileCompilingChangesNoKernel) {  // FAULTS 38
  const Tensor x = test::data({1000});
  const auto f = [&] { return exp(x * 0.1) + 0.3; };
  const std::vector<float> want = f().to_vector<float>();
  clear_memory_caches();
  std::fesetround(FE_UPWARD);
  f().eval();
  const int during = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(during, FE_UPWARD);
  EXPECT_EQ(f().to_vector<float>(), want);
}

TEST(NoDevice, AskedForIsAClearErrorAndTheCpuGoesOn) {  // FAULTS 25
  if (cuda::available()) GTEST_SKIP() << "there is a device";
  const Config before = config();
  EXPECT_EQ(before.device, "cpu") << "without a GPU it is the default";
  Config options = before;
  options.device = "cuda";
  std::string error;
  try {
    configure(options);
    ones({3}).eval();
  } catch (const Error& e) {
    error = e.what();
  }
  configure(before);
  EXPECT_NE(error.find("cuda"), std::string::npos) << error;
  EXPECT_NE(error.find(cuda::driver().reason), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << "one line";
  EXPECT_THROW(ones({3}).to(Device::cuda()), DeviceError);
  testing::expect_equal<float>(ones({2}) + 1, {2, 2});
}

}  // namespace
}  // namespace kiln
