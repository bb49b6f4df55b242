// Library operations of the reference interpreter but scatters: orders, searches, systems of equations.
#include "ir/custom.h"
#include "oracle/interpret_element.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace kiln::ir::oracle {
namespace {

/// The order of sort: NaN after everything, -0 and +0 equal.
template <class S>
bool before(S a, S b) {
  using T = ref::Compute<S>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x < y || (x == x && y != y);
}

Value sort(const GraphNode& node, const Value& x) {
  Value out = new_value(node.dtype, node.dims);
  const auto how = attributes<Sort>(node);
  const std::size_t axis = how.axis;
  const bool descending = how.descending;  // lambdas capture it
  const std::int64_t n = x.dims[axis], kept = node.dims[axis];
  // The axis last, so that a row's elements follow one another.
  const auto turned = [&](Value v) {
    v.dims.push_back(v.dims[axis]);
    v.strides.push_back(v.strides[axis]);
    v.dims.erase(v.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    v.strides.erase(v.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    return v;
  };
  Cursor from(turned(x)), to(turned(out));
  std::vector<std::int64_t> at(static_cast<std::size_t>(n)), order(at.size());
  for (std::int64_t done = 0; done < node.numel; done += kept) {
    from.take(at.data(), n);
    std::iota(order.begin(), order.end(), std::int64_t{0});
    dispatch(x.dtype, [&]<class S>() {
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
        const S a = load<S>(x, at[static_cast<std::size_t>(i)]),
                b = load<S>(x, at[static_cast<std::size_t>(j)]);
        if (before(a, b) || before(b, a)) return descending ? before(b, a) : before(a, b);
        if constexpr (is_float(dtype_of<S>))  // values: -0 below +0
          if (node.op == Op::sort && a == S(0.0f) && b == S(0.0f)) {
            const bool p = std::signbit(static_cast<float>(a)), q = std::signbit(static_cast<float>(b));
            return descending ? q && !p : p && !q;
          }
        return false;
      });
      for (std::int64_t i = 0, place = 0; i < kept; ++i) {
        to.take(&place, 1);
        const std::int64_t chosen = order[static_cast<std::size_t>(i)];
        if (node.op == Op::argsort)
          store(out, place, chosen);
        else
          store(out, place, load<S>(x, at[static_cast<std::size_t>(chosen)]));
      }
    });
  }
  return out;
}

Value search(const GraphNode& node, const Value& sorted, const Value& values) {
  const bool right = attributes<Search>(node).right;
  Value out = new_value(node.dtype, node.dims);
  dispatch(sorted.dtype, [&]<class S>() {
    Cursor cursor(values);
    for (std::int64_t i = 0, at = 0; i < node.numel; ++i) {
      cursor.take(&at, 1);
      const S v = load<S>(values, at);
      std::int64_t place = 0;
      while (place < sorted.dims[0]) {
        const S s = load<S>(sorted, place * sorted.strides[0]);
        if (right ? before(v, s) : !before(s, v)) break;
        ++place;
      }
      store(out, i, place);
    }
  });
  return out;
}

/// Extents of the last two axes, and how many matrices there are.
struct Stack {
  std::int64_t count, rows, columns;
  explicit Stack(Dims dims)
      : count(Shape(dims.first(dims.size() - 2)).numel()),
        rows(dims[dims.size() - 2]),
        columns(dims[dims.size() - 1]) {}
};

/// Row by row: what stands left of an element decides it.
Value cholesky(const GraphNode& node, const Value& in) {
  const Value x = densified(in);
  Value out = new_value(node.dtype, node.dims);
  const Stack s(node.dims);
  const std::int64_t n = s.rows;
  dispatch(node.dtype, [&]<class S>() {
    if constexpr (is_float(dtype_of<S>)) {
      std::vector<long double> l(static_cast<std::size_t>(n * n));
      const auto at = [&](std::int64_t i, std::int64_t j) -> long double& {
        return l[static_cast<std::size_t>(i * n + j)];
      };
      for (std::int64_t first = 0; first < s.count * n * n; first += n * n)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            long double value = j <= i ? widen(load<S>(x, first + i * n + j)) : 0;
            for (std::int64_t k = 0; k < j && j <= i; ++k) value -= at(i, k) * at(j, k);
            if (j < i) value /= at(j, j);
            if (j == i) value = value > 0 ? std::sqrt(value) : std::numeric_limits<long double>::quiet_NaN();
            at(i, j) = value;
            store(out, first + i * n + j, narrow<S>(value));
          }
    }
  });
  return out;
}

