// Rows of a block from memory to the registers of its threads, and back: by way of shared memory, so that
// neighbouring threads access neighbouring elements; or, where a row has several threads and lies along
// vectors, into registers at once, since which items of a row a thread begins with does not matter. After
// sort_pairs.cuh; the text before gives kEach, kFirst, kPaired, kLength and kTileThreads: see sort_tiles.cuh.
#pragma once

constexpr int kTile = kTileThreads * kEach, kSets = kPaired ? 2 : 1;
constexpr bool kLongRows = kEach > 16;  // rows are longer than kEach then
constexpr int kRowsOfThread = kLength > 0 ? kEach / (kLength > 0 ? kLength : 1) : 0;

/// What adjacent elements are read as.
template <int Bytes>
struct whole {
  typedef uint32 type;
};
template <>
struct whole<8> {
  typedef uint64 type;
};

/// Where slot i is in shared memory: a word is left out behind each 128 bytes, so that threads which read
/// their own adjacent items use different banks.
template <class T>
__device__ __forceinline__ constexpr int spread(int i) {
  return i + int((unsigned int)i / (128 / sizeof(T))) * (sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1);
}
__device__ __forceinline__ constexpr int greater(int a, int b) { return a > b ? a : b; }
__device__ __forceinline__ constexpr int log_of(int x) { return x > 1 ? 1 + log_of(x / 2) : 0; }
template <bool Paired>
struct choose_raw {
  typedef Bits type;
};
template <>
struct choose_raw<true> {
  typedef uint32 type;
};
constexpr int kOfElements = greater(spread<Bits>(kSets * kTile) * int(sizeof(Bits)),
                                    spread<Order::Staged>(kSets* kTile) * int(sizeof(Order::Staged)));
// (Whole rows of a thread are not exchanged, and no runs that go on.)
constexpr int kMemory = kLength > 0 ? kOfElements
                                    : greater(kOfElements, greater(spread<Held>(kTile) * int(sizeof(Held)),
                                                                   spread<Item>(kTile) * int(sizeof(Item))));

/// Items of a run: of `span` elements, or what is left of the row.
__device__ __forceinline__ int64 run_length(const Rows& rows, int64 run, int64 span) {
  const int64 left = rows.length - run * span, covered = left < 0 ? 0 : left < span ? left : span;
  return covered < rows.kept ? covered : rows.kept;
}

/// How a block reads its rows. kAcrossRows: the same element of all rows first; kWholeWords: rows are
/// adjacent; kOwnRows: likewise, and a thread's whole rows are vectors of 16 bytes, as what is written of
/// them is; kBy…: the threads of a row, of which there are several, read vectors of so many bytes.
enum ReadingWay { kAlongRows, kAcrossRows, kWholeWords, kOwnRows, kByFour, kByEight, kBySixteen };
struct Reading {
  int width, inverse;  // elements of a row, and index_div's number for it
  int way;
  int stored;  // not 0: bytes of vectors by which threads of a row store it, as they read it
};

/// `there` rows, to elements[row * width + at].
__device__ __forceinline__ void read_rows(Bits* elements, const Bits* in, const Rows& rows, int64 first_row,
                                          int64 begin, int there, int length, int log_rows,
                                          const Reading& reading) {
  if (reading.way == kWholeWords || reading.way == kOwnRows) {
    typedef whole<sizeof(Bits)>::type Word;
    constexpr int kOfWord = sizeof(Word) / sizeof(Bits), kWords = (kSets * kEach + kOfWord - 1) / kOfWord;
    const Bits* const source = in + first_row * rows.length;
    const int count = there * length, words = count / kOfWord;
    Word loaded[kWords];
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      const int i = threadIdx.x + j * blockDim.x;
      if (i < words) loaded[j] = ((const Word*)source)[i];
    }
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      const int i = threadIdx.x + j * blockDim.x;
      if (i < words) ((Word*)elements)[spread<Word>(i)] = loaded[j];
    }
    const int rest = words * kOfWord + threadIdx.x;
    if (rest < count) elements[spread<Bits>(rest)] = source[rest];
    return;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < reading.width << log_rows; i += blockDim.x) {
    const bool across = reading.way == kAcrossRows;
    const int row = across ? i & ((1 << log_rows) - 1) : index_div(i, reading.width, reading.inverse);
    const int at = across ? i >> log_rows : i - row * reading.width;
    if (row < there && at < length)
      elements[spread<Bits>(row * reading.width + at)] =
          begin_in(in, rows, first_row + row)[(begin + at) * rows.stride];
  }
}

