// The notice of a line that keeps causing compiles: once, with what changed, and never of a line that
// settles.
#include "inspect/compile_budget.h"

#include "counted.h"

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

class CompileBudget : public ::testing::Test {
 protected:
  void SetUp() override {
    if (config().tier == Tier::Vm) GTEST_SKIP() << "nothing is compiled";
    engine::mute_compile_budget(false);
  }
  void TearDown() override { engine::mute_compile_budget(true); }

  template <class F>
  static std::string told(F program) {
    ::testing::internal::CaptureStderr();
    program();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(CompileBudget, ALineThatCompilesEachTimeIsNamedOnce) {
  const Tensor x = test::data({40});
  int line = 0;
  const auto run = [&](int from, int to) {
    for (int n = from; n < to; ++n) {
      Tensor y = x;
      for (int i = 0; i < n; ++i) y = i % 2 ? y + 1.0f : y * 1.5f;
      line = __LINE__ + 1;
      y.eval();  // one more operation each time
    }
  };
  clear_memory_caches();
  EXPECT_EQ(told([&] { run(1, engine::kCompileBudget); }), "");
  const std::string text = told([&] { run(engine::kCompileBudget, engine::kCompileBudget + 1); });
  EXPECT_NE(text.find("compile_budget_test.cpp:" + std::to_string(line) +
                      " keeps causing compiles: 16 kernels in 16 evaluations, "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("; the latest: multiply at "), std::string::npos) << text;
  EXPECT_EQ(told([&] { run(engine::kCompileBudget + 1, 2 * engine::kCompileBudget); }), "");
}

TEST_F(CompileBudget, SizesAndPlansCompileNothing) {
  clear_memory_caches();
  EXPECT_EQ(told([&] {
              for (int n = 1; n < 4 * engine::kCompileBudget; ++n) (test::data({n + 16}) * 2.0f).eval();
            }),
            "");
}

}  // namespace
}  // namespace kiln
