// Launches as the engine makes them: full shapes, what a device is asked for before, graphs of them.
#include "device/cuda/launches.h"

#include "device/cuda/require.h"
#include "device/device.h"

#include <kiln/error.h>

#include <memory>

namespace kiln::cuda {
namespace {

/// data[i] += value, whatever the launch's shape.
constexpr const char* kAdd = R"(
extern "C" __global__ void add(int* data, long long value, long long n) {
  const long long threads = blockDim.x * blockDim.y * blockDim.z;
  const long long block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * (long long)blockIdx.z);
  const long long thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const long long all = threads * gridDim.x * gridDim.y * gridDim.z;
  for (long long i = block * threads + thread; i < n; i += all) data[i] += (int)value;
})";

class Launches : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCount = 5000;

  void SetUp() override {
    KILN_REQUIRE_GPU();
    here_ = &device::at(kiln::Device::cuda(0));
    buffer_.reset(here_->allocate(kCount * 4));
    here_->zero(buffer_->data, kCount * 4);
    const auto compiler = here_->compiler();
    const device::EditedSource source{"add", kAdd};
    const device::Unit unit{nullptr, "add", 1, &source};
    std::shared_ptr<device::Code> code = compiler->new_code();
    compiler->load(*code, compiler->compile(unit), unit);
    launch_.code = code;
    launch_.arguments = {0};
    launch_.params = {1, kCount};
  }

  void run(std::int64_t value) {
    launch_.params[0] = value;
    here_->prepare(launch_);
    void* const pointers[] = {buffer_->data};
    const device::Bound bound{&launch_, pointers, nullptr};
    here_->launch({&bound, 1});
  }
  void expect_all(int value) {
    std::vector<int> out(kCount);
    here_->read(out.data(), *buffer_, 0, kCount * 4);
    EXPECT_EQ(out, std::vector<int>(kCount, value));
  }

  device::Device* here_ = nullptr;
  struct Release {
    void operator()(ir::Buffer* b) const { ir::release(b); }
  };
  std::unique_ptr<ir::Buffer, Release> buffer_;
  device::Launch launch_;
};

TEST_F(Launches, HaveThreeDimensionsAndDynamicSharedMemory) {
  launch_.shape = {.grid = {3, 2, 4}, .block = {8, 4, 2}};
  run(1);
  launch_.shape.dynamic_shared = 64 << 10;  // more than a kernel has without asking
  run(20);
  expect_all(21);
}

TEST_F(Launches, HaveClustersAndRunAllAtOnceWhereTheDeviceCan) {
  int expected = 0;
  launch_.shape = {.grid = {4, 4, 1}, .block = {64, 1, 1}, .cluster = {2, 2, 1}};
  if (device(0).clusters)
    run(expected = 1);
  else
    EXPECT_THROW(run(1), DeviceError);
  launch_.shape = {.grid = {4, 1, 1}, .block = {64, 1, 1}, .cooperative = true};
  if (device(0).cooperative) {
    run(300);
    expected += 300;
  } else {
    EXPECT_THROW(run(300), DeviceError);
  }
  expect_all(expected);
}

TEST_F(Launches, BeyondTheDeviceAreErrorsBeforeTheyRun) {
  launch_.shape.dynamic_shared = static_cast<std::uint32_t>(device(0).shared_per_block_optin) + 1;
  EXPECT_THROW(run(1), DeviceError);
  expect_all(0);
}

TEST_F(Launches, AreRecordedAndGetOtherArguments) {
  launch_.shape = {.grid = {2, 2, 1}, .block = {64, 1, 1}};
  launch_.params[0] = 1;
  void* const pointers[] = {buffer_->data};
  const device::Bound bound{&launch_, pointers, nullptr};
  const auto graph = here_->record(2, 0, [&](std::size_t) { here_->launch({&bound, 1}); });
  ASSERT_TRUE(graph);
  expect_all(0);
  graph->launch();
  expect_all(2);
  if (!here_->graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  launch_.params[0] = 50;
  graph->set_arguments(1, {&bound, 1});
  graph->launch();
  expect_all(53);
}

TEST_F(Launches, AStepThatFailsLeavesNoGraph) {
  EXPECT_FALSE(here_->record(1, 0, [](std::size_t) { throw DeviceError("refused"); }));
}

TEST_F(Launches, AreTimed) {
  launch_.shape = {.grid = {2, 1, 1}, .block = {64, 1, 1}};
  EXPECT_GE(here_->seconds([&] { run(1); }), 0.0);
  expect_all(1);
}

}  // namespace
}  // namespace kiln::cuda
