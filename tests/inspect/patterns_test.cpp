// Patterns of the program: kernels in the place of operations, near misses with their conditions, hints,
// switches, plans that know which patterns are in force, and errors.
#include "counted.h"

#include <kiln/fusion_pattern.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace kiln {
namespace {

namespace f = fusion;

constexpr const char* kSource = R"(
extern "C" __global__ void gated(const float* gate, const float* up, float* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}
)";

/// silu(gate) * up.
CustomKernel gated(bool same_bits = true) {
  return custom_kernel({
      .name = "gated",
      .results =
          [](const KernelTypes& in, KernelNumbers) {
            if (in[0].shape != in[1].shape) throw UserError("gate and up have different shapes");
            return KernelTypes{in[0]};
          },
      .cpu =
          [](const KernelCall& call) {
            for (std::int64_t i = 0; i < call.in[0].numel(); ++i) {
              const float gate = call.in[0].as<const float>()[i];
              call.out[0].as<float>()[i] = gate / (1 + std::exp(-gate)) * call.in[1].as<const float>()[i];
            }
          },
      .cuda = {.source = kSource,
               .function = "gated",
               .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }},
      .same_bits = same_bits,
  });
}

f::Pattern gate_pattern() {
  return {.name = "gate",
          .match = f::op("multiply", f::operation("silu", "inner", {f::any("gate")}), f::any("up")),
          .legal = [](const f::Match& m) -> std::string {
            return m["gate"].dtype == DType::Float32 ? "" : std::string(name(m["gate"].dtype)) + " gates";
          },
          .kernel = gated(),
          .operands = {"gate", "up"}};
}

class Patterns : public ::testing::Test {
 protected:
  void SetUp() override {
    Config c = before_;
    c.mode = Mode::Lazy;
    c.strict = c.deterministic = false;
    configure(c);
    clear_memory_caches();
  }
  void TearDown() override { configure(before_); }

