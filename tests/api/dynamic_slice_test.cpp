// Slices and updates at positions that tensors hold, in every mode.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/config.h>

#include <limits>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::expect_user_error;
using testing::floats;
using testing::in_every_mode;

Tensor at(std::int64_t position) { return Tensor::from(std::vector<std::int64_t>{position}).reshape({}); }

TEST(DynamicSlice, ShowsABox) {
  in_every_mode([] {
    const Tensor x = counting({3, 4});
    expect_equal<float>(dynamic_slice(x, {at(1), at(2)}, {2, 2}), {2, 2}, {6, 7, 10, 11});
    expect_equal<float>(dynamic_slice(x, {at(1), 0}, {1, 4}), {1, 4}, {4, 5, 6, 7});
    expect_equal<float>(dynamic_slice(x, {2, at(3)}, {1, 1}), {1, 1}, {11});
    expect_equal<float>(dynamic_slice(x, Tensor::from(std::vector<std::int32_t>{1, 1}), {2, 3}), {2, 3},
                        {5, 6, 7, 9, 10, 11});
    expect_equal<float>(dynamic_slice(counting({5}), at(2), {2}), {2, 3});
    expect_equal<float>(dynamic_slice(transpose(x) * 2.0, {at(1), at(0)}, {2, 2}) + 1.0, {2, 2},
                        {3, 11, 5, 13});
    EXPECT_EQ(dynamic_slice(x, {at(1), at(2)}, {0, 2}).numel(), 0);
  });
}

TEST(DynamicSlice, MovesStartsIntoRange) {
  in_every_mode([] {
    const Tensor x = counting({6});
    expect_equal<float>(dynamic_slice(x, at(5), {3}), {3, 4, 5});
    expect_equal<float>(dynamic_slice(x, at(-2), {2}), {4, 5});
    expect_equal<float>(dynamic_slice(x, at(-100), {2}), {0, 1});
    expect_equal<float>(dynamic_slice(x, at(std::numeric_limits<std::int64_t>::max()), {1}), {5});
    expect_equal<float>(dynamic_slice(x, at(std::numeric_limits<std::int64_t>::min()), {1}), {0});
    expect_equal<float>(dynamic_slice(x, Tensor::from(std::vector<std::uint64_t>{~std::uint64_t{0}}), {2}),
                        {4, 5});
    expect_equal<float>(dynamic_slice(x, {-1}, {2}), {4, 5});
    expect_equal<float>(dynamic_update_slice(x, floats({7, 8}), at(5)), {0, 1, 2, 3, 7, 8});
    expect_equal<float>(dynamic_update_slice(x, floats({7, 8}), at(-9)), {7, 8, 2, 3, 4, 5});
  });
}

TEST(DynamicSlice, EveryDtypeOfValuesAndStarts) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      const Tensor x = (counting({40}) % 2.0).astype(type).eval();
      const Tensor start = Tensor::from(std::vector<std::int32_t>{7});
      expect_equal<float>(dynamic_slice(x, start, {3}).astype(DType::Float32), {1, 0, 1});
      expect_equal<float>(
          dynamic_update_slice(zeros({4}, type), x(range(1, 2)), start - 5).astype(DType::Float32),
          {0, 0, 1, 0});
      if (is_int(type)) expect_equal<float>(dynamic_slice(counting({40}), start.astype(type), {2}), {7, 8});
    }
  });
}

TEST(DynamicSlice, UpdatesABox) {
  in_every_mode([] {
    const Tensor x = counting({3, 4}), box = floats({-1, -2, -3, -4}).reshape({2, 2});
    expect_equal<float>(dynamic_update_slice(x, box, {at(1), at(2)}), {3, 4},
                        {0, 1, 2, 3, 4, 5, -1, -2, 8, 9, -3, -4});
    expect_equal<float>(dynamic_update_slice(x, box, {0, at(1)}), {3, 4},
                        {0, -1, -2, 3, 4, -3, -4, 7, 8, 9, 10, 11});
    expect_equal<float>(dynamic_update_slice(x, box, {at(5), 0}), {3, 4},
                        {0, 1, 2, 3, -1, -2, 6, 7, -3, -4, 10, 11});
    expect_equal<float>(sum(dynamic_update_slice(x * 1.0, box * 2.0, {at(0), at(0)}), 1),
                        {3 - 0 + 2 - 6, 13 - 14, 38});
    expect_equal<float>(dynamic_update_slice(x, Tensor::from(std::vector<std::int32_t>{9}).reshape({1, 1}),
                                             {at(0), at(0)})(0, 0),
                        Shape{}, {9});
    expect_equal<float>(dynamic_update_slice(x, zeros({0, 4}), {at(0), at(0)}), {3, 4}, x.to_vector<float>());
  });
}

