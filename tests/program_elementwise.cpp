// Random elementwise operations.
#include "program_recorder.h"

#include <bit>
#include <limits>

namespace kiln::test {
namespace {

struct SmoothOp {
  const char* name;
  Tensor (*fn)(const Tensor&, SourceLocation);
  enum Domain { Any, Small, Above1, Inside } domain;  // Small: |x| <= 4; Above1: |x| + 1; Inside: |x| <= 1/2
  double slope;                                       // Lipschitz constant on the domain
  double (*bound)(double);
};

double same(double b) { return b; }
double one(double) { return 2; }
double plus1(double b) { return b + 1; }
double logarithmic(double b) { return std::log(b + 2) * 1.5 + 1; }
double exponential(double b) { return std::exp(b) + 1; }
const SmoothOp kSmooth[] = {
    {"exp", &kiln::exp, SmoothOp::Small, 55, exponential},
    {"exp2", &kiln::exp2, SmoothOp::Small, 12, exponential},
    {"expm1", &kiln::expm1, SmoothOp::Small, 55, exponential},
    {"sinh", &kiln::sinh, SmoothOp::Small, 30, exponential},
    {"cosh", &kiln::cosh, SmoothOp::Small, 30, exponential},
    {"log", &kiln::log, SmoothOp::Above1, 1, logarithmic},
    {"log2", &kiln::log2, SmoothOp::Above1, 1.5, logarithmic},
    {"log10", &kiln::log10, SmoothOp::Above1, 1, logarithmic},
    {"log1p", &kiln::log1p, SmoothOp::Above1, 1, logarithmic},
    {"sqrt", &kiln::sqrt, SmoothOp::Above1, 1, plus1},
    {"rsqrt", &kiln::rsqrt, SmoothOp::Above1, 1, one},
    {"reciprocal", &kiln::reciprocal, SmoothOp::Above1, 1, one},
    {"sin", &kiln::sin, SmoothOp::Any, 1, one},
    {"cos", &kiln::cos, SmoothOp::Any, 1, one},
    {"tan", &kiln::tan, SmoothOp::Inside, 2, one},
    {"asin", &kiln::asin, SmoothOp::Inside, 2, one},
    {"acos", &kiln::acos, SmoothOp::Inside, 2, one},
    {"atan", &kiln::atan, SmoothOp::Any, 1, one},
    {"atanh", &kiln::atanh, SmoothOp::Inside, 2, one},
    {"asinh", &kiln::asinh, SmoothOp::Any, 1, same},
    {"tanh", &kiln::tanh, SmoothOp::Any, 1, one},
    {"erf", &kiln::erf, SmoothOp::Any, 2, one},
    {"erfc", &kiln::erfc, SmoothOp::Any, 2, one},
    {"sigmoid", &kiln::sigmoid, SmoothOp::Any, 1, one},
    {"gelu", &kiln::gelu, SmoothOp::Any, 2, same},
    {"gelu_tanh", &kiln::gelu_tanh, SmoothOp::Any, 2, same},
    {"silu", &kiln::silu, SmoothOp::Any, 2, same},
    {"softplus", &kiln::softplus, SmoothOp::Any, 1, plus1},
    {"mish", &kiln::mish, SmoothOp::Any, 2, same},
    {"selu", &kiln::selu, SmoothOp::Any, 2, [](double b) { return 2 * b + 2; }},
    {"leaky_relu", &kiln::leaky_relu, SmoothOp::Any, 1, same},
    {"elu", &kiln::elu, SmoothOp::Any, 1, plus1},
    {"hardswish", &kiln::hardswish, SmoothOp::Any, 2, same},
};

}  // namespace

Value Recorder::unary(const Value& v, Draw& d) {
  const int k = static_cast<int>(d.below(13));
  const bool integer = is_int(v.tensor.dtype());
  if (is_bool(v.tensor.dtype())) {
    if (k % 2) return define(cat("logical_not(", v.name, ")"), logical_not(v.tensor), v);
    return define(cat("bitwise_invert(", v.name, ")"), bitwise_invert(v.tensor), v);
  }
  const Value& x = v;
  switch (k) {
    case 0: return settle(define(cat("negative(", x.name, ")"), negative(x.tensor), x));
    case 1: return settle(define(cat("abs(", x.name, ")"), abs(x.tensor), x));
    case 2: return settle(define(cat("relu(", x.name, ")"), relu(x.tensor), x));
    case 3: {
      const Value y = tame(x, 16);
      return define(cat("square(", y.name, ")"), square(y.tensor), y.exact, 256,
                    32 * y.error + extra(y, 256));
    }
    default: break;
  }
  if (!x.exact) return settle(define(cat("negative(", x.name, ")"), negative(x.tensor), x));
  switch (k) {
    case 4: return define(cat("sign(", x.name, ")"), sign(x.tensor), true, 1);
    case 5: return define(cat("floor(", x.name, ")"), floor(x.tensor), x);
    case 6: return define(cat("round(", x.name, ")"), round(x.tensor), x);
    case 7: return define(cat("isnan(", x.name, ")"), isnan(x.tensor), true, 1);
    case 8: return define(cat("isfinite(", x.name, ")"), isfinite(x.tensor), true, 1);
    case 9:
      if (integer) {
        Value out = define(cat("bitwise_invert(", x.name, ")"), bitwise_invert(x.tensor), x);
        out.bound = greatest(x.tensor.dtype());
        return out;
      }
      return define(cat("trunc(", x.name, ")"), trunc(x.tensor), x);
    case 10: return rewired(x);
    case 11: return define(cat("ceil(", x.name, ")"), ceil(x.tensor), x);
    case 12: return define(cat("isinf(", x.name, ")"), isinf(x.tensor), true, 1);
    default: return define(cat("logical_not(", x.name, ")"), logical_not(x.tensor), true, 1);
  }
}

/// The bits of x as another type: an integer's with or without a sign, a float's to take the sign off it. (A
/// float's bits themselves would show the sign of a zero, which is not promised.)
Value Recorder::rewired(const Value& x) {
  const DType t = x.tensor.dtype();
  constexpr DType kSigned[] = {DType::Int8, DType::Int16, DType::Int32, DType::Int64};
  constexpr DType kUnsigned[] = {DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64};
  const auto width = static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(size_of(t))));
  const DType other = is_signed_int(t) ? kUnsigned[width] : kSigned[width];
  Value bits = define(cat("bitcast(", x.name, ", ", dtype_text(other), ")"), bitcast(x.tensor, other), x);
  bits.bound = greatest(other);
  if (is_int(t)) return bits;
  const std::int64_t magnitude = INT64_MAX >> (64 - 8 * size_of(t));
  return define(cat("bitcast(", bits.name, " & ", magnitude, ", ", dtype_text(t), ")"),
                bitcast(bits.tensor & magnitude, t), x);
}

