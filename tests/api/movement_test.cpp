// Movement, indexing and slice update against hand-computed values.
#include "api/expect.h"
#include "record/node.h"

#include <array>
#include <cmath>
#include <limits>

namespace kiln {
namespace {

using namespace testing;

TEST(Reshape, FillsOneExtent) {
  const Tensor x = counting({2, 3});
  expect_equal<float>(reshape(x, {3, -1}), {3, 2}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(flatten(x).shape().str(), "(6,)");
  EXPECT_EQ(flatten(counting({2, 3, 4}), 1).shape().str(), "(2, 12)");
  EXPECT_EQ(zeros({0, 3}).reshape({3, 0}).shape().str(), "(3, 0)");
  EXPECT_EQ(zeros({0, 3}).reshape({-1, 3}).shape().str(), "(0, 3)");
  EXPECT_EQ(Tensor(1.f).reshape({1, 1}).shape().str(), "(1, 1)");
  expect_user_error([&] { x.reshape({4, -1}); }, "[reshape] float32 (2, 3) cannot take the shape (4, -1)");
  expect_user_error([&] { x.reshape({-1, -1}); }, "[reshape] float32 (2, 3) cannot take the shape (-1, -1)");
  expect_user_error([&] { x.reshape({5}); }, "[reshape] float32 (2, 3) cannot take the shape (5,)");
  expect_user_error([&] { x.reshape({-2, -3}); }, "[reshape] float32 (2, 3) cannot take the shape (-2, -3)");
  expect_user_error([&] { zeros({0}).reshape({-1, 0}); },
                    "[reshape] float32 (0,) cannot take the shape (-1, 0)");
}

TEST(Permute, MovesAxes) {
  const Tensor x = counting({2, 3});
  expect_equal<float>(x.T(), {3, 2}, {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(permute_dims(counting({2, 3, 4}), {2, 0, 1}).shape().str(), "(4, 2, 3)");
  expect_equal<float>(permute_dims(counting({2, 1, 3}), {2, -2, 0}), {3, 1, 2}, {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(moveaxis(counting({2, 3, 4}), 0, -1).shape().str(), "(3, 4, 2)");
  EXPECT_EQ(moveaxis(counting({2, 3, 4, 5}), {0, 3}, {2, 0}).shape().str(), "(5, 3, 2, 4)");
  EXPECT_EQ(transpose(counting({2, 3, 4})).shape().str(), "(4, 3, 2)");
  EXPECT_EQ(swapaxes(counting({2, 3, 4}), 0, -1).shape().str(), "(4, 3, 2)");
  expect_user_error([&] { permute_dims(x, {0}); }, "[permute_dims] needs 2 axes for float32 (2, 3), got 1");
  expect_user_error([&] { permute_dims(x, {0, 0}); },
                    "[permute_dims] axis 0 is given twice for float32 (2, 3)");
  expect_user_error([&] { permute_dims(x, {0, 2}); },
                    "[permute_dims] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([] { zeros({3}).T(); }, "[matrix_transpose] needs two axes, got float32 (3,)");
}

TEST(Axes, ComeAndGo) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(expand_dims(x, 0).shape().str(), "(1, 2, 3)");
  EXPECT_EQ(expand_dims(x, {0, -1}).shape().str(), "(1, 2, 3, 1)");
  EXPECT_EQ(squeeze(zeros({1, 2, 1})).shape().str(), "(2,)");
  EXPECT_EQ(squeeze(zeros({1, 2, 1}), 0).shape().str(), "(2, 1)");
  expect_user_error([&] { squeeze(x, 0); }, "[squeeze] axis 0 of float32 (2, 3) is not of extent 1");
  expect_user_error([&] { expand_dims(x, 4); },
                    "[expand_dims] axis 4 is out of range for float32 (2, 3) with 1 new axis");
  EXPECT_EQ(broadcast_to(x, {4, 2, 3}).shape().str(), "(4, 2, 3)");
  expect_equal<float>(broadcast_to(floats({2, 1}, {1, 2}), {2, 2}), {2, 2}, {1, 1, 2, 2});
  expect_user_error([&] { broadcast_to(x, {3}); },
                    "[broadcast_to] float32 (2, 3) does not broadcast to (3,)");
  const std::vector<Tensor> both{zeros({2, 1}), zeros({3})};
  EXPECT_EQ(broadcast_arrays(both)[1].shape().str(), "(2, 3)");
}

TEST(Flip, RollPad) {
  const Tensor x = counting({2, 3});
  expect_equal<float>(flip(x), {2, 3}, {5, 4, 3, 2, 1, 0});
  expect_equal<float>(flip(x, 1), {2, 3}, {2, 1, 0, 5, 4, 3});
  expect_equal<float>(roll(x, 1, 1), {2, 3}, {2, 0, 1, 5, 3, 4});
  expect_equal<float>(roll(x, -1), {2, 3}, {1, 2, 3, 4, 5, 0});
  expect_equal<float>(roll(x, 7, {0, 1}), {2, 3}, {5, 3, 4, 2, 0, 1});
  EXPECT_EQ(roll(zeros({0, 2}), 1, 0).shape().str(), "(0, 2)");
  expect_equal<float>(pad(floats({1, 2}), {{1, 2}}, 9), {9, 1, 2, 9, 9});
  expect_equal<float>(pad(floats({1, 2, 3}), {{-1, 1}}), {2, 3, 0});
  expect_equal<float>(pad(floats({1, 2, 3}), {{2, -4}}, 7), {7});
  expect_equal<float>(pad(zeros({0}), {{1, 1}}, 4), {4, 4});
  expect_user_error([&] { pad(x, {{1, 1}}); }, "[pad] needs 2 pairs of widths for float32 (2, 3), got 1");
  expect_user_error([] { pad(zeros({2}), {{-2, -1}}); }, "[pad] widths -2 and -1 on axis 0 of float32 (2,)");
}

TEST(Concat, JoinsAndPromotes) {
  const Tensor x = counting({2, 2});
  expect_equal<float>(concat({x, x + 10}), {4, 2}, {0, 1, 2, 3, 10, 11, 12, 13});
  expect_equal<float>(concat({x, floats({2, 1}, {7, 8}), x}, -1), {2, 5}, {0, 1, 7, 0, 1, 2, 3, 8, 2, 3});
  EXPECT_EQ(concat({zeros({2}, DType::Int8), zeros({1}, DType::Float64)}).dtype(), DType::Float64);
  expect_equal<float>(concat({zeros({0}), floats({1}), zeros({0})}), {1});
  EXPECT_EQ(concat({zeros({0, 2}), zeros({0, 2})}).shape().str(), "(0, 2)");
  expect_equal<float>(stack({floats({1, 2}), floats({3, 4})}), {2, 2}, {1, 2, 3, 4});
  expect_equal<float>(stack({floats({1, 2}), floats({3, 4})}, -1), {2, 2}, {1, 3, 2, 4});
  expect_equal<float>(stack({Tensor(1.f), Tensor(2.f)}), {1, 2});
  expect_user_error([&] { concat({x, zeros({3, 3})}); },
                    "[concat] float32 (2, 2) and float32 (3, 3) differ off axis 0");
  expect_user_error([] { concat(std::span<const Tensor>{}); }, "[concat] no tensors");
  expect_user_error([&] { stack({x, zeros({2})}); },
                    "[stack] shapes differ: float32 (2, 2) and float32 (2,)");
}

TEST(Concat, TakesAnyNumberOfArraysAsOneOperation) {
  for (const std::int64_t count : {1, 2, 3, 4, 32, 33, 64, 65, 255, 256, 1000, 1057}) {
    SCOPED_TRACE(count);
    std::vector<Tensor> pieces;
    std::vector<float> rows;  // of three elements, of one row or two, or of none
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t n = i % 7 == 3 ? 0 : 1 + i % 2;
      pieces.push_back(full({n, 3}, static_cast<float>(i)));
      for (std::int64_t r = 0; r < 3 * n; ++r) rows.push_back(static_cast<float>(i));
    }
    const Tensor joined = concat(pieces, 0);
    if (count > 3 && config().mode == Mode::Lazy) {
      EXPECT_EQ(joined.node()->op, ir::Op::join);
    }
    EXPECT_EQ(joined.to_vector<float>(), rows);
    std::vector<Tensor> columns;
    for (const Tensor& p : pieces) columns.push_back(matrix_transpose(p) * 2.0 / 2.0);
    EXPECT_EQ(matrix_transpose(concat(columns, -1)).to_vector<float>(), rows);
  }
}

TEST(Concat, IsReadWhereItIsAsked) {
  std::vector<Tensor> pieces;
  for (int i = 0; i < 9; ++i)
    pieces.push_back(floats({2, 2}, {i * 4.f, i * 4 + 1.f, i * 4 + 2.f, i * 4 + 3.f}));
  const Tensor all = concat(pieces);
  expect_equal<float>(all(range(3, 7)), {4, 2}, {6, 7, 8, 9, 10, 11, 12, 13});
  expect_equal<float>(flip(all, 0)(range(0, 2)), {2, 2}, {34, 35, 32, 33});
  expect_equal<float>(all(range(none, none, 5)), {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  expect_equal<float>(take(all, Tensor::from(std::vector<std::int64_t>{17, 0, -18, 9}, {4}), 0), {4, 2},
                      {34, 35, 0, 1, 0, 1, 18, 19});
  expect_equal<float>(pad(all, {{1, 0}, {0, 1}}, -1)(range(0, 2)), {2, 3}, {-1, -1, -1, 0, 1, -1});
  EXPECT_EQ(sum(all).item<float>(), 35 * 36 / 2);
  expect_equal<float>(concat({all, flip(all, 0), all(range(0, 1))})(range(35, none)), {2, 2}, {0, 1, 0, 1});
  expect_equal<float>(slice_update(all, {range(1, 3)}, 5)(range(0, 4)), {4, 2}, {0, 1, 5, 5, 5, 5, 6, 7});
}

TEST(Concat, KeepsNanOutOfItsNeighbours) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = floats({3}, {-1, 0, 4});
  expect_equal<float>(concat({log(x), x, sqrt(x)})(range(1, 6)), {5}, {-inf, std::log(4.f), -1, 0, 4});
}

TEST(Tile, RepeatSplit) {
  expect_equal<float>(tile(floats({1, 2}), {2}), {1, 2, 1, 2});
  expect_equal<float>(tile(floats({1, 2}), {2, 1}), {2, 2}, {1, 2, 1, 2});
  expect_equal<float>(tile(counting({2, 1}), {1, 2}), {2, 2}, {0, 0, 1, 1});
  EXPECT_EQ(tile(floats({1, 2}), {0}).shape().str(), "(0,)");
  expect_equal<float>(repeat(counting({2, 2}), 2, 1), {2, 4}, {0, 0, 1, 1, 2, 2, 3, 3});
  expect_equal<float>(repeat(counting({2, 2}), 2, 0), {4, 2}, {0, 1, 0, 1, 2, 3, 2, 3});
  const auto parts = split(counting({2, 4}), 2, 1);
  ASSERT_EQ(parts.size(), 2u);
  expect_equal<float>(parts[1], {2, 2}, {2, 3, 6, 7});
  const auto pieces = split(floats({1, 2, 3}), std::vector<std::int64_t>{1, 1});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].numel(), 0);
  expect_equal<float>(pieces[2], {2, 3});
  expect_equal<float>(unstack(counting({2, 2}), 1)[1], {1, 3});
  expect_user_error([] { split(zeros({3}), 2); }, "[split] axis 0 of float32 (3,) into 2 equal parts");
}

/// The result has at most 16 axes; what is made on the way has no more.
TEST(Movement, TileAndRepeatTakeEveryRankThatFits) {
  Shape dims;
  for (int i = 0; i < kMaxRank; ++i) dims.push_back(i == 3 ? 3 : i == 15 ? 2 : 1);
  const Tensor x = counting(dims);
  for (int axis : {0, 3, 15}) {
    const Tensor r = repeat(x, 2, axis);
    Shape want = dims;
    want[axis] *= 2;
    EXPECT_EQ(r.shape().str(), want.str());
    const Tensor low = repeat(counting({3, 2}), 2, axis == 15 ? 1 : 0),
                 lower = axis == 0 ? concat({counting({3, 2}), counting({3, 2})}, 0) : low;
    EXPECT_EQ(r.to_vector<float>(), lower.to_vector<float>()) << axis;
  }
  Shape times;
  for (int i = 0; i < kMaxRank; ++i) times.push_back(i == 3 || i == 15 ? 2 : 1);
  EXPECT_EQ(tile(x, times).to_vector<float>(), tile(counting({3, 2}), {2, 2}).to_vector<float>());
  for (int i = 0; i < kMaxRank; ++i) times[i] = i == 3 ? 1 : 2;
  const Tensor all = tile(x, times);
  EXPECT_EQ(all.numel(), 6 << 15);
  // the axes between are of extent 1, those around repeat the whole
  const Tensor flat = tile(counting({3, 2}), {1, 2});
  const std::vector<float> have = all.reshape({8, 3, 2048, 4})(5, kiln::slice::all(), 77).to_vector<float>();
  EXPECT_EQ(have, flat.to_vector<float>());
  times[0] = 0;
  EXPECT_EQ(tile(x, times).numel(), 0);
  expect_user_error([&] { repeat(x, -1, 0); }, "[repeat] -1 times along axis 0 of float32 " + dims.str());
}

TEST(Index, FollowsPython) {
  const Tensor x = counting({3, 4});
  expect_equal<float>(x(1), {4, 5, 6, 7});
  expect_equal<float>(x(-1, -1), Shape{}, {11});
  expect_equal<float>(x(slice::all(), 2), {2, 6, 10});
  expect_equal<float>(x(range(none, none, -1), range(1, none, 2)), {3, 2}, {9, 11, 5, 7, 1, 3});
  expect_equal<float>(x(ellipsis, 0), {0, 4, 8});
  EXPECT_EQ(x(newaxis, ellipsis, newaxis).shape().str(), "(1, 3, 4, 1)");
  EXPECT_EQ(x(range(5, 9)).shape().str(), "(0, 4)");
  EXPECT_EQ(x(range(2, 0)).shape().str(), "(0, 4)");
  expect_equal<float>(x(0, range(-2, none)), {2, 3});
  expect_equal<float>(x(0, range(-100, 100, 3)), {0, 3});
  expect_equal<float>(x(0, range(none, -3, -1)), {3, 2});
  expect_equal<float>(x(0, range(10, none, -2)), {3, 1});
  expect_equal<float>(x(0, range(0, none, INT64_MAX)), {0});
  expect_equal<float>(x(0, range(none, none, INT64_MIN)), {3});
  expect_user_error([&] { x(3); }, "[index] index 3 is out of range for axis 0 of float32 (3, 4)");
  expect_user_error([&] { x(0, -5); }, "[index] index -5 is out of range for axis 1 of float32 (3, 4)");
  expect_user_error([&] { x(0, 0, 0); }, "[index] [0, 0, 0] has too many parts for float32 (3, 4)");
  expect_user_error([&] { x(ellipsis, ellipsis); },
                    "[index] [..., ...] has too many parts for float32 (3, 4)");
  expect_user_error([&] { x(range(0, 2, 0)); }, "[index] slice 0:2:0 has a step of 0");
  expect_user_error([] { Tensor()(0); }, "[index] an operand is an empty Tensor");
}

TEST(SliceUpdate, MakesANewValue) {
  Tensor x = counting({2, 3});
  const Tensor before = x;
  x(0) = 9;
  expect_equal<float>(x, {2, 3}, {9, 9, 9, 3, 4, 5});
  x(slice::all(), range(none, none, 2)) += floats({10, 20});
  expect_equal<float>(x, {2, 3}, {19, 9, 29, 13, 4, 25});
  x(1, range(none, none, -1)) = floats({1, 2, 3});
  expect_equal<float>(x, {2, 3}, {19, 9, 29, 3, 2, 1});
  x(range(none, none, -1), range(none, none, -2)) = floats({2, 2}, {1, 2, 3, 4});
  expect_equal<float>(x, {2, 3}, {4, 9, 3, 2, 2, 1});
  expect_equal<float>(before, {2, 3}, {0, 1, 2, 3, 4, 5});
  x(range(5, none)) = 1;  // selects nothing
  x(slice::all()) = floats({1, 3}, {7, 8, 9});
  expect_equal<float>(x, {2, 3}, {7, 8, 9, 7, 8, 9});
  x(0, 1) = Tensor(-1.f);
  expect_equal<float>(x(0), {7, -1, 9});
  x(0) = floats({1, 1, 3}, {1, 2, 3});  // leading ones are dropped, as in numpy
  expect_equal<float>(x(0), {1, 2, 3});
  const std::array<Slice, 1> row{Slice(1)};
  expect_equal<float>(slice_update(x, row, 0), {2, 3}, {1, 2, 3, 0, 0, 0});
  expect_user_error(
      [&] { x(0) = floats({1, 2}); },
      "[slice_update] float32 (2,) does not broadcast to the selected shape (3,) of float32 (2, 3)");
}

TEST(SliceUpdate, ReadsBeforeItWrites) {  // x from views of x
  Tensor x = floats({1, 2, 3, 4});
  x(range(1, none)) = x(range(none, -1));
  expect_equal<float>(x, {1, 1, 2, 3});
  x(slice::all()) = x(range(none, none, -1));
  expect_equal<float>(x, {3, 2, 1, 1});
  x(range(none, 2)) += x(range(2, none));
  expect_equal<float>(x, {4, 3, 1, 1});
}

TEST(SliceUpdate, CastsToTheTarget) {
  Tensor x = Tensor({1, 2, 3});
  x(0) = 2.9;
  x(range(1, none)) = floats({-1.5f, 1e20f});
  expect_equal<std::int32_t>(x, {2, -1, INT32_MAX});
}

TEST(Shapes, AreChecked) {
  expect_user_error([] { zeros({2, -1}); }, "[zeros] negative extent in shape (2, -1)");
  expect_user_error([] { Tensor::from(std::vector<float>(3), {2, 2}); },
                    "[from] 3 values for shape (2, 2), which has 4");
  expect_user_error([] { Tensor::from(std::vector<float>(3), {-3}); },
                    "[from] negative extent in shape (-3,)");
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(zeros({huge, huge}), UserError);
  EXPECT_THROW(broadcast_to(zeros({1}), {huge, huge}), UserError);
  if (config().mode == Mode::Lazy) EXPECT_THROW(zeros({huge, 1}) + zeros({1, huge}), UserError);
  if (config().mode == Mode::Lazy)  // elsewhere the int8 zeros themselves would be stored
    EXPECT_THROW(zeros({std::int64_t{1} << 61}, DType::Int8).astype(DType::Float64), UserError);
  EXPECT_THROW(zeros({huge, 0, huge}), UserError);  // its strides would overflow
  EXPECT_THROW(Shape(std::vector<std::int64_t>(17, 1)), UserError);
  EXPECT_THROW(expand_dims(zeros(Shape(std::vector<std::int64_t>(16, 1))), 0), UserError);
  const Tensor deep = counting({2, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_equal<float>(sum(deep + deep, {0, 3}).reshape({2}), {24, 32});
}

TEST(Movement, TheLargestWidthsAndShiftsDoNotOverflow) {
  const Tensor x = floats({1, 2, 3});
  expect_equal<float>(pad(x, {{-5, 4}}), {0, 0});
  expect_equal<float>(pad(x, {{INT64_MIN, INT64_MAX}}), {0, 0});
  expect_equal<float>(pad(x, {{-1, 1}}, 7), {2, 3, 7});
  expect_equal<float>(roll(x, INT64_MIN), {3, 1, 2});
  expect_equal<float>(roll(x, INT64_MAX), {3, 1, 2});
  expect_user_error([&] { x(~std::uint64_t{0}); },
                    "[index] index 9223372036854775807 is out of range for axis 0 of float32 (3,)");
}

}  // namespace
}  // namespace kiln
