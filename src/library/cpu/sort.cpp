#include "library/cpu/sort.h"

#include "device/cpu/threads.h"
#include "library/cpu/sort_network.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

namespace kiln::cpu {
namespace {

using library::Array;
using library::Search;
using library::Sort;

constexpr std::int64_t kRadixAbove = 256;       // shorter rows are sorted by comparisons
constexpr std::int64_t kParallelAbove = 65536;  // elements of a row that several threads sort together
constexpr std::int64_t kSelectBelow = 8;   // a part of a row smaller than this fraction is selected first,
constexpr std::int64_t kFilterBelow = 64;  // one smaller than this without writing the row down

template <std::size_t Bytes>
using Unsigned =
    std::conditional_t<Bytes == 1, std::uint8_t,
                       std::conditional_t<Bytes == 2, std::uint16_t,
                                          std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
using Key = Unsigned<sizeof(T)>;

// ---- keys ----

template <class T>
constexpr Key<T> kSign = static_cast<Key<T>>(Key<T>{1} << (8 * sizeof(T) - 1));

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return x != x;
}
template <>
bool is_nan(float16 x) {
  return (x.bits & 0x7fff) > 0x7c00;
}
template <>
bool is_nan(bfloat16 x) {
  return (x.bits & 0x7fff) > 0x7f80;
}

/// An unsigned number of the same order. Where equal elements must have equal keys, -0 takes that of +0.
template <class T>
Key<T> key_of(T x, bool merge_zeros) {
  using K = Key<T>;
  if constexpr (std::is_integral_v<T>) {
    const K bits = static_cast<K>(x);
    if constexpr (std::is_signed_v<T>)
      return static_cast<K>(bits ^ kSign<T>);
    else
      return bits;
  } else {
    K bits = std::bit_cast<K>(x);
    if (merge_zeros && bits == kSign<T>) bits = 0;
    // Without a branch, since signs are in no order: all bits of a negative number turn, the sign of another.
    const K negative = static_cast<K>(K{0} - static_cast<K>(bits >> (8 * sizeof(T) - 1)));
    return is_nan(x) ? std::numeric_limits<K>::max() : static_cast<K>(bits ^ (negative | kSign<T>));
  }
}

template <class T>
T quiet_nan() {
  if constexpr (std::is_same_v<T, float16>)
    return std::bit_cast<T>(std::uint16_t{0x7e00});
  else if constexpr (std::is_same_v<T, bfloat16>)
    return std::bit_cast<T>(std::uint16_t{0x7fc0});
  else
    return std::numeric_limits<T>::quiet_NaN();
}

template <class T>
T value_of(Key<T> key) {
  using K = Key<T>;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(key ^ kSign<T>);
    else
      return static_cast<T>(key);
  } else {
    if (key == std::numeric_limits<K>::max()) return quiet_nan<T>();
    const K negative = static_cast<K>(static_cast<K>(key >> (8 * sizeof(T) - 1)) - K{1});
    return std::bit_cast<T>(static_cast<K>(key ^ (negative | kSign<T>)));
  }
}

/// A key with its position. Up to 32 bits of key share one word with it.
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
  if constexpr (std::is_same_v<Item, Wide>)
    return (item.key >> (8 * i)) & 255;
  else if constexpr (sizeof(Item) > KeyBytes)
    return (item >> (32 + 8 * i)) & 255;
  else
    return (item >> (8 * i)) & 255;
}

// ---- one row ----