/// The first `kept` items of each row: one after the other, or across rows that lie side by side.
template <class To, class From>
__device__ __forceinline__ void write_adjacent(To* to, const From* from, int count) {
  int written = 0;
  if constexpr (sizeof(To) < 4 && sizeof(To) == sizeof(From)) {
    constexpr int kOfWord = 4 / int(sizeof(To));
    if (((unsigned long long)to & 3) == 0) {
#pragma unroll 4
      for (int i = threadIdx.x; i < count / kOfWord; i += blockDim.x)
        ((uint32*)to)[i] = *(const uint32*)(from + spread<From>(i * kOfWord));
      written = count / kOfWord * kOfWord;
    }
  }
#pragma unroll 4
  for (int i = written + threadIdx.x; i < count; i += blockDim.x) to[i] = To(from[spread<From>(i)]);
}
__device__ __forceinline__ void write_across(Out* out, const Order::Staged* staged, const Rows& rows,
                                             int64 first_row, int there, int kept, int log_rows) {
#pragma unroll 4
  for (int i = threadIdx.x; i < kept << log_rows; i += blockDim.x) {
    const int row = i & ((1 << log_rows) - 1), at = i >> log_rows;
    if (row < there)
      begin_out(out, rows, first_row + row)[at * rows.inner] =
          Out(staged[spread<Order::Staged>(row * kept + at)]);
  }
}

/// The elements at the positions staged.
__device__ __forceinline__ void write_values(Bits* values, const Order::Staged* staged, const Bits* in,
                                             const Rows& rows, int64 first_row, int there, int kept,
                                             int log_rows) {
  const bool across = rows.inner != 1;
  for (int i = threadIdx.x; i < kept << log_rows; i += blockDim.x) {
    const int row = across ? i & ((1 << log_rows) - 1) : i / kept,
              at = across ? i >> log_rows : i - row * kept;
    if (row < there)
      begin_out(values, rows, first_row + row)[at * rows.inner] = begin_in(
          in, rows, first_row + row)[int64(staged[spread<Order::Staged>(row * kept + at)]) * rows.stride];
  }
}

/// Where a thread's items are: of whole rows of kLength, or of one row where rows are longer than kEach.
struct PlaceOf {
  int first, log_padded, half;  // half: rows of a set

  __device__ __forceinline__ PlaceOf(int log_padded, int log_rows)
      : first(threadIdx.x * kEach), log_padded(log_padded), half(1 << log_rows >> 1) {}
  __device__ __forceinline__ int row(int e) const {
    if (kLength > 0) return threadIdx.x * kRowsOfThread + e / greater(kLength, 1);
    return first + (kLongRows ? 0 : e) >> log_padded;
  }
  __device__ __forceinline__ int at(int e) const {
    if (kLength > 0) return e % greater(kLength, 1);
    const int inside = (1 << log_padded) - 1;
    return kLongRows ? (first & inside) + e : first + e & inside;
  }
  /// Of a row in shared memory.
  __device__ __forceinline__ int width(const Reading& reading) const {
    return kLength > 0 ? kLength : reading.width;
  }
  /// Which of the sets have this row.
  __device__ __forceinline__ uint32 present(int row, int there) const {
    return (row < there ? 0xffff : 0) | (row + half < there ? 0xffff0000 : 0);
  }
  /// Whether two adjacent elements are one word in shared memory, where rows have so many.
  __device__ __forceinline__ bool by_words(int of_row) const {
    return sizeof(Bits) == 2 && of_row % 2 == 0 && (kLength > 0 ? kLength % 2 == 0 : log_padded > 0);
  }
};

