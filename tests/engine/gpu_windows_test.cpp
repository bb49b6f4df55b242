// Convolutions in plans of a GPU: a product whose main loop reads the windows of an array where they lie,
// with the maps of its result, in one launch.
#include "engine/gpu_products.h"

#include <kiln/layers.h>

#include <cmath>
#include <limits>

namespace kiln {
namespace {

using test::data;

class GpuWindows : public test::GpuProducts {
 protected:
  static Tensor halves(const Shape& shape, int seed = 0, DType type = DType::BFloat16) {
    return astype(data(shape, DType::Float32, seed) * 0.25, type).eval();
  }
  /// The convolution with a bias and an activation takes so many launches, and no library call; 0: however.
  static void expect_conv(const Shape& x, const Shape& weight, nn::ConvOptions options,
                          std::uint64_t launches = 1, DType type = DType::BFloat16) {
    SCOPED_TRACE(::testing::Message() << x << " conv " << weight);
    options.channels_last = true;
    const Tensor image = halves(x, 0, type), filters = halves(weight, 1, type),
                 bias = halves({weight[0]}, 2, type);
    expect_launches([&] { return relu(nn::conv(image, filters, bias, options)); }, launches);
  }
};

// Boxes of the copy engine: 64 channels or nearly, more than 64 points and filters.
TEST_F(GpuWindows, OfTheCopyEngineAreOneLaunch) {
  expect_conv({1, 10, 9, 64}, {72, 3, 3, 64}, {.padding = {1, 1}});
}

TEST_F(GpuWindows, OfTheCopyEngineMayHaveStridesAndGaps) {
  expect_conv({2, 17, 13, 64}, {72, 3, 2, 64}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}});
  expect_conv({2, 15, 13, 64}, {56, 1, 1, 64}, {.stride = {2, 1}});
}

TEST_F(GpuWindows, OfTheCopyEngineMayHaveOneToThreeAxes) {
  expect_conv({2, 45, 64}, {72, 3, 64}, {.padding = {1}});
  expect_conv({1, 4, 6, 5, 48}, {72, 2, 3, 1, 48}, {.padding = {1, 1, 0}}, 1, DType::Float16);
}

TEST_F(GpuWindows, ChannelsMayEndInsideOfAStep) {
  expect_conv({1, 9, 10, 120}, {72, 2, 3, 120}, {.padding = {0, 1}});
}

// Copies by threads: few channels, few filters, windows that lie too far outside.
TEST_F(GpuWindows, OfFewChannelsAreOneLaunch) {
  expect_conv({2, 9, 10, 8}, {24, 3, 3, 8}, {.padding = {1, 1}});
  expect_conv({1, 9, 12, 4}, {17, 3, 3, 4}, {.stride = {1, 2}, .padding = {2, 0}});
  expect_conv({1, 13, 12, 2}, {8, 5, 3, 2}, {.dilation = {2, 3}}, 1, DType::Float16);
}

TEST_F(GpuWindows, OfFewFiltersAreOneLaunch) {
  expect_conv({1, 10, 9, 64}, {16, 3, 3, 64}, {.padding = {1, 1}});
  expect_conv({2, 45, 40}, {72, 3, 40}, {.padding = {1}});
  expect_conv({1, 4, 6, 5, 16}, {40, 3, 3, 3, 16}, {.stride = {1, 2, 1}, .padding = {1, 1, 1}});
}

TEST_F(GpuWindows, WithoutPaddingAreReadFromTheArgument) {
  expect_conv({1, 11, 12, 64}, {72, 3, 3, 64}, {});
  const Tensor wide = halves({2, 12, 11, 40}), filters = halves({24, 3, 3, 24}, 1);
  const auto part = [&] {
    return wide.index(
        std::vector<Slice>{slice::all(), slice::range(1, 12), slice::all(), slice::range(8, 32)});
  };
  expect_launches(
      [&] { return nn::conv(part(), filters, {}, {.padding = {1, 1}, .channels_last = true}) * 0.5; }, 1);
}

TEST_F(GpuWindows, GroupsHaveChannelsOfTheirOwn) {
  const Tensor x = halves({1, 9, 10, 128}), filters = halves({160, 3, 3, 64}, 1);
  const Tensor y = halves({1, 9, 10, 32}), few = halves({32, 3, 3, 8}, 1);
  const nn::ConvOptions options{.padding = {1, 1}, .groups = 2, .channels_last = true};
  expect_launches([&] { return nn::conv(x, filters, {}, options); }, 0);
  expect_launches(
      [&] { return nn::conv(y, few, {}, {.padding = {1, 1}, .groups = 4, .channels_last = true}); }, 0);
}

