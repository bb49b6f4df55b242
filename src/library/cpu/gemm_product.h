// One product of two matrices, in one of the ways that there are.
#pragma once

#include "device/cpu/run.h"
#include "device/cpu/threads.h"
#include "library/cpu/gemm_direct.h"
#include "library/cpu/gemm_micro.h"
#include "library/cpu/gemm_pack.h"
#include "library/cpu/gemm_pairs.h"
#include "library/cpu/gemm_shared.h"
#include "library/cpu/gemm_thin.h"
#include "library/cpu/gemm_tiles.h"
#include "library/cpu/gemm_vector.h"
#include "library/cpu/gemm_windows.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>

namespace kiln::cpu {

inline constexpr std::int64_t kPackBytes = std::int64_t{256} << 20;  // of packed operands at one time
inline constexpr std::int64_t kFewBlocks = 2;     // of rows that a panel is read for: packing it takes longer
inline constexpr std::int64_t kNearBlock = 4096;  // elements of b where it lies: whole rows, which stay in L1

/// Panels of columns that rows of a are read for where they lie: packing elements of 4 bytes, by registers,
/// pays for more of them.
template <class C>
inline constexpr std::int64_t kFewPanels = sizeof(C) == 4 ? 4 : 16;

/// One product of two matrices; T is stored, C computed.
template <class T, class C = typename ComputeOf<T>::type>
class Product {
 public:
  /// `windows`: of the call, or null. `turned`: the results are those of the transposed product.
  Product(const Matmul& call, const WindowColumns<T>* windows, bool turned, std::int64_t batch, const T* a,
          const T* b, T* out)
      : epilogue_(call.epilogue),
        batch_(batch),
        epilogue_work_(epilogue_work(call)),
        m_(call.m),
        n_(call.n),
        k_(call.k),
        a_(a),
        b_(b),
        out_(out),
        a_rows_{call.a.row_stride, call.a.row_offsets},
        a_cols_{call.a.col_stride, call.a.col_offsets},
        b_rows_{call.b.row_stride, call.b.row_offsets},
        b_cols_{call.b.col_stride, call.b.col_offsets},
        a_row_(call.a.row_stride),
        a_col_(call.a.col_stride),
        b_row_(call.b.row_stride),
        b_col_(call.b.col_stride),
        call_(call),
        way_(way_of(call)),
        windows_(way_ == Way::Packed ? windows : nullptr),
        turned_(turned),
        pairs_(pairs_of(call)),
        packs_in_tiles_(windows_ || one_row_of_tiles(call)),
        a_in_tiles_(!windows_ && one_column_of_tiles(call)),
        micro_(micro<C>(call.strict)),
        height_(windows_ ? windows_->height() : micro_.mr),
        in_place_(std::is_same_v<T, C> && packs_in_tiles_ && m_ <= kFewBlocks * micro_.mr &&
                  strided(call.b) && b_col_ == 1),
        a_in_place_(std::is_same_v<T, C> && a_in_tiles_ && n_ <= kFewPanels<C> * micro_.nr &&
                    rows_in_runs<T>(a_rows_, a_cols_, m_, k_, micro_.mr)) {}

  /// Elements of C of workspace: the packed operands of one k slab, then sums of all slabs so far.
  static std::int64_t workspace(const Matmul& call, const WindowColumns<T>* windows) {
    switch (way_of(call)) {
      case Way::Vector: return call.k;
      case Way::Direct: return 0;
      case Way::Thin: return ThinProduct<T>::workspace(call);
      case Way::Packed: break;
    }
    const std::int64_t rows = !windows && one_column_of_tiles(call) ? 0 : most_rows(call),
                       cols = windows || one_row_of_tiles(call)
                                  ? 0
                                  : round_up(call.n, cpu::micro<C>(call.strict).nr);
    const std::int64_t slab = slab_of(call.k, rows + cols);
    const bool sums = slab < call.k && (call.epilogue || !std::is_same_v<T, C>);
    return round_up(rows * slab, 16) + round_up(cols * slab, 16) + (sums ? call.m * call.n : 0);
  }

