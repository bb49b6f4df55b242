// Gradients of attention: that scores, weights and their cotangents are made again tile by tile and no array
// of rows × columns is stored, whatever stands between the products; and what the gradients are.
//
// KILN_TEST_ATTENTION_GRADIENTS=N draws so many random ones instead of the default number.
#include "attention_scores.h"
#include "counted.h"
#include "few_rows.h"
#include "grad/attention_gradients.h"
#include "grad/differentiable.h"
#include "modes.h"

#include <kiln/config.h>
#include <kiln/fusion_report.h>
#include <kiln/gpu.h>
#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/layers.h>
#include <kiln/nn.h>
#include <kiln/random.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace kiln {
namespace {

using test::columns, test::data, test::rows, test::scores;
using test::expect_gradients_near, test::gradients_in, test::stores_pairs;
using Sizes = test::AttentionSizes;
using Tensors = std::vector<Tensor>;
using Program = test::AttentionProgram;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensors inputs(const Sizes& s, DType dtype = DType::Float32) { return test::attention_inputs(s, dtype); }
Tensors gradients(const Program& f, const Tensors& x) { return test::attention_gradients(f, x); }
/// The loss, whose gradient differs for each element of the result.
Tensor loss_of(const Tensor& o) { return test::attention_loss(o); }
void expect_near(const Tensors& got, const Tensors& want, double tolerance) {
  expect_gradients_near(got, want, tolerance);
}

/// Compares fused gradients with the interpreter's. `fused`: whether they are to be one region beside the
/// attention.
void expect_fused(const Program& f, const Tensors& x, double tolerance = 3e-5, bool fused = true) {
  Tensors want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = gradients(f, x);
  }
  for (const bool vm : {false, true}) {
    SCOPED_TRACE(vm ? "vm" : "compiled");
    const testing::ModeScope scope(Mode::Lazy, vm ? Tier::Vm : config().tier);
    const FusionRecorder recorder;
    const Tensors got = gradients(f, x);
    const FusionReport report = recorder.last();
    expect_near(got, want, tolerance);
    if (config().device != "cpu") continue;
    EXPECT_EQ(gradients_in(report), fused);
    if (fused) {
      EXPECT_FALSE(stores_pairs(report, x[0].dim(-2), x[1].dim(-2))) << to_text(report);
    }
  }
}

Tensor softmax(const Tensor& t) {
  const Tensor e = exp(t - stop_gradient(max(t, -1, true)));
  return e / sum(e, -1, true);
}

TEST(AttentionGradient, InEverySpelling) {
  const Tensors x = inputs({});
  expect_fused([](const Tensors& t) { return nn::attention(t[0], t[1], t[2]); }, x);
  expect_fused([](const Tensors& t) { return matmul(softmax(scores(t[0], t[1])), t[2]); }, x);
  expect_fused(
      [](const Tensors& t) {
        const Tensor s = scores(t[0], t[1]);
        return matmul(exp(s - logsumexp(s, -1, true)), t[2]);
      },
      x);
  expect_fused([](const Tensors& t) { return matmul(exp(nn::log_softmax(scores(t[0], t[1]))), t[2]); }, x);
  expect_fused(
      [](const Tensors& t) {
        const Tensor e = exp2(scores(t[0], t[1]) * 1.44);
        return matmul(e * (1.0 / sum(e, -1, true)), t[2]);
      },
      x);
  expect_fused(
      [](const Tensors& t) {
        return einsum("bhij,bhjd->bhid", {nn::softmax(einsum("bhid,bhjd->bhij", {t[0], t[1]})), t[2]});
      },
      x);
  // the derivative of the maximum, which counts the greatest elements
  expect_fused(
      [](const Tensors& t) {
        const Tensor s = scores(t[0], t[1]), e = exp(s - max(s, -1, true));
        return matmul(e / sum(e, -1, true), t[2]);
      },
      x);
}

