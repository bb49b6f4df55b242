// Products whose rows are reduced: no array of all rows and columns is in memory.
#include "counted.h"
#include "engine/plan.h"
#include "library/cuda/blas.h"
#include "modes.h"

#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/nn.h>
#include <kiln/random.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace kiln {
namespace {

using test::data;
using Program = std::function<std::vector<Tensor>()>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowBlocks : public ::testing::Test {
 protected:
  void SetUp() override { set_rows(16); }
  void TearDown() override {
    set_rows(0);
    configure(before_);
  }
  static void set_rows(std::int64_t rows) {
    engine::set_block_rows(rows);
    clear_memory_caches();
  }
  static bool on_cpu() { return config().device == "cpu"; }
  static void strict() {
    Config c = config();
    c.strict = true;
    configure(c);
  }
  static std::vector<std::vector<double>> values(const Program& program) {
    std::vector<Tensor> out = program();
    eval(std::span<const Tensor>(out));
    std::vector<std::vector<double>> all;
    for (const Tensor& t : out) all.push_back(astype(t, DType::Float64).eval().to_vector<double>());
    return all;
  }
  /// Without blocks.
  static std::vector<std::vector<double>> whole(const Program& program) {
    Config c = config();
    const Config before = c;
    c.fuse_off = {"blocks"};
    configure(c);
    const auto all = values(program);
    configure(before);
    return all;
  }
  /// What blocks change, relative to values of 1.
  static void expect_same(const Program& program, double tolerance) {
    const auto want = whole(program), got = values(program);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t t = 0; t < got.size(); ++t) {
      ASSERT_EQ(got[t].size(), want[t].size());
      for (std::size_t i = 0; i < got[t].size(); ++i) {
        if (std::isnan(want[t][i]) || std::isinf(want[t][i]) || tolerance == 0)
          EXPECT_TRUE(got[t][i] == want[t][i] || (std::isnan(got[t][i]) && std::isnan(want[t][i])))
              << "element " << i << " of result " << t << ": " << got[t][i] << ", " << want[t][i];
        else
          EXPECT_NEAR(got[t][i], want[t][i], tolerance * (1 + std::abs(want[t][i])))
              << "element " << i << " of result " << t;
      }
    }
  }
  static FusionReport report(const Program& program) {
    const FusionRecorder recorder;
    const std::vector<Tensor> out = program();
    eval(std::span<const Tensor>(out));
    return recorder.last();
  }
  /// The number of blocks, from the report; 0: none.
  static int blocks(const FusionReport& r) {
    for (const FusionReport::Boundary& b : r.boundaries)
      if (b.reason == FusionReason::InBlocks) return std::stoi(b.arguments[2]);
    return 0;
  }
  static std::vector<FusionReason> misses(const FusionReport& r) {
    std::vector<FusionReason> out;
    for (const FusionReport::NearMiss& m : r.near_misses)
      if (m.pattern == FusionPattern::RowBlocks) out.push_back(m.condition);
    return out;
  }

 private:
  const Config before_ = config();
};

Tensor labels(std::int64_t rows, std::int64_t classes) {
  return astype(arange(rows) * 37 % classes, DType::Int32).eval();
}

TEST_F(RowBlocks, CrossEntropyStoresABlockOfLogits) {
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64}) {
    SCOPED_TRACE(name(type));
    const Tensor x = data({100, 48}, type), w = data({48, 1000}, type, 1), t = labels(100, 1000);
    const Program loss = [&] { return std::vector{nn::cross_entropy(matmul(x, w), t)}; };
    expect_same(loss, 1e-6);
    const FusionReport r = report(loss);
    EXPECT_EQ(blocks(r), 7);
    const std::int64_t logits = 1000 * size_of(type);  // a row
    EXPECT_GE(r.after.peak_bytes, 16 * logits);
    EXPECT_LT(r.after.peak_bytes, 17 * logits);
  }
}

