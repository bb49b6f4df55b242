// Families of random programs: reductions, norms, scans, positions, pairwise work, several outputs.
#include "random_program.h"

#include <algorithm>

namespace kiln::tool {
namespace {

DType wide(DType dtype) { return is_half(dtype) ? DType::Float32 : dtype; }
/// Halves compute in float32 between a load and a store.
int widened(ProgramWriter& w, int x, DType dtype) { return is_half(dtype) ? w.cast(x, DType::Float32) : x; }
int narrowed(ProgramWriter& w, int x, DType dtype) { return is_half(dtype) ? w.cast(x, dtype) : x; }

Integers joined(Integers a, const Integers& b) {
  for (const std::int64_t i : b)
    if (std::ranges::find(a, i) == a.end()) a.push_back(i);
  return a;
}

void reduce(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const bool two = d.chance(1, 4);
  const Integers shape = draw_shape(d, two ? n / 2 : n);
  const Integers axes = draw_axes(d, static_cast<int>(shape.size()));
  const std::string op = d.of(std::vector<std::string>{"sum", "sum", "max", "min", "mean", "prod"});
  const bool whole = is_int(dtype), factors = op == "prod" && !whole;
  int x = w.input(shape, dtype, factors ? 0.999 : whole ? 0 : -1, factors ? 1.001 : whole ? 100 : 1);
  if (two)
    x = w.binary("multiply", x, w.input(shape, dtype, factors ? 0.999 : 0, factors ? 1.001 : 2));
  else if (d.chance(1, 4))
    x = w.unary("abs", x);
  w.output(w.reduce(op, x, axes, d.chance(1, 3)));
}

void logsumexp(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n), axes = draw_axes(d, static_cast<int>(shape.size()));
  w.output(w.reduce("logsumexp", w.input(shape, dtype, -4, 4), axes, d.chance(1, 3)));
}

void softmax(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n), axes = draw_axes(d, static_cast<int>(shape.size()));
  const int x = widened(w, w.input(shape, dtype, -4, 4), dtype);
  const int e = w.unary("exp", w.binary("subtract", x, w.reduce("max", x, axes, true)));
  w.output(narrowed(w, w.binary("divide", e, w.reduce("sum", e, axes, true)), dtype));
  hold(p, shape, dtype, axes);
}

void norm(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n), axes = draw_axes(d, static_cast<int>(shape.size()));
  int x = widened(w, w.input(shape, dtype), dtype);
  if (d.chance(2, 3)) x = w.binary("subtract", x, w.reduce("mean", x, axes, true));
  const int square = w.reduce("mean", w.binary("multiply", x, x), axes, true);
  int y = w.binary("multiply", x, w.unary("rsqrt", w.with_number("add", square, 1e-5)));
  if (d.chance(1, 2)) y = w.binary("multiply", y, w.input({shape.back()}, wide(dtype)));
  w.output(narrowed(w, y, dtype));
  hold(p, shape, dtype, axes);
}

void two_reductions(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n, static_cast<int>(d.between(2, 4)));
  const int rank = static_cast<int>(shape.size());
  const Integers a = draw_axes(d, rank), b = draw_axes(d, rank);
  const int x = widened(w, w.input(shape, dtype), dtype);
  if (d.chance(1, 2)) {  // two results of one read
    w.output(narrowed(w, w.reduce("sum", x, a, false), dtype));
    w.output(narrowed(w, w.reduce(d.chance(1, 2) ? "max" : "sum", x, b, false), dtype));
    return;
  }
  const int above = w.binary("subtract", x, w.reduce("max", x, a, true));
  const int below = w.with_number("add", w.reduce("sum", w.unary("abs", x), b, true), 1);
  w.output(narrowed(w, w.binary("divide", above, below), dtype));
  hold(p, shape, dtype, joined(a, b));
}

