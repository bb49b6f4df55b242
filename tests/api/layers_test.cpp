// Layers against PyTorch's figures, initial values against their distributions.
#include <kiln/layers.h>

#include "expect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace kiln {
namespace {

using testing::expect_near;
using testing::expect_user_error;

/// ((i factor) mod 11 - 5) / 4 for i = 0, 1, …: exact in every dtype.
Tensor pattern(const Shape& shape, int factor = 7, DType dtype = DType::Float64) {
  return (((arange(shape.numel()) * factor) % 11 - 5).astype(dtype) / 4).reshape(shape);
}

// Figures: torch 2.15, float64, torch.nn.functional and torch.nn of the same names.

TEST(Layers, ConvolutionsOfImages) {
  const Tensor x = pattern({2, 2, 5, 4}), w = pattern({3, 2, 3, 2}, 3), b = Tensor({0.5, -1., 2.});
  expect_near(nn::conv(x, w, b)(1), {3, 3, 3},
              {-0.5,    2.8125, 0.625, 3.125,   -1.125, -0.5625, 2.625,   0.4375, -2.4375,
               -5.3125, 0.0,    -2.25, 2.1875,  -2.125, -1.625,  -4.0625, 3.3125, 0.375,
               3.3125,  3.0625, 0.75,  -0.4375, 2.75,   3.1875,  2.6875,  4.5,    1.5});
  const Tensor y = nn::conv(x, w, b, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}});
  EXPECT_EQ(y.shape().str(), "(2, 3, 3, 6)");
  expect_near(sum(y), Shape(), {54.625});
  expect_near(sum(y * pattern(y.shape(), 5)), Shape(), {-47.96875});
  expect_near(y(1, 2, 0, 1), Shape(), {1.5625});
}

TEST(Layers, ConvolutionsOfGroups) {
  const Tensor y =
      nn::conv(pattern({2, 2, 5, 4}), pattern({4, 1, 3, 3}, 4), {}, {.padding = {1, 1}, .groups = 2});
  EXPECT_EQ(y.shape().str(), "(2, 4, 5, 4)");
  expect_near(sum(y), Shape(), {-2.625});
  expect_near(sum(y * pattern(y.shape(), 5)), Shape(), {-19.34375});
  expect_near(y(1, 2, 0, 1), Shape(), {-0.8125});
}

TEST(Layers, ConvolutionsOfSequences) {
  expect_near(nn::conv(pattern({2, 3, 7}), pattern({2, 3, 3}, 5), {}, {.stride = {2}}), {2, 2, 3},
              {-0.0625, -0.1875, 3.125, 1.125, -0.75, 0.125, 0.0, 3.3125, -3.6875, -1.375, 0.1875, -1.6875});
  const nn::Conv layer = nn::Conv::init(random::Key(1), 4, 6, 3, {.padding = 1, .groups = 2});
  EXPECT_EQ(layer(zeros({5, 4, 9})).shape().str(), "(5, 6, 9)");
  EXPECT_EQ(layer(zeros({0, 4, 9})).shape().str(), "(0, 6, 9)");
}

Tensor last(const Tensor& x) { return moveaxis(x, 1, -1); }

TEST(Layers, ConvolutionsWithChannelsLast) {
  const Tensor x = pattern({2, 4, 7, 6}), b = pattern({6}, 3);
  for (const std::int64_t groups : {1, 2}) {
    const Tensor w = pattern({6, 4 / groups, 3, 2}, 3);
    nn::ConvOptions options = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = groups};
    const Tensor want = nn::conv(x, w, b, options);
    options.channels_last = true;
    const Tensor got = nn::conv(last(x), last(w), b, options);
    EXPECT_EQ(got.shape().str(), last(want).shape().str());
    EXPECT_TRUE(allclose(got, last(want), 1e-12, 1e-12)) << groups;
  }
  const nn::Conv layer = nn::Conv::init(random::Key(1), 4, 6, {3}, {.groups = 2, .channels_last = true});
  EXPECT_EQ(layer.weight.shape().str(), "(6, 3, 2)");
  EXPECT_EQ(layer(zeros({5, 9, 4})).shape().str(), "(5, 7, 6)");
}

