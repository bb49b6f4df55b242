#include "library/cpu/gemm_pairs.h"

#include "library/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace {

using kiln::bfloat16;
using namespace kiln::cpu;

bfloat16 element(std::int64_t i) { return static_cast<bfloat16>(static_cast<float>(i * 37 % 101) - 50); }

TEST(PackPairs, OfLinesAtAnyStrides) {
  for (const auto& [line, step] : {std::pair<int, int>{1, 40}, {41, 1}, {3, 90}, {95, 2}, {-41, 1}})
    for (const std::int64_t used : {1, 3, 4, 5, 14, 31, 32})
      for (const std::int64_t depth : {1, 2, 7, 8, 9, 33}) {
        constexpr std::int64_t kWidth = 32;
        std::vector<bfloat16> from(8000);
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = element(static_cast<std::int64_t>(i));
        const bfloat16* const at = from.data() + (line < 0 ? 4000 : 0);
        const std::int64_t pairs = (depth + 1) / 2;
        std::vector<std::uint32_t> to(static_cast<std::size_t>(pairs * kWidth + 1), 0xabababab);
        pack_pairs(at, {line}, {step}, used, kWidth, depth, to.data());
        for (std::int64_t p = 0; p < pairs; ++p)
          for (std::int64_t w = 0; w < kWidth; ++w) {
            const auto step_of = [&](std::int64_t q) -> std::uint32_t {
              return w < used && q < depth ? at[w * line + q * step].bits : 0;
            };
            const auto got = to[static_cast<std::size_t>(p * kWidth + w)];
            ASSERT_EQ(got & 0xffff, step_of(2 * p)) << line << " " << used << " " << depth;
            ASSERT_EQ(got >> 16, step_of(2 * p + 1)) << line << " " << used << " " << depth;
          }
        ASSERT_EQ(to.back(), 0xabababab);
      }
}

TEST(PairMicro, SumsOfEveryHeight) {
  const PairMicro* const micro = pair_micro();
  if (!micro) GTEST_SKIP() << "no AVX512_BF16";
  constexpr std::int64_t kDepth = 9, kPairs = 5, kPitch = 48;
  for (std::int64_t rows = 1; rows <= PairMicro::kRows; ++rows)
    for (const std::int64_t cols : {16, 32})
      for (const bool first : {true, false}) {
        std::vector<bfloat16> a(static_cast<std::size_t>(rows * kDepth)),
            b(static_cast<std::size_t>(kDepth * cols));
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = element(static_cast<std::int64_t>(i) + 3);
        for (std::size_t i = 0; i < b.size(); ++i) b[i] = element(static_cast<std::int64_t>(i) + 7);
        std::vector<std::uint32_t> pa(PairMicro::kRows * kPairs), pb(PairMicro::kColumns * kPairs);
        pack_pairs(a.data(), {kDepth}, {1}, rows, PairMicro::kRows, kDepth, pa.data());
        pack_pairs(b.data(), {1}, {cols}, cols, PairMicro::kColumns, kDepth, pb.data());
        std::vector<float> c(static_cast<std::size_t>((rows + 1) * kPitch), 2);
        micro->sums[rows - 1][cols > 16](kPairs, pa.data(), pb.data(), c.data(), kPitch, first);
        for (std::int64_t i = 0; i <= rows; ++i)
          for (std::int64_t j = 0; j < kPitch; ++j) {
            float expected = first && i < rows && j < cols ? 0 : 2;
            for (std::int64_t p = 0; p < kDepth && i < rows && j < cols; ++p)
              expected += static_cast<float>(a[static_cast<std::size_t>(i * kDepth + p)]) *
                          static_cast<float>(b[static_cast<std::size_t>(p * cols + j)]);
            ASSERT_EQ(c[static_cast<std::size_t>(i * kPitch + j)], expected) << rows << " " << i << "," << j;
          }
      }
}

/// 2^-130 · 2^127, in the strict mode: what a processor's pairs take for zero.
TEST(PairMicro, TheStrictModeKeepsSubnormalNumbers) {
  constexpr std::int64_t kN = 40;
  std::vector<bfloat16> a(kN * kN, static_cast<bfloat16>(std::ldexp(1.0f, -130))),
      b(kN * kN, static_cast<bfloat16>(std::ldexp(1.0f, 127))), out(kN * kN);
  kiln::library::Matmul call;
  call.dtype = kiln::DType::BFloat16;
  call.m = call.n = call.k = kN;
  call.a = {a.data(), kN, 1, {}};
  call.b = {b.data(), kN, 1, {}};
  call.out = out.data();
  call.strict = true;
  std::vector<std::byte> workspace(library().workspace_bytes(call) + 64);
  void* aligned = workspace.data();
  std::size_t room = workspace.size();
  library().matmul(call, static_cast<std::byte*>(std::align(64, 1, aligned, room)));
  for (const bfloat16 x : out) ASSERT_EQ(static_cast<float>(x), kN / 8.0f);
}

}  // namespace
