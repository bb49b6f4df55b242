// The operations between a tape's primals and results.
#pragma once

#include "grad/step.h"

namespace kiln::diff {

struct Listing {
  std::vector<Step> steps;  // the primals, in their order, then the rest: operands before results
  std::vector<std::uint32_t> result_at;  // the step of each result; Step::kNone: no primal is behind it
};

/// Every operation on a way from a primal to a result along floats, whichever thread recorded it, pending or
/// evaluated while the tape was open.
Listing list_steps(std::span<const ir::NodeRef> primals, std::span<const ir::NodeRef> results);

}  // namespace kiln::diff
