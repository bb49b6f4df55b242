#include "library/cpu/pair_sums.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm_micro.h"
#include "library/cpu/tile_memory.h"
#include "plan/attention_bounds.h"

#include <cmath>
#include <limits>

namespace kiln::cpu {
namespace {

using library::AttentionMatrix;
using library::PairSumsCall;
using library::TileBuffer;
using library::TileKernel;
using plan::Bounds;
using plan::PairSums;

constexpr std::int64_t kTileColumns = 256;   // a tile of each product and weight fills a part of an L2
constexpr std::int64_t kUnitsPerThread = 4;  // so that units of different lengths end together
constexpr std::int64_t kChunkFloats = (32 << 20) / 4;  // of sums over rows, beyond one for each thread
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Bounds kAnything{-kInf, kInf, true};

bool is_zero(const Bounds& b) { return !b.nan && b.low == 0 && b.high == 0; }

/// Floats of the parts of a thread's memory, each a whole number of cache lines.
class Layout {
 public:
  std::int64_t add(std::int64_t floats) {
    const std::int64_t at = total_;
    total_ += round_up(floats, 16);
    return at;
  }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t total_ = 0;
};

class Summing {
 public:
  Summing(const PairSumsCall& call, std::byte* workspace)
      : c_(call),
        s_(*call.what),
        micro_(micro<float>(false)),
        workspace_(reinterpret_cast<float*>(workspace)),
        row_blocks_((s_.rows + call.tile_rows - 1) / call.tile_rows),
        column_tiles_((s_.columns + call.tile_columns - 1) / call.tile_columns) {
    lay_out();
    const std::int64_t threads = thread_count(),
                       fit = kChunkFloats / std::max<std::int64_t>(column_sums_.total(), 1);
    const std::int64_t units = std::max(threads, std::min(kUnitsPerThread * threads, fit));
    chunks_ = std::clamp<std::int64_t>((units + s_.batch - 1) / s_.batch, 1, row_blocks_);
    for (const plan::Term& t : s_.terms)
      has_indices_ |= t.kind == plan::Term::Kind::Row || t.kind == plan::Term::Kind::Column;
  }

  std::size_t bytes() const {
    const std::int64_t accumulated = chunks_ > 1 ? s_.batch * chunks_ : thread_count();
    return static_cast<std::size_t>(thread_count() * unit_.total() + accumulated * column_sums_.total()) * 4;
  }

  void run() {
    parallel_for(s_.batch * chunks_, 1, [&](std::int64_t begin, std::int64_t end, int slot) {
      for (std::int64_t u = begin; u < end; ++u) unit(u / chunks_, u % chunks_, slot);
    });
    if (chunks_ == 1) return;
    parallel_for(s_.batch, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t b = begin; b < end; ++b) {
        float* const first = column_sums(b * chunks_);
        for (std::int64_t c = 1; c < chunks_; ++c) {
          const float* const next = column_sums(b * chunks_ + c);
          for (std::int64_t i = 0; i < column_sums_.total(); ++i) first[i] += next[i];
        }
        store_column_sums(b, first);
      }
    });
  }

 private:
  // ---- memory

  void lay_out() {
    const std::int64_t ld = c_.tile_rows, mr = micro_.mr, columns = round_up(s_.columns, mr);
    for (const PairSums::Product& p : s_.products) {
      x_at_.push_back(unit_.add(p.depth * ld));
      y_at_.push_back(unit_.add(columns * p.depth));
      strip_at_.push_back(unit_.add(columns * ld));
      most_at_.push_back(unit_.add(column_tiles_));
    }
    const std::int64_t tile = (c_.tile_columns + mr) * ld;
    for (std::size_t w = 0; w < s_.weights.size(); ++w) {
      weight_at_.push_back(unit_.add(tile));
      turned_at_.push_back(unit_.add(tile));
    }
    for (const PairSums::Sum& x : s_.sums) {
      const std::int64_t wide = x.over_rows ? across_of(x) : round_up(x.width, mr);
      other_at_.push_back(unit_.add(x.over_rows ? wide * ld : wide * s_.columns));
      flag_at_.push_back(unit_.add(x.over_rows ? 1 : column_tiles_));
      sum_at_.push_back(x.over_rows ? column_sums_.add(columns * wide) : unit_.add(wide * ld));
    }
    for (std::size_t i = 0; i < s_.statistics.size(); ++i) {
      statistic_at_.push_back(unit_.add(ld));
      partial_at_.push_back(unit_.add(ld));
    }
    local_at_ = unit_.add(c_.local_bytes / 4 + 16);
  }

