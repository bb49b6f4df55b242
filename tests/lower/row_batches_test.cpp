// Dependent reductions along rows, many of which share a grid item on a CPU, held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

/// Rows that end in a vector or with one, and numbers of rows that fill no batch.
TEST(RowBatches, RowsAndWhatIsMadeOfThem) {
  for (const DType type : {DType::Int16, DType::Int32, DType::Int64, DType::Float32})
    for (const std::int64_t length : {65, 128, 200, 1031})
      for (const std::int64_t rows : {9, 64, 131}) {
        GraphBuilder b;
        const NodeId x = b.leaf(type, {rows, length}), most = b.reduce(Op::reduce_max, x, 2),
                     twice = b.op(Op::add, {most, most});
        b.root(b.op(Op::subtract, {x, b.reshape(twice, {rows, 1})}));
        b.root(twice);
        EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows}) << length << ' ' << rows;
      }
}

/// Later phases want the results of all phases before, made into values that are vectors of rows.
TEST(RowBatches, PhasesReadTheResultsOfEarlierOnes) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {75, 150}), most = b.reduce(Op::reduce_max, x, 2);
  const NodeId less = b.op(Op::subtract, {x, b.reshape(most, {75, 1})}),
               sum = b.reduce(Op::reduce_sum, b.op(Op::multiply, {less, less}), 2),
               both = b.op(Op::add, {b.op(Op::multiply, {sum, most}), most});
  b.root(b.op(Op::add, {b.op(Op::multiply, {less, b.reshape(both, {75, 1})}), b.reshape(most, {75, 1})}));
  b.root(b.op(Op::subtract, {both, sum}));
  b.root(most);
  EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
}

/// Values that take long are kept for the next phase, each row's behind those of the row before.
TEST(RowBatches, ElementsAreKeptForLaterPhases) {
  for (const std::int64_t length : {70, 129}) {
    GraphBuilder b;
    const NodeId x = b.cast(b.leaf(DType::Int8, {90, length}), DType::Float32),
                 most = b.reduce(Op::reduce_max, x, 2),
                 power = b.op(Op::exp, {b.op(Op::subtract, {x, b.reshape(most, {90, 1})})});
    b.root(b.op(Op::less_equal, {power, b.reshape(b.reduce(Op::reduce_max, power, 2), {90, 1})}));
    EXPECT_EQ(checked_on_cpus(b), std::vector{Form::Rows});
  }
}

/// Rows stand at coordinates along several axes, which lanes of rows have to find.
TEST(RowBatches, RowsOfSeveralAxesThatLieApart) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {7, 100, 11}), most = b.reduce(Op::reduce_max, x, 2);
  const NodeId y = b.permute(b.leaf(DType::Int32, {11, 7, 100}), {1, 2, 0});
  b.root(b.op(Op::subtract, {b.op(Op::add, {x, y}), b.reshape(most, {7, 1, 11})}));
  b.root(most);
  checked_on_cpus(b);
  GraphBuilder gaps;
  const NodeId whole = gaps.leaf(DType::Int32, {9, 10, 140}),
               part = gaps.slice(whole, {9, 5, 140}, {0, 1, 1, 2, 0, 1}),
               least = gaps.reduce(Op::reduce_min, part, 4);
  gaps.root(gaps.op(Op::multiply, {part, gaps.reshape(least, {9, 5, 1})}));
  gaps.root(gaps.reduce(Op::reduce_argmax, part, 4));
  checked_on_cpus(gaps);
}

schedule::Schedule scheduled(std::int64_t rows, std::int64_t length, bool stores_full) {
  const schedule::Facts::Axis axes[] = {{rows, false}, {length, true}};
  schedule::Facts f;
  f.axes = axes;
  f.phases = 1;
  f.prims = 4;
  f.loads = f.row_loads = 1;
  f.loaded_bytes = 4;
  f.stores_full = stores_full;
  return std::get<schedule::Schedule>(schedule::schedule(f, cpu(64)));
}

/// As many as the first cache has, whole vectors of rows where they are many; none where nothing is made of
/// results.
TEST(RowBatches, LengthsDecideHowManyRows) {
  EXPECT_EQ(scheduled(100000, 200, false).batch, 0);
  EXPECT_EQ(scheduled(1, 200, true).batch, 0);
  EXPECT_EQ(scheduled(100000, 40, true).batch, 64);
  EXPECT_EQ(scheduled(100000, 200, true).batch, 16);
  EXPECT_EQ(scheduled(100000, 1000, true).batch, 4);
  EXPECT_EQ(scheduled(100000, 10000, true).batch, 1);
  EXPECT_EQ(scheduled(16, 200, true).batch, 2);  // threads are to share the rows
}

}  // namespace
}  // namespace kiln::lower
