// block_rows: a product whose every reader reduces its rows is made a block of rows at a time.
//
// Cross-entropy of x·w reads the logits (m, n) once and leaves a number a row. As a whole they may be the
// largest array of a program by far. Here the rows are cut into blocks: slices of x, a product of each, what
// each row is reduced to, and a join of those few results. A plan's blocks follow each other, so that the
// memory of one block serves all. Any values of a row will do (maxima, sums of exponentials, an element
// picked, an argmax, a sort that keeps few), however they depend on each other, since no row is cut: each
// result is made of the same elements as before. Sums over the rows, such as the gradient by w, are added
// block by block where the order of additions is free; halves are added as floats.
//
// An attention that no main loop takes (doubles; gradients of floats on a GPU) is cut in the same way, a few
// of its matrices at a time: weights are rows that another product reads, the weights' cotangents a product
// that meets them. Its gradient makes the scores again (make_again.h).
#pragma once

#include "transform/replacement.h"
#include "transform/user_patterns.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::transform {

/// How large blocks are, and from when on there are some.
struct BlockCosts {
  std::int64_t block_bytes;   // of a product that the caches hold until it is read
  std::int64_t rows;          // of a block at least, where products take long: fewer read w too often …
  std::int64_t half_rows;     // … where halves are multiplied
  std::int64_t rows_a_term;   // … and where the sums are short: rows for each of their products
  std::int64_t saved_bytes;   // of memory, at least …
  std::int64_t saved_pairs;   // … where batches of products multiply others: weights of attentions
  bool products = false;      // rows may be operands of other products: no attention is looked for
  bool sums = false;          // sums over rows may be added block by block …
  std::int64_t sum_rows = 0;  // … of which products want so many: each reads and writes the gradient by w
  int processors = 0;         // that take a tile of a product each, in turns; 0: turns do not matter
};

/// The nodes that main loops make tile by tile: of attentions and their gradients.
using TiledNodes = std::function<std::vector<bool>(const ir::Graph&)>;

/// Pre: equal nodes are one (cse). Post: verify(graph); every root keeps its value, up to the order in which
/// another number of rows is multiplied. What is left of rows and held becomes a root, since nothing else
/// needs it as a whole: as a value of the whole product it would have been in memory. Adds to `notes` what
/// was cut and, of products that are large enough, which condition was missed; with numbers of the graph
/// afterwards.
/// Rows of products of a batch may be operands of other products where they are not `tiled`; if that is
/// empty, as the costs say.
Renumbering block_rows(ir::Graph& graph, const BlockCosts& costs, std::vector<PatternNote>& notes,
                       const TiledNodes& tiled = {});

}  // namespace kiln::transform
