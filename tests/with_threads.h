// A fixture whose tests choose how many threads a CPU has; the options before come back behind each.
#pragma once

#include <kiln/config.h>

#include <gtest/gtest.h>

namespace kiln::testing {

class WithThreads : public ::testing::Test {
 protected:
  void use(int threads) {
    Config c = config();
    c.num_threads = threads;
    configure(c);
  }
  void TearDown() override { configure(before_); }

  const Config before_ = config();
};

}  // namespace kiln::testing
