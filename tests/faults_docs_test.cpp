// docs/faults.md names the tests of every fault: each name is a test of this program, each line from 1 to 49
// has one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace kiln {
namespace {

std::vector<std::string> names_of_all_tests() {
  std::vector<std::string> out;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      out.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  return out;
}

TEST(FaultsDocs, EveryLineNamesTestsThatExist) {
  const std::filesystem::path page = std::filesystem::path(KILN_SOURCE_DIR) / "docs/faults.md";
  if (!std::filesystem::exists(page)) GTEST_SKIP() << "no source tree beside this build";
  const std::vector<std::string> tests = names_of_all_tests();
  const std::regex row(R"(^\| (\d+) \|.*\|([^|]*)\|$)"), quoted("`([^`]+)`");
  std::map<int, int> named;
  std::ifstream in(page);
  for (std::string line; std::getline(in, line);) {
    std::smatch m;
    if (!std::regex_match(line, m, row)) continue;
    const int number = std::stoi(m[1]);
    const std::string cell = m[2];
    for (std::sregex_iterator it(cell.begin(), cell.end(), quoted), end; it != end; ++it) {
      std::string name = (*it)[1];
      const bool any_ending = name.back() == '*';
      if (any_ending) name.pop_back();
      bool found = false;
      for (const std::string& test : tests) found |= any_ending ? test.starts_with(name) : test == name;
#if KILN_HAS_COMPILERS && KILN_HAS_CUDA && !defined(__SANITIZE_THREAD__)  // which leaves out tests that fork
      EXPECT_TRUE(found) << "line " << number << " names " << (*it)[1];
#endif
      named[number] += found;
    }
  }
  for (int number = 1; number <= 49; ++number)
    EXPECT_GT(named[number], 0) << "line " << number << " has no test";
}

}  // namespace
}  // namespace kiln
