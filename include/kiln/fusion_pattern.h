// Patterns: a program's own rules of fusion. A pattern says which operations it means, when it holds, and
// what happens then: a hand-written kernel computes them, or the planner stores a value that it would fuse.
//
//     namespace f = kiln::fusion;
//     const f::ScopedPattern geglu({
//         .name = "geglu",
//         .match = f::op("multiply", f::op("gelu", f::any("gate")), f::any("up")),
//         .legal = [](const f::Match& m) {
//           return m["gate"].dtype == kiln::DType::Float32 ? "" : "gate is no float32";
//         },
//         .kernel = my_geglu,  // a kiln::CustomKernel
//         .operands = {"gate", "up"},
//     });
//
// Patterns are tried on every graph that is planned while they are in force, the latest first, before Kiln's
// own rules. One that matches and does not hold is a near miss in the report (kiln/fusion_report.h) with the
// condition that failed. docs/custom-kernels.md has the rules. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/custom_kernel.h>
#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::fusion {

class Term {
 public:
  struct Node;
  /// Null: an empty term, which matches nothing.
  const Node* node() const { return node_.get(); }

 private:
  friend Term any(std::string name);
  friend Term number(std::string name);
  friend Term operation(std::string name, std::string as, std::vector<Term> operands);
  std::shared_ptr<const Node> node_;
};

/// Any value. Places with one name are one value.
[[nodiscard]] Term any(std::string name);
/// A C++ number that the program wrote. Its value is not known: another number needs no other plan.
[[nodiscard]] Term number(std::string name);
/// An operation by its name in reports ("multiply", "reduce_sum", "matmul", "reshape", or a custom kernel's),
/// of these operands. Operands of an operation that commutes match in either order. `as` names its value for
/// the legality test, or is empty.
[[nodiscard]] Term operation(std::string name, std::string as, std::vector<Term> operands);
template <class... T>
[[nodiscard]] Term op(std::string name, T... operands) {
  return operation(std::move(name), {}, {std::move(operands)...});
}
/// A value that a pattern met.
struct Value {
  std::string op;  ///< what computes it; "leaf": it is in memory
  DType dtype = DType::Float32;
  Shape shape;
  std::vector<std::int64_t> axes;  ///< of a reduction or scan: its axes
  SourceLocation line;             ///< that recorded it
};

/// Where a pattern matched.
class Match {
 public:
  /// A value by its name in the pattern. UserError if the pattern has no such name.
  const Value& operator[](std::string_view name) const;
  /// What the operations compute together.
  const Value& result() const { return result_; }

 private:
  friend struct MatchAccess;
  std::vector<std::pair<std::string, Value>> values_;
  Value result_;
};

/// What the planner is to do where a pattern without a kernel holds.
enum class Hint : std::uint8_t {
  None,   ///< nothing: the pattern is there for its conditions, which the report shows
  Apart,  ///< the result is stored, and its readers are other kernels
};

struct Pattern {
  /// In reports. KILN_FUSE_OFF=user.NAME switches the pattern off; KILN_FUSE=0 switches off all.
  std::string name;
  Term match;
  /// Empty: the pattern holds; else why not, for the report. It must depend on the match alone: plans are
  /// kept. It may be called by several threads at the same time. None: it always holds.
  std::function<std::string(const Match& match)> legal = {};
  /// Computes the result from `operands`, names of the pattern, in place of the operations; it has one result
  /// of their shape and dtype. Values inside the pattern that something else reads too make it a near miss,
  /// and so does the strict mode, whose bits are those of the operations. In the deterministic mode the
  /// kernel needs same_bits.
  std::optional<CustomKernel> kernel = {};
  std::vector<std::string> operands = {};
  /// Numbers of the kernel.
  std::function<std::vector<std::int64_t>(const Match& match)> numbers = {};
  Hint hint = Hint::None;  ///< of a pattern without a kernel
};

/// A pattern is in force, in all threads, while one lives. UserError: no name or one of another pattern in
/// force, no match or one that is no operation, an operation that does not exist, operands that the match
/// does not name, a kernel and a hint. Begin and end it while no other thread evaluates.
class ScopedPattern {
 public:
  explicit ScopedPattern(Pattern pattern, SourceLocation loc = SourceLocation::current());
  ~ScopedPattern();
  ScopedPattern(const ScopedPattern&) = delete;
  ScopedPattern& operator=(const ScopedPattern&) = delete;

 private:
  std::uint64_t number_;
};

}  // namespace kiln::fusion
