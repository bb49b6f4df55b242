// Other users of a GPU: their streams and memory, DLPack, several devices.
#include <kiln/gpu.h>

#include "counted.h"
#include "device/cuda/cuda_test.h"

#include <kiln/config.h>
#include <kiln/dlpack.h>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

class GpuSharing : public testing::CudaTest {};

const Device kGpu = Device::cuda(0);

std::vector<float> ramp(float first = 0) {
  return {first, first + 1, first + 2, first + 3, first + 4, first + 5};
}

TEST_F(GpuSharing, AScopePutsWorkOnTheCallersStream) {
  const cuda::Stream theirs = cuda::new_stream(0);
  void* const handle = cuda::handle_of(theirs);
  const Tensor x = Tensor::from(ramp(), {2, 3});
  void* const own = current_stream(kGpu);
  {
    const StreamScope scope(kGpu, handle);
    EXPECT_EQ(current_stream(kGpu), handle);
    (x + 1.0f).eval();  // compiles
    cuda::spin(theirs, 300);
    const Tensor y = (x + 1.0f).eval();
    EXPECT_FALSE(cuda::idle(theirs)) << "evaluating does not wait";
    {
      const StreamScope inner(kGpu, nullptr);
      EXPECT_EQ(current_stream(kGpu), nullptr);
      if (cuda::computes()) {
        EXPECT_EQ((y + 1.0f).to_vector<float>(), ramp(2)) << "comes after what the other stream computes";
      }
    }
    EXPECT_EQ(current_stream(kGpu), handle);
    EXPECT_THROW(retire_stream(kGpu, handle), UserError);
  }
  EXPECT_EQ(current_stream(kGpu), own);
  retire_stream(kGpu, handle);
}

TEST_F(GpuSharing, ValuesOutliveTheStreamThatComputedThem) {
  void* library = dlopen(cuda::driver().library.c_str(), RTLD_NOW);
  ASSERT_TRUE(library);
  const auto create = reinterpret_cast<int (*)(void**, unsigned)>(dlsym(library, "cuStreamCreate"));
  const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuStreamDestroy_v2"));
  const Tensor x = Tensor::from(ramp(), {2, 3}).eval();
  void* handle = nullptr;
  ASSERT_EQ(create(&handle, 1), 0);
  Tensor y, z;
  {
    const StreamScope scope(kGpu, handle);
    y = (x + 1.0f).eval();
    z = (x + 2.0f).eval();
  }
  retire_stream(kGpu, handle);
  ASSERT_EQ(destroy(handle), 0);
  const Tensor sum = (y + z).eval();
  if (cuda::computes()) {
    EXPECT_EQ(z.to_vector<float>(), ramp(2));
    EXPECT_EQ((sum - z).to_vector<float>(), ramp(1));
  }
  y = z = Tensor();
  EXPECT_NO_THROW((sum + 1.0f).eval());
}

TEST_F(GpuSharing, TheCpuHasNoStreams) {
  EXPECT_THROW(StreamScope(Device::cpu(), nullptr), UserError);
  EXPECT_THROW(current_stream(Device::cpu()), UserError);
  EXPECT_THROW(StreamScope(Device::cuda(60), nullptr), DeviceError);
}

TEST_F(GpuSharing, MemoryIsSeenGivenBackAndLimited) {
  trim_memory(kGpu);
  const std::uint64_t before = memory_use(kGpu).in_use;
  {
    const Tensor x = full({5 << 20}, 1.0f).eval();
    EXPECT_GE(memory_use(kGpu).in_use, before + (20 << 20));
  }
  EXPECT_GE(memory_use(kGpu).held, memory_use(kGpu).in_use + (20 << 20)) << "kept for the next one";
  EXPECT_GE(trim_memory(kGpu), std::uint64_t{20} << 20);
  limit_memory(kGpu, memory_use(kGpu).held + (8 << 20));
  EXPECT_THROW(full({64 << 20}, 1.0f).eval(), DeviceError);
  limit_memory(kGpu, 0);
  EXPECT_NO_THROW(full({64 << 20}, 1.0f).eval());
  EXPECT_GT(memory_use(Device::cpu()).limit, 0u);
}

/// Memory of another library, on the device.
struct Lent {
  explicit Lent(int device = 0) : block(cuda::allocate(24, cuda::default_stream(device))), index(device) {
    const std::vector<float> values = ramp();
    cuda::copy_to_device(block->data, values.data(), 24, cuda::default_stream(device));
    managed.version = {1, 1};
    managed.manager_ctx = this;
    managed.deleter = [](dlpack::DLManagedTensorVersioned* m) {
      ++static_cast<Lent*>(m->manager_ctx)->deleted;
    };
    managed.dl_tensor = {
        block->data, {dlpack::kDLCUDA, device}, 2, {dlpack::kDLFloat, 32, 1}, shape, nullptr, 0};
  }
  ~Lent() { cuda::release(block, cuda::default_stream(index)); }
  cuda::Block* block;
  int index, deleted = 0;
  std::int64_t shape[2] = {2, 3};
  std::int64_t strides[2] = {1, 2};
  dlpack::DLManagedTensorVersioned managed{};
};

