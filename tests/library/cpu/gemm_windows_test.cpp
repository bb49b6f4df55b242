// Products whose columns are windows of an image: the vectors that are read where they lie on every
// instruction set of the host, and whole products against loops in float64.
#include "library/cpu/gemm_windows.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm.h"
#include "library/cpu/gemm_batches.h"
#include "with_threads.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace kiln::cpu {
namespace {

using library::Matmul;

/// Small integers: their sums are exact in every order.
template <class T>
std::vector<T> numbers(std::int64_t n, int seed) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<T>(static_cast<float>((i * 7 + seed) % 17 - 8)));
  return out;
}

template <class C>
class WindowSumsOf : public ::testing::Test {};
using Computed = ::testing::Types<float, double>;
TYPED_TEST_SUITE(WindowSumsOf, Computed);

TYPED_TEST(WindowSumsOf, EveryLevelAndNumberOfRows) {
  using C = TypeParam;
  constexpr std::int64_t kSteps = 9, kPitch = 71, kTo = 80;
  const std::vector<C> b = numbers<C>(kSteps * kPitch, 1), a = numbers<C>(kSteps * 20, 5);
  std::vector<std::int64_t> forward, backward;
  for (std::int64_t p = 0; p < kSteps; ++p) {
    forward.push_back(p * kPitch);
    backward.push_back((kSteps - 1 - p) * kPitch);
  }
  for (const SumLevel level : {SumLevel::Base, SumLevel::Avx2, SumLevel::Avx512})
    for (const bool strict : {false, true}) {
      if (level > best_sum_level()) continue;
      const WindowMicro<C> micro = window_micro<C>(level, strict);
      for (std::int64_t rows = 1; rows <= micro.rows; ++rows)
        for (const bool first : {false, true}) {
          const int count = window_vectors(rows);
          // the last overlaps the others, which are equal, where nothing is added to
          const std::int64_t last = first ? 3 + micro.lanes / 2 : 40;
          std::vector<WindowVector<C>> vectors(static_cast<std::size_t>(count),
                                               {b.data() + 1, forward.data(), 3});
          vectors.back() = {b.data() + 5, backward.data(), last};
          std::vector<C> out(static_cast<std::size_t>(rows * kTo), C{2}), expected = out;
          for (std::int64_t i = 0; i < rows; ++i)
            for (const WindowVector<C>& v : {vectors.front(), vectors.back()})
              for (std::int64_t l = 0; l < micro.lanes; ++l) {
                C sum = first ? 0 : 2;
                for (std::size_t p = 0; p < kSteps; ++p)
                  sum += a[p * 20 + static_cast<std::size_t>(i)] * v.from[v.steps[p] + l];
                expected[static_cast<std::size_t>(i * kTo + v.column + l)] = sum;
              }
          micro.sums[rows - 1](kSteps, a.data(), 20, vectors.data(), out.data(), kTo, first);
          ASSERT_EQ(out, expected) << rows << " rows, level " << static_cast<int>(level);
        }
    }
}

TEST(EverySecond, OfAnyNumberOnEveryLevel) {
  for (const SumLevel level : {SumLevel::Base, SumLevel::Avx2, SumLevel::Avx512}) {
    if (level > best_sum_level()) continue;
    for (std::int64_t n = 0; n <= 70; ++n) {
      // just large enough: what lies behind the last element is not read
      const auto from =
          std::make_unique<float[]>(static_cast<std::size_t>(std::max<std::int64_t>(2 * n - 1, 0)));
      for (std::int64_t i = 0; i < 2 * n - 1; ++i) from[static_cast<std::size_t>(i)] = static_cast<float>(i);
      std::vector<float> to(static_cast<std::size_t>(n) + 1, -1.0f);
      every_second(level, from.get(), to.data(), n);
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(to[static_cast<std::size_t>(i)], static_cast<float>(2 * i)) << n;
      ASSERT_EQ(to.back(), -1.0f) << n;
    }
  }
}

