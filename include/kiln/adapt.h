// What adaptive mode (KILN_ADAPT, Config::adapt) has measured. docs/adaptive.md. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/fusion_report.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {

/// Comparisons of one variant with what the planner had chosen, over all regions of one kind that this
/// process has met: those measured in it, and those that the disk cache had verdicts of.
struct AdaptResult {
  FusionVariant variant{};
  RegionKind kind{};
  std::uint64_t tried = 0;  ///< comparisons that ended
  std::uint64_t won = 0;    ///< after which the variant was taken
  /// Geometric mean, over those that won, of (time before / time with the variant); 1 where none did.
  double gain = 1;
  bool operator==(const AdaptResult&) const = default;
};

/// Ordered by variant, then by kind. Safe from any thread.
std::vector<AdaptResult> adapt_results();
/// The same of every verdict in the disk cache that the options name, whatever its device. Damaged verdicts
/// and those of other versions are left out.
std::vector<AdaptResult> kept_adapt_results();
/// A table of results for people; empty where there are none.
std::string to_text(const std::vector<AdaptResult>& results);

}  // namespace kiln
