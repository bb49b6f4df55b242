// Maps whose results go past the caches.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kiln::schedule
