// For each reason a program whose report has it: tests/inspect/reasons.json says what each report is to say.
// UPDATE_GOLDEN=1 rewrites the file.
#include "counted.h"
#include "engine/plan.h"
#include "engine/plan_variants.h"
#include "inspect/golden_json.h"

#include <kiln/custom_kernel.h>
#include <kiln/fusion_pattern.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace kiln {
namespace {

using test::data;
using Results = std::vector<Tensor>;

/// Where a program's report has the reason.
enum class On {
  Cpu,
  Strict,
  SixteenThreads,
  Gpu,
  WithoutNorms,
  LargeOnly,
  Patterns,
  PatternsOff,
  Measured,
  Blocks
};

struct Program {
  FusionReason reason;
  On on;
  std::function<Results()> record;
};

Tensor x() { return data({64, 96}); }

/// Random values, different for each operand.
struct Operands {
  Tensor q = data({128, 64}, DType::Float32, 1), k = data({128, 64}, DType::Float32, 2),
         v = data({128, 64}, DType::Float32, 3);
  Tensor scores() const { return matmul(q, k.T()); }
};
struct HalfOperands {
  Tensor q = data({128, 64}, DType::Float16, 1), k = data({128, 64}, DType::Float16, 2),
         v = data({128, 64}, DType::Float16, 3);
  Tensor scores() const { return matmul(q, k.T()); }
};

/// Of the sum of weights times v, by q and x, which the weights are made of.
Results gradients(const std::function<Tensor(const Tensor&, const Tensor&)>& weights, const Tensor& x) {
  const Operands o;
  const auto [loss, g] = value_and_grad(
      [&](const Tensor& q, const Tensor& other) { return sum(matmul(weights(q, other), o.v)); }, wrt<0, 1>,
      o.q, x);
  const auto& [of_q, of_x] = g;
  return {of_q, of_x, loss};
}

/// About 300 primitives an element.
Tensor costly(Tensor t) {
  for (int i = 0; i < 9; ++i) t = lgamma(exp(t));
  return t;
}

const std::vector<Program>& programs() {
  using R = FusionReason;
  static const std::vector<Program> all = {
      {R::ProductsAreLibraryCalls, On::Gpu,
       [] { return Results{matmul(x(), data({96, 32})) * data({64, 32})}; }},
      {R::ProductOperand, On::Cpu, [] { return Results{matmul(exp(x()), data({96, 32}))}; }},
      {R::TwoProducts, On::Cpu, [] { return Results{matmul(matmul(x(), data({96, 32})), data({32, 8}))}; }},
      {R::EpilogueOfMaps, On::Cpu, [] { return Results{sum(matmul(x(), data({96, 32})))}; }},
      {R::WrittenInPlace, On::Cpu,
       [] {
         Tensor big = data({64, 4096});
         big(slice::all(), range(0, 32)) = matmul(x(), data({96, 32})) * 2.0f;
         return Results{big};
       }},
      {R::AttentionAlone, On::Cpu,
       [] {
         const Operands o;
         return Results{exp(matmul(nn::softmax(o.scores()), o.v))};
       }},
      {R::LibraryCalls, On::Cpu, [] { return Results{exp(sort(x(), 1))}; }},
      {R::WholeLoop, On::Cpu,
       [] {
         const Tensors r =
             while_loop([](const Tensors& s) { return s[0] < 3; },
                        [](const Tensors& s) { return Tensors{s[0] + 1, matmul(s[1], s[1].T())}; },
                        {Tensor(0), data({64, 64})});
         return Results{exp(r[1])};
       }},
      {R::OtherPoints, On::Cpu, [] { return Results{cumsum(flip(cumsum(x(), 1), 1), 1)}; }},
      {R::OtherAxes, On::Cpu,
       [] {
         const Tensor a = data({256, 512});
         return Results{max(exp(a) / sum(exp(a), 1, true), 0)};
       }},
      {R::SpreadAcross, On::Cpu, [] { return Results{sum(x() * costly(data({64, 1})), 0)}; }},
      {R::SpreadAlone, On::Cpu, [] { return Results{data({256, 960}) * costly(data({256, 1}))}; }},
      {R::OtherDomain, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores(), e = exp(s - max(s, 1, true));
         return Results{matmul(e / sum(e, 1, true).T(), o.v)};
       }},
      {R::TooManyPrimitives, On::Cpu, [] { return Results{costly(costly(x()))}; }},
      {R::TooManyReductions, On::Cpu,
       [] {
         Tensor a = x();
         for (int i = 0; i < 30; ++i) a = a - sum(a, 1, true) * 0.01f;
         return Results{a};
       }},
      {R::TooFewRows, On::SixteenThreads, [] { return Results{nn::softmax(data({4, 1 << 18}))}; }},
      {R::ShortRuns, On::Cpu, [] { return Results{nn::softmax(data({16384, 100}), 0)}; }},
      {R::StrictChunks, On::Strict, [] { return Results{nn::softmax(data({4, 1 << 18}))}; }},
      {R::StrictScans, On::Strict, [] { return Results{sum(cumsum(x(), 1), 1)}; }},
      {R::StrictOrders, On::Strict,
       [] {
         const Tensor a = data({8, 16, 32});
         return Results{min(sum(a * a, 2), 1)};
       }},
      {R::SeveralSweeps, On::Cpu, [] { return Results{max(mean(nn::softmax(data({8, 32, 64})), 2), 1)}; }},
      {R::LoopRunsAgain, On::Gpu,
       [] {
         const Tensors r = while_loop([](const Tensors& s) { return s[0] < 100.0f; },
                                      [](const Tensors& s) { return Tensors{s[0] * s[0] + 1.0f}; }, {x()});
         return Results{nn::softmax(r[0])};
       }},
      {R::KernelBetween, On::Cpu,
       [] {
         const Tensor e = exp(x());
         return Results{e * sort(e, 1)};
       }},
      {R::ScoresRead, On::Cpu,
       [] {
         const Operands o;
         const Tensor w = nn::softmax(o.scores());
         return Results{matmul(w, o.v), w};
       }},
      {R::PairsRead, On::Cpu,
       [] {
         const Operands o;
         return gradients(
             [&](const Tensor& q, const Tensor& b) { return nn::softmax(matmul(q, o.k.T()) + b); },
             data({128, 128}, DType::Float32, 4));
       }},
      {R::PairsOther, On::Cpu,
       [] {
         const auto both = [](const Tensor& t) { return nn::softmax(t, -1) * nn::softmax(t, -2); };
         return gradients([&](const Tensor& q, const Tensor& k) { return both(matmul(q, k.T())); },
                          Operands().k);
       }},
      {R::OperandOfScores, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(nn::softmax(s), sum(s, 1, true) * o.v)};
       }},
      {R::ScoresElsewhere, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(nn::softmax(s + s.T()), o.v)};
       }},
      {R::ScoresViewed, On::Cpu,
       [] {
         const Operands o;
         return Results{matmul(nn::softmax(flip(o.scores(), 1)), o.v)};
       }},
      {R::SeveralFunctions, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(exp(s - max(s * 2.0f, 1, true)), o.v)};
       }},
      {R::RowMeetsRows, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores(), e = exp(s - max(s, 0, true));
         return Results{matmul(e / sum(e, 0, true), o.v)};
       }},
      {R::NotLinear, On::Cpu,
       [] {
         const Operands o;
         const Tensor w = nn::softmax(o.scores());
         return Results{matmul(w * w, o.v)};
       }},
      {R::TwoBases, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores(), m = max(s, 1, true);
         return Results{matmul(exp(s - m) / sum(exp2(s - m), 1, true), o.v)};
       }},
      {R::CpuRows, On::Cpu,
       [] {
         const Operands o;
         return Results{nn::attention(data({4, 64}, DType::Float32, 1), o.k, o.v)};
       }},
      {R::NoShift, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(exp(s + max(s, 1, true)), o.v)};
       }},
      {R::WeightsCast, On::Cpu,
       [] {
         const Operands o;
         return Results{matmul(nn::softmax(o.scores()).astype(DType::Int32).astype(DType::Float32), o.v)};
       }},
      {R::RowNoWeight, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(s - max(s, 1, true), o.v)};
       }},
      {R::MixedWeights, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(exp(s - max(s, 1, true)) / sum(s, 1, true), o.v)};
       }},
      {R::GpuExponentials, On::Gpu,
       [] {
         const HalfOperands o;
         const Tensor s = o.scores();
         return Results{matmul(s / sum(s, 1, true), o.v)};
       }},
      {R::GpuHalves, On::Gpu,
       [] {
         const Operands o;
         const HalfOperands h;
         return Results{matmul(nn::softmax(h.scores().astype(DType::Float32)), o.v)};
       }},
      {R::GpuFewBlocks, On::Gpu,
       [] {
         const Operands o;
         return Results{nn::attention(data({4, 64}, DType::Float32, 1), o.k, o.v)};
       }},
      {R::GpuColumns, On::Gpu,
       [] {
         const HalfOperands o;
         return Results{matmul(nn::softmax(o.scores()), data({64, 128}, DType::Float16).T())};
       }},
      {R::BothEnds, On::Cpu,
       [] {
         const Tensor a = x();
         return Results{cumsum(a, 1) + cumsum(a, 1, false, true)};
       }},
      {R::SwitchedOff, On::WithoutNorms, [] { return Results{nn::softmax(x())}; }},
      {R::TooSmall, On::LargeOnly, [] { return Results{exp(x()) * 2.0f}; }},
      {R::CustomKernel, On::Cpu,
       [] {
         const CustomKernel copy = custom_kernel(
             {.name = "copy_of",
              .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
              .cpu =
                  [](const KernelCall& call) {
                    std::copy_n(call.in[0].as<const float>(), call.in[0].numel(), call.out[0].as<float>());
                  },
              .cuda = {}});
         return Results{exp(copy({x()}))};
       }},
      {R::TooManyStored, On::Cpu,
       [] {
         const Tensor e = exp(x());
         Results all;
         for (int i = 0; i < 80; ++i) all.push_back(e * static_cast<float>(i) + sin(e));
         return all;
       }},
      {R::TooManyPieces, On::Cpu,
       [] {
         Results a, b;
         for (int i = 0; i < 50; ++i) {
           a.push_back(data({2, 96}, DType::Float32, i));
           b.push_back(data({2, 96}, DType::Float32, i + 50));
         }
         return Results{sin(concat(a, 0)) + exp(cos(concat(b, 0)))};
       }},
      {R::NoElements, On::Cpu, [] { return Results{relu(matmul(zeros({0, 8}), data({8, 4})))}; }},
      {R::OtherSumAxes, On::Cpu,
       [] {
         const Operands o;
         const Tensor e = exp(o.scores());
         return Results{matmul(e / sum(e, {0, 1}, true), o.v)};
       }},
      {R::GpuHeads, On::Gpu,
       [] {
         const Tensor q = data({128, 512}, DType::Float16, 1), k = data({128, 512}, DType::Float16, 2);
         return Results{matmul(nn::softmax(matmul(q, k.T())), k)};
       }},
      {R::TooManyInputs, On::Cpu,
       [] {
         Tensor y = matmul(x(), data({96, 32}));
         for (int i = 0; i < 60; ++i) y = y + data({64, 32}, DType::Float32, i);
         return Results{y};
       }},
      {R::NotOneScore, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores();
         return Results{matmul(nn::softmax(s + cumsum(s, 1)), o.v)};
       }},
      {R::RowSpreads, On::Cpu,
       [] {
         const Operands o;
         const Tensor s = o.scores(), e = exp(s - (max(s, 1, true) + data({128})));
         return Results{matmul(e / sum(e, 1, true), o.v)};
       }},
      {R::PairsElsewhere, On::Cpu,
       [] {
         const auto both = [](const Tensor& s) { return nn::softmax(s) + nn::softmax(s.T()); };
         return gradients([&](const Tensor& q, const Tensor& k) { return both(matmul(q, k.T())); },
                          Operands().k);
       }},
      {R::GpuTooMany, On::Gpu,
       [] {
         const Tensor k = broadcast_to(data({1, 64}, DType::Float16), {std::int64_t{1} << 31, 64});
         return Results{matmul(nn::softmax(matmul(data({1, 64}, DType::Float16), k.T())), k)};
       }},
      {R::InBlocks, On::Blocks, [] { return Results{logsumexp(matmul(x(), data({96, 200})), 1)}; }},
      {R::BlocksWanted, On::Blocks,
       [] {
         const Tensor y = matmul(x(), data({96, 200}));
         return Results{logsumexp(y, 1), y};
       }},
      {R::BlocksOfOthers, On::Blocks,
       [] {
         const Tensor y = matmul(x(), data({96, 200}));
         return Results{logsumexp(y, 1), argmax(y, 0)};
       }},
      {R::BlocksMeet, On::Blocks,
       [] {
         const Tensor y = matmul(x(), data({96, 200}));
         return Results{logsumexp(y - max(logsumexp(y, 1)), 1)};
       }},
      {R::UserCondition, On::Patterns,
       [] { return Results{silu(x().astype(DType::Float64)) * x().astype(DType::Float64)}; }},
      {R::UserShared, On::Patterns,
       [] {
         const Tensor g = silu(x());
         return Results{g * exp(x()) + g};
       }},
      {R::UserOff, On::PatternsOff, [] { return Results{silu(x()) * exp(x())}; }},
      {R::UserApart, On::Patterns, [] { return Results{sqrt(exp(x()) * cos(x()) + 1.0f) * 2.0f}; }},
      {R::MeasuredApart, On::Measured, [] { return Results{nn::softmax(x())}; }},
  };
  return all;
}

