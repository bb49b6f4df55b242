#include "device/cuda/module.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

#include <dlfcn.h>

#include <algorithm>
#include <thread>

namespace kiln::cuda {
namespace {

class Module : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    stream_ = default_stream(0);
  }

  std::vector<int> zeros_plus(const Function& function, int value, std::size_t n = 1000) {
    Block* block = allocate(n * 4, stream_);
    fill(block->data, 0, 4, n, stream_);
    run_add(function, block, value, stream_, static_cast<std::int64_t>(n));
    std::vector<int> out = read_ints(block, n, stream_);
    release(block, stream_);
    return out;
  }

  Stream stream_ = nullptr;
};

TEST_F(Module, RunsWhatWasCompiled) {
  const Function function = add_kernel();
  EXPECT_GT(function.registers, 0);
  EXPECT_EQ(function.shared_bytes, 0);
  EXPECT_GE(function.max_threads, 256);
  EXPECT_GE(blocks_per_sm(function, 256), 1);
  EXPECT_EQ(zeros_plus(function, 7), std::vector<int>(1000, 7));
}

TEST_F(Module, RunsFromManyThreadsAtOnce) {
  const Function function = add_kernel();
  Block* block = allocate(4000, stream_);
  fill(block->data, 0, 4, 1000, stream_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) run_add(function, block, 1, stream_, 1000);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(read_ints(block, 1000, stream_), std::vector<int>(1000, 800));
  release(block, stream_);
}

TEST_F(Module, PtxOfAnOlderArchitectureRuns) {
  const Code code = compile(R"(extern "C" __global__ void add(int* data, int value, long long n) {
    for (long long i = threadIdx.x; blockIdx.x == 0 && i < n; i += blockDim.x) data[i] += value; })",
                            "add", {7, 6});
  ASSERT_TRUE(code.ptx);
  EXPECT_EQ(zeros_plus(find_function(load_module(0, code.image), "add"), 3), std::vector<int>(1000, 3));
}

TEST_F(Module, ADamagedImageIsACompileErrorAndTheNextOneLoads) {
  std::vector<std::uint8_t> image = compile("extern \"C\" __global__ void k() {}", "k", arch_of(0)).image;
  std::vector<std::uint8_t> damaged = image;
  std::fill(damaged.begin(), damaged.begin() + static_cast<std::ptrdiff_t>(damaged.size() / 2),
            std::uint8_t{0x5a});
  EXPECT_THROW(load_module(0, damaged), CompileError);
  const std::string text = "this is no ptx";
  EXPECT_THROW(load_module(0, std::vector<std::uint8_t>(text.c_str(), text.c_str() + text.size() + 1)),
               CompileError);
  EXPECT_NO_THROW(find_function(load_module(0, image), "k"));
}

TEST_F(Module, AnImageForAnotherArchitectureIsACompileError) {
  const int own = arch_of(0).number();
  const int other = own == 120 ? 90 : 120;
  const Code code = compile("extern \"C\" __global__ void k() {}", "k", {other / 10, other % 10});
  EXPECT_THROW(load_module(0, code.image), CompileError);
}

TEST_F(Module, AFunctionThatIsNotThereIsACompileError) {
  const cuda::Module module =
      load_module(0, compile("extern \"C\" __global__ void k() {}", "k", arch_of(0)).image);
  EXPECT_THROW(find_function(module, "other"), CompileError);
}

TEST_F(Module, BlocksMayHaveAllTheSharedMemoryOfTheDevice) {
  const Function function = make_function(R"(
extern "C" __global__ void widest(int* data, int value, long long n) {
  extern __shared__ int words[];
  __shared__ int fixed[64];
  const int last = (int)n - 1;
  words[threadIdx.x] = value;
  if (threadIdx.x < 64) fixed[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    words[last] = words[255] + fixed[63];
    data[0] = words[last];
  }
})",
                                          "widest");
  EXPECT_EQ(function.shared_bytes, 256);
  int most = device(0).shared_per_block_optin - function.shared_bytes;
  EXPECT_THROW(allow_dynamic_shared(function, most + 1), DeviceError);
  allow_dynamic_shared(function, most);
  EXPECT_EQ(blocks_per_sm(function, 256, most), 1);
  Block* block = allocate(4, stream_);
  int value = 5;
  std::int64_t n = most / 4;
  void* params[] = {&block->data, &value, &n};
  launch(function, {.block = {256, 1, 1}, .dynamic_shared = static_cast<std::uint32_t>(most)}, stream_,
         params);
  EXPECT_EQ(read_ints(block, 1, stream_)[0], 5);
  release(block, stream_);
}

TEST_F(Module, AGridOfNonsenseIsADeviceErrorAndTheNextOneRuns) {
  const Function function = add_kernel();
  int* data = nullptr;
  int value = 0;
  std::int64_t n = 0;
  void* params[] = {&data, &value, &n};
  EXPECT_THROW(launch(function, {.grid = {0, 1, 1}}, stream_, params), DeviceError);
  EXPECT_THROW(launch(function, {.block = {4096, 1, 1}}, stream_, params), DeviceError);
  EXPECT_EQ(zeros_plus(function, 2), std::vector<int>(1000, 2));
}

TEST_F(Module, ClustersAndCooperativeGridsRun) {
  const Function function = add_kernel();
  Block* block = allocate(4000, stream_);
  fill(block->data, 0, 4, 1000, stream_);
  int value = 1;
  std::int64_t n = 1000;
  void* params[] = {&block->data, &value, &n};
  int expected = 0;
  if (device(0).cooperative) {
    LaunchShape shape{.grid = {4, 1, 1}, .block = {128, 1, 1}, .cooperative = true};
    launch(function, shape, stream_, params);
    expected += 1;
    shape.grid[0] = 1u << 20;  // more than can run at once
    EXPECT_THROW(launch(function, shape, stream_, params), DeviceError);
  }
  if (device(0).clusters) {
    const LaunchShape shape{.grid = {16, 1, 1}, .block = {128, 1, 1}, .cluster = {8, 1, 1}};
    EXPECT_GE(clusters_per_device(function, shape), 1);
    launch(function, shape, stream_, params);
    expected += 1;
  }
  EXPECT_EQ(read_ints(block, 1000, stream_), std::vector<int>(1000, expected));
  release(block, stream_);
}

/// Another library's context, current on this thread, stays so.
TEST_F(Module, TheContextOfOthersStaysCurrent) {
  void* library = dlopen(driver().library.c_str(), RTLD_NOW);
  ASSERT_TRUE(library);
  const auto create = reinterpret_cast<int (*)(void**, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
  const auto current = reinterpret_cast<int (*)(void**)>(dlsym(library, "cuCtxGetCurrent"));
  const auto set = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"));
  const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxDestroy_v2"));
  ASSERT_TRUE(create && current && set && destroy);
  void *before = nullptr, *own = nullptr, *now = nullptr;
  current(&before);
  ASSERT_EQ(create(&own, 0, 0), 0);
  EXPECT_EQ(zeros_plus(add_kernel(), 4), std::vector<int>(1000, 4));
  current(&now);
  EXPECT_EQ(now, own);
  destroy(own);
  set(before);
}

}  // namespace
}  // namespace kiln::cuda
