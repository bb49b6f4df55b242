// Short rows whose elements go through a GPU's shared memory, held against the oracle.
#include "lower/gpu_target.h"
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i64 = DType::Int64;

std::vector<Form> check(GraphBuilder& b) { return checked(b, {gpu_target()}).front().forms; }

TEST(Bunch, RowsOfAnyShortLengthAreStagedAndTheirMapsToo) {
  for (const std::int64_t length : {2, 3, 5, 7, 8, 9, 12, 16, 31})
    for (const std::int64_t rows : {256, 1000, 1537}) {
      GraphBuilder b;
      const NodeId x = b.leaf(DType::Int16, {rows, length}), most = b.reduce(Op::reduce_max, x, 2);
      b.root(b.op(Op::subtract, {x, b.reshape(most, {rows, 1})}));
      b.root(most);
      EXPECT_EQ(check(b), std::vector{Form::Bunch}) << length;
    }
}

TEST(Bunch, PositionsAreThoseOfRows) {
  for (const std::int64_t length : {9, 12, 33}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_argmax, b.leaf(DType::Int32, {700, length}), 2));
    EXPECT_EQ(check(b), std::vector{Form::Bunch}) << length;
  }
}

/// Slabs of several rows, of which no whole number fills a block, and whose bytes are no whole vectors.
TEST(Bunch, KeptAxesMayStandInsideTheSlab) {
  for (const std::int64_t inner : {1, 2, 3, 5, 33, 64})
    for (const std::int64_t reduced : {3, 4, 7}) {
      GraphBuilder b;
      const NodeId x = b.leaf(DType::Int8, {900, reduced, inner});
      b.root(b.reduce(Op::reduce_min, x, 2));
      EXPECT_EQ(check(b), std::vector{Form::Bunch}) << inner << ' ' << reduced;
    }
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int8, {300, 3, 4, 5, 2});
  b.root(b.reduce(Op::reduce_sum, x, 2 | 8));
  check(b);
}

/// Threads go along rows by words where rows are whole words, whatever else a row reads.
TEST(Bunch, RowsOfWholeWordsAreReadByWords) {
  for (const auto& [length, words] : {std::pair{2, 2}, {6, 2}, {12, 4}, {16, 8}, {24, 8}, {7, 0}, {15, 0}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int16, {1537, length}), most = b.reduce(Op::reduce_max, x, 2);
    const NodeId weight = b.reshape(b.leaf(DType::Int16, {length}), {1, length});
    b.root(b.op(Op::multiply, {b.op(Op::subtract, {x, b.reshape(most, {1537, 1})}), weight}));
    const LoweredGraph lowered = checked(b, {gpu_target()}).front();
    EXPECT_EQ(lowered.forms, std::vector{Form::Bunch}) << length;
    const std::string by = "for by " + std::to_string(words) + " i";
    EXPECT_EQ(lowered.text().find(by) != std::string::npos, words > 0) << length << '\n' << lowered.text();
  }
}

/// Rows behind the first element of memory do not begin with words.
TEST(Bunch, RowsThatBeginAnywhereAreReadByElements) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int16, {1001, 16});
  const NodeId y = b.slice(b.reshape(x, {16016}), {16000}, {3, 1});
  b.root(b.reduce(Op::reduce_max, b.reshape(y, {1000, 16}), 2));
  const LoweredGraph lowered = checked(b, {gpu_target()}).front();
  EXPECT_EQ(lowered.text().find("for by"), std::string::npos) << lowered.text();
}

/// A running value in parts takes threads long to combine: a thread has a whole row.
TEST(Bunch, LogarithmsOfSumsHaveLongerRows) {
  for (const auto& [length, form] : {std::pair{10, Form::Bunch}, {32, Form::Bunch}, {64, Form::Rows}}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_logaddexp, b.leaf(DType::Float64, {3000, length}), 2));
    LoweredGraph lowered(b, gpu_target());
    EXPECT_EQ(lowered.forms, std::vector{form}) << length;
  }
}

