// Random loops and branches.
#include "program_recorder.h"

#include <span>

namespace kiln::test {
namespace {

struct Branch {
  const char* text;
  Tensors (*record)(const Tensors& s);
  bool exact = false;      // jumps, or repeats itself
  bool has_axis = false;   // wants one
  bool has_value = false;  // wants an element
};
#define BRANCH(...)                                             \
  "[](const Tensors& s) { return Tensors{" #__VA_ARGS__ "}; }", \
      [](const Tensors& s) { return Tensors{__VA_ARGS__}; }
/// Of two operands, a result of their common shape and dtype, off by at most 2 |error of s[0]| + |error of
/// s[1]| and rounding, and as bounded.
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
    {BRANCH(while_loop([](const Tensors& u) { return u[0] > 3; },
                       [](const Tensors& u) { return Tensors{floor_divide(u[0], 2)}; }, {s[0] + s[1]})[0]),
     true},
};
#undef BRANCH

/// What a scan's body makes of its carry c (c[0] of a row's shape, c[1] of one element and some rank, c[2] a
/// scalar) and of the row in[0].
struct Step {
  const char* text;
  Tensor (*record)(const Tensors& c, const Tensors& in);
  bool whole = false;      // runs over whole tensors
  bool has_value = false;  // wants an element of a row
};
#define STEP(...)                                                                                     \
  #__VA_ARGS__, []([[maybe_unused]] const Tensors& c, [[maybe_unused]] const Tensors& in) -> Tensor { \
    return __VA_ARGS__;                                                                               \
  }
const Step kRowSteps[] = {
    {STEP(c[0] + in[0])},
    {STEP(c[0] - in[0])},
    {STEP(maximum(c[0], in[0]) - 1)},
    {STEP(c[0] + in[0] + c[2])},
    {STEP(in[0] + squeeze(c[1]))},
    {STEP(c[0] + in[0] * sum(c[1]))},
    {STEP(where(c[2] > 3, c[0], in[0]))},
    {STEP(where(c[0] < in[0], in[0], c[0] - c[2]))},
    {STEP(c[0] + in[0] + concat({reshape(c[1], {1}), reshape(c[1], {1})})(0))},
    {STEP(while_loop([](const Tensors& u) { return u[0] > 3; },
                     [](const Tensors& u) { return Tensors{floor_divide(u[0], 2)}; }, {c[0] + in[0]})[0])},
    {STEP(flip(c[0]) + in[0]), true},
    {STEP(c[0] + in[0] - kiln::max(c[0])), true, true},
};
const Step kElementSteps[] = {
    {STEP(c[1] + 1)},
    {STEP(c[1] + c[2])},
    {STEP(2 - c[1])},
    {STEP(maximum(c[1], c[2]) - 1)},
    {STEP(reshape(c[2] + 1, c[1].shape()))},
    {STEP(expand_dims(sum(c[1]) + c[2], 0))},
    {STEP(c[1] + kiln::max(in[0])), true, true},
};
const Step kScalarSteps[] = {
    {STEP(squeeze(c[1]))},
    {STEP(c[2] + squeeze(c[1]))},
    {STEP(sum(c[1]) + 1)},
    {STEP(kiln::max(c[1]) - c[2])},
    {STEP(reshape(c[1], {}) + c[2])},
    {STEP(2 + kiln::min(c[1]) * c[2])},
    {STEP(c[2] + 1)},
    {STEP(c[2] + kiln::min(in[0])), true, true},
};
/// What an iteration keeps: at most 200 in magnitude.
const Step kKept[] = {
    {STEP(c[0])},
    {STEP(c[0] + squeeze(c[1]))},
    {STEP(in[0])},
    {STEP(in[0] - c[0])},
    {STEP(c[1])},  // from here on not of a row's shape
    {STEP(squeeze(c[1]))},
    {STEP(sum(c[1]))},
    {STEP(c[2])},
    {STEP(expand_dims(c[2], 0))},
    {STEP(concat({reshape(c[1], {1}), reshape(c[2], {1})}))},
    {STEP(kiln::max(c[0])), true, true},
};
constexpr std::size_t kKeptRows = 4;
#undef STEP

const Step& drawn_step(std::span<const Step> list, bool has_value, bool whole, Draw& d) {
  const Step& s = list[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(list.size())))];
  return (s.whole && !whole) || (s.has_value && !has_value) ? list[0] : s;
}

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
      cat("scan([&](const Tensors& c, const Tensors&) { const Tensor part = dynamic_slice(", x.name,
          ", c[0], {", size, "}); return Scanned{{c[0] + ", step,
          ", dynamic_update_slice(c[1], part, c[0] - 1)}, {part}}; }, {Tensor(", first, "), zeros({", n,
          "}, ", dtype_text(x.tensor.dtype()), ")}, {zeros({4})})");
  return d.chance(50) ? define(text + ".carry[1]", out.carry[1], x) : define(text + ".ys[0]", out.ys[0], x);
}

