#include "transform/transform.h"

#include "transform/cse.h"
#include "transform/dce.h"
#include "transform/fold.h"
#include "transform/negate.h"
#include "transform/simplify.h"
#include "transform/sum_products.h"

namespace kiln::transform {
namespace {

// cse comes first so that simplify sees equal operands as one, and again because simplified nodes become
// equal.
constexpr Pass kPasses[] = {{"cse", cse},   {"simplify", simplify}, {"negate", negate},
                            {"fold", fold}, {"cse", cse},           {"dce", dce}};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Transformed transform(ir::Graph graph, bool products_as_sums) {
  Transformed t{std::move(graph), {}};
  if (products_as_sums) t.now = sum_products(t.graph);
  for (const Pass& pass : kPasses) {
    Renumbering step = pass.run(t.graph);
    if (t.now.empty()) {
      t.now = std::move(step);
      continue;
    }
    for (ir::NodeId& id : t.now)
      if (id != ir::kNoNode) id = step[id];
  }
  return t;
}

}  // namespace kiln::transform
