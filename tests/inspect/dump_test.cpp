// What KILN_DUMP writes for a GPU, and kernels that a person edited.
#include "cache/temporary_directory.h"
#include "counted.h"
#include "device/cuda/require.h"

#include <kiln/config.h>
#include <kiln/fusion_report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kiln {
namespace {

namespace fs = std::filesystem;

class GpuDump : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    clear_memory_caches();
    options_.device = "cuda";
    options_.cache = "off";
    options_.override_dir.clear();
  }
  void TearDown() override {
    configure(before_);
    clear_memory_caches();
  }

  /// x + 1 of eight values, planned anew with the options.
  std::vector<float> add_one() {
    clear_memory_caches();
    configure(options_);
    return (Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}, {8}) + 1.0f).to_vector<float>();
  }

  std::string file(const std::string& extension) const {
    for (const auto& e : fs::directory_iterator(directory_.path()))
      if (e.path().string().ends_with(extension)) return e.path().string();
    return {};
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// The generated kernel's path, after the dump.
  std::string dumped() {
    options_.dump = directory_.path().string();
    add_one();
    options_.dump.clear();
    return file(".cu");
  }

  const Config before_ = config();
  Config options_ = before_;
  testing::TemporaryDirectory directory_;
};

const std::vector<float> kOneMore = {1, 2, 3, 4, 5, 6, 7, 8};

TEST_F(GpuDump, AReportHasTheRegistersOfAKernel) {
  configure(options_);
  const FusionRecorder recorder;
  add_one();
  const FusionReport r = recorder.last();
  ASSERT_EQ(r.regions.size(), 1u) << to_text(r);
  EXPECT_GT(r.regions[0].kernels[0].registers, 0) << to_text(r);
  EXPECT_GE(r.regions[0].kernels[0].spilled_bytes, 0) << to_text(r);
  EXPECT_EQ(fusion_report_from_json(to_json(r)), r);
}

TEST_F(GpuDump, WritesSourcePtxAndTheOperationsButNothingOfTheCpu) {
  dumped();
  const std::string cu = read(file(".cu"));
  EXPECT_NE(cu.find("__global__"), cu.npos);
  EXPECT_EQ(cu.find("dump_test.cpp"), cu.npos) << "lines of the program stand in their own file";
  EXPECT_NE(read(file(".ops.txt")).find("dump_test.cpp"), std::string::npos);
  EXPECT_NE(read(file(".ptx")).find(".version"), std::string::npos);
  EXPECT_NE(read(file(".kernel.txt")).find("grid"), std::string::npos);
  EXPECT_EQ(file(".ll") + file(".s") + file(".vm.txt"), "");
}

TEST_F(GpuDump, StagesPickFiles) {
  options_.dump_stages = {"ptx"};
  dumped();
  EXPECT_NE(file(".ptx"), "");
  EXPECT_EQ(file(".cu") + file(".kernel.txt") + file(".ops.txt"), "");
}

TEST_F(GpuDump, WritesSassWhereAToolkitHasADisassembler) {
  const testing::TemporaryDirectory programs;
  const char* path = std::getenv("PATH");
  const std::string before = path ? path : "";
  std::ofstream(programs / "nvdisasm") << "#!/bin/sh\necho EXIT\n";
  fs::permissions(programs / "nvdisasm", fs::perms::owner_all);
  setenv("PATH", (programs.path().string() + ":" + before).c_str(), 1);
  dumped();
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(read(file(".sass")), "EXIT\n");
}

TEST_F(GpuDump, AnEditedKernelIsCompiledAndRunInsteadOfTheGeneratedOne) {
  const std::string path = dumped();
  ASSERT_NE(path, "");
  std::string text = read(path);
  const std::size_t body = text.find('{', text.find("__global__"));
  const std::size_t out = text.find("out", text.find("__global__"));
  const std::string result = text.substr(out, text.find_first_of(",)\n", out) - out);
  text.insert(body + 1, "\n" + result + "[0] = 42;\nif (true) return;\n");
  std::ofstream(path) << text;
  options_.override_dir = directory_.path().string();
  ::testing::internal::CaptureStderr();
  std::vector<float> edited;
  const auto counted = test::count([&] { edited = add_one(); });
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("is made from " + path), std::string::npos);
  EXPECT_EQ(counted.compiled, 1u);
  if (cuda::computes()) {
    EXPECT_EQ(edited.at(0), 42.0f);
  }
  // Another edit is seen by the next plan; a file that went away gives the generated kernel back.
  std::ofstream(path) << text << "// again\n";
  configure(options_);
  EXPECT_EQ(test::count([&] { add_one(); }).compiled, 1u);
  fs::remove(path);
  if (cuda::computes()) {
    EXPECT_EQ(add_one(), kOneMore);
  }
}

TEST_F(GpuDump, ADumpOfAnEditedKernelKeepsTheEdit) {
  const std::string path = dumped();
  const std::string text = read(path) + "// mine\n";
  std::ofstream(path) << text;
  options_.override_dir = directory_.path().string();
  EXPECT_EQ(dumped(), path);
  EXPECT_EQ(read(path), text);
}

TEST_F(GpuDump, AnEditThatDoesNotCompileIsAWarningWithItsPathAndTheCpuAnswers) {
  const std::string path = dumped();
  std::ofstream(path) << "extern \"C\" __global__ void broken( {\n";
  options_.override_dir = directory_.path().string();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(add_one(), kOneMore);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("its source is in " + path), said.npos) << said;
  EXPECT_NE(said.find("running it on the CPU"), said.npos) << said;
}

TEST_F(GpuDump, AnEditWithoutTheKernelsFunctionIsNamed) {
  const std::string path = dumped();
  std::ofstream(path) << "extern \"C\" __global__ void other() {}\n";
  options_.override_dir = directory_.path().string();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(add_one(), kOneMore);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no kernel kiln_"), std::string::npos);
}

TEST_F(GpuDump, AMissingDirectoryIsAWarning) {
  options_.override_dir = directory_ / "nowhere";
  const auto counted = test::count([&] { add_one(); });
  EXPECT_EQ(counted.compiled, 1u);
}

}  // namespace
}  // namespace kiln
