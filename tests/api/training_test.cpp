// Batches: each row once, in an order of the key, at one plan; trees in files, and what is said of files that
// do not fit.
#include <kiln/layers.h>
#include <kiln/optim.h>
#include <kiln/training.h>

#include "counted.h"
#include "expect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln {
namespace {

using testing::expect_equal;
using testing::expect_user_error;

/// Twenty rows (i, -i) and labels i.
std::pair<Tensor, Tensor> twenty() {
  const Tensor labels = arange(20).eval();
  return {stack({labels, -labels}, 1).astype(DType::Float32).eval(), labels};
}

/// The labels of a pass; each batch's rows are those of its labels.
template <class B>
std::vector<std::int64_t> pass(const B& all) {
  std::vector<std::int64_t> seen;
  std::size_t count = 0;
  for (const auto& [x, y] : all) {
    ++count;
    const auto labels = y.template to_vector<std::int64_t>();
    const auto rows = x.template to_vector<float>();
    EXPECT_EQ(rows.size(), 2 * labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(rows[2 * i], static_cast<float>(labels[i]));
      EXPECT_EQ(rows[2 * i + 1], -static_cast<float>(labels[i]));
    }
    seen.insert(seen.end(), labels.begin(), labels.end());
  }
  EXPECT_EQ(count, all.size());
  return seen;
}

TEST(Batches, ShowEachRowOnceInAnOrderOfTheKey) {
  const auto data = twenty();
  std::vector<std::int64_t> first = pass(batches(data, 5, random::Key(1)));
  EXPECT_EQ(first, pass(batches(data, 5, random::Key(1))));
  EXPECT_NE(first, pass(batches(data, 5, random::Key(2))));
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::sort(first.begin(), first.end());
  EXPECT_EQ(first, arange(20).to_vector<std::int64_t>());
}

TEST(Batches, LeaveARestOutUnlessAsked) {
  const auto data = twenty();
  EXPECT_EQ(pass(batches(data, 6, random::Key(1))).size(), 18u);
  EXPECT_EQ(pass(batches(data, 6, random::Key(1), true)).size(), 20u);
  EXPECT_EQ(pass(batches(data, 6)), arange(20).to_vector<std::int64_t>());
  EXPECT_EQ(pass(batches(data, 21, random::Key(1))).size(), 0u);
}

TEST(Batches, AreOnePlan) {
  const auto data = twenty();
  const auto step = [&](const auto& all) {
    for (const auto& [x, y] : all) sum(x * y.reshape({-1, 1})).eval();
  };
  step(batches(data, 5, random::Key(1)));
  const auto later = test::count([&] { step(batches(data, 5, random::Key(2))); });
  EXPECT_EQ(later.plan_misses, 0u);
  step(batches(data, 4));
  EXPECT_EQ(test::count([&] { step(batches(data, 4)); }).plan_misses, 0u);
}

TEST(Batches, Errors) {
  expect_user_error([] { batches(std::pair(zeros({4, 2}), zeros({5})), 2, random::Key(1)); },
                    "[batches] arrays of different first extents: float32 (4, 2) and float32 (5,)");
  expect_user_error([] { batches(zeros({4}), 0, random::Key(1)); }, "[batches] size = 0, needs at least 1");
  expect_user_error([] { batches(zeros({}), 1, random::Key(1)); },
                    "[batches] an array of rank 0 has no rows");
}

struct Model {
  std::vector<nn::Linear> layers;
  nn::LayerNorm norm;
  double temperature = 1;
  std::int64_t epoch = 0;
  KILN_FIELDS(layers, norm, temperature, epoch)
};

Model model(std::uint64_t seed) {
  const auto [a, b] = random::split<2>(random::Key(seed));
  return {{nn::Linear::init(a, 3, 4), nn::Linear::init(b, 4, 2, false)}, nn::LayerNorm::init(2), 0.5, 7};
}

class TreeFiles : public ::testing::Test {
 protected:
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("kiln_tree_" + std::to_string(random::Key(reinterpret_cast<std::uintptr_t>(this)).bits()) +
       ".safetensors");
  ~TreeFiles() override { std::filesystem::remove(path_); }
};

TEST_F(TreeFiles, ATreeComesBackAsItWas) {
  const Model m = model(1);
  save_tree(path_, m, {{"kind", "test"}});
  Model like = model(2);
  like.temperature = 0, like.epoch = 0;
  const Model back = load_tree(path_, like);
  EXPECT_EQ(tree_names(back), tree_names(m));
  tree_for_each([](const Tensor& a, const Tensor& b) { EXPECT_TRUE(array_equal(a, b)); }, back, m);
  EXPECT_EQ(back.temperature, 0.5);
  EXPECT_EQ(back.epoch, 7);
  EXPECT_EQ(load_safetensors(path_).metadata.at("kind"), "test");
  EXPECT_TRUE(load_safetensors(path_).tensors.contains("layers.1.weight"));
}

TEST_F(TreeFiles, ACheckpointHoldsTheOptimisersStateToo) {
  std::vector<Tensor> params = {ones({2, 3}), zeros({3})};
  const std::vector<Tensor> gradients = {full({2, 3}, 0.5), ones({3})};
  auto state = optim::adam_state(params);
  for (int i = 0; i < 3; ++i) optim::adam(params, gradients, state);
  save_tree(path_, std::pair(params, state));
  auto [p, s] = load_tree(path_, std::pair(params, optim::adam_state(params)));
  EXPECT_EQ(s.steps.item<int>(), 3);
  optim::adam(params, gradients, state);
  optim::adam(p, gradients, s);
  tree_for_each([](const Tensor& a, const Tensor& b) { EXPECT_TRUE(array_equal(a, b)); }, p, params);
}

TEST_F(TreeFiles, Errors) {
  const std::vector<Tensor> two = {ones({2}), zeros({3})};
  save_tree(path_, two);
  const std::vector<Tensor> three = {ones({2}), zeros({3}), zeros({})}, one = {ones({2})};
  expect_user_error([&] { load_tree(path_, three); }, "[from_tensors] there is no tensor 2");
  expect_user_error([&] { load_tree(path_, one); }, "[from_tensors] the tree has no place for 1");
  const std::vector<Tensor> shape = {ones({2}), zeros({4})}, dtype = {ones({2}), zeros({3}, DType::Float64)};
  expect_user_error([&] { load_tree(path_, shape); },
                    "[from_tensors] 1 is float32 (3,), the tree has float32 (4,)");
  expect_user_error([&] { load_tree(path_, dtype); },
                    "[from_tensors] 1 is float32 (3,), the tree has float64 (3,)");
  expect_user_error([&] { from_tensors(std::pair(ones({2}), 1.0), {{"0", ones({2})}, {"1", ones({2})}}); },
                    "[from_tensors] 1 is float32 (2,), the tree has a number");
}

}  // namespace
}  // namespace kiln
