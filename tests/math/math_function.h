// An expansion as a function that the evaluator runs, and how far results are off.
#pragma once

#include "kernel/eval.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace kiln::lower {

using kernel::BlockProgram;
using kernel::E;
using kernel::ExprId;
using kernel::ExprPool;
using kernel::Prim;

inline constexpr int kLanes = BlockProgram::kLanes;
inline constexpr float kInfF = std::numeric_limits<float>::infinity(),
                       kNaNF = std::numeric_limits<float>::quiet_NaN();

struct Function {
  explicit Function(const std::function<E(E, E)>& expand, DType type = DType::Float32) {
    E in[2];
    for (std::uint64_t i = 0; i < 2; ++i) {
      kernel::ExprNode node{Prim::Slot, type};
      node.imm = i;
      in[i] = {&pool, pool.intern(node)};
      inputs[i] = in[i].id;
    }
    root = expand(in[0], in[1]).id;
    program.emplace_back(pool, std::span(&root, 1), inputs);
  }

  template <class T>
  void run(int n, const T* x, const T* y, T* out) {
    const void* in[] = {x, y};
    void* outs[] = {out};
    program[0].run(n, in, outs);
  }

  /// Without constants and bitcasts, which cost nothing.
  int primitives() const {
    std::vector<bool> needed(pool.size(), false);
    needed[root] = true;
    int count = 0;
    for (ExprId id = pool.size(); id-- > 0;) {
      if (!needed[id] || operand_count(pool[id].prim) == 0) continue;
      if (pool[id].prim != Prim::Bitcast) ++count;
      for (const ExprId operand : {pool[id].a, pool[id].b, pool[id].c}) {
        if (operand != kernel::kNoExpr) needed[operand] = true;
      }
    }
    return count;
  }

  ExprPool pool;
  ExprId inputs[2], root;
  std::vector<BlockProgram> program;
};

template <class T>
T call2(const std::function<E(E, E)>& expand, T x, T y = T{}) {
  Function f(expand, dtype_of<T>);
  T out{};
  f.run(1, &x, &y, &out);
  return out;
}

/// |got - want| in units of the last place of a float at `want`; overflow counts from 2^128; infinite where
/// one is NaN and the other not, or where a zero has the wrong sign.
inline double ulp_error(float got, double want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) == std::isnan(want) ? 0 : HUGE_VAL;
  if ((got == 0 || want == 0) && std::signbit(got) != std::signbit(want)) return HUGE_VAL;
  const auto bounded = [](double v) { return std::clamp(v, -0x1p128, 0x1p128); };
  const double w = bounded(want), g = bounded(got);
  const int exponent = w == 0 ? -126 : std::max(std::min(std::ilogb(w), 127), -126);
  const double error = std::abs(g - w) * std::ldexp(1.0, 23 - exponent);
  // Beyond the largest float plus half a unit, infinity is the rounded value; an infinite `want` needs an
  // infinity.
  if (std::isinf(want) && !std::isinf(got)) return HUGE_VAL;
  return error;
}

struct Worst {
  double error = -1;
  float x = 0, y = 0, got = 0;
  double want = 0;
  void take(double e, float xx, float yy, float g, double w) {
    if (e > error) *this = {e, xx, yy, g, w};
  }
};

}  // namespace kiln::lower
