// Rows of values of pairs that are only reduced: one kernel, whose main loop keeps a tile's values in
// registers.
#include "device/cuda/driver.h"
#include "engine/gpu_same.h"

#include <kiln/report.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace kiln {
namespace {

struct Sizes {
  std::int64_t rows, terms, columns;
};

class GpuNests : public testing::GpuSame {
 protected:
  using Program = std::function<Tensor(const Tensor&)>;

  /// A program of rows is one kernel, and has the values that a CPU finds, each within `near` of its size.
  static void one_kernel(const std::function<Tensor()>& values, const Program& program, float near = 0) {
    const auto run = [&] {
      const Tensor found = program(values());
      const std::uint64_t before = statistics().launches + statistics().library_calls;
      found.eval();
      launches_ = statistics().launches + statistics().library_calls - before;
      return found.astype(DType::Float32).to_vector<float>();
    };
    const std::vector<float> here = run();
    EXPECT_EQ(launches_, 1u);
    const std::vector<float> there = on_cpu(run);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i)
      if (!(std::isnan(here[i]) && std::isnan(there[i])))
        ASSERT_NEAR(here[i], there[i], near * (1 + std::abs(there[i]))) << i;
  }

  /// Sizes of a GPU of four multiprocessors, with as many rows as keep this one's busy.
  static Sizes busy(Sizes s) {
    s.rows *= std::max(1, cuda::device(0).sm_count / 4);
    return s;
  }

  static std::function<Tensor()> products(DType type, const Sizes& small) {
    const Sizes s = busy(small);
    return [=] { return matmul(numbers({s.rows, s.terms}, type), numbers({s.terms, s.columns}, type, 41)); };
  }
  static std::function<Tensor()> differences(DType type, const Sizes& small) {
    const Sizes s = busy(small);
    return [=] {
      return numbers({s.rows, 1, s.terms}, type).astype(DType::Float32) -
             numbers({s.columns, s.terms}, type, 41).astype(DType::Float32);
    };
  }

 private:
  static inline std::uint64_t launches_ = 0;
};

TEST_F(GpuNests, RowsOfProducts) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Program programs[] = {
      [](const Tensor& y) { return argmin(y * 0.25 - 1, 1); }, [](const Tensor& y) { return max(y, 1); },
      [](const Tensor& y) { return sum(y, 1) + 2 * astype(argmax(y, 1), DType::Float32); }};
  for (const Sizes& s :
       {Sizes{1100, 9, 128}, {4000, 16, 33}, {1400, 31, 100}, {10000, 12, 16}, {100, 40, 1501}})
    for (const Program& program : programs)
      one_kernel([&] { return products(DType::Float32, s)().astype(DType::Float32); }, program);
  for (const DType type : {DType::Float16, DType::BFloat16})  // (a CPU rounds the product)
    one_kernel([&] { return products(type, {1100, 20, 129})().astype(DType::Float32); }, programs[1], 1e-2f);
}

/// The values of pairs are in no memory, although two results are made of them; of few rows many blocks have
/// a part of the columns each.
TEST_F(GpuNests, SeveralResultsOfRows) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Sizes& s : {Sizes{100, 8, 5003}, {4000, 8, 33}, {1100, 40, 128}}) {
    std::uint64_t launches = 0;
    const auto run = [&] {
      const auto made = [](const Tensor& y) { return std::pair(mean(y, 1), max(y, 1)); };
      const auto [average, most] = made(products(DType::Float32, s)());  // nobody holds the product
      const std::uint64_t before = statistics().launches + statistics().library_calls;
      eval(average, most);
      launches = statistics().launches + statistics().library_calls - before;
      return concat({average, most}).to_vector<float>();
    };
    const std::vector<float> here = run();
    EXPECT_EQ(launches, 1u);
    const std::vector<float> there = on_cpu(run);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i)
      ASSERT_NEAR(here[i], there[i], 1e-4 * (1 + std::abs(there[i]))) << i;
  }
}

/// Of few terms a thread has rows alone: columns that fill no vectors, parts of columns, labels, weights.
TEST_F(GpuNests, TheRowsOfFewTermsAreAThreadsAlone) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const auto twice = [](const Tensor& y) { return max(y, 1) + 2 * astype(argmin(y, 1), DType::Float32); };
  for (const Sizes& s : {Sizes{4100, 8, 100}, {4100, 5, 33}, {4100, 3, 130}}) {
    const auto values = products(DType::Float32, s);
    one_kernel(values, twice);
    one_kernel(values, [](const Tensor& y) { return sum(y * y, 1); }, 1e-5f);
    one_kernel([&] { return values() * 0.01; }, [](const Tensor& y) { return logsumexp(y, 1); }, 1e-5f);
    one_kernel(differences(DType::BFloat16, s), [](const Tensor& d) { return argmin(sum(abs(d), 2), 1); });
  }
  for (const DType type : {DType::Float16, DType::BFloat16})
    one_kernel([&] { return products(type, {4100, 8, 100})().astype(DType::Float32) * 0.01; },
               [](const Tensor& y) { return logsumexp(y, 1); }, 1e-2f);
}

TEST_F(GpuNests, ReductionsOfPairs) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Sizes& s : {Sizes{1100, 3, 128}, {1400, 70, 100}, {150, 8, 1001}, {1100, 3, 1100}}) {
    one_kernel(differences(DType::Float32, s), [](const Tensor& d) { return argmin(sum(abs(d), 2), 1); });
    one_kernel(differences(DType::BFloat16, s), [](const Tensor& d) { return argmax(min(d * d, 2), 1); });
    one_kernel(differences(DType::Float32, s), [](const Tensor& d) { return min(max(d, 2) + 1, 1); });
  }
}

