// Products whose columns are windows: most lie side by side in memory at each step of the sum, as the points
// of an image's row do for each element of a filter. Vectors of such columns are read where they lie, so that
// nothing is packed but the few that reach over an end of a row. Packing would write each element of an image
// as often as a filter has elements, and read it again.
//
// Halves, columns a few elements apart, and operands that no cache holds are staged first: what a tile's
// columns read, for some steps of the sum, is copied as runs of elements, once. In a stage columns are
// adjacent: of those s elements apart, every s-th element of a run is a run of its own. Where channels are
// last, what lies between neighbours are the steps of a group, which become planes.
#pragma once

#include "library/cpu/gemm_pack.h"
#include "library/cpu/window_sums.h"
#include "library/library.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

namespace kiln::cpu {

/// Columns of a tile of windows: sums of few rows stay in the first cache, and there are tiles for all
/// threads.
std::int64_t window_tile(const library::Matmul& call);

/// Where the columns of a product's second operand lie: the same for all products of a call.
class WindowPlaces {
 public:
  /// `tile`: columns of a tile. `depth`: steps that are staged, and vectors packed for, at a time.
  /// `converts`: elements are of another type than their products. `overlap`: vectors may share columns,
  /// since each is summed at once.
  WindowPlaces(const library::Matmul& call, std::int64_t tile, std::int64_t depth, int lanes, bool converts,
               bool overlap);
  /// Whether most vectors of columns are read where they lie, after staging.
  bool pays() const { return pays_; }

  std::int64_t tile() const { return tile_; }
  bool staged() const { return staged_; }
  std::int64_t stage_elements() const { return stage_elements_; }

  /// Elements of the operand, `step` apart, that a stage has from `to` on: for a tile that spans `span`
  /// places. Of each plane, which begin one element after the other, and in the stage `pitch` elements.
  struct Run {
    std::int64_t from, length, to, pitch;
  };
  std::int64_t step() const { return spread_; }
  std::int64_t planes() const { return planes_; }
  /// Of the steps from one, a multiple of the depth, on. Their lengths are those of a tile with one place.
  const std::vector<Run>& runs(std::int64_t first_step) const {
    return blocks_[static_cast<std::size_t>(first_step / depth_)];
  }
  /// A vector of a tile's columns from one on. None `used`: it lies at `place`, in elements of a stage where
  /// there is one, else of the operand; otherwise so many columns are packed, from row number `place` on.
  struct Vector {
    std::int64_t column, used, place;
  };
  /// In ascending order; each column's sum is in the last of those that have it.
  struct Tile {
    std::int64_t begin, least, greatest;  // the first column, and places
    std::vector<Vector> vectors;
  };
  const Tile& tile_of(std::int64_t column) const { return tiles_[static_cast<std::size_t>(column / tile_)]; }

  /// Where columns lie that are packed, from `first` of all on, whose row is number `row`.
  void places_of(std::int64_t first, std::int64_t n, std::int64_t row, std::int64_t* to) const;
  /// Of steps: in the stage where there is one, else in the operand.
  const std::int64_t* steps() const { return steps_.data(); }
  const std::int64_t* packed_steps() const { return packed_steps_.data(); }

 private:
  /// Columns that are adjacent, in a stage at least.
  struct Row {
    std::int64_t begin, end, place;
    std::int64_t place_of(std::int64_t column) const { return place + column - begin; }
  };
  void find_rows(Lines across, Lines along, std::int64_t k);
  bool rows_are_short(int lanes) const;
  bool find_runs(Lines along, std::int64_t k);
  void find_tiles();
  void find_vectors(Tile& tile, std::size_t& row, int lanes, bool overlap) const;

  struct Group {
    std::int64_t phase, place, number, run;
  };
  std::int64_t lay_out_runs(std::vector<Group>& groups, std::int64_t base, std::int64_t widest,
                            std::vector<Run>& runs) const;

  std::int64_t n_, tile_, depth_, spread_ = 1, planes_ = 1, origin_ = 0, stage_elements_ = 0;
  bool staged_ = false, pays_ = false;
  std::vector<Row> rows_;
  std::vector<Tile> tiles_;
  std::vector<std::int64_t> steps_, packed_steps_;
  std::vector<std::vector<Run>> blocks_;
};

/// n elements `step` apart, side by side.
template <class T, class C>
void stage_run(const T* from, std::int64_t step, std::int64_t n, C* to) {
  if constexpr (std::is_same_v<T, C>) {
    if (step == 1) return void(std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T)));
  } else {
    if (step == 1) return widen(from, to, n);
  }
  static const SumLevel level = best_sum_level();
  if constexpr (std::is_same_v<T, float>)
    if (step == 2) return every_second(level, from, to, n);
  constexpr std::int64_t kTogether = 256;  // elements that are converted with those between them
  if constexpr (kIsHalf<T>) {
    alignas(64) C wide[kTogether];
    const std::int64_t some = kTogether / step;
    for (std::int64_t i = 0; i < n; i += some) {
      const std::int64_t count = std::min(some, n - i);
      widen(from + i * step, wide, (count - 1) * step + 1);
      if constexpr (std::is_same_v<C, float>)
        if (step == 2) {
          every_second(level, wide, to + i, count);
          continue;
        }
      for (std::int64_t j = 0; j < count; ++j) to[i + j] = wide[j * step];
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * step];
  }
}

