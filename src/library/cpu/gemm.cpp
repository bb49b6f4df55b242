#include "library/cpu/gemm.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm_micro.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>

namespace kiln::cpu {
namespace {

using library::Matmul;

constexpr std::int64_t kDepth = 384;                      // k block: an a panel of 14 rows is 21 KiB of L1
constexpr std::int64_t kTileRows = 168, kTileCols = 256;  // a tile's operands and result stay in L2
constexpr std::int64_t kPackBytes = std::int64_t{256} << 20;  // of packed operands at one time
constexpr double kSerialWork = 1 << 19;                       // multiply-adds below which threads do not pay
constexpr std::int64_t kBlock = 1024;                         // elements of a vector product at a time

/// The type an element type is multiplied and summed in.
template <class T>
struct ComputeOf {
  using type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
};
template <>
struct ComputeOf<float> {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <>
struct ComputeOf<float16> {
  using type = float;
};
template <>
struct ComputeOf<bfloat16> {
  using type = float;
};

template <class T, class C>
void widen(const T* from, C* to, std::int64_t n) {
  if constexpr (std::is_same_v<T, float16>) {
    widen_half(&from->bits, to, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(from[i]);
  }
}

template <class T, class C>
void narrow(const C* from, T* to, std::int64_t n) {
  if constexpr (std::is_same_v<T, float16>) {
    narrow_half(from, &to->bits, n);
  } else if constexpr (std::is_same_v<T, bool>) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] != 0;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }
}

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// One panel: `used` of `width` lines (the rest zero), `depth` steps; to[p·width + w] = from[w·across +
/// p·along].
template <class T, class C>
void pack_panel(const T* from, std::int64_t across, std::int64_t along, std::int64_t used, std::int64_t width,
                std::int64_t depth, C* to) {
  if (used < width) std::fill(to, to + width * depth, C{});
  if (across == 1) {
    for (std::int64_t p = 0; p < depth; ++p) widen(from + p * along, to + p * width, used);
    return;
  }
  constexpr std::int64_t kRun = 64;  // of each line at a time: the lines written stay in L1
  C run[kRun];
  for (std::int64_t p0 = 0; p0 < depth; p0 += kRun) {
    const std::int64_t n = std::min(kRun, depth - p0);
    for (std::int64_t w = 0; w < used; ++w) {
      const T* line = from + w * across + p0 * along;
      if (along == 1) {
        widen(line, run, n);
      } else {
        for (std::int64_t p = 0; p < n; ++p) run[p] = static_cast<C>(line[p * along]);
      }
      for (std::int64_t p = 0; p < n; ++p) to[(p0 + p) * width + w] = run[p];
    }
  }
}

/// One product of two matrices; T is stored, C computed.
template <class T, class C = typename ComputeOf<T>::type>
class Product {
 public:
  Product(const Matmul& call, const T* a, const T* b, T* out)
      : m_(call.m),
        n_(call.n),
        k_(call.k),
        a_(a),
        b_(b),
        out_(out),
        a_row_(call.a.row_stride),
        a_col_(call.a.col_stride),
        b_row_(call.b.row_stride),
        b_col_(call.b.col_stride),
        strict_(call.strict),
        micro_(micro<C>(call.strict)) {}

  /// Elements of C of workspace: the packed operands of one k slab, then sums of all slabs so far.
  static std::int64_t workspace(const Matmul& call) {
    if (call.n == 1 || call.m == 1) return call.k;
    const Micro<C>& micro = cpu::micro<C>(call.strict);
    const std::int64_t rows = round_up(call.m, micro.mr), cols = round_up(call.n, micro.nr);
    const std::int64_t slab = slab_of(call.k, rows + cols);
    const bool sums = slab < call.k && !std::is_same_v<T, C>;
    return round_up(rows * slab, 16) + round_up(cols * slab, 16) + (sums ? call.m * call.n : 0);
  }