/// A filter or several for each channel: beside convolutions of one channel each.
TEST(Layers, ConvolutionsOfSingleChannels) {
  struct Case {
    Shape points, kernel;
    nn::ConvOptions options;
  };
  const Case cases[] = {{{9}, {4}, {.stride = {2}, .padding = {3}}},
                        {{7, 6}, {3, 2}, {.stride = {1, 2}, .padding = {1, 2}, .dilation = {2, 1}}},
                        {{12, 12}, {7, 7}, {.padding = {3, 3}}},
                        {{12, 10}, {9, 8}, {.padding = {2, 0}}},  // too many elements to be written out
                        {{3, 5, 4}, {2, 3, 3}, {.padding = {0, 1, 1}}}};
  for (const Case& c : cases)
    for (const std::int64_t filters : {1, 2}) {
      const std::int64_t channels = 3;
      Shape of_x = {2, channels}, of_w = {channels * filters, 1};
      for (const std::int64_t e : c.points) of_x.push_back(e);
      for (const std::int64_t e : c.kernel) of_w.push_back(e);
      for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int32}) {
        const Tensor x = (pattern(of_x) * 16).astype(dtype), w = (pattern(of_w, 5) * 16).astype(dtype);
        std::vector<Tensor> alone;
        for (std::int64_t g = 0; g < channels; ++g)
          alone.push_back(nn::conv(x(slice::all(), slice::range(g, g + 1)),
                                   w(slice::range(g * filters, (g + 1) * filters)), {}, c.options));
        nn::ConvOptions options = c.options;
        options.groups = channels;
        const Tensor want = concat(alone, 1), got = nn::conv(x, w, {}, options);
        EXPECT_EQ(got.dtype(), dtype);
        EXPECT_EQ(got.shape().str(), want.shape().str());
        EXPECT_TRUE(all(got == want).item<bool>()) << c.kernel.str() << filters << static_cast<int>(dtype);
        options.channels_last = true;
        EXPECT_TRUE(all(nn::conv(last(x), last(w), {}, options) == last(want)).item<bool>())
            << c.kernel.str();
      }
    }
}

/// By the definition: every element of x adds its multiple of the kernel to the result.
std::vector<double> transposed(const Tensor& x, const Tensor& w, const nn::ConvOptions& o, Shape shape) {
  const std::vector<double> a = x.to_vector<double>(), b = w.to_vector<double>();
  std::vector<double> out(static_cast<std::size_t>(shape.numel()));
  const std::int64_t in = x.dim(1), each = w.dim(1), of_group = in / o.groups;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t n = 0; n < x.dim(0); ++n)
    for (std::int64_t c = 0; c < in; ++c)
      for (std::int64_t e = 0; e < each; ++e)
        for (std::int64_t i = 0; i < x.dim(2) * x.dim(3); ++i)
          for (std::int64_t k = 0; k < w.dim(2) * w.dim(3); ++k) {
            const std::int64_t to = c / of_group * each + e;
            const std::int64_t row = i / x.dim(3) * o.stride[0] + k / w.dim(3) * o.dilation[0] - o.padding[0];
            const std::int64_t column =
                i % x.dim(3) * o.stride[1] + k % w.dim(3) * o.dilation[1] - o.padding[1];
            if (row < 0 || row >= shape[2] || column < 0 || column >= shape[3]) continue;
            out[at(((n * shape[1] + to) * shape[2] + row) * shape[3] + column)] +=
                a[at((n * in + c) * x.dim(2) * x.dim(3) + i)] *
                b[at((c * each + e) * w.dim(2) * w.dim(3) + k)];
          }
  return out;
}

TEST(Layers, TransposedConvolutions) {
  const Tensor x = pattern({2, 4, 3, 5});
  const struct {
    Shape kernel;
    nn::ConvOptions options;
    Shape behind, result;
  } cases[] = {
      {{3, 2}, {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}}, {}, {2, 6, 5, 6}},
      {{3, 4}, {.stride = {2, 3}, .padding = {1, 2}, .dilation = {1, 1}}, {1, 2}, {2, 6, 6, 14}},
      {{2, 2}, {.stride = {2, 2}, .padding = {0, 0}, .dilation = {1, 1}, .groups = 2}, {}, {2, 6, 6, 10}},
      {{1, 2}, {.stride = {3, 2}, .padding = {0, 1}, .dilation = {2, 3}, .groups = 2}, {2, 0}, {2, 6, 9, 10}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.kernel.str());
    const Tensor w = pattern({4, 6 / c.options.groups, c.kernel[0], c.kernel[1]}, 3), b = pattern({6}, 5);
    const std::vector<double> want = transposed(x, w, c.options, c.result);
    expect_near(nn::conv_transpose(x, w, {}, c.options, c.behind), c.result, want);
    nn::ConvOptions options = c.options;
    options.channels_last = true;
    const Tensor got = nn::conv_transpose(last(x), last(w), b, options, c.behind);
    expect_near(moveaxis(got, -1, 1) - b.reshape({6, 1, 1}), c.result, want);
  }
  const Tensor y = nn::conv_transpose(pattern({1, 2, 4}), pattern({2, 3, 4}, 3), {}, {.stride = {2}});
  EXPECT_EQ(y.shape().str(), "(1, 3, 10)");
  // the adjoint of conv
  const Tensor u = pattern({1, 3, 10}, 5), v = pattern({1, 2, 4});
  expect_near(sum(nn::conv(u, pattern({2, 3, 4}, 3), {}, {.stride = {2}}) * v), Shape(),
              {sum(y * u).item<double>()});
}

