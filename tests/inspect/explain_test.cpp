// Reports of fusion: counts of the examples of docs/explain.md, kinds of regions, reasons, near misses, what
// forced an evaluation and why it was planned, what is stored, JSON and files.
#include "cache/temporary_directory.h"
#include "counted.h"
#include "program.h"

#include <kiln/fusion_report.h>
#include <kiln/layers.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>

namespace kiln {
namespace {

class Explain : public ::testing::Test {
 protected:
  void SetUp() override {
    Config c = before_;
    c.mode = Mode::Lazy;
    configure(c);
    clear_memory_caches();
  }
  void TearDown() override { configure(before_); }

  static FusionReport report_of(const std::function<Tensor()>& program) {
    const FusionRecorder recorder;
    program().eval();
    return recorder.last();
  }
  static bool has_reason(const FusionReport& r, FusionReason reason) {
    return std::ranges::any_of(r.boundaries, [&](const auto& b) { return b.reason == reason; });
  }
  static void expect_counts(const FusionReport& r, int before, int kernels, int calls) {
    EXPECT_EQ(r.before.kernels, before) << to_text(r);
    EXPECT_EQ(r.after.kernels, kernels) << to_text(r);
    EXPECT_EQ(r.after.library_calls, calls) << to_text(r);
  }
  /// "cpu", "cuda" or "null".
  static std::string device_kind() { return config().device.substr(0, config().device.find(':')); }
  static bool on_cpu() { return device_kind() == "cpu"; }
  static RegionKind only_kind(const FusionReport& r) {
    EXPECT_EQ(r.regions.size(), 1u) << to_text(r);
    return r.regions.empty() ? RegionKind::Copy : r.regions.front().kind;
  }

