// matmul, einsum and their relatives.
#include "api/expect.h"

namespace kiln {
namespace {

using namespace testing;

TEST(Matmul, Forms) {
  const Tensor a = counting({2, 3}), b = counting({3, 2}), v = floats({1, 2, 3});
  expect_equal<float>(matmul(a, b), {2, 2}, {10, 13, 28, 40});
  expect_equal<float>(matmul(a, v), {8, 26});
  expect_equal<float>(matmul(v, b), {16, 22});
  expect_equal<float>(matmul(v, v), Shape{}, {14});
  EXPECT_EQ(matmul(counting({4, 2, 3}), b).shape().str(), "(4, 2, 2)");
  EXPECT_EQ(matmul(counting({4, 1, 2, 3}), counting({5, 3, 2})).shape().str(), "(4, 5, 2, 2)");
  EXPECT_EQ(matmul(v, counting({4, 3, 2})).shape().str(), "(4, 2)");
  EXPECT_EQ(matmul(counting({4, 2, 3}), v).shape().str(), "(4, 2)");
  expect_equal<float>(matmul(counting({2, 2, 2}), counting({2, 2, 2})), {2, 2, 2},
                      {2, 3, 6, 11, 46, 55, 66, 79});
  expect_equal<float>(matmul(zeros({2, 0}), zeros({0, 3})), {2, 3}, std::vector<float>(6));
  EXPECT_EQ(matmul(zeros({0, 2, 3}), b).shape().str(), "(0, 2, 2)");
  expect_equal<std::int32_t>(matmul(Tensor({1, 2}), Tensor({3, 4})), Shape{}, {11});
  EXPECT_EQ(matmul(a, zeros({3, 2}, DType::Int8)).dtype(), DType::Float32);
}

TEST(Matmul, Errors) {
  expect_user_error([] { matmul(zeros({4, 8}), zeros({7, 3})); },
                    "[matmul] inner dimensions differ: lhs float32 (4, 8), rhs float32 (7, 3)");
  expect_user_error([] { matmul(zeros({}), zeros({7})); },
                    "[matmul] a scalar has no axis to contract: lhs float32 (), rhs float32 (7,)");
  expect_user_error(
      [] { matmul(zeros({2, 2, 3}), zeros({3, 3, 4})); },
      "[matmul] batch dimensions do not broadcast: lhs float32 (2, 2, 3), rhs float32 (3, 3, 4)");
  EXPECT_THROW(matmul(zeros({2, 2}, DType::Bool), zeros({2, 2}, DType::Bool)), UserError);
}

TEST(Einsum, Products) {
  const Tensor a = counting({2, 3}), b = counting({3, 2});
  expect_equal<float>(einsum("ij,jk->ik", {a, b}), {2, 2}, {10, 13, 28, 40});
  expect_equal<float>(einsum("ij,jk", {a, b}), {2, 2}, {10, 13, 28, 40});
  expect_equal<float>(einsum("ij,jk->ki", {a, b}), {2, 2}, {10, 28, 13, 40});
  expect_equal<float>(einsum("ij->ji", {a}), {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_equal<float>(einsum("ij->j", {a}), {3, 5, 7});
  expect_equal<float>(einsum("ij->", {a}), Shape{}, {15});
  expect_equal<float>(einsum("i,j->ij", {floats({1, 2}), floats({3, 4})}), {2, 2}, {3, 4, 6, 8});
  expect_equal<float>(einsum("i,i", {floats({1, 2}), floats({3, 4})}), Shape{}, {11});
  expect_equal<float>(einsum("ij,ij->i", {a, a}), {5, 50});
  expect_equal<float>(einsum("bi,bo->bio", {counting({2, 2}), counting({2, 1})}), {2, 2, 1}, {0, 0, 2, 3});
  expect_equal<float>(einsum("...ij,...jk->...ik", {counting({2, 1, 2}), counting({2, 2, 1})}), {2, 1, 1},
                      {1, 13});
  expect_equal<float>(einsum("...i->...", {a}), {3, 12});
  expect_equal<float>(einsum("ij,jk,kl->il", {a, b, floats({2, 1}, {1, 1})}), {2, 1}, {23, 68});
  expect_equal<float>(einsum("ij,k->i", {a, floats({1, 2})}), {9, 36});
  expect_equal<float>(einsum(" i j , j -> i ", {a, floats({1, 1, 1})}), {3, 12});
}

TEST(Einsum, Diagonals) {
  const Tensor m = counting({3, 3});
  expect_equal<float>(einsum("ii->i", {m}), {0, 4, 8});
  expect_equal<float>(einsum("ii", {m}), Shape{}, {12});
  expect_equal<float>(einsum("iij->ij", {counting({2, 2, 2})}), {2, 2}, {0, 1, 6, 7});
  expect_equal<float>(einsum("ii,i->i", {m, floats({1, 2, 3})}), {0, 8, 24});
}

TEST(Einsum, BroadcastsOnes) {
  expect_equal<float>(einsum("ij,ij->ij", {floats({1, 2}, {1, 2}), floats({2, 1}, {3, 4})}), {2, 2},
                      {3, 6, 4, 8});
  EXPECT_EQ(einsum("ij->ji", {Tensor({1, 2, 3}).reshape({1, 3})}).dtype(), DType::Int32);
}

TEST(Einsum, Errors) {
  const Tensor a = zeros({2, 3});
  expect_user_error(
      [&] { einsum("ij,jk", {a, zeros({4, 2})}); },
      "[einsum] \"ij,jk\" does not fit: a label has extents 3 and 4; operands: float32 (2, 3), float32 (4, "
      "2)");
  expect_user_error([&] { einsum("ij,jk", {a}); },
                    "[einsum] \"ij,jk\" does not fit: 1 operands; operands: float32 (2, 3)");
  expect_user_error([&] { einsum("i", {a}); },
                    "[einsum] \"i\" does not fit: \"i\" names 1 of 2 axes; operands: float32 (2, 3)");
  expect_user_error([&] { einsum("ij->k", {a}); },
                    "[einsum] \"ij->k\" does not fit: an output label is repeated or in no operand; "
                    "operands: float32 (2, 3)");
  expect_user_error([&] { einsum("i?->i", {a}); },
                    "[einsum] \"i?->i\" does not fit: '?' is not a label; operands: float32 (2, 3)");
}

TEST(Contractions, Relatives) {
  expect_equal<float>(tensordot(counting({2, 3}), counting({3, 2}), 1), {2, 2}, {10, 13, 28, 40});
  expect_equal<float>(tensordot(counting({2, 3}), counting({2, 3})), Shape{}, {55});
  expect_equal<float>(tensordot(counting({2, 3}), counting({2, 3}), 0, 0), {3, 3},
                      {9, 12, 15, 12, 17, 22, 15, 22, 29});
  expect_equal<float>(outer(floats({1, 2}), floats({3, 4})), {2, 2}, {3, 4, 6, 8});
  expect_equal<float>(vecdot(counting({2, 3}), floats({1, 1, 1})), {3, 12});
  expect_equal<float>(vecdot(counting({2, 3}), counting({2, 3}), 0), {9, 17, 29});
  EXPECT_THROW(outer(zeros({2, 2}), zeros({2})), UserError);
  EXPECT_THROW(vecdot(zeros({2}), zeros({3})), UserError);
}

}  // namespace
}  // namespace kiln
