// What a program's first week brings: truth values, assignment, element writes in a loop, growing caches.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <string>

namespace kiln {
namespace {

using testing::expect_equal;
using testing::expect_unplaced_error;
using testing::floats;

TEST(FirstWeek, ATensorOfOneElementHasATruthValue) {
  testing::in_every_mode([] {
    EXPECT_TRUE(static_cast<bool>(Tensor(2.0f)));
    EXPECT_FALSE(static_cast<bool>(Tensor::from(std::vector<int>{0}, {1, 1})));
    const Tensor a = floats({1, 2}), b = floats({1, 3});
    if (all(a == b)) ADD_FAILURE();
    if (!any(a == b)) ADD_FAILURE();
    bool chosen = false;
    if (any(a == b) && true) chosen = true;
    EXPECT_TRUE(chosen);
  });
}

TEST(FirstWeek, AnIfOfWholeTensorsSaysWhatToDo) {
  const Tensor a = floats({1, 2}), b = floats({1, 3});
  expect_unplaced_error(
      [&] {
        if (a == b) ADD_FAILURE();
      },
      "[bool] bool (2,) has no single truth value: use all(...) or any(...)");
  expect_unplaced_error(
      [&] {
        if (!(a < b)) ADD_FAILURE();
      },
      "[bool] bool (2,) has no single truth value: use all(...) or any(...)");
  expect_unplaced_error(
      [] {
        if (zeros({0})) ADD_FAILURE();
      },
      "[bool] float32 (0,) has no single truth value: use all(...) or any(...)");
  expect_unplaced_error(
      [] {
        if (Tensor()) ADD_FAILURE();
      },
      "[bool] an operand is an empty Tensor");
}

TEST(FirstWeek, LogicalOperatorsStayElementwise) {
  const Tensor x = Tensor({true, false});
  expect_equal<bool>(!x, {false, true});
  expect_equal<bool>(x && true, {true, false});
  expect_equal<bool>(true && x, {true, false});
  expect_equal<bool>(x || true, {true, true});
  expect_equal<bool>(false || x, {true, false});
  expect_equal<bool>(1 && x, {true, false});
  expect_equal<bool>(x && x, {true, false});
}

TEST(FirstWeek, AssignmentCopiesTheHandleAndUpdatesLeaveIt) {
  testing::in_every_mode([] {
    Tensor a = floats({1, 2});
    Tensor b = a;
    b += 1;
    expect_equal<float>(a, {1, 2});
    expect_equal<float>(b, {2, 3});
    Tensor c = b;
    c(0) = 9;
    expect_equal<float>(b, {2, 3});
    expect_equal<float>(c, {9, 3});
    b = a;
    a *= 10;
    expect_equal<float>(b, {1, 2});
  });
}

TEST(FirstWeek, ALoopOfElementWritesWarnsOnceAndIsRight) {
  ::testing::internal::CaptureStderr();
  Tensor x = zeros({400});
  int line = 0;
  for (int i = 0; i < 400; ++i) {
    line = __LINE__ + 1;
    x(i) = static_cast<float>(i);
    if (i % 50 == 49) x.eval();
  }
  std::string text = ::testing::internal::GetCapturedStderr();
  const std::string at =
      "first_week_test.cpp:" + std::to_string(line) + " writes single elements of a float32 (400,) in a loop";
  const std::size_t found = text.find(at);
  EXPECT_NE(found, std::string::npos) << text;
  EXPECT_EQ(text.find(at, found + 1), std::string::npos) << text;
  expect_equal(x, {400}, testing::counting({400}).to_vector<float>());
}

TEST(FirstWeek, AppendingStepByStepCompilesNothingPerLength) {
  clear_memory_caches();
  const auto append = [](int from, int to, Tensor& cache) {
    for (int i = from; i < to; ++i) {
      const Tensor row = full({1, 8, 16}, static_cast<float>(i));
      cache = concat({cache, row}, 0);
      const Tensor scores = sum(cache * 0.5f, Axes({1, 2}));
      eval({cache, scores});
      ASSERT_EQ(scores(-1).item<float>(), static_cast<float>(i) * 64);
    }
  };
  Tensor cache = zeros({1, 8, 16});
  const auto first = test::count([&] { append(1, 40, cache); });
  const auto later = test::count([&] { append(40, 300, cache); });
  EXPECT_LE(first.compiled, 8u);
  EXPECT_LE(later.compiled, 4u);  // schedules of longer shapes
  EXPECT_EQ(cache.shape().str(), "(300, 8, 16)");
}

TEST(FirstWeek, AppendingWithoutReadingCompilesNothingPerLength) {
  clear_memory_caches();
  Tensor cache = zeros({1, 4});
  const auto counted = test::count([&] {
    for (int i = 1; i < 200; ++i) {
      cache = concat({cache, full({1, 4}, static_cast<float>(i))}, 0);
      if (i % 20 == 0) cache.eval();
    }
    cache.eval();
  });
  EXPECT_LE(counted.compiled, 12u);
  for (int i : {0, 57, 199}) EXPECT_EQ(cache(i, 2).item<int>(), i);
}

}  // namespace
}  // namespace kiln