TEST(AttentionGradient, Masks) {
  const Sizes s{1, 2, 70, 600, 16, 16};
  const Tensors x = inputs(s);
  const auto with = [&](const std::function<Tensor(const Tensor&)>& mask) {
    expect_fused([&](const Tensors& t) { return matmul(nn::softmax(mask(scores(t[0], t[1]))), t[2]); }, x);
  };
  const Tensor i = rows(s.rows) + (s.columns - s.rows), j = columns(s.columns);
  with([&](const Tensor& t) { return where(rows(s.rows) >= columns(s.columns), t, -kInf); });
  with([&](const Tensor& t) { return where(i >= j, t, -1e9); });
  with([&](const Tensor& t) { return where((i >= j) & (i - j < 40), t, -kInf); });
  with([&](const Tensor& t) { return t + where(i >= j, 0.0, -kInf); });
  with([&](const Tensor& t) {
    const Tensor slope = exp2(-(arange(s.heads).astype(DType::Float32) + 1)).reshape({s.heads, 1, 1});
    return where(i >= j, t + (j - i).astype(DType::Float32) * slope, -kInf);
  });
  with([&](const Tensor& t) { return tanh(t * (1.0 / 3)) * 3.0; });
  with([&](const Tensor& t) { return where(i >= j, tanh(t * (1.0 / 3)) * 3.0, -kInf); });
  const Tensor allowed = (data({s.batch, 1, s.rows, s.columns}, DType::Float32, 7) > -0.5).eval();
  const Tensor bias = data({s.heads, s.rows, s.columns}, DType::Float32, 8),
               keys = (data({s.batch, 1, 1, s.columns}) > 0).eval();
  with([&](const Tensor& t) { return where(allowed, t, -kInf); });
  with([&](const Tensor& t) { return where(keys, t, -1e9); });
  with([&](const Tensor& t) { return where(allowed & (i >= j), t + bias, -kInf); });
}

TEST(AttentionGradient, Dropout) {
  const Sizes s;
  const Tensors x = inputs(s);
  const Tensor keep = (data({s.batch, s.heads, s.rows, s.columns}, DType::Float32, 9) > -0.8).eval();
  expect_fused(
      [&](const Tensors& t) {
        return matmul(nn::softmax(scores(t[0], t[1])) * keep.astype(DType::Float32) * (1 / 0.9), t[2]);
      },
      x);
  // drawn again for each tile
  expect_fused(
      [&](const Tensors& t) {
        const Tensor drawn = random::bernoulli(random::Key(4), {s.batch, s.heads, s.rows, s.columns}, 0.75);
        return matmul(nn::softmax(scores(t[0], t[1])) * drawn.astype(DType::Float32) / 0.75, t[2]);
      },
      x);
}

TEST(AttentionGradient, SizesAndDtypes) {
  const test::MainLoopsForFewRows main_loops;
  const auto causal = [](const Sizes& s, DType dtype, double tolerance) {
    SCOPED_TRACE(::testing::Message() << s.batch << " " << s.heads << " " << s.rows << " " << s.columns << " "
                                      << s.depth << " " << s.width << " " << name(dtype));
    expect_fused(
        [&](const Tensors& t) {
          const Tensor p = scores(t[0], t[1]).astype(DType::Float32);
          const Tensor masked = where(rows(s.rows) + s.columns >= columns(s.columns) * 2, p, -kInf);
          return matmul(nn::softmax(masked).astype(dtype), t[2]);
        },
        inputs(s, dtype), tolerance);
  };
  for (const std::int64_t depth : {1, 7, 80, 256}) causal({1, 2, 33, 65, depth, depth}, DType::Float32, 3e-5);
  for (const std::int64_t n : {2, 31, 32, 64}) causal({2, 1, n, 257, 24, 40}, DType::Float32, 3e-5);
  for (const std::int64_t n : {2, 14, 251, 252, 253, 504}) causal({1, 1, 32, n, 24, 8}, DType::Float32, 3e-5);
  causal({2, 2, 40, 300, 64, 64}, DType::BFloat16, 2e-2);
  causal({2, 2, 40, 300, 64, 64}, DType::Float16, 4e-3);
}

