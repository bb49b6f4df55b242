// Plans with one variant of one region, for a trial.
#pragma once

#include "engine/plan.h"
#include "engine/variant_scope.h"

#include <atomic>
#include <memory>
#include <span>
#include <vector>

namespace kiln::engine {

enum class LateCompile : int { Running, Done, Failed };

struct Challenger {
  std::shared_ptr<const Plan> plan;  // null: not yet, or there is none
  /// Not null: its kernels are being compiled; it can be made when they are.
  std::shared_ptr<std::atomic<LateCompile>> compiling;
};

/// The plan of the graph that has the variant, the verdicts that are there otherwise, and publishes what
/// `base` does. Nothing: there is no such plan.
Challenger make_challenger(const Walk& walk, ir::Graph graph, const std::vector<ir::NodeId>& ids,
                           const Plan& base, const Choice& choice);

/// Sets the steps in which two plans differ; false: in none.
bool find_difference(const Plan& a, const Plan& b, StepTimer& of_a, StepTimer& of_b);

/// Whether all code of a plan is machine code, or what a device without a compiler runs.
bool is_compiled(const Plan& plan);

/// Called for every region that is planned in adaptive mode, for tests: the way it is cut (of `ways`, or
/// none), and with no ways the variants of its schedule; instead of what verdicts say. Null: none.
using VariantHook = std::vector<FusionVariant> (*)(std::span<const FusionVariant> ways);
void set_variant_hook(VariantHook hook);

/// Gives a plan that was made in a scope its trial, if anything is left to be tried.
void begin_trial(Plan& plan, std::vector<Candidate> candidates);

}  // namespace kiln::engine
