#include "transform/transform.h"

#include "transform/arrange_operands.h"
#include "transform/cse.h"
#include "transform/dce.h"
#include "transform/find_products.h"
#include "transform/fold.h"
#include "transform/keep_numbers.h"
#include "transform/negate.h"
#include "transform/settle_parts.h"
#include "transform/simplify.h"
#include "transform/split_joins.h"
#include "transform/sum_products.h"

namespace kiln::transform {
namespace {

// cse comes first so that simplify sees equal operands as one, and again because simplified nodes become
// equal.
constexpr Pass kPasses[] = {{"settle_parts", settle_parts}, {"cse", cse},       {"simplify", simplify},
                            {"split_joins", split_joins},   {"negate", negate}, {"fold", fold},
                            {"keep_numbers", keep_numbers}, {"cse", cse},       {"dce", dce}};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Transformed transform(ir::Graph graph, const Wishes& wishes) {
  Transformed t{std::move(graph), {}};
  const auto follow = [&](Renumbering step) {
    if (t.now.empty()) {
      t.now = std::move(step);
      return;
    }
    for (ir::NodeId& id : t.now)
      if (id != ir::kNoNode) id = step[id];
  };
  if (wishes.products_as_sums) follow(sum_products(t.graph));
  if (wishes.finds_products) follow(find_products(t.graph));
  for (const Pass& pass : kPasses) follow(pass.run(t.graph));
  if (wishes.arranges) follow(arrange_operands(t.graph));
  if (wishes.reductions) follow(split_reductions(t.graph, *wishes.reductions));
  if (wishes.scans) follow(split_scans(t.graph, *wishes.scans));
  return t;
}

}  // namespace kiln::transform
