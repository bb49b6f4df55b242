#include "library/cpu/sort.h"

#include "device/cpu/threads.h"
#include "library/cpu/sort_keys.h"
#include "library/cpu/sort_lines.h"
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
constexpr std::int64_t kPlacesKept = 64;   // elements of a row whose places are written down for all rows
constexpr std::int64_t kFilterBelow = 64;  // one smaller than this without writing the row down

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

  /// How a row is sorted: from its end, and as argsort sorts it.
  struct Order {
    bool descending, by_position;
  };

  static Item item_at(const T* from, std::int64_t stride, std::int64_t i, Order order) {
    Key<T> key = key_of(from[i * stride], order.by_position);
    if (order.descending) key = static_cast<Key<T>>(~key);
    if constexpr (Positions)
      return pair_of<T>(key, i);
    else
      return key;
  }

  /// The first `kept` items, unordered, in front of `items`: each part keeps those below the last of its best
  /// so far, and thins them out when there are twice as many.
  static void filter(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, Order order,
                     Item* items, int parts) {
    std::vector<std::int64_t> found(static_cast<std::size_t>(parts));
    over_parts(n, parts, [&](int part, std::int64_t begin, std::int64_t end) {
      Item* const best = items + 2 * kept * part;
      std::int64_t count = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const Item item = item_at(from, stride, i, order);
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

  static void run(const T* from, std::int64_t stride, std::int64_t n, std::int64_t kept, Order order,
                  const RowOut<T>& to, std::int64_t to_stride, std::byte* workspace, int parts) {
    Item* const items = reinterpret_cast<Item*>(workspace);
    const bool few = kept < n / (kFilterBelow * parts);
    if (few) {
      filter(from, stride, n, kept, order, items, parts);
      std::sort(items, items + kept);
    } else {
      over_parts(n, parts, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) items[i] = item_at(from, stride, i, order);
      });
    }
    const Item* const sorted =
        few ? items : ordered<static_cast<int>(sizeof(T))>(items, items + n, n, kept, parts);
    over_parts(kept, kept > kParallelAbove ? parts : 1, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        put(sorted[i], order.descending, from, stride, to, i * to_stride);
    });
    if (!Positions && order.by_position) keep_order_of_equals(from, stride, to.values, to_stride, kept);
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
  bool alone = false;                             // see Sort
  int threads = 1;
  explicit Rows(const Sort& call) : alone(call.rows_alone), threads(call.one_thread ? 1 : thread_count()) {
    for (int a = 0; a < call.in.rank; ++a) {
      if (a != call.axis) count *= call.in.dims[a];
      if (a > call.axis) inner *= call.in.dims[a];
    }
    length = call.in.dims[call.axis];
  }
  /// Whether threads share rows out; otherwise they share each row.
  bool spread() const { return count > 1 && (count >= threads || length < kParallelAbove); }
  /// Whether rows are sorted side by side, in tiles of this kind.
  template <class Tile>
  bool side_by_side() const {
    return !alone && length <= kNetworkMost && count >= Tile::kRows;
  }
  /// The least of `n` items of work that a thread takes.
  std::int64_t grain(std::int64_t n, std::int64_t least) const {
    return std::max<std::int64_t>(1, threads == 1 ? n : least);
  }
};

/// A tile of rows sorted side by side: the items of its rows one after the other, then of each place of all
/// rows, which is a line.
template <class T, bool Positions>
class Tile {
 public:
  using Row = RowSort<T, Positions>;
  static constexpr bool kPaired =
      std::is_same_v<typename Row::Item, Wide>;                 // positions have lines of their own
  static constexpr bool kNarrow = Positions && sizeof(T) <= 2;  // key and position in 4 bytes
  using Item = std::conditional_t<kPaired, std::uint64_t,
                                  std::conditional_t<kNarrow, std::uint32_t, typename Row::Item>>;
  using Order = std::conditional_t<kPaired, PairSort, TileSort<Item>>;
  static constexpr std::int64_t kRows = kNetworkRows<Item>;
  static_assert(kNetworkMost <= 1 << 16, "positions of two bytes");
  struct Functions {
    Order order;
    TransposeSquares<Item> transpose;
    KeyFunctions<T> keys;
    OrderLines<Item> lines;
    std::conditional_t<Positions, ItemFunctions<Key<T>, Item>, bool> items;
  };
  static Functions functions() {
    Functions f{{}, transpose_squares<Item>(), key_functions<T>(), order_lines<Item>(), {}};
    if constexpr (kPaired)
      f.order = pair_sort();
    else
      f.order = tile_sort<Item>();
    if constexpr (Positions) f.items = item_functions<Key<T>, Item>();
    return f;
  }
  /// What all tiles of a call share.
  struct Shared {
    Functions f = functions();
    LineOrder<Item> in, out;   // where rows have so few elements, or so few are kept
    std::vector<Item> places;  // of the elements of short rows, all rows of a tile
    Shared(std::int64_t n, std::int64_t kept) {
      if (n <= LineOrder<Item>::kMost) in.set(n, [&](std::int64_t e) { return e % kRows * n + e / kRows; });
      if (kept <= LineOrder<Item>::kMost)
        out.set(kept, [&](std::int64_t e) { return e % kept * kRows + e / kept; });
      if (sizeof(Item) == sizeof(T) || n > kPlacesKept) return;
      for (std::int64_t e = 0; e < kRows * n; ++e) places.push_back(static_cast<Item>(e % n));
    }
  };
  /// Lines of a tile: whole squares.
  static std::int64_t lines(std::int64_t length) { return (length + kRows - 1) / kRows * kRows; }
  static std::size_t bytes(std::int64_t length) {
    return static_cast<std::size_t>((4 * lines(length) + 1) * kNetworkLine);
  }

