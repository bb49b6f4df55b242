// Streams of other users of a GPU: what <kiln/gpu.h> and DLPack say about CUDA.
#pragma once

#include "record/node.h"

#include <kiln/gpu.h>

#include <string>

namespace kiln::engine {

/// Whether the process has the GPU of that number; if not, why.
bool has_gpu(int index, std::string& why_not);

/// Where this thread's work for a GPU goes from now on; what it was before, for restore_stream. DeviceError.
void* set_stream(Device device, void* handle);
void restore_stream(Device device, void* before);

/// This thread's work from now on comes after what a stream of somebody else's holds now…
void wait_for_stream(Device device, void* handle);
/// … and what is enqueued there from now on comes after this thread's work.
void let_stream_wait(Device device, void* handle);

/// Waits for everything that anybody has enqueued on the device; failures show elsewhere.
void rest(Device device) noexcept;

}  // namespace kiln::engine
