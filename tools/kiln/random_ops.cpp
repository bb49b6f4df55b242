// The operations of random programs: how each is recorded, and how a program reads as text and as JSON.
#include "random_program.h"

#include "device/cpu/threads.h"

#include <kiln/layers.h>
#include <kiln/nn.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <span>

namespace kiln::tool {
namespace {

using In = std::span<const Tensor>;
using Record = std::function<Tensor(const RandomStep&, In)>;

Axes axes_of(const RandomStep& s) { return Axes(s.axes); }
Axis axis_of(const RandomStep& s) { return Axis(s.axes.at(0)); }
Shape shape_of(const Integers& sizes) { return Shape(sizes); }

Record unary(Tensor (*f)(const Tensor&, SourceLocation)) {
  return [f](const RandomStep&, In in) { return f(in[0], SourceLocation::current()); };
}
/// Of two tensors, or of a tensor and a number.
Record binary(Tensor (*f)(const Tensor&, const Operand&)) {
  return [f](const RandomStep& s, In in) {
    return in.size() > 1 ? f(in[0], in[1]) : f(in[0], Operand(s.number));
  };
}
Record reduction(Tensor (*f)(const Tensor&, const Axes&, Flag, SourceLocation)) {
  return [f](const RandomStep& s, In in) {
    return f(in[0], axes_of(s), Flag(s.keep), SourceLocation::current());
  };
}
Record running(Tensor (*f)(const Tensor&, std::optional<Axis>, Flag, Flag, SourceLocation)) {
  return [f](const RandomStep& s, In in) {
    return f(in[0], axis_of(s), Flag(s.exclusive), Flag(s.reverse), SourceLocation::current());
  };
}

Tensor slice(const RandomStep& s, In in) {
  std::vector<Slice> parts;
  for (std::size_t i = 0; i + 2 < s.sizes.size(); i += 3)
    parts.emplace_back(Whole(s.sizes[i]), Whole(s.sizes[i + 1]), Whole(s.sizes[i + 2]));
  return in[0].index(parts);
}

Tensor updated(const RandomStep& s, In in) {
  std::vector<Slice> parts;
  for (std::size_t i = 0; i + 2 < s.sizes.size(); i += 3)
    parts.emplace_back(Whole(s.sizes[i]), Whole(s.sizes[i + 1]), Whole(s.sizes[i + 2]));
  return slice_update(in[0], parts, in[1]);
}

Tensor padded(const RandomStep& s, In in) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths;
  for (std::size_t i = 0; i + 1 < s.sizes.size(); i += 2) widths.emplace_back(s.sizes[i], s.sizes[i + 1]);
  return pad(in[0], widths, s.number);
}

Tensor convolved(const RandomStep& s, In in) {
  const auto axes = static_cast<std::size_t>(in[0].rank() - 2);
  const auto each = [&](std::size_t i) { return Shape(Integers(axes, s.sizes.at(i))); };
  return nn::conv(
      in[0], in[1], {},
      {.stride = each(0), .padding = each(1), .groups = s.sizes.at(2), .channels_last = s.sizes.at(3) != 0});
}

Tensor resized(const RandomStep& s, In in) {
  return nn::interpolate(in[0], shape_of(s.sizes),
                         s.number != 0 ? nn::Interpolation::Linear : nn::Interpolation::Nearest);
}

/// A table by name; bench/peers/random_programs.py has the same names.
const std::map<std::string, Record>& operations() {
  static const std::map<std::string, Record> table = {
      {"exp", unary(exp)},
      {"log", unary(log)},
      {"sqrt", unary(sqrt)},
      {"rsqrt", unary(rsqrt)},
      {"tanh", unary(tanh)},
      {"sigmoid", unary(sigmoid)},
      {"abs", unary(abs)},
      {"negative", unary(negative)},
      {"relu", unary(relu)},
      {"silu", unary(silu)},
      {"gelu", unary(gelu)},
      {"gelu_tanh", unary(gelu_tanh)},
      {"round", unary(round)},
      {"add", binary(add)},
      {"subtract", binary(subtract)},
      {"multiply", binary(multiply)},
      {"divide", binary(divide)},
      {"maximum", binary(maximum)},
      {"minimum", binary(minimum)},
      {"less", binary(less)},
      {"sum", reduction(sum)},
      {"prod", reduction(prod)},
      {"max", reduction(max)},
      {"min", reduction(min)},
      {"mean", reduction(mean)},
      {"logsumexp", reduction(logsumexp)},
      {"var", [](const RandomStep& s, In in) { return var(in[0], axes_of(s), Flag(s.keep)); }},
      {"argmax", [](const RandomStep& s, In in) { return argmax(in[0], axis_of(s), Flag(s.keep)); }},
      {"argmin", [](const RandomStep& s, In in) { return argmin(in[0], axis_of(s), Flag(s.keep)); }},
      {"cumsum", running(cumsum)},
      {"cumprod", running(cumprod)},
      {"cummax", running(cummax)},
      {"cummin", running(cummin)},
      {"logcumsumexp", running(logcumsumexp)},
      {"permute", [](const RandomStep& s, In in) { return permute_dims(in[0], axes_of(s)); }},
      {"reshape", [](const RandomStep& s, In in) { return reshape(in[0], shape_of(s.sizes)); }},
      {"slice", slice},
      {"update", updated},
      {"pad", padded},
      {"flip", [](const RandomStep& s, In in) { return flip(in[0], axes_of(s)); }},
      {"roll", [](const RandomStep& s, In in) { return roll(in[0], Whole(s.sizes.at(0)), axis_of(s)); }},
      {"concat", [](const RandomStep& s, In in) { return concat(in, axis_of(s)); }},
      {"take", [](const RandomStep& s, In in) { return take(in[0], in[1], axis_of(s)); }},
      {"take_along", [](const RandomStep& s, In in) { return take_along_axis(in[0], in[1], axis_of(s)); }},
      {"scatter_add",
       [](const RandomStep& s, In in) { return scatter_add(in[0], in[1], in[2], axis_of(s)); }},
      {"histogram", [](const RandomStep& s,
                       In in) { return scatter_add(zeros(Shape(s.sizes.at(0)), DType::Int32), in[0], 1); }},
      {"sort", [](const RandomStep& s, In in) { return sort(in[0], axis_of(s), Flag(s.reverse)); }},
      {"argsort", [](const RandomStep& s, In in) { return argsort(in[0], axis_of(s), Flag(s.reverse)); }},
      {"topk_values",
       [](const RandomStep& s, In in) { return topk(in[0], Whole(s.sizes.at(0)), axis_of(s)).values; }},
      {"conv", convolved},
      {"matmul", [](const RandomStep&, In in) { return matmul(in[0], in[1]); }},
      {"attention", [](const RandomStep&, In in) { return nn::attention(in[0], in[1], in[2]); }},
      {"interpolate", resized},
      {"astype", [](const RandomStep& s, In in) { return in[0].astype(s.dtype); }},
  };
  return table;
}

/// Values that depend on their places and the seed alone, with 24 random bits each.
template <class T>
Tensor filled(const RandomInput& input, std::uint32_t seed) {
  const Shape shape = shape_of(input.shape);
  std::vector<T> out(static_cast<std::size_t>(shape.numel()));
  const double scale = (input.high - input.low) / 16777216.0, low = input.low;
  cpu::parallel_for(shape.numel(), 4096, [&out, seed, scale, low](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9e3779b9u + seed * 0x85ebca6bu;
      h = (h ^ (h >> 16)) * 0x7feb352du;
      h = (h ^ (h >> 15)) * 0x846ca68bu;
      h ^= h >> 16;
      const double value = low + scale * (h >> 8);
      if constexpr (std::is_integral_v<T>)
        out[static_cast<std::size_t>(i)] = static_cast<T>(std::floor(value));
      else
        out[static_cast<std::size_t>(i)] = static_cast<T>(static_cast<float>(value));
    }
  });
  return Tensor::take(std::move(out), shape);
}

