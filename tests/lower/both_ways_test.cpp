// Reductions of rows and of columns by one reading, held against the oracle.
#include "lower/lowered_graph.h"

#include <array>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

/// Whether one kernel reads for both, after a check.
bool together(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {small_gpu()}).front();
  const bool across = lowered.text().find(" across(") != std::string::npos;
  EXPECT_EQ(across, lowered.forms == std::vector{Form::SplitColumns}) << lowered.text();
  return across;
}

struct Case {
  std::vector<std::int64_t> dims;
  std::uint64_t rows, columns;  // masks: what is reduced along rows, and down columns
};

/// Few and many rows and columns, whole vectors of them and parts, axes around them and between.
TEST(BothWays, SumsOfRowsAndOfColumnsAreOneReading) {
  for (const Case& c : {Case{{300, 257}, 2, 1},
                        {{300, 256}, 2, 1},
                        {{2000, 33}, 2, 1},
                        {{17, 5000}, 2, 1},
                        {{1999, 130}, 2, 1},
                        {{3, 400, 100}, 4, 2},
                        {{5, 70, 300}, 5, 2},
                        {{70, 5, 300}, 4, 3},
                        {{6, 40, 5, 130}, 12, 3},
                        {{6, 200, 5, 130}, 8, 2}})
    for (const DType type : {DType::Int64, DType::Int32}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, c.dims);
      b.root(b.reduce(Op::reduce_sum, x, c.rows));
      b.root(b.reduce(Op::reduce_sum, x, c.columns));
      EXPECT_TRUE(together(b)) << c.dims.front() << ' ' << c.dims.back() << ' ' << c.rows;
    }
}

/// Of what maps make, which is stored as well, and with maps of the results.
TEST(BothWays, MapsBeforeAndBehindAreInTheSameKernel) {
  for (const std::array<std::int64_t, 2>& dims : {std::array<std::int64_t, 2>{300, 257}, {257, 300}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int64, {dims[0], dims[1]}), y = b.leaf(DType::Int64, {dims[0], dims[1]});
    const NodeId z = b.op(Op::subtract, {x, y});
    b.root(z);
    b.root(b.op(Op::abs, {b.reduce(Op::reduce_sum, z, 1)}));
    b.root(b.op(Op::negative, {b.reduce(Op::reduce_max, b.op(Op::multiply, {x, y}), 2)}));
    EXPECT_TRUE(together(b));
  }
}

/// Several reductions each way; down columns also a position.
TEST(BothWays, OfSeveralReductions) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {500, 140});
  b.root(b.reduce(Op::reduce_max, x, 2));
  b.root(b.reduce(Op::reduce_argmax, x, 1));
  b.root(b.reduce(Op::reduce_sum, x, 2));
  b.root(b.reduce(Op::reduce_min, x, 1));
  EXPECT_TRUE(together(b));
}

/// Results of columns that are made of several reductions, beside several of rows.
TEST(BothWays, MapsOfSeveralReductions) {
  for (const std::array<std::int64_t, 2>& dims :
       {std::array<std::int64_t, 2>{333, 333}, {500, 256}, {3000, 41}, {20, 7000}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int64, {dims[0], dims[1]});
    const NodeId y = b.op(Op::subtract, {b.op(Op::multiply, {x, x}), b.op(Op::abs, {x})});
    b.root(b.reduce(Op::reduce_sum, y, 2));
    b.root(b.op(Op::subtract, {b.reduce(Op::reduce_sum, y, 1), b.reduce(Op::reduce_max, x, 1)}));
    b.root(b.reduce(Op::reduce_min, y, 2));
    EXPECT_TRUE(together(b));
  }
}

/// Positions along rows, what is made of both, short rows, and few of them stay apart.
TEST(BothWays, NotWhereReductionsNeedMore) {
  const auto apart = [](std::vector<std::int64_t> dims, Op along_rows) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int32, std::move(dims));
    b.root(b.reduce(along_rows, x, 2));
    b.root(b.reduce(Op::reduce_sum, x, 1));
    return !together(b);
  };
  EXPECT_FALSE(apart({500, 140}, Op::reduce_max));
  EXPECT_TRUE(apart({500, 140}, Op::reduce_argmax));
  EXPECT_TRUE(apart({20000, 3}, Op::reduce_max));
  EXPECT_TRUE(apart({4, 20000}, Op::reduce_max));
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int64, {300, 257});
  const NodeId row = b.reshape(b.reduce(Op::reduce_max, x, 2), {300, 1}),
               column = b.reshape(b.reduce(Op::reduce_max, x, 1), {1, 257});
  b.root(b.op(Op::add, {row, column}));
  checked(b, {small_gpu()});
}

}  // namespace
}  // namespace kiln::lower
