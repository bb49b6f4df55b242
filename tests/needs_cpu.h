// Tests of what only the CPU has: memory that is shared with the host, forks, instruction sets.
#pragma once

#include <kiln/config.h>

#include <gtest/gtest.h>

#define KILN_NEEDS_CPU()        \
  if (config().device != "cpu") \
  GTEST_SKIP() << "only for tensors on the CPU; the default device is " << config().device
