// Reductions of operands that are contiguous along different axes, in tiles of a GPU's shared memory, held
// against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

/// x times a permuted y over the axes, where y's axes in this order are x's.
void product(GraphBuilder& b, DType type, const std::vector<std::int64_t>& dims,
             const std::vector<std::int64_t>& order, std::uint64_t axes, Op how) {
  std::vector<std::int64_t> given(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) given[static_cast<std::size_t>(order[i])] = dims[i];
  const NodeId x = b.leaf(type, dims), y = b.permute(b.leaf(type, given), order);
  b.root(b.reduce(how, b.op(Op::multiply, {x, y}), axes));
}

/// The form, and whether an operand goes through shared memory, after a check.
std::pair<Form, bool> made(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {small_gpu()}).front();
  EXPECT_EQ(lowered.forms.size(), 1u);
  return {lowered.forms.front(), lowered.text().find(" shared ") != std::string::npos};
}

struct Case {
  std::vector<std::int64_t> dims, order;
  std::uint64_t axes;
};

TEST(Crossed, WhatIsReducedAlongBothAxesIsAddedUpTileByTile) {
  for (const Case& c : {Case{{200, 300}, {1, 0}, 3},
                        {{32, 2100}, {1, 0}, 3},
                        {{2100, 33}, {1, 0}, 3},
                        {{3, 130, 200}, {0, 2, 1}, 6},
                        {{70, 5, 200}, {2, 1, 0}, 7}})
    for (const DType type : {DType::Int64, DType::Int8}) {
      GraphBuilder b;
      product(b, type, c.dims, c.order, c.axes, type == DType::Int8 ? Op::reduce_max : Op::reduce_sum);
      EXPECT_EQ(made(b), std::pair(Form::Split, true)) << c.dims.front() << ' ' << c.dims.back();
    }
}

TEST(Crossed, KeptColumnsHavePartialResultsOfEachTile) {
  for (const Case& c : {Case{{200, 300}, {1, 0}, 1},
                        {{257, 130}, {1, 0}, 1},
                        {{3, 400, 100}, {0, 2, 1}, 2},
                        {{6, 40, 300}, {2, 1, 0}, 3}})
    for (const DType type : {DType::Int64, DType::Int32}) {
      GraphBuilder b;
      product(b, type, c.dims, c.order, c.axes, Op::reduce_sum);
      EXPECT_EQ(made(b), std::pair(Form::SplitColumns, true)) << c.dims.front() << ' ' << c.dims.back();
    }
}

/// Two operands across, of different types, and several along the columns.
TEST(Crossed, OfSeveralOperands) {
  GraphBuilder b;
  const auto across = [&](DType type) { return b.permute(b.leaf(type, {300, 200}), {1, 0}); };
  NodeId x = b.op(Op::multiply, {across(DType::Int64), b.cast(across(DType::Int8), DType::Int64)});
  for (int i = 0; i < 3; ++i) x = b.op(Op::add, {x, b.leaf(DType::Int64, {200, 300})});
  b.root(b.reduce(Op::reduce_sum, x, 1));
  EXPECT_EQ(made(b), std::pair(Form::SplitColumns, true));
}

/// Positions count in the order of the program, short axes leave tiles empty, and what is stored needs all
/// results first.
TEST(Crossed, NotWhereTilesWouldBringNothing) {
  GraphBuilder position;
  product(position, DType::Int64, {200, 300}, {1, 0}, 1, Op::reduce_argmax);
  EXPECT_FALSE(made(position).second);
  GraphBuilder narrow;
  product(narrow, DType::Int64, {4, 3000}, {1, 0}, 3, Op::reduce_sum);
  EXPECT_FALSE(made(narrow).second);
  GraphBuilder alone;
  alone.root(alone.reduce(Op::reduce_sum, alone.permute(alone.leaf(DType::Int64, {300, 200}), {1, 0}), 1));
  EXPECT_FALSE(made(alone).second);
}

/// Columns whose results lie apart: the blocks at one place of them, whose results lie beside each other,
/// follow each other.
TEST(Crossed, ResultsBesideEachOtherAreMadeOneAfterTheOther) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {9, 3, 70000});
  b.root(b.reduce(Op::reduce_sum, b.permute(x, {2, 0, 1}), 4));
  const LoweredGraph lowered = checked(b, {small_gpu()}).front();
  EXPECT_EQ(lowered.forms, std::vector{Form::Columns});
  EXPECT_NE(lowered.text().find("let x0: i64 = indexdiv(i0, p1)\n  let x1: i64 = x0 * p3"), std::string::npos)
      << lowered.text();
}

}  // namespace
}  // namespace kiln::lower
