// Random reductions, products and scans.
#include "program_recorder.h"

namespace kiln::test {

Axes Recorder::random_axes(const Value& x, Draw& d, std::string& text, double& count) {
  count = 1;
  if (x.tensor.rank() == 0 || d.chance(25)) {
    text = "all_axes";
    count = static_cast<double>(x.tensor.numel());
    return all_axes;
  }
  std::vector<int> axes;
  for (int a = 0; a < x.tensor.rank(); ++a)
    if (d.chance(50)) axes.push_back(a);
  if (axes.empty()) axes.push_back(static_cast<int>(d.below(x.tensor.rank())));
  for (int a : axes) count *= static_cast<double>(x.tensor.dim(a));
  text = "Axes(std::vector<int>" + list_text(axes) + ")";
  return Axes(axes);
}

Value Recorder::reduce(const Value& v, Draw& d) {
  std::string axes_text;
  double n = 1;
  const Axes axes = random_axes(v, d, axes_text, n);
  return reduce_over(v, axes, axes_text, n, d);
}

Value Recorder::reduce_over(const Value& v, const Axes& axes, const std::string& axes_text, double n,
                            Draw& d) {
  const bool keep = d.chance(40);
  const std::string tail = cat(", ", axes_text, keep ? ", true)" : ", false)");
  int kind = static_cast<int>(d.below(12));
  if (n == 0 && (kind == 3 || kind == 4)) kind = 0;
  Value x = v;
  const DType t = x.tensor.dtype();
  const double e = epsilon(t);
  switch (kind) {
    case 3: return settle(define(cat("max(", x.name, tail), max(x.tensor, axes, keep), x));
    case 4: return settle(define(cat("min(", x.name, tail), min(x.tensor, axes, keep), x));
    case 5:
      if (!x.exact) break;
      return define(cat("any(", x.name, tail), any(x.tensor, axes, keep), true, 1);
    case 6:
      if (!x.exact) break;
      return define(cat("all(", x.name, tail), kiln::all(x.tensor, axes, keep), true, 1);
    case 7:
      if (!x.exact) break;
      return define(cat("count_nonzero(", x.name, tail), count_nonzero(x.tensor, axes, keep), true, n);
    case 8: {
      if (is_float(t)) x = tame(x, 1);
      x = numeric(x);
      if (!x.exact) break;
      return define(cat("prod(", x.name, tail), prod(x.tensor, axes, keep), true, is_float(t) ? 1 : 9.3e18);
    }
    case 9: {
      x = real(x, 100);
      const double f = epsilon(x.tensor.dtype());
      return define(cat("mean(", x.name, tail), mean(x.tensor, axes, keep), false, x.bound,
                    x.error + f * x.bound * 4);
    }
    case 10: {
      x = real(x, 30);
      if (n == 0) break;
      const double f = epsilon(x.tensor.dtype()), bound = x.bound + std::log(n) + 1;
      return define(cat("logsumexp(", x.name, tail), logsumexp(x.tensor, axes, keep), false, bound,
                    2 * x.error + 8 * f * bound);
    }
    case 11: {
      x = real(x, 10);
      const double f = epsilon(x.tensor.dtype()), b = x.bound, off = 8 * b * x.error + 16 * f * b * b;
      if (d.chance(30))  // a root's difference is at most the root of the difference
        return define(cat("kiln::std(", x.name, tail), kiln::std(x.tensor, axes, keep), false, b + 1,
                      std::sqrt(off) + 2 * f * (b + 1));
      return define(cat("var(", x.name, tail), var(x.tensor, axes, keep), false, b * b + 1, off);
    }
    default: break;
  }
  x = numeric(x);
  bool exact = x.exact;
  if (is_float(x.tensor.dtype())) {
    const double limit = exact_limit(x.tensor.dtype());
    if (exact && x.bound * n > limit) {
      if (n <= limit)
        x = tame(x, std::max(1.0, std::floor(limit / n)));
      else
        x = tame(x, 1), exact = false;
    }
    if (!exact) x = tame(x, std::max(1.0, std::floor(tame_limit(x.tensor.dtype()) * 50 / std::max(n, 1.0))));
  }
  const double bound = x.bound * n;
  return define(cat("sum(", x.name, tail), sum(x.tensor, axes, keep), exact,
                is_float(x.tensor.dtype()) ? bound : 9.3e18, exact ? 0 : n * x.error + e * bound * 4);
}

Value Recorder::position(const Value& v, Draw& d) {
  const Value x = numeric(comparable(v));
  const int rank = x.tensor.rank();
  std::optional<int> axis;
  if (rank > 0 && d.chance(75)) axis = static_cast<int>(d.below(rank));
  const std::int64_t n = axis ? x.tensor.dim(*axis) : x.tensor.numel();
  if (n == 0) return x;
  const bool keep = d.chance(30);
  const std::string tail =
      cat(", ", axis ? std::to_string(*axis) : "std::nullopt", keep ? ", true)" : ", false)");
  if (d.chance(50))
    return define(cat("argmax(", x.name, tail), argmax(x.tensor, axis, keep), true, static_cast<double>(n));
  return define(cat("argmin(", x.name, tail), argmin(x.tensor, axis, keep), true, static_cast<double>(n));
}

Value Recorder::norm(const Value& v, Draw& d) {
  Value x = real(v, 10);
  if (x.tensor.rank() == 0 || x.tensor.numel() == 0) return x;
  const double e = epsilon(x.tensor.dtype()), b = x.bound + 1;
  const int axis = static_cast<int>(d.below(x.tensor.rank()));
  switch (d.below(6)) {
    case 0:
      return define(cat("nn::softmax(", x.name, ", ", axis, ")"), nn::softmax(x.tensor, axis), false, 1,
                    4 * x.error + 8 * e * b);
    case 1:
      return define(cat("nn::log_softmax(", x.name, ", ", axis, ")"), nn::log_softmax(x.tensor, axis), false,
                    4 * b + 8, 4 * x.error + 16 * e * (b + 8));
    case 2:
      return define(cat("nn::layer_norm(", x.name, ", {}, {}, 1.0)"), nn::layer_norm(x.tensor, {}, {}, 1.0),
                    false, 2 * b, (4 * x.error + 16 * e * b) * b);
    case 3:
      if (x.tensor.rank() == 1) break;
      return define(cat("nn::batch_norm_training(", x.name, ", {}, {}, 1.0, ", axis, ")"),
                    nn::batch_norm_training(x.tensor, {}, {}, 1.0, axis), false, 2 * b,
                    (4 * x.error + 16 * e * b) * b);
    case 4: {
      const Value keys = comparable(x);
      const Value labels = define(cat("argmin(", keys.name, ", -1)"), argmin(keys.tensor, -1), true, 0);
      return define(cat("nn::cross_entropy(", x.name, ", ", labels.name, ", nn::Reduction::None)"),
                    nn::cross_entropy(x.tensor, labels.tensor, nn::Reduction::None), false, 4 * b + 8,
                    4 * x.error + 16 * e * (b + 8));
    }
    default: break;
  }
  return define(cat("nn::rms_norm(", x.name, ", {}, 1.0)"), nn::rms_norm(x.tensor, {}, 1.0), false, b,
                (4 * x.error + 16 * e * b) * b);
}

Value Recorder::product(const Value& a, const Value& b, Draw& d) {
  Value x = numeric(a), y = numeric(b);
  if (x.tensor.rank() < 2 || x.tensor.numel() > 3000) {
    if (x.tensor.numel() > 200) return a;
    x = reshaped(x, Shape{1, x.tensor.numel()});
  }
  const std::int64_t k = x.tensor.dim(-1);
  if (y.tensor.rank() != 2) y = reshaped(y, Shape{y.tensor.numel(), 1});
  const std::int64_t n = std::min<std::int64_t>(y.tensor.dim(1), 17);
  y = padded(y, {{0, k - y.tensor.dim(0)}, {0, n - y.tensor.dim(1)}}, 1);
  if (d.chance(30)) {
    y = define(cat("matrix_transpose(", y.name, ")"), matrix_transpose(y.tensor), y);
    if (y.tensor.dim(0) != k) y = padded(y, {{0, k - y.tensor.dim(0)}, {0, 0}}, 1);
  }
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  const bool exact = x.exact && y.exact;
  const double count = static_cast<double>(std::max<std::int64_t>(k, 1));
  if (is_float(t)) {
    const double root = std::max(1.0, std::floor(std::sqrt((exact ? exact_limit(t) : 4000.0) / count)));
    x = cast(tame(x, root), t), y = cast(tame(y, root), t);
  }
  const double bound = count * x.bound * y.bound;
  const bool fits = exact && bound <= exact_limit(t);
  const double error = fits ? 0 : count * (x.error * y.bound + y.error * x.bound) + 4 * epsilon(t) * bound;
  const double all = is_float(t) ? bound : 9.3e18;
  switch (d.below(8)) {
    case 0:
      return define(cat("einsum(\"...ik,kj->...ij\", {", x.name, ", ", y.name, "})"),
                    einsum("...ik,kj->...ij", {x.tensor, y.tensor}), fits, all, error);
    case 1:
      return define(cat("einsum(\"...ik,kj->j...i\", {", x.name, ", ", y.name, "})"),
                    einsum("...ik,kj->j...i", {x.tensor, y.tensor}), fits, all, error);
    case 2:
      return define(cat("tensordot(", x.name, ", ", y.name, ", 1)"), tensordot(x.tensor, y.tensor, 1), fits,
                    all, error);
    case 3:
      if (y.tensor.dim(1) == 0) break;
      return define(cat("vecdot(", x.name, ", ", y.name, ".T()(0))"),
                    vecdot(x.tensor, std::as_const(y.tensor).T()(0)), fits, all, error);
    default: break;
  }
  return define(cat("matmul(", x.name, ", ", y.name, ")"), matmul(x.tensor, y.tensor), fits, all, error);
}

/// log(cumsum(exp(x))): rounded once for each element so far.
Value Recorder::log_scanned(const Value& v, const std::string& tail, std::optional<int> axis, bool exclusive,
                            bool reverse, double n) {
  const Value x = real(v, 30);
  const double e = epsilon(x.tensor.dtype()), bound = x.bound + std::log(n + 1) + 1;
  Value out = define(cat("logcumsumexp(", x.name, tail), logcumsumexp(x.tensor, axis, exclusive, reverse),
                     false, bound, 2 * x.error + e * (8 * bound + n));
  if (exclusive) out.bound = INFINITY;  // log of nothing
  return out;
}

Value Recorder::scanned(const Value& v, Draw& d) {
  Value x = v;
  if (x.tensor.rank() == 0) return x;
  const std::optional<int> axis = d.chance(85) ? std::optional(axis_of(x, d)) : std::nullopt;
  const bool exclusive = d.chance(30), reverse = d.chance(30);
  const std::string tail = cat(", ", axis ? std::to_string(*axis) : "std::nullopt",
                               exclusive ? ", true" : ", false", reverse ? ", true)" : ", false)");
  const double n = static_cast<double>(axis ? x.tensor.dim(*axis) : x.tensor.numel());
  switch (d.below(6)) {
    case 0: {
      Value out = define(cat("cummax(", x.name, tail), cummax(x.tensor, axis, exclusive, reverse), x);
      if (exclusive) out.bound = INFINITY;
      return settle(out);
    }
    case 1: {
      Value out = define(cat("cummin(", x.name, tail), cummin(x.tensor, axis, exclusive, reverse), x);
      if (exclusive) out.bound = INFINITY;
      return settle(out);
    }
    case 2: return log_scanned(x, tail, axis, exclusive, reverse, n);
    case 3:
      if (!x.exact && !is_float(x.tensor.dtype())) return x;
      if (x.exact) {
        if (is_float(x.tensor.dtype())) x = tame(x, 1);
        return define(cat("cumprod(", x.name, tail), cumprod(x.tensor, axis, exclusive, reverse), true,
                      is_float(x.tensor.dtype()) ? 1 : 9.3e18);
      }
      [[fallthrough]];
    default: {
      bool exact = x.exact;
      if (is_float(x.tensor.dtype())) {
        const double limit = exact_limit(x.tensor.dtype());
        if (exact && x.bound * n > limit) {
          exact = n <= limit;
          x = tame(x, exact ? std::max(1.0, std::floor(limit / n)) : 1);
        }
        if (!exact)
          x = tame(x, std::max(1.0, std::floor(tame_limit(x.tensor.dtype()) * 50 / std::max(n, 1.0))));
      }
      const double bound = x.bound * n, e = epsilon(x.tensor.dtype());
      return define(cat("cumsum(", x.name, tail), cumsum(x.tensor, axis, exclusive, reverse), exact,
                    // down columns one by one
                    is_float(x.tensor.dtype()) ? bound : 9.3e18,
                    exact ? 0 : n * x.error + e * bound * (8 + n / 8));
    }
  }
}

}  // namespace kiln::test
