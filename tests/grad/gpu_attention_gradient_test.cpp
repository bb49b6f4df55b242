// Gradients of attention on a GPU: a main loop makes scores, weights and their cotangents again tile by tile,
// whatever stands between the products, and no array of rows × columns is stored.
#include "attention_scores.h"
#include "device/cuda/cuda_test.h"
#include "engine/plan.h"
#include "grad/attention_gradients.h"
#include "modes.h"

#include <kiln/config.h>
#include <kiln/layers.h>
#include <kiln/nn.h>
#include <kiln/random.h>

#include <limits>

namespace kiln {
namespace {

using test::columns, test::data, test::rows, test::scores;
using Sizes = test::AttentionSizes;
using Tensors = std::vector<Tensor>;
using Program = test::AttentionProgram;
constexpr double kInf = std::numeric_limits<double>::infinity();

class GpuAttentionGradient : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    engine::prefer_templates(!IsSkipped());
  }
  void TearDown() override {
    engine::prefer_templates(false);
    CudaTest::TearDown();
  }

  /// Compares fused gradients with the interpreter's.
  static void expect_fused(const Program& f, const Tensors& x, double tolerance = 3e-2) {
    Tensors want;
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = test::attention_gradients(f, x);
    }
    const testing::ModeScope scope(Mode::Lazy);
    const FusionRecorder recorder;
    const Tensors got = test::attention_gradients(f, x);
    const FusionReport report = recorder.last();
    test::expect_gradients_near(got, want, tolerance);
    EXPECT_EQ(test::gradients_in(report), 1) << to_text(report);
    EXPECT_FALSE(test::stores_pairs(report, x[0].dim(-2), x[1].dim(-2))) << to_text(report);
  }
};

/// Scores and weights in float32, as nn::attention has them.
Tensor attend(const Tensors& x, const std::function<Tensor(const Tensor&)>& mask) {
  return matmul(nn::softmax(mask(scores(x[0], x[1]).astype(DType::Float32))).astype(x[2].dtype()), x[2]);
}

TEST_F(GpuAttentionGradient, WithAndWithoutAMask) {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Tensors x = test::attention_inputs({1, 2, 70, 150, 32, 32}, dtype);
    for (const bool causal : {false, true})
      expect_fused([&](const Tensors& t) { return nn::attention(t[0], t[1], t[2], causal); }, x,
                   dtype == DType::Float16 ? 6e-3 : 3e-2);
  }
}

TEST_F(GpuAttentionGradient, HeadSizesAndRaggedLengths) {
  for (const Sizes& s : {Sizes{1, 1, 33, 65, 64, 64},
                         {1, 1, 129, 130, 128, 128},
                         {1, 2, 20, 70, 40, 24},
                         {1, 1, 17, 70, 256, 256},
                         {2, 1, 6, 9, 7, 5}}) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.columns << " " << s.depth << " " << s.width);
    expect_fused([](const Tensors& t) { return nn::attention(t[0], t[1], t[2], true); },
                 test::attention_inputs(s, DType::BFloat16));
  }
}

/// Long ones add dq from all blocks of columns where the chip can (PairPass::adds), but in the deterministic
/// mode, with which they are compared.
void expect_as_deterministic(const Tensors& x, bool causal) {
  const auto f = [&](const Tensors& t) { return nn::attention(t[0], t[1], t[2], causal); };
  const Tensors got = test::attention_gradients(f, x);
  Config c = config();
  c.deterministic = true;
  const ScopedConfig scope(c);
  test::expect_gradients_near(got, test::attention_gradients(f, x), 1e-2);
}

TEST_F(GpuAttentionGradient, LongOnesAreAsInTheDeterministicMode) {
  for (const Sizes& s : {Sizes{1, 2, 1030, 1100, 64, 64},
                         {1, 2, 1100, 1030, 128, 128},
                         {2, 1, 700, 1200, 40, 128},
                         {1, 1, 1025, 1090, 96, 96}})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << s.rows << " " << s.columns << " " << s.depth << " " << causal);
      expect_as_deterministic(test::attention_inputs(s, DType::BFloat16), causal);
    }
}

/// 0 times NaN is NaN, also where a mask leaves nothing of a tile: of what the sums over columns multiply,
/// and of what the sum that blocks add to does.
TEST_F(GpuAttentionGradient, LongOnesLeaveOutOnlyWhatIsFinite) {
  for (const std::size_t operand : {0u, 1u, 2u}) {
    SCOPED_TRACE(operand);
    Tensors x = test::attention_inputs({1, 1, 1100, 1100, 64, 64}, DType::BFloat16);
    const Tensor here = arange(1100).reshape({1100, 1}) == (operand == 0 ? 3 : 1090);
    x[operand] = where(here, std::numeric_limits<double>::quiet_NaN(), x[operand]).eval();
    expect_as_deterministic(x, true);
  }
}

