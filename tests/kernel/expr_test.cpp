#include "kernel/expr.h"

#include "allocated_bytes.h"
#include "kernel/eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace kiln::kernel {
namespace {

template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t out = 0;
  std::memcpy(&out, &value, sizeof(T));
  return out;
}

template <class T>
T value_of(std::uint64_t bits) {
  T out;
  std::memcpy(static_cast<void*>(&out), &bits, sizeof(T));
  return out;
}

/// One primitive on two operands of type T, result of type R.
template <class R, class T>
R prim(Prim p, T a, T b = T{}, T c = T{}) {
  return value_of<R>(eval_prim(p, dtype_of<R>, dtype_of<T>, 0, bits_of(a), bits_of(b), bits_of(c)));
}

template <class To, class From>
To cast_to(From value) {
  return prim<To>(Prim::Cast, value);
}

template <class To, class From>
std::uint64_t cast_bits(From value) {
  return bits_of(cast_to<To>(value));
}

const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

E slot(ExprPool& pool, DType type, std::uint64_t index) {
  ExprNode node{Prim::Slot, type};
  node.imm = index;
  return {&pool, pool.intern(node)};
}

TEST(ExprPool, EqualStructureHasOneId) {
  ExprPool pool;
  const E x = slot(pool, DType::Float32, 0), y = slot(pool, DType::Float32, 1);
  EXPECT_EQ((x * y + 1.0).id, (x * y + 1.0).id);
  EXPECT_NE((x * y).id, (y * x).id);
  EXPECT_NE(constant(pool, DType::Float32, 0.0).id, constant(pool, DType::Float32, -0.0).id);
  EXPECT_NE(constant(pool, DType::Int32, 1).id, constant(pool, DType::UInt32, 1).id);
}

TEST(ExprPool, KeepsIdsWhileGrowingAndOrdersOperandsFirst) {
  ExprPool pool;
  const E x = slot(pool, DType::Int64, 0);
  std::vector<ExprId> ids;
  for (int i = 0; i < 5000; ++i) ids.push_back((x + i).id);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ((x + i).id, ids[i]);
  for (ExprId id = 0; id < pool.size(); ++id) {
    for (const ExprId operand : {pool[id].a, pool[id].b, pool[id].c}) {
      if (operand != kNoExpr) {
        ASSERT_LT(operand, id);
      }
    }
  }
}

/// The time is kiln_micro's InternExpressions.
TEST(ExprPool, ReturnsWhatIsThereWithoutAllocating) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  ExprPool pool;
  const E x = slot(pool, DType::Float32, 0);
  const auto intern_chain = [&] {
    ExprNode node{Prim::Neg, DType::Float32, x.id};
    for (int i = 0; i < 500; ++i) node.a = pool.intern(node);
  };
  intern_chain();
  const ExprId size = pool.size();
  const testing::Allocated again = testing::allocated_in([&] {
    for (int round = 0; round < 20; ++round) intern_chain();
  });
  EXPECT_EQ(again.calls, 0u);
  EXPECT_EQ(pool.size(), size);
}

TEST(ExprFold, FoldsConstantsExactlyAndNothingElse) {
  ExprPool pool;
  const E x = slot(pool, DType::Float32, 0);
  const E half = x.lit(0.5);
  EXPECT_EQ((half + half).id, x.lit(1.0).id);
  EXPECT_EQ((x.lit(0.1) + x.lit(0.2)).node().imm, bits_of(0.1f + 0.2f));
  EXPECT_EQ(cast(x.lit(2.75), DType::Int8).id, x.lit(DType::Int8, 2).id);
  EXPECT_EQ(bitcast(x.lit(1.0), DType::UInt32).id, x.bits(DType::UInt32, 0x3f800000).id);
  EXPECT_EQ((x.lit(1.0) < x.lit(2.0)).node().imm, 1u);
  EXPECT_EQ(call(MathFn::Exp, x.lit(DType::Float64, 1.0)).node().imm, bits_of(std::exp(1.0)));
  EXPECT_EQ(div_bounded(half, half).node().prim, Prim::DivBounded) << "machine dependent";
  EXPECT_EQ((x + 0.0).node().prim, Prim::Add) << "-0 + 0 is 0";
  EXPECT_EQ((x * 1.0).node().prim, Prim::Mul) << "quiets a NaN";
  EXPECT_EQ(select(x.lit(DType::Bool, 1), x, half).id, x.id);
  EXPECT_EQ(cast(x, DType::Float32).id, x.id);
}

