// Programs whose lowering once failed.
#include "counted.h"
#include "lower/index.h"
#include "lower/pull_predicates.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using test::data;

TEST(Pull, ReductionOverAnExtentOfOneHasItsLoop) {
  const Tensor x = data({7, 1});
  EXPECT_EQ(sum(x, 1).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(sum(x.reshape({7, 1, 1}) + 0.0, {1, 2}).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(max(data({1})).to_vector<float>(), data({1}).to_vector<float>());
}

TEST(Pull, ReductionOfNothingIsItsNeutralValue) {
  EXPECT_EQ(sum(data({3, 0}), 1).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(prod(data({0, 2}) + 1.0, 0).to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(sum(reshape(data({2, 0, 3}), {3, 0}) * 2.0, 1).to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Pull, NothingBetweenPiecesIsNeverRead) {
  const Tensor x = data({2, 3});
  EXPECT_EQ(concat({x, reshape(data({0, 5, 1}), {0, 3}) * 2.0, x}, 0).to_vector<float>(),
            concat({x, x}, 0).to_vector<float>());
}

TEST(Pull, RowValueReshapedAcrossItsAxesIsReadAtItsRow) {  // reduction N read off its row
  const Tensor x = data({2, 3, 1});
  EXPECT_EQ(triu(reshape(argmin(x, 2), {1, 3, 2}), -2).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>(6)));
}

TEST(Pull, APadWithStepsKnowsWhichPointsItHits) {
  using lower::Index;
  using lower::IndexSpace;
  const std::int64_t axes[] = {10, 10};
  IndexSpace space(axes);
  const Index a = space.axis(0), b = space.axis(1);
  const auto index = [&](std::int64_t i, std::int64_t j, std::int64_t c) {
    return space.add(space.add(space.mul(a, i), space.mul(b, j)), c);
  };
  EXPECT_EQ(IndexSpace::divides(2, index(2, 4, 6)), IndexSpace::Divides::Always);
  EXPECT_EQ(IndexSpace::divides(2, index(2, 4, -6)), IndexSpace::Divides::Always);
  EXPECT_EQ(IndexSpace::divides(2, index(2, 4, 5)), IndexSpace::Divides::Never);
  EXPECT_EQ(IndexSpace::divides(2, index(2, 4, -5)), IndexSpace::Divides::Never);
  EXPECT_EQ(IndexSpace::divides(2, index(2, 3, 6)), IndexSpace::Divides::Perhaps);
  EXPECT_EQ(IndexSpace::divides(6, index(4, 2, 3)), IndexSpace::Divides::Never);  // odd, and six is even
  EXPECT_EQ(IndexSpace::divides(6, index(4, 2, 2)), IndexSpace::Divides::Perhaps);
  EXPECT_EQ(IndexSpace::divides(1, index(4, 2, 3)), IndexSpace::Divides::Always);
  // Elements between the pad's are its filling; from the end of the axis, too.
  const Tensor x = data({5});
  Tensor y = zeros({9});
  y(range(0, 9, 2)) = x;
  EXPECT_EQ(y(range(0, none, 2)).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ((y(range(1, none, 2)) + 1.0).to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ((y(range(none, none, -4)) * 2.0).to_vector<float>(),
            (x(range(none, none, -2)) * 2.0).to_vector<float>());
  EXPECT_EQ((y(range(8, 3, -1)) - 1.0).to_vector<float>(),
            (y.eval()(range(8, 3, -1)) - 1.0).to_vector<float>());
}

/// Coordinates that a guard keeps inside their axis are not divided by a reshape of other axes.
/// A common factor of all coordinates is taken out; what holds stays the same.
TEST(Pull, PredicatesHaveNoCommonFactor) {
  using lower::Index;
  using lower::IndexSpace;
  const std::int64_t axes[] = {10, 10};
  IndexSpace space(axes);
  for (const std::int64_t i : {1, 2, -2, 3, -4, 6})
    for (const std::int64_t j : {0, 2, -6})
      for (std::int64_t c = -9; c <= 9; ++c)
        for (const std::int64_t extent : {1, 2, 7, 12}) {
          const Index t = space.add(space.add(space.mul(space.axis(0), i), space.mul(space.axis(1), j)), c);
          const lower::Predicate p = lower::predicate_of(t, extent);
          const auto holds = [&](const Index& at, std::int64_t x, std::int64_t y, std::int64_t below) {
            const std::int64_t value = at.c + at.coef(0) * x + at.coef(1) * y;
            return 0 <= value && value < below;
          };
          ASSERT_EQ(p.step, 1);
          for (std::int64_t x = 0; x < 10; ++x)
            for (std::int64_t y = 0; y < 10; ++y)
              ASSERT_EQ(holds(p.t, x, y, p.extent), holds(t, x, y, extent))
                  << i << "x + " << j << "y + " << c << " below " << extent << " at " << x << ", " << y;
        }
  const lower::Predicate evens = lower::predicate_of(space.add(space.mul(space.axis(0), 2), -3), 8);
  EXPECT_EQ(evens.t.coef(0), 1);
  EXPECT_EQ(evens.t.c, -2);
  EXPECT_EQ(evens.extent, 4);
  const lower::Predicate steps = lower::predicate_of(space.mul(space.axis(0), 2), 5, 3);  // multiples of 3
  EXPECT_EQ(steps.t.coef(0), 2);
  EXPECT_EQ(steps.step, 3);
}

TEST(Pull, AReshapeTakesFewAxesTogether) {
  using lower::Index;
  using lower::IndexSpace;
  const std::int64_t axes[] = {6, 10, 12};
  IndexSpace space(axes);
  const auto same = [](const Index& x, const Index& y) { return x == y; };
  const Index c = space.axis(0), y = space.add(space.axis(1), space.constant(-1)), x = space.axis(2);
  const std::vector<Index> at{c, y, x};
  const auto seen = [&](std::vector<std::int64_t> to) {
    return space.reshaped(at, std::vector<std::int64_t>{6, 8, 12}, to);
  };
  const lower::Coords with_ones = seen({1, 6, 1, 8, 12, 1});
  ASSERT_EQ(with_ones.size(), 6u);
  EXPECT_TRUE(same(with_ones[1], c) && same(with_ones[3], y) && same(with_ones[4], x));
  for (const std::size_t one : {0u, 2u, 5u}) EXPECT_TRUE(same(with_ones[one], space.constant(0)));
  const lower::Coords split = seen({2, 3, 8, 12});
  EXPECT_TRUE(same(split[2], y) && same(split[3], x));
  EXPECT_TRUE(same(split[1], space.mod(c, 3)));
  const lower::Coords joined = seen({48, 12});
  EXPECT_TRUE(same(joined[0], space.add(space.mul(c, 8), y)) && same(joined[1], x));
  EXPECT_TRUE(space.reshaped({}, {}, std::vector<std::int64_t>{1, 1}).size() == 2);
}

}  // namespace
}  // namespace kiln
