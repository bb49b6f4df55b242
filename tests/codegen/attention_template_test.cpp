// The main loops of attention: which one an attention gets, and what the assembler says of the one for
// Hopper.
#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_template.h"
#include "device/cuda/nvrtc.h"
#include "ir/graph_builder.h"
#include "lower/lower.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

enum class Mask : std::uint8_t { None, Causal, Bias };

/// softmax(q kᵀ s) v, perhaps causal, of one matrix of a batch of 2.
struct Softmax : GraphBuilder {
  Softmax(DType type, std::int64_t length, std::int64_t depth, std::int64_t width, Mask mask)
      : Softmax(type, length, length, depth, width, mask) {}
  Softmax(DType type, std::int64_t queries, std::int64_t length, std::int64_t depth, std::int64_t width,
          Mask mask) {
    const Extents square{2, queries, length}, rows{2, queries, 1};
    const NodeId q = leaf(type, {2, queries, depth}), k = leaf(type, {2, length, depth}),
                 v = leaf(type, {2, length, width});
    const NodeId scale = broadcast(constant(DType::Float32, std::bit_cast<std::uint32_t>(0.125f)), square);
    NodeId t = op(Op::multiply, {cast(matmul(q, permute(k, {0, 2, 1})), DType::Float32), scale});
    if (mask == Mask::Causal) {
      const NodeId none = broadcast(constant(DType::Float32, 0xff800000u), square);
      const NodeId i = iota(DType::Int64, square, 1), j = iota(DType::Int64, square, 2);
      t = op(Op::where, {op(Op::greater_equal, {i, j}), t, none});
    }
    if (mask == Mask::Bias) t = op(Op::add, {t, cast(iota(DType::Int64, square, 2), DType::Float32)});
    const auto of_rows = [&](Op reduction, NodeId x) {
      return broadcast(reshape(reduce(reduction, x, 4), rows), square);
    };
    const NodeId e = op(Op::exp, {op(Op::subtract, {t, of_rows(Op::reduce_max, t)})});
    const NodeId weights = cast(op(Op::divide, {e, of_rows(Op::reduce_sum, e)}), type);
    root(matmul(weights, v));
  }

  lower::Lowered lowered(int architecture) {
    schedule::Target target;
    target.gpu = target.attentions = true;
    target.threads = 132;
    target.templates = schedule::Target::Templates::All;  // however few its blocks are
    target.architecture = architecture;
    const plan::Regions regions = plan::fuse(graph, target);
    EXPECT_EQ(regions.regions.size(), 1u);
    EXPECT_EQ(regions.regions[0].kind, plan::Region::Kind::Attention);
    return lower::lower(graph, regions, regions.regions[0], target);
  }
};

TEST(AttentionTemplates, HopperCopiesTilesOfWhatIsAligned) {
  const auto chosen = [](std::int64_t depth, int architecture) {
    Softmax b(DType::BFloat16, 300, depth, 64, Mask::None);
    const lower::Lowered l = b.lowered(architecture);
    EXPECT_EQ(l.tiled.size(), static_cast<std::size_t>(template_text(l.kernel.main_loop->name).maps));
    return l.kernel.main_loop->name;
  };
  EXPECT_EQ(chosen(64, 90), "attention_wgmma");
  EXPECT_EQ(chosen(60, 90), "attention_mma") << "rows begin at multiples of 8 bytes";
  EXPECT_EQ(chosen(64, 80), "attention_mma");
  EXPECT_EQ(chosen(64, 100), "attention_mma") << "another chip's instructions";
}

/// Where a next row would be is nowhere.
TEST(AttentionTemplates, AnOnlyRowIsCopiedByTiles) {
  Softmax b(DType::BFloat16, 1, 900, 128, 128, Mask::None);
  const lower::Lowered l = b.lowered(90);
  EXPECT_EQ(l.kernel.main_loop->name, "attention_wgmma");
  for (const device::TiledBuffer& t : l.tiled)
    for (int a = 1; a < t.rank; ++a) {
      EXPECT_GT(t.strides[a], 0);
      EXPECT_EQ(t.strides[a] % 8, 0) << "of 16 bytes";
    }
}