  /// Floats between rows of a sum over rows.
  std::int64_t across_of(const PairSums::Sum& x) const { return round_up(round_up(x.width, micro_.nr), 16); }

  float* column_sums(std::int64_t number) const {
    return workspace_ + thread_count() * unit_.total() + number * column_sums_.total();
  }

  /// One unit, and the block of rows that it is at.
  struct Unit {
    std::int64_t number;  // of the matrix
    float* memory;
    float* column_sums;
    std::int64_t row0 = 0, rows = 0;
    std::vector<bool> multiplied;      // by tile: its products are there
    std::vector<double> x_most;        // by product: the greatest magnitude of the block's rows, or inf
    std::vector<bool> others_finite;   // by sum over rows: of the block
    std::vector<Bounds> memory_known;  // by memory: what the block's rows have
    std::vector<Bounds> statistics;    // of levels that are done
  };

  // ---- units

  void unit(std::int64_t number, std::int64_t chunk, int slot) const {
    Unit u{};
    u.number = number;
    u.memory = workspace_ + slot * unit_.total();
    u.column_sums = column_sums(chunks_ > 1 ? number * chunks_ + chunk : slot);
    std::fill_n(u.column_sums, column_sums_.total(), 0.0f);
    pack_columns(u);
    const std::int64_t begin = row_blocks_ * chunk / chunks_, end = row_blocks_ * (chunk + 1) / chunks_;
    for (std::int64_t b = begin; b < end; ++b) block(u, b);
    if (chunks_ == 1) store_column_sums(number, u.column_sums);
  }

  /// What blocks of rows share.
  void pack_columns(const Unit& u) const {
    const std::int64_t mr = micro_.mr;
    for (std::size_t p = 0; p < s_.products.size(); ++p) {
      const plan::MatrixMemory& y = s_.products[p].y;
      const std::int64_t depth = s_.products[p].depth;
      float* const to = u.memory + y_at_[p];
      with_type(y.dtype, [&]<class T>(T) {
        const T* const from = reinterpret_cast<const T*>(element(c_.products[p].second, u.number, 0, 0));
        for (std::int64_t j = 0; j < s_.columns; j += mr)
          pack(from + j * y.row, y.row, y.column, std::min(mr, s_.columns - j), mr, depth, to + j * depth);
      });
      for (std::int64_t t = 0; t < column_tiles_; ++t)
        u.memory[most_at_[p] + t] = std::bit_cast<float>(
            greatest_bits(to + t * c_.tile_columns * depth, round_up(columns_of(t), mr) * depth));
    }
    for (std::size_t x = 0; x < s_.sums.size(); ++x) {
      const PairSums::Sum& sum = s_.sums[x];
      if (sum.over_rows) continue;
      std::vector<bool> finite(static_cast<std::size_t>(column_tiles_), true);
      with_type(sum.other.dtype, [&]<class T>(T) {
        const T* const from = reinterpret_cast<const T*>(element(c_.others[x], u.number, 0, 0));
        for (std::int64_t d = 0; d < sum.width; d += mr) {
          float* const to = u.memory + other_at_[x] + d * s_.columns;
          pack(from + d * sum.other.column, sum.other.column, sum.other.row, std::min(mr, sum.width - d), mr,
               s_.columns, to);
          for (std::int64_t t = 0; t < column_tiles_; ++t)
            if (!all_finite(to + t * c_.tile_columns * mr, columns_of(t) * mr))
              finite[static_cast<std::size_t>(t)] = false;
        }
      });
      for (std::int64_t t = 0; t < column_tiles_; ++t)
        u.memory[flag_at_[x] + t] = finite[static_cast<std::size_t>(t)];
    }
  }

