// Rows whose last vector begins early, held against the oracle.
#include "lower/end_early.h"

#include "kernel/expr.h"
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

std::size_t loops_again(const LoweredGraph& lowered) {
  std::size_t count = 0;
  const std::string text = lowered.text();
  for (std::size_t at = text.find(" again"); at != std::string::npos; at = text.find(" again", at + 1))
    ++count;
  return count;
}

/// A loop of fewer iterations than lanes, 8 of them or a few times as many, has no vector to begin early.
TEST(EndEarly, RowsOfAVectorOrMore) {
  for (const std::int64_t row : {5, 7, 64, 65, 77, 131}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int32, {300, row}), most = b.reduce(Op::reduce_max, x, 2);
    b.root(b.op(Op::subtract, {x, b.reshape(most, {300, 1})}));
    const std::vector<LoweredGraph> lowered = checked(b, {cpu(32), cpu(16), cpu(64)});
    EXPECT_EQ(loops_again(lowered[0]) > 0, row >= 64) << row << '\n' << lowered[0].text();
  }
}

/// An accumulator would take the values of the lanes that are made again twice.
TEST(EndEarly, ReductionsMaskTheirLastVector) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int32, {300, 131});
  b.root(b.reduce(Op::reduce_sum, x, 2));
  b.root(b.scan(Op::scan_sum, x, {1}));
  EXPECT_EQ(loops_again(checked(b, {cpu(32)})[0]), 0u);
}

/// `a[i] = a[i] + 1` or `b[i] = a[i] + 1` over so many iterations, which the launch knows or not.
kernel::Kernel kernel_of(bool in_place, bool known, bool stream = false) {
  using kernel::E;
  kernel::Kernel k;
  const auto buffer = [&](kernel::BufferDecl::Role role) {
    kernel::BufferDecl d{role, DType::Int32};
    d.stream = stream && role == kernel::BufferDecl::Role::Out;
    k.buffers.push_back(d);
  };
  buffer(kernel::BufferDecl::Role::In);
  buffer(kernel::BufferDecl::Role::Out);
  const auto leaf = [&](kernel::Prim prim, std::uint64_t imm) {
    return E{&k.pool,
             k.pool.intern({prim, DType::Int64, kernel::kNoExpr, kernel::kNoExpr, kernel::kNoExpr, imm})};
  };
  const E i = leaf(kernel::Prim::Var, 0), n = leaf(kernel::Prim::Param, 0);
  const E loaded{&k.pool, k.pool.intern({kernel::Prim::Load, DType::Int32, i.id, kernel::kNoExpr,
                                         kernel::kNoExpr, in_place ? 1u : 0u})};
  kernel::LoopDecl l;
  l.kind = kernel::LoopKind::Vector;
  l.lanes = 8;
  l.extent = (known ? n : kernel::min(n, n + n)).id;
  l.body.push_back({kernel::Stmt::Kind::Store, 1, i.id, (loaded + loaded).id});
  k.loops.push_back(l);
  k.body.push_back({kernel::Stmt::Kind::Loop, 0});
  return k;
}

bool again(kernel::Kernel k, std::int64_t iterations) {
  end_early(k, std::vector{iterations});
  return k.loops[0].again;
}

TEST(EndEarly, OnlyWhatMayBeMadeTwice) {
  EXPECT_TRUE(again(kernel_of(false, true), 8));
  EXPECT_TRUE(again(kernel_of(false, true), 9));
  EXPECT_FALSE(again(kernel_of(false, true), 7)) << "no vector";
  EXPECT_FALSE(again(kernel_of(true, true), 9)) << "it would read what it has written";
  EXPECT_FALSE(again(kernel_of(false, false), 9)) << "the launch may have fewer iterations";
  EXPECT_FALSE(again(kernel_of(false, true, true), 9)) << "a line past the caches begins where lines do";
}

}  // namespace
}  // namespace kiln::lower
