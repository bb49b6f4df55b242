#include "ir/builder.h"

#include "ir/graph_builder.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln::ir {
namespace {

TEST(Builder, AddsWhatIsInferredAndRefusesTheRest) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {2, 3});
  const NodeId sum = b.add(Op::reduce_sum, {x}, Reduce{2});
  EXPECT_TRUE(std::ranges::equal(b.graph[sum].dims, std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(b.graph[sum].numel, 2);
  EXPECT_THROW(b.add(Op::matmul, {x, x}), InternalError);
  EXPECT_THROW(b.add(Op::reduce_sum, {x}, Scan{1}), InternalError) << "attributes of another op";
  Builder(b.graph).redefine(b.graph[sum], Op::constant, {}, Constant{0});
  EXPECT_TRUE(b.graph[sum].in.empty());
  EXPECT_THROW(Builder(b.graph).redefine(b.graph[sum], Op::exp, {x}), InternalError) << "another shape";
}

}  // namespace
}  // namespace kiln::ir
