// Scatters on a device against those of the CPU: every dtype, strides, repeated and out-of-range indices,
// both orders.
#include "library/cuda/scatter.h"

#include "device/cuda/require.h"
#include "library/cpu/scatter.h"
#include "library/cuda/scatter_ways.h"

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <cmath>
#include <cstring>
#include <functional>

namespace kiln::cuda {
namespace {

constexpr Combine kAll[] = {Combine::Set, Combine::Add, Combine::Multiply, Combine::Max, Combine::Min};

/// Memory here and on the device, and an array over a part of it.
struct Operand {
  std::vector<std::byte> here;
  Block* there = nullptr;
  library::Array array;  // data: nothing yet
  std::int64_t first = 0;

  void bind(bool device, DType dtype) {
    array.data = (device ? there->data : here.data()) + first * size_of(dtype);
  }
};

class DeviceScatter : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    if (!computes()) GTEST_SKIP() << "kernels do not run on this driver";
    stream_ = default_stream(0);
  }
  void TearDown() override {
    for (Block* b : blocks_) release(b, stream_);
  }

  std::uint64_t random(std::uint64_t below) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return (state_ >> 33) % below;
  }

  /// Elements that sums and products of some are exact for, and NaN if wanted.
  void draw(std::byte* to, DType dtype, bool nans) {
    dispatch(dtype, [&]<class T>() {
      const std::uint64_t r = random(16);
      T x;
      if constexpr (std::is_same_v<T, bool>)
        x = r % 2;
      else if (is_float(dtype) && nans && r == 0)
        x = T(std::nanf(""));
      else if (is_float(dtype))
        x = T(r < 8 ? 1.0f : r < 12 ? -2.0f : r < 14 ? 0.5f : static_cast<float>(r));
      else
        x = static_cast<T>(random(1u << 31));
      std::memcpy(to, &x, sizeof x);
    });
  }

  /// An array of these strides that lies in the middle of its memory.
  Operand operand(std::vector<std::int64_t> dims, std::vector<std::int64_t> strides, DType dtype,
                  const std::function<void(std::byte*)>& element) {
    Operand o;
    std::int64_t reach = 0;
    o.array.rank = static_cast<int>(dims.size());
    for (std::size_t a = 0; a < dims.size(); ++a) {
      o.array.dims[a] = dims[a];
      o.array.strides[a] = strides[a];
      if (dims[a] == 0) continue;
      reach += (dims[a] - 1) * std::abs(strides[a]);
      if (strides[a] < 0) o.first -= (dims[a] - 1) * strides[a];
    }
    o.here.resize(static_cast<std::size_t>((reach + 1) * size_of(dtype)));
    for (std::size_t i = 0; i < o.here.size(); i += static_cast<std::size_t>(size_of(dtype)))
      element(o.here.data() + i);
    o.there = allocate(o.here.size(), stream_);
    blocks_.push_back(o.there);
    copy_to_device(o.there->data, o.here.data(), o.here.size(), stream_);
    return o;
  }

  /// Values of `count` indices along the axis; indices go from beyond one end to beyond the other, or are
  /// below `reach`.
  void expect_same(DType dtype, DType index_dtype, Combine how, bool ordered,
                   std::vector<std::int64_t> x_dims, int axis, std::int64_t count,
                   std::vector<std::int64_t> x_strides, std::vector<std::int64_t> value_strides,
                   std::vector<std::int64_t> index_strides, bool in_place = false, std::int64_t reach = 0) {
    const std::int64_t extent = x_dims[static_cast<std::size_t>(axis)];
    std::vector<std::int64_t> dims = x_dims;
    dims[static_cast<std::size_t>(axis)] = count;
    const bool nans = how == Combine::Set || how == Combine::Max || how == Combine::Min;
    Operand x = operand(x_dims, x_strides, dtype, [&](std::byte* to) { draw(to, dtype, nans); });
    Operand values = operand(dims, value_strides, dtype, [&](std::byte* to) { draw(to, dtype, nans); });
    Operand indices = operand(dims, index_strides, index_dtype, [&](std::byte* to) {
      dispatch(index_dtype, [&]<class T>() {
        const auto at =
            reach
                ? static_cast<std::int64_t>(random(static_cast<std::uint64_t>(reach)))
                : static_cast<std::int64_t>(random(static_cast<std::uint64_t>(2 * extent + 4))) - extent - 2;
        const T index = static_cast<T>(at);
        std::memcpy(to, &index, sizeof index);
      });
    });
    std::int64_t places = 1;
    for (std::int64_t d : x_dims) places *= d;
    const auto bytes = static_cast<std::size_t>(places * size_of(dtype));

    library::Scatter call;
    call.dtype = dtype;
    call.index_dtype = index_dtype;
    call.axis = axis;
    call.how = how;
    call.ordered = ordered;
    std::vector<std::byte> out[2] = {std::vector<std::byte>(bytes + 1), std::vector<std::byte>(bytes + 1)};
    for (const bool device : {false, true}) {
      x.bind(device, dtype);
      values.bind(device, dtype);
      indices.bind(device, index_dtype);
      call.x = x.array;
      call.values = values.array;
      call.indices = indices.array;
      if (device) {
        if (!in_place) blocks_.push_back(allocate(bytes, stream_));
        call.out = in_place ? x.there->data : blocks_.back()->data;
        blocks_.push_back(allocate(scatter_bytes(call, cuda::device(0).l2_bytes), stream_));
        scatter(call, stream_, blocks_.back()->data);
        copy_to_host(out[1].data(), call.out, bytes, stream_);
      } else {
        std::vector<std::uint64_t> workspace(cpu::scatter_workspace_bytes(call) / 8 + 8);
        call.out = out[0].data();
        cpu::scatter(call, reinterpret_cast<std::byte*>(workspace.data()));
      }
    }
    dispatch(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < places; ++i) {
        T want, got;
        std::memcpy(&want, out[0].data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
        std::memcpy(&got, out[1].data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
        if (want != want && got != got) continue;
        ASSERT_EQ(static_cast<double>(want), static_cast<double>(got))
            << name(dtype) << " by " << name(index_dtype) << ", way " << static_cast<int>(how)
            << (ordered ? " in order" : "") << ", element " << i;
      }
    });
  }

  Stream stream_ = nullptr;
  std::vector<Block*> blocks_;
  std::uint64_t state_ = 977;
};

