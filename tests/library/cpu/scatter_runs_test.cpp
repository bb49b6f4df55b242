// How a scatter's work is cut for threads.
#include "library/cpu/scatter_runs.h"

#include "library/cpu/scatter.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <cstddef>
#include <vector>

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

/// Values too far apart for a list of 32 bits, whose rows are written one by one.
TEST(ScatterRuns, ThatLieFarApart) {
  constexpr std::int64_t kFar = std::int64_t{1} << 28;
  void* const memory = mmap(nullptr, static_cast<std::size_t>(kFar + 3) * sizeof(float),
                            PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const values = static_cast<float*>(memory);
  for (int i = 0; i < 3; ++i) values[i] = 1, values[kFar + i] = static_cast<float>(i + 2);
  EXPECT_FALSE(fits_list(kMaxRank * 2, kFar));
  const std::int32_t indices[] = {3, -4};
  const std::vector<float> x(12, 10.0f);
  std::vector<float> out(12);
  Scatter call;
  call.index_dtype = DType::Int32;
  call.how = Combine::Add;
  call.x = call.indices = call.values = Array{.data = x.data(), .rank = 2, .dims = {4, 3}, .strides = {3, 1}};
  call.indices.data = indices, call.indices.dims[0] = 2;
  call.indices.strides[0] = 1, call.indices.strides[1] = 0;
  call.values.data = values, call.values.dims[0] = 2, call.values.strides[0] = kFar;
  call.out = out.data();
  std::vector<std::byte> workspace(scatter_workspace_bytes(call) + 64);
  scatter(call, workspace.data());
  EXPECT_EQ(out, (std::vector<float>{12, 13, 14, 10, 10, 10, 10, 10, 10, 11, 11, 11}));
  munmap(memory, static_cast<std::size_t>(kFar + 3) * sizeof(float));
}

}  // namespace
}  // namespace kiln::cpu