TEST_F(GpuNests, OfDoubles) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Sizes& small : {Sizes{1100, 3, 64}, {1400, 70, 100}, {150, 8, 1001}, {2000, 20, 17}}) {
    const Sizes s = busy(small);
    const auto values = [&] {
      return numbers({s.rows, 1, s.terms}, DType::Float64) -
             numbers({s.columns, s.terms}, DType::Float64, 41);
    };
    one_kernel(values, [](const Tensor& d) { return argmin(sum(abs(d), 2), 1); });
    one_kernel(values, [](const Tensor& d) { return min(max(d, 2) + 1, 1); });
    one_kernel(values, [](const Tensor& d) { return sum(min(d * d, 2), 1); });
    one_kernel(values, [](const Tensor& d) { return sum(abs(d), 2) * 2; });
  }
}

TEST_F(GpuNests, TermsMayHaveWeights) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Sizes s{1100, 13, 128};
  one_kernel(differences(DType::Float32, s), [&](const Tensor& d) {
    return argmin(sum(d * d * numbers({s.terms}, DType::Float32, 5), 2), 1);
  });
}

/// Results of pairs that are stored, with what maps make of them, in rows of vectors and in rows that begin
/// anywhere.
TEST_F(GpuNests, TheResultsOfPairsMayBeStored) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Sizes& s : {Sizes{1100, 9, 128}, {1400, 70, 100}, {250, 8, 1001}, {4000, 12, 33}}) {
    const Sizes all = busy(s);
    one_kernel(differences(DType::Float32, s), [](const Tensor& d) { return sum(abs(d), 2); });
    one_kernel(differences(DType::BFloat16, s),
               [](const Tensor& d) { return astype(max(d * d, 2), DType::BFloat16); });
    one_kernel(differences(DType::Float32, s), [&](const Tensor& d) {
      return min(d, 2) * 2 - numbers({all.columns}, DType::Float32, 3) -
             numbers({all.rows, 1}, DType::Float32, 7);
    });
    one_kernel(differences(DType::Float32, s), [](const Tensor& d) { return sum(d, 2) > 3; });
  }
}

/// Columns of each matrix of a batch.
TEST_F(GpuNests, BatchesHaveTheirValues) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  same([] {
    return argmin(
        sum(abs(numbers({4, 300, 1, 9}, DType::Float32) - numbers({4, 1, 128, 9}, DType::Float32, 41)), 3),
        2);
  });
}

/// The loss of each row of scores: its logsumexp less the score of a label, which may be counted from the
/// back.
TEST_F(GpuNests, LossesOfRows) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Sizes& s : {Sizes{1100, 9, 129}, {128, 24, 1100}, {4100, 7, 100}}) {
    const auto scores = [&] { return products(DType::Float32, s)() * 0.01; };
    const auto labels = [&] {
      return numbers({busy(s).rows, 1}, DType::Int32);  // -30 to 30
    };
    one_kernel(scores, [](const Tensor& y) { return logsumexp(y, 1); }, 1e-5f);
    // (what the labels become before is a kernel of its own)
    const auto loss = [&] {
      const auto of = [&](const Tensor& y) {
        return logsumexp(y, 1, true) - take_along_axis(y, labels(), 1);
      };
      const Tensor losses = of(scores());
      return losses.to_vector<float>();
    };
    const std::vector<float> here = loss();
    const std::vector<float> there = on_cpu(loss);
    for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(here[i], there[i], 1e-4f) << i;
  }
}

/// One number is no rows: a kernel of its own makes it of the rows' results.
TEST_F(GpuNests, AMeanOfAllRowsIsAnotherKernel) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Tensor mean_of_all = [] {
    const auto of = [](const Tensor& y) { return mean(max(y, 1)); };
    return of(products(DType::Float32, {1100, 9, 129})());
  }();
  const std::uint64_t before = statistics().launches + statistics().library_calls;
  mean_of_all.eval();
  EXPECT_EQ(statistics().launches + statistics().library_calls - before, 2u);
}

TEST_F(GpuNests, TheFirstOfEqualValuesIsFoundAndTheFirstThatIsNoNumber) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t columns : {130, 1100}) {
    const auto values = [&] {
      Tensor x = numbers({busy({1100, 8, columns}).rows, 8}, DType::Float32),
             y = numbers({8, columns}, DType::Float32, 0);
      x = where(x == 7, none, x);
      return matmul(x.eval(), where(numbers({8, columns}, DType::Float32, 1) == 29, none, y).eval());
    };
    one_kernel(values, [](const Tensor& y) { return argmin(y, 1); });
    one_kernel(values, [](const Tensor& y) { return argmax(y, 1); });
    one_kernel(values, [](const Tensor& y) { return max(y, 1); });
  }
}

/// What is made of a row's results for its elements, reductions of columns, and values that are stored.
TEST_F(GpuNests, OthersHaveTheirValues) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const auto values = [] { return sum(abs(differences(DType::Float32, {1100, 9, 128})()), 2); };
  same([&] {
    const Tensor y = values();
    return sum(y - max(y, 1, true), 1);
  });
  same([&] { return max(values(), 0); });
  same([&] {
    const Tensor y = values();
    return y + max(y, 1, true);
  });
}

}  // namespace
}  // namespace kiln
