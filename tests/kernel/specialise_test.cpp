#include "kernel/specialise.h"

#include "counted.h"
#include "engine/plan.h"

#include <kiln/kiln.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

namespace kiln {
namespace {

kernel::Kernel scaled_row(kernel::ExprId* stride) {
  using namespace kernel;
  Kernel k;
  k.n_params = 2;
  k.n_vars = 1;
  k.buffers = {{BufferDecl::Role::In, DType::Float32}, {BufferDecl::Role::Out, DType::Float32}};
  const auto leaf = [&](Prim prim, std::uint64_t imm) {
    ExprNode n{prim, DType::Int64};
    n.imm = imm;
    return E{&k.pool, k.pool.intern(n)};
  };
  const E i = leaf(Prim::Var, 0), at = i * leaf(Prim::Param, 1);
  *stride = leaf(Prim::Param, 1).id;
  ExprNode load{Prim::Load, DType::Float32, at.id};
  const ExprId x = k.pool.intern(load);
  LoopDecl l;
  l.kind = LoopKind::Grid;
  l.extent = leaf(Prim::Param, 0).id;
  l.body = {{Stmt::Kind::Store, 1, i.id, x}};
  k.loops = {l};
  k.body = {{Stmt::Kind::Loop, 0}};
  return k;
}

TEST(Specialise, ParametersBecomeConstantsAndTheKeyAnother) {
  kernel::ExprId stride;
  const kernel::Kernel generic = scaled_row(&stride);
  const std::int64_t some[] = {10, 3}, others[] = {10, 4};
  const kernel::Kernel three = kernel::specialise(generic, some), four = kernel::specialise(generic, others);
  kernel::verify(three);
  EXPECT_NE(kernel::print(generic).find("p1"), std::string::npos);
  EXPECT_EQ(kernel::print(three).find("p1"), std::string::npos) << kernel::print(three);
  EXPECT_NE(kernel::print(three).find("* 3"), std::string::npos) << kernel::print(three);
  EXPECT_NE(kernel::hash(generic), kernel::hash(three));
  EXPECT_NE(kernel::hash(three), kernel::hash(four));
  EXPECT_EQ(kernel::hash(three), kernel::hash(kernel::specialise(generic, some)));
}

/// Loops of known extents may be combined in another order by the compiler, but not their values.
TEST(Specialise, EvaluatesToTheSame) {
  const Tensor x = test::data({37, 129}), y = x(range(none, none, -2), range(3, none));
  const auto results = [&] {
    std::vector<std::vector<float>> out;
    for (const Tensor& z : {nn::softmax(x), sum(y * y, 0), nn::layer_norm(y, y(0), y(1)),
                            exp(y * x(range(0, 19), range(0, 1))), cumsum(x, 1), x.T() + 1.0})
      out.push_back(z.to_vector<float>());
    return out;
  };
  clear_memory_caches();
  const auto generic = results();
  engine::specialise_kernels(true);
  clear_memory_caches();
  std::vector<std::vector<float>> special;
  try {
    special = results();
  } catch (...) {
    engine::specialise_kernels(false);
    throw;
  }
  engine::specialise_kernels(false);
  clear_memory_caches();
  ASSERT_EQ(special.size(), generic.size());
  for (std::size_t i = 0; i < generic.size(); ++i) EXPECT_EQ(special[i], generic[i]) << "program " << i;
}

}  // namespace
}  // namespace kiln
