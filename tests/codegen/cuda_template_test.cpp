// Kernels with a hand-written main loop: what the planner and lowering make of a product with maps, the text,
// and that NVRTC takes it for every architecture.
#include "codegen/cuda/cuda_template.h"

#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda_compiles.h"
#include "device/cuda/nvrtc.h"
#include "ir/graph_builder.h"
#include "kernel/canonical.h"
#include "lower/lower.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"
#include "plan/shared_inputs.h"
#include "support/check.h"

#include <gtest/gtest.h>

#include <optional>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

schedule::Target gpu(bool epilogues = true) {
  schedule::Target t;
  t.gpu = true;
  t.threads = 132;
  using Templates = schedule::Target::Templates;
  t.templates = epilogues ? Templates::All : Templates::None;
  return t;
}

/// act(x · w + row) + tile, of a batch where `batch` is above 1.
struct Linear : GraphBuilder {
  Linear(DType type, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
    const Shape out{batch, m, n};
    const NodeId x = leaf(type, {batch, m, k}), w = broadcast(leaf(type, {k, n}), {batch, k, n});
    const NodeId row = leaf(type, {n}), tile = leaf(type, {batch, m, n});
    const NodeId product = wide(Op::matmul, type, {batch, m, n}, {x, w});
    const NodeId sum = op(Op::add, {product, broadcast(row, {batch, m, n})});
    graph.roots = {op(Op::add, {op(Op::relu, {sum}), tile})};
  }

  lower::Lowered lowered(const schedule::Target& target = gpu()) {
    const plan::Regions regions = plan::fuse(graph, target);
    EXPECT_EQ(regions.regions.size(), 1u);
    EXPECT_EQ(regions.regions[0].kind, plan::Region::Kind::Contraction);
    return lower::lower(graph, regions, regions.regions[0], target);
  }
};

TEST(Templates, AProductAndItsMapsAreOneKernel) {
  Linear b(DType::BFloat16, 3, 70, 64, 40);
  const lower::Lowered l = b.lowered();
  kernel::verify(l.kernel);
  ASSERT_TRUE(l.kernel.main_loop);
  EXPECT_EQ(template_shape(l.kernel, l.head, 132).grid[0], 3u * 2);
  const std::string text = emit_cuda(l.kernel, "kiln_test");
  EXPECT_NE(text.find("static constexpr int kWidth = 8;"), std::string::npos) << text;
  EXPECT_NE(text.find("void epilogue(const Args& args"), std::string::npos) << text;
  const std::string printed = kernel::print(l.kernel);
  EXPECT_NE(printed.find("template product_plain"), std::string::npos) << printed;
  EXPECT_NE(printed.find("hook epilogue("), std::string::npos) << printed;
}

TEST(Templates, ADeviceWithoutEpiloguesLeavesTwoKernels) {
  Linear b(DType::Float32, 1, 8, 8, 8);
  EXPECT_EQ(plan::fuse(b.graph, gpu(false)).regions.size(), 2u);
}

TEST(Templates, SizesAreNoPartOfTheKey) {
  Linear a(DType::Float32, 2, 64, 64, 64), b(DType::Float32, 5, 48, 80, 16), c(DType::Float32, 2, 64, 63, 64);
  const Hash128 key = kernel::hash(a.lowered().kernel);
  EXPECT_EQ(key, kernel::hash(b.lowered().kernel));
  EXPECT_NE(key, kernel::hash(c.lowered().kernel)) << "its rows begin anywhere";
}

TEST(Templates, TheKeyHasTheTemplateItsConstantsAndItsHooks) {
  Linear b(DType::Float32, 2, 64, 64, 64);
  kernel::Kernel k = b.lowered().kernel;
  const Hash128 key = kernel::hash(k);
  const auto changed = [&](auto change) {
    kernel::Kernel other = k;
    change(*other.main_loop);
    return kernel::hash(other);
  };
  EXPECT_NE(key, changed([](kernel::Template& t) { t.name = "another"; }));
  EXPECT_NE(key, changed([](kernel::Template& t) { t.config[0].value += 1; }));
  EXPECT_NE(key, changed([](kernel::Template& t) { t.element = DType::Float16; }));
  EXPECT_NE(key, changed([](kernel::Template& t) { t.hooks.pop_back(); }));
  EXPECT_NE(key, changed([](kernel::Template& t) { t.hooks[0].address = 1; }));
  kernel::Kernel again = k;
  kernel::canonicalise(again);
  EXPECT_EQ(kernel::hash(again), key);
}

