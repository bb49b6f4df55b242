// Where expressions belong while loops open and close.
#include "kernel/placement.h"

#include <gtest/gtest.h>

namespace kiln::kernel {
namespace {

/// grid i { acc = rest = 0; vector4 j { acc += j }; rest += i }, and expressions of both variables and a
/// parameter.
class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() {
    const auto leaf = [&](Prim p, std::uint64_t imm) {
      return E{&k_.pool, k_.pool.intern({p, DType::Int64, kNoExpr, kNoExpr, kNoExpr, imm})};
    };
    i_ = leaf(Prim::Var, 0);
    j_ = leaf(Prim::Var, 1);
    p_ = leaf(Prim::Param, 0);
    sum_ = leaf(Prim::Acc, 0);
    running_ = leaf(Prim::Running, 0);
    k_.n_vars = 2;
    k_.n_params = 1;
    k_.accs = {{Monoid::Sum, DType::Int64}, {Monoid::Sum, DType::Int64}};
    LoopDecl grid, vector;
    grid.kind = LoopKind::Grid;
    grid.accs = {0, 1};
    Stmt inner;
    inner.kind = Stmt::Kind::Loop;
    inner.target = 1;
    grid.body = {inner, {Stmt::Kind::Update, 1, kNoExpr, i_.id}};
    vector.body = {{Stmt::Kind::Update, 0, kNoExpr, j_.id}};
    vector.kind = LoopKind::Vector;
    vector.var = 1;
    vector.lanes = 4;
    k_.loops = {grid, vector};
  }

  Kernel k_;
  E i_, j_, p_, sum_, running_;
};

TEST_F(PlacementTest, AnExpressionBelongsToTheOutermostLoopWithItsOperands) {
  const E row = i_ * p_, element = row + j_;
  Placement at(k_);
  EXPECT_EQ(at.depth_of(p_.id), 0);
  at.open(k_.loops[0]);
  at.open(k_.loops[1]);
  EXPECT_EQ(at.depth_of(row.id), 1);
  EXPECT_EQ(at.depth_of(element.id), 2);
  EXPECT_EQ(at.lanes_depth(), 2);
  at.close(k_.loops[1]);
  EXPECT_EQ(at.lanes_depth(), 0);
  EXPECT_FALSE(at.varying(row.id));
  EXPECT_ANY_THROW(at.depth_of(element.id)) << "its loop is closed";
}

TEST_F(PlacementTest, LanesDifferInWhatDependsOnTheirVariable) {
  const E row = i_ * p_, element = row + j_;
  Placement at(k_);
  at.open(k_.loops[0]);
  EXPECT_FALSE(at.varying(row.id));
  at.open(k_.loops[1]);
  EXPECT_FALSE(at.varying(row.id));
  EXPECT_TRUE(at.varying(element.id));
}

TEST_F(PlacementTest, StridesAlongTheLanes) {
  const E next = i_ * p_ + j_, apart = j_ * p_, back = -j_, square = j_ * j_;
  Placement at(k_);
  at.open(k_.loops[0]);
  at.open(k_.loops[1]);
  EXPECT_EQ(known(at.lane_stride(i_.id)), 0);
  EXPECT_EQ(known(at.lane_stride(next.id)), 1);
  EXPECT_EQ(known(at.lane_stride(back.id)), -1);
  const E stride = at.lane_stride(apart.id);
  ASSERT_TRUE(stride);
  EXPECT_EQ(stride.id, p_.id);
  EXPECT_EQ(known(stride), std::nullopt);
  EXPECT_FALSE(at.lane_stride(square.id));
}

TEST_F(PlacementTest, AccumulatorsAreOnLanesInsideOrAroundAVectorLoop) {
  Placement at(k_);
  at.begin_accs(k_.loops[0]);
  EXPECT_EQ(at.lanes_of(0), Placement::Lanes::Inside);
  EXPECT_EQ(at.lanes_of(1), Placement::Lanes::None) << "the vector loop does not update it";
  EXPECT_EQ(at.depth_of(sum_.id), 0);
  at.open(k_.loops[0]);
  at.open(k_.loops[1]);
  EXPECT_FALSE(at.varying(sum_.id)) << "combined when its loop ends";
  at.show_running(0);
  EXPECT_TRUE(at.varying(running_.id)) << "a scan shows each lane its own value";
  EXPECT_EQ(at.depth_of(running_.id), 2);

  LoopDecl inside;
  inside.accs = {0};
  at.begin_accs(inside);
  EXPECT_EQ(at.lanes_of(0), Placement::Lanes::Around);
  EXPECT_TRUE(at.varying(sum_.id));
}

}  // namespace
}  // namespace kiln::kernel
