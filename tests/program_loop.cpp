// Random loops and branches.
#include "program_recorder.h"

namespace kiln::test {
namespace {

struct Branch {
  const char* text;
  Tensors (*record)(const Tensors& s);
  bool exact = false;      // jumps, or repeats itself
  bool has_axis = false;   // wants one
  bool has_value = false;  // wants an element
};
#define BRANCH(...) \
  "[](const Tensors& s) { return Tensors{" #__VA_ARGS__ "}; }", [](const Tensors& s) { return Tensors{__VA_ARGS__}; }
/// Of two operands, a result of their common shape and dtype, off by at most 2 |error of s[0]| + |error of s[1]| and
/// rounding, and as bounded.
const Branch kBranches[] = {
    {BRANCH(s[0] + s[1])},
    {BRANCH(s[0] - s[1])},
    {BRANCH(maximum(s[0], s[1]))},
    {BRANCH(minimum(s[0], 2) + s[1])},
    {BRANCH(flip(s[0] + s[1]))},
    {BRANCH(sort(s[0] - s[1], 0)), false, true},
    {BRANCH(cummax(s[0] + s[1], -1)), false, true},
    {BRANCH(s[0] + s[1] - kiln::max(s[0])), false, false, true},
    {BRANCH(where(s[0] < s[1], s[0] + s[1], 1)), true},
    {BRANCH(while_loop([](const Tensors& u) { return u[0] > 3; }, [](const Tensors& u) { return Tensors{floor_divide(u[0], 2)}; },
                       {s[0] + s[1]})[0]),
     true},
};
#undef BRANCH

}  // namespace

/// What a window shows that moves along the elements, and what is left where it was written.
Value Recorder::windows(const Value& v, Draw& d) {
  const std::int64_t n = v.tensor.numel();
  const Value x = reshaped(v, Shape{n});
  const std::int64_t size = d.between(1, n), first = d.between(-3, 3), step = d.between(1, 3);
  const auto body = [&](const Tensors& c, const Tensors&) {
    const Tensor part = dynamic_slice(x.tensor, c[0], {size});
    return Scanned{{c[0] + step, dynamic_update_slice(c[1], part, c[0] - 1)}, {part}};
  };
  const Scanned out = scan(body, {Tensor(first), zeros({n}, x.tensor.dtype())}, {zeros({4})});
  const std::string text =
      cat("scan([&](const Tensors& c, const Tensors&) { const Tensor part = dynamic_slice(", x.name, ", c[0], {", size,
          "}); return Scanned{{c[0] + ", step, ", dynamic_update_slice(c[1], part, c[0] - 1)}, {part}}; }, {Tensor(", first, "), zeros({",
          n, "}, ", dtype_text(x.tensor.dtype()), ")}, {zeros({4})})");
  return d.chance(50) ? define(text + ".carry[1]", out.carry[1], x) : define(text + ".ys[0]", out.ys[0], x);
}

/// Halvings of each element down to 3, or a sum along an axis that stays within bounds.
Value Recorder::looped(const Value& v, Draw& d) {
  if (v.tensor.numel() > 0 && v.tensor.numel() <= kMaxElements / 4 && d.chance(25)) return windows(v, d);
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

/// One of two branches, for the whole or element by element.
Value Recorder::conditional(const Value& c, const Value& a, const Value& b, Draw& d) {
  Value x = numeric(a), y = numeric(fitted(b, a.tensor.shape(), d));
  const DType t = promote(x.tensor.dtype(), y.tensor.dtype());
  const bool exact = x.exact && y.exact;
  if (is_float(t)) {
    const double limit = std::floor((exact ? exact_limit(t) : std::min(exact_limit(t), tame_limit(t))) / 4);
    x = cast(tame(x, limit), t), y = cast(tame(y, limit), t);
  }
  const Shape both = broadcast_arrays(std::vector<Tensor>{x.tensor, y.tensor})[0].shape();
  Value condition = boolean(comparable(c));
  if (condition.tensor.rank() > 0 && d.chance(40))
    condition = define(cat("any(", condition.name, ")"), any(condition.tensor), true, 1);
  condition = fitted(condition, both, d);
  const Shape all = broadcast_arrays(std::vector<Tensor>{x.tensor, y.tensor, condition.tensor})[0].shape();  // of what a branch gets
  const auto branch = [&]() -> const Branch& {
    const Branch& chosen = kBranches[d.below(std::size(kBranches))];
    const bool fits = (exact || !chosen.exact) && (both.rank() > 0 || !chosen.has_axis) && (all.numel() > 0 || !chosen.has_value);
    return fits ? chosen : kBranches[0];
  };
  const Branch &then = branch(), &otherwise = branch();
  const double bound = 2 * x.bound + y.bound + 3;
  const double error = exact ? 0 : 2 * x.error + y.error + 4 * epsilon(t) * bound;
  const Tensors out = cond(condition.tensor, then.record, otherwise.record, {x.tensor, y.tensor});
  return define(cat("cond(", condition.name, ", ", then.text, ", ", otherwise.text, ", {", x.name, ", ", y.name, "})[0]"), out[0],
                exact, is_float(t) ? bound : greatest(t), error);
}

}  // namespace kiln::test
