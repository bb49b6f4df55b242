// Reductions and scans over any axes, of memory in any order: axes that others lie between, short rows,
// leading axes; alone and in what depends on them. Compared with the interpreter in Float64.
#include "api/expect.h"
#include "modes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

namespace kiln {
namespace {

using namespace testing;

using Program = std::function<std::vector<Tensor>(const Tensor&)>;

struct Case {
  Shape shape;
  std::vector<int> over;
};

Axes axes_of(const Case& c) { return Axes(c.over); }

Tensor turned(const Tensor& x) {
  std::vector<int> order;
  for (int a = x.rank(); a-- > 0;) order.push_back(a);
  return permute_dims(x, Axes(order));
}

Shape reversed(const Shape& shape) {
  Shape out;
  for (int a = shape.rank(); a-- > 0;) out.push_back(shape[a]);
  return out;
}

/// Values between -1 and 1 that repeat late.
Tensor drawn(const Shape& shape) { return (counting(shape) * 37.0 + 11.0) % 1013.0 / 506.5 - 1.0; }

/// Runs the program on x as it is, and on memory whose axes are in the opposite order.
void expect_as_interpreted(const Shape& shape, DType dtype, double bound, const Program& program) {
  for (const bool opposite : {false, true}) {
    SCOPED_TRACE(opposite ? "axes in opposite order" : "row-major");
    const Tensor x =
        opposite ? turned(drawn(reversed(shape)).astype(dtype).eval()) : drawn(shape).astype(dtype).eval();
    std::vector<std::vector<double>> want;
    {
      const ModeScope scope(Mode::Interpret);
      const DType wide = is_float(dtype) ? DType::Float64 : dtype;
      for (const Tensor& t : program(x.astype(wide)))
        want.push_back(t.astype(DType::Float64).to_vector<double>());
    }
    for (const Engine& engine : kEngines) {
      SCOPED_TRACE(engine.name);
      const EngineScope scope(engine);
      std::vector<Tensor> have = program(x);
      eval(have);
      for (std::size_t i = 0; i < have.size(); ++i) {
        const auto values = have[i].astype(DType::Float64).to_vector<double>();
        ASSERT_EQ(values.size(), want[i].size());
        for (std::size_t k = 0; k < values.size(); ++k) {
          if (values[k] == want[i][k]) continue;  // infinities have no difference
          ASSERT_NEAR(values[k], want[i][k], bound * std::max(1.0, std::abs(want[i][k])))
              << "result " << i << ", " << k;
        }
      }
    }
  }
}

std::vector<Case> cases() {
  return {{{400, 12, 7}, {0, 2}},   {{60, 33, 3}, {0, 2}},    {{5, 700, 6, 2}, {1, 3}},
          {{6, 50, 4, 30}, {1, 3}}, {{9, 4, 50}, {0, 2}},     {{3, 5, 260, 2}, {0, 2}},
          {{700, 5}, {1}},          {{700, 12}, {1}},         {{300, 33}, {1}},
          {{700, 6, 3}, {1}},       {{9, 8, 24, 8}, {0, 3}},  {{2, 3, 4, 5, 6}, {0, 2, 4}},
          {{64, 49, 4, 8}, {1, 3}}, {{16, 3, 1, 300}, {0, 3}}};
}

TEST(MixedAxes, Reductions) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.shape.str());
    const Program program = [&](const Tensor& x) -> std::vector<Tensor> {
      return {sum(x * x, axes_of(c)), max(x, axes_of(c)), mean(x, axes_of(c), true)};
    };
    expect_as_interpreted(c.shape, DType::Float32, 2e-6, program);
    expect_as_interpreted(c.shape, DType::Float16, 2e-3, program);
    expect_as_interpreted(c.shape, DType::Int32, 0, [&](const Tensor& x) -> std::vector<Tensor> {
      return {sum(x * 100 + 3, axes_of(c)), min(x, axes_of(c))};
    });
  }
}

TEST(MixedAxes, WhatDependsOnReductions) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.shape.str());
    expect_as_interpreted(c.shape, DType::Float32, 2e-5, [&](const Tensor& x) -> std::vector<Tensor> {
      const Tensor centred = x - mean(x, axes_of(c), true);
      const Tensor weight = exp(x - max(x, axes_of(c), true));
      return {centred / sqrt(mean(centred * centred, axes_of(c), true) + 1e-3),
              weight / sum(weight, axes_of(c), true), logsumexp(x * 3.0, axes_of(c))};
    });
  }
}

