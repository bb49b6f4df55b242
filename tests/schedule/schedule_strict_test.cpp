// The orders of strict mode: they follow from extents alone.
#include "schedule/schedule.h"
#include "schedule/two_threads.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln::schedule {
namespace {

struct Order {
  bool in_chunks, one_by_one;
  std::int64_t chunk;
  int lanes;
  bool operator==(const Order&) const = default;
};

TEST(StrictSchedule, OrdersFollowFromExtentsAlone) {
  const std::vector<std::vector<Facts::Axis>> shapes{{{5, true}},
                                                     {{3000, true}},
                                                     {{1 << 20, true}},
                                                     {{70, false}, {9, true}},
                                                     {{2, false}, {40000, true}},
                                                     {{9, true}, {70, false}},
                                                     {{40000, true}, {3, false}},
                                                     {{6, true}, {4, false}, {50, true}},
                                                     {{60000, true}, {4, false}, {5, true}}};
  for (const auto& axes : shapes)
    for (bool gpu : {false, true}) {
      std::vector<Order> orders;
      for (int threads : {1, 2, 64})
        for (int bytes : {16, 32, 64})
          for (int prims : {2, 10, 200})
            for (int widest : {1, 4, 8})
              for (int vector : {1, 4}) {
                Target t = two_threads();
                t.gpu = gpu;
                t.strict = true;
                t.threads = threads;
                t.vector_bytes = bytes;
                Facts f;
                f.axes = axes;
                f.phases = 1;
                f.prims = prims;
                f.widest_bytes = widest;
                f.vector = vector;
                const Schedule s = std::get<Schedule>(schedule(f, t));
                const bool columns = s.form == Form::Columns || s.form == Form::SplitColumns;
                orders.push_back({s.form == Form::Split || s.form == Form::SplitColumns,
                                  columns || s.one_by_one, s.chunk,
                                  columns || s.one_by_one ? 0
                                  : gpu                   ? s.threads.team * s.lanes
                                                          : s.lanes});
                EXPECT_EQ(s.chunk > 0, orders.back().in_chunks);
              }
      for (const Order& o : orders) EXPECT_EQ(o, orders.front());
    }
}

TEST(StrictSchedule, WhatDependsOnAReductionInChunksIsAKernelOfItsOwn) {
  Target t = two_threads();
  t.strict = true;
  EXPECT_TRUE(refuse_norm({1000, 16384, false}, t).empty());
  EXPECT_FALSE(refuse_norm({1000, 16385, false}, t).empty());
  EXPECT_TRUE(refuse_norm({100000, 1024, true}, t).empty());
  EXPECT_FALSE(refuse_norm({100000, 1025, true}, t).empty());
}

}  // namespace
}  // namespace kiln::schedule