void scan(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const std::string op =
      d.of(std::vector<std::string>{"cumsum", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"});
  const DType dtype = op == "logcumsumexp" ? draw_float(d) : draw_dtype(d);
  const bool whole = is_int(dtype), factors = op == "cumprod" && !whole;
  const Integers shape = draw_shape(d, n);
  const int x = w.input(shape, dtype, factors ? 0.9999 : whole ? 0 : -1, factors ? 1.0001 : whole ? 3 : 1);
  w.output(w.step({.op = op,
                   .in = {x},
                   .axes = {d.between(0, std::ssize(shape) - 1)},
                   .exclusive = d.chance(1, 5),
                   .reverse = d.chance(1, 4)}));
}

void position(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const bool whole = is_int(dtype);
  const Integers shape = draw_shape(d, n);
  const int x = w.input(shape, dtype, whole ? 0 : -1, whole ? 100 : 1);
  const std::string op = d.chance(2, 3) ? "argmax" : "argmin";
  w.output(w.reduce(op, x, {d.between(0, std::ssize(shape) - 1)}, false));
}

/// An operation between every row of x and every row of y, combined along the rows: any operation, any
/// combination; sometimes the position of the least or greatest follows, as in the assignment of k-means.
void pairwise(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  constexpr std::int64_t kWork = 32;  // operations on pairs for each of n elements
  const DType dtype = draw_float(d);
  const std::int64_t k = d.of(Integers{2, 3, 8, 16, 32, 61, 64, 128, 200, 256});
  const std::int64_t pairs = std::max<std::int64_t>(std::min(kWork * n / k, n), 4);
  const std::int64_t columns = std::min(d.of(Integers{16, 100, 256, 1000, 1024, 4096, 5003}), pairs / 2);
  const std::int64_t rows = std::min(pairs / columns, std::max<std::int64_t>(n / k, 1));
  const int x = widened(w, w.input({rows, 1, k}, dtype), dtype),
            y = widened(w, w.input({columns, k}, dtype), dtype);
  const bool product = d.chance(1, 5);
  int f = w.binary(product ? "multiply" : d.chance(1, 4) ? "minimum" : "subtract", x, y);
  if (p.steps.back().op == "subtract") f = d.chance(1, 2) ? w.unary("abs", f) : w.binary("multiply", f, f);
  const bool square = p.steps.back().op == "multiply" && !product;
  const bool least = p.steps.back().op == "minimum";
  const int r = w.reduce(d.of(std::vector<std::string>{"sum", "sum", "max", "min"}), f, {2}, false);
  const bool sum = p.steps.back().op == "sum";
  const bool position = d.chance(1, 3);
  if (position)
    w.output(w.reduce("argmin", r, {1}, false));
  else
    w.output(narrowed(w, r, dtype));
  // A product is added by one instruction; absolute values are part of the instruction that reads them.
  const auto all = static_cast<double>(rows * columns * k);
  p.instructions = all * (sum ? (product ? 1 : 2) : square ? 3 : 2);
  p.extremes = all * (static_cast<int>(least) + static_cast<int>(!sum));
  if (position) {  // one more of each pair
    p.instructions += static_cast<double>(rows * columns);
    p.extremes += static_cast<double>(rows * columns);
  }
  p.doubles = dtype == DType::Float64 &&
              !(product && sum);  // (that is a matrix product, which has a rate of its own)
}

void several(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n / 2, static_cast<int>(d.between(2, 4)));
  const int rank = static_cast<int>(shape.size());
  const int a = widened(w, w.input(shape, dtype), dtype), b = widened(w, w.input(shape, dtype), dtype);
  const int y =
      w.unary(d.chance(1, 2) ? "tanh" : "relu", w.binary("add", w.with_number("multiply", a, 0.5), b));
  if (d.chance(2, 3)) w.output(narrowed(w, y, dtype));
  w.output(narrowed(w, w.reduce("sum", y, draw_axes(d, rank), false), dtype));
  w.output(narrowed(w, w.reduce("max", w.binary("multiply", a, b), draw_axes(d, rank), false), dtype));
}

}  // namespace

const std::vector<NamedFamily>& reduction_families() {
  static const std::vector<NamedFamily> families = {
      {"reduce", reduce},
      {"logsumexp", logsumexp},
      {"softmax", softmax},
      {"norm", norm},
      {"two_reductions", two_reductions},
      {"scan", scan},
      {"position", position},
      {"pairwise", pairwise},
      {"several_outputs", several},
  };
  return families;
}

}  // namespace kiln::tool