  std::int64_t columns_of(std::int64_t tile) const {
    return std::min(c_.tile_columns, s_.columns - tile * c_.tile_columns);
  }

  // ---- blocks of rows

  void block(Unit& u, std::int64_t number) const {
    u.row0 = number * c_.tile_rows;
    u.rows = std::min(c_.tile_rows, s_.rows - u.row0);
    u.multiplied.assign(static_cast<std::size_t>(column_tiles_), false);
    u.statistics.assign(s_.statistics.size(), kAnything);
    pack_rows(u);
    for (std::size_t x = 0; x < s_.sums.size(); ++x)
      if (!s_.sums[x].over_rows)
        std::fill_n(u.memory + sum_at_[x], round_up(s_.sums[x].width, micro_.mr) * c_.tile_rows, 0.0f);
    if (u.rows < c_.tile_rows)
      for (const std::int64_t at : weight_at_)
        std::fill_n(u.memory + at, (c_.tile_columns + micro_.mr) * c_.tile_rows, 0.0f);
    for (int level = 0; level < s_.levels; ++level) make_statistics(u, level);
    for (std::int64_t t = 0; t < column_tiles_; ++t)
      if (!leaves_out_weights(u, t)) add_tile(u, t);
    for (std::size_t x = 0; x < s_.sums.size(); ++x)
      if (!s_.sums[x].over_rows) store_row_sum(u, x);
  }

  void pack_rows(Unit& u) const {
    const std::int64_t ld = c_.tile_rows;
    u.x_most.assign(s_.products.size(), kInf);
    for (std::size_t p = 0; p < s_.products.size(); ++p) {
      const plan::MatrixMemory& x = s_.products[p].x;
      float* const to = u.memory + x_at_[p];
      with_type(x.dtype, [&]<class T>(T) {
        const T* const from = reinterpret_cast<const T*>(element(c_.products[p].first, u.number, u.row0, 0));
        pack(from, x.row, x.column, u.rows, ld, s_.products[p].depth, to);
      });
      if (has_indices_) u.x_most[p] = std::bit_cast<float>(greatest_bits(to, s_.products[p].depth * ld));
    }
    u.others_finite.assign(s_.sums.size(), true);
    for (std::size_t i = 0; i < s_.sums.size(); ++i) {
      const PairSums::Sum& sum = s_.sums[i];
      if (!sum.over_rows) continue;
      float* const to = u.memory + other_at_[i];
      with_type(sum.other.dtype, [&]<class T>(T) {
        const T* const from = reinterpret_cast<const T*>(element(c_.others[i], u.number, u.row0, 0));
        for (std::int64_t w = 0; w < sum.width; w += micro_.nr)
          pack(from + w * sum.other.column, sum.other.column, sum.other.row,
               std::min<std::int64_t>(micro_.nr, sum.width - w), micro_.nr, u.rows, to + w * ld);
      });
      for (std::int64_t w = 0; w < sum.width && has_indices_; w += micro_.nr)
        u.others_finite[i] = u.others_finite[i] && all_finite(to + w * ld, u.rows * micro_.nr);
    }
    if (!has_indices_) return;
    u.memory_known.clear();
    for (std::size_t m = 0; m < s_.memory.size(); ++m) u.memory_known.push_back(memory_bounds(u, m));
  }

