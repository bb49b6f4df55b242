// make_again: rows of a product that wait for results of their own rows are made of a second product.
//
// Scores of an attention are read twice: by its result, and by its gradient, which waits for what the program
// makes of the result. Made once they would have to be kept between. Made again, each reader's rows can be
// made block by block (block_rows.h), or tile by tile.
#pragma once

#include "transform/replacement.h"
#include "transform/row_values.h"

namespace kiln::transform {

struct MadeAgain {
  Renumbering now;
  ir::NodeId first, second;  // the product, and what waits for results reads
};

/// Pre: `values`, found of the product, missed BlocksMeet. Post: verify(graph); values are kept to the bit.
MadeAgain make_again(ir::Graph& graph, ir::NodeId product, const RowValues& values);

}  // namespace kiln::transform