/// One right side after the other, from the first row to the last.
Value solve_triangular(const GraphNode& node, const Value& matrices, const Value& sides) {
  const Value a = densified(matrices), b = densified(sides);
  Value out = new_value(node.dtype, node.dims);
  const Stack s(node.dims);
  const std::int64_t n = s.rows, m = s.columns;
  dispatch(node.dtype, [&]<class S>() {
    if constexpr (is_float(dtype_of<S>)) {
      std::vector<long double> x(static_cast<std::size_t>(n));
      for (std::int64_t g = 0; g < s.count * m; ++g) {
        const std::int64_t from = g / m * n * n, to = g / m * n * m + g % m;
        for (std::int64_t i = 0; i < n; ++i) {
          long double value = widen(load<S>(b, to + i * m));
          for (std::int64_t k = 0; k < i; ++k)
            value -= widen(load<S>(a, from + i * n + k)) * x[static_cast<std::size_t>(k)];
          value /= widen(load<S>(a, from + i * n + i));
          x[static_cast<std::size_t>(i)] = value;
          store(out, to + i * m, narrow<S>(value));
        }
      }
    }
  });
  return out;
}

}  // namespace

Value library(const GraphNode& node, const Value& x, const Value& y) {
  switch (node.op) {
    case Op::sort:
    case Op::argsort: return sort(node, x);
    case Op::searchsorted: return search(node, x, y);
    case Op::cholesky: return cholesky(node, x);
    default: KILN_CHECK_THAT(node.op == Op::solve_triangular, info(node.op).name, " has no value");
  }
  return solve_triangular(node, x, y);
}

namespace {

/// The user's function for the CPU is the reference.
std::vector<Value> custom(const GraphNode& node, std::span<const Value> operands) {
  const auto how = attributes<Custom>(node);
  const CustomCode& code = custom_code(how.kernel);
  if (!code.cpu)
    throw UserError(cat("[", code.name, "] cannot be interpreted: it has no function for the CPU"));
  std::vector<Value> in, out;
  std::vector<KernelArray> arrays_in, arrays_out;
  for (const Value& x : operands) in.push_back(densified(x));
  for (const Value& x : in) arrays_in.push_back({const_cast<std::byte*>(x.data), x.dtype, x.dims});
  for (std::size_t i = 0; i < how.results; ++i)
    out.push_back(i == 0 ? new_value(node.dtype, node.dims) : new_value(how.dtype(i), how.dims(i)));
  std::int64_t elements = 0;
  for (const Value& y : out) {
    arrays_out.push_back({y.writable(), y.dtype, y.dims});
    elements += y.numel();
  }
  if (elements > 0) run_custom(code, {code.name, arrays_in, arrays_out, how.numbers()});
  return out;
}

}  // namespace

std::vector<Value> library_results(const GraphNode& node, std::span<const Value> operands) {
  if (node.op == Op::custom) return custom(node, operands);
  KILN_CHECK_THAT(node.op == Op::sort_with_positions, info(node.op).name, " has no values");
  const Value& x = operands[0];
  GraphNode positions = node;
  positions.op = Op::argsort;
  positions.dtype = DType::Int64;
  return {sort(node, x), sort(positions, x)};
}

}  // namespace kiln::ir::oracle
