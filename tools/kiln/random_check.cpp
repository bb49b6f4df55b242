// Results of random programs against those of the interpreter.
#include "engine/plan.h"
#include "random_report.h"

#include <kiln/report.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace kiln::tool {
namespace {

class ModeScope {
 public:
  explicit ModeScope(Mode mode) : before_(config()) {
    Config c = before_;
    c.mode = mode;
    configure(c);
  }
  ~ModeScope() { configure(before_); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  const Config before_;
};

std::vector<double> doubles(const Tensor& t) {
  return dispatch_stored(t.dtype(), [&]<class T>() {
    const std::vector<T> values = t.to_vector<T>();
    std::vector<double> out;
    for (const T v : values) out.push_back(static_cast<double>(v));
    return out;
  });
}

/// How far from the oracle's value another way to round may lead, in times of what not rounding does: where
/// large values cancel, or exponentials follow each other, any rounding before shows.
constexpr double kSpread = 2;

/// The program's values if its operands were float64: nothing where a step needs the operands' dtype.
std::vector<Tensor> widened_values(const RandomProgram& p, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> wide;
  for (const Tensor& t : inputs) wide.push_back(is_float(t.dtype()) ? t.astype(DType::Float64) : t);
  try {
    return record_values(p, wide);
  } catch (const UserError&) {
    return {};
  }
}

/// Of a float program's results, relative to their greatest magnitude: the oracle computes in float64 and
/// rounds each operation.
double tolerance(const RandomProgram& p) {
  double most = 1e-10;
  for (const RandomInput& i : p.inputs) {
    if (i.dtype == DType::Float32) most = std::max(most, 1e-4);
    if (i.dtype == DType::Float16) most = std::max(most, 4e-3);
    if (i.dtype == DType::BFloat16) most = std::max(most, 3e-2);
  }
  return most;
}

const RandomStep* step_of(const RandomProgram& p, int value) {
  const int step = value - static_cast<int>(p.inputs.size());
  return step < 0 ? nullptr : &p.steps[static_cast<std::size_t>(step)];
}

/// What an output stands for: positions of computed values stand for the values there, because a difference
/// in the last bit may move a position.
Tensor meaning(const RandomProgram& p, int output, const Tensor& result,
               const std::vector<Tensor>& operands) {
  const RandomStep* step = step_of(p, output);
  if (!step || (step->op != "argmax" && step->op != "argmin")) return result;
  const Tensor& from = operands[static_cast<std::size_t>(step->in[0])];
  const Axis axis(step->axes[0]);
  const Tensor at = step->keep ? result : expand_dims(result, Axes(axis));
  return take_along_axis(from, at, axis);
}

/// A whole number that was a float before may be the neighbour.
bool rounded(const RandomProgram& p, int output) {
  const RandomStep* step = step_of(p, output);
  if (!step || step->op != "astype" || !is_int(step->dtype)) return false;
  const RandomStep* before = step_of(p, step->in[0]);
  return before && before->op == "round";
}

/// `exact`: the values without any rounding of the narrow dtypes, or nothing.
std::string difference(const std::vector<double>& got, const std::vector<double>& want, double bound,
                       const std::vector<double>& exact) {
  if (got.size() != want.size()) return "another number of elements";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    const double moved = exact.empty() ? 0 : std::abs(exact[i] - want[i]);
    if (!same && !(std::abs(got[i] - want[i]) <= bound + kSpread * moved))
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", the oracle's " +
             std::to_string(want[i]);
  }
  return "";
}

/// Products of small programs are made in blocks of rows, too.
class BlockScope {
 public:
  explicit BlockScope(std::int64_t rows) { set(rows); }
  ~BlockScope() { set(0); }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  static void set(std::int64_t rows) {
    engine::set_block_rows(rows);
    clear_memory_caches();
  }
};

std::string difference(const RandomProgram& p) {
  const std::vector<Tensor> inputs = make_inputs(p);
  std::vector<Tensor> got;
  {
    const ModeScope lazy(Mode::Lazy);
    got = record(p, inputs);
    eval(got);
  }
  const ModeScope interpret(Mode::Interpret);
  const std::vector<Tensor> all = record_values(p, inputs);
  for (std::size_t o = 0; o < p.outputs.size(); ++o) {
    const Tensor& expected = all[static_cast<std::size_t>(p.outputs[o])];
    if (got[o].dtype() != expected.dtype() || !(got[o].shape() == expected.shape()))
      return "output " + std::to_string(o) + ": another shape or dtype";
    const std::vector<double> want = doubles(meaning(p, p.outputs[o], expected, all));
    double scale = 1;
    for (const double v : want)
      if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
    const bool whole = is_int(meaning(p, p.outputs[o], expected, all).dtype());
    const double bound = rounded(p, p.outputs[o]) ? 1 : whole ? 0 : tolerance(p) * scale;
    const std::vector<double> here = doubles(meaning(p, p.outputs[o], got[o], all));
    std::string text = difference(here, want, bound, {});
    if (!text.empty() && bound > 0 && is_float(expected.dtype()))
      if (const std::vector<Tensor> wide = widened_values(p, inputs); !wide.empty())
        text =
            difference(here, want, bound,
                       doubles(meaning(p, p.outputs[o], wide[static_cast<std::size_t>(p.outputs[o])], wide)));
    if (!text.empty()) return "output " + std::to_string(o) + ": " + text;
  }
  return "";
}

}  // namespace

std::string difference_from_oracle(const RandomProgram& p) {
  std::string text = difference(p);
  if (!text.empty() || std::ranges::none_of(p.steps, [](const RandomStep& s) { return s.op == "matmul"; }))
    return text;
  const BlockScope blocks(3 + p.index % 8);
  text = difference(p);
  return text.empty() ? text : text + " (in blocks of rows)";
}

}  // namespace kiln::tool
