// Trees of tensors: what is a tree, its leaves and their names in order, maps over several trees, and what
// is said where trees differ.
#include "expect.h"

#include <kiln/tree.h>

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using testing::expect_equal;
using Names = std::vector<std::string>;

struct Linear {
  Tensor weight, bias;
  KILN_FIELDS(weight, bias)
};
struct Plain {  // as a program may write it
  Tensor a, b;
  auto fields() { return std::tie(a, b); }
};
struct Named {
  Tensor a, b;
  auto fields() { return std::tie(a, b); }
  static constexpr std::array names = {"first", "second"};
};
struct Model {
  std::vector<Linear> layers;
  std::map<std::string, Tensor> heads;
  std::optional<Tensor> scale;
  int steps = 0;
  std::string label;  // no field: copied with the struct
  KILN_FIELDS(layers, heads, scale, steps)
};

static_assert(Tree<Tensor> && Tree<const Tensor&> && Tree<std::vector<Tensor>>);
static_assert(Tree<std::array<Tensor, 2>> && Tree<std::map<int, Tensor>> && Tree<std::optional<Tensor>>);
static_assert(Tree<std::tuple<Tensor, double>> && Tree<std::pair<Tensor, std::vector<Tensor>>>);
static_assert(Tree<Linear> && Tree<const Plain> && Tree<Named> && Tree<Model> && Tree<std::vector<Model>>);
static_assert(!Tree<int> && !Tree<std::string> && !Tree<std::vector<int>> && !Tree<std::tuple<>>);
static_assert(!Tree<std::tuple<Tensor, std::string>> && !Tree<std::vector<bool>> && !Tree<Tensor*>);

Tensor number(float value) { return Tensor(value); }

Model model() {
  return {
      {{number(1), number(2)}, {number(3), {}}}, {{"b", number(5)}, {"a", number(4)}}, number(6), 7, "name"};
}

std::vector<float> values(const std::vector<Tensor>& leaves) {
  std::vector<float> out;
  for (const Tensor& leaf : leaves) out.push_back(leaf.item<float>());
  return out;
}

TEST(Tree, LeavesStandInTheOrderOfTheMembers) {
  const Model m = model();
  EXPECT_EQ(values(tree_leaves(m)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tree_size(m), 6u);
  EXPECT_EQ(values(tree_leaves(std::tuple(number(1), 2.0, std::array{number(3), number(4)}))),
            (std::vector<float>{1, 3, 4}));
}

TEST(Tree, NamesArePaths) {
  EXPECT_EQ(tree_names(model()),
            (Names{"layers.0.weight", "layers.0.bias", "layers.1.weight", "heads.a", "heads.b", "scale"}));
  EXPECT_EQ(tree_names(Plain{number(1), number(2)}), (Names{"0", "1"}));
  EXPECT_EQ(tree_names(Named{number(1), number(2)}), (Names{"first", "second"}));
  EXPECT_EQ(tree_names(std::map<int, Plain>{{-3, {number(1), {}}}}), (Names{"-3.0"}));
  EXPECT_EQ(tree_names(std::pair(number(1), Linear{number(2), number(3)})),
            (Names{"0", "1.weight", "1.bias"}));
  EXPECT_EQ(tree_names(number(1)), (Names{""}));
}

TEST(Tree, AMapKeepsWhatIsNoLeaf) {
  const Model m = model();
  const Model doubled = tree_map([](const Tensor& x) { return x * 2; }, m);
  EXPECT_EQ(values(tree_leaves(doubled)), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(doubled.steps, 7);
  EXPECT_EQ(doubled.label, "name");
  EXPECT_FALSE(doubled.layers[1].bias.valid());
  EXPECT_EQ(values(tree_leaves(m)), (std::vector<float>{1, 2, 3, 4, 5, 6}));  // unchanged
  const Model sums =
      tree_map([](const Tensor& x, const Tensor& y, const Tensor& z) { return x + y + z; }, m, doubled, m);
  EXPECT_EQ(values(tree_leaves(sums)), (std::vector<float>{4, 8, 12, 16, 20, 24}));
}

TEST(Tree, AMapMaySeePaths) {
  const Linear l{number(1), number(2)};
  const Linear decayed =
      tree_map([](const TreePath& path, const Tensor& x) { return path.name == "weight" ? x * 10 : x; }, l);
  EXPECT_EQ(values(tree_leaves(decayed)), (std::vector<float>{10, 2}));
}

TEST(Tree, ForEachAssignsToLeaves) {
  Model m = model();
  const Model other = tree_map([](const Tensor& x) { return -x; }, m);
  tree_for_each([](Tensor& x, const Tensor& y) { x = x + 3 * y; }, m, other);
  EXPECT_EQ(values(tree_leaves(m)), (std::vector<float>{-2, -4, -6, -8, -10, -12}));
  Names seen;
  tree_for_each([&](const TreePath& path, const Tensor&, const Tensor&) { seen.push_back(path.str()); }, m,
                other);
  EXPECT_EQ(seen, tree_names(m));
}

TEST(Tree, UnflattenPutsLeavesBack) {
  const Model m = model();
  std::vector<Tensor> leaves = tree_leaves(m);
  std::swap(leaves.front(), leaves.back());
  EXPECT_EQ(values(tree_leaves(tree_unflatten(m, leaves))), (std::vector<float>{6, 2, 3, 4, 5, 1}));
  leaves.pop_back();
  testing::expect_unplaced_error([&] { tree_unflatten(m, leaves); },
                                 "[tree_unflatten] 5 leaves for a tree of 6");
}

TEST(Tree, TreesEvaluateTogether) {
  const Tensor x = Tensor({1.f, 2.f}).eval();
  const Linear l{x * 2, x * 3};
  const Plain p{x * 4, x * 5};
  const std::uint64_t before = statistics().evaluations;
  tree_eval(l, p);
  EXPECT_EQ(statistics().evaluations - before, 1u);
  EXPECT_TRUE(l.bias.evaluated() && p.b.evaluated());
}

TEST(Tree, ErrorsNameThePlaceWhereTreesDiffer) {
  const Model m = model();
  const auto add = [](const Tensor& x, const Tensor& y) { return x + y; };
  const auto differs = [&](const Model& other, const std::string& how) {
    testing::expect_unplaced_error([&] { tree_map(add, m, other); }, "[tree_map] the trees differ" + how);
    testing::expect_unplaced_error([&] { tree_map(add, other, m); }, "[tree_map] the trees differ" + how);
  };
  Model other = m;
  other.layers[1].bias = number(1);
  differs(other, " at layers.1.bias: one tensor is an empty handle");
  other = m;
  other.layers.pop_back();
  differs(other, " at layers: different numbers of elements");
  other = m;
  other.heads.erase("b");
  differs(other, " at heads: different keys");
  other.heads["c"] = number(1);
  differs(other, " at heads: different keys");
  other = m;
  other.scale.reset();
  differs(other, " at scale: one optional is empty");
  testing::expect_unplaced_error(
      [&] { tree_for_each([](const Tensor&, const Tensor&) {}, m.layers[0].bias, m.layers[1].bias); },
      "[tree_for_each] the trees differ: one tensor is an empty handle");
}

}  // namespace
}  // namespace kiln
