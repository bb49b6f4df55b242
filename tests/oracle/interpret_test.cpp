// The oracle on hand-made graphs, against values worked out by hand.
#include "oracle/interpret.h"

#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace kiln::ir {
namespace {

template <class T>
std::vector<T> as(const std::vector<std::byte>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// The single root's values.
template <class T>
std::vector<T> values(GraphBuilder& b, NodeId root) {
  b.root(root);
  verify(b.graph);
  return as<T>(b.values().back());
}

using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;

// An int32 leaf holds 1, -2, 3, -4, 5, -6, …
TEST(Interpret, Views) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {2, 3});
  EXPECT_EQ(values<std::int32_t>(b, x), (Ints{1, -2, 3, -4, 5, -6}));
  EXPECT_EQ(values<std::int32_t>(b, b.permute(x, {1, 0})), (Ints{1, -4, -2, 5, 3, -6}));
  EXPECT_EQ(values<std::int32_t>(b, b.reshape(b.permute(x, {1, 0}), {2, 3})), (Ints{1, -4, -2, 5, 3, -6}));
  EXPECT_EQ(values<std::int32_t>(b, b.slice(x, {2, 2}, {1, -1, 2, -2})), (Ints{-6, -4, 3, 1}));
  EXPECT_EQ(values<std::int32_t>(b, b.broadcast(b.slice(x, {1, 3}, {1, 1, 0, 1}), {2, 2, 3})),
            (Ints{-4, 5, -6, -4, 5, -6, -4, 5, -6, -4, 5, -6}));
  EXPECT_EQ(values<std::int32_t>(b, b.slice(x, {0, 3}, {2, 1, 0, 1})), Ints{});
}

TEST(Interpret, PadPlacesTheBodyOverTheFill) {
  GraphBuilder b;
  const NodeId body = b.leaf(DType::Int32, {2});
  const NodeId fill = b.iota(DType::Int32, {5}, 0);
  EXPECT_EQ(values<std::int32_t>(b, b.pad(body, fill, {5}, {1, 2})), (Ints{0, 1, 2, -2, 4}));
  EXPECT_EQ(values<std::int32_t>(b, b.pad(body, b.scalar(DType::Int32, 7), {3}, {1, 1})), (Ints{7, 1, -2}));
  EXPECT_EQ(values<std::int32_t>(b, fill), (Ints{0, 1, 2, 3, 4})) << "the fill itself is unchanged";
}

TEST(Interpret, StridedLeaves) {
  const std::int32_t memory[] = {0, 1, 2, 3, 4, 5};
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {3, 2});
  b.graph.args[0].strides = b.graph.keep(std::vector<std::int64_t>{1, 3});  // the transpose of (2, 3)
  const NodeId y = b.op(Op::add, {x, b.scalar(DType::Int32, 10)});
  b.root(y);
  const ArgData args[] = {{reinterpret_cast<const std::byte*>(memory)}};
  EXPECT_EQ(as<std::int32_t>(interpret(b.graph, args, b.slots)[0]), (Ints{10, 13, 11, 14, 12, 15}));
}

TEST(Interpret, ElementwiseBroadcastsItsOperands) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {2, 3});
  const NodeId row = b.iota(DType::Int32, {3}, 0);
  EXPECT_EQ(values<std::int32_t>(b, b.op(Op::multiply, {x, row})), (Ints{0, -2, 6, 0, 5, -12}));
  const NodeId positive = b.op(Op::greater, {x, b.scalar(DType::Int32, 0)});
  EXPECT_EQ(values<std::int32_t>(b, b.wide(Op::where, DType::Int32, {2, 3}, {positive, x, row})),
            (Ints{1, 1, 3, 0, 5, 2}));
  EXPECT_EQ(values<std::int32_t>(b, b.op(Op::add, {b.scalar(DType::Int32, 2), b.scalar(DType::Int32, 3)})),
            Ints{5});
}

