// Gradients of convolutions against the definition of a transpose: <conv(x), g> = <x, pull(g)> for every x;
// and what they cost on a CPU.
#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/layers.h>
#include <kiln/random.h>

#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kiln {
namespace {

struct Case {
  Shape x, w;
  nn::ConvOptions options;
};

void expect_transposed(const Case& c) {
  const auto keys = random::split<5>(random::Key(7));
  const auto draw = [&](int i, const Shape& shape) {
    return random::normal(keys[static_cast<std::size_t>(i)], shape, DType::Float64);
  };
  const Tensor w = draw(0, c.w), x = draw(1, c.x);
  const Shape shape = nn::conv(x, w, {}, c.options).shape();
  const Tensor g = draw(2, shape);
  const auto value = [&](const Tensor& a, const Tensor& b) { return sum(nn::conv(a, b, {}, c.options) * g); };
  const Tensor of_x = grad([&](const Tensor& a) { return value(a, w); })(x);
  const Tensor of_w = grad([&](const Tensor& b) { return value(x, b); })(w);
  EXPECT_EQ(of_x.shape(), x.shape());
  EXPECT_EQ(of_w.shape(), w.shape());
  const Tensor other_x = draw(3, c.x), other_w = draw(4, c.w);
  const auto near = [](const Tensor& a, const Tensor& b) {
    const double expected = a.item<double>();
    EXPECT_NEAR(b.item<double>(), expected, 1e-10 * (1 + std::abs(expected)));
  };
  near(value(other_x, w), sum(other_x * of_x));
  near(value(x, other_w), sum(other_w * of_w));
  // the gradient of the gradient: bilinear in x and w
  const Tensor mixed = grad([&](const Tensor& b) {
    return sum(grad([&](const Tensor& a) { return value(a, b); })(x) * other_x);
  })(w);
  near(value(other_x, other_w), sum(other_w * mixed));
}

TEST(Windows, GradientsOfConvolutionsAreTransposes) {
  for (const Case& c :
       {Case{{2, 3, 9}, {4, 3, 3}, {}}, Case{{2, 3, 9}, {4, 3, 3}, {.padding = {1}}},
        Case{{2, 3, 9}, {4, 3, 3}, {.padding = {4}}}, Case{{2, 3, 9}, {4, 3, 9}, {.padding = {2}}},
        Case{{2, 3, 12}, {4, 3, 4}, {.padding = {2}, .dilation = {3}}},
        Case{{2, 3, 9}, {4, 3, 3}, {.stride = {2}, .padding = {1}}},
        Case{{2, 4, 6, 5}, {6, 4, 3, 3}, {.padding = {1, 1}}},
        Case{{2, 4, 6, 5}, {6, 4, 3, 2}, {.padding = {0, 2}}},
        Case{{2, 4, 6, 5}, {6, 2, 3, 3}, {.padding = {1, 1}, .groups = 2}},
        Case{{2, 4, 6, 5}, {4, 1, 3, 3}, {.padding = {1, 1}, .groups = 4}},
        Case{{2, 4, 8, 7}, {6, 4, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}}},
        Case{{2, 4, 6, 5}, {6, 4, 1, 1}, {}},
        Case{{1, 2, 5, 6, 7}, {3, 2, 2, 3, 2}, {.padding = {1, 1, 0}, .dilation = {1, 2, 1}}}}) {
    SCOPED_TRACE(c.x.str() + " with " + c.w.str());
    testing::in_every_mode([&] { expect_transposed(c); });
  }
}

TEST(Windows, AConvolutionAndItsGradientsStoreNoWindows) {
  KILN_NEEDS_CPU();
  const Tensor x = random::normal(random::Key(1), {8, 16, 12, 12}).eval(),
               w = random::normal(random::Key(2), {32, 16, 3, 3}).eval();
  const auto loss = [](const Tensor& a, const Tensor& b) {
    return sum(square(nn::conv(a, b, {}, {.padding = {1, 1}})));
  };
  const auto step = [&] {
    const auto [value, g] = value_and_grad([&](const std::vector<Tensor>& in) { return loss(in[0], in[1]); },
                                           std::vector<Tensor>{x, w});
    const Tensor of_x = g[0], of_w = g[1];
    eval(value, of_x, of_w);
  };
  step();
  wait_for_compiles();
  reset_statistics();
  step();
  // x padded, the cotangent padded, the kernel turned; the loss; and three products
  EXPECT_EQ(statistics().library_calls, 3u);
  EXPECT_LE(statistics().launches, 5u);
}

}  // namespace
}  // namespace kiln
