// Lines of memory: results that go past the caches, short rows of many places, stripes of columns.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <variant>

namespace kiln::schedule {
namespace {

/// A map's results go past the caches a line at a time.
TEST(Schedule, MapsOfNarrowResultsFillLines) {
  for (const int size : {1, 2, 4})
    for (const bool large : {false, true}) {
      const Facts::Axis axes[] = {{1000, false}, {3001, false}};
      Facts f;
      f.axes = axes;
      f.prims = 30;
      f.loads = 1;
      f.dense = true;
      f.out_narrowest = size;
      f.out_bytes = large ? 3001000 * size : 0;
      Target t;
      t.threads = 2;
      t.vector_bytes = 64;
      t.stream_bytes = 1 << 20;
      const Schedule s = std::get<Schedule>(schedule(f, t));
      EXPECT_EQ(s.form, Form::Rows);
      EXPECT_EQ(s.stream, large);
      EXPECT_EQ(s.lanes, large ? 64 / size : 16);
    }
}

/// For two threads of registers of 64 bytes.
Schedule scheduled(Facts f, std::span<const Facts::Axis> axes) {
  f.axes = axes;
  Target t;
  t.threads = 2;
  t.vector_bytes = 64;
  return std::get<Schedule>(schedule(f, t));
}

/// A stencil of short rows: where no few vectors make up whole rows, the lanes go along as many axes as one
/// and many of these rows are inside, up to what a cache holds of them.
TEST(Schedule, JoinedRowsOfAnyLengthAreInsideTheLanes) {
  Facts f;
  f.prims = 40;
  f.loads = 22;
  f.guarded = true;
  f.near = 0;
  f.out_narrowest = 2;
  const auto of_middle = [&](std::int64_t middle) {
    const Facts::Axis axes[] = {{10810, false}, {middle, false}, {6, false}};
    return scheduled(f, axes);
  };
  for (const std::int64_t middle : {67, 97, 127}) {
    const Schedule s = of_middle(middle);
    EXPECT_EQ(s.inside, 0) << middle;
    EXPECT_EQ(s.lane_axis, 1) << middle;
    EXPECT_GE(s.block, 10) << middle;
  }
  EXPECT_GT(of_middle(4096).round, 0);
}

/// Of a stencil of bytes whose neighbours registers of 32 bytes load one by one, a line would be two of them.
TEST(Schedule, GuardedBytesFillOneRegisterThatHasNoMaskedLoads) {
  const auto lanes = [](int bytes, int loads, bool guarded) {
    const Facts::Axis axes[] = {{501, false}, {100, false}};
    Facts f;
    f.axes = axes;
    f.prims = 40;
    f.loads = loads;
    f.guarded = guarded;
    f.near = 1;
    f.widest_bytes = 1;
    f.out_narrowest = 1;
    Target t;
    t.threads = 2;
    t.vector_bytes = bytes;
    return std::get<Schedule>(schedule(f, t)).lanes;
  };
  EXPECT_EQ(lanes(32, 9, true), 32);
  EXPECT_EQ(lanes(64, 9, true), 64);
  EXPECT_EQ(lanes(32, 9, false), 64);
}

/// Rows of narrow results have as many lanes as make a line where that leaves no more of them idle.
TEST(Schedule, RowsInsideTheLanesFillLines) {
  Facts f;
  f.prims = 20;
  f.loads = 9;
  f.near = 1;
  f.dense = true;
  f.out_narrowest = 2;
  for (const auto& [row, lanes] : {std::pair{54, 32}, {64, 32}, {34, 16}, {40, 16}, {30, 16}}) {
    const Facts::Axis axes[] = {{2656, false}, {54, false}, {row, false}};
    const Schedule s = scheduled(f, axes);
    ASSERT_GE(s.inside, 0) << row;
    EXPECT_EQ(s.lanes, lanes) << row;
  }
}

/// A pair of elements at an index of its own is gathered with the next ones; more have lanes to themselves.
TEST(Schedule, PairsByIndexShareTheLanes) {
  Facts f;
  f.prims = 3;
  f.loads = 1;
  f.jumps = true;
  f.jumps_along = 0;
  f.near = 1;
  const auto of_row = [&](std::int64_t row) {
    const Facts::Axis axes[] = {{1 << 20, false}, {row, false}};
    return scheduled(f, axes);
  };
  EXPECT_GT(of_row(2).round, 0);
  for (const std::int64_t row : {3, 4, 8}) EXPECT_EQ(of_row(row).inside, 0) << row;
}

/// Columns whose later phases read them again: stripes that the second cache holds, but no short runs that
/// begin anywhere in a line where long ones keep the threads busy.
TEST(Schedule, StripesOfRowsThatBeginAnywhereAreLongRuns) {
  const auto block_of = [&](std::int64_t columns, int threads) {
    const Facts::Axis axes[] = {{1310, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.stores_full = true;
    f.loads = 1;
    f.loaded_bytes = 4;
    Target t;
    t.threads = threads;
    t.vector_bytes = 64;
    t.l2_bytes = 1 << 20;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    EXPECT_EQ(s.form, Form::Stripes);
    return s.block;
  };
  EXPECT_EQ(block_of(6144, 2), 64);
  EXPECT_GE(block_of(6151, 2), 1024);
  EXPECT_EQ(block_of(6151, 32), 64);
}

/// What is made once a row, such as the element that its label picks, leaves the lanes of its elements alone.
TEST(Schedule, LongRowsHaveAsManyLanesWhateverBecomesOfTheirResults) {
  const Facts::Axis axes[] = {{55, false}, {151936, true}};
  for (const int of_rows : {0, 20}) {
    Facts f;
    f.phases = f.read_twice = 1;
    f.prims = 2 + of_rows;
    f.row_prims = of_rows;
    const Schedule s = scheduled(f, axes);
    EXPECT_EQ(s.form, Form::Split);
    EXPECT_EQ(s.lanes, 64);
  }
}

}  // namespace
}  // namespace kiln::schedule
