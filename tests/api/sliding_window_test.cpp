// Sliding windows: values by hand and against loops over elements, what they share, what they fuse with.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"
#include "support/check.h"

#include <kiln/config.h>

#include <array>
#include <limits>

namespace kiln {
namespace {

using namespace testing;
using Extents = std::vector<std::int64_t>;

struct Along {
  int axis;
  std::int64_t size, stride, dilation;
};

Tensor windows(const Tensor& x, const std::vector<Along>& along) {
  std::vector<int> axes;
  Shape size, stride, dilation;
  for (const Along& a : along) {
    axes.push_back(a.axis);
    size.push_back(a.size);
    stride.push_back(a.stride);
    dilation.push_back(a.dilation);
  }
  return sliding_window(x, size, axes, stride, dilation);
}

/// Extents of the windows over an array, and for each element the position that it shows, in row-major order.
struct Seen {
  Extents dims, positions;
};
Seen seen(const Extents& dims, const std::vector<Along>& along) {
  Seen out{dims, {}};
  for (const Along& a : along) {
    auto& extent = out.dims[static_cast<std::size_t>(a.axis)];
    std::int64_t count = 0;
    while (count * a.stride + (a.size - 1) * a.dilation < extent) ++count;
    extent = count;
    out.dims.push_back(a.size);
  }
  std::vector<std::int64_t> at(out.dims.size(), 0);
  for (bool more = Shape(out.dims).numel() != 0; more;) {
    std::int64_t position = 0;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      std::int64_t coordinate = at[a];
      for (std::size_t k = 0; k < along.size(); ++k)
        if (along[k].axis == static_cast<int>(a))
          coordinate = at[a] * along[k].stride + at[dims.size() + k] * along[k].dilation;
      position = position * dims[a] + coordinate;
    }
    out.positions.push_back(position);
    more = false;
    for (std::size_t a = at.size(); a-- > 0 && !more;) {
      more = ++at[a] < out.dims[a];
      if (!more) at[a] = 0;
    }
  }
  return out;
}

/// The positions of these elements among all, as they come out of a tensor of positions.
void expect_seen(const Tensor& shown, const Seen& want) {
  expect_equal<std::int64_t>(shown, Shape(want.dims), want.positions);
}

const std::vector<std::pair<Extents, std::vector<Along>>>& cases() {
  static const std::vector<std::pair<Extents, std::vector<Along>>> all{
      {{7}, {{0, 3, 1, 1}}},
      {{7}, {{0, 7, 1, 1}}},
      {{7}, {{0, 1, 2, 1}}},
      {{40}, {{0, 4, 3, 5}}},
      {{5, 6}, {{1, 2, 2, 3}, {0, 3, 1, 1}}},
      {{1, 9, 1}, {{0, 1, 5, 1}, {1, 2, 2, 2}, {2, 1, 1, 1}}},
      {{2, 3, 16, 17}, {{2, 3, 2, 1}, {3, 3, 2, 2}}},
      {{3, 2, 4, 2, 5}, {{4, 2, 1, 3}, {0, 2, 1, 1}, {2, 1, 3, 1}}},
      {{0, 6}, {{1, 2, 1, 2}}},
      {{300, 33}, {{0, 5, 4, 2}}},
  };
  return all;
}

TEST(SlidingWindow, ByHand) {
  in_every_mode([] {
    const Tensor x = counting({6});
    expect_equal<float>(sliding_window(x, 3), {4, 3}, {0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5});
    expect_equal<float>(sliding_window(x, 3, 0, 2), {2, 3}, {0, 1, 2, 2, 3, 4});
    expect_equal<float>(sliding_window(x, 3, 0, 1, 2), {2, 3}, {0, 2, 4, 1, 3, 5});
    expect_equal<float>(sliding_window(x, 2, -1, 2, 3), {2, 2}, {0, 3, 2, 5});
    expect_equal<float>(sliding_window(counting({3, 4}), {2, 3}), {2, 2, 2, 3},
                        {0, 1, 2, 4, 5, 6, 1, 2, 3, 5, 6, 7, 4, 5, 6, 8, 9, 10, 5, 6, 7, 9, 10, 11});
    expect_equal<float>(sliding_window(counting({3, 2}), {1, 2}, {1, 0}), {2, 2, 1, 2},
                        {0, 2, 1, 3, 2, 4, 3, 5});
    expect_equal<float>(max(sliding_window(counting({4, 4}), {2, 2}, {0, 1}, {2, 2}), {-2, -1}), {2, 2},
                        {5, 7, 13, 15});
    expect_equal<float>(mean(sliding_window(floats({1, 2, 6, 3}), 2), -1), {1.5f, 4, 4.5f});
    EXPECT_EQ(sliding_window(Tensor(1.f), {}).rank(), 0);
    EXPECT_EQ(sliding_window(counting({2, 3}), {}, Axes{}).shape().str(), "(2, 3)");
  });
}

TEST(SlidingWindow, EveryRankAndAxis) {
  in_every_mode([] {
    for (const auto& [dims, along] : cases()) {
      const Seen want = seen(dims, along);
      const Tensor x = arange(Shape(dims).numel(), DType::Int64).reshape(dims);
      const Tensor stored = (x + 0).eval();
      expect_seen(windows(x, along), want);
      expect_seen(windows(stored, along), want);
      expect_seen(windows(stored, along) + 0, want);
      expect_seen(-windows(-stored, along), want);
    }
  });
}

TEST(SlidingWindow, EveryDtype) {
  in_every_mode([] {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      SCOPED_TRACE(name(type));
      const Tensor x = (counting({90}) % 2.0).astype(type).eval();
      const Tensor w = sliding_window(x, {4}, 0, {5}, {3});
      EXPECT_EQ(w.dtype(), type);
      EXPECT_EQ(w.shape().str(), "(17, 4)");
      expect_equal<float>(w.astype(DType::Float32)(range(3, 5)), {2, 4}, {1, 0, 1, 0, 0, 1, 0, 1});
      expect_equal<std::int64_t>(sum(w.astype(DType::Int64), 1), std::vector<std::int64_t>(17, 2));
      expect_equal<float>(max(w, 1).astype(DType::Float32), std::vector<float>(17, 1));
    }
  });
}