TEST_F(GpuWindows, NormAndResidualBelongToTheEpilogue) {
  const Tensor x = halves({1, 9, 10, 64}), filters = halves({64, 3, 3, 64}, 1),
               skipped = halves({1, 9, 10, 64}, 4);
  const Tensor mean = data({64}, DType::Float32, 5), scale = data({64}, DType::Float32, 6);
  const Tensor var = data({64}, DType::Float32, 7) + 2.0;
  expect_launches(
      [&] {
        const Tensor y = nn::conv(x, filters, {}, {.padding = {1, 1}, .channels_last = true});
        const Tensor normed = nn::batch_norm(astype(y, DType::Float32), mean, var, scale, mean, 1e-5, -1);
        return astype(relu(normed + astype(skipped, DType::Float32)), DType::BFloat16);
      },
      1);
}

// Two convolutions, one after the other: what the first stores is what the second has windows of.
TEST_F(GpuWindows, FollowEachOther) {
  const Tensor x = halves({1, 9, 10, 16}), first = halves({24, 3, 3, 16}, 1),
               second = halves({8, 3, 3, 24}, 2);
  const nn::ConvOptions options{.padding = {1, 1}, .channels_last = true};
  expect_launches([&] { return nn::conv(relu(nn::conv(x, first, {}, options)), second, {}, options); }, 2);
}

// The value around an array is no part of a plan: one that is not 0 must not meet a plan for zeros.
TEST_F(GpuWindows, OnlyZerosAroundTheArrayAreLeftToTheCopies) {
  const Tensor x = halves({1, 9, 10, 16}), filters = halves({144, 24}, 1);
  for (const double around : {0.0, 1.0, 0.0}) {
    SCOPED_TRACE(around);
    expect_launches(
        [&] {
          const Tensor wide = pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}}, around);
          const Tensor windows = permute_dims(sliding_window(wide, {3, 3}, {1, 2}), {0, 1, 2, 4, 5, 3});
          return matmul(windows.reshape({90, 144}), filters);
        },
        around == 0.0 ? 1 : 0);
  }
}

// Several products share windows; and a padded array that a program asks for is what is read.
TEST_F(GpuWindows, MayBeReadByOthersToo) {
  const Tensor x = halves({1, 9, 10, 16}), filters = halves({144, 24}, 1), other = halves({144, 40}, 3);
  const auto windows = [&](const Tensor& wide) {
    return permute_dims(sliding_window(wide, {3, 3}, {1, 2}), {0, 1, 2, 4, 5, 3}).reshape({90, 144});
  };
  const auto wide = [&] { return pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}}, 0.0); };
  expect_launches(
      [&] {
        const Tensor rows = windows(wide());
        return std::vector{matmul(rows, filters), matmul(rows, other)};
      },
      2);
  expect_launches(
      [&] {
        const Tensor around = wide();
        return std::vector{matmul(windows(around), filters), around};
      },
      2);
}

// The windows are no view that the product alone reads: it does not read below them.
TEST_F(GpuWindows, ThatOthersReadAreStored) {
  const Tensor x = halves({1, 9, 10, 16}), filters = halves({144, 24}, 1);
  expect_launches(
      [&] {
        const Tensor wide = pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}}, 0.0);
        const Tensor rows =
            permute_dims(sliding_window(wide, {3, 3}, {1, 2}), {0, 1, 2, 4, 5, 3}).reshape({90, 144});
        return std::vector{matmul(rows, filters), rows * 2.0};
      },
      0);
}

// Channels first: the array and the weights are stored once more, channels last.
TEST_F(GpuWindows, OfChannelsThatLieApartAreReadFromATurnedArray) {
  for (const std::int64_t channels : {16, 36, 64}) {
    SCOPED_TRACE(channels);
    const Tensor x = halves({2, channels, 9, 10}), filters = halves({72, channels, 3, 3}, 1),
                 bias = halves({72}, 2);
    expect_launches([&] { return relu(nn::conv(x, filters, bias, {.stride = {1, 2}, .padding = {1, 1}})); },
                    3);
  }
}

// Channels first to look at, last in memory.
TEST_F(GpuWindows, OfChannelsThatAreAdjacentInMemoryAreReadThere) {
  const Tensor x = halves({2, 9, 10, 16}), filters = halves({24, 16, 3, 3}, 1);
  expect_launches(
      [&] { return nn::conv(permute_dims(x, {0, 3, 1, 2}), filters, {}, {.padding = {1, 1}}) * 0.5; }, 2);
}

