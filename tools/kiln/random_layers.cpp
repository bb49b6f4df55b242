// Families of random programs: layers of networks that other families have no steps for. They were added
// later, so `draw` chooses them by a draw of its own, which leaves the programs of other families as they
// were.
#include "random_program.h"

#include <algorithm>
#include <map>
#include <string>

namespace kiln::tool {
namespace {

double number_of(const Integers& shape) { return static_cast<double>(product(shape)); }

/// Windows of pictures or of rows times weights, perhaps of groups of channels, with the channels before the
/// pixels or after them.
void convolution(RandomProgram& p, Draw& d, std::int64_t n) {
  constexpr std::int64_t kMostWork = 64;  // multiply-adds, times the elements asked for
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const int rank = d.chance(1, 4) ? 1 : 2;
  const bool depthwise = d.chance(1, 4), last = d.chance(1, 3);
  std::int64_t in = d.of(Integers{3, 8, 16, 32, 64, 100, 128}), out = d.of(Integers{8, 16, 32, 64, 96, 128});
  const std::int64_t kernel = d.of(Integers{1, 3, 3, 3, 5, 7}), stride = d.of(Integers{1, 1, 1, 2});
  std::int64_t side = rank == 1 ? d.of(Integers{100, 256, 1000, 4096, 16000})
                                : d.of(Integers{7, 14, 28, 32, 56, 61, 112, 224});
  const std::int64_t padding = d.chance(3, 4) ? kernel / 2 : 0, taps = rank == 1 ? kernel : kernel * kernel;
  const auto pixels = [&](std::int64_t extent) { return rank == 1 ? extent : extent * extent; };
  const auto side_out = [&] { return (side + 2 * padding - kernel) / stride + 1; };
  const auto work = [&] {  // of one image
    return pixels(side_out()) * out * taps * (depthwise ? 1 : in);
  };
  if (depthwise) out = in;
  while (side > kernel && (in * pixels(side) > n / 2 || work() > kMostWork * n))
    side = std::max(side / 2, kernel);
  while (in > 1 && in * pixels(side) > n / 2) in /= 2, out = depthwise ? in : out;
  const std::int64_t images =
      std::max<std::int64_t>(1, std::min(n / 2 / (in * pixels(side)), kMostWork * n / work()));
  const auto shaped = [&](std::int64_t first, std::int64_t channels, std::int64_t extent) {
    Integers shape(static_cast<std::size_t>(rank), extent);
    shape.insert(last ? shape.end() : shape.begin(), channels);
    shape.insert(shape.begin(), first);
    return shape;
  };
  const int x = w.input(shaped(images, in, side), dtype),
            weight = w.input(shaped(out, depthwise ? 1 : in, kernel), dtype);
  RandomStep step{.op = "conv", .in = {x, weight}};
  step.sizes = {stride, padding, depthwise ? in : 1, last ? 1 : 0};
  int y = w.step(step);
  if (d.chance(1, 2)) y = w.binary("add", y, w.input(last ? Integers{out} : shaped(1, out, 1), dtype));
  p.instructions = static_cast<double>(images * work());
  if (d.chance(1, 2)) {
    const std::string function = d.of(std::vector<std::string>{"relu", "silu"});
    y = w.unary(function, y);
    p.instructions +=
        static_cast<double>(images * pixels(side_out()) * out) * library_instructions(function, dtype);
  }
  w.output(y);
}

/// Few rows of queries against many keys.
void attention(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t width = d.of(Integers{32, 64, 64, 80, 128}),
                     rows = d.of(Integers{1, 1, 2, 5, 8, 16, 32});
  const std::int64_t keys =
      std::clamp<std::int64_t>(d.of(Integers{33, 64, 197, 512, 1000, 2048, 4096, 16384}), 1,
                               std::max<std::int64_t>(n / (2 * width), 1));
  const std::int64_t heads = std::clamp<std::int64_t>(d.of(Integers{1, 8, 12, 32}), 1,
                                                      std::max<std::int64_t>(n / (2 * width * keys), 1));
  const std::int64_t batch = std::max<std::int64_t>(n / (2 * width * keys * heads), 1);
  const Integers query = {batch, heads, rows, width}, key = {batch, heads, keys, width};
  const int q = w.input(query, dtype), k = w.input(key, dtype), v = w.input(key, dtype);
  w.output(w.step({.op = "attention", .in = {q, k, v}}));
  p.instructions = number_of(key) * 2 * static_cast<double>(rows);
}

/// What the steps do with each of so many elements: those that reduce one axis of them, and functions, of a
/// type. A tanh is an exponential and a reciprocal, and what makes it exact enough; exponentials of a sum
/// need not be.
void count_steps(RandomProgram& p, double elements, DType dtype) {
  struct Count {
    int instructions, extremes, functions;
  };
  static const std::map<std::string, Count> counts = {
      {"tanh", {0, 0, 2}},   {"exp", {1, 0, 1}},         {"logsumexp", {2, 1, 1}}, {"sum", {1, 0, 0}},
      {"mean", {1, 0, 0}},   {"var", {2, 0, 0}},         {"max", {0, 1, 0}},       {"argmax", {0, 1, 0}},
      {"argmin", {0, 1, 0}}, {"topk_values", {0, 1, 0}},
  };
  for (const RandomStep& s : p.steps) {
    const auto at = counts.find(s.op);
    if (at == counts.end() || s.axes.size() > 1) continue;
    p.instructions +=
        elements * (s.op == "tanh" ? library_instructions(s.op, dtype) : at->second.instructions);
    p.extremes += elements * at->second.extremes;
    p.functions += elements * at->second.functions;
  }
}

/// What is left of the rows of a product: losses, scores, positions.
void product_rows(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d), computed = is_half(dtype) ? DType::Float32 : dtype;
  const std::int64_t columns = std::min(d.of(Integers{2, 33, 100, 1000, 4096, 32000, 50257, 128256}), n / 8);
  const std::int64_t part = d.of(Integers{1, 2, 8});
  const std::int64_t depth = std::clamp<std::int64_t>(d.of(Integers{1, 8, 31, 64, 200, 768}), 1,
                                                      std::max<std::int64_t>(n / columns, 1));
  const std::int64_t rows = std::max<std::int64_t>(n / std::max(columns, depth) / part, 1);
  const int product =
      w.step({.op = "matmul", .in = {w.input({rows, depth}, dtype), w.input({depth, columns}, dtype)}});
  int y = computed == dtype ? product : w.cast(product, computed);
  if (d.chance(1, 3)) y = w.binary("add", y, w.input({columns}, computed));
  if (d.chance(1, 3)) y = w.with_number("multiply", y, 0.25);
  if (d.chance(1, 5)) y = w.unary("tanh", y);
  const auto picked = [&] {
    const int label = w.input({rows, 1}, DType::Int32, 0, static_cast<double>(columns));
    return w.step({.op = "take_along", .in = {y, label}, .axes = {1}});
  };
  switch (d.between(0, 5)) {
    case 0: {
      const int loss = w.binary("subtract", w.reduce("logsumexp", y, {1}, true), picked());
      w.output(d.chance(1, 2) ? loss : w.reduce("mean", loss, {0, 1}, false));
      break;
    }
    case 1: {
      const int most = w.reduce("max", y, {1}, true);
      const int sum = w.reduce("sum", w.unary("exp", w.binary("subtract", y, most)), {1}, true);
      w.output(w.binary("subtract", w.binary("add", most, w.unary("log", sum)), picked()));
      break;
    }
    case 2: w.output(w.reduce(d.chance(1, 2) ? "max" : "var", y, {1}, false)); break;
    case 3: w.output(w.step({.op = d.chance(1, 2) ? "argmax" : "argmin", .in = {y}, .axes = {1}})); break;
    case 4:
      w.output(w.step(
          {.op = "topk_values", .in = {y}, .axes = {1}, .sizes = {std::min<std::int64_t>(columns, 2)}}));
      break;
    case 5:  // a near miss, or two results
      w.output(w.reduce("mean", y, {1}, false));
      w.output(w.reduce("max", y, {d.between(0, 1)}, false));
      break;
  }
  p.products = static_cast<double>(rows * columns * depth);
  p.doubles = dtype == DType::Float64;
  count_steps(p, static_cast<double>(rows * columns), computed);
}

/// Pictures (or rows) with more or fewer pixels.
void interpolation(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t rank = d.of(Integers{1, 2, 2, 2}), channels = d.of(Integers{1, 3, 16, 64});
  const bool linear = d.chance(2, 3);
  RandomStep step{.op = "interpolate", .number = linear ? 1.0 : 0.0};
  Integers shape;
  double grown = 1;
  const std::int64_t side = d.of(Integers{7, 14, 28, 32, 61, 112, 224, 500});
  for (std::int64_t a = 0; a < rank; ++a) {
    shape.push_back(std::min(rank == 1 ? side * 16 : side, rank == 1 ? n : 16 + n / 1024));
    const std::int64_t to = d.chance(1, 3)   ? shape.back() * 2
                            : d.chance(1, 2) ? std::max<std::int64_t>(shape.back() / 2, 1)
                                             : d.between(shape.back() / 2 + 1, 3 * shape.back());
    step.sizes.push_back(to);
    grown *= static_cast<double>(to) / static_cast<double>(shape.back());
  }
  const double pixels = number_of(shape) * static_cast<double>(channels) * (1 + grown) / 2;
  shape.insert(shape.begin(), channels);
  shape.insert(shape.begin(),
               std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(n) / pixels), 1));
  step.in = {w.input(shape, dtype)};
  w.output(w.step(step));
}

}  // namespace

const std::vector<NamedFamily>& layer_families() {
  static const std::vector<NamedFamily> families = {
      {"convolution", convolution},
      {"attention", attention},
      {"interpolation", interpolation},
      {"product_rows", product_rows},
  };
  return families;
}

}  // namespace kiln::tool
