// Random indexing by tensors, sorting, and selections whose size the values decide.
#include "program_recorder.h"

namespace kiln::test {
namespace {

constexpr std::int64_t kMostPositions = 50;

std::string names_of(const std::vector<Value>& values) {
  std::string list;
  for (const Value& v : values) list += (list.empty() ? "" : ", ") + v.name;
  return list;
}
std::vector<Tensor> tensors_of(const std::vector<Value>& values) {
  std::vector<Tensor> list;
  for (const Value& v : values) list.push_back(v.tensor);
  return list;
}

}  // namespace

/// A vector of positions along an axis of n elements, some from the back, some out of range.
Value Recorder::positions(const Value& v, std::int64_t n) {
  Value at = cast(comparable(v), DType::Int64);
  at = reshaped(at, Shape{at.tensor.numel()});
  if (at.tensor.numel() > kMostPositions) at = padded(at, {{0, kMostPositions - at.tensor.numel()}}, 0);
  return define(cat(at.name, " % ", 2 * n + 2, " - ", n + 1), at.tensor % (2 * n + 2) - (n + 1), true,
                static_cast<double>(n + 1));
}

/// The vector of positions as indices of x's rank, the same for all other axes.
Value Recorder::along_axis(const Value& at, const Value& x, int axis) {
  Shape s;
  for (int a = 0; a < x.tensor.rank(); ++a) s.push_back(a == axis ? at.tensor.numel() : 1);
  return reshaped(at, s);
}

/// Index tensors of x's first axes, which have elements: vectors of one length, or crossed, the first down a
/// column.
std::vector<Value> Recorder::coordinates(const Value& a, const Value& b, const Value& x, bool crossed,
                                         Draw& d) {
  std::vector<Value> list{positions(a, x.tensor.dim(0))};
  if (x.tensor.rank() == 1 || d.chance(20)) return list;
  list.push_back(positions(b, x.tensor.dim(1)));
  if (crossed) {
    list[0] = reshaped(list[0], Shape{list[0].tensor.numel(), 1});
    return list;
  }
  const std::int64_t n = std::min(list[0].tensor.numel(), list[1].tensor.numel());
  for (Value& v : list) v = padded(v, {{0, n - v.tensor.numel()}}, 0);
  return list;
}

/// Starts of a box, one an axis: numbers, or elements of a vector of positions. Some are out of range.
struct Recorder::Box {
  std::vector<Value> values;
  std::vector<std::int64_t> numbers;
  std::vector<bool> in_tensor;
  std::string text;