TEST(SlidingWindow, OfViewsAndOfWindows) {
  in_every_mode([] {
    const Tensor x = counting({4, 6}).eval();
    expect_equal<float>(sliding_window(x.T(), 3, 1)(2, 1), {8, 14, 20});
    expect_equal<float>(sliding_window(flip(x), 2, 1)(0), {5, 2}, {23, 22, 22, 21, 21, 20, 20, 19, 19, 18});
    expect_equal<float>(sliding_window(x(slice::all(), range(1, none, 2)), 2, 1)(1), {2, 2}, {7, 9, 9, 11});
    expect_equal<float>(sliding_window(pad(x, {{1, 1}, {0, 0}}, -1), 2, 0)(0, 1), {-1, 1});
    expect_equal<float>(sliding_window(broadcast_to(floats({1, 2}), {3, 2}), 2, 0)(1), {2, 2}, {1, 1, 2, 2});
    const Tensor twice = sliding_window(sliding_window(x, 4, 1), 2, 1);
    EXPECT_EQ(twice.shape().str(), "(4, 2, 4, 2)");
    expect_equal<float>(twice(1, 0), {4, 2}, {6, 7, 7, 8, 8, 9, 9, 10});
    const Tensor within = sliding_window(sliding_window(x, 4, 1), 2, 2, 2);  // windows of windows
    expect_equal<float>(within(2, 2), {2, 2}, {14, 15, 16, 17});
    expect_equal<float>(reshape(sliding_window(reshape(x, {24}), 5, 0, 7), {15}),
                        {0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18});
    expect_equal<float>(sliding_window(x, {2, 2}).T()(1, 0), {2, 2}, {6, 12, 7, 13});
    expect_equal<float>(take(sliding_window(counting({9}), 3), Tensor({6, 0}), 0), {2, 3},
                        {6, 7, 8, 0, 1, 2});
    expect_equal<float>(sort(sliding_window(floats({3, 1, 2, 0}), 3), -1), {2, 3}, {1, 2, 3, 0, 1, 2});
    expect_equal<float>(cumsum(sliding_window(counting({5}), 3), -1), {3, 3}, {0, 1, 3, 1, 3, 6, 2, 5, 9});
  });
}

