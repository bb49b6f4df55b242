// Sorts and searches on a device against those of the CPU: every dtype, strides, long and short rows, the
// first of many.
#include "library/cuda/sort.h"

#include "device/cuda/copy.h"
#include "device/cuda/require.h"
#include "library/cpu/sort.h"
#include "library/cuda/search.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kiln::cuda {
namespace {

class DeviceSort : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    if (!computes()) GTEST_SKIP() << "kernels do not run on this driver";
    stream_ = default_stream(0);
  }

  /// Elements of which many are equal; extremes, and of floats all that is special.
  std::vector<std::byte> drawn(std::int64_t n, DType dtype) {
    std::vector<std::byte> out(static_cast<std::size_t>(n * size_of(dtype)));
    dispatch(dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < n; ++i) {
        state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
        const std::uint64_t r = state_ >> 33;
        const float inf = std::numeric_limits<float>::infinity(),
                    special[] = {std::nanf(""), inf, -inf, 0.0f, -0.0f, -std::nanf("")};
        T x;
        if constexpr (std::is_same_v<T, bool>)
          x = r % 2;
        else if constexpr (is_float(dtype_of<T>))
          x = T(r % 16 < 6 ? special[r % 16] : static_cast<float>(r % 2000) / 8 - 100);
        else
          x = r % 8 == 0   ? std::numeric_limits<T>::min()
              : r % 8 == 1 ? std::numeric_limits<T>::max()
                           : static_cast<T>(r % 100 - 50);
        std::memcpy(out.data() + static_cast<std::size_t>(i) * sizeof(T), &x, sizeof x);
      }
    });
    return out;
  }

  /// An array of these dims and strides, sorted by both. Positions: with the values beside them, and each
  /// without the other.
  void expect_same(DType dtype, bool positions, bool descending, std::vector<std::int64_t> dims,
                   std::vector<std::int64_t> strides, int axis, std::int64_t kept) {
    library::Sort call;
    call.dtype = dtype;
    call.axis = axis;
    call.kept = kept;
    call.descending = descending;
    call.by_position = positions;
    call.in.rank = static_cast<int>(dims.size());
    std::int64_t first = 0, reach = 1, count = kept;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      call.in.dims[a] = dims[a];
      call.in.strides[a] = strides[a];
      reach += (dims[a] - 1) * std::abs(strides[a]);
      if (strides[a] < 0) first -= (dims[a] - 1) * strides[a];
      if (static_cast<int>(a) != axis) count *= dims[a];
    }
    const std::vector<std::byte> in = drawn(reach, dtype);
    const auto value_bytes = static_cast<std::size_t>(count * size_of(dtype)),
               position_bytes = positions ? static_cast<std::size_t>(count * 8) : 0;
    std::vector<std::byte> want(position_bytes + value_bytes), got(want.size());
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> workspace(cpu::sort_workspace_bytes(call) / 64 + 1);
    const auto to = [&](std::byte* memory, bool with_values, bool with_positions) {
      call.positions = with_positions ? memory : nullptr;
      call.values = with_values ? memory + position_bytes : nullptr;
    };
    call.in.data = in.data() + first * size_of(dtype);
    to(want.data(), true, positions);
    cpu::sort(call, reinterpret_cast<std::byte*>(workspace.data()));

    Block* const from = allocate(in.size() + 1, stream_);
    Block* const out = allocate(got.size() + 1, stream_);
    copy_to_device(from->data, in.data(), in.size(), stream_);
    call.in.data = from->data + first * size_of(dtype);
    const auto expect_on_device = [&](bool with_values, bool with_positions) {
      to(out->data, with_values, with_positions);
      sort(call, stream_);
      copy_to_host(got.data(), out->data, got.size(), stream_);
      const auto equal = [&](std::size_t begin, std::size_t end) {
        return std::equal(want.begin() + static_cast<std::ptrdiff_t>(begin),
                          want.begin() + static_cast<std::ptrdiff_t>(end),
                          got.begin() + static_cast<std::ptrdiff_t>(begin));
      };
      EXPECT_TRUE((!with_positions || equal(0, position_bytes)) &&
                  (!with_values || equal(position_bytes, want.size())))
          << name(dtype) << (with_values ? " values" : "") << (with_positions ? " positions" : "")
          << (descending ? " descending" : "") << ", " << dims.size() << " axes, axis " << axis << " of "
          << dims[static_cast<std::size_t>(axis)] << ", " << kept << " kept";
      fill(out->data, 0, 1, got.size(), stream_);
    };
    expect_on_device(!positions, positions);
    if (positions) {
      expect_on_device(true, true);
      expect_on_device(true, false);
    }
    release(from, stream_);
    release(out, stream_);
  }

  Stream stream_ = nullptr;
  std::uint64_t state_ = 42;
};

