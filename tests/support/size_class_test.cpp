#include "support/size_class.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(SizeClass, EverySizeFitsItsClassAndNotTheOneBelow) {
  for (std::uint64_t bytes = 0; bytes < (8u << 20); bytes += bytes < 4096 ? 1 : 61) {
    const int cls = size_class(bytes);
    EXPECT_GE(class_bytes(cls), bytes);
    if (cls > 0) {
      EXPECT_LT(class_bytes(cls - 1), bytes) << bytes;
    }
  }
  for (int cls = 0; cls < kClasses; ++cls) {
    EXPECT_EQ(size_class(class_bytes(cls)), cls);
    EXPECT_EQ(class_bytes(cls) % 64, 0u);
  }
}

TEST(SizeClass, LargeBlocksWasteAtMostAnEighth) {
  for (std::uint64_t bytes = kLocalMax + 1; bytes < (1u << 28); bytes += bytes / 97)
    EXPECT_LE(class_bytes(size_class(bytes)), bytes + bytes / 8 + 1) << bytes;
}

}  // namespace
}  // namespace kiln
