// transform: a recorded graph made smaller, as an ordered list of passes. Runs on a plan miss only.
//
// Every pass of the list keeps the value of every root and held node to the bit, NaN payloads apart. Recorded
// scalars are slots: no pass looks at their values.
#pragma once

#include "transform/block_rows.h"
#include "transform/expand_squares.h"
#include "transform/nest_products.h"
#include "transform/pad_products.h"
#include "transform/replacement.h"
#include "transform/split_keys.h"
#include "transform/split_reductions.h"
#include "transform/split_scans.h"
#include "transform/sum_vectors.h"
#include "transform/take_extremes.h"
#include "transform/user_patterns.h"
#include "transform/write_out_sums.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace kiln::transform {

struct Pass {
  const char* name;
  /// Post: verify(graph); roots keep their number and order; args and slots keep their numbers.
  Renumbering (*run)(ir::Graph& graph);
};
std::span<const Pass> passes();

struct Transformed {
  ir::Graph graph;
  Renumbering now;                 // of the node ids before
  std::vector<PatternNote> notes;  // of the graph as it is now
  /// Held nodes of the graph before whose values are made in blocks, never as a whole.
  std::vector<ir::NodeId> in_blocks;
};

/// What else is done for a target and the numeric promises in force.
struct Wishes {
  bool products_as_sums = false;     // without contractions, see sum_products.h
  std::optional<BlockCosts> blocks;  // of products whose rows are reduced, see block_rows.h
  TiledNodes tiled;                  // that no blocks are made of
  bool finds_products = false;       // the other way round, see find_products.h, …
  std::int64_t most_nested = 0;      // … of sums that are reduced further
  bool finds_logsumexps = false;     // of maxima and sums, see find_logsumexps.h
  /// Rows of a norm on chip; squares of others are expanded. Or nothing. See expand_squares.h.
  std::function<bool(const ReducedRows&)> keeps_rows;
  std::optional<VectorCosts> vectors;        // of products of a matrix and a vector, see sum_vectors.h
  std::optional<NestCosts> nests;            // of products whose rows are reduced, see nest_products.h
  std::optional<TermCosts> writes_out;       // of reductions of pairs, see write_out_sums.h
  bool sums_batches = false;                 // of products, see sum_batches.h
  bool reuses_products = false;              // for sums of others, see reuse_products.h
  std::optional<ReductionCosts> reductions;  // split where that is faster, see split_reductions.h
  bool shares_reductions = false;            // Pre: reductions. See share_reductions.h
  std::int64_t arranges = 0;   // results side by side from which on operands of pairs are arranged; 0: never
  bool aligns_orders = false;  // of operands of reductions, see align_orders.h
  bool reduces_in_order = false;                            // of memory, see reduce_in_order.h
  bool extremes = false;                                    // in place of sorts, see take_extremes.h, …
  SecondCosts seconds;                                      // … of two elements, too
  std::optional<PadCosts> pads;                             // of products, see pad_products.h
  bool narrow_indices = false;                              // of scatters, see narrow_indices.h
  std::function<Renumbering(ir::Graph&)> turns_windows;     // of products, see plan/turn_windows.h
  std::function<Renumbering(ir::Graph&)> multiplies_bytes;  // see plan/multiply_bytes.h
  Renumbering (*places_results)(ir::Graph&) = nullptr;      // of attentions, see plan/place_results.h
  std::optional<ScanCosts> scans;                           // likewise, see split_scans.h
  std::optional<KeyCosts> keys;                             // of attentions, see split_keys.h
  std::optional<PatternTarget> patterns;                    // of the program, see user_patterns.h
};

/// All passes in order. A root may become a leaf, a constant, or the same node as another root.
Transformed transform(ir::Graph graph, const Wishes& wishes = {});

}  // namespace kiln::transform
