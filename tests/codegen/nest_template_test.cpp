// The main loop of nests over pairs: which nests it takes, and what the assembler says of its tiles.
#include "codegen/cuda/cuda_c.h"
#include "device/cuda/nvrtc.h"
#include "ir/graph_builder.h"
#include "lower/lower.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// The only kernel of a graph, where one is worth anything.
lower::Lowered lower_alone(const plan::Graph& graph, int architecture, bool exact) {
  schedule::Target target;
  target.gpu = true;
  target.exact = exact;
  target.threads = 132;
  target.architecture = architecture;
  target.launch_ns = 1e9;
  target.templates =
      architecture >= 80 ? schedule::Target::Templates::Few : schedule::Target::Templates::None;
  const plan::Regions regions = plan::fuse(graph, target);
  EXPECT_EQ(regions.regions.size(), 1u);
  return lower::lower(graph, regions, regions.regions[0], target);
}

/// The position of the least sum over k of |x[i, k] - y[j, k]|, of each i.
struct Nearest : GraphBuilder {
  Nearest(std::int64_t rows, std::int64_t terms, std::int64_t columns, DType type = DType::Float32) {
    const auto wide = [&](NodeId x) { return is_half(type) ? cast(x, DType::Float32) : x; };
    const NodeId x = wide(leaf(type, {rows, 1, terms})), y = wide(leaf(type, {1, columns, terms}));
    const NodeId sums = reduce(Op::reduce_sum, op(Op::abs, {op(Op::subtract, {x, y})}), 4);
    root(reduce(Op::reduce_argmin, sums, 2));
  }

  lower::Lowered lowered(int architecture = 90, bool exact = false) {
    return lower_alone(graph, architecture, exact);
  }
};

/// The sums over k of |x[i, k] - y[j, k]| themselves.
struct Distances : GraphBuilder {
  Distances(std::int64_t rows, std::int64_t terms, std::int64_t columns, DType type = DType::Float32) {
    const auto wide = [&](NodeId x) { return is_half(type) ? cast(x, DType::Float32) : x; };
    const NodeId x = wide(leaf(type, {rows, 1, terms})), y = wide(leaf(type, {1, columns, terms}));
    const NodeId sums = reduce(Op::reduce_sum, op(Op::abs, {op(Op::subtract, {x, y})}), 4);
    root(is_half(type) ? cast(sums, type) : sums);
  }
  lower::Lowered lowered(int architecture = 90) { return lower_alone(graph, architecture, false); }
};

/// Mean and greatest of the sums over k of x[i, k] * y[j, k], of each i.
struct MeanAndMost : GraphBuilder {
  MeanAndMost(std::int64_t rows, std::int64_t terms, std::int64_t columns) {
    const NodeId x = leaf(DType::Float32, {rows, 1, terms}), y = leaf(DType::Float32, {1, columns, terms});
    const NodeId sums = reduce(Op::reduce_sum, op(Op::multiply, {x, y}), 4);
    root(reduce(Op::reduce_sum, sums, 2));
    root(reduce(Op::reduce_max, sums, 2));
  }
};

std::int64_t constant_of(const lower::Lowered& l, const std::string& name) {
  for (const kernel::Constant& c : l.kernel.main_loop->config)
    if (c.name == name) return c.value;
  return -1;
}

TEST(NestTemplates, NestsOverPairsOfEnoughRows) {
  const lower::Lowered l = Nearest(1 << 16, 40, 1000).lowered();
  kernel::verify(l.kernel);
  ASSERT_TRUE(l.kernel.main_loop);
  EXPECT_EQ(l.kernel.main_loop->name, "nest_pairs");
  EXPECT_EQ(l.finish_grid == 0, l.shape->grid[0] == l.grid);
  EXPECT_FALSE(Nearest(64, 40, 1000).lowered().kernel.main_loop) << "few multiprocessors would have work";
  EXPECT_FALSE(Nearest(1 << 16, 40, 8).lowered().kernel.main_loop) << "tiles have more columns";
  EXPECT_FALSE(Nearest(1 << 16, 40, 1000).lowered(75).kernel.main_loop);
  EXPECT_FALSE(Nearest(1 << 16, 40, 1000).lowered(90, true).kernel.main_loop) << "another order of additions";
}

TEST(NestTemplates, TilesAreAsWideAsRowsFill) {
  for (const auto& [columns, wide] :
       {std::pair{16, 16}, {33, 36}, {40, 40}, {100, 112}, {128, 128}, {5003, 128}})
    EXPECT_EQ(constant_of(Nearest(1 << 16, 40, columns).lowered(), "kColumns"), wide) << columns;
  const lower::Lowered few = Nearest(300, 40, 1 << 15).lowered();
  EXPECT_GT(few.shape->grid[0], few.grid) << "columns are dealt to blocks";
  EXPECT_EQ(few.finish_grid, few.grid);
}

TEST(NestTemplates, RowsOfFewStepsAreAThreadsAlone) {
  const auto name = [](std::int64_t rows, std::int64_t terms, std::int64_t columns,
                       DType type = DType::Float32) {
    const lower::Lowered l = Nearest(rows, terms, columns, type).lowered();
    kernel::verify(l.kernel);
    return l.kernel.main_loop ? l.kernel.main_loop->name : "";
  };
  EXPECT_EQ(name(1 << 18, 8, 100), "nest_short");
  EXPECT_EQ(name(1 << 18, 3, 16, DType::BFloat16), "nest_short");
  EXPECT_EQ(name(1 << 18, 9, 100), "nest_pairs") << "more steps than registers have x for";
  EXPECT_EQ(name(1 << 14, 8, 4096), "nest_pairs") << "too few rows for all multiprocessors";
  EXPECT_EQ(name(1 << 18, 8, 100, DType::Float64), "nest_pairs");
}

