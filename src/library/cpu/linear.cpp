// Cholesky factors and triangular systems on the CPU, batches of matrices at any strides.
//
// Both go through a matrix in blocks of kBlock rows or columns. What earlier blocks take off the next one is
// a matrix product; the block itself is then done element by element. Every element is computed in one order,
// whatever the number of threads. Halves are computed in float32 and rounded at the end.
#include "device/cpu/threads.h"
#include "library/cpu/gemm.h"
#include "library/cpu/routines.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::cpu {
namespace {

using library::Array;
using library::Call;
using library::Matmul;
using library::Routine;

constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kLanes = 16;   // rows below a diagonal block that are solved side by side
constexpr std::int64_t kSmall = 256;  // matrices of up to so many rows are shared out among threads
constexpr std::int64_t kParallelWork = 1 << 15;  // multiplications that a thread should have

template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Elements of a stored matrix, in a number of a wider type where it is a half.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t row, column;  // strides
  Wide<T> at(std::int64_t i, std::int64_t j) const {
    return static_cast<Wide<T>>(data[i * row + j * column]);
  }
};

/// Matrix number `index` of a batch.
template <class T>
Matrix<T> matrix(const Array& a, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = a.rank - 2; axis-- > 0;) {
    offset += index % a.dims[axis] * a.strides[axis];
    index /= a.dims[axis];
  }
  return {static_cast<const T*>(a.data) + offset, a.strides[a.rank - 2], a.strides[a.rank - 1]};
}

/// The extents of a call's result, and how its matrices are shared out.
struct Batch {
  std::int64_t count = 1, rows, columns;
  explicit Batch(const Call& call)
      : rows(call.dims[static_cast<std::size_t>(call.rank) - 2]),
        columns(call.dims[static_cast<std::size_t>(call.rank) - 1]) {
    for (int a = 0; a + 2 < call.rank; ++a) count *= call.dims[static_cast<std::size_t>(a)];
  }
  /// Whether threads take whole matrices; otherwise they share each.
  bool spread() const { return count > 1 && (count >= thread_count() || rows <= kSmall); }
  std::int64_t slots() const { return spread() ? thread_count() : 1; }
  /// f(matrix, slot)
  template <class F>
  void each(F f) const {
    if (!spread()) {
      for (std::int64_t i = 0; i < count; ++i) f(i, 0);
      return;
    }
    const std::int64_t grain = kParallelWork / std::max<std::int64_t>(rows * rows * columns, 1) + 1;
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
      for (std::int64_t i = begin; i < end; ++i) f(i, slot);
    });
  }
};

