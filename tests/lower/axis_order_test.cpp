// Which axes of a region are innermost.
#include "lower/axis_order.h"

#include <gtest/gtest.h>

namespace kiln::lower {
namespace {

/// Rows that are kept, and points along each that are reduced.
std::vector<Group> rows_of(std::int64_t rows, std::int64_t points) {
  Group kept{}, reduced{};
  kept.extent = rows;
  reduced.extent = points;
  reduced.reduced = true;
  return {kept, reduced};
}

TEST(AxisOrder, FewRowsOfValuesThatAreMadeHaveATeamEach) {
  const Access of_rows{2, {1, 0}}, of_points{4, {0, 1}}, chosen{4, {kFar, kFar}}, whole{4, {32000, 1}};
  EXPECT_TRUE(has_few_rows(rows_of(262, 32000), {of_rows, of_points, chosen}, 132));
  EXPECT_FALSE(has_few_rows(rows_of(262, 32000), {of_rows, whole}, 132)) << "memory has an order";
  EXPECT_FALSE(has_few_rows(rows_of(1 << 16, 32000), {of_rows, of_points}, 132));
}

TEST(AxisOrder, AStepMovesTheFewestBytes) {
  const Access whole{4, {1, 1024}};  // rows lie side by side
  const std::vector<Group> axes = rows_of(1024, 64);
  EXPECT_EQ(order_of(whole), (Order{1, 0}));
  EXPECT_LT(cost_of({1, 0}, axes, {whole}), cost_of({0, 1}, axes, {whole}));
}

}  // namespace
}  // namespace kiln::lower
