// Rows sorted one by one: by partitions, by radix, or only the first of them.
#pragma once

#include "device/cpu/threads.h"
#include "library/cpu/sort_keys.h"
#include "library/cpu/sort_network.h"
#include "library/cpu/sort_packed.h"
#include "library/cpu/sort_quick.h"
#include "library/library.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

namespace kiln::cpu::sorting {

using library::Array;
using library::Sort;

constexpr std::int64_t kRadixAbove = 256;       // shorter rows are sorted by comparisons
constexpr std::int64_t kParallelAbove = 65536;  // elements of a row that several threads sort together
constexpr std::int64_t kMostPacked = std::int64_t{1} << 32;  // elements of a row
constexpr std::int64_t kSelectBelow = 8;   // a part of a row smaller than this fraction is selected first,
constexpr std::int64_t kPlacesKept = 64;   // elements of a row whose places are written down for all rows
constexpr std::int64_t kFilterBelow = 64;  // one smaller than this without writing the row down
constexpr std::int64_t kFewKept = 16;      // elements that stand in order while others are met

/// A key with its position. Up to 32 bits of key share one word with it, and so do more where a whole row is
/// sorted (sort_packed.h).
struct Wide {
  std::uint64_t key, position;
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.key < b.key || (a.key == b.key && a.position < b.position);
  }
};
template <class T>
using Pair = std::conditional_t<sizeof(T) <= 4, std::uint64_t, Wide>;

template <class T>
Pair<T> pair_of(Key<T> key, std::int64_t position) {
  const auto at = static_cast<std::uint64_t>(position);
  if constexpr (sizeof(T) <= 4)
    return std::uint64_t{key} << 32 | at;
  else
    return {key, at};
}
inline std::int64_t position_of(std::uint64_t pair) { return static_cast<std::int64_t>(pair & 0xffffffffu); }
inline std::int64_t position_of(const Wide& pair) { return static_cast<std::int64_t>(pair.position); }

/// Byte `i` of an item's key, the least first.
template <int KeyBytes, class Item>
unsigned digit(const Item& item, int i) {
  if constexpr (sizeof(Item) > KeyBytes)
    return (item >> (32 + 8 * i)) & 255;
  else
    return (item >> (8 * i)) & 255;
}

// ---- one row ----

inline std::int64_t part_begin(std::int64_t n, int part, int parts) { return n * part / parts; }

/// Runs f(part, begin, end) over `parts` parts of [0, n), in parallel.
template <class F>
void over_parts(std::int64_t n, int parts, F f) {
  if (parts == 1) return f(0, std::int64_t{0}, n);
  parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto p = static_cast<int>(begin); p < end; ++p)
      f(p, part_begin(n, p, parts), part_begin(n, p + 1, parts));
  });
}

/// Least significant byte first: stable, and a pass over a byte that all items share is left out. Sorts
/// `items` with the help of `other`, by the bytes from `first` on; returns where the result is.
template <int KeyBytes, class Item>
Item* radix_sort(Item* items, Item* other, std::int64_t n, int parts, int first) {
  std::vector<std::array<std::int64_t, 256>> counts(static_cast<std::size_t>(parts));
  for (int byte = first; byte < KeyBytes; ++byte) {
    over_parts(n, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      auto& count = counts[static_cast<std::size_t>(part)];
      count.fill(0);
      for (std::int64_t i = begin; i < end; ++i) ++count[digit<KeyBytes>(items[i], byte)];
    });
    std::int64_t place = 0;
    bool single = false;
    for (std::size_t value = 0; value < 256; ++value) {
      const std::int64_t first = place;
      for (auto& count : counts) {
        const std::int64_t here = count[value];
        count[value] = place;
        place += here;
      }
      single |= place - first == n;
    }
    if (single) continue;
    over_parts(n, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      auto& next = counts[static_cast<std::size_t>(part)];
      for (std::int64_t i = begin; i < end; ++i) other[next[digit<KeyBytes>(items[i], byte)]++] = items[i];
    });
    std::swap(items, other);
  }
  return items;
}

