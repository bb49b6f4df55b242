// Layers of neural networks: structs of parameters, trees of kiln/tree.h, with the function they stand for.
//
//     struct Model {
//       nn::Linear first, second;
//       KILN_FIELDS(first, second)
//       Tensor operator()(const Tensor& x) const { return second(relu(first(x))); }
//     };
//     const auto [a, b] = random::split<2>(random::Key(1));
//     Model model = {nn::Linear::init(a, 64, 128), nn::Linear::init(b, 128, 10)};
//     tree_eval(model);
//
// A struct is nothing but its members: fill them with anything. `init` draws them; nothing is computed until
// the tree is evaluated. Parameters are float32; `tree_astype` (kiln/optim.h) converts them.
#pragma once

#include <kiln/nn.h>
#include <kiln/random.h>
#include <kiln/tree.h>

namespace kiln::nn {

// ---------------------------------------------------------------------------------------------------------
// Initial values. The shape is that of a weight, (out, in, kernel…): fan_in is in times the elements of the
// kernel, fan_out is out times them. UserError for fewer than two axes.

/// Uniform in ±sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
[[nodiscard]] Tensor glorot_uniform(random::Key key, const Shape& shape,
                                    SourceLocation loc = SourceLocation::current());
/// Normal of variance 2 / (fan_in + fan_out).
[[nodiscard]] Tensor glorot_normal(random::Key key, const Shape& shape,
                                   SourceLocation loc = SourceLocation::current());
/// Uniform in ±sqrt(6 / fan_in) (He et al., 2015): for layers before a relu.
[[nodiscard]] Tensor he_uniform(random::Key key, const Shape& shape,
                                SourceLocation loc = SourceLocation::current());
/// Normal of variance 2 / fan_in.
[[nodiscard]] Tensor he_normal(random::Key key, const Shape& shape,
                               SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Functions over windows.

struct ConvOptions {
  Shape stride = {};    ///< an entry for each axis of the kernel; no entries: 1
  Shape padding = {};   ///< zeros before and behind each axis; no entries: 0
  Shape dilation = {};  ///< steps between the elements of the kernel; no entries: 1
  std::int64_t groups = 1;
  bool channels_last =
      false;  ///< x (n, extents…, in), weight (out, kernel…, in / groups), result (n, extents…, out)
};
/// Cross-correlation, as every framework's convolution: x (n, in, extents…), weight (out, in / groups,
/// kernel…), bias (out,) or an empty handle; (n, out, (extents + 2 padding - (kernel - 1) dilation - 1) /
/// stride + 1, rounded down). One to thirteen kernel axes. It is a matrix product of the windows and the
/// weights. UserError for other shapes, or a kernel that is larger than the padded extents.
[[nodiscard]] Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                          const ConvOptions& options = {}, SourceLocation loc = SourceLocation::current());
/// The adjoint of conv as a function of its input (a transposed, or fractionally strided convolution): x (n,
/// in, extents…), weight (in, out / groups, kernel…), bias (out,) or an empty handle; (n, out, (extents - 1)
/// stride - 2 padding + (kernel - 1) dilation + 1 + output_padding). With channels_last: x (n, extents…, in),
/// weight (in, kernel…, out / groups). UserError for other shapes, or an output_padding of at least stride
/// and dilation.
[[nodiscard]] Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                    const ConvOptions& options = {}, const Shape& output_padding = {},
                                    SourceLocation loc = SourceLocation::current());
