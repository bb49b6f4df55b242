// Traits of the op table against the reference: what a row claims holds for every pair of telling values, and
// where values tell otherwise no row claims it.
#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace kiln::ir {
namespace {

using Bits = std::uint32_t;

/// Floats around what functions turn at, or the same number of int32.
std::vector<Bits> telling_values(bool floats) {
  std::vector<Bits> out;
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float v : {0.0f, 0.25f, 0.5f, 1.0f, 1.5f, 2.0f, 2.75f, 7.0f, 1e-30f, 3e8f, inf})
    for (const float s : {v, -v})
      out.push_back(
          floats ? std::bit_cast<Bits>(s)
                 : static_cast<Bits>(static_cast<std::int32_t>(std::fmax(-3e8f, std::fmin(3e8f, 4 * s)))));
  if (floats) out.push_back(std::bit_cast<Bits>(std::nanf("")));
  return out;
}

bool same(DType type, Bits a, Bits b) {
  const auto nan = [](Bits x) { return (x & 0x7fffffff) > 0x7f800000; };
  return a == b || (type == DType::Float32 && nan(a) && nan(b));
}

/// op(x, y) by the oracle; y of one-operand ops is not looked at.
class Evaluated {
 public:
  Evaluated(Op op, DType type) {
    x_ = b_.scalar(type, 0);
    y_ = b_.scalar(type, 0);
    b_.root(info(op).arity == 1 ? b_.op(op, {x_}) : b_.op(op, {x_, y_}));
  }
  Bits operator()(Bits x, Bits y = 0) {
    b_.slots = {x, y};
    Bits out = 0;
    const auto bytes = b_.values()[0];
    std::memcpy(&out, bytes.data(), bytes.size());
    return out;
  }
  DType result() const { return b_.graph[b_.graph.roots[0]].dtype; }

 private:
  GraphBuilder b_;
  NodeId x_, y_;
};

/// Which traits the values of an op allow.
int allowed(Op op, DType type) {
  const bool floats = type == DType::Float32, two = info(op).arity == 2;
  const std::vector<Bits> values = telling_values(floats);
  constexpr Bits sign = 0x80000000;
  Evaluated f(op, type);
  const DType out = f.result();
  int left = COMMUTES | ODD | EVEN | WHOLE | ROUNDS | INVOLUTION | IDEMPOTENT;
  const auto demand = [&](int trait, bool holds) { left &= holds ? ~0 : ~trait; };
  for (const Bits x : values)
    for (const Bits y : two ? values : std::vector<Bits>{0}) {
      const Bits r = f(x, y);
      if (two) demand(COMMUTES, same(out, r, f(y, x)));
      if (two) demand(IDEMPOTENT, x != y || same(out, r, x));
      if (!two && out == type) {
        demand(IDEMPOTENT, same(out, f(r), r));
        demand(INVOLUTION, same(out, f(r), x));
      }
      if (!floats || out != type) continue;
      demand(ODD, same(out, f(x ^ sign, y), r ^ sign) && (!two || same(out, f(x, y ^ sign), r ^ sign)));
      demand(EVEN, same(out, f(x ^ sign, y), r) && (!two || same(out, f(x, y ^ sign), r)));
      const auto number = std::bit_cast<float>(r), given = std::bit_cast<float>(x);
      demand(WHOLE, !std::isfinite(number) || std::trunc(number) == number);
      demand(ROUNDS, std::trunc(given) != given || same(out, r, x));
    }
  if (!two) left &= ~COMMUTES;
  return left;
}

TEST(Traits, HoldForTheReference) {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const OpInfo& row = info(op);
    if (row.kind != OpKind::Elementwise || row.arity > 2) continue;
    for (const DType type : {DType::Float32, DType::Int32}) {
      if (!(row.types & (type == DType::Float32 ? FLOAT : INTEGER))) continue;
      if (row.rule == TypeRule::Logical || is_random(op) || row.rule == TypeRule::FromBits ||
          row.rule == TypeRule::ToBits || (row.rule == TypeRule::Float && type != DType::Float32))
        continue;
      int claimed = row.traits & (COMMUTES | INVOLUTION | IDEMPOTENT);
      if (type == DType::Float32) claimed |= row.traits & (ODD | EVEN | WHOLE | ROUNDS);
      if (type == DType::Int32 && has(op, COMMUTES_INT)) claimed |= COMMUTES;
      EXPECT_EQ(claimed & ~allowed(op, type), 0) << row.name << " of " << name(type);
    }
  }
}

/// The test would see a wrong claim: what each trait says is false of some op.
TEST(Traits, AreToldApartByTheValues) {
  const auto lacks = [](Op op, int trait) { return (allowed(op, DType::Float32) & trait) == 0; };
  EXPECT_TRUE(lacks(Op::subtract, COMMUTES));
  EXPECT_TRUE(lacks(Op::maximum, COMMUTES)) << "-0 and +0";
  EXPECT_TRUE(lacks(Op::exp, ODD | EVEN));
  EXPECT_TRUE(lacks(Op::add, ODD));
  EXPECT_TRUE(lacks(Op::sqrt, WHOLE | ROUNDS | IDEMPOTENT));
  EXPECT_TRUE(lacks(Op::sign, ROUNDS));
  EXPECT_TRUE(lacks(Op::abs, INVOLUTION));
  EXPECT_TRUE(lacks(Op::add, IDEMPOTENT));
}

}  // namespace
}  // namespace kiln::ir
