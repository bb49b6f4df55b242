// One line of the bench: a workload in one mode, measured.
#pragma once

#include "bench_device.h"

#include <string>

namespace kiln::tool {

/// The workload's program with its inputs, which are the same for every mode.
Program made(const Workload& workload, bool tiny);

/// Runs it in a mode: "fused", "eager" or "vm". `first`: measures first evaluations too. Throws what
/// evaluating throws.
Row measure(const Workload& workload, const Program& program, const std::string& mode, bool first,
            BenchDevice& device);

/// Results on a few elements against float64, in a mode: no timing.
double few_elements_error(const Workload& workload, const std::string& mode);

/// What `kiln bench --first NAME` does: the first evaluation of this process, as JSON on stdout.
void run_first(const Workload& workload);

}  // namespace kiln::tool
