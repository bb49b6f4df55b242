#include "kernel/kernel.h"
#include "kernel/canonical.h"

#include "allocated_bytes.h"
#include "support/check.h"

#include <gtest/gtest.h>

namespace kiln::kernel {
namespace {

E leaf(Kernel& k, Prim prim, DType type, std::uint64_t imm) {
  return {&k.pool, k.pool.intern({prim, type, kNoExpr, kNoExpr, kNoExpr, imm})};
}
E load(Kernel& k, std::uint32_t buffer, E index, ExprId predicate = kNoExpr) {
  return {&k.pool,
          k.pool.intern({Prim::Load, k.buffers[buffer].dtype, index.id, predicate, kNoExpr, buffer})};
}
std::uint32_t add_loop(Kernel& k, LoopKind kind, E extent, std::uint16_t lanes = 1) {
  LoopDecl l;
  l.kind = kind;
  l.var = k.n_vars++;
  l.extent = extent.id;
  l.lanes = lanes;
  k.loops.push_back(l);
  return static_cast<std::uint32_t>(k.loops.size() - 1);
}
E var_of(Kernel& k, std::uint32_t loop) { return leaf(k, Prim::Var, DType::Int64, k.loops[loop].var); }
Stmt loop_stmt(std::uint32_t loop) { return {Stmt::Kind::Loop, loop}; }

template <class F>
Kernel with(Kernel k, F change) {
  change(k);
  return k;
}
bool refuses(const Kernel& k) {
  try {
    verify(k);
    return false;
  } catch (const InternalError&) {
    return true;
  }
}

/// out[row] = max over row of in, then out2[row, j] = exp-free centre: in - max, scaled by a slot.
Kernel centred_rows(bool noise = false) {
  Kernel k;
  k.label = noise ? "noisy" : "centred";
  k.buffers = {{BufferDecl::Role::In, DType::Float32, 4}, {BufferDecl::Role::Out, DType::Float32, 64}};
  k.accs = {{Monoid::Max, DType::Float32}};
  k.slots = {DType::Float32};
  k.n_params = 2;
  const auto junk = [&] {
    if (noise)
      sqrt(constant(k.pool, DType::Float64, 2.0 + k.pool.size()) * leaf(k, Prim::Slot, DType::Float64, 0));
  };
  const E rows = leaf(k, Prim::Param, DType::Int64, 0), n = leaf(k, Prim::Param, DType::Int64, 1);
  const std::uint32_t grid = add_loop(k, LoopKind::Grid, rows);
  junk();
  const E first = var_of(k, grid) * n;
  const std::uint32_t reduce = add_loop(k, LoopKind::Vector, n, 16);
  k.loops[reduce].accs = {0};
  k.loops[reduce].body = {{Stmt::Kind::Update, 0, kNoExpr, load(k, 0, first + var_of(k, reduce)).id}};
  junk();
  const std::uint32_t write = add_loop(k, LoopKind::Vector, n, 16);
  const E at = first + var_of(k, write);
  const E centred = load(k, 0, at) - leaf(k, Prim::Acc, DType::Float32, 0);
  const E scaled = centred * leaf(k, Prim::Slot, DType::Float32, 0);
  k.loops[write].body = {{Stmt::Kind::Store, 1, at.id, (scaled * scaled + 0.1).id}};
  k.loops[grid].body = {loop_stmt(reduce), loop_stmt(write)};
  k.body = {loop_stmt(grid)};
  junk();
  return k;
}

TEST(KernelPrint, ShowsLoopsWithValuesWhereTheyAreComputed) {
  EXPECT_EQ(print(centred_rows()),
            "kernel centred\n"
            "params 2   slots s0: f32\n"
            "in0: f32 align 4\n"
            "out1: f32 align 64\n"
            "grid i0 {\n"
            "  let x0: i64 = i0 * p1\n"
            "  vectorx16 i1 < p1  reducing a0: max f32 {\n"
            "    a0 = max(a0, in0[x0 + i1])\n"
            "  }\n"
            "  vectorx16 i2 < p1 {\n"
            "    let x1: i64 = x0 + i2\n"
            "    let x2: f32 = (in0[x1] - a0) * s0\n"
            "    out1[x1] = (x2 * x2) + 0.1\n"
            "  }\n"
            "}\n");
}

TEST(KernelPrint, SpellsLoadsCastsPredicatesAndFinish) {
  Kernel k;
  k.buffers = {{BufferDecl::Role::In, DType::Float16, 2}, {BufferDecl::Role::Out, DType::Int64, 8}};
  k.accs = {{Monoid::ArgMin, DType::Float32}};
  k.n_params = 1;
  k.fma = false;
  const E n = leaf(k, Prim::Param, DType::Int64, 0);
  const std::uint32_t l = add_loop(k, LoopKind::Serial, n);
  k.loops[l].accs = {0};
  const E i = var_of(k, l);
  const E value = cast(load(k, 0, i, (i < n.lit(7)).id), DType::Float32);
  k.loops[l].body = {{Stmt::Kind::Update, 0, i.id, value.id}};
  const E zero = n.lit(0);
  k.finish = {loop_stmt(l), {Stmt::Kind::Store, 1, zero.id, leaf(k, Prim::Acc, DType::Int64, 0).id}};
  EXPECT_EQ(print(k),
            "kernel (no fma)\n"
            "params 1\n"
            "in0: f16 align 2\n"
            "out1: i64 align 8\n"
            "finish {\n"
            "  for i0 < p0  reducing a0: argmin f32 {\n"
            "    a0 = argmin(a0, f32(in0[i0 if i0 < 7]) at i0)\n"
            "  }\n"
            "  out1[0] = a0\n"
            "}\n");
  EXPECT_NO_THROW(verify(k));
}

TEST(KernelVerify, OnlyPositionsAreNarrow) {
  Kernel k = centred_rows();
  k.accs[0].narrow = true;
  EXPECT_THROW(verify(k), InternalError);
}

TEST(KernelHash, IgnoresTheLabelAndUnusedExpressions) {
  EXPECT_EQ(hash(centred_rows(false)), hash(centred_rows(true)));
}

TEST(KernelHash, SeesEverythingThatDecidesTheCode) {
  const Hash128 base = hash(centred_rows());
  const auto changed = [&](auto&& change) { return hash(with(centred_rows(), change)) != base; };
  EXPECT_TRUE(changed([](Kernel& k) { k.fma = false; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.n_params = 3; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.n_vars = 4; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.buffers[0].alignment = 64; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.buffers[1].stream = true; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.buffers[0].dtype = DType::Float64; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.accs[0].monoid = Monoid::Min; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.accs[0].narrow = true; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.slots.push_back(DType::Int8); }));
  EXPECT_TRUE(changed([](Kernel& k) { k.loops[1].lanes = 8; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.loops[1].kind = LoopKind::Serial; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.loops[2].extent = constant(k.pool, DType::Int64, 9).id; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.loops[2].body[0].value = constant(k.pool, DType::Float32, 9).id; }));
  EXPECT_TRUE(changed([](Kernel& k) { std::swap(k.loops[0].body[0], k.loops[0].body[1]); }));
  EXPECT_TRUE(changed([](Kernel& k) { std::swap(k.body, k.finish); }));
}

/// A map of bytes whose results are counted.
Kernel with_tally() {
  Kernel k;
  k.buffers = {{BufferDecl::Role::In, DType::UInt8},
               {BufferDecl::Role::Out, DType::UInt8},
               {BufferDecl::Role::In, DType::Int32},
               {BufferDecl::Role::Out, DType::Int32}};
  k.n_params = 2;
  k.threads = {256, 256, true};
  const std::uint32_t grid = add_loop(k, LoopKind::Grid, leaf(k, Prim::Param, DType::Int64, 0));
  const E i = var_of(k, grid);
  k.loops[grid].body = {{Stmt::Kind::Store, 1, i.id, load(k, 0, i).id}};
  k.body = {loop_stmt(grid)};
  k.tally = Tally{.indices = 1, .counts = 3, .number = 2, .places = 1, .log_copies = 3};
  return k;
}

TEST(KernelPrint, ShowsWhatIsCounted) {
  EXPECT_NE(print(with_tally()).find("counts out1 in out3[p1] times in2, copies 8"), std::string::npos);
}

TEST(KernelHash, SeesHowResultsAreCounted) {
  const Hash128 base = hash(with_tally());
  const auto changed = [&](auto&& change) { return hash(with(with_tally(), change)) != base; };
  EXPECT_TRUE(changed([](Kernel& k) { k.tally.reset(); }));
  EXPECT_TRUE(changed([](Kernel& k) { k.tally->log_copies = 0; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.tally->halves = true; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.tally->places = 0; }));
}

TEST(KernelVerify, CountsIndicesInIntegers) {
  EXPECT_NO_THROW(verify(with_tally()));
  const auto refuses = [](auto&& change) { EXPECT_THROW(verify(with(with_tally(), change)), InternalError); };
  refuses([](Kernel& k) { k.tally->indices = 0; });
  refuses([](Kernel& k) { k.tally->places = 2; });
  refuses([](Kernel& k) { k.buffers[3].dtype = DType::Int64; });
  refuses([](Kernel& k) { k.buffers[1].vector = true; });
  refuses([](Kernel& k) { k.tally->halves = true; });
  refuses([](Kernel& k) { k.threads = {}; });
}

/// The sum of two numbers in thousands and rest.
Kernel with_custom_monoid() {
  Kernel k;
  k.buffers = {{BufferDecl::Role::In, DType::Int64, 8}, {BufferDecl::Role::Out, DType::Int64, 8}};
  k.n_params = 1;
  const E x = leaf(k, Prim::Later, DType::Int64, 0), y = leaf(k, Prim::Later, DType::Int64, 1);
  const E rest = leaf(k, Prim::Earlier, DType::Int64, 0), thousands = leaf(k, Prim::Earlier, DType::Int64, 1);
  k.customs = {{{DType::Int64, DType::Int64},
                {0, 0},
                {(x % x.lit(1000)).id, (x / x.lit(1000)).id},
                {(rest + x).id, (thousands + y).id},
                (thousands * 1000.0 + rest).id}};
  k.accs = {{Monoid::Custom, DType::Int64, 0}};
  const std::uint32_t l = add_loop(k, LoopKind::Serial, leaf(k, Prim::Param, DType::Int64, 0));
  k.loops[l].accs = {0};
  k.loops[l].body = {{Stmt::Kind::Update, 0, kNoExpr, load(k, 0, var_of(k, l)).id}};
  k.body = {loop_stmt(l), {Stmt::Kind::Store, 1, x.lit(0).id, leaf(k, Prim::Acc, DType::Int64, 0).id}};
  return k;
}

TEST(KernelPrint, ShowsHowACustomMonoidCombines) {
  EXPECT_EQ(print(with_custom_monoid()),
            "kernel\n"
            "params 1\n"
            "in0: i64 align 8\n"
            "out1: i64 align 8\n"
            "custom0 from (i64 0, i64 0) {\n"
            "  lift: later0 % 1000, later0 / 1000\n"
            "  merge: earlier0 + later0, earlier1 + later1\n"
            "  show: (earlier1 * 1000) + earlier0\n"
            "}\n"
            "for i0 < p0  reducing a0: custom0 i64 {\n"
            "  a0 = custom0(a0, in0[i0])\n"
            "}\n"
            "out1[0] = a0\n");
}

TEST(KernelHash, SeesCustomMonoids) {
  const Hash128 base = hash(with_custom_monoid());
  const auto changed = [&](auto&& change) { return hash(with(with_custom_monoid(), change)) != base; };
  EXPECT_FALSE(changed([](Kernel&) {}));
  EXPECT_TRUE(changed([](Kernel& k) { k.customs[0].identity[1] = 1; }));
  EXPECT_TRUE(changed([](Kernel& k) { std::swap(k.customs[0].merge[0], k.customs[0].merge[1]); }));
  EXPECT_TRUE(changed([](Kernel& k) { std::swap(k.customs[0].lift[0], k.customs[0].lift[1]); }));
  EXPECT_TRUE(changed([](Kernel& k) { k.customs[0].show = k.customs[0].merge[0]; }));
  EXPECT_TRUE(changed([](Kernel& k) { k.customs.push_back(k.customs[0]); }));
  EXPECT_TRUE(changed([](Kernel& k) { k.accs[0].custom = 1; }));
}

TEST(KernelVerify, RefusesACustomMonoidThatMakesNoSense) {
  const auto refused = [](auto&& change) { return refuses(with(with_custom_monoid(), change)); };
  EXPECT_FALSE(refused([](Kernel&) {}));
  EXPECT_TRUE(refused([](Kernel& k) { k.accs[0].custom = 1; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.customs[0].lift.pop_back(); }));
  EXPECT_TRUE(refused([](Kernel& k) { k.customs[0].types[1] = DType::Int32; }));
  // reads what is not there yet
  EXPECT_TRUE(refused([](Kernel& k) { k.customs[0].lift[0] = k.customs[0].merge[0]; }));
  EXPECT_TRUE(
      refused([](Kernel& k) { k.customs[0].show = load(k, 0, constant(k.pool, DType::Int64, 0)).id; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.customs[0].merge[0] = leaf(k, Prim::Param, DType::Int64, 0).id; }));
  // outside of it
  EXPECT_TRUE(refused([](Kernel& k) { k.body[1].value = leaf(k, Prim::Later, DType::Int64, 0).id; }));
}

/// Lists of a kernel's size, however many expressions there are. The time is kiln_micro's HashKernel.
TEST(KernelHash, AllocatesAFewLists) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const auto allocated = [](int operations) {
    Kernel k = centred_rows();
    E x = leaf(k, Prim::Slot, DType::Float32, 0);
    for (int i = 0; i < operations; ++i) x = x * (x + static_cast<double>(i));
    k.loops[2].body[0].value = x.id;
    const testing::Allocated memory = testing::allocated_in([&] { (void)hash(k); });
    std::printf("hash of %u expressions: %llu allocations, %llu bytes\n", k.pool.size(),
                static_cast<unsigned long long>(memory.calls), static_cast<unsigned long long>(memory.bytes));
    EXPECT_LE(memory.bytes, 64u * k.pool.size());
    return memory.calls;
  };
  const std::uint64_t few = allocated(100);
  EXPECT_LE(allocated(1000), few + 4);  // of a list that doubles
}

TEST(KernelVerify, AcceptsAWellFormedKernel) { EXPECT_NO_THROW(verify(centred_rows())); }

TEST(KernelVerify, RefusesWhatMakesNoSense) {
  const auto refused = [](auto&& change) { return refuses(with(centred_rows(), change)); };
  // A variable outside its loop; an accumulator before its loop has ended; a type; a store to an input.
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[1].extent = var_of(k, 2).id; }));
  EXPECT_TRUE(refused([](Kernel& k) { std::swap(k.loops[0].body[0], k.loops[0].body[1]); }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[2].body[0].value = constant(k.pool, DType::Float64, 1).id; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[2].body[0].target = 0; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[2].body[0].target = 7; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[1].lanes = 12; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[0].body.push_back(loop_stmt(1)); }));
  EXPECT_TRUE(refused([](Kernel& k) { k.n_params = 1; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.slots.clear(); }));
  EXPECT_TRUE(refused([](Kernel& k) { k.accs[0].type = DType::Float64; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[2].accs = {0}; }));
  EXPECT_TRUE(refused([](Kernel& k) {
    const E x = constant(k.pool, DType::Float32, 1);
    k.loops[2].body[0].value = k.pool.intern({Prim::And, DType::Float32, x.id, x.id});
  }));
}