/// Rounding error of one operation whose result is at most `bound`.
double Recorder::extra(const Value& v, double bound) {
  return v.exact ? 0 : epsilon(v.tensor.dtype()) * bound * 2;
}

/// A float value whose magnitude is limited.
Value Recorder::real(const Value& v, double limit) {
  const DType t = v.tensor.dtype();
  Value x = is_float(t) ? v : cast(v, DType::Float32);
  return tame(x, std::min(limit, tame_limit(x.tensor.dtype())));
}

Value Recorder::smooth(const Value& v, Draw& d) {
  const SmoothOp& op = kSmooth[d.below(std::size(kSmooth))];
  Value x = real(v, op.domain == SmoothOp::Small ? 4 : 1000);
  if (op.domain == SmoothOp::Inside) {
    x = define(cat("clip(", x.name, ", -0.5, 0.5)"), clip(x.tensor, -0.5, 0.5), x);
    x.bound = 0.5;
    x.exact = false;
  }
  if (op.domain == SmoothOp::Above1) {
    Value y = define(cat("abs(", x.name, ")"), abs(x.tensor), x);
    x = define(cat(y.name, " + 1"), y.tensor + 1, y.exact, y.bound + 1, y.error + extra(y, y.bound + 1));
  }
  const double bound = op.bound(x.bound);
  const double error = op.slope * x.error + epsilon(x.tensor.dtype()) * (bound * 8 + op.slope * x.bound);
  return define(cat(op.name, "(", x.name, ")"), op.fn(x.tensor, SourceLocation::current()), false, bound,
                error);
}

