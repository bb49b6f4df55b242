// The main loop of gradients of attention: which launches a gradient is, and what the assembler says of them.
#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_template.h"
#include "device/cuda/nvrtc.h"
#include "ir/graph_builder.h"
#include "lower/pair_sums_kernel.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// A causal attention of one matrix of a batch of 2 and its gradients, as a tape records them; the rows' sums
/// of the gradient of the softmax are made of the result.
struct Gradient : GraphBuilder {
  Gradient(DType type, std::int64_t length, std::int64_t depth, std::int64_t width) {
    const Extents square{2, length, length};
    const NodeId q = leaf(type, {2, length, depth}), k = leaf(type, {2, length, depth}),
                 v = leaf(type, {2, length, width}), given = leaf(type, {2, length, width});
    const NodeId scale = broadcast(constant(DType::Float32, std::bit_cast<std::uint32_t>(0.125f)), square);
    const NodeId seen = op(Op::greater_equal, {iota(DType::Int64, square, 1), iota(DType::Int64, square, 2)});
    const auto masked = [&](NodeId x, std::uint32_t other) {
      return op(Op::where, {seen, x, broadcast(constant(DType::Float32, other), square)});
    };
    const auto of_rows = [&](Op reduction, NodeId x) { return broadcast(reduce(reduction, x, 4), square); };
    const NodeId s = matmul(q, permute(k, {0, 2, 1}));
    const NodeId t = masked(op(Op::multiply, {cast(s, DType::Float32), scale}), 0xff800000u);
    const NodeId e = op(Op::exp, {op(Op::subtract, {t, of_rows(Op::reduce_max, t)})});
    const NodeId p = op(Op::divide, {e, of_rows(Op::reduce_sum, e)}), weights = cast(p, type);
    const NodeId o = matmul(weights, v);
    const NodeId dp = cast(matmul(given, permute(v, {0, 2, 1})), DType::Float32);
    const NodeId both = op(Op::multiply, {cast(given, DType::Float32), cast(o, DType::Float32)});
    const NodeId sums = broadcast(reduce(Op::reduce_sum, both, 4), square);
    const NodeId dt = masked(op(Op::multiply, {p, op(Op::subtract, {dp, sums})}), 0);
    const NodeId ds = cast(op(Op::multiply, {dt, scale}), type);
    root(o);
    root(matmul(ds, k));
    root(matmul(permute(ds, {0, 2, 1}), q));
    root(matmul(permute(weights, {0, 2, 1}), given));
  }

  bool exact = false;  // the deterministic mode
  /// `asked_for`: the main loops, also where separate kernels are faster.
  std::vector<lower::Lowered> lowered(int architecture, bool asked_for = true) {
    schedule::Target target;
    target.exact = exact;
    target.gpu = target.attentions = target.pair_sums = true;
    target.threads = 132;
    target.architecture = architecture;
    if (asked_for) target.templates = schedule::Target::Templates::All;
    const plan::Regions regions = plan::fuse(graph, target);
    EXPECT_TRUE(regions.pair_sums.size() == 1 || !asked_for);
    std::vector<lower::Lowered> out;
    for (const auto& s : regions.pair_sums)
      for (const lower::PairPass& pass : lower::pair_passes(graph, *s, target))
        out.push_back(lower::lower_pair_pass(graph, *s, pass, target));
    return out;
  }
};

std::vector<std::string> names(const std::vector<lower::Lowered>& all) {
  std::vector<std::string> out;
  for (const lower::Lowered& l : all) out.push_back(l.kernel.main_loop->name);
  return out;
}

std::int64_t constant_of(const lower::Lowered& l, const std::string& name) {
  for (const kernel::Constant& c : l.kernel.main_loop->config)
    if (c.name == name) return c.value;
  return -1;
}

TEST(PairSumsTemplates, SumsOverColumnsAndOverRowsAreALaunchEach) {
  const std::string flags = "pair_flags", mma = "pair_sums_mma", wgmma = "pair_sums_wgmma";
  Gradient small(DType::BFloat16, 300, 64, 64), large(DType::BFloat16, 300, 192, 192),
      largest(DType::BFloat16, 300, 256, 256);
  EXPECT_EQ(names(small.lowered(80)), (std::vector{flags, mma, flags, mma}));
  EXPECT_EQ(names(small.lowered(90)), (std::vector{flags, wgmma, flags, wgmma}));
  EXPECT_EQ(names(large.lowered(90)), (std::vector{flags, wgmma, flags, wgmma, flags, wgmma}))
      << "sums of 192 columns do not fit registers together";
  EXPECT_EQ(names(largest.lowered(90)), (std::vector{flags, mma, flags, mma, flags, wgmma}))
      << "two operands of 256 columns do not fit shared memory twice";
}

TEST(PairSumsTemplates, WhatLeavesOutTilesLooksForSpecialValuesItself) {
  Gradient many(DType::BFloat16, 600, 64, 64), few(DType::BFloat16, 512, 64, 64);
  const auto all = many.lowered(90, false);
  EXPECT_EQ(names(all), (std::vector<std::string>{"pair_sums_wgmma", "pair_sums_wgmma"}));
  for (const lower::Lowered& l : all) {
    EXPECT_EQ(constant_of(l, "kChecks"), 1);
    EXPECT_EQ(l.again.size(), l.head.size());
    EXPECT_NE(l.again, l.head);
  }
  for (const lower::Lowered& l : few.lowered(90)) EXPECT_TRUE(l.again.empty());
}

