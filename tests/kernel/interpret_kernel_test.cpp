#include "kernel/interpret_kernel.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <cmath>

namespace kiln::kernel {
namespace {

E leaf(Kernel& k, Prim prim, DType type, std::uint64_t imm) {
  return {&k.pool, k.pool.intern({prim, type, kNoExpr, kNoExpr, kNoExpr, imm})};
}
E load(Kernel& k, std::uint32_t buffer, E index, ExprId predicate = kNoExpr) {
  return {&k.pool,
          k.pool.intern({Prim::Load, k.buffers[buffer].dtype, index.id, predicate, kNoExpr, buffer})};
}

template <class T>
BufferMemory memory_of(std::vector<T>& values) {
  const auto bytes = std::as_writable_bytes(std::span(values));
  return {bytes.data(), bytes};
}

/// out[row] = monoid over the row's n elements; with `scratch`, by way of scratch memory.
Kernel row_reduction(Monoid monoid, DType type, DType result, bool scratch) {
  Kernel k;
  k.buffers = {{BufferDecl::Role::In, type, 4}, {BufferDecl::Role::Out, result, 4}};
  if (scratch) k.buffers.push_back({BufferDecl::Role::Scratch, type, 64, false, 1});
  k.accs = {{monoid, type}};
  k.n_params = 2;
  k.n_vars = 3;
  const E n = leaf(k, Prim::Param, DType::Int64, 0);
  const E row = leaf(k, Prim::Var, DType::Int64, 0), i = leaf(k, Prim::Var, DType::Int64, 1);
  const E j = leaf(k, Prim::Var, DType::Int64, 2);
  E x = load(k, 0, row * n + i);
  LoopDecl grid, copy, reduce;
  grid.kind = LoopKind::Grid;
  reduce.kind = copy.kind = LoopKind::Vector;
  reduce.lanes = copy.lanes = 8;
  copy.var = 2;
  copy.extent = reduce.extent = n.id;
  copy.body = {{Stmt::Kind::Store, 2, j.id, load(k, 0, row * n + j).id}};
  if (scratch) x = load(k, 2, i);
  reduce.var = 1;
  reduce.accs = {0};
  const bool position = monoid == Monoid::ArgMax || monoid == Monoid::ArgMin;
  reduce.body = {{Stmt::Kind::Update, 0, position ? i.id : kNoExpr, x.id}};
  if (scratch) grid.body.push_back({Stmt::Kind::Loop, 2});
  grid.body.push_back({Stmt::Kind::Loop, 1});
  grid.body.push_back({Stmt::Kind::Store, 1, row.id, leaf(k, Prim::Acc, result, 0).id});
  k.loops = {grid, reduce};
  if (scratch) k.loops.push_back(copy);
  k.body = {{Stmt::Kind::Loop, 0}};
  return k;
}

template <class R, class T>
std::vector<R> reduce_rows(Monoid monoid, std::vector<T> in, std::int64_t rows, bool scratch = false) {
  const Kernel k = row_reduction(monoid, dtype_of<T>, dtype_of<R>, scratch);
  verify(k);
  std::vector<R> out(static_cast<std::size_t>(rows));
  std::vector<std::byte> room(256);
  const BufferMemory buffers[] = {memory_of(in), memory_of(out), {}};
  const std::int64_t params[] = {static_cast<std::int64_t>(in.size()) / rows, 64};
  interpret(k, {std::span(buffers).first(k.buffers.size()), params, {}, room}, rows);
  return out;
}

TEST(InterpretKernel, ReducesRows) {
  const std::vector<float> in = {1, 5, -2, 4, 4, 3};
  EXPECT_EQ(reduce_rows<float>(Monoid::Sum, in, 2), (std::vector<float>{4, 11}));
  EXPECT_EQ(reduce_rows<float>(Monoid::Prod, in, 2), (std::vector<float>{-10, 48}));
  EXPECT_EQ(reduce_rows<float>(Monoid::Max, in, 2), (std::vector<float>{5, 4}));
  EXPECT_EQ(reduce_rows<float>(Monoid::Min, in, 3), (std::vector<float>{1, -2, 3}));
  EXPECT_EQ(reduce_rows<std::int64_t>(Monoid::ArgMax, in, 2), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(reduce_rows<std::int64_t>(Monoid::ArgMin, in, 2), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(reduce_rows<std::int32_t>(Monoid::Max, std::vector<std::int32_t>{-7, -9}, 1),
            (std::vector<std::int32_t>{-7}));
}

TEST(InterpretKernel, LetsTheFirstNaNWin) {
  const float nan = std::nanf("");
  const std::vector<float> in = {1, nan, INFINITY, nan};
  EXPECT_EQ(reduce_rows<std::int64_t>(Monoid::ArgMax, in, 1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(reduce_rows<std::int64_t>(Monoid::ArgMin, in, 1), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(std::isnan(reduce_rows<float>(Monoid::Max, in, 1)[0]));
}

TEST(InterpretKernel, KeepsRowsInScratch) {
  EXPECT_EQ(reduce_rows<float>(Monoid::Sum, std::vector<float>{1, 2, 3, 4}, 2, true),
            (std::vector<float>{3, 7}));
}

TEST(InterpretKernel, RefusesToLeaveABuffer) {
  Kernel k = row_reduction(Monoid::Sum, DType::Float32, DType::Float32, false);
  std::vector<float> in(5), out(2);
  const BufferMemory buffers[] = {memory_of(in), memory_of(out)};
  const std::int64_t params[] = {3, 0};
  EXPECT_THROW(interpret(k, {buffers, params, {}, {}}, 2), InternalError);
}

TEST(InterpretKernel, RunsFinishAfterTheGrid) {
  // Each grid iteration leaves 2i; finish stores their sum.
  Kernel k;
  k.buffers = {{BufferDecl::Role::Partial, DType::Int64, 8}, {BufferDecl::Role::Out, DType::Int64, 8}};
  k.accs = {{Monoid::Sum, DType::Int64}};
  k.slots = {DType::Int64};
  k.n_params = 1;
  k.n_vars = 2;
  const E i = leaf(k, Prim::Var, DType::Int64, 0), j = leaf(k, Prim::Var, DType::Int64, 1);
  LoopDecl grid, all;
  grid.kind = LoopKind::Grid;
  grid.body = {{Stmt::Kind::Store, 0, i.id, (i * leaf(k, Prim::Slot, DType::Int64, 0)).id}};
  all.var = 1;
  all.extent = leaf(k, Prim::Param, DType::Int64, 0).id;
  all.accs = {0};
  all.body = {{Stmt::Kind::Update, 0, kNoExpr, load(k, 0, j).id}};
  k.loops = {grid, all};
  k.body = {{Stmt::Kind::Loop, 0}};
  k.finish = {{Stmt::Kind::Loop, 1},
              {Stmt::Kind::Store, 1, i.lit(0).id, leaf(k, Prim::Acc, DType::Int64, 0).id}};
  verify(k);
  std::vector<std::int64_t> partial(5), out(1);
  const BufferMemory buffers[] = {memory_of(partial), memory_of(out)};
  const std::int64_t params[] = {5};
  const std::uint64_t slots[] = {2};
  interpret(k, {buffers, params, slots, {}}, 5);
  EXPECT_EQ(out[0], 20);
}

/// rows[r] = the greatest of row r, columns[c] = the sum of column c, in the order of the columns.
Kernel both_ways(std::int64_t rows, std::int64_t columns) {
  constexpr DType i64 = DType::Int64;
  Kernel k;
  k.buffers = {
      {BufferDecl::Role::In, i64, 8}, {BufferDecl::Role::Partial, i64, 8}, {BufferDecl::Role::Out, i64, 8}};
  k.accs = {{Monoid::Sum, i64}, {Monoid::Max, i64}};
  k.n_vars = 3;
  k.threads = {32, 32};
  const auto konst = [&](std::int64_t v) {
    return constant_bits(k.pool, i64, static_cast<std::uint64_t>(v));
  };
  const E column = leaf(k, Prim::Var, i64, 1), row = leaf(k, Prim::Var, i64, 2);
  const E x = load(k, 0, row * konst(columns) + column);
  LoopDecl grid, across, down;
  grid.kind = LoopKind::Grid;
  across.kind = LoopKind::Vector;
  across.var = 1;
  across.extent = konst(columns).id;
  down.var = 2;
  down.extent = konst(rows).id;
  down.accs = {0};
  down.body = {{Stmt::Kind::Update, 0, kNoExpr, x.id}, {Stmt::Kind::Across, 1, row.id, x.id, 1}};
  across.body = {{Stmt::Kind::Loop, 2}, {Stmt::Kind::Store, 2, column.id, leaf(k, Prim::Acc, i64, 0).id}};
  grid.body = {{Stmt::Kind::Loop, 1}};
  k.loops = {grid, across, down};
  k.body = {{Stmt::Kind::Loop, 0}};
  return k;
}

TEST(InterpretKernel, ValuesOfAllLanesComeTogether) {
  const Kernel k = both_ways(2, 3);
  verify(k);
  std::vector<std::int64_t> in{5, -7, 1, -3, -4, -2}, rows{9, 9}, columns(3);
  const std::vector<BufferMemory> buffers{memory_of(in), memory_of(rows), memory_of(columns)};
  interpret(k, {buffers, {}, {}, {}}, 1);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{5, -2}));
  EXPECT_EQ(columns, (std::vector<std::int64_t>{2, -11, -1}));
}

/// Lanes come together on a GPU, inside a Vector loop, by an accumulator that no loop has; which one is part
/// of the key.
TEST(InterpretKernel, LanesComeTogetherWhereThereAreAny) {
  Kernel k = both_ways(2, 3);
  const Hash128 key = hash(k);
  k.accs[1].monoid = Monoid::Min;
  EXPECT_NE(hash(k), key);
  k.accs[1].monoid = Monoid::ArgMax;
  EXPECT_THROW(verify(k), InternalError);
  k = both_ways(2, 3);
  k.loops[2].body[1].acc = 0;
  EXPECT_THROW(verify(k), InternalError);
  k = both_ways(2, 3);
  k.threads = {};
  EXPECT_THROW(verify(k), InternalError);
  k = both_ways(2, 3);
  k.loops[1].kind = LoopKind::Serial;
  EXPECT_THROW(verify(k), InternalError);
}

}  // namespace
}  // namespace kiln::kernel
