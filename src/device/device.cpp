#include "device/device.h"

#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "support/check.h"

#include <atomic>

namespace kiln::device {
namespace {

std::atomic<BinaryStore*> store{nullptr};

}  // namespace

void set_binary_store(BinaryStore* to) { store.store(to, std::memory_order_release); }
BinaryStore* binary_store() { return store.load(std::memory_order_acquire); }

void Compiler::interpret(Code&, const Unit&) const {
  KILN_CHECK_THAT(false, "a device without an interpreter is to interpret a kernel");
}

std::unique_ptr<Graph> Device::record(std::size_t, std::int64_t, const std::function<void(std::size_t)>&) {
  return nullptr;
}

Device& at(kiln::Device device) {
  switch (device.kind) {
    case kiln::Device::Kind::Cpu: return cpu::device();
    case kiln::Device::Kind::Cuda: return cuda::as_device(device.index);
  }
  return cpu::device();
}

}  // namespace kiln::device