TEST_F(RowBlocks, OtherProgramsOfRows) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1), b = data({300}, DType::Float32, 2);
  const Tensor t = labels(55, 300);
  const auto y = [&] { return matmul(x, w) + b; };
  const std::vector<std::function<Tensor()>> programs = {
      [&] { return logsumexp(y(), 1); },
      [&] { return take_along_axis(y(), argmax(y(), 1, true), 1); },
      [&] { return max(y(), 1) - mean(y(), 1); },
      [&] { return var(y(), 1); },
      [&] {
        const Tensor s = tanh(y() * 0.1) * 10;
        const Tensor most = max(s, 1, true);
        return most + log(sum(exp(s - most), 1, true));
      },
      [&] { return take_along_axis(y(), expand_dims(t, 1), 1) - logsumexp(y(), 1, true); },
      [&] { return topk(y(), 5, 1).values; },
      [&] { return nn::cross_entropy(y(), t, nn::Reduction::None); },
      [&] { return sum(where(y() > 0, y(), 0.0), 1) * 2 + 1; },
  };
  for (std::size_t p = 0; p < programs.size(); ++p) {
    SCOPED_TRACE(p);
    const Program program = [&] { return std::vector{programs[p]()}; };
    expect_same(program, 1e-5);
    EXPECT_EQ(blocks(report(program)), 4);
  }
}

TEST_F(RowBlocks, SeveralResults) {
  const Tensor x = data({40, 30}), w = data({30, 200}, DType::Float32, 1), t = labels(40, 200);
  const Program program = [&] {
    const Tensor y = matmul(x, w);
    return std::vector{nn::cross_entropy(y, t), mean(astype(argmax(y, 1) == t, DType::Float32))};
  };
  expect_same(program, 1e-6);
  EXPECT_EQ(blocks(report(program)), 3);
}

TEST_F(RowBlocks, BatchesAndTransposedOperands) {
  const Tensor x = data({3, 20, 30}), w = data({200, 30}, DType::Float32, 1), k = data({3, 100, 30});
  const Tensor t = labels(60, 200);
  const Program program = [&] {
    return std::vector{nn::cross_entropy(matmul(x, w.T()).reshape({60, 200}), t),
                       logsumexp(matmul(x, w.T()), -1), max(matmul(x, matrix_transpose(k)), -1)};
  };
  expect_same(program, 1e-6);
}

TEST_F(RowBlocks, StrictResultsAreEqualToTheBit) {
  strict();
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Float64}) {
    const Tensor x = data({77, 48}, type), w = data({48, 700}, type, 1), t = labels(77, 700);
    const Program program = [&] {
      return std::vector{nn::cross_entropy(matmul(x, w), t, nn::Reduction::None), logsumexp(matmul(x, w), 1),
                         var(matmul(x, w), 1)};
    };
    expect_same(program, 0);
    EXPECT_GT(blocks(report(program)), 0);
  }
}

TEST_F(RowBlocks, AStrictAttentionStoresTheScoresOfABlock) {
  strict();
  for (const std::int64_t heads : {1, 6}) {
    const Tensor q = data({heads, 80, 24}), k = data({heads, 300, 24}, DType::Float32, 1),
                 v = data({heads, 300, 24}, DType::Float32, 2);
    const Program program = [&] {
      const Tensor s = where(expand_dims(arange(80), 1) + 9 >= expand_dims(arange(300), 0),
                             matmul(q, matrix_transpose(k)) * 0.2, -kInfinity);
      return std::vector{matmul(nn::softmax(s), v)};
    };
    expect_same(program, 0);
    EXPECT_EQ(blocks(report(program)), heads == 1 ? 5 : 6);
  }
}

/// The loss of a linear layer and all its gradients.
std::vector<Tensor> train(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& t, bool turned) {
  const auto loss = [&](const Tensor& u, const Tensor& v, const Tensor& c) {
    return nn::cross_entropy(matmul(u, turned ? v.T() : v) + c, t);
  };
  const auto [value, g] = value_and_grad(loss, wrt<0, 1, 2>, x, w, b);
  return {value, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
}

TEST_F(RowBlocks, LossAndGradientsTogetherStoreABlock) {
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(std::string(name(type)) + (turned ? ", w turned" : ""));
      const Tensor x = data({400, 16}, type), b = data({2000}, type, 2), t = labels(400, 2000);
      const Tensor w = data(turned ? Shape{2000, 16} : Shape{16, 2000}, type, 1);
      const Program program = [&] { return train(x, w, b, t, turned); };
      expect_same(program, is_half(type) ? 1e-4 : 1e-6);
      const FusionReport r = report(program);
      EXPECT_EQ(blocks(r), 25);
      if (on_cpu() || cuda::blas().available) {  // without cuBLASLt each block's gradient is stored
        EXPECT_LT(r.after.peak_bytes, 400 * 2000 * size_of(type) / 2);
      }
    }
}

