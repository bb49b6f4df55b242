// The CUDA C of a few programs as text, beside which a change of the emitter, the scheduler or the planner
// shows itself: tests/codegen/golden/*.cu, without the prelude. UPDATE_GOLDEN=1 rewrites them; the difference
// belongs into the commit.
#include "codegen/other_targets.h"
#include "modes.h"

#include <kiln/kiln.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace kiln {
namespace {

struct Program {
  const char* name;
  // in: float32 (256, 4096), bfloat16 (256, 4096), float32 (4096,), int32 (100,)
  std::function<void(const Tensor* in)> run;
};

const Program kPrograms[] = {
    {"map", [](const Tensor* in) { (exp(in[0]) * 2 + in[2]).eval(); }},
    {"map_of_halves", [](const Tensor* in) { (in[1] * 0.5 + 1).eval(); }},
    {"transposed_view", [](const Tensor* in) { (in[0].T() + 1).eval(); }},
    {"strided_and_reversed",
     [](const Tensor* in) { (in[0](range(none, none, 2), range(none, none, -3)) + 1).eval(); }},
    {"join", [](const Tensor* in) { concat({in[0], flip(in[0], 1)}, 1).eval(); }},
    {"softmax_of_halves", [](const Tensor* in) { nn::softmax(in[1]).eval(); }},
    {"layer_norm", [](const Tensor* in) { nn::layer_norm(in[0], in[2], in[2]).eval(); }},
    {"residual_rms_norm",
     [](const Tensor* in) {
       const Tensor sum = in[0] + in[0] * 2;
       eval({sum, nn::rms_norm(sum, in[2])});
     }},
    {"rms_norm_of_a_sum",
     [](const Tensor* in) {
       const Tensor sum = in[0] + astype(in[1], DType::Float32);
       eval({astype(sum, DType::BFloat16), nn::rms_norm(sum, in[2])});
     }},
    {"sum_of_all", [](const Tensor* in) { sum(in[0] * in[0]).eval(); }},
    {"sum_of_columns", [](const Tensor* in) { sum(in[0], 0).eval(); }},
    {"reversed_scan", [](const Tensor* in) { (cumsum(in[0] * 2, 1, false, true) * 3 + 1).eval(); }},
    {"argmax_of_rows", [](const Tensor* in) { argmax(in[0], 1).eval(); }},
    {"gather", [](const Tensor* in) { (take(in[0], in[3], 0) * 2).eval(); }},
    {"random", [](const Tensor*) { random::normal(random::Key(1), {1000, 10}).eval(); }},
    {"log_cumulative_sum", [](const Tensor* in) { (logcumsumexp(in[0] * 2, 1) + 1).eval(); }},
    {"integers", [](const Tensor* in) { (in[3] / 7 + in[3] % 3 + (in[3] << 2)).eval(); }},
};

class Golden : public ::testing::TestWithParam<int> {};

TEST_P(Golden, CudaText) {
  const Program& program = kPrograms[GetParam()];
  const std::filesystem::path directory = std::filesystem::path(KILN_SOURCE_DIR) / "tests/codegen/golden";
  const bool update = std::getenv("UPDATE_GOLDEN") != nullptr;
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no source tree beside this build";
  if (config().device != "cpu" || !config().cpu_target.empty())
    GTEST_SKIP() << "the same text whatever the host";

  const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
  const Tensor in[] = {Tensor::from(std::vector<float>(256 * 4096, 1), {256, 4096}),
                       Tensor::from(std::vector<bfloat16>(256 * 4096, bfloat16(1.0f)), {256, 4096}),
                       Tensor::from(std::vector<float>(4096, 1)),
                       Tensor::from(std::vector<std::int32_t>(100, 1))};
  clear_memory_caches();
  std::string text;
  {
    const testing::OtherTargets others({.cuda = true});
    program.run(in);
    for (const testing::CudaSource& source : others.cuda_sources()) {
      const std::size_t kernel =
          std::min(source.text.find("struct Custom0"), source.text.find("extern \"C\" __global__"));
      ASSERT_NE(kernel, std::string::npos) << source.text;
      text += "// " + source.label + "\n" + source.text.substr(kernel) + "\n";
    }
    EXPECT_TRUE(others.cuda_refusals().empty());
  }
  ASSERT_FALSE(text.empty());

  const std::filesystem::path file = directory / (std::string(program.name) + ".cu");
  if (update) {
    std::ofstream(file) << text;
    return;
  }
  std::ostringstream kept;
  kept << std::ifstream(file).rdbuf();
  if (kept.str() == text) return;
  std::istringstream want(kept.str()), have(text);
  std::string a, b;
  int line = 1;
  while (std::getline(want, a) && std::getline(have, b) && a == b) ++line;
  ADD_FAILURE() << file << ", line " << line << ": kept\n  " << a << "\nnow\n  " << b
                << "\nIf the change is meant: UPDATE_GOLDEN=1 kiln_tests --gtest_filter='*Golden*'\n";
}

INSTANTIATE_TEST_SUITE_P(Programs, Golden, ::testing::Range(0, static_cast<int>(std::size(kPrograms))),
                         [](const auto& param) { return std::string(kPrograms[param.param].name); });

}  // namespace
}  // namespace kiln
