// Kernels for targets that are not here: they compile. A fixed set of programs is compiled each time; with
//   KILN_TEST_AARCH64=1          every kernel of every test that runs is compiled for AArch64 too
//   KILN_TEST_CUDA_SOURCES=DIR   the CUDA C of every kernel of every test that runs is written to DIR
// and OtherTargets.CollectedSourcesCompile (with KILN_TEST_CUDA_SOURCES=DIR and KILN_TEST_CUDA_MATRIX=1)
// compiles what lies in DIR for every architecture. tools/other_targets.sh does it all.
#include "codegen/other_targets.h"

#include "api/record.h"
#include "device/cuda/nvrtc.h"
#include "ir/op.h"
#include "modes.h"
#include "program.h"
#include "support/check.h"
#include "support/hash128.h"

#include <kiln/kiln.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

namespace kiln {
namespace {

using testing::CudaSource;
using testing::OtherTargets;

Tensor numbers(const Shape& shape, DType dtype) {
  return ((arange(shape.numel(), DType::Int32) % 13) - 4).astype(dtype).reshape(shape).eval();
}

/// Every elementwise operation on one dtype, over shapes that broadcast, in one evaluation.
void every_elementwise_op(DType dtype) {
  const Tensor x = numbers({5, 67}, dtype), y = numbers({67}, dtype), z = numbers({5, 1}, dtype);
  std::vector<Tensor> out;
  for (int i = 0; i < ir::kOpCount; ++i) {
    const ir::OpInfo& row = ir::kOpInfo[i];
    if (row.kind != ir::OpKind::Elementwise) continue;
    const std::uint8_t bit = is_bool(dtype) ? ir::BOOL : is_float(dtype) ? ir::FLOAT : ir::INTEGER;
    const bool converts = row.rule == ir::TypeRule::Float || row.rule == ir::TypeRule::Logical;
    if (!converts && (row.types & bit) == 0) continue;
    const auto op = static_cast<ir::Op>(i);
    const SourceLocation loc = SourceLocation::current();
    if (row.arity == 1) out.push_back(api::elementwise(op, x, loc));
    if (row.arity == 2) out.push_back(api::elementwise(op, x, y, loc));
    if (row.arity == 3) out.push_back(api::elementwise(op, x == z, y, z, loc));
  }
  eval(out);
}

void reductions_scans_and_views(DType dtype) {
  const Tensor x = numbers({33, 130}, dtype), long_row = numbers({70000}, dtype);
  eval({sum(x, 0), sum(x, 1), max(x, 1), argmin(x, 0), prod(x, 1), any(x, 0)});
  eval({sum(long_row), max(long_row), argmax(long_row)});
  eval({cumsum(x, 1), cummax(x, 0), cumsum(long_row), logcumsumexp(x, 1), logcumsumexp(long_row),
        cumsum(long_row, 0, false, true)});
  eval({concat({x, flip(x)}, 0), pad(x.T(), {{1, 2}, {0, 3}}, 1), tril(x), roll(x, 3, 1),
        x(range(1, none, 2), range(none, none, -3)), take(x, arange(7), 0),
        slice_update(x, {range(2, 9)}, 1)});
}

/// Bits of one type as those of every other of its size, of values that memory and registers hold.
void bits(DType from) {
  const Tensor x = numbers({300}, from);
  std::vector<Tensor> out;
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto to = static_cast<DType>(d);
    if (is_bool(to) || size_of(to) != size_of(from)) continue;
    out.push_back(bitcast(x, to));
    out.push_back(bitcast(x + x, to) + Tensor(1).astype(to));
  }
  eval(out);
}

void layers(DType dtype) {
  const Tensor x = numbers({40, 96}, dtype), w = numbers({96}, dtype);
  nn::softmax(x).eval();
  nn::layer_norm(x, w, w).eval();
  nn::rms_norm(x, w).eval();
  (nn::softmax(x.reshape({8, 5, 96}), 1) * 2).eval();
  logsumexp(x, 0).eval();
  var(x, 1).eval();
}

void fixed_programs() {
  const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
  clear_memory_caches();  // all of it is planned
  for (int d = 0; d < kDTypeCount; ++d) every_elementwise_op(static_cast<DType>(d));
  for (const DType dtype :
       {DType::Float32, DType::BFloat16, DType::Int32, DType::UInt8, DType::Float64, DType::Int64})
    reductions_scans_and_views(dtype);
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) layers(dtype);
  for (int d = 0; d < kDTypeCount; ++d)
    if (!is_bool(static_cast<DType>(d))) bits(static_cast<DType>(d));
  eval({random::uniform(random::Key(1), {1000}), random::normal(random::Key(2), {10, 10})});
  while_loop([](const Tensors& s) { return s[0] < 10; },
             [](const Tensors& s) { return Tensors{s[0] + 1, s[1] * s[1] + 1}; },
             {Tensor(0), numbers({500}, DType::Float32)})[1]
      .eval();
  for (std::uint64_t seed = 1; seed <= 25; ++seed) test::run(test::random_program(seed));
}

