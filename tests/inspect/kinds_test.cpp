// For each kind of region a program whose report has it: tests/inspect/kinds.json says what each report is to
// say. UPDATE_GOLDEN=1 rewrites the file.
#include "counted.h"
#include "inspect/golden_json.h"

#include <kiln/custom_kernel.h>
#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace kiln {
namespace {

using test::data;
using Results = std::vector<Tensor>;

struct Program {
  RegionKind kind;
  std::function<Results()> record;
};

Tensor x() { return data({64, 96}); }
Tensor weights() { return data({96, 32}, DType::Float32, 1); }
Tensor row() { return data({96}, DType::Float32, 2); }
Tensor matrices() { return data({4, 16, 32}); }
Tensor convolved() { return nn::conv(data({2, 3, 12, 10}), data({4, 3, 3, 3}, DType::Float32, 1)); }
Tensor channel(int seed) { return data({4}, DType::Float32, static_cast<std::uint64_t>(seed)); }
Tensor normed() {
  const Tensor variance = (channel(6) * channel(6) + 1.0f).eval();
  return nn::batch_norm(convolved(), channel(5), variance, channel(7), channel(8));
}

Results gradient_of_attention() {
  const Tensor q = data({128, 64}, DType::Float32, 1), k = data({128, 64}, DType::Float32, 2),
               v = data({128, 64}, DType::Float32, 3);
  const auto [loss, g] = value_and_grad(
      [&](const Tensor& a, const Tensor& b) { return sum(matmul(nn::softmax(matmul(a, b.T())), v)); },
      wrt<0, 1>, q, k);
  const auto& [of_q, of_k] = g;
  return {of_q, of_k, loss};
}

Results copied_by_hand() {
  const CustomKernel copy = custom_kernel(
      {.name = "copy_of",
       .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
       .cpu =
           [](const KernelCall& call) {
             std::copy_n(call.in[0].as<const float>(), call.in[0].numel(), call.out[0].as<float>());
           },
       .cuda = {}});
  return {copy({x()})};
}

std::vector<Program> kernels() {
  using K = RegionKind;
  return {
      {K::Elementwise, [] { return Results{exp(x()) * 2.0f}; }},
      {K::Transformed, [] { return Results{exp(x().T()) * 2.0f}; }},
      {K::Copy, [] { return Results{concat({x(), x()}, 0)}; }},
      {K::Reduction, [] { return Results{sum(x(), 0)}; }},
      {K::MapsReduction, [] { return Results{sum(x() * x(), 1)}; }},
      {K::Scan, [] { return Results{cumsum(x(), 1)}; }},
      {K::Softmax, [] { return Results{nn::softmax(x())}; }},
      {K::Norm, [] { return Results{nn::layer_norm(x(), row(), row())}; }},
      {K::ResidualNorm,
       [] { return Results{nn::layer_norm(x() + data({64, 96}, DType::Float32, 3), row(), row())}; }},
      {K::Nest,
       [] {
         const Tensor d = data({64, 1, 8}) - data({1, 16, 8}, DType::Float32, 1);
         return Results{argmin(sum(d * d, 2), 1)};
       }},
      {K::Slab,
       [] {
         const Tensor a = data({64, 16, 1024});
         return Results{(a - max(a, 1, true)) / sum(abs(a), 2, true)};
       }},
      {K::Loop,
       [] {
         return Results{while_loop([](const Tensors& s) { return s[0] < 100.0f; },
                                   [](const Tensors& s) { return Tensors{s[0] * s[0] + 1.0f}; }, {x()})[0]};
       }},
      {K::WholeLoop,
       [] {
         return Results{while_loop([](const Tensors& s) { return s[0] < 3; },
                                   [](const Tensors& s) { return Tensors{s[0] + 1, matmul(s[1], s[1].T())}; },
                                   {Tensor(0), data({64, 64})})[1]};
       }},
      {K::SwiGlu, [] { return Results{silu(x()) * (x() + 1.0f)}; }},
  };
}

std::vector<Program> calls() {
  using K = RegionKind;
  return {
      {K::Product, [] { return Results{matmul(x(), weights())}; }},
      {K::ProductBias, [] { return Results{matmul(x(), weights()) + data({32})}; }},
      {K::ProductActivation, [] { return Results{gelu(matmul(x(), weights()))}; }},
      {K::ProductBiasActivation, [] { return Results{relu(matmul(x(), weights()) + data({32}))}; }},
      {K::ProductEpilogue, [] { return Results{matmul(x(), weights()) * data({64, 32})}; }},
      {K::ProductSwiGlu,
       [] { return Results{silu(matmul(x(), weights())) * matmul(x(), data({96, 32}, DType::Float32, 4))}; }},
      {K::BatchedProduct, [] { return Results{matmul(matrices(), data({4, 32, 8}))}; }},
      {K::BatchedProductEpilogue, [] { return Results{relu(matmul(matrices(), data({4, 32, 8})))}; }},
      {K::Attention,
       [] {
         const Tensor k = data({64, 96}, DType::Float32, 2);
         return Results{matmul(nn::softmax(matmul(x(), k.T()) * 0.1f), k)};
       }},
      {K::AttentionGradient, gradient_of_attention},
      {K::Convolution, [] { return Results{convolved()}; }},
      {K::ConvolutionBias,
       [] {
         return Results{nn::conv(data({2, 3, 12, 10}), data({4, 3, 3, 3}, DType::Float32, 1), channel(2))};
       }},
      {K::ConvolutionActivation, [] { return Results{relu(convolved())}; }},
      {K::ConvolutionBiasActivation,
       [] {
         return Results{
             relu(nn::conv(data({2, 3, 12, 10}), data({4, 3, 3, 3}, DType::Float32, 1), channel(2)))};
       }},
      {K::ConvolutionNorm, [] { return Results{normed()}; }},
      {K::ConvolutionNormActivation, [] { return Results{relu(normed())}; }},
      {K::ConvolutionEpilogue, [] { return Results{convolved() * data({2, 4, 10, 8})}; }},
      {K::Sort, [] { return Results{sort(x(), 1)}; }},
      {K::Scatter,
       [] { return Results{scatter_add(zeros({64}), arange(96).astype(DType::Int64) % 64, row(), 0)}; }},
      {K::Custom, copied_by_hand},
      {K::Library, [] { return Results{searchsorted(arange(64).astype(DType::Float32), x())}; }},
  };
}

std::vector<Program> programs() {
  std::vector<Program> all = kernels();
  for (Program& p : calls()) all.push_back(std::move(p));
  return all;
}

class Kinds : public ::testing::Test {
 protected:
  void TearDown() override { configure(before_); }