  void run(C* workspace) {
    if (n_ == 1) return vector(a_, a_row_, a_col_, b_, b_row_, m_, workspace);
    if (m_ == 1) return vector(b_, b_col_, b_row_, a_, a_col_, n_, workspace);
    const std::int64_t rows = round_up(m_, micro_.mr), cols = round_up(n_, micro_.nr);
    slab_ = slab_of(k_, rows + cols);
    a_packed_ = workspace;
    b_packed_ = workspace + round_up(rows * slab_, 16);
    if constexpr (std::is_same_v<T, C>) {
      sums_ = out_;
    } else {
      sums_ = b_packed_ + round_up(cols * slab_, 16);
    }
    choose_tiles();
    for (std::int64_t k0 = 0; k0 < k_; k0 += slab_) {
      k0_ = k0;
      depth_ = std::min(slab_, k_ - k0);
      pack();
      multiply();
    }
  }

 private:
  static std::int64_t slab_of(std::int64_t k, std::int64_t lines) {
    const std::int64_t most =
        std::max<std::int64_t>(kPackBytes / static_cast<std::int64_t>(sizeof(C)) / lines, 1);
    return k <= most ? k : std::max(most / kDepth * kDepth, kDepth);
  }
  double work() const { return static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_); }

  /// Tiles as large as the cache allows, but enough of them for all threads. The sums do not depend on it.
  void choose_tiles() {
    tile_rows_ = round_up(std::min(m_, kTileRows), micro_.mr);
    tile_cols_ = round_up(std::min(n_, kTileCols), micro_.nr);
    if (work() < kSerialWork) return;
    const std::int64_t wanted = 4 * thread_count();
    while (tiles() < wanted && tile_cols_ > 2 * micro_.nr) tile_cols_ = round_up(tile_cols_ / 2, micro_.nr);
    while (tiles() < wanted && tile_rows_ > 2 * micro_.mr) tile_rows_ = round_up(tile_rows_ / 2, micro_.mr);
  }
  std::int64_t row_tiles() const { return (m_ + tile_rows_ - 1) / tile_rows_; }
  std::int64_t col_tiles() const { return (n_ + tile_cols_ - 1) / tile_cols_; }
  std::int64_t tiles() const { return row_tiles() * col_tiles(); }

