// Derivatives of windows. What a window shows of an element is added up. Where the windows' cotangent is a
// matrix product, as in every convolution, the sum is a convolution itself.
#include "grad/rules.h"
#include "ir/infer.h"

#include <kiln/config.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace kiln::diff {
namespace {

using api::finish;

Tensor reshaped(const Tensor& x, std::span<const std::int64_t> dims) {
  return finish(api::reshape_node(x.node(), dims));
}

/// x's elements spread over zeros of `dims`.
Tensor placed(const Tensor& x, std::span<const std::int64_t> first, std::span<const std::int64_t> step,
              std::span<const std::int64_t> dims) {
  if (std::ranges::equal(x.node()->dims(), dims)) return x;
  return finish(api::pad_node(x.node(), nullptr, 0, first, step, dims));
}

/// The transpose of windows over one axis: g has the windows along `axis` and a window's elements along
/// `within`, which the result does not have. Element k of window i is added to extent place i * stride + k *
/// gap.
Tensor overlapped(const Tensor& g, int axis, int within, std::int64_t stride, std::int64_t gap,
                  std::int64_t extent) {
  const std::int64_t windows = g.dim(axis), size = g.dim(within);
  Tensor last = moveaxis(g, {axis, within}, {-2, -1});  // (…, windows, size)
  const int rank = last.rank();
  Shape dims = last.shape();
  dims.resize(rank - 1);
  dims[rank - 2] = extent;
  Tensor sum;
  if (gap == 1 && stride >= size) {  // windows apart: one behind the other
    std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(rank));
    widths.back() = {0, stride - size};
    const std::int64_t shown = std::min(windows * stride, extent);
    Shape flat = dims;
    flat[rank - 2] = windows * stride;
    sum = reshape(pad(last, widths), flat);
    std::vector<std::pair<std::int64_t, std::int64_t>> rest(static_cast<std::size_t>(rank - 1));
    rest.back() = {0, extent - windows * stride};
    if (shown != extent || flat[rank - 2] != extent) sum = pad(sum, rest);
  } else if (size <= 64) {
    for (std::int64_t k = 0; k < size; ++k) {
      Shape first, step, one = last.shape();
      first.resize(rank, 0);
      step.resize(rank, 1);
      first[rank - 1] = k;
      one[rank - 1] = 1;
      Shape row = dims;
      row[rank - 2] = windows;
      const Tensor element = reshaped(finish(api::slice_node(last.node(), first, step, one)), row);
      Shape low, apart;
      low.resize(rank - 1, 0);
      apart.resize(rank - 1, 1);
      low[rank - 2] = k * gap;
      apart[rank - 2] = windows <= 1 ? 1 : stride;
      add_to(sum, placed(element, low, apart, dims));
    }
  } else {
    Shape along;
    along.resize(rank - 1, 1);
    along[rank - 2] = windows * size;
    const Tensor places =
        expand_dims(arange(windows, DType::Int64) * stride, 1) + arange(size, DType::Int64) * gap;
    Shape flat = dims;
    flat[rank - 2] = windows * size;
    sum = finish(api::scatter_node(zeros_of(dims, *g.node()).node(), reshape(places, along).node(),
                                   reshape(last, flat).node(),
                                   {static_cast<std::size_t>(rank - 2), Combine::Add}));
  }
  return moveaxis(sum, -1, axis);
}

/// The same over all axes of small windows: each element of a window is placed in zeros, and the sum of all
/// is one map. One axis after the other would add fewer values, but store what the first axis gives.
Tensor overlapped_at_once(const Tensor& g, const ir::Windows& windows,
                          std::span<const std::int64_t> extents) {
  const int rank = static_cast<int>(extents.size());
  const auto dims = g.node()->dims();
  const Shape shown = dims.first(extents.size()), size = dims.subspan(extents.size());
  Tensor sum;
  for (std::int64_t i = 0, count = size.numel(); i < count; ++i) {
    Shape first, low, step, ones, one = dims;
    first.resize(g.rank(), 0);
    low.resize(rank, 0);
    step.resize(rank, 1);
    ones.resize(g.rank(), 1);
    std::int64_t rest = i;
    for (int k = size.rank() - 1; k >= 0; --k) {
      const auto axis = static_cast<int>(windows.axis(static_cast<std::size_t>(k)));
      const std::int64_t element = rest % size[k];
      rest /= size[k];
      first[rank + k] = element;
      one[rank + k] = 1;
      low[axis] = element * windows.dilation(static_cast<std::size_t>(k));
      step[axis] = shown[axis] <= 1 ? 1 : windows.stride(static_cast<std::size_t>(k));
    }
    add_to(sum,
           placed(reshaped(finish(api::slice_node(g.node(), first, ones, one)), shown), low, step, extents));
  }
  return sum;
}

