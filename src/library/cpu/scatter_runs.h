// Runs of elements that one index each chooses: how the work is cut, and how the runs that a thread owns meet
// their values.
#pragma once

#include "device/cpu/threads.h"
#include "library/cpu/add_rows.h"
#include "library/cpu/positions.h"
#include "library/cpu/scatter_meet.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <type_traits>

namespace kiln::cpu {

using library::Array;
using library::Scatter;

constexpr std::int64_t kParallelAbove = 32768;  // values that several threads write
constexpr std::int64_t kFewestElements = 64;    // of a part of a row that a thread takes
constexpr std::int64_t kPartBytes = 2048;       // of a part, where threads can share out the axis instead
constexpr std::int64_t kFewRanges = 4;         // elements of the axis for each thread: ranges would be uneven
constexpr std::int64_t kListed = kMostListed;  // runs of elements, whose indices are compared at once
constexpr std::int64_t kFetchedAhead = 16;     // of those

inline std::int64_t count_of(const Array& a) {
  std::int64_t n = 1;
  for (int axis = 0; axis < a.rank; ++axis) n *= a.dims[axis];
  return n;
}

/// Offset of the i-th element in row-major order of the axes [first, last).
inline std::int64_t offset_of(const Array& a, int first, int last, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = last; axis-- > first;) {
    offset += i % a.dims[axis] * a.strides[axis];
    i /= a.dims[axis];
  }
  return offset;
}

/// f<Index>() for the type of the indices.
template <class F>
void by_index(const Scatter& call, F f) {
  dispatch(call.index_dtype, [&]<class Index>() {
    if constexpr (std::is_integral_v<Index> && !std::is_same_v<Index, bool>) f.template operator()<Index>();
  });
}

/// How the work is cut: outer axes times parts of the last axis behind `axis` times ranges of `axis`.
struct Cut {
  // rows: of `run` elements behind the axis
  std::int64_t outer = 1, rows = 1, run = 1, parts = 1, ranges = 1;
  explicit Cut(const Scatter& call) {
    for (int a = 0; a < call.axis; ++a) outer *= call.x.dims[a];
    const int last = call.x.rank - 1;
    for (int a = call.axis + 1; a < last; ++a) rows *= call.x.dims[a];
    if (last > call.axis) run = call.x.dims[last];
    const bool many = count_of(call.values) > kParallelAbove;
    const std::int64_t threads = many && !call.one_thread ? thread_count() : 1;
    if (outer >= 4 * threads) return;
    // Parts of short rows lie too near each other: one thread's processor fetches ahead what another writes.
    const bool few = call.x.dims[call.axis] < kFewRanges * threads;
    const std::int64_t long_parts = run * size_of(call.dtype) / kPartBytes,
                       wanted = few ? std::max(threads, long_parts) : std::max<std::int64_t>(long_parts, 1);
    parts = std::clamp<std::int64_t>(run / kFewestElements, 1, std::min(wanted, 4 * threads));
    if (outer * parts < threads) ranges = threads;
  }
  std::int64_t jobs() const { return outer * parts * ranges; }
};

/// Whether 32 bits hold any of `n` multiples of `step`.
inline bool fits_list(std::int64_t n, std::int64_t step) {
  return n == 0 || std::abs(step) <= std::numeric_limits<std::int32_t>::max() / n;
}

/// Indices become positions where they are needed: in memory they would take twice the room of most indices,
/// and half of them would be in another core's cache.
struct Resolved {
  std::function<void(std::int64_t at, std::int64_t n, std::int64_t* to)> positions;
  /// As ListPositions, of the indices from `at` on. Asks for those behind, which the processor, busy with
  /// elements anywhere, would not foresee.
  std::function<std::int64_t(std::int64_t at, std::int64_t n, const ListedPart& part, std::int32_t* elements,
                             std::int32_t* values)>
      list;
  explicit Resolved(const Scatter& call) {
    by_index(call, [&]<class T>() {
      positions = [from = static_cast<const T*>(call.indices.data), stride = call.indices.strides[call.axis],
                   extent = call.x.dims[call.axis],
                   run = resolve_positions<T>()](std::int64_t at, std::int64_t n, std::int64_t* to) {
        run(from + at, stride, n, extent, -1, to);
      };
      list = [from = static_cast<const T*>(call.indices.data), stride = call.indices.strides[call.axis],
              extent = call.x.dims[call.axis],
              run = list_positions<T>()](std::int64_t at, std::int64_t n, const ListedPart& part,
                                         std::int32_t* elements, std::int32_t* values) {
        const auto* const behind = reinterpret_cast<const char*>(from + at + n);
        if (stride == 1)
          for (std::int64_t b = 0; b < n * static_cast<std::int64_t>(sizeof(T)); b += 64)
            __builtin_prefetch(behind + b);
        return run(from + at, stride, n, extent, part, elements, values);
      };
    });
  }
};

/// Runs of `n` elements meet their values in the order of a list: first those that a thread does not own were
/// left out without a branch, which would be mispredicted at every other one, and now the elements of later
/// runs, which lie anywhere, are asked for ahead, and the values of those that are left.
template <Combine How, int N, class A, class T>
void meet_listed(const RowList& list, A* elements, const T* values, std::int64_t step, std::int64_t n,
                 bool cached) {
  for (std::int64_t j = 0; j < list.count; ++j) {
    if (!cached) fetch_row(list, j + kFetchedAhead, elements, values, n);
    A* const row = elements + list.elements[j];
    const T* const value = values + list.values[j];
    if constexpr (N > 0)
      for (int i = 0; i < N; ++i) meet<How>(row[i], value[i]);
    else
      meet_row<How>(row, value, step, n);
  }
}

/// The same; additions of adjacent floats in registers where there are some for them, else with the length of
/// short runs known: a loop takes longer to begin than such a run. `cached`: the elements stay in a cache.
template <Combine How, class A, class T>
void meet_all(const RowList& list, A* elements, const T* values, std::int64_t step, std::int64_t n,
              bool cached, AddRows<A, T> add) {
  if constexpr (kAddsRows<How, A, T>)
    if (add && (step == 1 || n == 1)) return add(list, elements, values, n, cached);
  if constexpr (kAddsRows<How, A, T> && std::is_same_v<A, T>) {
    if (step == 1 || n == 1) switch (n) {
        case 1: return meet_listed<How, 1>(list, elements, values, step, n, cached);
        case 2: return meet_listed<How, 2>(list, elements, values, step, n, cached);
        case 3: return meet_listed<How, 3>(list, elements, values, step, n, cached);
        case 4: return meet_listed<How, 4>(list, elements, values, step, n, cached);
        case 5: return meet_listed<How, 5>(list, elements, values, step, n, cached);
        case 6: return meet_listed<How, 6>(list, elements, values, step, n, cached);
        case 7: return meet_listed<How, 7>(list, elements, values, step, n, cached);
        case 8: return meet_listed<How, 8>(list, elements, values, step, n, cached);
        case 16: return meet_listed<How, 16>(list, elements, values, step, n, cached);
        default: break;
      }
  }
  meet_listed<How, 0>(list, elements, values, step, n, cached);
}

}  // namespace kiln::cpu
