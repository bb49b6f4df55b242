// The source tree keeps its rules: which room may include which, how long a file may be, how files are laid
// out, and that everything that writes kernels is in the hash that cached kernels carry.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;

class Layout : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(root_ / "src")) GTEST_SKIP() << "no source tree beside this build";
  }

  static std::string read(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  /// Files below a directory of the tree, relative to it, with one of these extensions.
  std::vector<std::string> files(const std::string& below, const std::set<std::string>& extensions) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root_ / below))
      if (entry.is_regular_file() && extensions.contains(entry.path().extension().string()))
        out.push_back(fs::relative(entry.path(), root_ / below).generic_string());
    std::sort(out.begin(), out.end());
    return out;
  }

  /// The files of src that a file of src includes, relative to src.
  const std::vector<std::string>& includes(const std::string& file) {
    const auto [at, added] = includes_.try_emplace(file);
    if (!added) return at->second;
    static const std::regex line(R"re(#include "([^"]+)")re");
    const std::string text = read(root_ / "src" / file);
    for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it)
      if (fs::exists(root_ / "src" / (*it)[1].str())) at->second.push_back((*it)[1]);
    return at->second;
  }

  static std::string room_of(const std::string& file) { return file.substr(0, file.find('/')); }

  /// A header that includes no other room's: it may be included from everywhere.
  bool is_leaf(const std::string& header) {
    const std::vector<std::string>& list = includes(header);
    return header.ends_with(".h") && std::all_of(list.begin(), list.end(), [&](const std::string& i) {
             return room_of(i) == room_of(header);
           });
  }

  /// The rooms in the order of the table in docs/architecture.md.
  std::vector<std::string> rooms() const {
    const std::string text = read(root_ / "docs/architecture.md");
    static const std::regex row("\n\\| `src/([a-z]+)` \\|");
    std::vector<std::string> out;
    for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it)
      out.push_back((*it)[1]);
    return out;
  }

  const fs::path root_ = KILN_SOURCE_DIR;

 private:
  std::map<std::string, std::vector<std::string>> includes_;
};

const std::set<std::string> kSources = {".cpp", ".h", ".def"};

TEST_F(Layout, EveryRoomIsInTheTableOfRooms) {
  const std::vector<std::string> order = rooms();
  const std::set<std::string> named(order.begin(), order.end());
  std::set<std::string> there;
  for (const auto& entry : fs::directory_iterator(root_ / "src"))
    if (entry.is_directory()) there.insert(entry.path().filename().string());
  EXPECT_EQ(named, there);
  EXPECT_EQ(named.size(), order.size());
}

TEST_F(Layout, RoomsIncludeRoomsBeforeThemAndLeafHeaders) {
  const std::vector<std::string> order = rooms();
  const auto place = [&](const std::string& file) {
    return std::find(order.begin(), order.end(), room_of(file)) - order.begin();
  };
  for (const std::string& file : files("src", kSources))
    for (const std::string& included : includes(file))
      EXPECT_TRUE(place(included) <= place(file) || is_leaf(included))
          << "src/" << file << " includes " << included << ", of a room that comes later";
}

TEST_F(Layout, FilesHaveAtMost600Lines) {
  for (const char* below : {"src", "include", "tests", "tools", "bench", "examples", "kernels_templates"})
    for (const std::string& file : files(below, {".cpp", ".h", ".cu", ".cuh"})) {
      const std::string text = read(root_ / below / file);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 600) << below << '/' << file;
    }
}

/// Functions of a file as clang-format lays them out, outside of classes and directly within them: the first
/// line of each, by which it is told, and how many lines it has.
std::vector<std::pair<std::string, std::size_t>> functions_of(const std::string& text) {
  static const std::regex type(R"(^(?:template <.*> )?(?:struct|class|union) .*\{$)"),
      other(R"(^ *(?:struct|class|union|enum|namespace|using|typedef|public:|private:|protected:).*)");
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::vector<std::pair<std::string, std::size_t>> out;
  std::string indent;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("}")) indent = "";
    const bool begins = lines[i].starts_with(indent) && lines[i].size() > indent.size() &&
                        (std::isalpha(lines[i][indent.size()]) || lines[i][indent.size()] == '_');
    if (std::regex_match(lines[i], type)) indent = "  ";
    if (!begins || std::regex_match(lines[i], other)) continue;
    std::size_t head = i;
    while (head + 1 < lines.size() && lines[head].find_first_of("{;}") == std::string::npos) ++head;
    if (!lines[head].ends_with(") {") && !lines[head].ends_with("const {") &&
        !lines[head].ends_with("override {"))
      continue;
    std::size_t end = head;
    while (end + 1 < lines.size() && lines[end] != indent + "}") ++end;
    out.emplace_back(lines[i], end - i + 1);
    i = end;
  }
  return out;
}