/// What an earlier loop is called, whose results follow one by one.
std::string Recorder::begin_results(const char* type, const std::string& expression) {
  results_.emplace_back();
  const std::string name = cat("r", results_.size());
  if (text_) *text_ += cat("  const ", type, " ", name, " = ", expression, ";\n");
  return name;
}

Value Recorder::result(Value v) {
  results_.back().push_back(v);
  return v;
}

/// Another result of one of the latest loops.
Value Recorder::another(const Value& v, Draw& d) {
  if (results_.empty()) return v;
  const std::size_t back = results_.size() > 1 && d.chance(30) ? 2 : 1;
  const std::vector<Value>& list = results_[results_.size() - back];
  return list[static_cast<std::size_t>(d.below(static_cast<std::int64_t>(list.size())))];
}

Value Recorder::looped(const Value& v, Draw& d) {
  if (v.tensor.numel() > 0 && v.tensor.numel() <= kMaxElements / 4 && d.chance(25)) return windows(v, d);
  const Value x = numeric(comparable(v));
  if (x.tensor.rank() == 0 || x.tensor.numel() > kMaxElements) return halved(x);
  switch (d.below(6)) {
    case 0: return halved(x);
    case 1: return summed(x, d);
    case 2: return x.tensor.numel() > 0 ? followed(x, d) : halved(x);
    default: return carried(x, d);
  }
}

/// Halvings of each element down to 3: what is left, and how many.
Value Recorder::halved(Value x) {
  const DType t = x.tensor.dtype();
  if (is_float(t)) x = tame(x, exact_limit(t));
  const auto halve = [](const Tensors& s) { return Tensors{floor_divide(s[0], 2), s[1] + 1}; };
  const Tensors out = while_loop([](const Tensors& s) { return (s[0] > 3) & (s[1] < 40); }, halve,
                                 {x.tensor, zeros({}, DType::Int32)});
  const std::string all = begin_results("Tensors", cat("while_loop([](const Tensors& s) { return (s[0] > 3) "
                                                       "& (s[1] < 40); }, [](const Tensors& s) { return "
                                                       "Tensors{floor_divide(s[0], 2), s[1] + 1}; }, {",
                                                       x.name, ", zeros({}, DType::Int32)})"));
  result(define(all + "[0]", out[0], x));
  return result(define(all + "[1]", out[1], true, 40));
}

/// A sum along an axis that stays within bounds.
Value Recorder::summed(Value x, Draw& d) {
  const DType t = x.tensor.dtype();
  const int axis = axis_of(x, d), low = is_unsigned_int(t) ? 0 : -50;
  const bool reverse = d.chance(30), last = d.chance(30);
  x = tame(x, 50);
  const auto step = [low](const Tensors& c, const Tensors& in) {
    const Tensor next = clip(c[0] + in[0], low, 50);
    return Scanned{{next}, {next - in[0]}};
  };
  const Scanned out = scan(step, {zeros({}, t)}, {x.tensor}, axis, reverse);
  const std::string all = begin_results(
      "Scanned", cat("scan([](const Tensors& c, const Tensors& in) { const Tensor next = clip(c[0] + in[0], ",
                     low, ", 50); return Scanned{{next}, {next - in[0]}}; }, {zeros({}, ", dtype_text(t),
                     ")}, {", x.name, "}, ", axis, reverse ? ", true)" : ", false)"));
  const Value carry = result(define(all + ".carry[0]", out.carry[0], true, 50));
  const Value kept = result(settle(define(all + ".ys[0]", out.ys[0], true, 100)));
  return last ? carry : kept;
}

/// Each element adds up what it finds in a row, from a place of its own up to where it may no longer look.
Value Recorder::followed(Value x, Draw& d) {
  const DType t = x.tensor.dtype();
  x = tame(x, 50);
  const std::int64_t n = x.tensor.numel(), low = is_unsigned_int(t) ? 0 : -50,
                     limit = std::min<std::int64_t>(n, 40);
  const std::int64_t elements = d.between(1, 12), first = d.between(0, 3);
  const bool together = d.chance(30);
  const Tensor row = reshape(x.tensor, {n});
  const auto goes_on = [&](const Tensors& s) { return (together ? kiln::max(s[0]) : s[0]) < limit; };
  const auto step = [&](const Tensors& s) {
    return Tensors{s[0] + 1, clip(s[1] + take(row, s[0], 0), low, 50)};
  };
  const Tensors out = while_loop(goes_on, step, {arange(elements) - first, zeros({}, t)});
  const std::string all = begin_results(
      "Tensors",
      cat("while_loop([&](const Tensors& s) { return ", together ? "kiln::max(s[0])" : "s[0]", " < ", limit,
          "; }, [&](const Tensors& s) { return Tensors{s[0] + 1, clip(s[1] + take(reshape(", x.name, ", {", n,
          "}), s[0], 0), ", low, ", 50)}; }, {arange(", elements, ") - ", first, ", zeros({}, ",
          dtype_text(t), ")})"));
  result(define(all + "[0]", out[0], true, 52));
  return result(define(all + "[1]", out[1], true, 50));
}

