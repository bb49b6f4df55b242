// KILN_CHECK=diff and nan: which operation is to blame.
#include "inspect/check_values.h"

#include "api/expect.h"
#include "ir/graph_builder.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using Values = std::vector<float>;

class CheckValues : public ::testing::Test {
 protected:
  void SetUp() override {
    Config c = before_;
    c.check_diff = true;
    configure(c);
    x_ = builder_.leaf(DType::Float32, {4});
    doubled_ = builder_.add(ir::Op::add, {x_, x_});
    root_ = builder_.add(ir::Op::multiply, {doubled_, doubled_});
    builder_.root(root_);
  }
  void TearDown() override { configure(before_); }

  static std::vector<std::byte> bytes(const Values& v) {
    std::vector<std::byte> out(v.size() * sizeof(float));
    std::memcpy(out.data(), v.data(), out.size());
    return out;
  }
  /// The error where the root has these values, a plan that stores both operations those, and one that stores
  /// the first beside the result of the fused kernel these.
  std::string error_of(const Values& root, const Values& doubled, const Values& root_stored,
                       const std::pair<Values, Values>& inside = {}) {
    std::vector<std::byte> argument = bytes({1, 2, 3, 4}), computed = bytes(root);
    std::byte* args[] = {argument.data()};
    const std::byte* roots[] = {computed.data()};
    int plans = 0;
    const auto recompute = [&](const ir::Graph& all) {
      EXPECT_EQ(all.roots, (std::vector<ir::NodeId>{doubled_, root_}));
      return ++plans == 1 ? std::vector{bytes(doubled), bytes(root_stored)}
                          : std::vector{bytes(inside.first), bytes(inside.second)};
    };
    try {
      engine::check_values(builder_.graph, args, {}, roots, recompute);
    } catch (const InternalError& e) {
      return e.what();
    }
    return {};
  }

  const Config before_ = config();
  ir::GraphBuilder builder_;
  ir::NodeId x_ = 0, doubled_ = 0, root_ = 0;
};

TEST_F(CheckValues, RightValuesPass) { EXPECT_EQ(error_of({4, 16, 36, 64}, {}, {}), ""); }

TEST_F(CheckValues, TheFirstOperationThatDiffersIsNamedWithItsElement) {
  const std::string text = error_of({4, 16, 49, 64}, {2, 4, 7, 8}, {4, 16, 49, 64});
  EXPECT_NE(text.find("[multiply] element 2 of float32 (4,)"), text.npos) << text;
  EXPECT_NE(text.find("computed 49, the interpreter says 36"), text.npos) << text;
  EXPECT_NE(text.find("the first operation that differs: [add] element 2 of float32 (4,)"), text.npos)
      << text;
  EXPECT_NE(text.find("computed 7, the interpreter says 6"), text.npos) << text;
}

/// Every operation is right by itself: only the kernel that fuses them is wrong.
TEST_F(CheckValues, TheFirstOperationThatDiffersInsideAFusedKernelIsNamed) {
  const Values right{2, 4, 6, 8}, wrong{4, 16, 49, 64}, mended{4, 16, 36, 64};
  const std::string inside = error_of(wrong, right, mended, {{2, 4, 7, 8}, wrong});
  EXPECT_NE(
      inside.find("the first operation that differs when it is stored beside the result: [add] element 2 of "
                  "float32 (4,)"),
      inside.npos)
      << inside;
  EXPECT_NE(inside.find("computed 7, the interpreter says 6"), inside.npos) << inside;
  const std::string stored = error_of(wrong, right, mended, {right, mended});
  EXPECT_NE(stored.find("the result is right once [add] recorded at "), stored.npos) << stored;
  const std::string none = error_of(wrong, right, mended, {right, wrong});
  EXPECT_NE(none.find("the kernel that fuses them is wrong"), none.npos) << none;
}

// The engine's plan of all values, by an evaluation that is right: nothing is thrown, and a NaN names the
// infinity that it came from.
TEST(CheckNan, TheFirstInfinityInsideAKernelIsNamed) {
  const Config before = config();
  Config c = before;
  c.mode = Mode::Lazy;
  c.check_nan = c.check_diff = true;
  const ScopedConfig scope(c);
  const Tensor x = testing::floats({1, 200, 3});
  (exp(x * 0.1f) / sum(exp(x * 0.1f))).eval();
  std::string text;
  int line = 0;
  try {
    line = __LINE__ + 1;
    const Tensor e = exp(x);
    (e / sum(e)).eval();
  } catch (const EvaluationError& error) {
    text = error.what();
  }
  EXPECT_TRUE(text.starts_with("[divide] element 1 of float32 (3,)")) << text;
  EXPECT_NE(text.find("; the first infinity is [exp] element 1 of float32 (3,), recorded at "), text.npos)
      << text;
  EXPECT_NE(text.find("check_values_test.cpp:" + std::to_string(line)), text.npos) << text;
}

TEST(CheckNan, AnInfinityInAResultIsToldOnceForEachLine) {
  Config c = config();
  c.mode = Mode::Lazy;
  c.check_nan = true;
  const ScopedConfig scope(c);
  const Tensor x = testing::floats({1, 200, 3}), infinite = testing::floats({1, HUGE_VALF});
  const auto told = [](auto program) {
    ::testing::internal::CaptureStderr();
    program();
    return ::testing::internal::GetCapturedStderr();
  };
  const auto overflow = [&] { (exp(x) * 2.0f).eval(); };
  const int line = __LINE__ - 1;
  const std::string text = told(overflow);
  EXPECT_NE(text.find("[exp] element 1 of float32 (3,), recorded at "), text.npos) << text;
  EXPECT_NE(text.find("check_values_test.cpp:" + std::to_string(line) + " is the first infinity"), text.npos)
      << text;
  EXPECT_EQ(told(overflow), "");
  EXPECT_EQ(told([&] { (infinite + 1.0f).eval(); }), "");               // an argument's
  EXPECT_EQ(told([&] { where(x < 2.0f, x, -HUGE_VALF).eval(); }), "");  // a number of the program
}

}  // namespace
}  // namespace kiln
