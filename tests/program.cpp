#include "program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace kiln::test {
namespace {

constexpr std::int64_t kMaxElements = 6000;  // of a value; leaves of large programs may have more
constexpr int kMaxRankUsed = 6;

template <class... Args>
std::string cat(Args&&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// splitmix64.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  std::int64_t between(std::int64_t lo, std::int64_t hi) { return lo + below(hi - lo + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

/// Integers up to this magnitude are exact in the dtype.
double exact_limit(DType t) {
  switch (t) {
    case DType::Float16:
      return 2048;
    case DType::BFloat16:
      return 256;
    case DType::Float32:
      return 16777216;
    case DType::Float64:
      return 9007199254740992;
    default:
      return 9.3e18;
  }
}
double greatest(DType t) {  // of an integer type
  if (is_bool(t)) return 1;
  const int bits = static_cast<int>(size_of(t)) * 8;
  return std::ldexp(1.0, is_signed_int(t) ? bits - 1 : bits);
}
double epsilon(DType t) {
  switch (t) {
    case DType::Float16:
      return 1.0 / 2048;
    case DType::BFloat16:
      return 1.0 / 256;
    case DType::Float64:
      return 1e-15;
    default:
      return 1.2e-7;
  }
}
/// Inexact values stay below this, so that nothing overflows.
double tame_limit(DType t) { return t == DType::Float16 ? 100 : 1000; }

std::string dtype_text(DType t) {
  switch (t) {
#define KILN_DTYPE(Enum, ...) \
  case DType::Enum:           \
    return "DType::" #Enum;
#include <kiln/dtype.def>
#undef KILN_DTYPE
  }
  return {};
}
template <class List>
std::string list_text(const List& list) {
  std::string s = "{";
  for (auto x : list) s += (s.size() > 1 ? ", " : "") + std::to_string(x);
  return s + "}";
}
std::string shape_text(const Shape& s) { return cat("Shape", list_text(s)); }

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
    {"hardswish", &kiln::hardswish, SmoothOp::Any, 2, same},
};

class Recorder {
 public:
  Recorder(const Program& p, std::string* text) : p_(p), text_(text) {}

  std::vector<Value> run() {
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      Draw d(instruction.seed);
      here_ = i;
      temporaries_ = 0;
      values_.push_back(apply(instruction, d));
    }
    return std::move(values_);
  }

 private:
  // ---- helpers: each records one statement
  // ---------------------------------------------------------------------

  /// A value with the bound and error of `like`.
  Value define(const std::string& expression, Tensor t, const Value& like) {
    Value v = like;
    v.tensor = std::move(t);
    v.name = cat("v", here_, temporaries_ ? cat("_", temporaries_) : "");
    ++temporaries_;
    if (text_) *text_ += cat("  Tensor ", v.name, " = ", expression, ";\n");
    return v;
  }
  Value define(const std::string& expression, Tensor t, bool exact, double bound, double error = 0) {
    Value v;
    v.exact = exact;
    v.bound = bound;
    v.error = error;
    return settle(define(expression, std::move(t), v));
  }
  /// Bounds of integers wrap, errors too great to check anything make a value useless: zero times it.
  Value settle(Value v) {
    const DType t = v.tensor.dtype();
    if (!is_float(t)) {
      v.bound = std::min(v.bound, greatest(t));
      v.exact = true;
      v.error = 0;
    }
    return v;
  }

