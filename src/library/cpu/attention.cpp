#include "library/cpu/attention.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm_micro.h"
#include "library/cpu/tile_memory.h"
#include "plan/attention_bounds.h"
#include "support/check.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace kiln::cpu {
namespace {

using library::AttentionCall;
using library::AttentionMatrix;
using library::TileBuffer;
using library::TileKernel;

constexpr std::int64_t kTileColumns = 256;              // a tile of scores and one of weights fill an L1
constexpr std::int64_t kPackedFloats = (32 << 20) / 4;  // of k and v at one time, if one head is not more
constexpr double kVanishes = 104;                       // exp(-104) is 0 in Float32

class Attending {
 public:
  Attending(const AttentionCall& call, std::byte* workspace)
      : c_(call), a_(*call.what), micro_(micro<float>(false)), workspace_(workspace) {
    k_floats_ = a_.columns * a_.depth;
    v_floats_ = a_.width * a_.columns;
    row_blocks_ = (a_.rows + c_.tile_rows - 1) / c_.tile_rows;
    column_tiles_ = (a_.columns + c_.tile_columns - 1) / c_.tile_columns;
    find_packs();
    const std::int64_t each = round_up(k_floats_, 16) + round_up(v_floats_, 16);
    together_ = std::clamp<std::int64_t>(kPackedFloats / std::max<std::int64_t>(each, 1), 1,
                                         static_cast<std::int64_t>(packs_.size()));
    pack_floats_ = each;
    const std::int64_t tile = c_.tile_columns * c_.tile_rows;
    unit_floats_ = round_up(a_.depth * c_.tile_rows, 16) + 2 * round_up(tile, 16) +
                   round_up(a_.width * c_.tile_rows, 16) +
                   (3 + 2 * static_cast<std::int64_t>(a_.sums.size())) * round_up(c_.tile_rows, 16) +
                   round_up(c_.local_bytes, 64) / 4;
    find_turned();
    flag_bytes_ = round_up(together_ * column_tiles_, 64);
  }

  std::size_t bytes() const {
    return static_cast<std::size_t>((together_ * pack_floats_ + thread_count() * unit_floats_) * 4 +
                                    flag_bytes_);
  }