/// The greatest (the mean) of each window over the last axes of x: one axis for each entry of `size`. Windows
/// are `stride` apart, by default their own size. `padding`, at most half of a window, adds elements around x
/// that are no maximum (that are 0 and count, for the mean).
[[nodiscard]] Tensor max_pool(const Tensor& x, const Shape& size, const Shape& stride = {},
                              const Shape& padding = {}, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor mean_pool(const Tensor& x, const Shape& size, const Shape& stride = {},
                               const Shape& padding = {}, SourceLocation loc = SourceLocation::current());
/// The same of as many windows as `size` says, which cover the last axes of x: of n elements window i has
/// those from i n / size, rounded down, to (i + 1) n / size, rounded up. mean: floats only.
[[nodiscard]] Tensor adaptive_max_pool(const Tensor& x, const Shape& size,
                                       SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor adaptive_mean_pool(const Tensor& x, const Shape& size,
                                        SourceLocation loc = SourceLocation::current());

enum class Interpolation : std::uint8_t {
  Nearest,  ///< element i n / size, rounded down
  Linear    ///< weighted by distance; bilinear over two axes, trilinear over three
};
/// x with other extents of its last axes, one for each entry of `size`. Linear: element i lies at (i + 1/2) n
/// / size - 1/2 of n elements (at i (n - 1) / (size - 1) with `corners`), never before the first or behind
/// the last; floats only, halves are computed in float32.
[[nodiscard]] Tensor interpolate(const Tensor& x, const Shape& size,
                                 Interpolation how = Interpolation::Linear, Flag corners = false,
                                 SourceLocation loc = SourceLocation::current());

/// Each element 0 with probability `rate`, the others divided by 1 - rate. UserError outside [0, 1).
[[nodiscard]] Tensor dropout(random::Key key, const Tensor& x, double rate,
                             SourceLocation loc = SourceLocation::current());

/// softmax(query keyᵀ / sqrt(width)) value: query (…, t, width), key (…, s, width), value (…, s, any), of one
/// dtype; `causal` lets position i see positions up to i + s - t. Scores and weights are float32, or float64.
[[nodiscard]] Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                               Flag causal = false, SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Layers.

/// x (…, in) -> (…, out).
struct Linear {
  Tensor weight;  ///< (out, in)
  Tensor bias;    ///< (out,), or an empty handle
  KILN_FIELDS(weight, bias)
  /// Uniform in ±1 / sqrt(in).
  [[nodiscard]] static Linear init(random::Key key, Whole in, Whole out, Flag bias = true,
                                   SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// x (n, in, extents…) -> (n, out, …), of as many axes as the kernel has; see ConvOptions::channels_last.
struct Conv {
  Tensor weight;  ///< (out, in / groups, kernel…), or (out, kernel…, in / groups)
  Tensor bias;    ///< (out,), or an empty handle
  ConvOptions options = {};
  KILN_FIELDS(weight, bias)
  /// Uniform in ±1 / sqrt(fan_in). kernel: {3} for sequences, {3, 3} for images.
  [[nodiscard]] static Conv init(random::Key key, Whole in, Whole out, const Shape& kernel,
                                 const ConvOptions& options = {}, Flag bias = true,
                                 SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// Integers (…) -> (…, width): rows of the weight.
struct Embedding {
  Tensor weight;  ///< (count, width)
  KILN_FIELDS(weight)
  /// Normal, of deviation 1.
  [[nodiscard]] static Embedding init(random::Key key, Whole count, Whole width,
                                      SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// nn::layer_norm over the last axis.
struct LayerNorm {
  Tensor weight, bias;  ///< (width,)
  double eps = 1e-5;
  KILN_FIELDS(weight, bias)
  [[nodiscard]] static LayerNorm init(Whole width, SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// nn::rms_norm over the last axis.
struct RmsNorm {
  Tensor weight;  ///< (width,)
  double eps = 1e-5;
  KILN_FIELDS(weight)
  [[nodiscard]] static RmsNorm init(Whole width, SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// Normalises x (n, channels, …) over each example's groups of channels and all other axes.
struct GroupNorm {
  Tensor weight, bias;  ///< (channels,)
  std::int64_t groups = 1;
  double eps = 1e-5;
  KILN_FIELDS(weight, bias)
  /// UserError unless `groups` divides `channels`.
  [[nodiscard]] static GroupNorm init(Whole channels, Whole groups,
                                      SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

/// Normalises x (n, channels, …) over all axes but the channels'. The running statistics are a tree of their
/// own: no gradient reaches them, and no optimiser may change them.
struct BatchNorm {
  struct Statistics {
    Tensor mean, var;  ///< (channels,)
    KILN_FIELDS(mean, var)
  };
  Tensor weight, bias;  ///< (channels,)
  double eps = 1e-5;
  double momentum = 0.1;  ///< what a batch adds to the running statistics
  KILN_FIELDS(weight, bias)
  [[nodiscard]] static BatchNorm init(Whole channels, SourceLocation loc = SourceLocation::current());
  /// Mean 0, variance 1.
  [[nodiscard]] Statistics statistics(SourceLocation loc = SourceLocation::current()) const;
  /// By the statistics of x itself, which `running` takes a part of (the variance divided by count - 1).
  [[nodiscard]] Tensor train(const Tensor& x, Statistics& running,
                             SourceLocation loc = SourceLocation::current()) const;
  /// By running statistics.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Statistics& running,
                                  SourceLocation loc = SourceLocation::current()) const;
};

/// Self-attention: x (…, t, width) -> (…, t, width).
struct MultiHeadAttention {
  Linear in;   ///< (3 width, width): queries, keys and values
  Linear out;  ///< (width, width)
  std::int64_t heads = 1;
  bool causal = false;
  KILN_FIELDS(in, out)
  /// UserError unless `heads` divides `width`.
  [[nodiscard]] static MultiHeadAttention init(random::Key key, Whole width, Whole heads, Flag causal = false,
                                               Flag bias = true,
                                               SourceLocation loc = SourceLocation::current());
  [[nodiscard]] Tensor operator()(const Tensor& x, SourceLocation loc = SourceLocation::current()) const;
};

}  // namespace kiln::nn
