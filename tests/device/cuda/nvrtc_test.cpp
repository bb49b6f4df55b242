#include "device/cuda/nvrtc.h"

#include "device/cuda/exit_gate.h"
#include "device/cuda/require.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace kiln::cuda {
namespace {

const std::string kAxpy = R"(
extern "C" __global__ void axpy(float* y, const float* x, float a, long long n) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
)";

bool is_elf(const Code& code) {
  return code.image.size() > 4 && code.image[0] == 0x7f && code.image[1] == 'E' && code.image[2] == 'L';
}

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override { KILN_REQUIRE_NVRTC(); }
};

TEST_F(Nvrtc, CompilesForEverySupportedGeneration) {
  for (int number : {75, 80, 86, 89, 90, 100, 120}) {
    const Code code = compile(kAxpy, "axpy", {number / 10, number % 10});
    EXPECT_FALSE(code.ptx);
    EXPECT_EQ(code.target, "sm_" + std::to_string(number));
    EXPECT_TRUE(is_elf(code)) << number;
    EXPECT_EQ(code.log, "");
  }
}

TEST_F(Nvrtc, TheSpecificArchitectureHasItsOwnName) {
  EXPECT_EQ(compile_target({9, 0, true}), "sm_90a");
  EXPECT_TRUE(is_elf(compile(kAxpy, "axpy", {9, 0, true})));
}

TEST_F(Nvrtc, ADeviceNewerThanTheCompilerGetsPtxOfTheNewestOlderArchitecture) {
  const Code code = compile(kAxpy, "axpy", {99, 9, true});
  EXPECT_TRUE(code.ptx);
  EXPECT_EQ(code.target, "compute_" + std::to_string(nvrtc().architectures.back()));
  EXPECT_EQ(code.image.back(), 0);
  const std::string text(code.image.begin(), code.image.end());
  EXPECT_NE(text.find(".entry axpy"), std::string::npos);
}

TEST_F(Nvrtc, ADeviceOlderThanTheCompilerIsACompileError) {
  try {
    compile(kAxpy, "axpy", {2, 0});
    FAIL();
  } catch (const CompileError& e) {
    EXPECT_NE(std::string(e.what()).find("the device is sm_20"), std::string::npos) << e.what();
  }
}

TEST_F(Nvrtc, AFailureCarriesTheLog) {
  try {
    compile("extern \"C\" __global__ void broken() { undeclared = 1; }", "broken", {9, 0});
    FAIL();
  } catch (const CompileError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("broken.cu(1)"), std::string::npos) << text;
    EXPECT_NE(text.find("undeclared"), std::string::npos) << text;
    EXPECT_NE(text.find(compiler_version()), std::string::npos) << text;
  }
  EXPECT_TRUE(is_elf(compile(kAxpy, "axpy", {9, 0})));  // the next one works
}

TEST_F(Nvrtc, AnOptionOfNonsenseIsACompileErrorAndTheNextCompileIsAsBefore) {
  EXPECT_THROW(compile(kAxpy, "axpy", {9, 0}, {.extra = {"--no-such-option"}}), CompileError);
  EXPECT_TRUE(is_elf(compile(kAxpy, "axpy", {9, 0}, {.max_registers = 32})));
}

TEST_F(Nvrtc, ContractionCanBeSwitchedOff) {
  EXPECT_NE(ptx_text(kAxpy, "axpy", {9, 0}).find("fma.rn.f32"), std::string::npos);
  const std::string strict = ptx_text(kAxpy, "axpy", {9, 0}, {.fmad = false});
  EXPECT_EQ(strict.find("fma.rn.f32"), std::string::npos);
  EXPECT_NE(strict.find("mul.rn.f32"), std::string::npos);
  EXPECT_EQ(strict.find(".ftz"), std::string::npos);
}

TEST_F(Nvrtc, ThreadsCompileSideBySide) {
  std::vector<Code> made(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < made.size(); ++i)
    threads.emplace_back([&, i] { made[i] = compile(kAxpy, "axpy", {9, 0}); });
  for (std::thread& t : threads) t.join();
  for (const Code& code : made) EXPECT_EQ(code.image, made[0].image);  // and deterministically
}

TEST_F(Nvrtc, DisassemblyComesFromTheToolkitOrSaysWhyNot) {
  const Code code = compile(kAxpy, "axpy", {9, 0});
  EXPECT_FALSE(sass_text(code.image).empty());

  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / "kiln sass";
  fs::create_directories(directory);
  std::ofstream(directory / "nvdisasm") << "#!/bin/sh\necho disassembled; head -c 4 \"$2\" | tail -c 3\n";
  fs::permissions(directory / "nvdisasm", fs::perms::owner_all);
  const char* path = std::getenv("PATH");
  const std::string before = path ? path : "";
  setenv("PATH", (directory.string() + ":" + before).c_str(), 1);
  EXPECT_EQ(sass_text(code.image), "disassembled\nELF");
  setenv("PATH", before.c_str(), 1);
  fs::remove_all(directory);
}

TEST_F(Nvrtc, TheProcessMayExitWhileThreadsCompile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        for (int t = 0; t < 4; ++t)
          std::thread([] {
            for (;;) compile(kAxpy, "axpy", {9, 0});
          }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NvrtcProbe, AMissingLibraryIsAReason) {
  const std::string names[] = {"libnvrtc-of-nobody.so.1"};
  const NvrtcReport report = probe_nvrtc(names);
  EXPECT_FALSE(report.available);
  EXPECT_FALSE(report.reason.empty());
  EXPECT_TRUE(report.architectures.empty());
}

TEST(NvrtcProbe, AnotherLibraryIsAReason) {
  if (!KILN_HAS_CUDA) GTEST_SKIP() << "CUDA is not in this build";
  const std::string names[] = {"libm.so.6"};
  const NvrtcReport report = probe_nvrtc(names);
  EXPECT_FALSE(report.available);
  EXPECT_NE(report.reason.find("no function nvrtc"), std::string::npos) << report.reason;
}

/// The library's static objects are made in its first compile, and go before handlers that are older.
/// However long those inside take: others that came in meanwhile would keep the process from its end.
TEST(NvrtcLifetime, NobodyEntersWhileTheEndWaitsForThoseInside) {
  static constinit ExitGate gate{std::chrono::seconds(20)};
  ASSERT_EQ(gate.enter(), ExitGate::Answer::Enter);
  std::atomic<bool> begun{false}, ended{false}, entered_after{false};
  std::thread end([&] {
    begun = true;
    gate.hold();
    ended = true;
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::thread other([&] {
    EXPECT_EQ(gate.enter(), ExitGate::Answer::Enter);
    entered_after = ended.load();
    gate.leave();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  gate.leave();
  end.join();
  other.join();
  EXPECT_TRUE(entered_after);
}

TEST(NvrtcLifetime, TheProcessMayExitDuringItsFirstCompile) {
  KILN_REQUIRE_NVRTC();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int ms : {5, 20, 40, 60})
    EXPECT_EXIT(
        {
          compiler_version();
          for (int t = 0; t < 4; ++t)
            std::thread([] {
              for (;;)
                compile("extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }",
                        "k", {9, 0});
            }).detach();
          std::this_thread::sleep_for(std::chrono::milliseconds(ms));
          std::exit(0);
        },
        testing::ExitedWithCode(0), "")
        << ms;
}

}  // namespace
}  // namespace kiln::cuda
