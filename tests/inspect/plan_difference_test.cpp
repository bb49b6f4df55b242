// The line that says why an evaluation was planned again.
#include "counted.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace kiln {
namespace {

/// What is logged about plans while `f` evaluates.
std::string said(const std::function<void()>& f) {
  const Config before = config();
  Config options = before;
  options.log_topics = {"kernel"};
  configure(options);
  ::testing::internal::CaptureStderr();
  f();
  configure(before);
  return ::testing::internal::GetCapturedStderr();
}

Tensor total(const Tensor& x, double factor) { return sum(x * factor); }

TEST(PlanDifference, NamesTheLineAndTheFirstPartThatDiffers) {
  clear_memory_caches();
  const auto run = [](const Tensor& x, double factor) { return said([&] { total(x, factor).eval(); }); };
  EXPECT_NE(run(test::data({64, 16}), 2).find("nothing of this line was planned before"), std::string::npos);
  EXPECT_EQ(run(test::data({64, 16}), 3).find("planned"), std::string::npos);
  const std::string shape = run(test::data({65, 16}), 3);
  EXPECT_NE(shape.find("shape (65, 16), was (64, 16)"), std::string::npos) << shape;
  EXPECT_NE(shape.find("plan_difference_test.cpp:"), std::string::npos) << shape;
  const std::string dtype = run(test::data({65, 16}, DType::Float64), 3);
  EXPECT_NE(dtype.find("nothing of this line was planned before"), std::string::npos) << dtype;
  run(test::data({16, 16}), 3);
  const std::string strides = run(test::data({16, 16}).T().eval(), 3);
  EXPECT_NE(strides.find("strides (1, 16), was (16, 1)"), std::string::npos) << strides;
}

TEST(PlanDifference, SaysThatAHandleKeepsAValue) {
  clear_memory_caches();
  const Tensor x = test::data({100});
  Tensor kept;
  const auto run = [&](bool keep) {
    return said([&] {
      Tensor z;
      {
        const Tensor y = x * 2;
        if (keep) kept = y;
        z = sin(y);
      }
      z.eval();
    });
  };
  run(false);
  const std::string line = run(true);
  EXPECT_NE(line.find("a handle keeps the value, none did before"), std::string::npos) << line;
}

}  // namespace
}  // namespace kiln
