// Guards of outer axes that are asked about along longer ones, held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i32 = DType::Int32;

/// A join along the first axis is one row through all axes.
TEST(WidenGuards, AJoinOfWholeSlabsIsOneRow) {
  GraphBuilder b;
  const NodeId x = b.leaf(i32, {9, 5, 7}), y = b.leaf(i32, {4, 5, 7});
  b.root(b.op(Op::add, {b.pad(x, b.scalar(i32, 0), {13, 5, 7}, {0, 1, 0, 1, 0, 1}),
                        b.pad(y, b.scalar(i32, 3), {13, 5, 7}, {9, 1, 0, 1, 0, 1})}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Flat});
}

/// The axis in the middle: the outer one stays apart, since slabs differ in size.
TEST(WidenGuards, AxesThatAccessesWalkApartStayApart) {
  GraphBuilder b;
  const NodeId x = b.leaf(i32, {300, 9, 70}), y = b.leaf(i32, {300, 13, 70});
  b.root(b.op(Op::add, {b.pad(x, b.scalar(i32, 0), {300, 13, 70}, {0, 1, 2, 1, 0, 1}), y}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
}

/// A guard of a step of 2 holds at every second row, and one of the inner axis in the middle of each.
TEST(WidenGuards, OtherGuardsKeepAxesApart) {
  for (const bool steps : {false, true}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i32, {40, 300});
    b.root(steps ? b.pad(x, b.scalar(i32, 5), {81, 300}, {1, 2, 0, 1})
                 : b.pad(x, b.scalar(i32, 5), {43, 310}, {3, 1, 7, 1}));
    EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
  }
}

/// Walked from the end along both axes, and along the outer one alone.
TEST(WidenGuards, RowsFromTheEnd) {
  for (const std::int64_t step : {-1, 1}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i32, {9, 31});
    const NodeId padded = b.pad(x, b.scalar(i32, 5), {13, 31}, {3, 1, 0, 1});
    b.root(b.slice(padded, {13, 31}, {12, -1, step < 0 ? 30 : 0, step}));
    checked_on_cpus(b);
  }
}

}  // namespace
}  // namespace kiln::lower