/// A thread's items from the elements of the block's rows; whether their keys stand for other elements. What
/// is read of places without an element counts for nothing: without branches all reads are under way
/// together.
__device__ __forceinline__ bool read_items(Held (&x)[kEach], const Bits* elements, const Rows& rows,
                                           const Reading& reading, int there, int length, const PlaceOf& p,
                                           int64 begin) {
  bool loses = false;
  const int first = p.first, log_padded = p.log_padded, inside = (1 << log_padded) - 1;
  if (kLength == 0 && reading.width == inside + 1 && length == inside + 1 &&
      there << log_padded >= first + kEach) {
    const Bits* const mine = elements + spread<Bits>(first);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const Bits element = mine[spread<Bits>(e)];
      x[e] = Order::make(ordered_key(element, rows), begin + p.at(e));
      if (Order::mended) loses |= Equals<Element>::lost(element);
    }
    return loses;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int row = p.row(e), at = p.at(e);
    const Bits element = elements[spread<Bits>(row * p.width(reading) + at)];
    const Held item = Order::make(ordered_key(element, rows), begin + at);
    const bool is_there = row < there && (kLength > 0 || at < length);
    x[e] = is_there ? item : Held(Order::last());
    if (Order::mended) loses |= is_there & Equals<Element>::lost(element);
  }
  return loses;
}
/// A thread's items, as `made` of them, to where those of each row that are kept follow one another.
template <class T, class F>
__device__ __forceinline__ void stage_items(T* to, const Held (&x)[kEach], int there, int kept,
                                            const PlaceOf& p, F made) {
  const int first = p.first, log_padded = p.log_padded, inside = (1 << log_padded) - 1;
  if (kLength == 0 && kept == inside + 1 && there << log_padded >= first + kEach &&
      128 % (kEach * sizeof(T)) == 0) {
    T* const mine = to + spread<T>(first);
#pragma unroll
    for (int e = 0; e < kEach; ++e) mine[e] = made(x[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int row = p.row(e), at = p.at(e);
    if (row < there && at < kept) to[spread<T>(row * kept + at)] = made(x[e]);
  }
}

/// The keys of an element of either set; `lost` gets bits where they stand for other elements.
template <class H>
__device__ __forceinline__ H keys_of_pair(H x, const Rows& rows, uint32& lost) {
  if constexpr (sizeof(Bits) == 2)
    return paired_keys(x, rows.descending, lost);
  else
    return ordered_key(Bits(x), rows) | uint32(ordered_key(Bits(x >> 16), rows)) << 16;
}

/// A thread's items of both sets from the elements of the block's rows; whether their keys stand for other
/// elements. What is read of places without an element counts for nothing.
template <class H>
__device__ __forceinline__ bool read_pairs(H (&x)[kEach], const Bits* elements, const Rows& rows,
                                           const Reading& reading, int there, int length, const PlaceOf& p) {
  const int width = p.width(reading);
  if (p.by_words(width)) {
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      const int i = p.row(e) * width + p.at(e), j = i + p.half * width;
      const uint32 lower = *(const uint32*)(elements + spread<Bits>(i)),
                   upper = *(const uint32*)(elements + spread<Bits>(j));
      x[e] = low_halves(lower, upper);
      x[e + 1] = high_halves(lower, upper);
    }
  } else {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = p.row(e) * width + p.at(e), j = i + p.half * width;
      x[e] = elements[spread<Bits>(i)] | uint32(elements[spread<Bits>(j)]) << 16;
    }
  }
  uint32 lost = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const uint32 present = kLength > 0 || p.at(e) < length ? p.present(p.row(e), there) : 0;
    uint32 loses = 0;
    x[e] = keys_of_pair(x[e], rows, loses);
    x[e] = (x[e] & present) | (kLastPair & ~present);
    lost |= loses & present;
  }
  return lost != 0;
}
/// What both sets' items stand for.
template <class H>
__device__ __forceinline__ void elements_of_pairs(H (&x)[kEach], bool descending) {
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if constexpr (sizeof(Bits) == 2)
      x[e] = paired_elements(x[e], descending);
    else
      x[e] = Order::out(Item(x[e]), descending) | uint32(Order::out(Item(x[e] >> 16), descending)) << 16;
}
/// The same, to where those of each row that are kept follow one another.
template <class H>
__device__ __forceinline__ void stage_pairs(Bits* to, H (&x)[kEach], const Rows& rows, int there, int kept,
                                            const PlaceOf& p) {
  elements_of_pairs(x, rows.descending);
  if (p.by_words(kept)) {
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      const int row = p.row(e), i = row * kept + p.at(e);
      if (p.at(e) >= kept) continue;
      if (row < there) *(uint32*)(to + spread<Bits>(i)) = low_halves(x[e], x[e + 1]);
      if (row + p.half < there)
        *(uint32*)(to + spread<Bits>(i + p.half * kept)) = high_halves(x[e], x[e + 1]);
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int row = p.row(e), i = row * kept + p.at(e);
    if (p.at(e) >= kept) continue;
    if (row < there) to[spread<Bits>(i)] = Bits(x[e]);
    if (row + p.half < there) to[spread<Bits>(i + p.half * kept)] = Bits(x[e] >> 16);
  }
}

