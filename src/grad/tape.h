// Tape: one differentiated call of a function. It hands out aliases of the arguments (primals), runs nothing
// itself, and lists the operations between primals and results once the function has returned. From the list
// it makes cotangents (backward) and tangents (forward), as often as it is asked: they are ordinary recorded
// operations, which other tapes may list in their turn. An alias is a node of its own for each tape, so that
// derivatives of derivatives keep apart.
#pragma once

#include "grad/step.h"
#include "record/recorded.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kiln::diff {

class Tape {
 public:
  /// Opens. `op` begins the messages of errors.
  explicit Tape(std::string_view op) : op_(op), inside_(ir::recorded.whole > 0) {
    whole_.emplace();
    open_.emplace();
  }
  Tape(const Tape&) = delete;

  /// x under an identity that this tape knows. UserError unless x is a float.
  Tensor primal(const Tensor& x) {
    return primal(x, [] { return std::string("a state"); });
  }
  /// The same; `what` names it where it is none: "argument 0".
  Tensor primal(const Tensor& x, const std::function<std::string()>& what);
  /// Makes a primal of a node as it is.
  void cut_at(ir::NodeRef node);
  /// The function has returned these: lists the operations and closes.
  void close(std::span<const Tensor> results);
  /// The same for one result. UserError unless it is a float of one element.
  void close_loss(const Tensor& loss);

  /// The cotangents of the primals, in their order, from those of the results. UserError where shape or dtype
  /// of a cotangent is not its result's, and for an operation without a derivative.
  std::vector<Tensor> pull(std::span<const Tensor> cotangents) const;
  /// The same for a cotangent of 1.
  std::vector<Tensor> pull_loss() const;
  /// The tangents of the results from those of the primals. UserError likewise.
  std::vector<Tensor> push(std::span<const Tensor> tangents) const;

 private:
  void check_like(std::string_view what, std::size_t i, const Tensor& given, const ir::Node& like) const;
  using Terms = std::vector<std::vector<Tensor>>;  // for each step, what its readers make of its cotangent
  void pull_call(const Step& s, std::vector<Tensor> results, Terms& g) const;
  void pull_operation(const Step& s, const Tensor& g, std::vector<Tensor>& to, Terms& all) const;
  [[noreturn]] void refuse(const Step& s, std::string_view why) const;

  std::string_view op_;
  bool inside_;  // of another derivative
  std::optional<ir::WholeRecording> whole_;
  std::optional<ir::OpenTape> open_;
  std::vector<ir::NodeRef> primals_, results_;
  std::vector<Step> steps_;               // operands before results; the primals first
  std::vector<std::uint32_t> result_at_;  // the step of each result, or kNone
};

}  // namespace kiln::diff
