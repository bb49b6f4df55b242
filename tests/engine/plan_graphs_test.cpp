// Plans that come again with the same memory are CUDA graphs, and compute what they did.
#include "counted.h"
#include "device/cuda/cuda_test.h"
#include "device/cuda/graph.h"

#include <kiln/config.h>
#include <kiln/gpu.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

namespace kiln {
namespace {

class GpuGraphs : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    Config c = config();
    c.fuse_off = {"nest"};  // rows and columns of the programs here would be one kernel, which needs no graph
    configure(c);
    clear_memory_caches();
  }
  void TearDown() override {
    CudaTest::TearDown();
    clear_memory_caches();
  }
};

constexpr std::int64_t kRows = 12, kColumns = 20;

/// Rows and columns are scaled in turns: a kernel a turn, each needs the one before (no nests).
Tensor scaled(Tensor x, float by) {
  for (int turn = 0; turn < 3; ++turn) {
    x = x * by / sum(x * x + 1.0f, 1, true);
    x = x / sum(x * x + 2.0f, 0, true);
  }
  return x;
}

std::vector<double> expected(const std::vector<float>& in, double by) {
  std::vector<double> x(in.begin(), in.end());
  for (int turn = 0; turn < 3; ++turn) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      double total = 0;
      for (std::int64_t c = 0; c < kColumns; ++c) total += x[r * kColumns + c] * x[r * kColumns + c] + 1;
      for (std::int64_t c = 0; c < kColumns; ++c) x[r * kColumns + c] *= by / total;
    }
    for (std::int64_t c = 0; c < kColumns; ++c) {
      double total = 0;
      for (std::int64_t r = 0; r < kRows; ++r) total += x[r * kColumns + c] * x[r * kColumns + c] + 2;
      for (std::int64_t r = 0; r < kRows; ++r) x[r * kColumns + c] /= total;
    }
  }
  return x;
}

void expect_scaled(const Tensor& out, const Tensor& in, double by) {
  if (!cuda::computes()) return;
  const auto got = out.to_vector<float>();
  const auto want = expected(in.to_vector<float>(), by);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5 * std::fabs(want[i]) + 1e-12) << i;
}

std::uint64_t graphs_of(const std::function<void()>& f) {
  const std::uint64_t before = statistics().graphs;
  f();
  return statistics().graphs - before;
}

TEST_F(GpuGraphs, RepeatedPlansAreLaunchedAsOne) {
  const Tensor x = test::data({kRows, kColumns});
  Tensor y;
  const std::uint64_t graphs = graphs_of([&] {
    for (int i = 0; i < 12; ++i) {
      y = scaled(x, 3.0f).eval();
      expect_scaled(y, x, 3.0);
    }
  });
  EXPECT_GE(graphs, 6u);
}