  std::vector<Operand> starts() const {
    std::vector<Operand> out;
    for (std::size_t a = 0; a < numbers.size(); ++a) {
      if (in_tensor[a])
        out.push_back(Operand(values[a].tensor));
      else
        out.push_back(Operand(numbers[a]));
    }
    return out;
  }
};

Recorder::Box Recorder::box_in(const Value& x, const Shape& sizes, const Value& indices, Draw& d) {
  Box box;
  for (int a = 0; a < sizes.rank(); ++a) {
    const std::int64_t extent = x.tensor.dim(a);
    box.numbers.push_back((d.between(-extent - 1, extent + 1) + p_.variant) % (extent + 2));
    box.in_tensor.push_back(d.chance(60));
    box.values.emplace_back();
    if (box.in_tensor.back()) {
      const Value at = positions(indices, extent);
      const std::int64_t n = at.tensor.numel(), k = n == 0 ? 0 : d.below(n);
      box.values.back() =
          n == 0 ? define(cat("Tensor(", box.numbers.back(), ")"), Tensor(box.numbers.back()), true, 1)
                 : define(cat(at.name, "(", k, ")"), at.tensor(k), at);
    }
    box.text += cat(a ? ", " : "",
                    box.in_tensor.back() ? box.values.back().name : std::to_string(box.numbers.back()));
  }
  return box;
}

Value Recorder::boxed(const Value& x, const Value& indices, Draw& d) {
  if (x.tensor.rank() == 0) return x;
  Shape sizes;
  for (std::int64_t extent : x.tensor.shape())
    sizes.push_back(d.chance(30) ? extent : d.between(extent > 0, extent));
  const Box box = box_in(x, sizes, indices, d);
  return define(cat("dynamic_slice(", x.name, ", std::initializer_list<Operand>{", box.text, "}, ",
                    shape_text(sizes), ")"),
                dynamic_slice(x.tensor, box.starts(), sizes), x);
}

Value Recorder::box_updated(const Value& x, const Value& indices, Draw& d) {
  if (x.tensor.rank() == 0) return x;
  Value part = boxed(x, indices, d);
  if (!is_bool(part.tensor.dtype()) && d.chance(60))
    part = settle(define(cat("relu(", part.name, ")"), relu(part.tensor), part));
  const Box box = box_in(x, part.tensor.shape(), indices, d);
  return define(cat("dynamic_update_slice(", x.name, ", ", part.name, ", std::initializer_list<Operand>{",
                    box.text, "})"),
                dynamic_update_slice(x.tensor, part.tensor, box.starts()), x);
}

Value Recorder::gathered(const Value& x, const Value& indices, const Value& more, Draw& d) {
  if (x.tensor.rank() == 0 || x.tensor.numel() == 0) return x;
  const int axis = axis_of(x, d);
  const std::int64_t n = x.tensor.dim(axis), rest = x.tensor.numel() / n;
  if (rest * kMostPositions > 4 * kMaxElements) return x;
  switch (d.below(7)) {
    case 0: {
      const Value at = positions(indices, x.tensor.numel());
      return settle(define(cat("take(", x.name, ", ", at.name, ")"), take(x.tensor, at.tensor), x));
    }
    case 1: {
      Value at = positions(indices, n);
      at = reshaped(at, random_factors(at.tensor.numel(), d));
      if (at.tensor.rank() + x.tensor.rank() - 1 > kMaxRankUsed) at = reshaped(at, Shape{at.tensor.numel()});
      return settle(
          define(cat("take(", x.name, ", ", at.name, ", ", axis, ")"), take(x.tensor, at.tensor, axis), x));
    }
    case 2: {
      const Value at = along_axis(positions(indices, n), x, axis);
      return settle(define(cat("take_along_axis(", x.name, ", ", at.name, ", ", axis, ")"),
                           take_along_axis(x.tensor, at.tensor, axis), x));
    }
    case 3: {  // an index for each element
      const Value keys = comparable(x);
      const Value at = define(cat("argsort(", keys.name, ", ", axis, ", true) - 1"),
                              argsort(keys.tensor, axis, true) - 1, true, static_cast<double>(n));
      return settle(define(cat("take_along_axis(", x.name, ", ", at.name, ", ", axis, ")"),
                           take_along_axis(x.tensor, at.tensor, axis), x));
    }
    case 4: {
      const bool crossed = d.chance(50) && x.tensor.numel() < 2 * kMaxElements / kMostPositions;
      if (x.tensor.numel() / x.tensor.dim(0) * kMostPositions > 4 * kMaxElements) return x;
      const std::vector<Value> at = coordinates(indices, more, x, crossed, d);
      return settle(
          define(cat("gather(", x.name, ", {", names_of(at), "})"), gather(x.tensor, tensors_of(at)), x));
    }
    case 5: {
      const Value at = positions(indices, 9);
      const DType t = x.tensor.dtype();
      return define(cat("one_hot(", at.name, ", 9, ", dtype_text(t), ")"), one_hot(at.tensor, 9, t), true, 1);
    }
    default: {
      const Value at = positions(indices, n);
      return settle(
          define(cat("take(", x.name, ", ", at.name, ", ", axis, ")"), take(x.tensor, at.tensor, axis), x));
    }
  }
}

/// How values meet what stands there; x is limited so that `meeting` of them may be combined.
Combine Recorder::how_to_write(Value& x, double meeting, Draw& d) {
  auto how = static_cast<Combine>(d.below(5));
  const DType t = x.tensor.dtype();
  if (is_bool(t) && (how == Combine::Add || how == Combine::Multiply)) how = Combine::Set;
  if (how == Combine::Multiply && !x.exact) how = Combine::Max;
  if (is_float(t) && how == Combine::Multiply) x = tame(x, 1);
  if (is_float(t) && how == Combine::Add)
    x = tame(x, std::max(1.0, std::floor((x.exact ? exact_limit(t) : tame_limit(t)) / meeting)));
  return how;
}

Value Recorder::scattered(const Value& v, const Value& indices, const Value& places, Draw& d) {
  Value x = v;
  if (x.tensor.rank() == 0 || x.tensor.numel() == 0) return x;
  const int axis = axis_of(x, d);
  const std::int64_t n = x.tensor.dim(axis);
  if (x.tensor.numel() / std::min(n, x.tensor.dim(0)) * kMostPositions > 4 * kMaxElements) return x;
  const double meeting = kMostPositions + 1;  // values that meet, and what stood there
  const Combine how = how_to_write(x, meeting, d);
  const std::string tail = cat("Combine(", static_cast<int>(how), "))");
  Value out;
  switch (d.below(5)) {
    case 0: {  // at coordinates
      const std::vector<Value> at = coordinates(indices, places, x, false, d);
      const std::vector<Tensor> list = tensors_of(at);
      if (d.chance(30) && !is_bool(x.tensor.dtype())) {
        out = define(cat("scatter(", x.name, ", {", names_of(at), "}, 1, ", tail),
                     scatter(x.tensor, list, 1, how), x);
        break;
      }
      const Value values = define(cat("flip(gather(", x.name, ", {", names_of(at), "}), 0)"),
                                  flip(gather(x.tensor, list), 0), x);
      out = define(cat("scatter(", x.name, ", {", names_of(at), "}, ", values.name, ", ", tail),
                   scatter(x.tensor, list, values.tensor, how), x);
      break;
    }
    case 1: {  // an index for each place of an axis, or for each element
      const Value keys = comparable(x);
      const Value at = d.chance(50) ? along_axis(positions(places, n), x, axis)
                                    : define(cat("argsort(", keys.name, ", ", axis, ")"),
                                             argsort(keys.tensor, axis), true, static_cast<double>(n));
      const Value values =
          define(cat("flip(take_along_axis(", x.name, ", ", at.name, ", ", axis, "), ", axis, ")"),
                 flip(take_along_axis(x.tensor, at.tensor, axis), axis), x);
      out = define(cat("put_along_axis(", x.name, ", ", at.name, ", ", values.name, ", ", axis, ", ", tail),
                   put_along_axis(x.tensor, at.tensor, values.tensor, axis, how), x);
      break;
    }
    default: {
      Value from = positions(indices, n), at = positions(places, n);
      const std::int64_t both = std::min(from.tensor.numel(), at.tensor.numel());
      from = padded(from, {{0, both - from.tensor.numel()}}, 0);
      at = padded(at, {{0, both - at.tensor.numel()}}, 0);
      const Value values = define(cat("take(", x.name, ", ", from.name, ", ", axis, ")"),
                                  take(x.tensor, from.tensor, axis), x);
      out = define(cat("scatter(", x.name, ", ", at.name, ", ", values.name, ", ", axis, ", ", tail),
                   scatter(x.tensor, at.tensor, values.tensor, axis, how), x);
    }
  }
  out.bound = std::max(out.bound, 1.0);
  if (how == Combine::Add) {
    out.bound *= meeting;
    if (!x.exact) out.error = x.error * meeting + epsilon(x.tensor.dtype()) * out.bound * meeting;
  }
  if (how == Combine::Multiply && !is_float(x.tensor.dtype())) out.bound = greatest(x.tensor.dtype());
  return settle(out);
}

Value Recorder::sorted(const Value& v, const Value& wanted, Draw& d) {
  if (v.tensor.rank() == 0) return v;
  const int axis = axis_of(v, d);
  const std::int64_t n = v.tensor.dim(axis),
                     k = d.chance(70) ? d.between(0, std::min<std::int64_t>(n, 5)) : d.between(0, n);
  const bool first = d.chance(50);
  const std::string turn = first ? "true)" : "false)";
  switch (d.below(8)) {
    case 0:
    case 1: return define(cat("sort(", v.name, ", ", axis, ", ", turn), sort(v.tensor, axis, first), v);
    case 2:
      return define(cat("topk(", v.name, ", ", k, ", ", axis, ", ", turn, ".values"),
                    topk(v.tensor, k, axis, first).values, v);
    case 3: {
      const Value x = comparable(v);
      return define(cat("argsort(", x.name, ", ", axis, ", ", turn), argsort(x.tensor, axis, first), true,
                    static_cast<double>(n));
    }
    case 4: {
      const Value x = comparable(v);
      return define(cat("topk(", x.name, ", ", k, ", ", axis, ", ", turn, ".indices"),
                    topk(x.tensor, k, axis, first).indices, true, static_cast<double>(n));
    }
    case 5: {
      const auto number = static_cast<std::uint64_t>(d.below(1000));
      return define(cat("random::permutation(random::Key(", number, "), ", v.name, ", ", axis, ")"),
                    random::permutation(random::Key(number), v.tensor, axis), v);
    }
    case 6: {  // both results of one sort
      const Value x = comparable(v);
      const Sorted s = sort_with_indices(x.tensor, axis, first);
      return define(cat("[&](const Sorted& s) { return where(s.indices % 2 == 0, s.values, ", x.name,
                        "); }(sort_with_indices(", x.name, ", ", axis, ", ", turn, ")"),
                    where(s.indices % 2 == 0, s.values, x.tensor), x);
    }
    default: {
      Value x = comparable(v), y = comparable(wanted);
      const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
      if (is_float(t)) x = tame(x, exact_limit(t)), y = tame(y, exact_limit(t));
      x = reshaped(x, Shape{x.tensor.numel()});
      x = define(cat("sort(", x.name, ")"), sort(x.tensor), x);
      return define(cat("searchsorted(", x.name, ", ", y.name, ", ", turn),
                    searchsorted(x.tensor, y.tensor, first), true, static_cast<double>(x.tensor.numel()));
    }
  }
}

/// Evaluates what decides the shape.
Value Recorder::selected(const Value& v, const Value& chosen, Draw& d) {
  if (v.tensor.rank() == 0) return v;
  const Shape dims = v.tensor.shape();
  const Value x = comparable(v);
  const double n = static_cast<double>(v.tensor.numel());
  switch (d.below(7)) {
    case 0:
    case 1: {
      Shape leading;
      const std::int64_t rank = d.between(1, dims.rank());
      for (int a = 0; a < rank; ++a) leading.push_back(dims[a]);
      Value mask = comparable(chosen);
      const std::int64_t have = mask.tensor.numel();
      mask = padded(reshaped(mask, Shape{have}), {{0, leading.numel() - have}}, 1);
      mask = boolean(reshaped(mask, leading));
      return define(cat("compress(", v.name, ", ", mask.name, ")"), compress(v.tensor, mask.tensor), v);
    }
    case 2: {
      const int axis = axis_of(v, d);
      return define(cat("nonzero(", x.name, ")[", axis, "]"),
                    nonzero(x.tensor)[static_cast<std::size_t>(axis)], true, n);
    }
    case 3: return define(cat("unique(", x.name, ")"), unique(x.tensor), x);
    case 4: return define(cat("unique_all(", x.name, ").indices"), unique_all(x.tensor).indices, true, n);
    case 5: return define(cat("unique_all(", x.name, ").inverse"), unique_all(x.tensor).inverse, true, n);
    default: return define(cat("unique_all(", x.name, ").counts"), unique_all(x.tensor).counts, true, n);
  }
}

}  // namespace kiln::test