TEST(AttentionGradient, HeadsAreShared) {
  const std::int64_t b = 2, groups = 2, each = 3, n = 50, m = 90, d = 16;
  const Tensors x{data({b, groups * each, n, d}), data({b, groups, m, d}, DType::Float32, 1),
                  data({b, groups, m, d}, DType::Float32, 2)};
  const auto shared = [&](const Tensor& t) {
    return broadcast_to(t.reshape({b, groups, 1, m, d}), {b, groups, each, m, d})
        .reshape({b, groups * each, m, d});
  };
  expect_fused(
      [&](const Tensors& t) { return matmul(nn::softmax(scores(t[0], shared(t[1]))), shared(t[2])); }, x);
  expect_fused(
      [&](const Tensors& t) {
        const Tensor q = t[0].reshape({b, groups, each, n, d}), k = t[1].reshape({b, groups, 1, m, d}),
                     v = t[2].reshape({b, groups, 1, m, d});
        return matmul(nn::softmax(scores(q, k)), v);
      },
      x);
}

TEST(AttentionGradient, OperandsInAnyLayout) {
  const std::int64_t b = 2, h = 3, n = 60, d = 16;
  const Tensor x = data({b, n, 3, h, d});
  const auto part = [&](const Tensor& t, std::int64_t i) {
    return permute_dims(t(kiln::all(), kiln::all(), i), {0, 2, 1, 3});
  };
  const Program packed = [&](const Tensors& t) {
    return matmul(nn::softmax(scores(part(t[0], 0), part(t[0], 1))), part(t[0], 2));
  };
  Tensors want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = gradients(packed, {x});
  }
  const testing::ModeScope scope(Mode::Lazy);
  const FusionRecorder recorder;
  const Tensors got = gradients(packed, {x});
  if (config().device == "cpu") {
    EXPECT_EQ(gradients_in(recorder.last()), 1);
  }
  expect_near(got, want, 3e-5);
  // S transposed: the softmax goes along its rows
  expect_fused(
      [&](const Tensors& t) {
        const Tensor s = matmul(t[1], matrix_transpose(t[0])), e = exp(s - stop_gradient(max(s, -2, true)));
        return matmul(matrix_transpose(e / sum(e, -2, true)), t[2]);
      },
      inputs({}));
}

TEST(AttentionGradient, RowsOfNothing) {
  const Sizes s{1, 2, 40, 600, 16, 16};
  const Tensors x = inputs(s);
  // the first rows see no column: NaN, as written
  expect_fused(
      [&](const Tensors& t) {
        const Tensor seen = rows(40) - 10 >= columns(600);
        return matmul(nn::softmax(where(seen, scores(t[0], t[1]), -kInf)), t[2]);
      },
      x);
  // a finite fill: such rows are uniform
  expect_fused(
      [&](const Tensors& t) {
        return matmul(nn::softmax(where(rows(40) - 10 >= columns(600), scores(t[0], t[1]), -1e9)), t[2]);
      },
      x);
}

TEST(AttentionGradient, SpecialValuesInTilesThatAreLeftOut) {
  const Sizes s{1, 1, 40, 600, 16, 16};
  for (const std::size_t which : {1u, 2u})
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(::testing::Message() << "input " << which << " has " << value);
      Tensors x = inputs(s);
      std::vector<float> v = x[which].to_vector<float>();
      v[599 * 16 + 3] = value;
      x[which] = Tensor::from(v, {1, 1, 600, 16});
      expect_fused(
          [&](const Tensors& t) {
            return matmul(nn::softmax(where(rows(40) >= columns(600), scores(t[0], t[1]), -kInf)), t[2]);
          },
          x);
    }
}

