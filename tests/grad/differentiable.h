// A random program (tests/program.h) as a differentiable function of its leaves.
#pragma once

#include "program.h"

#include "grad/check.h"

#include <cstdlib>
#include <random>
#include <string>

namespace kiln::testing {

/// How many random programs a test takes: what the environment variable says, or `otherwise`.
inline std::uint64_t programs(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? static_cast<std::uint64_t>(std::atoll(text)) : otherwise;
}

/// The program without instructions that evaluate a value: their operand stands for them.
inline test::Program without_reads(test::Program p) {
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    if (p.instructions[i].kind != test::Kind::Evaluate) continue;
    const int from = p.instructions[i].in[0];
    const auto redirect = [&](int& at) { at = at == static_cast<int>(i) ? from : at; };
    for (std::size_t j = i + 1; j < p.instructions.size(); ++j)
      for (int& in : p.instructions[j].in) redirect(in);
    for (int& o : p.outputs) redirect(o);
    for (int& h : p.held) redirect(h);
    p.instructions[i] = {};
    p.instructions[i].kind = test::Kind::Creation;
  }
  return p;
}

/// In float64 throughout: leaves that are no whole numbers, so that nothing ties or rounds by chance.
struct Differentiable {
  test::Program program;
  Tensors leaves;

  explicit Differentiable(std::uint64_t seed, bool reads_nothing = false)
      : program(test::random_program(seed)) {
    if (reads_nothing) program = without_reads(std::move(program));
    std::mt19937 random(static_cast<unsigned>(seed));
    for (test::Instruction& i : program.instructions) {
      i.dtype = DType::Float64;
      if (i.kind == test::Kind::Leaf) leaves.push_back(random_tensor(Shape(i.dims), random, -3, 3));
    }
  }
  /// Small, and in float64 throughout: differences see what narrower floats round, and what bits say.
  bool suits() const {
    std::int64_t elements = 0;
    for (const Tensor& x : leaves) elements += x.numel();
    if (elements > 20000) return false;
    std::string text;
    test::record(program, &text);
    for (const char* word : {"bitcast", "Float32", "Float16", "Float8"})
      if (text.find(word) != text.npos) return false;
    return true;
  }
  Tensors operator()(const Tensors& x) const {
    test::Program p = program;
    p.leaves = x;
    const std::vector<test::Value> values = test::record(p);
    Tensors out;
    for (const int o : p.outputs)
      if (const Tensor& y = values[static_cast<std::size_t>(o)].tensor; is_float(y.dtype())) out.push_back(y);
    return out;
  }
};

}  // namespace kiln::testing
