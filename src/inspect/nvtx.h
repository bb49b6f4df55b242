// KILN_TRACE=nvtx: ranges of NVTX around the steps of plans, by which Nsight's tools (nsys, ncu) name kernels
// and show lines of the program. Without such a tool in the process a range costs a call.
#pragma once

#include <string>

namespace kiln::engine {

/// Whether KILN_TRACE asks for ranges. Cheap.
bool makes_ranges();

/// A range of the calling thread.
class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace kiln::engine
