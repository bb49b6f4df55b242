#include "program_recorder.h"

#include <limits>

namespace kiln::test {
namespace {

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
    {"hardswish", &kiln::hardswish, SmoothOp::Any, 2, same},
};

}  // namespace

std::vector<Value> Recorder::run() {
  for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
    const Instruction& instruction = p_.instructions[i];
    Draw d(instruction.seed);
    here_ = i;
    temporaries_ = 0;
    values_.push_back(apply(instruction, d));
  }
  return std::move(values_);
}

/// A value with the bound and error of `like`.
Value Recorder::define(const std::string& expression, Tensor t, const Value& like) {
  Value v = like;
  v.tensor = std::move(t);
  v.name = cat("v", here_, temporaries_ ? cat("_", temporaries_) : "");
  ++temporaries_;
  if (text_) *text_ += cat("  Tensor ", v.name, " = ", expression, ";\n");
  return v;
}

Value Recorder::define(const std::string& expression, Tensor t, bool exact, double bound, double error) {
  Value v;
  v.exact = exact;
  v.bound = bound;
  v.error = error;
  return settle(define(expression, std::move(t), v));
}

/// Bounds of integers wrap, errors too great to check anything make a value useless: zero times it.
Value Recorder::settle(Value v) {
  const DType t = v.tensor.dtype();
  if (!is_float(t)) {
    v.bound = std::min(v.bound, greatest(t));
    v.exact = true;
    v.error = 0;
  }
  return v;
}

Value Recorder::cast(const Value& v, DType t) {
  const DType from = v.tensor.dtype();
  if (from == t) return v;
  Value x = v;
  if (is_float(t)) x = exactly(v, exact_limit(t));
  if (is_float(from) && !is_float(t)) x = tame(x, 1e9);
  double error = x.error;
  bool exact = x.exact;
  if (is_float(t) && !exact) error += epsilon(t) * x.bound;
  return define(cat("astype(", x.name, ", ", dtype_text(t), ")"), astype(x.tensor, t), exact, x.bound,
                error);
}

Value Recorder::boolean(const Value& v) {
  if (is_bool(v.tensor.dtype())) return v;
  return define(cat(v.name, " > 0"), v.tensor > 0, true, 1);
}

/// At most `limit` in magnitude.
Value Recorder::tame(const Value& v, double limit) {
  const DType t = v.tensor.dtype();
  if (is_bool(t) || v.bound <= limit) return v;
  const auto l = static_cast<std::int64_t>(std::floor(limit));
  const std::int64_t low = is_unsigned_int(t) ? 0 : -l;
  Value out = define(cat("clip(", v.name, ", ", low, ", ", l, ")"), clip(v.tensor, low, l), v);
  out.bound = static_cast<double>(l);
  return out;
}

Value Recorder::reshaped(const Value& v, const Shape& s) {
  return define(cat("reshape(", v.name, ", ", shape_text(s), ")"), reshape(v.tensor, s), v);
}

Value Recorder::padded(const Value& v, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, int fill) {
  std::string w = "{";
  for (auto [a, b] : widths) w += cat(w.size() > 1 ? ", " : "", "{", a, ", ", b, "}");
  Value out = define(cat("pad(", v.name, ", ", w, "}, ", fill, ")"), pad(v.tensor, widths, fill), v);
  out.bound = std::max(out.bound, std::abs(static_cast<double>(fill)));
  return settle(out);
}

/// b cut or padded so that it broadcasts against `dims`.
Value Recorder::fitted(const Value& b, const Shape& dims, Draw& d) {
  const Shape have = b.tensor.shape();
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(have.rank()), {0, 0});
  bool change = false;
  for (int a = 0; a < have.rank(); ++a) {
    const int at = a + dims.rank() - have.rank();
    if (at < 0 || have[a] == dims[at] || have[a] == 1 || dims[at] == 1) continue;
    widths[static_cast<std::size_t>(a)] = {0, (d.chance(50) ? 1 : dims[at]) - have[a]};
    change = true;
  }
  Value out = change ? padded(b, widths, 1) : b;
  double n = 1;
  const Shape shape = out.tensor.shape();
  for (int a = 0; a < std::max(shape.rank(), dims.rank()); ++a) {
    const std::int64_t x = a < shape.rank() ? shape[shape.rank() - 1 - a] : 1;
    const std::int64_t y = a < dims.rank() ? dims[dims.rank() - 1 - a] : 1;
    n *= static_cast<double>(x == 1 ? y : x);
  }
  if (n > 4 * kMaxElements &&
      n > static_cast<double>(dims.numel())) {  // too large together: one element of it
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (int a = 0; a < shape.rank(); ++a) all.emplace_back(0, 1 - shape[a]);
    out = padded(out, all, 1);
    if (shape.rank() > dims.rank()) out = reshaped(out, Shape{});
  }
  return out;
}