TEST(Layers, PoolingWithPadding) {
  const Tensor x = Tensor({1., -2., 3., -4., 5.}, {1, 5});
  expect_near(nn::max_pool(x - 6, {3}, {2}, {1}), {1, 3}, {-5, -3, -1});
  expect_near(nn::mean_pool(x, {3}, {2}, {1}), {1, 3}, {-1. / 3, -1, 1. / 3});
  expect_near(nn::max_pool(x - 6, {2}, {}, {1}), {1, 3}, {-5, -3, -1});
  testing::expect_equal<std::int32_t>(nn::max_pool(Tensor({-5, -6, -7}), {2}, {1}, {1}), {-5, -5, -6, -7});
  EXPECT_EQ(nn::max_pool(zeros({2, 3, 9, 8}), {3, 2}, {2, 2}, {1, 0}).shape().str(), "(2, 3, 5, 4)");
  expect_user_error([&] { return nn::max_pool(x, {3}, {1}, {2}); },
                    "[max_pool] padding (2,) is more than half of the windows (3,)");
}

TEST(Layers, AdaptivePooling) {
  const std::int64_t h = 7, w = 10;
  const Tensor x = pattern({2, 3, h, w});
  const std::vector<double> a = x.to_vector<double>();
  for (const Shape& size : {Shape{3, 4}, Shape{7, 5}, Shape{1, 1}, Shape{9, 12}}) {
    std::vector<double> means, maxima;
    for (std::int64_t n = 0; n < 6; ++n)
      for (std::int64_t i = 0; i < size[0]; ++i)
        for (std::int64_t j = 0; j < size[1]; ++j) {
          double total = 0, greatest = -HUGE_VAL, count = 0;
          for (std::int64_t r = i * h / size[0]; r * size[0] < (i + 1) * h; ++r)
            for (std::int64_t c = j * w / size[1]; c * size[1] < (j + 1) * w; ++c, ++count) {
              const double v = a[static_cast<std::size_t>((n * h + r) * w + c)];
              total += v, greatest = std::max(greatest, v);
            }
          means.push_back(total / count);
          maxima.push_back(greatest);
        }
    const Shape result = {2, 3, size[0], size[1]};
    expect_near(nn::adaptive_mean_pool(x, size), result, means);
    expect_near(nn::adaptive_max_pool(x, size), result, maxima);
    expect_near(nn::adaptive_mean_pool(x.astype(DType::BFloat16), size), result, means, 0.01);
  }
  testing::expect_equal<std::int32_t>(nn::adaptive_max_pool(Tensor({-5, -6, -7}), {2}), {-5, -6});
}

