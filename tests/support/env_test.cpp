#include "support/env.h"

#include "cache/temporary_directory.h"
#include "support/edit_distance.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

namespace kiln {
namespace {

Config parse(std::string name, std::string value) {
  return parse_environment({{std::move(name), std::move(value)}});
}

std::string error_of(std::string name, std::string value) {
  try {
    parse(std::move(name), std::move(value));
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Environment, EmptyGivesTheDefaults) {
  const Config c = parse_environment({{"HOME", "/"}, {"PATH", "x"}});
  EXPECT_EQ(c.mode, Mode::Lazy);
  EXPECT_EQ(c.device, "cpu");
  EXPECT_EQ(c.cache, "rw");
  EXPECT_EQ(c.cache_max, std::uint64_t{1} << 30);
  EXPECT_FALSE(c.check_nan || c.check_diff || c.check_key);
}

TEST(Environment, EveryVariableReachesItsField) {
  EXPECT_EQ(parse("KILN_MODE", "eager").mode, Mode::Eager);
  EXPECT_EQ(parse("KILN_MODE", "interpret").mode, Mode::Interpret);
  EXPECT_EQ(parse("KILN_DEVICE", "cuda:3").device, "cuda:3");
  EXPECT_EQ(parse("KILN_DEVICE", "null").device, "null");
  EXPECT_EQ(parse("KILN_NULL_TARGET", "sm_80").null_target, "sm_80");
  EXPECT_TRUE(parse("KILN_STRICT", "1").strict);
  EXPECT_FALSE(parse("KILN_STRICT", "0").strict);
  EXPECT_TRUE(parse("KILN_DETERMINISTIC", "1").deterministic);
  EXPECT_TRUE(parse("KILN_TF32", "1").tf32);
  EXPECT_FALSE(parse("KILN_TF32", "0").tf32);
  EXPECT_TRUE(parse("KILN_FLUSH_SUBNORMALS", "1").flush_subnormals);
  EXPECT_FALSE(parse("KILN_FLUSH_SUBNORMALS", "0").flush_subnormals);
  EXPECT_EQ(parse("KILN_DEBUG", "5").debug, 5);
  EXPECT_EQ(parse("KILN_LOG", "plan,cache,plan").log_topics, (std::vector<std::string>{"plan", "cache"}));
  EXPECT_EQ(parse("KILN_DUMP", "some/dir").dump, "some/dir");
  EXPECT_EQ(parse("KILN_DUMP_STAGES", "ll,asm").dump_stages, (std::vector<std::string>{"ll", "asm"}));
  EXPECT_EQ(parse("KILN_DUMP_FILTER", "soft.*").dump_filter, "soft.*");
  EXPECT_EQ(parse("KILN_DUMP_STAGES", "cu,ptx,sass").dump_stages,
            (std::vector<std::string>{"cu", "ptx", "sass"}));
  EXPECT_EQ(parse("KILN_OVERRIDE_DIR", "edited").override_dir, "edited");
  EXPECT_EQ(parse("KILN_EXPLAIN", "1").explain, "1");
  EXPECT_EQ(parse("KILN_EXPLAIN", "why.json").explain, "why.json");
  EXPECT_EQ(parse("KILN_EXPLAIN", "why.html").explain, "why.html");
  EXPECT_EQ(parse("KILN_EXPLAIN", "0").explain, "");
  EXPECT_EQ(parse("KILN_TRACE", "time.json").trace, "time.json");
  EXPECT_EQ(parse("KILN_TRACE", "perf,time.json,gdb").trace, "perf,time.json,gdb");
  EXPECT_FALSE(parse("KILN_FUSE", "0").fuse);
  EXPECT_EQ(parse("KILN_FUSE_LEAST", "4096").fuse_least, 4096);
  EXPECT_EQ(parse("KILN_FUSE_OFF", "norm,cuda:attention").fuse_off,
            (std::vector<std::string>{"norm", "cuda:attention"}));
  EXPECT_EQ(parse("KILN_MEMORY_BUDGET", "640K").memory_budget, std::uint64_t{640} << 10);
  EXPECT_EQ(parse("KILN_MEMORY_BUDGET", "0").memory_budget, 0u);
  const Config checks = parse("KILN_CHECK", "nan,key");
  EXPECT_TRUE(checks.check_nan && checks.check_key && !checks.check_diff);
  EXPECT_EQ(parse("KILN_CACHE", "ro").cache, "ro");
  EXPECT_EQ(parse("KILN_CACHE_DIR", "/x").cache_dir, "/x");
  EXPECT_EQ(parse("KILN_CACHE_MAX", "512M").cache_max, std::uint64_t{512} << 20);
  EXPECT_EQ(parse("KILN_CACHE_MAX", "3g").cache_max, std::uint64_t{3} << 30);
  EXPECT_EQ(parse("KILN_CACHE_MAX", "1000").cache_max, 1000u);
  EXPECT_EQ(parse("KILN_NUM_THREADS", "5").num_threads, 5);
  EXPECT_EQ(parse("KILN_CPU", "avx2").cpu_target, "avx2");
  EXPECT_EQ(parse("KILN_CPU", "native").cpu_target, "");
}

TEST(Environment, AnEmptyValueIsUnset) {
  for (const EnvironmentRow& row : environment_rows(Config{}))
    EXPECT_NO_THROW(parse(row.name, "")) << row.name;
  EXPECT_EQ(parse("KILN_DEVICE", "").device, "cpu");
}

TEST(Environment, NamesOfTestsAreIgnored) { EXPECT_NO_THROW(parse("KILN_TEST_ANYTHING", "at all")); }

TEST(EnvironmentFaults, F49_BadValuesAreOneLineWithTheNearestSpelling) {
  EXPECT_EQ(error_of("KILN_MODE", "lazzy"),
            "[config] KILN_MODE=lazzy: expected lazy, eager or interpret; did you mean 'lazy'?");
  EXPECT_EQ(error_of("KILN_MODE", "EAGER"),
            "[config] KILN_MODE=EAGER: expected lazy, eager or interpret; did you mean 'eager'?");
  EXPECT_EQ(error_of("KILN_CACHE", "wr"),
            "[config] KILN_CACHE=wr: expected off, ro or rw; did you mean 'rw'?");
  EXPECT_EQ(error_of("KILN_DEVICE", "gpu:1"),
            "[config] KILN_DEVICE=gpu:1: expected cpu, cuda or null; did you mean 'cpu'?");
  EXPECT_EQ(error_of("KILN_DEVICE", "cpu:0"),
            "[config] KILN_DEVICE=cpu:0: the cpu has no number; did you mean 'cpu'?");
  EXPECT_EQ(error_of("KILN_LOG", "plan,cahce"),
            "[config] KILN_LOG=plan,cahce: expected trace, plan, kernel, cache, memory or all; did you mean "
            "'cache'?");
  EXPECT_EQ(error_of("KILN_CHECK", "nans"),
            "[config] KILN_CHECK=nans: expected nan, diff, key or bounds; did you mean 'nan'?");
  EXPECT_EQ(error_of("KILN_DEBUG", "9"),
            "[config] KILN_DEBUG=9: expected a number from 0 to 5; did you mean '5'?");
  EXPECT_EQ(error_of("KILN_DEBUG", "two"), "[config] KILN_DEBUG=two: expected a number from 0 to 5");
  EXPECT_EQ(error_of("KILN_HELP", "yes"), "[config] KILN_HELP=yes: expected 0 or 1; did you mean '0'?");
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"KILN_NUM_THREADS", "-1"},
                                                        {"KILN_NUM_THREADS", "99999999999999999999"},
                                                        {"KILN_CACHE_MAX", "G"},
                                                        {"KILN_CACHE_MAX", "0"},
                                                        {"KILN_CACHE_MAX", "1T"},
                                                        {"KILN_CACHE_MAX", "99999999999G"},
                                                        {"KILN_DEVICE", "cuda:"},
                                                        {"KILN_DEVICE", "cuda:x"},
                                                        {"KILN_DEVICE", "null:0"},
                                                        {"KILN_NULL_TARGET", "90"},
                                                        {"KILN_NULL_TARGET", "sm_90a"},
                                                        {"KILN_NULL_TARGET", "sm_35"},
                                                        {"KILN_DUMP_FILTER", "("},
                                                        {"KILN_DUMP_STAGES", "ptxx"},
                                                        {"KILN_EXPLAIN", "file.htm"},
                                                        {"KILN_EXPLAIN", ".json"},
                                                        {"KILN_TRACE", "1"},
                                                        {"KILN_FUSE", "off"},
                                                        {"KILN_FUSE_LEAST", "-1"},
                                                        {"KILN_FUSE_OFF", "norms"},
                                                        {"KILN_FUSE_OFF", "gpu:norm"},
                                                        {"KILN_CPU", "avx1024"}}) {
    const std::string error = error_of(name, value);
    EXPECT_TRUE(error.starts_with("[config] " + name + "=" + value + ": ")) << error;
  }
}

