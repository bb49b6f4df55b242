#include "backend/cuda/graph.h"

#include <cuda.h>

#include "backend/cuda/driver.h"
#include "backend/cuda/driver_api.h"
#include "backend/cuda/stream_state.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <map>

namespace kiln::cuda {
namespace {

/// A stream for recording alone: on a shared one, what another thread enqueues would be recorded too.
Stream capture_stream(int device) {
  struct Streams {
    std::map<int, Stream> by_device;
  };
  Stream& s = thread_own<Streams, Streams>().by_device[device];
  if (!s) s = new_stream(device);
  return s;
}

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
  std::swap(handle_, o.handle_);
  return *this;
}

Graph::~Graph() {
  if (!handle_ || ended()) return;
  try {
    const Enter in(device_);
    api().cuGraphExecDestroy(handle_);  // one under way is finished first
  } catch (...) {                       // the device is lost, and the graph with it
  }
}

void Graph::launch(Stream stream) const {
  KILN_CHECK_THAT(handle_ && stream->device == device_);
  const Enter in(device_);
  KILN_CU(in, cuGraphLaunch, handle_, stream->handle);
}

Graph capture(int device_index, const std::function<void()>& enqueue) {
  Graph out;
  out.device_ = device_index;
  const DriverApi& driver = api();
  if (!driver.cuStreamBeginCapture || !driver.cuStreamEndCapture || !driver.cuGraphInstantiateWithFlags ||
      !driver.cuGraphLaunch || !driver.cuGraphDestroy || !driver.cuGraphExecDestroy)
    return out;
  const Stream stream = capture_stream(device_index);
  const Enter in(device_index);
  // Relaxed: libraries may ask the driver for things that have nothing to do with the stream.
  if (driver.cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return out;
  bool whole = true;
  try {
    const CurrentStream here(device_index, stream);
    enqueue();
  } catch (...) {  // a failure that lasts comes again when the work is done without a graph
    whole = false;
  }
  CUgraph graph = nullptr;
  whole &= driver.cuStreamEndCapture(stream->handle, &graph) == CUDA_SUCCESS;
  if (whole && graph && driver.cuGraphInstantiateWithFlags(&out.handle_, graph, 0) != CUDA_SUCCESS) out.handle_ = nullptr;
  if (graph) driver.cuGraphDestroy(graph);
  return out;
}

}  // namespace kiln::cuda
