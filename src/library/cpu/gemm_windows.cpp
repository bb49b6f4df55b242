#include "library/cpu/gemm_windows.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm_shared.h"
#include "library/cpu/gemm_tiles.h"

#include <cstdlib>
#include <numeric>

namespace kiln::cpu {
namespace {

constexpr std::int64_t kNear = 1 << 20;        // bytes of an operand that a cache holds
constexpr std::int64_t kMostStage = 64 << 10;  // elements of a stage: it stays in the second cache
constexpr std::int64_t kMostSpread = 4;
constexpr std::int64_t kLeastTile = 64;

std::int64_t least_of(Lines lines, std::int64_t n) {
  if (!lines.at) return std::min<std::int64_t>(0, (n - 1) * lines.stride);
  return *std::min_element(lines.at, lines.at + n);
}
std::int64_t greatest_of(Lines lines, std::int64_t n) {
  if (!lines.at) return std::max<std::int64_t>(0, (n - 1) * lines.stride);
  return *std::max_element(lines.at, lines.at + n);
}

/// From the first to the last element that any product of a call reads.
std::int64_t bytes_of(const library::Matmul& call) {
  const Lines across{call.b.col_stride, call.b.col_offsets}, along{call.b.row_stride, call.b.row_offsets};
  std::int64_t elements = greatest_of(across, call.n) - least_of(across, call.n) +
                          greatest_of(along, call.k) - least_of(along, call.k) + 1;
  for (int i = 0; i < call.batch_rank; ++i)
    elements += (call.batch[i] - 1) * std::abs(call.b.batch_strides[i]);
  return elements * static_cast<std::int64_t>(size_of(call.dtype));
}

/// Steps of a group: adjacent ones, as many in each, no fewer than are turned in registers. 1: there are no
/// groups.
std::int64_t planes_of(Lines along, std::int64_t k, std::int64_t spread) {
  constexpr std::int64_t kLeast = 4;
  std::int64_t planes = spread;
  for (std::int64_t p = 0, run; p < k && planes >= kLeast; p += run) {
    run = along.from(p).adjacent(k - p);
    planes = std::gcd(planes, run);
  }
  return planes < kLeast ? 1 : planes;
}

}  // namespace

WindowPlaces::WindowPlaces(const library::Matmul& call, std::int64_t tile, std::int64_t depth, int lanes,
                           bool converts, bool overlap)
    : n_(call.n), tile_(round_up(std::min(tile, call.n), 2 * lanes)), depth_(depth) {
  const Lines across{call.b.col_stride, call.b.col_offsets}, along{call.b.row_stride, call.b.row_offsets};
  find_rows(across, along, call.k);
  const bool short_rows = !rows_.empty() && rows_are_short(lanes);
  if (call.n < lanes || rows_.empty() || (short_rows && !overlap)) return;
  const bool stages = converts || spread_ > 1 || short_rows;  // else it may
  if (stages || bytes_of(call) > kNear) staged_ = find_runs(along, call.k);
  if (!staged_) {
    if (stages) return;
    for (Row& row : rows_) row.place += origin_;
    for (std::int64_t p = 0; p < call.k; ++p) steps_.push_back(along[p]);
    find_tiles();
  }
  stage_elements_ += lanes;  // what a vector of a short row has behind the last one
  for (std::int64_t p = 0; p < std::min(call.k, depth_); ++p) packed_steps_.push_back(p * lanes);
  std::size_t packed = 0, all = 0;
  std::size_t row = 0;
  for (Tile& t : tiles_) {
    find_vectors(t, row, lanes, overlap);
    all += t.vectors.size();
    for (const Vector& v : t.vectors) packed += v.used != 0;
  }
  pays_ = 2 * packed <= all;
}

/// Rows as short as a fraction of a vector are vectors, too, whose last elements are summed in vain: the next
/// vector stores the sums that belong there, or they lie behind the tile.
void WindowPlaces::find_vectors(Tile& tile, std::size_t& row, int lanes, bool overlap) const {
  const std::int64_t n = std::min(tile_, n_ - tile.begin), least = lanes / 4;
  tile.vectors.reserve(static_cast<std::size_t>(n / lanes + n / lanes / 4));
  for (std::int64_t c = 0; c < n;) {
    while (rows_[row].end <= tile.begin + c) ++row;
    const Row& r = rows_[row];
    const std::int64_t end = std::min(r.end - tile.begin, n);
    const bool again = overlap && end >= lanes && r.begin <= tile.begin + end - lanes;
    const std::int64_t at = again ? std::min(c, end - lanes) : c;  // the last columns of a row once more
    if (end - at >= lanes) {
      tile.vectors.push_back({at, 0, r.place_of(tile.begin + at)});
      c = at + lanes;
    } else if (overlap && staged_ && end - c >= least) {
      tile.vectors.push_back({c, 0, r.place_of(tile.begin + c)});
      c = end;
    } else {
      tile.vectors.push_back({c, std::min<std::int64_t>(lanes, n - c), static_cast<std::int64_t>(row)});
      c += tile.vectors.back().used;
    }
  }
}

void WindowPlaces::places_of(std::int64_t first, std::int64_t n, std::int64_t row, std::int64_t* to) const {
  for (std::int64_t i = 0; i < n; ++i) {
    while (rows_[static_cast<std::size_t>(row)].end <= first + i) ++row;
    to[i] = rows_[static_cast<std::size_t>(row)].place_of(first + i);
  }
}

/// Places of columns in a stage: their offsets from the least, in units of the distance of neighbours.
void WindowPlaces::find_rows(Lines across, Lines along, std::int64_t k) {
  spread_ = across[1] - across[0];
  if (spread_ > kMostSpread) planes_ = planes_of(along, k, spread_);
  if (spread_ < 1 || (spread_ > kMostSpread && planes_ == 1)) spread_ = 1;
  if (!across.at) {
    if (across.stride == spread_) rows_.push_back({0, n_, 0});
    return;
  }
  for (std::int64_t i = 0, begin = 0; i < n_; begin = i) {
    while (++i < n_ && across.at[i] - across.at[i - 1] == spread_) continue;
    rows_.push_back({begin, i, across.at[begin]});
  }
  origin_ = rows_[0].place;
  for (const Row& r : rows_) origin_ = std::min(origin_, r.place);
  for (Row& r : rows_) {
    r.place -= origin_;
    if (r.place % spread_ != 0) return rows_.clear();
    r.place /= spread_;
  }
}

/// Whether half of the vectors would reach over ends of rows.
bool WindowPlaces::rows_are_short(int lanes) const {
  std::int64_t packed = 0;
  std::size_t row = 0;
  for (std::int64_t i = 0; i < n_; i += lanes) {
    while (rows_[row].end <= i) ++row;
    if (rows_[row].end < std::min(i + lanes, n_)) packed += lanes;
  }
  return 2 * packed > n_;
}

/// Tiles, without their vectors.
void WindowPlaces::find_tiles() {
  tiles_.clear();
  std::size_t row = 0;
  for (std::int64_t i = 0; i < n_; i += tile_) {
    const std::int64_t end = std::min(i + tile_, n_);
    while (rows_[row].end <= i) ++row;
    Tile& t = tiles_.emplace_back(Tile{i, rows_[row].place_of(i), rows_[row].place_of(i), {}});
    for (std::size_t r = row; r < rows_.size() && rows_[r].begin < end; ++r) {
      t.least = std::min(t.least, rows_[r].place_of(std::max(i, rows_[r].begin)));
      t.greatest = std::max(t.greatest, rows_[r].place_of(std::min(end, rows_[r].end) - 1));
    }
  }
}

/// Groups in the order of their places, as runs: those whose elements a tile's columns share are one run.
/// Returns the elements of a stage.
std::int64_t WindowPlaces::lay_out_runs(std::vector<Group>& groups, std::int64_t base, std::int64_t widest,
                                        std::vector<Run>& runs) const {
  const auto before = [](const Group& a, const Group& b) {
    return a.phase != b.phase ? a.phase < b.phase : a.place < b.place;
  };
  if (!std::is_sorted(groups.begin(), groups.end(), before)) std::sort(groups.begin(), groups.end(), before);
  std::int64_t to = 0, at = 0, phase = -1;  // of the run's first element
  const auto close = [&] {
    if (runs.empty()) return;
    runs.back().to = to, runs.back().pitch = round_up(runs.back().length + widest, 16);
    to += planes_ * runs.back().pitch;
  };
  for (Group& g : groups) {
    if (g.phase != phase || g.place - at >= runs.back().length + widest) {
      close();
      phase = g.phase, at = g.place;
      runs.push_back({base + at * spread_ + phase, 1, 0, 0});
    }
    runs.back().length = std::max(runs.back().length, g.place - at + 1);
    g.run = static_cast<std::int64_t>(runs.size()) - 1;
    g.place -= at;
  }
  close();
  return to;
}

/// What a tile's columns read, as runs. False: as much is copied as packing would
bool WindowPlaces::find_runs(Lines along, std::int64_t k) {
  const std::int64_t least = least_of(along, k);
  std::vector<Group> groups;
  for (;; tile_ = round_up(tile_ / 2, kLeastTile)) {
    find_tiles();
    std::int64_t widest = 0;
    for (const Tile& t : tiles_) widest = std::max(widest, t.greatest - t.least);
    std::int64_t all = 0;
    blocks_.clear();
    stage_elements_ = 0;
    steps_.assign(static_cast<std::size_t>(k), 0);
    for (std::int64_t first = 0; first < k; first += depth_) {
      const std::int64_t end = std::min(first + depth_, k);
      groups.clear();
      for (std::int64_t p = first / planes_ * planes_; p < end; p += planes_)
        groups.push_back({(along[p] - least) % spread_, (along[p] - least) / spread_, p, 0});
      std::vector<Run>& runs = blocks_.emplace_back();
      const std::int64_t elements = lay_out_runs(groups, least + origin_, widest, runs);
      for (const Group& g : groups) {
        const Run& run = runs[static_cast<std::size_t>(g.run)];
        for (std::int64_t p = std::max(first, g.number); p < std::min(end, g.number + planes_); ++p)
          steps_[static_cast<std::size_t>(p)] = run.to + g.place + (p - g.number) * run.pitch;
      }
      stage_elements_ = std::max(stage_elements_, elements);
      all += elements;
    }
    if (4 * all > 3 * std::min(tile_, n_) * k) return false;
    if (stage_elements_ <= kMostStage || tile_ <= kLeastTile) return true;
  }
}

std::int64_t window_tile(const library::Matmul& call) {
  constexpr std::int64_t kMost = 2048, kLeast = 64, kSums = 4096;
  std::int64_t cols = std::clamp(kSums / call.m / kLeast * kLeast, kTileCols, kMost);
  if (multiply_adds(call) < kSerialWork || split_batches(call)) return cols;
  const std::int64_t row_tiles = (call.m + kTileRows - 1) / kTileRows;
  while (cols > kLeast && row_tiles * ((call.n + cols - 1) / cols) < 4 * thread_count()) cols /= 2;
  return cols;
}

}  // namespace kiln::cpu
