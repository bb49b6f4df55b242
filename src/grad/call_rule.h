// CallRule: the derivative of a whole call: of a function with a derivative of its own (custom_vjp,
// checkpoint), and of a loop, whose body is not differentiated operation by operation.
#pragma once

#include <kiln/tensor.h>

#include <span>
#include <string_view>
#include <vector>

namespace kiln::diff {

class CallRule {
 public:
  virtual ~CallRule() = default;
  /// The cotangents of the operands, as far as `wanted`, from those of the results (empty handle: 0).
  virtual std::vector<Tensor> pull(std::span<const Tensor> g, const std::vector<bool>& wanted) const = 0;
  /// The tangents of the results from those of the operands (empty handle: 0).
  virtual std::vector<Tensor> push(std::span<const Tensor> t) const = 0;
};

}  // namespace kiln::diff