  /// Calls f(begin, end) over [0, n), on threads when the whole product is worth it.
  template <class F>
  void each_range(std::int64_t n, std::int64_t grain, F&& f) {
    if (work() < kSerialWork) return f(std::int64_t{0}, n);
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end, int) { f(begin, end); });
  }
  template <class F>
  void each(std::int64_t n, std::int64_t grain, F&& f) {
    each_range(n, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) f(i);
    });
  }

  void pack() {
    const std::int64_t a_panels = (m_ + micro_.mr - 1) / micro_.mr,
                       b_panels = (n_ + micro_.nr - 1) / micro_.nr;
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (depth_ * micro_.mr + 1));
    each(a_panels + b_panels, grain, [&](std::int64_t i) {
      if (i < a_panels) {
        const std::int64_t row = i * micro_.mr;
        pack_panel(a_ + row * a_row_ + k0_ * a_col_, a_row_, a_col_,
                   std::min<std::int64_t>(micro_.mr, m_ - row), micro_.mr, depth_, a_packed_ + row * depth_);
      } else {
        const std::int64_t col = (i - a_panels) * micro_.nr;
        pack_panel(b_ + col * b_col_ + k0_ * b_row_, b_col_, b_row_,
                   std::min<std::int64_t>(micro_.nr, n_ - col), micro_.nr, depth_, b_packed_ + col * depth_);
      }
    });
  }

  void multiply() {
    each(tiles(), 1, [&](std::int64_t i) {
      // Neighbouring tiles share their columns of b, the larger operand of a tile.
      tile(i % row_tiles() * tile_rows_, i / row_tiles() * tile_cols_);
    });
  }

  void tile(std::int64_t row0, std::int64_t col0) {
    const std::int64_t rows = std::min(tile_rows_, m_ - row0), cols = std::min(tile_cols_, n_ - col0);
    // A row is a whole number of cache lines, and not of pages: rows of one panel then lie in different sets.
    const std::int64_t ld = round_up(tile_cols_, 64 / static_cast<std::int64_t>(sizeof(C))) + 64 / sizeof(C);
    const auto bytes = static_cast<std::size_t>(tile_rows_ * ld) * sizeof(C);
    C* const sum = reinterpret_cast<C*>(scratch(bytes));
    const bool first_slab = k0_ == 0, last_slab = k0_ + depth_ == k_;
    if (!first_slab)
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums_ + (row0 + r) * n_ + col0, cols, sum + r * ld);
    for (std::int64_t p = 0; p < depth_; p += kDepth) {
      const std::int64_t depth = std::min(kDepth, depth_ - p);
      for (std::int64_t c = 0; c < cols; c += micro_.nr) {
        const C* const b = b_packed_ + (col0 + c) * depth_ + p * micro_.nr;
        for (std::int64_t r = 0; r < rows; r += micro_.mr)
          micro_.run(depth, a_packed_ + (row0 + r) * depth_ + p * micro_.mr, b, sum + r * ld + c, ld,
                     first_slab && p == 0);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = (row0 + r) * n_ + col0;
      if (last_slab) {
        narrow(sum + r * ld, out_ + at, cols);
      } else {
        std::copy_n(sum + r * ld, cols, sums_ + at);
      }
    }
  }

  /// out[i] = Σ_p matrix[i·across + p·along] · x[p·step]: reads the matrix once, in place.
  void vector(const T* matrix, std::int64_t across, std::int64_t along, const T* x, std::int64_t step,
              std::int64_t count, C* workspace) {
    if (step == 1) {
      widen(x, workspace, k_);
    } else {
      for (std::int64_t p = 0; p < k_; ++p) workspace[p] = static_cast<C>(x[p * step]);
    }
    const std::int64_t grain =
        std::max<std::int64_t>(kBlock, static_cast<std::int64_t>(kSerialWork) / 4 / k_);
    // a line by itself is summed on lanes
    const bool by_columns = strict_ || std::abs(across) < std::abs(along);
    each_range(count, by_columns ? grain : grain / kBlock, [&](std::int64_t begin, std::int64_t end) {
      if (by_columns) {
        columns(matrix, across, along, workspace, begin, end);
      } else {
        for (std::int64_t i = begin; i < end; ++i)
          narrow_one(dot(matrix + i * across, along, workspace), out_ + i);
      }
    });
  }

  /// Lines of the matrix lie side by side: whole columns are scaled and added, a block of lines at a time.
  void columns(const T* matrix, std::int64_t across, std::int64_t along, const C* x, std::int64_t begin,
               std::int64_t end) {
    C sum[kBlock], run[kBlock];
    for (std::int64_t i0 = begin; i0 < end; i0 += kBlock) {
      const std::int64_t n = std::min(kBlock, end - i0);
      std::fill_n(sum, n, C{});
      for (std::int64_t p = 0; p < k_; ++p) {
        const C* values = load(matrix + i0 * across + p * along, across, n, run);
        for (std::int64_t i = 0; i < n; ++i) sum[i] += values[i] * x[p];
      }
      narrow(sum, out_ + i0, n);
    }
  }

  /// One line times x, in 16 partial sums, added up as a tree.
  C dot(const T* line, std::int64_t along, const C* x) const {
    constexpr int kLanes = 16;
    C lanes[kLanes] = {}, run[kBlock];
    for (std::int64_t p0 = 0; p0 < k_; p0 += kBlock) {
      const std::int64_t n = std::min(kBlock, k_ - p0);
      const C* values = load(line + p0 * along, along, n, run);
      std::int64_t p = 0;
      for (; p + kLanes <= n; p += kLanes)
        for (int l = 0; l < kLanes; ++l) lanes[l] += values[p + l] * x[p0 + p + l];
      for (int l = 0; p < n; ++p, ++l) lanes[l] += values[p] * x[p0 + p];
    }
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
  }

  /// n elements `step` apart as C: in place where they are that already, else in `run`.
  static const C* load(const T* from, std::int64_t step, std::int64_t n, C* run) {
    if (step == 1) {
      if constexpr (std::is_same_v<T, C>) return from;
      widen(from, run, n);
    } else {
      for (std::int64_t i = 0; i < n; ++i) run[i] = static_cast<C>(from[i * step]);
    }
    return run;
  }

  static void narrow_one(C value, T* to) { narrow(&value, to, 1); }

  std::int64_t m_, n_, k_;
  const T* a_;
  const T* b_;
  T* out_;
  std::int64_t a_row_, a_col_, b_row_, b_col_;
  bool strict_;
  const Micro<C>& micro_;
  std::int64_t slab_ = 0, k0_ = 0, depth_ = 0;
  std::int64_t tile_rows_ = 0, tile_cols_ = 0;
  C* a_packed_ = nullptr;
  C* b_packed_ = nullptr;
  C* sums_ = nullptr;
};

