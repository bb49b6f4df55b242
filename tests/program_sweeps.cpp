// Random programs of several reductions over different axes of one value: of each other's results, joined by
// maps, and of square values and their transposes.
#include "program_recorder.h"

namespace kiln::test {

/// A reduction along one axis that keeps integers exact: max, min, or a sum of small numbers.
Value Recorder::reduced_along(const Value& v, int axis, bool keep, Draw& d) {
  Value x = v;
  const std::string tail = cat(", ", axis, keep ? ", true)" : ", false)");
  const double n = static_cast<double>(x.tensor.dim(axis));
  switch (n == 0 ? 2 : d.below(4)) {
    case 0: return settle(define(cat("max(", x.name, tail), max(x.tensor, {axis}, keep), x));
    case 1: return settle(define(cat("min(", x.name, tail), min(x.tensor, {axis}, keep), x));
    default: break;
  }
  const DType t = x.tensor.dtype();
  const double limit = is_float(t) ? exact_limit(t) : 1e9;
  if (n * x.bound > limit) x = tame(x, std::max(1.0, std::floor(limit / std::max(n, 1.0))));
  const bool fits = n * x.bound <= limit;
  return define(cat("sum(", x.name, tail), sum(x.tensor, {axis}, keep), fits, n * x.bound,
                fits ? 0 : 4 * epsilon(t) * n * x.bound);
}

/// Distances of all rows of x to some rows, and the nearest or its place.
Value Recorder::nearest(const Value& v, Draw& d) {
  Value x = v;
  const std::int64_t rows = std::min<std::int64_t>(x.tensor.numel(), d.between(1, 40));
  if (x.tensor.numel() == 0) return x;
  const std::int64_t width = std::max<std::int64_t>(1, std::min<std::int64_t>(x.tensor.numel() / rows, 37));
  x = reshaped(x, Shape{x.tensor.numel()});
  x = define(cat(x.name, "(range(0, ", rows * width, "))"), x.tensor(kiln::range(0, rows * width)), x);
  x = reshaped(cast(x, DType::Float32), Shape{rows, width});
  x = tame(x, 300);
  const std::int64_t others = d.between(1, std::min<std::int64_t>(rows, 40));
  const Value y = define(cat("flip(", x.name, ", 0)(range(0, ", others, "))"),
                         flip(x.tensor, 0)(kiln::range(0, others)), x);
  const Value pairs = define(cat("expand_dims(", x.name, ", 1) - expand_dims(", y.name, ", 0)"),
                             expand_dims(x.tensor, 1) - expand_dims(y.tensor, 0), true, 600);
  const bool squares = d.chance(60);
  const Value apart =
      squares ? define(cat(pairs.name, " * ", pairs.name), pairs.tensor * pairs.tensor, true, 360000)
              : define(cat("abs(", pairs.name, ")"), abs(pairs.tensor), true, 600);
  const double n = static_cast<double>(width);
  const bool fits = apart.bound * n <= exact_limit(DType::Float32);
  const Value sums = define(cat("sum(", apart.name, ", -1)"), sum(apart.tensor, {-1}), fits, apart.bound * n,
                            fits ? 0 : 4 * epsilon(DType::Float32) * apart.bound * n);
  const int axis = d.chance(75) ? 1 : 0;
  if (!fits || d.chance(40))
    return settle(define(cat("min(", sums.name, ", ", axis, ")"), min(sums.tensor, {axis}), sums));
  return define(cat("argmin(", sums.name, ", ", axis, ")"), argmin(sums.tensor, axis), true, 40);
}

/// A square of its elements, with its transpose or with reductions over either axis.
Value Recorder::in_a_square(const Value& v, Draw& d) {
  Value x = v;
  std::int64_t n = 1;
  while ((n + 1) * (n + 1) <= x.tensor.numel()) ++n;
  if (x.tensor.numel() == 0) return x;
  x = reshaped(x, Shape{x.tensor.numel()});
  x = reshaped(define(cat(x.name, "(range(0, ", n * n, "))"), x.tensor(kiln::range(0, n * n)), x),
               Shape{n, n});
  if (d.chance(50)) x = define(cat(x.name, " * 1"), x.tensor * 1, x);  // computed here rather than read
  x = tame(x, 20);
  if (d.chance(35))
    return define(cat(x.name, " + matrix_transpose(", x.name, ")"), x.tensor + matrix_transpose(x.tensor),
                  true, 2 * x.bound);
  const Value a = reduced_along(x, 0, false, d), b = reduced_along(x, 1, d.chance(30), d);
  const bool exact =
      a.exact && b.exact && a.bound + b.bound <= exact_limit(promote(a.tensor.dtype(), b.tensor.dtype()));
  return define(cat(a.name, " + ", b.name), a.tensor + b.tensor, exact, a.bound + b.bound,
                a.error + b.error + (exact ? 0 : 4 * epsilon(x.tensor.dtype()) * (a.bound + b.bound)));
}

Value Recorder::sweeps(const Value& v, Draw& d) {
  Value x = numeric(comparable(v));
  if (const DType t = x.tensor.dtype(); !is_float(t) || is_half(t)) x = cast(tame(x, 200), DType::Float32);
  x = tame(x, 200);
  if (d.chance(25)) return nearest(x, d);
  if (d.chance(25)) return in_a_square(x, d);
  const int rank = x.tensor.rank();
  if (rank < 2 || x.tensor.numel() == 0) return x;
  const int a = static_cast<int>(d.below(rank));
  const int b = static_cast<int>((a + 1 + d.below(rank - 1)) % rank);
  if (d.chance(50)) {  // one of the other's results
    Value inner = reduced_along(x, a, true, d);
    if (d.chance(30))
      inner = define(cat("abs(", inner.name, ") + 1"), abs(inner.tensor) + 1, inner.exact, inner.bound + 1,
                     inner.error);
    if (d.chance(30))
      inner = define(cat("squeeze(", inner.name, ", ", a, ")"), squeeze(inner.tensor, a), inner);
    const int axis = inner.tensor.rank() < rank && b > a ? b - 1 : b;
    if (inner.exact && d.chance(30))
      return define(cat("argmax(", inner.name, ", ", axis, ")"), argmax(inner.tensor, axis), true, 6000);
    Value outer = reduced_along(inner, axis, d.chance(30), d);
    if (outer.tensor.rank() > 1 && d.chance(30))
      outer = reduced_along(outer, static_cast<int>(d.below(outer.tensor.rank())), false, d);
    return outer;
  }
  const Value first = reduced_along(x, a, true, d);  // a map of both
  if (d.chance(50))
    x = define(cat(x.name, " - ", first.name), x.tensor - first.tensor, true, x.bound + first.bound);
  const Value second = reduced_along(x, b, true, d);
  const double bound = x.bound + first.bound + second.bound;
  const bool exact = x.exact && first.exact && second.exact && bound <= exact_limit(DType::Float32);
  return define(cat("(", x.name, " - ", first.name, ") + ", second.name),
                (x.tensor - first.tensor) + second.tensor, exact, bound,
                x.error + first.error + second.error + (exact ? 0 : 4 * epsilon(DType::Float32) * bound));
}

}  // namespace kiln::test
