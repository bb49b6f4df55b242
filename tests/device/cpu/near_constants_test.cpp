// Constants of machine code are operands in memory: no instruction computes their addresses.
#include "cache/temporary_directory.h"
#include "counted.h"
#include "needs_cpu.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kiln {
namespace {

TEST(NearConstants, AreOperands) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
#if defined(__x86_64__)
  const testing::TemporaryDirectory directory;
  const Config before = config();
  Config options = before;
  options.mode = Mode::Lazy;
  options.tier = Tier::Jit;
  options.dump = directory.path().string();
  options.dump_stages = {"asm"};
  clear_memory_caches();
  configure(options);
  eval(gelu(zeros({1000}) + 0.5));
  configure(before);
  clear_memory_caches();
  std::string text;
  for (const auto& e : std::filesystem::directory_iterator(directory.path())) {
    std::ifstream in(e.path());
    text.append(std::istreambuf_iterator<char>(in), {});
  }
  if (text.empty()) GTEST_SKIP() << "no compiler";
  EXPECT_NE(text.find("(%rip)"), text.npos);
  EXPECT_EQ(text.find("@GOTOFF"), text.npos);
#endif
}

}  // namespace
}  // namespace kiln
