// Chunks of few rows that read the same: a GPU's item has several rows. Held against the oracle.
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
  return t;
}

/// Sums of two products of x (batches, rows, 2) and y (batches, 2, columns), as maps.
NodeId products(GraphBuilder& b, DType type, std::int64_t batches, std::int64_t rows, std::int64_t columns) {
  const NodeId x = b.leaf(type, {batches, rows, 2}), y = b.leaf(type, {batches, 2, columns});
  const auto term = [&](std::int64_t k) {
    return b.op(Op::multiply, {b.slice(x, {batches, rows, 1}, {0, 1, 0, 1, k, 1}),
                               b.slice(y, {batches, 1, columns}, {0, 1, k, 1, 0, 1})});
  };
  return b.op(Op::add, {term(0), term(1)});
}

/// Whether a loop has the results of several rows, after a check.
bool tiled(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {gpu()}).front();
  EXPECT_EQ(lowered.forms, std::vector{Form::Split});
  return lowered.text().find(", a3: ") != std::string::npos;
}

TEST(TiledChunks, FewLongRowsThatReadTheSameAreATile) {
  struct Case {
    std::int64_t batches, rows, columns;
    bool tiles;
  };
  for (const Case& c :
       {Case{1, 20, 9000, true}, {1, 16, 9001, true}, {2, 7, 20000, true}, {1, 3, 30000, false}})
    for (const Op how : {Op::reduce_sum, Op::reduce_max, Op::reduce_argmin}) {
      const DType type = how == Op::reduce_sum ? DType::Int64 : DType::Float32;
      GraphBuilder b;
      b.root(b.reduce(how, products(b, type, c.batches, c.rows, c.columns), 4));
      EXPECT_EQ(tiled(b), c.tiles) << c.batches << " x " << c.rows << " x " << c.columns;
    }
}

TEST(TiledChunks, ResultsOfARowAreMadeInTheEnd) {
  GraphBuilder b;
  const NodeId y = products(b, DType::Int64, 1, 21, 9000);
  const NodeId most = b.reduce(Op::reduce_max, y, 4), all = b.reduce(Op::reduce_sum, y, 4);
  b.root(b.op(Op::subtract, {all, most}));
  b.root(most);
  EXPECT_TRUE(tiled(b));
}

}  // namespace
}  // namespace kiln::lower