template <class T>
class WindowColumns {
 public:
  using C = typename ComputeOf<T>::type;

  /// Nothing where columns lie otherwise, or are of integers. `tile`: columns of a tile, for one row.
  static std::optional<WindowColumns> of(const library::Matmul& call, std::int64_t tile) {
    if constexpr (std::is_same_v<C, float> || std::is_same_v<C, double>) {
      if (call.k == 0 || call.n < 2 || (!call.b.row_offsets && !call.b.col_offsets)) return std::nullopt;
      WindowColumns columns(call, tile);
      if (columns.places_.pays()) return columns;
    }
    return std::nullopt;
  }

  const WindowMicro<C>& micro() const { return micro_; }
  /// Rows of a panel of a: nearly as many in each.
  std::int64_t height() const { return height_; }
  std::int64_t tile() const { return places_.tile(); }
  /// Steps of the sum that open() takes.
  std::int64_t depth() const { return depth_; }
  /// Elements of a tile's memory for what is packed and staged.
  std::int64_t memory() const { return packed_elements() + places_.stage_elements(); }

  /// Some steps of a tile's columns: what vector() reads.
  struct Tile {
    const WindowPlaces::Tile& places;
    const C* from;
    std::int64_t step, depth;
    C* packed;
    std::size_t count() const { return places.vectors.size(); }
  };
  /// Pre: `column` is the first of a tile, `step` a multiple of depth(), `depth` at most that. `memory`: of
  /// memory() elements.
  Tile open(const T* b, std::int64_t column, std::int64_t step, std::int64_t depth, C* memory) const {
    Tile t{places_.tile_of(column), nullptr, step, depth, memory};
    if (!places_.staged()) {
      if constexpr (std::is_same_v<T, C>) t.from = b;
      return t;
    }
    C* const stage = memory + packed_elements();
    const std::int64_t first = t.places.least, span = t.places.greatest - first;
    for (const WindowPlaces::Run& r : places_.runs(step)) {
      const T* const from = b + r.from + first * places_.step();
      if (places_.planes() > 1)
        pack_strided(from, places_.step(), 1, r.length + span, r.pitch, places_.planes(), stage + r.to);
      else
        stage_run(from, places_.step(), r.length + span, stage + r.to);
    }
    t.from = stage - first;
    return t;
  }

  /// Vector number i of a tile; `slot`: where its columns are packed if they are.
  WindowVector<C> vector(const Tile& t, std::size_t i, int slot) const {
    const WindowPlaces::Vector& v = t.places.vectors[i];
    if (v.used == 0) return {t.from + v.place, places_.steps() + t.step, v.column};
    C* const packed = t.packed + slot * micro_.lanes * t.depth;
    std::int64_t at[kMostColumns];
    places_.places_of(t.places.begin + v.column, v.used, v.place, at);
    pack_panel(t.from, Lines{0, at}, Lines{0, places_.steps(), t.step}, v.used, micro_.lanes, t.depth,
               packed);
    return {packed, places_.packed_steps(), v.column};
  }

 private:
  WindowColumns(const library::Matmul& call, std::int64_t tile)
      : micro_(window_micro<C>(best_sum_level(), call.strict)),
        height_(height_of(call.m, micro_.rows)),
        depth_(depth_of(call.k, height_)),
        places_(call, tile, depth_, micro_.lanes, !std::is_same_v<T, C>,
                depth_ == call.k && call.m <= kShortRowPanels * height_) {}
  /// Panels of a for which vectors that reach over ends of short rows take less time than packing: more of
  /// halves, which packing converts run by run.
  static constexpr std::int64_t kShortRowPanels = std::is_same_v<T, C> ? 1 : 4;
  static std::int64_t height_of(std::int64_t m, std::int64_t most) {
    const std::int64_t panels = (m + most - 1) / most;
    return (m + panels - 1) / panels;
  }
  /// All steps, where a panel of a stays in the first cache: vectors then may share columns.
  static std::int64_t depth_of(std::int64_t k, std::int64_t height) {
    constexpr std::int64_t kPanel = 4096, kAtATime = 192, kMost = 512;
    return k <= std::clamp(kPanel / height, kAtATime, kMost) ? k : kAtATime;
  }
  std::int64_t packed_elements() const { return kMostWindowVectors * micro_.lanes * depth_; }

  WindowMicro<C> micro_;
  std::int64_t height_, depth_;
  WindowPlaces places_;
};

}  // namespace kiln::cpu
