#include "transform/take_extremes.h"

#include "ir/graph_builder.h"
#include "transform/dce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// Elements and positions of the first `kept` of a row, from the greatest on or from the least.
void order(GraphBuilder& b, DType type, std::int64_t kept, bool descending) {
  const NodeId x = b.leaf(type, {6, 50});
  const NodeId both = b.add(Op::sort_with_positions, {x}, ir::Sort{1, descending}, {.dims = Shape{6, kept}});
  for (const std::size_t i : {0, 1})
    b.root(b.add(Op::part, {both}, ir::Part{i},
                 {.dtype = i == 0 ? type : DType::Int64, .dims = Shape{6, kept}}));
}

std::int64_t count(const GraphBuilder& b, Op op) {
  return std::ranges::count_if(b.graph.nodes, [&](const auto& n) { return n.op == op; });
}

TEST(TakeExtremes, TheGreatestIsAReduction) {
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Int8}) {
    GraphBuilder b;
    order(b, type, 1, true);
    const auto expected = b.values();
    take_extremes(b.graph);
    ir::verify(b.graph);
    EXPECT_EQ(count(b, Op::reduce_max), is_float(type) ? 0 : 1);
    EXPECT_EQ(count(b, Op::gather), is_float(type) ? 1 : 0);
    EXPECT_EQ(count(b, Op::reduce_argmax), 1);
    EXPECT_EQ(count(b, Op::part), 0);
    EXPECT_EQ(b.values(), expected);
  }
}

/// A position that a handle holds stays held, though the values had it made.
TEST(TakeExtremes, PositionsStayHeld) {
  GraphBuilder b;
  order(b, DType::Float32, 1, true);
  const NodeId before = b.graph.roots[1];
  b.graph[before].held = true;
  const Renumbering now = take_extremes(b.graph);
  EXPECT_TRUE(b.graph[now[before]].held);
}

/// The least leaves NaN out, which a reduction does not; more than one are an order.
TEST(TakeExtremes, TheLeastAndSeveralAreSorted) {
  for (const auto& [kept, descending] : {std::pair{1, false}, std::pair{2, true}}) {
    GraphBuilder b;
    order(b, DType::Float32, kept, descending);
    take_extremes(b.graph);
    EXPECT_EQ(count(b, Op::part), 2);
  }
}

/// The first two of a row, and where they were, of what a map makes of x.
void order_two(GraphBuilder& b, NodeId x, bool made) {
  if (made) x = b.op(Op::negative, {x});
  const std::int64_t rows = b.extents(x)[0];
  const NodeId both = b.add(Op::sort_with_positions, {x}, ir::Sort{1, true}, {.dims = Shape{rows, 2}});
  for (const std::size_t i : {0, 1})
    b.root(b.add(Op::part, {both}, ir::Part{i},
                 {.dtype = i == 0 ? b.graph[x].dtype : DType::Int64, .dims = Shape{rows, 2}}));
}

TEST(TakeExtremes, TheGreatestTwoOfWhatMapsMakeAreReductions) {
  for (const DType type : {DType::Float64, DType::Float32, DType::Float16, DType::Int8, DType::Int64}) {
    GraphBuilder b;
    order_two(b, b.leaf(type, {6, 50}), true);
    const auto expected = b.values();
    take_extremes(b.graph, {.seconds = true});
    ir::verify(b.graph);
    EXPECT_EQ(count(b, Op::reduce_argmax), 2);
    EXPECT_EQ(count(b, Op::part), 0);
    EXPECT_EQ(b.values(), expected) << name(type);
  }
}

/// NaN comes first; where everything else is the least there is, the second is the first of that.
TEST(TakeExtremes, TheSecondOfNaNAndOfTheLeast) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  GraphBuilder b;
  order_two(b, b.leaf(DType::Float32, {7, 40}), true);
  const std::vector<std::vector<std::pair<int, float>>> rows = {
      {}, {{0, -1.0f}}, {{3, -1.0f}}, {{3, nan}}, {{0, nan}, {5, nan}}, {{1, -inf}, {7, nan}}, {{39, -0.0f}}};
  std::vector<float> x(7 * 40, inf);  // negated: the least
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (const auto& [at, value] : rows[r]) x[r * 40 + static_cast<std::size_t>(at)] = value;
  std::memcpy(b.memory(0).data(), x.data(), x.size() * sizeof(float));
  const auto expected = b.values();
  take_extremes(b.graph, {.seconds = true});
  EXPECT_EQ(count(b, Op::part), 0);
  EXPECT_EQ(b.values(), expected);
}

/// Where only values are asked for, elements are compared with numbers; halves as numbers of Float32.
TEST(TakeExtremes, TheGreatestTwoWithoutTheirPositions) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<std::pair<int, float>>> rows = {{},
                                                                {{0, 1.0f}},
                                                                {{3, -2.0f}, {5, -1.0f}, {9, -2.0f}},
                                                                {{3, 7.0f}, {39, 7.0f}},
                                                                {{3, nan}},
                                                                {{3, nan}, {4, 2.0f}},
                                                                {{0, nan}, {5, nan}},
                                                                {{0, nan}, {5, inf}, {6, inf}},
                                                                {{1, inf}, {7, 1.0f}},
                                                                {{1, 1.0f}, {7, 0.99609375f}},
                                                                {{0, 0x1p-24f}, {1, -0x1p-24f}}};
  for (const DType type : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16}) {
    GraphBuilder b;
    const auto count_of = static_cast<std::int64_t>(rows.size());
    const NodeId x = b.leaf(DType::Float32, {count_of, 40}), made = b.op(Op::negative, {b.cast(x, type)});
    std::vector<float> elements(rows.size() * 40, inf);  // negated: the least
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (const auto& [at, value] : rows[r]) elements[r * 40 + static_cast<std::size_t>(at)] = -value;
    std::memcpy(b.memory(0).data(), elements.data(), elements.size() * sizeof(float));
    const NodeId both =
        b.add(Op::sort_with_positions, {made}, ir::Sort{1, true}, {.dims = Shape{count_of, 2}});
    b.add(Op::part, {both}, ir::Part{1},
          {.dtype = DType::Int64, .dims = Shape{count_of, 2}});  // read by none
    b.root(b.add(Op::part, {both}, ir::Part{0}, {.dtype = type, .dims = Shape{count_of, 2}}));
    const auto expected = b.values();
    take_extremes(b.graph, {.seconds = true, .by_values = true});
    dce(b.graph);
    ir::verify(b.graph);
    EXPECT_EQ(count(b, Op::part), 0);
    EXPECT_EQ(count(b, Op::reduce_argmax), 0);
    EXPECT_EQ(count(b, Op::reduce_max), 2);
    EXPECT_EQ(b.values(), expected) << name(type);
  }
}

