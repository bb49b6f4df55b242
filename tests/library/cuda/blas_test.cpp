#include "library/cuda/blas.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

namespace kiln::cuda {
namespace {

using library::Matmul;

#define KILN_REQUIRE_BLAS() \
  KILN_REQUIRE_GPU();       \
  if (!blas().available) GTEST_SKIP() << "NOT TESTED: " << blas().reason

/// A Matmul over device memory that holds noise, with room on both sides for any strides.
class Product {
 public:
  static constexpr std::int64_t kRoom = 1 << 20;  // elements

  Product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, std::vector<std::int64_t> batch = {})
      : stream_(current_stream(0)) {
    call.dtype = dtype;
    call.m = m;
    call.n = n;
    call.k = k;
    call.batch_rank = static_cast<int>(batch.size());
    call.a.row_stride = k;
    call.b.row_stride = n;
    call.a.col_stride = call.b.col_stride = 1;
    std::int64_t a = m * k, b = k * n;
    for (int i = call.batch_rank - 1; i >= 0; --i) {
      const std::int64_t extent = call.batch[i] = batch[static_cast<std::size_t>(i)];
      call.a.batch_strides[i] = a;
      call.b.batch_strides[i] = b;
      a *= extent;
      b *= extent;
      batches *= extent;
    }
    dispatch(dtype, [&]<class T>() { make_inputs<T>(); });
    out_ = allocate(static_cast<std::uint64_t>(std::max<std::int64_t>(batches * m * n, 1) * size_of(dtype)),
                    stream_);
    fill(out_->data, 0xff, 1, out_->bytes, stream_);
    call.out = out_->data;
    offset(0);
  }
  ~Product() {
    for (Block* block : {a_, b_, out_}) release(block, stream_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// Operands begin this many elements behind an aligned address.
  void offset(std::int64_t elements) {
    offset_ = kRoom + elements;
    call.a.data = a_->data + offset_ * size_of(call.dtype);
    call.b.data = b_->data + offset_ * size_of(call.dtype);
  }

  std::vector<double> run() {
    const library::Library& lib = library(0);
    EXPECT_TRUE(lib.supports(call));
    const std::size_t bytes = lib.workspace_bytes(call);
    Block* workspace = allocate(bytes, stream_);
    lib.matmul(call, workspace->data);
    std::vector<double> out = dispatch(call.dtype, [&]<class T>() {
      std::vector<std::uint8_t> raw(static_cast<std::size_t>(batches * call.m * call.n) * sizeof(T));
      copy_to_host(raw.data(), out_->data, raw.size(), stream_);
      std::vector<double> values(raw.size() / sizeof(T));
      for (std::size_t i = 0; i < values.size(); ++i) {
        T value;
        std::memcpy(static_cast<void*>(&value), raw.data() + i * sizeof(T), sizeof(T));
        values[i] = static_cast<double>(value);
      }
      return values;
    });
    release(workspace, stream_);
    return out;
  }

  /// The worst |got - exact| over the sum of |a·b|, against float64.
  double worst_error() {
    const std::vector<double> got = run();
    double worst = 0;
    for (std::int64_t i = 0; i < batches; ++i) {
      std::int64_t rest = i, at_a = offset_, at_b = offset_;
      for (int axis = call.batch_rank - 1; axis >= 0; --axis) {
        at_a += rest % call.batch[axis] * call.a.batch_strides[axis];
        at_b += rest % call.batch[axis] * call.b.batch_strides[axis];
        rest /= call.batch[axis];
      }
      for (std::int64_t m = 0; m < call.m; ++m)
        for (std::int64_t n = 0; n < call.n; ++n) {
          double sum = 0, size = 0;
          for (std::int64_t k = 0; k < call.k; ++k) {
            const double x =
                host_a_[static_cast<std::size_t>(at_a + m * call.a.row_stride + k * call.a.col_stride)] *
                host_b_[static_cast<std::size_t>(at_b + k * call.b.row_stride + n * call.b.col_stride)];
            sum += x;
            size += std::fabs(x);
          }
          const double error = std::fabs(got[static_cast<std::size_t>((i * call.m + m) * call.n + n)] - sum);
          worst = std::max(worst, !(error <= 1e300) ? 1e300 : size > 0 ? error / size : error);
        }
    }
    return worst;
  }

  Matmul call;
  std::int64_t batches = 1;

 private:
  template <class T>
  void make_inputs() {
    std::mt19937 random(42);
    std::uniform_real_distribution<float> value(-1, 1);
    for (const auto& [host, block] : {std::pair{&host_a_, &a_}, std::pair{&host_b_, &b_}}) {
      std::vector<std::uint8_t> raw(2 * kRoom * sizeof(T));
      host->resize(2 * kRoom);
      for (std::size_t i = 0; i < host->size(); ++i) {
        const T stored = static_cast<T>(value(random));
        std::memcpy(raw.data() + i * sizeof(T), static_cast<const void*>(&stored), sizeof(T));
        (*host)[i] = static_cast<double>(stored);
      }
      *block = allocate(raw.size(), stream_);
      copy_to_device((*block)->data, raw.data(), raw.size(), stream_);
    }
  }

  Stream stream_;
  Block *a_ = nullptr, *b_ = nullptr, *out_ = nullptr;
  std::int64_t offset_ = 0;
  std::vector<double> host_a_, host_b_;
};

/// In units of the sum of magnitudes: rounding of the stored type, and of float32 sums.
double bound(DType dtype) {
  switch (dtype) {
    case DType::Float16: return 1e-3;
    case DType::BFloat16: return 8e-3;
    case DType::Float32: return 2e-6;  // TF32 would be 500 times as far
    default: return 1e-14;
  }
}

class Blas : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { KILN_REQUIRE_BLAS(); }
};

TEST_P(Blas, MultipliesEveryLayout) {
  for (int which = 0; which < 9; ++which) {
    Product p(GetParam(), 65, 130, 77, {3});
    if (which % 3 == 1) std::swap(p.call.a.row_stride, p.call.a.col_stride), p.call.a.col_stride = 65;
    if (which % 3 == 2) p.call.a.row_stride = 200, p.call.a.col_stride = 2, p.call.a.batch_strides[0] = 20000;
    if (which / 3 == 1) p.call.b.row_stride = 1, p.call.b.col_stride = 77;
    if (which / 3 == 2) p.call.b.row_stride = -131, p.call.b.col_stride = -1;
    EXPECT_LT(p.worst_error(), bound(GetParam())) << which;
  }
}

TEST_P(Blas, MultipliesSmallOddAndThinShapes) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {1, 1000, 33},
                                {1000, 1, 33},
                                {7, 5, 1},
                                {3, 3, 3},
                                {128, 256, 512},
                                {1, 1, 5000},
                                {129, 127, 131}}) {
    Product p(GetParam(), m, n, k);
    EXPECT_LT(p.worst_error(), bound(GetParam())) << m << ' ' << n << ' ' << k;
    p.offset(1);  // aligned for one element only
    EXPECT_LT(p.worst_error(), bound(GetParam())) << m << ' ' << n << ' ' << k << " unaligned";
  }
}