TEST_F(DeviceScatter, AgreesWithTheCpuOnEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const Combine how : kAll) {
      const auto dtype = static_cast<DType>(d);
      if (is_bool(dtype) && (how == Combine::Add || how == Combine::Multiply)) continue;
      for (const bool ordered : {false, true}) {
        if (ordered && (!is_float(dtype) || how == Combine::Set || how >= Combine::Max)) continue;
        // One index for whole slices, and an index for each value; several meet, and some have no place.
        expect_same(dtype, DType::Int32, how, ordered, {3, 5, 4}, 1, 7, {20, 4, 1}, {28, 4, 1}, {0, 1, 0});
        expect_same(dtype, DType::Int32, how, ordered, {3, 5, 4}, 1, 7, {20, 4, 1}, {28, 4, 1}, {28, 4, 1},
                    true);
      }
    }
}

TEST_F(DeviceScatter, AgreesWithTheCpuOnEveryIndexDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    if (is_int(static_cast<DType>(d)))
      expect_same(DType::Float32, static_cast<DType>(d), Combine::Set, false, {9, 2}, 0, 20, {2, 1}, {2, 1},
                  {1, 0});
}

TEST_F(DeviceScatter, AgreesWithTheCpuOnAnyStrides) {
  for (const Combine how : {Combine::Set, Combine::Add})
    for (const bool ordered : {false, true}) {
      expect_same(DType::Float32, DType::Int64, how, ordered, {6, 3, 5}, 0, 4, {1, 6, -18}, {-40, 2, 7},
                  {1, 0, 4});
      expect_same(DType::Float32, DType::Int64, how, ordered, {6, 3, 5}, 2, 9, {0, 5, 1}, {0, 0, 0},
                  {3, 0, 1});
      // one index for all
      expect_same(DType::Float32, DType::Int64, how, ordered, {6, 3, 5}, 2, 9, {15, 5, 1}, {27, 9, 1},
                  {0, 0, 0});
      expect_same(DType::Float32, DType::Int64, how, ordered, {700}, 0, 5000, {1}, {1}, {1});
      expect_same(DType::Float32, DType::Int64, how, ordered, {7, 1}, 1, 1, {1, 1}, {1, 1}, {1, 1}, true);
      expect_same(DType::Float32, DType::Int64, how, ordered, {5}, 0, 0, {1}, {1}, {1});
      expect_same(DType::Float32, DType::Int64, how, ordered, {0, 4}, 1, 3, {4, 1}, {3, 1}, {3, 1});
    }
  // Halves of more places than values are widened by index.
  for (const Combine how : {Combine::Add, Combine::Multiply})
    expect_same(DType::Float16, DType::Int64, how, false, {60, 5}, 0, 9, {5, 1}, {5, 1}, {1, 0});
  expect_same(DType::Float32, DType::Int64, Combine::Set, false, {2, 3, 2, 2, 3, 2}, 3, 3,
              {72, 24, 12, 6, 2, 1}, {108, 36, 18, 6, 2, 1}, {0, 36, 0, 6, 2, 0});
}

