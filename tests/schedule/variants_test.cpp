// Other schedules of a region: which there are, and what several together are.
#include "schedule/variants.h"
#include "schedule/two_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

namespace kiln::schedule {
namespace {

TEST(Variants, NoneOfAScanHasMoreLanesThanTheVmCombines) {
  const Target t = two_threads();
  const Facts::Axis axes[] = {{4096, true}};
  Facts f;
  f.axes = axes;
  f.scans = true;
  f.widest_bytes = 1;
  Schedule s;
  s.form = Form::Rows;
  s.lanes = 64;
  constexpr FusionVariant kMore[] = {FusionVariant::MoreLanes, FusionVariant::MoreLanes};
  EXPECT_FALSE(varied(std::span(kMore, 1), f, t, s));
  s.lanes = 32;
  ASSERT_TRUE(varied(std::span(kMore, 1), f, t, s));
  EXPECT_EQ(varied(std::span(kMore, 1), f, t, s)->lanes, 64);
  EXPECT_FALSE(varied(kMore, f, t, s));
}

/// What a description, a size or a request for memory changes, each another schedule of the same region.
TEST(Variants, OfATiledMapAreDistinct) {
  const Target t = two_threads();
  const Facts::Axis axes[] = {{4096, false}, {2048, false}};
  Facts f;
  f.axes = axes;
  f.loads = 1;
  f.prims = 4;
  f.across = 0;
  f.across_run = 4096;
  f.last_run = 2048;
  f.out_bytes = 32 << 20;
  const Schedule s = std::get<Schedule>(schedule(f, t));
  ASSERT_EQ(s.form, Form::Tiles);
  const std::vector<FusionVariant> all = alternatives(f, t, s);
  for (const FusionVariant v : {FusionVariant::Untiled, FusionVariant::NoFetches, FusionVariant::FarFetches,
                                FusionVariant::SmallerBlocks, FusionVariant::KnownSizes})
    EXPECT_NE(std::ranges::find(all, v), all.end()) << name(v);
  std::vector<Schedule> seen{s};
  for (const FusionVariant v : all) {
    const auto other = varied(std::span(&v, 1), f, t, s);
    ASSERT_TRUE(other) << name(v);
    EXPECT_EQ(std::ranges::find(seen, *other), seen.end()) << name(v);
    seen.push_back(*other);
  }
  // A description and a change together, in either order.
  constexpr FusionVariant kOne[] = {FusionVariant::NoFetches, FusionVariant::Untiled},
                          kOther[] = {FusionVariant::Untiled, FusionVariant::NoFetches};
  EXPECT_EQ(varied(kOne, f, t, s), varied(kOther, f, t, s));
  EXPECT_EQ(varied(kOne, f, t, s)->fetches, -1);
  EXPECT_NE(varied(kOne, f, t, s)->form, Form::Tiles);
}

}  // namespace
}  // namespace kiln::schedule
