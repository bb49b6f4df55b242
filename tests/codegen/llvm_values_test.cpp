// Primitives that targets spell differently, compiled for every level the host has and compared with the
// evaluator.
#include "device/cpu/jit.h"
#include "kernel/eval.h"
#include "math/math.h"
#include "math/math_core.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kiln::codegen {
namespace {

using kernel::E;
using kernel::Prim;
using Function = std::function<E(E, E)>;

constexpr int kCount = kernel::BlockProgram::kLanes;
const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<cpu::CpuTarget> targets() {
  std::vector<cpu::CpuTarget> all;
  for (const char* level : {"sse4.2", "avx2", "avx512", "native"}) {
    try {
      all.push_back(cpu::host_target(level));
    } catch (const UserError&) {  // the host has less
    }
  }
  return all;
}

/// One vector loop out[i] = f(x[i], y[i]), compiled for `target` and run on kCount elements.
std::vector<float> compiled(const Function& f, const cpu::CpuTarget& target, int lanes, std::vector<float> x,
                            std::vector<float> y) {
  kernel::Kernel k;
  k.n_vars = k.n_params = 1;
  kernel::LoopDecl loop;
  loop.kind = kernel::LoopKind::Vector;
  loop.lanes = static_cast<std::uint16_t>(lanes);
  loop.extent = k.pool.intern({Prim::Param, DType::Int64});
  const kernel::ExprId i = k.pool.intern({Prim::Var, DType::Int64});
  E in[2];
  for (std::uint64_t b = 0; b < 2; ++b) {
    k.buffers.push_back({kernel::BufferDecl::Role::In, DType::Float32});
    kernel::ExprNode load{Prim::Load, DType::Float32, i};
    load.imm = b;
    in[b] = {&k.pool, k.pool.intern(load)};
  }
  k.buffers.push_back({kernel::BufferDecl::Role::Out, DType::Float32});
  loop.body.push_back({kernel::Stmt::Kind::Store, 2, i, f(in[0], in[1]).id});
  k.loops.push_back(loop);
  k.body.push_back({kernel::Stmt::Kind::Loop, 0});
  verify(k);
  const cpu::MachineCode e = cpu::load(cpu::compile(k, "f", target), "f");
  std::vector<float> out(x.size());
  void* const buffers[] = {x.data(), y.data(), out.data()};
  const std::int64_t params[] = {static_cast<std::int64_t>(x.size())};
  const kernel::Frame frame{buffers, params, nullptr};
  e.body(&frame, 0, 1, nullptr);
  return out;
}

std::vector<float> evaluated(const Function& f, const std::vector<float>& x, const std::vector<float>& y) {
  kernel::ExprPool pool;
  kernel::ExprNode slot{Prim::Slot, DType::Float32};
  const E a{&pool, pool.intern(slot)};
  slot.imm = 1;
  const E b{&pool, pool.intern(slot)};
  const kernel::ExprId root = f(a, b).id, inputs[] = {a.id, b.id};
  kernel::BlockProgram program(pool, std::span(&root, 1), inputs);
  std::vector<float> out(x.size());
  const void* in[] = {x.data(), y.data()};
  void* outs[] = {out.data()};
  program.run(static_cast<int>(x.size()), in, outs);
  return out;
}

/// Ordered integers: neighbours differ by one, the zeros not at all.
std::int64_t place(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7fffffff) : bits;
}

void compare(const char* name, const Function& f, std::vector<float> x, std::vector<float> y, int ulps) {
  const std::vector<float> want = evaluated(f, x, y);
  for (const cpu::CpuTarget& target : targets()) {
    for (const int lanes : {4, 8, 16, 32, 64}) {
      const std::vector<float> got = compiled(f, target, lanes, x, y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::string where = std::string(name) + "(" + std::to_string(x[i]) + ", " +
                                  std::to_string(y[i]) + ") on " + target.level + ", " +
                                  std::to_string(lanes) + " lanes";
        ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << where;
        if (std::isnan(want[i])) continue;
        ASSERT_LE(std::abs(place(got[i]) - place(want[i])), ulps)
            << where << ": " << got[i] << ", not " << want[i];
        if (want[i] == 0 && got[i] == 0) {
          ASSERT_EQ(std::signbit(got[i]), std::signbit(want[i])) << where;
        }
      }
    }
  }
}

