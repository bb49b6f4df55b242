// A bundle made where kernels are compiled runs where nothing compiles: another process, which has no LLVM
// and no NVRTC, imports it, runs the same programs and compiles nothing.
#include "cache/cache_bundle.h"
#include "cache/kernel_cache.h"
#include "cache/temporary_directory.h"
#include "counted.h"
#include "device/cpu/jit.h"
#include "device/cpu/object_file.h"
#include "modes.h"
#include "program.h"

#include <kiln/kiln.h>
#include <kiln/report.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace kiln {
namespace {

using testing::TemporaryDirectory;

/// Runs a test of this binary as another process; its exit code.
int run_child(const std::string& cache, const std::string& note, bool compilers) {
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(name);
    setenv("KILN_CACHE", "rw", 1);
    setenv("KILN_CACHE_DIR", cache.c_str(), 1);
    setenv("KILN_TEST_NOTE", note.c_str(), 1);
    setenv("KILN_CHECK", "", 1);
    setenv("KILN_TIER", compilers ? "jit" : "auto", 1);
    if (!compilers) setenv("KILN_TEST_NO_COMPILERS", "1", 1);
    execl("/proc/self/exe", "kiln_tests", "--gtest_filter=ShippedChild.*", "--gtest_also_run_disabled_tests",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// What both processes run: kernels of every form, products, sorts, float64 functions of the C library.
std::string difference_of_programs() {
  const auto random = [](std::uint64_t seed) {
    test::Result want;
    const test::Program p = test::random_program(seed);
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = test::run(p);
    }
    return test::difference(want, test::run(p));
  };
  const bool cpu = config().device == "cpu";  // a driver of the tests' own has no BLAS
  for (std::uint64_t seed = 1; cpu && seed <= 40; ++seed)
    if (std::string d = random(seed); !d.empty()) return std::to_string(seed) + ": " + d;
  const Tensor x = test::data({64, 96}), wide = test::data({3, 100000});
  std::vector<Tensor> all = {
      exp(x) * 2.0f, nn::softmax(x), sum(x, 0),           argmax(x, 1),
      x.T() + 1.0f,  sort(x, 1),     sum(wide * wide, 1), x.astype(DType::Float16) * 3.0f};
  if (cpu) {
    all.push_back(matmul(x, test::data({96, 80})));
    all.push_back(lgamma(x.astype(DType::Float64) + 2.0) + sin(x.astype(DType::Float64)));
    all.push_back(cumsum(wide, 1));
  }
  for (const Tensor& t : all) {
    const Tensor total = sum(t.astype(DType::Float64)).eval();
    if (!isfinite(total).item<bool>()) return "a value is not finite";
  }
  return {};
}

TEST(ShippedChild, DISABLED_Programs) {
  const char* const note = std::getenv("KILN_TEST_NOTE");
  if (note == nullptr) GTEST_SKIP() << "run by Shipped.*";
  const Statistics before = statistics();
  EXPECT_EQ(difference_of_programs(), "");
  wait_for_compiles();
  const Statistics after = statistics();
  const std::uint64_t compiled = after.kernels_compiled - before.kernels_compiled,
                      loaded = after.kernels_from_disk - before.kernels_from_disk;
  EXPECT_EQ(after.fallbacks, before.fallbacks);
  if (std::getenv("KILN_TEST_NO_COMPILERS") == nullptr) {
    EXPECT_GT(compiled, 8u);
    std::ofstream(note) << compiled + loaded;
    return;
  }
  std::uint64_t wanted = 0;
  std::ifstream(note) >> wanted;
  EXPECT_EQ(compiled, 0u);
  EXPECT_EQ(loaded, wanted);  // and none was left to the vm
}

TEST(Shipped, ABundleRunsWithoutCompilers) {
  if (!cpu::has_compiler()) GTEST_SKIP() << "a build without compilers";
  if (config().device == "cpu" && !cpu::links_objects()) GTEST_SKIP() << "objects of this machine";
  const TemporaryDirectory tmp;
  ASSERT_EQ(run_child(tmp / "here", tmp / "note", true), 0);
  {
    using engine::DiskCache;
    using Mode = engine::DiskCacheOptions::Mode;
    DiskCache here({Mode::ReadWrite, tmp / "here"}), there({Mode::ReadWrite, tmp / "there"});
    std::ofstream out(tmp / "bundle", std::ios::binary);
    ASSERT_GT(engine::export_bundle(here, out), 8u);
    ASSERT_TRUE(out.flush());
    std::ifstream in(tmp / "bundle", std::ios::binary);
    engine::import_bundle(there, in);
  }
  EXPECT_EQ(run_child(tmp / "there", tmp / "note", false), 0);
}

TEST(Shipped, WithoutABundleTheVmRuns) {
  if (config().device != "cpu") GTEST_SKIP() << "a GPU needs machine code";
  const TemporaryDirectory tmp;
  std::ofstream(tmp / "note") << 0;
  EXPECT_EQ(run_child(tmp / "empty", tmp / "note", false), 0);
}

}  // namespace
}  // namespace kiln
