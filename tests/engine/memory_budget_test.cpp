// Config::memory_budget: regions that run again so that a plan takes less memory.
#include "test_data.h"

#include <kiln/config.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {
namespace {

constexpr std::int64_t kRows = 256, kWide = 64, kLayers = 12;
constexpr std::int64_t kActivation = kRows * kWide * 4;  // bytes

class MemoryBudget : public ::testing::Test {
 protected:
  void SetUp() override {
    if (config().mode != Mode::Lazy) GTEST_SKIP() << "plans of the lazy mode";
    for (int i = 0; i < kLayers; ++i) weights_.push_back(test::data({kWide, kWide}) * 0.1f);
    for (const Tensor& w : weights_) w.eval();
  }

  /// A step of a deep network: what each layer makes waits for the way back.
  struct Step {
    std::vector<std::vector<float>> gradients;
    FusionReport report;
  };
  Step step(std::uint64_t budget) const {
    Config options = config();
    options.memory_budget = budget;
    const ScopedConfig scope(options);
    const auto loss = [&](const std::vector<Tensor>& weights) {
      Tensor h = x_;
      for (const Tensor& w : weights) h = tanh(matmul(h, w)) * h;
      return sum(h * h);
    };
    const FusionRecorder recorder;
    const std::vector<Tensor> gradient = grad(loss, weights_);
    eval(gradient);
    Step out;
    for (const Tensor& g : gradient) out.gradients.push_back(g.to_vector<float>());
    for (const FusionReport& r : recorder.reports())
      if (r.after.peak_bytes > out.report.after.peak_bytes) out.report = r;
    return out;
  }

  const Tensor x_ = test::data({kRows, kWide});
  std::vector<Tensor> weights_;
};

TEST_F(MemoryBudget, IsKeptByRunningRegionsAgain) {
  const Step all = step(0);
  EXPECT_EQ(all.report.after.again, 0);
  EXPECT_GE(all.report.after.peak_bytes, kLayers * kActivation);
  for (const std::int64_t parts : {2, 3}) {
    const std::int64_t budget = all.report.after.peak_bytes / parts;
    const Step less = step(static_cast<std::uint64_t>(budget));
    EXPECT_LE(less.report.after.peak_bytes, budget) << to_text(less.report);
    EXPECT_GT(less.report.after.again, 0);
    EXPECT_EQ(less.gradients, all.gradients);  // the same kernels: the same bits
  }
}

TEST_F(MemoryBudget, ThatIsLargeEnoughChangesNothing) {
  const Step all = step(0);
  const Step enough = step(static_cast<std::uint64_t>(all.report.after.peak_bytes) + kActivation);
  EXPECT_EQ(enough.report.after, all.report.after);
}

TEST_F(MemoryBudget, OfNothingIsAWarningAndTheLeastThatCanBe) {
  const Step all = step(0);
  ::testing::internal::CaptureStderr();
  const Step least = step(3);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("the memory budget is 3 bytes; an evaluation takes "), std::string::npos) << warning;
  EXPECT_LT(least.report.after.peak_bytes, all.report.after.peak_bytes / 2);
  EXPECT_EQ(least.gradients, all.gradients);
}

TEST_F(MemoryBudget, ValuesThatTheProgramHoldsStay) {
  Config options = config();
  options.memory_budget = 1;
  const ScopedConfig scope(options);
  const Tensor held = exp(matmul(x_, weights_[0]));
  Tensor h = held;
  for (const Tensor& w : weights_) h = tanh(matmul(h, w));
  const Tensor both = sum(matmul(h, weights_[0]) + held);
  const float got = both.item<float>();
  const std::vector<float> kept = held.to_vector<float>();
  options.memory_budget = 0;
  configure(options);
  EXPECT_EQ(kept, exp(matmul(x_, weights_[0])).to_vector<float>());
  Tensor again = exp(matmul(x_, weights_[0]));
  const Tensor first = again;
  for (const Tensor& w : weights_) again = tanh(matmul(again, w));
  EXPECT_EQ(got, sum(matmul(again, weights_[0]) + first).item<float>());
}

}  // namespace
}  // namespace kiln