/// An attention's loss and gradients, from plain operations.
std::vector<Tensor> attention_gradients(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                        bool dropout) {
  const auto loss = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    const std::int64_t rows = a.shape()[a.shape().rank() - 2], columns = b.shape()[b.shape().rank() - 2];
    Tensor s = matmul(a, matrix_transpose(b)) * 0.3;
    if (causal) s = where(expand_dims(arange(rows), 1) >= expand_dims(arange(columns), 0), s, -kInfinity);
    Tensor p = nn::softmax(s);
    if (dropout) p = where(random::bernoulli(random::Key(5), p.shape(), 0.75), p / 0.75, 0.0);
    return sum(square(matmul(p, c)));
  };
  const auto [value, g] = value_and_grad(loss, wrt<0, 1, 2>, q, k, v);
  return {value, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
}

TEST_F(RowBlocks, GradientsOfAnAttentionThatNoLoopTakes) {
  const auto heads = [](Shape batch, std::int64_t rows, std::int64_t width, int seed) {
    batch.push_back(rows);
    batch.push_back(width);
    return data(batch, DType::Float64, seed);
  };
  for (const Shape& batch : {Shape{3, 4}, Shape{12}, Shape{1, 6, 1}, Shape{5, 1}})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(batch.str() + (causal ? ", causal" : ""));
      const Tensor q = heads(batch, 40, 8, 0), k = heads(batch, 48, 8, 1), v = heads(batch, 48, 8, 2);
      const Program program = [&] { return attention_gradients(q, k, v, causal, false); };
      expect_same(program, 1e-12);
      const FusionReport r = report(program);
      const std::int64_t all = batch.numel() * 40 * 48 * 8;
      EXPECT_GT(blocks(r), 1);
      EXPECT_LT(r.after.peak_bytes, 2 * all);  // whole, the weights wait for their cotangents
    }
}

TEST_F(RowBlocks, StrictGradientsOfAnAttentionAreEqualToTheBit) {
  strict();
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Float64})
    for (const bool dropout : {false, true}) {
      SCOPED_TRACE(std::string(name(type)) + (dropout ? ", dropout" : ""));
      const Tensor q = data({7, 33, 8}, type), k = data({7, 40, 8}, type, 1), v = data({7, 40, 16}, type, 2);
      const Program program = [&] { return attention_gradients(q, k, v, true, dropout); };
      expect_same(program, 0);
      EXPECT_EQ(blocks(report(program)), 7);
    }
}

TEST_F(RowBlocks, GradientsOfLayersOfAttentions) {
  const Tensor x = data({4, 2, 36, 8}, DType::Float64), w = data({8, 8}, DType::Float64, 1);
  const auto loss = [&](const Tensor& a, const Tensor& b) {
    Tensor h = a;
    for (int layer = 0; layer < 2; ++layer) {
      const Tensor p = nn::softmax(matmul(matmul(h, b), matrix_transpose(h)));
      h = h + tanh(matmul(p, h));
    }
    return sum(h * h);
  };
  const Program program = [&] {
    const auto [value, g] = value_and_grad(loss, wrt<0, 1>, x, w);
    return std::vector{value, std::get<0>(g), std::get<1>(g)};
  };
  expect_same(program, 1e-11);
  const FusionReport r = report(program);
  EXPECT_EQ(std::ranges::count(r.boundaries, FusionReason::InBlocks, &FusionReport::Boundary::reason), 4)
      << to_text(r);
}

TEST_F(RowBlocks, SecondDerivativesOfAnAttention) {
  const Tensor q = data({3, 12, 4}, DType::Float64), k = data({3, 16, 4}, DType::Float64, 1);
  const auto slope = [&](const Tensor& a) {
    return sum(square(grad(
        [&](const Tensor& b) { return sum(square(matmul(nn::softmax(matmul(b, matrix_transpose(k))), k))); },
        a)));
  };
  const Program program = [&] { return std::vector{grad(slope, q)}; };
  expect_same(program, 1e-9);
  EXPECT_GT(blocks(report(program)), 1);
}

TEST_F(RowBlocks, GradientsOfALossOfSquares) {
  const Tensor x = data({5, 11, 24}), w = data({24, 300}, DType::Float32, 1),
               t = data({5, 11, 300}, DType::Float32, 2);
  const auto loss = [&](const Tensor& u, const Tensor& v) { return mean(square(matmul(u, v) - t)); };
  const Program both = [&] {
    const auto [value, g] = value_and_grad(loss, wrt<0, 1>, x, w);
    return std::vector{value, std::get<0>(g), std::get<1>(g)};
  };
  expect_same(both, 1e-6);
  EXPECT_EQ(blocks(report(both)), 4);
  const Program of_weights = [&] {
    return std::vector{grad([&](const Tensor& v) { return loss(x, v); }, w)};
  };
  expect_same(of_weights, 1e-6);
  EXPECT_EQ(blocks(report(of_weights)), 4);
}

