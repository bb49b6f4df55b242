// Records a random program: what each instruction means on the operands at hand (tests/program.h).
// program.cpp makes, runs and shrinks programs; program_record.cpp has what each of them is made of,
// program_elementwise.cpp the elementwise instructions, program_move.cpp those that move elements,
// program_reduce.cpp reductions, products and scans, program_sweeps.cpp several reductions of one value,
// program_loop.cpp loops and branches, program_index.cpp indexing by tensors and sorting, program_custom.cpp
// kernels of the program's own.
#pragma once

#include "program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kiln::test {

constexpr std::int64_t kMaxElements = 6000;  // of a value; leaves of large programs may have more
constexpr int kMaxRankUsed = 6;

template <class... Args>
inline std::string cat(Args&&... args) {
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
inline double exact_limit(DType t) {
  switch (t) {
    case DType::Float16: return 2048;
    case DType::BFloat16: return 256;
    case DType::Float32: return 16777216;
    case DType::Float64: return 9007199254740992;
    default: return 9.3e18;
  }
}
inline double greatest(DType t) {  // of an integer type
  if (is_bool(t)) return 1;
  const int bits = static_cast<int>(size_of(t)) * 8;
  return std::ldexp(1.0, is_signed_int(t) ? bits - 1 : bits);
}
inline double epsilon(DType t) {
  switch (t) {
    case DType::Float16: return 1.0 / 2048;
    case DType::BFloat16: return 1.0 / 256;
    case DType::Float64: return 1e-15;
    default: return 1.2e-7;
  }
}
/// Inexact values stay below this, so that nothing overflows.
inline double tame_limit(DType t) { return t == DType::Float16 ? 100 : 1000; }

inline std::string dtype_text(DType t) {
  switch (t) {
#define KILN_DTYPE(Enum, ...) \
  case DType::Enum: return "DType::" #Enum;
#define KILN_STORED_DTYPE KILN_DTYPE
#include <kiln/dtype.def>
#undef KILN_DTYPE
  }
  return {};
}
template <class List>
inline std::string list_text(const List& list) {
  std::string s = "{";
  for (auto x : list) s += (s.size() > 1 ? ", " : "") + std::to_string(x);
  return s + "}";
}
inline std::string shape_text(const Shape& s) { return cat("Shape", list_text(s)); }

class Recorder {
 public:
  Recorder(const Program& p, std::string* text) : p_(p), text_(text) {}
  std::vector<Value> run();

 private:
  // ---- helpers: each records one statement
  Value define(const std::string& expression, Tensor t, const Value& like);
  Value define(const std::string& expression, Tensor t, bool exact, double bound, double error = 0);
  Value settle(Value v);
  Value cast(const Value& v, DType t);
  Value numeric(const Value& v) { return is_bool(v.tensor.dtype()) ? cast(v, DType::Int32) : v; }
  Value kept_in_eight_bits(const Value& v, Draw& d);
  Value boolean(const Value& v);
  Value tame(const Value& v, double limit);
  Value exactly(const Value& v, double limit) { return v.exact ? tame(v, limit) : v; }
  Value reshaped(const Value& v, const Shape& s);
  Value padded(const Value& v, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, int fill);
  Value fitted(const Value& b, const Shape& dims, Draw& d);
  int axis_of(const Value& v, Draw& d) { return static_cast<int>(d.below(std::max(1, v.tensor.rank()))); }
  Value input(const Instruction& i, int k) const { return values_[static_cast<std::size_t>(i.in[k])]; }

  // ---- one instruction
  Value apply(const Instruction& i, Draw& d);
  Value creation(const Instruction& i, Draw& d);
  Value drawn(const Instruction& i, Draw& d);
  Value unary(const Value& v, Draw& d);
  Value rewired(const Value& x);
  static double extra(const Value& v, double bound);
  Value real(const Value& v, double limit);
  Value smooth(const Value& v, Draw& d);
  Value binary(const Value& a, const Value& b, Draw& d);
  Value smooth_binary(const Value& a, const Value& b, Draw& d);
  Value binary_number(const Value& v, Draw& d);
  Value comparable(const Value& v);
  Value are_halves(const Value& v);
  Value compare(const Value& a, const Value& b, Draw& d);
  Value choose(const Value& c, const Value& a, const Value& b, Draw& d);
  Value clipped(const Value& v, Draw& d);
  static Shape random_factors(std::int64_t n, Draw& d);
  Value permuted(const Value& x, Draw& d);
  std::vector<kiln::Slice> random_slices(const Shape& shape, Draw& d, std::string& text, bool drop) const;
  Value sliced(const Value& x, Draw& d);
  Value update(const Value& x, Draw& d);
  struct Box;
  Box box_in(const Value& x, const Shape& sizes, const Value& indices, Draw& d);
  Value boxed(const Value& x, const Value& indices, Draw& d);
  Value box_updated(const Value& x, const Value& indices, Draw& d);
  Value windows(const Value& v, Draw& d);
  Value joined(const Value& a, const Value& b, const Value& c, Draw& d);
  Value stacked(const Value& a, const Value& b, Draw& d);
  Value broadcast(const Value& x, Draw& d);
  Value windowed(const Value& x, Draw& d);

  // ---- reductions
  static Axes random_axes(const Value& x, Draw& d, std::string& text, double& count);
  Value reduce(const Value& v, Draw& d);
  /// Over axes of n elements together, which the text names.
  Value reduce_over(const Value& v, const Axes& axes, const std::string& axes_text, double n, Draw& d);
  Value position(const Value& v, Draw& d);
  Value norm(const Value& v, Draw& d);
  Value product(const Value& a, const Value& b, Draw& d);
  Value reduced_along(const Value& v, int axis, bool keep, Draw& d);
  Value nearest(const Value& v, Draw& d);
  Value in_a_square(const Value& v, Draw& d);
  Value sweeps(const Value& v, Draw& d);

  // ---- scans, loops
  Value scanned(const Value& v, Draw& d);
  Value log_scanned(const Value& v, const std::string& tail, std::optional<int> axis, bool exclusive,
                    bool reverse, double n);
  std::string begin_results(const char* type, const std::string& expression);
  Value result(Value v);
  Value another(const Value& v, Draw& d);
  Value looped(const Value& v, Draw& d);
  Value halved(Value x);
  Value summed(Value x, Draw& d);
  Value followed(Value x, Draw& d);
  Value carried(Value x, Draw& d);
  Value conditional(const Value& c, const Value& a, const Value& b, Draw& d);

  Value custom(const Value& a, const Value& b, Draw& d);

  // ---- indexing, sorting
  Value positions(const Value& v, std::int64_t n);
  Value along_axis(const Value& at, const Value& x, int axis);
  std::vector<Value> coordinates(const Value& a, const Value& b, const Value& x, bool crossed, Draw& d);
  Value gathered(const Value& x, const Value& indices, const Value& more, Draw& d);
  Combine how_to_write(Value& x, double meeting, Draw& d);
  Value scattered(const Value& v, const Value& indices, const Value& places, Draw& d);
  Value sorted(const Value& v, const Value& wanted, Draw& d);
  Value selected(const Value& v, const Value& chosen, Draw& d);

  // ---- state
  const Program& p_;
  std::string* text_;
  std::vector<Value> values_;
  std::vector<std::vector<Value>> results_;  // of each loop
  std::size_t here_ = 0;
  std::size_t leaves_ = 0;  // recorded so far
  int temporaries_ = 0;
};

}  // namespace kiln::test
