// The run for a lower instruction set (target.avx2) is left out where the host's own code is made of the same
// text, which the other tests run.
#include "codegen/on_target.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace kiln::testing {
namespace {

class HostLevel final : public ::testing::Environment {
  void SetUp() override {
    if (!std::getenv("KILN_TEST_LEVEL")) return;
    const std::string level = config().cpu_target;
    const std::vector<std::string> different = different_cpu_targets();
    if (std::ranges::find(different, level) != different.end()) return;
    std::cout << "KILN_CPU=" << level << ": code is that of this host" << std::endl;
    GTEST_SKIP();
  }
};

const ::testing::Environment* const registered = ::testing::AddGlobalTestEnvironment(new HostLevel);

}  // namespace
}  // namespace kiln::testing
