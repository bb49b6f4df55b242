// Short rows sorted side by side, a tile of them at a time: their keys are transposed to lines, which a
// network sorts (sort_network.h), and what is kept of them is transposed back.
#pragma once

#include "library/cpu/past_caches.h"
#include "library/cpu/sort_blocks.h"
#include "library/cpu/sort_lines.h"
#include "library/cpu/sort_rows.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace kiln::cpu::sorting {

/// A tile of rows sorted side by side: the items of each place of all rows, which is a line, and their keys
/// and items row by row.
/// `Packs`: keys share words of their own width with positions; elements of 8 bytes do so anyway.
template <class T, bool Positions, bool Packs = false>
class Tile {
 public:
  using Row = RowSort<T, Positions>;
  static constexpr bool kPacked = Packs || std::is_same_v<typename Row::Item, Wide>;  // see sort_packed.h
  static constexpr bool kNarrow = Positions && sizeof(T) <= 2;  // key and position in 4 bytes
  using Item =
      std::conditional_t<kPacked, Key<T>, std::conditional_t<kNarrow, std::uint32_t, typename Row::Item>>;
  static constexpr std::int64_t kRows = kNetworkRows<Item>;
  static constexpr std::int64_t kRoom = 64;  // lines
  static constexpr std::int64_t kMost = kNetworkMost<Item> / (Positions ? 2 : 1);
  static constexpr std::uint32_t kAllExact =
      static_cast<std::uint32_t>((std::uint64_t{1} << std::min<std::int64_t>(kRows, 32)) - 1);
  static_assert(kMost <= 1 << 16, "positions of two bytes");
  static constexpr Item kPlace =
      static_cast<Item>((std::uint64_t{1} << (4 * sizeof(Item))) - 1);  // of an item
  struct Functions {
    TileSort<Item> order;
    TileSort<Key<T>> numbers;  // or null
    TransposeRows<Item> rows;  // or, if null:
    TransposeSquares<Item> transpose;
    KeyFunctions<T> keys;
    BlockFunctions<T> blocks;
    OrderLines<Item> lines;
    std::conditional_t<Positions, ItemFunctions<Key<T>, Item>, bool> items;
    std::conditional_t<kPacked, PackLines<Item>, bool> packing;
  };
  static Functions functions() {
    Functions f{tile_sort<Item>(),
                number_sort<T>(),
                transpose_rows<Item>(),
                transpose_squares<Item>(),
                key_functions<T>(),
                block_functions<T>(),
                order_lines<Item>(),
                {},
                {}};
    if constexpr (Positions) f.items = item_functions<Key<T>, Item>();
    if constexpr (kPacked) f.packing = pack_lines<Item>();
    return f;
  }
  /// What all tiles of a call share.
  struct Shared {
    Functions f = functions();
    const bool by_table;       // a register of two elements stored in different ones would wait for both
    LineOrder<Item> in, out;   // where rows have so few elements, or so few are kept
    LineOrder<Item> whole;     // back to rows with all their elements
    std::vector<Item> places;  // of the elements of short rows, all rows of tiles that are sorted together
    Shared(std::int64_t n, std::int64_t kept)
        : by_table(!f.rows ||
                   (n <= LineOrder<Item>::kMost && (sizeof(Item) == 8 || orders_registers<Item>()))) {
      if (by_table && n <= LineOrder<Item>::kMost)
        in.set(n, [&](std::int64_t e) { return e % kRows * n + e / kRows; });
      if (by_table && kept <= LineOrder<Item>::kMost)
        out.set(kept, [&](std::int64_t e) { return e % kept * kRows + e / kept; });
      if (kPacked && by_table && n <= LineOrder<Item>::kMost)
        whole.set(n, [&](std::int64_t e) { return e % n * kRows + e / n; });
      if (sizeof(Item) == sizeof(T) || n > kPlacesKept) return;
      for (std::int64_t e = 0; e < std::max(kRows * n, kRoom * kRows); ++e)
        places.push_back(static_cast<Item>(e % n));
    }
  };
  /// Lines of a tile: whole squares.
  static std::int64_t lines(std::int64_t length) { return (length + kRows - 1) / kRows * kRows; }
  /// Lines of each part of the workspace: several tiles of short rows.
  static std::int64_t room(std::int64_t length) { return std::max(lines(length), kRoom); }
  static std::size_t bytes(std::int64_t length) {
    return static_cast<std::size_t>((3 * room(length) + 1) * kNetworkLine);
  }