/// Many values in few places: blocks have accumulators of their own.
TEST_F(DeviceScatter, AgreesWithTheCpuOnSmallTargetsOfEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const Combine how : {Combine::Add, Combine::Multiply, Combine::Max, Combine::Min}) {
      const auto dtype = static_cast<DType>(d);
      const bool product = how == Combine::Multiply;
      if (is_bool(dtype) && (how == Combine::Add || product)) continue;
      // Of a float product that many values meet, nothing is left but a zero or an infinity.
      if (!(product && is_float(dtype)))
        expect_same(dtype, DType::Int32, how, false, {3, 5, 2}, 1, 1000, {10, 2, 1}, {2000, 2, 1},
                    {2000, 2, 1}, true);
      expect_same(dtype, DType::Int32, how, false, {40, 20}, 1, 110, {20, 1}, {110, 1}, {110, 1});
    }
}

TEST_F(DeviceScatter, AgreesWithTheCpuOnSmallTargetsOfAnyShape) {
  for (const DType dtype : {DType::Float32, DType::Int64, DType::BFloat16}) {
    const auto same = [&](std::vector<std::int64_t> dims, int axis, std::int64_t count,
                          std::vector<std::int64_t> strides, std::vector<std::int64_t> value_strides,
                          std::vector<std::int64_t> index_strides) {
      expect_same(dtype, DType::Int64, Combine::Add, false, dims, axis, count, strides, value_strides,
                  index_strides);
    };
    same({1}, 0, 9000, {1}, {1}, {1});                 // one place
    same({256}, 0, 40000, {1}, {0}, {1});              // a histogram: one value for all
    same({4096}, 0, 17000, {1}, {-1}, {1});            // as many places as there is room for, of 8 bytes
    same({8192}, 0, 33000, {1}, {1}, {1});             // and of 4
    same({8193}, 0, 33000, {1}, {1}, {1});             // one too many
    same({2500, 3}, 1, 13, {3, 1}, {13, 1}, {13, 1});  // many groups to a block, the last fewer
    same({3, 1000}, 1, 9001, {1000, 1}, {9001, 1}, {0, 1});  // chunks of a group, the last shorter
    same({30, 7}, 0, 2000, {7, 1}, {7, 1}, {1, 0});          // whole rows at each index
    same({2, 3, 2, 50, 2}, 3, 500, {600, 200, 100, 2, 1}, {-6, 2, 0, 7, 1}, {0, 500, 0, 1, 0});
  }
}