TEST_P(Blas, MultipliesStacks) {
  Product stacks(GetParam(), 17, 19, 23, {2, 3, 4});
  EXPECT_LT(stacks.worst_error(), bound(GetParam()));
  Product repeated(GetParam(), 17, 19, 23, {2, 3, 4});
  repeated.call.a.batch_strides[1] = 0;
  repeated.call.b.batch_strides[0] = repeated.call.b.batch_strides[2] = 0;
  EXPECT_LT(repeated.worst_error(), bound(GetParam()));
  Product one(GetParam(), 17, 19, 23, {5, 7});
  one.call.b.batch_strides[0] = one.call.b.batch_strides[1] = 0;
  EXPECT_LT(one.worst_error(), bound(GetParam()));
  Product backwards(GetParam(), 17, 19, 23, {5});
  backwards.call.a.batch_strides[0] = -400;
  EXPECT_LT(backwards.worst_error(), bound(GetParam()));
}

TEST_P(Blas, NothingToSumGivesZerosAndNothingToWriteWritesNothing) {
  Product zeros(GetParam(), 9, 11, 0, {2});
  EXPECT_EQ(zeros.run(), std::vector<double>(2 * 9 * 11, 0));
  Product nothing(GetParam(), 9, 0, 4);
  EXPECT_TRUE(nothing.run().empty());
}

TEST_P(Blas, TheSameCallGivesTheSameBits) {
  Product p(GetParam(), 64, 64, 10000);
  const std::vector<double> first = p.run();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(p.run(), first);
}

TEST_P(Blas, ThreadsMultiplyOnTheirOwnStreams) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      set_current_stream(0, new_stream(0));
      for (int round = 0; round < 5; ++round) {
        Product p(GetParam(), 20 + t, 30 + round, 40);
        EXPECT_LT(p.worst_error(), bound(GetParam()));
      }
    });
  for (std::thread& t : threads) t.join();
}

INSTANTIATE_TEST_SUITE_P(DTypes, Blas,
                         testing::Values(DType::Float16, DType::BFloat16, DType::Float32, DType::Float64),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(BlasLibrary, ReadsElevenBitsWhereACallSaysSoAndNowhereElse) {
  KILN_REQUIRE_BLAS();
  for (const bool tf32 : {true, false, true}) {
    Product p(DType::Float32, 512, 512, 512);
    p.call.tf32 = tf32;
    EXPECT_LT(p.worst_error(), tf32 ? 0x1p-9 : bound(DType::Float32));
  }
}

TEST(BlasLibrary, LeavesOtherTypesToOthers) {
  KILN_REQUIRE_BLAS();
  for (DType dtype : {DType::Bool, DType::Int8, DType::Int32, DType::UInt64}) {
    Matmul call;
    call.dtype = dtype;
    call.m = call.n = call.k = 4;
    EXPECT_FALSE(library(0).supports(call)) << name(dtype);
  }
}

TEST(BlasLibrary, AMissingOrOtherLibraryIsAReason) {
  const std::string missing = "libcublasLt-of-nobody.so.1", other = "libm.so.6";
  EXPECT_FALSE(probe_blas(std::span(&missing, 1)).available);
  EXPECT_FALSE(probe_blas(std::span(&missing, 1)).reason.empty());
  EXPECT_FALSE(probe_blas(std::span(&other, 1)).available);
  if (KILN_HAS_CUDA) {
    EXPECT_NE(probe_blas(std::span(&other, 1)).reason.find("no function cublasLt"), std::string::npos);
  }
}

TEST(BlasLibrary, AskingForOneOfNoDeviceIsADeviceError) {
  EXPECT_THROW(library(-1), DeviceError);
  EXPECT_THROW(library(1000), DeviceError);
}

}  // namespace
}  // namespace kiln::cuda
