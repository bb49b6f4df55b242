// Which programs become how many kernels.
#include "plan/fuse.h"

#include "allocated_bytes.h"
#include "cache/kernel_cache.h"
#include "counted.h"
#include "engine/plan.h"
#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace kiln {
namespace {

using test::data;
using test::kernels;

TEST(Fuse, ChainIsOneKernel) {
  Tensor x = data({1000});
  for (int i = 0; i < 10; ++i) x = tanh(x * 1.5 + 0.25);
  EXPECT_EQ(kernels({x}), 1u);
}

TEST(Fuse, SoftmaxIsOneKernel) { EXPECT_EQ(kernels({nn::softmax(data({64, 100}))}), 1u); }

TEST(Fuse, SoftmaxWithEveryIntermediateAliveIsOneKernel) {
  const Tensor x = data({64, 100});
  const Tensor m = max(x, -1, true);
  const Tensor shifted = x - m;
  const Tensor e = exp(shifted);
  const Tensor s = sum(e, -1, true);
  const Tensor y = e / s;
  EXPECT_EQ(kernels({y}), 1u);
  EXPECT_NEAR(y(3).eval().to_vector<float>()[7], (exp(x - m) / sum(exp(x - m), -1, true))(3, 7).item<float>(),
              1e-6);
}

TEST(Fuse, HeldIntermediatesReadLaterAreRight) {
  const Tensor x = data({16, 33});
  const Tensor m = max(x, -1, true), e = exp(x - m), s = sum(e, -1, true), y = e / s;
  y.eval();
  const std::vector<float> xs = x.to_vector<float>(), ms = m.to_vector<float>(), es = e.to_vector<float>(),
                           ss = s.to_vector<float>();
  for (std::size_t r = 0; r < 16; ++r) {
    float greatest = -INFINITY, total = 0;
    for (std::size_t c = 0; c < 33; ++c) greatest = std::max(greatest, xs[r * 33 + c]);
    EXPECT_EQ(ms[r], greatest);
    for (std::size_t c = 0; c < 33; ++c) {
      EXPECT_NEAR(es[r * 33 + c], std::exp(xs[r * 33 + c] - greatest), 1e-6);
      total += es[r * 33 + c];
    }
    EXPECT_NEAR(ss[r], total, 1e-4);
  }
}

TEST(Fuse, LayerNormIsOneKernel) {
  EXPECT_EQ(kernels({nn::layer_norm(data({64, 100}), data({100}), data({100}))}), 1u);
}
TEST(Fuse, RmsNormIsOneKernel) { EXPECT_EQ(kernels({nn::rms_norm(data({64, 100}), data({100}))}), 1u); }

TEST(Fuse, AWeightThatEveryRowConvertsIsConvertedThere) {
  const Tensor x = astype(data({256, 1024}), DType::BFloat16).eval(),
               weight = astype(data({1024}), DType::BFloat16).eval();
  const Tensor h = astype(x, DType::Float32) * 2;
  const Tensor y = h * rsqrt(mean(h * h, -1, true) + 1e-5) * astype(weight, DType::Float32);
  EXPECT_EQ(kernels({astype(h, DType::BFloat16), astype(y, DType::BFloat16)}), 1u);
}
TEST(Fuse, ARowThatIsDearToMakeIsMadeOnce) {
  EXPECT_EQ(kernels({data({1024, 1024}) + tanh(sin(data({1024})))}), 2u);
}
TEST(Fuse, VarianceIsOneKernel) { EXPECT_EQ(kernels({var(data({64, 100}), -1)}), 1u); }
TEST(Fuse, LogSumExpIsOneKernel) { EXPECT_EQ(kernels({logsumexp(data({64, 100}), -1)}), 1u); }

TEST(Fuse, BatchNormStatisticsAreOneKernel) {
  const Tensor x = data({32, 8, 5, 6});
  EXPECT_EQ(kernels({mean(x, {0, 2, 3}), var(x, {0, 2, 3})}), 1u);
}

TEST(Fuse, BlackScholesIsOneKernelWithTwoOutputs) {
  const Tensor spot = data({500}) + 20.0, strike = data({500}, DType::Float32, 1) + 20.0,
               time = data({500}) + 2.0;
  eval({spot, strike, time});
  const double rate = 0.05, sigma = 0.3;
  const Tensor root = sigma * sqrt(time);
  const Tensor d1 = (log(spot / strike) + (rate + sigma * sigma / 2) * time) / root, d2 = d1 - root;
  auto cdf = [](const Tensor& d) { return 0.5 * (1.0 + erf(d * 0.70710678118654752)); };
  const Tensor discounted = strike * exp(-rate * time);
  const Tensor call = spot * cdf(d1) - discounted * cdf(d2);
  const Tensor put = discounted * cdf(-d2) - spot * cdf(-d1);
  EXPECT_EQ(kernels({call, put}), 1u);
}

TEST(Fuse, SiblingsOfOneInputAreOneKernel) {
  const Tensor x = data({300, 20});
  EXPECT_EQ(kernels({sin(x), cos(x)}), 1u);
}

TEST(Fuse, ReductionsOfOneInputAreOneKernel) {
  const Tensor x = data({300, 20});
  EXPECT_EQ(kernels({sum(x, 1), max(x, 1), mean(square(x), 1)}), 1u);
}

TEST(Fuse, ColumnReductionWithProducerIsOneKernel) { EXPECT_EQ(kernels({sum(exp(data({300, 20})), 0)}), 1u); }

TEST(Fuse, LongReductionWithProducerIsOneKernel) {
  const Tensor x = data({200000});
  const Tensor s = sum(square(x));
  EXPECT_EQ(kernels({s}), 1u);
  double want = 0;
  for (float v : x.to_vector<float>()) want += static_cast<double>(v) * v;
  EXPECT_NEAR(s.item<float>(), want, want * 1e-5);
}

TEST(Fuse, EpilogueOfAReductionJoinsIt) {
  EXPECT_EQ(kernels({sqrt(sum(square(data({64, 100})), -1) + 1.0) * 2.0}), 1u);
}

TEST(Fuse, ViewsCostNoKernel) {
  const Tensor x = data({40, 30});
  EXPECT_EQ(kernels({flip(matrix_transpose(x)(range(1, none, 2)), 0) + 1.0}), 1u);
  EXPECT_EQ(kernels({concat({x, x * 2.0}, 1)}), 1u);
  EXPECT_EQ(kernels({x(range(0, 10))}), 0u);
}

TEST(Fuse, StencilIsOneKernel) {
  if (engine::planning_target().vector_bytes < 64)
    GTEST_SKIP() << "recomputing is a choice of the cost model: dearer on narrow registers";
  Tensor x = data({50, 50});
  const Tensor blur = x(range(0, -2)) + x(range(1, -1)) * 2.0 + x(range(2, none));
  EXPECT_EQ(kernels({blur(slice::all(), range(0, -2)) + blur(slice::all(), range(1, -1)) * 2.0 +
                     blur(slice::all(), range(2, none))}),
            1u);
}

// Both halves are made of the same four arrays, which are read once more instead of writing the halves.
TEST(Fuse, RotationsByWholeTablesAreOneKernel) {
  const Tensor x = data({4096, 64}), c = data({4096, 32}), s = data({4096, 32});
  const auto rotated = [&] {
    const Tensor a = x(slice::all(), range(0, 32)), b = x(slice::all(), range(32, none));
    return concat({a * c - b * s, b * c + a * s}, 1);
  };
  EXPECT_EQ(kernels({rotated()}), 1u);
  const Tensor all = rotated();
  EXPECT_EQ(all(10, 3).item<float>(), (x(10, 3) * c(10, 3) - x(10, 35) * s(10, 3)).item<float>());
  EXPECT_EQ(all(10, 40).item<float>(), (x(10, 40) * c(10, 8) + x(10, 8) * s(10, 8)).item<float>());
}

TEST(Fuse, PlansTenThousandNodesInOneGo) {
  Tensor x = data({64});
  const Tensor y = data({64});
  for (int i = 0; i < 10000; ++i) x = i % 3 ? x * 0.5 : x + y;
  const test::Counted c = test::count([&] { x.eval(); });
  EXPECT_EQ(c.plan_misses, 1u);
  EXPECT_LT(c.compiled, 100u);
  Config oracle = config(), before = config();
  oracle.mode = Mode::Interpret;
  configure(oracle);
  Tensor z = data({64});
  for (int i = 0; i < 10000; ++i) z = i % 3 ? z * 0.5 : z + y;
  const std::vector<float> want = z.to_vector<float>(), got = x.to_vector<float>();
  configure(before);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
}

TEST(Fuse, RootThatShowsAnInlinedValueIsStored) {  // root N (permute) was not computed
  const Tensor a = data({1}), b = data({1, 1, 1});
  const Tensor t = permute_dims(maximum(b, logsumexp(a, 0)), {0, 2, 1});
  EXPECT_EQ(t.item<float>(), std::max(a.item<float>(), b.item<float>()));
}

TEST(Fuse, ConstantMatmulOperandIsStored) {  // a matmul operand has no memory
  const Tensor ones_then = isfinite(Tensor::from(std::vector<std::uint16_t>{4}, {1, 1})).astype(DType::Int32);
  EXPECT_EQ(matmul(ones_then, ones_then).item<std::int32_t>(), 1);
}

TEST(Fuse, AChainOfStencilsIsNotRecomputedWithoutEnd) {
  Tensor x = data({40, 40});
  for (int i = 0; i < 24; ++i)
    x = pad(x(range(1, 39), range(1, 39)) + x(range(0, 38), range(1, 39)) + x(range(2, 40), range(1, 39)) +
                x(range(1, 39), range(0, 38)) + x(range(1, 39), range(2, 40)),
            {{1, 1}, {1, 1}}) *
        0.2f;
  const std::uint64_t n = kernels({x});
  EXPECT_GT(n, 2u);
  EXPECT_LE(n, 48u);
}

/// Each term of a stencil would ask again where the border is.
TEST(Fuse, APadThatManyTermsReadIsStoredOnACpu) {
  const auto stencil = [](std::int64_t side, std::int64_t width) {
    const Tensor x = pad(data({side, side}) * 2, {{width / 2, width / 2}, {width / 2, width / 2}});
    Tensor sums;
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const Tensor term =
            x(range(i, i + side), range(j, j + side)) * (1 + 0.5 * static_cast<double>(i * j));
        sums = sums.valid() ? sums + term : term;
      }
    return sums;
  };
  const bool cpu = config().device == "cpu";
  EXPECT_EQ(kernels({stencil(200, 5)}), cpu ? 2u : 1u);
  EXPECT_EQ(kernels({stencil(200, 2)}), 1u);  // few terms
  EXPECT_EQ(kernels({stencil(20, 5)}), 1u);   // few elements
  const Tensor wide = pad(data({200, 204}), {{2, 2}, {0, 0}});
  Tensor every_second;
  for (std::int64_t i = 0; i < 20; ++i) {
    const Tensor term =
        wide(range(i % 5, i % 5 + 200), range(i / 5, i / 5 + 200, 2)) * (1 + 0.5 * static_cast<double>(i));
    every_second = every_second.valid() ? every_second + term : term;
  }
  EXPECT_EQ(kernels({every_second}), 1u);
  const Tensor got = stencil(200, 5);
  double expected = 0;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j)
      expected += 2 * data({200, 200})(i, j).item<double>() * (1 + 0.5 * (i + 2) * (j + 2));
  EXPECT_NEAR(got(0, 0).item<float>(), expected, 1e-4);
}