/// Every kind of float; an odd count, so that every loop has a tail.
std::vector<float> operands() {
  std::vector<float> x = {0.0f,      -0.0f,     1,          -1,     0.75f,   0x1.7ffffep0f, 1.5f,
                          0x1p-126f, 0x1p-149f, -0x1p-149f, 3e-39f, 3.4e38f, -3.4e38f,      kInf,
                          -kInf,     kNaN,      -kNaN,      88.8f,  -88.8f,  -103.9f,       -104.5f,
                          0x1p-30f,  20,        -20,        9.1f,   1e10f,   -1e10f};
  std::mt19937 gen(7);
  while (x.size() < kCount - 3) {
    x.push_back(std::uniform_real_distribution<float>(-12, 12)(gen));
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(gen())));
  }
  return x;
}

TEST(CompiledValues, FunctionsAgreeWithTheEvaluatorOnEveryLevel) {
  const struct {
    const char* name;
    E (*expand)(E);
  } functions[] = {
      {"exp", lower::math::exp},   {"exp2", lower::math::exp2}, {"log", lower::math::log},
      {"log2", lower::math::log2}, {"tanh", lower::math::tanh}, {"sigmoid", lower::math::sigmoid},
      {"silu", lower::math::silu}, {"gelu", lower::math::gelu}, {"gelu_tanh", lower::math::gelu_tanh},
      {"erf", lower::math::erf}};
  const std::vector<float> x = operands();
  for (const auto& f : functions) compare(f.name, [&](E a, E) { return f.expand(a); }, x, x, 4);
}

TEST(CompiledValues, ScaleExponentAndMantissaAreExact) {
  std::vector<float> x, y;
  std::mt19937 gen(8);
  for (int i = 0; i < 500; ++i) {
    x.push_back(std::uniform_real_distribution<float>(-2, 2)(gen));
    y.push_back(static_cast<float>(static_cast<int>(gen() % 507) - 252));
  }
  for (const float special : {kInf, -kInf, kNaN, 0.0f, -0.0f}) {
    x.push_back(special);
    y.push_back(5);
  }
  compare("scale", [](E a, E b) { return scale(a, b); }, x, y, 0);
  const std::vector<float> all = operands();
  compare("exponent", [](E a, E) { return exponent(a); }, all, all, 0);
  std::vector<float> positive;
  for (const float v : all)
    if (v >= 0) positive.push_back(v);
  compare("mantissa", [](E a, E) { return mantissa(a); }, positive, positive, 0);
}

/// A NaN of either operand is the result, and between zeros the operands decide as everywhere.
TEST(CompiledValues, ExtremesKeepEveryNaN) {
  const std::vector<float> all = operands();
  std::vector<float> x, y;
  for (std::size_t i = 0; i < 27; ++i)
    for (std::size_t j = 0; j < 27; ++j) x.push_back(all[i]), y.push_back(all[j]);
  x.resize(kCount), y.resize(kCount);
  compare("max", [](E a, E b) { return max(a, b); }, x, y, 0);
  compare("min", [](E a, E b) { return min(a, b); }, x, y, 0);
  compare("max of a number", [](E a, E) { return max(a, a.lit(0.5)); }, x, y, 0);
  compare("min of a number", [](E, E b) { return min(b.lit(-1.0), b); }, x, y, 0);
}

/// Where an instruction makes each, of what is bounded; and where none does.
TEST(CompiledValues, WhatIsAboveTheFloorAndScalesByItAreExact) {
  using lower::math::within;
  const std::vector<float> all = operands();
  compare("above the floor", [](E a, E) { return a - floor(a); }, all, all, 0);
  compare(
      "above a bounded floor", [](E a, E) { return within(a, -200, 200) - floor(within(a, -200, 200)); }, all,
      all, 0);
  const auto scaled = [](E a, E) {
    const E y = within(a, -200, 200), whole = floor(y);
    return scale(lower::math::above_floor(y, whole) + 1.0, whole);
  };
  compare("scaled by a floor", scaled, all, all, 1);  // what is above it is rounded down
}

/// Bits of all kinds: most vectors of 16 have no subnormal number, some have.
TEST(CompiledValues, BFloat16IsRoundedOnceAndWidenedExactly) {
  std::vector<float> x = operands();
  std::mt19937 gen(10);
  for (int i = 100; i + 1 < kCount; ++i) {
    const std::uint32_t tie = gen() & 0xffff0000u, near = 0x7fff + gen() % 3;
    x[static_cast<std::size_t>(i)] = std::bit_cast<float>(tie | near);
  }
  x[40] = std::bit_cast<float>(0x7f800001u);  // a signalling NaN whose upper half is infinity
  const auto stored = [](E a, E) { return cast(cast(a, DType::BFloat16), DType::Float32); };
  compare("bfloat16", stored, x, x, 0);
  std::fill(x.begin(), x.end(), 0x1.fefffep-127f);  // subnormal, and rounds to a subnormal
  compare("bfloat16", stored, x, x, 0);
}

