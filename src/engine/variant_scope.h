// While a plan is made in adaptive mode: which variant of which unit it is to have for a trial, and which
// variants it could have. Plans of loops are made inside the plan that runs them, on the same thread, and
// share its scope.
#pragma once

#include "support/hash128.h"

#include <kiln/fusion_report.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace kiln::engine {

/// A variant of a unit.
struct Choice {
  Hash128 unit;
  FusionVariant variant{};
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// A variant that no verdict is known of.
struct Candidate {
  Choice choice;
  std::vector<FusionVariant> against;  // what is in force: see TriedVariant
  RegionKind kind{};
  std::int64_t bytes = 0;  // that the region moves
};

class VariantScope {
 public:
  /// `tried`: overrules what verdicts say of its unit.
  explicit VariantScope(std::optional<Choice> tried = {});
  ~VariantScope();
  VariantScope(const VariantScope&) = delete;
  VariantScope& operator=(const VariantScope&) = delete;

  /// The innermost of the thread; null: there is none, and plans follow from the model alone.
  static VariantScope* current();

  const std::optional<Choice> tried;
  std::vector<Candidate> candidates;

 private:
  VariantScope* const before_;
};

}  // namespace kiln::engine
