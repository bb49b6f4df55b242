// Which values are halves already.
#include "kernel/halves.h"

#include "kernel/kernel.h"

#include <gtest/gtest.h>

namespace kiln::kernel {
namespace {

TEST(Halves, ChoicesBetweenWidenedValuesAreHalves) {
  ExprPool pool;
  const auto half = [&](std::uint64_t slot) {
    return cast(E{&pool, pool.intern({Prim::Slot, DType::BFloat16, kNoExpr, kNoExpr, kNoExpr, slot})},
                DType::Float32);
  };
  const E zero{&pool, pool.intern({Prim::Const, DType::Float32, kNoExpr, kNoExpr, kNoExpr, 0})};
  const E one{&pool, pool.intern({Prim::Const, DType::Float32, kNoExpr, kNoExpr, kNoExpr, 0x3f800000})};
  const E some{&pool, pool.intern({Prim::Const, DType::Float32, kNoExpr, kNoExpr, kNoExpr, 0x3f800001})};
  const E a = half(0), b = half(1), first = a < b;
  const auto is = [&](E e, DType type = DType::BFloat16) { return is_widened(pool, e.id, type); };
  EXPECT_TRUE(is(a) && is(zero) && is(one) && is(one, DType::Float16) && is(select(first, a, b)) &&
              is(max(a, zero)) && is(min(-a, abs(b))));
  EXPECT_TRUE(is(select(first, max(a, b), select(first, b, zero))));
  EXPECT_FALSE(is(some) || is(a + b) || is(a * b) || is(select(first, a, a + b)) || is(max(some, b)));
  EXPECT_FALSE(is(a, DType::Float16)) << "another half type";
  EXPECT_FALSE(is(cast(a, DType::Float64))) << "not Float32";
}

}  // namespace
}  // namespace kiln::kernel