std::string text_of(const Integers& list) {
  std::string out = "[";
  for (const std::int64_t i : list) out += (out.size() > 1 ? ", " : "") + std::to_string(i);
  return out + "]";
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

bool has_number(const RandomStep& s) {
  const bool arithmetic = s.op == "add" || s.op == "subtract" || s.op == "multiply" || s.op == "divide" ||
                          s.op == "maximum" || s.op == "minimum" || s.op == "less";
  return s.op == "pad" || s.op == "interpolate" || (arithmetic && s.in.size() == 1);
}

}  // namespace

std::vector<Tensor> record_values(const RandomProgram& program, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> values = inputs;
  for (const RandomStep& step : program.steps) {
    std::vector<Tensor> in;
    for (const int i : step.in) in.push_back(values.at(static_cast<std::size_t>(i)));
    values.push_back(operations().at(step.op)(step, in));
  }
  return values;
}

std::vector<Tensor> record(const RandomProgram& program, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> values = record_values(program, inputs);
  std::vector<Tensor> out;
  for (const int i : program.outputs) out.push_back(values.at(static_cast<std::size_t>(i)));
  return out;
}

std::vector<Tensor> make_inputs(const RandomProgram& program) {
  std::vector<Tensor> out;
  std::uint32_t seed = static_cast<std::uint32_t>(program.seed * 1000003 + program.index * 101);
  for (const RandomInput& input : program.inputs)
    out.push_back(dispatch(input.dtype, [&]<class T>() -> Tensor {
      if constexpr (std::is_same_v<T, bool>)
        throw Error("[bench] random programs have no bool inputs");
      else
        return filled<T>(input, ++seed);
    }));
  return out;
}

