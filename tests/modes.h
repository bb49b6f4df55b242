// Runs a test's statements under every way of evaluating.
#pragma once

#include <kiln/config.h>

#include <gtest/gtest.h>

namespace kiln::testing {

/// Options for the life of a scope.
class ModeScope {
 public:
  explicit ModeScope(Mode mode) : ModeScope(mode, config().tier) {}
  ModeScope(Mode mode, Tier tier) : before_(config()) {
    Config options = before_;
    options.mode = mode;
    options.tier = tier;
    configure(options);
  }
  ~ModeScope() { configure(before_); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Config before_;
};

/// What an evaluation may be run by, besides the interpreter: machine code fused and op by op, and the vm.
struct Engine {
  const char* name;
  Mode mode;
  bool vm;
};
inline constexpr Engine kEngines[] = {
    {"lazy", Mode::Lazy, false}, {"eager", Mode::Eager, false}, {"vm", Mode::Lazy, true}};

class EngineScope : ModeScope {
 public:
  explicit EngineScope(const Engine& e) : ModeScope(e.mode, e.vm ? Tier::Vm : config().tier) {}
};

template <class F>
void in_every_mode(F f) {
  for (const Engine& e : kEngines) {
    SCOPED_TRACE(e.name);
    const EngineScope scope(e);
    f();
  }
  SCOPED_TRACE("interpret");
  const ModeScope scope(Mode::Interpret);
  f();
}

}  // namespace kiln::testing
