// Functions over windows: convolutions, pooling, interpolation. Compositions of public operations: a
// convolution is a matrix product of windows, and everything before the product is index maps.
#include <kiln/layers.h>

#include "api/record.h"
#include "support/check.h"

#include <limits>
#include <numeric>

namespace kiln::nn {
namespace {

using Widths = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// `list` with an entry for each of `count` axes; without entries all are `standard`.
Shape entries(std::string_view op, std::string_view what, Shape list, int count, std::int64_t standard,
              std::int64_t least) {
  if (list.rank() == 0) list.resize(count, standard);
  bool fits = list.rank() == count;
  for (const std::int64_t entry : list) fits = fits && entry >= least;
  if (!fits)
    throw UserError(cat("[", op, "] ", what, " ", list, " is not one number of at least ", least,
                        " for each of ", count, " axes"));
  return list;
}

std::vector<int> axes_from(int first, int count) {
  std::vector<int> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

/// x with `index` along one axis and everything along the others.
Tensor along(const Tensor& x, int axis, Slice index) {
  std::vector<Slice> at(static_cast<std::size_t>(x.rank()));
  at[static_cast<std::size_t>(axis)] = std::move(index);
  return x.index(at);
}

/// `widths` of each of the axes from `first` on, `value` in them.
Tensor padded(const Tensor& x, int first, const Widths& widths, Scalar value = 0) {
  Widths all(static_cast<std::size_t>(x.rank()));
  bool any = false;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    all[static_cast<std::size_t>(first) + i] = widths[i];
    any = any || widths[i].first != 0 || widths[i].second != 0;
  }
  return any ? pad(x, all, value) : x;
}

Widths both_sides(const Shape& padding) {
  Widths widths;
  for (const std::int64_t width : padding) widths.emplace_back(width, width);
  return widths;
}

/// How a convolution's arrays are laid out. Axes of the kernel are the last of x, or in front of the
/// channels.
struct Layout {
  bool last;
  int axes;
  int channels() const { return last ? axes + 1 : 1; }
  int first() const { return last ? 1 : 2; }  // of the axes that the kernel has too
  Tensor with_bias(const Tensor& out, const Tensor& bias) const {
    if (!bias.valid()) return out;
    Shape dims = {bias.dim(0)};
    if (!last) dims.resize(1 + axes, 1);
    return out + bias.reshape(dims);
  }
};

/// `inner`: the axis of weights that has the channels of one group, `outer`: that of all others.
void check_conv(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvOptions& options, std::string_view axes, bool transposed) {
  api::check_both(op, x, weight);
  const int rank = weight.rank();
  bool fits = rank >= 3 && x.rank() == rank && options.groups >= 1;
  std::int64_t out = 0;
  if (fits) {
    const std::int64_t in = x.dim(options.channels_last ? -1 : 1);
    const std::int64_t inner = weight.dim(options.channels_last ? -1 : 1), outer = weight.dim(0);
    fits = outer % options.groups == 0 && in == (transposed ? outer : inner * options.groups);
    out = transposed ? inner * options.groups : outer;
  }
  if (!fits)
    throw UserError(
        cat("[", op, "] x ", api::describe(x), " does not fit weight ", api::describe(weight), " ", axes));
  if (bias.valid() && (bias.rank() != 1 || bias.dim(0) != out))
    throw UserError(
        cat("[", op, "] bias ", api::describe(bias), " does not fit weight ", api::describe(weight)));
}

std::string weight_axes(const ConvOptions& options, std::string_view first, std::string_view second) {
  const std::string group = cat(second, " / ", options.groups);
  return options.channels_last ? cat("(", first, ", kernel…, ", group, ")")
                               : cat("(", first, ", ", group, ", kernel…)");
}

/// Of the weights of one output channel.
std::int64_t elements_of_one(const Tensor& weight) {
  std::int64_t n = 1;
  for (int i = 1; i < weight.rank(); ++i) n *= weight.dim(i);
  return n;
}

/// x (n, in, extents…): the product has the weights on the left, so that adjacent points stay adjacent.
Tensor conv_channels_first(const Tensor& windows, const Tensor& weight, std::int64_t groups) {
  const int axes = weight.rank() - 2;
  std::vector<int> order = {0, 1};
  Shape result = {windows.dim(0), weight.dim(0)};
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  for (int i = 0; i < axes; ++i) {
    order.push_back(2 + i);
    result.push_back(windows.dim(2 + i));
  }
  const std::int64_t points = Shape(std::span(result).subspan(2)).numel();
  const std::int64_t terms = elements_of_one(weight);
  Tensor rows = permute_dims(windows, order), columns = weight.reshape({weight.dim(0), terms});
  if (groups == 1) {
    rows = rows.reshape({windows.dim(0), terms, points});
  } else {
    rows = rows.reshape({windows.dim(0), groups, terms, points});
    columns = columns.reshape({groups, weight.dim(0) / groups, terms});
  }
  return matmul(columns, rows).reshape(result);
}

/// x (n, extents…, in), weight (out, kernel…, in / groups): a row of the product is a point.
Tensor conv_channels_last(const Tensor& windows, const Tensor& weight, std::int64_t groups) {
  const int axes = weight.rank() - 2;
  const std::int64_t in = windows.dim(1 + axes), out = weight.dim(0);
  Shape result = {windows.dim(0)};
  for (int i = 0; i < axes; ++i) result.push_back(windows.dim(1 + i));
  const std::int64_t points = result.numel(), terms = elements_of_one(weight);
  result.push_back(out);
  std::vector<int> order = {0};  // (n, extents…, in, kernel…) -> (n, extents…, kernel…, in)
  for (int i = 0; i < axes; ++i) order.push_back(1 + i);
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  order.push_back(1 + axes);
  const Tensor rows = permute_dims(windows, order);
  if (groups == 1)
    return matmul(rows.reshape({points, terms}), matrix_transpose(weight.reshape({out, terms})))
        .reshape(result);
  // (points, kernel, groups, in / groups) -> (groups, points, kernel * in / groups)
  const std::int64_t each = in / groups;
  const Tensor grouped = permute_dims(rows.reshape({points, terms / each, groups, each}), {2, 0, 1, 3});
  const Tensor columns = matrix_transpose(weight.reshape({groups, out / groups, terms}));
  const Tensor sums = matmul(grouped.reshape({groups, points, terms}), columns);
  return permute_dims(sums, {1, 0, 2}).reshape(result);
}

/// In the dtype that 8-bit floats are computed in: they have not all that pads windows.
Tensor computed(const Tensor& x) { return x.astype(computed_as(x.dtype())); }
bool is_stored(const Tensor& x) { return x.valid() && is_only_stored(x.dtype()); }

constexpr std::int64_t kMostTerms = 32;  // of a sum that is written out

/// Each channel of x, with its padding, has filters of its own: a sum of shifted maps. There is no product to
/// win: a matrix of windows would have one row a channel. The last axes of the kernel are written out, over
/// the others windows are summed.
Tensor conv_by_channel(const Tensor& x, const Tensor& weight, const Layout& layout, const Shape& kernel,
                       const Shape& stride, const Shape& dilation) {
  const std::int64_t in = x.dim(layout.channels()), filters = weight.dim(0) / in;
  const DType dtype = is_half(x.dtype()) ? DType::Float32 : x.dtype();
  int outer = layout.axes;  // axes of the kernel that are not written out
  std::int64_t terms = 1;
  while (outer > 0 && terms * kernel[outer - 1] <= kMostTerms) terms *= kernel[--outer];
  const auto first = [outer](const Shape& s) {
    return Shape(std::span(s).first(static_cast<std::size_t>(outer)));
  };
  Tensor windows = x;
  if (outer > 0)
    windows =
        sliding_window(x, first(kernel), axes_from(layout.first(), outer), first(stride), first(dilation));
  Shape of_filter = {in, filters};
  if (!layout.last) of_filter.resize(2 + layout.axes, 1);
  for (int i = 0; i < outer; ++i) of_filter.push_back(kernel[i]);
  const Tensor filter = weight.reshape({in, filters, elements_of_one(weight) / terms, terms}).astype(dtype);
  Tensor sums;
  for (std::int64_t term = 0; term < terms; ++term) {
    Tensor map = windows;
    std::int64_t rest = term;
    for (int i = layout.axes - 1; i >= outer; rest /= kernel[i--]) {
      const int axis = layout.first() + i;
      const std::int64_t begin = rest % kernel[i] * dilation[i], span = (kernel[i] - 1) * dilation[i];
      map = along(map, axis, Slice(begin, begin + x.dim(axis) - span, stride[i]));
    }
    const Tensor of_term = filter(slice::all(), slice::all(), slice::all(), term).reshape(of_filter);
    const Tensor product = expand_dims(map.astype(dtype), layout.channels() + 1) * of_term;
    sums = sums.valid() ? sums + product : product;
  }
  const int rank = 3 + layout.axes;  // without axes of windows, with one of filters
  if (outer > 0) sums = sum(sums, Axes(axes_from(rank, outer)));
  Shape result;
  for (int i = 0; i < rank; ++i) {
    if (i == layout.channels()) continue;
    result.push_back(i == layout.channels() + 1 ? in * filters : sums.dim(i));
  }
  return sums.reshape(result).astype(x.dtype());
}

/// Zeros between the elements of the axes from `first` on, so that they are `steps` apart.
Tensor spread(const Tensor& x, int first, const Shape& steps) {
  Tensor out = x;
  for (int i = 0; i < steps.rank(); ++i) {
    const int axis = first + i;
    const std::int64_t extent = out.dim(axis);
    if (steps[i] == 1 || extent < 2) continue;
    Shape wide = out.shape();
    wide[axis] = extent * steps[i];
    out = padded(expand_dims(out, axis + 1), axis + 1, {{0, steps[i] - 1}}).reshape(wide);
    out = along(out, axis, range(0, (extent - 1) * steps[i] + 1));
  }
  return out;
}

/// Windows for pooling over the last axes of x, and the axes of their elements. Windows beside each other are
/// a reshape, whose derivative is one too.
struct Pooled {
  Tensor windows;
  std::vector<int> axes;
  bool beside = false;  // no two windows share an element
};
Pooled pooled(std::string_view op, const Tensor& x, const Shape& size, const Shape& stride,
              const Shape& padding, Scalar fill) {
  const int count = size.rank();
  if (api::checked(op, x)->rank < count || count == 0)
    throw UserError(cat("[", op, "] windows ", size, " over ", api::describe(x)));
  const int first = x.rank() - count;
  const Shape around = entries(op, "padding", padding, count, 0, 0);
  for (int i = 0; i < count; ++i)
    if (around[i] * 2 > size[i])
      throw UserError(cat("[", op, "] padding ", around, " is more than half of the windows ", size));
  const Tensor wide = padded(x, first, both_sides(around), fill);
  if (stride.rank() != 0 && !(stride == size))
    return {sliding_window(wide, size, axes_from(-count, count), stride), axes_from(-count, count)};
  Pooled out = {wide, {}, true};
  Shape dims;
  for (int i = 0; i < wide.rank(); ++i) {
    if (i < first) {
      dims.push_back(wide.dim(i));
      continue;
    }
    const std::int64_t width = size[i - first];
    if (width < 1 || width > wide.dim(i))
      throw UserError(cat("[", op, "] windows ", size, " over ", api::describe(x)));
    const std::int64_t windows = wide.dim(i) / width;
    if (windows * width < wide.dim(i)) out.windows = along(out.windows, i, range(0, windows * width));
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
  Tensor out;
  for (std::int64_t k = 0; k < x.dim(axis); ++k) {
    const Tensor part = along(x, axis, Slice(k));
    out = out.valid() ? maximum(out, part) : part;
  }
  return out;
}

/// What no element is less than.
Scalar lowest(DType dtype) {
  if (is_float(dtype)) return -std::numeric_limits<double>::infinity();
  return dispatch(dtype, []<class T>() -> Scalar {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return std::numeric_limits<T>::lowest();
    else
      return false;
  });
}

void check_sizes(std::string_view op, const Tensor& x, const Shape& size) {
  bool fits = size.rank() > 0 && api::checked(op, x)->rank >= size.rank();
  for (int i = 0; fits && i < size.rank(); ++i) fits = size[i] >= 1 && x.dim(x.rank() - size.rank() + i) >= 1;
  if (!fits) throw UserError(cat("[", op, "] ", size, " over ", api::describe(x)));
}

/// Windows of an axis of n elements, `count` of them that cover it: window i has the elements from i n /
/// count, rounded down, to (i + 1) n / count, rounded up. The axis becomes two: windows, and as many elements
/// as the longest has; `inside` tells which of them belong to a window, `lengths` how many.
struct Adaptive {
  Tensor windows, inside, lengths;
};
Adaptive adaptive(const Tensor& x, int axis, std::int64_t count) {
  const std::int64_t n = x.dim(axis);
  std::int64_t longest = 1;
  for (std::int64_t i = 0; i < count; ++i)
    longest = std::max(longest, ((i + 1) * n + count - 1) / count - i * n / count);
  const Tensor i = arange(count).reshape({count, 1}), k = arange(longest).reshape({1, longest});
  const Tensor begin = floor_divide(i * n, count), end = floor_divide((i + 1) * n + (count - 1), count);
  Shape dims = x.shape();
  dims[axis] = count;
  std::vector<std::int64_t> all(dims.begin(), dims.end());
  all.insert(all.begin() + axis + 1, longest);
  const Tensor index = minimum(begin + k, n - 1).reshape({count * longest});
  Shape behind = {count, longest};
  behind.resize(2 + x.rank() - 1 - axis, 1);
  Shape lengths = {count};
  lengths.resize(1 + x.rank() - 1 - axis, 1);
  return {take(x, index, axis).reshape(Shape(all)), (begin + k < end).reshape(behind),
          (end - begin).reshape(lengths)};
}

/// The elements of an axis that the places 0 … size - 1 of its new extent lie between, and how far behind the
/// first.
struct Between {
  Tensor first, second, weight;
};
Between between(std::int64_t extent, std::int64_t size, bool corners, DType dtype) {
  // the place is numerator / denominator, in whole numbers
  const std::int64_t denominator = corners ? std::max<std::int64_t>(size - 1, 1) : 2 * size;
  const Tensor i = arange(size);
  const Tensor numerator = corners ? i * (extent - 1) : maximum((2 * i + 1) * extent - size, 0);
  const Tensor first = minimum(floor_divide(numerator, denominator), extent - 1);
  return {first, minimum(first + 1, extent - 1),
          (numerator - first * denominator).astype(dtype) / static_cast<double>(denominator)};
}

/// x at computed places along an axis: numbers that kernels read, in as few bytes as do.
Tensor lines_of(const Tensor& x, const Tensor& places, int axis) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return take(x, x.dim(axis) <= kMost ? places.astype(DType::Int32) : places, axis);
}

/// The weights of a transposed convolution as those of a convolution whose channels are the phases of the
/// stride.
struct Phases {
  Tensor channels;  // (groups · out / groups · phases…, in / groups, taps…), taps from the last to the first
  Shape taps;       // every s-th element of each kernel axis: how many
};

/// w: (in, out / groups, kernel…).
Phases phases_of(const Tensor& w, const Shape& stride, std::int64_t groups) {
  const int axes = stride.rank();
  const std::int64_t of_group = w.dim(1), ins = w.dim(0) / groups;
  Phases out;
  // -> (groups, ins, out / groups, taps, phase, …), both axes of each kernel axis
  Widths whole;
  Shape split = {groups, ins, of_group};
  for (int i = 0; i < axes; ++i) {
    const std::int64_t count = (w.dim(2 + i) + stride[i] - 1) / stride[i];
    whole.emplace_back(0, count * stride[i] - w.dim(2 + i));
    split.push_back(count);
    split.push_back(stride[i]);
    out.taps.push_back(count);
  }
  // -> (groups, out / groups, phases…, ins, taps…)
  std::vector<int> order = {0, 2}, turned;
  Shape channels = {groups * of_group * stride.numel(), ins};
  for (int i = 0; i < axes; ++i) order.push_back(4 + 2 * i);
  order.push_back(1);
  for (int i = 0; i < axes; ++i) {
    turned.push_back(3 + 2 * i);
    order.push_back(3 + 2 * i);
    channels.push_back(out.taps[i]);
  }
  out.channels = permute_dims(flip(padded(w, 2, whole).reshape(split), turned), order).reshape(channels);
  return out;
}

/// (n, out · phases…, q…) -> (n, out, (q, phase)…).
Tensor woven(const Tensor& x, const Shape& stride) {
  const int axes = stride.rank();
  Shape parts = {x.dim(0), x.dim(1) / stride.numel()}, joined = parts;
  std::vector<int> order = {0, 1};
  for (int i = 0; i < axes; ++i) parts.push_back(stride[i]);
  for (int i = 0; i < axes; ++i) {
    parts.push_back(x.dim(2 + i));
    joined.push_back(x.dim(2 + i) * stride[i]);
    order.push_back(2 + axes + i);
    order.push_back(2 + i);
  }
  return permute_dims(x.reshape(parts), order).reshape(joined);
}

}  // namespace

Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
            SourceLocation loc) {
  if (is_stored(x)) return conv(computed(x), weight, bias, options, loc);
  const CallScope scope("conv", loc);
  check_conv("conv", x, weight, bias, options, weight_axes(options, "out", "in"), false);
  const Layout layout = {options.channels_last, weight.rank() - 2};
  Shape kernel;
  for (int i = 0; i < layout.axes; ++i) kernel.push_back(weight.dim((layout.last ? 1 : 2) + i));
  const Tensor wide =
      padded(x, layout.first(), both_sides(entries("conv", "padding", options.padding, layout.axes, 0, 0)));
  const Shape stride = entries("conv", "stride", options.stride, layout.axes, 1, 1),
              dilation = entries("conv", "dilation", options.dilation, layout.axes, 1, 1);
  const Tensor windows =  // refuses kernels that are larger than the extents
      sliding_window(wide, kernel, axes_from(layout.first(), layout.axes), stride, dilation);
  // Where points are adjacent, larger kernels gain nothing on a CPU.
  const bool by_channel =
      options.groups == x.dim(layout.channels()) && options.groups > 1 && !is_bool(x.dtype()) &&
      weight.numel() > 0 &&
      (layout.last || elements_of_one(weight) <= kMostTerms || x.device().kind != Device::Kind::Cpu);
  return layout.with_bias(by_channel    ? conv_by_channel(wide, weight, layout, kernel, stride, dilation)
                          : layout.last ? conv_channels_last(windows, weight, options.groups)
                                        : conv_channels_first(windows, weight, options.groups),
                          bias);
}