  Tile(const Sort& call, const Rows& rows, std::byte* memory)
      : call_(call),
        rows_(rows),
        lines_(lines(rows.length)),
        beginnings_(call.in, call.axis),
        items_(reinterpret_cast<Item*>(memory)),
        positions_(reinterpret_cast<std::uint64_t*>(memory + lines_ * kNetworkLine)),
        keys_(reinterpret_cast<Key<T>*>(memory + 2 * lines_ * kNetworkLine)),
        by_row_(reinterpret_cast<Item*>(memory + 3 * lines_ * kNetworkLine)) {}

  /// Sorts `count` rows from `first` on.
  void sort(std::int64_t first, std::int64_t count, const Shared& shared) {
    first_ = first, count_ = count;
    fill(shared);
    if constexpr (kPaired)
      shared.f.order(items_, positions_, rows_.length);
    else
      shared.f.order(items_, rows_.length, call_.kept);
    if constexpr (Positions)
      drain(shared);
    else
      drain_values(shared);
    if (Positions || !call_.by_position) return;
    if (rows_.inner != 1 || any_equal(static_cast<T*>(call_.values) + out_of_row(0), count_ * call_.kept))
      for (std::int64_t r = 0; r < count_; ++r)
        keep_order_of_equals(row(r), call_.in.strides[call_.axis],
                             static_cast<T*>(call_.values) + out_of_row(r), rows_.inner, call_.kept);
  }

 private:
  const T* row(std::int64_t r) const {
    return static_cast<const T*>(call_.in.data) + beginnings_[first_ + r];
  }
  std::int64_t out_of_row(std::int64_t r) const {
    const std::int64_t outer = rows_.inner == 1 ? first_ + r : (first_ + r) / rows_.inner;
    return outer * call_.kept * rows_.inner + (first_ + r - outer * rows_.inner);
  }

  void fill(const Shared& shared) {
    const Functions& f = shared.f;
    const std::int64_t n = rows_.length, stride = call_.in.strides[call_.axis];
    if (stride == 1 && beginnings_.regular && beginnings_.step == n)
      f.keys.keys(row(0), 1, count_ * n, call_.by_position, call_.descending, keys_);
    else
      for (std::int64_t r = 0; r < count_; ++r)
        f.keys.keys(row(r), stride, n, call_.by_position, call_.descending, keys_ + r * n);
    std::fill(keys_ + count_ * n, keys_ + kRows * n, Key<T>{0});
    const Item* from = nullptr;
    if constexpr (sizeof(Item) == sizeof(T)) {
      from = keys_;
    } else {
      constexpr int kShift = 4 * sizeof(Item);
      if (!shared.places.empty())
        f.items.items(keys_, shared.places.data(), kRows * n, by_row_);
      else
        for (std::int64_t r = 0; r < kRows; ++r)
          for (std::int64_t i = 0; i < n; ++i)
            by_row_[r * n + i] = Item{keys_[r * n + i]} << kShift | static_cast<Item>(i);
      from = by_row_;
    }
    if (n <= LineOrder<Item>::kMost)
      f.lines(shared.in, from, items_);
    else
      f.transpose(from, n, kRows, items_, kRows, kRows * kRows, lines_ / kRows);
    if constexpr (kPaired)
      for (std::int64_t i = 0; i < n; ++i)
        std::fill_n(positions_ + i * kRows, kRows, static_cast<std::uint64_t>(i));
  }

  /// The first lines, as many as are kept, row by row. Returns how far apart rows are.
  std::int64_t to_rows(const Shared& shared, const Item* from) {
    if (call_.kept <= LineOrder<Item>::kMost) {
      shared.f.lines(shared.out, from, by_row_);
      return call_.kept;
    }
    shared.f.transpose(from, kRows, kRows * kRows, by_row_, lines_, kRows, lines(call_.kept) / kRows);
    return lines_;
  }

