// A defect inside Kiln, which a hook provokes where regions are lowered, does not end a program: what it was
// to fuse is planned one by one, and interpreted where that fails too.
#include "api/expect.h"
#include "counted.h"
#include "engine/plan.h"
#include "modes.h"
#include "needs_cpu.h"

#include <stdexcept>
#include <string>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::ModeScope;

class Fallback : public ::testing::Test {
 protected:
  void SetUp() override { clear_memory_caches(); }
  void TearDown() override {
    engine::set_region_hook(nullptr);
    clear_memory_caches();
  }

  /// What was written to stderr, and how many fallbacks counted, while f ran.
  template <class F>
  std::string warnings(std::uint64_t fallbacks, F f) {
    const std::uint64_t before = statistics().fallbacks;
    ::testing::internal::CaptureStderr();
    f();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(statistics().fallbacks - before, fallbacks) << text;
    return text;
  }
  static std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

void refuse_many(const ir::Graph&, const plan::Region& r) {
  if (r.nodes.size() > 1) throw InternalError("[internal] refused by a test");
}
void refuse_all(const ir::Graph&, const plan::Region&) {
  throw InternalError("[internal] refused by a test");
}
void find_nothing(const ir::Graph&, const plan::Region& r) {
  if (r.nodes.size() > 1) throw std::out_of_range("map::at");
}
void refuse_loops(const ir::Graph& g, const plan::Region& r) {
  for (ir::NodeId id : r.nodes)
    if (g[id].op == ir::Op::loop_result || g[id].op == ir::Op::loop_stack)
      throw InternalError("[internal] refused by a test");
}
void cannot_compile(const ir::Graph&, const plan::Region& r) {
  if (r.nodes.size() > 1) throw CompileError("[compile] refused by a test");
}

TEST_F(Fallback, AnInternalErrorPlansOperationsOneByOne) {
  const ModeScope lazy(Mode::Lazy);
  const Tensor x = counting({4}).eval();
  const auto program = [&] { return (x * 2.0 + 1.0) / sum(x); };
  engine::set_region_hook(refuse_many);
  Tensor y = program();
  const std::string text = warnings(1, [&] { EXPECT_GE(test::kernels({y}), 4u); });
  expect_equal<float>(y * 6.0, {1, 3, 5, 7});
  EXPECT_EQ(lines(text), 1u) << text;
  EXPECT_NE(text.find("refused by a test (in a kernel of "), std::string::npos) << text;
  EXPECT_NE(text.find("fallback_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("; its operations were planned one by one"), std::string::npos) << text;
  // The plan is kept, and says nothing more.
  engine::set_region_hook(nullptr);
  y = program();
  EXPECT_EQ(warnings(0, [&] { EXPECT_GE(test::kernels({y}), 4u); }), "");
}

TEST_F(Fallback, SoDoesALookUpThatFindsNothing) {
  const ModeScope lazy(Mode::Lazy);
  engine::set_region_hook(find_nothing);
  const Tensor y = exp(counting({3}) * 0.0) + 1.0;
  const std::string text = warnings(1, [&] { y.eval(); });
  EXPECT_NE(text.find("map::at"), std::string::npos) << text;
  expect_equal<float>(y, {2, 2, 2});
}

TEST_F(Fallback, WhatCannotBePlannedAtAllIsInterpreted) {
  KILN_NEEDS_CPU();
  const ModeScope lazy(Mode::Lazy);
  const Tensor x = counting({4}).eval();
  engine::set_region_hook(refuse_all);
  const Tensor y = cumsum(x * 2.0, 0);
  const std::string text = warnings(1, [&] { y.eval(); });
  EXPECT_EQ(lines(text), 1u) << text;
  EXPECT_NE(text.find("; interpreting it"), std::string::npos) << text;
  engine::set_region_hook(nullptr);
  expect_equal<float>(y, {0, 2, 6, 12});
  // Not remembered: the next plan may be a better one.
  EXPECT_EQ(warnings(0, [&] { EXPECT_EQ(test::kernels({cumsum(x * 2.0, 0)}), 1u); }), "");
}

TEST_F(Fallback, ALoopRunsOverWholeTensors) {
  const ModeScope lazy(Mode::Lazy);
  engine::set_region_hook(refuse_loops);
  const Tensor x = counting({3, 4}).eval();
  const Scanned out = scan(
      [](const Tensors& c, const Tensors& in) {
        const Tensor inner =
            while_loop([](const Tensors& s) { return s[0] > 3.0; },
                       [](const Tensors& s) { return Tensors{s[0] - 4.0}; }, {c[0] + in[0]})[0];
        return Scanned{{inner}, {inner * 2.0}};
      },
      {zeros({4})}, {x});
  const Tensor total = sum(out.carry[0]);
  warnings(2, [&] { eval({total, out.ys[0]}); });  // the loop, and the one in its body
  expect_equal<float>(total, Shape{}, {6});
  expect_equal<float>(out.ys[0], {3, 4}, {0, 2, 4, 6, 0, 4, 0, 4, 0, 6, 4, 2});
}

/// An error of a compiler is another matter: what compiles is decided by evaluate(), which interprets.
TEST_F(Fallback, ACompileErrorPasses) {
  const ModeScope lazy(Mode::Lazy);
  engine::set_region_hook(cannot_compile);
  const Tensor y = exp(counting({3}) * 0.0) + 1.0;
  const std::string text = warnings(1, [&] { y.eval(); });
  EXPECT_NE(text.find("; interpreting it"), std::string::npos) << text;
  expect_equal<float>(y, {2, 2, 2});
}

}  // namespace
}  // namespace kiln