/// What memory has of a thread's items.
typedef choose_raw<kPaired>::type Raw;

/// Rows are to be sorted, so a thread's items may be any of its row: item e of thread j of a team is element
/// (e - e % L) * team + j * L + e % L, L being as many elements as `Bytes`. Returns how many of the items
/// there are. Null: no row; `other` is of the second set.
template <int Bytes>
__device__ __forceinline__ int load_items(Raw (&raw)[kEach], const Bits* row, const Bits* other, int j,
                                          int log_team, int length) {
  constexpr int L = Bytes / int(sizeof(Bits)) > 0 ? Bytes / int(sizeof(Bits)) : 1;
  if constexpr (L > kEach) return 0;
  const int left = length - j * L, all = left <= 0 ? 0 : left + (L << log_team) - 1 >> log_team & ~(L - 1);
#pragma unroll
  for (int e = 0; e < kEach; e += L) {
    vec<Bits, L> a = {}, b = {};
    const int at = (e << log_team) + j * L;
    if (e < all && row) a = load<L>(row + at);
    if (kPaired && e < all && other) b = load<L>(other + at);
#pragma unroll
    for (int v = 0; v < L; ++v) raw[e + v] = kPaired ? Raw(a.at[v] | Raw(b.at[v]) << 16) : Raw(a.at[v]);
  }
  return all;
}

