// One launch for many small tensors: steps of a plan that run the same kernel and need not wait for each
// other become one step of several sets of arguments.
#pragma once

#include "engine/plan.h"
#include "support/hash128.h"

#include <functional>
#include <span>
#include <vector>

namespace kiln::engine {

/// Calls f(place, written) for every place that a step reads or writes.
void each_place(const Plan& plan, const Step& step, const std::function<void(const Place&, bool)>& f);

struct LaunchClass {
  Hash128 key;   // of the kernel
  int most = 1;  // sets of arguments that one launch of it takes
};

/// Pre: every step is of one launch; classes are parallel to plan.launches. Moves launches ahead to others of
/// their kernel, never before what they read is written; results and their order of computation stay what
/// they were. Returns for each launch of the new plan which one it was before. Lifetimes of buffers are not
/// looked at.
std::vector<std::uint32_t> group_launches(Plan& plan, std::span<const LaunchClass> classes);

/// Sets when the buffers' lives begin and end, from the steps as they are.
void set_lifetimes(Plan& plan);

/// Bytes of all buffers that live at once, at the worst step; results live to the end. Pre: set_lifetimes().
std::uint64_t peak_bytes(const Plan& plan);

}  // namespace kiln::engine
