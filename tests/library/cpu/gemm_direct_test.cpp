#include "library/cpu/gemm_direct.h"

#include "library/cpu/gemm.h"
#include "modes.h"
#include "with_threads.h"

#include <kiln/compile.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace kiln::cpu {
namespace {

/// A product of row-major memory, perhaps read transposed.
Matmul product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, bool a_turned, bool b_turned) {
  Matmul call;
  call.dtype = dtype;
  call.m = m, call.n = n, call.k = k;
  call.a.row_stride = a_turned ? 1 : k, call.a.col_stride = a_turned ? m : 1;
  call.b.row_stride = b_turned ? 1 : n, call.b.col_stride = b_turned ? k : 1;
  return call;
}

template <class T>
std::vector<T> drawn(std::mt19937& rng, std::int64_t n) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for (T& x : out) x = static_cast<T>(static_cast<int>(rng() % 2001) - 1000) / T(500);
  return out;
}

/// Whether the product was fixed; its results are then those of the library, to the bit, in any memory.
template <class T>
bool is_fixed(Matmul call, std::mt19937& rng) {
  const std::shared_ptr<const library::FixedCall> fixed = fixed_product(call);
  for (int run = 0; fixed && run < 2; ++run) {
    const auto a = drawn<T>(rng, call.m * call.k), b = drawn<T>(rng, call.k * call.n);
    std::vector<T> want(static_cast<std::size_t>(call.m * call.n), T(-7)), have = want;
    call.a.data = a.data(), call.b.data = b.data(), call.out = want.data();
    EXPECT_EQ(library().workspace_bytes(call), 0u);
    library().matmul(call, nullptr);
    const std::array operands = {reinterpret_cast<const std::byte*>(a.data()),
                                 reinterpret_cast<const std::byte*>(b.data())};
    fixed->run(operands, have.data(), nullptr);
    EXPECT_EQ(std::memcmp(want.data(), have.data(), want.size() * sizeof(T)), 0)
        << call.m << " x " << call.n << " x " << call.k;
    double sum = 0;  // of the last element, for what both may have wrong
    for (std::int64_t p = 0; p < call.k; ++p)
      sum += static_cast<double>(
                 a[static_cast<std::size_t>((call.m - 1) * call.a.row_stride + p * call.a.col_stride)]) *
             static_cast<double>(
                 b[static_cast<std::size_t>(p * call.b.row_stride + (call.n - 1) * call.b.col_stride)]);
    EXPECT_NEAR(static_cast<double>(have.back()), sum, 1e-3);
  }
  return fixed != nullptr;
}

TEST(DirectProduct, FixedProductsAreThoseOfTheLibraryToTheBit) {
  std::mt19937 rng(18);
  int fixed = 0, all = 0;
  const auto try_all = [&]<class T>(T) {
    for (const std::int64_t m : {1, 2, 13, 15, 16, 29, 64, 128, 168})
      for (const std::int64_t n : {1, 7, 8, 10, 16, 17, 33, 64, 100, 256})
        for (const std::int64_t k : {1, 10, 64, 131, 384})
          for (const int turned : {0, 1, 2, 3}) {
            Matmul call = product(dtype_of<T>, m, n, k, (turned & 1) != 0, (turned & 2) != 0);
            call.strict = (m + n) % 3 == 0;
            ++all;
            fixed += is_fixed<T>(call, rng);
          }
  };
  try_all(1.0f);
  try_all(1.0);
  EXPECT_GT(fixed, all / 3);
  EXPECT_LT(fixed, all);
}

