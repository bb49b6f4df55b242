// Derivatives of reading and writing at indices, and of sorting: the cotangent of a read is a write to zeros,
// that of a write is a read. Of several values written to one place (Set) the one that stayed has it all.
#include "grad/rules.h"
#include "ir/infer.h"
#include "support/check.h"

namespace kiln::diff {
namespace {

using api::finish;
using ir::Op;

/// g written to zeros of `dims` at the indices along the axis; several for one place are added.
Tensor written(const Tensor& g, ir::Node* indices, const ir::Scatter& at,
               std::span<const std::int64_t> dims) {
  return finish(api::scatter_node(zeros_of(dims, *g.node()).node(), indices, g.node(), at));
}
/// The elements of x at the places that a scatter writes.
Tensor read(const Tensor& x, const Step& s, const ir::Scatter& at) {
  return finish(api::gather_node(x.node(), s.edge.in[1].get(), {at.axis, at.joined}, s.dims(2)));
}
/// x with 0 at the places that a scatter writes.
Tensor cleared(const Tensor& x, const Step& s, const ir::Scatter& at) {
  const Tensor none = zeros_of(s.dims(2), *x.node());
  return finish(api::scatter_node(x.node(), s.edge.in[1].get(), none.node(), at));
}

/// Which values of a scatter stayed: each writes its own number, and reads what is there then.
Tensor stayed(const Step& s, const ir::Scatter& at) {
  const Shape values(s.dims(2));
  const Tensor number = reshape(arange(values.numel(), DType::Int64), values);
  const Tensor board = full(Shape(s.dims()), std::int64_t{-1}, DType::Int64);
  const Tensor last = finish(
      api::scatter_node(board.node(), s.edge.in[1].get(), number.node(), {at.axis, Combine::Set, at.joined}));
  return read(last, s, at) == number;
}

[[noreturn]] void no_factor_derivative() {
  throw UserError("[scatter_multiply] no derivative by the values: several may meet in one element");
}

/// Of a scatter that keeps the greatest (least): who has the result's value, and how many do.
struct Winners {
  Tensor elements, values, count;
};
Winners winners(const Step& s, const ir::Scatter& at) {
  Winners w;
  w.elements = s.in(0) == s.result();
  w.values = s.in(2) == read(s.result(), s, at);
  w.count = finish(api::scatter_node(w.elements.astype(s.dtype()).node(), s.edge.in[1].get(),
                                     w.values.astype(s.dtype()).node(), {at.axis, Combine::Add, at.joined}));
  return w;
}

}  // namespace

void pull_gather(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto at = s.attributes<ir::Gather>();
  const Shape whole = ir::dims_with(s.dims(), at.axis, s.dims(0)[at.axis]);
  to[0] = sum_to(written(g, s.edge.in[1].get(), {at.axis, Combine::Add, at.joined}, whole), s.dims(0));
}
Tensor push_gather(const Step& s, std::span<const Tensor> t) {
  const Tensor in[] = {t[0], s.in(1)};
  return replay(s, in, 0);
}

void pull_scatter(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const auto at = s.attributes<ir::Scatter>();
  switch (at.how) {
    case Combine::Set:
      if (s.wants(0)) to[0] = cleared(g, s, at);
      if (s.wants(2)) to[2] = where(stayed(s, at), read(g, s, at), 0.0);
      return;
    case Combine::Add:
      to[0] = g;
      if (s.wants(2)) to[2] = read(g, s, at);
      return;
    case Combine::Multiply:
      if (s.wants(2)) no_factor_derivative();
      to[0] = finish(api::scatter_node(g.node(), s.edge.in[1].get(), s.in(2).node(), at));
      return;
    case Combine::Max:
    case Combine::Min: {
      const Winners w = winners(s, at);
      const Tensor share = g / maximum(w.count, 1.0);
      if (s.wants(0)) to[0] = where(w.elements, share, 0.0);
      if (s.wants(2)) to[2] = where(w.values, read(share, s, at), 0.0);
    }
  }
}

Tensor push_scatter(const Step& s, std::span<const Tensor> t) {
  const auto at = s.attributes<ir::Scatter>();
  const Tensor into = t[0].valid() ? t[0] : zeros_of(s.dims(), *s.node);
  const Tensor values = t[2].valid() ? t[2] : zeros_of(s.dims(2), *s.node);
  const auto added = [&](const Tensor& x, const Tensor& v) {
    return finish(
        api::scatter_node(x.node(), s.edge.in[1].get(), v.node(), {at.axis, Combine::Add, at.joined}));
  };
  switch (at.how) {
    case Combine::Set:
    case Combine::Add: {
      const Tensor in[] = {into, s.in(1), values};
      return replay(s, in, 0);
    }
    case Combine::Multiply:
      if (t[2].valid()) no_factor_derivative();
      return finish(api::scatter_node(into.node(), s.edge.in[1].get(), s.in(2).node(), at));
    case Combine::Max:
    case Combine::Min: {
      const Winners w = winners(s, at);
      return added(where(w.elements, into, 0.0), where(w.values, values, 0.0)) / maximum(w.count, 1.0);
    }
  }
  return {};
}

namespace {

void pull_at(const Step& s, const Tensor& g, const Tensor& positions, std::span<Tensor> to) {
  const auto how = s.attributes<ir::Sort>();
  to[0] = written(g, positions.node(), {how.axis, Combine::Add}, s.dims(0));
}
Tensor push_at(const Step& s, const Tensor& t, const Tensor& positions) {
  return finish(api::gather_node(t.node(), positions.node(), {s.attributes<ir::Sort>().axis}, s.dims()));
}
/// The positions that the elements of a `sort` had: a sort of its own.
Tensor positions_of(const Step& s) {
  const auto how = s.attributes<ir::Sort>();
  const std::int64_t kept = s.dims()[how.axis];
  return finish(
      api::sort_node(Op::argsort, s.in(0).node(), static_cast<int>(how.axis), how.descending, kept));
}

}  // namespace

void pull_sort(const Step& s, const Tensor& g, std::span<Tensor> to) { pull_at(s, g, positions_of(s), to); }
Tensor push_sort(const Step& s, std::span<const Tensor> t) { return push_at(s, t[0], positions_of(s)); }

void pull_sorted_values(const Step& s, const Tensor& g, std::span<Tensor> to) {
  pull_at(s, g, shared(s.others[0]), to);
}
Tensor push_sorted_values(const Step& s, std::span<const Tensor> t) {
  return push_at(s, t[0], shared(s.others[0]));
}

}  // namespace kiln::diff