// An output element at s q + r takes the kernel's elements r, r + s, … alone. So the phases r are channels of
// a convolution of stride 1 by every s-th element of the kernel: no product meets a zero that was put in.
Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                      const Shape& output_padding, SourceLocation loc) {
  if (is_stored(x)) return conv_transpose(computed(x), weight, bias, options, output_padding, loc);
  const CallScope scope("conv_transpose", loc);
  check_conv("conv_transpose", x, weight, bias, options, weight_axes(options, "in", "out"), true);
  const Layout layout = {options.channels_last, weight.rank() - 2};
  const int axes = layout.axes;
  const auto each = [&](std::string_view what, const Shape& list, std::int64_t standard, std::int64_t least) {
    return entries("conv_transpose", what, list, axes, standard, least);
  };
  const Shape stride = each("stride", options.stride, 1, 1), padding = each("padding", options.padding, 0, 0),
              dilation = each("dilation", options.dilation, 1, 1),
              behind = each("output_padding", output_padding, 0, 0);
  const Tensor in = layout.last ? moveaxis(x, -1, 1) : x;
  const Phases w =
      phases_of(spread(layout.last ? moveaxis(weight, -1, 1) : weight, 2, dilation), stride, options.groups);
  Widths around, cut;
  for (const std::int64_t taps : w.taps) around.emplace_back(taps - 1, taps - 1);
  const Tensor windows = sliding_window(padded(in, 2, around), w.taps, axes_from(2, axes));
  Tensor out = woven(conv_channels_first(windows, w.channels, options.groups), stride);
  for (int i = 0; i < axes; ++i) {
    const std::int64_t span = (weight.dim(layout.last ? 1 + i : 2 + i) - 1) * dilation[i] + 1;
    const std::int64_t extent = (in.dim(2 + i) - 1) * stride[i] + span - 2 * padding[i] + behind[i];
    if (extent < 0 || behind[i] >= std::max(stride[i], dilation[i]))
      throw UserError(cat("[conv_transpose] padding ", padding, " and output_padding ", behind,
                          " do not fit x ", api::describe(x), ", weight ", api::describe(weight)));
    cut.emplace_back(-padding[i], extent + padding[i] - out.dim(2 + i));
  }
  out = padded(out, 2, cut);
  return layout.with_bias(layout.last ? moveaxis(out, 1, -1) : out, bias);
}