/// Beyond the range, and at its ends.
TEST(CompiledValues, FloatsBecomeTheNearestInt32) {
  std::vector<float> x = operands();
  for (const float end :
       {0x1p31f, -0x1p31f, 0x1.fffffep30f, -0x1.fffffep30f, 0x1p32f, -0x1.000002p31f, 0x1p63f})
    x.push_back(end);
  x.resize(static_cast<std::size_t>(kCount), -1.5f);
  std::mt19937 gen(11);
  for (int i = 0; i < 200; ++i)
    x[static_cast<std::size_t>(100 + i)] = std::uniform_real_distribution<float>(-0x1p33f, 0x1p33f)(gen);
  const auto whole = [](E a, E) { return cast(cast(a, DType::Int32), DType::Float32); };
  compare("int32", whole, x, x, 0);
}

TEST(CompiledValues, BoundedQuotientsAreWithinAUnit) {
  std::vector<float> x, y;
  std::mt19937 gen(9);
  for (int i = 0; i < 500; ++i) {
    x.push_back(std::uniform_real_distribution<float>(-20, 20)(gen));
    y.push_back(std::exp2(std::uniform_real_distribution<float>(-1, 100)(gen)));
  }
  for (const float special : {0.0f, kNaN, 0x1p-149f}) {
    x.push_back(special);
    y.push_back(1);
  }
  compare("div_bounded", [](E a, E b) { return div_bounded(a, b); }, x, y, 1);
}

/// One vector loop out[i] = floor(x[i] / d).
std::vector<std::int64_t> quotients(const cpu::CpuTarget& target, int lanes, std::vector<std::int64_t> x,
                                    std::int64_t d) {
  kernel::Kernel k;
  k.n_vars = 1;
  k.n_params = 2;
  kernel::LoopDecl loop;
  loop.kind = kernel::LoopKind::Vector;
  loop.lanes = static_cast<std::uint16_t>(lanes);
  loop.extent = k.pool.intern({Prim::Param, DType::Int64});
  const kernel::ExprId i = k.pool.intern({Prim::Var, DType::Int64});
  k.buffers.push_back({kernel::BufferDecl::Role::In, DType::Int64});
  k.buffers.push_back({kernel::BufferDecl::Role::Out, DType::Int64});
  const E load{&k.pool, k.pool.intern({Prim::Load, DType::Int64, i})};
  kernel::ExprNode divisor{Prim::Param, DType::Int64};
  divisor.imm = 1;
  const E by{&k.pool, k.pool.intern(divisor)};
  loop.body.push_back({kernel::Stmt::Kind::Store, 1, i, index_div(load, by).id});
  k.loops.push_back(loop);
  k.body.push_back({kernel::Stmt::Kind::Loop, 0});
  verify(k);
  const cpu::MachineCode e = cpu::load(cpu::compile(k, "f", target), "f");
  std::vector<std::int64_t> out(x.size());
  void* const buffers[] = {x.data(), out.data()};
  const std::int64_t params[] = {static_cast<std::int64_t>(x.size()), d};
  const kernel::Frame frame{buffers, params, nullptr};
  e.body(&frame, 0, 1, nullptr);
  return out;
}

TEST(CompiledValues, IndicesAreDividedExactlyOnLanes) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 50) - 1;
  std::mt19937_64 gen(10);
  for (const std::int64_t d : {std::int64_t{1}, std::int64_t{3}, std::int64_t{7}, std::int64_t{24593},
                               std::int64_t{1} << 31, std::int64_t{6700417} * 641, kMost}) {
    std::vector<std::int64_t> x{0, 1, kMost, kMost - 1};
    for (int n = 0; n < 301; ++n) {
      x.push_back(static_cast<std::int64_t>(gen() % (std::uint64_t{1} << (10 + n % 41))));
      const std::int64_t multiple = x.back() / d * d;  // and its neighbours
      x.push_back(multiple);
      x.push_back(std::max<std::int64_t>(multiple - 1, 0));
    }
    std::vector<std::int64_t> want;
    for (const std::int64_t v : x) want.push_back(v / d);
    for (const cpu::CpuTarget& target : targets())
      for (const int lanes : {4, 8, 16})
        EXPECT_EQ(quotients(target, lanes, x, d), want) << d << " on " << target.level << ", " << lanes;
  }
}

}  // namespace
}  // namespace kiln::codegen