Value Recorder::apply(const Instruction& i, Draw& d) {
  switch (i.kind) {
    case Kind::Leaf: {
      Value v =
          define(cat("leaf(", shape_text(i.dims), ", ", dtype_text(i.dtype), ", ", i.seed, "u)"),
                 leaf(i.dims, i.dtype, i.seed), true, i.seed % 8 == 0 && is_float(i.dtype) ? INFINITY : 10);
      if (!is_float(i.dtype)) v.bound = greatest(i.dtype);
      return v;
    }
    case Kind::Creation:
      return creation(i, d);
    case Kind::Unary:
      return unary(input(i, 0), d);
    case Kind::Smooth:
      return smooth(input(i, 0), kSmooth[d.below(std::size(kSmooth))]);
    case Kind::Binary:
      return binary(input(i, 0), input(i, 1), d);
    case Kind::SmoothBinary:
      return smooth_binary(input(i, 0), input(i, 1), d);
    case Kind::BinaryNumber:
      return binary_number(input(i, 0), d);
    case Kind::Compare:
      return compare(input(i, 0), input(i, 1), d);
    case Kind::Where:
      return choose(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Clip:
      return clipped(input(i, 0), d);
    case Kind::Cast: {
      const Value x = input(i, 0);
      return cast(x, x.exact || is_float(i.dtype) ? i.dtype : DType::Float32);
    }
    case Kind::Reshape:
      return reshaped(input(i, 0), random_factors(input(i, 0).tensor.numel(), d));
    case Kind::Permute:
      return permuted(input(i, 0), d);
    case Kind::Slice:
      return sliced(input(i, 0), d);
    case Kind::Flip: {
      const Value x = input(i, 0);
      if (x.tensor.rank() == 0 || d.chance(20)) return define(cat("flip(", x.name, ")"), flip(x.tensor), x);
      const int a = axis_of(x, d);
      return define(cat("flip(", x.name, ", ", a, ")"), flip(x.tensor, a), x);
    }
    case Kind::Roll: {
      const Value x = input(i, 0);
      const std::int64_t shift = d.between(-7, 7);
      if (x.tensor.rank() == 0 || d.chance(20))
        return define(cat("roll(", x.name, ", ", shift, ")"), roll(x.tensor, shift), x);
      const int a = axis_of(x, d);
      return define(cat("roll(", x.name, ", ", shift, ", ", a, ")"), roll(x.tensor, shift, a), x);
    }
    case Kind::Pad: {
      const Value x = input(i, 0);
      std::vector<std::pair<std::int64_t, std::int64_t>> widths;
      for (std::int64_t extent : x.tensor.shape()) {
        std::pair<std::int64_t, std::int64_t> w{d.between(-2, 3), d.between(-2, 3)};
        if (extent + w.first + w.second < 0) w = {1, 0};
        if (w.first < -extent || w.second < -extent || x.tensor.numel() > kMaxElements) w = {0, 0};
        widths.push_back(w);
      }
      return padded(x, widths, static_cast<int>(d.between(0, 3)));
    }
    case Kind::Concat:
      return joined(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Stack:
      return stacked(input(i, 0), input(i, 1), d);
    case Kind::Tile: {
      const Value x = input(i, 0);
      Shape r;
      std::int64_t n = x.tensor.numel();
      for (int a = 0; a < x.tensor.rank(); ++a) {
        std::int64_t k = d.between(1, 3);
        if (n * k > kMaxElements) k = 1;
        n *= k;
        r.push_back(k);
      }
      return define(cat("tile(", x.name, ", ", shape_text(r), ")"), tile(x.tensor, r), x);
    }
    case Kind::Repeat: {
      const Value x = input(i, 0);
      if (x.tensor.rank() == 0 || x.tensor.numel() * 3 > kMaxElements) return x;
      const int a = axis_of(x, d);
      const std::int64_t k = d.between(1, 3);
      return define(cat("repeat(", x.name, ", ", k, ", ", a, ")"), repeat(x.tensor, k, a), x);
    }
    case Kind::Broadcast:
      return broadcast(input(i, 0), d);
    case Kind::Expand: {
      const Value x = input(i, 0);
      if (x.tensor.rank() >= kMaxRankUsed) return x;
      const int a = static_cast<int>(d.between(0, x.tensor.rank()));
      return define(cat("expand_dims(", x.name, ", ", a, ")"), expand_dims(x.tensor, a), x);
    }
    case Kind::Squeeze:
      return define(cat("squeeze(", input(i, 0).name, ")"), squeeze(input(i, 0).tensor), input(i, 0));
    case Kind::Update:
      return update(input(i, 0), d);
    case Kind::Triangle: {
      const Value x = input(i, 0);
      if (x.tensor.rank() < 2) return x;
      const std::int64_t k = d.between(-2, 2);
      if (d.chance(50)) return define(cat("tril(", x.name, ", ", k, ")"), tril(x.tensor, k), x);
      return define(cat("triu(", x.name, ", ", k, ")"), triu(x.tensor, k), x);
    }
    case Kind::Reduce:
      return reduce(input(i, 0), d);
    case Kind::Arg:
      return position(input(i, 0), d);
    case Kind::Norm:
      return norm(input(i, 0), d);
    case Kind::Matmul:
      return product(input(i, 0), input(i, 1), d);
    case Kind::Scan:
      return scanned(input(i, 0), d);
    case Kind::Gather:
      return gathered(input(i, 0), input(i, 1), d);
    case Kind::Scatter:
      return scattered(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Loop:
      return looped(input(i, 0), d);
    case Kind::Evaluate: {
      const Value x = input(i, 0);
      x.tensor.eval();
      if (text_) *text_ += cat("  ", x.name, ".eval();\n");
      return x;
    }
    case Kind::kCount:
      break;
  }
  return {};
}

Value Recorder::creation(const Instruction& i, Draw& d) {
  const Shape s(i.dims);
  const std::string type = dtype_text(i.dtype);
  switch (d.below(4)) {
    case 0:
      return define(cat("zeros(", shape_text(s), ", ", type, ")"), zeros(s, i.dtype), true, 0);
    case 1:
      return define(cat("ones(", shape_text(s), ", ", type, ")"), ones(s, i.dtype), true, 1);
    case 2: {
      const std::int64_t value = d.between(is_unsigned_int(i.dtype) ? 0 : -3, 3);
      return define(cat("full(", shape_text(s), ", ", value, ", ", type, ")"), full(s, value, i.dtype),
                    true, 3);
    }
    default: {
      const std::int64_t n = std::min<std::int64_t>(s.numel(), 100);
      const DType t = is_bool(i.dtype) ? DType::Int32 : i.dtype;
      return define(cat("arange(", n, ", ", dtype_text(t), ")"), arange(n, t), true, 100);
    }
  }
}

Value Recorder::unary(const Value& v, Draw& d) {
  const int k = static_cast<int>(d.below(11));
  const bool integer = is_int(v.tensor.dtype());
  if (is_bool(v.tensor.dtype())) {
    if (k % 2) return define(cat("logical_not(", v.name, ")"), logical_not(v.tensor), v);
    return define(cat("bitwise_invert(", v.name, ")"), bitwise_invert(v.tensor), v);
  }
  const Value& x = v;
  switch (k) {
    case 0:
      return settle(define(cat("negative(", x.name, ")"), negative(x.tensor), x));
    case 1:
      return settle(define(cat("abs(", x.name, ")"), abs(x.tensor), x));
    case 2:
      return settle(define(cat("relu(", x.name, ")"), relu(x.tensor), x));
    case 3: {
      const Value y = tame(x, 16);
      return define(cat("square(", y.name, ")"), square(y.tensor), y.exact, 256,
                    32 * y.error + extra(y, 256));
    }
    default:
      break;
  }
  if (!x.exact) return settle(define(cat("negative(", x.name, ")"), negative(x.tensor), x));
  switch (k) {
    case 4:
      return define(cat("sign(", x.name, ")"), sign(x.tensor), true, 1);
    case 5:
      return define(cat("floor(", x.name, ")"), floor(x.tensor), x);
    case 6:
      return define(cat("round(", x.name, ")"), round(x.tensor), x);
    case 7:
      return define(cat("isnan(", x.name, ")"), isnan(x.tensor), true, 1);
    case 8:
      return define(cat("isfinite(", x.name, ")"), isfinite(x.tensor), true, 1);
    case 9:
      if (integer) {
        Value out = define(cat("bitwise_invert(", x.name, ")"), bitwise_invert(x.tensor), x);
        out.bound = greatest(x.tensor.dtype());
        return out;
      }
      return define(cat("trunc(", x.name, ")"), trunc(x.tensor), x);
    default:
      return define(cat("logical_not(", x.name, ")"), logical_not(x.tensor), true, 1);
  }
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

Value Recorder::smooth(const Value& v, const SmoothOp& op) {
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
  const int k = static_cast<int>(d.below(14));
  if (is_bool(a.tensor.dtype()) && is_bool(b.tensor.dtype()) && k < 9) {
    const Value y = fitted(b, a.tensor.shape(), d);
    switch (k % 3) {
      case 0:
        return define(cat(a.name, " & ", y.name), a.tensor & y.tensor, true, 1);
      case 1:
        return define(cat(a.name, " | ", y.name), a.tensor | y.tensor, true, 1);
      default:
        return define(cat(a.name, " ^ ", y.name), a.tensor ^ y.tensor, true, 1);
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
    default:
      break;
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
    if (k == 9)
      return define(cat("floor_divide(", x.name, ", ", y.name, ")"), floor_divide(x.tensor, y.tensor), true,
                    INFINITY);
    if (k == 10)
      return define(cat("logical_xor(", x.name, ", ", y.name, ")"), logical_xor(x.tensor, y.tensor), true,
                    1);
    return define(cat("minimum(", x.name, ", ", y.name, ")"), minimum(x.tensor, y.tensor), true,
                  std::max(x.bound, y.bound));
  }
  const double all = greatest(t);
  switch (k) {
    case 7:
      return define(cat(x.name, " % ", y.name), x.tensor % y.tensor, true, all);
    case 8:
      return define(cat("floor_divide(", x.name, ", ", y.name, ")"), floor_divide(x.tensor, y.tensor), true,
                    all);
    case 9:
      return define(cat("fmod(", x.name, ", ", y.name, ")"), fmod(x.tensor, y.tensor), true, all);
    case 10:
      return define(cat(x.name, " << ", y.name), x.tensor << y.tensor, true, all);
    case 11:
      return define(cat(x.name, " >> ", y.name), x.tensor >> y.tensor, true, all);
    case 12:
      return define(cat(x.name, " ^ ", y.name), x.tensor ^ y.tensor, true, all);
    default:
      return define(cat("pow(", x.name, ", ", y.name, ")"), pow(x.tensor, y.tensor), true, all);
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
      return define(cat("logaddexp(", x.name, ", ", y.name, ")"), logaddexp(x.tensor, y.tensor), false,
                    both, x.error + y.error + 8 * e * both);
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
      return define(cat(x.name, " % ", n), x.tensor % n, true,
                    is_float(t) ? std::max(1.0, m) : greatest(t));
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

Value Recorder::compare(const Value& a, const Value& b, Draw& d) {
  Value x = numeric(comparable(a)), y = numeric(fitted(comparable(b), a.tensor.shape(), d));
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  if (is_float(t)) x = tame(x, exact_limit(t)), y = tame(y, exact_limit(t));
  switch (d.below(6)) {
    case 0:
      return define(cat(x.name, " < ", y.name), x.tensor < y.tensor, true, 1);
    case 1:
      return define(cat(x.name, " <= ", y.name), x.tensor <= y.tensor, true, 1);
    case 2:
      return define(cat(x.name, " == ", y.name), x.tensor == y.tensor, true, 1);
    case 3:
      return define(cat(x.name, " != ", y.name), x.tensor != y.tensor, true, 1);
    case 4:
      return define(cat(x.name, " > ", y.name), x.tensor > y.tensor, true, 1);
    default:
      return define(cat(x.name, " >= 1"), x.tensor >= 1, true, 1);
  }
}

Value Recorder::choose(const Value& c, const Value& a, const Value& b, Draw& d) {
  const Value condition = boolean(fitted(comparable(c), a.tensor.shape(), d));
  const Shape both =
      condition.tensor.rank() > a.tensor.rank() || condition.tensor.numel() > a.tensor.numel()
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
  const std::int64_t low = is_unsigned_int(x.tensor.dtype()) ? 0 : d.between(-4, 1),
                     high = d.between(low, 5);
  Value out = define(cat("clip(", x.name, ", ", low, ", ", high, ")"), clip(x.tensor, low, high), x);
  out.bound = std::min(out.bound, 5.0);
  return out;
}

}  // namespace kiln::test