/// Rows that indices choose: by vectors and by elements, of few values, of none and of so many that a block
/// takes them, whose x is another array, in another order, or the result's own memory.
TEST_F(DeviceScatter, AgreesWithTheCpuOnRows) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const Combine how : {Combine::Add, Combine::Multiply, Combine::Max, Combine::Min}) {
      const auto dtype = static_cast<DType>(d);
      if (is_bool(dtype) && (how == Combine::Add || how == Combine::Multiply)) continue;
      for (const std::int64_t width : {16, 33})
        expect_same(dtype, DType::Int32, how, false, {5000, width}, 0, 4100, {width, 1}, {width, 1}, {1, 0},
                    width == 33);
    }
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int16}) {
    expect_same(dtype, DType::Int64, Combine::Add, false, {260, 9, 4}, 0, 90000, {36, 4, 1}, {36, 4, 1},
                {1, 0, 0});  // many values of each
    expect_same(dtype, DType::Int64, Combine::Add, false, {4000, 8}, 0, 5000, {1, 4000}, {11, 1}, {1, 0});
    expect_same(dtype, DType::UInt32, Combine::Add, false, {70, 300}, 0, 4097, {300, 1}, {300, 1}, {1, 0});
    expect_same(dtype, DType::Int32, Combine::Add, false, {5000, 12}, 0, 4100, {12, 1}, {12, 1}, {1, 0});
    // few rows, which blocks count: of some values each, of many, and of very many
    expect_same(dtype, DType::Int32, Combine::Add, false, {700, 24}, 0, 9000, {24, 1}, {24, 1}, {1, 0});
    expect_same(dtype, DType::Int32, Combine::Add, false, {300, 33}, 0, 26000, {33, 1}, {33, 1}, {1, 0});
    expect_same(dtype, DType::Int64, Combine::Max, false, {9, 1000}, 0, 5000, {1000, 1}, {1000, 1}, {1, 0});
  }
  // A block has more parts than such a row has values.
  for (const Combine how : {Combine::Add, Combine::Max}) {
    expect_same(DType::UInt8, DType::Int32, how, false, {40, 16}, 0, 4100, {16, 1}, {16, 1}, {1, 0});
    expect_same(DType::Float32, DType::Int32, how, false, {50, 8}, 0, 4100, {8, 1}, {8, 1}, {1, 0});
  }
  // Too few rows for teams on all multiprocessors: what blocks take begins at fewer values.
  for (const DType dtype : {DType::Float64, DType::Int64})
    for (const std::int64_t rows : {20, 60})
      expect_same(dtype, DType::Int32, Combine::Add, false, {rows, 40}, 0, 4100, {40, 1}, {40, 1}, {1, 0});
}

TEST(ScatterWays, RowsOfFewValuesAreTeamsWhereTeamsAreMany) {
  EXPECT_EQ(few_values(std::int64_t{1} << 20, 132), 64);
  EXPECT_EQ(few_values(512 * 132, 132), 64);
  EXPECT_EQ(few_values(256 * 132, 132), 32);
  EXPECT_EQ(few_values(32, 132), 2);
}

/// Short rows that are no whole vectors: their sums have room for whole ones.
TEST_F(DeviceScatter, AgreesWithTheCpuOnRowsOfFewElements) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Int32})
    for (const std::int64_t width : {1, 2, 3, 5, 7})
      expect_same(dtype, DType::Int32, Combine::Add, false, {9000, width}, 0, 9500, {width, 1}, {width, 1},
                  {1, 0}, width == 7);
}

