#include "device/cuda/driver.h"

#include "device/cuda/require.h"
#include "device/cuda/shared_library.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace kiln::cuda {
namespace {

DriverReport probe(const std::string& name) { return probe_driver(std::span(&name, 1)); }

TEST(Driver, IsThereOrSaysWhyNot) {
  const DriverReport& report = driver();
  EXPECT_EQ(report.available, report.reason.empty());
  EXPECT_EQ(report.available, !report.devices.empty());
  EXPECT_EQ(&report, &driver());
}

TEST(Driver, AMissingLibraryIsAReason) {
  const DriverReport report = probe("libcuda-of-nobody.so.1");
  EXPECT_FALSE(report.available);
  EXPECT_FALSE(report.reason.empty());
  EXPECT_EQ(report.reason.find('\n'), std::string::npos);
}

TEST(Driver, AnotherLibraryIsAReason) {
  if (!KILN_HAS_CUDA) GTEST_SKIP() << "CUDA is not in this build";
  const DriverReport report = probe("libm.so.6");
  EXPECT_FALSE(report.available);
  EXPECT_NE(report.reason.find("no function cuInit"), std::string::npos) << report.reason;
  EXPECT_NE(report.library.find("libm"), std::string::npos);
}

TEST(Driver, TheToolkitsStubIsNoDriver) {
  const std::string stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!KILN_HAS_CUDA || !std::filesystem::exists(stub)) GTEST_SKIP() << "no stub here";
  const DriverReport report = probe(stub);
  EXPECT_FALSE(report.available);
  EXPECT_NE(report.reason.find("stub"), std::string::npos) << report.reason;
}

TEST(Driver, TheToolkitOfItsOwnMajorVersionIsPreferred) {
  if (!KILN_HAS_CUDA) GTEST_SKIP() << "CUDA is not in this build";
  const std::vector<std::string> names = toolkit_names("libx");
  ASSERT_EQ(names.size(), 3u);
  const bool old = available() && driver().version < 13000;
  EXPECT_EQ(names[0], old ? "libx.so.12" : "libx.so.13");
  EXPECT_EQ(names[1], old ? "libx.so.13" : "libx.so.12");
  EXPECT_EQ(names[2], "libx.so");
}

TEST(SharedLibraries, CandidatesBeginWithTheLoadersSearchAndTakeWhatCudaHomeHas) {
  namespace fs = std::filesystem;
  const fs::path home = fs::path(testing::TempDir()) / "kiln-toolkit";
  fs::create_directories(home / "lib64");
  std::ofstream(home / "lib64" / "libkiln-none.so.2") << "not a library";
  const char* before = std::getenv("CUDA_HOME");
  const std::string kept = before ? before : "";
  setenv("CUDA_HOME", home.c_str(), 1);
  const std::string names[] = {"libkiln-none.so.3", "libkiln-none.so.2"};
  const std::vector<std::string> candidates = toolkit_candidates(names);
  EXPECT_EQ(candidates, (std::vector<std::string>{names[0], names[1], (home / "lib64" / names[1]).string()}));
  const SharedLibrary library = open_first(candidates);
  EXPECT_EQ(library.handle, nullptr);
  // says more than "not found"
  EXPECT_NE(library.failure.find("kiln-toolkit"), std::string::npos) << library.failure;
  before ? setenv("CUDA_HOME", kept.c_str(), 1) : unsetenv("CUDA_HOME");
  fs::remove_all(home);
}

TEST(Driver, AskingForADeviceThatIsNotThereIsADeviceError) {
  const int count = static_cast<int>(driver().devices.size());
  for (int index : {-1, count, 1000}) {
    EXPECT_THROW(device(index), DeviceError);
    EXPECT_THROW(require_working(index), DeviceError);
    EXPECT_THROW(memory_info(index), DeviceError);
  }
  if (count > 0) return;
  try {
    device(0);
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find(driver().reason), std::string::npos) << e.what();
  }
}

TEST(Driver, DescribesItsDevices) {
  KILN_REQUIRE_GPU();
  EXPECT_GE(driver().version, 12000);
  std::set<std::string> uuids;
  for (const DeviceInfo& d : driver().devices) {
    EXPECT_EQ(&device(d.index), &d);
    EXPECT_FALSE(d.name.empty());
    EXPECT_TRUE(uuids.insert(d.uuid).second) << d.uuid;
    EXPECT_GE(d.major, 5);
    EXPECT_GT(d.sm_count, 0);
    EXPECT_GT(d.l2_bytes, 0u);
    EXPECT_GE(d.shared_per_block, 48 << 10);
    EXPECT_GE(d.shared_per_block_optin, d.shared_per_block);
    EXPECT_GE(d.threads_per_sm, 1024);
    EXPECT_GE(d.registers_per_sm, 32768);
    EXPECT_EQ(d.clusters, d.major >= 9);
    const MemoryInfo m = memory_info(d.index);
    EXPECT_LE(m.free, m.total);
    EXPECT_GT(m.free, 0u);
    EXPECT_NO_THROW(require_working(d.index));
  }
}

}  // namespace
}  // namespace kiln::cuda
