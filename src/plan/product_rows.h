// Products with a row added: where a device's library adds a row to a matrix product before it rounds, a
// product and the sum that alone reads it become one library region.
#pragma once

#include "plan/fuse.h"

#include <functional>
#include <optional>

namespace kiln::plan {

/// The parts of a library region of two nodes: sum = product + row, under reshapes of the product.
struct ProductRow {
  NodeId product, sum, row;
};
ProductRow product_row(const Graph& graph, const Region& region);

/// The memory of a value that is one row of `length` adjacent elements, repeated. Nothing: it is not, or is
/// in no memory.
std::optional<Alias> repeated_row(const Graph& graph, const Regions& regions, NodeId id, std::int64_t length);

/// Joins the regions of such products and sums. `library_adds`: whether the library takes the sum's row with
/// the product. Post: the region stands where the sum's stood; the product is not stored.
void join_product_rows(const Graph& graph, Regions& regions,
                       const std::function<bool(const ProductRow&)>& library_adds);

}  // namespace kiln::plan