TEST_F(Layout, FunctionsHaveAtMost60LinesUnlessTheyAreTables) {
  // sort_by_digit is no table: cut, it becomes other machine code, of which no time is known.
  const std::regex table(R"(.*\b(?:add_primitive|compute|cuda_primitive|operations|step|well_typed)\(.*)"
                         R"(|.*__launch_bounds__\(256, kResident\))");
  std::size_t seen = 0;
  for (const char* below : {"src", "include", "tools", "bench", "examples", "kernels_templates"})
    for (const std::string& file : files(below, {".cpp", ".h", ".cu", ".cuh"}))
      for (const auto& [head, lines] : functions_of(read(root_ / below / file))) {
        ++seen;
        EXPECT_TRUE(lines <= 60 || std::regex_match(head, table))
            << below << '/' << file << ": " << lines << " lines: " << head;
      }
  EXPECT_GT(seen, 3000u);
}

/// A switch over a closed set names all of its members, so that the compiler finds what a new one lacks. Only
/// ops and primitives, of which most switches name a few, and numbers have another case.
TEST_F(Layout, SwitchesOverClosedSetsHaveNoDefault) {
  const std::regex open(R"((?:.*[.>])?(?:op|op_|p|prim|n|bytes|size|lanes|length|architecture|error|type))"
                        R"(|size_of\(.*\)|.*\.size\(\)|static_cast<int>\(.*\)|result)");
  static const std::regex chosen(R"(\bswitch \((.*)\) \{)");
  for (const char* below : {"src", "include", "tools"})
    for (const std::string& file : files(below, {".cpp", ".h"})) {
      std::istringstream text(read(root_ / below / file));
      std::vector<std::pair<std::size_t, std::string>> switches;  // by their indentation
      for (std::string line; std::getline(text, line);) {
        const std::size_t at = line.find_first_not_of(' ');
        if (at == line.npos) continue;
        if (line[at] == '}' && !switches.empty() && at == switches.back().first) switches.pop_back();
        std::smatch match;
        if (std::regex_search(line, match, chosen)) switches.emplace_back(at, match[1]);
        if (line.compare(at, 8, "default:") != 0) continue;
        ASSERT_FALSE(switches.empty()) << below << '/' << file;
        EXPECT_TRUE(std::regex_match(switches.back().second, open))
            << below << '/' << file << ": a default of " << switches.back().second;
      }
    }
}

/// Nor where clang-format breaks no line: in raw strings and comments. A string that stands alone cannot be
/// broken; golden files are generated.
TEST_F(Layout, LinesHaveAtMost120Columns) {
  const auto columns = [](const std::string& line) {
    return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
  };
  for (const char* below : {"src", "include", "tests", "tools", "bench", "examples", "kernels_templates"})
    for (const std::string& file : files(below, {".cpp", ".h", ".cu", ".cuh"})) {
      if (file.find("golden/") != std::string::npos) continue;
      std::istringstream text(read(root_ / below / file));
      int number = 0;
      for (std::string line; std::getline(text, line);) {
        ++number;
        const std::size_t first = line.find_first_not_of(' ');
        if (first != line.npos && line[first] == '"') continue;
        EXPECT_LE(columns(line), 120) << below << '/' << file << ':' << number;
      }
    }
}

/// A test reads no clock, or it fails where other work runs beside it: bench/ has times, tests count
/// (allocated_bytes.h). These files may: what they read ends a loop, or says when something was.
TEST_F(Layout, TestsReadNoClock) {
  const std::map<std::string, std::string> may = {
      {"cache/disk_cache_faults_test.cpp", "faults are made for half a second"},
      {"cache/disk_cache_test.cpp", "sets when a file was used"},
      {"device/cuda/fake_driver/fake_driver.h", "times of events"},
      {"device/cuda/fake_driver/gpu.cpp", "the GPU's timer"},
      {"engine/fuzz_test.cpp", "how long programs are drawn"},
      {"fuzz/fuzz_test.cpp", "how long inputs are drawn"},
      {"inspect/seeing_test.cpp", "two clocks over one stretch of time, of which one is tested"},
  };
  const std::vector<std::string> clocks = {"clock::now(",   "Clock::now(", "clock_gettime(",
                                           "gettimeofday(", "getrusage(",  "clock()",
                                           "time(nullptr)", "plan_ns - ",  "compile_ns - "};
  static const std::regex bounded(R"((?:EXPECT|ASSERT)_L[TE]\([^;]*(?:\.seconds|_[nmu]s|measured_\w+)\b.*)");
  std::set<std::string> did;
  for (const std::string& file : files("tests", {".cpp", ".h"})) {
    if (file == "layout_test.cpp") continue;
    const std::string text = read(root_ / "tests" / file);
    if (std::ranges::any_of(clocks, [&](const std::string& c) { return text.find(c) != text.npos; })) {
      did.insert(file);
      EXPECT_TRUE(may.contains(file)) << "tests/" << file << " reads a clock";
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (const std::size_t at = line.find("T_L"); at != line.npos && at >= 6) {
        EXPECT_FALSE(std::regex_match(line.substr(at - 5), bounded))
            << "tests/" << file << " bounds a time: " << line;
      }
  }
  for (const auto& [file, why] : may) EXPECT_TRUE(did.contains(file)) << file << " reads none: " << why;
}

TEST_F(Layout, FilesAreAsClangFormatLaysThemOut) {
  const std::string command = "bash '" + (root_ / "tools/format.sh").string() + "' --check";
  const int status = std::system(command.c_str());
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no clang-format of the version that tools/format.sh names";
  EXPECT_EQ(status, 0) << "run tools/format.sh";
}

/// Types defined in a file outside of anonymous namespaces, with the names of their namespaces.
std::vector<std::string> types_of(const std::string& text) {
  static const std::regex opened(R"(^(?:inline )?namespace ([\w:]*) ?\{$)"),
      closed(R"(^\}  // namespace.*$)"),
      type(
          R"(^(?:struct|class|union|enum|enum class)(?: alignas\(.*?\))? (\w+)(?: final)?(?: : [^:].*)? \{.*$)");
  std::vector<std::string> names, out;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, opened)) names.push_back(match[1]);
    if (std::regex_match(line, closed) && !names.empty()) names.pop_back();
    if (!std::regex_match(line, match, type) || std::ranges::find(names, "") != names.end()) continue;
    std::string whole;
    for (const std::string& name : names) whole += name + "::";
    out.push_back(whole + match[1].str());
  }
  return out;
}

