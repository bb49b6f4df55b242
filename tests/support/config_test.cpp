#include <kiln/config.h>

#include "support/log.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

/// Puts the options back that were in force.
class Configure : public ::testing::Test {
 protected:
  void TearDown() override { configure(before_); }
  const Config before_ = config();
};

TEST_F(Configure, ReplacesTheOptionsAndOldReferencesStayGood) {
  const Config& old = config();
  const int old_debug = old.debug;
  Config c = old;
  c.num_threads = 3;
  configure(c);
  EXPECT_EQ(config().num_threads, 3);
  EXPECT_EQ(old.debug, old_debug);
}

TEST_F(Configure, ChecksItsOptionsAsTheEnvironmentIsChecked) {
  Config c = before_;
  c.cache = "wr";
  EXPECT_THROW(configure(c), UserError);
  c = before_;
  c.debug = 8;
  EXPECT_THROW(configure(c), UserError);
  c = before_;
  c.mode = static_cast<Mode>(17);
  EXPECT_THROW(configure(c), UserError);
  c = before_;
  c.log_topics = {"nonsense"};
  EXPECT_THROW(configure(c), UserError);
  EXPECT_EQ(config().cache, before_.cache);
}

TEST_F(Configure, ManyThreadsReadWhileOneReplaces) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i)
    readers.emplace_back([&] {
      while (!stop) EXPECT_FALSE(config().cache.empty());
    });
  Config c = before_;
  for (int i = 0; i < 200; ++i) {
    c.num_threads = i;
    configure(c);
  }
  stop = true;
  for (std::thread& t : readers) t.join();
}

TEST_F(Configure, TopicsFollowLogAndDebug) {
  Config c = before_;
  c.debug = 0;
  c.log_topics = {"cache"};
  configure(c);
  EXPECT_TRUE(log_enabled(Topic::Cache));
  EXPECT_FALSE(log_enabled(Topic::Kernel));
  c.log_topics = {};
  c.debug = 2;
  configure(c);
  EXPECT_TRUE(log_enabled(Topic::Kernel));
  EXPECT_FALSE(log_enabled(Topic::Plan));
  c.debug = 3;
  configure(c);
  EXPECT_TRUE(log_enabled(Topic::Plan));
  EXPECT_FALSE(log_enabled(Topic::Memory));
  c.debug = 5;
  configure(c);
  for (Topic t : {Topic::Trace, Topic::Plan, Topic::Kernel, Topic::Cache, Topic::Memory})
    EXPECT_TRUE(log_enabled(t));
  c.debug = 0;
  c.log_topics = {"all"};
  configure(c);
  for (Topic t : {Topic::Trace, Topic::Plan, Topic::Kernel, Topic::Cache, Topic::Memory})
    EXPECT_TRUE(log_enabled(t));
}

TEST_F(Configure, LogIsOneLineOnStderrWhenEnabled) {
  Config c = before_;
  c.debug = 0;
  c.log_topics = {"plan"};
  configure(c);
  ::testing::internal::CaptureStderr();
  log(Topic::Plan, "three {} regions %s");
  log(Topic::Cache, "silent");
  warn("careful");
  warn_once("config_test.key", "only once");
  warn_once("config_test.key", "only once");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[kiln] three {} regions %s\n[kiln] warning: careful\n[kiln] warning: only once\n");
}

/// Death tests of the threadsafe style run the binary anew, so the environment is read for the first time.
class FirstUse : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }

  static void use() {
    int code = 0;
    for (int i = 0; i < 2; ++i) try {
        (void)config();
      } catch (const UserError& e) {
        std::fprintf(stderr, "%s\n", e.what());
        code = 7;
      }
    std::_Exit(code);
  }
};

TEST_F(FirstUse, ThrowsTheLineOnABadEnvironment) {
  EXPECT_EXIT((setenv("KILN_MODE", "lazzy", 1), use()), ::testing::ExitedWithCode(7),
              "KILN_MODE=lazzy: expected lazy, eager or interpret; did you mean 'lazy'");
}

TEST_F(FirstUse, LoggingIsSilentOnABadEnvironmentAndConfigureRepairsIt) {
  EXPECT_EXIT(
      (setenv("KILN_MOD", "lazy", 1), log(Topic::Plan, "x"), configure({}), (void)config(), std::_Exit(3)),
      ::testing::ExitedWithCode(3), "^$");
}

TEST_F(FirstUse, HelpIsPrintedOnce) {
  // No KILN_HELP line twice in a row: the list ends with it.
  EXPECT_EXIT((setenv("KILN_HELP", "1", 1), use()), ::testing::ExitedWithCode(0),
              "^KILN_MODE [^#]*KILN_HELP  [^\n]*\n$");
}

}  // namespace
}  // namespace kiln