TEST(PairSumsTemplates, LongOnesAddToTheSumAlongTheOtherAxis) {
  Gradient many(DType::BFloat16, 1100, 128, 128), fewer(DType::BFloat16, 1000, 128, 128),
      wide(DType::BFloat16, 1100, 192, 128);
  const std::string flags = "pair_flags", added = "pair_added", sums = "pair_sums_wgmma";
  const auto all = many.lowered(90, false);
  ASSERT_EQ(names(all), (std::vector{flags, flags, added, sums, added}));
  EXPECT_EQ(constant_of(all[2], "kStores"), 0);
  EXPECT_EQ(constant_of(all[3], "kAdds"), 1);
  EXPECT_EQ(constant_of(all[4], "kStores"), 1);
  EXPECT_TRUE(all[3].again.empty()) << "what is made again would be added again";
  EXPECT_EQ(names(fewer.lowered(90, false)), (std::vector{sums, sums}));
  for (const lower::Lowered& l : wide.lowered(90, false))
    EXPECT_NE(l.kernel.main_loop->name, added) << "sums of dq and of dk are too wide together";
  many.exact = true;
  EXPECT_EQ(names(many.lowered(90, false)), (std::vector{sums, sums}));
}

TEST(PairSumsTemplates, OperandsThatTheCopyEngineDoesNotReadGoToTheOtherLoop) {
  Gradient odd(DType::BFloat16, 300, 60, 60);
  EXPECT_EQ(names(odd.lowered(90)),
            (std::vector<std::string>{"pair_flags", "pair_sums_mma", "pair_flags", "pair_sums_mma"}));
}

TEST(PairSumsTemplates, WideHeadsAreSeparateKernels) {
  Gradient narrow(DType::BFloat16, 300, 128, 128), wide(DType::BFloat16, 300, 192, 192),
      widest(DType::BFloat16, 300, 256, 256);
  EXPECT_FALSE(narrow.lowered(80, false).empty());
  EXPECT_TRUE(wide.lowered(80, false).empty());
  EXPECT_FALSE(wide.lowered(90, false).empty());
  EXPECT_TRUE(widest.lowered(90, false).empty());
}

TEST(PairSumsTemplates, ValuesOfRowsAndColumnsComeReadyMade) {
  Gradient b(DType::BFloat16, 300, 64, 64);
  const auto launches = b.lowered(90);
  // maxima, reciprocals of sums and sums of products: of rows of the launch for dq, of its columns for dk and
  // dv
  EXPECT_EQ(constant_of(launches[1], "kRowValues"), 3);
  EXPECT_EQ(constant_of(launches[1], "kColumnValues"), 0);
  EXPECT_EQ(constant_of(launches[3], "kRowValues"), 0);
  EXPECT_EQ(constant_of(launches[3], "kColumnValues"), 3);
  for (const std::size_t l : {1u, 3u}) EXPECT_EQ(constant_of(launches[l], "kEarly"), 1);
}

/// But for there being few columns, for which blocks are smaller.
TEST(PairSumsTemplates, LengthsAreNoPartOfTheKey) {
  for (const auto& [one, other] : {std::pair(600, 4000), std::pair(100, 300)}) {
    Gradient a(DType::BFloat16, one, 64, 64), b(DType::BFloat16, other, 64, 64);
    const auto x = a.lowered(90), y = b.lowered(90);
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(kernel::hash(x[i].kernel), kernel::hash(y[i].kernel));
  }
}

/// No value is spilled, nothing is called (as a division of 64 bits is), and no product of Hopper waits for
/// another.
TEST(PairSumsTemplates, NothingIsSpilledCalledOrSerialized) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  struct Case {
    std::int64_t depth, width;
    DType type;
    int architecture;
  };
  for (const std::int64_t length : {300, 1030})
    for (const Case& c : {Case{128, 128, DType::BFloat16, 90}, Case{64, 64, DType::Float16, 90},
                          Case{128, 128, DType::Float16, 80}, Case{32, 32, DType::BFloat16, 86},
                          Case{256, 256, DType::BFloat16, 90}, Case{192, 80, DType::BFloat16, 100}}) {
      if (length > 300 && c.architecture != 90) continue;  // the same kernels
      SCOPED_TRACE(::testing::Message()
                   << c.depth << " " << c.width << " sm_" << c.architecture << " " << length);
      Gradient b(c.type, length, c.depth, c.width);
      for (const lower::Lowered& l : b.lowered(c.architecture)) {
        cuda::CompileOptions options;
        options.fmad = false;
        options.extra = {"--ptxas-options=-v"};
        const bool specific = l.kernel.main_loop->name == "pair_sums_wgmma";
        const cuda::Arch arch{c.architecture / 10, c.architecture % 10, specific};
        const auto compiled = cuda::compile(emit_cuda(l.kernel, "kiln_test"), "kiln_test", arch, options);
        const std::string& log = compiled.log;
        EXPECT_NE(log.find("Used"), std::string::npos) << log;
        EXPECT_TRUE(log.find("spill") == std::string::npos ||
                    log.find(" 0 bytes spill stores") != std::string::npos)
            << log.substr(log.find("ptxas info"));
        EXPECT_EQ(log.find("Potential Performance Loss"), std::string::npos)
            << log.substr(log.find("ptxas info"));
        const auto* const image = reinterpret_cast<const char*>(compiled.image.data());
        EXPECT_EQ(std::string_view(image, compiled.image.size()).find("__internal"), std::string_view::npos)
            << "a routine of the assembler's is called";
      }
    }
}

}  // namespace
}  // namespace kiln::codegen