  template <class F>
  static FusionReport report_of(F program) {
    const FusionRecorder recorder;
    program().eval();
    return recorder.last();
  }
  static int calls(const FusionReport& r) {
    const auto at = r.by_kind.find("hand-written kernel");
    return at == r.by_kind.end() ? 0 : at->second;
  }
  /// The only near miss of the program's patterns.
  static FusionReport::NearMiss miss(const FusionReport& r) {
    FusionReport::NearMiss out;
    int found = 0;
    for (const FusionReport::NearMiss& m : r.near_misses)
      if (m.pattern == FusionPattern::User) out = m, ++found;
    EXPECT_EQ(found, 1) << to_text(r);
    return out;
  }
  template <class F>
  static std::string message_of(F run) {
    try {
      run();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }

  const Config before_ = config();
  const Tensor x_ = test::data({16, 24}), y_ = (test::data({16, 24}) + 1.0f).eval();
};

TEST_F(Patterns, KernelsStandForTheOperations) {
  const Tensor want = (silu(x_ + 1.0f) * y_ * 2.0f).eval();
  const f::ScopedPattern gate(gate_pattern());
  for (const bool swapped : {false, true}) {  // multiply commutes
    Tensor got;
    const FusionReport r = report_of([&] {
      const Tensor g = silu(x_ + 1.0f);
      return got = (swapped ? y_ * g : g * y_) * 2.0f;
    });
    EXPECT_EQ(calls(r), 1) << to_text(r);
    EXPECT_EQ(r.after.kernels, 2) << to_text(r);
    EXPECT_TRUE(allclose(got, want, 1e-5, 1e-6));
  }
}

TEST_F(Patterns, DerivativesAreMatchedToo) {
  const f::ScopedPattern gate(gate_pattern());
  // the derivative of sum(x · y) by x is made of the pattern's operations: it is replaced in the backward
  // pass
  const auto loss = [&](const Tensor& v) { return sum(v * (silu(x_) * y_)); };
  const FusionReport r = report_of([&] { return grad(loss, x_ * 1.0f); });
  EXPECT_EQ(calls(r), 1) << to_text(r);
}

TEST_F(Patterns, AConditionThatFailsIsANearMiss) {
  const f::ScopedPattern gate(gate_pattern());
  const FusionReport r =
      report_of([&] { return silu(x_.astype(DType::Float64)) * y_.astype(DType::Float64); });
  EXPECT_EQ(calls(r), 0);
  const FusionReport::NearMiss m = miss(r);
  EXPECT_EQ(m.condition, FusionReason::UserCondition);
  EXPECT_EQ(m.text(), "pattern gate: float64 gates");
  EXPECT_EQ(m.hint(), FusionHint::AskPattern);
  EXPECT_EQ(r.node(m.nodes[0]).op, "silu");
  EXPECT_EQ(r.node(m.nodes[1]).op, "multiply");
  EXPECT_EQ(fusion_report_from_json(to_json(r)), r);
  EXPECT_NE(to_text(r).find("pattern gate: float64 gates"), std::string::npos) << to_text(r);
}

TEST_F(Patterns, AKernelThatDoesNotFitIsANearMiss) {
  const f::ScopedPattern gate(gate_pattern());
  const Tensor row = test::data({24});
  EXPECT_EQ(miss(report_of([&] { return silu(x_) * row; })).text(),
            "pattern gate: gate and up have different shapes");
}

TEST_F(Patterns, AnInnerValueThatIsReadElsewhereIsANearMiss) {
  const f::ScopedPattern gate(gate_pattern());
  const FusionReport r = report_of([&] {
    const Tensor g = silu(x_);
    return g * y_ + g;
  });
  EXPECT_EQ(calls(r), 0);
  EXPECT_EQ(miss(r).condition, FusionReason::UserShared);
  EXPECT_EQ(miss(r).text(), "pattern gate: silu inside it is read by others too");
}

TEST_F(Patterns, SwitchesKnowThemByName) {
  const f::ScopedPattern gate(gate_pattern());
  const auto program = [&] { return silu(x_) * y_; };
  const std::string kind = config().device.substr(0, config().device.find(':'));
  for (const std::string word : {std::string("user.gate"), kind + ":user.gate"}) {
    Config c = config();
    c.fuse_off = {word};
    const ScopedConfig scope(c);
    EXPECT_EQ(miss(report_of(program)).condition, FusionReason::UserOff) << word;
  }
  Config c = config();
  c.fuse_off = {"user.other", kind == "cpu" ? "cuda:user.gate" : "cpu:user.gate"};
  const ScopedConfig scope(c);
  EXPECT_EQ(calls(report_of(program)), 1);
}

TEST_F(Patterns, PlansKnowWhichAreInForce) {
  const auto program = [&] { return silu(x_) * y_; };
  program().eval();
  {
    const f::ScopedPattern gate(gate_pattern());
    EXPECT_EQ(test::count([&] { program().eval(); }).library_calls, 1u);
    const test::Counted again = test::count([&] { program().eval(); });
    EXPECT_EQ(again.plan_hits, 1u);
    EXPECT_EQ(again.library_calls, 1u);
  }
  const test::Counted after = test::count([&] { program().eval(); });
  EXPECT_EQ(after.library_calls, 0u);
  EXPECT_EQ(after.plan_hits, 1u);  // the first plan
}

TEST_F(Patterns, ModesThatPromiseBitsRefuseKernels) {
  const f::ScopedPattern gate(gate_pattern());
  Config c = config();
  c.strict = true;
  {
    const ScopedConfig scope(c);
    EXPECT_EQ(miss(report_of([&] { return silu(x_) * y_; })).text(),
              "pattern gate: the strict mode gives the bits of the operations");
  }
  c.strict = false;
  c.deterministic = true;
  const ScopedConfig scope(c);
  EXPECT_EQ(calls(report_of([&] { return silu(x_) * y_; })), 1);
}

TEST_F(Patterns, ChecksCompareKernelsWithTheOperations) {
  f::Pattern wrong = gate_pattern();
  wrong.operands = {"up", "gate"};
  const f::ScopedPattern pattern(std::move(wrong));
  Config c = config();
  c.check_diff = true;
  const ScopedConfig scope(c);
  EXPECT_THROW((silu(x_) * y_).eval(), InternalError);
}

TEST_F(Patterns, TheLatestComesFirstAndTheGreaterMatchStands) {
  const f::ScopedPattern gate(gate_pattern());
  EXPECT_EQ(calls(report_of([&] { return silu(silu(x_) * y_) * y_; })), 2);
  const f::ScopedPattern never({.name = "never",
                                .match = f::op("multiply", f::op("silu", f::any("a")), f::any("b")),
                                .legal = [](const f::Match&) { return std::string("never"); }});
  const FusionReport r = report_of([&] { return silu(x_ * 3.0f) * y_; });
  EXPECT_EQ(calls(r), 1) << to_text(r);
  EXPECT_EQ(miss(r).text(), "pattern never: never");
}

TEST_F(Patterns, OneNameIsOneValueAndNumbersAreNumbers) {
  const f::ScopedPattern square({.name = "square",
                                 .match = f::op("multiply", f::any("x"), f::any("x")),
                                 .legal = [](const f::Match& m) { return m.result().op; }});
  EXPECT_EQ(miss(report_of([&] { return exp(x_) * exp(x_); })).text(), "pattern square: multiply");
  EXPECT_TRUE(report_of([&] { return exp(x_) * y_; }).near_misses.empty());
  const f::ScopedPattern scaled(
      {.name = "scaled",
       .match = f::op("reduce_sum", f::op("subtract", f::any("x"), f::number("n"))),
       .legal = [](const f::Match& m) { return "axis " + std::to_string(m.result().axes.at(0)); }});
  EXPECT_EQ(miss(report_of([&] { return sum(x_ - 2.0f, 1, true); })).text(), "pattern scaled: axis 1");
  EXPECT_TRUE(report_of([&] { return sum(x_ - y_, 1, true); }).near_misses.empty());
}

TEST_F(Patterns, AHintKeepsAValueApart) {
  const auto program = [&] { return sqrt(exp(x_) * y_ + 1.0f) * 2.0f; };
  const Tensor want = program().eval();
  EXPECT_EQ(report_of(program).after.kernels, 1);
  const f::ScopedPattern apart({.name = "store_products",
                                .match = f::op("multiply", f::op("exp", f::any("x")), f::any("y")),
                                .hint = f::Hint::Apart});
  Tensor got;
  const FusionReport r = report_of([&] { return got = program(); });
  EXPECT_EQ(r.after.kernels, 2) << to_text(r);
  ASSERT_EQ(r.boundaries.size(), 1u) << to_text(r);
  EXPECT_EQ(r.boundaries[0].text(), "kept apart by the pattern store_products");
  EXPECT_EQ(r.node(r.boundaries[0].from).op, "multiply");
  EXPECT_TRUE(allclose(got, want, 1e-6, 1e-6));
  // also where both sides meet in another way, and where the value would be computed again
  const FusionReport more = report_of([&] {
    const Tensor p = exp(x_) * y_;
    return p + (p - max(p, 1, true)) + flip(p, Axes{1});
  });
  EXPECT_GE(more.after.kernels, 2) << to_text(more);
  for (const FusionReport::Region& region : more.regions)
    for (const std::uint32_t id : region.nodes)
      if (more.node(id).op == "multiply")
        EXPECT_EQ(region.outputs, std::vector<std::uint32_t>{id}) << to_text(more);
}

TEST_F(Patterns, MatchKernelsOfTheProgramByName) {
  const CustomKernel twice = custom_kernel(
      {.name = "twice",
       .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
       .cpu =
           [](const KernelCall& call) {
             for (std::int64_t i = 0; i < call.in[0].numel(); ++i)
               call.out[0].as<float>()[i] = 2 * call.in[0].as<const float>()[i];
           },
       .cuda = {.source =
                    "extern \"C\" __global__ void twice(const float* x, float* y, long long n) { long long i "
                    "= blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }",
                .function = "twice",
                .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }}});
  const f::ScopedPattern found({.name = "twice_twice",
                                .match = f::op("twice", f::op("twice", f::any("x"))),
                                .legal = [](const f::Match&) { return std::string("four times"); }});
  EXPECT_EQ(miss(report_of([&] { return twice({twice({x_})}); })).text(), "pattern twice_twice: four times");
}

