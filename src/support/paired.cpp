#include "support/paired.h"

#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace kiln {

Interval median_ratio(const std::vector<double>& first, const std::vector<double>& second, double error) {
  KILN_CHECK_THAT(!first.empty() && first.size() == second.size(), "times come in pairs");
  const std::size_t n = first.size();
  std::vector<double> ratios(n);
  for (std::size_t i = 0; i < n; ++i) ratios[i] = first[i] / second[i];
  std::sort(ratios.begin(), ratios.end());
  // Each ratio lies below the median with probability 1/2: the k smallest all do, and no more, with that of k
  // heads of n coins.
  double heads = std::pow(0.5, static_cast<double>(n)), below = heads;
  std::size_t left_out = 0;  // at either end
  while (2 * below <= error) {
    ++left_out;
    heads *= static_cast<double>(n - left_out + 1) / static_cast<double>(left_out);
    below += heads;
  }
  const double median = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2;
  if (left_out == 0) return {0, median, std::numeric_limits<double>::infinity()};
  return {ratios[left_out - 1], median, ratios[n - left_out]};
}

}  // namespace kiln