/// They store to any memory, scratch or results.
TEST(KernelVerify, IterationsSideBySideDoNothingButStore) {
  const auto refused = [](auto&& change) {
    Kernel k;
    k.buffers = {{BufferDecl::Role::In, DType::Float32, 4},
                 {BufferDecl::Role::Scratch, DType::Float32, 64},
                 {BufferDecl::Role::Out, DType::Float32, 64}};
    k.n_params = 1;
    const E n = leaf(k, Prim::Param, DType::Int64, 0);
    const std::uint32_t lines = add_loop(k, LoopKind::Serial, n), line = add_loop(k, LoopKind::Vector, n, 4);
    const E at = var_of(k, lines) * n + var_of(k, line), across = var_of(k, line) * 80.0 + var_of(k, lines);
    k.loops[line].body = {{Stmt::Kind::Store, 1, across.id, load(k, 0, at).id}};
    k.loops[lines].body = {loop_stmt(line)};
    k.loops[lines].rows = 4;
    k.body = {loop_stmt(lines)};
    return refuses(with(std::move(k), change));
  };
  EXPECT_FALSE(refused([](Kernel&) {}));
  EXPECT_FALSE(refused([](Kernel& k) { k.loops[1].body[0].target = 2; }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[0].body.push_back(k.loops[1].body[0]); }));
  EXPECT_TRUE(refused([](Kernel& k) {
    k.loops[1].kind = LoopKind::Serial;
    k.loops[1].lanes = 1;
  }));
  EXPECT_TRUE(refused([](Kernel& k) { k.loops[0].rows = 3; }));
  EXPECT_FALSE(refused([](Kernel& k) {
    k.loops[1].body[0].target = 2;
    k.loops[0].rows = 1;
  }));
}

