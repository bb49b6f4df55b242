#include "transform/reuse_products.h"

#include "ir/graph_builder.h"
#include "transform/dce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// o = w v, where w = e / s, and a product with a row of d for each row of w: dp = d vᵀ.
struct ReuseProducts : testing::Test {
  GraphBuilder b;
  NodeId e = b.leaf(DType::Float32, {2, 6, 9}), s = b.leaf(DType::Float32, {2, 6, 1}),
         d = b.leaf(DType::Float32, {2, 6, 4});
  NodeId quotient(NodeId x) { return b.op(Op::divide, {x, b.broadcast(s, {2, 6, 9})}); }

  /// The graph's text after the pass, whose root is the sum of `of` over the last axis.
  std::string sum_of(NodeId o, NodeId of) {
    b.root(o);
    b.root(b.reduce(Op::reduce_sum, of, 4));
    const auto before = b.values();
    reuse_products(b.graph);
    dce(b.graph);
    ir::verify(b.graph);
    const auto after = b.values(b.graph);
    const std::vector<float> want = floats(before.back()), got = floats(after.back());
    EXPECT_EQ(want.size(), got.size());
    for (std::size_t i = 0; i < std::min(want.size(), got.size()); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-4F * std::abs(want[i]) + 1e-2F) << i;
    return ir::print(b.graph);
  }
  static std::vector<float> floats(const std::vector<std::byte>& bytes) {
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
  }
  static bool is_made_of_the_result(const std::string& text) {
    return text.find("f32(2, 6, 4) = multiply") != std::string::npos &&
           text.find("f32(2, 6, 9) = multiply") == std::string::npos;
  }
};

TEST_F(ReuseProducts, SumsOfWeightsTimesAProduct) {
  const NodeId v = b.leaf(DType::Float32, {2, 9, 4}), w = quotient(e);
  const NodeId o = b.matmul(w, v), dp = b.matmul(d, b.permute(v, {0, 2, 1}));
  const std::string text = sum_of(o, b.op(Op::multiply, {dp, w}));
  EXPECT_TRUE(is_made_of_the_result(text)) << text;
}

TEST_F(ReuseProducts, BehindASignAndADivisionByAValueOfTheRow) {
  const NodeId v = b.leaf(DType::Float32, {2, 9, 4}), w = quotient(e);
  const NodeId o = b.matmul(w, v), dp = b.matmul(d, b.permute(v, {0, 2, 1}));
  const std::string text = sum_of(o, b.op(Op::negative, {quotient(b.op(Op::multiply, {dp, w}))}));
  EXPECT_TRUE(is_made_of_the_result(text)) << text;
  EXPECT_NE(text.find("= negative"), std::string::npos) << text;
}

TEST_F(ReuseProducts, WhereBothOperandsArePermutationsOfOneTensor) {
  const NodeId heads = b.leaf(DType::Float32, {9, 2, 4}), w = quotient(e);
  const NodeId o = b.matmul(w, b.permute(heads, {1, 0, 2})), dp = b.matmul(d, b.permute(heads, {1, 2, 0}));
  const std::string text = sum_of(o, b.op(Op::multiply, {dp, w}));
  EXPECT_TRUE(is_made_of_the_result(text)) << text;
}

TEST_F(ReuseProducts, NotOfAnotherTensor) {
  const NodeId v = b.leaf(DType::Float32, {2, 9, 4}), u = b.leaf(DType::Float32, {2, 9, 4}), w = quotient(e);
  const NodeId o = b.matmul(w, v), dp = b.matmul(d, b.permute(u, {0, 2, 1}));
  const std::string text = sum_of(o, b.op(Op::multiply, {dp, w}));
  EXPECT_FALSE(is_made_of_the_result(text)) << text;
}

}  // namespace
}  // namespace kiln::transform
