// Sources of sorts, searches, scatters and triangular systems compile, for every architecture and dtype.
#include "codegen/other_targets.h"
#include "device/cuda/require.h"
#include "library/cuda/scatter.h"
#include "library/cuda/search.h"
#include "library/cuda/sort.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace kiln::cuda {

std::string linear_source(DType dtype);  // of linear.cpp, where nobody else asks for it

namespace {

/// Compiles sources, each once: several dtypes have the same.
class Sources {
 public:
  /// `optimised`: as kernels are compiled. Else expect_others_compile() does it in less time.
  void expect_compiles(const std::string& source, int number, bool optimised) {
    if (seen_.contains({source, number, true}) || !seen_.insert({source, number, optimised}).second) return;
    if (optimised)
      EXPECT_NO_THROW(compile(source, "template", {number / 10, number % 10})) << number << '\n' << source;
    else
      others_.push_back({{source, "template"}, number});
  }
  void expect_others_compile() {
    for (const std::string& wrong : testing::compile_cuda_quickly(others_)) ADD_FAILURE() << wrong;
  }

 private:
  std::set<std::tuple<std::string, int, bool>> seen_;
  std::vector<testing::CudaJob> others_;
};

std::string scatter_source(DType dtype, DType index_dtype, Combine how, bool ordered = false) {
  library::Scatter call;
  call.dtype = dtype;
  call.index_dtype = index_dtype;
  call.how = how;
  call.ordered = ordered;
  return cuda::scatter_source(call);
}

/// Of many values in few places.
std::string private_scatter_source(DType dtype, Combine how) {
  library::Scatter call;
  call.dtype = dtype;
  call.how = how;
  call.ordered = false;
  call.x.rank = call.values.rank = 1;
  call.x.dims[0] = 100;
  call.values.dims[0] = 100000;
  return cuda::scatter_source(call);
}

/// Of rows that indices choose; on a device whose second cache has so many bytes.
std::string row_scatter_source(DType dtype, DType index_dtype, Combine how, std::uint64_t l2_bytes = 0) {
  library::Scatter call;
  call.dtype = dtype;
  call.index_dtype = index_dtype;
  call.how = how;
  call.ordered = false;
  call.x.rank = call.values.rank = call.indices.rank = 2;
  call.x.dims[0] = 1000;
  call.values.dims[0] = call.indices.dims[0] = 5000;
  call.x.dims[1] = call.values.dims[1] = call.indices.dims[1] = 64;
  call.x.strides[0] = call.values.strides[0] = 64;
  call.x.strides[1] = call.values.strides[1] = call.indices.strides[0] = 1;
  call.indices.strides[1] = 0;
  return cuda::scatter_source(call, l2_bytes);
}

/// Of short rows that are added to more of them than a second cache of 1 MiB holds.
std::string bucket_scatter_source(DType dtype) {
  library::Scatter call;
  call.dtype = dtype;
  call.how = Combine::Add;
  call.ordered = false;
  call.x.rank = call.values.rank = call.indices.rank = 2;
  call.x.dims[0] = call.values.dims[0] = call.indices.dims[0] = 3 << 20;
  call.x.dims[1] = call.values.dims[1] = call.indices.dims[1] = 3;
  call.x.strides[0] = call.values.strides[0] = 3;
  call.x.strides[1] = call.values.strides[1] = call.indices.strides[0] = 1;
  return cuda::scatter_source(call, 1 << 20);
}

std::string sort_source(DType dtype, bool positions, std::int64_t length, std::int64_t kept = 0,
                        bool halves = true) {
  library::Sort call;
  call.dtype = dtype;
  call.by_position = positions;
  call.positions = positions ? &call : nullptr;  // somewhere
  call.in.rank = 1;
  call.in.dims[0] = length;
  call.kept = kept > 0 ? kept : length;
  return cuda::sort_source(call, halves);
}

/// Values in the order of positions that nobody asks for.
std::string values_source(DType dtype, std::int64_t length, std::int64_t kept) {
  library::Sort call;
  call.dtype = dtype;
  call.by_position = true;
  call.values = &call;
  call.in.rank = 1;
  call.in.dims[0] = length;
  call.kept = kept;
  return cuda::sort_source(call, true);
}

/// The first of many long rows.
std::string select_source(DType dtype, bool positions, std::int64_t length = 512, std::int64_t kept = 32) {
  library::Sort call;
  call.dtype = dtype;
  call.by_position = true;
  (positions ? call.positions : call.values) = &call;
  call.axis = 1;
  call.in.rank = 2;
  call.in.dims[0] = 1 << 16;
  call.in.dims[1] = call.in.strides[0] = length;
  call.in.strides[1] = 1;
  call.kept = kept;
  return cuda::sort_source(call, true);
}

template <class F>
void each_dtype(F f) {
  for (int d = 0; d < kDTypeCount; ++d) {
    SCOPED_TRACE(name(static_cast<DType>(d)));
    f(static_cast<DType>(d));
  }
}

constexpr int kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

/// The fewer elements of four bytes are kept, the longer are rows of which a warp selects them.
TEST(TemplateKernels, WarpsSelectFewElementsOfLongRows) {
  const auto selects = [](std::int64_t length, std::int64_t kept) {
    return select_source(DType::Float32, false, length, kept).find("select_first(") != std::string::npos;
  };
  EXPECT_TRUE(selects(500, 32));
  EXPECT_FALSE(selects(500, 8));
  EXPECT_TRUE(selects(1024, 8));
  EXPECT_TRUE(selects(1024, 5));
  EXPECT_FALSE(selects(1024, 2));
  EXPECT_TRUE(selects(2048, 2));
  EXPECT_FALSE(selects(4096, 1));
}

/// Of values alone the keys are sorted, without positions beside them, where a row is one tile.
TEST(TemplateKernels, ValuesAloneAreSortedByTheirKeys) {
  EXPECT_NE(values_source(DType::Float32, 1000, 5).find("KILN_ORDER KeyMended"), std::string::npos);
  EXPECT_NE(values_source(DType::Float32, 10000, 5).find("KILN_ORDER KeyAbovePosition"), std::string::npos);
  EXPECT_NE(sort_source(DType::Float32, true, 1000, 5).find("KILN_ORDER KeyAbovePosition"),
            std::string::npos);
}

/// Keys of 16 bits go two by two where a device compares them so, where a row is one tile.
TEST(TemplateKernels, ShortKeysShareARegister) {
  const auto paired = [](DType dtype, std::int64_t length, bool halves) {
    return sort_source(dtype, false, length, 0, halves).find("kPaired = true") != std::string::npos;
  };
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Int16, DType::UInt8}) {
    EXPECT_TRUE(paired(dtype, 100, true));
    EXPECT_FALSE(paired(dtype, 100, false));
    EXPECT_FALSE(paired(dtype, 10000, true));
  }
  EXPECT_FALSE(paired(DType::Int32, 100, true));
  EXPECT_EQ(sort_source(DType::Float16, true, 100).find("kPaired = true"), std::string::npos);
}

