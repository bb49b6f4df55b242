// A GPU with so many multiprocessors, as the tests of lowering have it.
#pragma once

#include "schedule/target.h"

namespace kiln::lower {

inline schedule::Target gpu_target(int multiprocessors = 4) {
  schedule::Target t;
  t.gpu = true;
  t.threads = multiprocessors;
  return t;
}

}  // namespace kiln::lower
