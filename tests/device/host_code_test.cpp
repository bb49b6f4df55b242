// KILN_TRACE=perf,gdb,nvtx: what the tools get of CPU kernels, and that gdb finds a line of the program.
#include "device/host_code.h"

#include "counted.h"
#include "needs_cpu.h"
#include "support/trace_option.h"

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

/// Where the test below wants gdb to look; gdb reads it by its name.
extern "C" {
std::uint64_t kiln_test_address = 0;
__attribute__((noinline)) void kiln_test_stop() { __asm__ volatile("" ::: "memory"); }
}

namespace kiln {
namespace {

std::string map_file() { return "/tmp/perf-" + std::to_string(getpid()) + ".map"; }
std::string text_of(const std::string& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}
std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  return out;
}

class HostCode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (config().device != "cpu" || config().tier != Tier::Jit) GTEST_SKIP() << "no machine code of a CPU";
  }
  /// The line of the kernel's operation.
  static int compile_one(const char* trace) {
    Config c = config();
    c.trace = trace;
    const ScopedConfig scope(c);
    clear_memory_caches();
    const Tensor x = test::data({100});
    (exp(x) * 3.0f).eval();
    return __LINE__ - 1;
  }
};

TEST(TraceOption, IsAListOfToolsAndOneFile) {
  EXPECT_TRUE(trace_has("perf,a.json", "perf"));
  EXPECT_FALSE(trace_has("perfect.json", "perf"));
  EXPECT_EQ(trace_file("perf,a.json,gdb"), "a.json");
  EXPECT_EQ(trace_file("perf,gdb"), "");
}

TEST_F(HostCode, PerfFindsKernelsByTheirNamesAndLines) {
  std::remove(map_file().c_str());
  const int line = compile_one("perf");
  const std::string map = text_of(map_file());
  std::remove(map_file().c_str());
  unsigned long long address = 0, bytes = 0;
  char name[200] = {}, where[400] = {};
  ASSERT_EQ(std::sscanf(map.c_str(), "%llx %llx %199s %399s", &address, &bytes, name, where), 4) << map;
  EXPECT_GT(address, 0u);
  EXPECT_GT(bytes, 16u);
  EXPECT_EQ(std::string(name).rfind("exp_multiply-", 0), 0u) << name;
  EXPECT_NE(std::string(where).find("host_code_test.cpp:" + std::to_string(line)), std::string::npos)
      << where;
}

TEST_F(HostCode, NothingIsToldUnlessItIsAskedFor) {
  std::remove(map_file().c_str());
  compile_one("");
  EXPECT_EQ(text_of(map_file()), "");
}

/// Run by the test below.
TEST_F(HostCode, DISABLED_Told) {
  std::remove(map_file().c_str());
  compile_one("perf,gdb");
  kiln_test_address = std::strtoull(text_of(map_file()).c_str(), nullptr, 16);
  std::remove(map_file().c_str());
  kiln_test_stop();
}

TEST_F(HostCode, GdbFindsTheLine) {
  if (std::system("command -v gdb > /dev/null 2>&1") != 0) GTEST_SKIP() << "no gdb";
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string text = output_of(
      "timeout 120 gdb -q -batch -ex 'set debuginfod enabled off' -ex 'set confirm off' -ex 'break "
      "kiln_test_stop' "
      "-ex run -ex 'info symbol *(unsigned long*)&kiln_test_address' -ex 'info line **(unsigned "
      "long*)&kiln_test_address' -ex kill --args '" +
      std::string(self) + "' --gtest_also_run_disabled_tests --gtest_filter=HostCode.DISABLED_Told 2>&1");
  if (text.find("Breakpoint 1,") == std::string::npos)
    GTEST_SKIP() << "gdb does not run programs here: " << text;
  EXPECT_NE(text.find("exp_multiply-"), std::string::npos) << text;
  EXPECT_NE(text.find("host_code_test.cpp\" starts at address"), std::string::npos) << text;
}

}  // namespace
}  // namespace kiln
