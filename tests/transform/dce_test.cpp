#include "transform/dce.h"

#include "transform/transformed.h"

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;

TEST(Dce, DropsWhatNoRootNeedsAndKeepsTheOrder) {
  GraphBuilder b;
  b.leaf(DType::Float32, {4});
  const NodeId x = b.leaf(DType::Float32, {4});
  const NodeId dead = b.op(Op::exp, {x}), y = b.op(Op::negative, {x}), s = b.scalar(DType::Float32, 0);
  const NodeId z = b.op(Op::add, {y, s});
  b.graph[dead].held = true;
  b.root(z);
  b.root(y);
  const Renumbering now = dce(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(now, (Renumbering{kNoNode, 0, kNoNode, 1, 2, 3}));
  EXPECT_EQ(b.graph.roots, (std::vector<NodeId>{3, 1}));
  EXPECT_EQ(b.graph[0].arg, 1);  // arguments and slots keep their numbers
  EXPECT_EQ(b.graph.args.size(), 2u);
}

}  // namespace
}  // namespace kiln::transform