TEST(Layers, Interpolation) {
  const std::int64_t n = 7;
  const Tensor x = pattern({2, n});
  const std::vector<double> a = x.to_vector<double>();
  for (const std::int64_t size : {1, 4, 7, 13, 21}) {
    std::vector<double> nearest, linear, corners;
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = [&](double place) {
          const double p = std::min(std::max(place, 0.0), n - 1.0), low = std::floor(p), w = p - low;
          const auto e = static_cast<std::size_t>(row * n + static_cast<std::int64_t>(low));
          return w == 0 ? a[e] : a[e] * (1 - w) + a[e + 1] * w;
        };
        const double place = static_cast<double>(i);
        nearest.push_back(a[static_cast<std::size_t>(row * n + i * n / size)]);
        linear.push_back(at((place + 0.5) * n / static_cast<double>(size) - 0.5));
        corners.push_back(at(size > 1 ? place * (n - 1) / static_cast<double>(size - 1) : 0));
      }
    expect_near(nn::interpolate(x, {size}, nn::Interpolation::Nearest), {2, size}, nearest);
    expect_near(nn::interpolate(x, {size}), {2, size}, linear);
    expect_near(nn::interpolate(x, {size}, nn::Interpolation::Linear, true), {2, size}, corners);
  }
  // over two axes: along one after the other
  const Tensor y = pattern({3, 4, 5});
  const Tensor rows = matrix_transpose(nn::interpolate(matrix_transpose(y), {6}));
  EXPECT_TRUE(allclose(nn::interpolate(y, {6, 9}), nn::interpolate(rows, {9}), 1e-12, 1e-12));
  testing::expect_equal<std::int32_t>(nn::interpolate(Tensor({1, 2}), {4}, nn::Interpolation::Nearest),
                                      {1, 1, 2, 2});
  expect_user_error([&] { return nn::interpolate(Tensor({1, 2}), {4}); },
                    "[interpolate] x int32 (2,) is no float: only nearest elements are taken");
}

TEST(Layers, Pooling) {
  const Tensor x = pattern({2, 2, 5, 4});
  expect_near(nn::max_pool(x, {2, 2})(0), {2, 2, 2}, {0.5, 1.25, 0.75, 1.25, 1.25, 0.5, 1.0, 0.75});
  expect_near(nn::mean_pool(x, {3, 2}, {1, 2})(0), {2, 3, 2},
              {-0.25, 0.0416666667, -0.125, 0.166666667, 0.0, -0.166666667, 0.375, -0.25, 0.0416666667,
               -0.125, 0.166666667, 0.0});
}

TEST(Layers, GroupNorm) {
  nn::GroupNorm norm = nn::GroupNorm::init(4, 2);
  expect_near(norm(pattern({1, 4, 3}))(0, 0), {3}, {-1.39304214, 0.696521068, -0.497515048}, 1e-8);
  norm.weight = Tensor({1., 2., -1., 0.5});
  norm.bias = Tensor({0., 0.1, 0.2, -0.3});
  expect_near(norm(pattern({2, 4, 3})), {2, 4, 3},
              {-1.39304214,   0.696521068,  -0.497515048, 3.28409631,    0.896024078,  -1.49204816,
               -1.16195985,   0.0486711273, 1.25930211,   0.229651055,   -0.375664436, -0.980979927,
               0.286296464,   -1.08792656,  1.31696373,   -0.0145185855, -2.76296464,  2.04681595,
               -0.0862964638, 1.28792656,   -1.11696373,  -0.328629646,  -1.01574116,  0.186703988},
              1e-8);
}

TEST(Layers, BatchNorm) {
  nn::BatchNorm norm = nn::BatchNorm::init(3);
  norm.weight = Tensor({1., 2., -1.});
  norm.bias = Tensor({0., 0.5, 0.25});
  nn::BatchNorm::Statistics running = norm.statistics();
  expect_near(norm.train(pattern({4, 3, 2}), running), {4, 3, 2},
              {-1.58780701, 0.815360355,  -1.58835301, 2.90963809,   -0.472891426, 0.812248887,
               1.5019796,   0.128741109,  -2.87349332, 1.62449777,   0.16967873,   1.45481904,
               0.815360355, -0.557878138, 2.90963809,  0.339357461,  0.812248887,  -1.43674666,
               0.128741109, -1.24449738,  1.62449777,  -0.945782853, 1.45481904,   -0.794176505},
              1e-8);
  expect_near(running.mean, {3}, {-0.009375, 0.03125, -0.03125}, 1e-8);
  expect_near(running.var, {3}, {0.960602679, 0.969196429, 0.969196429}, 1e-8);
  expect_near(norm(pattern({2, 3, 2}, 3), running), {2, 3, 2},
              {-1.26580373, -0.500582332, 0.944395768, 2.4680384, 1.2340192, 0.472197884, 0.519712867,
               1.28493427, -1.08712774, 0.43651489, -0.543563871, 1.48795964},
              1e-8);
}