  /// Whether operands lie at strides and are multiplied there, without a workspace.
  static bool is_direct(const Matmul& call) {
    return strided(call.a) && strided(call.b) && way_of(call) == Way::Direct;
  }
  /// Windows are asked for where operands are packed, all steps at one time.
  static bool may_have_windows(const Matmul& call) {
    return way_of(call) == Way::Packed && slab_of(call.k, most_rows(call)) == call.k;
  }
  /// The workspace is the same with windows and without.
  static bool has_workspace_for_windows(const Matmul& call) { return one_row_of_tiles(call); }

  void run(C* workspace) {
    switch (way_) {
      case Way::Vector:
        return n_ == 1 ? vector(a_, a_row_, a_col_, b_, b_row_, m_, workspace)
                       : vector(b_, b_col_, b_row_, a_, a_col_, n_, workspace);
      case Way::Direct:
        if constexpr (std::is_same_v<T, C>) DirectProduct<C>(call_).run(a_, b_, out_, epilogue_, batch_);
        return;
      case Way::Thin: return thin(workspace);
      case Way::Packed: break;
    }
    const std::int64_t rows = a_in_tiles_ ? 0 : round_up(m_, height_),
                       cols = packs_in_tiles_ ? 0 : round_up(n_, micro_.nr);
    slab_ = slab_of(k_, rows + cols);
    a_packed_ = workspace;
    b_packed_ = workspace + round_up(rows * slab_, 16);
    sums_ = b_packed_ + round_up(cols * slab_, 16);
    if constexpr (std::is_same_v<T, C>)
      if (!epilogue_) sums_ = out_;
    choose_tiles();
    for (std::int64_t k0 = 0; k0 < k_; k0 += slab_) {
      k0_ = k0;
      depth_ = std::min(slab_, k_ - k0);
      pack();
      multiply();
    }
  }

 private:
  /// Rows of packed panels, whose heights are those of windows or not.
  static std::int64_t most_rows(const Matmul& call) {
    return round_up(call.m, cpu::micro<C>(call.strict).mr) + (strided(call.b) ? 0 : call.m / 4);
  }
  /// How a product is made.
  enum class Way { Vector, Direct, Thin, Packed };
  static Way way_of(const Matmul& call) {
    if (is_vector(call)) return lines_adjoin(call) && ThinProduct<T>::fits(call) ? Way::Thin : Way::Vector;
    if constexpr (std::is_same_v<T, C>) {
      if (DirectProduct<C>::is_small(call)) return Way::Direct;
      if (!ThinProduct<T>::fits(call) && DirectProduct<C>::stays_near(call)) return Way::Direct;
    }
    return ThinProduct<T>::fits(call) ? Way::Thin : Way::Packed;
  }

  /// Each panel of b is read by one tile alone.
  static bool one_row_of_tiles(const Matmul& call) { return call.m <= kTileRows && call.n >= call.m; }
  /// Each panel of a is read by one tile alone, and there are tiles for all threads.
  static bool one_column_of_tiles(const Matmul& call) {
    return !one_row_of_tiles(call) && call.n <= kTileCols && call.m >= 8 * kMostRows * thread_count();
  }
  /// Null: panels are of C.
  const PairMicro* pairs_of(const Matmul& call) const {
    if (!std::is_same_v<T, bfloat16> || call.strict || windows_ || !strided(call.a) || !strided(call.b))
      return nullptr;
    return pair_micro();
  }
  /// Steps of a panel that so many of k take.
  std::int64_t steps(std::int64_t depth) const { return pairs_ ? (depth + 1) / 2 : depth; }
  void pack_lines(const T* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                  std::int64_t depth, C* to) const {
    if constexpr (std::is_same_v<T, bfloat16>)
      if (pairs_)
        return pack_pairs(from, across, along, used, width, depth, reinterpret_cast<std::uint32_t*>(to));
    pack_panel(from, across, along, used, width, depth, to);
  }

