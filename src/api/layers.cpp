// Layers: compositions of public operations and nothing more, like kiln::nn's functions.
#include <kiln/layers.h>

#include "api/record.h"
#include "support/check.h"

#include <cmath>
#include <numeric>

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

/// `list` with an entry for each of `count` axes; without entries all are `standard`.
Shape entries(std::string_view what, Shape list, int count, std::int64_t standard, std::int64_t least) {
  if (list.rank() == 0) list.resize(count, standard);
  bool fits = list.rank() == count;
  for (const std::int64_t entry : list) fits = fits && entry >= least;
  if (!fits)
    throw UserError(cat("[conv] ", what, " ", list, " is not one number of at least ", least, " for each of ",
                        count, " axes"));
  return list;
}

/// The last `count` axes.
std::vector<int> last_axes(int count) {
  std::vector<int> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), -count);
  return axes;
}

void check_conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  api::check_both("conv", x, weight);
  const bool fits = weight.rank() >= 3 && x.rank() == weight.rank() && options.groups >= 1 &&
                    x.dim(1) == weight.dim(1) * options.groups && weight.dim(0) % options.groups == 0;
  if (!fits)
    throw UserError(cat("[conv] x ", api::describe(x), " does not fit weight ", api::describe(weight),
                        " (out, in / ", options.groups, ", kernel…)"));
  if (bias.valid() && (bias.rank() != 1 || bias.dim(0) != weight.dim(0)))
    throw UserError(cat("[conv] bias ", api::describe(bias), " does not fit weight ", api::describe(weight)));
}

Tensor padded(const Tensor& x, const Shape& padding) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(2);
  bool any = false;
  for (const std::int64_t width : padding) {
    widths.emplace_back(width, width);
    any = any || width > 0;
  }
  return any ? pad(x, widths) : x;
}

/// A bias of channels in front of `axes` others.
Tensor along_channels(const Tensor& bias, int axes) {
  Shape dims = {bias.dim(0)};
  dims.resize(1 + axes, 1);
  return bias.reshape(dims);
}

/// Windows for pooling over the last axes of x, and the axes of their elements. Windows beside each other are
/// a reshape, whose derivative is one too.
struct Pooled {
  Tensor windows;
  std::vector<int> axes;
  bool beside = false;  // no two windows share an element
};
Pooled pooled(std::string_view op, const Tensor& x, const Shape& size, const Shape& stride) {
  const int count = size.rank();
  if (api::checked(op, x)->rank < count || count == 0)
    throw UserError(cat("[", op, "] windows ", size, " over ", api::describe(x)));
  if (stride.rank() != 0 && !(stride == size))
    return {sliding_window(x, size, last_axes(count), stride), last_axes(count)};
  Pooled out = {x, {}, true};
  Shape dims;
  const int first = x.rank() - count;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < first) {
      dims.push_back(x.dim(i));
      continue;
    }
    const std::int64_t width = size[i - first];
    if (width < 1 || width > x.dim(i))
      throw UserError(cat("[", op, "] windows ", size, " over ", api::describe(x)));
    const std::int64_t windows = x.dim(i) / width;
    std::vector<Slice> kept(static_cast<std::size_t>(x.rank()));
    kept[static_cast<std::size_t>(i)] = range(0, windows * width);
    if (windows * width < x.dim(i)) out.windows = out.windows.index(kept);
    dims.push_back(windows);
    dims.push_back(width);
    out.axes.push_back(dims.rank() - 1);
  }
  out.windows = out.windows.reshape(dims);
  return out;
}

/// max over a short axis as a chain of maximum: its derivative is a map, where that of a reduction counts the
/// elements that are the greatest.
Tensor greatest_along(const Tensor& x, int axis) {
  std::vector<Slice> at(static_cast<std::size_t>(x.rank()));
  Tensor out;
  for (std::int64_t k = 0; k < x.dim(axis); ++k) {
    at[static_cast<std::size_t>(axis)] = Slice(k);
    const Tensor part = x.index(at);
    out = out.valid() ? maximum(out, part) : part;
  }
  return out;
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

Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
            SourceLocation loc) {
  const CallScope scope("conv", loc);
  check_conv(x, weight, bias, options);
  const int axes = weight.rank() - 2;
  const Shape kernel = std::span(weight.shape().begin() + 2, static_cast<std::size_t>(axes));
  const Tensor wide = padded(x, entries("padding", options.padding, axes, 0, 0));
  const Tensor windows =
      sliding_window(wide, kernel, last_axes(axes), entries("stride", options.stride, axes, 1, 1),
                     entries("dilation", options.dilation, axes, 1, 1));
  // (n, in, out extents…, kernel…) -> (n, in, kernel…, out extents…): adjacent points stay adjacent in memory
  std::vector<int> order = {0, 1};
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  Shape result = {x.dim(0), weight.dim(0)};
  for (int i = 0; i < axes; ++i) {
    order.push_back(2 + i);
    result.push_back(windows.dim(2 + i));
  }
  const std::int64_t terms = weight.dim(1) * kernel.numel(), groups = options.groups;
  const std::int64_t points = Shape(std::span(result).subspan(2)).numel();
  Tensor rows = permute_dims(windows, order), columns = weight.reshape({weight.dim(0), terms});
  if (groups == 1) {
    rows = rows.reshape({x.dim(0), terms, points});
  } else {
    rows = rows.reshape({x.dim(0), groups, terms, points});
    columns = columns.reshape({groups, weight.dim(0) / groups, terms});
  }
  const Tensor out = matmul(columns, rows).reshape(result);
  return bias.valid() ? out + along_channels(bias, axes) : out;
}

Tensor max_pool(const Tensor& x, const Shape& size, const Shape& stride, SourceLocation loc) {
  const CallScope scope("max_pool", loc);
  const Pooled p = pooled("max_pool", x, size, stride);
  if (!p.beside || !is_float(x.dtype()) || size.numel() > 64) return max(p.windows, p.axes);
  Tensor out = p.windows;
  for (auto axis = p.axes.rbegin(); axis != p.axes.rend(); ++axis) out = greatest_along(out, *axis);
  return out;
}

Tensor mean_pool(const Tensor& x, const Shape& size, const Shape& stride, SourceLocation loc) {
  const CallScope scope("mean_pool", loc);
  const Pooled p = pooled("mean_pool", x, size, stride);
  return mean(p.windows, p.axes);
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
  return matmul(softmax(scores).astype(value.dtype()), value);
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
  Shape shape = {out, in / options.groups};
  for (const std::int64_t extent : kernel) shape.push_back(extent);
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
  const Tensor v = is_half(x.dtype()) ? x.astype(DType::Float32) : x;
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
