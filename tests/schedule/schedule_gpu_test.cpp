// How a GPU's threads and blocks share a region.
#include "schedule/schedule_gpu.h"
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <set>

namespace kiln::schedule {
namespace {

Target gpu_target() {
  Target t;
  t.gpu = true;
  t.threads = 132;
  t.vector_bytes = 64;
  return t;
}

/// A GPU's threads look places up once for some rows, where rows are enough for that.
TEST(Schedule, RowsThatShareAnIndexAreInsideAGpusLanes) {
  const Target t = gpu_target();
  const auto scheduled = [&](std::int64_t rows, std::int64_t row, int along, int prims = 10, int bytes = 2) {
    const Facts::Axis axes[] = {{rows, false}, {row, false}};
    Facts f;
    f.axes = axes;
    f.prims = prims;
    f.jumps = f.strided = true;
    f.jumps_along = along;
    f.loads = 2;
    f.out_narrowest = bytes;
    return std::get<Schedule>(schedule(f, t));
  };
  const Schedule s = scheduled(20000, 4683, 1);
  EXPECT_EQ(s.inside, 0);
  EXPECT_EQ(s.block, 8);
  EXPECT_EQ(s.threads.team, 256);
  EXPECT_EQ(scheduled(200000, 65, 1).threads.team, 32);  // of 64 threads 63 would have one element only
  EXPECT_EQ(scheduled(200000, 64, 1).threads.team, 64);
  EXPECT_EQ(scheduled(20000, 4683, 0).inside, -1);
  EXPECT_EQ(scheduled(3, 1 << 22, 1).inside, -1);
  EXPECT_EQ(scheduled(200000, 7, 1).inside, -1);
  EXPECT_EQ(scheduled(2000, 200, 1).inside, -1);
  EXPECT_EQ(scheduled(20000, 4683, 1, 100).inside, -1);
  EXPECT_EQ(scheduled(20000, 4683, 1, 10, 4).inside, -1);  // memory takes longer than places
}

/// A slab comes to shared memory by the longest vectors that every slab begins with.
TEST(Schedule, SlabsOfAGpuAreCopiedByVectorsThatDivideThem) {
  const auto lanes = [](std::int64_t rows, std::int64_t columns) {
    const Facts::Axis axes[] = {{2053, false}, {rows, true, 1}, {columns, true, 0}};
    Facts f;
    f.axes = axes;
    f.slab = true;
    f.bunch_bytes = 4;
    f.bunch_vector = 8;
    return schedule_nest(f, gpu_target()).run_lanes;
  };
  EXPECT_EQ(lanes(64, 64), 8);
  EXPECT_EQ(lanes(193, 84), 4);
  EXPECT_EQ(lanes(97, 50), 2);
  EXPECT_EQ(lanes(97, 51), 1);
}

/// Several small slabs are a block's, as many as begin with a vector.
TEST(Schedule, SmallSlabsOfAGpuShareABlock) {
  const auto slabs = [](std::int64_t items, std::int64_t rows, std::int64_t columns) {
    const Facts::Axis axes[] = {{items, false}, {rows, true, 1}, {columns, true, 0}};
    Facts f;
    f.axes = axes;
    f.slab = true;
    f.bunch_bytes = 4;
    f.bunch_vector = 8;
    return schedule_nest(f, gpu_target()).slabs;
  };
  EXPECT_EQ(slabs(1 << 20, 16, 16), 8);
  EXPECT_EQ(slabs(1 << 20, 15, 17), 8);
  EXPECT_EQ(slabs(1 << 20, 9, 9), 24);
  EXPECT_EQ(slabs(1 << 20, 32, 32), 0);  // large enough
  EXPECT_EQ(slabs(100, 16, 16), 0);      // few
}

/// A thread that loads eight bytes for two vectors of results has two of them under way.
TEST(Schedule, ShortLoadsOfWideResultsComeInPairs) {
  const Facts::Axis axes[] = {{3, false}, {std::int64_t{1} << 25, false}};
  const auto steps = [&](int bytes, int loads) {
    Facts f;
    f.axes = axes;
    f.window = 8;
    f.out_narrowest = bytes;
    f.loads = loads;
    return std::get<Schedule>(schedule(f, gpu_target())).steps;
  };
  EXPECT_EQ(steps(4, 1), 2);
  EXPECT_EQ(steps(2, 1), 1);
  EXPECT_EQ(steps(4, 5), 1);
}

/// Beside few elements a GPU's tile goes on along the other axis.
TEST(Schedule, TilesBesideFewElementsAreLong) {
  const auto tile_of = [](std::int64_t across, std::int64_t last, int vector = 1) {
    const Facts::Axis axes[] = {{40000, false}, {across, false}, {last, false}};
    Facts f;
    f.axes = axes;
    f.across = 1;
    f.across_run = across;
    f.last_run = last;
    f.vector = vector;
    return std::get<Schedule>(schedule(f, gpu_target()));
  };
  const auto sides_of = [&](std::int64_t across, std::int64_t last, int vector = 1) {
    const Schedule s = tile_of(across, last, vector);
    return std::pair{s.block, s.run};
  };
  using Sides = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(sides_of(129, 6), (Sides{8, 256}));
  EXPECT_EQ(sides_of(129, 4), (Sides{8, 256}));
  EXPECT_EQ(sides_of(64, 6), (Sides{16, 64}));
  EXPECT_EQ(sides_of(129, 12), (Sides{16, 64}));
  EXPECT_EQ(sides_of(6, 129), (Sides{256, 8}));
  EXPECT_EQ(sides_of(12, 129), (Sides{64, 16}));
  EXPECT_EQ(sides_of(129, 4, 4), (Sides{4, 256}));  // whole rows are vectors
  EXPECT_EQ(tile_of(129, 4, 4).lanes, 4);
  EXPECT_EQ(tile_of(129, 4, 2).lanes, 1);
  EXPECT_EQ(tile_of(129, 8, 4).lanes, 1);
}

/// A team that has several rows' results is larger where rows are too few for all multiprocessors otherwise.
TEST(Schedule, FewRowsThatShareWhatIsReadHaveLargeTeams) {
  const Target t = gpu_target();
  const auto scheduled = [&](std::int64_t rows, std::int64_t row) {
    const Facts::Axis axes[] = {{rows, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.prims = 50;
    f.repeated = 0;
    f.vector = 4;
    return std::get<Schedule>(schedule(f, t));
  };
  EXPECT_EQ(scheduled(200000, 4096).threads.team, 32);
  EXPECT_EQ(scheduled(16384, 4096).threads.team, 32);
  EXPECT_EQ(scheduled(12000, 4096).threads.team, 128);
  EXPECT_EQ(scheduled(12000, 4096).tile, 8);
  EXPECT_EQ(scheduled(3000, 4096).tile, 4);
  EXPECT_EQ(scheduled(500, 4096).tile, 1);
  EXPECT_EQ(scheduled(20000, 512).threads.team, 32);
  EXPECT_EQ(scheduled(20000, 256).tile, 1);  // a larger team would have too little to do
}

/// Rows that are too few for a team each, but long, are cut into chunks of several rows.
TEST(Schedule, FewLongRowsThatShareWhatIsReadAreChunksOfSeveral) {
  const auto scheduled = [&](std::int64_t rows, std::int64_t row, bool in_parts = false,
                             int loaded_bytes = 2) {
    const Facts::Axis axes[] = {{rows, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.prims = 20;
    f.repeated = 0;
    f.loaded_bytes = loaded_bytes;
    f.vector = 8;
    f.in_parts = in_parts;
    return std::get<Schedule>(schedule(f, gpu_target()));
  };
  for (const std::int64_t rows : {65, 262}) {
    const Schedule s = scheduled(rows, 128256);
    EXPECT_EQ(s.form, Form::Split) << rows;
    EXPECT_EQ(s.tile, 4) << rows;
    EXPECT_EQ(s.chunk % (256 * 8), 0) << rows;
  }
  EXPECT_EQ(scheduled(8192, 32000).form, Form::Rows);
  EXPECT_GE(scheduled(8192, 32000).tile, 4);
  EXPECT_EQ(scheduled(2048, 4096).form, Form::Rows);  // of half as many lanes
  EXPECT_EQ(scheduled(2048, 4096).tile, 4);
  EXPECT_EQ(scheduled(2048, 4096).lanes, 4);
  EXPECT_EQ(scheduled(3, 128256).tile, 1);
  EXPECT_EQ(scheduled(65, 128256, true).tile, 1);
  EXPECT_EQ(scheduled(65, 128256, false, 16).tile, 1) << "threads would wait for their loads";
}

/// Threads whose columns' elements are made of what all columns share need not go down parts of them.
TEST(Schedule, ColumnsThatReadNothingOfTheirOwnAreOneThreads) {
  const auto scheduled = [&](std::int64_t columns, int loaded_bytes) {
    const Facts::Axis axes[] = {{100, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.prims = 4;
    f.kept = 3;
    f.loads = 1;
    f.loaded_bytes = loaded_bytes;
    f.vector = 4;
    return std::get<Schedule>(schedule(f, gpu_target()));
  };
  EXPECT_EQ(scheduled(671088, 0).rows, 1);
  EXPECT_EQ(scheduled(254200, 0).rows, 2);  // no more parts than keep multiprocessors busy
  EXPECT_GT(scheduled(671088, 4).rows, 1);
  EXPECT_GT(scheduled(67108, 0).rows, 1);
}

/// Short columns that are read again, so few that a warp would have idle lanes, are a thread's in shared
/// memory even where a block has few of them.
TEST(Schedule, FewShortColumnsThatAreReadAgainAreBunches) {
  const Target t = gpu_target();
  const auto scheduled = [&](int phases, std::int64_t reduced, std::int64_t columns) {
    const Facts::Axis axes[] = {{131072, false}, {reduced, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = phases;
    f.stores_full = phases > 1;
    f.vector = f.bunch_vector = 4;
    f.bunch_bytes = 8;
    f.loaded_bytes = 4;
    f.kept = 2;
    return std::get<Schedule>(schedule(f, t));
  };
  EXPECT_EQ(scheduled(2, 64, 8).form, Form::Bunch);
  EXPECT_EQ(scheduled(2, 64, 8).threads.block, 64);
  EXPECT_EQ(scheduled(2, 32, 8).threads.block, 128);
  EXPECT_EQ(scheduled(1, 64, 8).form, Form::Columns);
  EXPECT_EQ(scheduled(2, 64, 64).form, Form::Columns);
  EXPECT_EQ(scheduled(2, 512, 8).form, Form::Columns);
}

/// Lanes along an outer axis read short rows: not where those of other lanes are far away, nor where they
/// leave multiprocessors without loads.
TEST(Schedule, NestsOfAGpuReadStretchesOfMemory) {
  const Target t = gpu_target();
  NestFacts n;
  n.kept = 16384;
  n.outer = 131;
  n.innermost = n.last = 15;
  n.last_level = 0;
  n.bytes = 4e8;
  n.apart[0] = {0, 4e8};
  n.apart[1] = {0, 2e8};
  EXPECT_TRUE(nest_pays(n, t));
  n.apart_in_memory = true;
  EXPECT_FALSE(nest_pays(n, t));
  n.apart_in_memory = false;
  n.kept = 131;
  n.outer = 16384;
  EXPECT_FALSE(nest_pays(n, t));
}

/// Lanes along few adjacent columns would leave most of a warp without one.
TEST(Schedule, NestsOfAGpuHaveColumnsForTheirLanes) {
  const Target t = gpu_target();
  NestFacts n;
  n.last = 64;
  n.kept = 21475 * n.last;
  n.outer = 20;
  n.innermost = 319;
  n.last_level = -1;
  n.bytes = 4e8;
  n.apart[0] = {0, 4e8};
  n.apart[1] = {0, 2e8};
  EXPECT_TRUE(nest_pays(n, t));
  n.last = 4;
  n.kept = 21475 * n.last;
  EXPECT_FALSE(nest_pays(n, t));
}

Target measured_gpu() {
  Target t = gpu_target();
  t.prims_per_ns = 8448;
  t.bytes_per_ns = t.cached_bytes_per_ns = 3000;
  t.launch_ns = 3000;
  return t;
}

/// Sixteen rows of 64 values for each of many points.
NestFacts short_rows_of_pairs() {
  NestFacts n;
  n.kept = 1 << 20;
  n.outer = 16;
  n.innermost = n.last = 64;
  n.last_level = 0;
  n.prims = 5.4e9;
  return n;
}

/// A warp combines its lanes for each row: where rows are short and made of much, they are a kernel of their
/// own.
TEST(Schedule, NestsOfAGpuCountWhatRowsTakeToCombine) {
  const Target t = measured_gpu();
  NestFacts n = short_rows_of_pairs();
  n.bytes = 1.4e8;
  n.apart[0] = {n.prims, 2e8};
  n.apart[1] = {1.7e7, 2e8};
  EXPECT_FALSE(nest_pays(n, t));
  n.kept = 1 << 14;  // the same of longer rows
  n.innermost = n.last = 4096;
  EXPECT_TRUE(nest_pays(n, t));
}

/// A main loop does nests over pairs, of rows enough for its blocks.
TEST(Schedule, NestsOverPairsOfAGpu) {
  Target t = measured_gpu();
  t.templates = Target::Templates::Few;
  NestFacts n = short_rows_of_pairs();
  n.bytes = 2.7e8;
  n.apart[0] = {n.prims, 3e8};
  n.apart[1] = {1.7e7, 7e7};
  EXPECT_FALSE(nest_pays(n, t));
  n.pairs = true;
  EXPECT_TRUE(nest_pays(n, t));
  n.kept = 64;
  n.outer = 1 << 18;
  EXPECT_FALSE(nest_pays(n, t));
}

TEST(Schedule, LongHeldRowsFillTwoThirdsOfAGpusBlocksInFewSizes) {
  const Target t = gpu_target();
  for (const int vector : {4, 8})
    for (const int loads : {1, 2}) {
      std::set<std::pair<int, int>> sizes;
      for (std::int64_t vectors = 3; vectors <= 3072 / loads; ++vectors) {
        const Facts::Axis axes[] = {{10000, false}, {vectors * vector, true}};
        Facts f;
        f.axes = axes;
        f.phases = 1;
        f.stores_full = true;
        f.prims = 4;
        f.vector = vector;
        f.loads = f.row_loads = loads;
        const Schedule s = std::get<Schedule>(schedule(f, t));
        const std::int64_t places = std::int64_t{s.threads.team} * s.steps;
        ASSERT_EQ(s.lanes, vector);
        ASSERT_GE(places, vectors) << vector << ' ' << loads;
        if (vectors > 256) ASSERT_GE(3 * vectors, 2 * places) << vectors << ' ' << vector << ' ' << loads;
        sizes.insert({s.threads.team, s.steps});
      }
      EXPECT_LE(sizes.size(), 17u);
    }
}

/// Rows that begin anywhere, of 65 elements and more: half of a team's places have one, but for few lengths.
/// Rows that no block has registers for are read again from the second cache: of long ones one block a
/// multiprocessor is under way.
TEST(Schedule, FewRowsThatAreReadAgainAreUnderWay) {
  Target t = gpu_target();
  t.l2_bytes = (50 << 20) / t.threads;
  const auto under_way = [&](std::int64_t row, int bytes, bool again = true) {
    const Facts::Axis axes[] = {{2000, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.stores_full = again;
    f.vector = 1;
    f.loads = 1;
    f.loaded_bytes = bytes;
    return rows_under_way(f, t, std::get<Schedule>(schedule(f, t)));
  };
  EXPECT_EQ(under_way(48379, 4), t.threads);
  EXPECT_EQ(under_way(147492, 4), t.threads);
  EXPECT_EQ(under_way(32784, 4), 0);   // two rows a multiprocessor fit
  EXPECT_EQ(under_way(100000, 2), 0);  // halves
  EXPECT_EQ(under_way(1000, 4), 0);    // in registers
  EXPECT_EQ(under_way(48379, 4, false), 0);
}

TEST(Schedule, HeldRowsOfAnyLengthFillHalfOfAGpusBlocks) {
  const Target t = gpu_target();
  std::set<std::pair<int, int>> sizes;
  for (std::int64_t row = 65; row <= 32768; row += 2) {
    const Facts::Axis axes[] = {{10000, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.stores_full = true;
    f.prims = 4;
    f.loads = f.row_loads = 1;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    const std::int64_t places = std::int64_t{s.threads.team} * s.steps;
    ASSERT_GE(places, row);
    if (row > 128) ASSERT_GE(2 * row, places) << row;
    sizes.insert({s.threads.team, s.steps});
  }
  EXPECT_LE(sizes.size(), 9u);
}

/// … by the vectors of memory where all operands lie so, and rows have several.
TEST(Schedule, RowsOfAGpuThatBeginAnywhereAreTakenByVectorsOfMemory) {
  const Target t = gpu_target();
  const auto scheduled = [&](std::int64_t row, int row_vector, const auto& change) {
    const Facts::Axis axes[] = {{10000, false}, {row, true}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.stores_full = true;
    f.prims = 4;
    f.loads = f.row_loads = 1;
    f.row_vector = row_vector;
    change(f);
    return std::get<Schedule>(schedule(f, t));
  };
  const auto as_is = [](Facts&) {};
  const Schedule s = scheduled(769, 8, as_is);
  EXPECT_TRUE(s.early && s.ragged);
  EXPECT_EQ(s.lanes, 8);
  EXPECT_GE(std::int64_t{s.threads.team} * s.steps * s.lanes, 769 + 7);
  for (std::int64_t row = 512; row < 20000; row += 61)  // a vector more where none begins at the row
    if (const Schedule held = scheduled(row, 8, as_is); held.steps > 0)
      ASSERT_GE(std::int64_t{held.threads.team} * held.steps * held.lanes, row % 8 == 0 ? row : row + 7)
          << row;
  EXPECT_FALSE(scheduled(769, 1, as_is).early);  // operands lie otherwise
  EXPECT_TRUE(scheduled(157, 8, as_is).early);
  EXPECT_FALSE(scheduled(131, 8, as_is).early) << "many lanes of a warp would be idle";
  EXPECT_FALSE(scheduled(117, 8, as_is).early);
  EXPECT_FALSE(scheduled(769, 8, [](Facts& f) { f.in_parts = true; }).early);
  EXPECT_FALSE(scheduled(776, 8, [](Facts& f) { f.vector = 8; }).early);
  const auto pairs = [](Facts& f) { f.vector = f.widest_bytes = 2; };
  EXPECT_TRUE(scheduled(774, 8, pairs).early);
  EXPECT_FALSE(scheduled(100002, 8, pairs).early) << "read again, by pairs";
  EXPECT_TRUE(scheduled(100001, 8, as_is).early) << "read again, by single elements";
  const Schedule scan = scheduled(1025, 8, [](Facts& f) {
    f.phases = 0;
    f.scans = true;
    f.widest_bytes = 1;
  });
  EXPECT_TRUE(scan.early);
  EXPECT_EQ(scan.lanes, 8);
}

/// Rows of several axes, of which the last has no whole vectors, but all together have.
TEST(Schedule, RowsOfSeveralAxesAreTakenByVectorsAsOne) {
  const auto scheduled = [&](std::int64_t channels, std::int64_t points, int row_vector) {
    const Facts::Axis axes[] = {{10000, false}, {channels, true}, {points, true}};
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.stores_full = true;
    f.loads = f.row_loads = 1;
    f.row_vector = row_vector;
    return std::get<Schedule>(schedule(f, gpu_target()));
  };
  EXPECT_EQ(scheduled(32, 196, 8).lanes, 8);
  EXPECT_FALSE(scheduled(32, 196, 8).ragged || scheduled(32, 196, 8).early);
  EXPECT_EQ(scheduled(4, 49, 8).lanes, 4);  // half a vector
  EXPECT_EQ(scheduled(2, 49, 8).lanes, 1);  // a word
  EXPECT_TRUE(scheduled(3, 49, 8).early);
  EXPECT_EQ(scheduled(16, 49, 4).lanes, 4);  // of floats
  EXPECT_TRUE(scheduled(30, 49, 8).early);
}

/// A thread has soon done what it has of two rows: blocks of a warp would begin and end all the time.
TEST(Schedule, ColumnsOfFewRowsHaveSeveralWarpsToABlock) {
  const auto team = [&](std::int64_t rows, std::int64_t columns) {
    const Facts::Axis axes[] = {{rows, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.vector = 4;
    f.loads = 2;
    f.loaded_bytes = 4;
    return std::get<Schedule>(schedule(f, gpu_target())).threads.team;
  };
  EXPECT_EQ(team(2, 1 << 24), 128);
  EXPECT_EQ(team(2, 1 << 11), 32);
}

/// Parts of a team come together in the end: of few columns, many times over, each has a warp or two.
TEST(Schedule, FewColumnsOfManyHaveFewParts) {
  const auto team = [&](std::int64_t many, std::int64_t rows, std::int64_t columns, bool in_parts = false) {
    const Facts::Axis axes[] = {{many, false}, {rows, true}, {columns, false}};
    Facts f;
    f.axes = axes;
    f.phases = 1;
    f.vector = 2;
    f.loads = 1;
    f.loaded_bytes = 2;
    f.in_parts = in_parts;
    return std::get<Schedule>(schedule(f, gpu_target())).threads.team;
  };
  EXPECT_EQ(team(33792, 990, 2), 64);
  EXPECT_EQ(team(33792, 990, 2, true), 32);
  EXPECT_EQ(team(33792, 4000, 2), 256);
  EXPECT_EQ(team(100, 990, 2), 256);  // too few for all multiprocessors
}

/// Short rows of kept axes would leave threads without a column.
TEST(Schedule, ShortColumnsOfAGpuShareTheLanesWithTheKeptAxesBeforeThem) {
  const Target t = gpu_target();
  const auto scheduled = [&](std::vector<Facts::Axis> axes, int vector = 4) {
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.stores_full = true;
    f.prims = 4;
    f.loads = 1;
    f.loaded_bytes = f.held_bytes = 4;
    f.vector = vector;
    f.bunch_bytes = 8;
    return std::get<Schedule>(schedule(f, t));
  };
  const Schedule few = scheduled({{3, true}, {1525200, false}, {12, false}});
  EXPECT_EQ(few.kept_from, 0);
  EXPECT_EQ(few.lanes, 4);
  EXPECT_EQ(few.threads.team, 128);
  EXPECT_EQ(few.written_out, 3);  // they stay in registers
  EXPECT_EQ(few.run, 0);
  EXPECT_EQ(scheduled({{1525200, false}, {3, true}, {40, false}}).kept_from, 0);
  const Schedule more = scheduled({{16, true}, {1525200, false}, {12, false}}),
                 most = scheduled({{30, true}, {1525200, false}, {12, false}});
  EXPECT_EQ(more.written_out, 16);
  EXPECT_EQ(more.lanes, 4);
  EXPECT_EQ(most.written_out, 32);  // whose loads take registers as adjacent columns would
  EXPECT_EQ(most.lanes, 2);
  const Schedule longer = scheduled({{33, true}, {1525200, false}, {12, false}});
  EXPECT_EQ(longer.written_out, 0);
  EXPECT_GT(longer.run, 0);  // they are held
  EXPECT_EQ(scheduled({{30, true}, {152520, false}, {12, false}}).kept_from, 1);
  EXPECT_EQ(scheduled({{30, true}, {1525, false}, {4096, false}}).kept_from, -1);  // they fill the lanes
  EXPECT_EQ(scheduled({{3, true}, {1525200, false}}).kept_from, -1);
}

/// A block of columns that are read again has no threads across more of them than there are.
TEST(Schedule, HeldColumnsAreAsManyAsThereAre) {
  const Target t = gpu_target();
  const auto across = [&](std::int64_t columns, int lanes) {
    Facts f;
    const std::vector<Facts::Axis> axes{{42799, false}, {196, true}, {columns, false}};
    f.axes = axes;
    f.phases = 2;
    f.stores_full = true;
    f.prims = 8;
    f.loads = 1;
    f.widest_bytes = f.held_bytes = f.loaded_bytes = 4;
    f.vector = lanes;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    EXPECT_EQ(s.form, Form::Columns);
    EXPECT_GT(s.run, 0) << "they are held";
    EXPECT_GE(s.threads.team, 64);
    return s.block;
  };
  EXPECT_EQ(across(8, 4), 8);
  EXPECT_EQ(across(12, 4), 16);
  EXPECT_EQ(across(16, 4), 16);
}

}  // namespace
}  // namespace kiln::schedule
