// Families of random programs: what models and analyses are made of besides plain reductions and moves; and
// how a program is drawn from all families.
#include "random_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace kiln::tool {
namespace {

const Integers kRowLengths = {1,  2,  3,  4,   5,   7,   8,   12,   16,   24,   31,
                              32, 33, 64, 100, 128, 255, 256, 1000, 1024, 2048, 4096};

void gather(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const std::int64_t width = std::min(d.of(kRowLengths), n / 8);
  const std::int64_t count = std::max<std::int64_t>(n / width, 1);
  const std::int64_t rows = std::max<std::int64_t>(count / d.of(Integers{1, 4, 64, 1000}), 1);
  const int table = w.input({rows, width}, dtype, 0, 10);
  const DType index = d.chance(1, 2) ? DType::Int32 : DType::Int64;
  const int at = w.input({count}, index, 0, static_cast<double>(rows));
  const int out = w.step({.op = "take", .in = {table, at}, .axes = {0}});
  w.output(d.chance(1, 2) ? out : w.with_number("multiply", out, 2));
  const auto size = static_cast<double>(size_of(dtype));
  p.rows = {static_cast<double>(count), static_cast<double>(width) * size,
            static_cast<double>(rows * width) * size, 1, true};
}

void scatter(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t width = std::min(d.of(kRowLengths), n / 8);
  const std::int64_t count = std::max<std::int64_t>(n / width / 2, 1);
  const std::int64_t rows = std::max<std::int64_t>(count / d.of(Integers{1, 4, 64, 1000}), 1);
  const int base = w.input({rows, width}, dtype),
            at = w.input({count}, DType::Int32, 0, static_cast<double>(rows));
  w.output(w.step({.op = "scatter_add", .in = {base, at, w.input({count, width}, dtype)}, .axes = {0}}));
  const auto size = static_cast<double>(size_of(dtype));
  p.rows = {static_cast<double>(count),
            static_cast<double>(width) * size,
            static_cast<double>(rows * width) * size,
            2,
            false,
            static_cast<double>(width) * std::max(size, 4.0)};
}

void histogram(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const std::int64_t bins = d.of(Integers{2, 10, 100, 256, 1000, 4096, 65536});
  int at;
  if (d.chance(1, 2))
    at = w.input({n}, d.chance(1, 2) ? DType::Int32 : DType::Int64, 0, static_cast<double>(bins));
  else
    at = w.cast(w.with_number("multiply", w.input({n}, DType::Float32, 0, 1), static_cast<double>(bins)),
                DType::Int32);
  w.output(w.step({.op = "histogram", .in = {at}, .sizes = {bins}}));
}

void cross_entropy(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const std::int64_t classes =
      std::min(d.of(Integers{10, 1000, 32000, 32001, 50257, 50304, 100277, 128256, 151936, 262144}), n / 4);
  const std::int64_t rows = std::max<std::int64_t>(n / classes, 1);
  const int logits = w.input({rows, classes}, dtype, -8, 8);
  const int x = is_half(dtype) ? w.cast(logits, DType::Float32) : logits;
  const int label = w.input({rows, 1}, DType::Int32, 0, static_cast<double>(classes));
  const int right = w.step({.op = "take_along", .in = {x, label}, .axes = {1}});
  int loss = w.binary("subtract", w.reduce("logsumexp", x, {1}, true), right);
  if (d.chance(1, 2)) loss = w.reduce("mean", loss, {0, 1}, false);
  w.output(loss);
}

/// With the channels before the pixels or after them.
void group_norm(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = d.chance(1, 2) ? DType::BFloat16 : draw_float(d);
  const DType computed = is_half(dtype) ? DType::Float32 : dtype;
  const std::int64_t groups = d.of(Integers{1, 8, 32}), each = d.of(Integers{1, 2, 5, 8, 10, 16, 32});
  std::int64_t pixels = d.of(Integers{7, 8, 14, 16, 28, 32, 56, 64, 112});
  pixels *= pixels;
  const std::int64_t images = std::max<std::int64_t>(n / (groups * each * pixels), 1);
  const bool last = d.chance(1, 2);
  const Integers shape =
      last ? Integers{images, pixels, groups, each} : Integers{images, groups, each, pixels};
  const Integers axes = last ? Integers{1, 3} : Integers{2, 3};
  const Integers channels = last ? Integers{groups, each} : Integers{groups, each, 1};
  const int in = w.input(shape, dtype), x = is_half(dtype) ? w.cast(in, DType::Float32) : in;
  const int centred = w.binary("subtract", x, w.reduce("mean", x, axes, true));
  const int variance = w.reduce("mean", w.binary("multiply", centred, centred), axes, true);
  int y = w.binary("multiply", centred, w.unary("rsqrt", w.with_number("add", variance, 1e-5)));
  y = w.binary("multiply", y, w.input(channels, computed));
  y = w.binary("add", y, w.input(channels, computed));
  w.output(is_half(dtype) ? w.cast(y, dtype) : y);
  hold(p, shape, dtype, axes);
}

/// Rows as bytes and a scale for each.
void quantise(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d), computed = is_half(dtype) ? DType::Float32 : dtype;
  const Integers shape = draw_shape(d, n, static_cast<int>(d.between(2, 3)));
  const Integers axes = {d.chance(3, 4) ? std::ssize(shape) - 1 : 0};
  const int in = w.input(shape, dtype), x = computed == dtype ? in : w.cast(in, computed);
  const int most = w.reduce("max", w.unary("abs", x), axes, true);
  const int scale = w.with_number("divide", w.with_number("maximum", most, 1e-6), 127);
  w.output(w.cast(w.unary("round", w.binary("divide", x, scale)), DType::Int8));
  w.output(scale);
  hold(p, shape, dtype, axes);
}

