// Neural-network functions. Each is a plain composition of functions of kiln/ops.h, which the planner fuses
// like any other program.
//
// All compute in float32, or float64 where x is. softmax, log_softmax and the norms return x's dtype; losses
// stay in the dtype they were computed in, so those of float16 and bfloat16 are float32: a sum over a batch
// leaves the range of float16 and the precision of bfloat16. Integers count as float32. `linear` has the
// dtypes of matmul and add.
#pragma once

#include <kiln/ops.h>

namespace kiln::nn {

enum class Reduction : std::uint8_t { None, Mean, Sum };

/// exp(x - max) / sum(exp(x - max)) along an axis; of no elements, no elements.
[[nodiscard]] Tensor softmax(const Tensor& x, Axis axis = -1, SourceLocation loc = SourceLocation::current());
/// x - logsumexp(x) along an axis.
[[nodiscard]] Tensor log_softmax(const Tensor& x, Axis axis = -1,
                                 SourceLocation loc = SourceLocation::current());

/// (x - mean) / sqrt(var + eps) over the last axis, times weight, plus bias: each of shape (x.dim(-1),), or
/// an empty handle.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5, SourceLocation loc = SourceLocation::current());
/// x / sqrt(mean(x^2) + eps) over the last axis, times weight of shape (x.dim(-1),), or an empty handle.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5,
                              SourceLocation loc = SourceLocation::current());
/// (x - mean) / sqrt(var + eps) * weight + bias, each of shape (channels,), along `axis` of x. weight and
/// bias may be empty handles.
[[nodiscard]] Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var,
                                const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                                Axis axis = 1, SourceLocation loc = SourceLocation::current());
/// The same with the statistics of x itself, over all axes but `axis`.
[[nodiscard]] Tensor batch_norm_training(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                         double eps = 1e-5, Axis axis = 1,
                                         SourceLocation loc = SourceLocation::current());
/// x @ weight^T + bias: x (…, in), weight (out, in), bias (out,) or an empty handle.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            SourceLocation loc = SourceLocation::current());

/// Mean squared error.
[[nodiscard]] Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean,
                              SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean,
                             SourceLocation loc = SourceLocation::current());
/// d^2/2 where |d| <= delta, else delta * (|d| - delta/2).
[[nodiscard]] Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1.0,
                                Reduction reduction = Reduction::Mean,
                                SourceLocation loc = SourceLocation::current());
/// -log_softmax(logits)[label]: logits (…, classes), integer labels (…). A label out of range gives 0.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                                   Reduction reduction = Reduction::Mean,
                                   SourceLocation loc = SourceLocation::current());
/// -log_probabilities[label].
[[nodiscard]] Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels,
                              Reduction reduction = Reduction::Mean,
                              SourceLocation loc = SourceLocation::current());
/// -(t log p + (1 - t) log(1 - p)), logarithms not below -100.
[[nodiscard]] Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& target,
                                          Reduction reduction = Reduction::Mean,
                                          SourceLocation loc = SourceLocation::current());
/// max(x, 0) - x t + log1p(exp(-|x|)): the same of sigmoid(x), stable.
[[nodiscard]] Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                                      Reduction reduction = Reduction::Mean,
                                                      SourceLocation loc = SourceLocation::current());
/// target * (log target - input): input holds log-probabilities, target probabilities; 0 where target is 0.
[[nodiscard]] Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean,
                            SourceLocation loc = SourceLocation::current());

}  // namespace kiln::nn
