// The kinds of error Kiln throws. Messages start with the operation: "[matmul] inner dimensions differ…".
#pragma once

#include <kiln/arguments.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kiln {

/// Base class of all exceptions that Kiln throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// A mistake of the caller: bad shapes, dtypes, arguments or environment values.
/// If the line of the call is known, what() ends with ", called at FILE:LINE".
class UserError : public Error {
 public:
  /// An error that a function of Kiln throws has the name and the line of the public call that the user made,
  /// whatever that function is made of.
  explicit UserError(const std::string& message);
  UserError(const std::string& message, const SourceLocation& called_at);
  /// what() without the line.
  std::string_view message() const noexcept { return std::string_view(what()).substr(0, length_); }
  /// The source line of the call; line() is 0 if the line is not known.
  const SourceLocation& where() const noexcept { return where_; }

 protected:
  struct AsIs {};
  UserError(const std::string& message, const SourceLocation& called_at, AsIs);

 private:
  SourceLocation where_{};
  std::size_t length_ = std::string_view::npos;
};
/// A mistake that shows only when values are computed: an index out of range or a NaN that KILN_CHECK
/// found.
class EvaluationError : public UserError {
 public:
  explicit EvaluationError(const std::string& message) : UserError(message, {}, AsIs{}) {}
};
/// A kernel could not be compiled; carries the compiler's log and the operations that made the kernel.
class CompileError : public Error {
 public:
  using Error::Error;
};
/// The device or the operating system failed: memory ran out, the device was lost.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A broken invariant inside Kiln: always a bug worth reporting.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace kiln
