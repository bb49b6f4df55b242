// Interval arithmetic over terms. Terms are evaluated in order, each once for a tile: a tile takes a
// microsecond, which is little beside its products.
#include "plan/attention_bounds.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kiln::plan {
namespace {

using ir::Op;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Bounds kAnything{-kInf, kInf, true};

double value_of(DType type, std::uint64_t bits) {
  switch (type) {
    case DType::Bool: return (bits & 1) != 0;
    case DType::Int8: return static_cast<std::int8_t>(bits);
    case DType::Int16: return static_cast<std::int16_t>(bits);
    case DType::Int32: return static_cast<std::int32_t>(bits);
    case DType::Int64: return static_cast<double>(static_cast<std::int64_t>(bits));
    case DType::UInt8: return static_cast<std::uint8_t>(bits);
    case DType::UInt16: return static_cast<std::uint16_t>(bits);
    case DType::UInt32: return static_cast<std::uint32_t>(bits);
    case DType::UInt64: return static_cast<double>(bits);
    case DType::Float16: return detail::half_to_float(static_cast<std::uint16_t>(bits));
    case DType::BFloat16: return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0xffff) << 16);
    case DType::Float32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::Float64: return std::bit_cast<double>(bits);
    case DType::Float8E4M3FN:
    case DType::Float8E5M2: break;
  }
  return 0;
}

Bounds exactly(double x) { return std::isnan(x) ? kAnything : Bounds{x, x, false}; }
Bounds truth(bool can_be_false, bool can_be_true) {
  return {can_be_false ? 0.0 : 1.0, can_be_true ? 1.0 : 0.0, false};
}
bool finite(const Bounds& x) { return !x.nan && std::isfinite(x.low) && std::isfinite(x.high); }

/// Wider by the rounding of a dtype; integers beyond 2^53, or that may wrap, are anything.
Bounds rounded(Bounds x, DType type) {
  if (!is_float(type)) {
    constexpr double kExact = 9007199254740992.0;
    const double most = std::min(kExact, std::ldexp(1.0, static_cast<int>(size_of(type)) * 8 - 1) - 1);
    const bool is_unsigned = info(type).cls == DTypeClass::UInt;
    if (type == DType::Bool) return {std::max(x.low, 0.0), std::min(x.high, 1.0), false};
    return x.low >= (is_unsigned ? 0 : -most) && x.high <= most ? x : Bounds{-kInf, kInf, false};
  }
  const double step = is_half(type) ? 0.01 : 1e-6, greatest = type == DType::Float16 ? 6.5e4 : 3.3e38;
  const auto out = [&](double v, double away) {
    if (!std::isfinite(v)) return v;
    const double w = v == 0 ? v : v + away * std::abs(v) * step;
    return std::abs(w) > greatest ? std::copysign(kInf, w) : w;
  };
  // a bound that overflows towards the inside would be too narrow
  double low = out(x.low, -1), high = out(x.high, 1);
  if (low == kInf && x.low != kInf) low = greatest;
  if (high == -kInf && x.high != -kInf) high = -greatest;
  return {low, high, x.nan};
}

Bounds sum(const Bounds& x, const Bounds& y) {
  Bounds r{x.low + y.low, x.high + y.high, x.nan || y.nan};
  const bool meet = (x.high == kInf && y.low == -kInf) || (x.low == -kInf && y.high == kInf);
  r.nan |= meet;
  if (std::isnan(r.low)) r.low = -kInf;
  if (std::isnan(r.high)) r.high = kInf;
  return r;
}

Bounds product(const Bounds& x, const Bounds& y) {
  if (!finite(x) || !finite(y)) return kAnything;
  const double all[] = {x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high};
  return {*std::min_element(all, all + 4), *std::max_element(all, all + 4), false};
}

Bounds negated(const Bounds& x) { return {-x.high, -x.low, x.nan}; }

/// What a Float32 near 0 becomes: exp(-104) is 0.
double vanishing(double x) { return x < 7e-46 ? 0 : x; }

Bounds compared(Op op, const Bounds& x, const Bounds& y) {
  const bool nan = x.nan || y.nan;
  switch (op) {
    case Op::less: return truth(nan || x.high >= y.low, x.low < y.high);
    case Op::less_equal: return truth(nan || x.high > y.low, x.low <= y.high);
    case Op::greater: return truth(nan || x.low <= y.high, x.high > y.low);
    case Op::greater_equal: return truth(nan || x.low < y.high, x.high >= y.low);
    case Op::equal:
      return truth(nan || x.low != x.high || y.low != y.high || x.low != y.low,
                   x.low <= y.high && y.low <= x.high);
    case Op::not_equal:
      return truth(x.low <= y.high && y.low <= x.high,
                   nan || x.low != x.high || y.low != y.high || x.low != y.low);
    default: return truth(true, true);
  }
}

