// What the planner is told of a device: its capabilities and rates, and the numeric promises in force.
#include "device/device.h"
#include "engine/plan.h"
#include "support/thread_own.h"

#include <kiln/config.h>

namespace kiln::engine {

const schedule::Target& planning_target(Device device) {
  struct Kept {
    const schedule::Target* of = nullptr;
    int threads = 0, vector_bytes = 0;  // a CPU's change in place
    schedule::Target target;
  };
  Kept& kept = thread_own<Kept, Kept>();
  const schedule::Target& t = device::at(device).target();
  if (kept.of != &t || kept.threads != t.threads || kept.vector_bytes != t.vector_bytes)
    kept = {&t, t.threads, t.vector_bytes, t};
  kept.target.strict = config().strict;
  kept.target.exact = config().strict || config().deterministic;
  return kept.target;
}

}  // namespace kiln::engine
