#include "library/cuda/blas_product.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace kiln::cuda {
namespace {

using library::Matmul;
using library::MatrixStack;

/// Memory that every stride of the tests stays in, around the middle.
constexpr std::int64_t kSpan = 1 << 16;

struct Case {
  std::vector<float> a = std::vector<float>(2 * kSpan), b = std::vector<float>(2 * kSpan);
  Matmul call;
  Case() {
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(static_cast<int>(i * 37 % 11) - 5);
      b[i] = static_cast<float>(static_cast<int>(i * 53 % 13) - 6);
    }
    call.a.data = a.data() + kSpan;
    call.b.data = b.data() + kSpan;
  }
  std::int64_t batches() const {
    std::int64_t n = 1;
    for (int i = 0; i < call.batch_rank; ++i) n *= call.batch[i];
    return n;
  }
};

std::vector<float> by_definition(const Case& c) {
  const Matmul& call = c.call;
  std::vector<float> out(static_cast<std::size_t>(c.batches() * call.m * call.n));
  for (std::int64_t i = 0; i < c.batches(); ++i) {
    std::int64_t rest = i, at_a = 0, at_b = 0;
    for (int axis = call.batch_rank - 1; axis >= 0; --axis) {
      at_a += rest % call.batch[axis] * call.a.batch_strides[axis];
      at_b += rest % call.batch[axis] * call.b.batch_strides[axis];
      rest /= call.batch[axis];
    }
    const auto *a = static_cast<const float*>(call.a.data) + at_a,
               *b = static_cast<const float*>(call.b.data) + at_b;
    for (std::int64_t m = 0; m < call.m; ++m)
      for (std::int64_t n = 0; n < call.n; ++n) {
        float sum = 0;
        for (std::int64_t k = 0; k < call.k; ++k)
          sum += a[m * call.a.row_stride + k * call.a.col_stride] *
                 b[k * call.b.row_stride + n * call.b.col_stride];
        out[static_cast<std::size_t>((i * call.m + m) * call.n + n)] = sum;
      }
  }
  return out;
}

float element(const BlasOperand& o, std::int64_t base, std::int64_t row, std::int64_t col) {
  const auto* data = reinterpret_cast<const float*>(o.data) + base;
  return o.column_major ? data[row + col * o.ld] : data[row * o.ld + col];
}

void copy_packed(const StridedCopy& p) {
  auto* to = reinterpret_cast<float*>(p.to);
  for (std::int64_t i = 0; i < p.count(); ++i) {
    std::int64_t rest = i, at = 0;
    for (int axis = p.rank - 1; axis >= 0; --axis) {
      at += rest % p.extents[axis] * p.strides[axis];
      rest /= p.extents[axis];
    }
    to[i] = reinterpret_cast<const float*>(p.from)[at];
  }
}

/// As the BLAS would; checks what it demands.
std::vector<float> by_product(Case& c, BlasProduct* seen = nullptr) {
  std::vector<float> out(static_cast<std::size_t>(c.batches() * c.call.m * c.call.n), -1);
  c.call.out = out.data();
  std::vector<float> workspace(blas_product(c.call, nullptr).pack_bytes / 4);
  const BlasProduct p = blas_product(c.call, reinterpret_cast<std::byte*>(workspace.data()));
  for (int i = 0; i < p.packings; ++i) copy_packed(p.packing[static_cast<std::size_t>(i)]);
  EXPECT_GE(p.a.ld, p.a.column_major ? p.m : p.k);
  EXPECT_GE(p.b.ld, p.b.column_major ? p.k : p.n);
  EXPECT_GE(p.a.batch_stride, 0);
  EXPECT_GE(p.b.batch_stride, 0);
  for (std::int64_t o = 0; o < outer_count(p); ++o) {
    const OuterOffsets at = outer_offsets(p, o);
    for (std::int64_t i = 0; i < p.batch; ++i)
      for (std::int64_t m = 0; m < p.m; ++m)
        for (std::int64_t n = 0; n < p.n; ++n) {
          float sum = 0;
          for (std::int64_t k = 0; k < p.k; ++k)
            sum += element(p.a, at.a + i * p.a.batch_stride, m, k) *
                   element(p.b, at.b + i * p.b.batch_stride, k, n);
          reinterpret_cast<float*>(p.out)[at.out + i * p.out_batch_stride + m * p.n + n] = sum;
        }
  }
  if (seen) *seen = p;
  return out;
}

