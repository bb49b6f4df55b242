// Integers of four bits: what they pack to, what they unpack to, and products of weights in this form.
#include <kiln/int4.h>

#include "api/expect.h"
#include "modes.h"

#include <cmath>

namespace kiln {
namespace {

using namespace testing;

constexpr DType kTypes[] = {DType::Int8, DType::UInt8};

TEST(Int4, UnpacksBothHalvesOfEveryByte) {
  in_every_mode([] {
    for (const DType type : kTypes) {
      std::vector<int> expected;
      for (int byte = 0; byte < 256; ++byte)
        for (const int half : {byte & 15, byte >> 4})
          expected.push_back(type == DType::Int8 && half > 7 ? half - 16 : half);
      const Tensor bytes = bitcast(arange(256, DType::UInt8), type).eval();
      const Tensor x = unpack_int4(bytes);
      EXPECT_EQ(x.dtype(), type);
      EXPECT_EQ(x.shape(), (Shape{512}));
      EXPECT_EQ(astype(x, DType::Int32).to_vector<int>(), expected);
      EXPECT_EQ(astype(pack_int4(x), DType::Int32).to_vector<int>(),
                astype(bytes, DType::Int32).to_vector<int>());
    }
  });
}

TEST(Int4, PacksTheLastAxisAndKeepsFourBits) {
  in_every_mode([] {
    for (const DType type : kTypes) {
      const Tensor x = astype(arange(3 * 5 * 14) % 251, type).reshape({3, 5, 14});
      const Tensor packed = pack_int4(x);
      EXPECT_EQ(packed.shape(), (Shape{3, 5, 7}));
      const Tensor low = x & 15;
      const Tensor expected = type == DType::Int8 ? where(low > 7, low - 16, low) : low;
      EXPECT_TRUE(array_equal(unpack_int4(packed), expected));
      EXPECT_TRUE(
          array_equal(unpack_int4(swapaxes(packed, 0, 2)), unpack_int4(swapaxes(packed, 0, 2).eval())));
    }
    EXPECT_EQ(unpack_int4(zeros({4, 0}, DType::Int8)).shape(), (Shape{4, 0}));
    EXPECT_EQ(pack_int4(zeros({0, 6}, DType::UInt8)).shape(), (Shape{0, 3}));
  });
}

TEST(Int4, RefusesWhatItCannotPack) {
  expect_user_error([] { return pack_int4(zeros({4, 3}, DType::Int8)); },
                    "[pack_int4] the last axis needs an even extent, got int8 (4, 3)");
  expect_user_error([] { return pack_int4(zeros({4}, DType::Int16)); },
                    "[pack_int4] needs int8 or uint8, got int16 (4,)");
  expect_user_error([] { return unpack_int4(zeros({4})); },
                    "[unpack_int4] needs int8 or uint8, got float32 (4,)");
  expect_user_error([] { return unpack_int4(zeros({}, DType::UInt8)); },
                    "[unpack_int4] needs 1 to 15 axes, got uint8 ()");
}

// Against sums in double: scales of groups, zero points, any number of rows.
TEST(Int4, ProductsOfPackedWeights) {
  constexpr std::int64_t kN = 24, kK = 128, kGroup = 32;
  const auto at = [](const std::vector<double>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  in_every_mode([&] {
    for (const DType type : kTypes)
      for (const std::int64_t rows : {1, 2, 5, 40}) {
        const Tensor q = astype(arange(kN * kK) * 7 % 16 - (type == DType::Int8 ? 8 : 0), type)
                             .reshape({kN, kK}),
                     packed = pack_int4(q).eval();
        const Tensor
            scale = ((arange(kN * kK / kGroup) % 5 + 1) * 0.25).astype(DType::Float32),
            x = ((arange(rows * kK) % 11 - 5) * 0.5).astype(DType::Float32).reshape({rows, kK}).eval();
        const int zero = type == DType::Int8 ? 0 : 8;
        const Tensor groups = astype(unpack_int4(packed), DType::Float32).reshape({kN, kK / kGroup, kGroup});
        const Tensor w = ((groups - zero) * scale.reshape({kN, kK / kGroup, 1})).reshape({kN, kK});
        const std::vector<double> got =
            astype(matmul(x, matrix_transpose(w)), DType::Float64).to_vector<double>();
        const auto of = [](const Tensor& t) { return astype(t, DType::Float64).eval().to_vector<double>(); };
        const std::vector<double> a = of(x), b = of(q), s = of(scale);
        for (std::int64_t m = 0; m < rows; ++m)
          for (std::int64_t n = 0; n < kN; ++n) {
            double sum = 0;
            for (std::int64_t k = 0; k < kK; ++k)
              sum += at(a, m * kK + k) * (at(b, n * kK + k) - zero) * at(s, (n * kK + k) / kGroup);
            ASSERT_NEAR(at(got, m * kN + n), sum, 1e-3) << m << " " << n;
          }
      }
  });
}

}  // namespace
}  // namespace kiln
