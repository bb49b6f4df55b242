// Reductions of rows that are combined with several others, whose tiles of rows read these once. Held against
// the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

schedule::Target target(bool gpu, int threads) {
  schedule::Target t;
  t.gpu = gpu;
  t.threads = threads;
  return t;
}

/// The products of each element of a column, whose elements lie apart, and of a row.
NodeId pairs(GraphBuilder& b, DType type, std::int64_t rows, std::int64_t columns) {
  const NodeId column = b.slice(b.leaf(type, {rows, 2}), {rows, 1}, {0, 1, 1, 1});
  return b.op(Op::multiply, {column, b.leaf(type, {1, columns})});
}

/// Two reductions of the products of each element of a column and of a row, and how many rows' results a grid
/// item has.
int rows_of_item(DType type, Op op, std::int64_t rows, std::int64_t columns, const schedule::Target& t,
                 Form form) {
  GraphBuilder b;
  const NodeId products = pairs(b, type, rows, columns);
  b.root(b.reduce(op, products, 2));
  b.root(b.op(Op::negative, {b.reduce(Op::reduce_max, products, 2)}));
  const LoweredGraph lowered = checked(b, {t}).front();
  EXPECT_EQ(lowered.forms, std::vector{form}) << lowered.text();
  const std::string text = lowered.text();
  int updates = 0;
  for (std::size_t at = text.find("max("); at != std::string::npos; at = text.find("max(", at + 1))
    updates += text.compare(at - 2, 2, "= ") == 0;
  return updates;
}

TEST(TiledRows, ReadWhatTheyHaveInCommonOnce) {
  for (const Op op : {Op::reduce_sum, Op::reduce_argmax})
    for (const DType type : {DType::Int32, DType::Int64})
      for (const std::int64_t rows : {8, 9, 11, 14})
        EXPECT_EQ(rows_of_item(type, op, rows, 601, target(false, 1), Form::Rows), 4) << rows;
  EXPECT_EQ(rows_of_item(DType::Int32, Op::reduce_sum, 5, 601, target(false, 1), Form::Rows), 1)
      << "few rows";
}

/// Also where a later sweep reads again what no second cache holds: then all rows' first sweeps come first.
TEST(TiledRows, SweepAgain) {
  for (const std::int64_t rows : {8, 11})
    for (const bool near : {false, true}) {
      GraphBuilder b;
      const DType type = DType::Int32;
      const NodeId x = pairs(b, type, rows, 601), most = b.reshape(b.reduce(Op::reduce_max, x, 2), {rows, 1}),
                   rest = b.op(Op::subtract, {x, most});
      b.root(b.op(Op::add, {b.reshape(b.reduce(Op::reduce_sum, rest, 2), {rows, 1}), most}));
      schedule::Target t = target(false, 1);
      if (!near) t.l2_bytes = 4096;
      const LoweredGraph lowered = checked(b, {t}).front();
      EXPECT_EQ(lowered.forms, std::vector{Form::Rows});
      int sums = 0;
      const std::string text = lowered.text();
      for (std::size_t at = text.find("= sum("); at != std::string::npos; at = text.find("= sum(", at + 1))
        ++sums;
      EXPECT_EQ(sums, near ? 1 : 4) << text;
    }
}

/// A GPU's, where rows are long and few: chunks of several rows, combined row by row.
TEST(TiledRows, AreCutIntoChunks) {
  for (const Op op : {Op::reduce_sum, Op::reduce_argmax})
    for (const std::int64_t rows : {4, 5, 7})
      EXPECT_GT(rows_of_item(DType::Int32, op, rows, 40003, target(true, 16), Form::Split), 4) << rows;
}

}  // namespace
}  // namespace kiln::lower
