// Tiles of rows sorted in registers by a bitonic network, then (sort_merge.cuh) runs of a row merged by twos.
// Of every run only what can be among the first `kept` of the row goes on. After sort.cuh; the text before
// gives kEach, the adjacent items of a thread, and kFirst: kEach, or fewer where no more are kept of a row.
//
// All runs ascend. Two sorted runs become one of twice their size: first each item is compared with its
// mirror image in the other run, then with the items half a run, a quarter … away. Partners are in the same
// thread, in another lane of the warp (shuffles), or in another warp (shared memory). Where a run of `kept`
// items is complete, the mirror images alone are compared, and the lesser of each go on: both runs' threads
// then hold the same items.
//
// Rows pass through shared memory on their way in and out, so that neighbouring threads read and write
// neighbouring elements of memory.
#pragma once

constexpr int kTileThreads = 256, kTile = kTileThreads * kEach;

/// Items in registers: none narrower than a register.
template <class T>
struct held {
  typedef T type;
};
template <>
struct held<uint8> {
  typedef uint32 type;
};
template <>
struct held<uint16> {
  typedef uint32 type;
};
typedef held<Item>::type Held;

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
constexpr int kMemory = greater(spread<Held>(kTile) * int(sizeof(Held)),
                                greater(spread<Item>(kTile) * int(sizeof(Item)),
                                        greater(spread<Bits>(kTile) * int(sizeof(Bits)),
                                                spread<Order::Staged>(kTile) * int(sizeof(Order::Staged)))));

__device__ __forceinline__ void sort_pair(Held& a, Held& b) {
  const bool swap = b < a;
  const Held least = swap ? b : a, greatest = swap ? a : b;
  a = least;
  b = greatest;
}
__device__ __forceinline__ uint32 from_lane(uint32 x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ uint64 from_lane(uint64 x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ Wide from_lane(Wide x, int mask) {
  return {from_lane(x.key, mask), from_lane(x.position, mask)};
}
__device__ __forceinline__ Held lesser(const Held& a, const Held& b, bool least) {
  return (b < a) == least ? b : a;
}

/// Runs of up to kEach items, and no longer than a row, in each thread.
__device__ __forceinline__ void sort_in_thread(Held (&x)[kEach], int padded) {
#pragma unroll
  for (int size = 2; size <= kEach; size *= 2) {
    if (size > padded) continue;
    const int run = size / 2 < kFirst ? size / 2 : kFirst;  // items of each of the two
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if ((e & (size - 1)) >= run) continue;
      const int at = e & (size - 1);
      sort_pair(x[e], x[e - at + size / 2 + run - 1 - at]);
    }
    const int merged = size < kFirst ? size : kFirst;
#pragma unroll
    for (int apart = kEach / 2; apart > 0; apart /= 2) {
      if (apart >= run) continue;
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if ((e & (size - 1)) < merged && (e & apart) == 0) sort_pair(x[e], x[e + apart]);
    }
  }
}

/// Each thread and the one whose number differs in `mask` keep the lesser or the greater of their items,
/// compared with those at the same place or, Mirrored, from the other end.
template <bool Mirrored>
__device__ __forceinline__ void exchange_in_warp(Held (&x)[kEach], int mask, bool least) {
#pragma unroll
  for (int e = 0; e < kFirst / 2; ++e) {
    const Held a = x[e], b = x[kFirst - 1 - e];
    x[e] = lesser(a, from_lane(Mirrored ? b : a, mask), least);
    x[kFirst - 1 - e] = lesser(b, from_lane(Mirrored ? a : b, mask), least);
  }
}
/// The same between warps. All threads of the block take part.
__device__ __forceinline__ void exchange_in_block(Held (&x)[kEach], Held* memory, int mask, bool mirrored,
                                                  bool least) {
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kFirst; ++e) memory[spread<Held>(threadIdx.x * kFirst + e)] = x[e];
  __syncthreads();
  const int other = (threadIdx.x ^ mask) * kFirst, flip = mirrored ? kFirst - 1 : 0;
#pragma unroll
  for (int e = 0; e < kFirst; ++e) x[e] = lesser(x[e], memory[spread<Held>(other + (e ^ flip))], least);
}