Tensor max_pool(const Tensor& x, const Shape& size, const Shape& stride, const Shape& padding,
                SourceLocation loc) {
  if (is_stored(x)) return max_pool(computed(x), size, stride, padding, loc);
  const CallScope scope("max_pool", loc);
  const Pooled p = pooled("max_pool", x, size, stride, padding, lowest(api::checked("max_pool", x)->dtype));
  if (!p.beside || !is_float(x.dtype()) || size.numel() > 64) return max(p.windows, p.axes);
  Tensor out = p.windows;
  for (auto axis = p.axes.rbegin(); axis != p.axes.rend(); ++axis) out = greatest_along(out, *axis);
  return out;
}

Tensor mean_pool(const Tensor& x, const Shape& size, const Shape& stride, const Shape& padding,
                 SourceLocation loc) {
  if (is_stored(x)) return mean_pool(computed(x), size, stride, padding, loc);
  const CallScope scope("mean_pool", loc);
  const Pooled p = pooled("mean_pool", x, size, stride, padding, 0);
  return mean(p.windows, p.axes);
}

Tensor adaptive_max_pool(const Tensor& x, const Shape& size, SourceLocation loc) {
  if (is_stored(x)) return adaptive_max_pool(computed(x), size, loc);
  const CallScope scope("adaptive_max_pool", loc);
  check_sizes("adaptive_max_pool", x, size);
  Tensor out = x;
  for (int i = 0; i < size.rank(); ++i) {
    const int axis = x.rank() - size.rank() + i;
    const Adaptive a = adaptive(out, axis, size[i]);
    out = max(where(a.inside, a.windows, lowest(x.dtype())), axis + 1);
  }
  return out;
}

