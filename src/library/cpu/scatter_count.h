// How often each position comes: a scatter that adds one number to one element at every index.
#pragma once

#include "library/choices.h"
#include "library/cpu/positions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace kiln::cpu {

constexpr std::int64_t kResolvedAtOnce = 512;   // indices
constexpr std::int64_t kComparedTogether = 64;  // positions

inline std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The memory of a thread that counts: what it counted so far, and behind that tables of narrow counters,
/// which stay in the first cache.
///
/// Very few positions are compared with 64 indices at a time and have a counter of a byte for each of those.
/// Few positions are counted two at a time: a cell for each pair of them. That takes half as many additions,
/// each of which waits for a load and a store. There are several tables where these are small, because an
/// addition need not wait for the one before where that has the same cell. Cells have four bytes where that
/// leaves two tables: a Zen 3 adds to four bytes in two thirds of the time that two take. Cells of two bytes
/// are added up before one could overflow; where there are too many for that, they have one byte, and what
/// was counted gets each 256.
struct CountTables {
  static constexpr std::int64_t kMostTables = 4, kMostBytes = 40 << 10, kMostCells = 16 << 10,
                                kMostCompared = 16, kCouldCompare = 64, kCouldJoin = 128 << 10;
  std::int64_t elements, element_bytes;
  bool compared;
  std::int64_t joined = 1;  // positions of a cell
  std::int64_t cells;
  std::int64_t cell_bytes;
  std::int64_t tables = 1;
  CountTables(std::int64_t elements, std::int64_t element_bytes, const library::Choices& choices = {})
      : elements(elements),
        element_bytes(element_bytes),
        compared(
            elements <= kCouldCompare &&
            choices.decide(elements <= kMostCompared, FusionVariant::ByComparison, FusionVariant::ByDigits)),
        cells(compared ? elements * kComparedTogether : elements + 1),
        cell_bytes(compared ? 1 : 2) {
    if (compared) return;
    const bool could_join = cells <= kCouldJoin / cells;
    if (could_join && choices.decide(cells <= kMostCells / cells, FusionVariant::LargerTables,
                                     FusionVariant::SmallerTables))
      joined = 2, cells *= cells;
    if (joined == 1 && cells > kMostCells) cell_bytes = 1;
    tables = tables_of(cell_bytes);
    const std::int64_t wide = tables_of(kWide);
    if (cell_bytes > 1 && cells * kWide <= kMostBytes && wide >= std::min<std::int64_t>(tables, 2))
      cell_bytes = kWide, tables = wide;
  }
  /// Elements of what was counted: the last counts what is out of range.
  std::int64_t pitch() const { return elements + 1; }
  std::size_t counted_bytes() const { return aligned(static_cast<std::size_t>(pitch() * element_bytes)); }
  std::size_t bytes() const {
    return counted_bytes() + aligned(static_cast<std::size_t>(cells * tables * cell_bytes));
  }
  /// Indices after which no cell of two bytes has overflowed, nor a counter of a lane; cells of one byte may.
  std::int64_t indices_at_once() const {
    if (compared) return 255 * kComparedTogether;
    if (cell_bytes == kWide) return std::numeric_limits<std::int32_t>::max();
    return cell_bytes == 1 ? std::numeric_limits<std::int64_t>::max() : tables * joined * (48 << 10);
  }

 private:
  static constexpr std::int64_t kWide = 4;  // bytes
  std::int64_t tables_of(std::int64_t bytes) const {
    std::int64_t count = 1;
    while (count < kMostTables && 2 * count * cells * bytes <= kMostBytes) count *= 2;
    return count;
  }
};

/// Cells are counted in tables of `pitch` counters, those next to each other in different tables: 1, 2 or 4.
template <class Cell, class Counter>  // std::int32_t or std::uint16_t; std::uint16_t or std::uint32_t
void count_cells(const Cell* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                 Counter* counters);
std::int64_t count_cells(const std::int32_t* cells, std::int64_t n, std::int64_t tables, std::int64_t pitch,
                         std::uint8_t* counters, std::int32_t* overflowed);

/// To each lane's counter of each of so many positions, the number of times that the lane has it, in `n`
/// times 64 positions.
using CountCompared = void (*)(const std::uint8_t* positions, std::int64_t n, std::int64_t count,
                               std::uint8_t* counters);
/// The one for the instruction set in force.
CountCompared count_compared();

/// How often each of n indices names each position, at the beginning of `memory`, which has tables.bytes().
template <class T>
class Counted {
 public:
  Counted(const CountTables& tables, std::byte* memory)
      : tables_(tables),
        counts_(reinterpret_cast<T*>(memory)),
        counters_(memory + tables.counted_bytes()),
        left_(tables.indices_at_once()) {
    std::fill(memory, memory + tables.bytes(), std::byte{});
  }

  /// Counts indices; `fetch`: whether those of another call follow them in memory.
  template <class Index>
  void add(const Index* indices, std::int64_t stride, std::int64_t n, bool fetch) {
    if (tables_.compared) return compare(indices, stride, n);
    // Narrow indices stay narrow where each is a cell of two bytes or four.
    if constexpr (std::is_same_v<Index, std::uint16_t>)
      if (tables_.joined == 1 && tables_.cell_bytes > 1 && tables_.cells <= 0xffff)
        return add_in<std::uint16_t>(indices, stride, n, fetch);
    add_in<std::int32_t>(indices, stride, n, fetch);
  }

