// Scans down columns in chunks (schedule::Form::Chain): a warp has a tile of columns, whose lanes must be few
// idle. What cuts scans up otherwise (transform/split_scans.h) leaves those alone for which there are tiles.
#pragma once

#include <cstdint>

namespace kiln {

constexpr std::int64_t kLeastChainedRows = 256;  // fewer are scanned by a thread one after the other
constexpr std::int64_t kFewScansOfParts = 64;    // for each multiprocessor, of what keeps several values

/// Adjacent columns of a thread, `vector` or that halved, so that three quarters of the tiles of `across`
/// columns are columns; 0: there are too few.
constexpr int lanes_of_tile(std::int64_t across, int vector) {
  for (int lanes = vector; lanes > 0; lanes /= 2) {
    const std::int64_t tile = std::int64_t{32} * lanes;
    if (across % lanes == 0 && 4 * across >= 3 * ((across + tile - 1) / tile * tile)) return lanes;
  }
  return 0;
}

}  // namespace kiln