TEST(DynamicSlice, BoxesOfThreeAxes) {
  in_every_mode([] {
    const Tensor x = counting({4, 5, 6});
    const Tensor part = dynamic_slice(x, {at(1), at(2), at(3)}, {2, 2, 2});
    expect_equal<float>(part, {2, 2, 2}, {45, 46, 51, 52, 75, 76, 81, 82});
    const Tensor back = dynamic_update_slice(zeros({4, 5, 6}), part, {at(2), at(3), at(4)});
    expect_equal<float>(dynamic_slice(back, {at(2), at(3), at(4)}, {2, 2, 2}), {2, 2, 2},
                        {45, 46, 51, 52, 75, 76, 81, 82});
    expect_equal<float>(sum(back), Shape{}, {508});
  });
}

TEST(DynamicSlice, InsideLoops) {
  in_every_mode([] {
    // Windows of a signal: each iteration reads at its own place.
    const Tensor signal = counting({10});
    const Scanned windows =
        scan([&](const Tensors& c,
                 const Tensors&) { return Scanned{{c[0] + 2}, {dynamic_slice(signal, c[0], {3})}}; },
             {at(0)}, {zeros({4})});
    expect_equal<float>(windows.ys[0], {4, 3}, {0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8});
    // A buffer that is filled one row an iteration.
    const Tensors filled =
        while_loop([](const Tensors& s) { return s[0] < 3; },
                   [](const Tensors& s) {
                     const Tensor row = (s[0].astype(DType::Float32) + 1.0).reshape({1, 1}) * ones({1, 2});
                     return Tensors{s[0] + 1, dynamic_update_slice(s[1], row, {s[0], 0})};
                   },
                   {at(0), zeros({4, 2})});
    expect_equal<float>(filled[1], {4, 2}, {1, 1, 2, 2, 3, 3, 0, 0});
    // A scalar state decides where an element-wise loop reads.
    const Tensors summed = while_loop(
        [](const Tensors& s) { return s[0] < 4; },
        [&](const Tensors& s) { return Tensors{s[0] + 1, s[1] + dynamic_slice(signal, s[0], {5})}; },
        {at(0), zeros({5})});
    expect_equal<float>(summed[1], {6, 10, 14, 18, 22});
  });
}

TEST(DynamicSlice, FusesWithWhatReadsAndMakesIt) {
  const testing::ModeScope lazy(Mode::Lazy);
  const Tensor x = counting({64, 64}).eval();
  const Tensor start = at(3).eval();
  reset_statistics();
  expect_equal<float>(sum(dynamic_slice(x * 2.0, {start, 0}, {2, 64}) + 1.0), Shape{},
                      {2.0f * (3 * 64 * 64 + 2016 + 4 * 64 * 64 + 2016) + 128});
  EXPECT_EQ(statistics().launches, 1);
}

TEST(DynamicSlice, AStartIsNoPartOfThePlan) {
  const Tensor x = counting({100}).eval();
  float total = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 1) reset_statistics();
    total += sum(dynamic_slice(x, at(i), {2}) * 2.0).item<float>();
  }
  EXPECT_EQ(total, 2 * (190 * 2 + 20));
  EXPECT_EQ(statistics().plan_misses, 0);
}

TEST(DynamicSlice, Refuses) {
  const Tensor x = counting({3, 4});
  expect_user_error([&] { dynamic_slice(x, {at(0)}, {1, 1}); },
                    "[dynamic_slice] 1 starts and sizes (1, 1) for float32 (3, 4)");
  expect_user_error([&] { dynamic_slice(x, {at(0), at(0)}, {4, 1}); },
                    "[dynamic_slice] sizes (4, 1) of float32 (3, 4)");
  expect_user_error([&] { dynamic_slice(x, {floats({1}), at(0)}, {1, 1}); },
                    "[dynamic_slice] a start is one integer, not float32 (1,)");
  expect_user_error([&] { dynamic_slice(x, {0.5, at(0)}, {1, 1}); },
                    "[dynamic_slice] starts must be integers, not 0.5");
  expect_user_error([&] { dynamic_update_slice(x, zeros({5, 1}), {at(0), at(0)}); },
                    "[dynamic_update_slice] sizes (5, 1) of float32 (3, 4)");
  expect_user_error([&] { dynamic_slice(x, x, {1, 1}); },
                    "[dynamic_slice] starts must be one row of integers, not float32 (3, 4)");
}

}  // namespace
}  // namespace kiln