/// Merges a[0, an) and b[0, bn), all of which are to come before the rest of both.
template <class Item>
void merge_runs(const Item* a, std::int64_t an, const Item* b, std::int64_t bn, Item* to) {
  const Item *const a_end = a + an, *const b_end = b + bn;
  while (a < a_end && b < b_end) {  // without a branch that nobody could predict
    const bool second = *b < *a;
    *to++ = second ? *b : *a;
    b += second;
    a += !second;
  }
  std::copy(b, b_end, std::copy(a, a_end, to));
}

/// How many of the first `count` of two merged runs are of the first.
template <class Item>
std::int64_t of_first(const Item* a, std::int64_t an, const Item* b, std::int64_t bn, std::int64_t count) {
  std::int64_t low = std::max<std::int64_t>(0, count - bn), high = std::min(count, an);
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (!(b[count - middle - 1] < a[middle]))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// Parts are sorted one by one and merged in pairs, each pair by as many threads as there are for it.
template <class Item>
Item* sort_by_parts(QuickSort<Item> quick, Item* items, Item* other, std::int64_t n, int parts) {
  over_parts(n, parts, [&](int, std::int64_t begin, std::int64_t end) {
    quick(items + begin, other + begin, end - begin);
  });
  for (int width = 1; width < parts; width *= 2) {
    const int pairs = (parts + 2 * width - 1) / (2 * width), slices = std::max(1, parts / pairs);
    parallel_for(std::int64_t{pairs} * slices, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t task = first; task < last; ++task) {
        const int pair = static_cast<int>(task) / slices, slice = static_cast<int>(task) % slices;
        const auto bound = [&](int k) {
          return part_begin(n, std::min((2 * pair + k) * width, parts), parts);
        };
        const Item *const a = items + bound(0), *const b = items + bound(1);
        const std::int64_t an = bound(1) - bound(0), bn = bound(2) - bound(1);
        const std::int64_t from = part_begin(an + bn, slice, slices),
                           to = part_begin(an + bn, slice + 1, slices);
        const std::int64_t a_from = of_first(a, an, b, bn, from), a_to = of_first(a, an, b, bn, to);
        merge_runs(a + a_from, a_to - a_from, b + from - a_from, to - a_to - (from - a_from),
                   other + bound(0) + from);
      }
    });
    std::swap(items, other);
  }
  return items;
}

/// How items are put in order. Digits: of their keys; equal ones stay as they stand.
enum class OrderedBy { Partitions, Comparisons, Digits };
template <int KeyBytes, class Item>
OrderedBy order_of(std::int64_t n, const library::Choices& choices) {
  bool partitions = false;
  if constexpr (KeyBytes >= 4) partitions = n > kRadixAbove && quick_sort<Item>();
  if (!choices.decide(partitions || n <= kRadixAbove, FusionVariant::ByComparison, FusionVariant::ByDigits))
    return OrderedBy::Digits;
  return partitions ? OrderedBy::Partitions : OrderedBy::Comparisons;
}

/// All n items in order; returns where they are. Pre: they are in the order of their bytes before `first`.
template <int KeyBytes, class Item>
Item* ordered(Item* items, Item* other, std::int64_t n, int parts, const library::Choices& choices,
              int first = 0) {
  switch (order_of<KeyBytes, Item>(n, choices)) {
    case OrderedBy::Partitions: return sort_by_parts(quick_sort<Item>(), items, other, n, parts);
    case OrderedBy::Comparisons: std::sort(items, items + n); return items;
    case OrderedBy::Digits: break;
  }
  return radix_sort<KeyBytes>(items, other, n, parts, first);
}

/// Where the results of a row go.
template <class T>
struct RowOut {
  T* values;                // null: nobody asks
  std::int64_t* positions;  // likewise
  RowOut operator+(std::int64_t elements) const {
    return {values ? values + elements : nullptr, positions ? positions + elements : nullptr};
  }
};
template <class T>
RowOut<T> out_of(const Sort& call) {
  return {static_cast<T*>(call.values), static_cast<std::int64_t*>(call.positions)};
}

/// Positions: rows are sorted with them.
template <class T, bool Positions>
struct RowSort {
  using Item = std::conditional_t<Positions, Pair<T>, Key<T>>;

  static std::size_t bytes(std::int64_t n) {
    return (2 * static_cast<std::size_t>(n) * sizeof(Item) + 63) / 64 * 64;
  }

  /// How a row is sorted: from its end, and as argsort sorts it.
  struct Order {
    bool descending, by_position;
  };