  void run() {
    const auto n = static_cast<std::int64_t>(packs_.size());
    for (std::int64_t first = 0; first < n; first += together_) {
      first_ = first;
      const std::int64_t count = std::min(together_, n - first);
      pack_all(count);
      units_.clear();
      for (std::int64_t b = 0; b < a_.batch; ++b) {
        const std::int64_t p = pack_of_[static_cast<std::size_t>(b)];
        if (p >= first && p < first + count) units_.push_back(b);
      }
      // later rows of a causal attention have more tiles: the longest units come first
      const auto units = static_cast<std::int64_t>(units_.size()) * row_blocks_;
      parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end, int slot) {
        for (std::int64_t u = begin; u < end; ++u)
          unit(units_[static_cast<std::size_t>(u / row_blocks_)], row_blocks_ - 1 - u % row_blocks_, slot);
      });
    }
  }

 private:
  /// Matrices in memory that the kernels of a tile read as the scores lie.
  void find_turned() {
    turned_.assign(a_.memory.size(), -1);
    for (const plan::Term& t : a_.terms) {
      if (t.kind != plan::Term::Kind::Memory) continue;
      const auto index = static_cast<std::size_t>(t.index);
      if (turned_[index] >= 0 || !plan::lies_across(t, a_.memory[index])) continue;
      turned_[index] = unit_floats_;
      const auto bytes = static_cast<std::int64_t>(size_of(a_.memory[index].dtype));
      unit_floats_ += round_up(c_.tile_columns * c_.tile_rows * bytes, 64) / 4;
    }
  }

  /// Matrices of the batch that share k and v share what is packed of them.
  void find_packs() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> known;
    for (std::int64_t b = 0; b < a_.batch; ++b) {
      const auto i = static_cast<std::size_t>(b);
      const auto [at, is_new] =
          known.try_emplace({a_.k.batch[i], a_.v.batch[i]}, static_cast<std::int64_t>(packs_.size()));
      if (is_new) packs_.push_back(b);
      pack_of_.push_back(at->second);
    }
  }

  float* packed_k(std::int64_t pack) const {
    return reinterpret_cast<float*>(workspace_) + (pack - first_) * pack_floats_;
  }
  float* packed_v(std::int64_t pack) const { return packed_k(pack) + round_up(k_floats_, 16); }
  std::uint8_t* flags() const {
    return reinterpret_cast<std::uint8_t*>(workspace_) +
           (together_ * pack_floats_ + thread_count() * unit_floats_) * 4;
  }

  void pack_all(std::int64_t count) {
    const std::int64_t tiles = column_tiles_;
    parallel_for(count * tiles, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) pack_tile(first_ + i / tiles, i % tiles);
    });
  }

  void pack_tile(std::int64_t pack_number, std::int64_t tile) {
    const auto b = static_cast<std::size_t>(packs_[static_cast<std::size_t>(pack_number)]);
    const std::int64_t j0 = tile * c_.tile_columns, columns = std::min(c_.tile_columns, a_.columns - j0);
    float *const k = packed_k(pack_number), *const v = packed_v(pack_number);
    const EvenBlocks lines(columns, micro_.mr), across(a_.width, micro_.mr);
    with_type(a_.k.dtype, [&]<class T>(T) {
      const T* const from = reinterpret_cast<const T*>(c_.k.data) + a_.k.batch[b];
      for (std::int64_t i = 0; i < lines.count; ++i) {
        const std::int64_t j = j0 + lines.begin(i);
        pack(from + j * a_.k.row, a_.k.row, a_.k.column, lines.size(i), lines.size(i), a_.depth,
             k + j * a_.depth);
      }
    });
    bool good = true;
    with_type(a_.v.dtype, [&]<class T>(T) {
      const T* const from = reinterpret_cast<const T*>(c_.v.data) + a_.v.batch[b];
      for (std::int64_t i = 0; i < across.count; ++i) {
        const std::int64_t d = across.begin(i), n = across.size(i);
        float* const to = v + d * a_.columns + j0 * n;
        pack(from + d * a_.v.column + j0 * a_.v.row, a_.v.column, a_.v.row, n, n, columns, to);
        good = good && all_finite(to, columns * n);
      }
    });
    flags()[(pack_number - first_) * column_tiles_ + tile] = good;
  }

  /// The memory of one unit.
  struct Unit {
    std::int64_t number, row0, rows;
    float *q, *scores, *weights, *products;
    float* max[2];
    float* sums[2];
    float* scale;
    std::byte *local, *memory;
    int now = 0;  // which of the two has the values so far
    bool any = false;
  };

  Unit unit_at(std::int64_t number, std::int64_t block, int slot) const {
    Unit u{};
    u.number = number;
    u.row0 = block * c_.tile_rows;
    u.rows = std::min(c_.tile_rows, a_.rows - u.row0);
    float* at = reinterpret_cast<float*>(workspace_) + together_ * pack_floats_ + slot * unit_floats_;
    u.memory = reinterpret_cast<std::byte*>(at);
    const auto take = [&](std::int64_t n) {
      float* const here = at;
      at += round_up(n, 16);
      return here;
    };
    const std::int64_t tile = c_.tile_columns * c_.tile_rows;
    u.q = take(a_.depth * c_.tile_rows);
    u.scores = take(tile);
    u.weights = take(tile);
    u.products = take(a_.width * c_.tile_rows);
    const auto n = static_cast<std::int64_t>(a_.sums.size());
    for (int i = 0; i < 2; ++i) {
      u.max[i] = take(c_.tile_rows);
      u.sums[i] = at;
      at += n * round_up(c_.tile_rows, 16);
    }
    u.scale = take(c_.tile_rows);
    u.local = reinterpret_cast<std::byte*>(at);
    return u;
  }

  void unit(std::int64_t number, std::int64_t block, int slot) const {
    Unit u = unit_at(number, block, slot);
    const auto b = static_cast<std::size_t>(number);
    with_type(a_.q.dtype, [&]<class T>(T) {
      const T* const from = reinterpret_cast<const T*>(c_.q.data) + a_.q.batch[b] + u.row0 * a_.q.row;
      pack(from, a_.q.row, a_.q.column, u.rows, c_.tile_rows, a_.depth, u.q);
    });
    if (u.rows < c_.tile_rows) std::fill_n(u.weights, c_.tile_columns * c_.tile_rows, 0.0f);
    std::fill_n(u.products, a_.width * c_.tile_rows, 0.0f);
    std::fill_n(u.max[0], c_.tile_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(u.sums[0], static_cast<std::int64_t>(a_.sums.size()) * round_up(c_.tile_rows, 16), 0.0f);
    std::vector<std::pair<std::int64_t, double>> later;  // tiles that may add nothing, and their greatest t
    for (std::int64_t t = 0; t < column_tiles_; ++t) {
      const double greatest = greatest_of(u, t);
      if (greatest < std::numeric_limits<double>::infinity())
        later.emplace_back(t, greatest);
      else
        tile_of(u, t);
    }
    for (const auto& [t, greatest] : later)
      if (!vanishes(u, greatest)) tile_of(u, t);
    run_kernels(c_.finish[u.rows < c_.tile_rows], u, 0);
  }

  /// The greatest value that t has in a tile of which it is known and that may be left out; else inf.
  double greatest_of(const Unit& u, std::int64_t tile) const {
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    if (a_.t == plan::kNoTerm) return kUnknown;
    const std::int64_t pack_number = pack_of_[static_cast<std::size_t>(u.number)];
    if (!flags()[(pack_number - first_) * column_tiles_ + tile]) return kUnknown;
    const std::int64_t j0 = tile * c_.tile_columns;
    const plan::Tile where{u.row0, u.rows, j0, std::min(c_.tile_columns, a_.columns - j0), u.number};
    const plan::Bounds t = plan::bounds_of(a_, a_.t, where, *c_.slot_types, c_.slots);
    if (t.nan || t.high == kUnknown) return kUnknown;
    const auto finite = [&](plan::TermId factor) {
      if (factor == plan::kNoTerm) return true;
      const plan::Bounds x = plan::bounds_of(a_, factor, where, *c_.slot_types, c_.slots);
      return !x.nan && std::isfinite(x.low) && std::isfinite(x.high);
    };
    return finite(a_.weight) && std::all_of(a_.sums.begin(), a_.sums.end(), finite) ? t.high : kUnknown;
  }

  bool is_whole(const Unit& u, std::int64_t j0, std::int64_t columns) const {
    const plan::Tile where{u.row0, u.rows, j0, columns, u.number};
    return !a_.masks.empty() && std::all_of(a_.masks.begin(), a_.masks.end(), [&](plan::TermId m) {
      const plan::TermId condition = a_.terms[static_cast<std::size_t>(m)].in[0];
      return plan::bounds_of(a_, condition, where, *c_.slot_types, c_.slots).low > 0;
    });
  }

  bool vanishes(const Unit& u, double greatest) const {
    const double far = a_.exponential == ir::Op::exp ? kVanishes : kVanishes * 1.5;
    if (greatest == -std::numeric_limits<double>::infinity()) return true;
    for (std::int64_t r = 0; r < u.rows; ++r)
      if (!(u.max[u.now][r] > greatest + far)) return false;
    return true;
  }

  void tile_of(Unit& u, std::int64_t tile) const {
    const std::int64_t ld = c_.tile_rows, j0 = tile * c_.tile_columns,
                       columns = std::min(c_.tile_columns, a_.columns - j0);
    const std::int64_t pack_number = pack_of_[static_cast<std::size_t>(u.number)];
    const EvenBlocks lines(columns, micro_.mr), across(a_.width, micro_.mr);
    for (std::int64_t i = 0; i < lines.count; ++i)
      multiply(lines.size(i), a_.depth, packed_k(pack_number) + (j0 + lines.begin(i)) * a_.depth, u.q,
               u.scores + lines.begin(i) * ld, true);
    turn(u, j0, columns);
    run_kernels(c_.step[u.rows < ld][columns < c_.tile_columns][is_whole(u, j0, columns)], u, j0);
    if (a_.t != plan::kNoTerm && u.any) rescale(u);
    u.now ^= 1;
    for (std::int64_t i = 0; i < across.count; ++i)
      multiply(across.size(i), columns,
               packed_v(pack_number) + across.begin(i) * a_.columns + j0 * across.size(i), u.weights,
               u.products + across.begin(i) * ld, !u.any);
    u.any = true;
  }

  /// to = (first ? 0 : to) + panel · b, of so many lines of a panel and of all rows of a tile.
  void multiply(std::int64_t lines, std::int64_t steps, const float* panel, const float* b, float* to,
                bool first) const {
    micro_.direct(lines, c_.tile_rows)(steps, panel, 1, lines, b, c_.tile_rows, to, c_.tile_rows, first,
                                       false);
  }

  std::byte* turned(const Unit& u, std::size_t index) const { return u.memory + turned_[index] * 4; }

  /// The tile's part of matrices in memory.
  void turn(const Unit& u, std::int64_t j0, std::int64_t columns) const {
    for (std::size_t i = 0; i < turned_.size(); ++i) {
      if (turned_[i] < 0) continue;
      const plan::MatrixMemory& m = a_.memory[i];
      const auto copy = [&]<class T>(T) {
        pack_strided(reinterpret_cast<const T*>(element(c_.memory[i], u.number, u.row0, j0)), m.row,
                     std::int64_t{1}, u.rows, c_.tile_rows, columns, reinterpret_cast<T*>(turned(u, i)));
      };
      switch (size_of(m.dtype)) {  // bits of any type
        case 1: copy(std::uint8_t{}); break;
        case 2: copy(std::uint16_t{}); break;
        case 4: copy(std::uint32_t{}); break;
        default: copy(std::uint64_t{}); break;
      }
    }
  }

  void rescale(const Unit& u) const {
    const std::int64_t ld = c_.tile_rows;
    if (std::all_of(u.scale, u.scale + u.rows, [](float s) { return s == 1.0f; })) return;
    for (std::int64_t r = u.rows; r < ld; ++r) u.scale[r] = 0;
    for (std::int64_t d = 0; d < a_.width; ++d) {
      float* const row = u.products + d * ld;
      for (std::int64_t r = 0; r < ld; ++r) row[r] *= u.scale[r];
    }
  }

  void* address(const TileBuffer& b, const Unit& u, std::int64_t j0) const {
    const std::int64_t line = round_up(c_.tile_rows, 16);
    const auto index = static_cast<std::size_t>(b.index);
    switch (b.role) {
      case TileBuffer::Role::Scores: return u.scores;
      case TileBuffer::Role::Weights: return u.weights;
      case TileBuffer::Role::MaxBefore: return u.max[u.now];
      case TileBuffer::Role::MaxAfter: return u.max[u.now ^ 1];
      case TileBuffer::Role::SumBefore: return u.sums[u.now] + b.index * line;
      case TileBuffer::Role::SumAfter: return u.sums[u.now ^ 1] + b.index * line;
      case TileBuffer::Role::Scale: return u.scale;
      case TileBuffer::Role::Memory: return element(c_.memory[index], u.number, u.row0, j0);
      case TileBuffer::Role::Turned: return turned(u, index);
      case TileBuffer::Role::Products: return u.products;
      case TileBuffer::Role::Result:
        return c_.result + (u.number * a_.rows + u.row0) * a_.width * size_of(c_.result_type);
      case TileBuffer::Role::RowResult: return element(c_.row_results[index], u.number, u.row0, 0);
      case TileBuffer::Role::Local: return u.local + b.index;
      case TileBuffer::Role::Statistic:
      case TileBuffer::Role::Partial: break;  // an attention has none
    }
    return nullptr;
  }

  void run_kernels(std::span<const TileKernel> kernels, const Unit& u, std::int64_t j0) const {
    run_tile_kernels(kernels, c_.slots, {u.number, u.row0, j0},
                     [&](const TileBuffer& b) { return address(b, u, j0); });
  }

  const AttentionCall& c_;
  const plan::Attention& a_;
  const Micro<float>& micro_;
  std::byte* workspace_;
  std::int64_t k_floats_ = 0, v_floats_ = 0, pack_floats_ = 0, unit_floats_ = 0, flag_bytes_ = 0;
  std::int64_t row_blocks_ = 0, column_tiles_ = 0, together_ = 1, first_ = 0;
  std::vector<std::int64_t> packs_, pack_of_;  // the first matrix with each k and v; by matrix
  std::vector<std::int64_t> units_;
  std::vector<std::int64_t> turned_;  // floats from a unit's memory on, by matrix; -1: read where it lies
};

class CpuAttention final : public library::AttentionRoutine {
 public:
  std::pair<std::int64_t, std::int64_t> tile_of(const plan::Attention& what) const override {
    const EvenBlocks tiles(what.columns, kTileColumns);
    return {micro<float>(false).nr, tiles.size(0)};
  }
  std::size_t workspace_bytes(const AttentionCall& call) const override {
    return Attending(call, nullptr).bytes();
  }
  void run(const AttentionCall& call, std::byte* workspace) const override {
    Attending attending(call, workspace);
    attending.run();
  }
};

}  // namespace

const library::AttentionRoutine& attention() {
  static const CpuAttention instance;
  return instance;
}

}  // namespace kiln::cpu
