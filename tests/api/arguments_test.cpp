// What arguments convert from: what compiles means what it says, and what would mean something else does not
// compile.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <array>
#include <list>
#include <ranges>

namespace kiln {
namespace {

using namespace testing;

// ---- calls that must not compile ----

template <class... A>
concept Sums = requires(const Tensor& x, A... a) { sum(x, a...); };
template <class... A>
concept Sorts = requires(const Tensor& x, A... a) { sort(x, a...); };
template <class... A>
concept Positions = requires(const Tensor& x, A... a) { argmax(x, a...); };
template <class... A>
concept Scans = requires(const Tensor& x, A... a) { cumsum(x, a...); };
template <class... A>
concept Swaps = requires(const Tensor& x, A... a) { swapaxes(x, a...); };
template <class... A>
concept Softmaxes = requires(const Tensor& x, A... a) { nn::softmax(x, a...); };
template <class... A>
concept Repeats = requires(const Tensor& x, A... a) { repeat(x, a...); };
template <class... A>
concept Splits = requires(const Tensor& x, A... a) { split(x, a...); };
template <class... A>
concept Tops = requires(const Tensor& x, A... a) { topk(x, a...); };
template <class... A>
concept Concats = requires(const std::vector<Tensor>& x, A... a) { concat(x, a...); };
template <class... A>
concept Extends = requires(const Tensor& x, A... a) { x.dim(a...); };
template <class... A>
concept Indexes = requires(const Tensor& x, A... a) { x(a...); };
template <class... A>
concept Zeros = requires(A... a) { zeros(a...); };
template <class... A>
concept Ranges = requires(A... a) { range(a...); };
template <class... A>
concept Spaces = requires(A... a) { linspace(0, 1, a...); };
enum Unscoped { kTwo = 2 };
enum class Scoped { Two = 2 };

TEST(Arguments, AnAxisIsAnInteger) {
  static_assert(Sums<> && Sums<int> && Sums<std::size_t> && Sums<std::int8_t> && Sums<std::vector<long>> &&
                Sums<Unscoped>);
  static_assert(!Sums<bool> && !Sums<double> && !Sums<float> && !Sums<Scoped> && !Sums<const char*> &&
                !Sums<Tensor>);
  static_assert(!Sums<std::vector<bool>> && !Sums<std::vector<double>>);
  static_assert(Sorts<int, bool> && !Sorts<bool> && !Sorts<double> && !Sorts<int, int> &&
                !Sorts<int, const char*>);
  static_assert(Positions<int> && Positions<std::nullopt_t> && Positions<std::optional<int>>);
  static_assert(!Positions<bool> && !Positions<double> && !Positions<std::optional<bool>>);
  static_assert(Scans<int, bool, bool> && !Scans<bool> && !Scans<float>);
  static_assert(Swaps<int, long> && !Swaps<bool, int> && !Swaps<int, double>);
  static_assert(Softmaxes<int> && !Softmaxes<bool> && !Softmaxes<double>);
  static_assert(Concats<int> && !Concats<bool> && Extends<int> && !Extends<bool> && !Extends<double>);
  expect_equal<float>(sum(counting({2, 3}), Axes(std::vector<std::size_t>{0, 1})), Shape(), {15});
  expect_equal<float>(sum(counting({2, 3}), std::array{0}), {3, 5, 7});
  expect_equal<float>(sum(counting({2, 3}), {-1}), {3, 12});
  expect_user_error([] { sum(zeros({2}), std::size_t{1} << 63); },
                    "[sum] axis 9223372036854775807 is out of range for float32 (2,)");
  expect_user_error([] { sum(zeros({2}), std::vector<int>(17, 0)); }, "[axes] more than 16 axes");
}

TEST(Arguments, AFlagIsABool) {
  // keepdims, no second axis
  static_assert(Sums<int, bool> && !Sums<int, int> && !Sums<int, double> && !Sums<int, const char*>);
  static_assert(Tops<int, int, bool> && !Tops<int, int, int>);
  EXPECT_EQ(sum(zeros({2, 3}), 1, true).shape().str(), "(2, 1)");
}

TEST(Arguments, ACountIsAnInteger) {
  static_assert(Repeats<int, int> && Repeats<std::size_t, int> && !Repeats<bool, int> &&
                !Repeats<double, int>);
  static_assert(Tops<std::size_t> && !Tops<double> && !Tops<bool> && Spaces<int> && !Spaces<double> &&
                !Spaces<bool>);
  static_assert(Ranges<int, int> && Ranges<std::nullopt_t, std::size_t> && !Ranges<bool> &&
                !Ranges<int, double>);
  static_assert(Indexes<int> && Indexes<std::size_t> && Indexes<Unscoped> && !Indexes<bool> &&
                !Indexes<double>);
}

TEST(Arguments, AShapeIsOfIntegers) {
  static_assert(Zeros<int> && Zeros<std::size_t> && Zeros<std::vector<int>> && Zeros<Shape> &&
                Zeros<int, DType>);
  static_assert(!Zeros<bool> && !Zeros<double> && !Zeros<std::vector<double>> && !Zeros<std::vector<bool>>);
  const std::vector<float> v(5);
  EXPECT_EQ(zeros({v.size(), 4}).shape().str(), "(5, 4)");
  EXPECT_EQ(zeros(3).shape().str(), "(3,)");
  EXPECT_EQ(zeros({}).shape().str(), "()");
  EXPECT_EQ(zeros(std::vector<std::size_t>{2, 3}).shape().str(), "(2, 3)");
  EXPECT_EQ(zeros(std::vector<std::int64_t>{2, 3}).shape().str(), "(2, 3)");
  const int raw[] = {4, 5};
  EXPECT_EQ(zeros(std::span<const int>(raw)).shape().str(), "(4, 5)");
  EXPECT_EQ(zeros(std::array<std::uint8_t, 3>{1, 2, 255}).shape().str(), "(1, 2, 255)");
  EXPECT_EQ(zeros(std::list<short>{7}).shape().str(), "(7,)");
  EXPECT_EQ(zeros(std::views::iota(1, 4)).shape().str(), "(1, 2, 3)");
  EXPECT_EQ(counting({6}).reshape({2, v.size() - 2}).shape().str(), "(2, 3)");
  EXPECT_EQ(counting({6}).reshape({3, -1}).shape().str(), "(3, 2)");
  expect_user_error([] { zeros(~std::size_t{0}); },
                    "[zeros] shape (9223372036854775807,) of float32 has more bytes than 63 bits can count");
  expect_user_error([] { zeros(std::vector<int>(17, 1)); }, "[shape] rank 17 is above the limit of 16");
}

TEST(Arguments, AListOfPositionsIsNoNumberOfParts) {
  static_assert(Splits<int> && Splits<std::size_t> && Splits<std::vector<std::size_t>> && !Splits<bool> &&
                !Splits<double>);
  const Tensor x = arange(6);
  EXPECT_EQ(split(x, 3).size(), 3u);
  const std::vector<Tensor> parts = split(x, {4});
  ASSERT_EQ(parts.size(), 2u);
  expect_equal<std::int64_t>(parts[0], {0, 1, 2, 3});
  expect_equal<std::int64_t>(parts[1], {4, 5});
  const std::vector<int> v(2);
  EXPECT_EQ(split(x, {v.size(), 5})[1].numel(), 3);
  EXPECT_EQ(split(x, std::vector<int>{1, 2})[2].numel(), 4);
  EXPECT_EQ(split(counting({2, 6}), {1, 4}, 1)[1].shape().str(), "(2, 3)");
}

// ---- host data ----

TEST(Arguments, ListsHaveTheDtypeOfTheirElements) {
  expect_equal<std::int32_t>(Tensor::from({0, 1, 1}), {0, 1, 1});
  expect_equal<std::int32_t>(Tensor({0, 1, 1}), {0, 1, 1});
  expect_equal<std::int64_t>(Tensor::from({0l, 1l}), {0, 1});
  expect_equal<double>(Tensor::from({0.0, 1.0}), {0, 1});
  expect_equal<bool>(Tensor::from({true, false}), {true, false});
  expect_equal<bool>(Tensor::from(std::vector<bool>{true, false}), {true, false});
  expect_equal<std::int32_t>(Tensor::from({0, 1, 1, 0}, {2, 2}), {2, 2}, {0, 1, 1, 0});
  expect_user_error([] { return Tensor::from({0, 1, 1}, {2, 2}); },
                    "[from] 3 values for shape (2, 2), which has 4");
}

TEST(Arguments, ATensorIsMadeOfWhatHoldsNumbers) {
  expect_equal<float>(Tensor({1.f, 2.f, 3.f, 4.f}, {2, 2}), {2, 2}, {1, 2, 3, 4});
  expect_equal<float>(Tensor({5.f}, {}), Shape(), {5});
  const std::vector<float> v{1, 2, 3};
  expect_equal<float>(Tensor(v), {1, 2, 3});
  expect_equal<float>(Tensor(v, {3, 1}), {3, 1}, {1, 2, 3});
  expect_equal<bool>(Tensor(std::vector<bool>{true, false}, {2, 1}), {2, 1}, {true, false});
  expect_equal<double>(Tensor(std::array{0.5, 1.5}), {0.5, 1.5});
  expect_equal<std::int64_t>(Tensor(std::span<const std::int64_t>()), {});
  expect_user_error([&] { return Tensor(v, {2, 2}); }, "[from] 3 values for shape (2, 2), which has 4");
  static_assert(!std::is_constructible_v<Tensor, const char*> &&
                !std::is_constructible_v<Tensor, const float*>);
  static_assert(!std::is_convertible_v<float, Tensor> && !std::is_convertible_v<std::vector<float>, Tensor>);
}

TEST(Arguments, AnEmptyListIsATensorOfNoElements) {
  const Tensor none({});
  ASSERT_TRUE(none.valid());
  expect_equal<float>(none, {});
  EXPECT_EQ(none.shape().str(), "(0,)");
  EXPECT_FALSE(Tensor{}.valid());
  EXPECT_FALSE(Tensor().valid());
  const Tensor handle = {};
  EXPECT_FALSE(handle.valid());
}

// ---- parts of tensors ----

template <class X>
concept AddsTo = requires(X&& x, float y) { std::forward<X>(x) += y; };
template <class X>
concept AssignsTo = requires(X&& x, const Tensor& y) { std::forward<X>(x) = y; };
template <class X>
concept UpdatesAPartOf = requires(X&& x, const Tensor& y) { std::forward<X>(x)(0) = y; };
template <class X>
concept AddsToAPartOf = requires(X&& x, float y) { std::forward<X>(x)[0] += y; };
template <class X>
concept UpdatesASelectionOf = requires(X&& x, const Tensor& y) { std::forward<X>(x)(y) = y; };

TEST(Arguments, APartWithANameIsNoPlaceToWriteTo) {
  static_assert(AddsTo<Tensor&> && AddsTo<SliceRef> && !AddsTo<SliceRef&> && !AddsTo<const SliceRef&> &&
                !AddsTo<Tensor>);
  static_assert(AssignsTo<Tensor&> && AssignsTo<SliceRef> && !AssignsTo<SliceRef&> && !AssignsTo<Tensor>);
  static_assert(AddsTo<SelectRef> && !AddsTo<SelectRef&> && AssignsTo<SelectRef> && !AssignsTo<SelectRef&>);
  static_assert(UpdatesAPartOf<Tensor&> && !UpdatesAPartOf<const Tensor&> && !UpdatesAPartOf<Tensor>);
  // x(0)(1) = y
  static_assert(!UpdatesAPartOf<SliceRef> && !UpdatesAPartOf<SliceRef&> && !AddsToAPartOf<SliceRef&> &&
                !AddsToAPartOf<SliceRef> && AddsToAPartOf<Tensor&>);
  static_assert(UpdatesASelectionOf<Tensor&> && !UpdatesASelectionOf<const Tensor&> &&
                !UpdatesASelectionOf<SliceRef>);
  static_assert(!UpdatesASelectionOf<SliceRef&> && !UpdatesAPartOf<SelectRef> && !UpdatesAPartOf<SelectRef&>);
  Tensor x = floats({1, 2, 3});
  x(0) += 10;
  x[1] *= 5;
  x(range(2, none)) = 0;
  expect_equal<float>(x, {11, 10, 0});
  Tensor row = x(0);  // a value of its own
  row += 1;
  expect_equal<float>(x, {11, 10, 0});
  EXPECT_EQ(row.item<float>(), 12);
  const auto part = x(0);
  x(0) = 5;
  EXPECT_EQ(part.item<float>(), 11);
}

TEST(Arguments, EveryCompoundAssignmentReachesAPart) {
  in_every_mode([] {
    Tensor x = Tensor({1, 20, 3, 12, 5, 6, 7, 8});
    x(0) -= 3;
    x(1) /= 5;  // converted to x's dtype
    x(2) %= 2;
    x(3) &= 6;
    x(4) |= 8;
    x(5) ^= 3;
    x(6) <<= 2;
    x(7) >>= 1;
    expect_equal<std::int32_t>(x, {-2, 4, 1, 4, 13, 5, 28, 4});
  });
}

/// `using namespace kiln` at the head of a program, as the README has it.
namespace as_a_program {
using namespace kiln;
Tensor spread(const Tensor& x) { return stddev(x) + kiln::std(x); }
}  // namespace as_a_program

TEST(Arguments, TheStandardDeviationHasANameThatIsNoNamespace) {
  expect_near(as_a_program::spread(floats({1, 3})), Shape(), {2});
  expect_near(stddev(floats({1, 3}), 0, false, 1), Shape(), {1.4142135623730951});
  expect_user_error([] { stddev(zeros({2}), 1); }, "[stddev] axis 1 is out of range for float32 (2,)");
}

// ---- what is spent ----

TEST(Arguments, ClipTakesScalars) {
  const Scalar low = 1, high = 2.5;
  expect_equal<float>(clip(floats({0, 2, 3}), low, high), {1, 2, 2.5f});
  expect_equal<std::int32_t>(Tensor({1, 2}) + Scalar(3), {4, 5});
}

}  // namespace
}  // namespace kiln
