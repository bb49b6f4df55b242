#include "device/cuda/driver.h"

#include <cuda.h>

#include "device/cuda/driver_api.h"
#include "device/cuda/exit_gate.h"
#include "device/cuda/shared_library.h"
#include "support/check.h"
#include "support/env.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace kiln::cuda {
namespace {

constexpr int kMaxDevices = 64;

#define KILN_CUDA_TEXT(x) KILN_CUDA_TEXT_OF(x)
#define KILN_CUDA_TEXT_OF(x) #x

/// Fills the table. Returns the name of a function that is needed and not there, or null.
const char* bind(const SharedLibrary& library, DriverApi& api) {
  const char* missing = nullptr;
#define KILN_CUDA_OPTIONAL(name) \
  api.name = reinterpret_cast<decltype(api.name)>(find_symbol(library, KILN_CUDA_TEXT(name)));
#define KILN_CUDA_FUNCTION(name) \
  KILN_CUDA_OPTIONAL(name)       \
  if (!api.name && !missing) missing = KILN_CUDA_TEXT(name);
#include "device/cuda/driver_functions.def"
#undef KILN_CUDA_FUNCTION
#undef KILN_CUDA_OPTIONAL
  // A second version of equal signature that drivers before 12.8 do not have.
  if (!api.cuEventElapsedTime)
    api.cuEventElapsedTime =
        reinterpret_cast<decltype(api.cuEventElapsedTime)>(find_symbol(library, "cuEventElapsedTime"));
  return missing;
}

std::string text_of(const DriverApi& api, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (api.cuGetErrorString) api.cuGetErrorString(result, &text);
  if (api.cuGetErrorName) api.cuGetErrorName(result, &name);
  return cat(text ? text : "unknown error", " (", name ? name : "CUDA_ERROR", ", ", static_cast<int>(result),
             ")");
}

std::string version_text(int version) { return cat(version / 1000, '.', version % 1000 / 10); }

std::string uuid_text(const CUuuid& uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    out += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) out += '-';
  }
  return out;
}

DeviceInfo describe(const DriverApi& api, int index) {
  DeviceInfo out;
  out.index = index;
  CUdevice handle = 0;
  if (api.cuDeviceGet(&handle, index) != CUDA_SUCCESS) return out;
  char name[256] = {};
  if (api.cuDeviceGetName(name, sizeof name - 1, handle) == CUDA_SUCCESS) out.name = name;
  CUuuid uuid{};
  if (api.cuDeviceGetUuid(&uuid, handle) == CUDA_SUCCESS) out.uuid = uuid_text(uuid);
  std::size_t bytes = 0;
  if (api.cuDeviceTotalMem(&bytes, handle) == CUDA_SUCCESS) out.memory_bytes = bytes;
  const auto get = [&](CUdevice_attribute attribute) {
    int value = 0;
    return api.cuDeviceGetAttribute(&value, attribute, handle) == CUDA_SUCCESS ? value : 0;
  };
  out.major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  out.minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  out.sm_count = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  out.l2_bytes = static_cast<std::uint64_t>(get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  out.shared_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  out.shared_per_block_optin = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  out.shared_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  out.threads_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out.threads_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  out.blocks_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  out.registers_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  out.registers_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  out.clock_khz = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  out.memory_clock_khz = get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  out.memory_bus_bits = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  out.clusters = get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  out.cooperative = get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  return out;
}

std::string no_device_reason(int version) {
  std::string out = cat("the driver (CUDA ", version_text(version), ") finds no device");
  if (const char* visible = environment_variable("CUDA_VISIBLE_DEVICES"))
    out += cat("; CUDA_VISIBLE_DEVICES is '", visible, "'");
  return out;
}

/// Opens and initialises a driver and looks at its devices.
DriverReport look(std::span<const std::string> names, DriverApi& api) {
  DriverReport out;
  const SharedLibrary library = open_first(names);
  if (!library.handle) {
    out.reason = "no driver library: " + library.failure;
    return out;
  }
  out.library = library.path;
  if (const char* missing = bind(library, api)) {
    out.reason = cat(library.path, " has no function ", missing, ": not a driver, or one older than CUDA ",
                     version_text(CUDA_VERSION / 1000 * 1000));
    return out;
  }
  const CUresult started = api.cuInit(0);
  if (started == CUDA_ERROR_STUB_LIBRARY) {
    out.reason = library.path + " is the toolkit's stub for linking, not a driver";
    return out;
  }
  api.cuDriverGetVersion(&out.version);
  int count = 0;
  const CUresult counted = started == CUDA_SUCCESS ? api.cuDeviceGetCount(&count) : started;
  if (counted == CUDA_ERROR_NO_DEVICE || (counted == CUDA_SUCCESS && count == 0)) {
    out.reason = no_device_reason(out.version);
    return out;
  }
  if (counted != CUDA_SUCCESS) {
    out.reason = cat("the driver does not start: ", text_of(api, counted));
    return out;
  }
  for (int i = 0; i < std::min(count, kMaxDevices); ++i) out.devices.push_back(describe(api, i));
  out.available = true;
  return out;
}

struct DeviceState {
  std::mutex mutex;  // of the first retain
  std::atomic<CUcontext> context{nullptr};
  std::atomic<const std::string*> failure{nullptr};  // immortal once set
};

struct Process {
  DriverReport report;
  DriverApi api;
  std::array<DeviceState, kMaxDevices> devices;
};

/// A thread inside may wait for a kernel that never ends: exit does not wait as long.
constinit ExitGate gate{std::chrono::milliseconds(2000)};

Process& process() {
  static Process* const instance = [] {  // immortal: buffers are freed during exit
    auto* made = new Process;
    const std::string names[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                 "/usr/lib/wsl/lib/libcuda.so.1"};
    made->report = look(names, made->api);
    if (made->report.available) {
      pthread_atfork(nullptr, nullptr, [] { gate.close_in_child(); });
      std::atexit([] { gate.close(); });  // before the driver's own handler: it is older
    }
    return made;
  }();
  return *instance;
}

void enter_gate() {
  switch (gate.enter()) {
    case ExitGate::Answer::Enter: return;
    case ExitGate::Answer::Exiting: throw DeviceError("[cuda] the process is exiting");
    case ExitGate::Answer::Forked:
      throw DeviceError(
          "[cuda] this process was forked from one that had started CUDA, which does not survive a fork: "
          "start the "
          "child with exec, or fork before the first use of the GPU");
  }
}

}  // namespace