std::string first_of(const std::vector<std::string>& lines) {
  return lines.empty() ? "" : lines.front().substr(0, 6000);
}

TEST(OtherTargets, TheFixedProgramsCompileForAarch64) {
#if KILN_TEST_AARCH64
  const OtherTargets others({.aarch64 = true});
  fixed_programs();
  EXPECT_GT(others.aarch64_kernels(), 100);
  EXPECT_TRUE(others.aarch64_failures().empty())
      << others.aarch64_failures().size() << " kernels; the first: " << first_of(others.aarch64_failures());
#else
  GTEST_SKIP() << "built without LLVM's AArch64";
#endif
}

TEST(OtherTargets, TheFixedProgramsCompileForEveryCudaArchitecture) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const OtherTargets others({.cuda = true, .cuda_unaligned = true});
  fixed_programs();
  const std::vector<CudaSource> all = others.cuda_sources();
  EXPECT_GT(all.size(), 100u);
  EXPECT_TRUE(others.aarch64_failures().empty()) << first_of(others.aarch64_failures());
  // Every ninth as kernels are compiled; two of nine for one of all architectures, in turn.
  std::vector<CudaSource> optimised;
  std::vector<testing::CudaJob> quick;
  const std::vector<int>& architectures = testing::kCudaArchitectures;
  for (std::size_t i = 0; i < all.size(); i += 3)
    if (i % 9 == 0)
      optimised.push_back(all[i]);
    else
      quick.push_back({all[i], architectures[quick.size() % architectures.size()]});
  std::vector<std::string> wrong = testing::compile_cuda(optimised, {90});
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " kernels; the first: " << first_of(wrong);
  wrong = testing::compile_cuda_quickly(quick);
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " kernels; the first: " << first_of(wrong);
}

/// Of what the compiler refuses, and of what its assembler does: an instruction that came with sm_80.
TEST(OtherTargets, QuickCompilesSayWhatIsWrong) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const auto source = [](const char* statement) {
    return CudaSource{cat("extern \"C\" __global__ void kiln_test(int* x) { ", statement, " }"), "said"};
  };
  const CudaSource right = source("x[0] = 1;"), wrong = source("y[0] = 1;"),
                   newer = source("asm volatile(\"cp.async.commit_group;\");");
  EXPECT_TRUE(testing::compile_cuda_quickly({{right, 75}, {right, 90}, {newer, 80}}).empty());
  std::vector<std::string> lines = testing::compile_cuda_quickly({{right, 90}, {newer, 75}, {wrong, 80}});
  ASSERT_EQ(lines.size(), 2u);
  std::ranges::sort(lines);
  EXPECT_EQ(lines[0].find("sm_75 said: "), 0u) << lines[0];
  EXPECT_NE(lines[0].find("sm_80 or higher"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1].find("sm_80 said: "), 0u) << lines[1];
  EXPECT_NE(lines[1].find("\"y\" is undefined"), std::string::npos) << lines[1];
}