  /// What is done with a row of `n` elements before its items are sorted.
  enum class First { Nothing, Select, Filter };
  static First first_of(std::int64_t n, std::int64_t kept, int parts, const library::Choices& choices) {
    const std::size_t model = kept < n / (kFilterBelow * parts) ? 2 : kept < n / kSelectBelow ? 1 : 0;
    if (kept == n) return First::Nothing;
    return static_cast<First>(choices.pick(model, {{FusionVariant::SortAll},
                                                   {FusionVariant::SelectFirst},
                                                   {FusionVariant::FilterFirst, kept * parts <= n}}));
  }
  /// Walks through the decisions that run() takes.
  static void decide(std::int64_t n, std::int64_t kept, int parts, const library::Choices& choices) {
    if (first_of(n, kept, parts, choices) != First::Nothing) return;
    if constexpr (std::is_same_v<Item, Wide>)
      (void)order_of<8, std::uint64_t>(n, choices);
    else
      (void)order_of<static_cast<int>(sizeof(T)), Item>(n, choices);
  }

  static Item item_at(const T* from, std::int64_t stride, std::int64_t i, Order order) {
    const Key<T> key = key_of(from[i * stride], order.by_position);
    return item_of(order.descending ? static_cast<Key<T>>(~key) : key, i);
  }

  /// The best items of a part of a row so far. Few of them stand in order. Of more there are up to twice as
  /// many as are kept: those behind the first `kept` were below the last of these when they came, and are
  /// thinned out when the memory is full.
  struct Best {
    Item* items;
    const std::int64_t kept;
    std::int64_t count = 0;
    bool full() const { return count >= kept; }
    bool takes(const Item& item) const { return !full() || item < items[kept - 1]; }
    void take(const Item& item) {
      if (kept <= kFewKept) return insert(item);
      items[count++] = item;
      if (count != kept && count != 2 * kept) return;
      std::nth_element(items, items + kept - 1, items + count);
      count = kept;
    }
    void insert(const Item& item) {
      std::int64_t at = full() ? kept - 1 : count++;
      for (; at > 0 && item < items[at - 1]; --at) items[at] = items[at - 1];
      items[at] = item;
    }
    /// Only items with lower keys are taken still: those that come have later positions.
    Key<T> limit() const {
      if constexpr (!Positions)
        return items[kept - 1];
      else if constexpr (std::is_same_v<Item, Wide>)
        return static_cast<Key<T>>(items[kept - 1].key);
      else
        return static_cast<Key<T>>(items[kept - 1] >> 32);
    }
  };

  static Item item_of(Key<T> key, std::int64_t position) {
    if constexpr (Positions)
      return pair_of<T>(key, position);
    else
      return key;
  }

  /// Elements [begin, end) of a row. Adjacent ones are met by blocks, of which few have anything to take.
  static void filter_part(const T* from, std::int64_t stride, std::int64_t begin, std::int64_t end,
                          Order order, const KeyFunctions<T>& f, Best& best) {
    std::int64_t i = begin;
    for (; stride == 1 && i + kKeyBlock <= end; i += kKeyBlock) {
      alignas(64) Key<T> keys[kKeyBlock];
      if (best.full())
        i += f.below(from + i, end - i, order.by_position, order.descending, best.limit(), keys);
      else
        f.keys(from + i, 1, kKeyBlock, order.by_position, order.descending, keys);
      if (i + kKeyBlock > end) break;
      for (std::int64_t k = 0; k < kKeyBlock; ++k)
        if (const Item item = item_of(keys[k], i + k); best.takes(item)) best.take(item);
    }
    for (; i < end; ++i)
      if (const Item item = item_at(from, stride, i, order); best.takes(item)) best.take(item);
  }

  static void write_items(const T* from, std::int64_t stride, std::int64_t begin, std::int64_t end,
                          Order order, const KeyFunctions<T>& f, Item* items) {
    if constexpr (!Positions)
      return f.keys(from + begin * stride, stride, end - begin, order.by_position, order.descending,
                    items + begin);
    for (std::int64_t i = begin; i < end; i += kKeyBlock) {
      alignas(64) Key<T> keys[kKeyBlock];
      const std::int64_t here = std::min(kKeyBlock, end - i);
      f.keys(from + i * stride, stride, here, order.by_position, order.descending, keys);
      for (std::int64_t k = 0; k < here; ++k) items[i + k] = item_of(keys[k], i + k);
    }
  }

