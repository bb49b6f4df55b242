// What the planner is told of a device: capabilities and rates.
#include "device/cpu/threads.h"
#include "device/cuda/driver.h"
#include "engine/plan.h"
#include "math/expand.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace kiln::engine {
namespace {

/// A fixed table by compute capability: what a device of the generation's largest chip has; sizes are the
/// device's own.
schedule::Target gpu_target(int index) {
  const cuda::DeviceInfo& d = cuda::device(index);
  schedule::Target t;
  t.gpu = true;
  t.threads = d.sm_count;
  t.l2_bytes = static_cast<std::int64_t>(d.l2_bytes) / std::max(d.sm_count, 1);
  t.bytes_per_ns = d.major >= 10 ? 7000 : d.major == 9 ? 4000 : d.major == 8 && d.minor == 0 ? 1500 : 700;
  t.cached_bytes_per_ns = 2 * t.bytes_per_ns;
  t.prims_per_ns = 64.0 * d.sm_count;
  t.launch_ns = 3000;
  t.op_cost = lower::op_costs(true);
  return t;
}

/// Threads that deterministic plans are made for, however many there are.
constexpr int kPlannedThreads = 16;

/// The numeric promise in force.
void promise(schedule::Target& t) {
  t.strict = config().strict;
  t.exact = config().strict || config().deterministic;
}

}  // namespace

const schedule::Target& planning_target(Device device) {
  if (device.kind == Device::Kind::Cuda) {
    struct Targets {
      std::map<int, schedule::Target> by_index;
    };
    auto& targets = thread_own<Targets, Targets>().by_index;
    auto it = targets.find(device.index);
    if (it == targets.end()) it = targets.emplace(device.index, gpu_target(device.index)).first;
    promise(it->second);
    return it->second;
  }
  struct Kept {
    schedule::Target target;
    std::string level = "?";
    int threads = -1;
  };
  auto& [t, level, threads] = thread_own<Kept, Kept>();
  const int wanted = config().deterministic ? kPlannedThreads : cpu::thread_count();
  if (threads != wanted || level != config().cpu_target) {
    const cpu::CpuTarget host = cpu::host_target();
    level = config().cpu_target;
    threads = wanted;
    t = {};
    t.threads = threads;
    t.vector_bytes = host.vector_bytes;
    t.fma = host.fma;
    t.l2_bytes = host.l2_bytes;
    // A fixed table by width and thread count, close to a server core of 3 GHz.
    t.bytes_per_ns = std::min(15.0 * threads, 200.0);
    t.cached_bytes_per_ns = 60.0 * threads;
    t.prims_per_ns = 4.0 * (host.vector_bytes / 4) * threads;
    static const std::vector<float> costs = lower::op_costs(false);
    t.op_cost = costs;
  }
  promise(t);
  return t;
}

}  // namespace kiln::engine