/// Longer chains of reductions than one kernel takes.
TEST(Fuse, ManyReductionsThatDependOnEachOtherAreSeveralKernels) {
  Tensor x = data({6, 40}) + 2;
  for (int i = 0; i < 70; ++i) x = x / sum(x, -1, true) + 0.5;
  EXPECT_GT(kernels({x}), 2u);
  EXPECT_LT(kernels({x * 1.0}), 5u);
  double row = 0;
  for (int i = 0; i < 40; ++i) row += x(0, i).item<float>();
  EXPECT_NEAR(row, 1 + 40 * 0.5, 1e-4);
}

/// What one kernel stores and joins is bounded too, since compilers take more than their share of time for
/// more.
TEST(Fuse, ManyHeldResultsAreSeveralKernels) {
  const Tensor x = data({64});
  std::vector<Tensor> all;
  for (int i = 0; i < 300; ++i) all.push_back(x * (0.5f + static_cast<float>(i)));
  const std::uint64_t launches = test::count([&] { eval(all); }).launches;
  if (config().device == "cpu") {
    EXPECT_GE(launches, 300u / 64);
  }  // a GPU may launch them as one
  EXPECT_LT(launches, 20u);
  EXPECT_FLOAT_EQ(all[299](5).item<float>(), x(5).item<float>() * 299.5f);
}