TEST(EnvironmentFaults, F49_UnknownNamesAreOneLineWithTheNearestName) {
  EXPECT_EQ(error_of("KILN_MOED", "lazy"),
            "[config] KILN_MOED is not a variable of Kiln; did you mean 'KILN_MODE'?");
  EXPECT_EQ(error_of("KILN_CACHEDIR", "/x"),
            "[config] KILN_CACHEDIR is not a variable of Kiln; did you mean 'KILN_CACHE_DIR'?");
  EXPECT_EQ(error_of("KILN_THREADS", ""),
            "[config] KILN_THREADS is not a variable of Kiln; did you mean 'KILN_NUM_THREADS'?");
}

TEST(EnvironmentFaults, F49_ReservedNamesSayThatTheyAreNotInThisVersion) {
  for (std::string name : {"KILN_TUNE", "KILN_PROFILE"})
    EXPECT_EQ(error_of(name, "1"), "[config] " + name + " is not in this version of Kiln; unset it");
}

TEST(EnvironmentFaults, F49_ABuildWithoutCompilersCannotWaitForOne) {
  if (KILN_HAS_COMPILERS) GTEST_SKIP() << "a build with compilers";
  EXPECT_EQ(error_of("KILN_TIER", "jit"),
            "[config] KILN_TIER=jit: this build has no compiler; did you mean 'auto'?");
}

