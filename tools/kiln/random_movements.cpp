// Families of random programs: permutations, broadcasts, stencils, concatenations and other moves of
// elements.
#include "random_program.h"

#include <algorithm>

namespace kiln::tool {
namespace {

Integers permuted(const Integers& shape, const Integers& order) {
  Integers out;
  for (const std::int64_t axis : order) out.push_back(shape[static_cast<std::size_t>(axis)]);
  return out;
}

int rank_of(const Integers& shape) { return static_cast<int>(shape.size()); }

/// A cheap operation, so that no result is a view of an input.
int touched(ProgramWriter& w, int x) { return w.with_number("multiply", x, 2); }

void permute(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const bool two = d.chance(1, 3);
  const Integers shape = draw_shape(d, two ? n / 2 : n, static_cast<int>(d.between(2, 5)));
  const Integers order = draw_order(d, rank_of(shape));
  const int x = w.step({.op = "permute", .in = {w.input(shape, dtype, 0, 50)}, .axes = order});
  w.output(two ? w.binary("add", x, w.input(permuted(shape, order), dtype, 0, 50)) : touched(w, x));
}

void sum_permuted(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const bool two = d.chance(1, 3);
  const Integers shape = draw_shape(d, two ? n / 2 : n, static_cast<int>(d.between(2, 4)));
  const Integers order = draw_order(d, rank_of(shape));
  int x = w.step({.op = "permute", .in = {w.input(shape, dtype)}, .axes = order});
  if (two) x = w.binary("multiply", x, w.input(permuted(shape, order), dtype));
  const std::string op = d.chance(2, 3) ? "sum" : "max";
  w.output(w.reduce(op, x, draw_axes(d, rank_of(shape)), false));
}

void broadcast(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const Integers shape = draw_shape(d, n);
  const auto part = [&] {
    Integers out = shape;
    for (std::int64_t& extent : out)
      if (d.chance(1, 2)) extent = 1;
    return w.input(out, dtype, 0, 10);
  };
  int x = w.input(shape, dtype, 0, 10);
  for (std::int64_t more = d.between(1, 2); more > 0; --more) {
    const std::string op = d.of(std::vector<std::string>{"add", "multiply", "maximum", "subtract"});
    x = w.binary(op, x, part());
  }
  if (is_float(dtype) && d.chance(1, 3)) x = w.unary("tanh", x);
  w.output(x);
}

/// Weighted sums of neighbours, in the interior, over a border of zeros, or around (periodic).
void stencil(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const int rank = static_cast<int>(d.between(1, 3)), radius = static_cast<int>(d.between(1, 2));
  const DType dtype = draw_float(d);
  Integers shape = draw_shape(d, n, rank);
  for (std::int64_t& extent : shape) extent = std::max<std::int64_t>(extent, 2 * radius + 2);
  while (product(shape) > n && *std::ranges::max_element(shape) > 2 * radius + 2)
    *std::ranges::max_element(shape) =
        std::max<std::int64_t>(*std::ranges::max_element(shape) / 2, 2 * radius + 2);
  int x = w.input(shape, dtype);
  const std::int64_t border = d.between(0, 2);  // 0: the interior, 1: zeros, 2: around
  if (border == 1) {
    Integers widths;
    for (std::int64_t& extent : shape) {
      widths.insert(widths.end(), {radius, radius});
      extent += 2 * radius;
    }
    x = w.step({.op = "pad", .in = {x}, .sizes = widths});
  }
  const auto moved = [&](int axis, std::int64_t by) {
    if (border == 2) return by == 0 ? x : w.step({.op = "roll", .in = {x}, .axes = {axis}, .sizes = {by}});
    Integers starts(shape.size(), radius), stops = shape;
    for (std::int64_t& stop : stops) stop -= radius;
    starts[static_cast<std::size_t>(axis)] += by;
    stops[static_cast<std::size_t>(axis)] += by;
    return w.slice(x, starts, stops);
  };
  int sum = w.with_number("multiply", moved(0, 0), 0.5);
  for (int axis = 0; axis < rank; ++axis)
    for (std::int64_t by = -radius; by <= radius; ++by)
      if (by) sum = w.binary("add", sum, w.with_number("multiply", moved(axis, by), 0.125));
  w.output(sum);
}

void concat(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const Integers shape = draw_shape(d, n);
  const std::int64_t axis = d.between(0, std::ssize(shape) - 1), parts = d.between(2, 6);
  const std::int64_t whole = shape[static_cast<std::size_t>(axis)];
  RandomStep step{.op = "concat", .axes = {axis}};
  for (std::int64_t i = 0; i < parts; ++i) {
    Integers part = shape;
    part[static_cast<std::size_t>(axis)] = std::max<std::int64_t>(
        d.chance(1, 2) ? whole / parts : d.between(1, std::max<std::int64_t>(2 * whole / parts, 1)), 1);
    const int x = w.input(part, dtype, 0, 10);
    step.in.push_back(d.chance(1, 4) ? touched(w, x) : x);
  }
  w.output(w.step(step));
}

void roll(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const Integers shape = draw_shape(d, n);
  int x = w.input(shape, dtype, 0, 10);
  const std::int64_t axis = d.between(0, std::ssize(shape) - 1),
                     extent = shape[static_cast<std::size_t>(axis)];
  if (d.chance(1, 3))
    x = w.step({.op = "flip", .in = {x}, .axes = draw_axes(d, rank_of(shape))});
  else
    x = w.step({.op = "roll", .in = {x}, .axes = {axis}, .sizes = {d.between(0, extent)}});
  if (d.chance(1, 3)) {
    const std::int64_t other = d.between(0, std::ssize(shape) - 1);
    x = w.step({.op = "roll", .in = {x}, .axes = {other}, .sizes = {d.of(Integers{1, -1, 2, 7})}});
  }
  w.output(touched(w, x));
}

/// Pairs of halves turned by an angle, as in rotary embeddings.
void rotation(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t half = d.of(Integers{1, 2, 3, 8, 16, 32, 40, 64, 128});
  const std::int64_t heads = d.of(Integers{1, 4, 12, 32});
  const std::int64_t rows = std::max<std::int64_t>(n / (2 * half * heads), 1);
  const int x = w.input({rows, heads, 2 * half}, dtype);
  const int c = w.input({rows, 1, half}, dtype), s = w.input({rows, 1, half}, dtype);
  const int a = w.slice(x, {0, 0, 0}, {rows, heads, half});
  const int b = w.slice(x, {0, 0, half}, {rows, heads, 2 * half});
  const int ac = w.binary("multiply", a, c), bs = w.binary("multiply", b, s);
  const int bc = w.binary("multiply", b, c), as = w.binary("multiply", a, s);
  const int first = w.binary("subtract", ac, bs), second = w.binary("add", bc, as);
  w.output(w.step({.op = "concat", .in = {first, second}, .axes = {2}}));
}

void pad(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const Integers shape = draw_shape(d, n);
  RandomStep step{.op = "pad", .in = {w.input(shape, dtype, 0, 10)}};
  for (const std::int64_t extent : shape)
    for (int side = 0; side < 2; ++side)
      step.sizes.push_back(d.chance(1, 2) ? 0 : d.between(0, std::clamp<std::int64_t>(extent / 16, 1, 9)));
  w.output(touched(w, w.step(step)));
}

/// A box of an array in place of which another array stands.
void update(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const Integers shape = draw_shape(d, n * 2 / 3);
  RandomStep step{.op = "update", .in = {w.input(shape, dtype, 0, 10)}};
  Integers part;
  for (const std::int64_t extent : shape) {
    const bool whole = d.chance(1, 2);
    const std::int64_t start = whole ? 0 : d.between(0, extent / 2);
    const std::int64_t stop = whole ? extent : d.between(std::min(start + extent / 3 + 1, extent), extent);
    part.push_back(stop - start);
    step.sizes.insert(step.sizes.end(), {start, stop, 1});
  }
  step.in.push_back(w.input(part, dtype, 0, 10));
  w.output(w.step(step));
}

/// Windows of a picture, side by side or overlapping.
void pooling(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t size = d.between(2, 3), stride = d.between(1, size);
  const std::int64_t channels = d.of(Integers{3, 16, 32, 64, 100, 256});
  const std::int64_t side = d.of(Integers{7, 14, 28, 32, 56, 61, 112, 224});
  const std::int64_t images = std::max<std::int64_t>(n / (channels * side * side), 1);
  const bool last = d.chance(1, 2);  // channels are the last axis
  const Integers shape =
      last ? Integers{images, side, side, channels} : Integers{images, channels, side, side};
  const std::size_t row = last ? 1 : 2;
  const int x = w.input(shape, dtype);
  const std::int64_t count = (side - size) / stride + 1;
  const std::string op = d.chance(2, 3) ? "maximum" : "add";
  int y = -1;
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      Integers starts(4, 0), stops = shape, steps(4, 1);
      starts[row] = i, starts[row + 1] = j;
      stops[row] = i + (count - 1) * stride + 1, stops[row + 1] = j + (count - 1) * stride + 1;
      steps[row] = steps[row + 1] = stride;
      const int tap = w.slice(x, starts, stops, steps);
      y = y < 0 ? tap : w.binary(op, y, tap);
    }
  w.output(y);
}

}  // namespace

const std::vector<NamedFamily>& movement_families() {
  static const std::vector<NamedFamily> families = {
      {"permute", permute},     {"sum_permuted", sum_permuted},
      {"broadcast", broadcast}, {"stencil", stencil},
      {"concat", concat},       {"roll", roll},
      {"rotation", rotation},   {"pad", pad},
      {"update", update},       {"pooling", pooling},
  };
  return families;
}

}  // namespace kiln::tool
