// Where affine views read their operands.
#include "ir/view_map.h"

#include "ir/graph_builder.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

namespace kiln::ir {
namespace {

using Extents = std::vector<std::int64_t>;
using Terms = std::vector<ViewMap::Term>;

ViewMap map_in(const GraphBuilder& b, NodeId view) {
  return view_map(b.graph[view], b.graph[b.graph[view].in[0]].dims);
}

TEST(ViewMap, OfEachAffineView) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {4, 1, 8});
  const ViewMap turned = map_in(b, b.permute(x, {2, 0, 1}));
  EXPECT_EQ(turned.first, (Extents{0, 0, 0}));
  EXPECT_EQ(turned.terms, (Terms{{2, 0, 1}, {0, 1, 1}, {1, 2, 1}}));
  const ViewMap repeated = map_in(b, b.broadcast(x, {2, 4, 3, 8}));
  EXPECT_EQ(repeated.terms, (Terms{{0, 1, 1}, {2, 3, 1}}));
  const ViewMap cut = map_in(b, b.slice(x, {2, 1, 3}, {3, -2, 0, 1, 1, 2}));
  EXPECT_EQ(cut.first, (Extents{3, 0, 1}));
  EXPECT_EQ(cut.terms, (Terms{{0, 0, -2}, {1, 1, 1}, {2, 2, 2}}));
  const Extents words{2, 3, 2}, dims{4, 1, 2, 3};
  const ViewMap windows =
      map_in(b, Builder(b.graph).add(Op::sliding_window, {x}, Windows(words), {.dims = dims}));
  EXPECT_EQ(windows.first, (Extents{0, 0, 0}));
  EXPECT_EQ(windows.terms, (Terms{{0, 0, 1}, {1, 1, 1}, {2, 2, 3}, {2, 3, 2}}));
  EXPECT_THROW(map_in(b, b.reshape(x, {32})), InternalError);
}

TEST(ViewMap, TellsWhetherItChangesAnything) {
  const Extents dims{3, 1, 0};
  EXPECT_TRUE((ViewMap{{0, 0, 0}, {{0, 0, 1}, {1, 1, 1}, {2, 2, 1}}}).is_identity(dims));
  EXPECT_TRUE(
      (ViewMap{{0, 0, 7}, {{0, 0, 1}, {2, 1, 1}, {1, 2, 5}}}).is_identity(dims));  // of one element, or none
  EXPECT_FALSE((ViewMap{{1, 0, 0}, {{0, 0, 1}, {1, 1, 1}, {2, 2, 1}}}).is_identity(dims));
  EXPECT_FALSE((ViewMap{{0, 0, 0}, {{0, 0, -1}, {1, 1, 1}, {2, 2, 1}}}).is_identity(dims));
  EXPECT_FALSE((ViewMap{{0, 0, 0}, {{1, 1, 1}, {2, 2, 1}}}).is_identity(dims));  // the first axis repeats
  EXPECT_FALSE((ViewMap{{0, 0}, {{0, 1, 1}, {1, 0, 1}}}).is_identity(Extents{3, 3}));
}

TEST(ViewMap, StaysInsideItsOperand) {
  const ViewMap windows{{0}, {{0, 0, 2}, {0, 1, 3}}};
  EXPECT_TRUE(windows.stays_inside(Extents{8}, Extents{3, 2}));
  EXPECT_FALSE(windows.stays_inside(Extents{7}, Extents{3, 2}));
  EXPECT_TRUE(windows.stays_inside(Extents{1}, Extents{0, 9}));
  const ViewMap back{{3}, {{0, 0, -1}}};
  EXPECT_TRUE(back.stays_inside(Extents{4}, Extents{4}));
  EXPECT_FALSE(back.stays_inside(Extents{4}, Extents{5}));
  EXPECT_FALSE(back.stays_inside(Extents{3}, Extents{1}));
}

}  // namespace
}  // namespace kiln::ir