/// A convolution of images without padding, as the plan hands it over: weights times windows.
struct Convolution {
  std::int64_t images = 1, channels = 3, height = 6, width = 40, filters = 4, kernel = 3;
  std::int64_t stride = 1, dilation = 1;
  bool by_channel = false;  // filters of their own, else all share them
  std::int64_t rows() const { return (height - (kernel - 1) * dilation - 1) / stride + 1; }
  std::int64_t columns() const { return (width - (kernel - 1) * dilation - 1) / stride + 1; }
  std::int64_t in() const { return by_channel ? 1 : channels; }
  std::int64_t terms() const { return in() * kernel * kernel; }
  std::int64_t points() const { return rows() * columns(); }
  std::int64_t products() const { return images * (by_channel ? channels : 1); }
  std::string text() const {
    const std::int64_t all[] = {images, channels, height, width, filters, kernel, stride, dilation};
    std::string out = by_channel ? "by channel" : "";
    for (const std::int64_t n : all) out.append(1, ' ').append(std::to_string(n));
    return out;
  }
};

template <class T>
struct WindowCall {
  Convolution c;
  std::vector<T> image, weights, out;
  std::vector<std::int64_t> steps, columns;
  Matmul call;

  /// Channels last: windows are rows, of which a product has those of all images, and weights are columns.
  static WindowCall of_channels_last(const Convolution& convolution) {
    WindowCall out(convolution);
    const Convolution& c = out.c;
    out.steps.clear();
    out.columns.clear();
    for (std::int64_t y = 0; y < c.kernel; ++y)
      for (std::int64_t x = 0; x < c.kernel; ++x)
        for (std::int64_t i = 0; i < c.channels; ++i)
          out.steps.push_back((y * c.width + x) * c.dilation * c.channels + i);
    for (std::int64_t i = 0; i < c.images; ++i)
      for (std::int64_t y = 0; y < c.rows(); ++y)
        for (std::int64_t x = 0; x < c.columns(); ++x)
          out.columns.push_back(((i * c.height + y * c.stride) * c.width + x * c.stride) * c.channels);
    out.call.batch_rank = 0;
    out.call.m = static_cast<std::int64_t>(out.columns.size()), out.call.n = c.filters;
    out.call.a = {out.image.data(), 0, 0, {}, out.columns.data(), out.steps.data()};
    out.call.b = {out.weights.data(), 1, c.terms(), {}};
    return out;
  }

  explicit WindowCall(const Convolution& convolution, bool strict = false) : c(convolution) {
    image = numbers<T>(c.images * c.channels * c.height * c.width, 2);
    weights = numbers<T>((c.by_channel ? c.channels : 1) * c.filters * c.terms(), 3);
    out.assign(static_cast<std::size_t>(c.products() * c.filters * c.points()), static_cast<T>(77.0f));
    for (std::int64_t i = 0; i < c.in(); ++i)
      for (std::int64_t y = 0; y < c.kernel; ++y)
        for (std::int64_t x = 0; x < c.kernel; ++x)
          steps.push_back(i * c.height * c.width + y * c.dilation * c.width + x * c.dilation);
    for (std::int64_t y = 0; y < c.rows(); ++y)
      for (std::int64_t x = 0; x < c.columns(); ++x) columns.push_back(y * c.stride * c.width + x * c.stride);
    call.dtype = dtype_of<T>;
    call.strict = strict;
    call.batch_rank = 2;
    call.batch[0] = c.images, call.batch[1] = c.by_channel ? c.channels : 1;
    call.m = c.filters, call.n = c.points(), call.k = c.terms();
    const std::int64_t plane = c.height * c.width;
    call.a = {weights.data(), c.terms(), 1, {0, c.filters * c.terms()}};
    call.b = {image.data(), 0, 0, {c.channels * plane, plane}, steps.data(), columns.data()};
    call.out = out.data();
  }

  void operator()() {
    std::vector<std::byte> workspace(library().workspace_bytes(call) + 64);
    void* aligned = workspace.data();
    std::size_t room = workspace.size();
    library().matmul(call, static_cast<std::byte*>(std::align(64, 1, aligned, room)));
  }

  double expected(std::int64_t product, std::int64_t row, std::int64_t point) const {
    const std::int64_t group = c.by_channel ? product % c.channels : 0;
    const std::int64_t from = product * c.in() * c.height * c.width;
    double sum = 0;
    for (std::int64_t p = 0; p < c.terms(); ++p)
      sum +=
          static_cast<double>(weights[static_cast<std::size_t>((group * c.filters + row) * c.terms() + p)]) *
          static_cast<double>(image[static_cast<std::size_t>(from + steps[static_cast<std::size_t>(p)] +
                                                             columns[static_cast<std::size_t>(point)])]);
    return sum;
  }
};

