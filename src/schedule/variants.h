// Other schedules of a region than the one that schedule() chooses: a small, named set, for adaptive mode to
// measure. The names are those of FusionVariant whose way is Schedule (kiln/fusion.def).
//
// Invariant: every variant is a schedule that lowering builds, of the same values. In the strict and the
// deterministic mode only variants are offered that give the same bits.
#pragma once

#include "schedule/schedule.h"

#include <kiln/fusion_report.h>

#include <optional>
#include <span>
#include <vector>

namespace kiln::schedule {

/// The schedule that variants make one after the other, or nothing: one of them is no schedule of this
/// region, or changes nothing. `chosen`: what schedule() gives for the same facts and target.
std::optional<Schedule> varied(std::span<const FusionVariant> variants, const Facts& facts,
                               const Target& target, const Schedule& chosen);

/// The variants that make one more schedule of the region after those that were taken, in the order in which
/// they are worth a trial.
std::vector<FusionVariant> alternatives(const Facts& facts, const Target& target, const Schedule& chosen,
                                        std::span<const FusionVariant> taken = {});

/// Called with every schedule that schedule() chooses for a CPU's region, for tests: it may change it. Null:
/// none.
using ScheduleHook = void (*)(const Facts&, Schedule&);
void set_schedule_hook(ScheduleHook hook);
ScheduleHook schedule_hook();

}  // namespace kiln::schedule