TEST(Templates, AnUnknownMainLoopIsADefect) { EXPECT_THROW(template_text("none"), InternalError); }

TEST(Templates, HalvesGoToTensorCores) {
  const auto chosen = [](std::int64_t m, std::int64_t n, std::int64_t k, int architecture) {
    schedule::Target t = gpu();
    t.architecture = architecture;
    Linear b(DType::BFloat16, 2, m, n, k);
    return b.lowered(t).kernel.main_loop->name;
  };
  EXPECT_EQ(chosen(512, 512, 512, 90), "product_wgmma");
  EXPECT_EQ(chosen(512, 512, 511, 90), "product_mma") << "rows that the copy engine cannot take";
  EXPECT_EQ(chosen(512, 512, 512, 80), "product_mma");
  EXPECT_EQ(chosen(4, 512, 512, 90), "product_decode");
  EXPECT_EQ(chosen(512, 512, 512, 75), "product_plain");
}

TEST(Templates, NvrtcTakesThoseOfTensorCores) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const int number : {80, 90, 120})
    for (const Shape& s : {Shape{512, 512, 512}, Shape{70, 63, 40}, Shape{70, 64, 41}, Shape{4, 512, 512}}) {
      schedule::Target t = gpu();
      t.architecture = number;
      Linear b(DType::BFloat16, 3, s[0], s[1], s[2]);
      const lower::Lowered l = b.lowered(t);
      kernel::verify(l.kernel);
      const std::string source = emit_cuda(l.kernel, "kiln_test");
      const cuda::Arch arch{number / 10, number % 10,
                            template_text(l.kernel.main_loop->name).specific == number};
      EXPECT_NO_THROW(cuda::compile(source, "kiln_test", arch)) << source;
    }
}

/// x · (w · scale), w of 8 bits in lines along either axis, scales of each column or of 32 of k.
struct Weights : GraphBuilder {
  Weights(DType stored, std::int64_t m, bool by_k, bool groups) {
    constexpr std::int64_t kN = 256, kK = 512, kGroup = 32;
    const DType half = DType::BFloat16;
    const Extents shape = groups ? Extents{kN, kK / kGroup, kGroup}
                          : by_k ? Extents{kN, kK}
                                 : Extents{kK, kN};
    const Extents scales = groups ? Extents{kN, kK / kGroup, 1} : by_k ? Extents{kN, 1} : Extents{kN};
    const NodeId x = leaf(half, {m, kK}), scale = broadcast(leaf(half, scales), shape);
    NodeId made = op(Op::multiply, {cast(leaf(stored, shape), half), scale});
    if (groups) made = reshape(made, {kN, kK});
    if (by_k) made = permute(made, {1, 0});
    graph.roots = {matmul(x, made)};
  }

  lower::Lowered lowered(const schedule::Target& target) {
    plan::Regions regions = plan::fuse(graph, target);
    EXPECT_EQ(regions.regions.size(), 2u);
    plan::make_operands(graph, regions, [&](std::span<const plan::MadeOperand> m) {
      return lower::makes_operands(graph, regions, m, target);
    });
    EXPECT_EQ(regions.regions.size(), 1u);
    return lower::lower(graph, regions, regions.regions[0], target);
  }
};

TEST(Templates, WeightsAreMadeOfBytesWithoutSpills) {
  schedule::Target t = gpu();
  t.architecture = 80;
  t.templates = schedule::Target::Templates::Few;
  for (const DType stored : {DType::Int8, DType::UInt8, DType::Float32})
    for (const int form : {0, 1, 2})
      for (const std::int64_t m : {1, 16}) {
        Weights b(stored, m, form > 0, form == 2);
        const lower::Lowered l = b.lowered(t);
        kernel::verify(l.kernel);
        ASSERT_TRUE(l.kernel.main_loop);
        EXPECT_EQ(l.kernel.main_loop->name, "product_decode");
        const std::string source = emit_cuda(l.kernel, "kiln_test");
        EXPECT_EQ(source.find("kWidens = 1") != std::string::npos, size_of(stored) == 1);
        EXPECT_EQ(source.find("kAsGiven = 1") != std::string::npos, size_of(stored) == 1 && form != 2);
        if (m == 1 || stored == DType::UInt8) continue;
        if (!cuda::nvrtc().available || cuda::nvrtc().library.find("fake") != std::string::npos) continue;
        cuda::CompileOptions options;
        options.fmad = false;
        options.extra = {"--ptxas-options=-v"};
        const std::string log = cuda::compile(source, "kiln_test", {8, 0}, options).log;
        EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << log;
      }
}