TEST(Bunch, ScansGoAlongRows) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {1000, 11});
  b.root(b.scan(Op::scan_sum, x, {1}));
  EXPECT_EQ(check(b), std::vector{Form::Bunch});
}

/// Backwards, and of slabs that have a part of the operand's elements, or ones that are not there.
TEST(Bunch, ScansGoBackwardsAndAlongWhatIsFilledUp) {
  for (const bool reverse : {false, true}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int32, {1000, 11, 3});
    b.root(b.scan(Op::scan_sum, x, {1, false, reverse}));
    EXPECT_EQ(check(b), std::vector{Form::Bunch});
    for (const std::int64_t first : {0, 5}) {
      GraphBuilder padded;
      const NodeId y = padded.pad(padded.leaf(DType::Int32, {3, 900, 5}), padded.constant(DType::Int32, 0),
                                  {3, 905, 5}, {0, 1, first, 1, 0, 1});
      padded.root(padded.scan(Op::scan_sum, padded.reshape(y, {3, 181, 5, 5}), {2, true, reverse}));
      EXPECT_EQ(check(padded), std::vector{Form::Bunch}) << first;
    }
  }
}

/// Rows of the last axis that are scanned from their end make the whole array go backwards.
TEST(Bunch, ScansAlongMemoryGoBackwards) {
  for (const std::int64_t length : {9, 23}) {
    GraphBuilder b;
    b.root(b.scan(Op::scan_sum, b.leaf(DType::Int16, {2000, length}), {1, false, true}));
    EXPECT_EQ(check(b), std::vector{Form::Bunch}) << length;
  }
}

TEST(Bunch, OperandsThatAreNotTheRowsOwnAreReadWhereTheyAre) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {800, 10}), weight = b.reshape(b.leaf(DType::Int32, {10}), {1, 10});
  const NodeId scale = b.reshape(b.leaf(DType::Int32, {800}), {800, 1});
  const NodeId y = b.op(Op::multiply, {b.op(Op::multiply, {x, weight}), scale});
  b.root(b.reduce(Op::reduce_sum, y, 2));
  EXPECT_EQ(check(b), std::vector{Form::Bunch});
}

/// Not bunches: scans down a few columns, many times, fill whole blocks.
TEST(FewColumns, ScansOfManyTogether) {
  for (const std::int64_t columns : {2, 6, 15, 16, 40}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int32, {70, 130, columns});
    b.root(b.scan(columns % 2 ? Op::scan_sum : Op::scan_max, x, {1, columns > 6, columns < 16}));
    EXPECT_EQ(check(b), std::vector{Form::Columns}) << columns;
  }
}

/// Not bunches: rows that are combined with each of a few others are read once for all of them.
TEST(TiledRows, RowsThatMeetSeveralOthersAreReadOnce) {
  for (const std::int64_t others : {4, 5, 16, 23})
    for (const std::int64_t length : {40, 100, 256}) {
      GraphBuilder b;
      const NodeId x = b.reshape(b.leaf(DType::Int32, {900, length}), {900, 1, length});
      const NodeId y = b.reshape(b.leaf(DType::Int32, {others, length}), {1, others, length});
      const NodeId difference = b.op(Op::abs, {b.op(Op::subtract, {x, y})});
      b.root(b.reduce(Op::reduce_sum, difference, 4));
      b.root(b.reduce(Op::reduce_max, difference, 4));
      EXPECT_EQ(check(b), std::vector{Form::Rows}) << others << ' ' << length;
    }
}

/// Few rows leave the threads of blocks idle; long ones have teams of their own.
TEST(Bunch, LongRowsAndFewRowsHaveOtherForms) {
  for (const auto& [rows, length] : {std::pair{40, 10}, std::pair{1000, 700}, std::pair{2000, 64}}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_max, b.leaf(i64, {rows, length}), 2));
    EXPECT_NE(check(b), std::vector{Form::Bunch}) << rows;
  }
}

}  // namespace
}  // namespace kiln::lower
