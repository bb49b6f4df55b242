// What an evaluation did, as differences of the process's counters.
#pragma once

#include "test_data.h"

#include <kiln/kiln.h>
#include <kiln/report.h>

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kiln::test {

struct Counted {
  std::uint64_t launches, compiled, plan_misses, plan_hits, library_calls;
};

/// Counters that `f` moves.
template <class F>
Counted count(F f) {
  const Statistics a = statistics();
  f();
  const Statistics b = statistics();
  return {b.launches - a.launches, b.kernels_compiled - a.kernels_compiled, b.plan_misses - a.plan_misses,
          b.plan_hits - a.plan_hits, b.library_calls - a.library_calls};
}

/// For tests of what only a compiler does.
#define KILN_NEEDS_COMPILER() \
  if (!KILN_HAS_COMPILERS) GTEST_SKIP() << "a build without compilers"

/// Launches of evaluating these tensors together.
inline std::uint64_t kernels(std::initializer_list<Tensor> outputs) {
  return count([&] { eval(outputs); }).launches;
}

}  // namespace kiln::test