TEST(Fuse, ManyJoinedValuesAreSeveralKernels) {
  std::vector<Tensor> pieces;
  for (int i = 0; i < 300; ++i) pieces.push_back(ones({2}) * static_cast<float>(i));
  const Tensor joined = concat(pieces);
  const std::uint64_t launches = kernels({joined});
  if (config().device == "cpu") {
    EXPECT_GE(launches, 3u);
  }
  EXPECT_LT(launches, 20u);
  EXPECT_EQ(sum(joined).item<float>(), 299 * 300);
}

// ---- reasons ----

std::atomic<std::size_t> arrays_of_kernels;

/// x(a part) += v, k·k times: each part reads what all parts before it wrote. What the kernels read in all
/// grows with the number of updates, not with its square: machine code for all combinations took seconds.
TEST(Fuse, UpdatesOfOverlappingPartsAreSmallKernels) {
  for (const std::int64_t step : {1, 2}) {
    for (const std::int64_t k : {3, 5}) {
      if ((step == 1) != (k == 5) && !std::getenv("KILN_TEST_LONG")) continue;  // one of each: seconds
      SCOPED_TRACE(::testing::Message() << "step " << step << ", " << k << " x " << k);
      const std::int64_t n = 6, side = step * (n - 1) + k;
      const Tensor v = data({k * k, n, n});
      const std::vector<float> values = v.to_vector<float>();
      std::vector<float> want(static_cast<std::size_t>(side * side));
      Tensor x = zeros({side, side}).eval();
      clear_memory_caches();
      arrays_of_kernels = 0;
      engine::set_compile_hook(
          [](const kernel::Kernel& kernel) { arrays_of_kernels += kernel.buffers.size(); });
      const test::Counted done = test::count([&] {
        for (std::int64_t i = 0; i < k * k; ++i) {
          const std::int64_t a = i / k, b = i % k;
          x(range(a, a + step * (n - 1) + 1, step), range(b, b + step * (n - 1) + 1, step)) += v(i);
          for (std::int64_t r = 0; r < n; ++r)
            for (std::int64_t c = 0; c < n; ++c)
              want[static_cast<std::size_t>((a + r * step) * side + b + c * step)] +=
                  values[static_cast<std::size_t>((i * n + r) * n + c)];
        }
        x.eval();
      });
      engine::set_compile_hook(nullptr);
      EXPECT_EQ(x.to_vector<float>(), want);
      EXPECT_LE(arrays_of_kernels, static_cast<std::size_t>(6 * k * k));
      EXPECT_LE(done.launches, static_cast<std::uint64_t>(k * k + k * k / 6 + 2));
    }
  }
}