TEST(AttentionGradient, OfSomeInputsAndOfTheBackwardPassAlone) {
  const Tensors x = inputs({});
  for (const std::size_t only : {0u, 1u, 2u}) {
    SCOPED_TRACE(only);
    Tensors want;
    for (const Mode mode : {Mode::Interpret, Mode::Lazy}) {
      const testing::ModeScope scope(mode);
      const auto [loss, g] = value_and_grad(
          [&](const Tensor& t) {
            Tensors in = x;
            in[only] = t;
            return loss_of(nn::attention(in[0], in[1], in[2], true));
          },
          x[only]);
      eval({loss, g});
      mode == Mode::Interpret ? void(want = {loss, g}) : expect_near({loss, g}, want, 3e-5);
    }
  }
  // written by hand, for a cotangent that is given
  const Tensor given = data({2, 3, 70, 32}, DType::Float32, 5);
  Tensors want;
  for (const Mode mode : {Mode::Interpret, Mode::Lazy}) {
    const testing::ModeScope scope(mode);
    const Tensor p = nn::softmax(scores(x[0], x[1])), dp = matmul(given, matrix_transpose(x[2])),
                 ds = p * (dp - sum(p * dp, -1, true));
    Tensors g{matmul(ds, x[1]), matmul(matrix_transpose(ds), x[0]), matmul(matrix_transpose(p), given)};
    const FusionRecorder recorder;
    eval(g);
    if (mode == Mode::Interpret) {
      want = g;
      continue;
    }
    expect_near(g, want, 3e-5);
    if (config().device != "cpu") continue;
    EXPECT_EQ(gradients_in(recorder.last()), 1);
    EXPECT_FALSE(stores_pairs(recorder.last(), 70, 300));
  }
}

TEST(AttentionGradient, OfSeveralLayers) {
  const Sizes s{1, 2, 40, 40, 16, 16};
  const Tensors x = inputs(s);
  const Program layers = [](const Tensors& t) {
    Tensor y = t[0];
    for (int i = 0; i < 3; ++i) y = y + nn::attention(y + i, y * 0.5 + t[1], t[2] - y, true);
    return y;
  };
  Tensors want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = gradients(layers, x);
  }
  const testing::ModeScope scope(Mode::Lazy);
  const FusionRecorder recorder;
  const Tensors got = gradients(layers, x);
  if (config().device == "cpu") {
    EXPECT_EQ(gradients_in(recorder.last()), 3);
    // the mask that all layers share is made again, not stored
    EXPECT_FALSE(stores_pairs(recorder.last(), s.rows, s.columns)) << to_text(recorder.last());
  }
  expect_near(got, want, 1e-4);
}

TEST(AttentionGradient, OfABiasForEachPairIsStored) {
  const Sizes s;
  Tensors x = inputs(s);
  x.push_back(data({s.heads, s.rows, s.columns}, DType::Float32, 8));
  expect_fused([](const Tensors& t) { return matmul(nn::softmax(scores(t[0], t[1]) + t[3]), t[2]); }, x, 3e-5,
               false);
}

TEST(AttentionGradient, TakesNoMemoryForPairs) {
  if (config().device != "cpu" || config().mode != Mode::Lazy) GTEST_SKIP() << "of the CPU's tiles";
  const testing::ModeScope scope(Mode::Lazy);  // takes back what follows
  Config options = config();
  options.num_threads = 4;  // each has memory of its own
  configure(options);
  constexpr std::int64_t n = 6144;
  const Tensors x = inputs({1, 1, n, n, 32, 32});
  trim_memory(Device::cpu());
  const std::uint64_t before = memory_use(Device::cpu()).held;
  gradients([](const Tensors& t) { return nn::attention(t[0], t[1], t[2], true); }, x);
  EXPECT_LT(memory_use(Device::cpu()).held - before, static_cast<std::uint64_t>(n * n * 4 / 2));
}

TEST(AttentionGradient, IsTheSameEachTime) {
  const Tensors x = inputs({1, 1, 300, 400, 32, 32});
  const Program f = [](const Tensors& t) { return nn::attention(t[0], t[1], t[2], true); };
  const testing::ModeScope scope(Mode::Lazy);
  const Tensors first = gradients(f, x);
  for (int again = 0; again < 3; ++again) {
    const Tensors other = gradients(f, x);
    for (std::size_t t = 0; t < first.size(); ++t)
      EXPECT_EQ(other[t].to_vector<float>(), first[t].to_vector<float>());
  }
}

