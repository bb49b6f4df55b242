#include "transform/sum_batches.h"

#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// Whether no sum is left of a product of a and b, summed over the axes of `mask`; values stay.
bool merges(const GraphBuilder::Extents& x, const GraphBuilder::Extents& y, std::uint64_t mask,
            bool read_twice = false, DType type = DType::Int32) {
  GraphBuilder b;
  const NodeId product = b.op(Op::matmul, {b.leaf(type, x), b.leaf(type, y)});
  b.root(b.reduce(Op::reduce_sum, product, mask));
  if (read_twice) b.root(b.op(Op::negative, {product}));
  const auto before = b.values();
  const Renumbering now = sum_batches(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values(b.graph));
  dce(b.graph);
  return std::none_of(b.graph.nodes.begin(), b.graph.nodes.end(),
                      [](const auto& n) { return n.op == Op::reduce_sum; });
}

TEST(SumBatches, ASumOverAllBatchesIsOneProduct) {
  EXPECT_TRUE(merges({5, 16, 7}, {5, 7, 9}, 1));
  EXPECT_TRUE(merges({3, 2, 16, 7}, {3, 2, 7, 9}, 3));
  EXPECT_TRUE(merges({3, 1, 16, 7}, {3, 1, 7, 9}, 1)) << "an axis of 1 need not be summed";
}

TEST(SumBatches, OtherSumsStay) {
  EXPECT_FALSE(merges({3, 2, 16, 7}, {3, 2, 7, 9}, 1)) << "a batch axis is kept";
  EXPECT_FALSE(merges({5, 16, 7}, {5, 7, 9}, 5)) << "columns are summed too";
  EXPECT_FALSE(merges({5, 4, 7}, {5, 7, 4}, 1)) << "few results";
  EXPECT_FALSE(merges({5, 16, 7}, {5, 7, 9}, 1, true)) << "the products are read twice";
}

}  // namespace
}  // namespace kiln::transform