TEST(Layers, Attention) {
  const Tensor k = pattern({2, 5, 4}, 5), v = pattern({2, 5, 2}, 3);
  expect_near(nn::attention(pattern({2, 3, 4}), k, v), {2, 3, 2},
              {-0.352629779, 0.397370221, -0.524141819, 0.225858181, -0.64680858, 0.10319142, 0.149880542,
               -0.162383515, 0.684057842, -0.750637653, 0.447377723, -0.418243745},
              1e-8);
  const Tensor q = pattern({2, 5, 4});
  const Tensor causal = nn::attention(q, k, v, true);
  expect_near(causal(1), {5, 2},
              {0.75, -1.25, 0.250235449, -0.650282539, 0.406456799, -0.687525077, 0.263146714, -0.319938732,
               0.393595968, -0.299707178},
              1e-8);
  // the last queries alone see the same
  EXPECT_TRUE(allclose(nn::attention(q(all(), range(3, 5)), k, v, true), causal(all(), range(3, 5))));
}

TEST(Layers, MultiHeadAttention) {
  nn::MultiHeadAttention layer = {
      {pattern({12, 4}, 5), pattern({12}, 3)}, {pattern({4, 4}, 2), pattern({4}, 4)}, 2};
  const Tensor x = pattern({2, 3, 4});
  expect_near(layer(x), {2, 3, 4},
              {-0.967199941, -3.12298255,   1.67649492,   -0.562000863, 0.163375995,  0.26271172,
               1.0470618,    -0.35422017,   -0.408614017, -1.12148819,  0.231487919,  -1.00007166,
               0.338967407,  -0.0397398904, 1.28029633,   -0.625811939, -0.826620312, -0.516297697,
               1.13717976,   -1.5261287,    -0.99776514,  -0.669778617, 1.05445605,   -1.67495706},
              1e-8);
  layer.causal = true;
  expect_near(layer(x), {2, 3, 4},
              {-3.4375,      -0.28125,    5.28125,      -1.1875,      -2.13203568,  2.34756263,
               1.13108788,   -1.7292079,  -0.408614017, -1.12148819,  0.231487919,  -1.00007166,
               -0.671875,    -0.09375,    -0.375,       -1.515625,    -0.466016567, -0.684327876,
               0.0991766301, -1.13958055, -0.99776514,  -0.669778617, 1.05445605,   -1.67495706},
              1e-8);
}

TEST(Layers, EmbeddingsAreRows) {
  const nn::Embedding layer = {testing::counting({4, 3})};
  expect_near(layer(Tensor({3, 0, 3, 1}, {2, 2})), {2, 2, 3}, {9, 10, 11, 0, 1, 2, 9, 10, 11, 3, 4, 5});
}

TEST(Layers, DropoutKeepsTheMean) {
  const Tensor x = ones({200, 500});
  const Tensor y = nn::dropout(random::Key(3), x, 0.2).eval();
  EXPECT_NEAR(mean(y).item<float>(), 1, 0.005);
  EXPECT_NEAR(mean((y == 0).astype(DType::Float32)).item<float>(), 0.2, 0.005);
  EXPECT_FLOAT_EQ(max(y).item<float>(), 1.25f);
  EXPECT_TRUE(array_equal(y, nn::dropout(random::Key(3), x, 0.2)));
  EXPECT_TRUE(array_equal(x, nn::dropout(random::Key(3), x, 0)));
}

/// Initial values have the moments and bounds of their distributions.
TEST(Layers, InitialValues) {
  const random::Key key(11);
  const Shape shape = {64, 32, 3, 3};  // fan_in 288, fan_out 576
  const auto deviation = [](const Tensor& x) { return stddev(x).item<float>(); };
  const auto bound = [](const Tensor& x) { return max(abs(x)).item<float>(); };
  const double glorot = std::sqrt(2.0 / (288 + 576)), he = std::sqrt(2.0 / 288), third = std::sqrt(3.0);
  EXPECT_NEAR(deviation(nn::glorot_normal(key, shape)), glorot, 0.02 * glorot);
  EXPECT_NEAR(deviation(nn::he_normal(key, shape)), he, 0.02 * he);
  EXPECT_NEAR(deviation(nn::glorot_uniform(key, shape)), glorot, 0.02 * glorot);
  EXPECT_NEAR(deviation(nn::he_uniform(key, shape)), he, 0.02 * he);
  EXPECT_NEAR(bound(nn::glorot_uniform(key, shape)), third * glorot, 0.001 * glorot);
  EXPECT_NEAR(bound(nn::he_uniform(key, shape)), third * he, 0.001 * he);
  const nn::Linear linear = nn::Linear::init(key, 400, 50);
  EXPECT_EQ(linear.weight.shape().str(), "(50, 400)");
  EXPECT_NEAR(bound(linear.weight), 0.05, 1e-4);
  EXPECT_LE(bound(linear.bias), 0.05);
  EXPECT_NE(linear.bias(0).item<float>(), linear.weight(0, 0).item<float>());
  EXPECT_FALSE(nn::Linear::init(key, 3, 5, false).bias.valid());
}