std::int64_t batches(const Matmul& call) {
  std::int64_t count = 1;
  for (int i = 0; i < call.batch_rank; ++i) count *= call.batch[i];
  return count;
}

bool empty(const Matmul& call) { return call.m == 0 || call.n == 0 || batches(call) == 0; }

/// Elements from the first matrix of a stack to its matrix number `index`.
std::int64_t batch_offset(const Matmul& call, const library::MatrixStack& stack, std::int64_t index) {
  std::int64_t offset = 0;
  for (int i = call.batch_rank - 1; i >= 0; --i) {
    offset += index % call.batch[i] * stack.batch_strides[i];
    index /= call.batch[i];
  }
  return offset;
}

/// Whether threads take whole products (many small ones) instead of sharing each.
bool split_batches(const Matmul& call) {
  constexpr double kSharedWork = 1 << 25;
  const double work = static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
  const std::int64_t count = batches(call);
  return count > 1 && (count >= 4 * thread_count() || work < kSerialWork) && work < kSharedWork;
}

class CpuLibrary final : public library::Library {
 public:
  std::size_t workspace_bytes(const Matmul& call) const override {
    if (empty(call) || call.k == 0) return 0;
    return dispatch(call.dtype, [&]<class T>() {
      return item_bytes<T>(call) * static_cast<std::size_t>(split_batches(call) ? thread_count() : 1);
    });
  }

  void matmul(const Matmul& call, std::byte* workspace) const override {
    if (empty(call)) return;
    dispatch(call.dtype, [&]<class T>() { run<T>(call, workspace); });
  }

 private:
  template <class T>
  static std::size_t item_bytes(const Matmul& call) {
    const auto elements = static_cast<std::size_t>(Product<T>::workspace(call));
    return (elements * sizeof(typename ComputeOf<T>::type) + 63) / 64 * 64;
  }

  template <class T>
  static void run(const Matmul& call, std::byte* workspace) {
    T* const out = static_cast<T*>(call.out);
    const std::int64_t count = batches(call), size = call.m * call.n;
    if (call.k == 0) {
      std::fill(out, out + count * size, T{});
      return;
    }
    const auto one = [&](std::int64_t i, std::byte* memory) {
      Product<T> product(call, static_cast<const T*>(call.a.data) + batch_offset(call, call.a, i),
                         static_cast<const T*>(call.b.data) + batch_offset(call, call.b, i), out + i * size);
      product.run(reinterpret_cast<typename ComputeOf<T>::type*>(memory));
    };
    if (!split_batches(call)) {
      for (std::int64_t i = 0; i < count; ++i) one(i, workspace);
      return;
    }
    const double work = static_cast<double>(size) * static_cast<double>(call.k);
    const auto grain = static_cast<std::int64_t>(kSerialWork / 2 / work) + 1;
    const std::size_t bytes = item_bytes<T>(call);
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
      for (std::int64_t i = begin; i < end; ++i) one(i, workspace + static_cast<std::size_t>(slot) * bytes);
    });
  }
};

}  // namespace

const library::Library& library() {
  static const CpuLibrary instance;
  return instance;
}

}  // namespace kiln::cpu
