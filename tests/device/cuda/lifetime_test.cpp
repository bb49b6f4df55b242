// How the backend meets failures of the device, fork and exit: each in a process of its own.
#include "device/cuda/require.h"

#include <kiln/error.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace kiln::cuda {
namespace {

/// Leaves the process with a message when a condition does not hold.
void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

template <class F>
std::string device_error_of(F&& f) {
  try {
    f();
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "";
}

/// Made before main, so destroyed after every handler that was registered later.
struct HeldAtExit {
  Stream stream = nullptr;
  Block* block = nullptr;
  Event event;
  ~HeldAtExit() {
    if (!stream) return;
    release(block, stream);
    require(device_error_of([&] { synchronize(stream); }).find("exiting") != std::string::npos, "exiting");
  }
} held_at_exit;

class CudaLifetime : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child begins anew: CUDA does not survive a fork
  }
};

void write_nowhere(Stream stream) {
  const Function function = make_function("extern \"C\" __global__ void bad(int* p) { p[threadIdx.x] = 1; }",
                                          "bad", device_of(stream));
  int* nowhere = reinterpret_cast<int*>(std::uintptr_t{0x10});
  void* params[] = {&nowhere};
  launch(function, {}, stream, params);
}

TEST_F(CudaLifetime, AnAsynchronousFailureIsThrownAtTheNextSynchronisationAndEverAfter) {
  EXPECT_EXIT(
      {
        Stream stream = default_stream(0);
        Block* block = allocate(4000, stream);
        require_working(0);
        write_nowhere(stream);
        const std::string first = device_error_of([&] { synchronize(stream); });
        require(first.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos, first.c_str());
        require(first.find("cuda:0") != std::string::npos, "the error names the device");
        require(device_error_of([] { require_working(0); }) == first, "the failure is remembered");
        int value = 0;
        require(!device_error_of([&] { copy_to_host(&value, block->data, 4, stream); }).empty(),
                "no stale data");
        require(!device_error_of([&] { fill(block->data, 0, 4, 1, stream); }).empty(), "dependents fail");
        require(!device_error_of([&] { allocate(100 << 20, stream); }).empty(),
                "no memory of a lost context");
        release(block, stream);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, AReadFindsTheFailureToo) {
  EXPECT_EXIT(
      {
        Stream stream = default_stream(0);
        Block* block = allocate(8 << 20, stream);
        write_nowhere(stream);
        std::vector<int> out(2 << 20);
        require(!device_error_of([&] { copy_to_host(out.data(), block->data, 8 << 20, stream); }).empty(),
                "thrown");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, AForkedChildGetsAClearErrorAndTheParentGoesOn) {
  EXPECT_EXIT(
      {
        Stream stream = default_stream(0);
        Block* block = allocate(4000, stream);
        fill(block->data, 6, 4, 1000, stream);
        const pid_t child = fork();
        if (child == 0) {
          for (auto call : {+[](Stream s) { allocate(1000, s); }, +[](Stream s) { synchronize(s); },
                            +[](Stream) { memory_info(0); }, +[](Stream s) { fill(nullptr, 0, 4, 1, s); }})
            require(device_error_of([&] { call(stream); }).find("fork") != std::string::npos,
                    "the error says fork");
          release(block, stream);
          require(available(), "what is known stays known");
          std::_Exit(0);  // the driver's own exit handlers are not ours to test
        }
        int status = 0;
        waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended well");
        require(read_ints(block, 1000, stream) == std::vector<int>(1000, 6), "the parent goes on");
        release(block, stream);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, TheProcessMayExitWithWorkUnderWay) {
  EXPECT_EXIT(
      {
        Stream stream = default_stream(0);
        Block* block = allocate(64 << 20, stream);
        spin(stream, 500);
        fill(block->data, 1, 4, 16 << 20, stream);
        release(block, stream);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, TheProcessMayExitWhileThreadsWork) {
  EXPECT_EXIT(
      {
        for (int t = 0; t < 4; ++t)
          std::thread([t] {
            const Function add = add_kernel();
            Stream stream = t % 2 ? new_stream(0) : default_stream(0);
            for (;;) {
              Block* block = allocate(1 << 20, stream);
              run_add(add, block, 1, stream, 1 << 18);
              read_ints(block, 1 << 18, stream);
              release(block, stream);
            }
          }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, ObjectsMayBeFreedDuringExit) {
  EXPECT_EXIT(
      {
        held_at_exit.stream = default_stream(0);
        held_at_exit.block = allocate(1000, held_at_exit.stream);
        held_at_exit.event = record(held_at_exit.stream);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaLifetime, AThreadMayEndWithWorkUnderWay) {
  Stream stream = new_stream(0);
  Block* block = nullptr;
  std::thread([&] {
    set_current_stream(0, stream);
    block = allocate(400, stream);
    spin(stream, 20);
    fill(block->data, 8, 4, 100, stream);
  }).join();
  EXPECT_EQ(read_ints(block, 100, stream), std::vector<int>(100, 8));
  release(block, stream);
}

TEST_F(CudaLifetime, HidingAllDevicesIsAReason) {
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command =
      std::string("unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; KILN_DEVICE=cpu CUDA_VISIBLE_DEVICES= '") +
      self + "' --gtest_filter=CudaChild.DISABLED_PrintsTheReason --gtest_also_run_disabled_tests";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  ASSERT_TRUE(pipe);
  std::string out(1 << 16, '\0');
  out.resize(std::fread(out.data(), 1, out.size(), pipe.get()));
  EXPECT_NE(out.find("finds no device; CUDA_VISIBLE_DEVICES is ''"), std::string::npos) << out;
}

/// Run by the test above.
TEST(CudaChild, DISABLED_PrintsTheReason) {
  std::printf("%s\n", driver().reason.c_str());
  EXPECT_THROW(default_stream(0), DeviceError);
}

}  // namespace
}  // namespace kiln::cuda