/// Few long rows: blocks have columns of all of them, by vectors where rows are such and few. x keeps its
/// bits where no value comes.
TEST_F(DeviceScatter, AgreesWithTheCpuOnColumnsOfFewRows) {
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    for (const auto& [rows, width] :
         {std::pair<std::int64_t, std::int64_t>{8, 1200}, {33, 300}, {33, 301}, {61, 129}, {100, 128}})
      expect_same(dtype, DType::Int32, Combine::Add, false, {rows, width}, 0, 20000, {width, 1}, {width, 1},
                  {1, 0}, width == 300);
  expect_same(DType::Float32, DType::Int64, Combine::Add, false, {9, 1100}, 0, 20000, {1100, 1}, {1104, 1},
              {1, 0});
}

/// Where the tests' driver has a second cache of 4 MiB, places are taken in ranges.
TEST_F(DeviceScatter, AgreesWithTheCpuOnOutputsThatLeaveTheSecondCache) {
  for (const auto& [dtype, how] : {std::pair{DType::Float32, Combine::Add},
                                   {DType::Float16, Combine::Add},
                                   {DType::Int64, Combine::Max}})
    expect_same(dtype, DType::Int32, how, false, {1100001}, 0, 300000, {1}, {1}, {1});
}

/// Likewise, rows of vectors: x is copied range by range, or lies there already.
TEST_F(DeviceScatter, AgreesWithTheCpuOnRowsThatMeetInRanges) {
  for (const auto& [width, stride, in_place] :
       {std::tuple{8, 8, false}, {8, 8, true}, {12, 12, false}, {4, 8, false}}) {
    const std::int64_t rows = 2200003 / width;
    expect_same(DType::Float32, DType::Int32, Combine::Add, false, {rows, width}, 0, rows / 2 + 7, {width, 1},
                {stride, 1}, {1, 0}, in_place);
  }
}

/// Sums of all rows are in each block's shared memory: of vectors of four, two and one.
TEST_F(DeviceScatter, AgreesWithTheCpuOnManyValuesOfFewRows) {
  for (const auto& [dtype, width, stride] : {std::tuple{DType::Float32, 1, 1},
                                             {DType::Float16, 2, 2},
                                             {DType::BFloat16, 4, 4},
                                             {DType::Float32, 9, 10}}) {
    const std::int64_t rows = 8300 / width, count = 520 * rows;
    expect_same(dtype, DType::Int32, Combine::Add, false, {rows, width}, 0, count, {width, 1}, {stride, 1},
                {1, 0});
  }
}

/// Likewise, rows are moved to buckets: of elements, words and vectors; each a block's, or several blocks'.
TEST_F(DeviceScatter, AgreesWithTheCpuOnRowsThatAreMovedToBuckets) {
  for (const auto& [dtype, width, in_place] : {std::tuple{DType::Float16, 1, false},
                                               {DType::Float32, 3, true},
                                               {DType::UInt8, 7, false},
                                               {DType::Int64, 2, true},
                                               {DType::Float64, 2, false}}) {
    const std::int64_t rows = 4400001 / width / size_of(dtype), count = rows / 2 + 7;
    expect_same(dtype, DType::Int32, Combine::Add, false, {rows, width}, 0, count, {width, 1}, {width, 1},
                {1, 0}, in_place);
  }
  for (const DType dtype : {DType::Float16, DType::Int32})
    expect_same(dtype, DType::Int64, Combine::Add, false, {1100001, 1}, 0, 600000, {1, 1}, {2, 1}, {1, 0},
                false, 20000);
}

