// The values of a part of a scatter meet their elements one after the other, in row-major order.
//
// A writer owns elements that no other thread writes at the same time: a range of the axis, or a whole table.
// It passes over the values of elements that it does not own.
#pragma once

#include "library/cpu/scatter_meet.h"
#include "library/cpu/scatter_runs.h"

#include <algorithm>
#include <type_traits>

namespace kiln::cpu {

constexpr std::int64_t kTableBytes = 512 << 10;  // of a thread's table: within the second cache
constexpr std::int64_t kWidenedTogether = 32;    // elements of a run of halves that is widened with the list
constexpr std::int64_t kFewRows = 16;            // of which stores are still under way when one comes again

/// Whether runs ask for the elements that later values meet: these would not be in the second cache.
inline bool fetches_ahead(const Scatter& call, std::int64_t element_bytes) {
  return call.choices.decide(count_of(call.x) * element_bytes > kTableBytes, FusionVariant::FarFetches,
                             FusionVariant::NoFetches);
}

/// The part of a write that one thread makes: values of one outer position, elements [from, to) of runs at
/// positions [low, high).
template <Combine How, class A, class T>
struct Writer {
  const Scatter& call;
  const Array& where;             // the positions under repetition
  const std::int64_t* positions;  // not where runs with one index each lie side by side: see list_runs
  const Cut& cut;
  const Resolved& resolved;
  AddRows<A, T> add;  // or null
  A* out;             // of the outer position
  std::int64_t value_base, where_base, index_base;
  std::int64_t low, high, from, to;

  int axis() const { return call.axis; }
  int last() const { return call.x.rank - 1; }
  std::int64_t line() const { return cut.rows * cut.run; }
  std::int64_t step() const { return last() > axis() ? call.values.strides[last()] : 0; }
  std::int64_t value_at(std::int64_t k, std::int64_t r) const {
    const std::int64_t v = value_base + k * call.values.strides[axis()];
    return cut.rows > 1 ? v + offset_of(call.values, axis() + 1, last(), r) : v;
  }
  std::int64_t where_at(std::int64_t k, std::int64_t r) const {
    const std::int64_t w = where_base + k * where.strides[axis()];
    return cut.rows > 1 ? w + offset_of(where, axis() + 1, last(), r) : w;
  }

  /// Lists the runs of `count` pieces from `first` on that this writer owns; returns their number. Elements
  /// are counted from those at `low`, values from the first piece's.
  std::int64_t list_runs(std::int64_t first, std::int64_t count, std::int32_t* elements,
                         std::int32_t* starts) const {
    if (cut.rows == 1)
      return resolved.list(index_base + first * call.indices.strides[axis()], count,
                           {low, high, line(), call.values.strides[axis()]}, elements, starts);
    const std::int64_t rows = cut.rows, pitch = line(), base = value_at(first / rows, first % rows);
    std::int64_t found = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t k = i / rows, r = i - k * rows, p = positions[where_at(k, r)];
      elements[found] = static_cast<std::int32_t>((p - low) * pitch + r * cut.run);
      starts[found] = static_cast<std::int32_t>(value_at(k, r) - base);
      found += static_cast<std::int64_t>(p >= low) & static_cast<std::int64_t>(p < high);
    }
    return found;
  }

  /// Whether 32 bits hold what list_runs() finds.
  bool fits_lists() const {
    bool fits = fits_list(high - low, line());
    for (int a = axis(); a < call.values.rank; ++a) {  // offsets are sums of one for each axis
      const std::int64_t n = call.values.dims[a];
      fits = fits && fits_list(kMaxRank * (a == axis() ? std::min(kListed, n) : n), call.values.strides[a]);
    }
    return fits;
  }

  /// One index for a whole run.
  void write_runs() const {
    if (!fits_lists()) return write_far_runs();
    const std::int64_t pieces = call.values.dims[axis()] * cut.rows, n = to - from;
    std::int32_t elements[kListed], starts[kListed];
    A* const own = out + low * line() + from;
    const bool cached = !fetches_ahead(call, sizeof(A)), few = (high - low) * cut.rows < kFewRows;
    const bool widens = kHalf<T> && !std::is_same_v<A, T> && !add &&
                        !(How == Combine::Add && kAddsInRegisters<A, T> && n >= kFewestWidened) &&
                        cut.rows == 1 && n <= kWidenedTogether && n == cut.run &&
                        call.values.strides[axis()] == n && (step() == 1 || n == 1);
    for (std::int64_t first = 0; first < pieces; first += kListed) {
      const std::int64_t here = std::min(kListed, pieces - first);
      const RowList list{elements, starts, list_runs(first, here, elements, starts), few};
      const auto* const values = static_cast<const T*>(call.values.data) +
                                 value_at(first / cut.rows, first % cut.rows) + from * step();
      if constexpr (kHalf<T> && !std::is_same_v<A, T>) {
        if (widens) {
          A wide[kListed * kWidenedTogether];
          convert(values, wide, here * n);
          meet_all<How, A, A>(list, own, wide, 1, n, cached, nullptr);
          continue;
        }
      }
      meet_all<How, A, T>(list, own, values, step(), n, cached, add);
    }
  }

  /// The same, of runs too far apart for a list: a table of gigabytes, or values in one.
  void write_far_runs() const {
    constexpr std::int32_t kHere = 0;
    for (std::int64_t k = 0; k < call.values.dims[axis()]; ++k)
      for (std::int64_t r = 0; r < cut.rows; ++r) {
        std::int64_t p = 0;
        if (cut.rows == 1)
          resolved.positions(index_base + k * call.indices.strides[axis()], 1, &p);
        else
          p = positions[where_at(k, r)];
        if (p < low || p >= high) continue;
        const auto* const values = static_cast<const T*>(call.values.data) + value_at(k, r) + from * step();
        meet_all<How, A, T>({&kHere, &kHere, 1}, out + p * line() + r * cut.run + from, values, step(),
                            to - from, true, add);
      }
  }

  /// An index for each element.
  void write_elements() const {
    const auto* const values = static_cast<const T*>(call.values.data);
    for (std::int64_t k = 0; k < call.values.dims[axis()]; ++k)
      for (std::int64_t r = 0; r < cut.rows; ++r) {
        const T* const value = values + value_at(k, r);
        const std::int64_t* const position = positions + where_at(k, r);
        A* const row = out + r * cut.run;
        for (std::int64_t i = from; i < to; ++i) {
          const std::int64_t p = position[i * where.strides[last()]];
          if (p >= low && p < high) meet<How>(row[p * line() + i], value[i * step()]);
        }
      }
  }
};

}  // namespace kiln::cpu
