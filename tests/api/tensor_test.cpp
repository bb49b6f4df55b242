// The handle: making leaves, reading values, errors, printing.
#include "api/expect.h"
#include "needs_cpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <sstream>

namespace kiln {
namespace {

using namespace testing;

TEST(TensorHandle, HoldsHostData) {
  KILN_NEEDS_CPU();
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
  expect_equal<float>(x(slice::all(), range(none, none, -2)), {2, 2}, {2, 0, 5, 3});
  const Tensor y = x + 1;
  EXPECT_FALSE(config().mode == Mode::Lazy && y.evaluated());
  y.eval();
  EXPECT_TRUE(y.evaluated());
  eval({y * 2, y * 3});
}

TEST(TensorHandle, BorrowsMemory) {
  KILN_NEEDS_CPU();
  const float values[] = {1, 2, 3};
  int freed = 0;
  {
    Tensor sum_;
    {
      const Tensor x =
          Tensor::borrow(values, {3}, DType::Float32, [&](const void* p) { freed += p == values; });
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
  expect_user_error([] { Tensor::borrow(nullptr, {2}, DType::Int8, [](const void*) {}); },
                    "[borrow] null data for shape (2,)");
}

TEST(TensorHandle, TakesAndGivesSpans) {
  float c_array[] = {1, 2, 3};
  const std::array<std::int16_t, 2> array{4, 5};
  expect_equal<float>(Tensor::from(c_array), {1, 2, 3});
  expect_equal<std::int16_t>(Tensor::from(array, {2, 1}), {2, 1}, {4, 5});
  expect_equal<float>(Tensor::from(std::span<float>(c_array).subspan(1)), {2, 3});
  expect_equal<bool>(Tensor::from(std::vector<bool>{true, false}), {true, false});
  expect_equal<bool>(Tensor::from(std::vector<bool>{true, false}, {2, 1}), {2, 1}, {true, false});
  const Tensor x = counting({2, 2});
  const std::span<const float> rows = x.span<float>();
  EXPECT_EQ(std::vector<float>(rows.begin(), rows.end()), (std::vector<float>{0, 1, 2, 3}));
  const Tensor turned = x.T();
  EXPECT_EQ(turned.span<float>()[1], 2);
  float out[4];
  turned.copy_to(std::span(out));
  EXPECT_EQ(out[1], 2);
  EXPECT_TRUE(zeros({0}).span<float>().empty());
  expect_user_error([&] { x.span<double>(); },
                    "[data] the tensor is float32 (2, 2), the pointer asked for float64");
  expect_user_error([&] { x.copy_to(std::span(out).subspan(1)); },
                    "[copy_to] the tensor is float32 (2, 2), the destination has room for 3 elements");
  expect_user_error([&] { Tensor::from(std::vector<bool>{true}, {2}); },
                    "[from] 1 values for shape (2,), which has 2");
  expect_user_error([] { Tensor::copy_of(nullptr, {2}, DType::Int8); }, "[from] null data for shape (2,)");
}

TEST(TensorHandle, TakesAVectorOver) {
  KILN_NEEDS_CPU();
  std::vector<double> values{1, 2, 3, 4};
  const void* const memory = values.data();
  const Tensor x = Tensor::take(std::move(values), {2, 2});
  EXPECT_EQ(x.data(), memory);
  expect_equal<double>(x + 1, {2, 2}, {2, 3, 4, 5});
  expect_equal<int>(Tensor::take(std::vector<int>{7}), {7});
  expect_user_error([] { Tensor::take(std::vector<int>{7}, {2}); },
                    "[take] 1 values for shape (2,), which has 2");
}

TEST(TensorHandle, BorrowsAnyLayout) {
  KILN_NEEDS_CPU();
  std::vector<float> values(12);
  for (int i = 0; i < 12; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const auto keep = std::make_shared<int>();
  using Strides = std::vector<std::int64_t>;
  const auto borrow = [&](int at, const Shape& shape, const Strides& strides) {
    return Tensor::borrow(values.data() + at, shape, strides, DType::Float32,
                          std::shared_ptr<const void>(keep));
  };
  const Tensor columns = borrow(0, {4, 3}, {1, 4});
  expect_equal<float>(columns, {4, 3}, {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  expect_equal<float>(sum(columns, 0), {6, 22, 38});
  const Tensor backward = borrow(11, {3, 2}, {-4, -1});
  expect_equal<float>(backward + 0, {3, 2}, {11, 10, 7, 6, 3, 2});
  expect_equal<float>(backward(1) * 2, {14, 12});
  const Tensor mixed = borrow(3, {2, 3}, {4, -1});
  expect_equal<float>(mixed * 1, {2, 3}, {3, 2, 1, 7, 6, 5});
  expect_equal<float>(borrow(5, {2, 3}, {0, 0}) + 1, {2, 3}, {6, 6, 6, 6, 6, 6});
  // a sliding window
  expect_equal<float>(borrow(0, {3, 3}, {1, 1}) + 0, {3, 3}, {0, 1, 2, 1, 2, 3, 2, 3, 4});
  expect_equal<float>(borrow(0, {2, 1, 3}, {3, INT64_MAX, 1}), {2, 1, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(borrow(0, {2, 1, 3}, {3, 77, 1}).data(), values.data());  // row-major after all
  EXPECT_EQ(borrow(0, {0, 3}, {INT64_MAX, INT64_MAX}).numel(), 0);
  EXPECT_EQ(keep.use_count(), 4);
  int freed = 0;
  const float* const last = &values[11];
  Tensor::borrow(last, {12}, Strides{-1}, DType::Float32, [&](const void* p) { freed += p == last; });
  EXPECT_EQ(freed, 1);
  expect_user_error([&] { borrow(0, {3}, {1, 1}); }, "[borrow] strides (1, 1) for shape (3,)");
  expect_user_error(
      [&] { borrow(0, {3, 3}, {INT64_MAX / 2, 1}); },
      "[borrow] strides (4611686018427387903, 1) of float32 (3, 3) reach more than 2^63 - 1 bytes");
}

TEST(TensorHandle, BorrowsTypedMemory) {
  KILN_NEEDS_CPU();
  const std::vector<std::int32_t> values{1, 2, 3, 4};
  const auto nothing = [](const void*) {};
  EXPECT_EQ(Tensor::borrow(values.data(), {2, 2}, nothing).data(), values.data());
  EXPECT_EQ(Tensor::borrow(values, {2, 2}, nothing).dtype(), DType::Int32);
  EXPECT_EQ(Tensor::borrow(std::span(values).subspan(2), {2}, nothing).data(), values.data() + 2);
  expect_user_error([&] { Tensor::borrow(values, {3}, nothing); },
                    "[borrow] 4 values for shape (3,), which has 3");
  const void* const odd = reinterpret_cast<const char*>(values.data()) + 1;
  EXPECT_THROW(Tensor::borrow(odd, {1}, DType::Int32, nothing), UserError);
  EXPECT_NO_THROW(Tensor::borrow(odd, {1}, DType::Int8, nothing));
}

/// Vector loads of the last elements must not touch what lies behind them.
TEST(TensorHandle, BorrowedMemoryIsReadToItsEndOnly) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  mprotect(memory, page, PROT_NONE);
  mprotect(memory + 2 * page, page, PROT_NONE);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (std::int64_t n : {1, 3, 7, 17, 33, 130}) {
      const std::int64_t bytes = n * size_of(dtype);
      const auto both = [&](std::byte* at, std::vector<std::int64_t> strides) {
        const Tensor x = Tensor::borrow(at, {n}, strides, dtype, [](const void*) {});
        (x.astype(DType::Float32) + 1).eval();
        sum(x.astype(DType::Float32)).eval();
      };
      both(memory + page, {1});
      both(memory + 2 * page - bytes, {1});
      both(memory + 2 * page - size_of(dtype), {-1});
    }
  }
  munmap(memory, 3 * page);
}

TEST(TensorHandle, ChecksUse) {
  const Tensor x = counting({2, 3});
  expect_user_error([] { Tensor().shape(); }, "[shape] an operand is an empty Tensor");
  expect_user_error([&] { x.item<float>(); },
                    "[item] needs a tensor of one element, this one is float32 (2, 3)");
  expect_user_error([&] { x.to_vector<double>(); },
                    "[copy_to] the tensor is float32 (2, 3), the destination float64");
  expect_user_error([&] { x.data<int>(); },
                    "[data] the tensor is float32 (2, 3), the pointer asked for int32");
  expect_user_error([&] { x.dim(2); }, "[dim] axis 2 is out of range for float32 (2, 3)");
  EXPECT_THROW(eval({Tensor()}), UserError);
}

TEST(Print, SmallTensors) {
  EXPECT_EQ(floats({2, 2}, {1, -2.5f, 1e10f, kNan}).str(),
            "[[   1.,  -2.5],\n [1e+10,   nan]]  float32 (2, 2)");
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

TEST(Print, NansHaveNoSign) {
  const float negative = std::copysign(kNan, -1.0f);
  EXPECT_EQ(floats({negative, 1}).str(), "[nan,  1.]  float32 (2,)");
  EXPECT_EQ(Tensor(static_cast<double>(negative)).str(), "nan  float64 ()");
  EXPECT_EQ(Tensor(float16(negative)).str(), "nan  float16 ()");
  expect_user_error([&] { bitwise_and(zeros({2}), negative); },
                    "[bitwise_and] does not take float32 operands: float32 (2,) and nan");
}

TEST(Print, Shapes) {
  std::ostringstream out;
  out << Shape{2, 3} << Shape{};
  EXPECT_EQ(out.str(), "(2, 3)()");
}

TEST(TensorHandle, TakesBothIntegersOf64Bits) {
  EXPECT_EQ(Tensor(3L).dtype(), DType::Int64);
  EXPECT_EQ(Tensor(3LL).dtype(), DType::Int64);
  EXPECT_EQ(Tensor(3UL).dtype(), DType::UInt64);
  EXPECT_EQ(Tensor(3ULL).dtype(), DType::UInt64);
  const std::vector<long long> values{1, -2};
  const Tensor x = Tensor::from(values) * 2;
  expect_equal<std::int64_t>(x, {2, -4});
  EXPECT_EQ(x.to_vector<long long>(), (std::vector<long long>{2, -4}));
  EXPECT_EQ(x(1).item<long long>(), -4);
  EXPECT_EQ(x.span<long long>()[0], 2);
  EXPECT_EQ(Tensor({1ULL, 2ULL}).dtype(), DType::UInt64);
}

TEST(TensorHandle, BorrowedMemoryNeedsAKeeper) {
  const float values[] = {1, 2, 3};
  const std::string text = "[borrow] neither an owner nor a deleter for float32 (3,)";
  expect_user_error([&] { Tensor::borrow(values, {3}, std::shared_ptr<const void>()); }, text);
  expect_user_error([&] { Tensor::borrow(values, {3}, std::function<void(const void*)>()); }, text);
  const std::int64_t strides[] = {1};
  expect_user_error(
      [&] { Tensor::borrow(values, {3}, strides, DType::Float32, std::shared_ptr<const void>()); }, text);
  EXPECT_NO_THROW(Tensor::borrow(values, {0}, std::shared_ptr<const void>()));  // nothing is borrowed
  // An owner of nothing but a deleter is one.
  EXPECT_NO_THROW(Tensor::borrow(values, {3}, std::shared_ptr<const void>(nullptr, [](const void*) {})));
}

}  // namespace
}  // namespace kiln