/// Parts that are only written cost no kernel of their own, however many.
TEST(Fuse, UpdatesThatNobodyReadsAreOneKernel) {
  Tensor x = data({40, 30});
  for (std::int64_t i = 0; i < 30; ++i) x(range(i, i + 5)) = data({30}, DType::Float32, static_cast<int>(i));
  EXPECT_EQ(kernels({x}), 1u);
}

TEST(Fuse, WhatRunsFromBothEndsOfAnAxisIsTwoKernels) {
  const auto reasons = [](const ir::Scan& second, bool position) {
    ir::GraphBuilder b;
    const ir::NodeId x = b.leaf(DType::Float32, {64, 100}),
                     scan = b.scan(ir::Op::scan_sum, x, {.axis = 1, .reverse = true});
    if (position) {
      b.root(b.reduce(ir::Op::reduce_argmax, scan, 2));
    } else {
      b.root(b.scan(ir::Op::scan_sum, scan, second));
    }
    std::vector<std::string> out;
    for (const plan::Refusal& r : plan::fuse(b.graph, {}).refusals) out.push_back(r.why.text());
    return out;
  };
  const std::vector<std::string> refused = {"one runs from the start of the axis, the other from its end"};
  EXPECT_EQ(reasons({1}, false), refused);
  EXPECT_EQ(reasons({.axis = 1, .exclusive = true}, false), refused);
  EXPECT_EQ(reasons({.axis = 1, .reverse = true}, false), std::vector<std::string>{});
  EXPECT_EQ(reasons({1}, true), refused);
}