  /// The first `kept` items, unordered, in front of `items`.
  static void filter(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, Order order,
                     const KeyFunctions<T>& f, Item* items, int parts) {
    std::vector<std::int64_t> found(static_cast<std::size_t>(parts));
    over_parts(n, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      Best best{items + 2 * kept * part, kept};
      filter_part(from, stride, begin, end, order, f, best);
      found[static_cast<std::size_t>(part)] = best.count;
    });
    std::int64_t total = found[0];
    for (int part = 1; part < parts; ++part) {
      const Item* const best = items + 2 * kept * part;
      for (std::int64_t i = 0; i < found[static_cast<std::size_t>(part)]; ++i) items[total++] = best[i];
    }
    std::nth_element(items, items + kept - 1, items + total);
  }

  static void run(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, Order order,
                  const KeyFunctions<T>& f, const RowOut<T>& to, std::int64_t to_stride, std::byte* workspace,
                  int parts, const library::Choices& choices) {
    Item* const items = reinterpret_cast<Item*>(workspace);
    const First first = first_of(n, kept, parts, choices);
    const bool few = first == First::Filter, selected = first != First::Nothing;
    if constexpr (std::is_same_v<Item, Wide>)
      if (!selected && n <= kMostPacked)
        return run_packed(from, stride, n, kept, order, f, to, to_stride, workspace, parts, choices);
    if (few) {
      filter(from, stride, n, kept, order, f, items, parts);
      std::sort(items, items + kept);
    } else {
      over_parts(n, parts, [&](int, std::int64_t begin, std::int64_t end) {
        write_items(from, stride, begin, end, order, f, items);
      });
    }
    const Item* sorted = items;
    if (!few && (selected || std::is_same_v<Item, Wide>)) {
      std::nth_element(items, items + std::min(kept, n - 1), items + n);
      // which are in no order: a radix sort of keys alone would leave equal ones in that
      std::sort(items, items + kept);
    } else if constexpr (!std::is_same_v<Item, Wide>) {
      if (!few) sorted = ordered<static_cast<int>(sizeof(T))>(items, items + n, n, parts, choices);
    }
    over_parts(kept, kept > kParallelAbove ? parts : 1, [&](int, std::int64_t begin, std::int64_t end) {
      put(sorted + begin, end - begin, order.descending, from, stride, f, to + begin * to_stride, to_stride);
    });
    if (!Positions && order.by_position) keep_order_of_equals(from, stride, to.values, to_stride, kept);
  }

  /// A whole row, its keys and positions in one word.
  static void run_packed(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, Order order,
                         const KeyFunctions<T>& f, const RowOut<T>& to, std::int64_t to_stride,
                         std::byte* workspace, int parts, const library::Choices& choices)
    requires std::is_same_v<Item, Wide>
  {
    const PackFunctions pack = pack_functions();
    auto* const keys = reinterpret_cast<std::uint64_t*>(workspace);
    over_parts(n, parts, [&](int, std::int64_t begin, std::int64_t end) {
      f.keys(from + begin * stride, stride, end - begin, order.by_position, order.descending, keys + begin);
    });
    const Packed packed = pack.pack(keys, n, keys + n);
    std::uint64_t* const items =
        ordered<8>(keys + n, keys + 2 * n, n, parts, choices, std::bit_width(packed.positions) / 8);
    pack.settle(packed, keys, items, n);
    over_parts(kept, kept > kParallelAbove ? parts : 1, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::int64_t>(items[i] & packed.positions);
        if (to.positions) to.positions[i * to_stride] = at;
        if (to.values) to.values[i * to_stride] = from[at * stride];
      }
    });
  }

  /// An item's element. Keys of floats do not tell zeros apart, nor NaN.
  static T value_in(const Item& item, bool descending, const T* from, std::int64_t stride) {
    Key<T> key;
    if constexpr (std::is_same_v<Item, Wide>)
      key = static_cast<Key<T>>(item.key);
    else
      key = static_cast<Key<T>>(item >> 32);
    if (descending) key = static_cast<Key<T>>(~key);
    if constexpr (!std::is_integral_v<T>)
      if (key == kSign<T> || key == std::numeric_limits<Key<T>>::max())
        return from[position_of(item) * stride];
    return value_of<T>(key);
  }

  /// Writes `n` sorted items.
  static void put(const Item* items, std::int64_t n, bool descending, const T* from, std::int64_t stride,
                  const KeyFunctions<T>& f, const RowOut<T>& to, std::int64_t to_stride) {
    if constexpr (Positions) {
      if (to.positions && to_stride == 1)
        for (std::int64_t i = 0; i < n; ++i) to.positions[i] = position_of(items[i]);
      else if (to.positions)
        for (std::int64_t i = 0; i < n; ++i) to.positions[i * to_stride] = position_of(items[i]);
      for (std::int64_t i = 0; i < n && to.values; ++i)
        to.values[i * to_stride] = value_in(items[i], descending, from, stride);
    } else if (to_stride == 1) {
      f.values(items, n, descending, to.values);
    } else {
      for (std::int64_t i = 0; i < n; ++i)
        to.values[i * to_stride] = value_of<T>(descending ? static_cast<Key<T>>(~items[i]) : items[i]);
    }
  }
};

