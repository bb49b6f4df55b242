// The target of tests that need no special one.
#pragma once

#include "schedule/schedule.h"

namespace kiln::schedule {

/// Two threads of a CPU with vectors of 64 bytes.
inline Target two_threads() {
  Target t;
  t.threads = 2;
  t.vector_bytes = 64;
  return t;
}

}  // namespace kiln::schedule