Value Recorder::binary(const Value& a, const Value& b, Draw& d) {
  const int k = static_cast<int>(d.below(16));
  if (is_bool(a.tensor.dtype()) && is_bool(b.tensor.dtype()) && k < 9) {
    const Value y = fitted(b, a.tensor.shape(), d);
    switch (k % 3) {
      case 0: return define(cat(a.name, " & ", y.name), a.tensor & y.tensor, true, 1);
      case 1: return define(cat(a.name, " | ", y.name), a.tensor | y.tensor, true, 1);
      default: return define(cat(a.name, " ^ ", y.name), a.tensor ^ y.tensor, true, 1);
    }
  }
  Value x = numeric(a), y = numeric(fitted(b, a.tensor.shape(), d));
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  if (is_float(t)) {
    x = tame(x, std::min(exact_limit(t), x.exact ? 1e15 : tame_limit(t)));
    y = tame(y, std::min(exact_limit(t), y.exact ? 1e15 : tame_limit(t)));
    x = cast(x, t);
    y = cast(y, t);
  }
  const bool exact = x.exact && y.exact;
  const double limit = is_float(t) ? (exact ? exact_limit(t) : tame_limit(t)) : 1e300;
  auto rounding = [&](double bound) { return exact ? 0.0 : epsilon(t) * bound * 2; };
  switch (k) {
    case 0:
    case 1:
    case 2: {
      if (x.bound + y.bound > limit) x = tame(x, limit / 2), y = tame(y, limit / 2);
      const double bound = x.bound + y.bound, error = x.error + y.error + rounding(bound);
      if (k == 0) return define(cat(x.name, " - ", y.name), x.tensor - y.tensor, exact, bound, error);
      return define(cat(x.name, " + ", y.name), x.tensor + y.tensor, exact, bound, error);
    }
    case 3:
    case 4: {
      if (x.bound * y.bound > limit) {
        const double root = std::floor(std::sqrt(limit));
        x = tame(x, root), y = tame(y, root);
      }
      const double bound = x.bound * y.bound;
      const double error = x.error * y.bound + y.error * x.bound + x.error * y.error + rounding(bound);
      return define(cat(x.name, " * ", y.name), x.tensor * y.tensor, exact, bound, error);
    }
    case 5:
    case 6: {
      const double bound = std::max(x.bound, y.bound), error = std::max(x.error, y.error);
      if (k == 5)
        return define(cat("maximum(", x.name, ", ", y.name, ")"), maximum(x.tensor, y.tensor), exact, bound,
                      error);
      return define(cat("minimum(", x.name, ", ", y.name, ")"), minimum(x.tensor, y.tensor), exact, bound,
                    error);
    }
    default: break;
  }
  if (!exact) {
    const double bound = std::max(x.bound, y.bound), error = std::max(x.error, y.error);
    return define(cat("maximum(", x.name, ", ", y.name, ")"), maximum(x.tensor, y.tensor), false, bound,
                  error);
  }
  if (is_float(t)) {
    // floor(x / y) of integers: exact where x and y are small
    x = tame(x, std::min(limit, 10000.0)), y = tame(y, 100);
    if (k == 7)
      return define(cat("remainder(", x.name, ", ", y.name, ")"), remainder(x.tensor, y.tensor), true,
                    y.bound);
    if (k == 8)
      return define(cat("fmod(", x.name, ", ", y.name, ")"), fmod(x.tensor, y.tensor), true, y.bound);
    if (k == 9) {
      // a quotient by zero has its sign, which floats may have in one mode and not in another
      y = cast(y, DType::Int32);
      return define(cat("floor_divide(", x.name, ", ", y.name, ")"), floor_divide(x.tensor, y.tensor), true,
                    INFINITY);
    }
    if (k == 11)
      return define(cat("logical_and(", x.name, ", ", y.name, ")"), logical_and(x.tensor, y.tensor), true, 1);
    if (k == 12)
      return define(cat("logical_or(", x.name, ", ", y.name, ")"), logical_or(x.tensor, y.tensor), true, 1);
    if (k == 13)  // whatever was rounded before was whole: the neighbour is the same everywhere
      return define(cat("nextafter(", x.name, ", ", y.name, ")"), nextafter(x.tensor, y.tensor), false,
                    x.bound + 1);
    if (k == 14) {
      y = cast(y, DType::Int32);  // floats may be -0 in one mode and +0 in another
      return define(cat("copysign(", x.name, ", ", y.name, ")"), copysign(x.tensor, y.tensor), x);
    }
    if (k == 10)
      return define(cat("logical_xor(", x.name, ", ", y.name, ")"), logical_xor(x.tensor, y.tensor), true, 1);
    return define(cat("minimum(", x.name, ", ", y.name, ")"), minimum(x.tensor, y.tensor), true,
                  std::max(x.bound, y.bound));
  }
  const double all = greatest(t);
  switch (k) {
    case 7: return define(cat(x.name, " % ", y.name), x.tensor % y.tensor, true, all);
    case 8:
      return define(cat("floor_divide(", x.name, ", ", y.name, ")"), floor_divide(x.tensor, y.tensor), true,
                    all);
    case 9: return define(cat("fmod(", x.name, ", ", y.name, ")"), fmod(x.tensor, y.tensor), true, all);
    case 10: return define(cat(x.name, " << ", y.name), x.tensor << y.tensor, true, all);
    case 11: return define(cat(x.name, " >> ", y.name), x.tensor >> y.tensor, true, all);
    case 13:
      return define(cat("multiply_high(", x.name, ", ", y.name, ")"), multiply_high(x.tensor, y.tensor), true,
                    all);
    case 12: return define(cat(x.name, " ^ ", y.name), x.tensor ^ y.tensor, true, all);
    default: return define(cat("pow(", x.name, ", ", y.name, ")"), pow(x.tensor, y.tensor), true, all);
  }
}

