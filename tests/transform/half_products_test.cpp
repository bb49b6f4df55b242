#include "transform/half_products.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f16 = DType::Float16, bf16 = DType::BFloat16, f32 = DType::Float32;

/// Products of a dtype after the pass, which changes no value here.
std::int64_t products(GraphBuilder& b, DType type) {
  const auto before = b.values();
  half_products(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [&](const auto& n) { return n.op == Op::matmul && n.dtype == type; });
}

struct Product {
  GraphBuilder b;
  NodeId of(DType x, DType y) {
    return b.op(Op::matmul, {b.cast(b.leaf(x, {6, 4}), f32), b.cast(b.leaf(y, {4, 5}), f32)});
  }
};

TEST(HalfProducts, OfHalvesThatAreStoredAsHalves) {
  for (const DType half : {f16, bf16}) {
    Product p;
    p.b.root(p.b.cast(p.of(half, half), half));
    EXPECT_EQ(products(p.b, half), 1);
  }
}

TEST(HalfProducts, ViewsBetweenTheCastsAndTheProductStay) {
  GraphBuilder b;
  const NodeId x = b.permute(b.cast(b.leaf(f16, {4, 6}), f32), {1, 0}),
               y = b.reshape(b.cast(b.leaf(f16, {20}), f32), {4, 5});
  b.root(b.cast(b.reshape(b.permute(b.op(Op::matmul, {x, y}), {1, 0}), {30}), f16));
  EXPECT_EQ(products(b, f16), 1);
}

TEST(HalfProducts, WhoseFloatsAreWantedStay) {
  Product stored;
  const NodeId kept = stored.of(f16, f16);
  stored.b.root(stored.b.cast(kept, f16));
  stored.b.root(kept);
  EXPECT_EQ(products(stored.b, f32), 1) << "a result as it is";
  Product read;
  const NodeId product = read.of(f16, f16);
  read.b.root(read.b.cast(product, f16));
  read.b.root(read.b.op(Op::negative, {product}));
  EXPECT_EQ(products(read.b, f32), 1) << "read by another";
  Product sum;
  const NodeId plain = sum.of(f16, f16);
  sum.b.root(sum.b.cast(sum.b.op(Op::negative, {plain}), f16));
  EXPECT_EQ(products(sum.b, f32), 1) << "rounded later";
}

TEST(HalfProducts, OfOtherDtypesStay) {
  Product mixed, floats, other;
  mixed.b.root(mixed.b.cast(mixed.of(f16, bf16), f16));
  EXPECT_EQ(products(mixed.b, f32), 1);
  floats.b.root(
      floats.b.cast(floats.b.op(Op::matmul, {floats.b.leaf(f32, {6, 4}), floats.b.leaf(f32, {4, 5})}), f16));
  EXPECT_EQ(products(floats.b, f32), 1);
  other.b.root(other.b.cast(other.of(bf16, bf16), f16));
  EXPECT_EQ(products(other.b, f32), 1) << "values beyond a float16 would be infinite before";
}

}  // namespace
}  // namespace kiln::transform