  Tile(const Sort& call, const Rows& rows, std::byte* memory)
      : call_(call),
        rows_(rows),
        lines_(lines(rows.length)),
        beginnings_(call.in, call.axis),
        items_(reinterpret_cast<Item*>(memory)),
        keys_(reinterpret_cast<Key<T>*>(memory + room(rows.length) * kNetworkLine)),
        by_row_(reinterpret_cast<Item*>(memory + 2 * room(rows.length) * kNetworkLine)) {}

  /// Tiles of short adjoining rows that are sorted together, each step for all of them; 1: each by itself.
  /// One has so few elements that its next step would wait for what the last one stored, and that each step
  /// takes longer to begin than it lasts. Not where a step lasts no longer than reading its elements (those
  /// of 4 bytes and more, by table, without positions), which goes on during the others of a single tile.
  std::int64_t together(const Shared& shared) const {
    const bool adjoin = call_.in.strides[call_.axis] == 1 && beginnings_.regular &&
                        beginnings_.step == rows_.length && rows_.inner == 1;
    const bool long_lines = std::max(rows_.length, call_.kept) > LineOrder<Item>::kMost;
    if (kPacked || !adjoin || (Positions && (call_.values || call_.kept != rows_.length))) return 1;
    if (by_blocks(shared)) return 1;
    if ((shared.by_table || Positions) && long_lines) return 1;
    if (shared.by_table && !Positions && sizeof(Item) > 2) return 1;
    return std::max<std::int64_t>(1, kRoom / lines_of_slot());
  }

  /// Sorts `count` rows from `first` on, of up to together() tiles: values, or positions.
  void sort_together(std::int64_t first, std::int64_t count, const Shared& shared) {
    first_ = first, count_ = count;
    const Functions& f = shared.f;
    const std::int64_t n = rows_.length, kept = call_.kept, tiles = (count + kRows - 1) / kRows;
    const std::int64_t slot = lines_of_slot() * kRows;
    f.keys.keys(row(0), 1, count * n, call_.by_position, call_.descending, keys_);
    std::fill(keys_ + count * n, keys_ + tiles * kRows * n, Key<T>{0});
    fetch_next();
    if constexpr (!kPacked) {
      const Item* from = nullptr;
      if constexpr (Positions)
        f.items.items(keys_, shared.places.data(), tiles * kRows * n, by_row_), from = by_row_;
      else
        from = keys_;
      for (std::int64_t t = 0; t < tiles; ++t)
        if (shared.by_table)
          f.lines(shared.in, from + t * kRows * n, items_ + t * slot);
        else
          f.rows(from + t * kRows * n, n, kRows, n, items_ + t * slot, kRows);
      for (std::int64_t t = 0; t < tiles; ++t) f.order(items_ + t * slot, n, kept);
      for (std::int64_t t = 0; t < tiles; ++t)
        if (shared.by_table)
          f.lines(shared.out, items_ + t * slot, by_row_ + t * kRows * kept);
        else
          f.rows(items_ + t * slot, kRows, kept, kRows, by_row_ + t * kRows * kept, kept);
      if constexpr (Positions)
        put_positions(f, count * kept, kPlace, static_cast<std::int64_t*>(call_.positions) + out_of_row(0));
      else
        f.keys.values(by_row_, count * kept, call_.descending, static_cast<T*>(call_.values) + out_of_row(0));
    }
    order_equals(shared);
  }

  /// Sorts `count` rows from `first` on.
  void sort(std::int64_t first, std::int64_t count, const Shared& shared) {
    first_ = first, count_ = count;
    if constexpr (sizeof(Item) == sizeof(T) && !kPacked)
      if (count == kRows && by_blocks(shared)) return sort_values(shared);
    fill(shared);
    fetch_next();
    const std::int64_t ordered = exact_ == kAllExact ? call_.kept : rows_.length;
    shared.f.order(items_, rows_.length, ordered);
    if constexpr (Positions)
      drain(shared, ordered);
    else
      drain_values(shared, false);
    order_equals(shared);
  }

 private:
  /// Lines of a tile of several: whole eights, and all that its transposition writes.
  std::int64_t lines_of_slot() const {
    constexpr std::int64_t kWhole = std::max<std::int64_t>(8, 16 / sizeof(Item));
    return (rows_.length + kWhole - 1) / kWhole * kWhole;
  }

