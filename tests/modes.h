// Runs a test's statements under every way of evaluating.
#pragma once

#include <kiln/config.h>

#include <gtest/gtest.h>

namespace kiln::testing {

class ModeScope {
 public:
  explicit ModeScope(Mode mode) : before_(config()) {
    Config options = before_;
    options.mode = mode;
    configure(options);
  }
  ~ModeScope() { configure(before_); }

 private:
  Config before_;
};

template <class F>
void in_every_mode(F f) {
  static constexpr const char* kNames[] = {"lazy", "eager", "interpret"};
  for (const Mode mode : {Mode::Lazy, Mode::Eager, Mode::Interpret}) {
    SCOPED_TRACE(kNames[static_cast<int>(mode)]);
    const ModeScope scope(mode);
    f();
  }
}

}  // namespace kiln::testing