/// Windows of several axes that share elements, and have few.
bool small_and_shared(const Tensor& g, const ir::Windows& windows, std::size_t rank) {
  std::int64_t elements = 1;
  bool shared = false;
  for (std::size_t k = 0; k < windows.count(); ++k) {
    const std::int64_t size = g.node()->dims()[rank + k];
    elements *= size;
    shared = shared || windows.stride(k) <= (size - 1) * windows.dilation(k);
  }
  return shared && windows.count() > 1 && elements > 0 && elements <= 25;
}

/// A cotangent of windows that a matrix product made: (…, c·kernel, o) · (…, o, windows), in row-major order
/// the axes of x that have no windows, the elements of a window, the windows.
struct Product {
  ir::Node *a, *b;
  std::vector<int> order;  // axes of the cotangent in that order
};

Shape part(std::span<const std::int64_t> dims, std::size_t first, std::size_t count) {
  return Shape(dims.subspan(first, count));
}

std::optional<Product> product_of(const Tensor& g, const ir::Windows& windows, std::size_t rank) {
  const ir::Node& turned = *g.node();
  if (turned.op != ir::Op::permute) return std::nullopt;
  const ir::Node& flat = *turned.in[0];
  if (flat.op != ir::Op::reshape || flat.in[0]->op != ir::Op::matmul) return std::nullopt;
  Product p;
  std::vector<bool> has(rank);
  for (std::size_t k = 0; k < windows.count(); ++k) {
    if (has[windows.axis(k)] || (k > 0 && windows.axis(k) < windows.axis(k - 1))) return std::nullopt;
    has[windows.axis(k)] = true;
  }
  for (std::size_t a = 0; a < rank; ++a)
    if (!has[a]) p.order.push_back(static_cast<int>(a));
  for (std::size_t k = 0; k < windows.count(); ++k) p.order.push_back(static_cast<int>(rank + k));
  for (std::size_t k = 0; k < windows.count(); ++k) p.order.push_back(static_cast<int>(windows.axis(k)));
  const auto shown = ir::attributes<ir::Permute>(turned);
  for (std::size_t i = 0; i < p.order.size(); ++i)
    if (shown[static_cast<std::size_t>(p.order[i])] != i) return std::nullopt;
  const ir::Node& product = *flat.in[0];
  const auto operands = ir::operands(product);
  p.a = operands[0], p.b = operands[1];
  std::int64_t count = 1, size = 1;
  for (std::size_t k = 0; k < windows.count(); ++k) {
    count *= turned.dims()[windows.axis(k)];
    size *= turned.dims()[rank + k];
  }
  const auto dims = product.dims();
  const bool fits = p.a->rank >= 2 && p.b->rank >= 2 && count > 0 && size > 0 && dims.back() == count &&
                    dims[dims.size() - 2] % size == 0;
  return fits ? std::optional(p) : std::nullopt;
}

/// Along one axis of windows: where the cotangent is wanted, and what the other factor is padded by for that.
struct Reach {
  std::int64_t first, extent, before, after;
};

Tensor handle(ir::Node* n) { return Tensor::adopt(ir::NodeRef::share(n).take()); }

/// The axes of x with those of its last dims replaced: {dims of x but the last `drop`, more…}.
Shape replaced(const Tensor& x, int drop, const Shape& more, const Shape& more_still = {}) {
  Shape out = part(x.node()->dims(), 0, static_cast<std::size_t>(x.rank() - drop));
  for (const std::int64_t d : more) out.push_back(d);
  for (const std::int64_t d : more_still) out.push_back(d);
  return out;
}

/// The last `count` axes of x.
std::vector<int> last_axes(int count) {
  std::vector<int> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), -count);
  return axes;
}

/// (…, c·kernel, o) -> (…, c, o·kernel), each kernel backward.
Tensor turned_kernel(const Tensor& a, const Shape& kernel) {
  const int count = kernel.rank(), lead = a.rank() - 2;
  const std::int64_t channels = a.dim(-2) / kernel.numel(), inner = a.dim(-1);
  Shape split = replaced(a, 2, Shape{channels}, kernel);
  split.push_back(inner);
  std::vector<int> backward, order(static_cast<std::size_t>(lead + 1));
  std::iota(order.begin(), order.end(), 0);
  order.push_back(lead + 1 + count);
  for (int k = 0; k < count; ++k) {
    backward.push_back(lead + 1 + k);
    order.push_back(lead + 1 + k);
  }
  const Tensor turned = permute_dims(flip(reshape(a, split), backward), order);
  return reshape(turned, replaced(a, 2, Shape{channels, inner * kernel.numel()}));
}

