// Indices of a histogram that a kernel makes in pieces, while the library counts them.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"

#include <kiln/config.h>
#include <kiln/fusion_report.h>

#include <vector>

namespace kiln {
namespace {

using test::count;
using testing::EngineScope;
using testing::kEngines;

class PlanPieces : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_NEEDS_CPU();
    clear_memory_caches();
  }
};

/// n numbers from -0.25 to 1.25 in no order.
Tensor numbers(std::int64_t n) {
  return ((arange(n) * 7919 % 100003).astype(DType::Float32) / 100003 * 1.5 - 0.25).eval();
}

Tensor positions(const Tensor& x, std::int64_t bins) {
  return floor(x * static_cast<double>(bins)).astype(DType::Int32);
}

Tensor histogram(const Tensor& at, std::int64_t bins) {
  return scatter_add(zeros({bins}, DType::Int32), at, Tensor(1), 0);
}

std::vector<std::int32_t> expected(const Tensor& at, std::int64_t bins) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(bins));
  for (const std::int32_t i : at.to_vector<std::int32_t>()) {
    const std::int64_t from_front = i < 0 ? i + bins : i;
    if (from_front >= 0 && from_front < bins) ++out[static_cast<std::size_t>(from_front)];
  }
  return out;
}

TEST_F(PlanPieces, EveryLengthAndNumberOfBins) {
  for (const std::int64_t n : {1, 4095, 4097, 100003, 1000001})
    for (const std::int64_t bins : {1, 2, 10, 100, 300, 4096, 70000}) {
      SCOPED_TRACE(::testing::Message() << n << " numbers, " << bins << " bins");
      const Tensor x = numbers(n);
      const std::vector<std::int32_t> want = expected(positions(x, bins).eval(), bins);
      for (const auto& engine : kEngines) {
        const EngineScope scope(engine);
        EXPECT_EQ(histogram(positions(x, bins), bins).to_vector<std::int32_t>(), want) << engine.name;
      }
    }
}

TEST_F(PlanPieces, TheIndicesHaveNoLaunchOfTheirOwn) {
  const Tensor x = numbers(1000001);
  const auto apart = count([&] {
    const Tensor at = positions(x, 100).eval();
    histogram(at, 100).eval();
  });
  const auto together = count([&] { histogram(positions(x, 100), 100).eval(); });
  EXPECT_EQ(together.launches + 1, apart.launches);
  EXPECT_EQ(together.library_calls, 1);
}

TEST_F(PlanPieces, ReportsSayThatNoMemoryLiesBetween) {
  const Tensor x = numbers(1000001), at = positions(x, 100);
  const auto report = [](std::vector<Tensor> results) {
    const FusionRecorder recorder;
    eval(results);
    return recorder.last();
  };
  const FusionReport together = report({histogram(at, 100)}), stored = report({at, histogram(at, 100)});
  EXPECT_EQ(together.after.kernels, stored.after.kernels);
  EXPECT_EQ(together.after.buffers + 1, stored.after.buffers);
  EXPECT_EQ(together.boundaries.size() + 1, stored.boundaries.size());
  EXPECT_LE(together.after.bytes + 4 * 1000001, stored.after.bytes);
}

TEST_F(PlanPieces, IndicesThatSomebodyReadsAreStored) {
  const Tensor x = numbers(1000001), at = positions(x, 100), counts = histogram(at, 100);
  eval({at, counts});
  EXPECT_EQ(counts.to_vector<std::int32_t>(), expected(at, 100));
  const Tensor other = positions(x * 0.5, 100), sums = histogram(other, 100), most = max(other);
  eval({sums, most});
  EXPECT_EQ(sums.to_vector<std::int32_t>(), expected(other, 100));
  EXPECT_EQ(most.item<std::int32_t>(), 62);
}

TEST_F(PlanPieces, TwoHistogramsOfOneMap) {
  const Tensor x = numbers(300000), at = positions(x, 64);
  const Tensor few = histogram(at, 64), many = histogram(at, 2000);
  eval({few, many});
  EXPECT_EQ(few.to_vector<std::int32_t>(), expected(at, 64));
  EXPECT_EQ(many.to_vector<std::int32_t>(), expected(at, 2000));
}

TEST_F(PlanPieces, MemoryThatTheCallOverwritesIsReadBefore) {
  Tensor counts = (arange(100) % 3).astype(DType::Int32).eval();
  const std::vector<std::int32_t> before = counts.to_vector<std::int32_t>();
  const Tensor at = (arange(100000) * 31 + take(counts, arange(100000) % 100, 0)).astype(DType::Int32) % 100;
  std::vector<std::int32_t> want = expected(at.eval(), 100);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += before[i];
  const Tensor again =
      (arange(100000) * 31 + take(counts, arange(100000) % 100, 0)).astype(DType::Int32) % 100;
  counts = scatter_add(std::move(counts), again, Tensor(1), 0);
  EXPECT_EQ(counts.to_vector<std::int32_t>(), want);
}

TEST_F(PlanPieces, ScalarsChangeBetweenRuns) {
  const Tensor x = numbers(200000);
  for (const double scale : {10.0, 20.0, 40.0}) {
    const auto at = [&] { return floor(x * scale).astype(DType::Int32); };
    EXPECT_EQ(histogram(at(), 30).to_vector<std::int32_t>(), expected(at().eval(), 30)) << scale;
  }
}

}  // namespace
}  // namespace kiln