TEST(SlidingWindow, ReductionsOverWindowsAndPositions) {
  in_every_mode([] {
    for (const auto& [dims, along] : cases()) {
      const Seen where = seen(dims, along);
      const Tensor x = (arange(Shape(dims).numel(), DType::Int64) * 37 % 101).reshape(dims).eval();
      std::vector<int> last;
      std::int64_t each = 1;
      for (std::size_t k = 0; k < along.size(); ++k) {
        last.push_back(-1 - static_cast<int>(k));
        each *= along[k].size;
      }
      std::vector<std::int64_t> sums;
      for (std::size_t i = 0; i < where.positions.size(); ++i) {
        if (i % static_cast<std::size_t>(each) == 0) sums.push_back(0);
        sums.back() += where.positions[i] * 37 % 101;
      }
      const Shape kept(std::span(where.dims).first(dims.size()));
      expect_equal<std::int64_t>(sum(windows(x, along), last), kept, sums);
    }
  });
}

TEST(SlidingWindow, IsAViewThatLeavesItsOperandAlone) {
  in_every_mode([] {
    Tensor x = counting({5}).eval();
    Tensor w = sliding_window(x, 3).eval();
    w(1) = 9;  // elements that shared memory with those of other windows
    expect_equal<float>(w, {3, 3}, {0, 1, 2, 9, 9, 9, 2, 3, 4});
    expect_equal<float>(x, {0, 1, 2, 3, 4});
    x(2) = 7;
    expect_equal<float>(sliding_window(x, 3)(range(1, none)), {2, 3}, {1, 7, 3, 7, 3, 4});
    x = Tensor();
    w(slice::all(), 0) = w(slice::all(), 2);
    expect_equal<float>(w, {3, 3}, {2, 1, 2, 9, 9, 9, 4, 3, 4});
  });
}

TEST(SlidingWindow, PoolingIsOneKernel) {
  if (config().mode != Mode::Lazy) GTEST_SKIP() << "nothing is fused";
  const Tensor x = test::data({2, 3, 32, 33});
  EXPECT_EQ(test::kernels({relu(max(sliding_window(x, {3, 3}, {2, 3}, {2, 2}), {-2, -1}) - 1.0)}), 1u);
  EXPECT_EQ(test::kernels({mean(sliding_window(x * 2.0, 5, -1, 1, 3), -1)}), 1u);
  EXPECT_EQ(test::kernels({x + sum(sliding_window(pad(x, {{0, 0}, {0, 0}, {0, 0}, {1, 1}}), 3, -1), -1)}),
            1u);
  // Windows over memory are strides of it: nothing is copied, neither for a handle nor for a library.
  EXPECT_EQ(test::kernels({sliding_window(x, 3, -1, 2, 2)}), 0u);
  const Tensor series = test::data({4096}), weights = test::data({16, 4});
  const test::Counted product = test::count([&] { eval(matmul(sliding_window(series, 16, 0, 3), weights)); });
  EXPECT_EQ(product.library_calls, 1u);
  EXPECT_EQ(product.launches, 0u);
}

TEST(SlidingWindow, ConvolvesByAProduct) {
  const Tensor x = (counting({50}) % 7.0).eval(), weights = floats({1, -2, 3});
  std::vector<float> want;
  for (int i = 0; i + 4 < 50; i += 2)
    want.push_back(static_cast<float>(i % 7) - 2 * static_cast<float>((i + 2) % 7) +
                   3 * static_cast<float>((i + 4) % 7));
  in_every_mode([&] { expect_equal<float>(matmul(sliding_window(x, 3, 0, 2, 2), weights), want); });
}

