#include "program_recorder.h"

namespace kiln::test {

Shape Recorder::random_factors(std::int64_t n, Draw& d) {
  if (n == 0) return d.chance(50) ? Shape{0} : Shape{d.between(1, 3), 0, d.between(1, 3)};
  Shape s;
  const std::int64_t rank = d.between(n == 1 ? 0 : 1, 4);
  for (std::int64_t k = 0; k < rank; ++k) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t f = 1; f <= std::min<std::int64_t>(n, 64); ++f)
      if (n % f == 0) divisors.push_back(f);
    const std::int64_t f =
        k + 1 == rank
            ? n
            : divisors[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(divisors.size())))];
    s.push_back(f);
    n /= f;
  }
  return s;
}

Value Recorder::permuted(const Value& x, Draw& d) {
  std::vector<int> axes(static_cast<std::size_t>(x.tensor.rank()));
  for (std::size_t a = 0; a < axes.size(); ++a) axes[a] = static_cast<int>(a);
  for (std::size_t a = axes.size(); a-- > 1;)
    std::swap(axes[a], axes[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(a) + 1))]);
  return define(cat("permute_dims(", x.name, ", ", list_text(axes), ")"), permute_dims(x.tensor, axes), x);
}

std::vector<kiln::Slice> Recorder::random_slices(const Shape& shape, Draw& d, std::string& text,
                                                 bool drop) const {
  std::vector<kiln::Slice> slices;
  for (std::int64_t extent : shape) {
    if (!text.empty()) text += ", ";
    const std::int64_t kind = d.below(6);
    if (kind == 0 || extent == 0) {
      slices.push_back(kiln::slice::all());
      text += "slice::all()";
    } else if (kind == 1 && drop) {
      const std::int64_t at = (d.below(extent) + p_.variant) % extent;
      slices.emplace_back(at);
      text += cat("Slice(", at, ")");
    } else {
      const std::int64_t step = kind < 4 ? d.between(1, 3) : -d.between(1, 3);
      const std::int64_t a = d.below(extent), b = d.below(extent);
      const std::int64_t span = std::abs(a - b), low = (std::min(a, b) + p_.variant) % (extent - span),
                         high = low + span;
      if (step > 0) {
        slices.push_back(range(low, high + 1, step));
        text += cat("range(", low, ", ", high + 1, ", ", step, ")");
      } else if (low == 0) {
        slices.push_back(range(high, none, step));
        text += cat("range(", high, ", none, ", step, ")");
      } else {
        slices.push_back(range(high, low - 1, step));
        text += cat("range(", high, ", ", low - 1, ", ", step, ")");
      }
    }
  }
  return slices;
}

Value Recorder::sliced(const Value& x, Draw& d) {
  if (x.tensor.rank() == 0) return x;
  const int axis = axis_of(x, d);
  const std::int64_t n = x.tensor.dim(axis);
  if (d.chance(10) && n > 0 && n <= 100) {
    const std::int64_t k = d.below(n);
    return define(cat("unstack(", x.name, ", ", axis, ")[", k, "]"),
                  unstack(x.tensor, axis)[static_cast<std::size_t>(k)], x);
  }
  if (d.chance(10)) {
    const std::int64_t at = d.between(0, n), k = d.below(2);
    return define(cat("split(", x.name, ", std::vector<std::int64_t>{", at, "}, ", axis, ")[", k, "]"),
                  split(x.tensor, std::vector<std::int64_t>{at}, axis)[static_cast<std::size_t>(k)], x);
  }
  std::string text;
  const auto slices = random_slices(x.tensor.shape(), d, text, true);
  return define(cat(x.name, ".index(std::vector<Slice>{", text, "})"), x.tensor.index(slices), x);
}

Value Recorder::update(const Value& x, Draw& d) {
  if (x.tensor.rank() == 0 || is_bool(x.tensor.dtype())) return x;
  std::string text;
  const auto slices = random_slices(x.tensor.shape(), d, text, true);
  const std::string list = cat("std::vector<Slice>{", text, "}");
  if (d.chance(40)) {
    Value out =
        define(cat("slice_update(", x.name, ", ", list, ", 2)"), slice_update(x.tensor, slices, 2), x);
    out.bound = std::max(out.bound, 2.0);
    return out;
  }
  Value part = define(cat(x.name, ".index(", list, ")"), x.tensor.index(slices), x);
  if (d.chance(60)) part = settle(define(cat("relu(", part.name, ")"), relu(part.tensor), part));
  if (part.tensor.rank() > 0 && d.chance(60))
    part = define(cat("flip(", part.name, ")"), flip(part.tensor), part);
  return define(cat("slice_update(", x.name, ", ", list, ", ", part.name, ")"),
                slice_update(x.tensor, slices, part.tensor), x);
}