/// out[i] = in[i] * scale + shift, with its parts numbered in one way or another.
Kernel line(bool other, bool shifted = true) {
  Kernel k;
  const BufferDecl in{BufferDecl::Role::In, DType::Float32, 4},
      out{BufferDecl::Role::Out, DType::Float32, 64};
  k.buffers = other ? std::vector{out, in} : std::vector{in, out};
  k.slots = {DType::Float32, DType::Float32, DType::Float64};  // the last is not used
  k.n_params = other ? 4 : 2;
  if (other) k.n_vars = 3;
  const std::uint32_t grid = add_loop(k, LoopKind::Grid, leaf(k, Prim::Param, DType::Int64, other ? 3 : 0));
  const std::uint32_t each =
      add_loop(k, LoopKind::Vector, leaf(k, Prim::Param, DType::Int64, other ? 0 : 1), 8);
  const E scale = leaf(k, Prim::Slot, DType::Float32, other),
          shift = leaf(k, Prim::Slot, DType::Float32, !other);
  const E product = load(k, other, var_of(k, each)) * scale,
          value = shifted ? product + shift : product + product;
  k.loops[each].body = {{Stmt::Kind::Store, !other, var_of(k, each).id, value.id}};
  k.loops[grid].body = {loop_stmt(each)};
  k.body = {loop_stmt(grid)};
  return k;
}

