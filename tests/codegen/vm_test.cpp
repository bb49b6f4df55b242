// The vm against the kernel interpreter: every primitive on every dtype, every accumulator, every way to
// reach memory. Whole programs run through it in tests/lower and tests/runtime.
#include "codegen/vm/vm.h"

#include "codegen/on_vm.h"
#include "kernel/nouns.h"
#include "support/check.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace kiln::codegen {
namespace {

using namespace kernel::nouns;

constexpr DType kTypes[] = {DType::Bool,     DType::Int8,    DType::Int16,  DType::Int32,  DType::Int64,
                            DType::UInt8,    DType::UInt16,  DType::UInt32, DType::UInt64, DType::Float16,
                            DType::BFloat16, DType::Float32, DType::Float64};
static_assert(std::size(kTypes) == kDTypeCount);

/// A kernel under construction: buffers, parameters and their memory.
struct Bench {
  Kernel k;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::int64_t> params;

  E leaf(Prim p, DType t, std::uint64_t imm, E a = {}, E b = {}) {
    return {&k.pool, k.pool.intern({p, t, a ? a.id : kNoExpr, b ? b.id : kNoExpr, kNoExpr, imm})};
  }
  E konst(std::int64_t v) { return kernel::constant(k.pool, DType::Int64, static_cast<double>(v)); }
  E param(std::int64_t v) {
    params.push_back(v);
    return leaf(Prim::Param, DType::Int64, k.n_params++);
  }
  std::uint32_t buffer(BufferDecl::Role role, DType t, std::int64_t n) {
    k.buffers.push_back({role, t, static_cast<std::uint8_t>(size_of(t))});
    memory.emplace_back(static_cast<std::size_t>(n * size_of(t)));
    return static_cast<std::uint32_t>(k.buffers.size() - 1);
  }
  E load(std::uint32_t b, E at, E predicate = {}) {
    return leaf(Prim::Load, k.buffers[b].dtype, b, at, predicate);
  }
  Stmt store(std::uint32_t b, E at, E value) { return {Stmt::Kind::Store, b, at.id, value.id}; }
  /// A loop over `extent`; `body` receives its variable.
  template <class F>
  Stmt loop(LoopKind kind, E extent, int lanes, std::vector<std::uint32_t> accs, F body) {
    LoopDecl l;
    l.kind = kind;
    l.var = k.n_vars++;
    l.extent = extent.id;
    l.lanes = static_cast<std::uint16_t>(lanes);
    l.accs = std::move(accs);
    l.body = body(leaf(Prim::Var, DType::Int64, l.var));
    k.loops.push_back(std::move(l));
    return {Stmt::Kind::Loop, static_cast<std::uint32_t>(k.loops.size() - 1)};
  }

  /// Interprets, then runs by the vm with every set of loops. Expects the same bits, or NaN on both sides.
  void check(const std::string& what, std::int64_t grid = 1) {
    kernel::verify(k);
    std::vector<kernel::BufferMemory> buffers;
    for (auto& m : memory) buffers.push_back({m.data(), m});
    std::vector<std::byte> scratch(4096);
    kernel::interpret(k, {buffers, params, {}, scratch}, grid);
    for (const VmLoops* loops : vm_loops_here()) {
      auto copies = memory;
      std::vector<void*> pointers;
      for (std::size_t b = 0; b < copies.size(); ++b) {
        if (k.buffers[b].role != BufferDecl::Role::In)
          std::fill(copies[b].begin(), copies[b].end(), std::byte{0x77});
        pointers.push_back(copies[b].data());
      }
      run_on_vm(k, *loops, pointers, params, {}, scratch, grid, 1, 1);
      for (std::size_t b = 0; b < copies.size(); ++b)
        if (k.buffers[b].role == BufferDecl::Role::Out)
          compare(copies[b], memory[b], k.buffers[b].dtype, cat(what, " with loops for ", loops->name));
    }
  }

