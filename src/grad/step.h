// Step: one recorded operation that a derivative goes through, and the rule that says how. There is one rule
// for each operation (rules.cpp); it records ordinary operations.
//
// A rule is linear in what it is given: `pull` takes the cotangent of the result back to the operands, `push`
// takes the operands' tangents on to the result. Of an elementwise operation both are one expression
// (elementwise.def).
#pragma once

#include "api/record.h"
#include "grad/call_rule.h"
#include "ir/operands.h"
#include "record/tape.h"

#include <span>
#include <string_view>
#include <vector>

namespace kiln::diff {

struct Step {
  static constexpr std::uint32_t kNone = ir::kNoNode;

  ir::NodeRef node;                 // the result
  ir::Edge edge;                    // what it was made of; of a `part`: what its bundle was made of
  std::vector<ir::NodeRef> others;  // of a `part`: the results after it
  ir::Operands from;                // per operand: the step that made it, if a primal is behind it
  const Step* all = nullptr;        // the list that `from` counts in
  // Of a call, which has no node: how it is differentiated. Of one of its results, whose only operand is the
  // call: which one it is.
  std::shared_ptr<const CallRule> call;
  int result_of_call = -1;

  std::span<const std::int64_t> dims() const { return node->dims(); }
  /// Of its derivatives: those of an 8-bit float are not rounded to its few bits.
  DType dtype() const { return computed_as(node->dtype); }
  bool wants(std::size_t k) const { return from[k] != kNone; }
  /// The step that made operand k. Pre: wants(k).
  const Step& before(std::size_t k) const { return all[from[k]]; }
  std::span<const std::int64_t> dims(std::size_t k) const;
  /// Operand k; of an immediate a scalar of its own.
  Tensor in(std::size_t k) const;
  Tensor result() const { return Tensor::adopt(ir::NodeRef::share(node.get()).take()); }
  template <class A>
  A attributes() const {
    return ir::attributes<A>(edge);
  }
};

inline Tensor shared(const ir::NodeRef& n) { return Tensor::adopt(ir::NodeRef::share(n.get()).take()); }

/// The operation of a step on other operands, which have the shapes of its own. Null: the immediate, which is
/// then `imm`.
Tensor replay(const Step& s, std::span<const Tensor> in, std::uint64_t imm);
inline Tensor replay(const Step& s, std::span<const Tensor> in) { return replay(s, in, s.edge.imm); }

/// Adds to `to`, for each operand that is wanted, its cotangent. Empty handles stay what nothing flows to.
using Pull = void (*)(const Step& s, const Tensor& g, std::span<Tensor> to);
/// The result's tangent. t[k]: operand k's tangent, an empty handle for 0; one at least is none.
using Push = Tensor (*)(const Step& s, std::span<const Tensor> t);

struct Rule {
  Pull pull = nullptr;
  Push push = nullptr;
  std::string_view why_not = {};  // of an operation without a derivative
  bool flat = false;              // the derivative is 0 wherever there is one
  bool by_call = false;           // it is a result of a loop, which is a call
};
/// The derivative of an operation. Of an op without an entry: no rule at all, which a test finds.
const Rule& rule_of(ir::Op op);

// ---- for rules ----

/// The sum of g, whose shape `dims` repeat to, over the repeated axes.
Tensor sum_to(const Tensor& g, std::span<const std::int64_t> dims);
/// Zeros, where x is.
Tensor zeros_of(std::span<const std::int64_t> dims, const ir::Node& like);
/// Adds to a sum that may be empty still.
void add_to(Tensor& sum, const Tensor& term);

}  // namespace kiln::diff
