#include "transform/fold.h"

#include "transform/transformed.h"

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

TEST(Fold, ComputesOperationsOnConstants) {
  GraphBuilder b;
  const NodeId two = b.constant(DType::Float32, 0x40000000, {3}),
               three = b.constant(DType::Float32, 0x40400000);
  const NodeId product = b.op(Op::multiply, {two, three});
  const NodeId less = b.op(Op::less, {product, three});
  b.root(b.op(Op::where, {less, two, b.op(Op::sqrt, {product})}));
  b.root(b.cast(product, DType::Int8));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 f32(3,) = constant 2.44949 held\n%1 i8(3,) = constant 6 held\nroots %0 %1\n");
}

TEST(Fold, LeavesScalarsAlone) {
  GraphBuilder b;
  b.root(b.op(Op::multiply, {b.constant(DType::Float32, 0x40000000), b.scalar(DType::Float32, 0x40000000)}));
  EXPECT_EQ(checked_transform(b).graph.size(), 3u);
}

}  // namespace
}  // namespace kiln::transform
