// Call: one operation of a device's library on whole arrays, in one form for every op; Routine: how a device
// does an op.
//
// To add an op: a KILN_LIBRARY row of ir/structural.def, and for each device a function NAME_routine
// (declared by cpu/routines.h and cuda/routines.h) that returns its Routine. Planning, lifetimes, running and
// logging follow from the node.
#pragma once

#include "device/launch.h"
#include "ir/attributes.h"
#include "library/choices.h"
#include "library/library.h"

#include <kiln/device.h>
#include <kiln/fusion_report.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace kiln::library {

struct Operand {
  DType dtype = DType::Float32;
  Array array;
};

/// results = op(operands), all of them in the memory of one device.
struct Call {
  static constexpr std::size_t kMostOperands = 8, kMostResults = 4;
  ir::Op op = ir::Op::matmul;
  std::uint64_t attr64 = 0;  // the node's attributes: ir::attributes<ir::Sort>(call)
  std::span<const std::int64_t> attrs;
  bool strict = false;  // the numeric promises in force: see schedule::Target
  bool exact = false;
  bool tf32 = false;
  Device device;
  std::array<Operand, kMostOperands> operands;
  std::size_t n_operands = 0;
  DType dtype = DType::Float32;  // of the first result, as the extents. Results are row-major
  int rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  void* out = nullptr;                           // the first result
  std::array<void*, kMostResults - 1> others{};  // the results after it
  std::uint32_t wanted = 1;                      // bit set of the results that somebody asks for
  const device::Bound* epilogue = nullptr;       // of a product on a CPU: see Matmul
  Maker maker;                                   // of the operand that Routine::made_in_pieces() names
  Variants ways;                                 // of Routine::ways(), together
};
inline bool is_wanted(const Call& call, std::size_t result) { return (call.wanted >> result & 1) != 0; }

inline ir::Stored stored(const Call& call) { return {call.attr64, call.attrs}; }

/// How a kernel on a GPU that makes an operand of a call does the call's own work: it counts the elements,
/// see kernel::Tally.
struct Counting {
  std::size_t indices = 0, number = 0;  // operands
  std::int64_t places = 0;
  std::uint8_t log_copies = 0;
  bool halves = false;
  std::uint32_t threads = 0, blocks = 0, shared_bytes = 0;  // of a launch, at most
};

/// A call of which everything is known but memory: run() finds nothing out again.
class FixedCall {
 public:
  FixedCall() = default;
  FixedCall(const FixedCall&) = delete;
  FixedCall& operator=(const FixedCall&) = delete;
  virtual ~FixedCall() = default;
  /// As Routine::run, with these addresses of the operands and of the first result, and this epilogue. From
  /// any threads at once.
  virtual void run(std::span<const std::byte* const> operands, void* out,
                   const device::Bound* epilogue) const = 0;
};

/// How one device does one op.
class Routine {
 public:
  virtual ~Routine() = default;
  /// False: not with these dtypes, extents and strides. Addresses are not looked at.
  virtual bool supports(const Call&) const { return true; }
  /// run() does nothing but enqueue work, which may be enqueued again with the same memory: it can be part of
  /// a graph.
  virtual bool is_recordable(const Call&) const { return false; }
  /// The result may take the place of the first operand, where nobody else reads that.
  virtual bool overwrites_first() const { return false; }
  /// The number of an operand that a kernel may make in pieces, or -1: see Maker.
  virtual int made_in_pieces(const Call&) const { return -1; }
  /// How a kernel that makes an operand may do all of the call, where the result is in the first operand's
  /// memory; or nothing.
  virtual std::optional<Counting> counted(const Call&) const { return {}; }
  /// Other ways to run the call with the same results to the bit, for adaptive mode to measure: each together
  /// with those that the call has.
  virtual std::vector<FusionVariant> ways(const Call&) const { return {}; }
  /// Compiles what run() will need, when it is planned. UserError where it cannot run: of what the user gave.
  virtual void prepare(const Call&) const {}
  /// The call for all its runs, with an epilogue of that launch where it has one; null where run() has little
  /// to find out, or wants a workspace. It looks at no address, and keeps no pointer of the call.
  virtual std::shared_ptr<const FixedCall> fixed(const Call&) const { return nullptr; }
  /// Bytes of 64-byte aligned memory (256 on a GPU) that run() wants.
  virtual std::size_t workspace_bytes(const Call&) const { return 0; }
  /// Pre: supports(call). On a GPU it is enqueued on the thread's stream. CompileError, DeviceError.
  /// The workspace begins at a multiple of 64 bytes.
  virtual void run(const Call& call, std::byte* workspace) const = 0;
};

/// Pre: info(op) is a library op or a contraction.
const Routine& routine(ir::Op op, Device device);

/// A row of a device's table of routines, which its `routine(op)` makes from structural.def.
struct OpRoutine {
  ir::Op op;
  const Routine& (*routine)();
};
const Routine& routine_of(std::span<const OpRoutine> all, ir::Op op);

/// Calls as the libraries take them. A product's operands after the second are added to it: a row of adjacent
/// elements, its bias, and an array of its extents.
Matmul matmul_of(const Call& call);
Sort sort_of(const Call& call);
Search search_of(const Call& call);
Scatter scatter_of(const Call& call);

}  // namespace kiln::library