/// out (m, n) = a (m, k) · b (k, n), both at these strides.
template <class C>
Matmul product(const Call& call, std::int64_t m, std::int64_t n, std::int64_t k) {
  Matmul p;
  p.dtype = dtype_of<C>;
  p.strict = call.strict;
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

/// Memory of one matrix's work: the product that a block loses, what the product needs, and more of the op's
/// own.
template <class C>
struct Memory {
  std::size_t product_bytes = 0, gemm_bytes = 0, own_bytes = 0;

  void reserve(const Matmul& p) {
    product_bytes = std::max(product_bytes, aligned(static_cast<std::size_t>(p.m * p.n) * sizeof(C)));
    gemm_bytes = std::max(gemm_bytes, aligned(library().workspace_bytes(p)));
  }
  std::size_t bytes() const { return product_bytes + gemm_bytes + own_bytes; }
  C* made(std::byte* memory) const { return reinterpret_cast<C*>(memory); }
  std::byte* gemm(std::byte* memory) const { return memory + product_bytes; }
  C* own(std::byte* memory) const { return reinterpret_cast<C*>(memory + product_bytes + gemm_bytes); }
};

// ---- Cholesky ----

template <class T>
class Factor {
  using C = Wide<T>;

 public:
  explicit Factor(const Call& call) : call_(call), batch_(call), n_(batch_.rows) {
    for (std::int64_t c = kBlock; c < n_; c += kBlock) memory_.reserve(earlier(c));
    if constexpr (!std::is_same_v<T, C>)
      memory_.own_bytes = aligned(static_cast<std::size_t>(n_ * n_) * sizeof(C));
  }
  std::size_t bytes() const { return memory_.bytes() * static_cast<std::size_t>(batch_.slots()); }

  void run(std::byte* workspace) const {
    batch_.each([&](std::int64_t i, int slot) {
      std::byte* const memory = workspace + memory_.bytes() * static_cast<std::size_t>(slot);
      T* const out = static_cast<T*>(call_.out) + i * n_ * n_;
      C* l = nullptr;
      if constexpr (std::is_same_v<T, C>)
        l = out;
      else
        l = memory_.own(memory);
      const Matrix<T> x = matrix<T>(call_.operands[0].array, i);
      for (std::int64_t r = 0; r < n_; ++r)
        for (std::int64_t c = 0; c < n_; ++c) l[r * n_ + c] = c <= r ? x.at(r, c) : C(0);
      factor(l, memory);
      if constexpr (!std::is_same_v<T, C>)
        for (std::int64_t e = 0; e < n_ * n_; ++e) out[e] = static_cast<T>(l[e]);
    });
  }

 private:
  std::int64_t width(std::int64_t c) const { return std::min(kBlock, n_ - c); }
  /// What the columns before c take off those of the block that begins there.
  Matmul earlier(std::int64_t c) const { return product<C>(call_, n_ - c, width(c), c); }

  void factor(C* l, std::byte* memory) const {
    for (std::int64_t c = 0; c < n_; c += kBlock) {
      if (c > 0) subtract_earlier(l, c, memory);
      factor_diagonal(l + c * n_ + c, width(c));
      const std::int64_t below = n_ - c - width(c), work = width(c) * width(c) / 2;
      parallel_for((below + kLanes - 1) / kLanes, kParallelWork / (kLanes * work + 1) + 1,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     for (std::int64_t g = begin; g < end; ++g) solve_rows(l, c, c + width(c) + g * kLanes);
                   });
    }
  }

  void subtract_earlier(C* l, std::int64_t c, std::byte* memory) const {
    Matmul p = earlier(c);
    p.a = {l + c * n_, n_, 1, {}};
    p.b = {l + c * n_, 1, n_, {}};
    C* const taken = memory_.made(memory);
    p.out = taken;
    library().matmul(p, memory_.gemm(memory));
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < std::min(p.n, i + 1); ++j) l[(c + i) * n_ + c + j] -= taken[i * p.n + j];
  }

  void factor_diagonal(C* d, std::int64_t b) const {
    for (std::int64_t j = 0; j < b; ++j) {
      for (std::int64_t i = j; i < b; ++i) {
        C sum = d[i * n_ + j];
        for (std::int64_t k = 0; k < j; ++k) sum -= d[i * n_ + k] * d[j * n_ + k];
        if (i == j)
          d[i * n_ + j] = sum > C(0) ? std::sqrt(sum) : std::numeric_limits<C>::quiet_NaN();
        else
          d[i * n_ + j] = sum / d[j * n_ + j];
      }
    }
  }

  /// Up to kLanes rows below the block of columns c, side by side.
  void solve_rows(C* l, std::int64_t c, std::int64_t first) const {
    const std::int64_t b = width(c), rows = std::min(kLanes, n_ - first);
    alignas(64) C x[kBlock][kLanes] = {};
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < b; ++j) x[j][i] = l[(first + i) * n_ + c + j];
    for (std::int64_t j = 0; j < b; ++j) {
      const C* const d = l + (c + j) * n_ + c;
      for (std::int64_t k = 0; k < j; ++k)
        for (std::int64_t i = 0; i < kLanes; ++i) x[j][i] -= x[k][i] * d[k];
      for (std::int64_t i = 0; i < kLanes; ++i) x[j][i] /= d[j];
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < b; ++j) l[(first + i) * n_ + c + j] = x[j][i];
  }

  const Call& call_;
  Batch batch_;
  std::int64_t n_;
  Memory<C> memory_;
};

// ---- triangular systems ----

template <class T>
class Solve {
  using C = Wide<T>;

 public:
  explicit Solve(const Call& call) : call_(call), batch_(call), n_(batch_.rows), m_(batch_.columns) {
    for (std::int64_t r = kBlock; r < n_; r += kBlock) memory_.reserve(earlier(r));
    if constexpr (!std::is_same_v<T, C>)
      memory_.own_bytes = aligned(static_cast<std::size_t>(n_ * (n_ + m_)) * sizeof(C));
  }
  std::size_t bytes() const { return memory_.bytes() * static_cast<std::size_t>(batch_.slots()); }