Case contiguous(std::vector<std::int64_t> batch, std::int64_t m, std::int64_t n, std::int64_t k) {
  Case c;
  c.call.batch_rank = static_cast<int>(batch.size());
  c.call.m = m;
  c.call.n = n;
  c.call.k = k;
  c.call.a.row_stride = k;
  c.call.b.row_stride = n;
  c.call.a.col_stride = c.call.b.col_stride = 1;
  std::int64_t a = m * k, b = k * n;
  for (int i = c.call.batch_rank - 1; i >= 0; --i) {
    const std::int64_t extent = c.call.batch[i] = batch[static_cast<std::size_t>(i)];
    c.call.a.batch_strides[i] = a;
    c.call.b.batch_strides[i] = b;
    a *= extent;
    b *= extent;
  }
  return c;
}

void transpose(MatrixStack& stack, std::int64_t rows) {
  stack.row_stride = 1;
  stack.col_stride = rows;
}

TEST(BlasProduct, ContiguousAndTransposedOperandsAreReadAsTheyLie) {
  for (int which = 0; which < 4; ++which) {
    Case c = contiguous({3}, 4, 5, 6);
    if (which & 1) transpose(c.call.a, 4);
    if (which & 2) transpose(c.call.b, 6);
    BlasProduct p;
    EXPECT_EQ(by_product(c, &p), by_definition(c));
    EXPECT_EQ(p.packings, 0);
    EXPECT_EQ(p.batch, 3);
    EXPECT_EQ(p.a.column_major, (which & 1) != 0);
    EXPECT_EQ(p.b.column_major, (which & 2) != 0);
  }
}

TEST(BlasProduct, ContiguousBatchAxesAreOne) {
  Case c = contiguous({2, 3, 4}, 2, 3, 4);
  BlasProduct p;
  EXPECT_EQ(by_product(c, &p), by_definition(c));
  EXPECT_EQ(p.batch, 24);
  EXPECT_EQ(p.outer_rank, 0);
}

TEST(BlasProduct, AStackTimesOneMatrixIsOneTallProduct) {
  Case c = contiguous({5, 7}, 3, 4, 6);
  c.call.b.batch_strides[0] = c.call.b.batch_strides[1] = 0;
  BlasProduct p;
  EXPECT_EQ(by_product(c, &p), by_definition(c));
  EXPECT_EQ(p.m, 5 * 7 * 3);
  EXPECT_EQ(p.batch, 1);
  EXPECT_EQ(p.outer_rank, 0);
}

TEST(BlasProduct, VectorsOfAStackBecomeRows) {
  Case c = contiguous({9}, 1, 4, 6);
  c.call.b.batch_strides[0] = 0;
  c.call.a.batch_strides[0] = 10;
  BlasProduct p;
  EXPECT_EQ(by_product(c, &p), by_definition(c));
  EXPECT_EQ(p.m, 9);
  EXPECT_EQ(p.a.ld, 10);
}

TEST(BlasProduct, StridesThatNoBlasReadsArePacked) {
  Case c = contiguous({2}, 4, 5, 6);
  c.call.a.row_stride = 24;
  c.call.a.col_stride = 2;
  c.call.b.row_stride = -10;
  c.call.b.col_stride = -2;
  BlasProduct p;
  EXPECT_EQ(by_product(c, &p), by_definition(c));
  EXPECT_EQ(p.packings, 2);
  EXPECT_EQ(p.pack_bytes, 512u);
}

TEST(BlasProduct, RepeatedBatchesArePackedOnce) {
  Case c = contiguous({8, 3}, 4, 5, 6);
  c.call.b.row_stride = 0;
  c.call.b.batch_strides[0] = 0;
  c.call.b.batch_strides[1] = 100;
  BlasProduct p;
  EXPECT_EQ(by_product(c, &p), by_definition(c));
  EXPECT_EQ(p.packings, 1);
  EXPECT_EQ(p.packing[0].count(), 3 * 6 * 5);
}

TEST(BlasProduct, RandomStridesGiveTheSameProduct) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<std::int64_t> of) { return of.begin()[random() % of.size()]; };
  for (int round = 0; round < 3000; ++round) {
    Case c = contiguous({}, pick({1, 2, 3, 5}), pick({1, 2, 4}), pick({1, 3, 4}));
    Matmul& call = c.call;
    call.batch_rank = static_cast<int>(random() % 4);
    for (int i = 0; i < call.batch_rank; ++i) {
      call.batch[i] = pick({1, 2, 3});
      call.a.batch_strides[i] = pick({0, call.m * call.k, 2 * call.m * call.k, -7, 31, call.k});
      call.b.batch_strides[i] = pick({0, call.k * call.n, 3 * call.k * call.n, -5, 40});
    }
    call.a.row_stride = pick({call.k, 1, 0, -9, 17});
    call.a.col_stride = pick({1, call.m, 0, -1, 13});
    call.b.row_stride = pick({call.n, 1, 0, -11, 19});
    call.b.col_stride = pick({1, call.k, 0, -2, 23});
    ASSERT_EQ(by_product(c), by_definition(c)) << "round " << round;
  }
}

}  // namespace
}  // namespace kiln::cuda