Hash128 canonical_hash(Kernel k) {
  canonicalise(k);
  return hash(k);
}

TEST(KernelCanonical, NumbersOfPartsAreNoPartOfTheHash) {
  verify(line(false));
  verify(line(true));
  EXPECT_NE(hash(line(false)), hash(line(true)));
  EXPECT_EQ(canonical_hash(line(false)), canonical_hash(line(true)));
  Kernel one = line(false), other = line(true);
  canonicalise(one);
  canonicalise(other);
  EXPECT_EQ(print(one), print(other));
  verify(one);
}

TEST(KernelCanonical, WhatIsComputedAndPartsThemselvesAre) {
  const Hash128 whole = canonical_hash(line(false));
  EXPECT_NE(whole, canonical_hash(line(false, false)));
  EXPECT_NE(whole, canonical_hash(with(line(false), [](Kernel& k) { k.buffers[0].alignment = 16; })));
  EXPECT_NE(whole, canonical_hash(with(line(false), [](Kernel& k) { k.loops[1].lanes = 4; })));
  EXPECT_NE(whole, canonical_hash(with(line(false), [](Kernel& k) { k.threads.block = 128; })));
  EXPECT_NE(whole, canonical_hash(with(line(false), [](Kernel& k) { k.fma = !k.fma; })));
  EXPECT_EQ(whole, canonical_hash(with(line(false), [](Kernel& k) { k.slots[2] = DType::Int8; })))
      << "not used";
}

