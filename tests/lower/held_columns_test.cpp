// Columns that a GPU's block keeps in shared memory because they are read more than once, held against the
// oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

schedule::Target gpu(int architecture) {
  schedule::Target t;
  t.gpu = true;
  t.threads = 4;
  t.architecture = architecture;
  return t;
}

/// Whether the columns are held, after a check.
bool held(GraphBuilder& b, int architecture = 90) {
  const LoweredGraph lowered = checked(b, {gpu(architecture)}).front();
  EXPECT_EQ(lowered.forms, std::vector{Form::Columns});
  return lowered.text().find(" shared ") != std::string::npos;
}

TEST(HeldColumns, AsManyAsThereIsRoomFor) {
  struct Case {
    std::int64_t rows, columns;
    DType type;
    int architecture;
    bool fits;
  };
  for (const Case& c : {Case{3, 1000, DType::Int64, 90, true},
                        {17, 1001, DType::Int64, 90, true},
                        {17, 100, DType::Int64, 90, true},
                        {300, 72, DType::Int64, 90, true},
                        {900, 64, DType::Int64, 90, true},
                        {1700, 64, DType::Int64, 90, true},
                        {1900, 64, DType::Int64, 90, false},
                        {1100, 64, DType::Int64, 80, false},
                        {900, 64, DType::Int64, 75, false},
                        {500, 64, DType::Int64, 86, true},
                        {3000, 2, DType::Int64, 90, true},
                        {500, 1024, DType::Float64, 80, true}}) {
    GraphBuilder b;
    normalise(b, b.leaf(c.type, {c.rows, c.columns}), 1);
    EXPECT_EQ(held(b, c.architecture), c.fits) << c.rows << " x " << c.columns;
  }
}

TEST(HeldColumns, AlongSeveralAxesAndInsideOthers) {
  for (const std::uint64_t axes : {2u, 4u, 6u}) {
    GraphBuilder b;
    normalise(b, b.leaf(DType::Int64, {2, 36, 34, 96}), axes);
    EXPECT_TRUE(held(b));
  }
}

/// An operand that all columns share is read where it is; one of another type has a tile of its own.
TEST(HeldColumns, OfSeveralOperands) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int64, {40, 300}), y = b.cast(b.leaf(DType::Int8, {40, 300}), DType::Int64);
  const NodeId weight = b.reshape(b.leaf(DType::Int64, {40}), {40, 1});
  normalise(b, b.op(Op::multiply, {b.op(Op::add, {x, y}), weight}), 1);
  EXPECT_TRUE(held(b));
}

/// A sum that nothing reads again needs no memory.
TEST(HeldColumns, NotWhereColumnsAreReadOnce) {
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_sum, b.leaf(DType::Int64, {40, 300}), 1));
  EXPECT_FALSE(held(b));
}

}  // namespace
}  // namespace kiln::lower