std::vector<Tensor> unevaluated(const RandomProgram& program) {
  std::vector<Tensor> inputs;
  for (const RandomInput& i : program.inputs) inputs.push_back(zeros(shape_of(i.shape), i.dtype));
  return record_values(program, inputs);
}

std::string to_text(const RandomProgram& program) {
  std::string out;
  int value = 0;
  const auto name = [&] { return std::string("v").append(std::to_string(value++)).append(" = "); };
  for (const RandomInput& i : program.inputs)
    out += name() + std::string(info(i.dtype).short_name) + text_of(i.shape) + "\n";
  for (const RandomStep& s : program.steps) {
    out += name() + s.op + "(";
    for (std::size_t i = 0; i < s.in.size(); ++i) out += (i ? ", v" : "v") + std::to_string(s.in[i]);
    if (has_number(s)) out += ", " + number_text(s.number);
    if (s.op == "astype") out += ", " + std::string(kiln::name(s.dtype));
    if (!s.axes.empty()) out += ", axes " + text_of(s.axes);
    if (!s.sizes.empty()) out += ", sizes " + text_of(s.sizes);
    if (s.keep) out += ", keepdims";
    if (s.exclusive) out += ", exclusive";
    if (s.reverse) out += ", reverse";
    out += ")\n";
  }
  out += "return";
  for (const int i : program.outputs) out += " v" + std::to_string(i);
  return out + "\n";
}

nlohmann::ordered_json to_json(const RandomProgram& program) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array(), steps = nlohmann::ordered_json::array();
  for (const RandomInput& i : program.inputs)
    inputs.push_back({{"shape", i.shape}, {"dtype", kiln::name(i.dtype)}, {"low", i.low}, {"high", i.high}});
  for (const RandomStep& s : program.steps) {
    nlohmann::ordered_json step = {{"op", s.op}, {"in", s.in}};
    if (!s.axes.empty()) step["axes"] = s.axes;
    if (!s.sizes.empty()) step["sizes"] = s.sizes;
    if (has_number(s)) step["number"] = s.number;
    if (s.keep) step["keep"] = true;
    if (s.exclusive) step["exclusive"] = true;
    if (s.reverse) step["reverse"] = true;
    if (s.op == "astype") step["dtype"] = kiln::name(s.dtype);
    steps.push_back(std::move(step));
  }
  return {{"inputs", inputs}, {"steps", steps}, {"outputs", program.outputs}};
}

}  // namespace kiln::tool
