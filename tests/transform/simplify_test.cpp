#include "transform/simplify.h"

#include "transform/transformed.h"

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f = DType::Float32, i = DType::Int32, t = DType::Bool;
const std::string kLeaf = "%0 f32(2, 3, 4) = leaf arg 0 held\nroots %0\n";

struct Simplify : testing::Test {
  GraphBuilder b;
  NodeId x = b.leaf(f, {2, 3, 4});
};

TEST_F(Simplify, ReshapesCompose) {
  EXPECT_EQ(transformed(b, b.reshape(b.reshape(x, {6, 4}), {24})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(24,) = reshape %0 held\nroots %1\n");
}
TEST_F(Simplify, AReshapeBackIsNothing) {
  EXPECT_EQ(transformed(b, b.reshape(b.reshape(x, {24}), {2, 3, 4})), kLeaf);
}
TEST_F(Simplify, PermutationsCompose) {
  EXPECT_EQ(transformed(b, b.permute(b.permute(x, {1, 2, 0}), {0, 2, 1})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(3, 2, 4) = permute %0 axes 1 0 2 held\nroots %1\n");
}
TEST_F(Simplify, APermutationBackIsNothing) {
  EXPECT_EQ(transformed(b, b.permute(b.permute(x, {1, 2, 0}), {2, 0, 1})), kLeaf);
}
TEST_F(Simplify, SlicesCompose) {
  const NodeId rows = b.slice(x, {2, 3, 2}, {0, 1, 2, -1, 3, -2});
  EXPECT_EQ(transformed(b, b.slice(rows, {1, 2, 2}, {1, 7, 2, -2, 1, -1})),
            "%0 f32(2, 3, 4) = leaf arg 0\n"
            "%1 f32(1, 2, 2) = slice %0 from 1 step 1, 0 step 2, 1 step 2 held\nroots %1\n");
}
TEST_F(Simplify, AWholeSliceIsNothing) {
  EXPECT_EQ(transformed(b, b.slice(x, {2, 3, 4}, {0, 1, 0, 1, 0, 1})), kLeaf);
}
TEST_F(Simplify, TwoReversalsAreNothing) {
  const std::vector<std::int64_t> flip = {0, 1, 0, 1, 3, -1};
  EXPECT_EQ(transformed(b, b.slice(b.slice(x, {2, 3, 4}, flip), {2, 3, 4}, flip)), kLeaf);
}
TEST_F(Simplify, BroadcastsCompose) {
  const NodeId row = b.leaf(f, {1, 4});
  EXPECT_EQ(transformed(b, b.broadcast(b.broadcast(row, {3, 4}), {2, 3, 4})),
            "%0 f32(1, 4) = leaf arg 1\n%1 f32(2, 3, 4) = broadcast %0 held\nroots %1\n");
}
TEST_F(Simplify, ABroadcastToTheSameExtentsIsNothing) {
  EXPECT_EQ(transformed(b, b.broadcast(x, {2, 3, 4})), kLeaf);
}
TEST_F(Simplify, ViewsOfOneNumberAreThatNumberRepeated) {
  const NodeId s = b.broadcast(b.scalar(f, 0x3f800000), {4, 6});
  EXPECT_EQ(transformed(b, b.reshape(b.permute(s, {1, 0}), {24})),
            "%0 f32() = scalar slot 0\n%1 f32(24,) = broadcast %0 held\nroots %1\n");
}
TEST_F(Simplify, APadOfNothingIsItsBody) {
  EXPECT_EQ(transformed(b, b.pad(x, b.scalar(f, 0), {2, 3, 4}, {0, 1, 0, 1, 0, 1})), kLeaf);
}
TEST_F(Simplify, APadThatMovesItsBodyStays) {
  const NodeId p = b.pad(x, b.scalar(f, 0x40000000), {3, 3, 4}, {1, 1, 0, 1, 0, 1});
  b.root(p);
  EXPECT_EQ(checked_transform(b).graph.size(), 3u);
}
TEST_F(Simplify, APadOfAnEmptyBodyIsItsFill) {
  const NodeId none = b.slice(x, {0, 3, 4}, {0, 1, 0, 1, 0, 1});
  EXPECT_EQ(transformed(b, b.pad(none, x, {2, 3, 4}, {0, 1, 0, 1, 0, 1})), kLeaf);
}

TEST_F(Simplify, ACastToTheSameTypeIsNothing) { EXPECT_EQ(transformed(b, b.cast(x, f)), kLeaf); }
TEST_F(Simplify, AnExactWideningIsSkipped) {
  EXPECT_EQ(transformed(b, b.cast(b.cast(x, DType::Float64), f)), kLeaf);
}
TEST_F(Simplify, ARoundingCastStays) {
  b.root(b.cast(b.cast(x, DType::Float16), f));
  EXPECT_EQ(checked_transform(b).graph.size(), 3u);
}

TEST(SimplifyCasts, AreSkippedOnlyWhereTheBitsStay) {
  // Every pair of casts over every type: the oracle compares values, and this counts what must stay.
  constexpr int kTypes = kDTypeCount;
  for (int a = 0; a < kTypes; ++a)
    for (int m = 0; m < kTypes; ++m)
      for (int c = 0; c < kTypes; ++c) {
        GraphBuilder b;
        const NodeId x = b.leaf(static_cast<DType>(a), {50});
        b.root(b.cast(b.cast(x, static_cast<DType>(m)), static_cast<DType>(c)));
        checked_transform(b);
      }
  const auto nodes = [](DType a, DType m, DType c) {
    GraphBuilder b;
    b.root(b.cast(b.cast(b.leaf(a, {4}), m), c));
    return checked_transform(b).graph.size();
  };
  EXPECT_EQ(nodes(DType::Int32, DType::Float64, DType::Int8), 3u);  // saturates, a direct cast wraps
  EXPECT_EQ(nodes(DType::Int32, DType::Int64, DType::Int8), 2u);
  EXPECT_EQ(nodes(DType::Int32, DType::Float64, DType::Int64), 2u);
  EXPECT_EQ(nodes(DType::Int32, DType::Float32, DType::Float64), 3u);
  EXPECT_EQ(nodes(DType::UInt8, DType::BFloat16, DType::Float32), 2u);
  EXPECT_EQ(nodes(DType::Int16, DType::UInt32, DType::Int64), 3u);
  EXPECT_EQ(nodes(DType::Bool, DType::Float16, DType::Int32), 2u);
}

TEST_F(Simplify, InvolutionsCancel) {
  EXPECT_EQ(transformed(b, b.op(Op::negative, {b.op(Op::negative, {x})})), kLeaf);
}
TEST(SimplifyBits, InvolutionsCancel) {
  GraphBuilder b;
  const NodeId x = b.leaf(i, {4}), c = b.leaf(t, {4});
  b.root(b.op(Op::bitwise_invert, {b.op(Op::bitwise_invert, {x})}));
  b.root(b.op(Op::logical_not, {b.op(Op::logical_not, {c})}));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 i32(4,) = leaf arg 0 held\n%1 b1(4,) = leaf arg 1 held\nroots %0 %1\n");
}
TEST_F(Simplify, AbsTakesNoSign) {
  EXPECT_EQ(transformed(b, b.op(Op::abs, {b.op(Op::abs, {b.op(Op::negative, {x})})})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(2, 3, 4) = abs %0 held\nroots %1\n");
}
TEST_F(Simplify, AbsOfAnUnsignedNegativeIsTheNegative) {
  const NodeId u = b.leaf(DType::UInt16, {3});
  EXPECT_EQ(transformed(b, b.op(Op::abs, {b.op(Op::negative, {u})})),
            "%0 u16(3,) = leaf arg 1\n%1 u16(3,) = negative %0 held\nroots %1\n");
}
TEST_F(Simplify, ARoundingOfWholeNumbersIsNothing) {
  EXPECT_EQ(transformed(b, b.op(Op::ceil, {b.op(Op::floor, {x})})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(2, 3, 4) = floor %0 held\nroots %1\n");
}
TEST_F(Simplify, TheGreaterOfEqualsIsOneOfThem) {
  EXPECT_EQ(transformed(b, b.op(Op::maximum, {b.op(Op::minimum, {x, x}), x})), kLeaf);
}
TEST_F(Simplify, EqualOperandsAreFoundAmongEqualNodes) {
  const NodeId e = b.op(Op::exp, {x}), same = b.op(Op::exp, {x});
  EXPECT_EQ(transformed(b, b.op(Op::maximum, {e, same})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(2, 3, 4) = exp %0 held\nroots %1\n");
}
TEST_F(Simplify, ComparingFloatsWithThemselvesStays) {
  b.root(b.op(Op::equal, {x, x}));
  EXPECT_EQ(checked_transform(b).graph.size(), 2u);
}
TEST(SimplifyIntegers, OfThemselvesAreKnown) {
  GraphBuilder b;
  const NodeId x = b.leaf(i, {4});
  b.root(b.op(Op::equal, {x, x}));
  b.root(b.op(Op::less, {x, x}));
  b.root(b.op(Op::subtract, {x, x}));
  b.root(b.op(Op::bitwise_xor, {x, x}));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 b1(4,) = constant true held\n%1 b1(4,) = constant false held\n%2 i32(4,) = constant 0 held\n"
            "roots %0 %1 %2 %2\n");
}
TEST_F(Simplify, AChoiceBetweenEqualsIsNoChoice) {
  const NodeId c = b.leaf(t, {2, 3, 4});
  EXPECT_EQ(transformed(b, b.op(Op::where, {c, x, x})), kLeaf);
}
TEST_F(Simplify, AChoiceThatBroadcastsKeepsItsExtents) {
  const NodeId c = b.leaf(t, {5, 1, 1, 1});
  EXPECT_EQ(transformed(b, b.wide(Op::where, f, {5, 2, 3, 4}, {c, x, x})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(5, 2, 3, 4) = broadcast %0 held\nroots %1\n");
}
TEST_F(Simplify, AChoiceByANegationSwaps) {
  const NodeId c = b.leaf(t, {2, 3, 4}), y = b.leaf(f, {2, 3, 4});
  EXPECT_EQ(transformed(b, b.op(Op::where, {b.op(Op::logical_not, {c}), x, y})),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 b1(2, 3, 4) = leaf arg 1\n%2 f32(2, 3, 4) = leaf arg 2\n"
            "%3 f32(2, 3, 4) = where %1 %2 %0 held\nroots %3\n");
}

TEST_F(Simplify, NeutralConstantsGo) {
  NodeId y = b.op(Op::multiply, {x, b.constant(f, 0x3f800000)});
  y = b.op(Op::divide, {y, b.constant(f, 0x3f800000, {2, 3, 4})});
  y = b.op(Op::add, {b.constant(f, 0x80000000), y});
  y = b.op(Op::subtract, {y, b.constant(f, 0)});
  EXPECT_EQ(transformed(b, y), kLeaf);
}
TEST_F(Simplify, AddingZeroStays) {  // -0 + 0 is 0
  b.root(b.op(Op::add, {x, b.constant(f, 0)}));
  EXPECT_EQ(checked_transform(b).graph.size(), 3u);
}
TEST_F(Simplify, RecordedScalarsAreNeverRead) {
  b.root(b.op(Op::multiply, {x, b.scalar(f, 0x3f800000)}));
  EXPECT_EQ(checked_transform(b).graph.size(), 3u);
}
TEST(SimplifyLogic, ConstantsDecide) {
  GraphBuilder b;
  const NodeId c = b.leaf(t, {4}), yes = b.constant(t, 1), no = b.constant(t, 0);
  b.root(b.op(Op::logical_and, {c, yes}));
  b.root(b.op(Op::logical_and, {no, c}));
  b.root(b.op(Op::logical_or, {c, yes}));
  b.root(b.op(Op::logical_xor, {c, no}));
  b.root(b.op(Op::where, {yes, c, b.op(Op::logical_not, {c})}));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 b1(4,) = leaf arg 0 held\n%1 b1(4,) = constant false held\n%2 b1(4,) = constant true held\n"
            "roots %0 %1 %2 %0 %0\n");
}

TEST_F(Simplify, ReductionsOfOneElementAreNothing) {
  const NodeId y = b.reshape(x, {24, 1, 1});
  for (Op op : {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min}) b.root(b.reduce(op, y, 6));
  b.root(b.reduce(Op::reduce_argmax, y, 4));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(24, 1, 1) = reshape %0 held\n"
            "%2 i64(24, 1, 1) = constant 0 held\nroots %1 %1 %1 %1 %2\n");
}
TEST(SimplifyReductions, OfNothingAreConstants) {
  GraphBuilder b;
  const NodeId x = b.leaf(f, {3, 0}), c = b.leaf(t, {3, 0});
  b.root(b.reduce(Op::reduce_sum, x, 2));
  b.root(b.reduce(Op::reduce_prod, x, 2));
  b.root(b.reduce(Op::reduce_max, c, 2));
  b.root(b.reduce(Op::reduce_min, c, 2));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 f32(3, 1) = constant 0 held\n%1 f32(3, 1) = constant 1 held\n"
            "%2 b1(3, 1) = constant false held\n%3 b1(3, 1) = constant true held\nroots %0 %1 %2 %3\n");
}
TEST_F(Simplify, ScansOfOneElementAreNothing) {
  const NodeId y = b.reshape(x, {24, 1});
  for (Op op : {Op::scan_sum, Op::scan_max, Op::scan_logaddexp}) b.root(b.scan(op, y, {.axis = 1}));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(24, 1) = reshape %0 held\nroots %1 %1 %1\n");
}
TEST_F(Simplify, ExclusiveScansOfOneElementAreWhatComesBeforeAll) {
  const NodeId y = b.reshape(x, {24, 1}), i = b.leaf(DType::Int16, {24, 1});
  for (Op op : {Op::scan_sum, Op::scan_prod, Op::scan_max, Op::scan_min, Op::scan_logaddexp})
    b.root(b.scan(op, y, {.axis = 1, .exclusive = true, .reverse = true}));
  for (Op op : {Op::scan_max, Op::scan_min}) b.root(b.scan(op, i, {.axis = 1, .exclusive = true}));
  EXPECT_EQ(ir::print(checked_transform(b).graph),
            "%0 f32(24, 1) = constant 0 held\n%1 f32(24, 1) = constant 1 held\n"
            "%2 f32(24, 1) = constant -inf held\n%3 f32(24, 1) = constant inf held\n"
            "%4 i16(24, 1) = constant -32768 held\n%5 i16(24, 1) = constant 32767 held\n"
            "roots %0 %1 %2 %3 %2 %4 %5\n");
}
TEST(SimplifyReductions, WithEmptyResultsStay) {
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_sum, b.leaf(f, {0, 0}), 2));
  EXPECT_EQ(checked_transform(b).graph.size(), 2u);
}

TEST_F(Simplify, TransposesBeforeAMatmulBecomeOneViewOfTheLeaf) {
  const NodeId y = b.leaf(f, {2, 3, 4});
  const NodeId turned = b.permute(b.permute(b.permute(y, {1, 0, 2}), {1, 0, 2}), {0, 2, 1});
  EXPECT_EQ(transformed(b, b.matmul(x, turned)),
            "%0 f32(2, 3, 4) = leaf arg 0\n%1 f32(2, 3, 4) = leaf arg 1\n"
            "%2 f32(2, 4, 3) = permute %1 axes 0 2 1\n%3 f32(2, 3, 3) = matmul %0 %2 held\nroots %3\n");
}

}  // namespace
}  // namespace kiln::transform