  const Config before_ = config();
  const Tensor x_ = test::data({64, 96});
};

// ---- the five examples of docs/explain.md ----

TEST_F(Explain, AChainOfMapsIsOneKernel) {
  const FusionReport r = report_of([&] { return sqrt(x_ * x_ + 1.0f) * exp(-x_); });
  expect_counts(r, 6, 1, 0);
  EXPECT_EQ(only_kind(r), RegionKind::Elementwise);
  EXPECT_NEAR(r.reduction_percent(), 100.0 * 5 / 6, 1e-9);
  EXPECT_EQ(r.after.bytes, 2 * 64 * 96 * 4);
  EXPECT_EQ(r.before.bytes, 64 * 96 * 4 * (3 + 2 + 2 + 2 + 2 + 3));  // operands and result of each
}

TEST_F(Explain, ASoftmaxIsOneKernel) {
  const FusionReport r = report_of([&] {
    const Tensor e = exp(x_ - max(x_, -1, true));
    return e / sum(e, -1, true);
  });
  expect_counts(r, 5, 1, 0);
  EXPECT_EQ(only_kind(r), RegionKind::Softmax);
  EXPECT_EQ(r.by_op.at("exp"), 1);
  EXPECT_EQ(r.by_kind.at("softmax"), 1);
  EXPECT_EQ(r.buffers_removed(), 4);
}

TEST_F(Explain, AResidualAndItsNormAreOneKernel) {
  const Tensor y = test::data({64, 96}, DType::Float32, 1), w = test::data({96}), b = test::data({96});
  const FusionReport r = report_of([&] { return nn::layer_norm(x_ + y, w, b); });
  EXPECT_EQ(only_kind(r), RegionKind::ResidualNorm) << to_text(r);
  EXPECT_EQ(r.after.kernels, 1);
  EXPECT_GT(r.before.kernels, 6);
  EXPECT_EQ(only_kind(report_of([&] { return nn::layer_norm(x_, w, b); })), RegionKind::Norm);
}

TEST_F(Explain, AProductTakesBiasAndActivation) {
  const Tensor w = test::data({96, 32}), b = test::data({32});
  const FusionReport r = report_of([&] { return relu(matmul(x_, w) + b); });
  if (!on_cpu()) {  // a GPU multiplies float32 in a library, which adds a row at most
    expect_counts(r, 3, 1, 1);
    EXPECT_EQ(r.by_kind.at("elementwise"), 1) << to_text(r);
    ASSERT_EQ(r.boundaries.size(), 1u) << to_text(r);
    EXPECT_EQ(r.boundaries[0].reason, FusionReason::ProductsAreLibraryCalls);
    EXPECT_EQ(r.boundaries[0].bytes, 2 * 64 * 32 * 4);
    expect_counts(report_of([&] { return matmul(x_, w); }), 1, 0, 1);
    return;
  }
  expect_counts(r, 3, 0, 1);
  EXPECT_EQ(only_kind(r), RegionKind::ProductBiasActivation);
  EXPECT_EQ(r.regions.front().operations, 2.0 * 64 * 32 * 96 + 2.0 * 64 * 32);
  EXPECT_EQ(only_kind(report_of([&] { return matmul(x_, w) + b; })), RegionKind::ProductBias);
  EXPECT_EQ(only_kind(report_of([&] { return gelu(matmul(x_, w)); })), RegionKind::ProductActivation);
  EXPECT_EQ(only_kind(report_of([&] { return matmul(x_, w); })), RegionKind::Product);
}

TEST_F(Explain, AnAttentionIsOneCall) {
  const Tensor k = test::data({64, 96}, DType::Float32, 2), v = test::data({64, 96}, DType::Float32, 3);
  const auto attention = [](const Tensor& q, const Tensor& keys, const Tensor& values) {
    return matmul(nn::softmax(matmul(q, keys.T()) * 0.1f), values);
  };
  const FusionReport r = report_of([&] { return attention(x_, k, v); });
  if (!on_cpu()) {  // whose main loop of float32 wants more blocks
    EXPECT_EQ(r.after.library_calls, 2) << to_text(r);
    EXPECT_EQ(r.by_kind.at("softmax"), 1) << to_text(r);
    ASSERT_EQ(r.near_misses.size(), 1u) << to_text(r);
    EXPECT_EQ(r.near_misses[0].condition, FusionReason::GpuFewBlocks);
    const Tensor q = x_.astype(DType::Float16).eval(), keys = k.astype(DType::Float16).eval();
    EXPECT_EQ(only_kind(report_of([&] { return attention(q, keys, keys); })), RegionKind::Attention);
    return;
  }
  expect_counts(r, 8, 0, 1);
  EXPECT_EQ(only_kind(r), RegionKind::Attention);
  EXPECT_EQ(r.after.bytes, 4 * 64 * 96 * 4);
}

// ---- other kinds ----

TEST_F(Explain, NamesOtherKindsOfRegions) {
  EXPECT_EQ(only_kind(report_of([&] { return sum(x_, 0); })), RegionKind::Reduction);
  EXPECT_EQ(only_kind(report_of([&] { return cumsum(x_, 1); })), RegionKind::Scan);
  EXPECT_EQ(only_kind(report_of([&] { return sort(x_, 1); })), RegionKind::Sort);
  EXPECT_EQ(only_kind(report_of([&] { return concat({x_, x_}, 0); })), RegionKind::Copy);
}

// ---- reasons, near misses, hints ----

TEST_F(Explain, ABoundaryHasItsReasonArgumentsAndBytes) {
  const FusionReport r = report_of([&] { return cumsum(flip(cumsum(x_, 1), 1), 1); });
  ASSERT_EQ(r.boundaries.size(), 1u) << to_text(r);
  const FusionReport::Boundary& b = r.boundaries.front();
  EXPECT_EQ(b.reason, FusionReason::OtherPoints);
  EXPECT_EQ(b.arguments, std::vector<std::string>{"slice (64, 96) of (64, 96)"});
  EXPECT_EQ(b.text(), "read at other points, through slice (64, 96) of (64, 96)");
  EXPECT_EQ(b.bytes, 2 * 64 * 96 * 4);
  EXPECT_EQ(b.hint(), FusionHint::Nothing);
  EXPECT_EQ(r.node(b.from).op, "scan_sum");
  EXPECT_NE(r.node(b.from).file.find("explain_test.cpp"), std::string::npos);
}

TEST_F(Explain, ReductionsAlongOtherAxesNameBoth) {
  const Tensor x = test::data({256, 512});
  const FusionReport r = report_of([&] { return max(exp(x) / sum(exp(x), 1, true), 0); });
  ASSERT_TRUE(has_reason(r, FusionReason::OtherAxes)) << to_text(r);
  const auto at = std::ranges::find(r.boundaries, FusionReason::OtherAxes, &FusionReport::Boundary::reason);
  EXPECT_EQ(at->text(),
            "they go along different axes: reduce_sum over 1 of (256, 512), reduce_max over 0 of (256, 512)");
  EXPECT_EQ(at->hint(), FusionHint::OneLayout);
}

TEST_F(Explain, OneExtraReaderOfTheScoresIsANearMissOfAttention) {
  const Tensor k = test::data({64, 96}, DType::Float32, 2), v = test::data({64, 96}, DType::Float32, 3);
  const FusionRecorder recorder;
  const Tensor weights = nn::softmax(matmul(x_, k.T())), out = matmul(weights, v);
  eval({out, weights});
  const FusionReport r = recorder.last();
  ASSERT_EQ(r.near_misses.size(), 1u) << to_text(r);
  EXPECT_EQ(r.near_misses[0].pattern, FusionPattern::Attention);
  EXPECT_EQ(r.near_misses[0].condition, FusionReason::ScoresRead);
  EXPECT_EQ(r.near_misses[0].hint(), FusionHint::DropReader);
  EXPECT_EQ(r.node(r.near_misses[0].nodes[0]).op, "matmul");
}

TEST_F(Explain, EveryTextHasItsArguments) {
  std::size_t told = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const FusionRecorder recorder;
    test::run(test::random_program(seed));
    for (const FusionReport& r : recorder.reports()) {
      for (const FusionReport::Boundary& b : r.boundaries) told += !b.text().empty();
      EXPECT_EQ(fusion_report_from_json(to_json(r)), r) << to_json(r, 1);
      EXPECT_FALSE(to_text(r).empty());
    }
  }
  EXPECT_GT(told, 10u);
}

// ---- steering ----

TEST_F(Explain, PatternsAreSwitchedOff) {
  const auto with = [&](const std::vector<std::string>& off, const std::function<Tensor()>& program) {
    Config c = config();
    c.fuse_off = off;
    const ScopedConfig scope(c);
    return report_of(program);
  };
  const auto softmax = [&] { return nn::softmax(x_); };
  EXPECT_EQ(with({on_cpu() ? "cuda:norm" : "cpu:norm"}, softmax).after.kernels, 1);
  const FusionReport apart = with({"norm"}, softmax);
  EXPECT_GT(apart.after.kernels, 1) << to_text(apart);
  ASSERT_TRUE(has_reason(apart, FusionReason::SwitchedOff)) << to_text(apart);
  EXPECT_EQ(apart.boundaries.front().hint(), FusionHint::SwitchOn);
  // integers: of these a GPU's main loop takes an epilogue, too
  const Tensor x = test::data({64, 96}, DType::Int32), w = test::data({96, 32}, DType::Int32, 1);
  const auto product = [&] { return relu(matmul(x, w)); };
  EXPECT_EQ(only_kind(with({}, product)), RegionKind::ProductActivation);
  const FusionReport two = with({device_kind() + ":epilogue"}, product);
  EXPECT_EQ(two.regions.size(), 2u) << to_text(two);
  EXPECT_EQ(two.boundaries.front().text(), "switched off: epilogue");
  const DType type = on_cpu() ? DType::Float32 : DType::Float16;
  const Tensor q = x_.astype(type).eval();
  const auto attention = [&] { return matmul(nn::softmax(matmul(q, q.T())), q); };
  EXPECT_EQ(with({}, attention).by_kind.count("attention"), 1u);
  EXPECT_EQ(with({"attention"}, attention).by_kind.count("attention"), 0u);
}

TEST_F(Explain, FusionIsOffOrBeginsAtALeastSize) {
  const auto chain = [&] { return exp(x_ + 1.0f) * 2.0f; };
  Config c = config();
  c.fuse = false;
  {
    const ScopedConfig scope(c);
    expect_counts(report_of(chain), 3, 3, 0);
  }
  c = config();
  c.fuse_least = 64 * 96 + 1;
  {
    const ScopedConfig scope(c);
    const FusionReport r = report_of(chain);
    expect_counts(r, 3, 3, 0);
    EXPECT_TRUE(has_reason(r, FusionReason::TooSmall)) << to_text(r);
  }
  c.fuse_least = 64 * 96;
  {
    const ScopedConfig scope(c);
    expect_counts(report_of(chain), 3, 1, 0);
  }
  expect_counts(report_of(chain), 3, 1, 0);
}

// ---- why it was evaluated, planned, compiled, stored ----

TEST_F(Explain, NamesTheCallThatForcedIt) {
  const auto trigger = [](const std::function<void()>& force) {
    const FusionRecorder recorder;
    force();
    return recorder.last().trigger;
  };
  const auto value = [&] { return sum(x_ * 2.0f); };
  const FusionReport::Trigger item = trigger([&] { (void)value().item<float>(); });
  EXPECT_EQ(item.call, "item");
  EXPECT_NE(item.file.find("explain_test.cpp"), std::string::npos);
  EXPECT_EQ(item.line, static_cast<std::uint32_t>(__LINE__ - 3));
  EXPECT_EQ(trigger([&] { value().eval(); }).call, "eval");
  EXPECT_EQ(trigger([&] { (void)(x_ * 3.0f).to_vector<float>(); }).call, "copy_to");
  EXPECT_EQ(trigger([&] { (void)value().str(); }).call, "print");
  EXPECT_EQ(trigger([&] { (void)static_cast<bool>(value() > 0.0f); }).call, "bool");
  EXPECT_EQ(trigger([&] { (void)(x_ * 4.0f).data(); }).call, "data");
}

TEST_F(Explain, AMissedPlanHasTheFieldThatDiffers) {
  const auto total = [](const Tensor& x) { return report_of([&] { return sum(x * 2.0f); }); };
  EXPECT_EQ(total(test::data({10, 8})).difference.field, "nothing of this line was planned before");
  const FusionReport other = total(test::data({11, 8}));
  EXPECT_TRUE(other.planned);
  EXPECT_EQ(other.difference.field, "shape");
  EXPECT_EQ(other.difference.now, "(11, 8)");
  EXPECT_EQ(other.difference.was, "(10, 8)");
  const FusionReport again = total(test::data({11, 8}));
  EXPECT_FALSE(again.planned);
  EXPECT_EQ(again.plan, other.plan);
  EXPECT_EQ(again.runs, 2u);
  EXPECT_EQ(other.regions[0].kernels[0].verdict, "memory");  // sizes are no part of a kernel
}

TEST_F(Explain, ANewKernelNamesWhatDiffersFromTheNearest) {
  const auto run = [](const Tensor& x) {
    return report_of([&] { return atan(x * 5.0f); }).regions[0].kernels[0];
  };
  EXPECT_TRUE(run(test::data({100})).field.empty());
  const FusionReport::Kernel other = run(test::data({100}, DType::Float64));
  EXPECT_EQ(other.field, "buffer in0");
  EXPECT_NE(other.now.find("f64"), std::string::npos) << other.now;
  EXPECT_NE(other.was.find("f32"), std::string::npos) << other.was;
}

TEST_F(Explain, StoredValuesHaveAReason) {
  const Tensor w = test::data({96, 32});
  const FusionRecorder recorder;
  const Tensor product = matmul(x_, w), out = sum(sort(product, 1));
  out.eval();
  const FusionReport r = recorder.last();
  const auto why = [&](const std::string& op) {
    for (const FusionReport::Stored& s : r.stored)
      if (r.node(s.node).op == op) return s.why;
    return StoredBecause::Pinning;
  };
  EXPECT_EQ(why("reshape"), StoredBecause::Requested) << to_text(r);
  EXPECT_EQ(why("matmul"), StoredBecause::InMemory) << to_text(r);
}

/// Whatever the reason, one of these programs has it.
TEST_F(Explain, EachReasonToStoreAValueHasAProgram) {
  const FusionRecorder recorder;
  {
    const Tensor w = test::data({96, 32}), product = matmul(x_, w), out = sum(sort(product, 1));
    out.eval();  // asked for, and in memory anyway
  }
  {
    const Tensor big = test::data({512, 512}), small = sum(big), out = big - small;
    out.eval();  // small, and made of much
  }
  Tensor now = test::data({64, 96}), total = zeros({64, 96});
  for (int step = 0; step < 12; ++step) {
    now = now - 0.1f * tanh(now);  // read again in the next step
    total = total + now;           // piles up until the end
    (void)mean(now).item<float>();
  }
  std::set<StoredBecause> seen;
  for (const FusionReport& r : recorder.reports())
    for (const FusionReport::Stored& s : r.stored) seen.insert(s.why);
  for (const StoredBecause why : {StoredBecause::Requested, StoredBecause::Joined, StoredBecause::Learned,
                                  StoredBecause::Pinning, StoredBecause::InMemory})
    EXPECT_TRUE(seen.contains(why)) << name(why);
}

/// Of the plans that a loop runs: how often, and how long their latest measured runs took.
TEST_F(Explain, LoopsHaveIterationsAndTimes) {
  const Tensor m = test::data({32, 32});
  const FusionReport r = report_of([&] {
    return while_loop([](const Tensors& s) { return s[0] < 3; },
                      [](const Tensors& s) { return Tensors{s[0] + 1, matmul(s[1], s[1].T())}; },
                      {Tensor(0), m})[1];
  });
  ASSERT_EQ(r.loops.size(), 2u) << to_text(r);
  EXPECT_EQ(r.loops[0].runs, 4u) << "the condition";
  EXPECT_EQ(r.loops[1].runs, 3u);
  if (on_cpu()) {
    EXPECT_GT(r.loops[1].regions.front().measured_ns, 0) << to_text(r);
  }
  EXPECT_NE(to_text(r).find("in the loop, 3 times:"), std::string::npos) << to_text(r);
  EXPECT_EQ(fusion_report_from_json(to_json(r)), r);
}

/// A library's product of odd extents has a copy of an operand in front, a kernel that was no operation.
TEST_F(Explain, CopiesForAProductAreKernelsMore) {
  Config c = config();
  c.device = "null";
  const ScopedConfig scope(c);
  const auto zero = [](const Shape& shape) { return zeros(shape, DType::BFloat16).eval(); };
  const Tensor x = zero({4096, 1024}), odd = zero({1024, 1001}), whole = zero({1024, 1000});
  const FusionReport copied = report_of([&] { return matmul(x, odd); }),
                     plain = report_of([&] { return matmul(x, whole); });
  expect_counts(copied, 1, 1, 1);
  expect_counts(plain, 1, 0, 1);
  EXPECT_EQ(copied.by_op.contains("pad"), false) << to_text(copied);
  EXPECT_NE(to_text(copied).find("1 library call (100 % more)"), std::string::npos) << to_text(copied);
  EXPECT_NE(to_text(copied).find("copy: arrange"), std::string::npos) << to_text(copied);
  EXPECT_NE(to_text(plain).find("1 library call (0 % fewer)"), std::string::npos) << to_text(plain);
}

/// Two kernels of one region are not made anew for each other.
TEST_F(Explain, KernelsOfOnePlanAreNoNeighbours) {
  const FusionReport r = report_of([&] { return matmul(nn::softmax(matmul(x_, x_.T())), x_); });
  for (const FusionReport::Region& region : r.regions)
    for (const FusionReport::Kernel& k : region.kernels) EXPECT_EQ(k.field, "") << to_text(r);
}

TEST_F(Explain, NamesThatAreNoUtf8StandInJson) {
  FusionReport r;
  r.trigger = {"eval", "caf\xe9.cpp", 3};
  EXPECT_NE(to_json(r).find("caf\xef\xbf\xbd.cpp"), std::string::npos);
}

// ---- files ----

TEST_F(Explain, AFileHasALineForAPlanAndLinesForLaterRuns) {
  const testing::TemporaryDirectory directory;
  Config c = config();
  c.explain = directory / "why.json";
  {
    const ScopedConfig scope(c);
    for (int i = 0; i < 5; ++i) (x_ * static_cast<float>(i)).eval();
  }
  std::ifstream in(directory / "why.json");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);  // run 1, which has the report, 2 and 4
  const FusionReport r = fusion_report_from_json(lines[0]);
  expect_counts(r, 1, 1, 0);
  EXPECT_TRUE(r.planned);
  EXPECT_GT(r.regions[0].measured_ns, 0);
  EXPECT_TRUE(lines[1].starts_with("{\"schema\":\"kiln.fusion.run/1\"")) << lines[1];
  EXPECT_NE(lines[2].find("\"runs\":4"), std::string::npos) << lines[2];
}

