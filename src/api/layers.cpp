// Layers: compositions of public operations and nothing more, like kiln::nn's functions.
#include <kiln/layers.h>

#include "api/record.h"
#include "support/check.h"

#include <cmath>

namespace kiln::nn {
namespace {

struct Fans {
  double in, out;
};
/// Of a weight (out, in, kernel…).
Fans fans(std::string_view op, const Shape& shape) {
  if (shape.rank() < 2) throw UserError(cat("[", op, "] a weight has the axes (out, in, …), got ", shape));
  double window = 1;
  for (int i = 2; i < shape.rank(); ++i) window *= static_cast<double>(shape[i]);
  return {static_cast<double>(shape[1]) * window, static_cast<double>(shape[0]) * window};
}

Tensor within(random::Key key, const Shape& shape, double bound) {
  return random::uniform(key, shape, -bound, bound);
}

/// A weight and a bias, uniform in ±1 / sqrt(fan_in).
struct Drawn {
  Tensor weight, bias;
};
Drawn drawn(random::Key key, const Shape& shape, bool bias) {
  const double bound = 1 / std::sqrt(fans("init", shape).in);
  const auto [first, second] = random::split<2>(key);
  return {within(first, shape, bound), bias ? within(second, {shape[0]}, bound) : Tensor()};
}

}  // namespace

Tensor glorot_uniform(random::Key key, const Shape& shape, SourceLocation loc) {
  const CallScope scope("glorot_uniform", loc);
  const Fans f = fans("glorot_uniform", shape);
  return within(key, shape, std::sqrt(6 / (f.in + f.out)));
}

Tensor glorot_normal(random::Key key, const Shape& shape, SourceLocation loc) {
  const CallScope scope("glorot_normal", loc);
  const Fans f = fans("glorot_normal", shape);
  return random::normal(key, shape, 0, std::sqrt(2 / (f.in + f.out)));
}

Tensor he_uniform(random::Key key, const Shape& shape, SourceLocation loc) {
  const CallScope scope("he_uniform", loc);
  return within(key, shape, std::sqrt(6 / fans("he_uniform", shape).in));
}

Tensor he_normal(random::Key key, const Shape& shape, SourceLocation loc) {
  const CallScope scope("he_normal", loc);
  return random::normal(key, shape, 0, std::sqrt(2 / fans("he_normal", shape).in));
}

Tensor dropout(random::Key key, const Tensor& x, double rate, SourceLocation loc) {
  const CallScope scope("dropout", loc);
  if (!(rate >= 0 && rate < 1)) throw UserError(cat("[dropout] rate = ", rate, " is outside of [0, 1)"));
  return where(random::bernoulli(key, x.shape(), 1 - rate), x / (1 - rate), 0);
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, Flag causal,
                 SourceLocation loc) {
  const CallScope scope("attention", loc);
  api::check_both("attention", query, key);
  api::checked("attention", value);
  if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2 || query.dim(-1) != key.dim(-1) ||
      key.dim(-2) != value.dim(-2))
    throw UserError(cat("[attention] query ", api::describe(query), ", key ", api::describe(key), ", value ",
                        api::describe(value), " do not fit (…, t, width), (…, s, width), (…, s, any)"));
  const Tensor product = matmul(query, matrix_transpose(key));
  Tensor scores = is_half(product.dtype()) ? product.astype(DType::Float32) : product;
  scores = scores * (1 / std::sqrt(static_cast<double>(query.dim(-1))));
  if (causal) {
    const std::int64_t t = query.dim(-2), s = key.dim(-2);
    const Tensor seen = arange(s) <= arange(t).reshape({t, 1}) + (s - t);
    scores = where(seen, scores, -INFINITY);
  }
  return matmul(softmax(scores).astype(computed_as(value.dtype())), value);
}

Linear Linear::init(random::Key key, Whole in, Whole out, Flag bias, SourceLocation loc) {
  const CallScope scope("Linear", loc);
  Drawn d = drawn(key, {out, in}, bias);
  return {std::move(d.weight), std::move(d.bias)};
}

Tensor Linear::operator()(const Tensor& x, SourceLocation loc) const { return linear(x, weight, bias, loc); }

Conv Conv::init(random::Key key, Whole in, Whole out, const Shape& kernel, const ConvOptions& options,
                Flag bias, SourceLocation loc) {
  const CallScope scope("Conv", loc);
  if (options.groups < 1 || in % options.groups != 0 || out % options.groups != 0)
    throw UserError(cat("[Conv] ", options.groups, " groups of ", std::int64_t{in}, " and ",
                        std::int64_t{out}, " channels"));
  Shape shape = {out};
  if (!options.channels_last) shape.push_back(in / options.groups);
  for (const std::int64_t extent : kernel) shape.push_back(extent);
  if (options.channels_last) shape.push_back(in / options.groups);
  Drawn d = drawn(key, shape, bias);
  return {std::move(d.weight), std::move(d.bias), options};
}