TEST(ConstBits, WrapsIntegersAndRoundsFloats) {
  EXPECT_EQ(const_bits(DType::Int8, -1), 0xffu);
  EXPECT_EQ(const_bits(DType::UInt8, 257.9), 1u);
  EXPECT_EQ(const_bits(DType::Int64, -1), ~std::uint64_t{0});
  EXPECT_EQ(const_bits(DType::UInt64, 0x1.8p63), 0xc000000000000000u);
  EXPECT_EQ(const_bits(DType::Bool, 0.5), 1u);
  EXPECT_EQ(const_bits(DType::Float16, 1.0), 0x3c00u);
  EXPECT_EQ(const_bits(DType::BFloat16, -2.0), 0xc000u);
  EXPECT_EQ(const_bits(DType::Float32, 0.1), bits_of(0.1f));
}

TEST(EvalPrim, IntegersWrapAndDivideByZeroToZero) {
  constexpr auto kMin = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ((prim<std::int32_t>(Prim::Add, 0x7fffffff, 1)), kMin);
  EXPECT_EQ((prim<std::int32_t>(Prim::Mul, 0x10000, 0x10000)), 0);
  EXPECT_EQ((prim<std::int32_t>(Prim::Div, kMin, -1)), kMin);
  EXPECT_EQ((prim<std::int32_t>(Prim::Rem, kMin, -1)), 0);
  EXPECT_EQ((prim<std::int32_t>(Prim::Div, 7, 0)), 0);
  EXPECT_EQ((prim<std::int32_t>(Prim::Rem, 7, 0)), 0);
  EXPECT_EQ((prim<std::int32_t>(Prim::Div, -7, 2)), -3);
  EXPECT_EQ((prim<std::int32_t>(Prim::Rem, -7, 2)), -1);
  EXPECT_EQ((prim<std::int32_t>(Prim::Abs, kMin)), kMin);
  EXPECT_EQ((prim<std::int8_t, std::int8_t>(Prim::Neg, -128)), -128);
  EXPECT_EQ((prim<std::int8_t, std::int8_t>(Prim::Shr, -128, 3)), -16);
  EXPECT_EQ((prim<std::uint8_t, std::uint8_t>(Prim::Shr, 128, 3)), 16);
  EXPECT_EQ((prim<std::uint8_t, std::uint8_t>(Prim::Shl, 0xff, 4)), 0xf0);
  EXPECT_EQ((prim<std::uint16_t, std::uint16_t>(Prim::Mul, 0xffff, 0xffff)), 1);
  EXPECT_EQ((prim<std::uint8_t, std::uint8_t>(Prim::Not, 0x0f)), 0xf0);
  EXPECT_EQ((prim<std::uint64_t, std::uint64_t>(Prim::Div, ~0ull, 2)), 0x7fffffffffffffffu);
  EXPECT_EQ((prim<std::int64_t, std::int64_t>(Prim::Min, -1, 1)), -1);
  EXPECT_EQ((prim<std::uint64_t, std::uint64_t>(Prim::Min, ~0ull, 1)), 1u);
  EXPECT_TRUE((prim<bool, std::int64_t>(Prim::Lt, -1, 1)));
  EXPECT_FALSE((prim<bool, std::uint64_t>(Prim::Lt, ~0ull, 1)));
}

TEST(EvalPrim, BoolIsLogical) {
  EXPECT_FALSE((prim<bool>(Prim::Not, true)));
  EXPECT_TRUE((prim<bool>(Prim::Not, false)));
  EXPECT_TRUE((prim<bool>(Prim::Xor, true, false)));
  EXPECT_FALSE((prim<bool>(Prim::And, true, false)));
  EXPECT_TRUE((prim<bool>(Prim::Or, true, false)));
  EXPECT_TRUE((prim<bool>(Prim::Ne, true, false)));
  EXPECT_TRUE((prim<bool>(Prim::Max, true, false)));
  EXPECT_EQ((eval_prim(Prim::Select, DType::Int8, DType::Bool, 0, 1, 0x7f, 0x80)), 0x7fu);
  EXPECT_EQ((eval_prim(Prim::Select, DType::Float64, DType::Bool, 0, 0, 1, 2)), 2u);
}

