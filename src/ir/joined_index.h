// Several index tensors for x's leading axes become one of positions (api/indices.h). A position then no
// longer tells which index was out of range of which axis: under KILN_CHECK=bounds it stands for these two
// instead, so that the check can name what the user wrote. Such a position is out of range of anything that
// fits into memory.
#pragma once

#include <cstdint>

namespace kiln::ir {

/// Indices this far from 0 and farther are not told apart.
inline constexpr std::int64_t kFarIndex = std::int64_t{1} << 57;
inline constexpr std::int64_t kBadIndexBase = INT64_MIN, kBadIndexAxes = 16,
                              kBadIndexEnd = INT64_MIN + 2 * kBadIndexAxes * (kFarIndex + 1);

struct BadIndex {
  std::int64_t index;
  int axis;
};
/// Of an index in [-kFarIndex, kFarIndex].
constexpr std::int64_t bad_index_position(BadIndex bad) {
  return kBadIndexBase + bad.axis + (bad.index + kFarIndex) * kBadIndexAxes;
}
constexpr bool is_bad_index(std::int64_t position) { return position < kBadIndexEnd; }
constexpr BadIndex bad_index(std::int64_t position) {
  const std::int64_t code = position - kBadIndexBase;
  return {code / kBadIndexAxes - kFarIndex, static_cast<int>(code % kBadIndexAxes)};
}

}  // namespace kiln::ir