Tensor adaptive_mean_pool(const Tensor& x, const Shape& size, SourceLocation loc) {
  if (is_stored(x)) return adaptive_mean_pool(computed(x), size, loc);
  const CallScope scope("adaptive_mean_pool", loc);
  check_sizes("adaptive_mean_pool", x, size);
  if (!is_float(x.dtype())) throw UserError(cat("[adaptive_mean_pool] x ", api::describe(x), " is no float"));
  Tensor out = is_half(x.dtype()) ? x.astype(DType::Float32) : x;
  for (int i = 0; i < size.rank(); ++i) {
    const int axis = x.rank() - size.rank() + i;
    const Adaptive a = adaptive(out, axis, size[i]);
    out = sum(where(a.inside, a.windows, 0), axis + 1) / a.lengths.astype(out.dtype());
  }
  return out.astype(x.dtype());
}

Tensor interpolate(const Tensor& x, const Shape& size, Interpolation how, Flag corners, SourceLocation loc) {
  if (is_stored(x) && how == Interpolation::Linear) return interpolate(computed(x), size, how, corners, loc);
  const CallScope scope("interpolate", loc);
  check_sizes("interpolate", x, size);
  const bool linear = how == Interpolation::Linear;
  if (linear && !is_float(x.dtype()))
    throw UserError(
        cat("[interpolate] x ", api::describe(x), " is no float: only nearest elements are taken"));
  Tensor out = linear && is_half(x.dtype()) ? x.astype(DType::Float32) : x;
  for (int i = 0; i < size.rank(); ++i) {
    const int axis = x.rank() - size.rank() + i;
    const std::int64_t extent = x.dim(axis);
    if (size[i] == extent) continue;
    if (!linear) {
      out = lines_of(out, floor_divide(arange(size[i]) * extent, size[i]), axis);
      continue;
    }
    const Between b = between(extent, size[i], corners, out.dtype());
    Shape weights = {size[i]};
    weights.resize(x.rank() - axis, 1);
    const Tensor first = lines_of(out, b.first, axis), second = lines_of(out, b.second, axis);
    out = first + (second - first) * b.weight.reshape(weights);
  }
  return out.astype(x.dtype());
}

}  // namespace kiln::nn