  /// Whether full tiles go from rows to lines without their keys in memory: no order is asked for.
  bool by_blocks(const Shared& shared) const {
    return sizeof(Item) == sizeof(T) && !kPacked && shared.f.blocks.lines && rows_.length >= kLeastOfBlocks &&
           call_.in.strides[call_.axis] == 1 && beginnings_.regular;
  }

  /// The same of a full tile.
  void sort_values(const Shared& shared) {
    const Functions& f = shared.f;
    T* const values = static_cast<T*>(call_.values);
    const std::int64_t n = rows_.length, step = beginnings_.step;
    const bool numbers =
        f.numbers && rows_.inner == 1 && f.blocks.number_lines(row(0), step, n, call_.descending, items_);
    if (!numbers) f.blocks.lines(row(0), step, n, call_.by_position, call_.descending, items_);
    fetch_next();
    (numbers ? f.numbers : f.order)(items_, n, call_.kept);
    if (rows_.inner == 1 && call_.kept >= kLeastOfBlocks)
      put_values(f, numbers, values + out_of_row(0));
    else
      drain_values(shared, numbers);
    order_equals(shared);
  }

  void order_equals(const Shared& shared) {
    if (Positions || !call_.by_position) return;
    if (rows_.inner != 1 ||
        shared.f.keys.any_equal(static_cast<T*>(call_.values) + out_of_row(0), count_ * call_.kept))
      for (std::int64_t r = 0; r < count_; ++r)
        keep_order_of_equals(row(r), call_.in.strides[call_.axis],
                             static_cast<T*>(call_.values) + out_of_row(r), rows_.inner, call_.kept);
  }

