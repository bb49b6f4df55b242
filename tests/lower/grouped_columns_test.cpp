// Columns of which adjacent ones have a result together, which a GPU's block keeps in shared memory. Held
// against the oracle.
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
  t.threads = 4;
  t.architecture = 90;
  t.l2_bytes = 1 << 20;
  return t;
}

/// Whether columns are grouped, after a check.
bool grouped(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {gpu()}).front();
  return lowered.forms == std::vector{Form::Columns} && lowered.text().find(" shared ") != std::string::npos;
}

TEST(GroupedColumns, OfAnyExtents) {
  struct Case {
    GraphBuilder::Extents dims;
    std::uint64_t axes;
    bool grouped;
  };
  for (const Case& c : {Case{{5, 300, 8, 2}, 0b1010, true},
                        {{40, 64, 8, 5}, 0b1010, true},
                        {{40, 64, 3, 7}, 0b1010, true},
                        {{2, 4000, 2}, 0b101, true},
                        {{3, 500, 3}, 0b101, true},
                        {{40, 6, 10, 8, 2}, 0b10110, true},
                        {{40, 60, 4, 8, 2}, 0b10010, true},
                        {{40, 60, 8, 2, 3}, 0b11010, true},
                        {{40, 64, 8, 32}, 0b1010, false},      // whole runs
                        {{40, 4000, 3, 7}, 0b1010, false}}) {  // no room
    for (const DType type : {DType::Int32, DType::Int16}) {
      GraphBuilder b;
      normalise(b, b.leaf(type, c.dims), c.axes);
      EXPECT_EQ(grouped(b), c.grouped) << c.dims[1] << " x " << c.dims.back() << info(type).short_name;
    }
  }
}

/// Operands of a column, of a result and of neither, and results that are stored.
TEST(GroupedColumns, WithOperandsOfTheirOwn) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {40, 70, 8, 3}),
               y = b.cast(b.leaf(DType::Int8, {40, 70, 8, 3}), DType::Int32),
               column = b.reshape(b.leaf(DType::Int32, {8, 3}), {1, 1, 8, 3}),
               group = b.reshape(b.leaf(DType::Int32, {8}), {1, 1, 8, 1}),
               row = b.reshape(b.leaf(DType::Int32, {70}), {1, 70, 1, 1});
  const NodeId z = b.op(Op::multiply, {b.op(Op::add, {x, y}), row});
  const NodeId greatest = b.reduce(Op::reduce_max, z, 0b1010);
  const NodeId apart = b.op(Op::subtract, {z, b.reshape(greatest, {40, 1, 8, 1})});
  const NodeId sum = b.reduce(Op::reduce_sum, b.op(Op::multiply, {apart, column}), 0b1010);
  b.root(greatest);
  b.root(sum);
  b.root(b.op(Op::multiply, {b.op(Op::add, {apart, b.reshape(sum, {40, 1, 8, 1})}), group}));
  EXPECT_TRUE(grouped(b));
}

/// Halves that are compared, and doubles.
TEST(GroupedColumns, OfFloats) {
  for (const DType type : {DType::Float32, DType::BFloat16, DType::Float64}) {
    GraphBuilder b;
    const NodeId x = b.cast(b.leaf(type, {30, 50, 6, 4}), type == DType::Float64 ? type : DType::Float32);
    const NodeId most = b.reshape(b.reduce(Op::reduce_max, x, 0b1010), {30, 1, 6, 1});
    const NodeId y = b.op(Op::subtract, {x, most});
    const NodeId least = b.reshape(b.reduce(Op::reduce_min, y, 0b1010), {30, 1, 6, 1});
    b.root(b.cast(b.op(Op::multiply, {y, least}), type));
    EXPECT_TRUE(grouped(b));
  }
}

}  // namespace
}  // namespace kiln::lower
