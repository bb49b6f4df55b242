// Maps of a GPU that join two halves made of the same operands, held against the oracle: a point of the
// kernel is one of each half.
#include "lower/gpu_target.h"
#include "lower/lower.h"
#include "lower/lowered_graph.h"
#include "plan/joined_halves.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using Extents = GraphBuilder::Extents;

/// One of two halves of the last axis.
NodeId half(GraphBuilder& b, NodeId x, bool second) {
  Extents dims = b.extents(x), box;
  dims.back() /= 2;
  for (std::size_t a = 0; a < dims.size(); ++a)
    box.insert(box.end(), {second && a + 1 == dims.size() ? dims.back() : 0, 1});
  return b.slice(x, dims, box);
}

/// Pairs of numbers turned by angles that all heads share.
NodeId rotation(GraphBuilder& b, DType type, std::int64_t rows, std::int64_t heads, std::int64_t of_half) {
  const NodeId x = b.leaf(type, {rows, heads, 2 * of_half});
  const auto spread = [&] { return b.broadcast(b.leaf(type, {rows, 1, of_half}), {rows, heads, of_half}); };
  const NodeId c = spread(), s = spread(), first = half(b, x, false), second = half(b, x, true);
  const auto times = [&](NodeId p, NodeId q) { return b.op(Op::multiply, {p, q}); };
  return b.add(Op::join,
               {b.op(Op::subtract, {times(first, c), times(second, s)}),
                b.op(Op::add, {times(second, c), times(first, s)})},
               ir::Join{2});
}

std::size_t buffers_read(const std::string& text) {
  std::size_t count = 0;
  while (text.find(cat("in", count, ": ")) != std::string::npos) ++count;
  return count;
}

TEST(Halves, OfARotationAreReadOnce) {
  for (const DType type : {DType::Int16, DType::Float32, DType::Float64})
    for (const std::int64_t of_half : {1, 2, 3, 8, 40})
      for (const std::int64_t heads : {3, 4}) {
        SCOPED_TRACE(testing::Message() << kiln::name(type) << ' ' << of_half << ' ' << heads);
        GraphBuilder b;
        b.root(rotation(b, type, 37, heads, of_half));
        const LoweredGraph lowered = checked(b, {gpu_target()}).front();
        EXPECT_EQ(buffers_read(lowered.text()), 4) << lowered.text();
        EXPECT_EQ(lowered.text().find(" if "), std::string::npos) << lowered.text();
      }
}

/// x cos + (-second, first) sin, with factors of a whole row, and another result beside it.
TEST(Halves, ThatAreTurnedInsideOfASum) {
  for (const std::int64_t of_half : {2, 16}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Float32, {50, 3, 2 * of_half});
    const auto factors = [&] {
      return b.broadcast(b.leaf(DType::Float32, {50, 1, 2 * of_half}), {50, 3, 2 * of_half});
    };
    const NodeId turned =
        b.add(Op::join, {b.op(Op::negative, {half(b, x, true)}), half(b, x, false)}, ir::Join{2});
    const NodeId sum =
        b.op(Op::add, {b.op(Op::multiply, {x, factors()}), b.op(Op::multiply, {turned, factors()})});
    b.root(sum);
    b.root(b.op(Op::abs, {sum}));
    const LoweredGraph lowered = checked(b, {gpu_target()}).front();
    EXPECT_EQ(lowered.text().find(" if "), std::string::npos) << lowered.text();
  }
}

/// Halves of different operands are read but once anyway.
TEST(Halves, OfDifferentOperandsStayApart) {
  GraphBuilder b;
  b.root(
      b.add(Op::join, {b.leaf(DType::Float32, {64, 128}), b.leaf(DType::Float32, {64, 128})}, ir::Join{1}));
  const LoweredGraph lowered = checked(b, {gpu_target()}).front();
  EXPECT_NE(lowered.text().find(" if "), std::string::npos) << lowered.text();
}

/// Rows of no points are not divided by how far apart halves are.
TEST(Halves, OfNothing) {
  GraphBuilder b;
  const auto part = [&] { return b.leaf(DType::Float32, {2, 2, 0, 1, 9}); };
  b.root(b.add(Op::join, {part(), part()}, ir::Join{3}));
  plan::Regions regions;
  plan::Region& r = regions.regions.emplace_back();
  r.nodes = r.outputs = {b.graph.roots[0]};
  regions.stored.assign(b.graph.nodes.size(), false);
  plan::join_halves(b.graph, gpu_target(), regions,
                    [&](const plan::Region& region) { return shares_halves(b.graph, regions, region); });
  EXPECT_EQ(r.partner, 0);
}

}  // namespace
}  // namespace kiln::lower