// Single threads multiply floats, and halves whose channels no copy of four bytes takes.
TEST_F(GpuWindows, OfFloatsAreOneLaunch) {
  for (const DType type : {DType::Float32, DType::Float64}) {
    SCOPED_TRACE(name(type));
    expect_conv({2, 9, 10, 3}, {8, 3, 3, 3}, {.padding = {1, 1}}, 1, type);
    expect_conv({1, 17, 13, 6}, {20, 3, 2, 6}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}, 1,
                type);
    expect_conv({2, 45, 16}, {40, 5, 16}, {.padding = {2}}, 1, type);
    expect_conv({2, 45, 16}, {8, 5, 16}, {.padding = {2}}, 1, type);
    expect_conv({2, 45, 7}, {60, 3, 7}, {.padding = {1}}, 1, type);
    expect_conv({1, 4, 6, 5, 4}, {60, 2, 3, 1, 4}, {.padding = {1, 1, 0}}, 1, type);
    expect_conv({3, 7, 9, 1}, {5, 3, 3, 1}, {.padding = {1, 1}}, 1, type);
  }
}

TEST_F(GpuWindows, OfHalvesWithOddChannelsAreOneLaunch) {
  expect_conv({2, 9, 10, 3}, {8, 5, 5, 3}, {.padding = {2, 2}});
  expect_conv({2, 9, 12, 7}, {17, 3, 3, 7}, {.stride = {1, 2}, .padding = {2, 0}}, 1, DType::Float16);
}

// More elements of a window than the table of k holds at a time.
TEST_F(GpuWindows, OfFloatsMayBeLong) {
  expect_conv({2, 14, 15, 41}, {10, 3, 3, 41}, {.padding = {1, 1}}, 1, DType::Float32);
}

// Channels first: points are columns, images a batch with the same filters. Points of 49 and 63 begin images
// anywhere in a call of the epilogue.
TEST_F(GpuWindows, OfFloatsAreReadWithChannelsApart) {
  for (const DType type : {DType::Float32, DType::Float64, DType::BFloat16})
    for (const std::int64_t side : {7, 8, 9}) {
      SCOPED_TRACE(::testing::Message() << name(type) << ' ' << side);
      const Tensor x = halves({5, 3, 7, side}, 0, type), filters = halves({12, 3, 3, 3}, 1, type),
                   bias = halves({12}, 2, type);
      expect_launches([&] { return relu(nn::conv(x, filters, bias, {.padding = {1, 1}})); }, 1);
      expect_launches([&] { return nn::conv(x, filters, {}, {.stride = {2, 1}, .padding = {0, 1}}) * 0.5; },
                      1);
    }
}

// Strips of adjacent windows: rows of whole vectors and others, steps, gaps, one axis, more
// filters than a block has, blocks that end inside of an image or hold several.
TEST_F(GpuWindows, WithChannelsApartAreReadInStrips) {
  struct Case {
    Shape x, weight;
    nn::ConvOptions options;
  };
  const Case cases[] = {
      {{2, 3, 11, 32}, {8, 3, 5, 5}, {.padding = {2, 2}}},
      {{1, 4, 40, 36}, {70, 4, 3, 3}, {.padding = {1, 1}}},
      {{2, 5, 13, 30}, {20, 5, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{1, 2, 15, 28}, {9, 2, 3, 2}, {.stride = {1, 2}, .padding = {2, 3}, .dilation = {3, 2}}},
      {{40, 6, 4, 5}, {17, 6, 3, 3}, {.padding = {1, 1}}},
      {{3, 7, 300}, {12, 7, 7}, {.padding = {3}}},
      {{1, 9, 1040}, {8, 9, 3}, {.stride = {2}}},
      {{1, 2, 9, 1100}, {8, 2, 3, 3}, {.padding = {1, 1}}},
      {{2, 8, 9, 24}, {12, 4, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {{70, 1, 8, 32}, {20, 1, 3, 3}, {.padding = {1, 1}}},
      {{2, 1, 70, 130}, {20, 1, 3, 3}, {.padding = {1, 1}}},
  };
  for (const DType type : {DType::Float32, DType::Float64, DType::Float16})
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << name(type) << ' ' << c.x << " conv " << c.weight);
      if (is_half(type) && c.x[1] % 8 == 0) continue;  // is turned
      const Tensor x = halves(c.x, 0, type), filters = halves(c.weight, 1, type);
      expect_launches([&] { return nn::conv(x, filters, {}, c.options) * 0.5; },
                      c.options.groups == 1 && !(type == DType::Float64 && c.weight[0] > 64));
    }
}

// Strips of many terms by tensor cores: one axis and two, steps, gaps, images that share a block, filters
// that fill no fragment.
TEST_F(GpuWindows, OfManyTermsAreReadInStrips) {
  struct Case {
    Shape x, weight;
    nn::ConvOptions options;
  };
  const Case cases[] = {
      {{3, 48, 6, 32}, {40, 48, 3, 3}, {.padding = {1, 1}}},
      {{2, 60, 230}, {17, 60, 7}, {.padding = {3}}},
      {{4, 50, 18, 28}, {20, 50, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 2}}},
      {{21, 134, 4, 5}, {33, 134, 1, 3}, {.padding = {0, 1}}},
  };
  for (const DType type : {DType::Float32, DType::Float64})
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << name(type) << ' ' << c.x << " conv " << c.weight);
      const Tensor x = halves(c.x, 0, type), filters = halves(c.weight, 1, type);
      expect_launches([&] { return nn::conv(x, filters, {}, c.options) * 0.5; }, 1);
    }
}

