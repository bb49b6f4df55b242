#include "library/cpu/sort.h"

#include "device/cpu/threads.h"
#include "library/cpu/sort_rows.h"
#include "library/cpu/sort_tile.h"

#include <algorithm>

namespace kiln::cpu {
namespace {

using namespace sorting;
using library::Search;

/// Whether a whole row's order is sorted by words of the elements' width. Few elements take less time to join
/// with their positions than the registers that they fill twice.
template <class T, bool Positions>
bool packs(const Rows& rows) {
  if constexpr (Positions && sizeof(T) == 4) {
    if (rows.kept != rows.length || !rows.side_by_side<Tile<T, true, true>>()) return false;
    return rows.choices.decide(rows.length > LineOrder<Key<T>>::kMost, FusionVariant::MoreLanes,
                               FusionVariant::FewerLanes);
  }
  return false;
}

template <class TileOf>
void sort_tiles(const Sort& call, const Rows& rows, std::byte* workspace) {
  constexpr std::int64_t kRows = TileOf::kRows;
  const typename TileOf::Shared shared(rows.length, call.kept);
  const std::int64_t tiles = (rows.count + kRows - 1) / kRows;
  const std::int64_t grain = rows.grain(tiles, kRadixAbove * 16 / (kRows * rows.length + 1));
  parallel_for(tiles, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
    TileOf tile(call, rows, workspace + static_cast<std::size_t>(slot) * TileOf::bytes(rows.length));
    const std::int64_t last = std::min(end * kRows, rows.count), step = tile.together(shared) * kRows;
    for (std::int64_t first = begin * kRows; first < last; first += step) {
      const std::int64_t count = std::min(step, last - first);
      step > kRows ? tile.sort_together(first, count, shared) : tile.sort(first, count, shared);
    }
    end_past_caches();
  });
}

template <class T, bool Positions>
void sort_rows(const Sort& call, std::byte* workspace) {
  const Rows rows(call);
  if constexpr (Positions && sizeof(T) == 4)
    if (packs<T, true>(rows)) return sort_tiles<Tile<T, true, true>>(call, rows, workspace);
  if (rows.side_by_side<Tile<T, Positions>>()) return sort_tiles<Tile<T, Positions>>(call, rows, workspace);
  const KeyFunctions<T> functions = key_functions<T>();
  const auto one = [&](std::int64_t row, std::byte* memory, int parts) {
    const std::int64_t outer = row / rows.inner;
    const std::int64_t first = outer * call.kept * rows.inner + row % rows.inner;
    RowSort<T, Positions>::run(static_cast<const T*>(call.in.data) + offset_of(call.in, row, call.axis),
                               call.in.strides[call.axis], rows.length, call.kept,
                               {call.descending, call.by_position}, functions, out_of<T>(call) + first,
                               rows.inner, memory, parts, call.choices);
  };
  if (!rows.spread()) {
    for (std::int64_t row = 0; row < rows.count; ++row) one(row, workspace, rows.parts());
    return;
  }
  const std::size_t bytes = RowSort<T, Positions>::bytes(rows.length);
  const std::int64_t grain = rows.grain(rows.count, kRadixAbove * 4 / std::max<std::int64_t>(rows.length, 1));
  parallel_for(rows.count, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
    for (std::int64_t row = begin; row < end; ++row)
      one(row, workspace + static_cast<std::size_t>(slot) * bytes, 1);
  });
}

template <class T, bool Positions>
std::size_t workspace_bytes(const Sort& call) {
  const Rows rows(call);
  if constexpr (Positions && sizeof(T) == 4)
    if (packs<T, true>(rows))
      return Tile<T, true, true>::bytes(rows.length) * static_cast<std::size_t>(rows.threads);
  if (rows.side_by_side<Tile<T, Positions>>())
    return Tile<T, Positions>::bytes(rows.length) * static_cast<std::size_t>(rows.threads);
  return RowSort<T, Positions>::bytes(rows.length) *
         static_cast<std::size_t>(rows.spread() ? rows.threads : 1);
}

}  // namespace

/// Where nobody asks for positions, rows are sorted without them, which is known when the call is made.
std::size_t sort_workspace_bytes(const Sort& call) {
  return dispatch(call.dtype, [&]<class T>() {
    const std::size_t bytes = workspace_bytes<T, false>(call);
    return call.by_position ? std::max(bytes, workspace_bytes<T, true>(call)) : bytes;
  });
}

library::Variants sort_choices(Sort call) {
  library::Variants out;
  call.choices.collect(&out);
  const Rows rows(call);
  dispatch(call.dtype, [&]<class T>() {
    if (call.by_position && !packs<T, true>(rows) && !rows.side_by_side<Tile<T, true>>())
      RowSort<T, true>::decide(rows.length, rows.kept, rows.parts(), rows.choices);
    if (!call.by_position && !rows.side_by_side<Tile<T, false>>())
      RowSort<T, false>::decide(rows.length, rows.kept, rows.parts(), rows.choices);
  });
  return out;
}

void sort(const Sort& call, std::byte* workspace) {
  dispatch(call.dtype, [&]<class T>() {
    call.by_position&& call.positions ? sort_rows<T, true>(call, workspace)
                                      : sort_rows<T, false>(call, workspace);
  });
}

void search(const Search& call) {
  std::int64_t count = 1;
  for (int a = 0; a < call.values.rank; ++a) count *= call.values.dims[a];
  const std::int64_t n = call.sorted.dims[0], stride = call.sorted.strides[0];
  auto* const out = static_cast<std::int64_t*>(call.out);
  dispatch(call.dtype, [&]<class T>() {
    const auto* const sorted = static_cast<const T*>(call.sorted.data);
    const auto* const values = static_cast<const T*>(call.values.data);
    parallel_for(count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Key<T> value = key_of(values[offset_of(call.values, i)], true);
        std::int64_t low = 0;
        for (std::int64_t size = n; size > 0;) {
          const std::int64_t half = size / 2;
          const Key<T> middle = key_of(sorted[(low + half) * stride], true);
          const bool before = call.right ? middle <= value : middle < value;
          low = before ? low + half + 1 : low;
          size = before ? size - half - 1 : half;
        }
        out[i] = low;
      }
    });
  });
}

}  // namespace kiln::cpu
