#include "transform/negate.h"

#include "transform/transformed.h"

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

struct Negate : testing::Test {
  GraphBuilder b;
  NodeId x = b.leaf(DType::Float32, {2, 3});
  NodeId y = b.leaf(DType::Float32, {2, 3});
  NodeId row = b.leaf(DType::Float32, {3});
  NodeId minus(NodeId v) { return b.op(Op::negative, {v}); }
};

TEST_F(Negate, PassesThroughProductsAndOddFunctions) {
  const std::string text = transformed(b, b.op(Op::erf, {b.op(Op::multiply, {minus(x), y})}));
  EXPECT_NE(text.find("= multiply %0 %1"), std::string::npos) << text;
  EXPECT_NE(text.find("= erf %2"), std::string::npos) << text;
  EXPECT_NE(text.find("= negative %3 held"), std::string::npos) << text;
}

TEST_F(Negate, LeavesOneOfTwoValuesThatDifferInSign) {
  const NodeId sum = b.op(Op::add, {b.op(Op::tanh, {x}), b.op(Op::exp, {b.op(Op::tanh, {minus(x)})})});
  const std::string text = transformed(b, sum);
  EXPECT_EQ(text.find("tanh"), text.rfind("tanh")) << text;
}

TEST_F(Negate, TurnsSumsIntoDifferences) {
  EXPECT_EQ(
      transformed(b, b.op(Op::add, {x, minus(y)})),
      "%0 f32(2, 3) = leaf arg 0\n%1 f32(2, 3) = leaf arg 1\n%2 f32(2, 3) = subtract %0 %1 held\nroots %2\n");
}

TEST_F(Negate, EvenFunctionsDropTheSign) {
  EXPECT_EQ(transformed(b, b.op(Op::cosh, {minus(x)})),
            "%0 f32(2, 3) = leaf arg 0\n%1 f32(2, 3) = cosh %0 held\nroots %1\n");
}

TEST_F(Negate, StaysOnAnOperandThatIsSpread) {
  const std::string text = transformed(b, b.op(Op::multiply, {x, minus(row)}));
  EXPECT_NE(text.find("f32(3,) = negative"), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln::transform