TEST_F(DeviceSort, AgreesWithTheCpuOnEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const bool positions : {false, true})
      for (const bool descending : {false, true})
        expect_same(static_cast<DType>(d), positions, descending, {5, 41, 3}, {123, 3, 1}, 1, 41);
}

/// Equal keys of integers are equal values: the least one is no negative zero.
TEST_F(DeviceSort, ValuesOfIntegersAlone) {
  for (const bool descending : {false, true})
    expect_same(DType::Int8, true, descending, {5, 41, 3}, {123, 3, 1}, 1, 41);
}

TEST_F(DeviceSort, AgreesWithTheCpuOnRowsOfAnyLength) {
  for (const std::int64_t n : {1, 2, 3, 31, 32, 33, 511, 512, 513, 4095, 4096, 4097, 9000, 20500})
    for (const bool positions : {false, true}) {
      expect_same(DType::Float32, positions, false, {2, n}, {n, 1}, 1, n);
      if (n > 4) expect_same(DType::Float32, positions, true, {n, 2}, {2, 1}, 0, n / 4);
    }
  for (const std::int64_t n : {2048, 2049, 8200}) expect_same(DType::Float64, true, false, {n}, {1}, 0, n);
  expect_same(DType::UInt8, false, false, {3, 5000}, {5000, 1}, 1, 5000);
}

/// Two rows share registers, of which the second may be missing; rows begin anywhere, or at multiples of 16,
/// 8 and 4 bytes.
TEST_F(DeviceSort, AgreesWithTheCpuOnShortKeys) {
  for (const auto& [dtype, lengths] :
       {std::pair<DType, std::vector<std::int64_t>>{DType::Float16, {1, 5, 16, 33, 100, 1001, 4096}},
        {DType::BFloat16, {8, 102, 128}},
        {DType::Int16, {2, 65, 2048}},
        {DType::UInt8, {3, 64}}})
    for (const std::int64_t n : lengths) {
      const std::int64_t rows = n < 200 ? 1 + 70000 / (n + 60) : 3;
      expect_same(dtype, false, n % 2 == 0, {rows, n}, {n, 1}, 1, n);
      expect_same(dtype, true, n % 2 == 1, {rows, n}, {n, 1}, 1, n > 40 ? 5 : n > 4 ? 2 : 1);
    }
  expect_same(DType::Float16, false, true, {9, 7, 100}, {7 * 104, 104, 1}, 2, 100);
  expect_same(DType::BFloat16, true, false, {7, 9, 100}, {100, 700, 1}, 2, 31);
  expect_same(DType::Int16, false, false, {90, 70}, {1, 90}, 1, 70);
  expect_same(DType::UInt16, false, false, {70, 9}, {9, 1}, 0, 70);
  expect_same(DType::Float16, true, true, {10, 200}, {0, 1}, 1, 8);
}

/// Rows of which a thread has whole ones: every length, and of items of any size.
TEST_F(DeviceSort, AgreesWithTheCpuOnRowsOfFewElements) {
  for (const auto& [dtype, lengths] :
       {std::pair<DType, std::vector<std::int64_t>>{DType::Float32, {1, 2, 3, 5, 11, 16, 17, 24, 33, 36, 37}},
        {DType::Int32, {19, 33}},
        {DType::Float64, {8, 9}},
        {DType::Float16, {21, 36}},
        {DType::Int8, {7, 12, 35}}})
    for (const std::int64_t n : lengths) {
      expect_same(dtype, n % 2 == 1, n % 3 == 0, {700, n}, {n, 1}, 1, n);
      expect_same(dtype, n % 2 == 0, n % 3 == 1, {n, 300}, {300, 1}, 0, (n + 1) / 2);
      expect_same(dtype, n % 2 == 0, n % 3 == 2, {n, 300}, {300, 1}, 0, n);
    }
}

