// Thin products: many lines of one operand, which lie in memory as adjacent elements, times a few vectors of
// the other one. x (4194304, 200) times w (200, 2) is one, with the rows of x as lines; so are the scores of
// a few queries, with the keys as lines. The lines are read once, where they are. Packed, each of their
// elements would be written and read again for a few multiplications.
#pragma once

#include "library/cpu/line_sums.h"
#include "library/library.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace kiln::cpu {

/// One product of two matrices, without its epilogue.
template <class T>
class ThinProduct {
 public:
  using C = typename ComputeOf<T>::type;

  /// Not in the strict mode, where a sum has one order.
  static bool fits(const library::Matmul& call) {
    if constexpr (kFloats) {
      if (call.strict || call.k == 0) return false;
      return of_rows(call) || of_columns(call);
    }
    return false;
  }

  /// Elements of C: the vectors.
  static std::int64_t workspace(const library::Matmul& call) {
    return std::min(call.m, call.n) * pitch_of(call.k);
  }

  /// Pre: fits(call).
  ThinProduct(const library::Matmul& call, const T* a, const T* b)
      : by_rows_(of_rows(call)),
        k_(call.k),
        lines_(by_rows_ ? call.m : call.n),
        vectors_(by_rows_ ? call.n : call.m),
        line_(by_rows_ ? call.a.row_stride : call.b.col_stride),
        from_(by_rows_ ? a : b),
        vector_(by_rows_ ? b : a),
        across_(by_rows_ ? Lines{call.b.col_stride, call.b.col_offsets}
                         : Lines{call.a.row_stride, call.a.row_offsets}),
        along_(by_rows_ ? Lines{call.b.row_stride, call.b.row_offsets}
                        : Lines{call.a.col_stride, call.a.col_offsets}) {
    if constexpr (kFloats)
      for (int v = 1; v <= kMostVectors; ++v) sums_of_[v - 1] = line_sums<T>(v, best_sum_level());
  }

  /// The lines are rows of the result; otherwise its columns.
  bool by_rows() const { return by_rows_; }
  std::int64_t lines() const { return lines_; }
  std::int64_t vectors() const { return vectors_; }

  /// The vectors, each in adjacent elements, for sums() to read. Pre: `to` has workspace() elements.
  void lay_out(C* to) {
    x_ = to;
    for (std::int64_t j = 0; j < vectors_; ++j, to += pitch_of(k_)) {
      const T* const from = vector_ + across_[j];
      if (!along_.at && along_.stride == 1) {
        widen(from, to, k_);
      } else {
        for (std::int64_t p = 0; p < k_; ++p) to[p] = static_cast<C>(from[along_[p]]);
      }
    }
  }

  /// The sums of n lines from one on, `line` apart in `to`, those of a line's vectors `vector` apart.
  void sums(std::int64_t first, std::int64_t n, C* to, std::int64_t line, std::int64_t vector) const {
    const T* const from = from_ + first * line_;
    if (n < kLines) {
      for (std::int64_t i = 0; i < n; ++i) four(from + i * line_, 0, to + i * line, 0, vector);
      return;
    }
    for (std::int64_t i = 0; i < n; i += kLines) {  // the last lines once more where fewer are left
      const std::int64_t at = std::min(i, n - kLines);
      fetch_lines(first + at + lines_ahead_);
      four(from + at * line_, line_, to + at * line, line, vector);
    }
  }

 private:
  static constexpr bool kFloats = !std::is_integral_v<C>;
  static constexpr std::int64_t kAhead = 8192 / sizeof(T), kMostFetched = 4096 / sizeof(T);  // elements

  /// Asks for four lines that are read soon, perhaps those of the next matrix: some processors foresee
  /// nothing where several lines are read side by side and end after a few vectors. Long lines are foreseen.
  /// (Inlined early, because GCC takes a function that only prefetches for one without effects.)
  [[gnu::always_inline]] void fetch_lines(std::int64_t line) const {
    constexpr std::int64_t kCacheLine = 64 / sizeof(T);
    const T* const from = from_ + line * line_;
    for (std::int64_t i = 0; i < kLines; ++i)
      for (std::int64_t p = 0; p < std::min(k_, kMostFetched); p += kCacheLine)
        __builtin_prefetch(from + i * line_ + p);
  }

  /// More vectors would read the lines, or convert them, more often than packing them takes. Columns are
  /// packed for whole registers of results; rows for some of a register.
  static std::int64_t most_vectors(bool by_rows) {
    switch (best_sum_level()) {
      case SumLevel::Avx512: return by_rows && sizeof(C) == 4 ? 16 : 8;
      case SumLevel::Avx2: return 4;
      case SumLevel::Base: break;
    }
    return 1;
  }
  /// Rows so short that adding up registers takes longer than multiplying: they fill lanes of columns
  /// instead.
  static constexpr std::int64_t kShortest = 8, kShort = 48, kSeveral = 8;
  static std::int64_t pitch_of(std::int64_t k) { return (k + kLineLanes - 1) / kLineLanes * kLineLanes; }

  static bool of_rows(const library::Matmul& call) {
    const bool is_short = call.k >= kShortest && call.k < kShort;
    if (is_short && call.n >= kSeveral && best_sum_level() == SumLevel::Avx512) return false;
    return call.n <= std::min(most_vectors(true), call.m) && strided(call.a) && call.a.col_stride == 1;
  }
  static bool of_columns(const library::Matmul& call) {
    return call.m <= std::min(most_vectors(false), call.n) && strided(call.b) && call.b.row_stride == 1 &&
           call.b.col_stride != 1;
  }

  /// Four lines.
  void four(const T* from, std::int64_t from_line, C* to, std::int64_t to_line, std::int64_t vector) const {
    if constexpr (kFloats)
      for (std::int64_t j = 0, width; j < vectors_; j += width) {
        width = std::min<std::int64_t>(kMostVectors, vectors_ - j);
        while (!sums_of_[width - 1]) --width;
        sums_of_[width - 1](k_, from, from_line, x_ + j * pitch_of(k_), pitch_of(k_), to + j * vector,
                            to_line, vector);
      }
  }

  const bool by_rows_;
  const std::int64_t k_, lines_, vectors_, line_;
  const std::int64_t lines_ahead_ = std::max<std::int64_t>(kLines, kAhead / k_);
  const T* const from_;
  const T* const vector_;
  const Lines across_, along_;  // of the vectors
  const C* x_ = nullptr;
  std::conditional_t<kFloats, LineSums<T>, std::nullptr_t> sums_of_[kMostVectors] = {};
};

}  // namespace kiln::cpu
