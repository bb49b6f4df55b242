// A libcuda.so.1 without a GPU: two devices whose memory is the host's, whose streams are threads, and which
// know the kernels of the backend's tests by name. It is as asynchronous as a real one and fails as one does,
// so that streams, pool, copies, fork and exit are tested (under sanitizers too) on machines that have no
// GPU. It runs no machine code but what the fake NVRTC made.
#include "fake_driver.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace {

CUctx_st primary[kDevices] = {{0}, {1}};
thread_local CUcontext current = nullptr;

Device& device_of(CUcontext context) { return driver().devices[static_cast<std::size_t>(context->device)]; }

CUresult state() {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  return static_cast<CUresult>(device_of(current).error.load());
}

#define REQUIRE_CONTEXT() \
  if (const CUresult result = state(); result != CUDA_SUCCESS) return result

CUstream resolve(CUstream stream) {
  // 1 and 2: the legacy and the thread's default
  if (reinterpret_cast<std::uintptr_t>(stream) > 2) return stream;
  static std::array<std::atomic<CUstream>, kDevices> legacy{};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& slot = legacy[static_cast<std::size_t>(current->device)];
  if (!slot) {
    auto* made = new CUstream_st;
    made->device = current->device;
    made->id = driver().ids++;
    std::thread([made] { made->run(); }).detach();
    slot = made;
  }
  return slot;
}

/// A real driver may do worse with one that was destroyed.
bool is_destroyed(CUstream stream) {
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return false;
  const std::lock_guard lock(driver().mutex);
  return !driver().streams.contains(stream);
}
#define REQUIRE_STREAM(stream) \
  REQUIRE_CONTEXT();           \
  if (is_destroyed(stream)) return CUDA_ERROR_INVALID_HANDLE

/// Work that a device which has failed does not do.
CUresult enqueue(CUstream stream, std::function<void()> work) {
  REQUIRE_STREAM(stream);
  stream = resolve(stream);
  Device* device = &driver().devices[static_cast<std::size_t>(stream->device)];
  if (CUgraph_st* graph = stream->recorded) {
    graph->work.push_back(std::move(work));
    return CUDA_SUCCESS;
  }
  stream->push([device, work = std::move(work)] {
    if (device->error == CUDA_SUCCESS) work();
  });
  return CUDA_SUCCESS;
}

bool contains(const std::map<CUdeviceptr, std::size_t>& spans, CUdeviceptr address) {
  auto it = spans.upper_bound(address);
  return it != spans.begin() && address < (--it)->first + it->second;
}

bool is_pinned(const void* host) {
  const std::lock_guard lock(driver().mutex);
  return contains(driver().pinned, reinterpret_cast<CUdeviceptr>(host));
}

template <class T>
T argument(void** params, int i) {
  T out;
  std::memcpy(&out, params[i], sizeof out);
  return out;
}

/// A launch with its arguments, to be run once or more often. What the real NVRTC made of a plan or of a
/// template computes nothing.
std::function<void()> work_of(CUfunction function, unsigned blocks, unsigned threads, void** params) {
  if (function->bind) {
    const std::shared_ptr<void> arguments(function->bind(params), function->free);
    return [=] {
      static std::mutex* const one = new std::mutex;  // of a library there is one set of thread numbers
      const std::lock_guard lock(*one);
      function->run(arguments.get(), blocks, threads);
    };
  }
  if (function->name == "add")
    return [data = argument<int*>(params, 0), value = argument<int>(params, 1),
            n = argument<long long>(params, 2)] {
      for (long long i = 0; i < n; ++i) data[i] += value;
    };
  if (function->name == "widest")
    return [data = argument<int*>(params, 0), value = argument<int>(params, 1)] { *data = value; };
  if (function->name == "spin")
    return [ns = argument<unsigned long long>(params, 0)] {
      std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    };
  if (function->name == "bad") {
    Device* device = &device_of(current);
    return [device] { device->error = CUDA_ERROR_ILLEGAL_ADDRESS; };
  }
  return [] {};
}