  /// Of memory with a value for each row, or one for all: what the block's rows have.
  Bounds memory_bounds(const Unit& u, std::size_t m) const {
    const plan::MatrixMemory& l = s_.memory[m];
    if (l.column != 0 || (l.dtype != DType::Float32 && !is_half(l.dtype))) return kAnything;
    Bounds b{kInf, -kInf, false};
    with_type(l.dtype, [&]<class T>(T) {
      const T* const from = reinterpret_cast<const T*>(element(c_.memory[m], u.number, u.row0, 0));
      for (std::int64_t r = 0; r < u.rows; ++r) widen(b, static_cast<float>(from[r * l.row]));
    });
    return b;
  }

  static void widen(Bounds& b, double x) {
    b.nan |= std::isnan(x);
    b.low = std::min(b.low, x);
    b.high = std::max(b.high, x);
  }

  void multiply(Unit& u, std::int64_t tile) const {
    const auto t = static_cast<std::size_t>(tile);
    if (u.multiplied[t]) return;
    u.multiplied[t] = true;
    const std::int64_t mr = micro_.mr, ld = c_.tile_rows, j0 = tile * c_.tile_columns, n = columns_of(tile);
    for (std::size_t p = 0; p < s_.products.size(); ++p) {
      const std::int64_t depth = s_.products[p].depth;
      const float* const y = u.memory + y_at_[p];
      for (std::int64_t j = j0; j < j0 + n; j += mr)
        micro_.run(depth, y + j * depth, u.memory + x_at_[p], u.memory + strip_at_[p] + j * ld, ld, true, {});
    }
  }

  void make_statistics(Unit& u, int level) const {
    const std::int64_t ld = c_.tile_rows;
    const auto each = [&](auto f) {
      for (std::size_t i = 0; i < s_.statistics.size(); ++i)
        if (s_.statistics[i].level == level) f(i, s_.statistics[i].reduction);
    };
    const auto identity = [](ir::Op op) {
      constexpr float kMost = std::numeric_limits<float>::infinity();
      return op == ir::Op::reduce_sum ? 0.0f : op == ir::Op::reduce_max ? -kMost : kMost;
    };
    each([&](std::size_t i, ir::Op op) { std::fill_n(u.memory + statistic_at_[i], ld, identity(op)); });
    for (std::int64_t t = 0; t < column_tiles_; ++t) {
      if (leaves_out_statistics(u, level, t)) continue;
      multiply(u, t);
      run_kernels(tiles(u, t).statistics[static_cast<std::size_t>(level)], u, t * c_.tile_columns);
      each([&](std::size_t i, ir::Op op) {
        float* const to = u.memory + statistic_at_[i];
        const float* const part = u.memory + partial_at_[i];
        for (std::int64_t r = 0; r < u.rows; ++r) {
          // NaN wins
          const bool takes = op == ir::Op::reduce_max ? !(part[r] <= to[r]) : !(part[r] >= to[r]);
          if (op == ir::Op::reduce_sum)
            to[r] += part[r];
          else if (takes && !std::isnan(to[r]))
            to[r] = part[r];
        }
      });
    }
    each([&](std::size_t i, ir::Op) {
      Bounds b{kInf, -kInf, false};
      for (std::int64_t r = 0; r < u.rows; ++r) widen(b, u.memory[statistic_at_[i] + r]);
      u.statistics[i] = b;
    });
  }

  const PairSumsCall::Tiles& tiles(const Unit& u, std::int64_t tile) const {
    return c_.tiles[u.rows < c_.tile_rows][columns_of(tile) < c_.tile_columns];
  }

