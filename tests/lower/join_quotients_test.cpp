// Axes that are one although quotients of the inner one are read, held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i32 = DType::Int32;

/// (9, 8): the even columns are one array's, the odd ones another's.
NodeId interleaved(GraphBuilder& b) {
  const NodeId x = b.leaf(i32, {9, 4, 1}), y = b.leaf(i32, {9, 4, 1});
  return b.reshape(b.wide(Op::join, i32, {9, 4, 2}, {x, y}, ir::Join{2}), {9, 8});
}

/// Rows of whole quotients are one row.
TEST(JoinQuotients, ColumnsOfTwoArraysInTurnAreOneRow) {
  GraphBuilder b;
  b.root(b.op(Op::add, {interleaved(b), b.leaf(i32, {9, 8})}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Flat});
}

/// Seven of eight columns: a quotient begins anew with each row.
TEST(JoinQuotients, RowsThatEndInsideAQuotientStayApart) {
  GraphBuilder b;
  b.root(b.op(Op::add, {b.slice(interleaved(b), {9, 7}, {0, 1, 0, 1}), b.leaf(i32, {9, 7})}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
}

/// A dividend that falls along the rows would be negative in a longer one.
TEST(JoinQuotients, RowsThatAreReadBackwardsStayApart) {
  GraphBuilder b;
  b.root(b.op(Op::add, {b.slice(interleaved(b), {9, 8}, {0, 1, 7, -1}), b.leaf(i32, {9, 8})}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
}

/// Every element three times, and the sums of the rows' neighbours.
TEST(JoinQuotients, SumsOfRepeatedElements) {
  GraphBuilder b;
  const NodeId x = b.leaf(i32, {9, 5, 4, 1});
  const NodeId repeated = b.reshape(b.broadcast(x, {9, 5, 4, 3}), {9, 5, 12});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {repeated, b.leaf(i32, {9, 5, 12})}), 1));
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {repeated, b.leaf(i32, {9, 5, 12})}), 6));
  checked_on_cpus(b);
}

}  // namespace
}  // namespace kiln::lower
