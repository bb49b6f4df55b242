// Short rows that a CPU turns on the way through scratch memory, held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

/// Lengths below and above the pieces that are transposed, and numbers of rows that fill no item.
TEST(Turned, RowsOfAnyShortLengthAndTheirMaps) {
  for (const DType type : {DType::Int8, DType::Int16, DType::Int32, DType::Int64})
    for (const std::int64_t length : {2, 3, 4, 5, 8, 11, 17})
      for (const std::int64_t rows : {1024, 1537}) {
        GraphBuilder b;
        const NodeId x = b.leaf(type, {rows, length}), most = b.reduce(Op::reduce_max, x, 2);
        b.root(b.op(Op::subtract, {x, b.reshape(most, {rows, 1})}));
        b.root(most);
        const std::vector<Form> forms = checked_on_cpus(b);
        // rows of more than a register have lanes of their own
        if (length * size_of(type) <= 64) EXPECT_EQ(forms, std::vector{Form::Bunch}) << length;
      }
}

/// Results of several rows of a slab are turned back, too.
TEST(Turned, KeptAxesMayStandInsideTheSlab) {
  for (const std::int64_t inner : {2, 3, 5})
    for (const std::int64_t reduced : {2, 3, 7}) {
      GraphBuilder b;
      const NodeId x = b.leaf(DType::Int32, {1100, reduced, inner}), sum = b.reduce(Op::reduce_sum, x, 2);
      b.root(b.op(Op::multiply, {x, b.reshape(sum, {1100, 1, inner})}));
      b.root(sum);
      EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Bunch}) << inner << ' ' << reduced;
    }
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int8, {1100, 3, 4, 5, 2});
  b.root(b.reduce(Op::reduce_min, x, 2 | 8));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Bunch});
}

TEST(Turned, ScansAndPositionsOfSeveralOperands) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int16, {1300, 7}), y = b.leaf(DType::Int16, {1300, 7});
  b.root(b.reduce(Op::reduce_argmax, b.op(Op::subtract, {x, y}), 2));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Bunch});
  for (const std::int64_t length :
       {3, 6, 17}) {  // of what takes long: the steps along lanes cost less otherwise
    GraphBuilder scans;
    const NodeId of = scans.leaf(DType::Int32, {1300, length});
    NodeId value = of;
    for (int i = 0; i < 40; ++i) value = scans.op(Op::multiply, {scans.op(Op::add, {value, of}), value});
    scans.root(scans.scan(Op::scan_sum, value, {1}));
    EXPECT_EQ(checked_on_cpus(scans), std::vector{Form::Bunch}) << length;
  }
}

/// From the end, too, alone and between maps; but not beside the same rows from their beginning.
TEST(Turned, ScansFromTheEnd) {
  for (const DType type : {DType::Int8, DType::Int32})
    for (const std::int64_t length : {2, 3, 5, 17})
      for (const std::int64_t inner : {1, 2})
        for (const bool exclusive : {false, true}) {
          GraphBuilder b;
          const NodeId x = b.leaf(type, {1500, length, inner}), y = b.leaf(type, {1500, length, inner});
          NodeId value = b.op(Op::add, {x, y});
          for (int i = 0; i < 40; ++i) value = b.op(Op::multiply, {b.op(Op::add, {value, x}), value});
          const NodeId scan = b.scan(Op::scan_sum, value, {1, exclusive, true});
          b.root(b.op(Op::subtract, {scan, y}));
          EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Bunch}) << length << ' ' << inner;
        }
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {1500, 5});
  const NodeId scan = b.scan(Op::scan_max, x, {1, false, true});
  b.root(b.op(Op::add, {scan, b.slice(x, {1500, 5}, {0, 1, 4, -1})}));
  checked_on_cpus(b);
}

/// A row of weights, and a number for each row, are read where they are.
TEST(Turned, OperandsThatAreNotTheRowsOwn) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {1200, 10}), weight = b.reshape(b.leaf(DType::Int32, {10}), {1, 10});
  const NodeId scale = b.reshape(b.leaf(DType::Int32, {1200}), {1200, 1});
  const NodeId y = b.op(Op::multiply, {b.op(Op::multiply, {x, weight}), scale});
  b.root(b.op(Op::subtract, {y, b.reshape(b.reduce(Op::reduce_sum, y, 2), {1200, 1})}));
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Bunch});
}

/// What is made of a row's results is one instruction for each row, or for each lane's row.
TEST(Turned, RowsWhoseResultsTakeLong) {
  for (const int work : {1, 60}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int32, {2048, 32}), most = b.reduce(Op::reduce_max, x, 2);
    NodeId value = most;
    for (int i = 0; i < work; ++i) value = b.op(Op::multiply, {b.op(Op::add, {value, most}), value});
    b.root(value);
    EXPECT_EQ(checked_on_cpus(b) == std::vector{Form::Bunch}, work == 60) << work;
  }
}

TEST(Turned, LongRowsAndFewRowsHaveOtherForms) {
  for (const auto& [rows, length] : {std::pair{40, 10}, std::pair{3000, 200}, std::pair{3000, 64}}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_max, b.leaf(DType::Int32, {rows, length}), 2));
    EXPECT_NE(checked_on_cpus(b), std::vector{Form::Bunch}) << rows;
  }
}

}  // namespace
}  // namespace kiln::lower