Value Recorder::smooth_binary(const Value& a, const Value& b, Draw& d) {
  Value x = real(a, 1000), y = real(fitted(b, a.tensor.shape(), d), 1000);
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  x = tame(cast(x, t), tame_limit(t)), y = tame(cast(y, t), tame_limit(t));
  const double e = epsilon(t), both = x.bound + y.bound + 1;
  switch (d.below(4)) {
    case 0: {
      Value z = define(cat("abs(", y.name, ")"), abs(y.tensor), y);
      z = define(cat(z.name, " + 1"), z.tensor + 1, z.exact, z.bound + 1, z.error + extra(z, z.bound + 1));
      return define(cat(x.name, " / ", z.name), x.tensor / z.tensor, false, x.bound,
                    x.error + x.bound * z.error + 2 * e * x.bound);
    }
    case 1:
      return define(cat("logaddexp(", x.name, ", ", y.name, ")"), logaddexp(x.tensor, y.tensor), false, both,
                    x.error + y.error + 8 * e * both);
    case 2:
      return define(cat("hypot(", x.name, ", ", y.name, ")"), hypot(x.tensor, y.tensor), false, both,
                    x.error + y.error + 4 * e * both);
    default: {
      Value z = define(cat("abs(", y.name, ")"), abs(y.tensor), y);
      z = define(cat(z.name, " + 1"), z.tensor + 1, z.exact, z.bound + 1, z.error + extra(z, z.bound + 1));
      return define(cat("atan2(", x.name, ", ", z.name, ")"), atan2(x.tensor, z.tensor), false, 2,
                    x.error + x.bound * z.error + 8 * e);
    }
  }
}

Value Recorder::binary_number(const Value& v, Draw& d) {
  Value x = numeric(v);
  const DType t = x.tensor.dtype();
  std::int64_t n = d.between(-3, 5);
  if (is_unsigned_int(t)) n = std::abs(n);
  const double m = std::abs(static_cast<double>(n));
  const double limit = is_float(t) ? (x.exact ? exact_limit(t) : tame_limit(t)) : 1e300;
  switch (d.below(6)) {
    case 0:
      if (x.bound + m > limit) x = tame(x, limit - m);
      return define(cat(x.name, " + ", n), x.tensor + n, x.exact, x.bound + m,
                    x.error + extra(x, x.bound + m));
    case 1:
      if (x.bound + m > limit) x = tame(x, limit - m);
      return define(cat(n, " - ", x.name), n - x.tensor, x.exact, x.bound + m,
                    x.error + extra(x, x.bound + m));
    case 2:
      if (x.bound * m > limit) x = tame(x, std::floor(limit / m));
      return define(cat(x.name, " * ", n), x.tensor * n, x.exact, x.bound * m,
                    x.error * m + extra(x, x.bound * m));
    case 3: {
      if (!is_float(t)) x = exactly(x, 1e6);
      Value y = real(x, 1000);
      return define(cat(y.name, " * 0.25"), y.tensor * 0.25, false, y.bound,
                    y.error + epsilon(y.tensor.dtype()) * y.bound);
    }
    case 4:
      if (!x.exact) return x;
      if (x.bound > 1e6 && is_float(t)) x = tame(x, std::min(1e6, limit));
      return define(cat(x.name, " % ", n), x.tensor % n, true, is_float(t) ? std::max(1.0, m) : greatest(t));
    default: {
      x = tame(x, 6);
      const std::int64_t p = d.between(0, 3);
      return define(cat("pow(", x.name, ", ", p, ")"), pow(x.tensor, p), x.exact, 216,
                    108 * x.error + extra(x, 216));
    }
  }
}