/// Rows that are vectors of memory go to their threads and back as such: as many as fill blocks, and more.
TEST_F(DeviceSort, AgreesWithTheCpuOnRowsOfAThreadsOwn) {
  for (const auto& [dtype, lengths] : {std::pair<DType, std::vector<std::int64_t>>{DType::Float32, {1, 2, 8}},
                                       {DType::Float64, {2, 4}},
                                       {DType::Float16, {2, 8, 16}},
                                       {DType::BFloat16, {4}},
                                       {DType::Int8, {2, 16}},
                                       {DType::Int64, {4}}})
    for (const std::int64_t n : lengths) {
      expect_same(dtype, false, n % 3 == 1, {40000 / n + 3, n}, {n, 1}, 1, n);
      expect_same(dtype, false, n % 3 == 2, {40000 / n + 3, n}, {n, 1}, 1, n);
    }
}

/// Threads of a row read it where it lies, whatever its items are.
TEST_F(DeviceSort, AgreesWithTheCpuOnRowsOfSeveralThreads) {
  for (const auto& [dtype, lengths] :
       {std::pair<DType, std::vector<std::int64_t>>{DType::Float32, {63, 64, 66, 2000}},
        {DType::Int64, {60, 5000}},
        {DType::UInt8, {100}},
        {DType::Float16, {64}}})
    for (const std::int64_t n : lengths)
      for (const bool positions : {false, true}) {
        expect_same(dtype, positions, n % 4 == 0, {7, n}, {n, 1}, 1, n);
        expect_same(dtype, positions, n % 4 == 2, {7, n}, {n + 4, 1}, 1, 8);
      }
}

/// Rows so long that they are sorted digit by digit, by whole chunks and by parts of one.
TEST_F(DeviceSort, AgreesWithTheCpuOnLongRowsOfNarrowKeys) {
  for (const std::int64_t n : {8193, 12288})
    for (const bool descending : {false, true}) {
      expect_same(DType::UInt8, false, descending, {n}, {1}, 0, n);
      expect_same(DType::Int8, true, descending, {2, n}, {n, 1}, 1, n);
      expect_same(DType::Bool, true, descending, {n, 2}, {2, 1}, 0, n);
    }
  expect_same(DType::Float16, true, true, {17000}, {-1}, 0, 17000);
  expect_same(DType::BFloat16, false, false, {2, 16390}, {1, 2}, 1, 16390);
  expect_same(DType::Int16, false, true, {16385}, {3}, 0, 5000);
}

TEST_F(DeviceSort, AgreesWithTheCpuOnLongRowsOfWideKeys) {
  if (!is_gpu()) GTEST_SKIP() << "rows of a million elements take minutes here";
  for (const bool positions : {false, true})
    for (const bool descending : {false, true}) {
      expect_same(DType::Float32, positions, descending, {3, 100000}, {100000, 1}, 1, 100000);
      expect_same(DType::UInt32, positions, descending, {70001}, {1}, 0, 70001);
      expect_same(DType::Float64, positions, descending, {1100000}, {1}, 0, 1100000);
      expect_same(DType::Int64, positions, descending, {1100001}, {1}, 0, 1000000);
    }
}

TEST_F(DeviceSort, TakesTheFirstOfLongRows) {
  for (const std::int64_t kept : {1, 7, 1000, 5000, 30000})
    expect_same(DType::Float32, true, true, {30000}, {1}, 0, kept);
}

/// Of rows that are many and long a warp selects them, and orders no other elements.
TEST_F(DeviceSort, TakesTheFewFirstOfManyLongRows) {
  expect_same(DType::Float32, true, true, {2049, 481}, {481, 1}, 1, 9);
  expect_same(DType::Int64, false, true, {2050, 260}, {261, 1}, 1, 32);
  expect_same(DType::Float64, false, false, {32, 2, 33, 480}, {480 * 66, 480, 960, 1}, 3, 2);
}