  void run(std::byte* workspace) const {
    batch_.each([&](std::int64_t i, int slot) {
      std::byte* const memory = workspace + memory_.bytes() * static_cast<std::size_t>(slot);
      T* const out = static_cast<T*>(call_.out) + i * n_ * m_;
      const Matrix<T> a = matrix<T>(call_.operands[0].array, i), b = matrix<T>(call_.operands[1].array, i);
      C* x = nullptr;
      Matrix<C> lower;
      if constexpr (std::is_same_v<T, C>) {
        x = out;
        lower = a;
      } else {
        x = memory_.own(memory) + n_ * n_;
        lower = widened(a, memory_.own(memory));
      }
      for (std::int64_t r = 0; r < n_; ++r)
        for (std::int64_t c = 0; c < m_; ++c) x[r * m_ + c] = b.at(r, c);
      solve(lower, x, memory);
      if constexpr (!std::is_same_v<T, C>)
        for (std::int64_t e = 0; e < n_ * m_; ++e) out[e] = static_cast<T>(x[e]);
    });
  }

 private:
  std::int64_t height(std::int64_t r) const { return std::min(kBlock, n_ - r); }
  /// What the rows before r take off those of the block that begins there.
  Matmul earlier(std::int64_t r) const { return product<C>(call_, height(r), m_, r); }

  Matrix<C> widened(const Matrix<T>& a, C* to) const {
    for (std::int64_t r = 0; r < n_; ++r)
      for (std::int64_t c = 0; c <= r; ++c) to[r * n_ + c] = a.at(r, c);
    return {to, n_, 1};
  }

  void solve(const Matrix<C>& a, C* x, std::byte* memory) const {
    for (std::int64_t r = 0; r < n_; r += kBlock) {
      if (r > 0) subtract_earlier(a, x, r, memory);
      const std::int64_t work = height(r) * height(r) / 2;
      parallel_for(m_, std::max(kLanes, kParallelWork / (work + 1) + 1),
                   [&](std::int64_t begin, std::int64_t end, int) { solve_block(a, x, r, begin, end); });
    }
  }

  void subtract_earlier(const Matrix<C>& a, C* x, std::int64_t r, std::byte* memory) const {
    Matmul p = earlier(r);
    p.a = {a.data + r * a.row, a.row, a.column, {}};
    p.b = {x, m_, 1, {}};
    C* const taken = memory_.made(memory);
    p.out = taken;
    library().matmul(p, memory_.gemm(memory));
    for (std::int64_t e = 0; e < p.m * m_; ++e) x[r * m_ + e] -= taken[e];
  }

  /// Rows r … of the columns [begin, end).
  void solve_block(const Matrix<C>& a, C* x, std::int64_t r, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = r; i < r + height(r); ++i) {
      C* const row = x + i * m_;
      for (std::int64_t k = r; k < i; ++k) {
        const C factor = a.at(i, k);
        const C* const known = x + k * m_;
        for (std::int64_t c = begin; c < end; ++c) row[c] -= factor * known[c];
      }
      const C pivot = a.at(i, i);
      for (std::int64_t c = begin; c < end; ++c) row[c] /= pivot;
    }
  }

  const Call& call_;
  Batch batch_;
  std::int64_t n_, m_;
  Memory<C> memory_;
};

/// Calls f with Work<T> of a float dtype.
template <template <class> class Work, class F>
auto worked(const Call& call, F f) {
  switch (call.dtype) {
    case DType::Float16: return f(Work<float16>(call));
    case DType::BFloat16: return f(Work<bfloat16>(call));
    case DType::Float64: return f(Work<double>(call));
    case DType::Bool:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:  // the API makes floats of these
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Float32: break;
  }
  return f(Work<float>(call));
}

template <template <class> class Work>
struct Blocked final : Routine {
  std::size_t workspace_bytes(const Call& call) const override {
    return worked<Work>(call, [](const auto& work) { return work.bytes(); });
  }
  void run(const Call& call, std::byte* workspace) const override {
    worked<Work>(call, [&](const auto& work) { work.run(workspace); });
  }
};

}  // namespace

const Routine& cholesky_routine() {
  static const Blocked<Factor> routine;
  return routine;
}

const Routine& solve_triangular_routine() {
  static const Blocked<Solve> routine;
  return routine;
}

}  // namespace kiln::cpu