TEST(EvalPrim, FloatsFollowIeee) {
  for (const Prim p : {Prim::Min, Prim::Max}) {
    EXPECT_TRUE(std::isnan(prim<float>(p, kNaN, 1.0f)));
    EXPECT_TRUE(std::isnan(prim<float>(p, 1.0f, kNaN)));
    EXPECT_EQ(bits_of(prim<float>(p, 0.0f, -0.0f)), bits_of(-0.0f)) << "of equals, the second";
    EXPECT_EQ(bits_of(prim<float>(p, -0.0f, 0.0f)), bits_of(0.0f));
  }
  EXPECT_EQ(bits_of(prim<float>(Prim::Neg, 0.0f)), bits_of(-0.0f));
  EXPECT_EQ(bits_of(prim<double>(Prim::Abs, -0.0)), 0u);
  EXPECT_EQ(prim<float>(Prim::RoundEven, 2.5f), 2.0f);
  EXPECT_EQ(bits_of(prim<float>(Prim::RoundEven, -0.5f)), bits_of(-0.0f));
  EXPECT_EQ(prim<double>(Prim::Fma, 1 + 0x1p-52, 1 - 0x1p-52, -1.0), -0x1p-104);
  EXPECT_EQ(prim<float>(Prim::Mul, 0x1p-100f, 0x1p-49f), 0x1p-149f) << "subnormals are kept";
  EXPECT_FALSE((prim<bool>(Prim::Eq, kNaN, kNaN)));
  EXPECT_TRUE((prim<bool>(Prim::Ne, kNaN, kNaN)));
  EXPECT_FALSE((prim<bool>(Prim::Le, kNaN, 1.0f)));
  EXPECT_TRUE((prim<bool>(Prim::Eq, 0.0f, -0.0f)));
  EXPECT_EQ((prim<float16>(Prim::Add, float16(1), float16(0x1p-11f)).bits), 0x3c00) << "ties to even";
  EXPECT_TRUE((prim<bool>(Prim::Lt, bfloat16(1), bfloat16(2))));
}

TEST(EvalPrim, DivBoundedKeepsItsPromise) {
  std::mt19937 gen(1);
  std::uniform_real_distribution<double> exponent(-60, 60);
  for (int i = 0; i < 100000; ++i) {
    const float x = static_cast<float>(std::exp2(exponent(gen))),
                y = static_cast<float>(std::exp2(exponent(gen)));
    const double want = static_cast<double>(x) / y;
    ASSERT_LE(std::abs(prim<float>(Prim::DivBounded, -x, y) + want),
              0.57 * std::ldexp(1, std::ilogb(want) - 23));
    ASSERT_EQ(prim<float>(Prim::DivBounded, 0x1p-149f * static_cast<float>(i), 1.0f),
              0x1p-149f * static_cast<float>(i));
  }
  EXPECT_TRUE(std::isnan(prim<float>(Prim::DivBounded, 1.0f, kNaN)));
  EXPECT_TRUE(std::isnan(prim<float>(Prim::DivBounded, kNaN, 1.0f)));
}

TEST(EvalPrim, ScaleRoundsOnce) {
  EXPECT_EQ(prim<float>(Prim::Scale, 1.5f, -149.0f), 0x1p-148f) << "halves to even";
  EXPECT_EQ(prim<float>(Prim::Scale, 1.25f, -149.0f), 0x1p-149f);
  EXPECT_EQ(prim<float>(Prim::Scale, 0.75f, 128.0f), 0x1.8p127f);
  EXPECT_EQ(prim<float>(Prim::Scale, -1.0f, 128.0f), -kInf);
  EXPECT_EQ(bits_of(prim<float>(Prim::Scale, -1.0f, -200.0f)), bits_of(-0.0f));
  EXPECT_TRUE(std::isnan(prim<float>(Prim::Scale, kNaN, kNaN)));
}