TEST(Interpret, LongRunsCrossBlocks) {
  GraphBuilder b;
  const NodeId i = b.iota(DType::Float32, {7, 301}, 1), j = b.iota(DType::Float32, {7, 1}, 0);
  const Floats sums = values<float>(b, b.op(Op::add, {i, j}));
  ASSERT_EQ(sums.size(), 7u * 301);
  for (std::size_t k = 0; k < sums.size(); ++k) ASSERT_EQ(sums[k], static_cast<float>(k % 301 + k / 301));
}

TEST(Interpret, Reductions) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {2, 3});  // 1 -2 3 / -4 5 -6
  EXPECT_EQ(values<std::int32_t>(b, b.reduce(Op::reduce_sum, x, 1)), (Ints{-3, 3, -3}));
  EXPECT_EQ(values<std::int32_t>(b, b.reduce(Op::reduce_prod, x, 2)), (Ints{-6, 120}));
  EXPECT_EQ(values<std::int32_t>(b, b.reduce(Op::reduce_max, x, 3)), Ints{5});
  EXPECT_EQ(values<std::int32_t>(b, b.reduce(Op::reduce_min, x, 2)), (Ints{-2, -6}));
  EXPECT_EQ(values<std::int64_t>(b, b.reduce(Op::reduce_argmax, x, 3)), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(values<std::int64_t>(b, b.reduce(Op::reduce_argmin, x, 1)), (std::vector<std::int64_t>{1, 0, 1}));
  const NodeId none = b.leaf(DType::Bool, {2, 0});
  EXPECT_EQ(as<std::uint8_t>((values<std::byte>(b, b.reduce(Op::reduce_max, none, 2)))),
            (std::vector<std::uint8_t>{0, 0}));
  EXPECT_EQ(as<std::uint8_t>((values<std::byte>(b, b.reduce(Op::reduce_min, none, 2)))),
            (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(values<float>(b, b.reduce(Op::reduce_prod, b.leaf(DType::Float32, {0}), 1)), Floats{1});
}

TEST(Interpret, SumsAreBetterThanTheirType) {
  GraphBuilder b;
  const NodeId tenth = b.scalar(DType::Float32, 0x3dcccccd);
  const NodeId many = b.broadcast(tenth, {100000});
  EXPECT_EQ(values<float>(b, b.reduce(Op::reduce_sum, many, 1)),
            Floats{static_cast<float>(100000 * static_cast<double>(0.1f))});
}

TEST(Interpret, Matmul) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {2, 2, 3});  // 1 -2 3 / -4 5 -6 // 7 -8 9 / -10 11 -12
  const NodeId y = b.permute(b.leaf(DType::Int32, {2, 2, 3}), {0, 2, 1});
  EXPECT_EQ(values<std::int32_t>(b, b.matmul(x, y)), (Ints{14, -32, -32, 77, 194, -266, -266, 365}));
  const NodeId empty = b.matmul(b.leaf(DType::Float32, {2, 0}), b.leaf(DType::Float32, {0, 1}));
  EXPECT_EQ(values<float>(b, empty), (Floats{0, 0}));
}

TEST(Interpret, CastsRoundOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {4});  // 0.5 -1.5 2.5 -3.5
  EXPECT_EQ(values<std::int8_t>(b, b.cast(x, DType::Int8)), (std::vector<std::int8_t>{0, -1, 2, -3}));
  EXPECT_EQ(values<std::uint8_t>(b, b.cast(x, DType::UInt8)), (std::vector<std::uint8_t>{0, 0, 2, 0}));
  EXPECT_EQ(values<double>(b, b.cast(x, DType::Float64)), (std::vector<double>{0.5, -1.5, 2.5, -3.5}));
}

TEST(Interpret, SharedNodesLiveUntilTheirLastUse) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {2});  // 0.5 -1.5
  const NodeId twice = b.op(Op::add, {x, x});
  const NodeId square = b.op(Op::multiply, {twice, twice});
  b.root(twice);
  b.root(square);
  b.root(b.op(Op::subtract, {square, twice}));
  const auto out = b.values();
  EXPECT_EQ(as<float>(out[0]), (Floats{1, -3}));
  EXPECT_EQ(as<float>(out[1]), (Floats{1, 9}));
  EXPECT_EQ(as<float>(out[2]), (Floats{0, 12}));
}

}  // namespace
}  // namespace kiln::ir
