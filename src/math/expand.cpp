#include "math/expand.h"

#include "math/math.h"
#include "math/math_core.h"
#include "support/check.h"

#include <cmath>
#include <type_traits>

namespace kiln::lower {

using kernel::E;
using kernel::ExprId;
using kernel::ExprPool;
using kernel::NativeFn;
using kernel::Prim;

constexpr float kScanCost = 12;       // prefixes within a register
constexpr float kLogReduceCost = 30;  // an exponential and a few selections an element
constexpr float kLogScanCost = 200;   // the same, of which each step is two functions
constexpr float kGatherCost = 8;      // an element loaded from its own address, and the test of its index

E expand(ir::Op op, [[maybe_unused]] E x, [[maybe_unused]] E y, [[maybe_unused]] E z,
         [[maybe_unused]] DType type) {
  switch (op) {
#define KILN_OP(Name, Arity, Rule, Types, Reference, Expansion, Lo, Hi, Doc, ...) \
  case ir::Op::Name: return Expansion;
#include <kiln/ops.def>
#undef KILN_OP
#define KILN_STRUCTURAL(Name, ...) case ir::Op::Name:
#include "ir/structural.def"
#undef KILN_STRUCTURAL
    break;
  }
  KILN_CHECK_THAT(false, "no expansion for ", ir::info(op).name);
  return {};
}

namespace {

/// The quotient by a reciprocal, both brought among the numbers whose reciprocals are normal.
E divide_roughly(E x, E y) {
  const E magnitude = kernel::abs(y);
  const E scale = kernel::select(magnitude < 0x1p-100, x.lit(0x1p64),
                                 kernel::select(magnitude > 0x1p100, x.lit(0x1p-64), x.lit(1)));
  return (x * scale) * kernel::native(NativeFn::ReciprocalFast, y * scale);
}

// What the two targets have functions of half types made of: a GPU's approximations, or on a CPU a short
// polynomial and a reciprocal that one step corrects.
struct OnGpu {
  static E power(E x, double scale) { return kernel::native(NativeFn::Exp4Fast, x * (scale / 2)); }
  static E reciprocal(E x) { return kernel::native(NativeFn::ReciprocalFast, x); }
  static E at_least(E x, double least) { return kernel::max(x, x.lit(least)); }  // one instruction
  static E quotient(E x, E y) { return x * reciprocal(y); }
};
struct OnCpu {
  /// 2^r on |r| <= 1/2: 2^-18.5
  static E fraction_power(E r, E first = {}) {
    const E rest = math::horner(r, {0x1.62e0dcp-1, 0x1.ec06dap-3, 0x1.ca1440p-5, 0x1.3997d6p-7});
    return fma(rest, r, first ? first : r.lit(0x1.ffffe8p-1));
  }
  /// 2^(x scale) as 2^r, and 2^(n + up) in one shift, where x scale = n + r. Pre: -126 <= n + up <= 127.
  struct Parts {
    E fraction, power;
  };
  static Parts parts(E x, double scale, int up, E first = {}) {
    const E factor = x.lit(scale), magic = x.lit(0x1.8p23 + 127 + up);
    const E t = fma(x, factor, magic);
    const E bits = bitcast(t, DType::Int32) << x.lit(DType::Int32, 23);
    return {fraction_power(fma(x, factor, magic - t), first), bitcast(bits, DType::Float32)};
  }
  /// 2^(x scale)
  static E power(E x, double scale) {
    const E y = math::within(scale == 1 ? x : x * scale, -151, 129), whole = round_even(y);
    return kernel::scale(fraction_power(y - whole), whole);
  }
  /// The same for -185 <= x scale <= 60; subnormal results are rounded once.
  static E low_power(E x, double scale) {
    const Parts p = parts(x, scale, 64);
    return p.fraction * p.power * 0x1p-64;
  }
  static E at_least(E x, double least) { return math::at_least(x, least); }
  /// Pre: x is of ordinary size.
  static E reciprocal(E x) { return quotient(x.lit(1), x); }
  static E quotient(E x, E y) { return kernel::div_bounded(x, y); }
};
// With AVX-512, which splits exponents and puts their whole parts on in an instruction each.
struct OnAvx512 {
  /// 2^r times `factor` on 0 <= r <= 1: 2^-18.5. Too much at 0, too little at 1.
  static E fraction_power(E r, double factor) {
    return math::horner(r, {0x1.00002cp+0 * factor, 0x1.62d166p-1 * factor, 0x1.ee798ap-3 * factor,
                            0x1.aa13f0p-5 * factor, 0x1.bb7cd4p-7 * factor});
  }
  /// 2^y times `factor`. Pre: -252 <= y <= 254, and code generation sees that y is bounded (it drops bounds
  /// from -126 down, and 129).
  static E power_of(E y, double factor) {
    const E whole = kernel::floor(y);
    return kernel::scale(fraction_power(math::above_floor(y, whole), factor), whole);
  }
  /// 2^(x scale). Whole powers of two have to be none too much: half of the least Float16 rounds to 0.
  static E power(E x, double scale) {
    return scale == 1 ? OnCpu::power(x, 1) : power_of(math::within(x * scale, -151, 129), 1);
  }
  static E low_power(E x, double scale) {
    return power_of(math::within(scale == 1 ? x : x * scale, -151, 129), 1);
  }
  static E at_least(E x, double least) { return math::at_least(x, least); }
  static E reciprocal(E x) { return OnCpu::reciprocal(x); }
  static E quotient(E x, E y) { return OnCpu::quotient(x, y); }
};

template <class On>
E exp_roughly(E x) {
  return On::power(x, math::kLog2e);
}
/// e^x, x <= 20.
template <class On>
E low_exp_roughly(E x) {
  if constexpr (std::is_same_v<On, OnGpu>)
    return exp_roughly<On>(x);
  else
    return On::low_power(std::is_same_v<On, OnCpu> ? math::at_least(x, -110.0) : x, math::kLog2e);
}

/// 1 / (1 + e^-x) and y times that.
template <class On>
E logistic_roughly(E x, E y = {}) {
  if constexpr (std::is_same_v<On, OnGpu>) {
    // Dividend and divisor times 2^-64, so that e^-x overflows only where the result is 0.
    const E scale = x.lit(0x1p-64);
    const E e = kernel::native(NativeFn::Exp4Fast, fma(x, x.lit(-math::kLog2e / 2), x.lit(-32)));
    const E value = scale * On::reciprocal(e + scale);
    return y ? y * value : value;
  } else if constexpr (std::is_same_v<On, OnAvx512>) {
    // As below. Next to 0 the power errs to the right side by itself: its argument is then near 0 or 1.
    const E z = math::within(x * -math::kLog2e, -126.0, 158.0), scale = x.lit(0x1p-40);
    const E power = On::power_of(z, 0x1p-40);
    const E value = On::quotient(scale, power + scale);
    return y ? y * value : value;
  } else {
    // Dividend and divisor times 2^-40, so that e^110 does not overflow.
    // What is y / 2 next to 0 ends on the right side of it, where half types may have no number between.
    const E below = bitcast(x, DType::Int32) < x.lit(DType::Int32, 0);
    const E first = y ? kernel::select(below, x.lit(0x1.00000cp+0), x.lit(0x1.ffffe8p-1)) : E{};
    const auto p = On::parts(math::within(x, -110.0, 20.0), -math::kLog2e, -40, first);
    const E scale = x.lit(0x1p-40);
    const E value = On::quotient(scale, fma(p.fraction, p.power, scale));
    return y ? y * value : value;
  }
}

/// Q(a) = erfc(a / sqrt 2) / 2 as e^(-a^2 / 2) t P(t), t = 1 / (1 + 0.308 a): 2^-17.9 on [0, 14]. With
/// AVX-512 a longer polynomial is cheaper than the quotient and the products of that, 2^P(a): 2^-16 on
/// [0, 4.4], where Float16 has all its digits, 2^-12.9 on [4.4, 13.4], and 0 beyond. It is a little less than
/// 1/2 at 0, so that half of the least Float16 ends on the right side. Pre: 0 <= a <= 15.6, or a is NaN.
template <class On>
E normal_tail_roughly(E a) {
  if constexpr (std::is_same_v<On, OnAvx512>)
    return On::low_power(
        math::horner(a, {-0x1.00002p+0, -0x1.26b9e6p+0, -0x1.d53aeep-2, -0x1.bd6d46p-5, 0x1.210b4ap-7,
                         -0x1.13d974p-10, 0x1.6e418ap-14, -0x1.3c214ep-18, 0x1.3c6b0ep-23, -0x1.154e5cp-29}),
        1);
  const E t = On::reciprocal(fma(a, a.lit(0x1.3b645ap-2), a.lit(1)));
  const E p = t * math::horner(t, {0x1.f84f84p-4, 0x1.e6efe8p-4, 0x1.179f18p-3, 0x1.dc9892p-8, 0x1.8456c2p-3,
                                   -0x1.34f64ep-4});
  if constexpr (std::is_same_v<On, OnGpu>)
    return p * On::power(a * a, -math::kLog2e / 2);
  else
    return p * On::low_power(a * a, -math::kLog2e / 2);
}

/// As math::gelu, max(x, 0) - a Q(a); zero beyond a = 15.
template <class On>
E gelu_roughly(E x) {
  const E a = math::at_most(kernel::abs(x), 15.0);
  return fma(-a, normal_tail_roughly<On>(a), math::at_least(x, -0.0));
}

template <class On>
E erfc_roughly(E x) {
  const E y = normal_tail_roughly<On>(math::at_most(kernel::abs(x), 11.0) * 0x1.6a09e667f3bcdp+0) * 2.0;
  return select(x < 0.0, 2.0 - y, y);
}

/// x / (1 + e^-z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3).
template <class On>
E gelu_tanh_roughly(E x) {
  constexpr double kA = 0x1.9884533d43651p+0;
  const E z = x * fma(x * x, x.lit(kA * 0.044715), x.lit(kA));
  return logistic_roughly<On>(z, math::at_least(x, -20.0));
}

/// max(x, 0) + log(1 + e), e = e^-|x|; log(1 + e) / e on [0, 1]: 2^-19.6.
template <class On>
E softplus_roughly(E x) {
  const E e = low_exp_roughly<On>(-kernel::abs(x));
  const E rest = math::horner(e, {0x1.ffffd6p-1, -0x1.ffddd6p-2, 0x1.530a72p-2, -0x1.e15bf6p-3, 0x1.319c54p-3,
                                  -0x1.0ffb5ap-4, 0x1.cf5f7p-7});
  return fma(e, rest, max(x, x.lit(0)));
}

/// x tanh(log(1 + w)) = x n / (n + 2), n = w (w + 2), w = e^x.
template <class On>
E mish_roughly(E x) {
  const E w = low_exp_roughly<On>(math::at_most(x, 20.0)), n = w * (w + 2.0);
  return math::at_least(x, -1000.0) * (n * On::reciprocal(n + 2.0));
}

/// x P(x^2) / Q(x^2): 2^-20 on [-6.7, 6.7], where it ends 2^-18.3 off its limits.
template <class On>
E tanh_roughly(E x) {
  const E y = math::within(x, -6.7, 6.7), y2 = y * y;
  const E p = math::horner(y2, {0x1.ffffe8p-1, 0x1.fa389ep-4, 0x1.30fbd4p-9, 0x1.17547ap-18});
  const E q = math::horner(y2, {1.0, 0x1.d3e1fep-2, 0x1.5d1626p-6, 0x1.35cdeap-13});
  return y * On::quotient(p, q);
}

template <class On>
E expand_roughly(ir::Op op, E x) {
  switch (op) {
    case ir::Op::exp: return exp_roughly<On>(x);
    case ir::Op::exp2: return On::power(x, 1);
    case ir::Op::sigmoid: return logistic_roughly<On>(x);
    case ir::Op::silu: return logistic_roughly<On>(x, On::at_least(x, -1000.0));  // -inf times 0 is NaN
    case ir::Op::erfc: return erfc_roughly<On>(x);
    case ir::Op::gelu: return gelu_roughly<On>(x);
    case ir::Op::gelu_tanh: return gelu_tanh_roughly<On>(x);
    case ir::Op::softplus: return softplus_roughly<On>(x);
    case ir::Op::mish: return mish_roughly<On>(x);
    case ir::Op::tanh: return tanh_roughly<On>(x);
    default: return {};
  }
}

/// What a GPU has more of.
E expand_fast(ir::Op op, E x, E y) {
  switch (op) {
    case ir::Op::divide: return divide_roughly(x, y);
    case ir::Op::reciprocal: return divide_roughly(x.lit(1), x);
    case ir::Op::sqrt: return kernel::native(NativeFn::SqrtFast, x);
    default: return expand_roughly<OnGpu>(op, x);
  }
}

float native_cost(ir::Op op) {
  switch (op) {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) \
  case ir::Op::Name: return Cost;
#define KILN_NATIVE_FN(Name, Symbol, Reference)
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
    default: return 0;
  }
}

E expand_natively(ir::Op op, E x) {
  switch (op) {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) \
  case ir::Op::Name: return kernel::native(NativeFn::Name, x);
#define KILN_NATIVE_FN(Name, Symbol, Reference)
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
    default: return {};
  }
}