Value Recorder::joined(const Value& a, const Value& b, const Value& c, Draw& d) {
  if (a.tensor.rank() == 0 || a.tensor.numel() > kMaxElements) return a;
  const int axis = axis_of(a, d);
  std::vector<Value> parts{a};
  const Shape like = a.tensor.shape();
  const int count = static_cast<int>(d.between(1, 2));
  for (int k = 0; k < count; ++k) {
    Value y = k == 0 ? b : c;
    // Of a's rank and, but along the axis, of its extents.
    Shape s = y.tensor.shape();
    if (s.rank() != like.rank()) {
      Shape flat;
      for (int r = 0; r < like.rank(); ++r) flat.push_back(r == axis ? y.tensor.numel() : 1);
      y = reshaped(y, flat);
      s = flat;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> widths;
    for (int r = 0; r < like.rank(); ++r)
      widths.emplace_back(0, r == axis ? -std::max<std::int64_t>(0, s[r] - 7) : like[r] - s[r]);
    parts.push_back(padded(y, widths, 1));
  }
  if (d.chance(20)) {  // many: a join of joins, some of which are stored
    std::int64_t elements = 0;
    for (const Value& v : parts) elements += v.tensor.numel();
    const std::int64_t own = std::ssize(parts), room = (kMaxElements - elements) * own / (elements + 1);
    const std::int64_t count = std::min(d.between(4, 70), own + std::max<std::int64_t>(room, 0));
    for (std::int64_t k = own; k < count; ++k) parts.push_back(parts[static_cast<std::size_t>(k % own)]);
  }
  DType t = a.tensor.dtype();
  for (const Value& v : parts) t = promote(t, v.tensor.dtype());
  std::vector<Tensor> tensors;
  std::string names;
  Value all;
  all.exact = true;
  for (Value& v : parts) {
    if (is_float(t)) v = exactly(v, exact_limit(t));
    tensors.push_back(v.tensor);
    names += (names.empty() ? "" : ", ") + v.name;
    all.bound = std::max(all.bound, v.bound);
    all.exact &= v.exact;
    all.error = std::max(all.error, v.error);
  }
  if (!all.exact) all.error += epsilon(t) * all.bound;
  return settle(define(cat("concat({", names, "}, ", axis, ")"), concat(tensors, axis), all));
}

Value Recorder::stacked(const Value& a, const Value& b, Draw& d) {
  if (a.tensor.rank() >= kMaxRankUsed || a.tensor.numel() > kMaxElements) return a;
  const int axis = static_cast<int>(d.between(0, a.tensor.rank()));
  Value y = a;
  if (b.tensor.shape() == a.tensor.shape())
    y = b;
  else if (!is_bool(a.tensor.dtype()))
    y = settle(define(cat("abs(", a.name, ")"), abs(a.tensor), a));
  Value x = a;
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  if (is_float(t)) x = exactly(x, exact_limit(t)), y = exactly(y, exact_limit(t));
  Value all = x;
  all.bound = std::max(x.bound, y.bound);
  all.exact = x.exact && y.exact;
  all.error = all.exact ? 0 : std::max(x.error, y.error) + epsilon(t) * all.bound;
  const Value stack_of = settle(
      define(cat("stack({", x.name, ", ", y.name, "}, ", axis, ")"), stack({x.tensor, y.tensor}, axis), all));
  return d.chance(30) ? reduce_over(stack_of, axis, std::to_string(axis), 2, d) : stack_of;
}

Value Recorder::broadcast(const Value& x, Draw& d) {
  Shape s;
  std::int64_t n = x.tensor.numel();
  const int more = x.tensor.rank() < kMaxRankUsed - 1 ? static_cast<int>(d.below(2)) : 0;
  for (int a = -more; a < x.tensor.rank(); ++a) {
    std::int64_t extent = a < 0 ? 1 : x.tensor.dim(a);
    if (extent == 1) {
      extent = d.between(1, 5);
      if (n * extent > kMaxElements) extent = 1;
      n *= extent;
    }
    s.push_back(extent);
  }
  return define(cat("broadcast_to(", x.name, ", ", shape_text(s), ")"), broadcast_to(x.tensor, s), x);
}

/// Windows over one axis or two.
Value Recorder::windowed(const Value& x, Draw& d) {
  std::vector<int> axes;
  Shape size, stride, dilation;
  std::int64_t n = x.tensor.numel();
  const int first = axis_of(x, d);
  for (const int axis : {first, first + 1}) {
    if (axis >= x.tensor.rank() || x.tensor.rank() + size.rank() >= kMaxRankUsed || x.tensor.dim(axis) == 0)
      break;
    const std::int64_t gap = d.between(1, 3), most = (x.tensor.dim(axis) - 1) / gap + 1;
    std::int64_t length = d.between(1, std::min<std::int64_t>(most, 4));
    if (n * length > kMaxElements) length = 1;
    n *= length;
    axes.push_back(axis);
    size.push_back(length);
    stride.push_back(d.between(1, 3));
    dilation.push_back(gap);
    if (d.chance(60)) break;
  }
  if (axes.empty()) return x;
  return define(cat("sliding_window(", x.name, ", ", shape_text(size), ", Axes", list_text(axes), ", ",
                    shape_text(stride), ", ", shape_text(dilation), ")"),
                sliding_window(x.tensor, size, axes, stride, dilation), x);
}

}  // namespace kiln::test