Tensor Conv::operator()(const Tensor& x, SourceLocation loc) const {
  return conv(x, weight, bias, options, loc);
}

Embedding Embedding::init(random::Key key, Whole count, Whole width, SourceLocation loc) {
  const CallScope scope("Embedding", loc);
  return {random::normal(key, {count, width})};
}

Tensor Embedding::operator()(const Tensor& x, SourceLocation loc) const {
  const CallScope scope("Embedding", loc);
  return take(weight, x, 0);
}

LayerNorm LayerNorm::init(Whole width, SourceLocation loc) {
  const CallScope scope("LayerNorm", loc);
  return {ones({width}), zeros({width})};
}

Tensor LayerNorm::operator()(const Tensor& x, SourceLocation loc) const {
  return layer_norm(x, weight, bias, eps, loc);
}

RmsNorm RmsNorm::init(Whole width, SourceLocation loc) {
  const CallScope scope("RmsNorm", loc);
  return {ones({width})};
}

Tensor RmsNorm::operator()(const Tensor& x, SourceLocation loc) const {
  return rms_norm(x, weight, eps, loc);
}

GroupNorm GroupNorm::init(Whole channels, Whole groups, SourceLocation loc) {
  const CallScope scope("GroupNorm", loc);
  if (groups < 1 || channels % groups != 0)
    throw UserError(
        cat("[GroupNorm] ", std::int64_t{groups}, " groups of ", std::int64_t{channels}, " channels"));
  return {ones({channels}), zeros({channels}), groups};
}

Tensor GroupNorm::operator()(const Tensor& x, SourceLocation loc) const {
  const CallScope scope("GroupNorm", loc);
  api::checked("GroupNorm", x);
  if (x.rank() < 2 || x.dim(1) != weight.dim(0))
    throw UserError(cat("[GroupNorm] x ", api::describe(x), " does not have ", weight.dim(0), " channels"));
  Shape channels;
  channels.resize(x.rank(), 1);
  channels[1] = x.dim(1);
  const Tensor rows = x.reshape({x.dim(0), groups, -1});
  const Tensor out = layer_norm(rows, {}, {}, eps).reshape(x.shape());
  return (out * weight.reshape(channels) + bias.reshape(channels)).astype(out.dtype());
}

BatchNorm BatchNorm::init(Whole channels, SourceLocation loc) {
  const CallScope scope("BatchNorm", loc);
  return {ones({channels}), zeros({channels})};
}

BatchNorm::Statistics BatchNorm::statistics(SourceLocation loc) const {
  const CallScope scope("BatchNorm", loc);
  return {zeros_like(weight), ones_like(weight)};
}

Tensor BatchNorm::train(const Tensor& x, Statistics& running, SourceLocation loc) const {
  const CallScope scope("BatchNorm", loc);
  const Tensor out = batch_norm_training(x, weight, bias, eps);
  const Tensor v = is_narrow(x.dtype()) ? x.astype(DType::Float32) : x;
  std::vector<int> others = {0};
  for (int i = 2; i < x.rank(); ++i) others.push_back(i);
  running.mean = running.mean * (1 - momentum) + mean(v, others) * momentum;
  running.var = running.var * (1 - momentum) + var(v, others, false, 1) * momentum;
  return out;
}

Tensor BatchNorm::operator()(const Tensor& x, const Statistics& running, SourceLocation loc) const {
  return batch_norm(x, running.mean, running.var, weight, bias, eps, 1, loc);
}

MultiHeadAttention MultiHeadAttention::init(random::Key key, Whole width, Whole heads, Flag causal, Flag bias,
                                            SourceLocation loc) {
  const CallScope scope("MultiHeadAttention", loc);
  if (heads < 1 || width % heads != 0)
    throw UserError(
        cat("[MultiHeadAttention] ", std::int64_t{heads}, " heads of width ", std::int64_t{width}));
  const auto [first, second] = random::split<2>(key);
  return {Linear::init(first, width, 3 * width, bias), Linear::init(second, width, width, bias), heads,
          causal};
}

Tensor MultiHeadAttention::operator()(const Tensor& x, SourceLocation loc) const {
  const CallScope scope("MultiHeadAttention", loc);
  const Tensor all = in(x);
  Shape parts = all.shape();  // (…, t, 3, heads, width / heads)
  const std::int64_t width = parts.back() / 3;
  parts[parts.rank() - 1] = 3;
  parts.push_back(heads);
  parts.push_back(width / heads);
  const Tensor split = all.reshape(parts);
  const auto part = [&](std::int64_t i) {
    return swapaxes(split(slice::ellipsis, i, slice::all(), slice::all()), -3, -2);
  };
  const Tensor seen = attention(part(0), part(1), part(2), causal);
  return out(swapaxes(seen, -3, -2).reshape(x.shape()));
}

}  // namespace kiln::nn