TEST(ScatterWays, RangesAreOfOutputsThatLeaveTheSecondCache) {
  library::Scatter call;
  call.dtype = DType::Float32;
  call.how = Combine::Add;
  call.x.rank = call.values.rank = call.indices.rank = 1;
  call.values.dims[0] = call.indices.dims[0] = 1 << 25;
  constexpr std::uint64_t kL2 = 50 << 20;
  const auto ranges = [&](std::int64_t places) {
    call.x.dims[0] = places;
    return ranges_of(call, kL2);
  };
  EXPECT_EQ(ranges(1 << 25), 4);
  EXPECT_EQ(ranges(1 << 23), 1);
  call.values.dims[0] = 1 << 20;  // of most lines nothing is read
  EXPECT_EQ(ranges(1 << 25), 1);
  call.values.dims[0] = 1 << 25;
  call.choices.take(FusionVariant::OneTable);
  EXPECT_EQ(ranges(1 << 25), 1);
}

/// Of four values of so many floats for each row, on an H200.
Way way(std::int64_t rows, std::int64_t width) {
  library::Scatter call;
  call.dtype = DType::Float32;
  call.how = Combine::Add;
  call.ordered = false;
  call.x.rank = call.values.rank = call.indices.rank = 2;
  call.x.dims[0] = rows;
  call.values.dims[0] = call.indices.dims[0] = 4 * rows;
  call.x.dims[1] = call.values.dims[1] = call.indices.dims[1] = width;
  call.values.strides[0] = width;
  call.values.strides[1] = call.indices.strides[0] = 1;
  return way_of(call, 60 << 20);
}

/// Their sums would have room for four.
TEST(ScatterWays, ManyRowsOfThreeMeetInTheResult) {
  EXPECT_EQ(way(2796202, 3), Way::Apart);
  EXPECT_EQ(way(1000000, 3), Way::Summed);
  EXPECT_EQ(way(4194304, 2), Way::Summed);
  EXPECT_EQ(way(1677721, 5), Way::Apart);
  EXPECT_EQ(way(1198372, 7), Way::Summed);
}

/// Short rows of vectors, whose results leave the second cache.
TEST(ScatterWays, RowsOfVectorsMeetInRanges) {
  EXPECT_EQ(way(4194304, 8), Way::Apart);
  EXPECT_EQ(way(2796202, 12), Way::Apart);
  EXPECT_EQ(way(2396745, 14), Way::Listed) << "no vectors";
  EXPECT_EQ(way(1048576, 32), Way::Listed) << "whole lines";
  EXPECT_EQ(way(1048576, 8), Way::Summed);
}

/// Rows that are no vectors, or of parts of a line, are listed only where their sums would leave the second
/// cache.
TEST(ScatterWays, RowsOfOddLengthMeetInTheSecondCache) {
  EXPECT_EQ(way(270600, 31), Way::Summed);
  EXPECT_EQ(way(349525, 24), Way::Summed);
  EXPECT_EQ(way(262144, 32), Way::Listed);
  EXPECT_EQ(way(541200, 31), Way::Listed);
}

TEST(ScatterWays, ColumnsAreOfFewRowsWithManyValues) {
  const auto units = [](std::int64_t rows, std::int64_t width, std::int64_t count, std::int64_t lanes) {
    library::Scatter call;
    call.x.rank = call.values.rank = call.indices.rank = 2;
    call.x.dims[0] = rows;
    call.values.dims[0] = call.indices.dims[0] = count;
    call.x.dims[1] = call.values.dims[1] = call.indices.dims[1] = width;
    call.values.strides[0] = width;
    call.values.strides[1] = call.indices.strides[0] = 1;
    return column_units(RowSums(call), lanes, 132);
  };
  EXPECT_TRUE(units(8, 4096, 8192, 4));
  EXPECT_TRUE(units(33, 1000, 33554, 2));
  EXPECT_FALSE(units(33, 1000, 33554, 4));  // they take too much memory
  EXPECT_FALSE(units(8, 4096, 512, 4));     // not enough values for all multiprocessors
  EXPECT_FALSE(units(1000, 1000, 100000, 1));
  EXPECT_FALSE(units(8, 64, 1 << 20, 4));
}