TEST(EvalPrim, ExponentAndMantissaMakeTheNumber) {
  for (const float x :
       {1.0f, 0.75f, 0x1.7ffffep0f, 1.5f, 0x1.7ffffep-1f, 3e38f, 0x1p-126f, 0x1.fffffcp-127f, 0x1p-149f}) {
    const float m = prim<float>(Prim::Mantissa, x);
    EXPECT_TRUE(m >= 0.75f && m < 1.5f) << x;
    EXPECT_EQ(std::ldexp(m, static_cast<int>(prim<float>(Prim::Exponent, x))), x);
  }
  for (const float zero : {0.0f, -0.0f}) EXPECT_EQ(prim<float>(Prim::Exponent, zero), -kInf);
  EXPECT_EQ(prim<float>(Prim::Exponent, kInf), kInf);
  for (const float x : {0.0f, -0.0f, kInf}) EXPECT_EQ(prim<float>(Prim::Mantissa, x), 1.0f);
  for (const float x : {-1.0f, -kInf, kNaN}) EXPECT_TRUE(std::isnan(prim<float>(Prim::Exponent, x)));
}

TEST(EvalCast, FloatToIntegerTruncatesAndSaturates) {
  EXPECT_EQ(cast_to<std::int8_t>(-1.9f), -1);
  EXPECT_EQ(cast_to<std::int8_t>(127.9f), 127);
  EXPECT_EQ(cast_to<std::int8_t>(128.0f), 127);
  EXPECT_EQ(cast_to<std::int8_t>(-200.0), -128);
  EXPECT_EQ(cast_to<std::uint8_t>(-0.9f), 0);
  EXPECT_EQ(cast_to<std::uint8_t>(-5.0f), 0);
  EXPECT_EQ(cast_to<std::int32_t>(kNaN), 0);
  EXPECT_EQ(cast_to<std::int32_t>(0x1p31f), 0x7fffffff);
  EXPECT_EQ(cast_to<std::int64_t>(-kInf), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(cast_to<std::uint64_t>(0x1p64), ~std::uint64_t{0});
  EXPECT_EQ(cast_to<std::uint64_t>(0x1.8p63), 0xc000000000000000u);
  EXPECT_EQ(cast_to<std::int16_t>(float16(kInf)), 32767);
  EXPECT_TRUE(cast_to<bool>(kNaN));
  EXPECT_TRUE(cast_to<bool>(0x1p-149f));
  EXPECT_FALSE(cast_to<bool>(-0.0));
}

TEST(EvalCast, IntegersWrapAndBoolIsZeroOrOne) {
  EXPECT_EQ(cast_to<std::uint8_t>(std::int32_t{-1}), 255);
  EXPECT_EQ(cast_to<std::int64_t>(std::int8_t{-1}), -1);
  EXPECT_EQ(cast_to<std::uint64_t>(std::int8_t{-1}), ~std::uint64_t{0});
  EXPECT_EQ(cast_to<std::int64_t>(std::uint32_t{0xffffffff}), 0xffffffff);
  EXPECT_TRUE(cast_to<bool>(std::int32_t{256}));
  EXPECT_EQ(cast_to<float>(true), 1.0f);
  EXPECT_EQ(cast_bits<float16>(true), 0x3c00u);
  EXPECT_EQ(cast_to<float>(std::int32_t{16777217}), 16777216.0f);
  EXPECT_EQ(cast_to<float>(~std::uint64_t{0}), 0x1p64f);
}

TEST(EvalCast, HalvesRoundOnceToNearestEven) {
  EXPECT_EQ(cast_bits<float16>(65519.996f), 0x7bffu);
  EXPECT_EQ(cast_bits<float16>(65520.0f), 0x7c00u);
  EXPECT_EQ(cast_bits<float16>(0x1p-25f), 0u);
  EXPECT_EQ(cast_bits<float16>(0x1.000002p-25f), 1u);
  EXPECT_EQ(cast_bits<float16>(-0x1.8p-24f), 0x8002u);
  EXPECT_EQ(cast_bits<bfloat16>(1 + 0x1p-8f), 0x3f80u);
  EXPECT_EQ(cast_bits<bfloat16>(1 + 0x1.8p-7f), 0x3f82u);
  EXPECT_EQ(cast_bits<bfloat16>(std::numeric_limits<float>::max()), 0x7f80u);
  EXPECT_TRUE(std::isnan(float(cast_to<float16>(kNaN))));
  EXPECT_TRUE(std::isnan(float(cast_to<bfloat16>(value_of<float>(0x7f800001)))));
  // Just above a tie of the half type, but on it once rounded to float.
  EXPECT_EQ(cast_bits<float16>(1 + 0x1p-11 + 0x1p-40), 0x3c01u);
  EXPECT_EQ(cast_bits<bfloat16>(1 + 0x1p-8 + 0x1p-40), 0x3f81u);
  EXPECT_EQ(cast_bits<bfloat16>((std::int64_t{1} << 40) + (std::int64_t{1} << 32) + 1), 0x5381u);
  EXPECT_EQ(cast_bits<float16>(1e300), 0x7c00u);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    float16 h;
    h.bits = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float(h))) {
      ASSERT_EQ(cast_bits<float16>(cast_to<double>(h)), bits);
    }
    bfloat16 b;
    b.bits = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float(b))) {
      ASSERT_EQ(cast_bits<bfloat16>(cast_to<float>(b)), bits);
    }
  }
}

