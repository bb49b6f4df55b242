// Reductions and scans of the reference interpreter: one element after the other.
#include "oracle/interpret_element.h"

#include <cmath>
#include <limits>
#include <vector>

namespace kiln::ir::oracle {
namespace {

/// log(e^x0 + e^x1 + ...): the greatest exponent is taken out first, in a pass of its own.
template <class S, class R, class Next>
R log_sum([[maybe_unused]] const Next& next, [[maybe_unused]] std::int64_t count) {
  if constexpr ((std::is_same_v<S, R> || std::is_same_v<R, double>) && std::is_floating_point_v<Sum<S>>) {
    const auto result = [](long double v) {
      if constexpr (std::is_same_v<S, R>)
        return narrow<S>(static_cast<Sum<S>>(v));
      else
        return static_cast<R>(v);
    };
    std::vector<long double> x(static_cast<std::size_t>(count));
    long double greatest = -HUGE_VAL, sum = 0;
    for (long double& v : x) {
      v = static_cast<long double>(widen(next()));
      if (v > greatest) greatest = v;
    }
    for (const long double v : x) {
      if (v != v) return result(v);
      sum += v == greatest ? 1 : std::exp(v - greatest);
    }
    return result(greatest + std::log(sum));
  } else {
    return {};
  }
}

/// One output element from `count` inputs, in row-major order of the reduced axes.
template <class S, class R>
R reduced(Op op, const Value& x, Cursor& cursor, std::int64_t count) {
  using T = ref::Compute<S>;
  const auto next = [&] {
    std::int64_t offset = 0;
    cursor.take(&offset, 1);
    return load<S>(x, offset);
  };
  if (op == Op::reduce_sum || op == Op::reduce_prod) {
    Sum<S> total = op == Op::reduce_sum ? 0 : 1;
    for (std::int64_t i = 0; i < count; ++i)
      if (op == Op::reduce_sum)
        total += widen(next());
      else
        total *= widen(next());
    if constexpr (std::is_same_v<S, R>)
      return narrow<S>(total);
    else
      return {};
  }
  if (op == Op::reduce_logaddexp) return log_sum<S, R>(next, count);
  if (count == 0) return op == Op::reduce_min ? ref::cast<R>(1) : R{};  // bool: any of none, all of none
  const bool greatest = op == Op::reduce_max || op == Op::reduce_argmax;
  T best = static_cast<T>(next());
  std::int64_t at = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    const T v = static_cast<T>(next());
    if (best != best) continue;  // the first NaN wins; the cursor still has to move
    if (v != v || (greatest ? v > best : v < best)) {
      best = v;
      at = i;
    }
  }
  return has(op, POSITION) ? ref::cast<R>(at) : ref::cast<R>(best);
}

}  // namespace

Value reduce(const GraphNode& node, const Value& x) {
  Value turned = x;  // kept axes first, so that each output's inputs follow one another
  turned.dims.clear();
  turned.strides.clear();
  std::int64_t count = 1;
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < x.dims.size(); ++i) {
      if (attributes<Reduce>(node).over(i) != (pass == 1)) continue;
      turned.dims.push_back(x.dims[i]);
      turned.strides.push_back(x.strides[i]);
      if (pass == 1) count *= x.dims[i];
    }
  Value out = new_value(node.dtype, node.dims);
  const bool position = has(node.op, POSITION);
  dispatch(x.dtype, [&]<class S>() {
    Cursor cursor(turned);
    for (std::int64_t i = 0; i < node.numel; ++i) {
      if (position)
        store(out, i, reduced<S, std::int64_t>(node.op, x, cursor, count));
      else if (node.op == Op::reduce_logaddexp && node.dtype == DType::Float64)
        store(out, i, reduced<S, double>(node.op, x, cursor, count));
      else
        store(out, i, reduced<S, S>(node.op, x, cursor, count));
    }
  });
  return out;
}

namespace {

/// A running value, widened for sums and products like `reduced`.
template <class S>
class Runner {
 public:
  explicit Runner(Op op) : op_(op) {
    using Limits = std::numeric_limits<S>;
    if (op == Op::scan_prod) total_ = 1;
    if constexpr (std::is_floating_point_v<Sum<S>>)
      if (op == Op::scan_logaddexp) total_ = -HUGE_VAL;
    if constexpr (std::is_integral_v<S>) {
      best_ = op == Op::scan_max ? Limits::lowest() : Limits::max();
    } else {
      best_ = op == Op::scan_max ? -HUGE_VAL : HUGE_VAL;
    }
  }
  void take(S s) {
    const auto x = static_cast<ref::Compute<S>>(s);
    if (op_ == Op::scan_sum)
      total_ += widen(s);
    else if (op_ == Op::scan_prod)
      total_ *= widen(s);
    else if (op_ == Op::scan_logaddexp)
      add_exponential(widen(s));
    else if (best_ == best_ && (x != x || (op_ == Op::scan_max ? x > best_ : x < best_)))
      best_ = x;
  }
  S value() const {
    return op_ == Op::scan_max || op_ == Op::scan_min ? ref::cast<S>(best_) : narrow<S>(total_);
  }

 private:
  void add_exponential([[maybe_unused]] Sum<S> x) {
    if constexpr (std::is_floating_point_v<Sum<S>>) total_ = ref::logaddexp_wide(total_, x);
  }

  Op op_;
  Sum<S> total_ = 0;
  ref::Compute<S> best_{};
};

}  // namespace

Value scan(const GraphNode& node, const Value& x) {
  Value out = new_value(node.dtype, node.dims);
  const auto how = attributes<Scan>(node);
  const std::size_t axis = how.axis;
  const std::int64_t extent = node.dims[axis], step = how.reverse ? -1 : 1;
  Value from = x, to = out;  // starts of the lines along the axis
  from.dims[axis] = to.dims[axis] = 1;
  Cursor reads(from), writes(to);
  const std::int64_t lines = node.numel == 0 ? 0 : node.numel / extent;
  dispatch(node.dtype, [&]<class S>() {
    for (std::int64_t line = 0, a = 0, b = 0; line < lines; ++line) {
      reads.take(&a, 1);
      writes.take(&b, 1);
      Runner<S> runner(node.op);
      for (std::int64_t i = step > 0 ? 0 : extent - 1; i >= 0 && i < extent; i += step) {
        const S s = load<S>(x, a + i * x.strides[axis]);
        if (!how.exclusive) runner.take(s);
        store(out, b + i * out.strides[axis], runner.value());
        if (how.exclusive) runner.take(s);
      }
    }
  });
  return out;
}

}  // namespace kiln::ir::oracle