const DriverReport& driver() { return process().report; }

DriverReport probe_driver(std::span<const std::string> libraries) {
  DriverApi unused;
  return look(libraries, unused);
}

std::vector<std::string> toolkit_names(const std::string& stem) {
  constexpr int kNewest = 13, kOldest = 12;
  const int most = driver().available ? driver().version / 1000 : kNewest;
  std::vector<std::string> out;
  for (int major = std::min(most, kNewest); major >= kOldest; --major)
    out.push_back(cat(stem, ".so.", major));
  for (int major = std::max(most + 1, kOldest); major <= kNewest; ++major)
    out.push_back(cat(stem, ".so.", major));
  out.push_back(stem + ".so");
  return out;
}

const DriverApi& api() {
  Process& p = process();
  if (!p.report.available) [[unlikely]]
    throw DeviceError("[cuda] no CUDA device: " + p.report.reason);
  return p.api;
}

const DeviceInfo& device(int index) {
  api();
  const auto& all = process().report.devices;
  if (index < 0 || index >= static_cast<int>(all.size()))
    throw DeviceError(
        cat("[cuda] no device cuda:", index, ": there ", all.size() == 1 ? "is " : "are ", all.size()));
  return all[static_cast<std::size_t>(index)];
}

bool is_sticky(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226:  // CUDA_ERROR_CONTAINED
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      return true;
    default: return false;
  }
}

std::string error_text(CUresult result) { return text_of(api(), result); }

void require_working(int device_index) {
  device(device_index);
  if (const std::string* failure = process().devices[static_cast<std::size_t>(device_index)].failure.load())
    throw DeviceError(*failure);
}

CUcontext primary_context(int index) {
  const DeviceInfo& d = device(index);
  DeviceState& state = process().devices[static_cast<std::size_t>(index)];
  if (CUcontext context = state.context.load(std::memory_order_acquire)) return context;
  const std::lock_guard lock(state.mutex);
  if (CUcontext context = state.context.load(std::memory_order_acquire)) return context;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  CUresult result = api().cuDeviceGet(&handle, index);
  if (result == CUDA_SUCCESS) result = api().cuDevicePrimaryCtxRetain(&context, handle);
  if (result != CUDA_SUCCESS)
    throw DeviceError(cat("[cuda] cannot use cuda:", index, " (", d.name, "): ", error_text(result)));
  state.context.store(context, std::memory_order_release);
  return context;
}

Enter::Enter(int index) : device_(index) {
  enter_gate();
  try {
    context_ = primary_context(index);
    const DriverApi& driver_api = api();
    if (driver_api.cuCtxGetCurrent(&previous_) != CUDA_SUCCESS) previous_ = nullptr;
    if (previous_ == context_) return;
    const CUresult result = driver_api.cuCtxSetCurrent(context_);
    if (result != CUDA_SUCCESS) throw DeviceError("[cuda] cuCtxSetCurrent: " + error_text(result));
    // A thread that had none keeps device 0's, which is what others would give it, and saves the switch next
    // time.
    restore_ = previous_ || index != 0;
  } catch (...) {
    gate.leave();
    throw;
  }
}

Enter::~Enter() {
  if (restore_) api().cuCtxSetCurrent(previous_);
  gate.leave();
}

void Enter::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  std::string text = cat("[cuda] ", call, ": ", error_text(result));
  if (is_sticky(result)) {
    text += cat("; the context of cuda:", device_, " and all its memory are lost until the process ends");
    const std::string* none = nullptr;
    auto* kept = new std::string(text);
    DeviceState& state = process().devices[static_cast<std::size_t>(device_)];
    if (!state.failure.compare_exchange_strong(none, kept)) delete kept;
  }
  throw DeviceError(text);
}

MemoryInfo memory_info(int index) {
  const Enter in(index);
  std::size_t free = 0, total = 0;
  KILN_CU(in, cuMemGetInfo, &free, &total);
  return {free, total};
}

bool ended() noexcept { return gate.closed(); }

}  // namespace kiln::cuda