TEST_F(GpuAttentionGradient, WhatStandsBetweenTheProducts) {
  const Sizes s{1, 2, 70, 150, 32, 32};
  const Tensors x = test::attention_inputs(s, DType::BFloat16);
  const Tensor i = rows(s.rows), j = columns(s.columns);
  const Tensor allowed = (data({s.rows, s.columns}, DType::Float32, 7) > -0.5).eval();
  const Tensor bias = data({s.heads, s.rows, s.columns}, DType::Float32, 8);
  const auto with = [&](const std::function<Tensor(const Tensor&)>& mask) {
    expect_fused([&](const Tensors& t) { return attend(t, mask); }, x);
  };
  with([&](const Tensor& t) { return where(i - 10 >= j, t, -1e9); });
  with([&](const Tensor& t) { return where((i >= j) & (i - j < 20), t, -kInf); });
  with([&](const Tensor& t) { return where(i >= j, tanh(t * (1.0 / 3)) * 3.0, -kInf); });
  with([&](const Tensor& t) { return where(allowed, t, -kInf); });
  with([&](const Tensor& t) { return t + bias; });
  with([&](const Tensor& t) { return t + (j - i).astype(DType::Float32) * 0.05; });
}

TEST_F(GpuAttentionGradient, Dropout) {
  const Sizes s{1, 2, 40, 150, 32, 32};
  const Tensors x = test::attention_inputs(s, DType::BFloat16);
  const Tensor keep = (data({s.batch, s.heads, s.rows, s.columns}, DType::Float32, 9) > -0.8).eval();
  const auto with = [&](const Tensor& factor) {
    expect_fused(
        [&](const Tensors& t) {
          const Tensor p = nn::softmax(scores(t[0], t[1]).astype(DType::Float32));
          return matmul((p * factor * (1 / 0.9)).astype(DType::BFloat16), t[2]);
        },
        x);
  };
  with(keep.astype(DType::Float32));
  with(random::bernoulli(random::Key(4), {s.batch, s.heads, s.rows, s.columns}, 0.75).astype(DType::Float32));
}

TEST_F(GpuAttentionGradient, Spellings) {
  const Tensors x = test::attention_inputs({1, 2, 40, 90, 32, 32}, DType::BFloat16);
  const auto with = [&](const std::function<Tensor(const Tensor&)>& weights) {
    expect_fused(
        [&](const Tensors& t) {
          const Tensor s = scores(t[0], t[1]).astype(DType::Float32);
          return matmul(weights(s).astype(DType::BFloat16), t[2]);
        },
        x);
  };
  with([](const Tensor& t) { return exp(t - logsumexp(t, -1, true)); });
  with([](const Tensor& t) { return exp(nn::log_softmax(t)); });
  // the derivative of the maximum, which counts the greatest elements: statistics of rows
  with([](const Tensor& t) {
    const Tensor e = exp(t - max(t, -1, true));
    return e / sum(e, -1, true);
  });
}

TEST_F(GpuAttentionGradient, HeadsAreShared) {
  const std::int64_t b = 1, groups = 2, each = 2, n = 50, m = 90, d = 16;
  const Tensors x{data({b, groups * each, n, d}, DType::BFloat16),
                  data({b, groups, m, d}, DType::BFloat16, 1), data({b, groups, m, d}, DType::BFloat16, 2)};
  const auto shared = [&](const Tensor& t) {
    return broadcast_to(t.reshape({b, groups, 1, m, d}), {b, groups, each, m, d})
        .reshape({b, groups * each, m, d});
  };
  expect_fused([&](const Tensors& t) { return nn::attention(t[0], shared(t[1]), shared(t[2]), true); }, x);
}

TEST_F(GpuAttentionGradient, RowsOfNothingAndSpecialValues) {
  const Sizes s{1, 1, 40, 200, 16, 16};
  Tensors x = test::attention_inputs(s, DType::BFloat16);
  // the first rows see no column: NaN, as written; a finite fill: such rows are uniform
  for (const double fill : {-kInf, -1e9})
    expect_fused(
        [&](const Tensors& t) {
          return attend(t, [&](const Tensor& p) { return where(rows(40) - 10 >= columns(200), p, fill); });
        },
        x);
  for (const std::int64_t n : {200, 530})
    for (const std::size_t which : {0u, 1u, 2u}) {
      if (n > 200 && which == 1) continue;  // k is looked for as q is
      SCOPED_TRACE(::testing::Message() << n << " " << which);
      Tensors odd = test::attention_inputs({1, 1, n == 200 ? 40 : n, n, 16, 16}, DType::BFloat16);
      std::vector<float> v = odd[which].astype(DType::Float32).to_vector<float>();
      v[v.size() - 13] = std::numeric_limits<float>::quiet_NaN();
      odd[which] = Tensor::from(v, odd[which].shape()).astype(DType::BFloat16).eval();
      expect_fused([](const Tensors& t) { return nn::attention(t[0], t[1], t[2], true); }, odd);
    }
}

}  // namespace
}  // namespace kiln
