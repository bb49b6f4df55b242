// Reshapes of axes that are made of parts, each with an extent and a step.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::plan {

/// Deals parts, in row-major order, to axes of other extents, from the last axis on; what is left of them
/// stays in `parts`. `scaled(part, extent, factor)`: a part with that extent, whose steps are `factor` times
/// as long. False: an axis would end inside a part at a position that does not divide it.
template <class Part, class Scaled>
bool deal_parts(std::vector<Part>& parts, ir::Dims to, std::vector<std::vector<Part>>& out,
                const Scaled& scaled) {
  out.assign(to.size(), {});
  for (std::size_t a = to.size(); a-- > 0;) {
    std::int64_t want = to[a];
    while (want > 1) {
      if (parts.empty()) return false;
      Part& last = parts.back();
      if (want % last.extent == 0) {
        want /= last.extent;
        out[a].insert(out[a].begin(), last);
        parts.pop_back();
      } else if (last.extent % want == 0) {
        out[a].insert(out[a].begin(), scaled(last, want, 1));
        last = scaled(last, last.extent / want, want);
        want = 1;
      } else {
        return false;
      }
    }
  }
  return true;
}

}  // namespace kiln::plan