  static void compare(const std::vector<std::byte>& have, const std::vector<std::byte>& want, DType t,
                      const std::string& what) {
    const auto size = static_cast<std::size_t>(size_of(t));
    for (std::size_t i = 0, shown = 0; i * size < have.size() && shown < 3; ++i) {
      std::uint64_t h = 0, w = 0;
      std::memcpy(&h, have.data() + i * size, size);
      std::memcpy(&w, want.data() + i * size, size);
      if (h == w) continue;
      const bool nans = is_float(t) && kernel::eval_prim(Prim::Ne, DType::Bool, t, 0, h, h, 0) &&
                        kernel::eval_prim(Prim::Ne, DType::Bool, t, 0, w, w, 0);
      if (nans) continue;
      ++shown;
      ADD_FAILURE() << what << ", element " << i << ": bits " << std::hex << h << ", expected " << w;
    }
  }
};

/// Special values of a type, then random ones.
void fill(std::vector<std::byte>& bytes, DType t, unsigned seed) {
  std::mt19937_64 rng(seed);
  const auto size = static_cast<std::size_t>(size_of(t));
  static constexpr double kSpecial[] = {0,
                                        -0.0,
                                        1,
                                        -1,
                                        2,
                                        0.5,
                                        -0.5,
                                        1.5,
                                        2.5,
                                        127,
                                        128,
                                        255,
                                        256,
                                        32767,
                                        65535,
                                        65536,
                                        2147483647,
                                        2147483648.0,
                                        -2147483648.0,
                                        4294967295.0,
                                        4294967296.0,
                                        0x1p63,
                                        -0x1p63,
                                        0x1p64,
                                        1e-40,
                                        1e300,
                                        3,
                                        7,
                                        -7,
                                        HUGE_VAL,
                                        -HUGE_VAL,
                                        NAN,
                                        0x1p-149,
                                        0x1p-1074};
  for (std::size_t i = 0; i * size < bytes.size(); ++i) {
    const std::uint64_t pick = rng();
    std::uint64_t bits = rng();
    if (pick % 3 == 0)
      bits = kernel::const_bits(t, kSpecial[pick / 3 % std::size(kSpecial)]);
    else if (pick % 3 == 1)
      bits = kernel::const_bits(t, static_cast<double>(static_cast<std::int64_t>(bits % 41) - 20));
    if (is_bool(t)) bits &= 1;
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
}

/// out[i] = prim(a[i] or a[0], …) over n lanes; bit k of `uniform`: operand k is the same on all lanes.
void check_prim(ExprNode n, DType from, int uniform, std::int64_t count, const std::string& what) {
  Bench b;
  const int operands = kernel::operand_count(n.prim);
  const DType types[3] = {n.prim == Prim::Select ? DType::Bool : from, from, from};
  std::uint32_t in[3] = {};
  for (int k = 0; k < operands; ++k) {
    in[k] = b.buffer(BufferDecl::Role::In, types[k], count);
    fill(b.memory.back(), types[k], static_cast<unsigned>(17 + k));
  }
  const std::uint32_t out = b.buffer(BufferDecl::Role::Out, n.type, count);
  if (n.prim == Prim::Shl || n.prim == Prim::Shr) {  // amounts below the width
    auto& amounts = b.memory[1];
    const auto size = static_cast<std::size_t>(size_of(from));
    for (std::size_t i = 0; i < amounts.size(); ++i)
      amounts[i] = i % size ? std::byte{0} : amounts[i] & static_cast<std::byte>(8 * size - 1);
  }
  const E extent = b.param(count);
  b.k.body.push_back(b.loop(LoopKind::Vector, extent, 16, {}, [&](E i) {
    ExprId args[3] = {kNoExpr, kNoExpr, kNoExpr};
    for (int k = 0; k < operands; ++k) args[k] = b.load(in[k], uniform >> k & 1 ? b.konst(5) : i).id;
    n.a = args[0], n.b = args[1], n.c = args[2];
    return std::vector{b.store(out, i, {&b.k.pool, b.k.pool.intern(n)})};
  }));
  b.check(what);
}

bool has_meaning(const ExprNode& n, DType from) {
  switch (n.prim) {
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Load:
    case Prim::Call1:
    case Prim::Call2:
    case Prim::Cast:
    case Prim::CastInRange:
    case Prim::Bitcast:
    case Prim::Philox:
    case Prim::DivBounded:
    case Prim::Scale:
    case Prim::Exponent:
    case Prim::Mantissa:
    case Prim::Native: return false;  // tests of their own
    case Prim::FromIndex: return from == DType::Int64;
    case Prim::IndexDiv: return false;  // operands in its range: every kernel with a decomposed index
    case Prim::Sqrt:
    case Prim::Floor:
    case Prim::Ceil:
    case Prim::Trunc:
    case Prim::RoundEven:
    case Prim::Fma: return is_float(from);
    case Prim::Not:
    case Prim::Rem:
    case Prim::And:
    case Prim::Or:
    case Prim::Xor:
    case Prim::Shl:
    case Prim::Shr:
      return !is_float(from) &&
             !(is_bool(from) && (n.prim == Prim::Rem || n.prim == Prim::Shl || n.prim == Prim::Shr));
    default:
      return !(is_bool(from) &&
               (n.prim == Prim::Div || n.prim == Prim::Sub || n.prim == Prim::Neg || n.prim == Prim::Abs));
  }
}

TEST(Vm, EveryPrimitiveOfEveryDtypeEqualsTheInterpreter) {
#define KILN_PRIM(Name, Operands) Prim::Name,
  constexpr Prim kPrims[] = {
#include "kernel/prims.def"
  };
#undef KILN_PRIM
  for (Prim p : kPrims)
    for (DType t : kTypes) {
      const bool compare = p == Prim::Eq || p == Prim::Ne || p == Prim::Lt || p == Prim::Le;
      const ExprNode n{p, compare ? DType::Bool : t};
      if (!has_meaning(n, t)) continue;
      for (int uniform = 0; uniform < (1 << kernel::operand_count(p)) - 1; ++uniform)
        check_prim(n, t, uniform, 333, cat(name(p), " of ", name(t), ", uniform operands ", uniform));
    }
}

TEST(Vm, EveryConversionEqualsTheInterpreter) {
  for (DType to : kTypes)
    for (DType from : kTypes) {
      if (to != from) check_prim({Prim::Cast, to}, from, 0, 1000, cat(name(from), " to ", name(to)));
      if (to != from && size_of(to) == size_of(from) && !is_bool(to) && !is_bool(from))
        check_prim({Prim::Bitcast, to}, from, 0, 100, cat(name(from), " as ", name(to)));
    }
}

TEST(Vm, RandomBitsEqualTheInterpreters) {
  for (DType word : {DType::UInt32, DType::UInt64})
    for (int uniform : {0, 1, 2})
      check_prim({Prim::Philox, word}, DType::UInt64, uniform, 333, std::string(name(word)));
}

TEST(Vm, CallsOfTheCLibraryEqualTheInterpreter) {
#define KILN_MATH_FN(Name, Symbol, Arity)                                                        \
  check_prim({Arity == 1 ? Prim::Call1 : Prim::Call2, DType::Float64, kNoExpr, kNoExpr, kNoExpr, \
              static_cast<std::uint64_t>(kernel::MathFn::Name)},                                 \
             DType::Float64, 0, 150, #Symbol);
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
}

/// Float32 primitives with preconditions: over operands that meet them.
TEST(Vm, ScaleExponentAndMantissaEqualTheInterpreter) {
  Bench b;
  std::vector<float> x, e;
  std::mt19937 rng(3);
  for (int i = 0; i < 4000; ++i) {
    float v = std::bit_cast<float>(static_cast<std::uint32_t>(rng()) & 0x7fffffffu);
    if (i % 50 == 0) v = 0;
    if (i % 50 == 1) v = HUGE_VALF;
    if (i % 50 == 2) v = std::ldexp(1.0f, -static_cast<int>(rng() % 149));
    x.push_back(v);
    e.push_back(static_cast<float>(static_cast<int>(rng() % 507) - 252));
    if (std::abs(v) < 0x1p-64f || v != v) e.back() = 0;
  }
  const auto n = static_cast<std::int64_t>(x.size());
  const std::uint32_t in = b.buffer(BufferDecl::Role::In, DType::Float32, n),
                      by = b.buffer(BufferDecl::Role::In, DType::Float32, n);
  std::memcpy(b.memory[in].data(), x.data(), x.size() * 4);
  std::memcpy(b.memory[by].data(), e.data(), e.size() * 4);
  std::uint32_t out[4];
  for (auto& o : out) o = b.buffer(BufferDecl::Role::Out, DType::Float32, n);
  b.k.body.push_back(b.loop(LoopKind::Vector, b.param(n), 16, {}, [&](E i) {
    const E v = b.load(in, i);
    return std::vector{b.store(out[0], i, kernel::scale(v, b.load(by, i))),
                       b.store(out[1], i, kernel::exponent(v)),
                       b.store(out[2], i, kernel::select(v == v, kernel::mantissa(v), v)),
                       b.store(out[3], i, kernel::exponent(-v))};
  }));
  b.check("scale, exponent, mantissa");
}

TEST(Vm, DivBoundedIsTheRoundedQuotient) {
  Bench b;
  const std::uint32_t in = b.buffer(BufferDecl::Role::In, DType::Float32, 300);
  fill(b.memory[in], DType::Float32, 5);
  const std::uint32_t bounded = b.buffer(BufferDecl::Role::Out, DType::Float32, 300),
                      exact = b.buffer(BufferDecl::Role::Out, DType::Float32, 300);
  b.k.body.push_back(b.loop(LoopKind::Vector, b.param(300), 16, {}, [&](E i) {
    const E v = b.load(in, i), d = kernel::min(kernel::max(kernel::abs(v), v.lit(0.75)), v.lit(9.0));
    return std::vector{b.store(bounded, i, kernel::div_bounded(v, d)), b.store(exact, i, v / d)};
  }));
  for (const VmLoops* loops : vm_loops_here()) {
    std::vector<void*> p;
    for (auto& m : b.memory) p.push_back(m.data());
    run_on_vm(b.k, *loops, p, b.params, {}, {}, 1, 1, 1);
    Bench::compare(b.memory[bounded], b.memory[exact], DType::Float32, loops->name);
  }
}

// ---- accumulators ----

/// Small whole numbers: sums and products are exact in whatever order. Now and then a NaN.
void fill_small(std::vector<std::byte>& bytes, DType t, unsigned seed, bool nans) {
  std::mt19937 rng(seed);
  const auto size = static_cast<std::size_t>(size_of(t));
  for (std::size_t i = 0; i * size < bytes.size(); ++i) {
    double v = static_cast<double>(rng() % 3);
    if (is_float(t) && nans && rng() % 97 == 0) v = NAN;
    const std::uint64_t bits = kernel::const_bits(t, v);
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
}

bool with_position(Monoid m) { return m == Monoid::ArgMax || m == Monoid::ArgMin; }

enum class Where { Scalar, AcrossLanes, OnLanes };

/// Reduces the rows of a (rows, n) matrix: with scalar loops, along the lanes, or with one row a lane.
void check_reduction(Monoid m, DType t, Where where, int lanes, std::int64_t n, bool uniform) {
  const std::int64_t n_rows = where == Where::OnLanes ? 70 : 5;
  Bench b;
  const std::uint32_t in = b.buffer(BufferDecl::Role::In, t, n_rows * std::max<std::int64_t>(n, 1));
  fill_small(b.memory[in], t, static_cast<unsigned>(n), m != Monoid::Prod);
  const DType result = with_position(m) ? DType::Int64 : t;
  const std::uint32_t out = b.buffer(BufferDecl::Role::Out, result, n_rows);
  b.k.accs.push_back({m, t});
  const E length = b.param(n), rows = b.param(n_rows);
  const auto inner = [&](E row) {
    return b.loop(where == Where::AcrossLanes ? LoopKind::Vector : LoopKind::Serial, length,
                  where == Where::AcrossLanes ? lanes : 1, {0}, [&](E i) {
                    const E x = b.load(in, uniform ? row * length : row * length + i);
                    Stmt update{Stmt::Kind::Update, 0, with_position(m) ? i.id : kNoExpr, x.id};
                    return std::vector{update};
                  });
  };
  b.k.body.push_back(b.loop(where == Where::OnLanes ? LoopKind::Vector : LoopKind::Serial, rows,
                            where == Where::OnLanes ? lanes : 1, {}, [&](E row) {
                              std::vector<Stmt> body{inner(row)};
                              body.push_back(b.store(out, row, b.leaf(Prim::Acc, result, 0)));
                              return body;
                            }));
  b.check(cat(name(m), " of ", n, " ", name(t), ", ", lanes, " lanes, form ", static_cast<int>(where),
              uniform ? ", uniform" : ""));
}

TEST(Vm, EveryAccumulatorOfEveryDtypeEqualsTheInterpreter) {
  for (Monoid m : {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min, Monoid::ArgMax, Monoid::ArgMin})
    for (DType t : kTypes) {
      if (is_half(t) && with_position(m)) continue;  // accumulators compute in float32
      if (is_half(t) && m == Monoid::Prod) continue;
      for (std::int64_t n : {0, 1, 5, 63, 64, 200})
        for (Where w : {Where::Scalar, Where::AcrossLanes, Where::OnLanes})
          check_reduction(m, t, w, 16, n, false);
    }
}

TEST(Vm, AccumulatorsHaveAnyPowerOfTwoOfLanes) {
  for (int lanes : {2, 4, 8, 32, 64, 128, 1024})
    for (DType t : {DType::Float32, DType::Float64, DType::Int8})
      for (Monoid m : {Monoid::Sum, Monoid::ArgMax})
        for (std::int64_t n : {3, 130, 1500, 9000})
          for (bool uniform : {false, true})
            if (n < 1500 || m != Monoid::Sum || size_of(t) > 1)
              check_reduction(m, t, Where::AcrossLanes, lanes, n, uniform);
}

/// Whole numbers up to 96^2 as two digits of base 97, whose sums are kept apart until somebody asks.
kernel::CustomMonoid sum_of_digits(Bench& b) {
  const E later = b.leaf(Prim::Later, DType::Int64, 0), earlier = b.leaf(Prim::Earlier, DType::Int64, 0);
  const E later_high = b.leaf(Prim::Later, DType::Int64, 1),
          earlier_high = b.leaf(Prim::Earlier, DType::Int64, 1);
  kernel::CustomMonoid m;
  m.types = {DType::Int64, DType::Int64};
  m.identity = {0, 0};
  m.lift = {(later % later.lit(97)).id, (later / later.lit(97)).id};
  m.merge = {(earlier + later).id, (earlier_high + later_high).id};
  m.show = (earlier + earlier_high * later.lit(97)).id;
  return m;
}

/// Sums kept by a scalar, by a lane and over lanes, read in the end or after every element too.
void check_sums(Monoid monoid) {
  for (const std::int64_t n : {0, 1, 5, 63, 64, 200})
    for (const Where where : {Where::Scalar, Where::AcrossLanes, Where::OnLanes})
      for (const bool scan : {false, true}) {
        const std::int64_t n_rows = where == Where::OnLanes ? 70 : 5;
        Bench b;
        const std::uint32_t in =
            b.buffer(BufferDecl::Role::In, DType::Int64, n_rows * std::max<std::int64_t>(n, 1));
        for (std::size_t i = 0; 8 * i < b.memory[in].size(); ++i) {
          const std::int64_t v = static_cast<std::int64_t>(i * i * 37 % 9409);
          std::memcpy(b.memory[in].data() + 8 * i, &v, 8);
        }
        const std::uint32_t total = b.buffer(BufferDecl::Role::Out, DType::Int64, n_rows);
        const std::uint32_t after =
            b.buffer(BufferDecl::Role::Out, DType::Int64, n_rows * std::max<std::int64_t>(n, 1));
        const std::uint32_t before =
            b.buffer(BufferDecl::Role::Out, DType::Int64, n_rows * std::max<std::int64_t>(n, 1));
        if (monoid == Monoid::Custom) b.k.customs.push_back(sum_of_digits(b));
        b.k.accs.push_back({monoid, DType::Int64});
        const E length = b.param(n), rows = b.param(n_rows);
        b.k.body.push_back(b.loop(
            where == Where::OnLanes ? LoopKind::Vector : LoopKind::Serial, rows,
            where == Where::OnLanes ? 16 : 1, {}, [&](E row) {
              const bool lanes = where == Where::AcrossLanes;
              const Stmt inside =
                  b.loop(lanes ? LoopKind::Vector : LoopKind::Serial, length, lanes ? 16 : 1, {0}, [&](E i) {
                    const E at = row * length + i;
                    std::vector<Stmt> body{{Stmt::Kind::Update, 0, kNoExpr, b.load(in, at).id}};
                    if (scan) {
                      body.push_back(b.store(after, at, b.leaf(Prim::Running, DType::Int64, 0)));
                      body.push_back(b.store(before, at, b.leaf(Prim::Before, DType::Int64, 0)));
                    }
                    return body;
                  });
              return std::vector{inside, b.store(total, row, b.leaf(Prim::Acc, DType::Int64, 0))};
            }));
        if (!scan)
          for (const std::uint32_t unused : {after, before})
            std::fill(b.memory[unused].begin(), b.memory[unused].end(), std::byte{0x77});
        if (n == 0)
          std::fill(b.memory[after].begin(), b.memory[after].end(), std::byte{0x77}),
              b.memory[before] = b.memory[after];
        b.check(cat(scan ? "scan" : "sum", " of ", n, ", form ", static_cast<int>(where)));
        std::vector<std::int64_t> want(static_cast<std::size_t>(n_rows)), have(want.size());
        for (std::int64_t i = 0; i < n_rows * n; ++i)
          want[static_cast<std::size_t>(i / n)] += i * i * 37 % 9409;
        std::memcpy(have.data(), b.memory[total].data(), 8 * have.size());
        EXPECT_EQ(have, want);
      }
}

TEST(Vm, SumsAreReadInTheEndOrMeanwhile) { check_sums(Monoid::Sum); }
TEST(Vm, CustomMonoidsReduceAndScan) { check_sums(Monoid::Custom); }

/// Rounding shows the order of a sum.
TEST(Vm, ASumAddsEveryLaneInOrderAndLanesByHalves) {
  constexpr int kLanes = 16, kCount = 5003;
  Bench b;
  const std::uint32_t x = b.buffer(BufferDecl::Role::In, DType::Float32, kCount),
                      out = b.buffer(BufferDecl::Role::Out, DType::Float32, 1);
  std::mt19937 rng(1);
  std::vector<float> values(kCount);
  for (float& v : values) v = static_cast<float>(rng()) * 0x1p-32f;
  std::memcpy(b.memory[x].data(), values.data(), values.size() * 4);
  b.k.accs.push_back({Monoid::Sum, DType::Float32});
  b.k.body.push_back(b.loop(LoopKind::Vector, b.param(kCount), kLanes, {0}, [&](E i) {
    return std::vector{Stmt{Stmt::Kind::Update, 0, kNoExpr, b.load(x, i).id}};
  }));
  b.k.body.push_back(b.store(out, b.konst(0), b.leaf(Prim::Acc, DType::Float32, 0)));
  float lane[kLanes] = {};
  for (int i = 0; i < kCount; ++i) lane[i % kLanes] += values[static_cast<std::size_t>(i)];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  for (const VmLoops* loops : vm_loops_here()) {
    std::vector<void*> p;
    for (auto& m : b.memory) p.push_back(m.data());
    run_on_vm(b.k, *loops, p, b.params, {}, {}, 1, 1, 1);
    float have;
    std::memcpy(&have, b.memory[out].data(), 4);
    EXPECT_EQ(have, lane[0]) << loops->name;
  }
}

// ---- memory ----

TEST(Vm, LoadsAndStoresOfEveryKindTouchTheirElementsOnly) {
  for (DType t : {DType::Bool, DType::Float16, DType::Float32, DType::Int64})
    for (std::int64_t n : {0, 1, 63, 64, 65, 3000}) {
      Bench b;
      const std::int64_t room = std::max<std::int64_t>(n, 1);
      const std::uint32_t plain = b.buffer(BufferDecl::Role::In, t, room),
                          wide = b.buffer(BufferDecl::Role::In, t, 3 * room);
      const std::uint32_t index = b.buffer(BufferDecl::Role::In, DType::Int64, room),
                          truth = b.buffer(BufferDecl::Role::In, DType::Bool, room);
      fill(b.memory[plain], t, 1);
      fill(b.memory[wide], t, 2);
      fill(b.memory[truth], DType::Bool, 3);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = n - 1 - i;
        std::memcpy(b.memory[index].data() + 8 * i, &at, 8);
      }
      std::uint32_t out[9];
      for (auto& o : out) o = b.buffer(BufferDecl::Role::Out, t, room);
      const std::uint32_t strided = b.buffer(BufferDecl::Role::Out, t, 3 * room);
      const E count = b.param(n), three = b.param(3);
      b.k.body.push_back(b.loop(LoopKind::Vector, count, 16, {}, [&](E i) {
        const E at = b.load(index, i), holds = b.load(truth, i);
        // Where the predicate is false the index may be anything.
        const E astray = kernel::select(holds, i, b.konst(1) << b.konst(40));
        return std::vector{b.store(out[0], i, b.load(plain, i)),
                           b.store(out[1], i, b.load(wide, i * three)),
                           b.store(out[2], i, b.load(plain, at)),
                           b.store(out[3], i, b.load(plain, i, holds)),
                           b.store(out[4], i, b.load(wide, i * three, holds)),
                           b.store(out[5], i, b.load(plain, astray, holds)),
                           b.store(out[6], at, b.load(plain, i)),
                           b.store(out[7], i, b.load(plain, b.konst(0), b.konst(0) < i)),
                           b.store(out[8], i, b.load(plain, count - b.konst(1) - i)),
                           b.store(strided, i * three, b.load(plain, i)),
                           b.store(strided, i * three + b.konst(1), kernel::constant(b.k.pool, t, 1)),
                           b.store(strided, i * three + b.konst(2), b.load(plain, b.konst(0)))};
      }));
      if (n == 0)  // nothing runs, so nothing is written
        for (std::uint32_t o = out[0]; o <= strided; ++o) b.k.buffers[o].role = BufferDecl::Role::Partial;
      b.check(cat(name(t), ", ", n, " elements"));
    }
}

TEST(Vm, AnyByteButZeroIsTrue) {
  Bench b;
  const std::uint32_t in = b.buffer(BufferDecl::Role::In, DType::Bool, 256),
                      out = b.buffer(BufferDecl::Role::Out, DType::Bool, 256);
  for (int i = 0; i < 256; ++i) b.memory[in][static_cast<std::size_t>(i)] = static_cast<std::byte>(i);
  b.k.body.push_back(b.loop(LoopKind::Vector, b.param(256), 16, {},
                            [&](E i) { return std::vector{b.store(out, i, b.load(in, i))}; }));
  b.check("bools");
}

TEST(Vm, ManyLiveValuesShareStorage) {
  for (int live : {1, 10, 100}) {
    Bench b;
    constexpr std::int64_t n = 5000;
    const std::uint32_t in = b.buffer(BufferDecl::Role::In, DType::Int64, n),
                        out = b.buffer(BufferDecl::Role::Out, DType::Int64, n);
    fill(b.memory[in], DType::Int64, 9);
    b.k.body.push_back(b.loop(LoopKind::Vector, b.param(n), 8, {}, [&](E i) {
      std::vector<E> values{b.load(in, i)};
      for (int v = 1; v < live; ++v) values.push_back(values.back() * b.konst(2 * v + 1) + i);
      E sum = values[0];
      // the first made is needed last
      for (std::size_t v = values.size(); v-- > 1;) sum = sum * values[v] + values[v - 1];
      return std::vector{b.store(out, i, sum)};
    }));
    b.check(cat(live, " live values"));
    const VmProgram program(b.k, *vm_loops_base());
    EXPECT_LT(program.memory_bytes(), std::max(96 << 10, live * 256 * 8 * 2)) << live;
  }
}

}  // namespace
}  // namespace kiln::codegen
