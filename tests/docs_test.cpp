// The pages a person reads say what the sources say: the README's program, its table of the environment,
// the programs of the tour and what they print, every link and path. UPDATE_GOLDEN=1 rewrites the generated
// parts.
#include "support/env.h"

#include <kiln/config.h>
#include <kiln/dtype.h>
#include <kiln/fusion_report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
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

  /// Compares a generated part of a page with what it should be, or rewrites it.
  void expect_part(const fs::path& page, const std::string& begin, const std::string& end,
                   const std::string& expected) const {
    std::string text = read(page);
    const std::string actual = between(text, begin, end);
    if (std::getenv("UPDATE_GOLDEN") && text.find(begin + actual + end) != std::string::npos) {
      text.replace(text.find(begin) + begin.size(), actual.size(), expected);
      std::ofstream(root_ / page) << text;
      return;
    }
    EXPECT_EQ(actual, expected) << page << ": run this test with UPDATE_GOLDEN=1";
  }

  std::vector<fs::path> pages() const {
    std::vector<fs::path> out = {"README.md"};
    for (const char* directory : {"docs", "examples", "bench"})
      for (const auto& entry : fs::recursive_directory_iterator(root_ / directory))
        if (entry.path().extension() == ".md") out.push_back(fs::relative(entry.path(), root_));
    return out;
  }

  /// The parts of a source file by name: the lines between their markers, `// [name]`, without the
  /// indentation of the marker.
  std::map<std::string, std::string> marked(const fs::path& file) const {
    std::map<std::string, std::string> parts;
    std::istringstream lines(read(file));
    const std::regex marker(R"(( *)// \[(.+)\])");
    std::string inside;
    std::size_t indentation = 0;
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      if (std::regex_match(line, found, marker)) {
        EXPECT_TRUE(inside.empty() || inside == found[2]) << inside << " does not end before " << found[2];
        inside = inside.empty() ? found[2].str() : "";
        indentation = static_cast<std::size_t>(found[1].length());
      } else if (!inside.empty()) {
        parts[inside].append(line, std::min(indentation, line.size())).push_back('\n');
      }
    }
    return parts;
  }

  /// What a page's headings can be linked by: "#long-traces" of "## Long traces".
  std::set<std::string> anchors(const fs::path& page) const {
    std::set<std::string> out;
    std::istringstream lines(read(page));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("#")) continue;
      std::string anchor = "#";
      for (const char c : line.substr(std::min(line.size(), line.find(' ') + 1))) {
        if (c == ' ') anchor += '-';
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
          anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
      out.insert(anchor);
    }
    return out;
  }

  /// The paths that a pattern with `*` and `{a,b}` stands for.
  std::vector<fs::path> matches(const std::string& pattern) const {
    const std::size_t open = pattern.find('{'), close = pattern.find('}');
    std::vector<fs::path> out;
    if (open != std::string::npos && close != std::string::npos) {
      std::istringstream words(pattern.substr(open + 1, close - open - 1));
      for (std::string word; std::getline(words, word, ',');) {
        const auto found = matches(pattern.substr(0, open) + word + pattern.substr(close + 1));
        if (found.empty()) return {};
        out.insert(out.end(), found.begin(), found.end());
      }
      return out;
    }
    const fs::path path = root_ / pattern;
    if (pattern.find('*') == std::string::npos)
      return fs::exists(path) ? std::vector{path} : std::vector<fs::path>{};
    if (!fs::is_directory(path.parent_path())) return {};
    const std::string name = std::regex_replace(path.filename().string(), std::regex("\\."), "\\.");
    const std::regex form(std::regex_replace(name, std::regex("\\*"), ".*"));
    for (const auto& entry : fs::directory_iterator(path.parent_path()))
      if (std::regex_match(entry.path().filename().string(), form)) out.push_back(entry.path());
    return out;
  }

  const fs::path root_ = fs::path(KILN_SOURCE_DIR);
};

TEST_F(Docs, ReadmeShowsTheQuickstart) {
  expect_part("README.md", "```cpp\n", "```\n",
              between(read("examples/quickstart.cpp"), "// [readme]\n", "// [readme]\n"));
}

TEST_F(Docs, TheTourShowsItsPrograms) {
  const std::map<std::string, std::string> programs = marked("examples/tour.cpp");
  ASSERT_GE(programs.size(), 12u);
  for (const auto& [name, program] : programs)
    expect_part("docs/tour.md", "<!-- tour: " + name + " -->\n```cpp\n", "```\n", program);
  const std::string page = read("docs/tour.md");
  const std::regex block("```cpp\n");
  EXPECT_EQ(std::distance(std::sregex_iterator(page.begin(), page.end(), block), std::sregex_iterator()),
            static_cast<std::ptrdiff_t>(programs.size()))
      << "a program of docs/tour.md is not in examples/tour.cpp";
}