template <class T>
class Windows : public testing::WithThreads {
 protected:
  void check(const Convolution& c, bool strict = false) {
    WindowCall<T> run(c, strict);
    run();
    for (std::int64_t i = 0; i < c.products(); ++i)
      for (std::int64_t r = 0; r < c.filters; ++r)
        for (std::int64_t p = 0; p < c.points(); ++p) {
          const T got = run.out[static_cast<std::size_t>((i * c.filters + r) * c.points() + p)];
          ASSERT_EQ(static_cast<double>(got),
                    static_cast<double>(static_cast<T>(static_cast<float>(run.expected(i, r, p)))))
              << name(dtype_of<T>) << " " << c.text() << " at " << i << "," << r << "," << p;
        }
  }
};
/// Each result of a convolution with channels last.
template <class T>
void check_channels_last(const Convolution& c) {
  WindowCall<T> run = WindowCall<T>::of_channels_last(c);
  run();
  for (std::int64_t p = 0; p < run.call.m; ++p)
    for (std::int64_t r = 0; r < c.filters; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < c.terms(); ++i)
        sum += static_cast<double>(run.weights[static_cast<std::size_t>(r * c.terms() + i)]) *
               static_cast<double>(run.image[static_cast<std::size_t>(
                   run.columns[static_cast<std::size_t>(p)] + run.steps[static_cast<std::size_t>(i)])]);
      ASSERT_EQ(static_cast<double>(run.out[static_cast<std::size_t>(p * c.filters + r)]),
                static_cast<double>(static_cast<T>(static_cast<float>(sum))))
          << name(dtype_of<T>) << " " << c.text() << " at " << p << "," << r;
    }
}
using Types = ::testing::Types<float, double, float16, bfloat16, std::int32_t>;
TYPED_TEST_SUITE(Windows, Types);

TYPED_TEST(Windows, EveryNumberOfFilters) {
  for (std::int64_t filters = 1; filters <= 16; ++filters) this->check({.filters = filters});
  for (const std::int64_t filters : {29, 64, 170, 200}) this->check({.channels = 2, .filters = filters});
}

TYPED_TEST(Windows, RowsOfAnyWidth) {
  for (const std::int64_t filters : {2, 20})
    for (const std::int64_t width : {3, 9, 17, 18, 19, 25, 34, 50, 66, 67, 300})
      this->check({.width = width, .filters = filters});
}

TYPED_TEST(Windows, KernelsStridesAndDilations) {
  for (const std::int64_t filters : {1, 15})
    for (const std::int64_t kernel : {1, 2, 5, 7})
      for (const std::int64_t step : {1, 2, 3, 4})
        this->check({.height = 30,
                     .width = 91,
                     .filters = filters,
                     .kernel = kernel,
                     .stride = step,
                     .dilation = step});
}

/// Operands larger than a cache, whose tiles are staged.
TYPED_TEST(Windows, ManyPoints) {
  for (const int threads : {1, 2}) {
    this->use(threads);
    this->check({.channels = 4, .height = 9, .width = 9000, .filters = 2});
    this->check({.channels = 2, .height = 300, .width = 600, .filters = 1, .kernel = 5, .stride = 3});
  }
}

/// More steps than vectors are packed for at a time; few rows then share no columns.
TYPED_TEST(Windows, ManyChannels) {
  for (const std::int64_t filters : {1, 3, 14, 31})
    for (const std::int64_t width : {18, 41})
      this->check({.channels = 50, .height = 5, .width = width, .filters = filters});
}

TYPED_TEST(Windows, FiltersOfEachChannelAndManyImagesOnThreads) {
  for (const int threads : {1, 2, 5}) {
    this->use(threads);
    this->check({.images = 3,
                 .channels = 7,
                 .height = 9,
                 .width = 30,
                 .filters = 1,
                 .kernel = 7,
                 .by_channel = true});
    this->check({.images = 2,
                 .channels = 3,
                 .height = 9,
                 .width = 30,
                 .filters = 2,
                 .kernel = 5,
                 .by_channel = true});
    this->check({.images = 2, .channels = 9, .height = 30, .width = 58, .filters = 40});
    this->check({.channels = 20, .height = 20, .width = 30, .filters = 300});
  }
}

TYPED_TEST(Windows, StrictModeHasTheSameSums) {
  this->check({.filters = 3}, true);
  this->check({.channels = 50, .filters = 20}, true);
}

