// Products with a row or an array added: where a device's library adds them to a matrix product before it
// rounds, a product and the sum that alone reads it become one library region.
#pragma once

#include "plan/fuse.h"

#include <functional>
#include <optional>

namespace kiln::plan {

/// The parts of a library region of two or three nodes: a product, perhaps its sum with a row, and perhaps
/// the sum of that with an array of its extents; under reshapes of the product and of the first sum. Or a
/// product whose sums become float32 unrounded (ir::Cast), and perhaps the sum with an array.
struct ProductRow {
  NodeId product, sum;                            // sum: the region's result
  NodeId cast = ir::kNoNode;                      // of the product; perhaps the result
  NodeId row = ir::kNoNode, whole = ir::kNoNode;  // what is added
};
ProductRow product_row(const Graph& graph, const Regions& regions, const Region& region);

/// The memory of a value that is one row of `length` adjacent elements, repeated. Nothing: it is not, or is
/// in no memory.
std::optional<Alias> repeated_row(const Graph& graph, const Regions& regions, NodeId id, std::int64_t length);
/// The memory of a value whose elements lie in row-major order. Nothing: they do not, or are in no memory.
std::optional<Alias> whole_array(const Graph& graph, const Regions& regions, NodeId id);

/// Joins the regions of such products and sums. A sum with an array leaves a region that stores it and does
/// more (a norm behind a residual): what is added is read by the product then, and the rest reads one array
/// less. `library_adds`: whether the library takes the addends with the product. Post: the region stands
/// where the sum's stood, or in front of it; the product is not stored.
void join_product_rows(const Graph& graph, Regions& regions,
                       const std::function<bool(const ProductRow&)>& library_adds);

}  // namespace kiln::plan