  static std::int64_t slab_of(std::int64_t k, std::int64_t lines) {
    const std::int64_t most =
        std::max<std::int64_t>(kPackBytes / static_cast<std::int64_t>(sizeof(C)) / lines, 1);
    return k <= most ? k : std::max(most / kDepth * kDepth, kDepth);
  }
  double work() const { return static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_); }
  bool serial() const { return work() < kSerialWork && epilogue_work_ < kSerialEpilogue; }

  /// Hands finished sums to the epilogue. `memory`: what the thread has for that.
  void finish(std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols, const C* sums,
              std::int64_t pitch, std::byte* memory) const {
    run_epilogue(*epilogue_, {batch_, row, col, cols, pitch, rows, sums}, memory);
  }
  std::size_t finish_memory() const { return epilogue_ ? epilogue_memory(*epilogue_->launch) : 0; }

  /// Tiles as large as the cache allows, but enough of them for all threads. The sums do not depend on it.
  void choose_tiles() {
    tiles_ = Tiles(m_, height_, round_up(kTileRows, height_), n_, windows_ ? windows_->tile() : micro_.nr,
                   windows_ ? windows_->tile() : kTileCols);
    if (serial()) return;
    tiles_.cut(thread_count(), !packs_in_tiles_ || m_ > kTileRows ? 2 : 0,
               a_in_tiles_ || windows_ ? 0
               : packs_in_tiles_       ? 1
                                       : 2);
  }

