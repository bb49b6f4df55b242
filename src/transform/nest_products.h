// nest_products: products of every pair of rows whose results are only reduced along columns, as reductions
// that these go on from.
#pragma once

#include "ir/uses.h"
#include "transform/nouns.h"
#include "transform/replacement.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kiln::transform {

/// What is worth it for a target.
struct NestCosts {
  std::int64_t rows = 0;            // of results, at least, a block's, …
  std::int64_t results = 0;         // … and results that keep all multiprocessors busy; 0: nothing is
  std::int64_t pairs = 0;           // results from which on a nest has a main loop for pairs
  std::int64_t most_terms = 0;      // of a sum of Float32, which the library makes as fast
  std::int64_t most_of_halves = 0;  // … and of halves, which it makes by matrix units
};

/// The results of pairs (i, j) that are only reduced along j, in one sweep, or have one element of each row
/// picked. What else is made of them are maps.
class NestedPairs {
 public:
  NestedPairs(const Graph& graph, const NestCosts& costs);
  /// Whether a value is one of these; `picks`: rows may have elements picked.
  bool contains(NodeId id, bool picks = false) const;
  /// The same of a product of matrices with sums of no more terms than are worth it.
  bool is_product(NodeId id, bool picks = false) const;
  /// Whether a reduction is of pairs and has results that are only stored, with what maps make of them.
  bool is_stored(NodeId id) const;
  /// Whether a node picks one element of each row of an operand (…, n), along that axis.
  bool is_pick(NodeId id) const;

 private:
  bool reduces_columns(NodeId reader, std::size_t axis) const;
  bool is_large(const GraphNode& n) const;
  bool is_map(NodeId reader, const GraphNode& of) const;

  const Graph& g_;
  const NestCosts costs_;
  const ir::Uses uses_;
  std::vector<bool> root_;
};

/// A pick of such a product's element becomes the sum of what is that element, or else 0.
Renumbering sum_picks(Graph& graph, const NestCosts& costs);

/// matmul(x, y) → the sum over k of x[m, k]·y[k, n], in Float32, where nobody stores the product: a kernel
/// has both reductions, and no element of the product is in memory. Pre: verify(graph). Post: verify(graph).
Renumbering nest_products(Graph& graph, const NestCosts& costs);

}  // namespace kiln::transform
