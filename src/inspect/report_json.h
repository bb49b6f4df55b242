// JSON of reports, beside the public to_json.
#pragma once

#include <kiln/fusion_report.h>

#include <string>
#include <string_view>

namespace kiln::engine {

/// One line for a later run of a plan: its number, runs, trigger, verdicts and times.
std::string run_to_json(const FusionReport& report);
/// Whether a line is one that run_to_json made.
bool is_run_json(std::string_view line);
/// Writes the verdicts and times of such a line into the report of its plan. False: it is another plan's.
bool merge_run_json(std::string_view line, FusionReport& report);

}  // namespace kiln::engine
