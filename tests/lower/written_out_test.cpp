// Columns of few elements, whose loops a GPU's thread has written out. Held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

schedule::Target gpu() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 1;
  return t;
}

/// Iterations of the loops that are written out, 0 where none is, after a check.
int written_out(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {gpu()}).front();
  EXPECT_EQ(lowered.forms, std::vector{Form::Columns});
  const std::string text = lowered.text();
  const std::size_t at = text.find("for of ");
  return at == std::string::npos ? 0 : std::stoi(text.substr(at + 7));
}

TEST(WrittenOut, ColumnsOfFewElements) {
  for (const auto& [rows, steps] : std::vector<std::pair<std::int64_t, int>>{
           {2, 2}, {3, 3}, {5, 6}, {7, 8}, {9, 12}, {13, 16}, {17, 24}, {31, 32}, {33, 0}})
    for (const DType type : {DType::Int64, DType::Int32, DType::Int16}) {
      GraphBuilder b;
      normalise(b, b.leaf(type, {rows, 8193}), 1);
      EXPECT_EQ(written_out(b), steps) << rows << " rows of " << info(type).short_name;
    }
}

TEST(WrittenOut, AlongSeveralAxesAndInsideOthers) {
  GraphBuilder together, inside, few;
  normalise(together, together.leaf(DType::Int32, {5, 3, 4096}), 3);
  EXPECT_EQ(written_out(together), 16);
  normalise(inside, inside.leaf(DType::Int32, {4, 6, 1500}), 2);
  EXPECT_EQ(written_out(inside), 6);
  normalise(few, few.leaf(DType::Int32, {6, 400}), 1);  // columns
  EXPECT_EQ(written_out(few), 0);
}

TEST(WrittenOut, SumsOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {4, 9000});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
  EXPECT_EQ(written_out(b), 4);
}

}  // namespace
}  // namespace kiln::lower