E expand_by_shift(ir::Op op, E x) {
  if (op == ir::Op::sigmoid) return expand_sigmoid_by_shift(x);
  return op == ir::Op::silu ? expand_silu_by_shift(x) : E{};
}

}  // namespace

E expand_gpu(ir::Op op, bool rough, E x, E y, E z, DType type) {
  if (x.type() == DType::Float32) {
    if (rough)
      if (const E e = expand_fast(op, x, y)) return e;
    if (const E e = expand_natively(op, x)) return e;
    if (const E e = expand_by_shift(op, x)) return e;
    if (op == ir::Op::gelu) return expand_gelu_by_shift(x);
    if (op == ir::Op::gelu_tanh) return expand_gelu_tanh_by_shift(x);
  }
  return expand(op, x, y, z, type);
}

/// 1 - 2 / (1 + e^2x): near 0 it has the digits of 1.
E expand_tanh_beside_one(E x) {
  return fma(x.lit(-2), OnGpu::reciprocal(OnGpu::power(x, 2 * math::kLog2e) + 1.0), x.lit(1));
}

E expand_exp_to_one_roughly(E x) { return low_exp_roughly<OnCpu>(x); }
E expand_exp_to_one_roughly_avx512(E x) { return low_exp_roughly<OnAvx512>(x); }