TEST(WindowNumbers, BitsDoNotDependOnTheNumberOfThreads) {
  const Config before = config();
  for (const std::int64_t filters : {3, 200}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 7}) {
      Config c = before;
      c.num_threads = threads;
      configure(c);
      WindowCall<float> run({.channels = 50, .height = 20, .width = 41, .filters = filters});
      for (std::size_t i = 0; i < run.image.size(); ++i) run.image[i] *= 0.37f + static_cast<float>(i % 5);
      run();
      if (first.empty()) first = run.out;
      EXPECT_EQ(std::memcmp(first.data(), run.out.data(), first.size() * sizeof(float)), 0) << threads;
    }
  }
  configure(before);
}

/// More images than registers have lanes, and some are left over.
TYPED_TEST(Windows, ManySmallImages) {
  for (const int threads : {1, 2, 5}) {
    this->use(threads);
    for (const std::int64_t filters : {1, 3, 8, 31})
      for (const std::int64_t images : {32, 39, 65})
        this->check({.images = images, .height = 5, .width = 6, .filters = filters});
    this->check({.images = 50, .channels = 30, .height = 4, .width = 7, .filters = 20});
    this->check(
        {.images = 35, .height = 9, .width = 9, .filters = 5, .kernel = 2, .stride = 2, .dilation = 2});
  }
}

TYPED_TEST(Windows, ChannelsLast) {
  for (const int threads : {1, 5}) {
    this->use(threads);
    for (const std::int64_t channels : {1, 3, 4, 5, 8, 40})
      for (const std::int64_t filters : {2, 7, 8, 16, 40})
        check_channels_last<TypeParam>(
            {.images = 2, .channels = channels, .height = 9, .width = 21, .filters = filters});
    for (const std::int64_t stride : {2, 3})
      for (const std::int64_t width : {18, 40, 41})
        check_channels_last<TypeParam>(
            {.channels = 8, .height = 21, .width = width, .filters = 6, .stride = stride});
    check_channels_last<TypeParam>({.channels = 6, .height = 90, .width = 70, .filters = 5, .dilation = 2});
    check_channels_last<TypeParam>({.channels = 20, .width = 700, .filters = 3, .kernel = 5});
  }
}

TEST(BatchProductOf, ManySmallImagesThatShareFilters) {
  const auto fits = []<class T>(T, const Convolution& c) {
    return BatchProduct<T>::fits(WindowCall<T>(c).call);
  };
  const std::int64_t lanes = window_micro<float>(best_sum_level(), false).lanes;
  const Convolution small{.images = 2 * lanes, .height = lanes / 2 + 3, .width = lanes / 2 + 3};
  EXPECT_TRUE(fits(0.0f, small));
  EXPECT_TRUE(fits(float16{}, small));
  EXPECT_FALSE(fits(std::int32_t{}, small));
  Convolution other = small;
  other.images = 2 * lanes - 1;
  EXPECT_FALSE(fits(0.0f, other));
  other = small, other.by_channel = true;
  EXPECT_FALSE(fits(0.0f, other));
  other = small, other.width = 2 * lanes + 2;  // rows of whole vectors
  EXPECT_FALSE(fits(0.0f, other));
  other = small, other.kernel = 1, other.channels = 40;  // each element is in one window
  EXPECT_FALSE(fits(0.0f, other));
}

/// Channels last: pixels are columns that lie as far apart as a pixel has channels.
TEST(WindowColumnsOf, Planes) {
  const auto taken = []<class T>(T, const Convolution& c) {
    const WindowCall<T> run = WindowCall<T>::of_channels_last(c);
    return WindowColumns<T>::of(transposed(run.call), 256).has_value();
  };
  EXPECT_TRUE(taken(0.0f, {.channels = 8}));
  EXPECT_TRUE(taken(float16{}, {.channels = 100}));
  EXPECT_TRUE(taken(0.0f, {.channels = 8, .height = 20, .width = 80, .stride = 2}));
  EXPECT_FALSE(taken(
      0.0f, {.images = 2, .channels = 8, .height = 21, .width = 81, .stride = 2}));  // rows begin between
  EXPECT_FALSE(taken(0.0f, {.channels = 8, .kernel = 1}));                           // nothing is read twice
}

/// A vector that is converted or summed twice must not read what lies in front of or behind an image.
TEST(WindowNumbers, ReadsNothingBesideTheImage) {
  WindowCall<float> run({.filters = 3});
  std::vector<float> wide(run.image.size() + 64, std::nanf(""));
  std::copy(run.image.begin(), run.image.end(), wide.begin() + 32);
  run.call.b.data = wide.data() + 32;
  run();
  EXPECT_TRUE(std::none_of(run.out.begin(), run.out.end(), [](float x) { return std::isnan(x); }));
}

