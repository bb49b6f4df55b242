// kiln::optim: the steps on one parameter, and what all parameters of a step share.
//
// Every scalar is an argument of a kernel. The walk merges equal scalars of one operation and line
// (docs/architecture.md), and all operations here have the caller's line; so the one number that changes from
// step to step, the rate, is a node of its own (`full`): its value cannot coincide with a constant's.
#include <kiln/optim.h>

#include "api/record.h"
#include "support/check.h"

#include <cmath>
#include <numbers>

namespace kiln::optim {
namespace {

/// The dtype a step on x computes in.
DType wide(DType t) { return t == DType::Float64 ? t : DType::Float32; }

/// Where a message is about: " layers.0.weight:", or nothing for the root.
std::string at(const TreePath& path) {
  const std::string name = path.str();
  return name.empty() ? "" : " " + name + ":";
}

/// A parameter and its gradient in the dtype of the step.
struct Operands {
  Tensor p, g;
};
Operands operands(std::string_view op, const TreePath& path, const Tensor& p, const Tensor& g) {
  if (!is_float(p.dtype()))
    throw UserError(cat("[", op, "]", at(path), " a parameter is a float, not ", api::describe(p)));
  if (!(p.shape() == g.shape()) || !is_float(g.dtype()))
    throw UserError(
        cat("[", op, "]", at(path), " parameter ", api::describe(p), ", gradient ", api::describe(g)));
  return {p.astype(wide(p.dtype())), g.astype(wide(p.dtype()))};
}

/// Whether AdamW and Lion let a parameter decay.
template <class Options>
bool decays(const Tensor& p, const Options& options) {
  return options.decay != 0 && p.rank() >= options.decay_rank;
}

void store(Tensor& p, const Tensor& next) { p = next.astype(p.dtype()); }

}  // namespace

double warmup(double rate, Whole step, Whole steps) {
  const std::int64_t i = step, n = steps;
  return i + 1 >= n ? rate : rate * static_cast<double>(i + 1) / static_cast<double>(n);
}

double cosine(double rate, Whole step, Whole steps, double last) {
  const std::int64_t i = step, n = steps;
  if (i >= n) return last;
  const double part = static_cast<double>(i) / static_cast<double>(n);
  return last + (rate - last) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

double stairs(double rate, Whole step, Whole every, double factor) {
  const std::int64_t i = step, n = every;
  if (n < 1) throw UserError(cat("[stairs] every = ", n, ", needs at least 1"));
  return rate * std::pow(factor, static_cast<double>(i / n));
}

LossScale loss_scale(double scale, SourceLocation loc) {
  return {Tensor(static_cast<float>(scale), loc), Tensor(0, loc)};
}

Tensor Rate::scalar() const {
  if (!tensor_.valid()) return full({}, number_);
  if (!is_float(tensor_.dtype()) || tensor_.numel() != 1)
    throw UserError(
        cat("[rate] a rate is a number or a float tensor of one element, not ", api::describe(tensor_)));
  return tensor_.reshape({}).astype(DType::Float32);
}

namespace detail {

Call call(std::string_view op, const Rate& rate, SourceLocation loc) {
  const CallScope scope(op, loc);
  return {op, loc, rate.scalar()};
}

Call adam_call(std::string_view op, const AdamWOptions& options, Tensor& steps, SourceLocation loc) {
  const CallScope scope(op, loc);
  steps = steps + 1;
  const Tensor t = steps.astype(DType::Float32);
  // 1 - beta^t as -expm1(t log beta): exact to float32 for beta near 1
  const Tensor first = -expm1(t * std::log(options.beta1)), second = -expm1(t * std::log(options.beta2));
  const Tensor rate = options.rate.scalar();
  return {op, loc, rate, rate / first, rsqrt(second)};
}

void sgd(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor* velocity,
         const SgdOptions& options) {
  const CallScope scope(call.op, call.loc);
  auto [wide_p, step] = operands(call.op, path, p, g);
  if (options.decay != 0) step = step + wide_p * options.decay;
  if (velocity) {
    *velocity = *velocity * options.momentum + step;
    step = options.nesterov ? step + *velocity * options.momentum : *velocity;
  }
  store(p, wide_p - call.rate * step);
}

void adamw(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& first, Tensor& second,
           const AdamWOptions& options) {
  const CallScope scope(call.op, call.loc);
  const auto [wide_p, wide_g] = operands(call.op, path, p, g);
  first = first * options.beta1 + wide_g * (1 - options.beta1);
  second = second * options.beta2 + wide_g * wide_g * (1 - options.beta2);
  Tensor step = call.first * first / (sqrt(second) * call.second + options.eps);
  if (decays(p, options)) step = step + call.rate * (wide_p * options.decay);
  store(p, wide_p - step);
}

void lion(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& average,
          const LionOptions& options) {
  const CallScope scope(call.op, call.loc);
  const auto [wide_p, wide_g] = operands(call.op, path, p, g);
  Tensor step = sign(average * options.beta1 + wide_g * (1 - options.beta1));
  average = average * options.beta2 + wide_g * (1 - options.beta2);
  if (decays(p, options)) step = step + wide_p * options.decay;
  store(p, wide_p - call.rate * step);
}

void rmsprop(const Call& call, const TreePath& path, Tensor& p, const Tensor& g, Tensor& square,
             Tensor* velocity, const RmspropOptions& options) {
  const CallScope scope(call.op, call.loc);
  const auto [wide_p, wide_g] = operands(call.op, path, p, g);
  square = square * options.alpha + wide_g * wide_g * (1 - options.alpha);
  Tensor step = wide_g / (sqrt(square) + options.eps);
  if (velocity) step = *velocity = *velocity * options.momentum + step;
  store(p, wide_p - call.rate * step);
}

Tensor zeros_for(std::string_view op, const TreePath& path, const Tensor& x, SourceLocation loc) {
  const CallScope scope(op, loc);
  if (!is_float(x.dtype()))
    throw UserError(cat("[", op, "]", at(path), " a parameter is a float, not ", api::describe(x)));
  return zeros_like(x, wide(x.dtype()));
}

void no_velocity(SourceLocation loc) {
  const CallScope scope("rmsprop", loc);
  throw UserError("[rmsprop] momentum needs a state with a velocity: rmsprop_state(params, true)");
}

Tensor global_norm(const std::vector<Tensor>& leaves, SourceLocation loc) {
  const CallScope scope("global_norm", loc);
  Tensor total = zeros({});
  for (const Tensor& x : leaves) {
    const Tensor v = x.astype(wide(x.dtype()));
    total = total + sum(v * v);
  }
  return sqrt(total);
}

Tensor clip_factor(const Tensor& norm, double most, SourceLocation loc) {
  const CallScope scope("clip_by_global_norm", loc);
  return minimum(full({}, most) / (norm + 1e-6), 1);
}

Tensor scaled(const Tensor& x, const Tensor& factor, SourceLocation loc) {
  const CallScope scope({}, loc);
  return x.astype(wide(x.dtype())) * factor;
}

Tensor all_finite(const std::vector<Tensor>& leaves, SourceLocation loc) {
  const CallScope scope("unscale", loc);
  Tensor out = full({}, true);
  for (const Tensor& x : leaves) out = logical_and(out, all(isfinite(x)));
  return out;
}

Tensor inverse(const LossScale& scale, SourceLocation loc) {
  const CallScope scope("unscale", loc);
  return 1 / scale.scale;
}

void rescale(LossScale& scale, const Tensor& finite, const LossScaleOptions& options, SourceLocation loc) {
  const CallScope scope("unscale", loc);
  const Tensor steps = scale.finite + 1;
  const Tensor grows = steps >= options.interval;
  const Tensor grown = where(grows, scale.scale * options.growth, scale.scale);
  scale.scale = where(finite, grown, scale.scale * options.backoff);
  scale.finite = where(logical_and(finite, logical_not(grows)), steps, 0);
}

void keep_if(const Tensor& condition, Tensor& now, const Tensor& before, SourceLocation loc) {
  const CallScope scope("keep_if", loc);
  now = where(condition, now, before);
}

}  // namespace detail

}  // namespace kiln::optim
