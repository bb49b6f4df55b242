// split_scans: a scan along an axis that few others run beside becomes scans of its chunks, each beside the
// others, behind the totals of the chunks before.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// What decides whether a scan is split.
struct ScanCosts {
  std::int64_t wanted = 0;          // scans that keep a target busy when each is one thread's
  std::int64_t least = 1 << 16;     // elements from which that is worth two more kernels
  std::int64_t least_extent = 256;  // the same of a scan
  // Chunks beside few others go through shared memory (schedule::Form::Bunch), where they have room for so
  // many bytes, of which a thread has at most so many; 0: there is none.
  std::int64_t slab_bytes = 0, row_bytes = 0;
};

/// Values change in the last bits: sums are added up in another order. Not for the strict mode.
Renumbering split_scans(ir::Graph& graph, const ScanCosts& costs);

}  // namespace kiln::transform
