// Programs whose lowering once failed.
#include "counted.h"

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

}  // namespace
}  // namespace kiln