/// Its bytes end where its sections' table does.
CUresult load_host_library(CUmodule* module, const char* image) {
  std::uint64_t sections = 0;
  std::uint16_t size = 0, count = 0;
  std::memcpy(&sections, image + 40, 8);
  std::memcpy(&size, image + 58, 2);
  std::memcpy(&count, image + 60, 2);
  char path[] = "/tmp/kiln-fake-module-XXXXXX";
  const int file = mkstemp(path);
  const std::size_t bytes = sections + std::size_t{size} * count;
  if (file < 0 || write(file, image, bytes) != static_cast<ssize_t>(bytes))
    return CUDA_ERROR_OPERATING_SYSTEM;
  close(file);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (!library) return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{{}, library};
  return CUDA_SUCCESS;
}

CUresult run(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void** params) {
  REQUIRE_CONTEXT();
  if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, work_of(function, blocks, threads, params));
}

/// A tensor map, as hopper_twin.h reads it.
struct BoxMap {
  const void* address;
  int bytes, rank;
  long long strides[5];
  int dims[5];
  short box[5];
  short windows, lower[3], upper[3], step[3];
};
static_assert(sizeof(BoxMap) <= sizeof(CUtensorMap));

/// What all maps have; false: the driver would refuse it.
bool describe(BoxMap& to, CUtensorMapDataType type, cuuint32_t rank, const void* address,
              const cuuint64_t* dims, const cuuint64_t* strides, CUtensorMapSwizzle permutation) {
  const int bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8    ? 1
                    : type == CU_TENSOR_MAP_DATA_TYPE_UINT16 ? 2
                    : type == CU_TENSOR_MAP_DATA_TYPE_UINT32 ? 4
                                                             : 0;
  if (bytes == 0 || rank < 2 || rank > 5 || permutation != CU_TENSOR_MAP_SWIZZLE_128B ||
      reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    return false;
  to = {address, bytes, static_cast<int>(rank), {}, {}, {1, 1, 1, 1, 1}, 0, {}, {}, {}};
  for (cuuint32_t d = 0; d < rank; ++d) {
    to.dims[d] = static_cast<int>(dims[d]);
    to.strides[d] = d == 0 ? bytes : static_cast<long long>(strides[d - 1]);
    if (d > 0 && to.strides[d] % 16 != 0) return false;
  }
  return true;
}

/// Of a few, small programs get the kernels of large ones.
int multiprocessors() {
  const char* text = std::getenv("KILN_TEST_MULTIPROCESSORS");
  return text ? std::atoi(text) : 4;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible && !*visible ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
/// NVRTC asks for it, for the driver's cache of compiles.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (static_cast<int>(error)) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    default: *text = "CUDA_ERROR_OF_THE_FAKE"; break;
  }
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the fake driver refuses";
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle permutation,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  BoxMap to{};
  if (!describe(to, type, rank, address, dims, strides, permutation)) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t d = 0; d < rank; ++d) to.box[d] = static_cast<short>(box[d]);
  std::memcpy(map, &to, sizeof to);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* dims, const cuuint64_t* strides, const int* lower,
                                 const int* upper, cuuint32_t channels, cuuint32_t windows,
                                 const cuuint32_t* steps, CUtensorMapInterleave,
                                 CUtensorMapSwizzle permutation, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  BoxMap to{};
  if (rank < 3 || windows > 1024 || !describe(to, type, rank, address, dims, strides, permutation) ||
      channels * static_cast<cuuint32_t>(to.bytes) > 128)
    return CUDA_ERROR_INVALID_VALUE;
  const int most = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
  to.windows = 1;
  to.box[0] = static_cast<short>(channels);
  to.box[1] = static_cast<short>(windows);
  for (cuuint32_t d = 0; d + 2 < rank; ++d) {
    if (std::min(lower[d], upper[d]) < -most || std::max(lower[d], upper[d]) >= most || steps[d + 1] < 1 ||
        steps[d + 1] > 8)
      return CUDA_ERROR_INVALID_VALUE;
    to.lower[d] = static_cast<short>(lower[d]);
    to.upper[d] = static_cast<short>(upper[d]);
    to.step[d] = static_cast<short>(steps[d + 1]);
  }
  std::memcpy(map, &to, sizeof to);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = kDevices;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "no GPU: Kiln's fake driver", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, device + 1, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = multiprocessors(); break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 4 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 228 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *value = 1; break;
    default: *value = 0; break;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = &primary[device];
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  current = *context = new CUctx_st{device};
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  if (current == context) current = nullptr;
  delete context;
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() {
  REQUIRE_CONTEXT();
  std::deque<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(driver().mutex);
    for (CUstream stream : driver().streams)
      if (stream->device == current->device) marks.push_back(stream->mark());
  }
  marks.push_back(resolve(nullptr)->mark());
  for (const auto& mark : marks) mark->wait();
  return state();
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  REQUIRE_CONTEXT();
  const auto* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "\177ELF", 4) == 0) {
    constexpr char kHost = 62;  // x86-64
    if (bytes[18] == kHost) return load_host_library(module, bytes);
    // Where the architecture stands depends on the version of the ABI.
    if ((bytes[8] == 8 ? bytes[49] : bytes[48]) != 90) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    std::uint64_t sections = 0;  // at their table's end a cubin ends, near enough to find names in it
    std::memcpy(&sections, bytes + 40, 8);
    *module = new CUmod_st{std::string(bytes, sections)};
    return CUDA_SUCCESS;
  }
  if (std::string_view(bytes).find(".version") == std::string_view::npos) return CUDA_ERROR_INVALID_PTX;
  *module = new CUmod_st{bytes};
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  REQUIRE_CONTEXT();
  if (!module->library && module->image.find(name) == std::string::npos) return CUDA_ERROR_NOT_FOUND;
  auto* made = new CUfunc_st{name};
  if (module->library) {
    made->bind = reinterpret_cast<void* (*)(void**)>(dlsym(module->library, (made->name + "__bind").c_str()));
    made->run =
        reinterpret_cast<void (*)(void*, unsigned, unsigned)>(dlsym(module->library, "kiln_fake_run"));
    made->free = reinterpret_cast<void (*)(void*)>(dlsym(module->library, "kiln_fake_free"));
    if (!made->bind) return CUDA_ERROR_NOT_FOUND;
  }
  *function = made;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS                ? 16
           : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES     ? (function->name == "widest" ? 256 : 0)
                                                                  : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return state(); }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads,
                                                     std::size_t shared) {
  *blocks = shared > (100 << 10) ? 1 : 2048 / threads;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 1;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned, CUstream stream, void** params, void**) {
  return run(function, gx * gy * gz, bx * by * bz, stream, params);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void**) {
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->gridDimX > 64)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return run(function, config->gridDimX * config->gridDimY * config->gridDimZ,
             config->blockDimX * config->blockDimY * config->blockDimZ, config->hStream, params);
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  REQUIRE_CONTEXT();
  auto* made = new CUstream_st;
  made->device = current->device;
  made->id = driver().ids++;
  std::thread([made] { made->run(); }).detach();
  const std::lock_guard lock(driver().mutex);
  driver().streams.insert(made);
  *stream = made;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  {
    const std::lock_guard lock(driver().mutex);
    driver().streams.erase(stream);
  }
  const std::lock_guard lock(stream->mutex);
  stream->ending = true;
  stream->changed.notify_all();
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  REQUIRE_STREAM(stream);
  *id = resolve(stream)->id;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  REQUIRE_STREAM(stream);
  if (resolve(stream)->recorded) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  resolve(stream)->mark()->wait();
  return state();
}
CUresult cuStreamQuery(CUstream stream) {
  REQUIRE_STREAM(stream);
  const auto mark = resolve(stream)->mark();
  for (int i = 0; i < 20 && !mark->is_reached(); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  return mark->is_reached() ? state() : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  REQUIRE_STREAM(stream);
  resolve(stream)->push([mark = event->mark] { mark->wait(); });
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  REQUIRE_CONTEXT();
  if (std::getenv("KILN_TEST_NO_GRAPHS")) return CUDA_ERROR_NOT_SUPPORTED;
  if (resolve(stream)->recorded) return CUDA_ERROR_ILLEGAL_STATE;
  resolve(stream)->recorded = new CUgraph_st;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  REQUIRE_CONTEXT();
  *graph = resolve(stream)->recorded.exchange(nullptr);
  return *graph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  REQUIRE_CONTEXT();
  *exec = new CUgraphExec_st{std::make_shared<const std::vector<std::function<void()>>>(graph->work)};
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return enqueue(stream, [all = exec->work] {
    for (const auto& work : *all) work();
  });
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                                const CUgraphNode** latest, const CUgraphEdgeData**, std::size_t* count) {
  REQUIRE_CONTEXT();
  CUgraph_st* const graph = resolve(stream)->recorded;
  *status = graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  *count = graph && !graph->work.empty() ? 1 : 0;
  if (*count == 0) return CUDA_SUCCESS;
  for (std::size_t i = graph->nodes.size(); i < graph->work.size(); ++i) graph->nodes.push_back({i});
  graph->latest = &graph->nodes.back();
  *latest = &graph->latest;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  REQUIRE_CONTEXT();
  auto work = work_of(params->func, params->gridDimX, params->blockDimX, params->kernelParams);
  auto other = *exec->work;  // launches under way keep theirs
  other[node->index] = std::move(work);
  exec->work = std::make_shared<const std::vector<std::function<void()>>>(std::move(other));
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete exec;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  REQUIRE_CONTEXT();
  *event = new CUevent_st{std::make_shared<Mark>()};
  (*event)->mark->reach();
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  REQUIRE_STREAM(stream);
  event->mark = resolve(stream)->mark();
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  REQUIRE_CONTEXT();
  return event->mark->is_reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  REQUIRE_CONTEXT();
  event->mark->wait();
  return state();
}
CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  *ms = std::chrono::duration<float, std::milli>(to->mark->when - from->mark->when).count();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* data, std::size_t bytes) {
  REQUIRE_CONTEXT();
  Device& device = device_of(current);
  const std::lock_guard lock(device.mutex);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device.used + bytes > kMemory) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  device.used += bytes;
  *data = reinterpret_cast<CUdeviceptr>(memory);
  device.memory.emplace(*data, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr data) {
  REQUIRE_CONTEXT();
  Device& device = device_of(current);
  const std::lock_guard lock(device.mutex);
  const auto it = device.memory.find(data);
  if (it == device.memory.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(data), it->second);
  device.used -= it->second;
  device.memory.erase(it);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  REQUIRE_CONTEXT();
  Device& device = device_of(current);
  const std::lock_guard lock(device.mutex);
  *total = kMemory;
  *free = kMemory - device.used;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  REQUIRE_CONTEXT();
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  const std::lock_guard lock(driver().mutex);
  driver().pinned.emplace(reinterpret_cast<CUdeviceptr>(*data), bytes);
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned, CUpointer_attribute*, void** values, CUdeviceptr pointer) {
  REQUIRE_CONTEXT();
  *static_cast<unsigned*>(values[0]) =
      is_pinned(reinterpret_cast<const void*>(pointer)) ? CU_MEMORYTYPE_HOST : 0;
  return CUDA_SUCCESS;
}
/// Pageable sources are read before the call returns, page-locked ones when the stream comes to it.
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  if (is_pinned(from)) return enqueue(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  const std::string kept(static_cast<const char*>(from), bytes);
  return enqueue(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), kept.data(), bytes); });
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return enqueue(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return enqueue(
      stream, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes,
                           CUstream stream) {
  return cuMemcpyDtoDAsync(to, from, bytes, stream);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, count); });
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return enqueue(stream, [=] { std::fill_n(reinterpret_cast<unsigned short*>(to), count, value); });
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return enqueue(stream, [=] { std::fill_n(reinterpret_cast<unsigned*>(to), count, value); });
}

}  // extern "C"
