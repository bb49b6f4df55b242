#include "device/cuda/stream.h"

#include <cuda.h>

#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/pool.h"
#include "device/cuda/stream_state.h"
#include "support/check.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace kiln::cuda {
namespace {

constexpr std::size_t kMaxDevices = 64;

struct Registry {
  std::mutex mutex;
  std::vector<StreamState*> wrapped;
  std::array<std::atomic<StreamState*>, kMaxDevices> defaults{};
  struct Events {
    std::vector<CUevent> free[2];  // [timed]
  };
  std::array<Events, kMaxDevices> events;
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

constinit thread_local std::array<StreamState*, kMaxDevices> current{};

std::uint64_t id_of(const Enter& in, CUstream handle) {
  unsigned long long id = reinterpret_cast<std::uintptr_t>(handle);
  if (api().cuStreamGetId) KILN_CU(in, cuStreamGetId, handle, &id);
  return id;
}

}  // namespace

int device_of(Stream stream) { return stream->device; }
CUstream_st* handle_of(Stream stream) { return stream->handle; }

Stream new_stream(int device_index) {
  const Enter in(device_index);
  CUstream handle = nullptr;
  KILN_CU(in, cuStreamCreate, &handle, CU_STREAM_NON_BLOCKING);
  auto* made = new StreamState;
  made->device = device_index;
  made->handle = handle;
  made->id = id_of(in, handle);
  return made;
}

Stream default_stream(int device_index) {
  device(device_index);
  auto& slot = registry().defaults[static_cast<std::size_t>(device_index)];
  if (StreamState* known = slot.load(std::memory_order_acquire)) return known;
  static std::mutex* const making = new std::mutex;
  const std::lock_guard lock(*making);
  if (StreamState* known = slot.load(std::memory_order_acquire)) return known;
  StreamState* made = new_stream(device_index);
  slot.store(made, std::memory_order_release);
  return made;
}

Stream wrap_stream(int device_index, CUstream_st* handle) {
  const Enter in(device_index);
  const std::uint64_t id = id_of(in, handle);
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (StreamState* s : r.wrapped)
    if (s->device == device_index && s->handle == handle && s->id == id && !s->retired) return s;
  auto* made = new StreamState;
  made->device = device_index;
  made->handle = handle;
  made->id = id;
  r.wrapped.push_back(made);
  return made;
}

void retire(Stream stream) {
  synchronize(stream);
  const Stream own = default_stream(stream->device);
  {
    const std::lock_guard lock(registry().mutex);
    stream->retired = true;
    stream->handle = own->handle.load();
  }
  hand_over(stream, own);
}

Stream current_stream(int device_index) {
  if (static_cast<std::size_t>(device_index) < kMaxDevices)
    if (StreamState* set = current[static_cast<std::size_t>(device_index)]) return set;
  return default_stream(device_index);
}

Stream set_current_stream(int device_index, Stream stream) {
  device(device_index);
  KILN_CHECK_THAT(!stream || stream->device == device_index);
  return std::exchange(current[static_cast<std::size_t>(device_index)], stream);
}

void synchronize(Stream stream) {
  const Enter in(stream->device);
  KILN_CU(in, cuStreamSynchronize, stream->handle);
}

void synchronize_device(int device_index) {
  const Enter in(device_index);
  in.check(api().cuCtxSynchronize(), "cuCtxSynchronize");
}

bool idle(Stream stream) {
  const Enter in(stream->device);
  const CUresult result = api().cuStreamQuery(stream->handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  in.check(result, "cuStreamQuery");
  return true;
}

Event& Event::operator=(Event&& o) noexcept {
  std::swap(device_, o.device_);
  std::swap(timed_, o.timed_);
  std::swap(handle_, o.handle_);
  return *this;
}

Event::~Event() {
  if (!handle_ || ended()) return;
  const std::lock_guard lock(registry().mutex);
  registry().events[static_cast<std::size_t>(device_)].free[timed_].push_back(handle_);
}

Event record(Stream stream, bool timed) {
  const Enter in(stream->device);
  Event out;
  out.device_ = stream->device;
  out.timed_ = timed;
  {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    auto& free = r.events[static_cast<std::size_t>(stream->device)].free[timed];
    if (!free.empty()) {
      out.handle_ = free.back();
      free.pop_back();
    }
  }
  if (!out.handle_)
    KILN_CU(in, cuEventCreate, &out.handle_, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  KILN_CU(in, cuEventRecord, out.handle_, stream->handle);
  return out;
}

bool Event::done() const {
  if (!handle_) return true;
  const Enter in(device_);
  const CUresult result = api().cuEventQuery(handle_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  in.check(result, "cuEventQuery");
  return true;
}

void Event::synchronize() const {
  if (!handle_) return;
  const Enter in(device_);
  KILN_CU(in, cuEventSynchronize, handle_);
}

void Event::wait_on(Stream stream) const {
  if (!handle_) return;
  const Enter in(stream->device);
  KILN_CU(in, cuStreamWaitEvent, stream->handle, handle_, 0);
}

double elapsed_ms(const Event& from, const Event& to) {
  KILN_CHECK_THAT(from.handle_ && to.handle_ && from.timed_ && to.timed_ && from.device_ == to.device_);
  const Enter in(from.device_);
  float ms = 0;
  KILN_CU(in, cuEventElapsedTime, &ms, from.handle_, to.handle_);
  return ms;
}

void order(Stream earlier, Stream later) {
  if (earlier == later) return;
  record(earlier).wait_on(later);
}

}  // namespace kiln::cuda
