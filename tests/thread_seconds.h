// The time that a thread has computed.
#pragma once

#include <ctime>

namespace kiln::testing {

/// By the clock of the thread: other processes may run meanwhile.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace kiln::testing
