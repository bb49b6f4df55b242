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
  to[0] = g.astype(computed_as(s.edge.in[0]->dtype));
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

/// Whether a cotangent was made by placing a value where the pad placed its own.
static bool is_placed(const ir::Node& g, const Step& s) {
  return g.op == Op::pad && s.edge.op == Op::pad && std::ranges::equal(g.dims(), s.dims()) &&
         std::ranges::equal(g.in[0]->dims(), s.dims(0)) &&
         std::ranges::equal(ir::stored(g).list, ir::stored(s.edge).list);
}

void pull_pad(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto box = s.attributes<ir::Box>();
  Shape first, step;
  for (std::size_t a = 0; a < box.rank(); ++a) {
    first.push_back(s.dims(0)[a] == 0 ? 0 : box.first(a));
    step.push_back(s.dims(0)[a] <= 1 ? 1 : box.step(a));
  }
  if (s.wants(0))
    to[0] = is_placed(*g.node(), s) ? Tensor::adopt(NodeRef::share(g.node()->in[0]).take())
                                    : box_of(g, first, step, s.dims(0));
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

}  // namespace kiln::diff