E scale_of_halves(E base) {
  // The product with the base is rounded, which is to the result as a rounding of the base is. From 2^17 on
  // halves are 2^9 and more apart: there any factor will do, and 1 rounds nothing.
  return select(kernel::abs(base) < 0x1p17, base.lit(math::kLog2e), base.lit(1));
}

E expand_exp2_of_sum_avx512(E x) {
  // 2^r on 0 <= r <= 1: 2^-23.4
  const E y = math::within(x, -126, 129), whole = kernel::floor(y);
  const E power = math::horner(math::above_floor(y, whole), {0x1.fffffep-1, 0x1.62e4f6p-1, 0x1.ebd5a8p-3,
                                                             0x1.c95446p-5, 0x1.26900cp-7, 0x1.ec320ap-10});
  return kernel::scale(power, whole);
}

E expand_exp_of_sum_avx512(E x) { return expand_exp2_of_sum_avx512(x * math::kLog2e); }

E expand_avx512(ir::Op op, bool rough, E x, E y, E z, DType type) {
  if (rough && x.type() == DType::Float32)
    if (const E e = expand_roughly<OnAvx512>(op, x)) return e;
  return expand_cpu(op, false, x, y, z, type);
}

E expand_cpu(ir::Op op, bool rough, E x, E y, E z, DType type) {
  if (x.type() == DType::Float32) {
    if (rough)
      if (const E e = expand_roughly<OnCpu>(op, x)) return e;
    if (const E e = expand_by_shift(op, x)) return e;
  }
  return expand(op, x, y, z, type);
}

