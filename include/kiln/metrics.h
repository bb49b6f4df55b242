// The counters of kiln/report.h as text, for programs that run for months. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/report.h>

#include <string>

namespace kiln {

/// In Prometheus' text format: "kiln_evaluations_total 12" with a line of help and one of type for each
/// counter. Times are in seconds.
std::string metrics_prometheus(const Statistics& counters = statistics());
/// As one JSON object, by the names of the struct's members; times in nanoseconds.
std::string metrics_json(const Statistics& counters = statistics());

}  // namespace kiln
