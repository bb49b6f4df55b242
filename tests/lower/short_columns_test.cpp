// Reductions whose last kept axes are short: these share the lanes with the kept axes before them, or with
// points of the reduced axis. Held against the oracle.
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i32 = DType::Int32;

schedule::Target cpu(int vector_bytes) {
  schedule::Target t;
  t.threads = 2;
  t.vector_bytes = vector_bytes;
  t.l2_bytes = 8 << 10;  // so that few elements are many
  return t;
}

std::vector<Form> check(GraphBuilder& b) { return checked(b, {cpu(32), cpu(16), cpu(64)}).front().forms; }

/// The array less its reduction, times a factor of each of the last axis: the last two axes are two groups.
void norm(GraphBuilder& b, Op op, const GraphBuilder::Extents& dims, std::uint64_t mask,
          const GraphBuilder::Extents& kept) {
  const NodeId x = b.leaf(i32, dims), factor = b.leaf(i32, {dims.back()}),
               found = b.reshape(b.reduce(op, x, mask), kept);
  b.root(b.op(Op::multiply, {b.op(Op::subtract, {x, found}), factor}));
  b.root(b.op(Op::multiply, {found, factor}));
}

TEST(ShortColumns, ShareTheLanesWithKeptAxes) {
  for (const Op op : {Op::reduce_sum, Op::reduce_max}) {
    for (const std::int64_t last : {3, 11}) {
      GraphBuilder few, outside;
      norm(few, op, {4, 701, last}, 1, {1, 701, last});
      EXPECT_EQ(check(few), std::vector{Form::Columns}) << last;
      norm(outside, op, {3, 4, 50, 5, last}, 2, {3, 1, 50, 5, last});
      EXPECT_EQ(check(outside), std::vector{Form::Columns}) << last;
    }
    GraphBuilder tall;
    norm(tall, op, {40, 701, 3}, 1, {1, 701, 3});
    EXPECT_EQ(check(tall), std::vector{Form::Stripes});
  }
}

/// What columns in stripes are combined with is made once for each of them, not in each of their rows: one
/// loop multiplies, another reads the product.
TEST(ShortColumns, ValuesOfAColumnAreMadeOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(i32, {90, 2801}), sum = b.reduce(Op::reduce_sum, x, 1),
               square = b.op(Op::multiply, {sum, sum});
  b.root(b.op(Op::subtract, {x, square}));
  const auto expected = b.values();
  LoweredGraph lowered(b, cpu(32));
  EXPECT_EQ(lowered.values(), expected) << lowered.text();
  EXPECT_EQ(lowered.forms, std::vector{Form::Stripes});
  const std::string text = lowered.text();
  const std::size_t rows = text.rfind("  for ");
  ASSERT_NE(rows, std::string::npos);
  EXPECT_EQ(text.find(" * scratch", rows), std::string::npos) << text;
  EXPECT_NE(text.find(" - scratch", rows), std::string::npos) << text;
}

/// Columns of less than two lines share the lanes, too; what is one for several of them is found by a
/// division before the first row, not in each.
TEST(ShortColumns, ReadOnceWhatSeveralOfThemShare) {
  const auto sums = [](GraphBuilder& b) {
    const NodeId x = b.leaf(i32, {40, 701, 15}), mean = b.leaf(i32, {1, 701, 1}),
                 apart = b.op(Op::subtract, {x, mean});
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {apart, apart}), 1));
  };
  GraphBuilder all, one;
  sums(all), sums(one);
  EXPECT_EQ(check(all), std::vector{Form::Stripes});
  const auto expected = one.values();
  LoweredGraph lowered(one, cpu(64));
  EXPECT_EQ(lowered.values(), expected) << lowered.text();
  const std::string text = lowered.text();
  const std::size_t rows = text.find("  for "), division = text.find("indexdiv(");
  ASSERT_NE(rows, std::string::npos) << text;
  EXPECT_LT(division, rows) << text;
  EXPECT_EQ(text.find("indexdiv(", rows), std::string::npos) << text;
}

/// Chunks of their stripes are combined by the finish section.
TEST(ShortColumns, OfManyRowsAreCutIntoChunks) {
  GraphBuilder b;
  const NodeId x = b.leaf(i32, {500, 101, 3}), factor = b.leaf(i32, {3});
  b.root(b.op(Op::multiply, {b.reduce(Op::reduce_sum, x, 1), factor}));
  EXPECT_EQ(check(b), std::vector{Form::Stripes});
}

/// Rows of an item that the second cache does not hold, in blocks whose last is short, and the rows that fill
/// no vector after them.
TEST(ShortColumns, ShareTheLanesWithTheirRowsInBlocks) {
  for (const std::int64_t rows : {600, 643}) {
    for (const DType type : {i32, DType::Int64}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, {2, rows, 8, 5}),
                   sum = b.reshape(b.reduce(Op::reduce_sum, x, 2 | 8), {2, 1, 8, 1}),
                   centred = b.op(Op::subtract, {x, sum}),
                   most = b.reshape(b.reduce(Op::reduce_max, centred, 2 | 8), {2, 1, 8, 1});
      b.root(b.op(Op::subtract, {centred, most}));
      b.root(most);
      EXPECT_EQ(check(b), std::vector{Form::Columns});
    }
  }
}

/// Columns that fill no vector alone, in chunks.
TEST(ShortColumns, OfAnyNumberFillVectors) {
  for (const std::int64_t columns : {9, 11, 17, 19, 33}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_max, b.leaf(i32, {3001, columns}), 1));
    check(b);
  }
}

}  // namespace
}  // namespace kiln::lower
