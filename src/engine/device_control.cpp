#include "engine/device_control.h"

#include "device/cuda/driver.h"
#include "device/cuda/stream.h"
#include "device/device.h"
#include "support/check.h"

#include <kiln/error.h>

namespace kiln::engine {
namespace {

CUstream_st* as_stream(void* handle) { return static_cast<CUstream_st*>(handle); }

}  // namespace

bool has_gpu(int index, std::string& why_not) {
  const cuda::DriverReport& driver = cuda::driver();
  const int most = ir::most_devices(Device::Kind::Cuda);
  if (index < most && index < static_cast<int>(driver.devices.size())) return true;
  why_not = driver.available ? cat("there are ", driver.devices.size()) : driver.reason;
  return false;
}

void* set_stream(Device device, void* handle) {
  return cuda::set_current_stream(device.index, cuda::wrap_stream(device.index, as_stream(handle)));
}

void restore_stream(Device device, void* before) {
  cuda::set_current_stream(device.index, static_cast<cuda::Stream>(before));
}

void wait_for_stream(Device device, void* handle) {
  cuda::order(cuda::wrap_stream(device.index, as_stream(handle)), cuda::current_stream(device.index));
}

void let_stream_wait(Device device, void* handle) {
  cuda::order(cuda::current_stream(device.index), cuda::wrap_stream(device.index, as_stream(handle)));
}

void rest(Device device) noexcept {
  if (cuda::ended()) return;
  try {
    cuda::synchronize_device(device.index);
  } catch (...) {  // the device is lost, and with it whatever ran there
  }
}

}  // namespace kiln::engine

namespace kiln {
namespace {

void require_gpu(const char* what, Device device) {
  if (device.kind != Device::Kind::Cuda)
    throw UserError(
        cat("[", what, "] ", device == Device::cpu() ? "the cpu" : device.str(), " has no streams"));
  cuda::device(device.index);  // throws when there is none
}

}  // namespace

StreamScope::StreamScope(Device device, void* stream) : device_(device) {
  require_gpu("StreamScope", device);
  before_ = engine::set_stream(device, stream);
}

StreamScope::~StreamScope() {
  try {
    engine::restore_stream(device_, before_);
  } catch (...) {  // the process is ending
  }
}

void retire_stream(Device device, void* stream) {
  require_gpu("retire_stream", device);
  const cuda::Stream known = cuda::wrap_stream(device.index, engine::as_stream(stream));
  if (known == cuda::current_stream(device.index))
    throw UserError("[retire_stream] a StreamScope still names the stream");
  cuda::retire(known);
}

void* current_stream(Device device) {
  require_gpu("current_stream", device);
  return cuda::handle_of(cuda::current_stream(device.index));
}

MemoryUse memory_use(Device device) { return device::at(device).memory_use(); }

std::uint64_t trim_memory(Device device, std::uint64_t keep) { return device::at(device).trim(keep); }

void limit_memory(Device device, std::uint64_t bytes) { device::at(device).limit_memory(bytes); }

}  // namespace kiln
