// Tiles of rows sorted in registers by a bitonic network, then (sort_merge.cuh) runs of a row merged by twos.
// Of every run only what can be among the first `kept` of the row goes on. After sort_memory.cuh; the text
// before gives kEach, the adjacent items of a thread, and kFirst: kEach, or fewer where no more are kept of a
// row.
//
// All runs ascend. Two sorted runs become one of twice their size: first each item is compared with its
// mirror image in the other run, then with the items half a run, a quarter … away. Partners are in the same
// thread, in another lane of the warp (shuffles), or in another warp (shared memory). Where a run of `kept`
// items is complete, the mirror images alone are compared, and the lesser of each go on: both runs' threads
// then hold the same items.
//
// Rows pass through shared memory on their way in and out, so that neighbouring threads read and write
// neighbouring elements of memory.
//
// Where kPaired, keys of up to 16 bits stand for themselves and a block has two sets of rows, one in the
// lower halves of the registers and one in the upper: one instruction compares two items of each.
//
// Rows of few elements, of which a thread has whole ones, have a constant length: kLength (0: any).
#pragma once

/// A thread's rows of kLength items, each by Batcher's merge exchange (Knuth, 5.2.2, algorithm M), which has
/// few comparisons for any number: 9 of 5 items.
template <int P, int Q, int R, int D>
__device__ __forceinline__ void merge_exchange(Held (&x)[kEach]) {
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = e % greater(kLength, 1);
    if (i + D < kLength && (i & P) == R) sort_pair(x[e], x[e + D < kEach ? e + D : 0]);
  }
  if constexpr (Q != P) merge_exchange<P, Q / 2, P, Q - P>(x);
}
template <int P, int Top>
__device__ __forceinline__ void sort_rows_in_thread(Held (&x)[kEach]) {
  if constexpr (P > 0) {
    merge_exchange<P, Top, 0, P>(x);
    sort_rows_in_thread<P / 2, Top>(x);
  }
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

/// Several rows of at most `padded` elements a block, or a tile of kTile; padded is a power of two up to
/// kTile, and a block's threads have room for at least one. A run begins every `distance` items of `runs`;
/// null: to `out`. A block has one round: what a loop over several would keep in registers is spilled.
constexpr int kItemRegisters = kEach * int(sizeof(Held)) / 4;
constexpr int kResidentTiles = kItemRegisters <= 16 ? 4
                               : kItemRegisters <= 32
                                   ? 3
                                   : 2;  // blocks of 256 threads, for which there are registers
constexpr int kResidentBlocks = kResidentTiles * 256 / kTileThreads;
extern "C" __global__ void __launch_bounds__(kTileThreads, kResidentBlocks)
    sort_tiles(Item* runs, Out* out, const Bits* in, Rows rows, int64 tiles, int log_padded, int64 distance,
               int log_rows, int kept_threads, Reading reading, Bits* values) {
  __shared__ uint4 memory[(kMemory + 15) / 16];
  Bits* const elements = (Bits*)memory;
  const int padded = 1 << log_padded, together = 1 << log_rows;
  const int64 units = rows.count * tiles, first = (int64)blockIdx.x * together;
  const int there = units - first < together ? int(units - first) : together;
  // `together` is 1 where a row has several tiles
  const int64 first_row = tiles == 1 ? first : index_div(first, tiles);
  const int64 begin = (first - first_row * tiles) * kTile;
  const int length = rows.length - begin < kTile ? int(rows.length - begin) : kTile;
  const int kept = length < rows.kept ? length : int(rows.kept);
  Held x[kEach];
  bool loses;
  const bool own = kMayOwnRows && reading.way == kOwnRows && there == together;
  if (own) {
    loses = read_own<kMayOwnRows, kPaired>(x, in, rows, first_row, OwnRows(log_padded, log_rows));
  } else if (kLength == 0 && reading.way >= kByFour) {
    loses = read_direct<kPaired>(x, in, rows, reading, first_row, begin, there, length, log_padded, log_rows);
  } else {
    read_rows(elements, in, rows, first_row, begin, there, length, log_rows, reading);
    __syncthreads();
    loses = read_shared<kPaired>(x, elements, rows, reading, there, length, log_padded, begin, log_rows);
  }
  if constexpr (kLength > 0) {
    constexpr int kTop = 1 << log_of(greater(kLength - 1, 1)), kBegin = kLength > 1 ? kTop : 0;
    sort_rows_in_thread<kBegin, kTop>(x);
    // What only the others take is not computed.
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (e % greater(kLength, 1) >= kFirst) x[e] = Held();
  } else {
    sort_in_thread(x, padded);
    sort_across_threads(x, (Held*)memory, padded / kEach, kept_threads);
  }
  if (own)
    write_own<kMayOwnRows, kPaired>(out, x, rows, first_row, OwnRows(log_padded, log_rows));
  else if (kLength == 0 && reading.stored > 0)
    write_direct<kPaired>(memory, out, x, rows, reading, first_row, there, kept, log_padded, log_rows);
  else
    write_staged(memory, runs, out, in, values, x, rows, first, distance, first_row, there, kept, log_padded,
                 log_rows);
  if constexpr (Order::mended) {  // (a row is one tile)
    if (__syncthreads_or(loses)) mend_rows((Bits*)out, in, rows, first_row, there, kept);
  }
}