/// A random attention: sizes, dtypes, layouts, what stands between its products, what is differentiated.
class RandomAttention {
 public:
  explicit RandomAttention(std::uint64_t seed) : random_(static_cast<unsigned>(seed)) {
    s_ = {below(3) + 1, below(3) + 1, below(90) + 2, below(600) + 2, below(70) + 1, below(70) + 1};
    if (below(3) == 0) s_.columns = s_.rows;
    dtype_ = below(4) == 0 ? (below(2) ? DType::BFloat16 : DType::Float16) : DType::Float32;
    softmax_ = below(5);
    for (int* f : {&mask_, &bias_, &cap_, &dropout_, &turned_}) *f = static_cast<int>(below(4));
    window_ = below(60) + 1;
    shared_ = below(3) == 0;
  }
  double tolerance() const {
    return dtype_ == DType::Float32 ? 1e-4 : dtype_ == DType::Float16 ? 1e-2 : 5e-2;
  }
  Tensors inputs() const {
    const std::int64_t heads = shared_ ? 1 : s_.heads;
    return {laid_out({s_.batch, s_.heads, s_.rows, s_.depth}, 1),
            laid_out({s_.batch, heads, s_.columns, s_.depth}, 2),
            laid_out({s_.batch, heads, s_.columns, s_.width}, 3)};
  }
  Tensor operator()(const Tensors& x) const {
    Tensor t = scores(x[0], x[1]).astype(DType::Float32);
    const Tensor i = rows(s_.rows), j = columns(s_.columns);
    if (cap_ == 0) t = tanh(t * 0.7) * 2.0;
    if (bias_ == 0) t = t + data({s_.heads, s_.rows, s_.columns}, DType::Float32, 4);
    if (bias_ == 1) t = t - abs(i - j).astype(DType::Float32) * 0.03;
    if (mask_ == 0) t = where(i + (s_.columns - s_.rows) >= j, t, -1e9);
    if (mask_ == 1) t = where(abs(i * s_.columns - j * s_.rows) <= window_ * s_.columns, t, -kInf);
    if (mask_ == 2) t = where(data({s_.batch, 1, 1, s_.columns}) > -0.9, t, -1e9);
    Tensor p = weights(t);
    if (dropout_ == 0) p = p * random::bernoulli(random::Key(7), t.shape(), 0.7).astype(DType::Float32) / 0.7;
    return matmul(p.astype(dtype_), x[2]);
  }

 private:
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<unsigned>(n));
  }
  Tensor laid_out(const Shape& shape, int seed) const {
    const Tensor x = data(shape, dtype_, seed);
    if (turned_ == 0) return matrix_transpose((matrix_transpose(x) + 0).eval());
    if (turned_ == 1) return flip(flip(x, -2).eval(), -2);
    return x;
  }
  Tensor weights(const Tensor& t) const {
    switch (softmax_) {
      case 0: return exp(t - logsumexp(t, -1, true));
      case 1: return exp(nn::log_softmax(t));
      case 2: {
        const Tensor e = exp(t - max(t, -1, true));
        return e / sum(e, -1, true);
      }
      case 3: return softmax(t);
      default: return nn::softmax(t);
    }
  }

  std::mt19937 random_;
  Sizes s_;
  DType dtype_;
  std::int64_t softmax_, window_;
  int mask_ = 0, bias_ = 0, cap_ = 0, dropout_ = 0, turned_ = 0;
  bool shared_;
};

TEST(AttentionGradient, OfRandomAttentions) {
  const test::MainLoopsForFewRows main_loops;
  const std::uint64_t count = testing::programs("KILN_TEST_ATTENTION_GRADIENTS", 30);
  int fused = 0;
  for (std::uint64_t seed = 1; seed <= count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const RandomAttention f(seed);
    const Tensors x = f.inputs();
    Tensors want;
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = gradients(f, x);
    }
    const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
    const FusionRecorder recorder;
    const Tensors got = gradients(f, x);
    fused += gradients_in(recorder.last());
    expect_near(got, want, f.tolerance());
  }
  if (config().device != "cpu") return;
  EXPECT_GE(fused * 10, static_cast<int>(count) * 9);
}

}  // namespace
}  // namespace kiln