/// Patterns of the program that On::Patterns and On::PatternsOff have in force: one with a kernel and a
/// condition, one that keeps its value apart.
struct PatternsInForce {
  const fusion::ScopedPattern gate{
      {.name = "gate",
       .match = fusion::op("multiply", fusion::op("silu", fusion::any("gate")), fusion::any("up")),
       .legal = [](const fusion::Match& m) -> std::string {
         return m["gate"].dtype == DType::Float32 ? "" : std::string(name(m["gate"].dtype)) + " gates";
       },
       .kernel =
           custom_kernel({.name = "gated",
                          .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
                          .cpu =
                              [](const KernelCall& call) {
                                for (std::int64_t i = 0; i < call.in[0].numel(); ++i) {
                                  const float gate = call.in[0].as<const float>()[i];
                                  call.out[0].as<float>()[i] =
                                      gate / (1 + std::exp(-gate)) * call.in[1].as<const float>()[i];
                                }
                              },
                          .cuda = {},
                          .same_bits = true}),
       .operands = {"gate", "up"}}};
  const fusion::ScopedPattern apart{{.name = "store_products",
                                     .match = fusion::op("multiply", fusion::op("exp", fusion::any("x")),
                                                         fusion::op("cos", fusion::any("y"))),
                                     .hint = fusion::Hint::Apart}};
};

