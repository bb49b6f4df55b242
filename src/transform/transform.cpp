#include "transform/transform.h"

#include <numeric>

namespace kiln::transform {

Transformed transform(ir::Graph graph) {
  std::vector<ir::NodeId> now(graph.size());
  std::iota(now.begin(), now.end(), ir::NodeId{0});
  return {std::move(graph), std::move(now)};
}

}  // namespace kiln::transform
