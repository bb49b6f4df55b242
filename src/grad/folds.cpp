// Derivatives of reductions and scans. A reduction's is a weight an element: a cotangent is repeated along
// the reduced axes and multiplied by it, a tangent is multiplied by it and added up.
//
// Ties share: each of k greatest elements has the weight 1 / k. The derivatives of running products and
// running logarithms of sums are linear recurrences, which are solved by doubling: log2(n) elementwise steps,
// without a division by an element, so that zeros are no special case.
#include "grad/rules.h"
#include "ir/infer.h"

#include <cmath>

namespace kiln::diff {
namespace {

using api::finish;
using ir::NodeRef;
using ir::Op;

Tensor summed(const Step& s, const Tensor& x) {
  const auto axes = s.attributes<ir::Reduce>();
  return finish(api::reduce_node(Op::reduce_sum, x.node(), axes.mask, x.dtype(), true));
}

/// The result, of the operand as it is read now. Where it was computed but its operand was not stored, the
/// operand is made again, perhaps in another order or with other roundings: none of its elements may be the
/// result then.
Tensor result_of_now(const Step& s) {
  const Tensor x = s.in(0);
  return ir::op_now(x.node()) == Op::leaf ? s.result() : replay(s, std::span(&x, 1));
}

/// How many reduced elements have the result's value, as numbers of x's dtype.
Tensor ties(const Step& s, const Tensor& hit) { return summed(s, hit.astype(s.dtype())); }

/// The product of all others, for each element.
Tensor others_product(const Step& s) {
  const Tensor x = s.in(0);
  const auto axes = s.attributes<ir::Reduce>();
  std::vector<int> order, back(s.dims(0).size());
  Shape kept, whole;
  for (const bool reduced : {false, true})
    for (std::size_t a = 0; a < back.size(); ++a)
      if (axes.over(a) == reduced) {
        back[a] = static_cast<int>(order.size());
        order.push_back(static_cast<int>(a));
        whole.push_back(s.dims(0)[a]);
        if (!reduced) kept.push_back(s.dims(0)[a]);
      }
  const int axis = kept.rank();
  std::int64_t count = 1;
  for (int i = axis; i < whole.rank(); ++i) count *= whole[i];
  kept.push_back(count);
  const NodeRef last = api::permute_node(x.node(), order);
  const NodeRef flat = api::reshape_node(last.get(), kept);
  const Tensor before = finish(api::scan_node(Op::scan_prod, flat.get(), axis, true, false));
  const Tensor after = finish(api::scan_node(Op::scan_prod, flat.get(), axis, true, true));
  const NodeRef product = api::reshape_node((before * after).node(), whole);
  return finish(api::permute_node(product.get(), back));
}

/// exp(x - r), 0 where r is -inf.
Tensor share(const Tensor& x, const Tensor& r) { return exp(x - where(isfinite(r), r, 0.0)); }

}  // namespace

void pull_sum(const Step& s, const Tensor& g, std::span<Tensor> to) {
  to[0] = broadcast_to(g, Shape(s.dims(0)));
}
Tensor push_sum(const Step& s, std::span<const Tensor> t) { return replay(s, t, 0); }

void pull_prod(const Step& s, const Tensor& g, std::span<Tensor> to) { to[0] = g * others_product(s); }
Tensor push_prod(const Step& s, std::span<const Tensor> t) { return summed(s, t[0] * others_product(s)); }

void pull_extreme(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Tensor hit = s.in(0) == result_of_now(s);
  to[0] = where(hit, g / ties(s, hit), 0.0);
}
Tensor push_extreme(const Step& s, std::span<const Tensor> t) {
  const Tensor hit = s.in(0) == result_of_now(s);
  return summed(s, where(hit, t[0], 0.0)) / ties(s, hit);
}

void pull_logaddexp(const Step& s, const Tensor& g, std::span<Tensor> to) {
  to[0] = g * share(s.in(0), s.result());
}
Tensor push_logaddexp(const Step& s, std::span<const Tensor> t) {
  return summed(s, t[0] * share(s.in(0), s.result()));
}

namespace {

/// x moved along the axis by so many places, with `fill` where it moved away from.
Tensor moved(const Tensor& x, int axis, std::int64_t by, double fill = 0) {
  const std::int64_t n = x.dim(axis), places = std::min(n, by < 0 ? -by : by);
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(x.rank()));
  widths[static_cast<std::size_t>(axis)] = by < 0 ? std::pair(-places, places) : std::pair(places, -places);
  return pad(x, widths, fill);
}

/// A scan: its axis, and which way is back to the elements that come before.
struct Line {
  int axis;
  bool exclusive;
  std::int64_t forward;  // 1, or -1 of a reverse scan

