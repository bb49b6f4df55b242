// kiln::nn: compositions of public operations and nothing more. Halves are computed in float32, as every
// framework does for normalisations and losses.
#include <kiln/nn.h>

#include "api/record.h"
#include "support/check.h"

namespace kiln::nn {
namespace {

/// x in the dtype these functions compute in; integers become float32.
Tensor widened(std::string_view op, const Tensor& x) {
  const DType t = api::checked(op, x)->dtype;
  return is_float(t) && !is_narrow(t) ? x : x.astype(DType::Float32);
}

DType result_dtype(const Tensor& x) { return is_float(x.dtype()) ? computed_as(x.dtype()) : DType::Float32; }

/// The greatest elements along an axis, as a constant to derivatives: a softmax does not depend on what is
/// subtracted from all of its operands.
Tensor shift_of(const Tensor& x, Axis axis) {
  return api::finish(api::alias_node(max(x, axis, true).node(), true));
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::None: return losses;
    case Reduction::Mean: return mean(losses);
    case Reduction::Sum: return sum(losses);
  }
  return losses;
}

/// x * weight + bias, for the handles that are not empty.
Tensor affine(Tensor x, const Tensor& weight, const Tensor& bias) {
  if (weight.valid()) x = x * weight;
  if (bias.valid()) x = x + bias;
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
Tensor along(const Tensor& v, const Tensor& x, Axis axis) {
  if (!fitting("batch_norm", v, x, axis).valid()) return v;
  const int place = api::checked_axis("batch_norm", axis, x.node());
  Shape dims;
  dims.resize(x.rank(), 1);
  dims[place] = x.dim(place);
  return v.reshape(dims);
}

/// For each row of `values` (…, classes), the element its label names; 0 for a label out of range.
Tensor picked(std::string_view op, const Tensor& values, const Tensor& labels) {
  const ir::Node* v = api::checked(op, values);
  const ir::Node* l = api::checked(op, labels);
  const bool fits = v->rank == l->rank + 1 && is_int(l->dtype) &&
                    std::equal(l->dims().begin(), l->dims().end(), v->dims().begin());
  if (!fits)
    throw UserError(cat("[", op, "] needs (…, classes) values and integer labels (…), got ", api::describe(v),
                        " and ", api::describe(l)));
  const Tensor hot = one_hot(labels, values.dim(-1), DType::Bool);
  return sum(where(hot, values, 0.0), -1);
}

}  // namespace

Tensor softmax(const Tensor& x, Axis axis, SourceLocation loc) {
  const CallScope scope("softmax", loc);
  const Tensor v = widened("softmax", x);
  api::checked_axis("softmax", axis, v.node());
  // rows of no elements have no greatest one
  if (v.node()->numel == 0) return x.astype(result_dtype(x));
  const Tensor e = exp(v - shift_of(v, axis));
  return (e / sum(e, axis, true)).astype(result_dtype(x));
}

Tensor log_softmax(const Tensor& x, Axis axis, SourceLocation loc) {
  const CallScope scope("log_softmax", loc);
  const Tensor v = widened("log_softmax", x);
  api::checked_axis("log_softmax", axis, v.node());
  if (v.node()->numel == 0) return x.astype(result_dtype(x));
  const Tensor shifted = v - shift_of(v, axis);
  const Tensor total = sum(exp(shifted), axis, true);
  return (shifted - log(total)).astype(result_dtype(x));
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, SourceLocation loc) {
  const CallScope scope("layer_norm", loc);
  const Tensor v = widened("layer_norm", x);
  fitting("layer_norm", weight, x, -1);
  fitting("layer_norm", bias, x, -1);
  const Tensor centred = v - mean(v, -1, true);
  const Tensor spread = mean(centred * centred, -1, true);
  const Tensor scale = rsqrt(spread + eps);
  return affine(centred * scale, weight, bias).astype(result_dtype(x));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, SourceLocation loc) {
  const CallScope scope("rms_norm", loc);
  const Tensor v = widened("rms_norm", x);
  fitting("rms_norm", weight, x, -1);
  const Tensor power = mean(v * v, -1, true);
  const Tensor scale = rsqrt(power + eps);
  return affine(v * scale, weight, {}).astype(result_dtype(x));
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps, Axis axis, SourceLocation loc) {
  const CallScope scope("batch_norm", loc);
  const Tensor v = widened("batch_norm", x);
  const Tensor m = along(widened("batch_norm", mean), v, axis);
  const Tensor s = along(widened("batch_norm", var), v, axis);
  const Tensor scale = rsqrt(s + eps);
  const Tensor out = (v - m) * scale;
  return affine(out, along(weight, v, axis), along(bias, v, axis)).astype(result_dtype(x));
}

Tensor batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Axis axis,
                           SourceLocation loc) {
  const CallScope scope("batch_norm_training", loc);
  const Tensor v = widened("batch_norm", x);
  const int channel = api::checked_axis("batch_norm", axis, v.node());
  std::vector<int> others;
  for (int i = 0; i < v.rank(); ++i)
    if (i != channel) others.push_back(i);
  const Tensor centred = v - mean(v, others, true);
  const Tensor spread = mean(centred * centred, others, true);
  const Tensor out = centred * rsqrt(spread + eps);
  return affine(out, along(weight, v, axis), along(bias, v, axis)).astype(result_dtype(x));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, SourceLocation loc) {
  const CallScope scope("linear", loc);
  api::check_both("linear", x, weight);
  const ir::Node *v = x.node(), *w = weight.node();
  if (w->rank != 2 || v->rank == 0 || v->dims().back() != w->dims()[1])
    throw UserError(
        cat("[linear] x ", api::describe(v), " does not fit weight ", api::describe(w), " (out, in)"));
  if (bias.valid() && (bias.rank() != 1 || bias.dim(0) != w->dims()[0]))
    throw UserError(
        cat("[linear] bias ", api::describe(bias), " does not fit weight ", api::describe(w), " (out, in)"));
  return affine(matmul(x, matrix_transpose(weight)), {}, bias);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation loc) {
  const CallScope scope("mse_loss", loc);
  const Tensor d = widened("mse_loss", x) - target;
  return reduced(d * d, reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation loc) {
  const CallScope scope("l1_loss", loc);
  return reduced(abs(widened("l1_loss", x) - target), reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, Reduction reduction,
                  SourceLocation loc) {
  const CallScope scope("huber_loss", loc);
  const Tensor d = abs(widened("huber_loss", x) - target);
  const Tensor quadratic = d * d * 0.5;
  const Tensor linear = (d - 0.5 * delta) * delta;
  return reduced(where(d <= delta, quadratic, linear), reduction);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction, SourceLocation loc) {
  const CallScope scope("cross_entropy", loc);
  const Tensor v = widened("cross_entropy", logits);
  return reduced(-picked("cross_entropy", log_softmax(v, -1), labels), reduction);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels, Reduction reduction,
                SourceLocation loc) {
  const CallScope scope("nll_loss", loc);
  const Tensor v = widened("nll_loss", log_probabilities);
  return reduced(-picked("nll_loss", v, labels), reduction);
}

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target, Reduction reduction,
                            SourceLocation loc) {
  const CallScope scope("binary_cross_entropy", loc);
  const Tensor p = widened("binary_cross_entropy", probabilities);
  const Tensor t = widened("binary_cross_entropy", target);
  const Tensor yes = maximum(log(p), -100.0);
  const Tensor no = maximum(log1p(-p), -100.0);
  return reduced(-(t * yes + (1.0 - t) * no), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction,
                                        SourceLocation loc) {
  const CallScope scope("binary_cross_entropy_with_logits", loc);
  const Tensor x = widened("binary_cross_entropy_with_logits", logits);
  const Tensor t = widened("binary_cross_entropy_with_logits", target);
  const Tensor tail = log1p(exp(-abs(x)));
  return reduced(relu(x) - x * t + tail, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, SourceLocation loc) {
  const CallScope scope("kl_div", loc);
  const Tensor x = widened("kl_div", input), t = widened("kl_div", target);
  const Tensor term = t * (log(t) - x);
  return reduced(where(t == 0.0, 0.0, term), reduction);
}

}  // namespace kiln::nn
