#include "program_recorder.h"

#include <limits>

namespace kiln::test {
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

/// Bounds of integers wrap; an error of no value (none times an infinite bound) may be any.
Value Recorder::settle(Value v) {
  if (v.error != v.error) v.error = std::numeric_limits<double>::infinity();
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
  return define(cat("astype(", x.name, ", ", dtype_text(t), ")"), astype(x.tensor, t), exact, x.bound, error);
}

/// By way of an 8-bit float, which moves or is chosen on the way: its formats are of memory alone.
Value Recorder::kept_in_eight_bits(const Value& v, Draw& d) {
  const bool fine = d.chance(50);
  const DType t = v.tensor.dtype(), eight = fine ? DType::Float8E4M3FN : DType::Float8E5M2;
  const Value x = tame(v, fine ? 16 : 8);
  Value y = define(cat("astype(", x.name, ", ", dtype_text(eight), ")"), astype(x.tensor, eight), x);
  switch (d.below(4)) {
    case 0: break;
    case 1: y = define(cat("flip(", y.name, ")"), flip(y.tensor), y); break;
    case 2: y = define(cat("roll(", y.name, ", 1)"), roll(y.tensor, 1), y); break;
    default:
      y = define(cat("where(", x.name, " > 1, ", y.name, ", flip(", y.name, "))"),
                 where(x.tensor > 1, y.tensor, flip(y.tensor)), y);
  }
  return define(cat("astype(", y.name, ", ", dtype_text(t), ")"), astype(y.tensor, t), x);
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

Value Recorder::padded(const Value& v, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
                       int fill) {
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
  double padded_to = 1;
  for (int a = 0; a < have.rank(); ++a)
    padded_to *= static_cast<double>(have[a] + widths[static_cast<std::size_t>(a)].second);
  if (padded_to > static_cast<double>(std::max({4 * kMaxElements, have.numel(), dims.numel()})))
    for (int a = 0; a < have.rank(); ++a)  // too large alone
      if (auto& width = widths[static_cast<std::size_t>(a)].second; width > 0) width = 1 - have[a];
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
      const bool own = leaves_ < p_.leaves.size();
      Value v = define(cat("leaf(", shape_text(i.dims), ", ", dtype_text(i.dtype), ", ", i.seed, "u)"),
                       own ? p_.leaves[leaves_] : leaf(i.dims, i.dtype, i.seed), true,
                       i.seed % 8 == 0 && is_float(i.dtype) ? INFINITY : 10);
      if (!is_float(i.dtype)) v.bound = greatest(i.dtype);
      ++leaves_;
      return v;
    }
    case Kind::Creation: return creation(i, d);
    case Kind::Random: return drawn(i, d);
    case Kind::Unary: return unary(input(i, 0), d);
    case Kind::Smooth: return smooth(input(i, 0), d);
    case Kind::Binary: return binary(input(i, 0), input(i, 1), d);
    case Kind::SmoothBinary: return smooth_binary(input(i, 0), input(i, 1), d);
    case Kind::BinaryNumber: return binary_number(input(i, 0), d);
    case Kind::Compare: return compare(input(i, 0), input(i, 1), d);
    case Kind::Where: return choose(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Clip: return clipped(input(i, 0), d);
    case Kind::Cast: {
      const Value x = input(i, 0);
      const Value y = cast(x, x.exact || is_float(i.dtype) ? i.dtype : DType::Float32);
      return y.exact && !is_bool(y.tensor.dtype()) && d.chance(30) ? kept_in_eight_bits(y, d) : y;
    }
    case Kind::Reshape: return reshaped(input(i, 0), random_factors(input(i, 0).tensor.numel(), d));
    case Kind::Permute: return permuted(input(i, 0), d);
    case Kind::Slice: return d.chance(25) ? boxed(input(i, 0), input(i, 1), d) : sliced(input(i, 0), d);
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
        if (w.first >= 0 && w.second > 0) {
          const std::int64_t moved = p_.variant % (w.second + 1);
          w = {w.first + moved, w.second - moved};
        }
        widths.push_back(w);
      }
      return padded(x, widths, static_cast<int>(d.between(0, 3)));
    }
    case Kind::Concat: return joined(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Stack: return stacked(input(i, 0), input(i, 1), d);
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
    case Kind::Broadcast: return broadcast(input(i, 0), d);
    case Kind::Window: return windowed(input(i, 0), d);
    case Kind::Expand: {
      const Value x = input(i, 0);
      if (x.tensor.rank() >= kMaxRankUsed) return x;
      const int a = static_cast<int>(d.between(0, x.tensor.rank()));
      return define(cat("expand_dims(", x.name, ", ", a, ")"), expand_dims(x.tensor, a), x);
    }
    case Kind::Squeeze:
      return define(cat("squeeze(", input(i, 0).name, ")"), squeeze(input(i, 0).tensor), input(i, 0));
    case Kind::Update:
      return d.chance(25) ? box_updated(input(i, 0), input(i, 1), d) : update(input(i, 0), d);
    case Kind::Triangle: {
      const Value x = input(i, 0);
      if (x.tensor.rank() < 2) return x;
      const std::int64_t k = d.between(-2, 2);
      if (d.chance(50)) return define(cat("tril(", x.name, ", ", k, ")"), tril(x.tensor, k), x);
      return define(cat("triu(", x.name, ", ", k, ")"), triu(x.tensor, k), x);
    }
    case Kind::Reduce: return reduce(input(i, 0), d);
    case Kind::Arg: return position(input(i, 0), d);
    case Kind::Norm: return norm(input(i, 0), d);
    case Kind::Sweeps: return sweeps(input(i, 0), d);
    case Kind::Matmul: return product(input(i, 0), input(i, 1), d);
    case Kind::Scan: return scanned(input(i, 0), d);
    case Kind::Gather: return gathered(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Scatter: return scattered(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Sort: return sorted(input(i, 0), input(i, 1), d);
    case Kind::Select: return selected(input(i, 0), input(i, 1), d);
    case Kind::Loop: return looped(input(i, 0), d);
    case Kind::Another: return another(input(i, 0), d);
    case Kind::Cond: return conditional(input(i, 0), input(i, 1), input(i, 2), d);
    case Kind::Custom: return custom(input(i, 0), input(i, 1), d);
    case Kind::Evaluate: {
      const Value x = input(i, 0);
      x.tensor.eval();
      if (text_) *text_ += cat("  ", x.name, ".eval();\n");
      return x;
    }
    case Kind::kCount: break;
  }
  return {};
}

Value Recorder::creation(const Instruction& i, Draw& d) {
  const Shape s(i.dims);
  const std::string type = dtype_text(i.dtype);
  switch (d.below(6)) {
    case 0: return define(cat("zeros(", shape_text(s), ", ", type, ")"), zeros(s, i.dtype), true, 0);
    case 1: return define(cat("ones(", shape_text(s), ", ", type, ")"), ones(s, i.dtype), true, 1);
    case 2: {
      const std::int64_t value = d.between(is_unsigned_int(i.dtype) ? 0 : -3, 3);
      return define(cat("full(", shape_text(s), ", ", value, ", ", type, ")"), full(s, value, i.dtype), true,
                    3);
    }
    case 3: {
      const std::int64_t rows = s.rank() > 0 ? std::min<std::int64_t>(s[0], 70) : 3;
      const std::int64_t columns = s.rank() > 1 ? std::min<std::int64_t>(s[1], 70) : rows,
                         k = d.between(-2, 2);
      return define(cat("eye(", rows, ", ", columns, ", ", k, ", ", type, ")"),
                    eye(rows, columns, k, i.dtype), true, 1);
    }
    case 4: {
      if (!is_float(i.dtype)) break;
      const std::int64_t n = std::min<std::int64_t>(s.numel(), 100), stop = d.between(-9, 9);
      const bool endpoint = d.chance(50);
      return define(cat("linspace(1, ", stop, ", ", n, endpoint ? ", true, " : ", false, ", type, ")"),
                    linspace(1, stop, n, endpoint, i.dtype), false, 9, 9 * 4 * epsilon(i.dtype));
    }
    default: break;
  }
  const std::int64_t n = std::min<std::int64_t>(s.numel(), 100);
  const DType t = is_bool(i.dtype) ? DType::Int32 : i.dtype;
  return define(cat("arange(", n, ", ", dtype_text(t), ")"), arange(n, t), true, 100);
}

/// Bits, and uniform numbers in [0, 1), are the same to the bit in every mode, so that those have no error;
/// but they are not whole, so that sums of them round.
Value Recorder::drawn(const Instruction& i, Draw& d) {
  const Shape s(i.dims);
  const auto number = static_cast<std::uint64_t>(d.below(1000));
  const random::Key key(number);
  const DType real = is_float(i.dtype) ? i.dtype : DType::Float32;
  const double e = epsilon(real);
  const std::string head = cat("(random::Key(", number, "), ", shape_text(s), ", "),
                    type = cat(dtype_text(real), ")");
  switch (d.below(8)) {
    case 0: {
      const DType t = d.chance(50) ? DType::UInt32 : DType::UInt64;
      return define(cat("random::bits", head, dtype_text(t), ")"), random::bits(key, s, t), true,
                    greatest(t));
    }
    case 1: return define(cat("random::uniform", head, type), random::uniform(key, s, real), false, 1);
    case 2: {
      const std::int64_t low = d.between(-5, 2), high = low + d.between(1, 4);
      return define(cat("random::uniform", head, low, ", ", high, ", ", type),
                    random::uniform(key, s, low, high, real), false, 6, 4 * e * 6);
    }
    case 3:
      return define(cat("random::normal", head, type), random::normal(key, s, real), false, 10, 10 * e * 8);
    case 4: return define(cat("random::bernoulli", head, "0.25)"), random::bernoulli(key, s, 0.25), true, 1);
    case 5: {
      const DType t = is_int(i.dtype) ? i.dtype : DType::Int64;
      std::int64_t low = is_unsigned_int(t) ? 0 : -d.between(0, 9), high = d.between(1, 9);
      if (size_of(t) == 8 && d.chance(30)) high = std::int64_t{1} << 40;  // beyond what 64 random bits serve
      return define(cat("random::randint", head, low, ", ", high, ", ", dtype_text(t), ")"),
                    random::randint(key, s, low, high, t), true, static_cast<double>(std::max(high, -low)));
    }
    case 6:
      return define(cat("random::exponential", head, type), random::exponential(key, s, real), false, 45,
                    45 * e * 8);
    default:
      return define(cat("random::permutation(random::Key(", number, "), ", s.numel(), ")"),
                    random::permutation(key, s.numel()), true, static_cast<double>(s.numel()));
  }
}

}  // namespace kiln::test
