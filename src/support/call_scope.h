// CallScope: which public call this thread is in.
//
// A public function opens a scope with its name and its caller's source line. Functions that it is made of
// open scopes of their own; the outermost one counts. What is recorded or thrown meanwhile belongs to that
// call: a new node gets its line (ir::new_node), and a UserError its name and its line (the constructor of
// UserError). So nothing inside the library hands source lines on, and a composition needs no handler that
// renames errors.
#pragma once

#include <kiln/arguments.h>

#include <string_view>

namespace kiln {

class CallScope {
 public:
  /// Without a name, errors keep the name of the operation that threw them. `op` must outlive the scope.
  CallScope(std::string_view op, const SourceLocation& line) noexcept
      : op_(op), line_(line), outer_(current_) {
    if (outer_ == nullptr) current_ = this;
  }
  ~CallScope() { current_ = outer_; }
  CallScope(const CallScope&) = delete;

  std::string_view op() const { return op_; }
  const SourceLocation& line() const { return line_; }
  /// The outermost open scope of this thread, or null.
  static const CallScope* current() { return current_; }
  /// The line of the outermost open scope, or `own` where no scope is open.
  static SourceLocation line_or(const SourceLocation& own) { return current_ ? current_->line_ : own; }

 private:
  friend class OutsideCalls;
  static constinit thread_local const CallScope* current_;
  std::string_view op_;
  SourceLocation line_;
  const CallScope* outer_;
};

/// While one lives, what this thread records and throws belongs to no open scope: a function that the user
/// gave is running, whose operations have lines of their own, or an evaluation, whose errors name the
/// operations they are about.
class OutsideCalls {
 public:
  OutsideCalls() noexcept : call_(CallScope::current_) { CallScope::current_ = nullptr; }
  ~OutsideCalls() { CallScope::current_ = call_; }
  OutsideCalls(const OutsideCalls&) = delete;

 private:
  const CallScope* call_;
};

}  // namespace kiln
