// Long rows that are added or multiplied, one destination after the other: a list for each destination says
// which values meet it. An element is read and written once, where a table of a row for each destination, of
// floats if it is of halves, would go through memory with each value.
#pragma once

#include "library/cpu/scatter_runs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kiln::cpu {

/// The values that meet each destination, in their order: `first` of them, then what is `next` to each; -1
/// ends. For each outer position.
struct ValueLists {
  std::int64_t extent, count;
  std::int64_t *first, *next;
  ValueLists(const Scatter& call, const Cut& cut, std::byte* memory)
      : extent(call.x.dims[call.axis]),
        count(call.values.dims[call.axis]),
        first(reinterpret_cast<std::int64_t*>(memory)),
        next(first + cut.outer * extent) {}
  static std::size_t bytes(const Scatter& call, const Cut& cut) {
    return static_cast<std::size_t>(cut.outer * (call.x.dims[call.axis] + call.values.dims[call.axis])) *
           sizeof(std::int64_t);
  }
};

/// Each thread makes the lists of some destinations, from their ends.
inline void make_lists(const Scatter& call, const Cut& cut, const Resolved& resolved, ValueLists& lists) {
  const std::int64_t step = call.indices.strides[call.axis], extent = lists.extent;
  const std::int64_t ranges = call.one_thread ? 1 : thread_count();
  parallel_for(cut.outer * ranges, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::int32_t places[kListed], which[kListed];
    for (std::int64_t job = begin; job < end; ++job) {
      const std::int64_t o = job / ranges, range = job % ranges,
                         base = offset_of(call.indices, 0, call.axis, o);
      const std::int64_t low = extent * range / ranges, high = extent * (range + 1) / ranges;
      std::int64_t *const first = lists.first + o * extent, *const next = lists.next + o * lists.count;
      std::fill(first + low, first + high, -1);
      for (std::int64_t last = lists.count; last > 0;) {
        const std::int64_t from = (last - 1) / kListed * kListed, here = last - from;
        for (std::int64_t j = resolved.list(base + from * step, here, {low, high, 1, 1}, places, which);
             j-- > 0;) {
          next[from + which[j]] = first[low + places[j]];
          first[low + places[j]] = from + which[j];
        }
        last = from;
      }
    }
  });
}

/// The elements [from, to) of one destination, and the values of its list.
template <Combine How, class A, class T>
class ListedRow {
 public:
  ListedRow(const Scatter& call, AddRows<A, T> add) : call_(call), add_(add) {}

  /// `x`, `values`: where the outer position begins; `out`: where the row goes.
  void write(const T* x, const T* values, const std::int64_t* next, std::int64_t first, std::int64_t from,
             std::int64_t to, T* out) const {
    if (first < 0 && x == out) return;
    for (std::int64_t at = from; at < to; at += kAtOnce) {
      const std::int64_t n = std::min(kAtOnce, to - at);
      if constexpr (std::is_same_v<A, T>) {
        if (x != out) take(x, at, n, out + at);
        meet_values(values, next, first, at, n, out + at);
      } else {
        A sums[kAtOnce];
        take(x, at, n, sums);
        meet_values(values, next, first, at, n, sums);
        convert(sums, out + at, n);
      }
    }
  }

 private:
  static constexpr std::int64_t kAtOnce = 1024;  // elements: they stay in the first cache
  static constexpr std::int64_t kValues = 32;    // of a list, together

  std::int64_t step(const Array& a) const { return a.strides[call_.x.rank - 1]; }

  void take(const T* x, std::int64_t at, std::int64_t n, A* to) const {
    const std::int64_t stride = step(call_.x);
    if (stride == 1) return convert(x + at, to, n);
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(x[(at + i) * stride]);
  }

  void meet_values(const T* values, const std::int64_t* next, std::int64_t first, std::int64_t at,
                   std::int64_t n, A* elements) const {
    constexpr std::int32_t kSame[kValues] = {};
    const std::int64_t next_value = call_.values.strides[call_.axis];
    std::int32_t starts[kValues];
    for (std::int64_t k = first; k >= 0;) {
      const std::int64_t from = k;
      std::int64_t found = 0;
      for (; k >= 0 && found < kValues && fits_list(k - from, next_value); k = next[k])
        starts[found++] = static_cast<std::int32_t>((k - from) * next_value);
      meet_all<How, A, T>({kSame, starts, found, true}, elements,
                          values + from * next_value + at * step(call_.values), step(call_.values), n, false,
                          add_);
    }
  }

  const Scatter& call_;
  const AddRows<A, T> add_;
};

template <Combine How, class A, class T>
void write_lists(const Scatter& call, std::byte* memory) {
  const Cut cut(call);
  const int axis = call.axis;
  ValueLists lists(call, cut, memory);
  make_lists(call, cut, Resolved(call), lists);
  AddRows<A, T> add = nullptr;
  if constexpr (kAddsRows<How, A, T>) add = add_rows<A, T>();
  const ListedRow<How, A, T> row(call, add);
  const std::int64_t extent = lists.extent, threads = call.one_thread ? 1 : thread_count();
  const std::int64_t ranges = std::max(cut.ranges, cut.outer * cut.parts < threads ? threads : 1);
  parallel_for(cut.outer * cut.parts * ranges, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t job = begin; job < end; ++job) {
      const std::int64_t range = job % ranges, part = job / ranges % cut.parts, o = job / ranges / cut.parts;
      const auto* const x = static_cast<const T*>(call.x.data) + offset_of(call.x, 0, axis, o);
      const auto* const values = static_cast<const T*>(call.values.data) + offset_of(call.values, 0, axis, o);
      const std::int64_t *const first = lists.first + o * extent, *const next = lists.next + o * lists.count;
      const std::int64_t from = cut.run * part / cut.parts, to = cut.run * (part + 1) / cut.parts;
      const std::int64_t behind = extent * (range + 1) / ranges;
      for (std::int64_t p = extent * range / ranges; p < behind; ++p) {
        row.write(x + p * call.x.strides[axis], values, next, first[p], from, to,
                  static_cast<T*>(call.out) + (o * extent + p) * cut.run);
      }
    }
  });
}

}  // namespace kiln::cpu
