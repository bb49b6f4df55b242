// Attention from plain operations: that it becomes one step, what it means at the edges, and near misses.
#include "attention_scores.h"
#include "counted.h"
#include "device/cuda/cuda_test.h"
#include "engine/plan.h"
#include "few_rows.h"

#include <kiln/config.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>
#include <kiln/random.h>

#include "modes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace kiln {
namespace {

using test::columns, test::data, test::rows, test::scores;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor softmax(const Tensor& t) {
  const Tensor e = exp(t - max(t, -1, true));
  return e / sum(e, -1, true);
}

struct Sizes {
  std::int64_t batch = 2, heads = 3, rows = 70, columns = 300, depth = 32, width = 32;
};
struct Inputs {
  Tensor q, k, v;
};
Inputs inputs(const Sizes& s, DType dtype = DType::Float32) {
  return {data({s.batch, s.heads, s.rows, s.depth}, dtype, 1),
          data({s.batch, s.heads, s.columns, s.depth}, dtype, 2),
          data({s.batch, s.heads, s.columns, s.width}, dtype, 3)};
}

using Program = std::function<Tensor()>;

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  const std::vector<float> g = got.astype(DType::Float32).to_vector<float>(),
                           w = want.astype(DType::Float32).to_vector<float>();
  ASSERT_EQ(g.size(), w.size());
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(w[i])) {
      ASSERT_TRUE(std::isnan(g[i])) << "element " << i << " is " << g[i];
    } else if (std::isinf(w[i])) {
      ASSERT_EQ(g[i], w[i]) << "element " << i;
    } else {
      ASSERT_NEAR(g[i], w[i], tolerance * std::max(1.0f, std::abs(w[i]))) << "element " << i;
    }
  }
}

/// Evaluates a program fused, by the vm and on the interpreter. `steps`: library calls of the fused one.
void expect_steps(const Program& f, std::uint64_t steps, std::uint64_t launches, double tolerance = 2e-5) {
  Tensor want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = f().eval();
  }
  for (const bool vm : {false, true}) {
    SCOPED_TRACE(vm ? "vm" : "compiled");
    const testing::ModeScope scope(Mode::Lazy, vm ? Tier::Vm : config().tier);
    Tensor got;
    const test::Counted n = test::count([&] { got = f().eval(); });
    if (config().device == "cpu") {  // a GPU has main loops instead of library calls
      EXPECT_EQ(n.library_calls, steps);
      EXPECT_EQ(n.launches, launches);
    }
    expect_near(got, want, tolerance);
  }
}
void expect_one_step(const Program& f, double tolerance = 2e-5) { expect_steps(f, 1, 0, tolerance); }

TEST(Attention, IsOneStepInEverySpelling) {
  const Inputs x = inputs({});
  const auto attend = [&](const Tensor& p) { return matmul(p, x.v); };
  expect_one_step([&] { return attend(nn::softmax(scores(x.q, x.k))); });
  expect_one_step([&] { return attend(softmax(scores(x.q, x.k))); });
  expect_one_step([&] {
    const Tensor e = exp(scores(x.q, x.k));
    return attend(e / sum(e, -1, true));
  });
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k);
    return attend(exp(t - logsumexp(t, -1, true)));
  });
  expect_one_step([&] { return attend(exp(nn::log_softmax(scores(x.q, x.k)))); });
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k), m = max(t, -1, true), e = exp(t - m);
    return attend(exp(t - (m + log(sum(e, -1, true)))));
  });
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k) * 1.44, e = exp2(t - max(t, -1, true));
    return attend(e * (1.0 / sum(e, -1, true)));
  });
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k), e = exp(t - expand_dims(max(t, -1), -1));
    return attend(e / expand_dims(sum(e, -1), -1));
  });
  expect_one_step(
      [&] { return einsum("bhij,bhjd->bhid", {nn::softmax(einsum("bhid,bhjd->bhij", {x.q, x.k})), x.v}); });
}