TEST_F(GpuGraphs, OtherScalarsAreSetInTheSameGraph) {
  if (!cuda::graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  const Tensor x = test::data({kRows, kColumns});
  const std::uint64_t graphs = graphs_of([&] {
    for (int i = 0; i < 12; ++i) {
      const float by = 1.0f + 0.25f * static_cast<float>(i);
      expect_scaled(scaled(x, by).eval(), x, by);
    }
  });
  EXPECT_GE(graphs, 6u);
}

TEST_F(GpuGraphs, OtherPositionsAreSetInTheSameGraph) {
  if (!cuda::graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  const Tensor x = test::data({3 * kRows, kColumns});
  const std::uint64_t graphs = graphs_of([&] {
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t from = i * 5 % (2 * kRows);
      expect_scaled(scaled(x(range(from, from + kRows)), 2.0f).eval(), x(range(from, from + kRows)).eval(),
                    2.0);
    }
  });
  EXPECT_GE(graphs, 6u);
}

TEST_F(GpuGraphs, OtherMemoryIsSetInTheSameGraph) {
  if (!cuda::graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  std::vector<Tensor> inputs, kept;
  for (int i = 0; i < 12; ++i) inputs.push_back(test::data({kRows, kColumns}, DType::Float32, i));
  const std::uint64_t graphs = graphs_of([&] {
    for (const Tensor& x : inputs)
      kept.push_back(scaled(x, 2.0f).eval());  // all of them have memory of their own
  });
  EXPECT_GE(graphs, 8u);
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_scaled(kept[i], inputs[i], 2.0);
}

/// Intermediates of more than 16 MiB are the pool's again after each run.
TEST_F(GpuGraphs, LargePlansHaveTheirIntermediatesInOneBlock) {
  if (!cuda::graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  const auto program = [](const Tensor& x) {
    Tensor y = x;
    for (int turn = 0; turn < 3; ++turn) y = cumsum(cumsum(y, 1) * 1e-3f, 0) * 1e-3f;
    return sum(y, 0);
  };
  const Tensor x = full({1100, 1024}, 0.5f).eval();
  const std::uint64_t before = memory_use(x.device()).in_use;
  std::vector<float> first;
  const std::uint64_t graphs = graphs_of([&] {
    for (int i = 0; i < 5; ++i) {
      const Tensor y = program(x).eval();
      if (!cuda::computes()) continue;
      if (i == 0) first = y.to_vector<float>();
      EXPECT_EQ(y.to_vector<float>(), first) << i;
    }
  });
  EXPECT_GE(graphs, 2u);
  EXPECT_LT(memory_use(x.device()).in_use, before + (1 << 20));
}

TEST_F(GpuGraphs, ScattersAreInThem) {
  const Tensor x = test::data({kRows, kColumns}), at = Tensor::from(std::vector<std::int64_t>{3, 0, 3, 1});
  const auto program = [&] {
    const Tensor y = scatter_add(zeros({4, kColumns}), at, scaled(x, 2.0f)(range(0, 4)), 0);
    return y / sum(y * y + 1.0f, 0, true);
  };
  std::vector<float> first;
  const std::uint64_t graphs = graphs_of([&] {
    for (int i = 0; i < 8; ++i) {
      const Tensor y = program().eval();
      if (!cuda::computes()) continue;
      if (i == 0) first = y.to_vector<float>();
      EXPECT_EQ(y.to_vector<float>(), first) << i;
    }
  });
  EXPECT_GE(graphs, 4u);
}

TEST_F(GpuGraphs, OtherArgumentsResultsAndScalarsAreSeen) {
  std::vector<Tensor> inputs, kept;
  for (int i = 0; i < 6; ++i) inputs.push_back(test::data({kRows, kColumns}, DType::Float32, i));
  for (int turn = 0; turn < 4; ++turn) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const float by = 1.0f + static_cast<float>((turn + static_cast<int>(i)) % 3);
      kept.push_back(scaled(inputs[i], by).eval());
      expect_scaled(kept.back(), inputs[i], by);
      if (kept.size() > 5) kept.erase(kept.begin());
    }
  }
}

/// What a graph wrote is not written again by its next launch, while somebody holds it.
TEST_F(GpuGraphs, HeldResultsStayWhatTheyAre) {
  const Tensor a = test::data({kRows, kColumns}, DType::Float32, 1),
               b = test::data({kRows, kColumns}, DType::Float32, 2);
  std::vector<Tensor> held;
  for (int i = 0; i < 10; ++i) {
    scaled(a, 2.0f).eval();
    held.push_back(scaled(i % 2 ? a : b, 2.0f).eval());
  }
  for (int i = 0; i < 10; ++i) expect_scaled(held[static_cast<std::size_t>(i)], i % 2 ? a : b, 2.0);
}

TEST_F(GpuGraphs, MemoryGoneAndComeBackIsNoMatter) {
  const Tensor x = test::data({kRows, kColumns});
  for (int i = 0; i < 10; ++i) {
    // takes what was freed
    const Tensor noise = full({kRows * (1 + i % 3), kColumns}, static_cast<float>(i)) + 1.0f;
    noise.eval();
    expect_scaled(scaled(x, 2.0f), x, 2.0);
    if (cuda::computes()) {
      EXPECT_EQ(noise.to_vector<float>().back(), static_cast<float>(i + 1));
    }
  }
}

TEST_F(GpuGraphs, ReductionsInTwoStagesCountAnewInEachLaunch) {
  const Tensor x = test::data({40000});
  double squares = 0;
  if (cuda::computes())
    for (float v : x.to_vector<float>()) squares += double{v} * v;
  const auto chain = [&] {
    Tensor y = sum(x * x);
    for (int i = 0; i < 5; ++i) y = sum(x * x + y * 1e-6f);
    return y;
  };
  float first = 0;
  for (int i = 0; i < 8; ++i) {
    const Tensor y = chain().eval();
    if (!cuda::computes()) continue;
    if (i == 0) first = y.item<float>();
    EXPECT_EQ(y.item<float>(), first);
    EXPECT_NEAR(first, squares, 0.1 * squares);
  }
}

TEST_F(GpuGraphs, ThreadsShareAPlan) {
  const Tensor x = test::data({kRows, kColumns});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&x] {
      for (int i = 0; i < 8; ++i) expect_scaled(scaled(x, 2.0f).eval(), x, 2.0);
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(GpuGraphs, ADriverThatRefusesRunsStepByStep) {
  if (!cuda::driver().devices[0].name.starts_with("no GPU")) GTEST_SKIP() << "a driver that does not refuse";
  setenv("KILN_TEST_NO_GRAPHS", "1", 1);
  const Tensor x = test::data({kRows, kColumns});
  EXPECT_EQ(graphs_of([&] {
              for (int i = 0; i < 6; ++i) expect_scaled(scaled(x, 2.0f).eval(), x, 2.0);
            }),
            0u);
  unsetenv("KILN_TEST_NO_GRAPHS");
}

TEST_F(GpuGraphs, FewStepsAreNotWorthOne) {
  const Tensor x = test::data({kRows, kColumns});
  EXPECT_EQ(graphs_of([&] {
              for (int i = 0; i < 6; ++i) (x * 2.0f).eval();
            }),
            0u);
}

}  // namespace
}  // namespace kiln
