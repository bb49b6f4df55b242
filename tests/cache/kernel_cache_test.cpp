// How many kernels classes of programs share.
#include "counted.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

namespace kiln {
namespace {

using test::count;
using test::data;

TEST(KernelCache, ScalarOfAnyValueIsAnArgument) {
  const Tensor x = data({1000});
  x.eval();
  std::uint64_t compiled = 0, misses = 0;
  for (int i = -2; i <= 1000; ++i) {
    Tensor y;
    const test::Counted c = count([&] { y = (x * i + 1).eval(); });
    compiled += c.compiled;
    misses += c.plan_misses;
    const float have = y.to_vector<float>()[3], in = x.to_vector<float>()[3], scalar = static_cast<float>(i);
    // a target may have no fma
    ASSERT_TRUE(have == std::fma(in, scalar, 1.0f) || have == in * scalar + 1.0f) << i;
  }
  RecordProperty("compiled", static_cast<int>(compiled));
  EXPECT_LE(compiled, 4u);
  EXPECT_LE(misses, 4u);
}

/// Kernels that `program` compiles over 1,000 shapes, nearly all random; extents of 1 and misaligned slices
/// among them.
template <class F>
std::uint64_t kernels_over_shapes(F program) {
  clear_memory_caches();
  std::mt19937 random(1);
  auto extent = [&](int most) -> std::int64_t {
    return random() % 8 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  const Tensor memory = data({300, 401});
  std::uint64_t compiled = 0, late = 0;
  for (int i = 0; i < 1000; ++i) {
    std::int64_t rows = extent(200), columns = extent(300);
    if (i < 32) rows = i / 2 + 1, columns = 1;  // short columns alone, which random shapes seldom are
    const std::int64_t skip = i % 3 ? 0 : static_cast<std::int64_t>(random() % 7);
    const Tensor x =
        i % 2 ? data({rows, columns}) : memory(range(skip, skip + rows), range(skip, skip + columns));
    const std::uint64_t now = count([&] { program(x); }).compiled;
    compiled += now;
    if (i >= 500) late += now;
  }
  EXPECT_EQ(late, 0u) << "new shapes in known classes compile";
  return compiled;
}

TEST(KernelCache, OneChainOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) {
    const Tensor row = ones({x.dim(1)}) * 2.0;
    (exp(x * row + 1.0) - x(slice::all(), range(0, 1))).eval();
  });
  std::cout << "chain with broadcast: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

TEST(KernelCache, SoftmaxOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) { nn::softmax(x).eval(); });
  std::cout << "softmax: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

TEST(KernelCache, ColumnReductionOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) { sum(x * x, 0).eval(); });
  std::cout << "column reduction: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

TEST(KernelCache, RowReductionOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) { sum(x * x, 1).eval(); });
  std::cout << "row reduction: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

TEST(KernelCache, TransposeOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) { (x.T() + 1).eval(); });
  std::cout << "transpose: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

TEST(KernelCache, PermuteOverRandomShapesCompilesFewKernels) {
  const std::uint64_t n = kernels_over_shapes([](const Tensor& x) {
    (permute_dims(data({3, x.dim(0), x.dim(1)}), {2, 0, 1}) * 2).eval();
    (permute_dims(data({x.dim(0), 12, x.dim(1)}), {0, 2, 1}) * 2).eval();
  });
  std::cout << "permute: " << n << " kernels\n";
  EXPECT_LE(n, config().device == "cpu" ? 12u : 16u);
}

}  // namespace
}  // namespace kiln