TEST(Attention, Masks) {
  const Sizes s;
  const Inputs x = inputs(s);
  const auto with = [&](const std::function<Tensor(const Tensor&)>& mask) {
    expect_one_step([&] { return matmul(nn::softmax(mask(scores(x.q, x.k))), x.v); });
  };
  const Tensor i = rows(s.rows) + (s.columns - s.rows), j = columns(s.columns);
  with([&](const Tensor& t) {
    return where(rows(s.rows) + (s.columns - s.rows) >= columns(s.columns), t, -kInf);
  });
  with([&](const Tensor& t) { return where(rows(s.rows) >= columns(s.columns), t, -1e9); });
  with([&](const Tensor& t) { return where((i >= j) & (i - j < 40), t, -kInf); });
  with([&](const Tensor& t) { return t + where(i >= j, 0.0, -kInf); });
  with([&](const Tensor& t) { return t - abs(i - j).astype(DType::Float32) * 0.05; });
  with([&](const Tensor& t) {
    const Tensor slope = exp2(-(arange(s.heads).astype(DType::Float32) + 1)).reshape({s.heads, 1, 1});
    return where(i >= j, t + (j - i).astype(DType::Float32) * slope, -kInf);
  });
  with([&](const Tensor& t) { return tanh(t * (1.0 / 30)) * 30.0; });
  const Tensor allowed = (data({s.batch, 1, s.rows, s.columns}, DType::Float32, 7) > -0.5).eval();
  const Tensor bias = data({s.heads, s.rows, s.columns}, DType::Float32, 8),
               keys = (data({s.batch, 1, 1, s.columns}) > 0).eval();
  with([&](const Tensor& t) { return where(allowed, t, -kInf); });
  with([&](const Tensor& t) { return where(keys, t, -1e9); });
  with([&](const Tensor& t) { return t + bias; });
  with([&](const Tensor& t) { return where(allowed & (i >= j), t + bias, -kInf); });
}

/// Two results of one call, each read in place.
TEST(Attention, BiasesThatASortMakes) {
  const Sizes s;
  const Inputs x = inputs(s);
  const Tensor bias = data({s.columns}, DType::Float32, 9);
  expect_steps(
      [&] {
        const auto [values, indices] = sort_with_indices(bias);
        const Tensor t = scores(x.q, x.k) + values - indices.astype(DType::Float32) * 0.01;
        return matmul(nn::softmax(t), x.v);
      },
      2, 0);
}

TEST(Attention, RowsOfNothingAreNotANumber) {
  const Sizes s{1, 2, 40, 600, 16, 16};
  const Inputs x = inputs(s);
  // the first rows see no column
  expect_one_step([&] {
    return matmul(nn::softmax(where(rows(40) - 10 >= columns(600), scores(x.q, x.k), -kInf)), x.v);
  });
  // a finite fill: such rows are uniform
  expect_one_step(
      [&] { return matmul(nn::softmax(where(rows(40) - 10 >= columns(600), scores(x.q, x.k), -1e9)), x.v); });
  // all but the last columns, so that whole tiles of nothing come first
  expect_one_step(
      [&] { return matmul(nn::softmax(where(columns(600) >= 590, scores(x.q, x.k), -kInf)), x.v); });
}