/// Minima and maxima for each of so many items, of which all or the first are put in order: by Batcher's
/// merge exchange (Knuth, 5.2.2, exercise 11). Where few are wanted, runs of as many are sorted; then the
/// least of two runs, a bitonic run, goes on, until one is left.
double sorting_steps(std::int64_t length, std::int64_t first) {
  const auto network = [](std::int64_t items) {
    const auto n = static_cast<double>(items), levels = std::log2(n);
    return items < 2 ? 0 : (levels * levels - levels + 4) / 2 - 2 / n;
  };
  return std::min(network(length), network(first) + 1 + std::log2(static_cast<double>(first)));
}

/// Short rows in order, or the first of that order.
void sort(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_dtype(d);
  const std::int64_t length =
      std::min(d.of(Integers{2, 5, 8, 16, 33, 64, 100, 128, 256, 500, 1024, 2048}), n);
  const Integers shape = {std::max<std::int64_t>(n / length, 1), length};
  const bool whole = is_int(dtype);
  const int x = w.input(shape, dtype, whole ? 0 : -1, whole ? 100 : 1);
  const std::string op = d.of(std::vector<std::string>{"sort", "argsort", "topk_values"});
  RandomStep step{.op = op, .in = {x}, .axes = {1}, .reverse = op != "topk_values" && d.chance(1, 3)};
  if (op == "topk_values") step.sizes = {std::min(d.of(Integers{1, 2, 5, 8, 32}), length)};
  const std::int64_t first = op == "topk_values" ? step.sizes.front() : length;
  w.output(w.step(step));
  // Of words of 4 bytes; one instruction takes two keys of 2 bytes, or one beside its position.
  const double words = std::max(static_cast<double>(size_of(dtype)), 2.0) / 4;
  p.extremes = static_cast<double>(product(shape)) * sorting_steps(length, first) *
               (op == "argsort" ? std::ceil(words + 0.5) : words);
}