std::int64_t part_begin(std::int64_t n, int part, int parts) { return n * part / parts; }

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
/// `items` with the help of `other`; returns where the result is.
template <int KeyBytes, class Item>
Item* radix_sort(Item* items, Item* other, std::int64_t n, int parts) {
  std::vector<std::array<std::int64_t, 256>> counts(static_cast<std::size_t>(parts));
  for (int byte = 0; byte < KeyBytes; ++byte) {
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

/// The first `kept` of n items in order; returns where they are. Pre: they are in their positions' order.
template <int KeyBytes, class Item>
Item* ordered(Item* items, Item* other, std::int64_t n, std::int64_t kept, int parts) {
  if (kept < n / kSelectBelow) {
    std::nth_element(items, items + kept, items + n);
    // which are in no order: a radix sort of keys alone would leave equal ones in that
    std::sort(items, items + kept);
    return items;
  }
  if (n > kRadixAbove) return radix_sort<KeyBytes>(items, other, n, parts);
  std::sort(items, items + n);
  return items;
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

  static Item item_at(const T* from, std::int64_t stride, std::int64_t i, bool descending) {
    Key<T> key = key_of(from[i * stride], Positions);
    if (descending) key = static_cast<Key<T>>(~key);
    if constexpr (Positions)
      return pair_of<T>(key, i);
    else
      return key;
  }

  /// The first `kept` items, unordered, in front of `items`: each part keeps those below the last of its best
  /// so far, and thins them out when there are twice as many.
  static void filter(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, bool descending,
                     Item* items, int parts) {
    std::vector<std::int64_t> found(static_cast<std::size_t>(parts));
    over_parts(n, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      Item* const best = items + 2 * kept * part;
      std::int64_t count = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const Item item = item_at(from, stride, i, descending);
        if (count >= kept && !(item < best[kept - 1])) continue;
        best[count++] = item;
        if (count == kept || count == 2 * kept) {
          std::nth_element(best, best + kept - 1, best + count);
          count = kept;
        }
      }
      found[static_cast<std::size_t>(part)] = std::min(count, 2 * kept);
    });
    std::int64_t total = found[0];
    for (int part = 1; part < parts; ++part) {
      const Item* const best = items + 2 * kept * part;
      for (std::int64_t i = 0; i < found[static_cast<std::size_t>(part)]; ++i) items[total++] = best[i];
    }
    std::nth_element(items, items + kept - 1, items + total);
  }

  static void run(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, bool descending,
                  const RowOut<T>& to, std::int64_t to_stride, std::byte* workspace, int parts) {
    Item* const items = reinterpret_cast<Item*>(workspace);
    const bool few = kept < n / (kFilterBelow * parts);
    if (few) {
      filter(from, stride, n, kept, descending, items, parts);
      std::sort(items, items + kept);
    } else {
      over_parts(n, parts, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) items[i] = item_at(from, stride, i, descending);
      });
    }
    const Item* const sorted =
        few ? items : ordered<static_cast<int>(sizeof(T))>(items, items + n, n, kept, parts);
    over_parts(kept, kept > kParallelAbove ? parts : 1, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) put(sorted[i], descending, from, stride, to, i * to_stride);
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

  static void put(const Item& item, bool descending, const T* from, std::int64_t stride, const RowOut<T>& to,
                  std::int64_t at) {
    if constexpr (Positions) {
      if (to.positions) to.positions[at] = position_of(item);
      if (to.values) to.values[at] = value_in(item, descending, from, stride);
    } else {
      to.values[at] = value_of<T>(descending ? static_cast<Key<T>>(~item) : item);
    }
  }
};

// ---- all rows ----

/// Element offset of the i-th element in row-major order, of all axes but `skip`.
std::int64_t offset_of(const Array& a, std::int64_t i, int skip = -1) {
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
  explicit Rows(const Sort& call) {
    for (int a = 0; a < call.in.rank; ++a) {
      if (a != call.axis) count *= call.in.dims[a];
      if (a > call.axis) inner *= call.in.dims[a];
    }
    length = call.in.dims[call.axis];
  }
  /// Whether threads share rows out; otherwise they share each row.
  bool spread() const { return count > 1 && (count >= thread_count() || length < kParallelAbove); }
  /// Whether rows are sorted side by side. Keys of 8 bytes with their positions fit no lane.
  template <class Item>
  bool side_by_side() const {
    return !std::is_same_v<Item, Wide> && length <= kNetworkMost && count >= kNetworkRows<Item>;
  }
};