  /// Weights of a tile, and what they add to each sum.
  void add_tile(Unit& u, std::int64_t tile) const {
    const std::int64_t mr = micro_.mr, ld = c_.tile_rows, j0 = tile * c_.tile_columns, n = columns_of(tile);
    multiply(u, tile);
    run_kernels(tiles(u, tile).weights, u, j0);
    std::vector<bool> turned(s_.weights.size());
    for (std::size_t x = 0; x < s_.sums.size(); ++x) {
      const PairSums::Sum& sum = s_.sums[x];
      const auto w = static_cast<std::size_t>(sum.weight);
      const float* const weights = u.memory + weight_at_[w];
      if (!sum.over_rows) {
        const float* const other = u.memory + other_at_[x] + j0 * mr;
        for (std::int64_t d = 0; d < sum.width; d += mr)
          micro_.run(n, other + d * s_.columns, weights, u.memory + sum_at_[x] + d * ld, ld, false, {});
        continue;
      }
      float* const across = u.memory + turned_at_[w];
      if (!turned[w]) turn(weights, n, u.rows, across);
      turned[w] = true;
      const std::int64_t wide = across_of(sum);
      float* const to = u.column_sums + sum_at_[x] + j0 * wide;
      for (std::int64_t j = 0; j < n; j += mr)
        for (std::int64_t d = 0; d < sum.width; d += micro_.nr)
          micro_.run(u.rows, across + j * ld, u.memory + other_at_[x] + d * ld, to + j * wide + d, wide,
                     false, {});
    }
  }