TEST_F(Explain, TheTableNamesKernelsAndWhatForcedThem) {
  Config c = config();
  c.explain = "1";
  ::testing::internal::CaptureStderr();
  {
    const ScopedConfig scope(c);
    (void)sum(cumsum(flip(cumsum(x_, 1), 1), 1)).item<float>();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("3 operations in "), text.npos) << text;
  EXPECT_NE(text.find("forced by: item at "), text.npos) << text;
  EXPECT_NE(text.find("boundary: %"), text.npos) << text;
}

TEST_F(Explain, DamagedJsonIsAnError) {
  for (const char* text :
       {"", "{}", "[1]", "{\"schema\":\"kiln.fusion/2\"}", "{\"schema\":\"kiln.fusion/2\"}"})
    EXPECT_THROW(fusion_report_from_json(text), UserError) << text;
  const FusionReport r = report_of([&] { return x_ + 1.0f; });
  const std::string json = to_json(r);
  for (std::size_t n = 0; n < json.size(); n += 7)
    EXPECT_THROW(fusion_report_from_json(json.substr(0, n)), UserError) << n;
}

TEST_F(Explain, WithoutARecorderNothingIsKept) {
  (x_ + 7.0f).eval();
  const FusionRecorder recorder;
  EXPECT_TRUE(recorder.reports().empty());
  EXPECT_THROW(recorder.last(), UserError);
}

