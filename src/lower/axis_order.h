// In which order loops may run over a region's axes, and what that costs.
#pragma once

#include "lower/region_parts.h"

#include <cstdint>
#include <tuple>
#include <vector>

namespace kiln::lower {

constexpr std::int64_t kFar = 1 << 20;  // elements from one to the next, of those that may be anywhere

/// An array that a region reads or writes: bytes of an element, and its strides along the axes.
struct Access {
  std::int64_t size;
  std::vector<std::int64_t> strides;
};

using Order = std::vector<std::size_t>;  // axes, outermost first

/// The order of the axes in which an access steps through memory.
Order order_of(const Access& a);

/// Bytes that an innermost step moves, whether the innermost axis is reduced, and loops: fewer are better, in
/// this order.
using Cost = std::tuple<std::int64_t, bool, std::int64_t>;
Cost cost_of(const Order& order, const std::vector<Group>& axes, const std::vector<Access>& accesses);

/// Whether rows are few for so many multiprocessors, and no element in memory belongs to one of them alone
/// and to one point along it, but for what indices choose: a team to each is worth more than what a step
/// reads. Reductions that depend on each other are not cut into chunks.
bool has_few_rows(const std::vector<Group>& axes, const std::vector<Access>& accesses, int processors);

/// Puts the reduced axes of each of `levels` back into the order that they have among each other in `given`.
void keep_reduced_order(std::vector<Group>& axes, const std::vector<Group>& given, int levels);

}  // namespace kiln::lower
