// How a scatter's work is cut for threads.
#include "library/cpu/scatter_runs.h"

#include <gtest/gtest.h>

namespace kiln::cpu {
namespace {

/// Rows of `run` float32 at `indices` indices into an axis of `extent`.
Cut cut(std::int64_t extent, std::int64_t indices, std::int64_t run, bool one_thread = false) {
  Scatter call;
  const auto rows = [&](std::int64_t n) {
    Array a;
    a.rank = 2;
    a.dims[0] = n, a.dims[1] = run;
    a.strides[0] = run, a.strides[1] = 1;
    return a;
  };
  call.x = rows(extent);
  call.indices = call.values = rows(indices);
  call.indices.strides[0] = 1, call.indices.strides[1] = 0;
  call.one_thread = one_thread;
  return Cut(call);
}

TEST(ScatterCut, ShortRowsStayWhole) {
  for (const std::int64_t run : {4, 64, 255, 256, 511}) {
    const Cut c = cut(1000, 1 << 20, run);
    EXPECT_EQ(c.parts, 1) << run;
    EXPECT_EQ(c.ranges, thread_count()) << run;
  }
}

TEST(ScatterCut, LongRowsHaveParts) {
  const Cut c = cut(1000, 1 << 16, 4096);
  EXPECT_EQ(c.parts, std::min<std::int64_t>(8, 4 * thread_count()));
  EXPECT_EQ(c.ranges, c.parts < thread_count() ? thread_count() : 1);
}

TEST(ScatterCut, AnAxisOfFewElementsHasPartsOfShortRows) {
  if (thread_count() == 1) GTEST_SKIP() << "for several threads";
  const Cut c = cut(2, 1 << 16, 256);
  EXPECT_EQ(c.parts, std::min(4, thread_count()));
}

TEST(ScatterCut, OneThreadOrLittleWorkIsOneJob) {
  EXPECT_EQ(cut(1000, 1 << 20, 256, true).jobs(), 1);
  EXPECT_EQ(cut(1000, 100, 256).jobs(), 1);
}

}  // namespace
}  // namespace kiln::cpu