/// Columns of which a register of a quarter of a panel has too few and one of a half too many.
template <class T>
void expect_few_columns(std::int64_t m, std::int64_t n, std::int64_t k, bool turned, std::mt19937& rng) {
  Matmul call = product(dtype_of<T>, m, n, k, false, turned);
  const auto a = drawn<T>(rng, m * k), b = drawn<T>(rng, k * n);
  constexpr std::int64_t kBehind = 32;
  std::vector<T> out(static_cast<std::size_t>(m * n + kBehind), T(-7));
  call.a.data = a.data(), call.b.data = b.data(), call.out = out.data();
  std::vector<std::max_align_t> workspace(library().workspace_bytes(call) / sizeof(std::max_align_t) + 5);
  auto* const at = reinterpret_cast<std::byte*>(workspace.data());
  library().matmul(call, at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64);
  for (std::int64_t i = 0; i < m * n; ++i) {
    double sum = 0;
    for (std::int64_t p = 0; p < k; ++p)
      sum +=
          static_cast<double>(a[static_cast<std::size_t>(i / n * k + p)]) *
          static_cast<double>(b[static_cast<std::size_t>(p * call.b.row_stride + i % n * call.b.col_stride)]);
    ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i)]), sum, 1e-3)
        << m << " x " << n << " x " << k << ", element " << i;
  }
  for (std::int64_t i = m * n; i < m * n + kBehind; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], T(-7));
}

TEST(DirectProduct, ColumnsBetweenAQuarterAndHalfAPanel) {
  std::mt19937 rng(19);
  for (const std::int64_t m : {2, 14, 15, 16, 17, 64})
    for (const std::int64_t n : {8, 9, 10, 12, 15, 16, 17})
      for (const std::int64_t k : {1, 63, 128, 257, 300})
        for (const bool turned : {false, true}) {
          expect_few_columns<float>(m, n, k, turned, rng);
          expect_few_columns<double>(m, n, k, turned, rng);
        }
}

TEST(DirectProduct, ProductsThatNeedMoreThanTheirOperandsAreNotFixed) {
  const auto plain = [] { return product(DType::Float32, 64, 128, 64, false, true); };
  EXPECT_TRUE(fixed_product(plain()));
  const float row[128] = {};
  const std::int64_t offsets[64] = {};
  std::vector<Matmul> others(7, plain());
  others[0].batch_rank = 1, others[0].batch[0] = 3;
  others[1].bias = row;
  others[2].addend = row;
  others[3].b.row_offsets = offsets;
  others[4].dtype = DType::BFloat16;
  others[5].m = 100000;
  others[6].k = 0;
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_FALSE(fixed_product(others[i])) << i;
}

TEST(DirectProduct, RunsOfAPlanReadTheMemoryOfTheirOwnArguments) {
  const auto head = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return relu(matmul(x, w.T()) + b);
  };
  const auto step = compile(head);
  for (int i = 0; i < 5; ++i) {
    const auto keys = random::split<3>(random::Key(static_cast<std::uint64_t>(i)));
    const Tensor x = random::normal(keys[0], {64, 48}).eval(), w = random::normal(keys[1], {40, 48}).eval(),
                 b = random::normal(keys[2], {40}).eval();
    const Tensor have = step(x, w, b);
    Tensor want;
    {
      const testing::ModeScope interpreted(Mode::Interpret);
      want = head(x, w, b).eval();
    }
    EXPECT_LT(max(abs(have - want)).item<float>(), 1e-4f) << i;
  }
}

/// Tiles of rows, of columns where there are few rows, and of columns that are packed.
using DirectProductOnThreads = testing::WithThreads;
TEST_F(DirectProductOnThreads, EpiloguesGetTilesOfRowsAndColumns) {
  const auto head = [](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& residual) {
    return residual + relu(matmul(x, w) + b);
  };
  const auto keys = random::split<4>(random::Key(7));
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{100, 2401, 20}, {5, 500, 300}, {40, 300, 60}, {70, 10, 300}})
    for (const bool turned : {false, true}) {
      const Tensor x = random::normal(keys[0], {m, k}).eval(),
                   w = random::normal(keys[1], turned ? Shape{n, k} : Shape{k, n}).eval(),
                   b = random::normal(keys[2], {n}).eval(), residual = random::normal(keys[3], {m, n}).eval();
      const auto result = [&] { return head(x, turned ? w.T() : w, b, residual).eval(); };
      Tensor want;
      {
        const testing::ModeScope interpreted(Mode::Interpret);
        want = result();
      }
      for (const int threads : {1, 2, 3, 8}) {
        use(threads);
        EXPECT_LT(max(abs(result() - want)).item<float>(), 1e-4f) << m << " rows, " << threads << " threads";
      }
    }
}

}  // namespace
}  // namespace kiln::cpu