  FusionReport report_of(const Program& p) const {
    Config c = before_;
    c.mode = Mode::Lazy;
    c.strict = c.deterministic = false;
    c.num_threads = 2;
    c.device = "cpu";
    c.check_nan = c.check_diff = c.check_bounds = false;
    if (c.tier == Tier::Auto) c.tier = Tier::Vm;  // compile nothing
    const ScopedConfig scope(c);
    Results results = p.record();
    const FusionRecorder recorder;
    eval(results);
    return recorder.last();
  }

  const Config before_ = config();
};

TEST_F(Kinds, EachProgramSaysWhatTheFileSays) {
  const std::string file = KILN_SOURCE_DIR "/tests/inspect/kinds.json";
  if (!std::ifstream(file)) GTEST_SKIP() << "no source tree beside this build";
  using Json = nlohmann::ordered_json;
  Json all;
  for (const Program& p : programs()) {
    const FusionReport r = report_of(p);
    EXPECT_TRUE(std::ranges::any_of(r.regions, [&](const auto& region) { return region.kind == p.kind; }))
        << name(p.kind) << "\n"
        << to_text(r);
    all[std::string(name(p.kind))] = Json{{"before", r.before.kernels},
                                          {"kernels", r.after.kernels},
                                          {"library_calls", r.after.library_calls},
                                          {"by_kind", r.by_kind}};
  }
  testing::expect_golden(file, all);
}

TEST(KindsList, EachKindHasAProgram) {
  std::set<RegionKind> shown;
  for (const Program& p : programs()) EXPECT_TRUE(shown.insert(p.kind).second) << name(p.kind);
#define KILN_REGION_KIND(Name, ...) EXPECT_TRUE(shown.contains(RegionKind::Name)) << #Name;
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
}

}  // namespace
}  // namespace kiln