// ---- gates and convolutions ----

TEST_F(Explain, GatesHaveTheirName) {
  EXPECT_EQ(only_kind(report_of([&] { return silu(x_) * (x_ + 1.0f); })), RegionKind::SwiGlu);
  EXPECT_EQ(only_kind(report_of([&] { return (x_ * sigmoid(x_)) * (x_ + 1.0f); })), RegionKind::SwiGlu);
  EXPECT_EQ(only_kind(report_of([&] { return silu(x_) * 2.0f; })), RegionKind::Elementwise);
  EXPECT_EQ(only_kind(report_of([&] { return sigmoid(x_) * (x_ + 1.0f); })), RegionKind::Elementwise);
  const Tensor w = test::data({96, 32}), v = test::data({96, 32}, DType::Float32, 2);
  const FusionReport r = report_of([&] { return silu(matmul(x_, w)) * matmul(x_, v); });
  // a GPU multiplies float32 in a library, which takes no maps along
  const char* const kind = config().device == "cpu" ? "product + SwiGLU" : "SwiGLU";
  EXPECT_EQ(r.by_kind.count(kind), 1u) << to_text(r);
}

TEST_F(Explain, ConvolutionsHaveTheirName) {
  const Tensor x = test::data({2, 3, 12, 10}), w = test::data({4, 3, 3, 3}), b = test::data({4});
  const auto kinds = [&](const std::function<Tensor()>& program) {
    const FusionReport r = report_of(program);
    std::string out;
    for (const FusionReport::Region& region : r.regions)
      if (text_of(region.kind).starts_with("conv") || text_of(region.kind).starts_with("product"))
        out += (out.empty() ? "" : ", ") + std::string(text_of(region.kind));
    return out;
  };
  EXPECT_EQ(kinds([&] { return nn::conv(x, w); }), "convolution");
  EXPECT_EQ(kinds([&] { return nn::conv(x, w, b); }), "convolution + bias");
  EXPECT_EQ(kinds([&] { return relu(nn::conv(x, w)); }), "convolution + activation");
  EXPECT_EQ(kinds([&] { return relu(nn::conv(x, w, b)); }), "convolution + bias + activation");
  EXPECT_EQ(kinds([&] { return relu(nn::conv(x, w, b)) * nn::conv(x, w); }), "convolution + epilogue");
}

}  // namespace
}  // namespace kiln
