// Attentions of few rows on a GPU: blocks of a warp or two, and parts of the keys.
#include "attention_scores.h"
#include "counted.h"
#include "device/cuda/cuda_test.h"

#include <kiln/config.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>

#include "modes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using test::data, test::scores;

class GpuAttentionKeys : public testing::CudaTest {
 protected:
  /// Beside the interpreter; by how many launches and no library.
  static std::uint64_t launches(const std::function<Tensor()>& f, double tolerance) {
    Tensor want, got;
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = f().eval();
    }
    const testing::ModeScope scope(Mode::Lazy, Tier::Jit);
    const test::Counted n = test::count([&] { got = f().eval(); });
    EXPECT_EQ(n.library_calls, 0u);
    const std::vector<float> g = got.astype(DType::Float32).to_vector<float>(),
                             w = want.astype(DType::Float32).to_vector<float>();
    for (std::size_t i = 0; i < g.size(); ++i)
      EXPECT_TRUE(g[i] == w[i] || std::abs(g[i] - w[i]) <= tolerance * std::max(1.0f, std::abs(w[i])) ||
                  (std::isnan(g[i]) && std::isnan(w[i])))
          << "element " << i << " is " << g[i] << ", not " << w[i];
    return n.launches;
  }
};

constexpr std::pair<DType, double> kTypes[] = {
    {DType::Float32, 2e-5}, {DType::Float16, 4e-3}, {DType::BFloat16, 2e-2}};

TEST_F(GpuAttentionKeys, ManyKeysGoByParts) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const std::int64_t rows : {1, 5, 20}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << ' ' << rows);
      const std::int64_t batch = dtype == DType::Float32 ? 40 : 2;  // as many as have blocks on any GPU
      const Tensor q = data({batch, rows, 40}, dtype, 1), k = data({batch, 1024, 40}, dtype, 2),
                   v = data({batch, 1024, 24}, dtype, 3);
      EXPECT_LE(launches([&] { return nn::attention(q, k, v); }, tolerance), 3u);
    }
}

/// Parts of a number of keys that has no divisors share some: each counts once, whatever its value is.
TEST_F(GpuAttentionKeys, PartsThatShareKeys) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const std::int64_t rows : {1, 5, 20})
      for (const std::int64_t infinite : {-1, 0, 515, 1030}) {
        SCOPED_TRACE(::testing::Message() << name(dtype) << ' ' << rows << ' ' << infinite);
        const std::int64_t batch = dtype == DType::Float32 ? 40 : 2;
        const Tensor q = data({batch, rows, 40}, dtype, 1), k = data({batch, 1031, 40}, dtype, 2),
                     v = data({batch, 1031, 24}, dtype, 3), key = arange(1031).reshape({1031, 1});
        const Tensor values = where(key == infinite, INFINITY, v).astype(dtype).eval();
        EXPECT_LE(launches([&] { return nn::attention(q, k, values); }, tolerance), 3u);
      }
}

TEST_F(GpuAttentionKeys, ManyMatricesHaveSmallBlocks) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const std::int64_t rows : {1, 16, 17, 32}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << ' ' << rows);
      const Tensor q = data({300, rows, 16}, dtype, 1), k = data({300, 35, 16}, dtype, 2),
                   v = data({300, 35, 24}, dtype, 3);
      EXPECT_EQ(launches([&] { return nn::attention(q, k, v); }, tolerance), 1u);
    }
}

TEST_F(GpuAttentionKeys, OneRowAgainstWideHeads) {
  for (const auto& [dtype, tolerance] : {kTypes[1], kTypes[2]})  // of floats, products and a softmax
    for (const std::int64_t keys : {90, 1500}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << ' ' << keys);
      const Tensor q = data({300, 1, 128}, dtype, 1), k = data({300, keys, 128}, dtype, 2),
                   v = data({300, keys, 128}, dtype, 3);
      EXPECT_EQ(launches([&] { return nn::attention(q, k, v); }, tolerance), 1u);
    }
}

// Values of rows that are stored where there is one row.
TEST_F(GpuAttentionKeys, OneRowLeavesItsLogarithm) {
  const Tensor q = data({40, 1, 32}, DType::Float16, 1), k = data({40, 70, 32}, DType::Float16, 2);
  launches(
      [&] {
        const Tensor t = scores(q, k).astype(DType::Float32), lse = logsumexp(t, -1, true);
        return matmul(exp(t - lse).astype(DType::Float16), k).astype(DType::Float32) + lse;
      },
      4e-3);
}

}  // namespace
}  // namespace kiln
