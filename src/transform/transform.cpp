#include "transform/transform.h"

#include "transform/align_orders.h"
#include "transform/arrange_operands.h"
#include "transform/cse.h"
#include "transform/dce.h"
#include "transform/find_products.h"
#include "transform/fold.h"
#include "transform/keep_numbers.h"
#include "transform/narrow_indices.h"
#include "transform/negate.h"
#include "transform/reduce_in_order.h"
#include "transform/reuse_products.h"
#include "transform/settle_parts.h"
#include "transform/share_reductions.h"
#include "transform/simplify.h"
#include "transform/split_joins.h"
#include "transform/sum_batches.h"
#include "transform/sum_products.h"
#include "transform/take_extremes.h"

#include <utility>
#include <vector>

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
  Transformed t{std::move(graph), {}, {}};
  const auto follow = [&](Renumbering step) {
    for (PatternNote& note : t.notes) {
      if (note.first != ir::kNoNode) note.first = step[note.first];
      if (note.last != ir::kNoNode) note.last = step[note.last];
    }
    if (t.now.empty()) {
      t.now = std::move(step);
      return;
    }
    for (ir::NodeId& id : t.now)
      if (id != ir::kNoNode) id = step[id];
  };
  if (wishes.patterns && any_patterns()) {
    follow(settle_parts(t.graph));
    follow(cse(t.graph));
    std::vector<PatternNote> notes;
    follow(apply_patterns(t.graph, *wishes.patterns, notes));
    t.notes = std::move(notes);
  }
  if (wishes.products_as_sums) follow(sum_products(t.graph));
  if (wishes.finds_products) follow(find_products(t.graph));
  for (const Pass& pass : kPasses) follow(pass.run(t.graph));
  if (wishes.sums_batches) {
    follow(sum_batches(t.graph));
    follow(dce(t.graph));
  }
  if (wishes.reuses_products) {
    follow(reuse_products(t.graph));
    follow(dce(t.graph));
  }
  if (wishes.extremes) {
    follow(take_extremes(t.graph));
    follow(dce(t.graph));
  }
  if (wishes.reduces_in_order) {
    follow(reduce_in_order(t.graph));
    follow(dce(t.graph));
  }
  if (wishes.narrow_indices) follow(narrow_indices(t.graph));
  if (wishes.arranges > 0) follow(arrange_operands(t.graph, wishes.arranges));
  if (wishes.turns_windows) {
    follow(wishes.turns_windows(t.graph));
    follow(dce(t.graph));
  }
  if (wishes.places_results) follow(wishes.places_results(t.graph));
  if (wishes.aligns_orders) follow(align_orders(t.graph));
  if (wishes.shares_reductions) {
    follow(share_reductions(t.graph, wishes.reductions->launch_bytes, wishes.reductions->held));
    follow(cse(t.graph));  // what others begin with may be one of the reductions
    follow(dce(t.graph));
  }
  if (wishes.reductions) follow(split_reductions(t.graph, *wishes.reductions));
  if (wishes.scans) follow(split_scans(t.graph, *wishes.scans));
  std::erase_if(t.notes, [](const PatternNote& note) { return note.last == ir::kNoNode; });
  for (PatternNote& note : t.notes)
    if (note.first == ir::kNoNode) note.first = note.last;
  return t;
}

}  // namespace kiln::transform