  void drain(const Shared& shared) {
    const RowOut<T> out = out_of<T>(call_);
    const std::int64_t stride = call_.in.strides[call_.axis], kept = call_.kept, inner = rows_.inner;
    if constexpr (kPaired) {
      for (std::int64_t r = 0; r < count_ && out.values; ++r)
        for (std::int64_t i = 0; i < kept; ++i)
          out.values[out_of_row(r) + i * inner] = Row::value_in(
              {items_[i * kRows + r], positions_[i * kRows + r]}, call_.descending, row(r), stride);
      if (!out.positions) return;
    }
    const Item* lines = items_;
    if constexpr (kPaired) lines = positions_;
    const std::int64_t pitch = to_rows(shared, lines);
    constexpr Item kPosition = kPaired ? ~Item{0} : (Item{1} << (4 * sizeof(Item))) - 1;
    const bool adjoin = inner == 1 && pitch == kept;
    if (out.positions && adjoin)
      shared.f.items.positions(by_row_, count_ * kept, kPosition, out.positions + out_of_row(0));
    if (adjoin && (kPaired || !out.values)) return;
    for (std::int64_t r = 0; r < count_; ++r) {
      const Item* const from = by_row_ + r * pitch;
      const std::int64_t to = out_of_row(r);
      if (out.positions && inner == 1)
        shared.f.items.positions(from, kept, kPosition, out.positions + to);
      else if (out.positions)
        for (std::int64_t i = 0; i < kept; ++i)
          out.positions[to + i * inner] = static_cast<std::int64_t>(from[i] & kPosition);
      if constexpr (!kPaired)
        for (std::int64_t i = 0; i < kept && out.values; ++i) {
          const auto key = static_cast<Key<T>>(from[i] >> (4 * sizeof(Item)));
          out.values[to + i * inner] =
              Row::value_in(pair_of<T>(key, static_cast<std::int64_t>(from[i] & kPosition)), call_.descending,
                            row(r), stride);
        }
    }
  }

  void drain_values(const Shared& shared) {
    const Functions& f = shared.f;
    T* const values = static_cast<T*>(call_.values);
    const std::int64_t kept = call_.kept, inner = rows_.inner;
    const std::int64_t pitch = to_rows(shared, items_);
    if (inner == 1 && pitch == kept)
      return f.keys.values(by_row_, count_ * kept, call_.descending, values + out_of_row(0));
    for (std::int64_t r = 0; r < count_; ++r) {
      const Key<T>* const from = by_row_ + r * pitch;
      const std::int64_t to = out_of_row(r);
      if (inner == 1)
        f.keys.values(from, kept, call_.descending, values + to);
      else
        for (std::int64_t i = 0; i < kept; ++i)
          values[to + i * inner] = value_of<T>(call_.descending ? static_cast<Key<T>>(~from[i]) : from[i]);
    }
  }

  const Sort& call_;
  const Rows& rows_;
  const std::int64_t lines_;
  const Beginnings beginnings_;
  Item* const items_;
  std::uint64_t* const positions_;
  Key<T>* const keys_;
  Item* const by_row_;
  std::int64_t first_ = 0, count_ = 0;
};

template <class T, bool Positions>
void sort_tiles(const Sort& call, const Rows& rows, std::byte* workspace) {
  using TileOf = Tile<T, Positions>;
  constexpr std::int64_t kRows = TileOf::kRows;
  const typename TileOf::Shared shared(rows.length, call.kept);
  const std::int64_t tiles = (rows.count + kRows - 1) / kRows;
  const std::int64_t grain = rows.grain(tiles, kRadixAbove * 16 / (kRows * rows.length + 1));
  parallel_for(tiles, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
    TileOf tile(call, rows, workspace + static_cast<std::size_t>(slot) * TileOf::bytes(rows.length));
    for (std::int64_t first = begin * kRows; first < std::min(end * kRows, rows.count); first += kRows)
      tile.sort(first, std::min(kRows, rows.count - first), shared);
  });
}

template <class T, bool Positions>
void sort_rows(const Sort& call, std::byte* workspace) {
  const Rows rows(call);
  if (rows.side_by_side<Tile<T, Positions>>()) return sort_tiles<T, Positions>(call, rows, workspace);
  const auto one = [&](std::int64_t row, std::byte* memory, int parts) {
    const std::int64_t outer = row / rows.inner;
    const std::int64_t first = outer * call.kept * rows.inner + row % rows.inner;
    RowSort<T, Positions>::run(static_cast<const T*>(call.in.data) + offset_of(call.in, row, call.axis),
                               call.in.strides[call.axis], rows.length, call.kept,
                               {call.descending, call.by_position}, out_of<T>(call) + first, rows.inner,
                               memory, parts);
  };
  if (!rows.spread()) {
    const int parts = rows.length >= kParallelAbove ? rows.threads : 1;
    for (std::int64_t row = 0; row < rows.count; ++row) one(row, workspace, parts);
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

bool sorts_side_by_side(const Sort& call) {
  const Rows rows(call);
  return dispatch(call.dtype, [&]<class T>() {
    return call.by_position ? rows.side_by_side<Tile<T, true>>() : rows.side_by_side<Tile<T, false>>();
  });
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
