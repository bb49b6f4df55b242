#include "engine/device_memory.h"

#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/pool.h"
#include "engine/device_control.h"
#include "engine/pool.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <cstring>
#include <memory>
#include <new>

namespace kiln::engine {
namespace {

/// Lives in its block's header.
struct CudaBuffer : ir::Buffer {
  cuda::Block* block = nullptr;
  // the stream that used it last; earlier ones are ordered before it
  std::atomic<cuda::Stream> last{nullptr};
  std::atomic<ir::Buffer*> mirror{nullptr};  // a copy in host memory, once somebody asked for one
};
static_assert(sizeof(CudaBuffer) <= sizeof(cuda::Block::owner));

CudaBuffer& as_cuda(const ir::Buffer& b) { return static_cast<CudaBuffer&>(const_cast<ir::Buffer&>(b)); }

bool on_gpu(const ir::Buffer& b) { return b.device.kind == Device::Kind::Cuda; }

}  // namespace

Device default_device() {
  struct Kept {
    std::string text;
    Device device;
  };
  Kept& kept = thread_own<Kept, Kept>();
  const std::string& text = config().device;
  if (text == kept.text) return kept.device;
  Device d;
  if (text.starts_with("cuda")) {
    const int index = text.size() > 5 ? std::stoi(text.substr(5)) : 0;
    cuda::device(index);  // throws when there is none
    if (index >= ir::kMaxCudaDevices)
      throw DeviceError(cat("[device] ", text, ": at most ", ir::kMaxCudaDevices, " devices are used"));
    d = Device::cuda(index);
  }
  kept = {text, d};
  return d;
}

ir::Buffer* allocate(std::uint64_t bytes, Device device) {
  if (device.kind == Device::Kind::Cpu) return allocate(bytes);
  const cuda::Stream stream = cuda::current_stream(device.index);
  cuda::Block* block = cuda::allocate(bytes, stream);
  auto* buffer = new (block->owner) CudaBuffer;
  buffer->device = device;
  buffer->data = block->data;
  buffer->bytes = bytes;
  buffer->block = block;
  buffer->last.store(stream, std::memory_order_relaxed);
  buffer->free = [](ir::Buffer* b) {
    CudaBuffer& self = as_cuda(*b);
    cuda::Block* const own = self.block;
    const cuda::Stream last = self.last.load(std::memory_order_relaxed);
    if (ir::Buffer* mirror = self.mirror.load(std::memory_order_relaxed)) ir::release(mirror);
    self.~CudaBuffer();
    cuda::release(own, last);
  };
  return buffer;
}

ir::Buffer* lent_memory(Device device, std::byte* data, std::uint64_t bytes, std::function<void()> done) {
  struct Lent : CudaBuffer {
    std::function<void()> done;
  };
  auto* buffer = new Lent;
  buffer->writable = false;
  buffer->device = device;
  buffer->data = data;
  buffer->bytes = bytes;
  buffer->last.store(cuda::current_stream(device.index), std::memory_order_relaxed);
  buffer->done = std::move(done);
  buffer->free = [](ir::Buffer* b) {
    auto* self = static_cast<Lent*>(b);
    if (ir::Buffer* mirror = self->mirror.load(std::memory_order_relaxed)) ir::release(mirror);
    if (!cuda::ended()) {
      try {
        // its owner may reuse it at once, on any stream
        cuda::synchronize(self->last.load(std::memory_order_relaxed));
      } catch (...) {  // the device is lost: nothing runs there
      }
    }
    if (self->done) self->done();
    delete self;
  };
  return buffer;
}

void use_on_current_stream(ir::Buffer& buffer) {
  if (!on_gpu(buffer)) return;
  CudaBuffer& b = as_cuda(buffer);
  const cuda::Stream now = cuda::current_stream(buffer.device.index);
  if (b.last.load(std::memory_order_relaxed) == now) return;
  const cuda::Stream before = b.last.exchange(now, std::memory_order_relaxed);
  if (before != now) cuda::order(before, now);
}

void upload(ir::Buffer& to, const void* from, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (!on_gpu(to)) {
    std::memcpy(to.data, from, bytes);
    return;
  }
  use_on_current_stream(to);
  cuda::copy_to_device(to.data, from, bytes, cuda::current_stream(to.device.index));
}

void download(void* to, const ir::Buffer& from, std::int64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (!on_gpu(from)) {
    std::memcpy(to, from.data + offset, bytes);
    return;
  }
  use_on_current_stream(const_cast<ir::Buffer&>(from));
  cuda::copy_to_host(to, from.data + offset, bytes, cuda::current_stream(from.device.index));
}

const std::byte* host_memory(const ir::Buffer& buffer) {
  if (!on_gpu(buffer)) return buffer.data;
  CudaBuffer& b = as_cuda(buffer);
  if (const ir::Buffer* made = b.mirror.load(std::memory_order_acquire)) return made->data;
  ir::Buffer* copy = copied_to(buffer, Device::cpu());
  ir::Buffer* first = nullptr;
  if (b.mirror.compare_exchange_strong(first, copy, std::memory_order_acq_rel)) return copy->data;
  ir::release(copy);
  return first->data;
}

void forget_host_copy(ir::Buffer& buffer) {
  if (!on_gpu(buffer)) return;
  if (ir::Buffer* made = as_cuda(buffer).mirror.exchange(nullptr, std::memory_order_acq_rel))
    ir::release(made);
}

ir::Buffer* copied_to(const ir::Buffer& from, Device device) {
  ir::Buffer* to = allocate(from.bytes, device);
  try {
    if (!on_gpu(from)) {
      upload(*to, from.data, from.bytes);
    } else if (device.kind == Device::Kind::Cpu) {
      download(to->data, from, 0, from.bytes);
    } else {
      use_on_current_stream(const_cast<ir::Buffer&>(from));
      cuda::copy_across(to->data, cuda::current_stream(device.index), from.data,
                        cuda::current_stream(from.device.index), from.bytes);
    }
  } catch (...) {
    ir::release(to);
    throw;
  }
  return to;
}

void synchronize(Device device) {
  if (device.kind == Device::Kind::Cuda) cuda::synchronize(cuda::current_stream(device.index));
}

}  // namespace kiln::engine