TEST_F(RowBlocks, RowsAreCombinedWhereTheOrderIsFree) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1);
  const Program program = [&] {
    const Tensor y = matmul(x, w);
    return std::vector{sum(y, 0),
                       mean(exp(y * 0.1)),
                       max(y, 0),
                       min(y),
                       logsumexp(y, 0),
                       prod(y * 0.01 + 1, 0),
                       astype(argmax(y, 1), DType::Float32)};
  };
  expect_same(program, 1e-5);
  EXPECT_EQ(blocks(report(program)), 4);
  for (const bool as_strict : {true, false}) {
    Config c = config();
    c.strict = as_strict;
    c.deterministic = true;
    configure(c);
    const auto missed = misses(report(program));
    if (on_cpu() || !as_strict) {  // a GPU's strict mode has no product of so few elements, but their sums
      EXPECT_EQ(missed, std::vector{FusionReason::BlocksOfOthers});
    }
    expect_same(program, 0);
  }
}

TEST_F(RowBlocks, SpecialValuesAndLabelsOutOfRange) {
  Tensor x = data({50, 4}), w = data({4, 70}, DType::Float32, 1);
  const Tensor rows = expand_dims(arange(50), 1);
  x = where(rows == 3, std::nanf(""), x);
  x = where(rows == 20, kInfinity, x);  // infinities of both signs, and NaN
  x.eval();
  w.eval();
  Tensor t = labels(50, 70);
  t = where(arange(50) == 7, -1, where(arange(50) == 33, 70, t)).eval();
  const Program program = [&] {
    const Tensor y = matmul(x, w);
    // the rows from 40 on have nothing but -inf
    const Tensor masked = where(rows >= 40, -kInfinity, y);
    return std::vector{nn::cross_entropy(y, t, nn::Reduction::None),
                       nn::cross_entropy(masked, t, nn::Reduction::None), max(masked, 1),
                       logsumexp(masked, 1), astype(argmax(masked, 1), DType::Float32)};
  };
  expect_same(program, 1e-6);
  EXPECT_GT(blocks(report(program)), 0);
}

TEST_F(RowBlocks, FewRowsAndColumns) {
  for (const std::int64_t m : {1, 15, 16, 17, 33})
    for (const std::int64_t n : {1, 2, 9, 100}) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
      const Tensor x = data({m, 12}), w = data({12, n}, DType::Float32, 1), t = labels(m, n);
      expect_same([&] { return std::vector{nn::cross_entropy(matmul(x, w), t), max(matmul(x, w), 1)}; },
                  1e-6);
    }
}

TEST_F(RowBlocks, MasksAndRandomNumbersOfAllRowsAreMadeByBlocks) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1);
  const Program program = [&] {
    const Tensor keep = random::bernoulli(random::Key(3), {55, 300}, 0.5);
    const Tensor below = expand_dims(arange(55), 1) >= expand_dims(arange(300), 0);
    return std::vector{sum(where(logical_and(keep, below), matmul(x, w), 0.0), 1)};
  };
  // Elements of both signs are added; a GPU's library multiplies fewer rows in another order.
  expect_same(program, on_cpu() ? 1e-6 : 1e-5);
  const FusionReport r = report(program);
  EXPECT_EQ(blocks(r), 4);
  if (on_cpu()) {
    EXPECT_LT(r.after.peak_bytes, 20 * 300 * 4);
  }
}

TEST_F(RowBlocks, IntegersAreExact) {
  const Tensor x = astype(data({55, 40}) * 100, DType::Int32).eval(),
               w = astype(data({40, 300}, DType::Float32, 1) * 100, DType::Int32).eval();
  expect_same([&] { return std::vector{max(matmul(x, w), 1), argmin(matmul(x, w), 1)}; }, 0);
}