/// As if adaptive mode had measured that a softmax is faster in parts.
std::vector<FusionVariant> reductions_apart(std::span<const FusionVariant> ways) {
  const bool there = std::ranges::find(ways, FusionVariant::ReductionsApart) != ways.end();
  return there ? std::vector{FusionVariant::ReductionsApart} : std::vector<FusionVariant>{};
}

class Reasons : public ::testing::Test {
 protected:
  void TearDown() override { configure(before_); }

  FusionReport report_of(const Program& p) const {
    Config c = before_;
    c.mode = Mode::Lazy;
    c.strict = p.on == On::Strict;
    c.deterministic = false;
    c.num_threads = p.on == On::SixteenThreads ? 16 : 2;
#if defined(__x86_64__)
    c.cpu_target = "sse4.2";  // plans depend on vectors and caches: those of a level are the same everywhere
#endif
    c.device = p.on == On::Gpu ? "null" : "cpu";
    if (p.on == On::WithoutNorms) c.fuse_off = {"norm"};
    if (p.on == On::PatternsOff) c.fuse_off = {"user.gate"};
    if (p.on == On::Measured) c.adapt = Adapt::Kept;
    std::optional<PatternsInForce> patterns;
    if (p.on == On::Patterns || p.on == On::PatternsOff) patterns.emplace();
    engine::set_variant_hook(p.on == On::Measured ? reductions_apart : nullptr);
    c.fuse_least = p.on == On::LargeOnly ? 1 << 20 : 0;
    c.check_nan = c.check_diff = c.check_bounds = false;
    if (c.tier == Tier::Auto) c.tier = Tier::Vm;  // compile nothing
    const ScopedConfig scope(c);
    engine::set_block_rows(p.on == On::Blocks ? 16 : 0);
    Results results = p.record();
    const FusionRecorder recorder;
    eval(results);
    engine::set_variant_hook(nullptr);
    engine::set_block_rows(0);
    return recorder.last();
  }