/// Of long rows a warp keeps the first; networks are as fast for elements of two bytes.
TEST(TemplateKernels, WarpsSelectTheFirstOfLongRows) {
  for (const bool positions : {false, true}) {
    EXPECT_NE(select_source(DType::Float32, positions).find("select_first"), std::string::npos);
    EXPECT_NE(select_source(DType::Int64, positions).find("select_first"), std::string::npos);
    EXPECT_EQ(select_source(DType::Float16, positions).find("select_first"), std::string::npos);
  }
}

/// A thread has whole rows of up to 36 items of one or two registers, of which it orders no more than are
/// kept.
TEST(TemplateKernels, ThreadsSortWholeRowsOfFewElements) {
  const auto of_length = [](const std::string& source, int length) {
    return source.find("kLength = " + std::to_string(length) + ";") != std::string::npos;
  };
  for (const bool positions : {false, true})
    for (const DType dtype : {DType::Float16, DType::Float32, DType::Int32})
      for (const int length : {5, 24, 33, 36}) {
        EXPECT_TRUE(of_length(sort_source(dtype, positions, length), length));
        if (length <= 8) continue;
        const std::string few = sort_source(dtype, positions, length, 8);
        EXPECT_TRUE(of_length(few, length));
        EXPECT_NE(few.find("kFirst = 8;"), std::string::npos);
      }
  EXPECT_TRUE(of_length(sort_source(DType::Float32, true, 32), 0));
  EXPECT_TRUE(of_length(sort_source(DType::Float32, true, 37), 0));
  EXPECT_TRUE(of_length(sort_source(DType::Float64, true, 33), 0));
}

/// Values of short rows go to buckets, of which blocks have the sums; integers and all floats do.
TEST(TemplateKernels, ValuesOfManyShortRowsAreMovedToBuckets) {
  for (const DType dtype : {DType::Float16, DType::Int32, DType::Float64})
    EXPECT_NE(bucket_scatter_source(dtype).find("move_elements"), std::string::npos);
}

