// Marks: what they say, and that text without them is the text that is compiled.
#include "kernel/marks.h"

#include "device/device.h"
#include "engine/plan.h"
#include "ir/graph_builder.h"
#include "lower/lower.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace kiln {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using kernel::Mark;

TEST(Marks, StandWhereTheyWerePut) {
  const Mark sum{Mark::Of::Expression, 12}, store{Mark::Of::Store, 3};
  const std::string text =
      "a = " + kernel::word_of(sum) + "b + c;" + kernel::word_of(store) + kernel::word_of(store) + "\n}\n";
  EXPECT_EQ(kernel::shown_length(text), std::string("a = b + c;\n}\n").size());
  const kernel::Unmarked out = kernel::unmark(text);
  EXPECT_EQ(out.text, "a = b + c;\n}\n");
  ASSERT_EQ(out.lines.size(), 2u);
  EXPECT_EQ(out.lines[0], (std::vector<Mark>{sum, store}));
  EXPECT_TRUE(out.lines[1].empty());
}

TEST(Marks, ComeToAssemblyByItsLocations) {
  const std::string text =
      "\t.file\t1 \"kernel\"\nf:\n\tpush\n\t.loc\t1 13 0 # kernel:13:0\n\tadd\n.Ltmp0:\n\t.loc\t1 0 0\n"
      "\tret\n\t.loc 1 7 2, function_name $L, inlined_at 1 4 1\n\tmul\n\t.section\t.debug_line\n\t.byte 1\n"
      "\t.section\t.note\n\tend\n";
  const auto of = [](std::uint32_t line, std::uint32_t column) {
    return std::vector<Mark>{{column == 0 ? Mark::Of::Expression : Mark::Of::Store, line}};
  };
  const kernel::Unmarked out = kernel::unmark(kernel::mark_assembly(text, of));
  EXPECT_EQ(out.text, "f:\n\tpush\n\tadd\n\tret\n\tmul\n\t.section\t.note\n\tend\n");
  ASSERT_EQ(out.lines.size(), 7u);
  EXPECT_TRUE(out.lines[1].empty());
  EXPECT_EQ(out.lines[2], (std::vector<Mark>{{Mark::Of::Expression, 13}}));
  EXPECT_TRUE(out.lines[3].empty());
  EXPECT_EQ(out.lines[4], (std::vector<Mark>{{Mark::Of::Store, 4}}));
}

/// Maps, a softmax, a reduction of columns, a scan, a transposition and a product's epilogue.
std::vector<GraphBuilder> programs() {
  const DType f = DType::Float32;
  std::vector<GraphBuilder> out(5);
  const auto full = [&](GraphBuilder& b) { return b.leaf(f, {64, 1000}); };
  NodeId x = full(out[0]);
  const NodeId e = out[0].op(Op::exp, {out[0].op(Op::subtract, {x, out[0].reduce(Op::reduce_max, x, 2)})});
  out[0].root(out[0].op(Op::divide, {e, out[0].reduce(Op::reduce_sum, e, 2)}));
  x = full(out[1]);
  out[1].root(out[1].reduce(Op::reduce_sum, out[1].op(Op::multiply, {x, x}), 1));
  x = full(out[2]);
  out[2].root(out[2].op(Op::tanh, {out[2].permute(out[2].op(Op::sqrt, {x}), {1, 0})}));
  x = out[3].leaf(DType::Float16, {500});
  out[3].root(out[3].op(Op::less, {out[3].op(Op::lgamma, {x}), x}));
  const NodeId p = out[4].matmul(out[4].leaf(DType::Int32, {64, 32}), out[4].leaf(DType::Int32, {32, 48}));
  out[4].root(out[4].op(Op::relu, {out[4].op(Op::add, {p, out[4].leaf(DType::Int32, {48})})}));
  return out;
}

TEST(Marks, TextWithoutThemIsWhatIsCompiled) {
  std::size_t kernels = 0;
  for (const Device device : {Device::cpu(), Device::null()}) {
    const auto compiler = device::at(device).compiler();
    const schedule::Target& target = engine::planning_target(device);
    for (const GraphBuilder& b : programs()) {
      const plan::Regions regions = plan::fuse(b.graph, target);
      for (const plan::Region& r : regions.regions) {
        if (r.kind != plan::Region::Kind::Fused && r.kind != plan::Region::Kind::Contraction) continue;
        const lower::Lowered l = lower::lower(b.graph, regions, r, target);
        EXPECT_EQ(kernel::unmark(kernel::print_marked(l.kernel)).text, kernel::print(l.kernel));
        if (compiler->stages().empty()) continue;  // a build without compilers
        device::Unit unit{&l.kernel, "kiln_test", 1, nullptr};
        const std::string plain = compiler->source(unit);
        EXPECT_EQ(kernel::unmark(plain).text, plain);
        unit.marked = true;
        const std::string marked = compiler->source(unit);
        EXPECT_GT(marked.size(), plain.size());
        EXPECT_EQ(kernel::unmark(marked).text, plain);
        ++kernels;
      }
    }
    if (!compiler->stages().empty()) {
      EXPECT_GT(kernels, 4u);
    }
  }
}

/// KILN_CHECK=key compares these.
TEST(Fingerprints, TellSourcesApart) {
  for (const Device device : {Device::cpu(), Device::null()}) {
    const auto compiler = device::at(device).compiler();
    if (compiler->stages().empty()) continue;  // a build without compilers
    const schedule::Target& target = engine::planning_target(device);
    std::map<Hash128, std::string> sources;
    std::set<std::string> all;
    for (const GraphBuilder& b : programs()) {
      const plan::Regions regions = plan::fuse(b.graph, target);
      for (const plan::Region& r : regions.regions) {
        if (r.kind != plan::Region::Kind::Fused) continue;
        const lower::Lowered l = lower::lower(b.graph, regions, r, target);
        const device::Unit unit{&l.kernel, "k", 1, nullptr};
        const std::string source = compiler->source(unit);
        const Hash128 print = compiler->fingerprint(unit);
        EXPECT_EQ(print, compiler->fingerprint(unit));
        all.insert(source);
        EXPECT_EQ(sources.try_emplace(print, source).first->second, source);
      }
    }
    EXPECT_GT(all.size(), 3u);
    EXPECT_EQ(sources.size(), all.size());
  }
}

}  // namespace
}  // namespace kiln