  /// To be called once, at the end.
  void finish() {
    if (tables_.compared) return add_up_lanes();
    for (std::int64_t t = 0; t < tables_.tables; ++t)
      if (tables_.cell_bytes == 1)
        add_up(reinterpret_cast<std::uint8_t*>(counters_) + t * tables_.cells);
      else if (tables_.cell_bytes == 4)
        add_up(reinterpret_cast<std::uint32_t*>(counters_) + t * tables_.cells);
      else
        add_up(reinterpret_cast<std::uint16_t*>(counters_) + t * tables_.cells);
    left_ = tables_.indices_at_once();
  }

 private:
  template <class Position, class Index>
  void add_in(const Index* indices, std::int64_t stride, std::int64_t n, bool fetch) {
    const auto positions_of = resolve_positions<Index, Position>();
    Position positions[kResolvedAtOnce];  // tables are small
    for (std::int64_t k = 0; k < n; k += kResolvedAtOnce) {
      const std::int64_t here = std::min(kResolvedAtOnce, n - k);
      positions_of(indices + k * stride, stride, here, tables_.elements, tables_.elements, positions);
      const bool more = fetch || k + 2 * kResolvedAtOnce <= n;
      const Index* const next = stride == 1 && more ? indices + k + kResolvedAtOnce : nullptr;
      add_positions(positions, here, reinterpret_cast<const char*>(next), sizeof(Index));
    }
  }

  template <class Index>
  void compare(const Index* indices, std::int64_t stride, std::int64_t n) {
    const auto positions_of = resolve_positions<Index, std::uint8_t>();
    const auto count = count_compared();
    std::uint8_t positions[kResolvedAtOnce];
    for (std::int64_t k = 0; k < n; k += kResolvedAtOnce) {
      const std::int64_t here = std::min(kResolvedAtOnce, n - k), many = here / kComparedTogether;
      positions_of(indices + k * stride, stride, here, tables_.elements, tables_.elements, positions);
      if (left_ < here) add_up_lanes();
      left_ -= here;
      count(positions, many, tables_.elements, reinterpret_cast<std::uint8_t*>(counters_));
      for (std::int64_t j = many * kComparedTogether; j < here; ++j) add_one(positions[j], 1);
    }
  }

  void add_up_lanes() {
    auto* const lanes = reinterpret_cast<std::uint8_t*>(counters_);
    for (std::int64_t i = 0; i < tables_.elements; ++i)
      for (std::int64_t l = 0; l < kComparedTogether; ++l) add_one(i, lanes[i * kComparedTogether + l]);
    std::fill_n(lanes, tables_.cells, std::uint8_t{});
    left_ = tables_.indices_at_once();
  }

  static constexpr std::int64_t kFetchedTogether = 64;  // cells

  void add_one(std::int64_t position, std::uint64_t n) {  // wraps
    counts_[position] = static_cast<T>(static_cast<std::uint64_t>(counts_[position]) + n);
  }

  /// `next`: indices of so many bytes that the processor asks for meanwhile: it would not before it counts no
  /// more.
  template <class Position>
  void add_positions(const Position* positions, std::int64_t n, const char* next, std::int64_t bytes) {
    std::int32_t joined[kResolvedAtOnce];
    const Position* cells = positions;
    const std::int64_t count = n / tables_.joined;
    if constexpr (std::is_same_v<Position, std::int32_t>)
      if (tables_.joined > 1) {
        join_positions()(positions, count, tables_.joined, tables_.pitch(), joined);
        cells = joined;
      }
    if (left_ < n) finish();
    left_ -= n;
    for (std::int64_t i = 0; i < count; i += kFetchedTogether) {
      const std::int64_t here = std::min(kFetchedTogether, count - i), width = bytes * tables_.joined;
      if (next)
        for (std::int64_t b = i * width; b < (i + here) * width; b += 64) __builtin_prefetch(next + b);
      count_some(cells + i, here);
    }
    for (std::int64_t j = count * tables_.joined; j < n; ++j) add_one(positions[j], 1);
  }

  template <class Position>
  void count_wide(const Position* cells, std::int64_t n) {
    if (tables_.cell_bytes == 4)
      return count_cells(cells, n, tables_.tables, tables_.cells,
                         reinterpret_cast<std::uint32_t*>(counters_));
    count_cells(cells, n, tables_.tables, tables_.cells, reinterpret_cast<std::uint16_t*>(counters_));
  }
  void count_some(const std::uint16_t* cells, std::int64_t n) { count_wide(cells, n); }
  void count_some(const std::int32_t* cells, std::int64_t n) {
    if (tables_.cell_bytes > 1) return count_wide(cells, n);
    std::int32_t overflowed[kFetchedTogether];
    const std::int64_t many = count_cells(cells, n, tables_.tables, tables_.cells,
                                          reinterpret_cast<std::uint8_t*>(counters_), overflowed);
    for (std::int64_t i = 0; i < many; ++i) add_one(overflowed[i], 256);
  }

  /// The counters of a table are added to what was counted, and cleared. A cell's first position is its place
  /// modulo the pitch.
  template <class Counter>
  void add_up(Counter* table) {
    const std::int64_t pitch = tables_.pitch();
    for (std::int64_t row = 0; row < tables_.cells; row += pitch) {
      std::uint64_t sum = 0;
      for (std::int64_t i = 0; i < pitch; ++i) add_one(i, table[row + i]);
      for (std::int64_t i = 0; i < pitch; ++i) sum += table[row + i];
      for (std::int64_t j = 1, at = row / pitch; j < tables_.joined; ++j, at /= pitch)
        add_one(at % pitch, sum);
    }
    std::fill_n(table, tables_.cells, Counter{});
  }

  const CountTables tables_;
  T* const counts_;
  std::byte* const counters_;
  std::int64_t left_;  // indices until cells are added up
};

}  // namespace kiln::cpu
