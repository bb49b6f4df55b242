// Unification of the atoms of two regions.
#include "plan/atoms.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace kiln::plan {
namespace {

Space space(std::initializer_list<std::int64_t> extents) {
  Space s;
  for (std::int64_t e : extents) s.add(e);
  return s;
}

std::vector<std::int64_t> extents(const Space& s) { return {s.extent, s.extent + s.n}; }
using Extents = std::vector<std::int64_t>;

TEST(Atoms, ACutOfEitherSideCutsBoth) {
  Unifier u(space({24}), space({4, 6}));
  ASSERT_TRUE(u.same(0b1, 0b11) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{4, 6}));
  EXPECT_EQ(u.of(0, 0b1), 0b11u);
  EXPECT_FALSE(u.is_identity(0, 1));
  EXPECT_TRUE(u.is_identity(1, 2));
}

TEST(Atoms, CutsThatDoNotDivideEachOtherDoNotUnify) {
  EXPECT_FALSE(Unifier(space({6, 4}), space({4, 6})).same(0b11, 0b11));
  EXPECT_FALSE(Unifier(space({6}), space({7})).same(0b1, 0b1));
  Unifier u(space({2, 12}), space({8, 3}));
  ASSERT_TRUE(u.same(0b11, 0b11) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{2, 4, 3}));
}

TEST(Atoms, WhatAReductionLeavesIsReducedFurther) {  // k-means: [ik, d], then [i, k]
  Unifier u(space({60, 7}), space({5, 12}));
  ASSERT_TRUE(u.same(0b01, 0b11) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{5, 12, 7}));
  EXPECT_EQ(u.of(0, 0b11), 0b111u);
  EXPECT_EQ(u.of(0, 0b01), 0b011u);
  EXPECT_EQ(u.of(1, 0b01), 0b001u);
}

TEST(Atoms, ABroadcastLeavesAtomsOutAndSharesTheLoop) {  // softmax: max over r of [n, r], then [n·r]
  const plan::Run runs[] = {{5, false}, {7, true}};
  Unifier u(space({5, 7}), space({35}));
  ASSERT_TRUE(u.spread(0b01, 0b1, runs) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{5, 7}));
  EXPECT_EQ(u.of(0, 0b11), u.of(1, 0b1));
}

TEST(Atoms, TwoAtomsOfOneSpaceNeverBecomeOne) {  // sum(x, 0) + sum(x, 1)
  Unifier u(space({6, 6}), space({6}));
  ASSERT_TRUE(u.same(0b01, 0b1));
  EXPECT_FALSE(u.same(0b10, 0b1));
}

TEST(Atoms, OrdersThatContradictEachOtherDoNotUnify) {
  Unifier u(space({3, 5}), space({5, 3}));
  ASSERT_TRUE(u.same(0b01, 0b10));
  ASSERT_TRUE(u.same(0b10, 0b01));
  EXPECT_FALSE(u.finish());
}

TEST(Atoms, LoopsOfDifferentLengthsStayApart) {
  const plan::Run runs[] = {{5, false}, {9, true}};
  Unifier u(space({5, 7}), space({45}));
  ASSERT_TRUE(u.spread(0b01, 0b1, runs) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{5, 7, 9}));
  EXPECT_EQ(u.of(0, 0b11), 0b011u);
  EXPECT_EQ(u.of(1, 0b1), 0b101u);
}

TEST(Atoms, SingleElementsFindAPlace) {
  Unifier u(space({1, 9}), space({1}));  // a sum of all, read by a number
  ASSERT_TRUE(u.same(0b01, 0b1) && u.finish());
  EXPECT_EQ(extents(u.space()), (Extents{1, 9}));
  const plan::Run all[] = {{9, true}};
  Unifier spread(space({1, 9}), space({9}));  // and spread over all again
  while (spread.spread(0b01, 0b1, all) && spread.changed()) {
  }
  ASSERT_TRUE(spread.finish());
  EXPECT_EQ(spread.of(0, 0b11), spread.of(1, 0b1));
  Unifier both(space({1, 9}), space({1, 9}));  // the same where others were summed up before
  while (both.spread(0b01, 0b11, all) && both.changed()) {
  }
  ASSERT_TRUE(both.finish());
  EXPECT_EQ(extents(both.space()), (Extents{1, 9}));
}

TEST(Atoms, NoMoreThanThereIsRoomFor) {
  Space many;
  for (int i = 0; i < Space::kMost; ++i) many.add(2);
  Unifier u(many, space({3}));
  EXPECT_FALSE(u.finish());
}

}  // namespace
}  // namespace kiln::plan
