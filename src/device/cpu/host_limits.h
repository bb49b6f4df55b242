// What the operating system lets this process use: control-group quotas (v1 and v2) and physical memory.
// A container often sees 64 cores and may use 2; a limit of any enclosing group binds.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::cpu {

/// Where the limits are read; tests point it at a made-up tree.
struct CgroupFiles {
  std::string root = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

/// CPUs' worth of time per period, or 0 when there is no quota.
double cpu_quota(const CgroupFiles& files = {});
/// Bytes the group may use, or 0 when there is no limit.
std::uint64_t memory_quota(const CgroupFiles& files = {});

/// CPUs of the affinity mask.
int affinity_cpus();
/// Bytes this process may use: physical memory, or less where a control group says so.
std::uint64_t memory_limit();

}  // namespace kiln::cpu