/// The same of images on lanes, and of planes.
TEST(WindowNumbers, ReadsNothingBesideSmallImagesOrPixels) {
  const auto whole = [](WindowCall<float> run, library::MatrixStack& (*images)(Matmul&)) {
    std::vector<float> wide(run.image.size() + 64, std::nanf(""));
    std::copy(run.image.begin(), run.image.end(), wide.begin() + 32);
    images(run.call).data = wide.data() + 32;
    run.call.out = run.out.data();
    run();
    return std::none_of(run.out.begin(), run.out.end(), [](float x) { return std::isnan(x); });
  };
  const auto columns = [](Matmul& call) -> library::MatrixStack& { return call.b; };
  const auto rows = [](Matmul& call) -> library::MatrixStack& { return call.a; };
  EXPECT_TRUE(whole(WindowCall<float>({.images = 37, .height = 6, .width = 6, .filters = 3}), columns));
  EXPECT_TRUE(whole(WindowCall<float>::of_channels_last({.channels = 8, .filters = 5}), rows));
}

TEST(WindowColumnsOf, OperandsThatAreReadWhereTheyLie) {
  const auto taken = []<class T>(T, const Convolution& c) {
    WindowCall<T> call(c);
    return WindowColumns<T>::of(call.call, 256).has_value();
  };
  EXPECT_TRUE(taken(0.0f, {}));
  EXPECT_TRUE(taken(0.0f, {.height = 20, .width = 80, .stride = 2}));
  EXPECT_FALSE(taken(0.0f, {.width = 80, .stride = 5}));  // too far apart to be staged
  EXPECT_TRUE(taken(0.0f, {.width = 9}));                 // rows shorter than a vector
  const WindowMicro<float> micro = window_micro<float>(best_sum_level(), false);
  const std::int64_t panel = micro.rows;
  EXPECT_FALSE(taken(0.0f, {.width = 9, .filters = panel + 1}));
  EXPECT_TRUE(taken(float16{}, {.width = 9, .filters = 4 * panel}));  // packing converts rows one by one
  EXPECT_FALSE(taken(float16{}, {.width = 9, .filters = 4 * panel + 1}));
  EXPECT_FALSE(taken(0.0f, {.width = std::max(3, micro.lanes / 4 + 1)}));  // less than a quarter of a vector
  EXPECT_FALSE(taken(std::int32_t{}, {}));
  EXPECT_TRUE(taken(float16{}, {}));
  EXPECT_FALSE(taken(float16{}, {.kernel = 1}));  // each element is in one window alone: packed as well
  WindowCall<float> dense(Convolution{});
  dense.call.b.row_offsets = dense.call.b.col_offsets = nullptr;
  EXPECT_FALSE(WindowColumns<float>::of(dense.call, 256).has_value());
}

/// Columns two apart of which some begin at odd elements have no places in one stage: they are packed.
TEST(WindowColumnsOf, RowsThatDoNotBeginAtWholeSteps) {
  WindowCall<float> call({.height = 20, .width = 80, .filters = 5, .stride = 2});
  for (std::size_t i = call.columns.size() / 2; i < call.columns.size(); ++i) call.columns[i] -= 1;
  EXPECT_FALSE(WindowColumns<float>::of(call.call, 256).has_value());
  call();
  for (std::int64_t r = 0; r < call.c.filters; ++r)
    for (std::int64_t p = 0; p < call.c.points(); ++p)
      ASSERT_EQ(call.out[static_cast<std::size_t>(r * call.c.points() + p)], call.expected(0, r, p))
          << r << "," << p;
}

/// What no cache holds is staged, in tiles whose stages one does.
TEST(WindowColumnsOf, StagesOfLargeOperands) {
  const auto places = [](const Convolution& c) {
    return WindowPlaces(WindowCall<float>(c).call, 4096, 192, 16, false, false);
  };
  EXPECT_FALSE(places({.channels = 8, .height = 60, .width = 60}).staged());
  const WindowPlaces large = places({.channels = 80, .height = 60, .width = 60});
  EXPECT_TRUE(large.staged());
  EXPECT_LE(large.stage_elements(), 64 << 10);
  EXPECT_LT(large.tile(), 58 * 58);
  EXPECT_FALSE(places({.channels = 80, .height = 60, .width = 60, .kernel = 1}).staged());
}

}  // namespace
}  // namespace kiln::cpu