TEST(NestTemplates, ResultsOfPairsAreStored) {
  const lower::Lowered l = Distances(1 << 16, 40, 1000).lowered();
  kernel::verify(l.kernel);
  ASSERT_TRUE(l.kernel.main_loop);
  EXPECT_EQ(l.kernel.main_loop->name, "nest_stored");
  EXPECT_EQ(l.finish_grid, 0);
  EXPECT_EQ(constant_of(l, "kStore"), 4);
  EXPECT_EQ(constant_of(Distances(1 << 16, 40, 1001).lowered(), "kStore"), 1) << "rows begin anywhere";
  EXPECT_EQ(constant_of(Distances(1 << 16, 40, 100).lowered(), "kStore"), 1) << "a thread has strips";
  EXPECT_FALSE(Distances(64, 40, 1000).lowered().kernel.main_loop);
  EXPECT_FALSE(Distances(1 << 16, 40, 8).lowered().kernel.main_loop);
  EXPECT_FALSE(Distances(1 << 16, 2, 1000).lowered().kernel.main_loop);
  EXPECT_FALSE(Distances(1 << 16, 40, 1000).lowered(75).kernel.main_loop);
}

TEST(NestTemplates, ResultsThatAreStoredOneByOneLieAlongWarps) {
  const lower::Lowered l = Distances(1 << 16, 40, 1001).lowered();
  ASSERT_TRUE(l.kernel.main_loop);
  EXPECT_EQ(constant_of(l, "kColumns") / constant_of(l, "kEachN"), 32);
  EXPECT_EQ(constant_of(Distances(1 << 16, 40, 33).lowered(), "kColumns"), 36) << "most lanes would be idle";
}

/// Neither would pay alone: the values of pairs would still be stored for the other.
TEST(NestTemplates, ReductionsOfTheSamePairsAreOneNest) {
  for (const auto& [rows, terms, columns] : {std::tuple{1 << 18, 8, 33}, {166, 8, 50257}}) {
    const lower::Lowered l = lower_alone(MeanAndMost(rows, terms, columns).graph, 90, false);
    kernel::verify(l.kernel);
    ASSERT_TRUE(l.kernel.main_loop) << rows;
    EXPECT_EQ(constant_of(l, "kReductions"), 2);
  }
}

/// A hook that made floats of halves would wait for them, before the steps at hand are combined.
TEST(NestTemplates, HalvesAreKeptAsTheyAreLoaded) {
  for (const DType type : {DType::Float32, DType::Float16, DType::BFloat16}) {
    const lower::Lowered l = Nearest(1 << 16, 40, 1000, type).lowered();
    kernel::verify(l.kernel);
    for (const std::size_t side : {0, 1})
      EXPECT_EQ(l.kernel.buffers[l.kernel.main_loop->hooks[side].buffers[0]].dtype, type);
  }
}

TEST(NestTemplates, SizesAreNoPartOfTheKey) {
  const Hash128 key = kernel::hash(Nearest(1 << 16, 40, 1024).lowered().kernel);
  EXPECT_EQ(key, kernel::hash(Nearest(1 << 16, 56, 4096).lowered().kernel));
  EXPECT_NE(key, kernel::hash(Nearest(1 << 16, 70, 1024).lowered().kernel)) << "sums of parts";
}

/// Threads along columns deal the totals of eight rows among them: eight exchanges of two words, not 32; a
/// thread that has rows alone exchanges nothing.
TEST(NestTemplates, ThreadsFinishRowsOfTheirOwn) {
  if (!cuda::nvrtc().available || cuda::nvrtc().library.find("fake") != std::string::npos)
    GTEST_SKIP() << cuda::nvrtc().reason;
  const auto exchanges = [](std::int64_t terms) {
    cuda::CompileOptions options;
    options.fmad = false;
    const lower::Lowered l = Nearest(1 << 18, terms, 1000).lowered();
    const std::string text =
        cuda::ptx_text(emit_cuda(l.kernel, "kiln_test"), "kiln_test", cuda::Arch{9, 0}, options);
    std::ptrdiff_t n = 0;
    for (std::size_t at = text.find("shfl"); at != text.npos; at = text.find("shfl", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(exchanges(40), 16 + 2) << "two threads combine what the parts of a row have";
  EXPECT_EQ(exchanges(8), 0);
}

/// Sums stay in registers: what the assembler spills is a few addresses around loops.
TEST(NestTemplates, TilesFitRegisters) {
  if (!cuda::nvrtc().available || cuda::nvrtc().library.find("fake") != std::string::npos)
    GTEST_SKIP() << cuda::nvrtc().reason;
  for (const auto& [columns, terms] : {std::pair{16, 40},
                                       {33, 40},
                                       {40, 40},
                                       {64, 40},
                                       {100, 70},
                                       {32, 40},
                                       {1000, 40},
                                       {1000, 70},
                                       {100, 8}}) {
    SCOPED_TRACE(::testing::Message() << columns << " columns, " << terms << " terms");
    for (const lower::Lowered& l : {Nearest(1 << 18, terms, columns, DType::BFloat16).lowered(),
                                    Distances(1 << 16, terms, columns, DType::BFloat16).lowered()}) {
      cuda::CompileOptions options;
      options.fmad = false;
      options.extra = {"--ptxas-options=-v"};
      const std::string log =
          cuda::compile(emit_cuda(l.kernel, "kiln_test"), "kiln_test", cuda::Arch{9, 0}, options).log;
      const std::size_t end = log.find(" bytes spill stores");
      ASSERT_NE(end, std::string::npos) << log;
      EXPECT_LE(std::stoi(log.substr(log.rfind(' ', end - 1))), 128) << log;
    }
  }
}

}  // namespace
}  // namespace kiln::codegen
