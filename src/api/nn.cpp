// kiln::nn: compositions of public operations and nothing more. Halves are computed in float32, as every
// framework does for normalisations and losses.
#include <kiln/nn.h>

#include "api/record.h"
#include "support/check.h"

namespace kiln::nn {
namespace {

/// x in the dtype these functions compute in; integers become float32.
Tensor widened(std::string_view op, const Tensor& x, SourceLocation loc) {
  const DType t = api::checked(op, x)->dtype;
  return is_float(t) && !is_half(t) ? x : x.astype(DType::Float32, loc);
}

DType result_dtype(const Tensor& x) { return is_float(x.dtype()) ? x.dtype() : DType::Float32; }

Tensor reduced(const Tensor& losses, Reduction reduction, SourceLocation loc) {
  switch (reduction) {
    case Reduction::None: return losses;
    case Reduction::Mean: return mean(losses, all_axes, false, loc);
    case Reduction::Sum: return sum(losses, all_axes, false, loc);
  }
  return losses;
}

Operand at(const Tensor& t, SourceLocation loc) { return {t, loc}; }
Operand at(double value, SourceLocation loc) { return {value, loc}; }

/// x * weight + bias, for the handles that are not empty.
Tensor affine(Tensor x, const Tensor& weight, const Tensor& bias, SourceLocation loc) {
  if (weight.valid()) x = multiply(x, at(weight, loc));
  if (bias.valid()) x = add(x, at(bias, loc));
  return x;
}

/// A parameter for `axis` of x: a (channels,) vector, or an empty handle.
const Tensor& fitting(std::string_view op, const Tensor& v, const Tensor& x, Axis axis) {
  const std::int64_t channels =
      x.node()->dims()[static_cast<std::size_t>(api::checked_axis(op, axis, x.node()))];
  if (v.valid() && (v.rank() != 1 || v.dim(0) != channels))
    throw UserError(cat("[", op, "] a parameter is ", api::describe(v), ", axis ", axis.value(), " of ",
                        api::describe(x), " has ", channels, " channels"));
  return v;
}

/// The same, shaped to broadcast.
Tensor along(const Tensor& v, const Tensor& x, Axis axis, SourceLocation loc) {
  if (!fitting("batch_norm", v, x, axis).valid()) return v;
  const int place = api::checked_axis("batch_norm", axis, x.node());
  Shape dims;
  dims.resize(x.rank(), 1);
  dims[place] = x.dim(place);
  return v.reshape(dims, loc);
}

/// For each row of `values` (…, classes), the element its label names; 0 for a label out of range.
Tensor picked(std::string_view op, const Tensor& values, const Tensor& labels, SourceLocation loc) {
  const ir::Node* v = api::checked(op, values);
  const ir::Node* l = api::checked(op, labels);
  const bool fits = v->rank == l->rank + 1 && is_int(l->dtype) &&
                    std::equal(l->dims().begin(), l->dims().end(), v->dims().begin());
  if (!fits)
    throw UserError(cat("[", op, "] needs (…, classes) values and integer labels (…), got ", api::describe(v),
                        " and ", api::describe(l)));
  const Tensor hot = one_hot(labels, values.dim(-1), DType::Bool, loc);
  return sum(where(hot, at(values, loc), at(0.0, loc)), -1, false, loc);
}

}  // namespace

Tensor softmax(const Tensor& x, Axis axis, SourceLocation loc) try {
  const Tensor v = widened("softmax", x, loc);
  api::checked_axis("softmax", axis, v.node());
  // rows of no elements have no greatest one
  if (v.node()->numel == 0) return x.astype(result_dtype(x), loc);
  const Tensor e = exp(subtract(v, at(max(v, axis, true, loc), loc)), loc);
  return divide(e, at(sum(e, axis, true, loc), loc)).astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("softmax", e, loc);
}

Tensor log_softmax(const Tensor& x, Axis axis, SourceLocation loc) try {
  const Tensor v = widened("log_softmax", x, loc);
  api::checked_axis("log_softmax", axis, v.node());
  if (v.node()->numel == 0) return x.astype(result_dtype(x), loc);
  const Tensor shifted = subtract(v, at(max(v, axis, true, loc), loc));
  const Tensor total = sum(exp(shifted, loc), axis, true, loc);
  return subtract(shifted, at(log(total, loc), loc)).astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("log_softmax", e, loc);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  SourceLocation loc) try {
  const Tensor v = widened("layer_norm", x, loc);
  fitting("layer_norm", weight, x, -1);
  fitting("layer_norm", bias, x, -1);
  const Tensor centred = subtract(v, at(mean(v, -1, true, loc), loc));
  const Tensor spread = mean(multiply(centred, at(centred, loc)), -1, true, loc);
  const Tensor scale = rsqrt(add(spread, at(eps, loc)), loc);
  return affine(multiply(centred, at(scale, loc)), weight, bias, loc).astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("layer_norm", e, loc);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, SourceLocation loc) try {
  const Tensor v = widened("rms_norm", x, loc);
  fitting("rms_norm", weight, x, -1);
  const Tensor power = mean(multiply(v, at(v, loc)), -1, true, loc);
  const Tensor scale = rsqrt(add(power, at(eps, loc)), loc);
  return affine(multiply(v, at(scale, loc)), weight, {}, loc).astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("rms_norm", e, loc);
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps, Axis axis, SourceLocation loc) try {
  const Tensor v = widened("batch_norm", x, loc);
  const Tensor m = along(widened("batch_norm", mean, loc), v, axis, loc);
  const Tensor s = along(widened("batch_norm", var, loc), v, axis, loc);
  const Tensor scale = rsqrt(add(s, at(eps, loc)), loc);
  const Tensor out = multiply(subtract(v, at(m, loc)), at(scale, loc));
  return affine(out, along(weight, v, axis, loc), along(bias, v, axis, loc), loc)
      .astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("batch_norm", e, loc);
}

Tensor batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Axis axis,
                           SourceLocation loc) try {
  const Tensor v = widened("batch_norm", x, loc);
  const int channel = api::checked_axis("batch_norm", axis, v.node());
  std::vector<int> others;
  for (int i = 0; i < v.rank(); ++i)
    if (i != channel) others.push_back(i);
  const Tensor centred = subtract(v, at(mean(v, others, true, loc), loc));
  const Tensor spread = mean(multiply(centred, at(centred, loc)), others, true, loc);
  const Tensor out = multiply(centred, at(rsqrt(add(spread, at(eps, loc)), loc), loc));
  return affine(out, along(weight, v, axis, loc), along(bias, v, axis, loc), loc)
      .astype(result_dtype(x), loc);
} catch (const UserError& e) {
  api::rethrow_as("batch_norm_training", e, loc);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, SourceLocation loc) try {
  api::check_both("linear", x, weight);
  const ir::Node *v = x.node(), *w = weight.node();
  if (w->rank != 2 || v->rank == 0 || v->dims().back() != w->dims()[1])
    throw UserError(
        cat("[linear] x ", api::describe(v), " does not fit weight ", api::describe(w), " (out, in)"));
  if (bias.valid() && (bias.rank() != 1 || bias.dim(0) != w->dims()[0]))
    throw UserError(
        cat("[linear] bias ", api::describe(bias), " does not fit weight ", api::describe(w), " (out, in)"));
  return affine(matmul(x, matrix_transpose(weight, loc), loc), {}, bias, loc);
} catch (const UserError& e) {
  api::rethrow_as("linear", e, loc);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation loc) try {
  const Tensor d = subtract(widened("mse_loss", x, loc), at(target, loc));
  return reduced(multiply(d, at(d, loc)), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("mse_loss", e, loc);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation loc) try {
  return reduced(abs(subtract(widened("l1_loss", x, loc), at(target, loc)), loc), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("l1_loss", e, loc);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, Reduction reduction,
                  SourceLocation loc) try {
  const Tensor d = abs(subtract(widened("huber_loss", x, loc), at(target, loc)), loc);
  const Tensor quadratic = multiply(multiply(d, at(d, loc)), at(0.5, loc));
  const Tensor linear = multiply(subtract(d, at(0.5 * delta, loc)), at(delta, loc));
  return reduced(where(less_equal(d, at(delta, loc)), at(quadratic, loc), at(linear, loc)), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("huber_loss", e, loc);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction,
                     SourceLocation loc) try {
  const Tensor v = widened("cross_entropy", logits, loc);
  return reduced(negative(picked("cross_entropy", log_softmax(v, -1, loc), labels, loc), loc), reduction,
                 loc);
} catch (const UserError& e) {
  api::rethrow_as("cross_entropy", e, loc);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels, Reduction reduction,
                SourceLocation loc) try {
  const Tensor v = widened("nll_loss", log_probabilities, loc);
  return reduced(negative(picked("nll_loss", v, labels, loc), loc), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("nll_loss", e, loc);
}

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, Reduction reduction,
                            SourceLocation loc) try {
  const Tensor p = widened("binary_cross_entropy", probabilities, loc);
  const Tensor t = widened("binary_cross_entropy", target, loc);
  const Tensor yes = maximum(log(p, loc), at(-100.0, loc));
  const Tensor no = maximum(log1p(negative(p, loc), loc), at(-100.0, loc));
  const Tensor likelihood =
      add(multiply(t, at(yes, loc)), at(multiply(subtract(1.0, t, loc), at(no, loc)), loc));
  return reduced(negative(likelihood, loc), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("binary_cross_entropy", e, loc);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction,
                                        SourceLocation loc) try {
  const Tensor x = widened("binary_cross_entropy_with_logits", logits, loc);
  const Tensor t = widened("binary_cross_entropy_with_logits", target, loc);
  const Tensor tail = log1p(exp(negative(abs(x, loc), loc), loc), loc);
  return reduced(add(subtract(relu(x, loc), at(multiply(x, at(t, loc)), loc)), at(tail, loc)), reduction,
                 loc);
} catch (const UserError& e) {
  api::rethrow_as("binary_cross_entropy_with_logits", e, loc);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, SourceLocation loc) try {
  const Tensor x = widened("kl_div", input, loc), t = widened("kl_div", target, loc);
  const Tensor term = multiply(t, at(subtract(log(t, loc), at(x, loc)), loc));
  return reduced(where(equal(t, at(0.0, loc)), at(0.0, loc), at(term, loc)), reduction, loc);
} catch (const UserError& e) {
  api::rethrow_as("kl_div", e, loc);
}

}  // namespace kiln::nn
