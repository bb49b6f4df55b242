// Products that are made again: two nodes with one value, each for readers of another time, so that the value
// need not be kept between them. Common subexpressions leave them apart.
#pragma once

#include "ir/graph.h"

namespace kiln::ir {

inline constexpr std::uint64_t kAgain = 1;

/// How often the product was made before. Products have no other attributes.
inline void mark_again(GraphNode& product, std::uint64_t times) { product.attr64 = kAgain * times; }

}  // namespace kiln::ir