/// Rows of `threads` threads each, of which as many items are kept as `kept_threads` have.
__device__ __forceinline__ void sort_across_threads(Held (&x)[kEach], Held* memory, int threads,
                                                    int kept_threads) {
#pragma unroll 1
  for (int size = 2; size <= threads; size *= 2) {
    const bool complete = size > kept_threads;
    const int run = complete ? kept_threads : size / 2;
    int mask = complete ? (size / 2) ^ (run - 1) : size - 1;
    bool least = complete || (threadIdx.x & (size / 2)) == 0;
    // the mirror images first, then half a run, a quarter … away
#pragma unroll 1
    for (int apart = run; apart > 0;) {
      const bool mirrored = apart == run;
      if (mask >= 32)
        exchange_in_block(x, memory, mask, mirrored, least);
      else if (mirrored)
        exchange_in_warp<true>(x, mask, least);
      else
        exchange_in_warp<false>(x, mask, least);
      mask = apart /= 2;
      least = (threadIdx.x & mask) == 0;
    }
#pragma unroll
    for (int apart = kFirst / 2; apart > 0; apart /= 2)
#pragma unroll
      for (int e = 0; e < kFirst; ++e)
        if ((e & apart) == 0) sort_pair(x[e], x[e + apart]);
  }
}

/// Items of a run: of `span` elements, or what is left of the row.
__device__ __forceinline__ int64 run_length(const Rows& rows, int64 run, int64 span) {
  const int64 left = rows.length - run * span, covered = left < 0 ? 0 : left < span ? left : span;
  return covered < rows.kept ? covered : rows.kept;
}

/// How a block reads its rows.
enum ReadingWay { kAlongRows, kAcrossRows, kWholeWords };
struct Reading {
  int width, inverse;  // elements of a row, and index_div's number for it
  int way;             // kAcrossRows: the same element of all rows first; kWholeWords: rows are adjacent
};

