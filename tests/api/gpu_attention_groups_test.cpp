// Attentions of many rows of narrow heads on a GPU: a block's groups of rows, of which masks leave out
// different tiles, and blocks that follow each other. Beside separate kernels.
#include "attention_scores.h"
#include "device/cuda/cuda_test.h"
#include "engine/plan.h"

#include <kiln/config.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>

#include "modes.h"
#include "test_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using test::columns, test::data, test::rows, test::scores;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBatch = 40, kRows = 700, kDepth = 64;  // more blocks of rows than a device's blocks

class GpuAttentionGroups : public testing::CudaTest {
 protected:
  using Mask = std::function<Tensor(const Tensor& t)>;

  void SetUp() override {
    CudaTest::SetUp();
    engine::prefer_templates(!IsSkipped());
  }
  void TearDown() override {
    engine::prefer_templates(false);
    CudaTest::TearDown();
  }

  static Tensor operand(int seed) { return data({kBatch, kRows, kDepth}, DType::BFloat16, seed); }

  static void expect_same(const Mask& mask, const Tensor& v) {
    const Tensor q = operand(1), k = operand(2);
    const auto result = [&](std::vector<std::string> off) {
      const testing::ModeScope scope(Mode::Lazy, Tier::Jit);
      Config c = config();
      c.fuse_off = std::move(off);
      configure(c);
      const Tensor t = mask(scores(q, k).astype(DType::Float32) * 0.125);
      return matmul(nn::softmax(t).astype(DType::BFloat16), v).astype(DType::Float32).to_vector<float>();
    };
    const std::vector<float> want = result({"attention"}), got = result({});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < want.size() && wrong < 5; ++i) {
      const bool same =
          std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i] || std::abs(got[i] - want[i]) <= 2e-2;
      wrong += !same;
      EXPECT_TRUE(same) << "row " << i / kDepth % kRows << " of " << i / kDepth / kRows << ": " << got[i]
                        << ", not " << want[i];
    }
  }
};

TEST_F(GpuAttentionGroups, MasksThatLeaveOutTilesOfSomeRows) {
  const Tensor i = rows(kRows), j = columns(kRows);
  const auto part = [](const Tensor& x) { return floor_divide(x, 100); };
  std::vector<float> odd = operand(3).astype(DType::Float32).to_vector<float>();
  odd[static_cast<std::size_t>((kRows - 1) * kDepth + 3)] = std::numeric_limits<float>::quiet_NaN();
  odd[static_cast<std::size_t>((kRows / 2) * kDepth + 5)] = std::numeric_limits<float>::infinity();
  const Tensor finite = operand(3),
               special = Tensor::from(odd, finite.shape()).astype(DType::BFloat16).eval();
  for (const Tensor& v : {finite, special})
    for (const double none : {-kInf, -1e9}) {
      SCOPED_TRACE(none);
      const auto with = [&](const Tensor& seen) {
        expect_same([&](const Tensor& t) { return where(seen, t, none); }, v);
      };
      with(i >= j);
      with((i >= j) & (i - j < 50));
      with(i - 300 >= j);        // blocks of rows without any tile
      with(i - 130 >= j);        // groups without any
      with(part(i) == part(j));  // groups of a block have tiles of their own
      with(i < j);               // the last row has none
    }
}

/// Maxima grow from tile to tile by less than weights may exceed 1, and by more.
TEST_F(GpuAttentionGroups, MaximaThatGrow) {
  for (const double step : {-0.01, -0.2, 0.2, -40.0}) {
    SCOPED_TRACE(step);
    const Tensor slope = columns(kRows).astype(DType::Float32) * step;
    expect_same([&](const Tensor& t) { return t + slope; }, operand(3));
    expect_same([&](const Tensor& t) { return where(rows(kRows) >= columns(kRows), t + slope, -kInf); },
                operand(3));
  }
  for (const double number : {40.0, 3e3, 1e-4}) {
    SCOPED_TRACE(number);
    expect_same([&](const Tensor& t) { return t * number; }, operand(3));
  }
}

}  // namespace
}  // namespace kiln