/// Several rows of a thread, of a warp and of a block, blocks that have fewer, and the first few of each row.
TEST_F(DeviceSort, AgreesWithTheCpuOnManyShortRows) {
  for (const std::int64_t n : {2, 3, 12, 16, 33, 100, 500, 1000})
    for (const DType dtype : {DType::Float16, DType::Float32, DType::Float64}) {
      const std::int64_t rows = 9001 / n + 1;
      expect_same(dtype, false, n % 2 == 0, {rows, n}, {n, 1}, 1, n);
      for (const std::int64_t kept : {std::int64_t{1}, std::int64_t{2}, std::int64_t{8}, n / 3, n})
        if (kept > 0 && kept <= n) expect_same(dtype, true, kept < n, {rows, n}, {n, 1}, 1, kept);
    }
  // Rows of bytes, all alike but for their positions, and rows of many words.
  expect_same(DType::Bool, true, true, {70, 130}, {130, 1}, 1, 130);
  expect_same(DType::Int8, false, false, {70, 130}, {130, 1}, 1, 40);
  for (const std::int64_t n : {2047, 2048, 4096})
    for (const std::int64_t kept : {std::int64_t{5}, std::int64_t{33}, n})
      expect_same(DType::UInt64, kept == 33, false, {3, n}, {n, 1}, 1, kept);
}

/// Rows whose elements are not neighbours: threads then go from row to row.
TEST_F(DeviceSort, AgreesWithTheCpuOnShortRowsAcrossMemory) {
  for (const std::int64_t n : {2, 7, 64, 300})
    for (const bool positions : {false, true}) {
      expect_same(DType::Float32, positions, false, {3, n, 70}, {n * 70, 70, 1}, 1, n);
      expect_same(DType::BFloat16, positions, true, {n, 1000}, {1000, 1}, 0, 2);
      expect_same(DType::Int32, positions, true, {50, n}, {1, 50}, 1, n);  // read across, written along
      expect_same(DType::Int32, positions, true, {n, 2, 25}, {1, 25 * n, n}, 0,
                  n);  // and the other way round
    }
}

TEST_F(DeviceSort, AgreesWithTheCpuOnAnyStrides) {
  expect_same(DType::Float32, true, false, {4, 9, 3}, {1, -40, 9}, 1, 9);
  expect_same(DType::Float32, false, false, {4, 9, 3}, {0, 2, 50}, 1, 4);
  expect_same(DType::Float32, true, true, {2000, 3}, {1, 0}, 1, 3);
  expect_same(DType::Float32, false, false, {2, 3, 2, 6, 2}, {72, -24, 12, 2, 1}, 3, 6);
}

TEST_F(DeviceSort, SearchesAgreeWithTheCpuOnEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const bool right : {false, true}) {
      const auto dtype = static_cast<DType>(d);
      const std::int64_t n = 301, rows = 7, columns = 40;
      // Sorted by the CPU first; every second one is searched.
      std::vector<std::byte> edges = drawn(n, dtype), values = drawn(rows * columns, dtype);
      library::Sort order;
      order.dtype = dtype;
      order.in = {.data = edges.data(), .rank = 1, .dims = {n}, .strides = {1}};
      order.kept = n;
      std::vector<std::byte> sorted(edges.size());
      std::vector<std::uint64_t> workspace(cpu::sort_workspace_bytes(order) / 8 + 8);
      order.values = sorted.data();
      cpu::sort(order, reinterpret_cast<std::byte*>(workspace.data()));

      library::Search call;
      call.dtype = dtype;
      call.right = right;
      call.sorted = {.data = sorted.data(), .rank = 1, .dims = {(n + 1) / 2}, .strides = {2}};
      call.values = {.data = values.data(), .rank = 2, .dims = {columns, rows}, .strides = {1, columns}};
      std::vector<std::int64_t> want(static_cast<std::size_t>(rows * columns)), got(want.size());
      call.out = want.data();
      cpu::search(call);
      Block* const a = allocate(sorted.size(), stream_);
      Block* const b = allocate(values.size(), stream_);
      Block* const out = allocate(got.size() * 8, stream_);
      copy_to_device(a->data, sorted.data(), sorted.size(), stream_);
      copy_to_device(b->data, values.data(), values.size(), stream_);
      call.sorted.data = a->data;
      call.values.data = b->data;
      call.out = out->data;
      search(call, stream_);
      copy_to_host(got.data(), out->data, got.size() * 8, stream_);
      EXPECT_EQ(want, got) << name(dtype) << (right ? " right" : "");
      for (Block* block : {a, b, out}) release(block, stream_);
    }
}

}  // namespace
}  // namespace kiln::cuda
