#include "engine/workspace.h"

#include <kiln/config.h>

namespace kiln::engine {

void prepare(Workspace& w, Device device, bool interpreted) {
  const Config& c = config();
  w.walk.block = w.walk.joined = false;
  w.checks = c.check_diff || c.check_nan || c.check_bounds;
  // Checks and the interpreter read the old values again.
  w.walk.donating = interpreted || w.checks ? -1 : ir::device_code(device);
  // Not where regions are ordered by a budget, nor where other plans are to run on the same arguments.
  w.walk.reusing = w.walk.donating >= 0 && c.memory_budget == 0 && c.adapt == Adapt::Off;
  const int wide = w.device->wide_access_bytes();
  w.walk.wide = wide > 1 ? wide : 0;
  w.walk.device = ir::device_code(device);
}

}  // namespace kiln::engine
