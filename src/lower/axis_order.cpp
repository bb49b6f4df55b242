#include "lower/axis_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace kiln::lower {

constexpr std::int64_t kSector = 32;  // bytes that memory moves at least

Order order_of(const Access& a) {
  Order order(a.strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto outer = [&](std::size_t axis) { return a.strides[axis] == 0 ? INT64_MAX : a.strides[axis]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return outer(x) > outer(y); });
  return order;
}

Cost cost_of(const Order& order, const std::vector<Group>& axes, const std::vector<Access>& accesses) {
  std::int64_t bytes = 0, loops = 1;
  for (const Access& a : accesses)
    bytes += std::min(a.strides[order.back()] * a.size, std::max<std::int64_t>(kSector, a.size));
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const Group &outer = axes[order[i]], &inner = axes[order[i + 1]];
    loops +=
        outer.reduced != inner.reduced || std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
          return a.strides[order[i]] != a.strides[order[i + 1]] * inner.extent;
        });
  }
  return {bytes, axes[order.back()].reduced, loops};
}

bool has_few_rows(const std::vector<Group>& axes, const std::vector<Access>& accesses, int processors) {
  constexpr std::int64_t kRowsEach = 16;
  std::int64_t rows = 1;
  for (const Group& g : axes)
    if (!g.reduced) rows *= g.extent;
  const auto walks = [&](const Access& a, bool reduced) {
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i].reduced == reduced && a.strides[i] != 0 && a.strides[i] != kFar) return true;
    return false;
  };
  return rows < kRowsEach * processors &&
         std::ranges::none_of(accesses, [&](const Access& a) { return walks(a, false) && walks(a, true); });
}

void keep_reduced_order(std::vector<Group>& axes, const std::vector<Group>& given, int levels) {
  for (int level = 0; level < levels; ++level) {
    const auto is_here = [&](const Group& g) { return g.reduced && g.level == level; };
    std::vector<Group> reduced;
    std::copy_if(given.begin(), given.end(), std::back_inserter(reduced), is_here);
    auto next = reduced.begin();
    for (Group& g : axes)
      if (is_here(g)) g = *next++;
  }
}

}  // namespace kiln::lower
