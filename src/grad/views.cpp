// Derivatives of casts and views. They are linear, so that tangents go through the same view, and cotangents
// through its transpose: what a view shows several times is added up, what it does not show gets 0.
#include "grad/rules.h"
#include "ir/infer.h"

#include <algorithm>
#include <numeric>

namespace kiln::diff {
namespace {

using api::finish;
using ir::NodeRef;
using ir::Op;

/// The tangents of all operands; zeros for those that have none.
std::vector<Tensor> filled(const Step& s, std::span<const Tensor> t) {
  std::vector<Tensor> all(t.begin(), t.end());
  for (std::size_t k = 0; k < all.size(); ++k)
    if (!all[k].valid() && s.edge.in[k] && is_float(s.edge.in[k]->dtype))
      all[k] = zeros_of(s.dims(k), *s.edge.in[k]);
  return all;
}

/// The view of one operand, of its tangent.
Tensor same_view(const Step& s, std::span<const Tensor> t) { return replay(s, t, 0); }

Tensor reshaped(const Tensor& x, std::span<const std::int64_t> dims) {
  return finish(api::reshape_node(x.node(), dims));
}

/// The box of x that a pad's body or a piece of a join has.
Tensor box_of(const Tensor& x, std::span<const std::int64_t> first, std::span<const std::int64_t> step,
              std::span<const std::int64_t> dims) {
  return finish(api::slice_node(x.node(), first, step, dims));
}

/// x's elements spread over zeros of `dims`.
Tensor placed(const Tensor& x, std::span<const std::int64_t> first, std::span<const std::int64_t> step,
              std::span<const std::int64_t> dims) {
  if (std::ranges::equal(x.node()->dims(), dims)) return x;
  return finish(api::pad_node(x.node(), nullptr, 0, first, step, dims));
}

bool swaps_matrices(const std::vector<int>& axes) {
  const int rank = static_cast<int>(axes.size());
  for (int a = 0; a < rank - 2; ++a)
    if (axes[static_cast<std::size_t>(a)] != a) return false;
  return rank >= 2 && axes[static_cast<std::size_t>(rank - 2)] == rank - 1;
}

/// The transpose of a product that nobody else has seen, as the product of the transposes: what reads it, the
/// update of a weight that a layer uses transposed, finds its elements in order and can run in the product.
Tensor transposed_product(const Tensor& g) {
  const auto transposed = [](ir::Node* x) {
    std::vector<int> axes(static_cast<std::size_t>(x->rank));
    std::iota(axes.begin(), axes.end(), 0);
    std::swap(axes[axes.size() - 2], axes[axes.size() - 1]);
    return api::permute_node(x, axes);
  };
  const auto in = ir::operands(*g.node());
  const NodeRef x = transposed(in[1]), y = transposed(in[0]);
  return finish(api::matmul_node(x.get(), y.get()));
}

}  // namespace

void pull_cast(const Step& s, const Tensor& g, std::span<Tensor> to) {
  to[0] = g.astype(s.edge.in[0]->dtype);
}
Tensor push_cast(const Step& s, std::span<const Tensor> t) { return t[0].astype(s.dtype()); }

void pull_alias(const Step&, const Tensor& g, std::span<Tensor> to) { to[0] = g; }
Tensor push_alias(const Step&, std::span<const Tensor> t) { return t[0]; }

void pull_reshape(const Step& s, const Tensor& g, std::span<Tensor> to) { to[0] = reshaped(g, s.dims(0)); }
Tensor push_reshape(const Step& s, std::span<const Tensor> t) { return same_view(s, t); }

void pull_permute(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto shown = s.attributes<ir::Permute>();
  std::vector<int> back(s.dims().size());
  for (std::size_t a = 0; a < back.size(); ++a) back[shown[a]] = static_cast<int>(a);
  to[0] = swaps_matrices(back) && g.node()->op == Op::matmul ? transposed_product(g)
                                                             : finish(api::permute_node(g.node(), back));
}
Tensor push_permute(const Step& s, std::span<const Tensor> t) { return same_view(s, t); }

void pull_broadcast(const Step& s, const Tensor& g, std::span<Tensor> to) { to[0] = sum_to(g, s.dims(0)); }
Tensor push_broadcast(const Step& s, std::span<const Tensor> t) { return same_view(s, t); }

void pull_slice(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto box = s.attributes<ir::Box>();
  Shape first, step;
  std::vector<std::int64_t> turned;  // axes that the slice shows backward
  for (std::size_t a = 0; a < box.rank(); ++a) {
    const std::int64_t count = s.dims()[a];
    const bool back = count > 1 && box.step(a) < 0;
    if (back) turned.push_back(static_cast<std::int64_t>(a));
    first.push_back(count == 0 ? 0 : back ? box.first(a) + (count - 1) * box.step(a) : box.first(a));
    step.push_back(count <= 1 ? 1 : back ? -box.step(a) : box.step(a));
  }
  const Tensor straight = turned.empty() ? g : flip(g, Axes(turned));
  to[0] = placed(straight, first, step, s.dims(0));
}
Tensor push_slice(const Step& s, std::span<const Tensor> t) { return same_view(s, t); }

void pull_pad(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto box = s.attributes<ir::Box>();
  Shape first, step;
  for (std::size_t a = 0; a < box.rank(); ++a) {
    first.push_back(s.dims(0)[a] == 0 ? 0 : box.first(a));
    step.push_back(s.dims(0)[a] <= 1 ? 1 : box.step(a));
  }
  if (s.wants(0)) to[0] = box_of(g, first, step, s.dims(0));
  if (!s.wants(1)) return;
  const Tensor none = zeros_of(s.dims(0), *s.edge.in[0]);
  const NodeRef rest = api::pad_node(none.node(), g.node(), 0, first, step, s.dims());
  to[1] = sum_to(finish(rest), s.dims(1));
}
Tensor push_pad(const Step& s, std::span<const Tensor> t) { return replay(s, filled(s, t), 0); }

void pull_join(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto axis = static_cast<int>(s.attributes<ir::Join>().axis);
  Shape first, step;
  first.resize(static_cast<int>(s.dims().size()), 0);
  step.resize(static_cast<int>(s.dims().size()), 1);
  for (std::size_t k = 0; k < to.size(); ++k) {
    if (s.wants(k)) to[k] = box_of(g, first, step, s.dims(k));
    first[axis] += s.dims(k)[static_cast<std::size_t>(axis)];
  }
}
Tensor push_join(const Step& s, std::span<const Tensor> t) { return replay(s, filled(s, t), 0); }

void pull_slice_at(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto axis = static_cast<int>(s.attributes<ir::Position>().axis);
  const Tensor none = zeros_of(s.dims(0), *s.edge.in[0]);
  to[0] = finish(api::update_at_node(none.node(), g.node(), s.edge.in[1].get(), axis));
}
Tensor push_slice_at(const Step& s, std::span<const Tensor> t) {
  const Tensor in[] = {t[0], s.in(1)};
  return replay(s, in, 0);
}

void pull_update_at(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto axis = static_cast<int>(s.attributes<ir::Position>().axis);
  ir::Node* const start = s.edge.in[2].get();
  if (s.wants(0))
    to[0] = finish(api::slice_at_node(g.node(), start, axis, s.dims(0)[static_cast<std::size_t>(axis)]));
  if (!s.wants(1)) return;
  const Tensor none = zeros_of(s.dims(0), *s.edge.in[0]);
  to[1] = finish(api::update_at_node(g.node(), none.node(), start, axis));
}
Tensor push_update_at(const Step& s, std::span<const Tensor> t) {
  std::vector<Tensor> in = filled(s, t);
  in[2] = s.in(2);
  return replay(s, in, 0);
}

namespace {

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
      const Tensor element = reshaped(box_of(last, first, step, one), row);
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
    add_to(sum, placed(reshaped(box_of(g, first, ones, one), shown), low, step, extents));
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

}  // namespace

void pull_sliding_window(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto windows = s.attributes<ir::Windows>();
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
Tensor push_sliding_window(const Step& s, std::span<const Tensor> t) { return same_view(s, t); }

}  // namespace kiln::diff