TEST(Evaluate, AsksLeavesAndSkipsLoadsWithAFalsePredicate) {
  ExprPool pool;
  const E i = slot(pool, DType::Int64, 0);
  const E inside = i < 4;
  ExprNode load{Prim::Load, DType::Float32, (i * 2.0).id, inside.id};
  load.imm = 7;
  const E root = E{&pool, pool.intern(load)} + 1.0;
  std::int64_t at = 0;
  const LeafFn leaf = [&](const ExprNode& node, std::int64_t index) -> std::uint64_t {
    if (node.prim == Prim::Slot) return static_cast<std::uint64_t>(at);
    EXPECT_EQ(node.imm, 7u);
    EXPECT_LT(index, 8);
    return bits_of(10.0f * static_cast<float>(index));
  };
  at = 3;
  EXPECT_EQ(value_of<float>(evaluate(pool, root.id, leaf)), 61.0f);
  at = 4;
  EXPECT_EQ(value_of<float>(evaluate(pool, root.id, leaf)), 1.0f);
}

TEST(BlockProgram, AgreesWithEvaluateOnRandomExpressions) {
  std::mt19937 gen(7);
  for (int round = 0; round < 50; ++round) {
    ExprPool pool;
    const E x = slot(pool, DType::Float32, 0), y = slot(pool, DType::Int32, 1);
    std::vector<E> floats{x, x.lit(1.5)}, ints{y, y.lit(3)};
    const auto pick = [&](std::vector<E>& from) { return from[gen() % from.size()]; };
    for (int step = 0; step < 40; ++step) {
      switch (gen() % 8) {
        case 0: floats.push_back(pick(floats) * pick(floats)); break;
        case 1: floats.push_back(select(pick(ints) < pick(ints), pick(floats), pick(floats))); break;
        case 2: floats.push_back(cast(pick(ints), DType::Float32)); break;
        case 3: floats.push_back(fma(pick(floats), pick(floats), pick(floats))); break;
        case 4: ints.push_back(cast(cast(pick(floats), DType::Float64), DType::Int32)); break;
        case 5: ints.push_back(pick(ints) / pick(ints)); break;
        case 6: ints.push_back(bitcast(pick(floats), DType::Int32)); break;
        case 7: floats.push_back(cast(cast(pick(floats), DType::Float16), DType::Float32)); break;
      }
    }
    const ExprId roots[] = {floats.back().id, ints.back().id}, inputs[] = {x.id, y.id};
    BlockProgram program(pool, roots, inputs);
    float xs[20], fs[20];
    std::int32_t ys[20], is[20];
    for (int i = 0; i < 20; ++i) {
      xs[i] = static_cast<float>(static_cast<std::int32_t>(gen())) * 1e-8f;
      ys[i] = static_cast<std::int32_t>(gen() % 64) - 32;
    }
    const void* in[] = {xs, ys};
    void* out[] = {fs, is};
    program.run(20, in, out);
    for (int i = 0; i < 20; ++i) {
      const LeafFn leaf = [&](const ExprNode& n, std::int64_t) {
        return n.imm == 0 ? bits_of(xs[i]) : bits_of(ys[i]);
      };
      ASSERT_EQ(bits_of(fs[i]), evaluate(pool, roots[0], leaf)) << "round " << round;
      ASSERT_EQ(bits_of(is[i]), evaluate(pool, roots[1], leaf)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace kiln::kernel