/// A scan with a carry of several shapes, which read each other through views, and several values kept.
Value Recorder::carried(Value x, Draw& d) {
  const DType t = x.tensor.dtype();
  const std::string type = dtype_text(t);
  const int axis = axis_of(x, d), low = is_unsigned_int(t) ? 0 : -50;
  const bool reverse = d.chance(20), has_value = x.tensor.numel() > 0, whole = d.chance(25);
  const bool from_zero = d.chance(50) || !has_value;
  x = tame(x, 50);
  const Shape element = d.chance(70) ? Shape{1} : Shape{1, 1};
  const Step* const steps[] = {&drawn_step(kRowSteps, has_value, whole, d),
                               &drawn_step(kElementSteps, has_value, whole, d),
                               &drawn_step(kScalarSteps, has_value, whole, d)};
  struct Kept {
    const Step* step;
    bool before;  // made of the carry before its step
  };
  std::vector<Kept> kept;
  // a stack has the axis
  const std::span<const Step> choice = axis > 0 ? std::span(kKept).first(kKeptRows) : std::span(kKept);
  for (std::int64_t k = d.between(0, 3); k > 0; --k)
    kept.push_back({&drawn_step(choice, has_value, whole, d), d.chance(50)});
  const auto body = [&](const Tensors& c, const Tensors& in) {
    Scanned r;
    for (const Step* s : steps) r.carry.push_back(clip(s->record(c, in), low, 50).astype(t));
    for (const Kept& k : kept) r.ys.push_back(k.step->record(k.before ? c : r.carry, in));
    return r;
  };
  const Tensor row = from_zero ? zeros({}, t) : take(x.tensor, zeros({}, DType::Int64), axis);
  const Scanned out = scan(body, {row, ones(element, t), full({}, 2, t)}, {x.tensor}, axis, reverse);

  std::string text = "scan([](const Tensors& c, const Tensors& in) { const Tensors n{";
  for (const Step* s : steps) text += cat("clip(", s->text, ", ", low, ", 50).astype(", type, "), ");
  text += "}; return Scanned{n, {";
  for (const Kept& k : kept)
    text +=
        cat("[&](const Tensors& c) -> Tensor { return ", k.step->text, "; }(", k.before ? "c" : "n", "), ");
  text += cat("}}; }, {",
              from_zero ? cat("zeros({}, ", type, ")")
                        : cat("take(", x.name, ", zeros({}, DType::Int64), ", axis, ")"),
              ", ones(", shape_text(element), ", ", type, "), full({}, 2, ", type, ")}, {", x.name, "}, ",
              axis, reverse ? ", true)" : ", false)");
  const std::string all = begin_results("Scanned", text);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const DType of = out.ys[k].dtype();
    result(define(cat(all, ".ys[", k, "]"), out.ys[k], true, is_float(of) ? 200 : greatest(of)));
  }
  for (std::size_t k = out.carry.size(); k-- > 0;)
    result(define(cat(all, ".carry[", k, "]"), out.carry[k], true, 50));
  return results_.back().back();
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
  // of what a branch gets
  const Shape all = broadcast_arrays(std::vector<Tensor>{x.tensor, y.tensor, condition.tensor})[0].shape();
  const auto branch = [&]() -> const Branch& {
    const Branch& chosen = kBranches[d.below(std::size(kBranches))];
    const bool fits = (exact || !chosen.exact) && (both.rank() > 0 || !chosen.has_axis) &&
                      (all.numel() > 0 || !chosen.has_value);
    return fits ? chosen : kBranches[0];
  };
  const Branch &then = branch(), &otherwise = branch();
  const double bound = 2 * x.bound + y.bound + 3;
  const double error = exact ? 0 : 2 * x.error + y.error + 4 * epsilon(t) * bound;
  const Tensors out = cond(condition.tensor, then.record, otherwise.record, {x.tensor, y.tensor});
  return define(cat("cond(", condition.name, ", ", then.text, ", ", otherwise.text, ", {", x.name, ", ",
                    y.name, "})[0]"),
                out[0], exact, is_float(t) ? bound : greatest(t), error);
}

}  // namespace kiln::test
