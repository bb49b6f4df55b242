#include "device/device.h"

#include "support/check.h"

#include <atomic>

#define KILN_DEVICE(Name, name, library) \
  namespace kiln::name {                 \
  device::Device& as_device(int index);  \
  }
#define KILN_DEVICES(Name, name, most, library) KILN_DEVICE(Name, name, library)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES

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
#define KILN_DEVICE(Name, name, library) \
  case kiln::Device::Kind::Name: return name::as_device(device.index);
#define KILN_DEVICES(Name, name, most, library) KILN_DEVICE(Name, name, library)
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  }
  KILN_CHECK_THAT(false, "a device of no kind");
  return cpu::as_device(0);
}

}  // namespace kiln::device