TEST(Layers, TreesOfLayers) {
  const nn::MultiHeadAttention layer = nn::MultiHeadAttention::init(random::Key(1), 8, 2, true, false);
  EXPECT_EQ(tree_names(layer), (std::vector<std::string>{"in.weight", "out.weight"}));
  const nn::MultiHeadAttention doubled = tree_map([](const Tensor& x) { return x * 2; }, layer);
  EXPECT_TRUE(doubled.causal);
  EXPECT_EQ(doubled.heads, 2);
}

TEST(Layers, Errors) {
  const random::Key key(1);
  const Tensor x = zeros({2, 3, 8, 8});
  expect_user_error(
      [&] { nn::conv(x, zeros({4, 2, 3, 3})); },
      "[conv] x float32 (2, 3, 8, 8) does not fit weight float32 (4, 2, 3, 3) (out, in / 1, kernel…)");
  expect_user_error(
      [&] { nn::conv(x, zeros({4, 3, 3})); },
      "[conv] x float32 (2, 3, 8, 8) does not fit weight float32 (4, 3, 3) (out, in / 1, kernel…)");
  expect_user_error([&] { return nn::conv_transpose(x, zeros({4, 3, 3, 3})); },
                    "[conv_transpose] x float32 (2, 3, 8, 8) does not fit weight float32 (4, 3, 3, 3) (in, "
                    "out / 1, kernel…)");
  EXPECT_THROW((void)nn::conv_transpose(x, zeros({3, 4, 2, 2}), {}, {}, {1, 1}), UserError);
  expect_user_error([&] { return nn::adaptive_max_pool(x, {0, 2}); },
                    "[adaptive_max_pool] (0, 2) over float32 (2, 3, 8, 8)");
  expect_user_error([&] { nn::conv(x, zeros({4, 3, 3, 3}), zeros({3})); },
                    "[conv] bias float32 (3,) does not fit weight float32 (4, 3, 3, 3)");
  expect_user_error([&] { nn::conv(x, zeros({4, 3, 3, 3}), {}, {.stride = {0, 1}}); },
                    "[conv] stride (0, 1) is not one number of at least 1 for each of 2 axes");
  expect_user_error([&] { nn::conv(x, zeros({4, 3, 3, 3}), {}, {.padding = {1}}); },
                    "[conv] padding (1,) is not one number of at least 0 for each of 2 axes");
  EXPECT_THROW(nn::conv(x, zeros({4, 3, 9, 3})), UserError);
  EXPECT_THROW(nn::conv(x, zeros({3, 1, 9, 3}), {}, {.groups = 3}), UserError);
  expect_user_error([&] { nn::he_normal(key, {3}); },
                    "[he_normal] a weight has the axes (out, in, …), got (3,)");
  expect_user_error([&] { nn::dropout(key, x, 1); }, "[dropout] rate = 1 is outside of [0, 1)");
  expect_user_error([&] { nn::MultiHeadAttention::init(key, 10, 3); },
                    "[MultiHeadAttention] 3 heads of width 10");
  expect_user_error([&] { nn::GroupNorm::init(10, 3); }, "[GroupNorm] 3 groups of 10 channels");
  expect_user_error([&] { nn::GroupNorm::init(3, 3)(zeros({2, 4})); },
                    "[GroupNorm] x float32 (2, 4) does not have 3 channels");
  expect_user_error([&] { nn::Conv::init(key, 3, 4, {3, 3}, {.groups = 2}); },
                    "[Conv] 2 groups of 3 and 4 channels");
  expect_user_error(
      [&] { nn::attention(x, x, zeros({2, 3, 7, 8})); },
      "[attention] query float32 (2, 3, 8, 8), key float32 (2, 3, 8, 8), value float32 (2, 3, 7, 8) do "
      "not fit (…, t, width), (…, s, width), (…, s, any)");
}

}  // namespace
}  // namespace kiln
