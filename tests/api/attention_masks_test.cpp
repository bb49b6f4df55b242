// Masks that an attention reads from memory, in every dtype and layout: a CPU's tiles turn some of them.
#include "attention_scores.h"
#include "counted.h"

#include <kiln/config.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>

#include "modes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace kiln {
namespace {

using test::data, test::scores;

constexpr std::int64_t kRows = 77, kColumns = 301, kDepth = 16;

/// One step, whose results are those of the interpreter.
void expect_same(const std::function<Tensor(const Tensor&)>& masked) {
  const Tensor q = data({2, 2, kRows, kDepth}, DType::Float32, 1),
               k = data({2, 2, kColumns, kDepth}, DType::Float32, 2),
               v = data({2, 2, kColumns, kDepth}, DType::Float32, 3);
  const auto program = [&] { return matmul(nn::softmax(masked(scores(q, k))), v); };
  std::vector<float> want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = program().to_vector<float>();
  }
  Tensor out;
  const test::Counted n = test::count([&] { out = program().eval(); });
  if (config().device == "cpu") EXPECT_EQ(n.library_calls, 1u);
  const std::vector<float> got = out.to_vector<float>();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
}

TEST(AttentionMasks, OfEveryDtype) {
  for (const DType type : {DType::Bool, DType::Int8, DType::UInt16, DType::Int32, DType::Int64,
                           DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
    SCOPED_TRACE(name(type));
    const Tensor drawn = data({kRows, kColumns}, DType::Float32, 4);
    const Tensor mask = (is_float(type) ? drawn.astype(type) : (drawn > -0.3).astype(type)).eval();
    expect_same([&](const Tensor& t) {
      return is_float(type) ? t + mask.astype(DType::Float32) : where(mask != 0, t, -1e9);
    });
  }
}

TEST(AttentionMasks, InAnyLayout) {
  const Tensor wide = data({2, 1, kRows + 3, kColumns + 20}, DType::Float32, 5);
  const Tensor tall = data({kColumns, kRows}, DType::Float32, 6);
  const Tensor other = data({2, kRows, kColumns}, DType::Float32, 7);
  const Slice all;
  expect_same(
      [&](const Tensor& t) { return t + wide(all, all, Slice(2, kRows + 2), Slice(5, kColumns + 5)); });
  expect_same([&](const Tensor& t) { return t + tall.T(); });
  expect_same([&](const Tensor& t) { return t + other; });
  expect_same([&](const Tensor& t) {
    return t + other * tall.T() + wide(all, all, Slice(0, 1), Slice(0, kColumns));
  });
}

}  // namespace
}  // namespace kiln
