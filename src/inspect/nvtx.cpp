// NVTX is a header of CUDA's toolkit, which asks the process for a tool by itself; a build without it has no
// ranges.
#include "inspect/nvtx.h"

#include "support/log.h"
#include "support/trace_option.h"

#include <kiln/config.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define KILN_HAS_NVTX 1
#else
#define KILN_HAS_NVTX 0
#endif

namespace kiln::engine {

bool makes_ranges() {
  const std::string& list = config().trace;
  if (list.empty() || !trace_has(list, "nvtx")) [[likely]]
    return false;
  if (!KILN_HAS_NVTX) warn_once("nvtx", "KILN_TRACE=nvtx: this build of Kiln has no NVTX");
  return KILN_HAS_NVTX;
}

#if KILN_HAS_NVTX
NvtxRange::NvtxRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
NvtxRange::~NvtxRange() { nvtxRangePop(); }
#else
NvtxRange::NvtxRange(const std::string&) {}
NvtxRange::~NvtxRange() = default;
#endif

}  // namespace kiln::engine