TEST(Attention, SpecialValues) {
  const Sizes s{1, 1, 40, 600, 16, 16};
  const Inputs x = inputs(s);
  std::vector<float> v = x.v.to_vector<float>();
  v[599 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor nan = Tensor::from(v, {1, 1, 600, 16});
  v[599 * 16 + 3] = std::numeric_limits<float>::infinity();
  const Tensor infinite = Tensor::from(v, {1, 1, 600, 16});
  // 0 · NaN and 0 · inf are NaN, in a tile that the mask leaves out too
  for (const Tensor& value : {nan, infinite})
    expect_one_step(
        [&] { return matmul(nn::softmax(where(rows(40) >= columns(600), scores(x.q, x.k), -kInf)), value); });
  std::vector<float> k = x.k.to_vector<float>();
  k[5 * 16] = std::numeric_limits<float>::quiet_NaN();
  const Tensor bad = Tensor::from(k, {1, 1, 600, 16});
  expect_one_step(
      [&] { return matmul(nn::softmax(where(rows(40) >= columns(600), scores(x.q, bad), -kInf)), x.v); });
  expect_one_step([&] {
    return matmul(nn::softmax(scores(x.q, bad) + where(rows(40) >= columns(600), 0.0, -kInf)), x.v);
  });
  k[5 * 16] = std::numeric_limits<float>::infinity();
  const Tensor far = Tensor::from(k, {1, 1, 600, 16});
  expect_one_step([&] { return matmul(nn::softmax(scores(x.q, far)), x.v); });
}

TEST(Attention, Sizes) {
  const test::MainLoopsForFewRows main_loops;
  const auto causal = [](const Sizes& s, DType dtype, double tolerance) {
    SCOPED_TRACE(::testing::Message() << s.batch << " " << s.heads << " " << s.rows << " " << s.columns << " "
                                      << s.depth << " " << s.width << " " << name(dtype));
    const Inputs x = inputs(s, dtype);
    expect_one_step(
        [&] {
          return matmul(
              nn::softmax(where(rows(s.rows) + s.columns >= columns(s.columns) * 2, scores(x.q, x.k), -kInf)),
              x.v);
        },
        tolerance);
  };
  for (const std::int64_t depth : {1, 7, 32, 48, 64, 80, 128, 256})
    causal({1, 2, 33, 65, depth, depth}, DType::Float32, 3e-5);
  for (const std::int64_t n : {1, 2, 31, 32, 64}) causal({2, 1, n, 257, 24, 40}, DType::Float32, 2e-5);
  for (const std::int64_t n : {2, 14, 251, 252, 253, 504, 1000})
    causal({1, 1, 32, n, 24, 8}, DType::Float32, 2e-5);
  causal({2, 2, 40, 300, 64, 64}, DType::BFloat16, 2e-2);
  causal({2, 2, 40, 300, 64, 64}, DType::Float16, 3e-3);
}

TEST(Attention, HeadsAreShared) {
  const std::int64_t b = 2, groups = 2, each = 3, n = 50, m = 90, d = 16;
  const Tensor q = data({b, groups * each, n, d}), k = data({b, groups, m, d}, DType::Float32, 1),
               v = data({b, groups, m, d}, DType::Float32, 2);
  const auto shared = [&](const Tensor& x) {
    return broadcast_to(x.reshape({b, groups, 1, m, d}), {b, groups, each, m, d})
        .reshape({b, groups * each, m, d});
  };
  expect_one_step([&] { return matmul(nn::softmax(scores(q, shared(k))), shared(v)); });
  expect_one_step([&] {
    const Tensor q5 = q.reshape({b, groups, each, n, d}), k5 = k.reshape({b, groups, 1, m, d}),
                 v5 = v.reshape({b, groups, 1, m, d});
    return matmul(nn::softmax(scores(q5, k5)), v5);
  });
  const Tensor one = data({m, d}, DType::Float32, 4);
  expect_one_step([&] {
    return matmul(nn::softmax(matmul(q, matrix_transpose(broadcast_to(one, {b, 1, m, d})))),
                  broadcast_to(one, {b, 1, m, d}));
  });
}

TEST(Attention, OperandsInAnyLayout) {
  const std::int64_t b = 2, h = 3, n = 60, d = 16;
  const Tensor x = data({b, n, 3, h, d});
  const auto part = [&](std::int64_t i) {
    return permute_dims(x(kiln::all(), kiln::all(), i), {0, 2, 1, 3});
  };
  expect_one_step([&] { return matmul(nn::softmax(scores(part(0), part(1))), part(2)); });
  expect_one_step(
      [&] { return matmul(nn::softmax(scores(flip(part(0), 2), flip(part(1), 3))), flip(part(2), -2)); });
  // S transposed: softmax goes along its rows
  const Inputs y = inputs({});
  expect_one_step([&] {
    const Tensor t = matmul(y.k, matrix_transpose(y.q)), e = exp(t - max(t, -2, true));
    return matmul(matrix_transpose(e / sum(e, -2, true)), y.v);
  });
}

TEST(Attention, LinearInItsWeights) {
  const Sizes s;
  const Inputs x = inputs(s);
  const Tensor keep = (data({s.batch, s.heads, s.rows, s.columns}, DType::Float32, 9) > -0.8).eval();
  expect_one_step(
      [&] { return matmul(nn::softmax(scores(x.q, x.k)) * keep.astype(DType::Float32) * (1 / 0.9), x.v); });
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k), e = exp(t - max(t, -1, true)) * keep.astype(DType::Float32);
    return matmul(e / sum(e, -1, true), x.v);
  });
  // no division: the sum is the user's
  expect_one_step([&] {
    const Tensor t = scores(x.q, x.k);
    return matmul(exp(t - max(t, -1, true)), x.v);
  });
}

