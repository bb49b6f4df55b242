// What users reach for first: comparisons of whole tensors, names and printing, rows, masks and indices in
// brackets, creation on a device.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <algorithm>
#include <sstream>

namespace kiln {
namespace {

using namespace testing;

template <class T>
std::string printed(const T& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// ---- comparisons ----

TEST(Compare, IscloseIsNumpysFormula) {
  in_every_mode([] {
    const Tensor x = floats({1, 1, 100, 0, kInf, kInf, -kInf, kNan, 0}),
                 y = floats({1.000001f, 1.1f, 100.0005f, 1e-9f, kInf, 1, kInf, kNan, -0.0f});
    expect_equal<bool>(isclose(x, y), {true, false, true, true, true, false, false, false, true});
    expect_equal<bool>(isclose(x, y, 1e-5, 1e-8, true),
                       {true, false, true, true, true, false, false, true, true});
    expect_equal<bool>(isclose(x, y, 0.2), {true, true, true, true, true, false, false, false, true});
    expect_equal<bool>(isclose(floats({1, kInf}), kInf), {false, true});
    expect_equal<bool>(isclose(Tensor({1, 5}), 1.000001), {true, false});
    expect_equal<bool>(isclose(Tensor({10}), Tensor({12}), 0, 2), {true});
    // float64
    expect_equal<bool>(isclose(Tensor({std::int64_t{1} << 62}), Tensor({(std::int64_t{1} << 62) + 1}), 0, 0),
                       {true});
    expect_equal<bool>(isclose(full({1}, 1.0, DType::Float16), full({1}, 1.001, DType::Float16), 1e-3, 0),
                       {true});
    expect_equal<bool>(isclose(Tensor({true}), Tensor({false})), {false});
  });
}

TEST(Compare, AllcloseAndArrayEqualAnswerInCpp) {
  in_every_mode([] {
    const Tensor x = counting({3, 4});
    EXPECT_TRUE(allclose(x, x * 1.000001f));
    EXPECT_FALSE(allclose(x, x + 1));
    EXPECT_TRUE(allclose(x, x(0), 0, 8));  // broadcasts
    EXPECT_TRUE(allclose(zeros(0), zeros(0)));
    EXPECT_TRUE(allclose(floats({2, 2}), 2));
    EXPECT_TRUE(array_equal(x, x.astype(DType::Int8)));
    EXPECT_FALSE(array_equal(x, x(0)));
    EXPECT_FALSE(array_equal(x, x.T()));
    EXPECT_FALSE(array_equal(x, x + 1));
    EXPECT_FALSE(array_equal(floats({kNan}), floats({kNan})));
    EXPECT_TRUE(array_equal(floats({kNan, 1}), floats({kNan, 1}), true));
    EXPECT_TRUE(array_equal(zeros({0, 3}), zeros({0, 3})));
    EXPECT_FALSE(array_equal(zeros({0, 3}), zeros({3, 0})));
  });
  expect_user_error([] { allclose(zeros(2), zeros(3)); },
                    "[allclose] float32 (2,) and float32 (3,) do not broadcast");
  expect_user_error([] { isclose(zeros(2), Tensor()); },
                    "[isclose] an operand is an empty Tensor: float32 (2,) and empty");
}

TEST(Compare, AnotherToleranceCompilesNothing) {
  const Tensor x = counting({100}), y = (x + 0.01f).eval();
  EXPECT_FALSE(allclose(x, y));
  const auto counted = test::count([&] {
    EXPECT_TRUE(allclose(x, y, 0.0, 0.1));
    EXPECT_FALSE(allclose(x, y, 0.0, 0.001));
  });
  EXPECT_EQ(counted.compiled, 0u);
}

// ---- names ----

TEST(Names, OfDtypesAndDevicesArePrinted) {
  EXPECT_EQ(printed(DType::BFloat16), "bfloat16");
  EXPECT_EQ(printed(zeros(2, DType::UInt8).dtype()), "uint8");
  EXPECT_EQ(name(DType::Float32), "float32");
  EXPECT_EQ(printed(Device::cuda(1)), "cuda:1");
  EXPECT_EQ(printed(Device::cpu()), "cpu");
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto t = static_cast<DType>(d);
    EXPECT_EQ(dtype_from_name(name(t)), t);
    EXPECT_EQ(dtype_from_name(info(t).short_name), t);
  }
  static_assert(dtype_from_name("f16") == DType::Float16 && !dtype_from_name("float"));
}

// ---- evaluation ----

TEST(Evaluate, SeveralTensorsAsArguments) {
  const Tensor x = counting({1000});
  const Tensor a = exp(x * 1e-3f), b = a + 1, c = sum(a);
  const auto counted = test::count([&] { eval(a, b, c); });
  EXPECT_EQ(counted.plan_misses + counted.plan_hits, 1u);
  EXPECT_TRUE(a.evaluated() && b.evaluated() && c.evaluated());
  Tensor part = counting({4});
  const Tensor twice = part * 2;
  eval(part(0), twice);
  eval(twice);
  EXPECT_TRUE(twice.evaluated());
}

// ---- rows ----

TEST(Rows, AreIteratedOver) {
  in_every_mode([] {
    const Tensor x = counting({3, 2});
    std::vector<float> first;
    for (const Tensor& row : x) {
      ASSERT_EQ(row.shape().str(), "(2,)");
      first.push_back(row(0).item<float>());
    }
    EXPECT_EQ(first, (std::vector<float>{0, 2, 4}));
    for (const Tensor& row : zeros({0, 2})) ADD_FAILURE() << row;
    float total = 0;
    for (Tensor row : floats({1, 2})) {
      row += 1;  // of the copy
      total += row.item<float>();
    }
    EXPECT_EQ(total, 5);
  });
  static_assert(std::ranges::forward_range<const Tensor> &&
                std::same_as<std::ranges::range_value_t<Tensor>, Tensor>);
  EXPECT_EQ(std::ranges::distance(counting({5, 1})), 5);
  const Tensor x = counting({3});
  const std::vector<Tensor> all(x.begin(), x.end());
  EXPECT_EQ(all[2].item<float>(), 2);
  expect_user_error(
      [] {
        for (const Tensor& row : Tensor(1)) ADD_FAILURE() << row;
      },
      "[begin] int32 () has no axis to go along");
}

TEST(Rows, AreIndexedByBrackets) {
  in_every_mode([] {
    Tensor x = counting({3, 2});
    expect_equal<float>(x[0], {0, 1});
    expect_equal<float>(x[-1], {4, 5});
    expect_equal<float>(x[range(1, none)], {2, 2}, {2, 3, 4, 5});
    x[1] = -1;
    EXPECT_EQ(x[2][1].item<float>(), 5);
    expect_equal<float>(x, {3, 2}, {0, 1, -1, -1, 4, 5});
    const Tensor& same = x;
    expect_equal<float>(same[2], {4, 5});
  });
}

// ---- masks and indices ----

TEST(Select, ReadsWhereAMaskIsTrue) {
  in_every_mode([] {
    Tensor x = floats({3, 2}, {1, -2, 3, -4, 5, -6});
    expect_equal<float>(x(x < 0), {-2, -4, -6});
    expect_equal<float>(x[x > 2], {3, 5});
    expect_equal<float>(x(Tensor({true, false, true})), {2, 2}, {1, -2, 5, -6});
    const Tensor fixed = x;
    expect_equal<float>(fixed(fixed > 4) * 2, {10});
    expect_equal<float>(x(x > 2) + x(x < -2), {-1, -1});
    EXPECT_EQ(sum(x(x < 0)).item<float>(), -12);
    EXPECT_EQ(x(x < 0).numel(), 3);
    EXPECT_EQ(x(x < 0)(1).item<float>() + x(x < 0)[2].item<float>(), -10);
    expect_equal<float>(x(x > 100), {});
    const auto held = x(x < 0);  // what it was
    x = x * 0;
    expect_equal<float>(held, {-2, -4, -6});
  });
}

TEST(Select, ReadsAtIndices) {
  in_every_mode([] {
    Tensor x = counting({4, 2});
    expect_equal<float>(x(Tensor({3, 0, -1})), {3, 2}, {6, 7, 0, 1, 6, 7});
    expect_equal<float>(x[Tensor(2)], {4, 5});
    expect_equal<float>(x(argsort(floats({3, 1, 2, 0}))), {4, 2}, {6, 7, 2, 3, 4, 5, 0, 1});
    EXPECT_EQ(x(Tensor({0, 1, 2, 3}, {2, 2})).shape().str(), "(2, 2, 2)");
  });
}

TEST(Select, WritesWhereAMaskIsTrue) {
  in_every_mode([] {
    Tensor x = floats({1, -2, 3, -4});
    const Tensor before = x;
    x(x < 0) = 0;
    expect_equal<float>(x, {1, 0, 3, 0});
    expect_equal<float>(before, {1, -2, 3, -4});
    x[x > 0] *= 10;
    expect_equal<float>(x, {10, 0, 30, 0});
    x(x == 0) = floats({7, 8});  // in order
    expect_equal<float>(x, {10, 7, 30, 8});
    x(x > 9) += floats({1, 2});
    expect_equal<float>(x, {11, 7, 32, 8});
    Tensor y = zeros({3, 2}, DType::Int32);
    y(Tensor({true, false, true})) = floats({1.9f, 2});  // a row for each, converted
    expect_equal<std::int32_t>(y, {3, 2}, {1, 2, 0, 0, 1, 2});
    y(Tensor({true, false, true})) = Tensor({10, 20, 30, 40}, {2, 2});
    expect_equal<std::int32_t>(y, {3, 2}, {10, 20, 0, 0, 30, 40});
    y(y > 15) -= 5;
    expect_equal<std::int32_t>(y, {3, 2}, {10, 15, 0, 0, 25, 35});
  });
}

TEST(Select, WritesAtIndices) {
  in_every_mode([] {
    Tensor x = zeros({4, 2});
    x(Tensor({1, -1})) = floats({5, 6});
    expect_equal<float>(x, {4, 2}, {0, 0, 5, 6, 0, 0, 5, 6});
    x[Tensor({0, 0})] = floats({2, 1}, {1, 2});  // the last one stays
    x(Tensor({3, 3})) += 1;                      // is written, not added up
    expect_equal<float>(x, {4, 2}, {2, 2, 5, 6, 0, 0, 6, 7});
  });
}

TEST(Select, NumbersAreWrittenWithoutEvaluatingTheMask) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  Tensor x = counting({1000});
  const auto counted = test::count([&] {
    for (int i = 0; i < 5; ++i) {
      x(x > 500) -= 100;
      x(x < 3) = 3;
    }
  });
  EXPECT_EQ(counted.plan_misses + counted.plan_hits, 0u);
  EXPECT_EQ(max(x).item<float>(), 500);
  EXPECT_EQ(min(x).item<float>(), 3);
}

TEST(Select, SaysWhatDoesNotFit) {
  Tensor x = zeros({2, 3});
  expect_user_error([&] { return Tensor(x(zeros(2))); },
                    "[index] needs a bool mask or integer indices, got float32 (2,)");
  expect_user_error([&] { return Tensor(x(Tensor({true}))); },
                    "[index] needs a bool mask over leading axes: x float32 (2, 3), mask bool (1,)");
  expect_user_error([&] { x(Tensor({true})) = 1; },
                    "[index] needs a bool mask over leading axes: x float32 (2, 3), mask bool (1,)");
  expect_user_error([&] { x(Tensor({true, false})) = zeros(2); },
                    "[index] float32 (2,) does not broadcast to (3,)");
  expect_user_error([&] { x(Tensor({true, false})) += zeros(2); },
                    "[index] float32 (2,) does not broadcast to (3,)");
  expect_user_error(
      [&] { x(x == 0) = zeros(2); },
      "[index] values float32 (2,) do not broadcast to the selected shape (6,) of float32 (2, 3)");
  expect_user_error([&] { return Tensor(x(Tensor())); }, "[index] an operand is an empty Tensor");
  expect_user_error([&] { x(Tensor()) = 1; }, "[index] an operand is an empty Tensor");
}

// ---- devices ----

TEST(Create, OnADevice) {
  const ModeScope lazy(Mode::Lazy);  // nothing is computed on a GPU that may not be there
  const Device gpu = Device::cuda(0), cpu = Device::cpu();
  const random::Key key(1);
  const std::vector<Tensor> there = {zeros(3, gpu),
                                     ones({2, 2}, {DType::Int8, gpu}),
                                     full(3, 2.5, gpu),
                                     zeros_like(zeros(2), gpu),
                                     full_like(zeros(2), 1, gpu),
                                     arange(5, gpu),
                                     arange(0, 5, 2, {DType::Int8, gpu}),
                                     arange(0.0, 1.0, 0.5, gpu),
                                     linspace(0, 1, 3, true, gpu),
                                     eye(2, 2, 0, gpu),
                                     random::uniform(key, 3, gpu),
                                     random::uniform(key, 3, 1, 2, gpu),
                                     random::normal(key, 3, gpu),
                                     random::normal(key, 3, 0, 2, {DType::Float64, gpu}),
                                     random::bits(key, 3, gpu),
                                     random::randint(key, 3, 0, 9, gpu),
                                     random::randint(key, 3, 0, std::int64_t{1} << 40, gpu),
                                     random::exponential(key, 3, gpu),
                                     random::permutation(key, 3, gpu)};
  for (const Tensor& x : there) EXPECT_EQ(x.device(), gpu) << x.shape();
  EXPECT_EQ(there[1].dtype(), DType::Int8);
  EXPECT_EQ((there[0] * 2).device(), gpu);
  EXPECT_EQ(ones(2, cpu).device(), cpu);
  expect_equal<std::int32_t>(arange(3, {DType::Int32, cpu}), {0, 1, 2});
  const Tensor here = Tensor({1.f, 2.f, 3.f}).to(cpu);
  expect_user_error([&] { here + there[0]; },
                    "[add] operands live on cpu and cuda:0; move one with to(device)");
  expect_user_error([] { zeros(3, Device::cuda(99)); },
                    "[zeros] cuda:99 is beyond the 13 devices of its kind that Kiln can name");
}

}  // namespace
}  // namespace kiln