  /// Asks for as many rows as a tile has behind this one's, which come from memory while this one's are
  /// ordered. The processor itself would not read ahead from row to row, nor while nothing else is read.
  void fetch_next() const {
    if (call_.in.strides[call_.axis] != 1 || !beginnings_.regular) return;
    const std::int64_t rows = std::min(count_, rows_.count - first_ - count_), step = beginnings_.step;
    const bool adjoin = step == rows_.length;
    const std::int64_t bytes = rows_.length * (adjoin ? rows : 1) * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t r = 0; r < (adjoin ? std::min<std::int64_t>(rows, 1) : rows); ++r) {
      const char* const from = reinterpret_cast<const char*>(row(count_ + r));
      for (std::int64_t b = 0; b < bytes; b += kPastLine) __builtin_prefetch(from + b, 0, 2);
    }
  }

  /// The rows of a full tile, which adjoin: past the caches where no cache holds all of them.
  void put_values(const Functions& f, bool numbers, T* to) const {
    const std::int64_t kept = call_.kept, lines = kept * kNetworkLine / kPastLine;
    const bool past = rows_.count * kept * static_cast<std::int64_t>(sizeof(T)) >= kPastCaches &&
                      lines * kPastLine >= kPastTogether && begins_line(to);
    T* const rows = past ? reinterpret_cast<T*>(by_row_) : to;
    (numbers ? f.blocks.number_rows : f.blocks.rows)(items_, kept, call_.descending, rows, kept);
    if (past) f.blocks.past(rows, lines, to);
  }

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
    if (!shared.by_table)
      f.rows(from, n, kRows, n, items_, kRows);
    else if (n <= LineOrder<Item>::kMost)
      f.lines(shared.in, from, items_);
    else
      f.transpose(from, n, kRows, items_, kRows, kRows * kRows, lines_ / kRows);
    if constexpr (kPacked) exact_ = f.packing.pack(items_, n, place_bits());
  }

  /// The first `count` lines, row by row: as many as are kept, or all.
  void to_rows(const Shared& shared, std::int64_t count) {
    if (!shared.by_table) return shared.f.rows(items_, kRows, count, kRows, by_row_, count);
    if (count <= LineOrder<Item>::kMost)
      return shared.f.lines(count == call_.kept ? shared.out : shared.whole, items_, by_row_);
    // From the last square on, each row by row: what is written behind the end of a row is written again.
    const std::int64_t squares = lines(count) / kRows, last = squares - 1;
    shared.f.transpose(items_ + last * kRows * kRows, kRows, -kRows * kRows, by_row_ + last * kRows, count,
                       -kRows, squares);
  }

  void drain(const Shared& shared, std::int64_t ordered) {
    const RowOut<T> out = out_of<T>(call_);
    const std::int64_t kept = call_.kept, inner = rows_.inner;
    to_rows(shared, ordered);
    const Item position = place_bits();
    if constexpr (kPacked)
      if (exact_ != kAllExact) settle(shared.f.packing);
    const bool adjoin = inner == 1 && ordered == kept;
    if (out.positions && adjoin)
      put_positions(shared.f, count_ * kept, position, out.positions + out_of_row(0));
    if (adjoin && !out.values) return;
    for (std::int64_t r = 0; r < count_; ++r) {
      const Item* const from = by_row_ + r * ordered;
      const std::int64_t to = out_of_row(r);
      if (out.positions && inner == 1)
        shared.f.items.positions(from, kept, position, false, out.positions + to);
      else if (out.positions)
        for (std::int64_t i = 0; i < kept; ++i)
          out.positions[to + i * inner] = static_cast<std::int64_t>(from[i] & position);
      for (std::int64_t i = 0; i < kept && out.values; ++i)
        out.values[to + i * inner] = value_of_item(from[i], static_cast<std::int64_t>(from[i] & position), r);
    }
  }

  /// `n` positions of the tile's rows, which adjoin. Of all rows together no cache would hold them. (Values
  /// take half as many bytes and less, and are faster through the caches.)
  void put_positions(const Functions& f, std::int64_t n, Item mask, std::int64_t* to) const {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(std::int64_t));
    const bool past =
        rows_.count * call_.kept * kSize >= kPastCaches && n * kSize >= kPastTogether && begins_line(to);
    f.items.positions(by_row_, n, mask, past, to);
  }

  /// The bits of an item that are its place.
  Item place_bits() const {
    if constexpr (kPacked) return static_cast<Item>(std::bit_ceil(static_cast<Item>(rows_.length)) - 1);
    return kPlace;
  }

  /// Puts items in order that their bits do not tell apart.
  void settle(const PackLines<Item>& packing) {
    const std::int64_t n = rows_.length;
    const std::uint32_t rows = packing.alike(items_, n, place_bits()) & ~exact_;
    for (std::int64_t r = 0; r < count_; ++r)
      if ((rows >> r & 1) != 0) packing.settle(place_bits(), keys_ + r * n, by_row_ + r * n, n);
  }

  T value_of_item(Item item, std::int64_t position, std::int64_t r) const {
    const std::int64_t stride = call_.in.strides[call_.axis];
    if constexpr (kPacked)
      return row(r)[position * stride];
    else
      return Row::value_in(pair_of<T>(static_cast<Key<T>>(item >> (4 * sizeof(Item))), position),
                           call_.descending, row(r), stride);
  }

  void drain_values(const Shared& shared, bool numbers) {
    const Functions& f = shared.f;
    T* const values = static_cast<T*>(call_.values);
    const std::int64_t kept = call_.kept, inner = rows_.inner;
    to_rows(shared, kept);
    if constexpr (!std::is_integral_v<T> && sizeof(Item) == sizeof(T))
      if (numbers) {
        const Key<T> turn = call_.descending ? kSign<T> : Key<T>{0};
        for (std::int64_t i = 0; i < count_ * kept; ++i)
          values[out_of_row(0) + i] = std::bit_cast<T>(static_cast<Key<T>>(by_row_[i] ^ turn));
        return;
      }
    if (inner == 1) return f.keys.values(by_row_, count_ * kept, call_.descending, values + out_of_row(0));
    for (std::int64_t r = 0; r < count_; ++r) {
      const Key<T>* const from = by_row_ + r * kept;
      const std::int64_t to = out_of_row(r);
      for (std::int64_t i = 0; i < kept; ++i)
        values[to + i * inner] = value_of<T>(call_.descending ? static_cast<Key<T>>(~from[i]) : from[i]);
    }
  }

  const Sort& call_;
  const Rows& rows_;
  const std::int64_t lines_;
  const Beginnings beginnings_;
  Item* const items_;
  Key<T>* const keys_;
  Item* const by_row_;
  std::int64_t first_ = 0, count_ = 0;
  std::uint32_t exact_ = kAllExact;  // a bit for each row: whether its items tell all keys apart
};

}  // namespace kiln::cpu::sorting
