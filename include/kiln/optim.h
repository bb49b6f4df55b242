// Optimisers: functions that take one step on a tree of parameters (kiln/tree.h).
//
//     auto state = optim::adam_state(params);
//     for (int i = 0; i < steps; ++i) {
//       const auto [loss, gradients] = value_and_grad(…)(params);
//       optim::adam(params, gradients, state, {.rate = optim::cosine(1e-3, i, steps)});
//       tree_eval(params, state, loss);
//     }
//
// `params` and `state` are replaced by their next values; other handles of the old values keep them. A step
// is recorded like any other operation: the planner fuses the update of a parameter with what makes its
// gradient. States are trees of tensors, the number of steps included, so that they can be saved, carried
// through `scan`, and undone (`keep_if`). Rates and all other options are arguments of the kernels: other
// numbers compile nothing. A rate may be a tensor, too.
//
// Parameters are floats. A step on float16 or bfloat16 computes in float32, keeps its state in float32 and
// rounds the parameter once; to train in half types, keep float32 parameters and convert them inside the
// loss (`tree_astype`), so that small updates are not rounded away.
//
// UserError, with the path of the parameter, unless a gradient has its parameter's shape and the parameter
// is a float.
#pragma once

#include <kiln/ops.h>
#include <kiln/tree.h>

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kiln::optim {

/// What a step is multiplied with: a C++ number, or a float tensor of one element, which may be the argument
/// of a function that is recorded once (kiln/compile.h).
class Rate {
 public:
  template <class N>
    requires std::is_arithmetic_v<N>
  Rate(N number) : number_(static_cast<double>(number)) {}
  Rate(const Tensor& tensor) : tensor_(tensor) {}
  /// As a float32 scalar. UserError unless a tensor is a float of one element.
  [[nodiscard]] Tensor scalar() const;

 private:
  double number_ = 0;
  Tensor tensor_;  // empty: number_
};

namespace detail {
/// A call of an optimiser: its name and line for errors and reports, and what all parameters share.
struct Call {
  std::string_view op;
  SourceLocation loc;
  Tensor rate;         ///< a float32 scalar
  Tensor first = {};   ///< Adam's: rate / (1 - beta1^t)
  Tensor second = {};  ///< Adam's: 1 / sqrt(1 - beta2^t)
};
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------
// Stochastic gradient descent: velocity = momentum * velocity + g, p -= rate * velocity; without a state
// p -= rate * g. nesterov: p -= rate * (g + momentum * velocity). g is the gradient + decay * p.

struct SgdOptions {
  Rate rate = 1e-2;
  double momentum = 0.9;
  double decay = 0;  ///< of the parameters, as a part of the gradient (L2)
  bool nesterov = false;
};
template <Tree P>
struct SgdState {
  P velocity;
  KILN_FIELDS(velocity)
};

// ---------------------------------------------------------------------------------------------------------
// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1):
//   first = beta1 * first + (1 - beta1) * g,  second = beta2 * second + (1 - beta2) * g^2,
//   p -= rate * (first / (1 - beta1^t)) / (sqrt(second / (1 - beta2^t)) + eps), t = 1, 2, …
// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019): p -= rate * decay * p as
// well.

struct AdamOptions {
  Rate rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
};
struct AdamWOptions {
  Rate rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double decay = 1e-2;
  int decay_rank = 0;  ///< parameters of fewer axes do not decay: 2 spares biases and norms
};
template <Tree P>
struct AdamState {
  P first, second;
  Tensor steps;  ///< int32: steps taken
  KILN_FIELDS(first, second, steps)
};

// ---------------------------------------------------------------------------------------------------------
// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023):
//   p -= rate * (sign(beta1 * average + (1 - beta1) * g) + decay * p),
//   average = beta2 * average + (1 - beta2) * g.

struct LionOptions {
  Rate rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double decay = 0;
  int decay_rank = 0;
};
template <Tree P>
struct LionState {
  P average;
  KILN_FIELDS(average)
};

// ---------------------------------------------------------------------------------------------------------
// RMSprop (Hinton, 2012): square = alpha * square + (1 - alpha) * g^2, u = g / (sqrt(square) + eps),
// p -= rate * u; with momentum velocity = momentum * velocity + u, p -= rate * velocity.

struct RmspropOptions {
  Rate rate = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double momentum = 0;  ///< UserError unless 0, for a state without velocity
};
template <Tree P>
struct RmspropState {
  P square;
  std::optional<P> velocity;
  KILN_FIELDS(square, velocity)
};

// ---------------------------------------------------------------------------------------------------------
// Mixed precision. Gradients of a loss computed in float16 underflow; they are those of the loss times a
// scale, which falls when a gradient is not finite and rises after many steps in which all were:
//
//     const Tensor finite = optim::unscale(gradients, scale);   // gradients of scale * loss
//     const auto before = std::pair(params, state);
//     optim::adam(params, gradients, state);
//     optim::keep_if(finite, params, before.first);
//     optim::keep_if(finite, state, before.second);

struct LossScaleOptions {
  double growth = 2, backoff = 0.5;
  int interval = 2000;  ///< finite steps before it grows
};
struct LossScale {
  Tensor scale;   ///< float32: what to multiply the loss with
  Tensor finite;  ///< int32: steps since it changed last
  KILN_FIELDS(scale, finite)
};
[[nodiscard]] LossScale loss_scale(double scale = 65536, SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Schedules of rates: C++ numbers for step 0, 1, …

/// rate * (step + 1) / steps for the first `steps` steps, then rate.
[[nodiscard]] double warmup(double rate, Whole step, Whole steps);
/// From `rate` at step 0 to `last` at step `steps` and after it, along half a cosine.
[[nodiscard]] double cosine(double rate, Whole step, Whole steps, double last = 0);
/// rate * factor^(step / every), divided as integers. UserError for every < 1.
[[nodiscard]] double stairs(double rate, Whole step, Whole every, double factor = 0.1);

// ---------------------------------------------------------------------------------------------------------

namespace detail {

[[nodiscard]] Call call(std::string_view op, const Rate& rate, SourceLocation loc);
/// The same for a step of Adam, which it counts.
[[nodiscard]] Call adam_call(std::string_view op, const AdamWOptions& options, Tensor& steps,
                             SourceLocation loc);
/// Steps on one parameter at `path`. An empty velocity: none.
void sgd(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor* velocity,
         const SgdOptions& options);
void adamw(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& first, Tensor& second,
           const AdamWOptions& options);
void lion(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& average,
          const LionOptions& options);
void rmsprop(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& square,
             Tensor* velocity, const RmspropOptions& options);

/// 0 of x's shape in the dtype that steps compute in.
[[nodiscard]] Tensor zeros_for(std::string_view op, const TreePath& path, const Tensor& x,
                               SourceLocation loc);
template <Tree P>
[[nodiscard]] P zeros_for(std::string_view op, const P& params, SourceLocation loc) {
  return tree_map([&](const TreePath& path, const Tensor& x) { return zeros_for(op, path, x, loc); }, params);
}
[[noreturn]] void no_velocity(SourceLocation loc);

[[nodiscard]] Tensor global_norm(const std::vector<Tensor>& leaves, SourceLocation loc);
[[nodiscard]] Tensor clip_factor(const Tensor& norm, double most, SourceLocation loc);
[[nodiscard]] Tensor scaled(const Tensor& x, const Tensor& factor, SourceLocation loc);
[[nodiscard]] Tensor all_finite(const std::vector<Tensor>& leaves, SourceLocation loc);
[[nodiscard]] Tensor inverse(const LossScale& scale, SourceLocation loc);
void rescale(LossScale& scale, const Tensor& finite, const LossScaleOptions& options, SourceLocation loc);
void keep_if(const Tensor& condition, Tensor& now, const Tensor& before, SourceLocation loc);

}  // namespace detail

/// A velocity of 0.
template <Tree P>
[[nodiscard]] SgdState<P> sgd_state(const P& params, SourceLocation loc = SourceLocation::current()) {
  return {detail::zeros_for("sgd_state", params, loc)};
}
template <Tree P>
void sgd(P& params, const P& gradients, SgdState<P>& state, const SgdOptions& options = {},
         SourceLocation loc = SourceLocation::current()) {
  const detail::Call call = detail::call("sgd", options.rate, loc);
  kiln::detail::walk_trees(
      "sgd",
      [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& v) {
        detail::sgd(call, path, p, g, &v, options);
      },
      params, gradients, state.velocity);
}
/// Without momentum: p -= rate * g.
template <Tree P>
void sgd(P& params, const P& gradients, const Rate& rate, SourceLocation loc = SourceLocation::current()) {
  const detail::Call call = detail::call("sgd", rate, loc);
  kiln::detail::walk_trees(
      "sgd",
      [&](const TreePath& path, Tensor& p, const Tensor& g) { detail::sgd(call, path, p, g, nullptr, {}); },
      params, gradients);
}

/// Moments of 0, no steps taken.
template <Tree P>
[[nodiscard]] AdamState<P> adam_state(const P& params, SourceLocation loc = SourceLocation::current()) {
  return {detail::zeros_for("adam_state", params, loc), detail::zeros_for("adam_state", params, loc),
          Tensor(0, loc)};
}
template <Tree P>
void adamw(P& params, const P& gradients, AdamState<P>& state, const AdamWOptions& options = {},
           SourceLocation loc = SourceLocation::current()) {
  const detail::Call call = detail::adam_call("adamw", options, state.steps, loc);
  kiln::detail::walk_trees(
      "adamw",
      [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& first, Tensor& second) {
        detail::adamw(call, path, p, g, first, second, options);
      },
      params, gradients, state.first, state.second);
}
template <Tree P>
void adam(P& params, const P& gradients, AdamState<P>& state, const AdamOptions& options = {},
          SourceLocation loc = SourceLocation::current()) {
  const AdamWOptions all = {options.rate, options.beta1, options.beta2, options.eps, 0, 0};
  const detail::Call call = detail::adam_call("adam", all, state.steps, loc);
  kiln::detail::walk_trees(
      "adam",
      [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& first, Tensor& second) {
        detail::adamw(call, path, p, g, first, second, all);
      },
      params, gradients, state.first, state.second);
}

/// An average of 0.
template <Tree P>
[[nodiscard]] LionState<P> lion_state(const P& params, SourceLocation loc = SourceLocation::current()) {
  return {detail::zeros_for("lion_state", params, loc)};
}
template <Tree P>
void lion(P& params, const P& gradients, LionState<P>& state, const LionOptions& options = {},
          SourceLocation loc = SourceLocation::current()) {
  const detail::Call call = detail::call("lion", options.rate, loc);
  kiln::detail::walk_trees(
      "lion",
      [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& average) {
        detail::lion(call, path, p, g, average, options);
      },
      params, gradients, state.average);
}

/// A mean square of 0, and with `momentum` a velocity of 0.
template <Tree P>
[[nodiscard]] RmspropState<P> rmsprop_state(const P& params, Flag momentum = false,
                                            SourceLocation loc = SourceLocation::current()) {
  RmspropState<P> state = {detail::zeros_for("rmsprop_state", params, loc), std::nullopt};
  if (momentum) state.velocity = state.square;
  return state;
}
template <Tree P>
void rmsprop(P& params, const P& gradients, RmspropState<P>& state, const RmspropOptions& options = {},
             SourceLocation loc = SourceLocation::current()) {
  const detail::Call call = detail::call("rmsprop", options.rate, loc);
  if (state.velocity) {
    kiln::detail::walk_trees(
        "rmsprop",
        [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& square, Tensor& velocity) {
          detail::rmsprop(call, path, p, g, square, &velocity, options);
        },
        params, gradients, state.square, *state.velocity);
  } else {
    if (options.momentum != 0) detail::no_velocity(loc);
    kiln::detail::walk_trees(
        "rmsprop",
        [&](const TreePath& path, Tensor& p, const Tensor& g, Tensor& square) {
          detail::rmsprop(call, path, p, g, square, nullptr, options);
        },
        params, gradients, state.square);
  }
}

/// sqrt of the sum of the squares of all elements: a scalar of float32, or float64 where a leaf is.
template <Tree P>
[[nodiscard]] Tensor global_norm(const P& tree, SourceLocation loc = SourceLocation::current()) {
  return detail::global_norm(tree_leaves(tree), loc);
}
/// Multiplies all gradients with min(1, most / (norm + 1e-6)) and returns the norm that they had. float16 and
/// bfloat16 are widened to float32.
template <Tree P>
Tensor clip_by_global_norm(P& gradients, double most, SourceLocation loc = SourceLocation::current()) {
  const Tensor norm = global_norm(gradients, loc);
  const Tensor factor = detail::clip_factor(norm, most, loc);
  tree_for_each([&](Tensor& g) { g = detail::scaled(g, factor, loc); }, gradients);
  return norm;
}

/// Divides gradients of the scaled loss by the scale, widening float16 and bfloat16 to float32, and adjusts
/// the scale. Returns a bool scalar: whether all were finite.
template <Tree P>
[[nodiscard]] Tensor unscale(P& gradients, LossScale& scale, const LossScaleOptions& options = {},
                             SourceLocation loc = SourceLocation::current()) {
  const Tensor finite = detail::all_finite(tree_leaves(gradients), loc);
  const Tensor factor = detail::inverse(scale, loc);
  tree_for_each([&](Tensor& g) { g = detail::scaled(g, factor, loc); }, gradients);
  detail::rescale(scale, finite, options, loc);
  return finite;
}
/// The leaves of `now` become those of `before` where the bool scalar is false.
template <Tree T>
void keep_if(const Tensor& condition, T& now, const T& before,
             SourceLocation loc = SourceLocation::current()) {
  tree_for_each([&](Tensor& x, const Tensor& old) { detail::keep_if(condition, x, old, loc); }, now, before);
}

}  // namespace kiln::optim

namespace kiln {

/// The float leaves converted to `dtype`, the others as they are.
template <Tree T>
[[nodiscard]] T tree_astype(const T& tree, DType dtype, SourceLocation loc = SourceLocation::current()) {
  return tree_map([&](const Tensor& x) { return is_float(x.dtype(loc)) ? x.astype(dtype, loc) : x; }, tree);
}

}  // namespace kiln
