// A fixture whose programs are planned and emitted by the device that runs nothing.
#pragma once

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

namespace kiln::testing {

class OnNullDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.device = "null";
    options_.mode = Mode::Lazy;
    options_.strict = options_.deterministic = false;
    options_.check_nan = options_.check_diff = options_.check_bounds = false;
    use();
  }
  void TearDown() override {
    configure(before_);
    clear_memory_caches();
  }
  /// Begins with the options as they are now, and without plans.
  void use() {
    clear_memory_caches();
    configure(options_);
  }

  const Config before_ = config();
  Config options_ = before_;
};

}  // namespace kiln::testing