TEST_F(RowBlocks, NearMissesSayWhatStoresTheProduct) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1), t = labels(55, 300);
  const Tensor other = data({300, 40}, DType::Float32, 2);
  const auto missed = [&](const std::function<std::vector<Tensor>(const Tensor&)>& f) {
    const FusionReport r = report([&] { return f(matmul(x, w)); });
    EXPECT_EQ(blocks(r), 0);
    return misses(r);
  };
  using Reasons = std::vector<FusionReason>;
  EXPECT_EQ(missed([&](const Tensor& y) { return std::vector{nn::cross_entropy(y, t), y}; }),
            Reasons{FusionReason::BlocksWanted});
  EXPECT_EQ(missed([&](const Tensor& y) { return std::vector{nn::cross_entropy(y, t), argmax(y, 0)}; }),
            Reasons{FusionReason::BlocksOfOthers});
  EXPECT_EQ(missed([&](const Tensor& y) { return std::vector{logsumexp(y, 1), matmul(y, other)}; }),
            Reasons{FusionReason::BlocksOfOthers});
  EXPECT_EQ(missed([&](const Tensor& y) { return std::vector{logsumexp(y - max(logsumexp(y, 1)), 1)}; }),
            Reasons{FusionReason::BlocksMeet});
  EXPECT_EQ(missed([&](const Tensor& y) { return std::vector{relu(y)}; }), Reasons{});
}

TEST_F(RowBlocks, AHandleThatNobodyReadsStoresNothing) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1), t = labels(55, 300);
  for (int i = 0; i < 3; ++i) {
    const Tensor y = matmul(x, w), wide = y * 2;
    const FusionReport r = report([&] { return std::vector{nn::cross_entropy(wide, t)}; });
    EXPECT_EQ(blocks(r), 4);
    EXPECT_LT(r.after.peak_bytes, 17 * 300 * 4);
  }
}

TEST_F(RowBlocks, AProductThatIsReadLaterIsStoredFromThenOn) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1), t = labels(55, 300);
  std::uint64_t products = 0;
  for (int i = 0; i < 5; ++i) {
    const Tensor y = matmul(x, w);
    products = test::count([&] {
                 nn::cross_entropy(y, t).eval();
                 max(y, 0).eval();
               }).library_calls;
  }
  EXPECT_EQ(products, 1u);
}

TEST_F(RowBlocks, AttentionsAreNoNearMiss) {
  if (config().device != "cpu") GTEST_SKIP() << "a GPU has products and a softmax for so few rows";
  const Tensor q = data({128, 64}), k = data({128, 64}, DType::Float32, 1), v = data({128, 64});
  EXPECT_TRUE(misses(report([&] { return std::vector{matmul(nn::softmax(matmul(q, k.T())), v)}; })).empty());
}

TEST_F(RowBlocks, InsideALoop) {
  const Tensor x = data({55, 40}), w = data({40, 300}, DType::Float32, 1);
  const Program program = [&] {
    return while_loop([](const Tensors& s) { return s[1] < 3; },
                      [&](const Tensors& s) {
                        const Tensor sums = logsumexp(matmul(s[0], w), 1, true);
                        return Tensors{s[0] + sums * 0.01, s[1] + 1};
                      },
                      {x, Tensor::from(std::vector<float>{0}, {})});
  };
  expect_same(program, 1e-5);
}

TEST_F(RowBlocks, ByDefaultOnlyLargeProductsAreCut) {
  set_rows(0);
  const Tensor x = data({100, 48}), w = data({48, 1000}, DType::Float32, 1), t = labels(100, 1000);
  EXPECT_EQ(blocks(report([&] { return std::vector{nn::cross_entropy(matmul(x, w), t)}; })), 0);
  if (config().device != "cpu") return;  // there they are of 1 GiB
  Config c = config();
  c.num_threads = 2;  // a block is as large as all their caches
  configure(c);
  const Tensor tall = data({20000, 16}), wide = data({16, 3000}, DType::Float32, 1), u = labels(20000, 3000);
  const Program large = [&] { return std::vector{nn::cross_entropy(matmul(tall, wide), u)}; };
  expect_same(large, 1e-6);
  const FusionReport r = report(large);
  EXPECT_GT(blocks(r), 1);
  EXPECT_LT(r.after.peak_bytes, 20000 * 3000 * 4 / 2);
}

TEST_F(RowBlocks, CanBeSwitchedOff) {
  Config c = config();
  c.fuse_off = {"blocks"};
  configure(c);
  const Tensor x = data({100, 48}), w = data({48, 1000}, DType::Float32, 1), t = labels(100, 1000);
  const FusionReport r = report([&] { return std::vector{nn::cross_entropy(matmul(x, w), t)}; });
  EXPECT_EQ(blocks(r), 0);
  EXPECT_GE(r.after.peak_bytes, 100 * 1000 * 4);
}

}  // namespace
}  // namespace kiln