/// One integer at every index: counters of 32 bits, copies of them where bins are few, ranges where they are
/// many. Indices that no vector begins with, negative ones, and ones out of range are drawn.
TEST_F(DeviceScatter, AgreesWithTheCpuOnHistograms) {
  for (const auto& [dtype, index] : {std::pair{DType::Int64, DType::Int32},
                                     {DType::UInt32, DType::Int64},
                                     {DType::Int16, DType::Int16},
                                     {DType::UInt8, DType::UInt8}})
    for (const std::int64_t bins : {1, 10, 1000, 9000, 70000}) {
      if (size_of(index) == 1 && bins > 1000) continue;
      const std::int64_t count = std::max<std::int64_t>(6000, 4 * bins + 3);
      expect_same(dtype, index, Combine::Add, false, {bins}, 0, count, {1}, {0}, {1});
      if (bins == 10) expect_same(dtype, index, Combine::Add, false, {bins}, 0, count, {1}, {0}, {-1});
    }
}

/// Of many values of one place the last stays.
TEST_F(DeviceScatter, SmallTargetsKeepTheLastValue) {
  expect_same(DType::Float32, DType::Int64, Combine::Set, false, {7}, 0, 9000, {1}, {1}, {1});
  expect_same(DType::Float32, DType::Int64, Combine::Set, false, {4, 3, 2}, 1, 1000, {6, 2, 1}, {2000, 2, 1},
              {1000, 1, 0});
}

/// Sums of 64 bits that wrap and carry, in both halves of the word.
TEST_F(DeviceScatter, SmallTargetsAddWideIntegers) {
  Config c = config();
  const Config before = c;
  std::vector<std::vector<std::int64_t>> got;
  for (const char* device : {"cpu", "cuda"}) {
    c.device = device;
    configure(c);
    const Tensor i = arange(6000), large = i * 0x123456789abcdefll - 0x7fffffffll * (i % 5);
    got.push_back(scatter_add(full({4}, -1, DType::Int64), i % 4, large).to_vector<std::int64_t>());
  }
  configure(before);
  EXPECT_EQ(got[0], got[1]);
}

/// -0 stays where only -0 is added, and NaN comes before everything.
TEST_F(DeviceScatter, SmallTargetsKeepZerosAndNaN) {
  Config c = config();
  const Config before = c;
  c.device = "cuda";
  configure(c);
  const std::int64_t n = 5000;
  const Tensor at = arange(n) % 4, zeros_below = full({n}, -0.0f), x = full({6}, -0.0f);
  for (const float y : scatter_add(x, at, zeros_below).to_vector<float>()) EXPECT_TRUE(std::signbit(y));
  const float nan = std::nanf("");
  const Tensor some = where(arange(n) == 4242, full({n}, nan), ones({n}));
  for (const Combine how : {Combine::Max, Combine::Min}) {
    const auto y = scatter(x, at, some, 0, how).to_vector<float>();
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i == 4242 % 4) << i << " of " << static_cast<int>(how);
  }
  configure(before);
}

/// The order of additions is that of the CPU: the same bits, where any order of atomic ones would give
/// others.
TEST_F(DeviceScatter, OrderedSumsHaveTheBitsOfTheCpu) {
  Config c = config();
  const Config before = c;
  const std::int64_t n = 3000;
  for (const DType dtype : {DType::Float32, DType::Float16}) {
    std::vector<std::vector<float>> got;
    for (const char* device : {"cpu", "cuda"}) {
      c.device = device;
      c.deterministic = true;
      configure(c);
      std::vector<float> v(n);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 7919 % 1009) / 1009.0f - 0.4f;
      const Tensor values = Tensor::from(v).astype(dtype), at = (arange(n) * 7919) % 11;
      got.push_back(scatter_add(ones({11}, dtype), at, values).astype(DType::Float32).to_vector<float>());
    }
    configure(before);
    EXPECT_EQ(got[0], got[1]) << name(dtype);
  }
}

}  // namespace
}  // namespace kiln::cuda
