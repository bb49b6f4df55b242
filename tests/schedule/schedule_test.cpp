// Which form a region takes, and which norms are refused.
#include "schedule/schedule.h"
#include "schedule/two_threads.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <vector>

namespace kiln::schedule {
namespace {

Schedule form_of(std::vector<Facts::Axis> axes, int phases, bool stores_full = false) {
  Facts f;
  f.axes = axes;
  f.phases = phases;
  f.stores_full = stores_full;
  f.prims = 4;
  const auto answer = schedule(f, two_threads());
  EXPECT_TRUE(std::holds_alternative<Schedule>(answer));
  return std::get<Schedule>(answer);
}

TEST(Schedule, MapOverOneAxisIsFlat) { EXPECT_EQ(form_of({{1000, false}}, 0).form, Form::Flat); }
TEST(Schedule, MapOverTwoAxesRunsByRows) {
  EXPECT_EQ(form_of({{100, false}, {30, false}}, 0).form, Form::Rows);
}
/// A scan of functions beside two columns has its lanes along an axis that fills them.
TEST(Schedule, LongScansBesideFewColumnsHaveLanesOutside) {
  const Facts::Axis axes[] = {{260, false}, {16131, true}, {2, false}};
  Facts f;
  f.axes = axes;
  f.scans = true;
  f.prims = 230;
  const Schedule s = std::get<Schedule>(schedule(f, two_threads()));
  EXPECT_EQ(s.form, Form::Columns);
  EXPECT_EQ(s.lane_axis, 0);
  f.prims = 14;  // a sum waits for memory
  EXPECT_EQ(std::get<Schedule>(schedule(f, two_threads())).lane_axis, 2);
}

/// Rows that run inside the lanes and go past the caches are written by pairs of lines, where they have such.
TEST(Schedule, RowsInsideTheLanesAreStoredByPairsOfLines) {
  Target t = two_threads();
  t.vector_bytes = 64;
  const auto scheduled = [&](std::int64_t row, std::int64_t bytes) {
    const std::vector<Facts::Axis> axes = {{1 << 20, false}, {row, false}};
    Facts f;
    f.axes = axes;
    f.prims = 3;
    f.jumps = f.guarded = true;
    f.near = 1;
    f.loads = 1;
    f.out_narrowest = 4;
    f.out_bytes = f.adjoining_bytes = bytes;
    return std::get<Schedule>(schedule(f, t));
  };
  EXPECT_EQ(scheduled(64, t.stream_bytes).inside, 0);
  EXPECT_EQ(scheduled(64, t.stream_bytes).lanes, 32);
  EXPECT_EQ(scheduled(48, t.stream_bytes).lanes, 16);  // a line is left
  EXPECT_EQ(scheduled(64, t.stream_bytes / 2).lanes, 16);
}

/// Elements that are where an index says: of an index that is the same in many rows the places are found once
/// for them, and short rows share the lanes; an index of each row changes nothing for long ones.
TEST(Schedule, RowsThatShareAnIndexRunInsideTheLanes) {
  Target t = two_threads();
  t.vector_bytes = 32;
  const auto scheduled = [&](const std::vector<Facts::Axis>& axes, int along) {
    Facts f;
    f.axes = axes;
    f.prims = 6;
    f.jumps = f.strided = true;
    f.jumps_along = along;
    f.near = static_cast<int>(axes.size()) - 1;
    f.loads = 2;
    return std::get<Schedule>(schedule(f, t));
  };
  const Schedule rows = scheduled({{5000, false}, {301, false}}, 1);
  EXPECT_EQ(rows.inside, 0);
  EXPECT_GE(rows.block, 16);
  EXPECT_LE(rows.block * 301 * 4, t.l2_bytes);
  EXPECT_EQ(scheduled({{5000, false}, {1000, false}}, 0).inside, -1);
  EXPECT_EQ(scheduled({{5000, false}, {30000, false}}, 1).inside, -1);  // rows that no cache holds many of
  const Schedule joined = scheduled({{9000, false}, {15, false}, {7, false}}, 1);
  EXPECT_EQ(joined.lane_axis, 0);
  EXPECT_EQ(joined.round % (15 * 7), 0);
}

TEST(Schedule, ReductionsAcrossMemoryHaveTilesOfWhatFits) {
  Target t = two_threads();
  t.gpu = true;
  t.threads = 132;
  const auto scheduled = [&](std::int64_t rows, std::int64_t columns, bool both, int bytes) {
    const Facts::Axis axes[] = {{rows, true}, {columns, both}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.prims = 4;
    f.vector = f.across_vector = 16 / bytes;
    f.across = 0;
    f.across_run = rows;
    f.last_run = columns;
    f.across_bytes = f.across_narrowest = bytes;
    f.reduces_across = true;
    return std::get<Schedule>(schedule(f, t));
  };
  for (const int bytes : {2, 4, 8})
    for (const std::int64_t rows : {32, 100, 200, 1 << 13})
      for (const bool both : {false, true}) {
        if (!both && rows < 128) continue;
        const Schedule s = scheduled(rows, 1 << 15, both, bytes);
        EXPECT_EQ(s.form, both ? Form::Split : Form::SplitColumns);
        EXPECT_GE(s.run, 16);
        EXPECT_LT(s.run, 2 * std::max<std::int64_t>(rows, 16));
        EXPECT_LE(s.run * s.block * bytes, 40 << 10);
        EXPECT_EQ(s.rows * s.block, 256 * s.lanes);
      }
  EXPECT_EQ(scheduled(32, 1 << 20, false, 4).run, 0);  // columns of 128 bytes
  EXPECT_EQ(scheduled(9, 1 << 20, true, 4).run, 0);    // runs of nine elements
  EXPECT_EQ(scheduled(128, 128, false, 4).run, 0);     // tiles for few multiprocessors
}

/// Rows that fill a vector and a little more share the lanes where one operand is permuted for it, and have
/// lanes of their own where many are.
TEST(Schedule, ShortRowsOfManyOperandsHaveLanesOfTheirOwn) {
  Target t = two_threads();
  t.vector_bytes = 32;
  const Facts::Axis axes[] = {{20000, false}, {10, false}, {10, false}};
  Facts f;
  f.axes = axes;
  f.rows_apart = true;
  f.loads = 1;
  f.prims = 3;
  EXPECT_GT(std::get<Schedule>(schedule(f, t)).round, 0);
  f.loads = 25;
  f.prims = 75;
  const Schedule taps = std::get<Schedule>(schedule(f, t));
  EXPECT_EQ(taps.round, 0);
  EXPECT_GE(taps.inside, 0);
}

Schedule tiles_of(std::int64_t across_run, std::int64_t last_run, int narrowest, int bytes) {
  const Facts::Axis axes[] = {{across_run, false}, {last_run, false}};
  Facts f;
  f.axes = axes;
  f.across = 0;
  f.across_run = across_run;
  f.last_run = last_run;
  f.across_narrowest = narrowest;
  f.across_bytes = bytes;
  return std::get<Schedule>(schedule(f, two_threads()));
}

TEST(Schedule, TransposedReadsRunInTilesOfAFirstCache) {
  EXPECT_EQ(tiles_of(1000, 1000, 4, 4).form, Form::Tiles);
  EXPECT_EQ(tiles_of(31, 10, 4, 4).form, Form::Tiles) << "some lanes are idle";
  for (const auto& [narrowest, bytes] :
       {std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 8}, std::pair{1, 13}, std::pair{8, 24}}) {
    const Schedule tile = tiles_of(1000, 1000, narrowest, bytes);
    EXPECT_LE(tile.block * tile.run * bytes, 32 << 10);
    EXPECT_EQ(tile.run_rows * narrowest, 16);
    EXPECT_EQ(tile.run_lanes % tile.run_rows, 0);
  }
}
TEST(Schedule, TilesDoNotDependOnExtents) {
  const Schedule s = tiles_of(1000, 1000, 4, 4);
  for (const auto& [across, last] : {std::pair{5, 100}, std::pair{100, 17}, std::pair{1 << 20, 16}}) {
    const Schedule other = tiles_of(across, last, 4, 4);
    EXPECT_EQ(other.form, Form::Tiles);
    EXPECT_EQ(other.block, s.block);
    EXPECT_EQ(other.run, s.run);
    EXPECT_EQ(other.lanes, s.lanes);
  }
}
TEST(Schedule, AxesShorterThanATileRunByRows) {
  EXPECT_EQ(tiles_of(3, 1000, 4, 4).form, Form::Rows);
  EXPECT_EQ(tiles_of(1000, 3, 4, 4).form, Form::Rows);
}
TEST(Schedule, ReductionOfTheLastAxisRunsByRows) {
  EXPECT_EQ(form_of({{100, false}, {3000, true}}, 1).form, Form::Rows);
}
TEST(Schedule, ReductionOfTheFirstAxisRunsByColumns) {
  EXPECT_EQ(form_of({{19, true}, {3000, false}}, 1).form, Form::Columns);
}
TEST(Schedule, TallReductionOfTheFirstAxisRunsInStripes) {
  EXPECT_EQ(form_of({{20, true}, {3000, false}}, 1).form, Form::Stripes);
  EXPECT_GT(form_of({{100, true}, {3000, false}}, 1).chunk, 0);
  EXPECT_EQ(form_of({{100, true}, {3000, false}}, 1).form, Form::Stripes);
  EXPECT_EQ(form_of({{100, true}, {3000, false}}, 2, true).chunk, 0);
}

/// Positions beside values: half as many columns, so that the first cache has both.
TEST(Schedule, StripesOfPositionsAreNarrower) {
  for (const int kept : {2, 4}) {
    const Facts::Axis axes[] = {{2000, true}, {4086, false}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.kept = kept;
    EXPECT_EQ(std::get<Schedule>(schedule(f, two_threads())).block, kept > 2 ? 2048 : 4096);
  }
}

/// What ends the column of a stripe takes as long as some rows of it.
TEST(Schedule, AShortLogsumexpOfTheFirstAxisRunsByColumns) {
  for (const std::int64_t rows : {20, 31, 32}) {
    const Facts::Axis axes[] = {{rows, true}, {30000, false}};
    Facts f;
    f.axes = axes;
    f.phases = f.read_twice = 1;
    f.prims = 30;
    EXPECT_EQ(std::get<Schedule>(schedule(f, two_threads())).form, rows < 32 ? Form::Columns : Form::Stripes);
  }
}

/// Axes, of which `folds` is reduced and goes on in those inside it.
Schedule folded(std::vector<Facts::Axis> axes, int folds, int phases = 2) {
  Facts f;
  f.axes = axes;
  f.phases = phases;
  f.folds = folds;
  f.prims = 4;
  return std::get<Schedule>(schedule(f, two_threads()));
}

TEST(Schedule, ShortColumnsShareTheLanesWithTheirRows) {
  const Schedule columns = folded({{50, false}, {1000, true}, {3, false}}, 1);
  EXPECT_EQ(columns.form, Form::Columns);
  EXPECT_EQ(columns.fold, 21);  // of 64 lanes
  EXPECT_EQ(columns.lane_axis, 2);
  EXPECT_EQ(folded({{50, false}, {20, true}, {3, false}}, 1).fold, 5);               // few rows: fewer lanes
  EXPECT_EQ(folded({{50, false}, {200, true}, {32, false}, {5, true}}, 1).fold, 2);  // five whole vectors
  EXPECT_EQ(folded({{50, false}, {1000, true}, {300, false}}, 1).fold, 0);           // lanes enough
  EXPECT_EQ(folded({{50, false}, {6, true}, {3, false}}, 1).fold, 0);                // too few rows
  EXPECT_EQ(folded({{90000, true}, {3, false}}, 0).fold, 0);  // one item, and two phases
  const Schedule one = folded({{90000, true}, {3, false}}, 0, 1);
  EXPECT_GT(one.fold, 0);
  EXPECT_GT(one.chunk, 0);
}

/// 17 of 64 lanes would work: seven rows fill seven eighths of two vectors' lanes.
TEST(Schedule, ColumnsThatFillNoVectorShareItWithTheirRows) {
  const Schedule columns = folded({{90000, true}, {17, false}}, 0, 1);
  EXPECT_EQ(columns.fold, 7);
  EXPECT_EQ(folded({{90000, true}, {16, false}}, 0, 1).fold, 0);  // a register's lanes are full
  EXPECT_EQ(folded({{90000, true}, {49, false}}, 0, 1).fold, 0);  // of four registers few lanes are idle
}

/// All vectors of lanes go through a chunk, or a block, one after the other: it stays in the second cache.
TEST(Schedule, RowsThatShareTheLanesGoInChunksAndBlocksOfTheSecondCache) {
  Facts f;
  f.phases = 1;
  f.folds = 1;
  f.prims = 4;
  f.loaded_bytes = 4;
  const Facts::Axis few[] = {{2, false}, {90000, true}, {17, false}},
                    wide[] = {{2, false}, {90000, true}, {8, false}, {5, true}};
  f.axes = few;
  const Schedule chunks = std::get<Schedule>(schedule(f, two_threads()));
  EXPECT_GT(chunks.chunk, 0);
  EXPECT_LE(chunks.chunk * 17 * 4, two_threads().l2_bytes / 4);
  f.axes = wide;
  f.phases = 2;
  f.stores_full = true;
  const Schedule blocks = std::get<Schedule>(schedule(f, two_threads()));
  EXPECT_EQ(blocks.fold, 3);  // of 120 lanes two vectors
  EXPECT_GT(blocks.block, 0);
  EXPECT_LE(blocks.block * blocks.fold * 40 * 4, two_threads().l2_bytes / 8);
  const Facts::Axis near[] = {{2, false}, {900, true}, {8, false}, {5, true}};
  f.axes = near;
  EXPECT_EQ(std::get<Schedule>(schedule(f, two_threads())).block, 0);
}

TEST(Schedule, ShortColumnsShareTheLanesWithTheKeptAxesBefore) {
  Facts f;
  f.phases = 2;
  f.stores_full = true;
  f.prims = 4;
  const auto with = [&](std::vector<Facts::Axis> axes, int near) {
    f.axes = axes;
    f.near = near;
    return std::get<Schedule>(schedule(f, two_threads()));
  };
  EXPECT_EQ(with({{4, true}, {9000, false}, {3, false}}, 0).kept_from, 1);
  EXPECT_EQ(with({{4, true}, {9000, false}, {3, false}}, 0).form, Form::Columns);
  EXPECT_EQ(with({{100, true}, {9000, false}, {3, false}}, 0).form, Form::Stripes);
  EXPECT_EQ(with({{100, true}, {9000, false}, {3, false}}, 0).kept_from, 1);
  EXPECT_EQ(with({{9000, false}, {4, true}, {50, false}, {7, false}}, 0).kept_from, 2);
  EXPECT_EQ(with({{4, true}, {9000, false}, {3, false}}, 2).kept_from, -1);   // they lie apart in memory
  EXPECT_EQ(with({{4, true}, {9000, false}, {64, false}}, 0).kept_from, -1);  // lanes are full
  f.loaded_bytes = 2;  // whole lines; or less, of each row another page
  EXPECT_EQ(with({{4, true}, {9000, false}, {64, false}}, 0).kept_from, -1);
  EXPECT_EQ(with({{4, true}, {9000, false}, {62, false}}, 0).kept_from, 1);
}

/// A few long stretches to each result: the outermost axis alone would leave most multiprocessors without
/// work.
TEST(Schedule, FewLongStretchesAreCutAlongAllReducedAxes) {
  Target t = two_threads();
  t.gpu = true;
  t.threads = 132;
  const auto chunks = [&](std::int64_t outer) {
    const Facts::Axis axes[] = {{outer, true}, {2, false}, {1677721, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.prims = 4;
    f.loads = f.row_loads = 1;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    EXPECT_EQ(s.form, Form::Split);
    return ((s.together ? outer * 1677721 : outer) + s.chunk - 1) / s.chunk;
  };
  for (const std::int64_t outer : {3, 10, 100, 1000, 5000})
    EXPECT_GE(2 * chunks(outer), 2 * t.threads) << outer;
}

/// Copies between memory and a bunch's tiles go by vectors: an item must begin with one.
TEST(Schedule, BunchesOfShortRowsBeginWithWholeVectors) {
  Target t = two_threads();
  t.gpu = true;
  t.threads = 132;
  std::set<std::pair<int, std::int64_t>> sizes;
  for (const auto& [vector, bytes] : {std::pair{4, 4}, std::pair{4, 8}, std::pair{8, 2}, std::pair{2, 8}})
    for (std::int64_t row = 2; row < 40; ++row)
      for (std::int64_t inner = 1; inner < 70; ++inner) {
        const Facts::Axis axes[] = {{100000, false}, {row, true}, {inner, false}};
        Facts f;
        f.axes = axes;
        f.phases = 1;
        f.prims = 4;
        f.bunch_bytes = bytes;
        f.bunch_vector = vector;
        const Schedule s = std::get<Schedule>(schedule(f, t));
        if (s.form != Form::Bunch) continue;
        ASSERT_GT(s.slabs, 0);
        // No thread has one row more than most others.
        const std::int64_t rows = s.slabs * inner, places = (rows + s.threads.team - 1) / s.threads.team;
        ASSERT_GE(4 * rows, 3 * places * s.threads.team) << row << ' ' << inner;
        ASSERT_LE(s.slabs * inner * row * bytes, s.run) << row << ' ' << inner;
        ASSERT_TRUE(s.run_lanes == 1 || s.slabs * inner * row % vector == 0) << row << ' ' << inner;
        sizes.insert({s.threads.team, s.run});
      }
  EXPECT_EQ(sizes.size(), 2u);
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

/// One vector of lanes has them all, or four registers' worth: each vector reads all rows.
TEST(Schedule, FewLongColumnsShareAVector) {
  const int one = form_of({{100000, true}, {2, false}}, 1).lanes;
  for (const std::int64_t columns : {3, 8, 9, 17, 31}) {
    const Schedule s = form_of({{100000, true}, {columns, false}}, 1);
    ASSERT_EQ(s.form, Form::SplitColumns);
    EXPECT_GE(s.lanes, std::min<std::int64_t>(columns, 4 * one)) << columns;
    EXPECT_TRUE(s.lanes == one || s.lanes / 2 < columns) << columns;
    EXPECT_EQ(s.block, s.lanes);
  }
}

TEST(Schedule, WidestTypeSetsTheLanes) {
  Facts f;
  const std::vector<Facts::Axis> axes{{1000, false}};
  f.axes = axes;
  f.prims = 10;
  f.widest_bytes = 4;
  const int narrow = std::get<Schedule>(schedule(f, two_threads())).lanes;
  f.widest_bytes = 8;
  EXPECT_EQ(std::get<Schedule>(schedule(f, two_threads())).lanes * 2, narrow);
}

TEST(Schedule, PrimitivesThatWaitForEachOtherGoSeveralRegistersSideBySide) {
  const Facts::Axis map[] = {{1 << 20, false}}, rows[] = {{1000, false}, {1000, true}},
                    short_rows[] = {{1000, false}, {100, true}};
  Facts f;
  const auto lanes = [&](std::span<const Facts::Axis> axes, int phases, int prims, int loads,
                         bool guarded = false) {
    f.axes = axes;
    f.phases = phases;
    f.guarded = guarded;
    f.stores_full = phases > 0;
    f.prims = prims;
    f.loads = loads;
    return std::get<Schedule>(schedule(f, two_threads())).lanes;
  };
  EXPECT_EQ(lanes(map, 0, 30, 1), 16) << "waits for memory";
  EXPECT_EQ(lanes(map, 0, 50, 1), 64);
  EXPECT_EQ(lanes(map, 0, 50, 2), 16) << "waits for memory";
  EXPECT_EQ(lanes(map, 0, 80, 1), 32) << "takes long to compile";
  EXPECT_EQ(lanes(map, 0, 130, 9), 64);
  EXPECT_EQ(lanes(map, 0, 60, 9), 16);
  EXPECT_EQ(lanes(map, 0, 60, 9, true), 32) << "waits for its sum";
  EXPECT_EQ(lanes(rows, 2, 30, 1), 32);
  EXPECT_EQ(lanes(short_rows, 2, 30, 1), 16) << "masks most of them";
  EXPECT_EQ(lanes(short_rows, 2, 5, 1), 64) << "is cheap";
}

TEST(Schedule, NormOfFewColumnsIsRefusedForLeavingThreadsIdle) {
  EXPECT_FALSE(refuse_norm({70, 100000, true}, two_threads()).empty()) << "stripes of 64 and 6 columns";
  EXPECT_TRUE(refuse_norm({70, 1000, true}, two_threads()).empty()) << "is little work";
  EXPECT_TRUE(refuse_norm({128, 100000, true}, two_threads()).empty());
  EXPECT_TRUE(refuse_norm({1000, 100000, true}, two_threads()).empty());
}

/// A CPU's kernels of their own read whole rows, one after the other; one kernel of all phases would read
/// parts of rows, and those from memory again.
TEST(Schedule, NormOfNarrowColumnsIsRefusedForReadingPartsOfRows) {
  const auto fits = [](NormFacts f) { return refuse_norm(f, two_threads()).empty(); };
  EXPECT_FALSE(fits({360, 23296, true, 360})) << "stripes of 192 columns";
  EXPECT_TRUE(fits({360, 1000, true, 360})) << "is in the second cache";
  EXPECT_TRUE(fits({3600, 23296, true, 3600})) << "long parts of rows";
  EXPECT_TRUE(fits({32 * 16, 16384, true, 16})) << "whole rows";
  EXPECT_TRUE(fits({32, 1 << 18, false, 1})) << "no columns";
  Target gpu = two_threads();
  gpu.gpu = true;
  EXPECT_EQ(refuse_norm({360, 23296, true, 360}, gpu).empty(), refuse_norm({360, 23296, true}, gpu).empty());
  EXPECT_TRUE(refuse_norm({160000, 3136, true, 8, 2}, gpu).empty())
      << "a block's rows are all there is of a row";
  EXPECT_FALSE(refuse_norm({160000, 3136, true, 64, 2}, gpu).empty());
}

/// Sweeps of a slab whose last axis is a few elements begin and end a run for each few: kernels of their own
/// turn such rows.
TEST(Schedule, SlabsOfShortRunsAreRefused) {
  const auto fits = [](std::int64_t run, int vector_bytes) {
    Target t = two_threads();
    t.vector_bytes = vector_bytes;
    SlabFacts f;
    f.items = 1365, f.points = 2048 * 3, f.rows = 2051, f.run = run, f.sweeps = 3;
    const double points = static_cast<double>(f.items * f.points);
    f.prims = 6 * points, f.bytes = 8 * points;
    f.apart[0] = {3 * points, 8 * points}, f.apart[1] = {3 * points, 8 * points};
    return slab_pays(f, t);
  };
  for (const int bytes : {32, 64}) {
    EXPECT_FALSE(fits(3, bytes));
    EXPECT_TRUE(fits(512, bytes));
  }
}

/// Two registers of a row and a bit would wait for each other before their results are made; rows without
/// results do not, and long rows have vectors enough. Short slabs of several phases are turned rather than
/// folded.
TEST(Schedule, ShortRowsWithResultsAreTurned) {
  Target t = two_threads();
  t.vector_bytes = 32;
  const auto form = [&](std::vector<Facts::Axis> axes, int phases, bool stores_full) {
    Facts f;
    f.axes = std::move(axes);
    f.phases = phases;
    f.stores_full = stores_full;
    f.prims = 18;  // … of which some are made once a row
    f.row_prims = 7;
    f.bunch_bytes = stores_full ? 8 : 4, f.bunch_operands = 1, f.bunch_vector = 4;
    if (f.axes.size() == 3) f.folds = 1;
    return std::get<Schedule>(schedule(f, t)).form;
  };
  EXPECT_EQ(form({{500000, false}, {15, true}}, 1, true), Form::Bunch);
  EXPECT_EQ(form({{500000, false}, {26, true}}, 1, false), Form::Rows);
  EXPECT_EQ(form({{500000, false}, {60, true}}, 1, true), Form::Rows);
  EXPECT_EQ(form({{190650, false}, {22, true}, {2, false}}, 2, true), Form::Bunch);
  EXPECT_EQ(form({{32769, false}, {3, true}, {32, false}, {2, true}}, 2, true), Form::Bunch);
  EXPECT_NE(form({{1000, false}, {4000, true}, {2, false}}, 2, true), Form::Bunch) << "a long slab";
}

/// Combining the positions of lanes takes longer than combining values, above all where registers have masks
/// in vectors.
TEST(Schedule, PositionsOfShortRowsAreTurned) {
  const auto form = [](std::int64_t row, bool positions, int vector_bytes) {
    const Facts::Axis axes[] = {{500000, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.prims = 2;
    f.positions = positions;
    f.bunch_bytes = 4, f.bunch_operands = 1, f.bunch_vector = 4;
    Target t = two_threads();
    t.vector_bytes = vector_bytes;
    return std::get<Schedule>(schedule(f, t)).form;
  };
  for (const std::int64_t row : {11, 16, 17, 31, 45}) {
    EXPECT_EQ(form(row, true, 32), Form::Bunch) << row;
    EXPECT_NE(form(row, false, 32), Form::Bunch) << row;
  }
  EXPECT_EQ(form(17, true, 64), Form::Bunch);
  EXPECT_NE(form(31, true, 64), Form::Bunch) << "registers of masks";
  for (const std::int64_t row : {32, 64, 100}) EXPECT_NE(form(row, true, 32), Form::Bunch) << row;
}

/// Columns of halves are written past the caches by lines, or not so.
TEST(Schedule, ColumnsAreWrittenByLines) {
  for (const std::int64_t columns : {437248, 437251}) {
    const Facts::Axis axes[] = {{11, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.stores_full = true;
    f.prims = 20;
    f.out_narrowest = 2;
    f.out_bytes = 22 * columns;
    Target t = two_threads();
    t.vector_bytes = 32;
    t.stream_bytes = 1 << 20;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    EXPECT_EQ(s.form, Form::Columns);
    EXPECT_EQ(s.stream, columns % 32 == 0);
    EXPECT_EQ(s.lanes, s.stream ? 32 : 16);
  }
}

/// Rows of one sweep that are combined with several others are reduced several at a time.
TEST(Schedule, RowsThatShareWhatIsReadAreTiles) {
  const auto tile_of = [](std::int64_t rows, int phases, bool in_parts, std::int64_t length = 4096) {
    const Facts::Axis axes[] = {{rows, false}, {length, true}};
    Facts f;
    f.axes = axes;
    f.phases = phases;
    f.prims = 20;
    f.repeated = 0;
    f.loaded_bytes = 32;
    f.in_parts = in_parts;
    const Schedule s = std::get<Schedule>(schedule(f, two_threads()));
    EXPECT_EQ(s.form, Form::Rows);
    return s.tile;
  };
  EXPECT_EQ(tile_of(2000, 1, false), kPairRows);
  EXPECT_EQ(tile_of(2000, 2, false), 1) << "what is read again is near";
  EXPECT_EQ(tile_of(2000, 2, false, two_threads().l2_bytes / 32), kPairRows);
  EXPECT_EQ(tile_of(2000, 1, true), 1);
  EXPECT_EQ(tile_of(kPairRows, 1, false), 1) << "a thread would have none";
}

/// An item's columns are in the second cache when the item of the next rows reads them.
TEST(Schedule, PairsGoAlongAsManyColumnsAsACacheHas) {
  for (const std::int64_t length : {4, 32, 200, 100000}) {
    const Facts::Axis axes[] = {{2000, false}, {length, true}, {4096, false}};
    Facts f;
    f.axes = axes;
    f.apart = 0;
    f.phases = 1;
    f.prims = 3;
    f.loaded_bytes = 4;
    const Schedule s = std::get<Schedule>(schedule(f, two_threads()));
    EXPECT_EQ(s.form, Form::Columns);
    EXPECT_EQ(s.tile, kPairRows);
    EXPECT_EQ(s.block % s.lanes, 0);
    EXPECT_TRUE(s.block == s.lanes || s.block * length * 4 <= two_threads().l2_bytes / 4) << length;
    EXPECT_EQ(s.block >= 16 * s.lanes, length <= 32) << length;
  }
}

TEST(Schedule, NormOfOneLongRowIsRefusedForKeepingThreadsIdle) {
  EXPECT_FALSE(refuse_norm({1, 1 << 20, false}, two_threads()).empty());
  EXPECT_TRUE(refuse_norm({1, 100, false}, two_threads()).empty());
  EXPECT_TRUE(refuse_norm({64, 1 << 20, false}, two_threads()).empty());
}

/// What decides the order in which a reduction combines its elements.
/// A second cache has rows of halves for the second time that are twice as long.
TEST(GpuSchedule, LongRowsOfHalvesAreReadAgainByOneKernel) {
  Target t = two_threads();
  t.gpu = true;
  t.threads = 132;
  t.l2_bytes = (50 << 20) / 132;
  t.held = 1 << 15;
  const auto fits = [&](std::int64_t length, std::int64_t bytes) {
    NormFacts f{1100, length, false};
    f.bytes = bytes;
    return refuse_norm(f, t).empty();
  };
  EXPECT_TRUE(fits(60000, 4));
  EXPECT_FALSE(fits(128256, 4));
  EXPECT_TRUE(fits(128256, 2));
  EXPECT_FALSE(fits(151936, 2));
}

}  // namespace
}  // namespace kiln::schedule