/// Sums of rows need no atomic operation on elements, and halves no floats beside them.
TEST(TemplateKernels, RowsAtIndicesAreListedFirst) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    const std::string source = row_scatter_source(dtype, DType::Int32, Combine::Add);
    EXPECT_NE(source.find("combine_many_vectors"), std::string::npos);
    EXPECT_EQ(source.find("widen_all"), std::string::npos);
  }
}

TEST(TemplateKernels, CompileForEveryArchitecture) {
  KILN_REQUIRE_NVRTC();
  Sources sources;
  for (const int number : kArchitectures) {
    if (!std::ranges::count(nvrtc().architectures, number)) continue;
    const auto expect_compiles = [&](const std::string& source) {
      sources.expect_compiles(source, number, number == 90);
    };
    expect_compiles(search_source(DType::Float16));
    expect_compiles(sort_source(DType::BFloat16, true, 10000));
    expect_compiles(sort_source(DType::Float32, true, 1000000));
    expect_compiles(sort_source(DType::Float32, true, 33));
    expect_compiles(sort_source(DType::Float16, true, 100, 2));
    expect_compiles(sort_source(DType::Float64, true, 100, 8));
    for (const DType dtype : {DType::BFloat16, DType::UInt8, DType::Float64})
      expect_compiles(scatter_source(dtype, DType::Int64, Combine::Add));
    expect_compiles(scatter_source(DType::UInt16, DType::Int64, Combine::Max));
    for (const DType dtype : {DType::Float16, DType::Int64, DType::Float64})
      expect_compiles(private_scatter_source(dtype, Combine::Add));
    expect_compiles(private_scatter_source(DType::Int64, Combine::Min));
    expect_compiles(row_scatter_source(DType::BFloat16, DType::Int32, Combine::Add));
    for (const DType dtype : {DType::Float32, DType::BFloat16})
      expect_compiles(row_scatter_source(dtype, DType::Int32, Combine::Add, 50 << 20));
    expect_compiles(scatter_source(DType::Float16, DType::UInt64, Combine::Multiply, true));
    expect_compiles(bucket_scatter_source(DType::BFloat16));
    expect_compiles(select_source(DType::Float32, false));
  }
  sources.expect_others_compile();
}

TEST(TemplateKernels, CompileForEveryDtype) {
  KILN_REQUIRE_NVRTC();
  Sources sources;
  bool optimised = false;
  const auto expect_compiles = [&](const std::string& source) {
    sources.expect_compiles(source, 90, optimised);
  };
  each_dtype([&](DType dtype) {
    optimised = dtype == DType::Float32;  // others: CompileForEveryArchitecture
    expect_compiles(search_source(dtype));
    if (is_float(dtype)) expect_compiles(linear_source(dtype));
    expect_compiles(sort_source(dtype, false, 10000));
    for (const bool halves : {false, true}) expect_compiles(sort_source(dtype, false, 100, 0, halves));
    expect_compiles(sort_source(dtype, true, 10));
    expect_compiles(sort_source(dtype, true, 10, 1));
    expect_compiles(values_source(dtype, 1000, 5));
    for (const bool positions : {false, true}) expect_compiles(select_source(dtype, positions));
    if (!is_bool(dtype)) expect_compiles(bucket_scatter_source(dtype));
    for (const Combine how : {Combine::Add, Combine::Max})
      if (!is_bool(dtype) || how == Combine::Max)
        expect_compiles(row_scatter_source(dtype, DType::Int64, how));
    expect_compiles(values_source(dtype, 10000, 5));
    expect_compiles(sort_source(dtype, false, 10000000));
    expect_compiles(sort_source(dtype, true, 10000000));
    expect_compiles(scatter_source(dtype, DType::Int32, Combine::Max));
    for (const Combine how : {Combine::Add, Combine::Multiply, Combine::Max, Combine::Min})
      if (!is_bool(dtype) || how >= Combine::Max) expect_compiles(private_scatter_source(dtype, how));
    if (is_int(dtype)) expect_compiles(scatter_source(DType::Float32, dtype, Combine::Set));
    if (is_float(dtype))
      expect_compiles(scatter_source(dtype, DType::Int32, Combine::Multiply, true));
    else if (!is_bool(dtype))
      expect_compiles(scatter_source(dtype, DType::Int32, Combine::Multiply));
  });
  expect_compiles(sort_source(DType::Float16, true, std::int64_t{1} << 33));
  sources.expect_others_compile();
}

}  // namespace
}  // namespace kiln::cuda
