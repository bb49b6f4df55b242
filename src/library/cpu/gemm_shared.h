// What is asked of a product, and operands at offsets that all its batches share.
#pragma once

#include "device/cpu/threads.h"
#include "library/cpu/gemm_pack.h"
#include "library/library.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace kiln::cpu {

using library::Matmul;

inline std::int64_t batches(const Matmul& call) {
  std::int64_t count = 1;
  for (int i = 0; i < call.batch_rank; ++i) count *= call.batch[i];
  return count;
}

inline bool empty(const Matmul& call) { return call.m == 0 || call.n == 0 || batches(call) == 0; }

/// Elements from the first matrix of a stack to its matrix number `index`.
inline std::int64_t batch_offset(const Matmul& call, const library::MatrixStack& stack, std::int64_t index) {
  std::int64_t offset = 0;
  for (int i = call.batch_rank - 1; i >= 0; --i) {
    offset += index % call.batch[i] * stack.batch_strides[i];
    index /= call.batch[i];
  }
  return offset;
}

inline bool strided(const library::MatrixStack& s) { return !s.row_offsets && !s.col_offsets; }

inline constexpr double kSerialWork = 600e3;      // multiply-adds below which threads do not pay
inline constexpr double kSerialEpilogue = 400e3;  // the same of an epilogue's primitives

/// Primitives of one product's epilogue.
inline double epilogue_work(const Matmul& call) {
  return call.epilogue ? call.epilogue->launch->work / static_cast<double>(batches(call)) : 0;
}

/// Of one product of two matrices.
inline double multiply_adds(const Matmul& call) {
  return static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
}

inline bool is_vector(const Matmul& call) {
  return (call.n == 1 || call.m == 1) && strided(call.a) && strided(call.b);
}

/// Whether rows are adjacent elements.
inline bool has_rows(const library::MatrixStack& s) { return strided(s) && s.col_stride == 1; }

/// Of a matrix times a vector: whether lines are summed each by itself; side by side they are scaled and
/// added.
inline bool lines_adjoin(const Matmul& call) {
  const library::MatrixStack& s = call.n == 1 ? call.a : call.b;
  return call.n == 1 ? std::abs(s.row_stride) >= std::abs(s.col_stride)
                     : std::abs(s.col_stride) >= std::abs(s.row_stride);
}

/// Whether threads take whole products (many small ones) instead of sharing each.
inline bool split_batches(const Matmul& call) {
  constexpr double kSharedWork = 1 << 25;
  constexpr std::int64_t kFewRows = 16;  // of products that take the time of reading b
  const double work = multiply_adds(call);
  const std::int64_t count = batches(call);
  // Of few rows a thread reads its own matrices from their beginning to their end.
  const bool few = call.m <= kFewRows && count % thread_count() == 0;
  return count > 1 && (count >= 4 * thread_count() || few || work < kSerialWork) && work < kSharedWork;
}

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The call whose results are those of another one, transposed.
inline Matmul transposed(Matmul call) {
  std::swap(call.a, call.b);
  std::swap(call.m, call.n);
  for (library::MatrixStack* s : {&call.a, &call.b}) {
    std::swap(s->row_stride, s->col_stride);
    std::swap(s->row_offsets, s->col_offsets);
  }
  return call;
}

/// A matrix times a column as a row times a matrix where operands lie at offsets: epilogues of vectors run
/// along one row.
inline Matmul as_a_row(const Matmul& call) {
  const auto table = [](const library::MatrixStack& s) { return s.row_offsets || s.col_offsets; };
  return call.n == 1 && (table(call.a) || table(call.b)) ? transposed(call) : call;
}

/// A call whose operands at offsets are row-major memory wherever all batches share them: laid out once
/// instead of packed for each.
template <class T>
class Shared {
 public:
  explicit Shared(const Matmul& call) : call_(as_a_row(call)), from_{call_.a, call_.b} {
    dense(call_.a, call_.m, call_.k, 0);
    dense(call_.b, call_.k, call_.n, 1);
  }
  const Matmul& call() const { return call_; }
  std::size_t bytes() const { return bytes_; }

  /// `memory`: of bytes().
  void lay_out(std::byte* memory) {
    for (int i = 0; i < 2; ++i) {
      if (!dense_[i]) continue;
      library::MatrixStack& to = i == 0 ? call_.a : call_.b;
      to.data = memory + at_[i];
      copy(from_[i], i == 0 ? call_.m : call_.k, i == 0 ? call_.k : call_.n,
           reinterpret_cast<T*>(memory + at_[i]));
    }
  }

 private:
  void dense(library::MatrixStack& s, std::int64_t rows, std::int64_t cols, int which) {
    bool shared = batches(call_) > 1 && (s.row_offsets || s.col_offsets);
    for (int i = 0; i < call_.batch_rank; ++i) shared &= call_.batch[i] == 1 || s.batch_strides[i] == 0;
    if (!shared) return;
    dense_[which] = true;
    at_[which] = bytes_;
    bytes_ += static_cast<std::size_t>(round_up(rows * cols * static_cast<std::int64_t>(sizeof(T)), 64));
    s = {nullptr, cols, 1, {}, nullptr, nullptr};
  }

  static void copy(const library::MatrixStack& s, std::int64_t rows, std::int64_t cols, T* to) {
    const Lines across{s.row_stride, s.row_offsets}, along{s.col_stride, s.col_offsets};
    const T* const from = static_cast<const T*>(s.data);
    parallel_for(rows, 1 + 65536 / cols, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t c = 0; c < cols; ++c) to[r * cols + c] = from[across[r] + along[c]];
    });
  }

  Matmul call_;
  const library::MatrixStack from_[2];
  bool dense_[2] = {};
  std::size_t at_[2] = {}, bytes_ = 0;
};

}  // namespace kiln::cpu