/// A thread's items from memory, where a row has several threads; whether their keys stand for other
/// elements.
template <bool Paired, class H>
__device__ __forceinline__ bool read_direct(H (&x)[kEach], const Bits* in, const Rows& rows,
                                            const Reading& reading, int64 first_row, int64 begin, int there,
                                            int length, int log_padded, int log_rows) {
  const int log_team = log_padded - log_of(kEach), row = threadIdx.x >> log_team,
            j = threadIdx.x & ((1 << log_team) - 1), half = 1 << log_rows >> 1;
  const bool is_here = row < there, has_other = kPaired && row + half < there;
  const Bits* const mine = is_here ? begin_in(in, rows, first_row + row) + begin : nullptr;
  const Bits* const other = has_other ? begin_in(in, rows, first_row + row + half) + begin : nullptr;
  Raw raw[kEach];
  const int all = reading.way == kBySixteen ? load_items<16>(raw, mine, other, j, log_team, length)
                  : reading.way == kByEight ? load_items<8>(raw, mine, other, j, log_team, length)
                                            : load_items<4>(raw, mine, other, j, log_team, length);
  if constexpr (Paired) {
    const uint32 present = (is_here ? 0xffff : 0) | (has_other ? 0xffff0000 : 0);
    const bool is_whole = all >= kEach && is_here && has_other;
    uint32 lost = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      uint32 loses = 0;
      x[e] = keys_of_pair(raw[e], rows, loses);
      const uint32 mask = e < all ? present : 0;
      if (!is_whole) x[e] = (x[e] & mask) | (kLastPair & ~mask);
      lost |= is_whole ? loses : loses & mask;
    }
    return lost != 0;
  } else {
    const int log_lanes = 2 + reading.way - kByFour - log_of(sizeof(Bits)), inside = (1 << log_lanes) - 1;
    bool loses = false;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = (e >> log_lanes << log_lanes + log_team) + (j << log_lanes) + (e & inside);
      const H item = Order::make(ordered_key(Bits(raw[e]), rows), begin + at);
      const bool is_there = is_here && e < all;
      x[e] = is_there ? item : H(Order::last());
      if (Order::mended) loses |= is_there & Equals<Element>::lost(Bits(raw[e]));
    }
    return loses;
  }
}

constexpr int kAccess = 16;  // bytes
constexpr bool kMayOwnRows = kLength == 0 && kEach % (kAccess / int(sizeof(Bits))) == 0;

/// Where a thread that has whole rows for itself has its items: adjacent threads have adjacent stretches of a
/// vector or a row, whichever is more.
struct OwnRows {
  int log_padded, log_stretch, upper;  // upper: from an item to that of the second set

  __device__ __forceinline__ OwnRows(int log_padded, int log_rows)
      : log_padded(log_padded),
        log_stretch(greater(log_padded, log_of(kAccess / int(sizeof(Bits))))),
        upper(1 << log_rows >> 1 << log_padded) {}
  __device__ __forceinline__ int operator()(int e) const {
    return ((e >> log_stretch) * int(blockDim.x) + int(threadIdx.x) << log_stretch) +
           (e & (1 << log_stretch) - 1);
  }
};

/// A thread's items from memory, all of which are there; whether their keys stand for other elements.
template <bool Own, bool Paired, class H>
__device__ __forceinline__ bool read_own(H (&x)[kEach], const Bits* in, const Rows& rows, int64 first_row,
                                         const OwnRows& place) {
  uint32 lost = 0;
  if constexpr (Own) {
    constexpr int L = kAccess / int(sizeof(Bits));
    const Bits* const mine = in + first_row * rows.length;
    Raw raw[kEach];
#pragma unroll
    for (int e = 0; e < kEach; e += L) {
      const vec<Bits, L> a = load<L>(mine + place(e));
      vec<Bits, L> b = {};
      if (Paired) b = load<L>(mine + place(e) + place.upper);
#pragma unroll
      for (int v = 0; v < L; ++v) raw[e + v] = Paired ? Raw(a.at[v] | Raw(b.at[v]) << 16) : Raw(a.at[v]);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if constexpr (!Paired) {
        x[e] = Order::make(ordered_key(Bits(raw[e]), rows), e & (1 << place.log_padded) - 1);
        if (Order::mended) lost |= Equals<Element>::lost(Bits(raw[e]));
      } else {
        x[e] = keys_of_pair(raw[e], rows, lost);
      }
    }
  }
  return lost != 0;
}
/// And their results, as wide as elements, back to where they were.
template <bool Own, bool Paired, class H>
__device__ __forceinline__ void write_own(Out* out, H (&x)[kEach], const Rows& rows, int64 first_row,
                                          const OwnRows& place) {
  if constexpr (Own && sizeof(Out) == sizeof(Bits)) {
    constexpr int L = kAccess / int(sizeof(Bits));
    Out* const mine = out + first_row * rows.length;
    if constexpr (Paired) elements_of_pairs(x, rows.descending);
#pragma unroll
    for (int e = 0; e < kEach; e += L) {
      vec<Out, L> y;
#pragma unroll
      for (int v = 0; v < L; ++v) {
        if constexpr (Paired)
          y.at[v] = Out(Bits(x[e + v]));
        else
          y.at[v] = Out(Order::out(Item(x[e + v]), rows.descending));
      }
      store(mine + place(e), y);
      if constexpr (Paired) {
#pragma unroll
        for (int v = 0; v < L; ++v) y.at[v] = Out(Bits(x[e + v] >> 16));
        store(mine + place(e) + place.upper, y);
      }
    }
  }
}