/// Numbers alone do not say which of two zeros comes first.
TEST(TakeExtremes, TheGreatestTwoValuesOfRowsInMemoryAreOfTheOrder) {
  for (const std::int64_t columns : {2, 8, 64}) {
    GraphBuilder b;
    const NodeId both = b.add(Op::sort_with_positions, {b.leaf(DType::Float32, {6, columns})},
                              ir::Sort{1, true}, {.dims = Shape{6, 2}});
    b.root(b.add(Op::part, {both}, ir::Part{0}, {.dtype = DType::Float32, .dims = Shape{6, 2}}));
    take_extremes(b.graph, {.seconds = true, .by_values = true});
    dce(b.graph);
    EXPECT_EQ(count(b, Op::part), 1) << columns;
  }
}

TEST(TakeExtremes, PositionsThatAreAskedForAreFound) {
  for (const DType type : {DType::Float32, DType::Int32}) {
    GraphBuilder b;
    order_two(b, b.leaf(type, {6, 50}), true);
    const auto expected = b.values();
    take_extremes(b.graph, {.seconds = true, .by_values = true});
    EXPECT_EQ(count(b, Op::reduce_argmax), 2);
    EXPECT_EQ(b.values(), expected);
  }
}

/// An extreme of what a function makes that grows is made of the extreme, if nobody else reads what it makes.
TEST(TakeExtremes, FunctionsThatGrowAreOfTheExtremes) {
  const auto functions_of_all = [](Op function, const auto& root) {
    GraphBuilder b;
    const NodeId y = b.op(function, {b.leaf(DType::Float32, {6, 50})});
    root(b, y);
    const auto expected = b.values();
    take_extremes(b.graph, {.seconds = true, .by_values = true});
    dce(b.graph);
    ir::verify(b.graph);
    EXPECT_EQ(b.values(), expected) << ir::info(function).name;
    return std::ranges::count_if(b.graph.nodes,
                                 [&](const auto& n) { return n.op == function && n.numel == 300; });
  };
  const auto greatest = [](GraphBuilder& b, NodeId y) { b.root(b.reduce(Op::reduce_max, y, 2)); };
  for (const Op op : {Op::exp, Op::tanh, Op::erf, Op::sigmoid, Op::softplus})
    EXPECT_EQ(functions_of_all(op, greatest), 0);
  EXPECT_EQ(
      functions_of_all(Op::tanh, [](GraphBuilder& b, NodeId y) { b.root(b.reduce(Op::reduce_min, y, 1)); }),
      0);
  EXPECT_EQ(functions_of_all(Op::tanh, [](GraphBuilder& b, NodeId y) { order_two(b, y, false); }), 1)
      << "a position may be that of another element of equal value";
  EXPECT_EQ(functions_of_all(Op::gelu, greatest), 1);
  EXPECT_EQ(functions_of_all(Op::tanh,
                             [](GraphBuilder& b, NodeId y) {
                               b.root(b.reduce(Op::reduce_max, y, 2));
                               b.root(y);
                             }),
            1);
}

/// Where two reductions must not make much: elements of large values, or of many maps, are sorted.
TEST(TakeExtremes, TheGreatestTwoOfWhatFewMapsMakeOfSmallValues) {
  const auto parts = [](bool small, int maps) {
    GraphBuilder b;
    NodeId x = b.leaf(DType::Float32, {16, 50});
    if (small) x = b.op(Op::multiply, {b.leaf(DType::Float32, {16, 1}), b.leaf(DType::Float32, {1, 50})});
    for (int i = small ? 1 : 0; i < maps; ++i) x = b.op(Op::negative, {x});
    order_two(b, x, false);
    const auto expected = b.values();
    take_extremes(b.graph, {.seconds = true, .most_maps = 3});
    EXPECT_EQ(b.values(), expected);
    return count(b, Op::part);
  };
  EXPECT_EQ(parts(true, 1), 0);
  EXPECT_EQ(parts(true, 3), 0);
  EXPECT_EQ(parts(true, 4), 2);
  EXPECT_EQ(parts(false, 1), 2);
}

TEST(TakeExtremes, WhatIsInMemoryOrShortIsSorted) {
  for (const auto& [columns, made, seconds] :
       {std::tuple{50, false, true}, std::tuple{20, true, true}, std::tuple{50, true, false}}) {
    GraphBuilder b;
    order_two(b, b.leaf(DType::Float32, {6, columns}), made);
    take_extremes(b.graph, {.seconds = seconds});
    EXPECT_EQ(count(b, Op::part), 2);
  }
}

}  // namespace
}  // namespace kiln::transform