std::vector<float> op_costs(bool gpu) {
  std::vector<float> costs(static_cast<std::size_t>(ir::kOpCount), 1.0f);
  for (int i = 0; i < ir::kOpCount; ++i) {
    const ir::Op op = static_cast<ir::Op>(i);
    const ir::OpInfo& facts = ir::info(op);
    if (facts.kind == ir::OpKind::View || facts.kind == ir::OpKind::Leaf) costs[i] = 0;
    if (facts.kind == ir::OpKind::Gather) costs[i] = kGatherCost;
    if (facts.kind == ir::OpKind::Reduce && facts.fold == ir::Fold::LogAddExp) costs[i] = kLogReduceCost;
    if (facts.kind == ir::OpKind::Scan)
      costs[i] = facts.fold == ir::Fold::LogAddExp ? kLogScanCost : kScanCost;
    if (facts.kind != ir::OpKind::Elementwise) continue;
    if (const float native = gpu ? native_cost(op) : 0; native > 0) {
      costs[i] = native;
      continue;
    }
    ExprPool pool;
    const DType type = facts.types & ir::FLOAT     ? DType::Float32
                       : facts.types & ir::INTEGER ? DType::Int32
                                                   : DType::Bool;
    E operand[3];
    for (int k = 0; k < facts.arity; ++k) {
      const DType t = facts.rule == ir::TypeRule::Select && k == 0 ? DType::Bool
                      : facts.rule == ir::TypeRule::Logical        ? DType::Bool
                      : facts.rule == ir::TypeRule::Word32 || facts.rule == ir::TypeRule::Word64
                          ? DType::UInt64
                      : facts.rule == ir::TypeRule::FromBits ? DType::UInt8
                                                             : type;
      operand[k] = {&pool, pool.intern({Prim::Slot, t, kernel::kNoExpr, kernel::kNoExpr, kernel::kNoExpr,
                                        static_cast<std::uint64_t>(k)})};
    }
    const ExprId before = pool.size();
    expand(op, operand[0], operand[1], operand[2], type);
    float cost = 0;
    for (ExprId e = before; e < pool.size(); ++e) {
      const Prim p = pool[e].prim;
      if (p == Prim::Const || p == Prim::Bitcast) continue;
      cost += p == Prim::Div || p == Prim::Sqrt      ? 6.0f
              : p == Prim::Call1 || p == Prim::Call2 ? 80.0f
              : p == Prim::Philox                    ? 32.0f
                                                     : 1.0f;
    }
    costs[static_cast<std::size_t>(i)] = cost;
  }
  return costs;
}

}  // namespace kiln::lower
