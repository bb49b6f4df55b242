// The pages a person reads say what the sources say: the README's program, its table of the environment,
// every link. UPDATE_GOLDEN=1 rewrites the generated parts.
#include "plan/reasons.h"
#include "support/env.h"

#include <kiln/config.h>
#include <kiln/dtype.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr DType kAllDTypes[] = {
#define KILN_DTYPE(Enum, ...) DType::Enum,
#include <kiln/dtype.def>
#undef KILN_DTYPE
};

class Docs : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(root_ / "README.md")) GTEST_SKIP() << "no source tree beside this build";
  }

  std::string read(const fs::path& file) const {
    std::ostringstream text;
    text << std::ifstream(root_ / file).rdbuf();
    return text.str();
  }

  /// What stands between two lines (the first exclusive of its end).
  static std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t from = text.find(begin);
    if (from == std::string::npos) return "no " + begin;
    const std::size_t start = from + begin.size(), stop = text.find(end, start);
    return stop == std::string::npos ? "no end of " + begin : text.substr(start, stop - start);
  }

  /// Compares a generated part of the README with what it should be, or rewrites it.
  void expect_part(const std::string& begin, const std::string& end, const std::string& expected) const {
    std::string text = read("README.md");
    const std::string actual = between(text, begin, end);
    if (std::getenv("UPDATE_GOLDEN") && text.find(begin + actual + end) != std::string::npos) {
      text.replace(text.find(begin) + begin.size(), actual.size(), expected);
      std::ofstream(root_ / "README.md") << text;
      return;
    }
    EXPECT_EQ(actual, expected) << "run this test with UPDATE_GOLDEN=1";
  }

  std::vector<fs::path> pages() const {
    std::vector<fs::path> out = {"README.md"};
    for (const char* directory : {"docs", "examples", "bench"})
      for (const auto& entry : fs::recursive_directory_iterator(root_ / directory))
        if (entry.path().extension() == ".md") out.push_back(fs::relative(entry.path(), root_));
    return out;
  }

  const fs::path root_ = fs::path(KILN_SOURCE_DIR);
};

TEST_F(Docs, ReadmeShowsTheQuickstart) {
  expect_part("```cpp\n", "```\n",
              between(read("examples/quickstart.cpp"), "// [readme]\n", "// [readme]\n"));
}

TEST_F(Docs, ReadmeListsTheEnvironment) {
  const auto cell = [](const std::string& text) {
    return std::regex_replace(text, std::regex("\\|"), "\\|");
  };
  std::string table = "| variable | values | default | meaning |\n|---|---|---|---|\n";
  for (const EnvironmentRow& row : environment_rows(Config{}))
    table += "| `" + row.name + "` | `" + cell(row.values) + "` | " +
             (row.value.empty() ? "" : "`" + row.value + "`") + " | " + cell(row.meaning) + " |\n";
  expect_part("<!-- environment: begin -->\n", "<!-- environment: end -->", table);
}

/// The table of docs/semantics.md, cell by cell, is what promote() says.
TEST_F(Docs, ThePromotionTableIsTheCodes) {
  const auto short_name = [](DType t) { return std::string(info(t).short_name); };
  std::string table = "|  |";
  for (const DType t : kAllDTypes) table += " " + short_name(t) + " |";
  table += "\n|";
  for (std::size_t i = 0; i <= std::size(kAllDTypes); ++i) table += "---|";
  for (const DType a : kAllDTypes) {
    table += "\n| **" + short_name(a) + "** |";
    for (const DType b : kAllDTypes) {
      EXPECT_EQ(promote(a, b), promote(b, a)) << name(a) << " " << name(b);
      table += " " + short_name(promote(a, b)) + " |";
    }
  }
  const std::string page = read("docs/semantics.md");
  EXPECT_NE(page.find(table + "\n"), std::string::npos) << "it should be:\n" << table;
}

TEST_F(Docs, SeeingListsEveryReason) {
  const std::string table = between(read("docs/seeing.md"), "| reason | helps |\n|---|---|\n", "\n\n");
  std::vector<std::string> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) rows.push_back(line.substr(2, line.find(" | ") - 2));
  for (const std::string_view reason : plan::kReasons)
    EXPECT_NE(std::find(rows.begin(), rows.end(), reason), rows.end()) << "no row for: " << reason;
  for (const std::string& row : rows)
    EXPECT_NE(std::find(std::begin(plan::kReasons), std::end(plan::kReasons), row), std::end(plan::kReasons))
        << "nobody says: " << row;
}

TEST_F(Docs, LinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(root_ / page.parent_path() / target)) << page << " links to " << target;
    }
  }
}

/// Sources named in prose (`src/plan/fuse.cpp`, `tests/docs_test.cpp`) exist. `*` stands for anything.
TEST_F(Docs, PathsNamedInTheTextExist) {
  const std::regex path(R"(`((src|include|tests|tools|examples|bench|docs|cmake)/[A-Za-z0-9_./-]+)`)");
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it)
      EXPECT_TRUE(fs::exists(root_ / (*it)[1].str())) << page << " names " << (*it)[1];
  }
}

TEST_F(Docs, TheIndexNamesEveryPage) {
  const std::string index = read("docs/README.md");
  for (const fs::path& page : pages())
    if (page.parent_path() == "docs" && page.filename() != "README.md") {
      EXPECT_NE(index.find("(" + page.filename().string() + ")"), std::string::npos) << page;
    }
}

}  // namespace
}  // namespace kiln