TEST(Attention, RowsValuesThatOthersRead) {
  const Inputs x = inputs({});
  Tensor lse, want;
  const auto f = [&] {
    const Tensor t = scores(x.q, x.k);
    lse = logsumexp(t, -1, true);
    const Tensor o = matmul(exp(t - lse), x.v);
    eval({o, lse});
    return o;
  };
  {
    const testing::ModeScope scope(Mode::Interpret);
    f();
    want = lse;
  }
  const testing::ModeScope scope(Mode::Lazy);
  const test::Counted n = test::count([&] { f(); });
  if (config().device == "cpu") {  // a GPU's main loop stores no values of rows
    EXPECT_EQ(n.library_calls, 1u);
  }
  expect_near(lse, want, 1e-5);
}

TEST(Attention, NearMisses) {
  const Sizes s;
  const Inputs x = inputs(s);
  // the weights are a result too
  {
    Tensor p;
    const test::Counted n = test::count([&] {
      p = nn::softmax(scores(x.q, x.k));
      eval({matmul(p, x.v), p});
    });
    EXPECT_EQ(n.library_calls, 2u);
  }
  // a sum that is not linear in the weights
  expect_steps(
      [&] {
        const Tensor e = exp(scores(x.q, x.k));
        return matmul(e / sqrt(sum(e * e, -1, true)), x.v);
      },
      1, 0);
  expect_steps(
      [&] {
        const Tensor t = scores(x.q, x.k), e = exp(t - max(t, -1, true));
        return matmul(e / sum(e * e, -1, true), x.v);
      },
      2, 1);
  // the mean over other axes
  expect_steps(
      [&] {
        const Tensor t = scores(x.q, x.k);
        return matmul(exp(t - max(t, -2, true)), x.v);
      },
      2, 1);
}

TEST(Attention, RunsInEveryTier) {
  const Inputs x = inputs({1, 2, 64, 512, 64, 64});
  const auto f = [&] {
    return matmul(nn::softmax(where(rows(64) >= columns(512), scores(x.q, x.k), -kInf)), x.v);
  };
  Config c = config();
  const Config before = c;
  c.deterministic = true;
  configure(c);
  const std::vector<float> compiled = f().to_vector<float>();
  {
    const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
    EXPECT_EQ(f().to_vector<float>(), compiled);
  }
  configure(before);
}

/// Attentions of halves by a GPU's main loop, beside the interpreter.
class GpuAttention : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    engine::prefer_templates(!IsSkipped());
  }
  void TearDown() override {
    engine::prefer_templates(false);
    CudaTest::TearDown();
  }

  /// `is`: what f means for the interpreter, if that is not f.
  static void expect_kernels(const Program& f, std::uint64_t most, double most_off, const Program& is = {}) {
    Tensor want, got;
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = is ? is().eval() : f().eval();
    }
    const testing::ModeScope scope(Mode::Lazy);
    const test::Counted n = test::count([&] { got = f().eval(); });
    EXPECT_EQ(n.library_calls, 0u);
    EXPECT_LE(n.launches, most);
    expect_near(got, want, most_off);
  }
};