/// Tiles of rows side by side.
template <class T, bool Positions>
void sort_tiles(const Sort& call, const Rows& rows, std::byte* workspace) {
  using Row = RowSort<T, Positions>;
  using Item = typename Row::Item;
  if constexpr (!std::is_same_v<Item, Wide>) {
    constexpr std::int64_t kRows = kNetworkRows<Item>;
    const TileSort<Item> order = tile_sort<Item>();
    const Beginnings beginnings(call.in, call.axis);
    const std::int64_t stride = call.in.strides[call.axis];
    const auto* const in = static_cast<const T*>(call.in.data);
    const std::int64_t grain = std::max<std::int64_t>(1, kRadixAbove * 16 / (kRows * rows.length + 1));
    parallel_for((rows.count + kRows - 1) / kRows, grain,
                 [&](std::int64_t begin, std::int64_t end, int slot) {
                   Item* const tile = reinterpret_cast<Item*>(workspace + slot * rows.length * kNetworkLine);
                   for (std::int64_t first = begin * kRows; first < std::min(end * kRows, rows.count);
                        first += kRows) {
                     const std::int64_t here = std::min(kRows, rows.count - first);
                     if (here < kRows) std::fill_n(tile, rows.length * kRows, Item{0});
                     for (std::int64_t r = 0; r < here; ++r) {
                       const T* const row = in + beginnings[first + r];
                       for (std::int64_t i = 0; i < rows.length; ++i)
                         tile[i * kRows + r] = Row::item_at(row, stride, i, call.descending);
                     }
                     order(tile, rows.length);
                     for (std::int64_t r = 0; r < here; ++r) {
                       const std::int64_t row = first + r, outer = rows.inner == 1 ? row : row / rows.inner;
                       const std::int64_t to = outer * call.kept * rows.inner + (row - outer * rows.inner);
                       for (std::int64_t i = 0; i < call.kept; ++i)
                         Row::put(tile[i * kRows + r], call.descending, in + beginnings[row], stride,
                                  out_of<T>(call), to + i * rows.inner);
                     }
                   }
                 });
  }
}

template <class T, bool Positions>
void sort_rows(const Sort& call, std::byte* workspace) {
  const Rows rows(call);
  if (rows.side_by_side<typename RowSort<T, Positions>::Item>())
    return sort_tiles<T, Positions>(call, rows, workspace);
  const auto one = [&](std::int64_t row, std::byte* memory, int parts) {
    const std::int64_t outer = row / rows.inner;
    const std::int64_t first = outer * call.kept * rows.inner + row % rows.inner;
    RowSort<T, Positions>::run(static_cast<const T*>(call.in.data) + offset_of(call.in, row, call.axis),
                               call.in.strides[call.axis], rows.length, call.kept, call.descending,
                               out_of<T>(call) + first, rows.inner, memory, parts);
  };
  if (!rows.spread()) {
    const int parts = rows.length >= kParallelAbove ? thread_count() : 1;
    for (std::int64_t row = 0; row < rows.count; ++row) one(row, workspace, parts);
    return;
  }
  const std::size_t bytes = RowSort<T, Positions>::bytes(rows.length);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kRadixAbove * 4 / std::max<std::int64_t>(rows.length, 1));
  parallel_for(rows.count, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
    for (std::int64_t row = begin; row < end; ++row)
      one(row, workspace + static_cast<std::size_t>(slot) * bytes, 1);
  });
}

/// F<T, whether rows are sorted with their positions>.
template <class F>
auto by_kind(const Sort& call, F f) {
  return dispatch(call.dtype, [&]<class T>() {
    return call.by_position ? f.template operator()<T, true>() : f.template operator()<T, false>();
  });
}

}  // namespace

std::size_t sort_workspace_bytes(const Sort& call) {
  const Rows rows(call);
  return by_kind(call, [&]<class T, bool Positions>() {
    if (rows.side_by_side<typename RowSort<T, Positions>::Item>())
      return static_cast<std::size_t>(rows.length * kNetworkLine * thread_count());
    return RowSort<T, Positions>::bytes(rows.length) *
           static_cast<std::size_t>(rows.spread() ? thread_count() : 1);
  });
}

void sort(const Sort& call, std::byte* workspace) {
  by_kind(call, [&]<class T, bool Positions>() { sort_rows<T, Positions>(call, workspace); });
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