  /// What the report says of a program, without numbers of nodes and lines.
  static nlohmann::ordered_json said(const FusionReport& r) {
    using Json = nlohmann::ordered_json;
    Json boundaries = Json::array(), misses = Json::array();
    for (const FusionReport::Boundary& b : r.boundaries)
      boundaries.push_back({{"from", r.node(b.from).op},
                            {"to", r.node(b.to).op},
                            {"reason", name(b.reason)},
                            {"text", b.text()},
                            {"bytes", b.bytes},
                            {"hint", name(b.hint())}});
    for (const FusionReport::NearMiss& m : r.near_misses)
      misses.push_back({{"pattern", name(m.pattern)},
                        {"condition", name(m.condition)},
                        {"text", m.text()},
                        {"hint", name(m.hint())}});
    return {
        {"before", r.before.kernels}, {"kernels", r.after.kernels}, {"library_calls", r.after.library_calls},
        {"by_kind", r.by_kind},       {"boundaries", boundaries},   {"near_misses", misses}};
  }

  const Config before_ = config();
};

TEST_F(Reasons, EachProgramSaysWhatTheFileSays) {
  const std::string file = KILN_SOURCE_DIR "/tests/inspect/reasons.json";
  if (!std::ifstream(file)) GTEST_SKIP() << "no source tree beside this build";
  nlohmann::ordered_json all;
  for (const Program& p : programs()) {
    const FusionReport r = report_of(p);
    const bool there =
        std::ranges::any_of(r.boundaries, [&](const auto& b) { return b.reason == p.reason; }) ||
        std::ranges::any_of(r.near_misses, [&](const auto& m) { return m.condition == p.reason; });
    EXPECT_TRUE(there) << name(p.reason) << "\n" << to_text(r);
    all[std::string(name(p.reason))] = said(r);
  }
  testing::expect_golden(file, all);
}

TEST(ReasonsList, EachReasonHasAProgram) {
  std::set<FusionReason> shown;
  for (const Program& p : programs()) EXPECT_TRUE(shown.insert(p.reason).second) << name(p.reason);
#define KILN_REASON(Name, ...) EXPECT_TRUE(shown.contains(FusionReason::Name)) << #Name;
#include <kiln/fusion.def>
#undef KILN_REASON
}

}  // namespace
}  // namespace kiln