TEST_F(GpuSharing, DLPackTakesAGpusMemoryWithoutCopying) {
  Lent lent;
  {
    const Tensor x = from_dlpack(&lent.managed, {.stream = 1});
    EXPECT_EQ(x.device(), kGpu);
    EXPECT_EQ(x.to_vector<float>(), ramp());
    if (cuda::computes()) {
      EXPECT_EQ((x + 2.0f).to_vector<float>(), ramp(2));
    }
    EXPECT_EQ(lent.deleted, 0);
  }
  EXPECT_EQ(lent.deleted, 1);
}

TEST_F(GpuSharing, DLPackTakesStridesCopiesAndAnyStream) {
  Lent lent;
  lent.managed.dl_tensor.strides = lent.strides;
  const std::vector<float> columns = {0, 2, 4, 1, 3, 5};
  {
    const Tensor shared = from_dlpack(&lent.managed);
    if (cuda::computes()) {
      EXPECT_EQ((shared + 0.0f).to_vector<float>(), columns);
    }
  }
  const Tensor copy = from_dlpack(&lent.managed, {.copy = true, .stream = -1});
  EXPECT_EQ(lent.deleted, 2) << "a copy lets go at once";
  const float other = -1;
  cuda::copy_to_device(lent.block->data, &other, 4, cuda::default_stream(0));
  EXPECT_EQ(copy.to_vector<float>(), columns);
  EXPECT_THROW(from_dlpack(&lent.managed, {.stream = 0}), UserError);
  EXPECT_EQ(lent.deleted, 3);
}

/// The owner may reuse the memory once it is told: not before Kiln's kernels are through with it.
TEST_F(GpuSharing, TheOwnerIsToldAfterTheLastKernel) {
  Lent lent;
  {
    const Tensor x = from_dlpack(&lent.managed);
    cuda::spin(cuda::default_stream(0), 20);
    (x + 1.0f).eval();
  }
  EXPECT_EQ(lent.deleted, 1);
  EXPECT_TRUE(cuda::idle(cuda::default_stream(0)));
}

TEST_F(GpuSharing, DLPackGivesMemoryInTheOrderOfTheReceiversStream) {
  const cuda::Stream theirs = cuda::new_stream(0);
  const auto handle = reinterpret_cast<std::intptr_t>(cuda::handle_of(theirs));
  cuda::spin(cuda::default_stream(0), 10);
  const Tensor x = Tensor::from(ramp(), {6});
  x.eval();
  DLPack given = to_dlpack(x, {.stream = handle});
  EXPECT_EQ(given->dl_tensor.device.device_type, dlpack::kDLCUDA);
  std::vector<float> got(6);
  cuda::copy_to_host(got.data(), given->dl_tensor.data, 24, theirs);
  EXPECT_EQ(got, ramp());
  given.reset();
  EXPECT_THROW(to_dlpack(x, {.stream = 0}), UserError);
  to_dlpack(x, {.stream = -1});
  to_dlpack(x);
  const Tensor again = from_dlpack(to_dlpack(x, {.copy = true}).release());
  EXPECT_EQ(again.to_vector<float>(), ramp());
}

TEST_F(GpuSharing, TensorsMoveBetweenDevices) {
  KILN_REQUIRE_GPUS(2);
  const Device second = Device::cuda(1);
  const Tensor x = Tensor::from(ramp(), {2, 3});
  const Tensor there = x.to(second);
  EXPECT_EQ(there.device(), second);
  EXPECT_EQ(there.to_vector<float>(), ramp());
  const Tensor y = (there * 2.0f).eval();
  EXPECT_EQ(y.device(), second);
  const Tensor back = y.to(kGpu);
  EXPECT_EQ(back.device(), kGpu);
  if (cuda::computes()) {
    EXPECT_EQ((back + x).to_vector<float>(), (std::vector<float>{0, 3, 6, 9, 12, 15}));
  }
  EXPECT_THROW((there + x).eval(), UserError) << "operands of two devices";
  Lent lent(1);
  {
    const Tensor lent_there = from_dlpack(&lent.managed);
    EXPECT_EQ(lent_there.device(), second);
    EXPECT_EQ(lent_there.to(Device::cpu()).to_vector<float>(), ramp());
  }
  EXPECT_EQ(lent.deleted, 1);
}

}  // namespace
}  // namespace kiln