/// `there` rows, to elements[row * width + at].
__device__ __forceinline__ void read_rows(Bits* elements, const Bits* in, const Rows& rows, int64 first_row,
                                          int64 begin, int there, int length, int log_rows,
                                          const Reading& reading) {
  if (reading.way == kWholeWords) {
    typedef whole<sizeof(Bits)>::type Word;
    constexpr int kOfWord = sizeof(Word) / sizeof(Bits), kWords = kEach / kOfWord;
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
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = To(from[spread<From>(i)]);
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

/// Whether an element's key stands for other bits than the element's: of a negative zero, of a NaN.
__device__ __forceinline__ bool loses_bits(Bits element) {
  typedef ::element<Element> E;
  return (element == E::sign) | (is_nan<Element>(element) & (element != E::nan));
}

/// A thread's items from the elements of the block's rows; whether their keys stand for other elements. What
/// is read of places without an element counts for nothing: without branches all reads are under way
/// together.
__device__ __forceinline__ bool read_items(Held (&x)[kEach], const Bits* elements, const Rows& rows,
                                           const Reading& reading, int there, int length, int log_padded,
                                           int64 begin) {
  bool loses = false;
  const int first = threadIdx.x * kEach, inside = (1 << log_padded) - 1;
  if (reading.width == inside + 1 && length == inside + 1 && there << log_padded >= first + kEach) {
    const Bits* const mine = elements + spread<Bits>(first);  // which no word is left out of
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      x[e] = Order::make(ordered_key(mine[e], rows), begin + (first + e & inside));
      if (Order::mended) loses |= loses_bits(mine[e]);
    }
    return loses;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int row = first + e >> log_padded, at = first + e & inside;
    const Bits element = elements[spread<Bits>(row * reading.width + at)];
    const Held item = Order::make(ordered_key(element, rows), begin + at);
    const bool is_there = row < there && at < length;
    x[e] = is_there ? item : Held(Order::last());
    if (Order::mended) loses |= is_there & loses_bits(element);
  }
  return loses;
}
/// A thread's items, as `made` of them, to where those of each row that are kept follow one another.
template <class T, class F>
__device__ __forceinline__ void stage_items(T* to, const Held (&x)[kEach], int there, int kept,
                                            int log_padded, F made) {
  const int first = threadIdx.x * kEach, inside = (1 << log_padded) - 1;
  if (kept == inside + 1 && there << log_padded >= first + kEach && 128 % (kEach * sizeof(T)) == 0) {
    T* const mine = to + spread<T>(first);
#pragma unroll
    for (int e = 0; e < kEach; ++e) mine[e] = made(x[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int row = first + e >> log_padded, at = first + e & inside;
    if (row < there && at < kept) to[spread<T>(row * kept + at)] = made(x[e]);
  }
}

/// Of a row's results those that `is` holds for, which stand one after the other, become the first such
/// elements of the row. A warp's work.
template <class F>
__device__ __forceinline__ void mend(Bits* results, int64 apart, int kept, const Bits* row, const Rows& rows,
                                     F is) {
  const int lane = threadIdx.x & 31;
  int begin = 0, count = 0;
  for (int first = 0; first < kept; first += 32) {
    const int i = first + lane;
    const uint32 here = __ballot_sync(0xffffffffu, i < kept && is(results[(i < kept ? i : 0) * apart]));
    if (count == 0 && here) begin = first + __ffs(int(here)) - 1;
    count += __popc(here);
  }
  int met = 0;
  for (int first = 0; met < count; first += 32) {
    const int i = first + lane;
    const Bits element = row[(i < rows.length ? i : 0) * rows.stride];
    const bool chosen = i < rows.length && is(element);
    const uint32 here = __ballot_sync(0xffffffffu, chosen);
    const int number = met + __popc(here & ((1u << lane) - 1));
    if (chosen && number < count) results[(begin + number) * apart] = element;
    met += __popc(here);
  }
}
/// The block's rows, whose results have been written: zeros and NaN in the order of their positions.
__device__ __forceinline__ void mend_rows(Bits* out, const Bits* in, const Rows& rows, int64 first_row,
                                          int there, int kept) {
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < there; r += blockDim.x / 32) {
    Bits* const results = begin_out(out, rows, first_row + r);
    const Bits* const row = begin_in(in, rows, first_row + r);
    mend(results, rows.inner, kept, row, rows, [](Bits x) { return Bits(x & ~element<Element>::sign) == 0; });
    mend(results, rows.inner, kept, row, rows, [](Bits x) { return is_nan<Element>(x); });
  }
}

/// Several rows of at most `padded` elements a block, or a tile of kTile; padded is a power of two up to
/// kTile, and a block's threads have room for at least one. A run begins every `distance` items of `runs`;
/// null: to `out`. A block has one round: what a loop over several would keep in registers is spilled.
constexpr int kResidentTiles = sizeof(Held) == 4 ? 4 : 3;  // blocks, for which there are registers
extern "C" __global__ void __launch_bounds__(256, kResidentTiles)
    sort_tiles(Item* runs, Out* out, const Bits* in, Rows rows, int64 tiles, int log_padded, int64 distance,
               int log_rows, int kept_threads, Reading reading, Bits* values) {
  __shared__ uint4 memory[(kMemory + 15) / 16];
  Bits* const elements = (Bits*)memory;
  Item* const items = (Item*)memory;
  Order::Staged* const staged = (Order::Staged*)memory;
  const int padded = 1 << log_padded, together = 1 << log_rows;
  const int64 units = rows.count * tiles, first = (int64)blockIdx.x * together;
  const int there = units - first < together ? int(units - first) : together;
  // `together` is 1 where a row has several tiles
  const int64 first_row = tiles == 1 ? first : index_div(first, tiles);
  const int64 begin = (first - first_row * tiles) * kTile;
  const int length = rows.length - begin < kTile ? int(rows.length - begin) : kTile;
  const int kept = length < rows.kept ? length : int(rows.kept);
  read_rows(elements, in, rows, first_row, begin, there, length, log_rows, reading);
  __syncthreads();
  Held x[kEach];
  const bool loses = read_items(x, elements, rows, reading, there, length, log_padded, begin);
  sort_in_thread(x, padded);
  sort_across_threads(x, (Held*)memory, padded / kEach, kept_threads);
  __syncthreads();
  if (runs)
    stage_items(items, x, there, kept, log_padded, [](const Held& item) { return Item(item); });
  else
    stage_items(staged, x, there, kept, log_padded,
                [&](const Held& item) { return Order::Staged(Order::out(Item(item), rows.descending)); });
  __syncthreads();
  if (runs)
    write_adjacent(runs + first * distance, items, there * kept);
  else if (kValues && !out) {
    // nobody asks for positions
  } else if (rows.inner == 1)
    write_adjacent(out + first_row * rows.kept, staged, there * kept);
  else
    write_across(out, staged, rows, first_row, there, kept, log_rows);
  if (kValues && !runs) write_values(values, staged, in, rows, first_row, there, kept, log_rows);
  if constexpr (Order::mended) {  // (a row is one tile)
    if (__syncthreads_or(loses)) mend_rows((Bits*)out, in, rows, first_row, there, kept);
  }
}
