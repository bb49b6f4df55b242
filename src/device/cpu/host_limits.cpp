#include "device/cpu/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

namespace kiln::cpu {
namespace {

/// The directories that may limit this process for one controller, innermost first. Inside a container the
/// path of /proc/self/cgroup may not exist below the mount; its ancestors and the mount itself still do.
std::vector<std::string> group_directories(const CgroupFiles& files, const std::string& controller) {
  std::vector<std::string> out;
  std::ifstream in(files.self);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    std::string base;
    if (names.empty()) {  // version 2: one hierarchy for all controllers
      base = files.root;
    } else if (("," + names + ",").find("," + controller + ",") != std::string::npos) {
      base = files.root + "/" + names;
      if (access(base.c_str(), F_OK) != 0) base = files.root + "/" + controller;
    } else {
      continue;
    }
    std::string path = line.substr(second + 1);
    while (!path.empty() && path != "/") {
      out.push_back(base + path);
      path.erase(path.find_last_of('/'));
    }
    out.push_back(base);
  }
  return out;
}

/// First whitespace-separated words of a file; empty when it cannot be read.
std::vector<std::string> words(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

double number(const std::string& word) {
  std::istringstream in(word);
  double value = 0;
  return in >> value ? value : 0;
}

/// The least positive value over all groups, or 0.
double least(const CgroupFiles& files, const std::string& controller,
             const std::function<double(const std::string& directory)>& read) {
  double out = 0;
  for (const std::string& directory : group_directories(files, controller)) {
    const double value = read(directory);
    if (value > 0) out = out > 0 ? std::min(out, value) : value;
  }
  return out;
}

}  // namespace

double cpu_quota(const CgroupFiles& files) {
  return least(files, "cpu", [](const std::string& directory) -> double {
    const auto v2 = words(directory + "/cpu.max");  // "max 100000" or "150000 100000"
    if (v2.size() == 2 && number(v2[1]) > 0) return number(v2[0]) / number(v2[1]);
    const auto quota = words(directory + "/cpu.cfs_quota_us"),
               period = words(directory + "/cpu.cfs_period_us");
    if (quota.size() == 1 && period.size() == 1 && number(period[0]) > 0)
      return number(quota[0]) / number(period[0]);  // -1: no quota
    return 0;
  });
}

std::uint64_t memory_quota(const CgroupFiles& files) {
  const double bytes = least(files, "memory", [](const std::string& directory) -> double {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"})
      if (const auto value = words(directory + name); value.size() == 1) return number(value[0]);
    return 0;
  });
  constexpr double kUnlimited = 0x1p62;  // version 1 spells "no limit" as a page-rounded INT64_MAX
  return bytes > 0 && bytes < kUnlimited ? static_cast<std::uint64_t>(bytes) : 0;
}

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1,
                  static_cast<int>(std::thread::hardware_concurrency()));  // more CPUs than a cpu_set_t holds
}

std::uint64_t memory_limit() {
  const auto physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  const std::uint64_t quota = memory_quota();
  return quota ? std::min(quota, physical) : physical;
}

}  // namespace kiln::cpu