/// (…, o, windows) -> (…, o·kernel, results): padded so that there is a window for each result, or cut.
Tensor windows_of(const Tensor& b, const ir::Windows& windows, const std::vector<Reach>& reach,
                  const Shape& shown, const Shape& kernel) {
  const int count = kernel.rank();
  Tensor x = reshape(b, replaced(b, 1, shown));
  const int lead = x.rank() - count;
  Shape dilation;
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(x.rank()));
  std::vector<Slice> kept(static_cast<std::size_t>(x.rank()));
  std::int64_t results = 1;
  for (int k = 0; k < count; ++k) {
    const Reach& r = reach[static_cast<std::size_t>(k)];
    widths[static_cast<std::size_t>(lead + k)] = {std::max<std::int64_t>(r.before, 0),
                                                  std::max<std::int64_t>(r.after, 0)};
    kept[static_cast<std::size_t>(lead + k)] =
        range(std::max<std::int64_t>(-r.before, 0), shown[k] - std::max<std::int64_t>(-r.after, 0));
    dilation.push_back(windows.dilation(static_cast<std::size_t>(k)));
    results *= r.extent;
  }
  Shape ones;
  ones.resize(count, 1);
  x = sliding_window(pad(x.index(kept), widths), kernel, last_axes(count), ones, dilation);
  std::vector<int> order(static_cast<std::size_t>(lead));
  std::iota(order.begin(), order.end(), 0);
  for (int k = 0; k < count; ++k) order.push_back(lead + count + k);
  for (int k = 0; k < count; ++k) order.push_back(lead + k);
  return reshape(permute_dims(x, order), replaced(b, 2, Shape{b.dim(-2) * kernel.numel(), results}));
}

Tensor convolved(const Step& s, const Product& p, const ir::Windows& windows, const std::vector<Reach>& reach,
                 std::span<const std::int64_t> dims) {
  const auto extents = s.dims(0);
  const std::size_t rank = extents.size(), count = windows.count();
  const Shape kernel = part(dims, rank, count);
  Shape shown, result, first, step = extents, inner = extents;
  first.resize(static_cast<int>(rank), 0);
  for (std::size_t k = 0; k < count; ++k) {
    const int axis = static_cast<int>(windows.axis(k));
    shown.push_back(dims[windows.axis(k)]);
    first[axis] = reach[k].first;
    inner[axis] = reach[k].extent;
  }
  std::vector<int> order;  // axes of x as the product has them
  for (const int a : p.order)
    if (a < static_cast<int>(rank)) order.push_back(a);
  std::vector<int> back(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    result.push_back(inner[order[i]]);
    back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    step[static_cast<int>(i)] = 1;
  }
  const Tensor a = turned_kernel(handle(p.a), kernel);
  const Tensor b = windows_of(handle(p.b), windows, reach, shown, kernel);
  const Tensor out = reshape(finish(api::matmul_node(a.node(), b.node())), result);
  return placed(permute_dims(out, back), first, step, extents);
}

/// The cotangent of x as a product of windows: what sums over the windows that an element is in is a
/// convolution of the product's second factor. So no window is stored. Nothing: the steps between windows are
/// not 1, or there would be many more windows than before. Not in the strict mode, in which evaluating one
/// operation at a time gives the same bits: then g is a value, and what made it is not known.
std::optional<Tensor> as_convolution(const Step& s, const Tensor& g, const ir::Windows& windows) {
  if (config().strict) return std::nullopt;
  const auto extents = s.dims(0);
  const std::size_t rank = extents.size(), count = windows.count();
  const auto dims = g.node()->dims();
  const auto p = product_of(g, windows, rank);
  if (!p) return std::nullopt;
  // Of what a pad places, nobody asks for the cotangent of the rest.
  const Step& pad = s.before(0);
  const bool cut = pad.edge.op == ir::Op::pad && !pad.edge.in[1];
  std::vector<Reach> reach(count);
  double before = 1, after = 1;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t axis = windows.axis(k);
    const std::int64_t shown = dims[axis], far = windows.dilation(k) * (dims[rank + k] - 1);
    if (windows.stride(k) != 1 && shown > 1) return std::nullopt;
    Reach& r = reach[k];
    r = {0, extents[axis], 0, 0};
    if (cut && (pad.attributes<ir::Box>().step(axis) == 1 || pad.dims(0)[axis] == 1))
      r = {pad.attributes<ir::Box>().first(axis), pad.dims(0)[axis], 0, 0};
    if (r.extent == 0) return std::nullopt;
    r.before = far - r.first;
    r.after = r.extent + far - r.before - shown;
    before *= static_cast<double>(shown), after *= static_cast<double>(r.extent);
  }
  if (after > 2 * before) return std::nullopt;
  return convolved(s, *p, windows, reach, dims);
}

}  // namespace

void pull_sliding_window(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto windows = s.attributes<ir::Windows>();
  if (const auto product = as_convolution(s, g, windows)) {
    to[0] = *product;
    return;
  }
  if (small_and_shared(g, windows, s.dims(0).size())) {
    to[0] = overlapped_at_once(g, windows, s.dims(0));
    return;
  }
  const int rank = static_cast<int>(s.dims(0).size());
  Tensor out = g;
  for (std::size_t k = windows.count(); k-- > 0;)  // the last axis of windows is the last axis
    out = overlapped(out, static_cast<int>(windows.axis(k)), rank + static_cast<int>(k), windows.stride(k),
                     windows.dilation(k), s.dims(0)[windows.axis(k)]);
  to[0] = out;
}
Tensor push_sliding_window(const Step& s, std::span<const Tensor> t) { return replay(s, t, 0); }

}  // namespace kiln::diff