TEST_F(GpuAttention, MasksOfEveryKind) {
  const Sizes s{1, 2, 70, 150, 32, 32};
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::BFloat16, 2e-2}, {DType::Float16, 4e-3}, {DType::Float32, 2e-5}}) {
    const Inputs x = inputs(s, dtype);
    const auto with = [&](const std::function<Tensor(const Tensor&)>& mask, std::uint64_t most) {
      expect_kernels(
          [&] {
            const Tensor t = scores(x.q, x.k).astype(DType::Float32);
            return matmul(nn::softmax(mask(t)).astype(dtype), x.v);
          },
          most, tolerance);
    };
    const Tensor i = rows(s.rows), j = columns(s.columns);
    const Tensor allowed = (data({s.rows, s.columns}, DType::Float32, 7) > -0.5).eval();
    with([&](const Tensor& t) { return t; }, 1);
    with([&](const Tensor& t) { return where(i >= j, t, -kInf); }, 2);
    with([&](const Tensor& t) { return where(i - 10 >= j, t, -1e9); }, 2);
    with([&](const Tensor& t) { return where((i >= j) & (i - j < 20), t, -kInf); }, 2);
    with([&](const Tensor& t) { return tanh(t * (1.0 / 30)) * 30.0; }, 1);
    with([&](const Tensor& t) { return where(allowed, t, -kInf); }, 1);
    with([&](const Tensor& t) { return t + (j - i).astype(DType::Float32) * 0.05; }, 1);
  }
}

TEST_F(GpuAttention, HeadSizesAndRaggedLengths) {
  for (const Sizes& s : {Sizes{1, 1, 33, 65, 64, 64},
                         {1, 2, 129, 64, 128, 128},
                         {1, 1, 20, 70, 40, 24},
                         {1, 1, 17, 70, 256, 256},
                         {2, 1, 5, 9, 7, 5}}) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.columns << " " << s.depth << " " << s.width);
    for (const auto& [dtype, tolerance] : {std::pair{DType::BFloat16, 2e-2}, {DType::Float32, 2e-5}}) {
      const Inputs x = inputs(s, dtype);
      expect_kernels(
          [&] {
            const Tensor t = where(rows(s.rows) >= columns(s.columns), scores(x.q, x.k), -kInf);
            return matmul(nn::softmax(t), x.v);
          },
          2, tolerance);
    }
  }
}

// Operands whose rows begin anywhere, heads that are shared, and values of rows that others read.
TEST_F(GpuAttention, Float32InAnyLayout) {
  const Tensor q = data({2, 50, 4, 24}, DType::Float32, 1), kv = data({2, 77, 2, 49}, DType::Float32, 2);
  const auto part = [](const Tensor& x, std::int64_t first, std::int64_t width) {
    const Slice all = slice::all();
    return x.index(std::vector<Slice>{all, all, all, slice::range(first, first + width)});
  };
  const auto shared = [](const Tensor& x) {
    const Shape s = x.shape();
    return broadcast_to(swapaxes(x, 1, 2).reshape({s[0], s[2], 1, s[1], s[3]}), {s[0], s[2], 2, s[1], s[3]})
        .reshape({s[0], 2 * s[2], s[1], s[3]});
  };
  expect_kernels(
      [&] {
        const Tensor t = scores(swapaxes(q, 1, 2), shared(part(kv, 0, 24)));
        return matmul(nn::softmax(t), shared(part(kv, 24, 25)));
      },
      1, 2e-5);
}