/// A value that may be compared: an inexact one gives way to zero times the positions.
Value Recorder::comparable(const Value& v) {
  if (v.exact) return v;
  return define(cat("full(", shape_text(v.tensor.shape()), ", 2, ", dtype_text(v.tensor.dtype()), ")"),
                full(v.tensor.shape(), 2, v.tensor.dtype()), true, 2);
}

/// Of an inexact half: whether its elements are halves, which is all that can be said of them without doubt.
Value Recorder::are_halves(const Value& v) {
  const Value wide = define(cat("astype(", v.name, ", DType::Float32)"), astype(v.tensor, DType::Float32), v);
  const DType t = v.tensor.dtype();
  return define(cat(wide.name, " == astype(", wide.name, ", ", dtype_text(t), ")"),
                wide.tensor == astype(wide.tensor, t), true, 1);
}

Value Recorder::compare(const Value& a, const Value& b, Draw& d) {
  if (!a.exact && is_half(a.tensor.dtype())) return are_halves(a);
  Value x = numeric(comparable(a)), y = numeric(fitted(comparable(b), a.tensor.shape(), d));
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  if (is_float(t)) x = tame(x, exact_limit(t)), y = tame(y, exact_limit(t));
  switch (d.below(6)) {
    case 0: return define(cat(x.name, " < ", y.name), x.tensor < y.tensor, true, 1);
    case 1: return define(cat(x.name, " <= ", y.name), x.tensor <= y.tensor, true, 1);
    case 2: return define(cat(x.name, " == ", y.name), x.tensor == y.tensor, true, 1);
    case 3: return define(cat(x.name, " != ", y.name), x.tensor != y.tensor, true, 1);
    case 4: return define(cat(x.name, " > ", y.name), x.tensor > y.tensor, true, 1);
    default: return define(cat(x.name, " >= 1"), x.tensor >= 1, true, 1);
  }
}

Value Recorder::choose(const Value& c, const Value& a, const Value& b, Draw& d) {
  const Value condition = boolean(fitted(comparable(c), a.tensor.shape(), d));
  const Shape both = condition.tensor.rank() > a.tensor.rank() || condition.tensor.numel() > a.tensor.numel()
                         ? condition.tensor.shape()
                         : a.tensor.shape();
  if (d.chance(25) && !is_bool(a.tensor.dtype())) {
    return define(cat("where(", condition.name, ", ", a.name, ", 1)"), where(condition.tensor, a.tensor, 1),
                  a.exact, std::max(a.bound, 1.0), a.error);
  }
  (void)both;
  // The shape of both, so that the third operand fits them.
  const Value mixed =
      define(cat(condition.name, " == ", condition.name), condition.tensor == condition.tensor, true, 1);
  const Tensor probe = broadcast_arrays(std::vector<Tensor>{mixed.tensor, a.tensor})[0];
  Value x = a, y = fitted(b, probe.shape(), d);
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  if (is_float(t)) x = exactly(x, exact_limit(t)), y = exactly(y, exact_limit(t));
  double error = std::max(x.error, y.error);
  const bool exact = x.exact && y.exact;
  if (!exact) error += epsilon(t) * std::max(x.bound, y.bound);
  return define(cat("where(", condition.name, ", ", x.name, ", ", y.name, ")"),
                where(condition.tensor, x.tensor, y.tensor), exact, std::max(x.bound, y.bound), error);
}

Value Recorder::clipped(const Value& v, Draw& d) {
  const Value x = numeric(v);
  const std::int64_t low = is_unsigned_int(x.tensor.dtype()) ? 0 : d.between(-4, 1), high = d.between(low, 5);
  Value out = define(cat("clip(", x.name, ", ", low, ", ", high, ")"), clip(x.tensor, low, high), x);
  out.bound = std::min(out.bound, 5.0);
  return out;
}

}  // namespace kiln::test