/// Statements name a loop's extent first, then what its body does; the grid's extent comes last.
TEST(KernelCanonical, SaysWhichPartALaunchBinds) {
  const auto numbers = [](Kernel k) { return canonicalise(k); };
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(numbers(line(false)).params, (Numbers{1, 0}));
  EXPECT_EQ(numbers(line(false)).slots, (Numbers{0, 1}));
  EXPECT_EQ(numbers(line(false)).buffers, (Numbers{0, 1}));
  EXPECT_EQ(numbers(line(true)).params, (Numbers{0, 3}));
  EXPECT_EQ(numbers(line(true)).slots, (Numbers{1, 0}));
  EXPECT_EQ(numbers(line(true)).buffers, (Numbers{1, 0}));
}

TEST(KernelCanonical, StaysAsItIs) {
  Kernel k = line(true);
  canonicalise(k);
  const Hash128 before = hash(k);
  const OldNumbers numbers = canonicalise(k);
  EXPECT_EQ(hash(k), before);
  EXPECT_EQ(numbers.params, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(numbers.buffers, (std::vector<std::uint32_t>{0, 1}));
}

TEST(KernelCanonical, CustomMonoidsAreNumberedAsTheyAreUsed) {
  const auto doubled = [](std::uint32_t used) {
    return with(with_custom_monoid(), [&](Kernel& k) {
      k.customs.insert(used ? k.customs.begin() : k.customs.end(), k.customs[0]);
      k.customs[1 - used].identity[0] = 7;  // the one that no accumulator is of
      k.accs[0].custom = used;
    });
  };
  EXPECT_NE(hash(doubled(0)), hash(doubled(1)));
  EXPECT_EQ(canonical_hash(doubled(0)), canonical_hash(with_custom_monoid()));
  EXPECT_EQ(canonical_hash(doubled(1)), canonical_hash(with_custom_monoid()));
}

/// The CUDA emitter reads both as parameters of the kernel.
TEST(KernelHash, SeesParametersOfDivisionsAndOfAGridOfThreads) {
  const auto divided = [](std::uint32_t inverse) {
    return with(line(false), [&](Kernel& k) {
      k.n_params = 4;
      const E i = var_of(k, 1), by = leaf(k, Prim::Param, DType::Int64, 1);
      k.loops[1].body[0].index = index_div(i, by, leaf(k, Prim::Param, DType::Int64, inverse)).id;
    });
  };
  EXPECT_NE(hash(divided(2)), hash(divided(3)));
  const auto ranged = [](std::uint32_t extent, std::uint16_t block) {
    return with(line(false), [&](Kernel& k) {
      k.threads.block = block;
      k.loops[0].extent = leaf(k, Prim::Param, DType::Int64, extent).id;
    });
  };
  EXPECT_EQ(hash(ranged(0, 0)), hash(ranged(1, 0)));
  EXPECT_NE(hash(ranged(0, 128)), hash(ranged(1, 128)));
}

}  // namespace
}  // namespace kiln::kernel