// What is infinite has no second part of its bits.
TEST_F(GpuAttention, Float32OfSpecialValues) {
  const Sizes s{1, 1, 40, 70, 16, 40};
  const Inputs x = inputs(s);
  const auto with = [](const Tensor& t, std::initializer_list<std::pair<std::size_t, double>> values) {
    std::vector<float> all = t.to_vector<float>();
    for (const auto& [at, value] : values) all[at] = static_cast<float>(value);
    return Tensor::from(all, t.shape()).eval();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               most = std::numeric_limits<float>::max() / 512.0;
  const Tensor v =
      with(x.v, {{3, kInf}, {45, -kInf}, {40 * 8 + 11, nan}, {40 * 9 + 20, most}, {40 * 5, -kInf}});
  const Tensor k = with(x.k, {{16 * 20 + 3, kInf}, {16 * 60 + 2, nan}});
  const auto attention = [&](const Tensor& keys, const Tensor& values, std::int64_t ahead) {
    return matmul(nn::softmax(where(rows(40) + ahead >= columns(70), scores(x.q, keys), -kInf)), values);
  };
  expect_kernels([&] { return attention(x.k, v, 60); }, 2, 2e-5);
  expect_kernels([&] { return attention(k, x.v, 10); }, 2, 2e-5);
  expect_kernels([&] { return attention(k, x.v, 20); }, 2, 2e-5);
}

// (batch, heads, rows, width) as (batch * rows, heads * width): the main loop stores it, and who reads the
// product in its own order reads it there.
TEST_F(GpuAttention, HeadsThatAreJoinedAreNotCopied) {
  for (const Sizes& s : {Sizes{2, 3, 70, 90, 32, 64}, {2, 2, 33, 65, 24, 10}, {1, 2, 140, 130, 64, 64}}) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.columns << " " << s.depth << " " << s.width);
    const Inputs x = inputs(s, DType::BFloat16);
    const auto attention = [&] {
      const Tensor t = where(rows(s.rows) + 30 >= columns(s.columns), scores(x.q, x.k), -kInf);
      return matmul(nn::softmax(t), x.v);
    };
    const auto joined = [&](const Tensor& o) {
      return swapaxes(o, 1, 2).reshape({s.batch * s.rows, s.heads * s.width});
    };
    expect_kernels([&] { return joined(attention()); }, 2, 2e-2);
    expect_kernels([&] { return joined(attention()).astype(DType::Float32) * 2.0; }, 3, 2e-2);
    expect_kernels(
        [&] {
          const Tensor o = attention();
          return joined(o).reshape({s.batch, s.rows, s.heads, s.width}).astype(DType::Float32) *
                 swapaxes(sum(o.astype(DType::Float32), -1, true), 1, 2);
        },
        4, 3e-2);
    const Tensor kept = attention();
    const Tensor y = joined(kept).eval();
    expect_near(joined(kept), y, 0);
  }
}

// Rotary embeddings of queries and keys, which are kernels of their own.
TEST_F(GpuAttention, HeadsThatAreRotated) {
  const Sizes s{2, 2, 40, 40, 32, 32};
  const Tensor angles = data({s.rows, s.depth / 2}, DType::Float32, 4), cosines = cos(angles).eval(),
               sines = sin(angles).eval();
  const auto part = [&](const Tensor& x, std::int64_t first) {
    const Slice all = slice::all(), half = slice::range(first, first + s.depth / 2);
    return x.index(std::vector<Slice>{all, all, all, half}).astype(DType::Float32);
  };
  const auto rotated = [&](const Tensor& x) {
    const Tensor a = part(x, 0), b = part(x, s.depth / 2);
    return concat({a * cosines - b * sines, b * cosines + a * sines}, -1).astype(DType::BFloat16);
  };
  for (const std::int64_t shared : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << shared << " queries a key");
    const auto heads = [&](const Tensor& x, std::int64_t count) {
      return swapaxes(x.reshape({s.batch, s.rows, count, s.depth}), 1, 2);
    };
    const std::int64_t keys = s.heads / shared;
    const Tensor q = data({s.batch, s.rows, s.heads * s.depth}, DType::BFloat16, 1),
                 k = data({s.batch, s.rows, keys * s.depth}, DType::BFloat16, 2),
                 v = data({s.batch, s.rows, keys * s.depth}, DType::BFloat16, 3);
    expect_kernels(
        [&] {
          const Tensor t = scores(rotated(heads(q, s.heads)), rotated(heads(k, keys)));
          const Tensor weights = nn::softmax(where(rows(s.rows) >= columns(s.columns), t, -kInf));
          return swapaxes(matmul(weights, heads(v, keys)), 1, 2).reshape({s.batch, s.rows, -1});
        },
        4, 2e-2);
  }
}