// A float is two numbers to tensor cores; of an infinity neither is what the products need.
TEST_F(GpuWindows, OfManyTermsMayHaveInfinities) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensor x = halves({3, 48, 6, 32}, 0, DType::Float32);
  for (const double special : {infinity, -infinity, std::nan(""), 3.4e38}) {
    SCOPED_TRACE(special);
    const Tensor at = arange(x.numel()).reshape({3, 48, 6, 32}) == 5000;
    const Tensor with = where(at, full_like(x, special), x).eval(),
                 filters = halves({40, 48, 3, 3}, 1, DType::Float32);
    expect_launches(
        [&] {
          const Tensor y = nn::conv(with, filters, {}, {.padding = {1, 1}});
          return where(isnan(y), full_like(y, 1e4), clip(y, -1e5, 1e5));
        },
        1);
  }
}

TEST_F(GpuWindows, OfFloatsMayHaveGroups) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    const Shape shape = last ? Shape{2, 9, 10, 12} : Shape{2, 12, 9, 10},
                weight = last ? Shape{8, 3, 3, 6} : Shape{8, 6, 3, 3};
    const Tensor x = halves(shape, 0, DType::Float32), filters = halves(weight, 1, DType::Float32);
    expect_launches(
        [&] { return nn::conv(x, filters, {}, {.padding = {1, 1}, .groups = 2, .channels_last = last}); }, 0);
  }
}

// Windows of one element: what is made of many short rows is made with them, and a library could not read
// rows that are steps apart.
TEST_F(GpuWindows, OfOneElementTakeMapsAlong) {
  const Tensor x = halves({33000, 12}, 0, DType::Float32), filters = halves({12, 24}, 1, DType::Float32),
               bias = halves({24}, 2, DType::Float32);
  expect_launches([&] { return relu(matmul(x, filters) + bias); }, 1);
  expect_launches([&] { return relu(matmul(matrix_transpose(filters), matrix_transpose(x))); }, 1);
  const Tensor images = halves({3, 7, 111, 100}, 0, DType::Float32),
               taps = halves({10, 7, 1, 1}, 1, DType::Float32), shift = halves({10}, 2, DType::Float32);
  expect_launches([&] { return relu(nn::conv(images, taps, shift)); }, 1);
  // Few filters would leave most of a library's tiles of halves empty.
  for (const DType type : {DType::Float16, DType::BFloat16}) {
    const Tensor apart = halves({3, 64, 111, 100}, 0, type), mixed = halves({8, 64, 1, 1}, 1, type),
                 added = halves({8}, 2, type);
    expect_launches([&] { return relu(nn::conv(apart, mixed, added)); }, 1);
    expect_launches([&] { return relu(nn::conv(apart, mixed, added, {.stride = {2, 2}})); }, 1);
  }
  const Tensor wide = halves({3, 5, 35000}, 0, DType::Float32), few = halves({9, 5, 1}, 1, DType::Float32);
  expect_launches([&] { return nn::conv(wide, few, {}, {.stride = {2}}); }, 1);
  const Tensor last = halves({2, 180, 190, 16}, 0, DType::Float32),
               mix = halves({20, 1, 1, 16}, 1, DType::Float32), add = halves({20}, 2, DType::Float32);
  for (const std::int64_t step : {1, 2})
    expect_launches(
        [&] {
          return relu(nn::conv(pad(last, {{0, 0}, {0, 40 * step}, {0, 0}, {0, 0}}), mix, add,
                               {.stride = {step, 1}, .channels_last = true}));
        },
        0);
  expect_launches([&] { return relu(nn::conv(last, mix, add, {.channels_last = true})); }, 1);
}

// Windows as the second operand: channels last, the result's rows are filters.
TEST_F(GpuWindows, MayBeColumns) {
  const auto columns = [&](const Tensor& x) {
    const Tensor wide = pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}}, 0.0);
    const Tensor rows = permute_dims(sliding_window(wide, {3, 3}, {1, 2}), {0, 1, 2, 4, 5, 3});
    return matrix_transpose(rows.reshape({x.dim(0), 90, 9 * x.dim(-1)}));
  };
  for (const std::int64_t channels : {8, 64}) {
    SCOPED_TRACE(channels);
    const Tensor x = halves({2, 9, 10, channels}), filters = halves({72, 9 * channels}, 1),
                 bias = halves({72, 1}, 2);
    expect_launches([&] { return relu(matmul(filters, columns(x)) + bias); }, 1);
  }
}

}  // namespace
}  // namespace kiln
