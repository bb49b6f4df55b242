#include "ir/graph.h"

#include "ir/graph_builder.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

namespace kiln::ir {
namespace {

TEST(Graph, KeptExtentsStayWhereTheyAre) {
  Graph g;
  std::vector<Dims> kept;
  for (std::int64_t i = 0; i < 3000; ++i) kept.push_back(g.keep(std::vector<std::int64_t>{i, i + 1, i + 2}));
  const Graph moved = std::move(g);
  for (std::int64_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(kept[static_cast<std::size_t>(i)].size(), 3u);
    ASSERT_EQ(kept[static_cast<std::size_t>(i)][2], i + 2);
  }
  EXPECT_TRUE(Graph().keep({}).empty());
}

TEST(Graph, PrintsOneLineANode) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {4, 8});
  const NodeId y = b.op(Op::multiply, {x, b.scalar(DType::Float32, 0)});
  const NodeId t = b.permute(y, {1, 0});
  const NodeId s = b.slice(t, {4, 4}, {0, 2, 3, -1});
  const NodeId c = b.constant(DType::Float32, 0x3fc00000);
  const NodeId p = b.pad(s, c, {6, 4}, {1, 1, 0, 1});
  b.root(b.reduce(Op::reduce_sum, p, 3));
  EXPECT_EQ(print(b.graph),
            "%0 f32(4, 8) = leaf arg 0\n"
            "%1 f32() = scalar slot 0\n"
            "%2 f32(4, 8) = multiply %0 %1\n"
            "%3 f32(8, 4) = permute %2 axes 1 0\n"
            "%4 f32(4, 4) = slice %3 from 0 step 2, 3 step -1\n"
            "%5 f32() = constant 1.5\n"
            "%6 f32(6, 4) = pad %4 %5 at 1 step 1, 0 step 1\n"
            "%7 f32(1, 1) = reduce_sum %6 over 0 1 held\n"
            "roots %7\n");
  EXPECT_NO_THROW(verify(b.graph));
}

TEST(Graph, PrintsWhereAnAffineViewReads) {
  GraphBuilder b;
  const std::vector<std::int64_t> windows{1, 2, 3}, dims{4, 3, 2};
  const NodeId x = b.leaf(DType::Float32, {4, 8});
  b.root(Builder(b.graph).add(Op::sliding_window, {x}, Windows(windows), {.dims = dims}));
  EXPECT_EQ(print(b.graph),
            "%0 f32(4, 8) = leaf arg 0\n"
            "%1 f32(4, 3, 2) = sliding_window %0 reads [i0, 2*i1 + 3*i2] held\n"
            "roots %1\n");
  EXPECT_NO_THROW(verify(b.graph));
}

TEST(GraphVerify, RefusesWhatMakesNoSense) {
  const auto refused = [](auto&& change) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {4, 8});
    const NodeId y = b.op(Op::multiply, {x, b.scalar(DType::Float32, 0)});           // 2
    const NodeId s = b.slice(b.permute(y, {1, 0}), {4, 4}, {0, 2, 3, -1});           // 3, 4
    const NodeId p = b.pad(s, b.constant(DType::Float32, 0), {6, 4}, {1, 1, 0, 1});  // 5, 6
    b.root(b.reduce(Op::reduce_sum, p, 3));                                          // 7
    verify(b.graph);
    change(b.graph);
    try {
      verify(b.graph);
      return false;
    } catch (const InternalError&) {
      return true;
    }
  };
  EXPECT_TRUE(refused([](Graph& g) { g[2].in[0] = 2; }));
  EXPECT_TRUE(refused([](Graph& g) { g[2].in = {0, 1, 0}; }));
  EXPECT_TRUE(refused([](Graph& g) { g[2].in = {0}; }));
  EXPECT_TRUE(refused([](Graph& g) { g[2].dtype = DType::Float64; }));
  EXPECT_TRUE(refused([](Graph& g) { g[2].numel = 31; }));
  EXPECT_TRUE(refused([](Graph& g) { set_attributes(g[3], Permute{}); }));
  const auto set_box = [](Graph& g, NodeId id, const std::vector<std::int64_t>& box) {
    set_attributes(g, g[id], Box::from({0, box}));
  };
  EXPECT_FALSE(refused([&](Graph& g) { set_box(g, 4, {0, 2, 3, -1}); }));
  EXPECT_TRUE(refused([&](Graph& g) { set_box(g, 4, {0, 2, 2, -1}); }));
  EXPECT_TRUE(refused([&](Graph& g) { set_box(g, 6, {3, 1, 0, 1}); }));
  EXPECT_TRUE(refused([](Graph& g) { set_attributes(g[7], Reduce{1}); }));
  EXPECT_TRUE(refused([](Graph& g) { g[2].attr64 = 1; })) << "an elementwise op has no attributes";
  EXPECT_TRUE(refused([](Graph& g) { g[0].arg = 4; }));
  EXPECT_TRUE(refused([](Graph& g) { g.slots[0] = DType::Int8; }));
  EXPECT_TRUE(refused([](Graph& g) { g.roots.push_back(99); }));
}

TEST(GraphVerify, ChecksElementwiseTypes) {
  const auto ok = [](Op op, DType out, std::initializer_list<DType> in) {
    GraphBuilder b;
    std::vector<NodeId> ids;
    for (DType t : in) ids.push_back(b.leaf(t, {2}));
    const NodeId id = b.wide(op, out, {2}, {});
    b.graph[id].in.assign(ids);
    try {
      verify(b.graph);
      return true;
    } catch (const InternalError&) {
      return false;
    }
  };
  constexpr DType f = DType::Float32, i = DType::Int32, t = DType::Bool;
  EXPECT_TRUE(ok(Op::add, f, {f, f}));
  EXPECT_FALSE(ok(Op::add, f, {f, i}));
  EXPECT_FALSE(ok(Op::add, t, {t, t}));
  EXPECT_TRUE(ok(Op::less, t, {i, i}));
  EXPECT_FALSE(ok(Op::less, i, {i, i}));
  EXPECT_FALSE(ok(Op::exp, i, {i}));
  EXPECT_FALSE(ok(Op::logical_and, t, {i, i}));
  EXPECT_TRUE(ok(Op::where, i, {t, i, i}));
  EXPECT_FALSE(ok(Op::where, i, {i, i, i}));
}

}  // namespace
}  // namespace kiln::ir
