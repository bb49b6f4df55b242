// write_out_sums: reductions of a few elements of pairs, of windows or of a stack, as the operations that
// they consist of.
#pragma once

#include "transform/nest_products.h"
#include "transform/replacement.h"

#include <cstdint>
#include <functional>

namespace kiln::transform {

/// What is worth it for a target.
struct TermCosts {
  std::int64_t most_terms = 0;     // of a reduction, or a product, …
  std::int64_t most_products = 0;  // … and of a product whose second operand has adjacent columns
  std::int64_t most_stored = 0;    // … where the results are stored
  std::int64_t pairs = 16;         // results that are made of an element of the larger operand, at least
  std::int64_t of_windows = 0;     // operations that a reduction of windows becomes at most
  double terms_per_ns = 0;         // of products, made rather than moved: 0: it does not matter, …
  std::function<double(double bytes)> moved_ns = {};  // … of elements that are stored and read
  NestCosts nests = {};                               // of reductions that are left to a nest
};

/// A reduction over one axis of few elements whose operand is made of pairs, f(x[i, k], y[j, k]), and a
/// matrix product with sums of few terms become maps where their results are only reduced further: so that of
/// Σₖ |x[i, k] - y[j, k]| the least over j is one reduction, whose threads keep what they know of their i,
/// and the results of all pairs are never in memory. So do reductions of windows that overlap, as those of
/// pooling and of convolutions by channels: a map's threads have several results side by side, and what these
/// share. So does a reduction across arrays that a join stacks, which are read where they lie then. Sums are
/// added up as Float32 or a wider type. Pre: verify(graph). Post: verify(graph).
Renumbering write_out_sums(ir::Graph& graph, const TermCosts& costs);

}  // namespace kiln::transform