TEST_F(Docs, TheTourPrintsWhatItsPageSays) {
  if (!fs::exists(KILN_TOUR)) GTEST_SKIP() << "the examples are not built";
  const std::string command =
      "env -u KILN_CHECK -u KILN_DEBUG -u KILN_STRICT KILN_CACHE=off KILN_MODE=lazy KILN_DEVICE=cpu "
      "'" KILN_TOUR "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_TRUE(pipe);
  std::string printed;
  for (int c; (c = std::fgetc(pipe)) != EOF;) printed += static_cast<char>(c);
  ASSERT_EQ(pclose(pipe), 0) << printed;
  const std::map<std::string, std::string> programs = marked("examples/tour.cpp");
  for (const auto& [name, program] : programs) {
    const std::size_t begin = printed.find("[" + name + "]\n");
    ASSERT_NE(begin, std::string::npos) << name << " did not run:\n" << printed;
    const std::size_t start = begin + name.size() + 3;
    std::size_t stop = printed.size();
    for (const auto& other : programs)
      if (const std::size_t at = printed.find("\n[" + other.first + "]\n", start - 1);
          at != std::string::npos)
        stop = std::min(stop, at + 1);
    expect_part("docs/tour.md", "<!-- tour: " + name + " prints -->\n```text\n", "```\n",
                printed.substr(start, stop - start));
  }
}

TEST_F(Docs, TheTutorialShowsItsPrograms) {
  const std::map<std::string, std::string> programs = marked("examples/training.cpp");
  for (const auto& [name, program] : programs)
    expect_part("docs/training.md", "<!-- training: " + name + " -->\n```cpp\n", "```\n", program);
  const std::string page = read("docs/training.md");
  const std::regex block("```cpp\n");
  EXPECT_EQ(std::distance(std::sregex_iterator(page.begin(), page.end(), block), std::sregex_iterator()),
            static_cast<std::ptrdiff_t>(programs.size()))
      << "a program of docs/training.md is not in examples/training.cpp";
}

TEST_F(Docs, ReadmeListsTheEnvironment) {
  const auto cell = [](const std::string& text) {
    return std::regex_replace(text, std::regex("\\|"), "\\|");
  };
  std::string table = "| variable | values | default | meaning |\n|---|---|---|---|\n";
  for (const EnvironmentRow& row : environment_rows(Config{}))
    table += "| `" + row.name + "` | `" + cell(row.values) + "` | " +
             (row.value.empty() ? "" : "`" + row.value + "`") + " | " + cell(row.meaning) + " |\n";
  expect_part("README.md", "<!-- environment: begin -->\n", "<!-- environment: end -->", table);
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

TEST_F(Docs, ExplainListsEveryReason) {
  struct Row {
    std::string_view text, explanation;
    FusionHint hint;
  };
  static constexpr Row kRows[] = {
#define KILN_REASON(Name, Pattern, Hint, text, explanation) {text, explanation, FusionHint::Hint},
#include <kiln/fusion.def>
#undef KILN_REASON
  };
  std::string table = "| reason | helps |\n|---|---|\n";
  for (const Row& row : kRows)
    table.append("| ")
        .append(row.text)
        .append(" | ")
        .append(text_of(row.hint))
        .append(row.explanation.empty() ? "" : ": ")
        .append(row.explanation)
        .append(" |\n");
  expect_part("docs/explain.md", "<!-- reasons: begin -->\n", "<!-- reasons: end -->", table);
}

TEST_F(Docs, ExplainListsEveryKind) {
  static constexpr std::string_view kKinds[] = {
#define KILN_REGION_KIND(Name, text) text,
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
  };
  const std::string page = read("docs/explain.md");
  const std::size_t begin = page.find("<!-- kinds: begin -->"), end = page.find("<!-- kinds: end -->");
  ASSERT_TRUE(begin < end && end != page.npos);
  const std::string table = page.substr(begin, end - begin);
  for (const std::string_view kind : kKinds)
    EXPECT_NE(table.find("\n| `" + std::string(kind) + "` | "), table.npos) << kind;
  EXPECT_EQ(static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n')), std::size(kKinds) + 3);
}

TEST_F(Docs, LinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#\s]*)(#[^)]*)?\))");
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1], anchor = (*it)[2];
      if (target.find("://") != std::string::npos) continue;
      const fs::path file = target.empty() ? page : page.parent_path() / target;
      EXPECT_TRUE(fs::exists(root_ / file)) << page << " links to " << target;
      if (anchor.empty()) continue;
      EXPECT_TRUE(anchors(file).contains(anchor)) << page << " links to " << target << anchor;
    }
  }
}

/// Sources named in prose (`src/plan/fuse.cpp`, `src/plan/fuse*.cpp`) exist.
TEST_F(Docs, PathsNamedInTheTextExist) {
  const std::regex path(
      R"(`((src|include|tests|tools|examples|bench|docs|cmake|kernels_templates)/[A-Za-z0-9_./*{},-]+)`)");
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it)
      EXPECT_FALSE(matches((*it)[1].str()).empty()) << page << " names " << (*it)[1];
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