TEST(EnvironmentFaults, F49_AHostileValueStaysOneShortLine) {
  const std::string error = error_of("KILN_MODE", "a\nb\x1b[31m" + std::string(100000, 'x'));
  EXPECT_LT(error.size(), 300u);
  EXPECT_TRUE(std::none_of(error.begin(), error.end(), [](char c) { return c < 32; })) << error;
}

constexpr int kNotSetuid = 43, kDefaults = 41, kOptionsRead = 42;

TEST(EnvironmentFaults, ASetuidProgramReadsNoVariable) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot make a program of another user's";
  const testing::TemporaryDirectory directory;
  const std::string program = directory / "program", trace = directory / "dump";
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  const auto run = [&] {
    return testing::in_child([&] {
      for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_OUTPUT"}) unsetenv(name);
      setenv("KILN_MODE", "eager", 1);
      setenv("KILN_DUMP", trace.c_str(), 1);
      setenv("KILN_HELP", "1", 1);
      if (setgid(12345) != 0 || setuid(12345) != 0) return 1;
      execl(program.c_str(), program.c_str(), "--gtest_filter=EnvironmentChild.*",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      return 2;
    });
  };
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  if (run() != kNotSetuid) GTEST_SKIP() << "another user cannot run the tests";
  ASSERT_EQ(chown(program.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const int code = run();
  if (code == kNotSetuid) GTEST_SKIP() << "the file system takes no setuid programs";
  if (code == 127)
    GTEST_SKIP() << "the tests do not start without LD_LIBRARY_PATH, which a setuid program does not have";
  EXPECT_EQ(code, kDefaults);
}

/// Run by the test above.
TEST(EnvironmentChild, DISABLED_SaysWhatItRead) {
  if (getauxval(AT_SECURE) == 0) std::_Exit(kNotSetuid);
  const bool defaults = config().mode == Mode::Lazy && config().dump.empty() && !environment_variable("HOME");
  std::_Exit(defaults ? kDefaults : kOptionsRead);
}

TEST(Environment, HelpHasOneLineForEveryVariable) {
  const std::string help = environment_help();
  const auto lines = std::count(help.begin(), help.end(), '\n');
  const std::vector<EnvironmentRow> rows = environment_rows(Config{});
  EXPECT_EQ(lines, static_cast<long>(rows.size()) + 1);  // and KILN_HELP itself
  for (const EnvironmentRow& row : rows) EXPECT_NE(help.find(row.name + " "), help.npos) << row.name;
}

TEST(Environment, RowsSayWhatDiffersFromTheDefaults) {
  for (const EnvironmentRow& row : environment_rows(Config{})) EXPECT_FALSE(row.changed) << row.name;
  for (const EnvironmentRow& row : environment_rows(parse("KILN_CACHE_MAX", "2048"))) {
    EXPECT_EQ(row.changed, row.name == "KILN_CACHE_MAX") << row.name;
    if (row.changed) {
      EXPECT_EQ(row.value, "2K");
    }
  }
}

TEST(Environment, RowsParseBackToTheSameOptions) {
  const Config c = parse_environment({{"KILN_MODE", "eager"},
                                      {"KILN_DEVICE", "cuda:1"},
                                      {"KILN_STRICT", "1"},
                                      {"KILN_TF32", "1"},
                                      {"KILN_FLUSH_SUBNORMALS", "1"},
                                      {"KILN_LOG", "all"},
                                      {"KILN_CHECK", "nan,diff"},
                                      {"KILN_CACHE_MAX", "1025"},
                                      {"KILN_CPU", "sse4.2"},
                                      {"KILN_EXPLAIN", "a.json"}});
  std::vector<std::pair<std::string, std::string>> variables;
  for (const EnvironmentRow& row : environment_rows(c)) variables.emplace_back(row.name, row.value);
  const std::vector<EnvironmentRow> before = environment_rows(c),
                                    after = environment_rows(parse_environment(variables));
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(before[i].value, after[i].value) << before[i].name;
}

TEST(EditDistance, CountsEditsAndSwapsWithoutCase) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("Eager", "eager"), 0);
  EXPECT_EQ(edit_distance("lazzy", "lazy"), 1);
  EXPECT_EQ(edit_distance("cahce", "cache"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace kiln
