#include "transform/cse.h"

#include "transform/transformed.h"

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f = DType::Float32;

/// Whether two roots become one node.
template <class Build>
bool merges(Build build) {
  GraphBuilder b;
  const auto [x, y] = build(b);
  b.root(x);
  b.root(y);
  const Transformed t = checked_transform(b);
  return t.graph.roots[0] == t.graph.roots[1];
}

TEST(Cse, MergesEqualNodes) {
  EXPECT_TRUE(merges([](GraphBuilder& b) {
    const NodeId x = b.leaf(f, {2, 3});
    return std::pair(b.op(Op::exp, {b.op(Op::negative, {x})}), b.op(Op::exp, {b.op(Op::negative, {x})}));
  }));
  EXPECT_TRUE(merges([](GraphBuilder& b) {
    const NodeId x = b.leaf(f, {4});
    return std::pair(b.slice(x, {2}, {0, 2}), b.slice(x, {2}, {0, 2}));
  }));
}

TEST(Cse, TellsApartWhatDiffers) {
  EXPECT_FALSE(merges([](GraphBuilder& b) { return std::pair(b.leaf(f, {2}), b.leaf(f, {2})); }));
  EXPECT_FALSE(merges([](GraphBuilder& b) { return std::pair(b.scalar(f, 0), b.scalar(f, 0)); }));
  EXPECT_FALSE(merges([](GraphBuilder& b) { return std::pair(b.iota(f, {2, 2}, 0), b.iota(f, {2, 2}, 1)); }));
  EXPECT_FALSE(
      merges([](GraphBuilder& b) { return std::pair(b.constant(f, 1), b.constant(DType::Int32, 1)); }));
  EXPECT_FALSE(merges([](GraphBuilder& b) {
    const NodeId x = b.leaf(f, {2, 3});
    return std::pair(b.reshape(x, {3, 2}), b.reshape(x, {6, 1}));
  }));
  EXPECT_FALSE(merges([](GraphBuilder& b) {
    const NodeId x = b.leaf(f, {4});
    return std::pair(b.slice(x, {2}, {0, 1}), b.slice(x, {2}, {1, 1}));
  }));
  EXPECT_FALSE(merges([](GraphBuilder& b) {
    const NodeId x = b.leaf(f, {4});
    return std::pair(b.cast(x, DType::Int8), b.cast(x, DType::Int16));
  }));
}

TEST(Cse, SwapsOperandsOnlyWhereTheBitsStay) {
  const auto swapped = [](Op op, DType type) {
    return merges([&](GraphBuilder& b) {
      const NodeId x = b.leaf(type, {4}), y = b.leaf(type, {4});
      return std::pair(b.op(op, {x, y}), b.op(op, {y, x}));
    });
  };
  EXPECT_TRUE(swapped(Op::add, f));
  EXPECT_TRUE(swapped(Op::multiply, DType::Int32));
  EXPECT_TRUE(swapped(Op::maximum, DType::Int32));
  EXPECT_FALSE(swapped(Op::maximum, f));
  EXPECT_FALSE(swapped(Op::subtract, f));
  EXPECT_FALSE(swapped(Op::less, f));
}

TEST(Cse, KeepsAHeldNodeHeld) {
  GraphBuilder b;
  const NodeId x = b.leaf(f, {4});
  const NodeId first = b.op(Op::exp, {x}), second = b.op(Op::exp, {x});
  b.graph[second].held = true;
  b.root(b.op(Op::negative, {second}));
  const Transformed t = checked_transform(b);
  EXPECT_EQ(t.now[first], t.now[second]);
  EXPECT_TRUE(t.graph[t.now[second]].held);
}

}  // namespace
}  // namespace kiln::transform
