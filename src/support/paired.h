// Paired comparisons: times of two ways that were taken in turn, pair by pair, so that slow and fast minutes
// of a machine fall on both.
#pragma once

#include <vector>

namespace kiln {

/// Where the median of a population lies, by order statistics: nothing is assumed of its distribution.
struct Interval {
  double low, median, high;
};

/// Of the ratios first[i] / second[i]. The median lies outside with a probability of at most `error`; below
/// so few pairs that no interval has that error (7 for 2 %) it is unbounded. Pre: equally many, at least one.
/// Source: David and Nagaraja, "Order Statistics", 2003, 7.1.
Interval median_ratio(const std::vector<double>& first, const std::vector<double>& second, double error);

}  // namespace kiln