  explicit Line(const Step& s) {
    const auto how = s.attributes<ir::Scan>();
    axis = static_cast<int>(how.axis);
    exclusive = how.exclusive;
    forward = how.reverse ? -1 : 1;
  }
  /// The element before each, and the one after.
  Tensor before(const Tensor& x, double fill = 0) const { return moved(x, axis, forward, fill); }
  Tensor after(const Tensor& x, double fill = 0) const { return moved(x, axis, -forward, fill); }
};

/// s with s[i] = b[i] + a[i] * s[the element `direction` places on], nothing beyond the ends.
Tensor recurrence(Tensor b, Tensor a, int axis, std::int64_t direction) {
  const std::int64_t n = b.dim(axis);
  for (std::int64_t d = 1; d < n; d *= 2) {
    b = b + a * moved(b, axis, -direction * d);
    if (2 * d < n) a = a * moved(a, axis, -direction * d);
  }
  return b;
}

/// An exclusive scan is the inclusive one a place on.
Tensor cotangent_of_inclusive(const Line& line, const Tensor& g) {
  return line.exclusive ? line.after(g) : g;
}
Tensor tangent_of(const Line& line, const Tensor& inclusive) {
  return line.exclusive ? line.before(inclusive) : inclusive;
}

Tensor product_before(const Step& s, const Line& line) {
  return finish(api::scan_node(Op::scan_prod, s.in(0).node(), line.axis, true, line.forward < 0));
}

/// What is left at element i of the sums before it: exp(R[i - 1] - R[i]) for the inclusive result R.
struct Weights {
  Tensor own, left;
};
Weights logaddexp_weights(const Step& s, const Line& line) {
  const Tensor all = line.exclusive ? logaddexp(s.result(), s.in(0)) : s.result();
  return {share(s.in(0), all), share(line.before(all, -HUGE_VAL), all)};
}

/// For each element the place of the greatest (least) so far, the latest of equals.
Tensor places_of_extremes(const Step& s, const Line& line) {
  const bool greatest = s.edge.op == Op::scan_max;
  const Tensor x = s.in(0), now = result_of_now(s);
  const Tensor all = !line.exclusive ? now : greatest ? maximum(now, x) : minimum(now, x);
  const std::int64_t n = x.dim(line.axis);
  Shape along;
  along.resize(x.rank(), 1);
  along[line.axis] = n;
  const Tensor count = reshape(arange(n, DType::Int64), along);
  const Tensor order = line.forward > 0 ? count : (n - 1) - count;
  const Tensor reached = where(x == all, order, std::int64_t{0});
  const Tensor latest =
      finish(api::scan_node(Op::scan_max, reached.node(), line.axis, false, line.forward < 0));
  return line.forward > 0 ? latest : (n - 1) - latest;
}

}  // namespace

void pull_scan_sum(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto how = s.attributes<ir::Scan>();
  to[0] =
      finish(api::scan_node(Op::scan_sum, g.node(), static_cast<int>(how.axis), how.exclusive, !how.reverse));
}
Tensor push_scan_sum(const Step& s, std::span<const Tensor> t) { return replay(s, t, 0); }

void pull_scan_prod(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Line line(s);
  const Tensor later =
      recurrence(cotangent_of_inclusive(line, g), line.after(s.in(0)), line.axis, line.forward);
  to[0] = product_before(s, line) * later;
}
Tensor push_scan_prod(const Step& s, std::span<const Tensor> t) {
  const Line line(s);
  return tangent_of(line, recurrence(t[0] * product_before(s, line), s.in(0), line.axis, -line.forward));
}

void pull_scan_extreme(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Line line(s);
  if (s.node->numel == 0) return;
  const Tensor own = cotangent_of_inclusive(line, g);
  to[0] = finish(api::scatter_node(zeros_of(s.dims(), *g.node()).node(), places_of_extremes(s, line).node(),
                                   own.node(), {static_cast<std::size_t>(line.axis), Combine::Add}));
}
Tensor push_scan_extreme(const Step& s, std::span<const Tensor> t) {
  const Line line(s);
  if (s.node->numel == 0) return t[0];
  return tangent_of(line, finish(api::gather_node(t[0].node(), places_of_extremes(s, line).node(),
                                                  {static_cast<std::size_t>(line.axis)}, s.dims())));
}

void pull_scan_logaddexp(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Line line(s);
  const Weights w = logaddexp_weights(s, line);
  to[0] = w.own * recurrence(cotangent_of_inclusive(line, g), line.after(w.left), line.axis, line.forward);
}
Tensor push_scan_logaddexp(const Step& s, std::span<const Tensor> t) {
  const Line line(s);
  const Weights w = logaddexp_weights(s, line);
  return tangent_of(line, recurrence(t[0] * w.own, w.left, line.axis, -line.forward));
}

}  // namespace kiln::diff
