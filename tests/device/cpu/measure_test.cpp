#include "device/cpu/measure.h"

#include <gtest/gtest.h>

namespace kiln::cpu {
namespace {

TEST(Measure, CeilingsAreOfAPlausibleSizeAndMeasuredOnce) {
  const Ceilings& c = ceilings();
  EXPECT_GT(c.copy_gbps, 0.1);
  EXPECT_LT(c.copy_gbps, 1e5);
  EXPECT_GT(c.read_gbps, 0.1);
  EXPECT_GT(c.fma_gflops, 0.1);
  EXPECT_GT(c.copy_gbps_1, 0.1);
  EXPECT_GT(c.fma_gflops_1, 0.1);
  EXPECT_EQ(&ceilings(), &c);
}

}  // namespace
}  // namespace kiln::cpu