/// NVRTC's time grew with two to the power of the exponent's bits, for each lane: minutes.
TEST(OtherTargets, PowersThatChooseElementsCompileForCuda) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const OtherTargets others({.cuda = true});
  {
    const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
    clear_memory_caches();
    for (const bool quotient : {false, true}) {
      const Tensor power = pow(clip(numbers({300}, DType::UInt8), 3, 200), Tensor(std::uint8_t{13}));
      const Tensor place =
          quotient ? floor_divide(power.astype(DType::Int64), 100) : power.astype(DType::Int64) % 100;
      logaddexp(power.astype(DType::Float32), take(power, place - 3, 0).astype(DType::Float32)).eval();
    }
  }
  EXPECT_FALSE(others.cuda_sources().empty());
  const std::vector<std::string> wrong = testing::compile_cuda(others.cuda_sources(), {90});
  EXPECT_TRUE(wrong.empty()) << first_of(wrong);
}

// ---- what all tests make ----

/// Takes in what the tests of this process make, from the first to the last, when the environment asks for
/// it.
class EveryKernel : public ::testing::Environment {
 public:
  void SetUp() override {
    const bool aarch64 = std::getenv("KILN_TEST_AARCH64") != nullptr;
    directory_ = std::getenv("KILN_TEST_CUDA_MATRIX") ? nullptr : std::getenv("KILN_TEST_CUDA_SOURCES");
    if (aarch64 || directory_)
      others_ = std::make_unique<OtherTargets>(
          OtherTargets::Which{aarch64, directory_ != nullptr, directory_ != nullptr});
  }
  void TearDown() override {
    if (!others_) return;
    for (const std::string& wrong : others_->aarch64_failures()) ADD_FAILURE() << wrong;
    std::cout << "for AArch64: " << others_->aarch64_kernels() << " kernels\n";
    if (directory_) write();
    others_.reset();
  }

 private:
  void write() {
    std::filesystem::create_directories(directory_);
    for (const CudaSource& s : others_->cuda_sources())
      std::ofstream(std::filesystem::path(directory_) / (hash128(s.text).hex() + ".cu")) << s.text;
    std::cout << "CUDA C: " << others_->cuda_sources().size() << " kernels, "
              << others_->cuda_refusals().size() << " without\n";
  }

  std::unique_ptr<OtherTargets> others_;
  const char* directory_ = nullptr;
};
[[maybe_unused]] ::testing::Environment* const every_kernel =
    ::testing::AddGlobalTestEnvironment(new EveryKernel);

/// Positions in a flattened array that memory holds have 64 bits, whatever indices of the kernel have.
TEST(OtherTargets, PositionsFromMemoryAreDividedInFullWidth) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const OtherTargets others({.cuda = true});
  const Tensor x = numbers({6, 7}, DType::Float32), at = numbers({30}, DType::Int64) + 4;
  eval({take(x.T(), at), gather(x, {at % 6, at % 7})});
  const std::vector<CudaSource> sources = others.cuda_sources();
  EXPECT_GT(sources.size(), 0u);
  const std::vector<std::string> wrong = testing::compile_cuda(sources, {90});
  EXPECT_TRUE(wrong.empty()) << first_of(wrong);
}

TEST(OtherTargets, OneInstanceLeavesAnotherIts) {
  const OtherTargets outer({.cuda = true});
  {
    const OtherTargets inner({.cuda = true});
  }
  every_elementwise_op(DType::Float32);
  EXPECT_GT(outer.cuda_sources().size(), 0u);
}

TEST(OtherTargets, CollectedSourcesCompile) {
  const char* directory = std::getenv("KILN_TEST_CUDA_SOURCES");
  if (!directory || !std::getenv("KILN_TEST_CUDA_MATRIX")) GTEST_SKIP() << "tools/other_targets.sh cuda";
  ASSERT_TRUE(cuda::nvrtc().available) << cuda::nvrtc().reason;
  std::vector<CudaSource> sources;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".cu") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    sources.push_back({text.str(), entry.path().filename()});
  }
  std::cout << sources.size() << " sources\n";
  for (const int architecture : testing::kCudaArchitectures) {
    const std::vector<std::string> wrong = testing::compile_cuda(sources, {architecture});
    std::cout << "sm_" << architecture << ": " << wrong.size() << " do not compile" << std::endl;
    EXPECT_TRUE(wrong.empty()) << first_of(wrong);
  }
}

}  // namespace
}  // namespace kiln