/// So many layers of h = h + softmax(q k^T) v, with q, k and v made of norm(h), and then the gradient's
/// products of the weights, each of which reads what a layer far before it has made.
ir::GraphBuilder deep_network(int layers) {
  using ir::NodeId;
  using ir::Op;
  const DType f = DType::Float32;
  ir::GraphBuilder b;
  NodeId h = b.leaf(f, {32, 64});
  const NodeId count = b.scalar(f, 0);
  std::vector<NodeId> normal;
  for (int i = 0; i < layers; ++i) {
    const NodeId mean = b.op(Op::divide, {b.reduce(Op::reduce_sum, h, 2), count});
    const NodeId centred = b.op(Op::subtract, {h, mean});
    const NodeId square = b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2);
    normal.push_back(b.op(Op::multiply, {centred, b.op(Op::rsqrt, {square})}));
    const NodeId q = b.matmul(normal.back(), b.leaf(f, {64, 64}));
    const NodeId scores = b.matmul(q, b.permute(normal.back(), {1, 0}));
    const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {scores, b.reduce(Op::reduce_max, scores, 2)})});
    const NodeId weights = b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)});
    h = b.op(Op::add, {h, b.matmul(weights, normal.back())});
  }
  for (int i = layers; i-- > 0;) {
    b.root(b.matmul(b.permute(normal[static_cast<std::size_t>(i)], {1, 0}), h));
    h = b.op(Op::add, {h, b.matmul(h, b.leaf(f, {64, 64}))});
  }
  b.root(h);
  return b;
}

TEST(Fuse, PlansDeepNetworksInLinearTime) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const auto of_a_layer = [](int layers) {
    const ir::Graph graph = deep_network(layers).graph;
    const testing::Allocated memory = testing::allocated_in([&] {
      EXPECT_GT(plan::fuse(graph, engine::planning_target()).regions.size(),
                static_cast<std::size_t>(layers));
    });
    return static_cast<double>(memory.bytes) / layers;
  };
  const double few = of_a_layer(80), many = of_a_layer(400);  // from 60 on walks end at their bound
  std::printf("fuse: %.0f bytes a layer of 80, %.0f of 400\n", few, many);
  EXPECT_LT(many, 1.5 * few);  // 5 times as many where all of it is quadratic
}

}  // namespace
}  // namespace kiln