TEST(AttentionTemplates, ANumberTimesScoresGoesIntoExponentials) {
  const auto config = [](Mask mask, std::int64_t width, const std::string& name) {
    Softmax b(DType::BFloat16, 1000, 64, width, mask);
    const auto all = b.lowered(90).kernel.main_loop->config;
    const auto found = std::ranges::find(all, name, &kernel::Constant::name);
    return found == all.end() ? -1 : found->value;
  };
  EXPECT_EQ(config(Mask::None, 64, "kScaled"), 1);
  EXPECT_EQ(config(Mask::Causal, 64, "kScaled"), 1);
  EXPECT_EQ(config(Mask::Bias, 64, "kScaled"), 0) << "a sum is no multiple";
  EXPECT_EQ(config(Mask::None, 64, "kFinish"), 8);
  EXPECT_EQ(config(Mask::None, 60, "kFinish"), 2) << "rows of the result begin at multiples of 8 bytes";
}

/// But for there being few columns, for which blocks are smaller.
TEST(AttentionTemplates, LengthsAreNoPartOfTheKey) {
  const auto key = [](std::int64_t length) {
    return kernel::hash(Softmax(DType::BFloat16, length, 64, 64, Mask::Causal).lowered(90).kernel);
  };
  EXPECT_EQ(key(600), key(4000));
  EXPECT_EQ(key(100), key(300));
  EXPECT_NE(key(300), key(600));
}

TEST(AttentionTemplates, TheAssemblerKeepsProductsAsynchronous) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  struct Case {
    std::int64_t depth, width;
    DType type;
    Mask mask;
  };
  for (const std::int64_t length : {300, 1000})
    for (const Case& c :
         {Case{128, 128, DType::BFloat16, Mask::Causal}, Case{64, 64, DType::BFloat16, Mask::Causal},
          Case{64, 64, DType::Float16, Mask::None}, Case{64, 64, DType::BFloat16, Mask::None},
          Case{128, 128, DType::Float16, Mask::None}, Case{256, 256, DType::BFloat16, Mask::Causal},
          Case{192, 80, DType::BFloat16, Mask::None}}) {
      SCOPED_TRACE(::testing::Message() << c.depth << " " << c.width << " " << length);
      Softmax b(c.type, length, c.depth, c.width, c.mask);
      const lower::Lowered l = b.lowered(90);
      ASSERT_EQ(l.kernel.main_loop->name, "attention_wgmma");
      cuda::CompileOptions options;
      options.fmad = false;
      options.extra = {"--ptxas-options=-v"};
      const std::string log =
          cuda::compile(emit_cuda(l.kernel, "kiln_test"), "kiln_test", {9, 0, true}, options).log;
      EXPECT_NE(log.find("Used"), std::string::npos) << log;
      EXPECT_EQ(log.find("setmaxnreg"), std::string::npos) << log;
      EXPECT_EQ(log.find("serializ"), std::string::npos) << log;
      // Beside three warpgroups what a block of rows begins with may spill; no loop over tiles reads it.
      if (c.depth > 64) EXPECT_NE(log.find(" 0 bytes spill stores"), std::string::npos) << log;
    }
}

TEST(AttentionTemplates, Float32TakesTheMainLoopOfAnyChip) {
  struct Case {
    std::int64_t depth, width;
    Mask mask;
  };
  for (const Case& c : {Case{128, 128, Mask::Causal}, Case{64, 64, Mask::None}, Case{256, 256, Mask::None}})
    for (const int architecture : {80, 86, 90, 120}) {
      SCOPED_TRACE(::testing::Message() << c.depth << " " << architecture);
      Softmax b(DType::Float32, 300, c.depth, c.width, c.mask);
      const lower::Lowered l = b.lowered(architecture);
      EXPECT_EQ(l.kernel.main_loop->name, "attention_mma");
      EXPECT_LE(l.shape->dynamic_shared,
                architecture % 10 == 6 || architecture == 120 ? 99 * 1024 - 64 : 163 * 1024);
      if (!cuda::nvrtc().available) continue;
      cuda::CompileOptions options;
      options.fmad = false;
      options.extra = {"--ptxas-options=-v"};
      const std::string log = cuda::compile(emit_cuda(l.kernel, "kiln_test"), "kiln_test",
                                            {architecture / 10, architecture % 10, false}, options)
                                  .log;
      EXPECT_NE(log.find("Used"), std::string::npos) << log;
      if (c.width <= 128) EXPECT_NE(log.find(" 0 bytes spill stores"), std::string::npos) << log;
    }
}

}  // namespace
}  // namespace kiln::codegen