/// Elementwise functions in a row.
void chain(RandomProgram& p, Draw& d, std::int64_t n) {
  ProgramWriter w(p);
  const DType dtype = draw_float(d);
  const Integers shape = draw_shape(d, n / 2);
  int x = w.input(shape, dtype);
  x = w.binary("add", x, d.chance(1, 2) ? w.input({shape.back()}, dtype) : w.input(shape, dtype));
  for (std::int64_t i = d.between(1, 4); i > 0; --i) {
    const std::string function =
        d.of(std::vector<std::string>{"gelu_tanh", "gelu", "silu", "tanh", "sigmoid", "relu", "exp"});
    p.instructions += static_cast<double>(product(shape)) * library_instructions(function, dtype);
    x = w.unary(function, x);
  }
  p.doubles = dtype == DType::Float64;
  w.output(x);
}

constexpr int kLayers = 10;  // programs of which one is a layer's

const std::vector<NamedFamily>& families() {
  static const std::vector<NamedFamily> all = [] {
    std::vector<NamedFamily> list = reduction_families();
    list.insert(list.end(), movement_families().begin(), movement_families().end());
    list.insert(list.end(), model_families().begin(), model_families().end());
    return list;
  }();
  return all;
}

/// From the writer's numbers to those of the program.
void number_inputs_first(RandomProgram& p) {
  const int inputs = static_cast<int>(p.inputs.size());
  const auto renumber = [inputs](int& value) { value = value < 0 ? ~value : value + inputs; };
  for (RandomStep& step : p.steps) std::ranges::for_each(step.in, renumber);
  std::ranges::for_each(p.outputs, renumber);
}

double bytes_of(const Tensor& t) { return static_cast<double>(t.numel() * size_of(t.dtype())); }

}  // namespace

double library_instructions(const std::string& function, DType dtype) {
  struct Count {
    double floats, doubles;
  };
  static const std::map<std::string, Count> counts = {
      {"relu", {1, 1}},   {"exp", {8, 16}},   {"sigmoid", {11, 25}},   {"silu", {11, 26}},
      {"tanh", {14, 33}}, {"gelu", {25, 45}}, {"gelu_tanh", {22, 40}},
  };
  const Count c = counts.at(function);
  return dtype == DType::Float32 ? c.floats : dtype == DType::Float64 ? c.doubles : 0;
}

const std::vector<NamedFamily>& model_families() {
  static const std::vector<NamedFamily> families = {
      {"gather", gather},
      {"scatter", scatter},
      {"histogram", histogram},
      {"cross_entropy", cross_entropy},
      {"group_norm", group_norm},
      {"quantise", quantise},
      {"sort", sort},
      {"chain", chain},
  };
  return families;
}

const std::vector<std::string>& random_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const NamedFamily& f : families()) list.emplace_back(f.name);
    for (const NamedFamily& f : layer_families()) list.emplace_back(f.name);
    for (const NamedFamily& f : asked_families()) list.emplace_back(f.name);
    return list;
  }();
  return names;
}

RandomProgram draw(std::uint64_t seed, int index, std::int64_t elements, const std::string& asked) {
  const std::uint64_t start = Draw(seed).bits() ^ Draw(static_cast<std::uint64_t>(index) + 1).bits();
  Draw d(start);
  RandomProgram p;
  p.seed = seed;
  p.index = index;
  Draw other(~start);  // so that a new family takes the place of some programs and leaves the others
  const NamedFamily& of_old = d.of(families());
  const auto own = std::ranges::find(asked_families(), asked, &NamedFamily::name);
  const NamedFamily& family = own != asked_families().end() ? *own
                              : other.chance(1, kLayers)    ? other.of(layer_families())
                                                            : of_old;
  p.family = family.name;
  family.fill(p, d, elements);
  number_inputs_first(p);
  const std::vector<Tensor> values = unevaluated(p);
  for (std::size_t i = 0; i < p.inputs.size(); ++i) p.input_bytes += bytes_of(values[i]);
  for (const int i : p.outputs) p.output_bytes += bytes_of(values[static_cast<std::size_t>(i)]);
  return p;
}

}  // namespace kiln::tool
