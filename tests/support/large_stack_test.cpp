#include "support/large_stack.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kiln {
namespace {

/// Bytes of stack that a call of itself `depth` deep takes at least.
std::size_t deep(int depth) {
  volatile char frame[1024] = {};
  frame[depth % 1024] = 1;
  return depth == 0 ? sizeof frame : deep(depth - 1) + sizeof frame;
}

TEST(LargeStack, HoldsMoreThanAUsualThreadHas) {
  std::size_t bytes = 0;
  on_large_stack([&] { bytes = deep(10 << 10); });
  EXPECT_GT(bytes, std::size_t{10} << 20);
}

TEST(LargeStack, ThrowsWhatWasThrown) {
  EXPECT_THROW(on_large_stack([] { throw std::range_error("no"); }), std::range_error);
}

}  // namespace
}  // namespace kiln
