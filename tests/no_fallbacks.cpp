// Every test but those of faults, and the fuzzer, which counts for itself, runs the kernels that were planned
// for it. A kernel that Kiln finds to be wrong is replaced by simpler ones, whose values are right: only the
// counter tells.
#include <kiln/report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kiln {
namespace {

constexpr std::array<std::string_view, 8> kOfFaults = {
    "Fuzz",  "GpuDump",  "Fallback",      "CompileFailure",
    "Tiers", "Lifetime", "ExitDeathTest", "TiersExitDeathTest"};

class NoFallbacks final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { before_ = statistics().fallbacks; }
  void OnTestEnd(const testing::TestInfo& test) override {
    const bool of_faults =
        std::find(kOfFaults.begin(), kOfFaults.end(), test.test_suite_name()) != kOfFaults.end();
    if (!of_faults && statistics().fallbacks > before_)
      ADD_FAILURE() << "kernels were replaced by simpler ones: " << statistics().fallbacks - before_;
  }
  std::uint64_t before_ = 0;
};

class Registers final : public testing::Environment {
  // The first listener: a failure that a later one finds would come after the result was printed.
  void SetUp() override { testing::UnitTest::GetInstance()->listeners().Append(new NoFallbacks); }
};

const testing::Environment* const registered = testing::AddGlobalTestEnvironment(new Registers);

}  // namespace
}  // namespace kiln
