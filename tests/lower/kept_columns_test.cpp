// What takes long to make of the elements of columns, and is needed by a later phase again, is made once
// where the second cache has room for it. Held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr int kOps = 12;

schedule::Target with_room(int vector_bytes, std::int64_t l2_bytes = 1 << 20) {
  schedule::Target t;
  t.threads = 2;
  t.vector_bytes = vector_bytes;
  t.l2_bytes = l2_bytes;
  return t;
}

/// A long chain y of what the array is less its greatest, and y less its sum.
void chain(GraphBuilder& b, const GraphBuilder::Extents& dims, std::uint64_t mask) {
  GraphBuilder::Extents kept = dims;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if ((mask >> i & 1) != 0) kept[i] = 1;
  const NodeId x = b.leaf(DType::Int32, dims);
  NodeId y = b.op(Op::subtract, {x, b.reshape(b.reduce(Op::reduce_max, x, mask), kept)});
  for (int i = 0; i < kOps; ++i) y = i % 2 == 0 ? b.op(Op::bitwise_xor, {y, x}) : b.op(Op::multiply, {y, y});
  b.root(b.op(Op::subtract, {y, b.reshape(b.reduce(Op::reduce_sum, y, mask), kept)}));
}

/// How often the kernels make a value with "exclusive or".
std::size_t made(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = text.find(" ^ "); at != std::string::npos; at = text.find(" ^ ", at + 1)) ++n;
  return n;
}

void check(const GraphBuilder::Extents& dims, std::uint64_t mask, Form form) {
  for (const int bytes : {64, 32, 16})
    for (const bool room : {true, false}) {
      GraphBuilder b;
      chain(b, dims, mask);
      const auto expected = b.values();
      LoweredGraph lowered(b, with_room(bytes, room ? 4 << 20 : 8 << 10));
      EXPECT_EQ(lowered.values(), expected) << lowered.text();
      if (room) {
        EXPECT_EQ(lowered.forms, std::vector{form});
        EXPECT_EQ(made(lowered.text()), kOps / 2) << lowered.text();
      }
    }
}

TEST(KeptColumns, OfFewRowsAreInRegisters) {
  check({19, 130}, 1, Form::Columns);
  check({9, 7, 70}, 2, Form::Columns);
}

TEST(KeptColumns, OfManyColumnsShareTheLanes) { check({4, 101, 3}, 1, Form::Columns); }

TEST(KeptColumns, OfManyRowsAreStripes) {
  check({48, 701}, 1, Form::Stripes);
  check({24, 3, 2, 301}, 1 | 4, Form::Stripes);
}

TEST(KeptColumns, ShareTheLanesWithTheirRows) {
  check({1000, 3}, 1, Form::Columns);
  check({3, 143, 8, 5}, 2 | 8, Form::Columns);
  check({9, 5, 143, 7}, 1 | 4, Form::Columns);
}

}  // namespace
}  // namespace kiln::lower
