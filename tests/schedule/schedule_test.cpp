// Which form a region takes, and which norms are refused.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

namespace kiln::schedule {
namespace {

Target target() {
  Target t;
  t.threads = 2;
  t.vector_bytes = 64;
  return t;
}

Schedule form_of(std::vector<Facts::Axis> axes, int phases, bool stores_full = false) {
  Facts f;
  f.axes = axes;
  f.phases = phases;
  f.stores_full = stores_full;
  f.prims = 4;
  const auto answer = schedule(f, target());
  EXPECT_TRUE(std::holds_alternative<Schedule>(answer));
  return std::get<Schedule>(answer);
}

TEST(Schedule, MapOverOneAxisIsFlat) { EXPECT_EQ(form_of({{1000, false}}, 0).form, Form::Flat); }
TEST(Schedule, MapOverTwoAxesRunsByRows) {
  EXPECT_EQ(form_of({{100, false}, {30, false}}, 0).form, Form::Rows);
}
TEST(Schedule, ReductionOfTheLastAxisRunsByRows) {
  EXPECT_EQ(form_of({{100, false}, {3000, true}}, 1).form, Form::Rows);
}
TEST(Schedule, ReductionOfTheFirstAxisRunsByColumns) {
  EXPECT_EQ(form_of({{20, true}, {3000, false}}, 1).form, Form::Columns);
}
TEST(Schedule, TallReductionOfTheFirstAxisRunsInStripes) {
  EXPECT_GT(form_of({{100, true}, {3000, false}}, 1).chunk, 0);
  EXPECT_EQ(form_of({{100, true}, {3000, false}}, 1).form, Form::Stripes);
  EXPECT_EQ(form_of({{100, true}, {3000, false}}, 2, true).chunk, 0);
}

TEST(Schedule, LongReductionToFewRowsIsSplitIntoWholeChunks) {
  const Schedule s = form_of({{1 << 20, true}}, 1);
  EXPECT_EQ(s.form, Form::Split);
  EXPECT_GT(s.chunk, 0);
  EXPECT_EQ(s.chunk % 64, 0);
}

TEST(Schedule, ReductionThatStoresTheWholeDomainIsNotSplit) {
  EXPECT_EQ(form_of({{1 << 20, true}}, 1, true).form, Form::Rows);
}

TEST(Schedule, LongColumnsFewBlocksAreSplit) {
  const Schedule s = form_of({{100000, true}, {8, false}}, 1);
  EXPECT_EQ(s.form, Form::SplitColumns);
  EXPECT_GT(s.chunk, 0);
}

TEST(Schedule, WidestTypeSetsTheLanes) {
  Facts f;
  const std::vector<Facts::Axis> axes{{1000, false}};
  f.axes = axes;
  f.prims = 10;
  f.widest_bytes = 4;
  const int narrow = std::get<Schedule>(schedule(f, target())).lanes;
  f.widest_bytes = 8;
  EXPECT_EQ(std::get<Schedule>(schedule(f, target())).lanes * 2, narrow);
}

TEST(Schedule, NormOfOneLongRowIsRefusedForKeepingThreadsIdle) {
  EXPECT_NE(refuse_norm(1, 1 << 20, false, target()), "");
  EXPECT_EQ(refuse_norm(1, 100, false, target()), "");
  EXPECT_EQ(refuse_norm(64, 1 << 20, false, target()), "");
}

}  // namespace
}  // namespace kiln::schedule
