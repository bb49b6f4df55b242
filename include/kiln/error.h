// The four kinds of error Kiln throws. Messages start with the operation: "[matmul] inner dimensions differ…".
#pragma once

#include <stdexcept>
#include <string>

namespace kiln {

/// Base of everything Kiln throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The caller asked for something that has no meaning: bad shapes, dtypes, arguments, environment values.
class UserError : public Error {
 public:
  using Error::Error;
};
/// A kernel could not be compiled; carries the compiler's log and the operations that made the kernel.
class CompileError : public Error {
 public:
  using Error::Error;
};
/// The device or the operating system refused: out of memory, lost device.
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
