// The handle: making leaves, reading values, errors, printing.
#include "api/expect.h"

#include <sstream>

namespace kiln {
namespace {

using namespace testing;

TEST(TensorHandle, HoldsHostData) {
  std::vector<float> values{1, 2, 3, 4};
  const Tensor x = Tensor::from(values, {2, 2});
  values[0] = 9;  // copied
  EXPECT_TRUE(x.evaluated());
  EXPECT_EQ(x.to_vector<float>()[0], 1);
  EXPECT_EQ(x.rank(), 2);
  EXPECT_EQ(x.dim(-1), 2);
  EXPECT_EQ(x.device().str(), "cpu");
  EXPECT_EQ(Tensor(2.0f).dtype(), DType::Float32);
  EXPECT_EQ(Tensor(3).dtype(), DType::Int32);
  EXPECT_EQ(Tensor({1.0, 2.0}).dtype(), DType::Float64);
  EXPECT_EQ(Tensor(7).item<double>(), 7.0);
  EXPECT_EQ((Tensor(7) / 2).item<float>(), 3.5f);
  EXPECT_EQ(Tensor(300.7f).item<std::uint8_t>(), 255);
  EXPECT_EQ(x(1, 0).item<float>(), 3);
}

TEST(TensorHandle, ReadsViews) {
  const Tensor x = counting({2, 3});
  const Tensor turned = x.T();
  const float* p = turned.data<float>();
  EXPECT_EQ(std::vector<float>(p, p + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  expect_equal<float>(x(all(), range(none, none, -2)), {2, 2}, {2, 0, 5, 3});
  const Tensor y = x + 1;
  EXPECT_FALSE(config().mode == Mode::Lazy && y.evaluated());
  y.eval();
  EXPECT_TRUE(y.evaluated());
  eval({y * 2, y * 3});
}

TEST(TensorHandle, BorrowsMemory) {
  const float values[] = {1, 2, 3};
  int freed = 0;
  {
    Tensor sum_;
    {
      const Tensor x = Tensor::borrow(values, {3}, DType::Float32, [&](const void* p) { freed += p == values; });
      EXPECT_EQ(x.data(), values);
      sum_ = x + 1;
    }
    EXPECT_EQ(freed, config().mode == Mode::Lazy ? 0 : 1);  // the unevaluated sum still reads it
    expect_equal<float>(sum_, {2, 3, 4});
  }
  EXPECT_EQ(freed, 1);
  auto owner = std::make_shared<std::vector<float>>(2, 5.f);
  {
    const Tensor x = Tensor::borrow(owner->data(), {2}, DType::Float32, owner);
    EXPECT_EQ(owner.use_count(), 2);
    expect_equal<float>(x, {5, 5});
  }
  EXPECT_EQ(owner.use_count(), 1);
  expect_user_error([] { Tensor::borrow(nullptr, {2}, DType::Int8, std::shared_ptr<const void>()); },
                    "[borrow] null data for shape (2,)");
}

TEST(TensorHandle, ChecksUse) {
  const Tensor x = counting({2, 3});
  expect_user_error([] { Tensor().shape(); }, "[shape] an operand is an empty Tensor");
  expect_user_error([&] { x.item<float>(); }, "[item] needs a tensor of one element, this one is float32 (2, 3)");
  expect_user_error([&] { x.to_vector<double>(); },
                    "[copy_to] the tensor is float32 (2, 3), the destination float64");
  expect_user_error([&] { x.data<int>(); }, "[data] the tensor is float32 (2, 3), the pointer asked for int32");
  expect_user_error([&] { x.dim(2); }, "[dim] axis 2 is out of range for shape (2, 3)");
  EXPECT_THROW(eval({Tensor()}), UserError);
}

TEST(Print, SmallTensors) {
  EXPECT_EQ(floats({2, 2}, {1, -2.5f, 1e10f, kNan}).str(), "[[   1.,  -2.5],\n [1e+10,   nan]]  float32 (2, 2)");
  EXPECT_EQ(Tensor(3).str(), "3  int32 ()");
  EXPECT_EQ(Tensor({true, false}).str(), "[ true, false]  bool (2,)");
  EXPECT_EQ(zeros({0}).str(), "[]  float32 (0,)");
  EXPECT_EQ(zeros({2, 0}).str(), "[[],\n []]  float32 (2, 0)");
  EXPECT_EQ(Tensor().str(), "(empty Tensor)");
  EXPECT_EQ(floats({0.1f}).astype(DType::Float16).str(), "[0.1]  float16 (1,)");
  std::ostringstream out;
  out << Tensor({1, 2});
  EXPECT_EQ(out.str(), "[1, 2]  int32 (2,)");
}

TEST(Print, IsBounded) {
  EXPECT_EQ(arange(2000).str(), "[   0,    1,    2, ..., 1997, 1998, 1999]  int64 (2000,)");
  const Shape deep(std::vector<std::int64_t>(14, 2));
  EXPECT_LT(zeros(deep).str().size(), 1000u);
  EXPECT_LT(zeros({100, 100, 100}).str().size(), 2000u);
}

}  // namespace
}  // namespace kiln