// Where two files define types of one name, the linker keeps one of the functions made for both: of
// std::vector<Run>, say, whose elements have another size in the other file.
TEST_F(Layout, ATypeIsDefinedInOneFile) {
  EXPECT_EQ(types_of("namespace a {\nstruct X {\n};\nnamespace {\nclass Y {\n};\n}  // namespace\n"
                     "enum class Z : int { One };\nstruct W;\n}  // namespace a\n"),
            (std::vector<std::string>{"a::X", "a::Z"}));
  std::map<std::string, std::string> where;
  for (const std::string below : {"src", "include"})
    for (const std::string& file : files(below, {".h", ".cpp"}))
      for (const std::string& name : types_of(read(root_ / below / file))) {
        const auto [at, fresh] = where.try_emplace(name, below + "/" + file);
        EXPECT_TRUE(fresh) << name << " is defined in " << at->second << " and in " << below << "/" << file;
      }
  EXPECT_GT(where.size(), 300u);
}

/// What can change the text or the machine code of a kernel: everything that schedules, lowers and emits
/// includes.
TEST_F(Layout, EverythingThatWritesKernelsIsInTheGeneratorsHash) {
  std::set<std::string> hashed;
  std::ifstream list(KILN_GENERATOR_SOURCES);
  ASSERT_TRUE(list) << KILN_GENERATOR_SOURCES;
  for (std::string line; std::getline(list, line);) hashed.insert(fs::relative(line, root_).generic_string());
  std::vector<std::string> todo = {"device/cpu/jit.cpp", "device/cuda/nvrtc.cpp",
                                   "device/cuda/cuda_compiler.cpp"};
  for (const char* room : {"schedule", "lower", "math", "codegen", "kernel"})
    for (const std::string& file : files("src/" + std::string(room), kSources))
      todo.push_back(room + ("/" + file));
  std::set<std::string> seen(todo.begin(), todo.end());
  while (!todo.empty()) {
    const std::string file = std::move(todo.back());
    todo.pop_back();
    EXPECT_TRUE(hashed.contains("src/" + file)) << "src/" << file << " is not in cmake/generator_hash.cmake";
    for (const std::string& included : includes(file))
      if (seen.insert(included).second) todo.push_back(included);
  }
  for (const std::string& file : files("kernels_templates", {".cuh", ".cu"}))
    EXPECT_TRUE(hashed.contains("kernels_templates/" + file)) << file;
  for (const std::string& file : files("include", {".def"}))
    EXPECT_TRUE(hashed.contains("include/" + file)) << file;
}

/// The script that makes the hash, with one file after the other changed.
TEST_F(Layout, AChangeOfAnyHashedFileChangesTheGeneratorsHash) {
  const fs::path here = fs::temp_directory_path() / ("kiln-layout-" + std::to_string(::getpid()));
  fs::create_directories(here);
  const auto hash = [&](const std::string& changed) {
    std::ofstream sources(here / "sources.txt");
    for (const char* name : {"first.cpp", "second.cpp", "third.cuh"}) {
      std::ofstream(here / name) << "int " << (name == changed ? "changed" : "as_it_was") << ";\n";
      sources << (here / name).string() << '\n';
    }
    sources.close();
    const std::string command = "cmake -DLIST='" + (here / "sources.txt").string() + "' -DOUT='" +
                                (here / "hash.h").string() + "' -P '" +
                                (root_ / "cmake/write_generator_hash.cmake").string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read(here / "hash.h");
  };
  const std::string unchanged = hash("");
  EXPECT_NE(unchanged, "");
  EXPECT_EQ(hash(""), unchanged);
  for (const char* name : {"first.cpp", "second.cpp", "third.cuh"}) EXPECT_NE(hash(name), unchanged) << name;
  fs::remove_all(here);
}

}  // namespace
}  // namespace kiln