// More blocks of rows than a device's blocks: each of these takes several, with tiles that are left out,
// without any other tile, and where nothing is left out.
TEST_F(GpuAttention, BlocksOfRowsFollowEachOther) {
  for (const Sizes& s :
       {Sizes{2, 2, 420, 140, 64, 64}, {1, 2, 520, 260, 128, 128}, {1, 2, 300, 130, 256, 64}}) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.columns << " " << s.depth << " " << s.width);
    const Inputs x = inputs(s, DType::BFloat16);
    const auto with = [&](const std::function<Tensor(const Tensor&)>& mask, std::uint64_t most) {
      expect_kernels([&] { return matmul(nn::softmax(mask(scores(x.q, x.k))), x.v); }, most, 2e-2);
    };
    const Tensor i = rows(s.rows), j = columns(s.columns);
    with([&](const Tensor& t) { return t; }, 1);
    with([&](const Tensor& t) { return where((i >= j) & (i - j < 50), t, -1e9); }, 2);
    with([&](const Tensor& t) { return where(i - 200 >= j, t, -1e9); }, 2);
  }
}

// As precise as a product of float32: sums of many terms of one sign, scores in the hundreds.
TEST_F(GpuAttention, Float32KeepsItsDigits) {
  const Sizes s{1, 1, 20, 3000, 64, 32};
  const Inputs x = inputs(s);
  const Tensor v = (abs(x.v) + 1.0).eval(), q = (x.q * 8.0).eval();
  expect_kernels([&] { return matmul(nn::softmax(scores(x.q, x.k)), v); }, 1, 1e-6);
  expect_kernels([&] { return matmul(nn::softmax(scores(q, x.k)), v); }, 1, 1e-5);
}

// A positive factor of all scores goes into the exponentials. They are sums that no half rounds.
TEST_F(GpuAttention, NumbersTimesScores) {
  const Sizes s{1, 1, 40, 140, 32, 32};
  const Inputs x = inputs(s, DType::BFloat16);
  const auto with = [&](double number, double none) {
    SCOPED_TRACE(::testing::Message() << number << " " << none);
    const auto program = [&](const Tensor& sums) {
      const Tensor masked = where(rows(s.rows) + 90 >= columns(s.columns), sums * number, none);
      return matmul(nn::softmax(masked).astype(DType::BFloat16), x.v);
    };
    const auto sums = [&](DType dtype) {
      return matmul(x.q.astype(dtype), matrix_transpose(x.k.astype(dtype))).astype(DType::Float32);
    };
    expect_kernels([&] { return program(sums(DType::BFloat16)); }, 2, 2e-2,
                   [&] { return program(sums(DType::Float32)); });
  };
  for (const double number : {0.3, -0.3, 0.0, 1e-35, 40.0})
    for (const double none : {-kInf, -1e9, 0.5}) with(number, none);
}

// Maxima grow from tile to tile, since tiles go from the last one to the first: by less than weights may
// exceed 1, and by more.
TEST_F(GpuAttention, MaximaThatGrow) {
  const Sizes s{1, 1, 30, 300, 32, 32};
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Inputs x = inputs(s, dtype);
    for (const double step : {-0.01, -0.2, 0.2}) {
      SCOPED_TRACE(step);
      expect_kernels(
          [&] {
            const Tensor t =
                scores(x.q, x.k).astype(DType::Float32) + columns(s.columns).astype(DType::Float32) * step;
            return matmul(nn::softmax(t).astype(dtype), x.v);
          },
          1, 2e-2);
    }
  }
}

TEST_F(GpuAttention, SpecialValuesInTilesThatAreLeftOut) {
  for (const Sizes& s : {Sizes{1, 1, 40, 200, 16, 16}, {1, 2, 530, 600, 16, 24}, {1, 1, 520, 530, 16, 128}}) {
    SCOPED_TRACE(s.columns);
    const Inputs x = inputs(s, DType::BFloat16);
    std::vector<float> v = x.v.astype(DType::Float32).to_vector<float>();
    v[static_cast<std::size_t>((s.columns - 1) * s.width + 3)] = std::numeric_limits<float>::quiet_NaN();
    const Tensor nan = Tensor::from(v, x.v.shape()).astype(DType::BFloat16).eval();
    const Tensor mask = rows(s.rows) >= columns(s.columns);
    for (const Tensor& value : {nan, x.v})
      expect_kernels([&] { return matmul(nn::softmax(where(mask, scores(x.q, x.k), -kInf)), value); }, 2,
                     2e-2);
  }
}

}  // namespace
}  // namespace kiln