/// The block's rows, whose results have been written: zeros and NaN in the order of their positions.
__device__ __forceinline__ void mend_rows(Bits* out, const Bits* in, const Rows& rows, int64 first_row,
                                          int there, int kept) {
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < there; r += blockDim.x / 32)
    mend_row(out, in, rows, first_row + r, kept);
}

template <bool Paired, class H>
__device__ __forceinline__ bool read_shared(H (&x)[kEach], const Bits* elements, const Rows& rows,
                                            const Reading& reading, int there, int length, int log_padded,
                                            int64 begin, int log_rows) {
  if constexpr (Paired)
    return read_pairs(x, elements, rows, reading, there, length, PlaceOf(log_padded, log_rows));
  else
    return read_items(x, elements, rows, reading, there, length, PlaceOf(log_padded, log_rows), begin);
}
/// A thread's items to shared memory: as they are where a run of them goes on, else what is stored of them.
template <bool Paired, class H>
__device__ __forceinline__ void stage_tile(uint4* memory, H (&x)[kEach], const Rows& rows, int there,
                                           int kept, int log_padded, int log_rows, bool goes_on) {
  if constexpr (Paired)
    stage_pairs((Bits*)memory, x, rows, there, kept, PlaceOf(log_padded, log_rows));
  else if (goes_on)
    stage_items((Item*)memory, x, there, kept, PlaceOf(log_padded, log_rows),
                [](const H& item) { return Item(item); });
  else
    stage_items((Order::Staged*)memory, x, there, kept, PlaceOf(log_padded, log_rows),
                [&](const H& item) { return Order::Staged(Order::out(Item(item), rows.descending)); });
}

/// What a thread has of its warp's items that are kept, which are adjacent in memory: `mine` from `first` on,
/// of `all`.
struct Share {
  int64 begin;  // of the warp's, in the output
  int first, mine, all;
  bool whole;  // threads have as many items as they have registers for

  __device__ __forceinline__ Share(int64 first_row, int there, int kept, int log_team) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x & ~31, log_rows = 5 - log_team,
              row = threadIdx.x >> log_team, at = (threadIdx.x & ((1 << log_team) - 1)) * kEach;
    mine = row < there ? greater(kept - at, 0) : 0;
    whole = kept % kEach == 0;
    if (log_rows >= 0) {  // whole rows
      const int warp_row = warp >> log_team,
                rows = there - warp_row < 1 << log_rows ? there - warp_row : 1 << log_rows;
      begin = (first_row + warp_row) * kept;
      first = (row - warp_row) * kept + at;
      all = greater(rows, 0) * kept;
    } else {  // a part of one
      const int warp_at = at - lane * kEach, left = greater(kept - warp_at, 0);
      begin = (first_row + row) * kept + warp_at;
      first = lane * kEach;
      all = row >= there ? 0 : left < 32 * kEach ? left : 32 * kEach;
    }
  }
};

/// Where vector v of a warp's part of shared memory is: threads that store lines of their own use different
/// banks.
template <int Bytes>
__device__ __forceinline__ constexpr int swapped(int v) {
  constexpr int kOfLine = 128 / Bytes;
  return v ^ (v / kOfLine & kOfLine - 1);
}

/// Whether a warp's items pass through its part of shared memory, so that adjacent threads store adjacent
/// vectors. (A device stores half a sector no faster than a whole one. What a thread has of shorter elements
/// is few sectors, and of longer ones takes longer to sort.)
constexpr bool kStaged = sizeof(Bits) == 4;

