#include "transform/transform.h"

#include "transform/align_orders.h"
#include "transform/arrange_operands.h"
#include "transform/bits_of_floats.h"
#include "transform/center_products.h"
#include "transform/cse.h"
#include "transform/dce.h"
#include "transform/find_logsumexps.h"
#include "transform/find_products.h"
#include "transform/fold.h"
#include "transform/half_products.h"
#include "transform/join_rows.h"
#include "transform/keep_numbers.h"
#include "transform/narrow_indices.h"
#include "transform/negate.h"
#include "transform/pair_maxima.h"
#include "transform/reduce_in_order.h"
#include "transform/reuse_products.h"
#include "transform/settle_parts.h"
#include "transform/share_reductions.h"
#include "transform/simplify.h"
#include "transform/split_joins.h"
#include "transform/sum_batches.h"
#include "transform/sum_products.h"
#include "transform/sum_vectors.h"
#include "transform/take_extremes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kiln::transform {
namespace {

// cse comes first so that simplify sees equal operands as one, and again because simplified nodes become
// equal.
constexpr Pass kPasses[] = {{"settle_parts", settle_parts}, {"cse", cse},       {"simplify", simplify},
                            {"split_joins", split_joins},   {"negate", negate}, {"fold", fold},
                            {"keep_numbers", keep_numbers}, {"cse", cse},       {"dce", dce}};

void follow(Transformed& t, Renumbering step) {
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
}

/// Pre: equal nodes are one, and a pass ran before.
void block(Transformed& t, const BlockCosts& costs, const TiledNodes& tiled) {
  std::vector<PatternNote> notes;
  std::vector<bool> held;
  for (const ir::GraphNode& n : t.graph.nodes) held.push_back(n.held);
  const Renumbering before = t.now;
  follow(t, block_rows(t.graph, costs, notes, tiled));
  t.notes.insert(t.notes.end(), notes.begin(), notes.end());
  const auto cut = [](const PatternNote& note) { return note.why.reason() == FusionReason::InBlocks; };
  if (std::ranges::none_of(notes, cut)) return;
  for (ir::NodeId id = 0; id < before.size(); ++id)
    if (before[id] != ir::kNoNode && held[before[id]] && t.now[id] == ir::kNoNode) t.in_blocks.push_back(id);
  follow(t, cse(t.graph));
  follow(t, dce(t.graph));
}

/// Whether a graph has the first elements of an order.
bool orders_rows(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes,
                             [](const ir::GraphNode& n) { return n.op == ir::Op::sort_with_positions; });
}

void pad(Transformed& t, const PadCosts& costs) {
  follow(t, pad_products(t.graph, costs));
  follow(t, cse(t.graph));  // products of one operand share its copy
  follow(t, dce(t.graph));
}

/// Passes that change the order in which values are combined, or where they are stored.
void transform_for_target(Transformed& t, const Wishes& wishes) {
  if (wishes.sums_batches) {
    follow(t, sum_batches(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.keys) {
    follow(t, split_keys(t.graph, *wishes.keys));
    follow(t, dce(t.graph));
  }
  if (wishes.reuses_products) {
    follow(t, reuse_products(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.extremes) {
    follow(t, take_extremes(t.graph, wishes.seconds));
    follow(t, dce(t.graph));
  }
  if (wishes.reduces_in_order) {
    follow(t, reduce_in_order(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.pads) pad(t, *wishes.pads);
  if (wishes.narrow_indices) follow(t, narrow_indices(t.graph));
  if (wishes.arranges > 0)
    follow(t, arrange_operands(t.graph, wishes.arranges, wishes.nests.value_or(NestCosts{})));
  if (wishes.turns_windows) {
    follow(t, wishes.turns_windows(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.places_results) follow(t, wishes.places_results(t.graph));
  if (wishes.aligns_orders) follow(t, align_orders(t.graph));
  if (wishes.shares_reductions) {
    follow(t, share_reductions(t.graph, wishes.reductions->launch_bytes, wishes.reductions->held));
    follow(t, cse(t.graph));  // what others begin with may be one of the reductions
    follow(t, dce(t.graph));
  }
  if (wishes.keeps_rows) {
    const KeepsRows keeps = [&](const ReducedRows& rows, ir::NodeId reduction) {
      return wishes.keeps_rows(rows) &&
             !(rows.mixed && wishes.reductions && is_split(t.graph, reduction, *wishes.reductions));
    };
    follow(t, expand_squares(t.graph, keeps));
    follow(t, pair_maxima(t.graph, keeps));
    follow(t, cse(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.reductions) follow(t, split_reductions(t.graph, *wishes.reductions));
  if (wishes.shares_reductions) {
    follow(t, join_rows(t.graph, {.launch_bytes = wishes.reductions->launch_bytes}));
    follow(t, dce(t.graph));
  }
  if (wishes.scans) follow(t, split_scans(t.graph, *wishes.scans));
  if (wishes.multiplies_bytes) {
    follow(t, wishes.multiplies_bytes(t.graph));
    follow(t, dce(t.graph));
  }
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Transformed transform(ir::Graph graph, const Wishes& wishes) {
  Transformed t{std::move(graph), {}, {}, {}};
  if (has_stored_floats(t.graph)) follow(t, bits_of_floats(t.graph));
  if (wishes.patterns && any_patterns()) {
    follow(t, settle_parts(t.graph));
    follow(t, cse(t.graph));
    std::vector<PatternNote> notes;
    follow(t, apply_patterns(t.graph, *wishes.patterns, notes));
    t.notes = std::move(notes);
  }
  if (wishes.products_as_sums) {
    if (wishes.blocks) {
      follow(t, settle_parts(t.graph));
      follow(t, cse(t.graph));
      block(t, *wishes.blocks, wishes.tiled);
    }
    follow(t, sum_products(t.graph));
  }
  if (wishes.extremes && wishes.seconds.seconds && orders_rows(t.graph)) {
    follow(t, settle_parts(t.graph));
    follow(t, take_extremes(t.graph, wishes.seconds));  // so that a product is seen to be only reduced
    follow(t, dce(t.graph));
  }
  if (wishes.finds_logsumexps) {
    follow(t, find_logsumexps(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.finds_products) {
    follow(t, find_products(t.graph, wishes.most_nested));
    follow(t, half_products(t.graph));
    follow(t, dce(t.graph));
  }
  if (wishes.nests) {
    follow(t, center_products(t.graph, *wishes.nests));
    follow(t, dce(t.graph));
    follow(t, sum_picks(t.graph, *wishes.nests));
    follow(t, nest_products(t.graph, *wishes.nests));
    follow(t, dce(t.graph));
  }
  if (wishes.vectors) follow(t, sum_vectors(t.graph, *wishes.vectors));
  if (wishes.writes_out) follow(t, write_out_sums(t.graph, *wishes.writes_out));
  for (const Pass& pass : kPasses) follow(t, pass.run(t.graph));
  if (wishes.blocks && !wishes.products_as_sums) block(t, *wishes.blocks, wishes.tiled);
  transform_for_target(t, wishes);
  std::erase_if(t.notes, [](const PatternNote& note) { return note.last == ir::kNoNode; });
  for (PatternNote& note : t.notes)
    if (note.first == ir::kNoNode) note.first = note.last;
  return t;
}

}  // namespace kiln::transform