/// silu(x · g) · (x · u), or two products of x with maps of their own.
struct SharedRows : GraphBuilder {
  SharedRows(std::int64_t m, std::int64_t n, std::int64_t k, bool gated) {
    const DType half = DType::BFloat16;
    const NodeId x = leaf(half, {m, k}), g = matmul(x, leaf(half, {k, n}));
    if (gated)
      graph.roots = {op(Op::multiply, {op(Op::silu, {g}), matmul(x, leaf(half, {k, n}))})};
    else
      graph.roots = {op(Op::silu, {g}), op(Op::tanh, {matmul(x, leaf(half, {k, n / 2}))})};
  }

  lower::Lowered lowered(const schedule::Target& target) {
    plan::Regions regions = plan::fuse(graph, target);
    plan::share_launches(graph, target, regions, [&](const plan::Region& a, const plan::Region& b) {
      return lower::shares_launch(graph, regions, a, b, target);
    });
    EXPECT_EQ(regions.regions.size(), 1u);
    return lower::lower(graph, regions, regions.regions[0], target);
  }
};

TEST(Templates, ProductsOfTheSameRowsAreOneKernel) {
  schedule::Target t = gpu();
  t.architecture = 90;
  t.templates = schedule::Target::Templates::Few;
  const auto kernel_of = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool gated) {
    SharedRows b(m, n, k, gated);
    lower::Lowered l = b.lowered(t);
    kernel::verify(l.kernel);
    const std::string source = emit_cuda(l.kernel, "kiln_test");
    if (cuda::nvrtc().available && cuda::nvrtc().library.find("fake") == std::string::npos) {
      cuda::CompileOptions options;
      options.fmad = false;
      options.extra = {"--ptxas-options=-v"};
      const bool hopper = template_text(l.kernel.main_loop->name).specific == 90;
      const std::string log = cuda::compile(source, "kiln_test", {9, 0, hopper}, options).log;
      EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << log;
      EXPECT_EQ(log.find("serializ"), std::string::npos) << log;
    }
    return l;
  };
  const lower::Lowered wide = kernel_of(4096, 4096, 512, true);
  EXPECT_EQ(wide.kernel.main_loop->name, "product_wgmma");
  EXPECT_EQ(wide.tiled.size(), 3u);
  const lower::Lowered few = kernel_of(4, 512, 512, true), parts = kernel_of(4, 512, 512, false);
  EXPECT_EQ(few.kernel.main_loop->name, "product_decode");
  EXPECT_EQ(parts.kernel.main_loop->name, "product_decode");
  EXPECT_EQ(template_shape(few.kernel, few.head, 132).grid[0], 16u) << "32 columns of each";
  EXPECT_EQ(template_shape(parts.kernel, parts.head, 132).grid[0], 24u) << "32 of one";
  EXPECT_EQ(kernel::hash(parts.kernel), kernel::hash(kernel_of(3, 768, 768, false).kernel))
      << "sizes are no part of the key";
}

TEST(Templates, FewTilesSideBySideAreLeftToTheLibrary) {
  schedule::Target t = gpu();
  t.architecture = 90;
  t.templates = schedule::Target::Templates::Few;
  SharedRows b(256, 512, 512, true);
  EXPECT_EQ(plan::fuse(b.graph, t).regions.size(), 3u);
}

TEST(Templates, NvrtcTakesThem) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const DType type :
       {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int32, DType::Int64})
    for (const std::int64_t n : {64, 63, 1}) {
      Linear b(type, 3, 70, n, 40);
      compiles({emit_cuda(b.lowered().kernel, "kiln_test")}, {80, 90, 120});
    }
}

}  // namespace
}  // namespace kiln::codegen
