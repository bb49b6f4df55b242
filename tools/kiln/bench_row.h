// One line of the bench: a workload in one mode, measured.
#pragma once

#include "backend/cpu/measure.h"
#include "workload.h"

#include <optional>
#include <string>
#include <vector>

namespace kiln::tool {

/// Below this many bytes caches, not memory, set the pace: no floor.
inline constexpr double kMemoryBound = 32 << 20;

struct Row {
  std::string workload, device = "cpu", dtype, mode;
  double median_ms = 0, min_ms = 0, max_ms = 0;
  int runs = 0;         // timed samples
  double floor_ms = 0;  // 0: none (too small to be bound by memory)
  double bytes = 0;     // the traffic that the floor and gbps count
  double gbps = 0;
  std::uint64_t kernels = 0, nodes = 0;
  std::optional<double> cold_ms;    // first evaluation in a new process, nothing cached
  std::optional<double> disk_ms;    // the same with the disk cache
  std::uint64_t disk_compiles = 0;  // kernels that the second process compiled all the same
  double host_us = 0;
  double max_err = 0, tolerance = 0;
  std::string remark;
  bool right() const { return max_err <= tolerance; }
};

/// Runs a workload in a mode ("fused" or "eager"). The floor is left to set_floor.
Row measure(const Workload& workload, const std::string& mode);
/// The floor of a measured row under these rates.
void set_floor(Row& row, const Workload& workload, const cpu::Ceilings& ceilings);

/// What `kiln bench --first NAME` does: the first evaluation of this process, as JSON on stdout.
void run_first(const Workload& workload);
/// Two new processes with one empty cache directory: fills cold_ms and disk_ms.
void measure_first(const Workload& workload, Row& row);

}  // namespace kiln::tool