TEST_F(Patterns, DefinitionsAreChecked) {
  const auto said = [](f::Pattern p) { return message_of([&] { const f::ScopedPattern s(std::move(p)); }); };
  EXPECT_TRUE(said({}).starts_with("[ScopedPattern] a pattern has no name, called at "));
  EXPECT_NE(said({.name = "p", .match = {}}).find("p has an empty term"), std::string::npos);
  EXPECT_NE(said({.name = "p", .match = f::any("x")}).find("p matches no operation"), std::string::npos);
  EXPECT_NE(said({.name = "p", .match = f::op("sinus", f::any("x"))})
                .find("p matches sinus, which is no operation"),
            std::string::npos);
  EXPECT_NE(said({.name = "p", .match = f::op("sin", f::any("x")), .kernel = gated(), .operands = {"y"}})
                .find("p has an operand y that its match does not name"),
            std::string::npos);
  EXPECT_NE(said({.name = "p", .match = f::op("sin", f::any("x")), .kernel = gated(), .hint = f::Hint::Apart})
                .find("both a kernel and a hint"),
            std::string::npos);
  const f::ScopedPattern once({.name = "p", .match = f::op("sin", f::any("x"))});
  EXPECT_NE(said({.name = "p", .match = f::op("sin", f::any("x"))}).find("p is in force already"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