  /// Calls f(begin, end) over [0, n), on threads when the whole product is worth it.
  template <class F>
  void each_range(std::int64_t n, std::int64_t grain, F&& f) {
    if (serial()) return f(std::int64_t{0}, n);
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end, int) { f(begin, end); });
  }
  template <class F>
  void each(std::int64_t n, std::int64_t grain, F&& f) {
    each_range(n, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) f(i);
    });
  }

  void pack() {
    const std::int64_t a_panels = a_in_tiles_ ? 0 : (m_ + height_ - 1) / height_,
                       b_panels = packs_in_tiles_ ? 0 : (n_ + micro_.nr - 1) / micro_.nr;
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (depth_ * micro_.mr + 1));
    each(a_panels + b_panels, grain, [&](std::int64_t i) {
      if (i < a_panels) {
        const std::int64_t row = i * height_;
        pack_lines(a_, a_rows_.from(row), a_cols_.from(k0_), std::min(height_, m_ - row), height_, depth_,
                   a_packed_ + row * steps(depth_));
      } else {
        const std::int64_t col = (i - a_panels) * micro_.nr;
        pack_lines(b_, b_cols_.from(col), b_rows_.from(k0_), std::min<std::int64_t>(micro_.nr, n_ - col),
                   micro_.nr, depth_, b_packed_ + col * steps(depth_));
      }
    });
  }

  void multiply() {
    each(tiles_.count(), 1, [&](std::int64_t i) {
      tile(i % tiles_.rows(), i / tiles_.rows());  // neighbours share their columns of b, the larger operand
    });
  }

  void tile(std::int64_t down, std::int64_t right) {
    const std::int64_t row0 = tiles_.row(down), rows = tiles_.row(down + 1) - row0, col0 = tiles_.col(right),
                       cols = tiles_.col(right + 1) - col0, tile_rows = round_up(rows, height_);
    // A row is a whole number of cache lines, and not of pages: rows of one panel then lie in different sets.
    const std::int64_t ld =
        round_up(windows_ ? windows_->tile() : round_up(cols, micro_.nr), 64 / sizeof(C)) + 64 / sizeof(C);
    const auto bytes = static_cast<std::size_t>(tile_rows * ld) * sizeof(C);
    const std::int64_t lines = packs_in_tiles_ ? micro_.nr : a_in_tiles_ && !a_in_place_ ? tile_rows : 0;
    const auto panel =
        static_cast<std::size_t>(windows_ ? windows_->memory() : std::min(kDepth, depth_) * lines) *
        sizeof(C);
    const auto turned = turned_ ? static_cast<std::size_t>(cols * pitch_of_turned()) * sizeof(C) + 64 : 0;
    std::byte* const memory = scratch(panel + 64 + bytes + 64 + turned + finish_memory());
    C* const packed = reinterpret_cast<C*>(memory);
    std::byte* const of_sums = memory + round_up(static_cast<std::int64_t>(panel), 64);
    C* const sum = reinterpret_cast<C*>(of_sums);
    const bool first_slab = k0_ == 0, last_slab = k0_ + depth_ == k_;
    if (!first_slab)
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums_ + (row0 + r) * n_ + col0, cols, sum + r * ld);
    const std::int64_t step = windows_    ? windows_->depth()
                              : in_place_ ? std::clamp<std::int64_t>(kNearBlock / cols, 16, kDepth)
                                          : kDepth;
    for (std::int64_t p = 0; p < depth_; p += step) {
      const Step here{row0, col0, rows, cols, p, std::min(step, depth_ - p), first_slab && p == 0};
      if (a_in_tiles_ && !a_in_place_)
        for (std::int64_t r = 0; r < rows; r += micro_.mr)
          pack_lines(a_, a_rows_.from(row0 + r), a_cols_.from(k0_ + p),
                     std::min<std::int64_t>(micro_.mr, rows - r), micro_.mr, here.depth,
                     packed + r * steps(here.depth));
      if (windows_) {
        windows_of(here, packed, sum, ld);
        continue;
      }
      if (!packs_in_tiles_ && !a_in_tiles_) {
        for (std::int64_t r = 0; r < rows; r += micro_.mr) rows_of(here, r, sum + r * ld, ld);
        continue;
      }
      for (std::int64_t c = 0; c < cols; c += micro_.nr) columns_of(here, c, packed, sum + c, ld);
    }
    std::byte* const behind = of_sums + round_up(static_cast<std::int64_t>(bytes), 64);
    if (turned_) return turn(col0, cols, sum, ld, reinterpret_cast<C*>(behind), behind + turned);
    if (last_slab && epilogue_) return finish(row0, col0, rows, cols, sum, ld, behind);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = (row0 + r) * n_ + col0;
      if (last_slab) {
        narrow(sum + r * ld, out_ + at, cols);
      } else {
        std::copy_n(sum + r * ld, cols, sums_ + at);
      }
    }
  }

  /// Sums of a column side by side, to be finished.
  std::int64_t pitch_of_turned() const {
    return epilogue_ ? round_up(m_, 64 / static_cast<std::int64_t>(sizeof(C))) : m_;
  }

  /// Finishes all rows' sums of some columns, each of which is a row of the results.
  void turn(std::int64_t col, std::int64_t cols, const C* sums, std::int64_t ld, C* to,
            std::byte* memory) const {
    const std::int64_t pitch = pitch_of_turned();
    if constexpr (std::is_same_v<T, C>)
      if (!epilogue_) return pack_strided(sums, ld, 1, m_, pitch, cols, out_ + col * m_);
    pack_strided(sums, ld, 1, m_, pitch, cols, to);
    if (epilogue_) return finish(col, 0, cols, m_, to, pitch, memory);
    narrow(to, out_ + col * m_, cols * m_);
  }

  /// Some steps of k, of one tile.
  struct Step {
    std::int64_t row, col, rows, cols;
    std::int64_t begin, depth;  // in the slab
    bool first;
  };

  /// One panel of columns of a tile. `packed`: what was packed, or is to be packed, for this tile alone.
  void columns_of(const Step& s, std::int64_t c, C* packed, C* to, std::int64_t ld) const {
    const std::int64_t used = std::min<std::int64_t>(micro_.nr, s.cols - c);
    const bool here = in_place_ && used % (micro_.nr / 2) == 0;
    if (packs_in_tiles_ && !here)
      pack_lines(b_, b_cols_.from(s.col + c), b_rows_.from(k0_ + s.begin), used, micro_.nr, s.depth, packed);
    const C* b = packs_in_tiles_ ? packed : b_panel(s.col + c, s.begin);
    if (here) b = reinterpret_cast<const C*>(b_) + (k0_ + s.begin) * b_row_ + s.col + c;
    if (a_in_place_) return rows_in_place(s, used, b, to, ld);
    for (std::int64_t r = 0; r < s.rows; r += micro_.mr, to += micro_.mr * ld) {
      const C* const a = a_in_tiles_ ? packed + r * steps(s.depth) : a_panel(s.row + r, s.begin);
      if (here) {
        micro_.direct(std::min<std::int64_t>(s.rows - r, micro_.mr), used)(s.depth, a, 1, micro_.mr, b,
                                                                           b_row_, to, ld, s.first, r == 0);
      } else {
        block(s, r, used, a, b, to, ld, {});
      }
    }
  }

  /// One panel of rows of a tile whose operands were packed before: it stays in the first cache for all
  /// columns. Meanwhile the second cache is filled with the next panel, and with a part of the columns' next
  /// steps.
  void rows_of(const Step& s, std::int64_t r, C* to, std::int64_t ld) const {
    const std::int64_t next = s.begin + s.depth, across = (s.cols + micro_.nr - 1) / micro_.nr,
                       down = (s.rows + micro_.mr - 1) / micro_.mr, row_bytes = micro_.mr * sizeof(C),
                       col_bytes = micro_.nr * sizeof(C);
    const bool more_rows = r + micro_.mr < s.rows, more_steps = next < depth_;
    for (std::int64_t j = 0; j < across; ++j) {
      const std::int64_t c = j * micro_.nr;
      Ahead ahead;
      if (more_rows) {
        ahead.a_step = (row_bytes + across - 1) / across;
        ahead.a = bytes(a_panel(s.row + r + micro_.mr, s.begin)) + j * steps(s.depth) * row_bytes / across;
      }
      if (more_steps) {
        ahead.b_step = (col_bytes + down - 1) / down;
        ahead.b = bytes(b_panel(s.col + c, next)) +
                  r / micro_.mr * steps(std::min(s.depth, depth_ - next)) * col_bytes / down;
      }
      block(s, r, std::min<std::int64_t>(micro_.nr, s.cols - c), a_panel(s.row + r, s.begin),
            b_panel(s.col + c, s.begin), to + c, ld, ahead);
    }
  }

  /// What was packed of a panel, from a step of the slab on.
  const C* a_panel(std::int64_t row, std::int64_t step) const {
    return a_packed_ + row * steps(depth_) + steps(step) * micro_.mr;
  }
  const C* b_panel(std::int64_t col, std::int64_t step) const {
    return b_packed_ + col * steps(depth_) + steps(step) * micro_.nr;
  }
  static const char* bytes(const C* at) { return reinterpret_cast<const char*>(at); }

  /// One panel of rows times one of columns, `used` of them.
  void block(const Step& s, std::int64_t r, std::int64_t used, const C* a, const C* b, C* to, std::int64_t ld,
             const Ahead& ahead) const {
    const std::int64_t rows = std::min<std::int64_t>(s.rows - r, micro_.mr);
    if (pairs_)
      pairs(s, rows, used, a, b, to, ld);
    else if (rows == micro_.mr && 2 * used > micro_.nr)
      micro_.run(s.depth, a, b, to, ld, s.first, ahead);
    else
      micro_.direct(rows, used)(s.depth, a, 1, micro_.mr, b, micro_.nr, to, ld, s.first, false);
  }

  void pairs(const Step& s, std::int64_t rows, std::int64_t cols, const C* a, const C* b, C* to,
             std::int64_t ld) const {
    if constexpr (std::is_same_v<C, float>)
      pairs_->sums[rows - 1][2 * cols > micro_.nr](steps(s.depth), reinterpret_cast<const std::uint32_t*>(a),
                                                   reinterpret_cast<const std::uint32_t*>(b), to, ld,
                                                   s.first);
  }

  /// All columns of a tile that are windows. `memory`: of windows_->memory() elements.
  void windows_of(const Step& s, C* memory, C* to, std::int64_t ld) const {
    const WindowMicro<C>& micro = windows_->micro();
    const auto tile = windows_->open(b_, s.col, k0_ + s.begin, s.depth, memory);
    const auto most = static_cast<std::size_t>(window_vectors(height_));
    for (std::size_t i = 0; i < tile.count(); i += most) {
      WindowVector<C> vectors[2 * kMostWindowVectors];
      int count = 0;
      for (; i + count < std::min(i + most, tile.count()); ++count)
        vectors[count] = windows_->vector(tile, i + count, count);
      std::fill_n(vectors + count, kMostWindowVectors, vectors[count - 1]);
      for (std::int64_t r = 0; r < s.rows; r += height_) {
        const std::int64_t rows = std::min(height_, s.rows - r);
        const C* const a = a_packed_ + (s.row + r) * depth_ + s.begin * height_;
        for (int j = 0; j < count; j += window_vectors(rows))
          micro.sums[rows - 1](s.depth, a, height_, vectors + j, to + r * ld, ld, s.first);
      }
    }
  }

  /// The same of rows of a where they lie, in runs of rows that are equally far apart.
  void rows_in_place(const Step& s, std::int64_t used, const C* b, C* to, std::int64_t ld) const {
    std::int64_t ends[kDepth], runs = 0, apart = 0;
    for (std::int64_t p = 0; p < s.depth; ends[runs++] = p)
      p += a_cols_.from(k0_ + s.begin + p).adjacent(s.depth - p);
    for (std::int64_t r = 0, height; r < s.rows; r += height, to += height * ld) {
      const Lines rows = a_rows_.from(s.row + r);
      height = rows.run(std::min<std::int64_t>(s.rows - r, micro_.mr), apart);
      const auto multiply = micro_.direct(height, used);
      const C* const a = reinterpret_cast<const C*>(a_) + rows[0];
      for (std::int64_t i = 0, p = 0; i < runs; p = ends[i++])
        multiply(ends[i] - p, a + a_cols_[k0_ + s.begin + p], apart, 1, b + p * micro_.nr, micro_.nr, to, ld,
                 s.first && p == 0, false);
    }
  }

  /// In blocks of lines, whose sums stay in the first cache.
  void thin(C* workspace) {
    constexpr std::int64_t kSums = 2048, kLine = 64 / sizeof(C);
    ThinProduct<T> product(call_, a_, b_);
    product.lay_out(workspace);
    const std::int64_t vectors = product.vectors(),
                       block = std::max(kSums / vectors / kLine, std::int64_t{1}) * kLine;
    const std::int64_t grain = std::max<std::int64_t>(
        kLines, static_cast<std::int64_t>(kSerialWork) / 4 / (k_ * vectors) / kLines * kLines);
    each_range(product.lines(), grain, [&](std::int64_t begin, std::int64_t end) {
      std::byte* const memory = scratch(
          static_cast<std::size_t>(block * round_up(vectors, kLine)) * sizeof(C) + 64 + finish_memory());
      C* const sums = reinterpret_cast<C*>(memory);
      for (std::int64_t first = begin; first < end; first += block)
        thin_block(product, first, std::min(block, end - first), sums,
                   memory + static_cast<std::size_t>(block * round_up(vectors, kLine)) * sizeof(C));
    });
  }

  /// The result's rows, or columns, from one on. A vector is one row, for its epilogue, too. `memory`: what
  /// the thread has for that.
  void thin_block(const ThinProduct<T>& product, std::int64_t first, std::int64_t n, C* sums,
                  std::byte* memory) const {
    const bool by_rows = product.by_rows() && n_ > 1;
    const std::int64_t rows = by_rows ? n : product.vectors(), cols = by_rows ? n_ : n;
    T* const out = out_ ? out_ + (by_rows ? first * n_ : first) : nullptr;
    if constexpr (std::is_same_v<T, C>)
      if (!epilogue_) return product.sums(first, n, out, by_rows ? n_ : 1, by_rows ? 1 : n_);
    const std::int64_t pitch = by_rows && !epilogue_ ? n_ : round_up(cols, 64 / sizeof(C));
    product.sums(first, n, sums, by_rows ? pitch : 1, by_rows ? 1 : pitch);
    if (epilogue_) return finish(by_rows ? first : 0, by_rows ? 0 : first, rows, cols, sums, pitch, memory);
    if (by_rows) return narrow(sums, out, rows * cols);
    for (std::int64_t r = 0; r < rows; ++r) narrow(sums + r * pitch, out + r * n_, cols);
  }

  /// out[i] = Σ_p matrix[i·across + p·along] · x[p·step]: reads the matrix once, in place.
  void vector(const T* matrix, std::int64_t across, std::int64_t along, const T* x, std::int64_t step,
              std::int64_t count, C* workspace) {
    if (step == 1) {
      widen(x, workspace, k_);
    } else {
      for (std::int64_t p = 0; p < k_; ++p) workspace[p] = static_cast<C>(x[p * step]);
    }
    constexpr std::int64_t kBlock = VectorProduct<T, C>::kBlock;
    // a line by itself is summed on lanes
    const bool by_columns = call_.strict || std::abs(across) < std::abs(along);
    const std::int64_t unit = by_columns ? micro_.wide_columns : 1,  // a thread's part is a whole number of
        grain = static_cast<std::int64_t>(kSerialWork) / 4 / k_ / unit;
    const VectorProduct<T, C> product(micro_, k_, matrix, across, along, count, by_columns);
    each_range((count + unit - 1) / unit, grain, [&](std::int64_t begin, std::int64_t units) {
      alignas(64) C sums[kBlock];
      const std::int64_t end = std::min(units * unit, count);
      for (std::int64_t i0 = begin * unit; i0 < end; i0 += kBlock) {
        const std::int64_t n = std::min(kBlock, end - i0);
        product.lines(workspace, i0, n, sums);
        if (epilogue_)
          finish(0, i0, 1, n, sums, n, scratch(finish_memory() + 64));
        else
          narrow(sums, out_ + i0, n);
      }
    });
  }

  const device::Bound* const epilogue_;
  const std::int64_t batch_;
  const double epilogue_work_;  // primitives, of one product
  std::int64_t m_, n_, k_;
  const T* a_;
  const T* b_;
  T* out_;
  Lines a_rows_, a_cols_, b_rows_, b_cols_;
  std::int64_t a_row_, a_col_, b_row_, b_col_;  // where there are no offsets
  const Matmul& call_;
  const Way way_;
  const WindowColumns<T>* const windows_;  // null: columns are packed, or adjacent at equal distances
  const bool turned_;                      // a row of sums is a column of the results
  const PairMicro* const pairs_;           // panels have pairs of bfloat16
  bool packs_in_tiles_;                    // panels of b, each where it is used
  bool a_in_tiles_;                        // panels of a, likewise
  const Micro<C>& micro_;
  const std::int64_t height_;  // of a panel of a
  bool in_place_;              // … or, for few rows, read where they lie
  bool a_in_place_;            // the same of a for few columns
  std::int64_t slab_ = 0, k0_ = 0, depth_ = 0;
  Tiles tiles_;
  C* a_packed_ = nullptr;
  C* b_packed_ = nullptr;
  C* sums_ = nullptr;
};

}  // namespace kiln::cpu
