#include "device/cuda/graph.h"

#include <cuda.h>

#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/stream_state.h"
#include "support/check.h"

#include <map>
#include <mutex>
#include <vector>

namespace kiln::cuda {
namespace {

/// A stream for one recording alone: on a shared one, what another thread enqueues would be recorded too. The
/// next recording takes it again, of whichever thread.
class CaptureStream {
 public:
  explicit CaptureStream(int device) {
    {
      const std::lock_guard lock(idle().mutex);
      std::vector<Stream>& streams = idle().by_device[device];
      if (!streams.empty()) {
        stream_ = streams.back();
        streams.pop_back();
      }
    }
    if (!stream_) stream_ = new_stream(device);
  }
  ~CaptureStream() {
    const std::lock_guard lock(idle().mutex);
    idle().by_device[stream_->device].push_back(stream_);
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  struct Idle {
    std::mutex mutex;
    std::map<int, std::vector<Stream>> by_device;
  };
  static Idle& idle() {
    static Idle* const instance = new Idle;
    return *instance;
  }
  Stream stream_ = nullptr;
};

/// The thread's current stream of a device, for a scope.
class CurrentStream {
 public:
  CurrentStream(int device, Stream stream) : device_(device), before_(set_current_stream(device, stream)) {}
  ~CurrentStream() { set_current_stream(device_, before_); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  int device_;
  Stream before_;
};

}  // namespace

Graph& Graph::operator=(Graph&& o) noexcept {
  std::swap(device_, o.device_);
  std::swap(nodes_, o.nodes_);
  std::swap(recorded_, o.recorded_);
  std::swap(handle_, o.handle_);
  return *this;
}

Graph::~Graph() {
  if (!handle_ || ended()) return;
  try {
    const Enter in(device_);
    api().cuGraphExecDestroy(handle_);  // one under way is finished first
    api().cuGraphDestroy(recorded_);
  } catch (...) {  // the device is lost, and the graph with it
  }
}

void Graph::launch(Stream stream) const {
  KILN_CHECK_THAT(handle_ && stream->device == device_);
  const Enter in(device_);
  KILN_CU(in, cuGraphLaunch, handle_, stream->handle);
}

void Graph::set_arguments(std::size_t step, const Function& function, const LaunchShape& shape,
                          void** params) {
  KILN_CHECK_THAT(handle_ && nodes_[step]);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = function.handle;
  node.gridDimX = shape.grid[0];
  node.gridDimY = shape.grid[1];
  node.gridDimZ = shape.grid[2];
  node.blockDimX = shape.block[0];
  node.blockDimY = shape.block[1];
  node.blockDimZ = shape.block[2];
  node.sharedMemBytes = shape.dynamic_shared;
  node.kernelParams = params;
  const Enter in(device_);
  KILN_CU(in, cuGraphExecKernelNodeSetParams, handle_, nodes_[step], &node);
}

namespace {

/// The node that a recording stream's next one will follow; null where the driver does not say, or there are
/// several.
CUgraphNode latest_node(CUstream stream) {
#if CUDA_VERSION >= 13000
  CUstreamCaptureStatus status{};
  const CUgraphNode* latest = nullptr;
  std::size_t count = 0;
  const CUresult asked =
      api().cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &latest, nullptr, &count);
  if (asked == CUDA_SUCCESS && count == 1) return *latest;
#else
  (void)stream;
#endif
  return nullptr;
}

}  // namespace

bool graphs_change() {
  return CUDA_VERSION >= 13000 && api().cuStreamGetCaptureInfo && api().cuGraphExecKernelNodeSetParams;
}

Graph capture(int device_index, const std::function<void(std::size_t)>& enqueue, std::size_t steps) {
  Graph out;
  out.device_ = device_index;
  const DriverApi& driver = api();
  if (!driver.cuStreamBeginCapture || !driver.cuStreamEndCapture || !driver.cuGraphInstantiateWithFlags ||
      !driver.cuGraphLaunch || !driver.cuGraphDestroy || !driver.cuGraphExecDestroy)
    return out;
  const Enter in(device_index);
  const CaptureStream own(device_index);
  const Stream stream = own;
  // Relaxed: libraries may ask the driver for things that have nothing to do with the stream.
  if (driver.cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return out;
  bool whole = true;
  try {
    const CurrentStream here(device_index, stream);
    for (std::size_t step = 0; step < steps; ++step) {
      enqueue(step);
      if (graphs_change()) out.nodes_.push_back(latest_node(stream->handle));
    }
  } catch (...) {  // a failure that lasts comes again when the work is done without a graph
    whole = false;
  }
  whole &= driver.cuStreamEndCapture(stream->handle, &out.recorded_) == CUDA_SUCCESS;
  if (whole && out.recorded_ &&
      driver.cuGraphInstantiateWithFlags(&out.handle_, out.recorded_, 0) != CUDA_SUCCESS)
    out.handle_ = nullptr;
  if (!out.handle_ && out.recorded_) driver.cuGraphDestroy(std::exchange(out.recorded_, nullptr));
  return out;
}

}  // namespace kiln::cuda