  Value cast(const Value& v, DType t) {
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
  Value numeric(const Value& v) { return is_bool(v.tensor.dtype()) ? cast(v, DType::Int32) : v; }
  Value boolean(const Value& v) {
    if (is_bool(v.tensor.dtype())) return v;
    return define(cat(v.name, " > 0"), v.tensor > 0, true, 1);
  }
  /// At most `limit` in magnitude.
  Value tame(const Value& v, double limit) {
    const DType t = v.tensor.dtype();
    if (is_bool(t) || v.bound <= limit) return v;
    const auto l = static_cast<std::int64_t>(std::floor(limit));
    const std::int64_t low = is_unsigned_int(t) ? 0 : -l;
    Value out = define(cat("clip(", v.name, ", ", low, ", ", l, ")"), clip(v.tensor, low, l), v);
    out.bound = static_cast<double>(l);
    return out;
  }
  Value exactly(const Value& v, double limit) { return v.exact ? tame(v, limit) : v; }

  Value reshaped(const Value& v, const Shape& s) {
    return define(cat("reshape(", v.name, ", ", shape_text(s), ")"), reshape(v.tensor, s), v);
  }
  Value padded(const Value& v, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, int fill) {
    std::string w = "{";
    for (auto [a, b] : widths) w += cat(w.size() > 1 ? ", " : "", "{", a, ", ", b, "}");
    Value out = define(cat("pad(", v.name, ", ", w, "}, ", fill, ")"), pad(v.tensor, widths, fill), v);
    out.bound = std::max(out.bound, std::abs(static_cast<double>(fill)));
    return settle(out);
  }

  /// b cut or padded so that it broadcasts against `dims`.
  Value fitted(const Value& b, const Shape& dims, Draw& d) {
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

  int axis_of(const Value& v, Draw& d) { return static_cast<int>(d.below(std::max(1, v.tensor.rank()))); }

  Value input(const Instruction& i, int k) const { return values_[static_cast<std::size_t>(i.in[k])]; }

  // ---- one instruction
  // -----------------------------------------------------------------------------------------

  Value apply(const Instruction& i, Draw& d) {
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

  Value creation(const Instruction& i, Draw& d) {
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

  Value unary(const Value& v, Draw& d) {
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
  static double extra(const Value& v, double bound) {
    return v.exact ? 0 : epsilon(v.tensor.dtype()) * bound * 2;
  }

  /// A float value whose magnitude is limited.
  Value real(const Value& v, double limit) {
    const DType t = v.tensor.dtype();
    Value x = is_float(t) ? v : cast(v, DType::Float32);
    return tame(x, std::min(limit, tame_limit(x.tensor.dtype())));
  }

  Value smooth(const Value& v, const SmoothOp& op) {
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

  Value binary(const Value& a, const Value& b, Draw& d) {
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

  Value smooth_binary(const Value& a, const Value& b, Draw& d) {
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

  Value binary_number(const Value& v, Draw& d) {
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
  Value comparable(const Value& v) {
    if (v.exact) return v;
    return define(cat("full(", shape_text(v.tensor.shape()), ", 2, ", dtype_text(v.tensor.dtype()), ")"),
                  full(v.tensor.shape(), 2, v.tensor.dtype()), true, 2);
  }

  Value compare(const Value& a, const Value& b, Draw& d) {
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

  Value choose(const Value& c, const Value& a, const Value& b, Draw& d) {
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

  Value clipped(const Value& v, Draw& d) {
    const Value x = numeric(v);
    const std::int64_t low = is_unsigned_int(x.tensor.dtype()) ? 0 : d.between(-4, 1),
                       high = d.between(low, 5);
    Value out = define(cat("clip(", x.name, ", ", low, ", ", high, ")"), clip(x.tensor, low, high), x);
    out.bound = std::min(out.bound, 5.0);
    return out;
  }

  static Shape random_factors(std::int64_t n, Draw& d) {
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

  Value permuted(const Value& x, Draw& d) {
    std::vector<int> axes(static_cast<std::size_t>(x.tensor.rank()));
    for (std::size_t a = 0; a < axes.size(); ++a) axes[a] = static_cast<int>(a);
    for (std::size_t a = axes.size(); a-- > 1;)
      std::swap(axes[a], axes[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(a) + 1))]);
    return define(cat("permute_dims(", x.name, ", ", list_text(axes), ")"), permute_dims(x.tensor, axes), x);
  }

  static std::vector<kiln::Slice> random_slices(const Shape& shape, Draw& d, std::string& text, bool drop) {
    std::vector<kiln::Slice> slices;
    for (std::int64_t extent : shape) {
      if (!text.empty()) text += ", ";
      const std::int64_t kind = d.below(6);
      if (kind == 0 || extent == 0) {
        slices.push_back(kiln::all());
        text += "all()";
      } else if (kind == 1 && drop) {
        const std::int64_t at = d.below(extent);
        slices.emplace_back(at);
        text += cat("Slice(", at, ")");
      } else {
        const std::int64_t step = kind < 4 ? d.between(1, 3) : -d.between(1, 3);
        const std::int64_t a = d.below(extent), b = d.below(extent);
        const std::int64_t low = std::min(a, b), high = std::max(a, b);
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

  Value sliced(const Value& x, Draw& d) {
    if (x.tensor.rank() == 0) return x;
    std::string text;
    const auto slices = random_slices(x.tensor.shape(), d, text, true);
    return define(cat(x.name, ".index(std::vector<Slice>{", text, "})"), x.tensor.index(slices), x);
  }

  Value update(const Value& x, Draw& d) {
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

  Value joined(const Value& a, const Value& b, const Value& c, Draw& d) {
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

  Value stacked(const Value& a, const Value& b, Draw& d) {
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
    return settle(define(cat("stack({", x.name, ", ", y.name, "}, ", axis, ")"),
                         stack({x.tensor, y.tensor}, axis), all));
  }

  Value broadcast(const Value& x, Draw& d) {
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

  // ---- reductions
  // ----------------------------------------------------------------------------------------------

  static Axes random_axes(const Value& x, Draw& d, std::string& text, double& count) {
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

  Value reduce(const Value& v, Draw& d) {
    std::string axes_text;
    double n = 1;
    const Axes axes = random_axes(v, d, axes_text, n);
    const bool keep = d.chance(40);
    const std::string tail = cat(", ", axes_text, keep ? ", true)" : ", false)");
    int kind = static_cast<int>(d.below(12));
    if (n == 0 && (kind == 3 || kind == 4)) kind = 0;
    Value x = v;
    const DType t = x.tensor.dtype();
    const double e = epsilon(t);
    switch (kind) {
      case 3:
        return settle(define(cat("max(", x.name, tail), max(x.tensor, axes, keep), x));
      case 4:
        return settle(define(cat("min(", x.name, tail), min(x.tensor, axes, keep), x));
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
        const double f = epsilon(x.tensor.dtype()), b = x.bound;
        return define(cat("var(", x.name, tail), var(x.tensor, axes, keep), false, b * b + 1,
                      8 * b * x.error + 16 * f * b * b);
      }
      default:
        break;
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
      if (!exact)
        x = tame(x, std::max(1.0, std::floor(tame_limit(x.tensor.dtype()) * 50 / std::max(n, 1.0))));
    }
    const double bound = x.bound * n;
    return define(cat("sum(", x.name, tail), sum(x.tensor, axes, keep), exact,
                  is_float(x.tensor.dtype()) ? bound : 9.3e18, exact ? 0 : n * x.error + e * bound * 4);
  }

  Value position(const Value& v, Draw& d) {
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

  Value norm(const Value& v, Draw& d) {
    Value x = real(v, 10);
    if (x.tensor.rank() == 0 || x.tensor.numel() == 0) return x;
    const double e = epsilon(x.tensor.dtype()), b = x.bound + 1;
    const int axis = static_cast<int>(d.below(x.tensor.rank()));
    switch (d.below(4)) {
      case 0:
        return define(cat("nn::softmax(", x.name, ", ", axis, ")"), nn::softmax(x.tensor, axis), false, 1,
                      4 * x.error + 8 * e * b);
      case 1:
        return define(cat("nn::log_softmax(", x.name, ", ", axis, ")"), nn::log_softmax(x.tensor, axis),
                      false, 4 * b + 8, 4 * x.error + 16 * e * (b + 8));
      case 2:
        return define(cat("nn::layer_norm(", x.name, ", {}, {}, 1.0)"), nn::layer_norm(x.tensor, {}, {}, 1.0),
                      false, 2 * b, (4 * x.error + 16 * e * b) * b);
      default:
        return define(cat("nn::rms_norm(", x.name, ", {}, 1.0)"), nn::rms_norm(x.tensor, {}, 1.0), false, b,
                      (4 * x.error + 16 * e * b) * b);
    }
  }

  Value product(const Value& a, const Value& b, Draw& d) {
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
    return define(cat("matmul(", x.name, ", ", y.name, ")"), matmul(x.tensor, y.tensor), fits,
                  is_float(t) ? bound : 9.3e18, error);
  }

  // ---- scans, indexing
  // ----------------------------------------------------------------------------------------

  Value scanned(const Value& v, Draw& d) {
    Value x = v;
    if (x.tensor.rank() == 0) return x;
    const int axis = axis_of(x, d);
    const bool exclusive = d.chance(30), reverse = d.chance(30);
    const std::string tail = cat(", ", axis, exclusive ? ", true" : ", false", reverse ? ", true)" : ", false)");
    const double n = static_cast<double>(x.tensor.dim(axis));
    switch (d.below(4)) {
      case 0:
      case 1: {
        Value out = define(cat("cummax(", x.name, tail), cummax(x.tensor, axis, exclusive, reverse), x);
        if (exclusive) out.bound = INFINITY;
        return settle(out);
      }
      case 2:
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
          if (!exact) x = tame(x, std::max(1.0, std::floor(tame_limit(x.tensor.dtype()) * 50 / std::max(n, 1.0))));
        }
        const double bound = x.bound * n, e = epsilon(x.tensor.dtype());
        return define(cat("cumsum(", x.name, tail), cumsum(x.tensor, axis, exclusive, reverse), exact,
                      is_float(x.tensor.dtype()) ? bound : 9.3e18, exact ? 0 : n * x.error + e * bound * (8 + n / 8));  // down columns one by one
      }
    }
  }

  /// Halvings of each element down to 3, or a sum along an axis that stays within bounds.
  Value looped(const Value& v, Draw& d) {
    Value x = numeric(comparable(v));
    const DType t = x.tensor.dtype();
    if (x.tensor.rank() == 0 || x.tensor.numel() > kMaxElements || d.chance(40)) {
      if (is_float(t)) x = tame(x, exact_limit(t));
      const auto halve = [](const Tensors& s) { return Tensors{floor_divide(s[0], 2), s[1] + 1}; };
      const Tensors out = while_loop([](const Tensors& s) { return (s[0] > 3) & (s[1] < 40); }, halve,
                                     {x.tensor, zeros({}, DType::Int32)});
      return define(cat("while_loop([](const Tensors& s) { return (s[0] > 3) & (s[1] < 40); }, [](const Tensors& s) { return "
                        "Tensors{floor_divide(s[0], 2), s[1] + 1}; }, {", x.name, ", zeros({}, DType::Int32)})[1]"),
                    out[1], true, 40);
    }
    const int axis = axis_of(x, d), low = is_unsigned_int(t) ? 0 : -50;
    const bool reverse = d.chance(30), last = d.chance(30);
    x = tame(x, 50);
    const auto step = [low](const Tensors& c, const Tensors& in) {
      const Tensor next = clip(c[0] + in[0], low, 50);
      return Scanned{{next}, {next - in[0]}};
    };
    const Scanned out = scan(step, {zeros({}, t)}, {x.tensor}, axis, reverse);
    const std::string text = cat("scan([](const Tensors& c, const Tensors& in) { const Tensor next = clip(c[0] + in[0], ", low,
                                 ", 50); return Scanned{{next}, {next - in[0]}}; }, {zeros({}, ", dtype_text(t), ")}, {", x.name,
                                 "}, ", axis, reverse ? ", true)" : ", false)");
    return last ? define(text + ".carry[0]", out.carry[0], true, 50) : settle(define(text + ".ys[0]", out.ys[0], true, 100));
  }

  /// A vector of positions along an axis of n elements, some from the back, some out of range.
  Value positions(const Value& v, std::int64_t n) {
    Value at = cast(comparable(v), DType::Int64);
    at = reshaped(at, Shape{at.tensor.numel()});
    if (at.tensor.numel() > 50) at = padded(at, {{0, 50 - at.tensor.numel()}}, 0);
    return define(cat(at.name, " % ", 2 * n + 2, " - ", n + 1), at.tensor % (2 * n + 2) - (n + 1), true, static_cast<double>(n + 1));
  }

  Value gathered(const Value& x, const Value& indices, Draw& d) {
    if (x.tensor.rank() == 0) return x;
    const int axis = axis_of(x, d);
    const std::int64_t n = x.tensor.dim(axis);
    if (n == 0 || x.tensor.numel() / n * 50 > 4 * kMaxElements) return x;
    const Value at = positions(indices, n);
    return settle(define(cat("take(", x.name, ", ", at.name, ", ", axis, ")"), take(x.tensor, at.tensor, axis), x));
  }

  Value scattered(const Value& v, const Value& indices, const Value& places, Draw& d) {
    Value x = v;
    if (x.tensor.rank() == 0) return x;
    const int axis = axis_of(x, d);
    const std::int64_t n = x.tensor.dim(axis);
    if (n == 0 || x.tensor.numel() / n * 50 > 4 * kMaxElements) return x;
    auto how = static_cast<Combine>(d.below(5));
    const DType t = x.tensor.dtype();
    if (is_bool(t) && (how == Combine::Add || how == Combine::Multiply)) how = Combine::Set;
    if (how == Combine::Multiply && !x.exact) how = Combine::Max;
    const double most = 51;  // values that meet, and what stood there
    if (is_float(t) && how == Combine::Multiply) x = tame(x, 1);
    if (is_float(t) && how == Combine::Add) x = tame(x, std::max(1.0, std::floor((x.exact ? exact_limit(t) : tame_limit(t)) / most)));
    Value from = positions(indices, n), at = positions(places, n);
    const std::int64_t both = std::min(from.tensor.numel(), at.tensor.numel());
    from = padded(from, {{0, both - from.tensor.numel()}}, 0);
    at = padded(at, {{0, both - at.tensor.numel()}}, 0);
    const Value values = define(cat("take(", x.name, ", ", from.name, ", ", axis, ")"), take(x.tensor, from.tensor, axis), x);
    Value out = define(cat("scatter(", x.name, ", ", at.name, ", ", values.name, ", ", axis, ", Combine(", static_cast<int>(how), "))"),
                       scatter(x.tensor, at.tensor, values.tensor, axis, how), x);
    if (how == Combine::Add) {
      out.bound = x.bound * most;
      if (!x.exact) out.error = x.error * most + epsilon(t) * out.bound * most;
    }
    return settle(out);
  }

  const Program& p_;
  std::string* text_;
  std::vector<Value> values_;
  std::size_t here_ = 0;
  int temporaries_ = 0;
};

double element(const std::byte* data, DType t, std::size_t i) {
  return dispatch(t, [&]<class T>() {
    T v;
    std::memcpy(&v, data + i * sizeof(T), sizeof(T));
    return static_cast<double>(v);
  });
}

}  // namespace

Tensor leaf(const Shape& shape, DType dtype, std::uint64_t seed) {
  Draw d(seed * 77 + 5);
  const bool specials = seed % 8 == 0 && is_float(dtype);
  const int layout = static_cast<int>(seed / 8 % 4);
  const auto n = static_cast<std::size_t>(shape.numel());
  auto bytes = std::make_shared<std::vector<std::byte>>(n * static_cast<std::size_t>(size_of(dtype)) + 64);
  const std::size_t first = layout == 2 ? static_cast<std::size_t>(size_of(dtype)) : 0;
  dispatch(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t r = d.bits();
      T v;
      if (is_bool(dtype))
        v = static_cast<T>(r & 1);
      else if (is_float(dtype))
        v = static_cast<T>(static_cast<float>(static_cast<std::int64_t>(r % 21) - 10));
      else if (r % 16 == 0)
        v = static_cast<T>(r >> 8);  // any bits
      else if (is_unsigned_int(dtype))
        v = static_cast<T>(r % 11);
      else
        v = static_cast<T>(static_cast<std::int64_t>(r % 21) - 10);
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, float16> ||
                    std::is_same_v<T, bfloat16>)
        if (specials && r % 13 == 0) {
          const float special[] = {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY};
          v = static_cast<T>(special[r / 13 % 3]);
        }
      std::memcpy(bytes->data() + first + i * sizeof(T), &v, sizeof(T));
    }
  });
  if (layout == 2)
    return Tensor::borrow(bytes->data() + first, shape, dtype, std::shared_ptr<const void>(bytes));
  const Tensor t = Tensor::copy_of(bytes->data(), shape, dtype);
  if (layout == 1 &&
      shape.rank() > 1) {  // the same extents, other strides: rotate the axes and turn them back
    std::vector<int> axes;
    for (int a = 1; a < shape.rank(); ++a) axes.push_back(a);
    axes.push_back(0);
    std::vector<int> back{shape.rank() - 1};
    for (int a = 0; a + 1 < shape.rank(); ++a) back.push_back(a);
    const Tensor turned = permute_dims(t, axes) + zeros({}, dtype == DType::Bool ? DType::Int32 : dtype);
    turned.eval();
    Tensor out = permute_dims(turned, back).astype(dtype);
    out.eval();
    return out;
  }
  return t;
}

std::vector<Value> record(const Program& program, std::string* text) { return Recorder(program, text).run(); }

std::string to_cpp(const Program& program) {
  std::string body;
  const std::vector<Value> values = record(program, &body);
  auto names = [&](const std::vector<int>& which) {
    std::string list;
    for (int i : which) list += (list.empty() ? "" : ", ") + values[static_cast<std::size_t>(i)].name;
    return list;
  };
  return cat("#include \"program.h\"\nusing namespace kiln;\nusing kiln::test::leaf;\nint main() {\n", body,
             "  eval({", names(program.outputs),
             "});\n  // read afterwards, alone alive: ", names(program.held), "\n}\n");
}

Result run(const Program& program) {
  std::vector<Value> values = record(program);
  std::vector<int> wanted = program.outputs;
  wanted.insert(wanted.end(), program.held.begin(), program.held.end());
  std::vector<Tensor> outputs;
  for (int o : program.outputs) outputs.push_back(values[static_cast<std::size_t>(o)].tensor);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::find(wanted.begin(), wanted.end(), static_cast<int>(i)) == wanted.end()) values[i].tensor = {};
  eval(outputs);
  outputs.clear();
  Result r;
  for (int w : wanted) {
    Value& v = values[static_cast<std::size_t>(w)];
    const Tensor& t = v.tensor;
    r.bytes.emplace_back(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
    t.copy_to(r.bytes.back().data(), t.dtype());
    r.shapes.push_back(t.shape());
    r.dtypes.push_back(t.dtype());
    r.values.push_back(v);
    r.values.back().tensor = {};
  }
  return r;
}

std::string difference(const Result& want, const Result& got) {
  for (std::size_t i = 0; i < want.bytes.size(); ++i) {
    if (want.shapes[i] != got.shapes[i] || want.dtypes[i] != got.dtypes[i])
      return cat(want.values[i].name, ": shape ", got.shapes[i].str(), ", not ", want.shapes[i].str());
    const Value& v = want.values[i];
    const DType t = want.dtypes[i];
    const auto n = static_cast<std::size_t>(want.shapes[i].numel());
    if (v.exact && want.bytes[i] == got.bytes[i]) continue;
    const double allowed = v.exact ? 0 : 4 * v.error + 1e-30;
    std::size_t bad = 0, first = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const double w = element(want.bytes[i].data(), t, k), g = element(got.bytes[i].data(), t, k);
      bool same = w == g || (w != w && g != g) || std::abs(w - g) <= allowed;
      if (is_int(t) && size_of(t) == 8)  // beyond what a double tells apart
        same = std::memcmp(want.bytes[i].data() + 8 * k, got.bytes[i].data() + 8 * k, 8) == 0;
      if (!same && bad++ == 0) first = k;
    }
    if (bad)
      return cat(v.name, " ", name(t), " ", want.shapes[i].str(), ": ", bad, " of ", n, " differ, first at ",
                 first, ": ", element(got.bytes[i].data(), t, first), ", not ",
                 element(want.bytes[i].data(), t, first), " (allowed ", allowed, ")");
  }
  return {};
}

Program random_program(std::uint64_t seed) {
  Draw d(seed);
  Program p;
  const bool large = d.chance(12);  // long reductions, several threads
  const bool one_type = d.chance(60);
  const DType main_type = d.chance(60) ? DType::Float32 : static_cast<DType>(d.below(kDTypeCount));
  auto dtype = [&] {
    return one_type || d.chance(50) ? main_type : static_cast<DType>(d.below(kDTypeCount));
  };
  auto extent = [&]() -> std::int64_t {
    switch (d.below(12)) {
      case 0:
      case 1:
        return 1;
      case 2:
        return d.chance(15) ? 0 : 2;
      case 3:
        return d.between(15, 40);
      default:
        return d.between(2, 9);
    }
  };
  auto dims = [&] {
    std::vector<std::int64_t> s;
    if (large) {
      switch (d.below(4)) {
        case 0:
          return std::vector<std::int64_t>{d.between(20000, 70000)};
        case 1:
          return std::vector<std::int64_t>{d.between(1, 3), d.between(9000, 30000)};
        case 2:
          return std::vector<std::int64_t>{d.between(2000, 6000), d.between(1, 12)};
        default:
          return std::vector<std::int64_t>{d.between(30, 90), d.between(30, 40), d.between(5, 17)};
      }
    }
    const std::int64_t rank = d.below(5) + (d.chance(5) ? 1 : 0);
    std::int64_t n = 1;
    for (std::int64_t k = 0; k < rank; ++k) {
      std::int64_t e = extent();
      if (n * e > kMaxElements / 3) e = 1;
      n *= e;
      s.push_back(e);
    }
    return s;
  };
  auto add = [&](Kind kind) {
    Instruction i;
    i.kind = kind;
    i.seed = d.bits() % 1000000;
    const int n = static_cast<int>(p.instructions.size());
    if (kind == Kind::Leaf || kind == Kind::Creation) {
      i.dims = dims();
      i.dtype = dtype();
      if (kind == Kind::Leaf && !p.instructions.empty() &&
          d.chance(40)) {  // like an earlier leaf, or a row of it
        for (const Instruction& other : p.instructions)
          if (other.kind == Kind::Leaf) i.dims = other.dims;
        if (d.chance(40))
          for (auto& e : i.dims)
            if (d.chance(50)) e = 1;
      }
    } else {
      i.dtype = dtype();
      for (int& in : i.in) {
        if (d.chance(50))
          in = static_cast<int>(d.between(std::max(0, n - 3), n - 1));
        else
          in = static_cast<int>(d.below(n));
      }
    }
    p.instructions.push_back(i);
  };
  const std::int64_t leaves = d.between(1, 4);
  for (std::int64_t k = 0; k < leaves; ++k) add(Kind::Leaf);
  const std::int64_t count = d.between(2, large ? 7 : d.chance(20) ? 40 : 14);
  const Kind kinds[] = {
      Kind::Leaf,         Kind::Creation,     Kind::Unary,   Kind::Unary,   Kind::Smooth, Kind::Smooth,
      Kind::Binary,       Kind::Binary,       Kind::Binary,  Kind::Binary,  Kind::Binary, Kind::SmoothBinary,
      Kind::BinaryNumber, Kind::BinaryNumber, Kind::Compare, Kind::Where,   Kind::Clip,   Kind::Cast,
      Kind::Reshape,      Kind::Reshape,      Kind::Permute, Kind::Permute, Kind::Slice,  Kind::Slice,
      Kind::Flip,         Kind::Roll,         Kind::Pad,     Kind::Concat,  Kind::Stack,  Kind::Tile,
      Kind::Repeat,       Kind::Broadcast,    Kind::Expand,  Kind::Squeeze, Kind::Update, Kind::Triangle,
      Kind::Reduce,       Kind::Reduce,       Kind::Reduce,  Kind::Reduce,  Kind::Arg,    Kind::Norm,
      Kind::Norm,         Kind::Matmul,       Kind::Gather,  Kind::Scatter, Kind::Scatter,
      Kind::Scan,         Kind::Scan,         Kind::Loop,
      Kind::Evaluate};
  for (std::int64_t k = 0; k < count; ++k) add(kinds[d.below(std::size(kinds))]);
  const int n = static_cast<int>(p.instructions.size());
  p.outputs.push_back(n - 1);
  while (d.chance(45)) p.outputs.push_back(static_cast<int>(d.below(n)));
  while (d.chance(45)) p.held.push_back(static_cast<int>(d.below(n)));
  return p;
}

namespace {

/// Without the instructions that nothing needs.
Program pruned(const Program& p) {
  std::vector<bool> needed(p.instructions.size());
  for (int o : p.outputs) needed[static_cast<std::size_t>(o)] = true;
  for (int h : p.held) needed[static_cast<std::size_t>(h)] = true;
  for (std::size_t i = p.instructions.size(); i-- > 0;) {
    const Instruction& x = p.instructions[i];
    if (!needed[i] || x.kind == Kind::Leaf || x.kind == Kind::Creation) continue;
    for (int in : x.in) needed[static_cast<std::size_t>(in)] = true;
  }
  Program out;
  std::vector<int> now(p.instructions.size());
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    if (!needed[i]) continue;
    now[i] = static_cast<int>(out.instructions.size());
    Instruction x = p.instructions[i];
    for (int& in : x.in)
      in = x.kind == Kind::Leaf || x.kind == Kind::Creation ? 0 : now[static_cast<std::size_t>(in)];
    out.instructions.push_back(std::move(x));
  }
  for (int o : p.outputs) out.outputs.push_back(now[static_cast<std::size_t>(o)]);
  for (int h : p.held) out.held.push_back(now[static_cast<std::size_t>(h)]);
  return out;
}

}  // namespace

std::vector<Program> smaller(const Program& program) {
  std::vector<Program> out;
  auto offer = [&](Program p) {
    p = pruned(p);
    if (!p.outputs.empty()) out.push_back(std::move(p));
  };
  if (Program p = pruned(program); p.instructions.size() < program.instructions.size()) out.push_back(p);
  for (std::size_t k = 0; k < program.held.size(); ++k) {
    Program p = program;
    p.held.erase(p.held.begin() + static_cast<std::ptrdiff_t>(k));
    offer(std::move(p));
  }
  for (std::size_t k = 0; program.outputs.size() > 1 && k < program.outputs.size(); ++k) {
    Program p = program;
    p.outputs.erase(p.outputs.begin() + static_cast<std::ptrdiff_t>(k));
    offer(std::move(p));
  }
  // An instruction gives way to its first operand, or to memory of the same shape.
  const std::vector<Value> values = record(program);
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    const Instruction& x = program.instructions[i];
    if (x.kind == Kind::Leaf) continue;
    if (x.kind != Kind::Creation) {
      for (int in : x.in) {
        Program p = program;
        for (std::size_t j = i + 1; j < p.instructions.size(); ++j)
          for (int& y : p.instructions[j].in)
            if (y == static_cast<int>(i)) y = in;
        for (int& o : p.outputs)
          if (o == static_cast<int>(i)) o = in;
        for (int& h : p.held)
          if (h == static_cast<int>(i)) h = in;
        offer(std::move(p));
      }
    }
    Program p = program;
    Instruction& y = p.instructions[i];
    y = {};
    const Shape shape = values[i].tensor.shape();
    y.dims.assign(shape.begin(), shape.end());
    y.dtype = values[i].tensor.dtype();
    y.seed = 1;
    offer(std::move(p));
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& x = program.instructions[i];
    if (x.kind != Kind::Leaf && x.kind != Kind::Creation) {  // one operand less
      for (int k = 1; k < 3; ++k) {
        if (x.in[k] == x.in[0]) continue;
        Program p = program;
        p.instructions[i].in[k] = x.in[0];
        offer(std::move(p));
      }
      continue;
    }
    if (x.kind == Kind::Leaf && x.seed != 1) {
      Program p = program;
      p.instructions[i].seed = 1;
      out.push_back(std::move(p));
    }
    if (x.dtype != DType::Float32) {
      Program p = program;
      p.instructions[i].dtype = DType::Float32;
      out.push_back(std::move(p));
    }
    for (std::size_t a = 0; a < x.dims.size(); ++a) {
      Program p = program;
      p.instructions[i].dims.erase(p.instructions[i].dims.begin() + static_cast<std::ptrdiff_t>(a));
      out.push_back(std::move(p));
      for (std::int64_t e : {std::int64_t{1}, std::int64_t{2}, x.dims[a] / 2, x.dims[a] - 1}) {
        if (e < 1 || e >= x.dims[a]) continue;
        Program q = program;
        q.instructions[i].dims[a] = e;
        out.push_back(std::move(q));
      }
    }
  }
  return out;
}

}  // namespace kiln::test
