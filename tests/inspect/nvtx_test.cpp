// KILN_TRACE=nvtx: a tool in the process sees the steps of a plan with the kernels' names and the program's
// lines.
#include "cache/temporary_directory.h"
#include "counted.h"
#include "support/trace_option.h"

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace kiln {
namespace {

constexpr int kLine = __LINE__ + 1;
void evaluate(const Tensor& x) { sort(exp(x) * 2.0f, 1).eval(); }

/// Run by the test below.
TEST(NvtxChild, DISABLED_Evaluates) {
  if (!trace_has(config().trace, "nvtx")) GTEST_SKIP() << "run by Nvtx.*";
  evaluate(test::data({64, 32}));
}

TEST(Nvtx, AToolSeesKernelsAndLines) {
  const std::string listener = KILN_NVTX_LISTENER;
  if (listener.empty()) GTEST_SKIP() << "a build without NVTX";
  if (access(listener.c_str(), R_OK) != 0) GTEST_SKIP() << "run where " << listener << " is not";
  const testing::TemporaryDirectory tmp;
  const std::string file = tmp / "ranges";
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(name);
    setenv("NVTX_INJECTION64_PATH", listener.c_str(), 1);
    setenv("KILN_TEST_RANGES", file.c_str(), 1);
    setenv("KILN_TRACE", "nvtx", 1);
    execl("/proc/self/exe", "kiln_tests", "--gtest_filter=NvtxChild.*", "--gtest_also_run_disabled_tests",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str().rfind("exp_multiply-", 0), 0u) << text.str();
  EXPECT_NE(text.str().find("nvtx_test.cpp:" + std::to_string(kLine) + "\n"), std::string::npos)
      << text.str();
  EXPECT_NE(text.str().find("\nsort "), std::string::npos) << text.str();
}

}  // namespace
}  // namespace kiln