// ---- all rows ----

/// Element offset of the i-th element in row-major order, of all axes but `skip`.
inline std::int64_t offset_of(const Array& a, std::int64_t i, int skip = -1) {
  std::int64_t offset = 0;
  for (int axis = a.rank; axis-- > 0;) {
    if (axis == skip) continue;
    offset += i % a.dims[axis] * a.strides[axis];
    i /= a.dims[axis];
  }
  return offset;
}

/// Where rows begin: the i-th at i * step, where one step leads from each to the next.
struct Beginnings {
  const Array& array;
  int axis;
  std::int64_t step = 0;
  bool regular = true;
  Beginnings(const Array& a, int skip) : array(a), axis(skip) {
    std::int64_t rows = 1;
    for (int other = a.rank; other-- > 0;) {
      if (other == skip || a.dims[other] == 1) continue;
      if (rows == 1) step = a.strides[other];
      regular &= a.strides[other] == step * rows;
      rows *= a.dims[other];
    }
  }
  std::int64_t operator[](std::int64_t row) const {
    return regular ? row * step : offset_of(array, row, axis);
  }
};

struct Rows {
  std::int64_t count = 1, length = 0, inner = 1;  // inner: elements of the axes behind the sorted one
  std::int64_t kept = 0;
  library::Choices choices;
  int threads = 1;
  explicit Rows(const Sort& call) : choices(call.choices), threads(call.one_thread ? 1 : thread_count()) {
    for (int a = 0; a < call.in.rank; ++a) {
      if (a != call.axis) count *= call.in.dims[a];
      if (a > call.axis) inner *= call.in.dims[a];
    }
    length = call.in.dims[call.axis];
    kept = call.kept;
  }
  /// Whether threads share rows out; otherwise they share each row.
  bool spread() const { return count > 1 && (count >= threads || length < kParallelAbove); }
  /// Threads that share a row.
  int parts() const { return !spread() && length >= kParallelAbove ? threads : 1; }
  /// Whether rows are sorted side by side, in tiles of this kind.
  template <class Tile>
  bool side_by_side() const {
    const bool few = kept < length / kSelectBelow;
    if (count < Tile::kRows || length > std::max(Tile::kMost, few ? kNetworkSelects : 0)) return false;
    return choices.decide(faster_side_by_side<Tile>(), FusionVariant::RowsBesideRows,
                          FusionVariant::RowsAlone);
  }
  /// The same by the model.
  template <class Tile>
  bool faster_side_by_side() const {
    if (length <= kNetworkAlways) return true;
    const bool few = kept < length / kSelectBelow;
    if (!has_wide_network()) return !few && length <= kNetworkMost<typename Tile::Item> / 4;
    const bool filters = kept <= kFewKept && kept < length / kFilterBelow;
    const std::int64_t most = filters ? kNetworkFilters<typename Tile::Item>
                              : few   ? kNetworkSelects
                                      : Tile::kMost;
    return length <= most && count >= Tile::kRows * threads;
  }
  /// The least of `n` items of work that a thread takes.
  std::int64_t grain(std::int64_t n, std::int64_t least) const {
    return std::max<std::int64_t>(1, threads == 1 ? n : least);
  }
};

}  // namespace kiln::cpu::sorting
