// docs/walkthroughs.md: each program is run with KILN_EXPLAIN, and its report says what the page says, with
// the line.
#include "cache/temporary_directory.h"

#include <kiln/fusion_report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kiln {
namespace {

class Walkthroughs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(KILN_WALKTHROUGHS)) GTEST_SKIP() << "the examples are not built";
  }

  /// The plans of one program.
  std::vector<FusionReport> reports(const std::string& program) {
    const std::string file = directory_ / (program + ".json");
    const std::string command =
        "env -u KILN_STRICT -u KILN_TIER -u KILN_CHECK KILN_CACHE=off KILN_MODE=lazy KILN_DEVICE=cpu "
        "KILN_NUM_THREADS=2 KILN_EXPLAIN='" +
        file + "' '" KILN_WALKTHROUGHS "' " + program + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::vector<FusionReport> out;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("{\"schema\":\"kiln.fusion/2\""))
        out.push_back(fusion_report_from_json(line));
      else
        ++later_runs_;
    }
    EXPECT_FALSE(out.empty());
    return out;
  }
  /// The text of a line of the program.
  static std::string line_of(std::uint32_t number) {
    std::ifstream in(std::string(KILN_SOURCE_DIR) + "/examples/walkthroughs.cpp");
    std::string line;
    for (std::uint32_t i = 0; i < number; ++i) std::getline(in, line);
    return line;
  }

  int later_runs_ = 0;
  const testing::TemporaryDirectory directory_;
};

TEST_F(Walkthroughs, ThePageShowsThePrograms) {
  const auto text_of_file = [](const char* file) {
    std::ostringstream text;
    text << std::ifstream(std::string(KILN_SOURCE_DIR) + file).rdbuf();
    return text.str();
  };
  const std::string source = text_of_file("/examples/walkthroughs.cpp"),
                    page = text_of_file("/docs/walkthroughs.md");
  for (const char* name :
       {"extra reader", "changing integer", "printing", "copy to host", "above the floor"}) {
    const std::string marker = std::string("// [") + name + "]";
    const std::size_t begin = source.find(marker) + marker.size();
    EXPECT_NE(page.find("```cpp" + source.substr(begin, source.find(marker, begin) - begin) + "```"),
              page.npos)
        << name;
  }
}

TEST_F(Walkthroughs, OneExtraReader) {
  const FusionReport r = reports("extra-reader").back();
  ASSERT_EQ(r.near_misses.size(), 1u) << to_text(r);
  EXPECT_EQ(r.near_misses[0].condition, FusionReason::ScoresRead);
  EXPECT_EQ(r.near_misses[0].hint(), FusionHint::DropReader);
  EXPECT_NE(line_of(r.trigger.line).find("eval(out, weights)"), std::string::npos) << r.trigger.line;
  EXPECT_EQ(r.after.kernels, 1);
  EXPECT_EQ(r.after.library_calls, 2);
}

TEST_F(Walkthroughs, AChangingInteger) {
  const std::vector<FusionReport> all = reports("changing-integer");
  EXPECT_GE(all.size(), 16u);  // a plan for each iteration
  EXPECT_EQ(all.back().difference.field, "shape");
  EXPECT_EQ(all.back().difference.now, "(16, 32)");
  EXPECT_EQ(all.back().difference.was, "(15, 32)");
  EXPECT_NE(line_of(all.back().difference.line).find("keys(range(0, t))"), std::string::npos);
}

TEST_F(Walkthroughs, PrintingInALoop) {
  const std::vector<FusionReport> all = reports("printing");
  EXPECT_LE(all.size(), 6u);
  EXPECT_GE(later_runs_, 5);  // 2, 4, 8, 16, 32
  EXPECT_EQ(all.back().trigger.call, "item");
  EXPECT_NE(line_of(all.back().trigger.line).find("mean(x).item<float>()"), std::string::npos);
  EXPECT_TRUE(std::ranges::any_of(all.back().stored, [](const FusionReport::Stored& s) {
    return s.why == StoredBecause::Learned;
  })) << to_text(all.back());
}

TEST_F(Walkthroughs, ACopyToTheHost) {
  const std::vector<FusionReport> all = reports("copy-to-host");
  ASSERT_GE(all.size(), 2u);
  const FusionReport& copy = all[all.size() - 2];
  EXPECT_EQ(copy.trigger.call, "copy_to");
  EXPECT_NE(line_of(copy.trigger.line).find("to_vector"), std::string::npos);
  EXPECT_EQ(copy.stored.front().bytes, 512 * 512 * 4);
  EXPECT_EQ(all.back().trigger.call, "item");
}

TEST_F(Walkthroughs, AScheduleAboveItsFloor) {
  const FusionReport r = reports("above-the-floor").back();
  ASSERT_EQ(r.regions.size(), 1u) << to_text(r);
  EXPECT_EQ(r.regions[0].kind, RegionKind::Norm);
  EXPECT_EQ(r.regions[0].kernels[0].schedule, "rows");
  EXPECT_GE(r.regions[0].bytes, r.regions[0].floor_bytes * 3 / 2) << to_text(r);
}

}  // namespace
}  // namespace kiln