  /// A tile with rows on lanes as panels with columns on lanes.
  void turn(const float* from, std::int64_t columns, std::int64_t rows, float* to) const {
    const std::int64_t mr = micro_.mr, ld = c_.tile_rows;
    for (std::int64_t j = 0; j < columns; j += mr) {
      float* const panel = to + j * ld;
      const std::int64_t n = std::min(mr, columns - j);
      if (n < mr) std::fill_n(panel, mr * rows, 0.0f);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t r = 0; r < rows; ++r) panel[r * mr + i] = from[(j + i) * ld + r];
    }
  }

  // ---- tiles that are left out

  std::vector<Bounds> bounds(const Unit& u, std::int64_t tile) const {
    const std::int64_t j0 = tile * c_.tile_columns;
    const plan::Tile where{u.row0, u.rows, j0, columns_of(tile), u.number};
    return plan::all_bounds(s_, where, *c_.slot_types, c_.slots, [&](const plan::Term& t) {
      const auto index = static_cast<std::size_t>(t.index);
      if (t.kind == plan::Term::Kind::Memory) return u.memory_known[index];
      if (t.kind == plan::Term::Kind::Statistic) return u.statistics[index];
      if (t.kind != plan::Term::Kind::Score) return kAnything;
      const double most = 1.01 * static_cast<double>(s_.products[index].depth) * u.x_most[index] *
                          static_cast<double>(u.memory[most_at_[index] + tile]);
      return most < 1e38 ? Bounds{-most, most, false} : kAnything;
    });
  }

  bool leaves_out_statistics(const Unit& u, int level, std::int64_t tile) const {
    if (!has_indices_) return false;
    const std::vector<Bounds> known = bounds(u, tile);
    return std::ranges::all_of(s_.statistics, [&](const PairSums::Statistic& s) {
      if (s.level != level) return true;
      const Bounds& b = known[static_cast<std::size_t>(s.of)];
      if (s.reduction == ir::Op::reduce_sum) return is_zero(b);
      return !b.nan && (s.reduction == ir::Op::reduce_max ? b.high == -kInf : b.low == kInf);
    });
  }

  bool leaves_out_weights(const Unit& u, std::int64_t tile) const {
    if (!has_indices_) return false;
    for (std::size_t x = 0; x < s_.sums.size(); ++x)
      if (!(s_.sums[x].over_rows ? u.others_finite[x] : u.memory[flag_at_[x] + tile] != 0)) return false;
    const std::vector<Bounds> known = bounds(u, tile);
    return std::ranges::all_of(s_.weights,
                               [&](plan::TermId w) { return is_zero(known[static_cast<std::size_t>(w)]); });
  }

  // ---- results

  void store_row_sum(const Unit& u, std::size_t x) const {
    const PairSums::Sum& sum = s_.sums[x];
    const float* const from = u.memory + sum_at_[x];
    with_type(sum.dtype, [&]<class T>(T) {
      T* const to = reinterpret_cast<T*>(c_.results[x]) + u.number * s_.rows * sum.width + u.row0 * sum.point;
      for (std::int64_t r = 0; r < u.rows; ++r)
        for (std::int64_t w = 0; w < sum.width; ++w)
          to[r * sum.point + w * sum.across] = T(from[w * c_.tile_rows + r]);
    });
  }

  void store_column_sums(std::int64_t number, const float* sums) const {
    for (std::size_t x = 0; x < s_.sums.size(); ++x) {
      const PairSums::Sum& sum = s_.sums[x];
      if (!sum.over_rows) continue;
      const std::int64_t wide = across_of(sum);
      with_type(sum.dtype, [&]<class T>(T) {
        T* const to = reinterpret_cast<T*>(c_.results[x]) + number * s_.columns * sum.width;
        for (std::int64_t j = 0; j < s_.columns; ++j)
          for (std::int64_t w = 0; w < sum.width; ++w)
            to[j * sum.point + w * sum.across] = T(sums[sum_at_[x] + j * wide + w]);
      });
    }
  }

  // ---- kernels

  void* address(const TileBuffer& b, const Unit& u, std::int64_t j0) const {
    const auto index = static_cast<std::size_t>(b.index);
    switch (b.role) {
      case TileBuffer::Role::Scores: return u.memory + strip_at_[index] + j0 * c_.tile_rows;
      case TileBuffer::Role::Weights: return u.memory + weight_at_[index];
      case TileBuffer::Role::Statistic: return u.memory + statistic_at_[index];
      case TileBuffer::Role::Partial: return u.memory + partial_at_[index];
      case TileBuffer::Role::Memory: return element(c_.memory[index], u.number, u.row0, j0);
      case TileBuffer::Role::Turned:
      case TileBuffer::Role::Local: return reinterpret_cast<std::byte*>(u.memory + local_at_) + b.index;
      case TileBuffer::Role::MaxBefore:
      case TileBuffer::Role::MaxAfter:
      case TileBuffer::Role::SumBefore:
      case TileBuffer::Role::SumAfter:
      case TileBuffer::Role::Scale:
      case TileBuffer::Role::Products:
      case TileBuffer::Role::Result:
      case TileBuffer::Role::RowResult: break;  // of an attention
    }
    return nullptr;
  }

  void run_kernels(std::span<const TileKernel> kernels, const Unit& u, std::int64_t j0) const {
    run_tile_kernels(kernels, c_.slots, {u.number, u.row0, j0},
                     [&](const TileBuffer& b) { return address(b, u, j0); });
  }

  const PairSumsCall& c_;
  const PairSums& s_;
  const Micro<float>& micro_;
  float* workspace_;
  std::int64_t row_blocks_, column_tiles_, chunks_ = 1;
  bool has_indices_ = false;  // terms that are made of i or j: masks
  // where the parts of a thread's memory begin: by product
  std::vector<std::int64_t> x_at_, y_at_, strip_at_, most_at_;
  // by weight: with rows on lanes, and with columns
  std::vector<std::int64_t> weight_at_, turned_at_;
  std::vector<std::int64_t> other_at_, flag_at_, sum_at_;  // by sum; of sums over rows in column_sums_
  std::vector<std::int64_t> statistic_at_, partial_at_;    // by statistic
  std::int64_t local_at_ = 0;
  Layout unit_, column_sums_;
};

class CpuPairSums final : public library::PairSumsRoutine {
 public:
  std::pair<std::int64_t, std::int64_t> tile_of(const PairSums& what) const override {
    return tile_within(what.columns, kTileColumns);
  }
  std::size_t workspace_bytes(const PairSumsCall& call) const override {
    return Summing(call, nullptr).bytes();
  }
  void run(const PairSumsCall& call, std::byte* workspace) const override {
    Summing summing(call, workspace);
    summing.run();
  }
};

}  // namespace

const library::PairSumsRoutine& pair_sums() {
  static const CpuPairSums instance;
  return instance;
}

}  // namespace kiln::cpu
