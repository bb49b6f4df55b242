// Memory that a thread asks for: a measure of work that does not depend on the machine, for tests of how work
// grows. Code that walks the same nodes again for each of many others builds its tables again as well.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

namespace kiln::testing {

struct Allocated {
  std::uint64_t bytes = 0, calls = 0;
};

/// What this thread has got from operator new since it began, in kiln's library and in the tests.
Allocated allocated();

/// What `f` gets from operator new in this thread.
template <class F>
Allocated allocated_in(F&& f) {
  const Allocated before = allocated();
  f();
  const Allocated after = allocated();
  return {after.bytes - before.bytes, after.calls - before.calls};
}

/// False under a sanitizer, whose own operators new and delete check more.
bool counts_allocations();

#define KILN_NEEDS_COUNTED_ALLOCATIONS() \
  if (!::kiln::testing::counts_allocations()) GTEST_SKIP() << "a sanitizer's operator new counts nothing"

}  // namespace kiln::testing
