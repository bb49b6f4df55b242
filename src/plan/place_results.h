// place_results: the result of an attention is stored in the order in which its readers want it.
//
// Heads that a reshape joins, (batch, heads, rows, width) as (batch, rows, heads * width), are a copy of what
// the second product stores. A main loop of a GPU stores rows wherever they belong, so it stores that copy
// and nothing else; who reads the product in its own order reads it there.
#pragma once

#include "plan/attention.h"
#include "transform/replacement.h"

#include <vector>

namespace kiln::plan {

/// Products that look like an attention's second one, and whose axes are permuted before a reshape that joins
/// them, become views of an `arrange` of that order. Keeps every value to the bit.
transform::Renumbering place_results(ir::Graph& graph);

/// The one reader of each node; kNoNode: there is none, there are several, or the node is a root.
std::vector<NodeId> only_readers(const Graph& graph);

/// Takes the `arrange` of a result, if nobody else reads the result, into the attention.
void store_arranged(const Graph& graph, const std::vector<NodeId>& only_readers, Attention& attention);

}  // namespace kiln::plan