/// Σₖ f(x[i, k], y[j, k]) and other reductions over pairs, and what is chosen among them.
TEST(MixedAxes, Pairs) {
  for (const auto& [rows, columns, length] : {std::tuple{1030, 512, 9},
                                              {1500, 77, 40},
                                              {4100, 1024, 1},
                                              {37, 2000, 70},
                                              {16411, 77, 12},
                                              {40001, 16, 8},
                                              {1501, 773, 5}})
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      SCOPED_TRACE(std::to_string(rows) + " and " + std::to_string(columns));
      const auto pairs = [=](DType wide) -> std::vector<Tensor> {
        const Tensor x = drawn({rows, 1, length}).astype(dtype).eval().astype(wide);
        const Tensor y =
            drawn({columns + 1, length}).astype(dtype).eval()(range(1, columns + 1)).astype(wide);
        const Tensor distance = sum((x - y) * (x - y), 2);
        return {distance, max(abs(x * y), 2), argmin(distance.astype(DType::Float32), 1)};
      };
      std::vector<std::vector<double>> want;
      {
        const ModeScope scope(Mode::Lazy);
        for (const Tensor& t : pairs(DType::Float64))
          want.push_back(t.astype(DType::Float64).to_vector<double>());
      }
      const std::vector<Tensor> have = pairs(DType::Float32);
      // Each rounding is off by at most 2^-24. A term of the sum has three, and the sum adds length - 1 of
      // them in any order; none of its terms is negative.
      const double roundings[] = {static_cast<double>(length) + 2, 1};
      for (std::size_t i = 0; i < 2; ++i) {
        const auto values = have[i].astype(DType::Float64).to_vector<double>();
        ASSERT_EQ(values.size(), want[i].size());
        for (std::size_t k = 0; k < values.size(); ++k)
          ASSERT_NEAR(values[k], want[i][k], roundings[i] * 0x1.01p-24 * want[i][k]) << i << ", " << k;
      }
      // The nearest is as near as the nearest in Float64, whichever of equals it is.
      const auto nearest = have[2].to_vector<std::int64_t>();
      for (std::size_t r = 0; r < nearest.size(); ++r) {
        const auto row = static_cast<std::ptrdiff_t>(r) * columns;
        const double least = *std::min_element(want[0].begin() + row, want[0].begin() + row + columns);
        ASSERT_NEAR(want[0][static_cast<std::size_t>(row + nearest[r])], least,
                    2 * roundings[0] * 0x1.01p-24 * least)
            << r;
      }
    }
}

TEST(MixedAxes, PositionsAlongAnyAxis) {
  for (const Shape& shape :
       {Shape{700, 5}, Shape{700, 12}, Shape{5, 700}, Shape{60, 33, 6}, Shape{300, 6, 3}})
    for (int axis = 0; axis < shape.rank(); ++axis) {
      SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis));
      expect_as_interpreted(shape, DType::Float32, 0, [&](const Tensor& x) -> std::vector<Tensor> {
        const Tensor coarse = floor(x * 4.0);  // many are equal
        return {argmax(coarse, axis), argmin(coarse, axis)};
      });
    }
}

TEST(MixedAxes, OfNoElements) {
  in_every_mode([] {
    const Tensor x = zeros({3, 0, 4}) + 1.0;
    EXPECT_EQ(sum(exp(x), {0, 2}).shape().str(), "(0,)");
    expect_equal<float>(sum(exp(x), {0, 2}), Shape{0}, {});
    expect_equal<float>(sum(exp(x) / sum(exp(x), {0, 2}, true), {0, 2}), Shape{0}, {});
  });
}

TEST(MixedAxes, ScansAlongAnyAxis) {
  for (const Shape& shape : {Shape{1500, 60}, Shape{1511, 61}, Shape{3, 700, 40}, Shape{700, 5, 30}})
    for (int axis = 0; axis < shape.rank(); ++axis)
      for (const bool reverse : {false, true}) {
        SCOPED_TRACE(shape.str() + " axis " + std::to_string(axis) + (reverse ? " from the end" : ""));
        expect_as_interpreted(shape, DType::Float32, 2e-5, [&](const Tensor& x) -> std::vector<Tensor> {
          return {cumsum(x, axis, false, reverse), cummax(x, axis, true, reverse),
                  logcumsumexp(x, axis, false, reverse)};
        });
      }
}

/// A sum over both of two axes that other sums in reach take one after the other, the last one first.
TEST(MixedAxes, ASumOverTwoAxesBesideANestOfBoth) {
  in_every_mode([] {
    const Tensor x = reshape(arange(10), {2, 5}).astype(DType::Float64) - 4.0;
    const Tensor y = Tensor::from(std::vector<double>{-1, 2}, {2, 1}), scale = y * 2.0;
    eval(x, y, scale);
    const Tensor one = broadcast_to(Tensor(1.0), {15}), half = one * 0.5;
    const Tensor t = reshape(broadcast_to(expand_dims(x, 1), {2, 3, 5}), {2, 15}), equal = t == y;
    const Tensor above = where(equal, half, where(t > y, one, 0.0));
    const Tensor in_the_middle = sum(reshape(above, {2, 3, 5}), 1);
    const Tensor nested = sum(in_the_middle * x, 1), read = in_the_middle * scale;
    const Tensor both = sum(where(equal, half, where(t < y, one, 0.0)), 1);
    eval(nested, both, read);
    expect_near(both, {10.5, 4.5});
    expect_near(nested, {-1.5, 39});
  });
}

}  // namespace
}  // namespace kiln