Bounds applied(const Term& t, const Bounds* in, DType operand) {
  const Bounds &x = in[0], &y = in[1], &z = in[2];
  const bool can_false = x.low <= 0 && x.high >= 0, can_true = x.nan || x.low < 0 || x.high > 0;
  const bool y_false = t.n_in > 1 && y.low <= 0 && y.high >= 0,
             y_true = t.n_in > 1 && (y.nan || y.low < 0 || y.high > 0);
  switch (t.op) {
    case Op::add: return sum(x, y);
    case Op::subtract: return sum(x, negated(y));
    case Op::negative: return negated(x);
    case Op::multiply: return product(x, y);
    case Op::divide:
      return finite(x) && finite(y) && (y.low > 0 || y.high < 0) ? product(x, {1 / y.high, 1 / y.low, false})
                                                                 : kAnything;
    case Op::abs: {
      const double most = std::max(std::abs(x.low), std::abs(x.high));
      return {can_false ? 0 : std::min(std::abs(x.low), std::abs(x.high)), most, x.nan};
    }
    case Op::maximum: return {std::max(x.low, y.low), std::max(x.high, y.high), x.nan || y.nan};
    case Op::minimum: return {std::min(x.low, y.low), std::min(x.high, y.high), x.nan || y.nan};
    case Op::tanh: return {-1, 1, x.nan};
    case Op::exp: return {vanishing(std::exp(x.low)), vanishing(std::exp(x.high)), x.nan};
    case Op::exp2: return {vanishing(std::exp2(x.low)), vanishing(std::exp2(x.high)), x.nan};
    case Op::floor: return {std::floor(x.low), std::floor(x.high), x.nan};
    case Op::floor_divide:
      if (!finite(x) || !finite(y) || y.low != y.high || y.low <= 0) return kAnything;
      return {std::floor(x.low / y.low), std::floor(x.high / y.low), false};
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::equal:
    case Op::not_equal: return compared(t.op, x, y);
    case Op::logical_not: return truth(can_true, can_false);
    case Op::logical_and: return truth(can_false || y_false, can_true && y_true);
    case Op::logical_or: return truth(can_false && y_false, can_true || y_true);
    case Op::bitwise_and:
      if (t.dtype != DType::Bool) return kAnything;
      return truth(can_false || y_false, can_true && y_true);
    case Op::bitwise_or:
      if (t.dtype != DType::Bool) return kAnything;
      return truth(can_false && y_false, can_true || y_true);
    case Op::bitwise_invert: return t.dtype == DType::Bool ? truth(can_true, can_false) : kAnything;
    case Op::where:
      if (!can_false) return y;
      if (!can_true) return z;
      return {std::min(y.low, z.low), std::max(y.high, z.high), y.nan || z.nan};
    case Op::cast:
      if (t.dtype == DType::Bool) return truth(can_false, can_true);
      if (!is_float(t.dtype) && is_float(operand)) {
        if (!finite(x)) return kAnything;
        return {std::trunc(x.low), std::trunc(x.high), false};
      }
      return x;
    default: return kAnything;
  }
}

}  // namespace

/// Of the terms before number n.
static std::vector<Bounds> bounds_before(const PairTerms& a, std::size_t n, const Tile& tile,
                                         const std::vector<DType>& slot_types,
                                         std::span<const std::uint64_t> slots,
                                         const std::function<Bounds(const Term&)>& of) {
  std::vector<Bounds> known(n);
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Term& t = a.terms[i];
    Bounds& out = known[i];
    switch (t.kind) {
      case Term::Kind::Score:
      case Term::Kind::Max:
      case Term::Kind::Sum:
      case Term::Kind::Statistic:
      case Term::Kind::Memory: out = of(t); break;
      case Term::Kind::Row:
        out = {static_cast<double>(tile.row0), static_cast<double>(tile.row0 + tile.rows - 1), false};
        break;
      case Term::Kind::Column:
        out = {static_cast<double>(tile.column0), static_cast<double>(tile.column0 + tile.columns - 1),
               false};
        break;
      case Term::Kind::Batch: out = exactly(static_cast<double>(tile.number / t.divisor % t.extent)); break;
      case Term::Kind::Scalar: {
        const auto slot = static_cast<std::size_t>(t.index);
        out = exactly(value_of(slot_types[slot], slots[slot]));
        break;
      }
      case Term::Kind::Constant: out = exactly(value_of(t.dtype, t.bits)); break;
      case Term::Kind::Operation: {
        Bounds in[3] = {kAnything, kAnything, kAnything};
        for (int k = 0; k < t.n_in; ++k) in[k] = known[static_cast<std::size_t>(t.in[k])];
        const DType operand = t.n_in > 0 ? a.terms[static_cast<std::size_t>(t.in[0])].dtype : t.dtype;
        const Bounds exact = applied(t, in, operand);
        // choices give one of their operands as it is
        out =
            t.op == Op::where || t.op == Op::maximum || t.op == Op::minimum ? exact : rounded(exact, t.dtype);
        break;
      }
    }
  }
  return known;
}

Bounds bounds_of(const PairTerms& terms, TermId term, const Tile& tile, const std::vector<DType>& slot_types,
                 std::span<const std::uint64_t> slots) {
  const auto anything = [](const Term&) { return kAnything; };
  return bounds_before(terms, static_cast<std::size_t>(term) + 1, tile, slot_types, slots, anything).back();
}

std::vector<Bounds> all_bounds(const PairTerms& terms, const Tile& tile, const std::vector<DType>& slot_types,
                               std::span<const std::uint64_t> slots,
                               const std::function<Bounds(const Term&)>& known) {
  return bounds_before(terms, terms.terms.size(), tile, slot_types, slots, known);
}

}  // namespace kiln::plan
