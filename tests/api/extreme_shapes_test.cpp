// Shapes at the ends of what is possible, on the default device: more than 2^31 elements, none, rank 8, and
// views that begin anywhere. Values are whole numbers, so every order of evaluation gives the same. What
// writes gigabytes runs on a GPU, or with KILN_TEST_LONG=1.
#include "api/expect.h"
#include "modes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>

namespace kiln {
namespace {

using testing::expect_equal;
using testing::ModeScope;

// ---- more than 2^31 elements ----

constexpr std::int64_t kLong = (std::int64_t{1} << 31) + 40001;

/// Bytes of 0, but 1, 2 and 3 in the first, the middle and the last place: pages that nobody wrote take no
/// memory.
class LongBytes {
 public:
  LongBytes() {
    data_ = static_cast<std::uint8_t*>(
        mmap(nullptr, kLong, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    data_[0] = 1;
    data_[kMiddle] = 2;
    data_[kLong - 1] = 3;
  }
  ~LongBytes() { munmap(data_, kLong); }
  Tensor tensor() const {
    return Tensor::borrow(data_, {kLong}, [](const void*) {});
  }
  static constexpr std::int64_t kMiddle = (std::int64_t{1} << 31) + 5;

 private:
  std::uint8_t* data_;
};

#define KILN_WRITES_GIGABYTES()                                   \
  if (config().device == "cpu" && !std::getenv("KILN_TEST_LONG")) \
  GTEST_SKIP() << "writes gigabytes: KILN_TEST_LONG=1"

class MoreThanTwoToThe31 : public ::testing::Test {
 protected:
  const LongBytes bytes;
  Tensor x = bytes.tensor();
  static Slice last(std::int64_t n) { return range(-n, none); }
};

TEST_F(MoreThanTwoToThe31, Reduces) {  // FAULTS 33
  EXPECT_EQ(sum(x.astype(DType::Int64)).item<std::int64_t>(), 6);
  EXPECT_EQ(max(x).item<std::uint8_t>(), 3);
  EXPECT_EQ(argmax(x).item<std::int64_t>(), kLong - 1);
  EXPECT_EQ(argmax(x == 2).item<std::int64_t>(), LongBytes::kMiddle);
  EXPECT_EQ(count_nonzero(x).item<std::int64_t>(), 3);
}

TEST_F(MoreThanTwoToThe31, ReducesByRowsAndColumns) {  // FAULTS 33
  const Tensor rows = x(range(none, std::int64_t{65536} * 32768)).reshape({65536, 32768});
  const Tensor columns = sum(rows.astype(DType::Int32), 0);
  EXPECT_EQ(columns(0).item<std::int32_t>(), 1);
  EXPECT_EQ(sum(columns).item<std::int64_t>(), 1);
  const Tensor tail = x(last(std::int64_t{65536} * 32768)).reshape({65536, 32768});
  const Tensor by_row = sum(tail.astype(DType::Int32), 1);
  EXPECT_EQ(by_row(-1).item<std::int32_t>(), 3);
  EXPECT_EQ(sum(by_row).item<std::int64_t>(), 5);
}

TEST_F(MoreThanTwoToThe31, Maps) {  // FAULTS 33
  KILN_WRITES_GIGABYTES();
  const Tensor y = (x * 2 + 1).eval();
  expect_equal<std::uint8_t>(y(last(3)), {1, 1, 7});
  expect_equal<std::uint8_t>(y(range(0, 2)), {3, 1});
  EXPECT_EQ(y(LongBytes::kMiddle).item<std::uint8_t>(), 5);
}

TEST_F(MoreThanTwoToThe31, ShowsViews) {  // FAULTS 33
  expect_equal<std::uint8_t>((flip(x) + 1)(last(2)), {1, 2});
  const Tensor second = x(range(none, none, 2));
  EXPECT_EQ(second.numel(), (kLong + 1) / 2);
  EXPECT_EQ(second(-1).item<std::uint8_t>(), 3);
  const Tensor odd = x(range(1, none, 2));  // kMiddle is odd
  EXPECT_EQ(odd(LongBytes::kMiddle / 2).item<std::uint8_t>(), 2);
}

TEST_F(MoreThanTwoToThe31, IsJoined) {  // FAULTS 33
  KILN_WRITES_GIGABYTES();
  const Tensor joined = concat({x, x});
  expect_equal<std::uint8_t>(joined(range(kLong - 1, kLong + 1)), {3, 1});
  EXPECT_EQ(sum(joined.astype(DType::Int64)).item<std::int64_t>(), 12);
}

TEST_F(MoreThanTwoToThe31, Transposes) {  // FAULTS 33
  KILN_WRITES_GIGABYTES();
  constexpr std::int64_t kRows = 65537, kColumns = 32768;
  static_assert(kRows * kColumns < kLong && kRows * kColumns > (std::int64_t{1} << 31));
  const Tensor t = (x(last(kRows * kColumns)).reshape({kRows, kColumns}).T() + 0).eval();
  EXPECT_EQ(t(-1, -1).item<std::uint8_t>(), 3);
  const std::int64_t at = LongBytes::kMiddle - (kLong - kRows * kColumns);
  EXPECT_EQ(t(at % kColumns, at / kColumns).item<std::uint8_t>(), 2);
  EXPECT_EQ(count_nonzero(t).item<std::int64_t>(), 2);
}

TEST_F(MoreThanTwoToThe31, IsGatheredFrom) {  // FAULTS 33
  const Tensor places(std::initializer_list<std::int64_t>{0, LongBytes::kMiddle, kLong - 1, -1, 7});
  expect_equal<std::uint8_t>(take(x, places), {1, 2, 3, 3, 0});
}

TEST(MoreThanTwoToThe31Computed, CountsItsPositions) {  // FAULTS 33
  KILN_WRITES_GIGABYTES();
  const Tensor i = arange(kLong, DType::Int64);
  EXPECT_EQ(max(i).item<std::int64_t>(), kLong - 1);
  EXPECT_EQ(sum((i % 1000 == 999).astype(DType::Int64)).item<std::int64_t>(), kLong / 1000);
  expect_equal<std::int64_t>(i(range(-2, none)), {kLong - 2, kLong - 1});
}

// ---- no elements ----

TEST(NoElements, OfAnyShapeComputeToNoElements) {  // FAULTS 34
  testing::in_every_mode([] {
    for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}, Shape{2, 0, 4}, Shape{0, 0}}) {
      const Tensor x = zeros(shape);
      for (const Tensor& y : {exp(x) + 1, x * x, flip(x), transpose(x), concat({x, x}), where(x > 0, x, -x),
                              x.reshape({0}), x.astype(DType::BFloat16), cumsum(x), sort(x)})
        EXPECT_TRUE(y.eval().evaluated() && y.numel() == 0) << shape.str();
      EXPECT_EQ(sum(x).item<float>(), 0);
      EXPECT_EQ(prod(x).item<float>(), 1);
      EXPECT_TRUE(all(x).item<bool>());
      EXPECT_FALSE(any(x).item<bool>());
      EXPECT_THROW(max(x), UserError);
      EXPECT_THROW(argmin(x), UserError);
    }
  });
}

TEST(NoElements, MeetElementsInSumsProductsAndJoins) {  // FAULTS 34, 45
  testing::in_every_mode([] {
    expect_equal<float>(sum(zeros({3, 0}), 1), {0, 0, 0});
    expect_equal<float>(prod(zeros({0, 2}), 0), {1, 1});
    expect_equal<float>(matmul(zeros({2, 0}), zeros({0, 3})), {2, 3}, std::vector<float>(6, 0));
    EXPECT_EQ(matmul(zeros({0, 4}), ones({4, 3})).shape().str(), Shape({0, 3}).str());
    expect_equal<float>(concat({zeros({0, 2}), ones({1, 2})}), {1, 2}, {1, 1});
    EXPECT_EQ((zeros({1, 0, 3}) + ones({5, 1, 3})).eval().shape().str(), Shape({5, 0, 3}).str());
    EXPECT_THROW(zeros({2, 0, 3}) + ones({2, 4, 3}), UserError);
    EXPECT_EQ(take(ones({5, 2}), zeros({0}, DType::Int64), 0).eval().shape().str(), Shape({0, 2}).str());
    expect_equal<float>(pad(zeros({0}), {{1, 2}}, 7), {7, 7, 7});
  });
}

// ---- views that begin anywhere ----

/// What `f` makes of x is what the interpreter makes of it.
template <class F>
void expect_as_interpreted(const Tensor& x, F f) {
  const auto bytes = [&](Mode mode) {
    const ModeScope scope(mode);
    const Tensor y = f(x);
    std::vector<std::byte> out(static_cast<std::size_t>(y.numel() * size_of(y.dtype())));
    y.copy_to(out.data(), y.dtype());
    return out;
  };
  EXPECT_EQ(bytes(Mode::Lazy), bytes(Mode::Interpret));
}

class UnalignedViews : public ::testing::TestWithParam<DType> {};

TEST_P(UnalignedViews, OfEveryBeginAndLengthAreReadRight) {
  const Tensor x = (arange(700, DType::Int32) % 7).astype(GetParam()).eval();
  for (std::int64_t begin = 0; begin < 17; ++begin)
    for (std::int64_t length : {1, 15, 16, 17, 33, 128, 600}) {
      SCOPED_TRACE(::testing::Message() << "from " << begin << ", " << length << " elements");
      expect_as_interpreted(
          x, [&](const Tensor& t) { return t(range(begin, begin + length)) + t(range(0, length)); });
      expect_as_interpreted(x, [&](const Tensor& t) { return sum(t(range(begin, begin + length)), 0); });
    }
}

TEST_P(UnalignedViews, OfRowsOfOddStride) {
  const Tensor x = (arange(37 * 131, DType::Int32) % 5).astype(GetParam()).reshape({37, 131}).eval();
  for (std::int64_t begin : {0, 1, 3, 8}) {
    expect_as_interpreted(x, [&](const Tensor& t) { return sum(t(slice::all(), range(begin, none)), 1); });
    expect_as_interpreted(x,
                          [&](const Tensor& t) { return max(t(slice::all(), range(begin, begin + 64)), 0); });
    expect_as_interpreted(
        x, [&](const Tensor& t) { return t(range(begin, none, 2), range(none, begin, -3)) + t(0, 0); });
  }
}

TEST_P(UnalignedViews, AreWrittenThrough) {
  const Tensor x = (arange(300, DType::Int32) % 5).astype(GetParam()).eval();
  for (std::int64_t begin : {0, 1, 5, 16})
    expect_as_interpreted(
        x, [&](const Tensor& t) { return slice_update(t, {range(begin, begin + 201)}, t(range(99, 300))); });
}

TEST_P(UnalignedViews, OfBorrowedMemory) {
  const std::size_t size = static_cast<std::size_t>(size_of(GetParam()));
  std::vector<std::byte> host(401 * size);
  for (std::size_t i = 0; i < host.size(); i += size) host[i] = std::byte(i / size % 2);
  for (std::size_t first : {1, 2, 3, 7})
    expect_as_interpreted(Tensor::borrow(host.data() + first * size, {390}, GetParam(), [](const void*) {}),
                          [](const Tensor& t) { return t + t; });
}

INSTANTIATE_TEST_SUITE_P(DTypes, UnalignedViews,
                         ::testing::Values(DType::UInt8, DType::Int16, DType::BFloat16, DType::Float16,
                                           DType::Float32, DType::Int64, DType::Float64),
                         [](const auto& param) { return std::string(name(param.param)); });

// ---- rank 8 ----

TEST(RankEight, IsPermutedReducedAndSliced) {  // FAULTS 46
  const Shape shape{2, 3, 4, 5, 2, 3, 2, 3};
  for (const DType dtype : {DType::Float32, DType::UInt8, DType::Int64}) {
    const Tensor x = (arange(shape.numel(), DType::Int32) % 101).astype(dtype).reshape(shape).eval();
    std::vector<int> order(8);
    std::iota(order.begin(), order.end(), 0);
    for (int turn = 0; turn < 40; ++turn) {
      std::uint64_t state = static_cast<std::uint64_t>(turn) * 0x9e3779b97f4a7c15u + 7;
      for (std::size_t i = 7; i > 0; --i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i], order[(state >> 33) % (i + 1)]);
      }
      SCOPED_TRACE(turn);
      expect_as_interpreted(x, [&](const Tensor& t) { return permute_dims(t, order) + 0; });
      expect_as_interpreted(x, [&](const Tensor& t) { return permute_dims(t, order) + t.reshape({-1})(0); });
      expect_as_interpreted(x, [&](const Tensor& t) { return sum(permute_dims(t, order), {1, 4, 6}); });
      expect_as_interpreted(x, [&](const Tensor& t) {
        return flip(permute_dims(t, order), {0, 3, 7})(1, ellipsis, range(none, none, -1));
      });
    }
  }
}

}  // namespace
}  // namespace kiln