/// A warp's items to memory, as `made` of them: by vectors of so many bytes.
template <int Bytes, class T, class F>
__device__ __forceinline__ void store_items(T* to, T* staged, const Share& s, F made) {
  constexpr int L = greater(Bytes / int(sizeof(T)), 1), kVector = L * int(sizeof(T));
#pragma unroll
  for (int e = 0; e < kEach; e += L) {
    if (e >= s.mine) continue;
    const int v = (s.first + e) / L;
    T* const at = kStaged && s.whole ? staged + swapped<kVector>(v) * L : to + v * L;
    if constexpr (L == 1) {
      *at = made(e);
    } else {
      vec<T, L> y;
#pragma unroll
      for (int v = 0; v < L; ++v) y.at[v] = made(e + v < kEach ? e + v : 0);
      store(at, y);
    }
  }
  if (kStaged && s.whole) {
    __syncwarp();
#pragma unroll 4
    for (int v = threadIdx.x & 31; v < s.all / L; v += 32) {
      const T* const at = staged + swapped<kVector>(v) * L;
      if constexpr (L == 1)
        to[v] = *at;
      else
        store(to + v * L, load<L>(at));
    }
    __syncwarp();
  }
}
template <class T, class F>
__device__ __forceinline__ void store_items(int bytes, T* to, T* staged, const Share& s, F made) {
  if (bytes == 16)
    store_items<16>(to, staged, s, made);
  else if (bytes == 8)
    store_items<8>(to, staged, s, made);
  else if (bytes == 4)
    store_items<4>(to, staged, s, made);
  else
    store_items<1>(to, staged, s, made);
}
/// The block's rows to memory by way of each warp's, or without one.
template <bool Paired, class H>
__device__ __forceinline__ void write_direct(uint4* memory, Out* out, H (&x)[kEach], const Rows& rows,
                                             const Reading& reading, int64 first_row, int there, int kept,
                                             int log_padded, int log_rows) {
  const int log_team = log_padded - log_of(kEach), half = 1 << log_rows >> 1;
  if (kStaged && log_team > 5) __syncthreads();  // rows of several warps have exchanged their items there
  Out* const staged = (Out*)memory + (threadIdx.x & ~31) * kEach;
  const Share s(first_row, there, kept, log_team);
  if constexpr (Paired) {
    elements_of_pairs(x, rows.descending);
    store_items(reading.stored, out + s.begin, staged, s, [&](int e) { return Bits(x[e]); });
    const Share other(first_row + half, there - half, kept, log_team);
    store_items(reading.stored, out + other.begin, staged, other, [&](int e) { return Bits(x[e] >> 16); });
  } else {
    store_items(reading.stored, out + s.begin, staged, s,
                [&](int e) { return Order::out(Item(x[e]), rows.descending); });
  }
}

/// The block's rows, or its run, to memory by way of the block's.
__device__ __forceinline__ void write_staged(uint4* memory, Item* runs, Out* out, const Bits* in,
                                             Bits* values, Held (&x)[kEach], const Rows& rows, int64 first,
                                             int64 distance, int64 first_row, int there, int kept,
                                             int log_padded, int log_rows) {
  const Order::Staged* const staged = (const Order::Staged*)memory;
  __syncthreads();
  stage_tile<kPaired>(memory, x, rows, there, kept, log_padded, log_rows, runs != nullptr);
  __syncthreads();
  if (runs)
    write_adjacent(runs + first * distance, (const Item*)memory, there * kept);
  else if (kValues && !out) {
    // nobody asks for positions
  } else if (rows.inner == 1)
    write_adjacent(out + first_row * rows.kept, staged, there * kept);
  else
    write_across(out, staged, rows, first_row, there, kept, log_rows);
  if (kValues && !runs) write_values(values, staged, in, rows, first_row, there, kept, log_rows);
}