TEST(SlidingWindow, InLoopsAndInTheStrictMode) {
  const auto smoothed = [] {
    return while_loop([](const Tensors& s) { return s[0] < 3; },
                      [](const Tensors& s) {
                        const Tensor wide = pad(s[1], {{1, 1}});
                        return Tensors{s[0] + 1, sum(sliding_window(wide, 3), -1)};
                      },
                      {Tensor(0), counting({6})})[1];
  };
  in_every_mode([&] { expect_equal<float>(smoothed(), {14, 32, 55, 75, 78, 51}); });
  const Config before = config();
  Config strict = before;
  strict.strict = true;
  configure(strict);
  in_every_mode([&] { expect_equal<float>(smoothed(), {14, 32, 55, 75, 78, 51}); });
  const Tensor x = test::data({9, 400});
  const auto bits = [&] { return logsumexp(sliding_window(exp(x), 37, 1, 2, 3), -1).to_vector<float>(); };
  std::vector<std::vector<float>> all;
  for (const Engine& e : kEngines) {
    const EngineScope scope(e);
    all.push_back(bits());
  }
  configure(before);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(SlidingWindow, Errors) {
  const Tensor x = counting({2, 8});
  expect_user_error(
      [&] { sliding_window(x, 9, 1); },
      "[sliding_window] a window of 9 elements, 1 apart, does not fit axis 1 of float32 (2, 8)");
  expect_user_error(
      [&] { sliding_window(x, 5, -1, 1, 2); },
      "[sliding_window] a window of 5 elements, 2 apart, does not fit axis 1 of float32 (2, 8)");
  expect_user_error(
      [&] { sliding_window(x, 3, 0, 1, std::numeric_limits<std::int64_t>::max()); },
      "[sliding_window] a window of 3 elements, 9223372036854775807 apart, does not fit axis 0 of "
      "float32 (2, 8)");
  expect_user_error([&] { sliding_window(zeros({0}), 1); },
                    "[sliding_window] a window of 1 elements, 1 apart, does not fit axis 0 of float32 (0,)");
  expect_user_error([&] { sliding_window(x, {2, 0}); },
                    "[sliding_window] a size must be at least 1, got (2, 0) for float32 (2, 8)");
  expect_user_error([&] { sliding_window(x, 2, 1, 0); },
                    "[sliding_window] a stride must be at least 1, got (0,) for float32 (2, 8)");
  expect_user_error([&] { sliding_window(x, 2, 1, -1); },
                    "[sliding_window] a stride must be at least 1, got (-1,) for float32 (2, 8)");
  expect_user_error([&] { sliding_window(x, 2, 1, 1, 0); },
                    "[sliding_window] a dilation must be at least 1, got (0,) for float32 (2, 8)");
  expect_user_error([&] { sliding_window(x, 2); },
                    "[sliding_window] needs a size for each of 2 axes of float32 (2, 8), got 1");
  expect_user_error([&] { sliding_window(x, {2, 2}, {0, 1}, {1, 1, 1}); },
                    "[sliding_window] needs a stride for each of 2 axes of float32 (2, 8), got 3");
  expect_user_error([&] { sliding_window(x, {}, 1); },
                    "[sliding_window] needs a size for each of 1 axes of float32 (2, 8), got 0");
  expect_user_error([&] { sliding_window(x, {1, 1}, {1, -1}); },
                    "[sliding_window] axis -1 is given twice for float32 (2, 8)");
  expect_user_error([&] { sliding_window(x, 1, 2); },
                    "[sliding_window] axis 2 is out of range for float32 (2, 8)");
  expect_user_error([&] { sliding_window(Tensor(), 1); }, "[sliding_window] an operand is an empty Tensor");
  const Tensor deep = zeros(Shape(std::vector<std::int64_t>(16, 1)));
  expect_user_error(
      [&] { sliding_window(deep, 1, 3); },
      "[sliding_window] 1 windows over float32 (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) "
      "make more than 16 axes");
  // Steps past the end make one window; nothing overflows.
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  expect_equal<float>(sliding_window(x, {1, 8}, {0, 1}, {huge, huge}, {huge, 1})(0, 0, 0),
                      {0, 1, 2, 3, 4, 5, 6, 7});
}

}  // namespace
}  // namespace kiln
