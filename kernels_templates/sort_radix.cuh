// Long rows sorted digit by digit, the least significant first: one reading counts the digits of all passes,
// then each pass moves every item to where its digit belongs, behind the earlier items of that digit. A pass
// reads and writes items once: a block learns how many the blocks before it have of each digit from what
// those published (decoupled look-back; Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
// Look-back", 2016; Adinets and Merrill, "Onesweep", 2022). After sort.cuh, reduce.cuh and scan.cuh; the text
// before gives kPerThread, the items a thread moves, and kCounted, the elements a block counts.
#pragma once

constexpr int kThreads = 256, kWarps = kThreads / 32, kDigits = 256, kPasses = sizeof(Bits),
              kChunk = kThreads * kPerThread;

__device__ __forceinline__ int digit_of(Bits key, int pass) { return int(key >> (8 * pass)) & (kDigits - 1); }

extern "C" __global__ void __launch_bounds__(256) clear(uint4* words, int64 count) {
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64)gridDim.x * blockDim.x)
    words[i] = {};
}

/// counts[row][pass][digit], 0 before. A block takes kCounted elements of a row.
constexpr int kCopies = 4;  // of the counters: neighbours with one digit do not wait for each other
extern "C" __global__ void __launch_bounds__(256) count_digits(uint32* counts, const Bits* in, Rows rows) {
  __shared__ uint32 bins[kPasses * kDigits * kCopies];
  const int64 pieces = (rows.length + kCounted - 1) / kCounted;
  for (int64 job = blockIdx.x; job < rows.count * pieces; job += gridDim.x) {
    const int64 row = index_div(job, pieces), begin = (job - row * pieces) * kCounted;
    const int64 end = begin + kCounted < rows.length ? begin + kCounted : rows.length;
    const Bits* const source = begin_in(in, rows, row);
    for (int i = threadIdx.x; i < kPasses * kDigits * kCopies; i += kThreads) bins[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (int64 i = begin + threadIdx.x; i < end; i += kThreads) {
      const Bits key = key_at(source, rows, i);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass)
        atomicAdd(&bins[(pass * kDigits + digit_of(key, pass)) * kCopies + threadIdx.x % kCopies], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kPasses * kDigits; i += kThreads) {
      uint32 n = 0;
#pragma unroll
      for (int c = 0; c < kCopies; ++c) n += bins[i * kCopies + c];
      if (n) atomicAdd(&counts[row * kPasses * kDigits + i], n);
    }
    __syncthreads();
  }
}

/// What a chunk has published about a digit: nothing yet, how many it has itself, or how many the row has up
/// to its end. One word, so that no reader sees a part of it.
constexpr uint32 kOwn = 1u << 30, kUpToHere = 2u << 30, kCount = kOwn - 1;
__device__ __forceinline__ uint32 published(const uint32* at) {
  uint32 x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(at));
  return x;
}
__device__ __forceinline__ void publish(uint32* at, uint32 x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

/// The lanes of the warp that have this digit. Counting votes takes as long for any digits, __match_any_sync
/// longer for more.
__device__ __forceinline__ unsigned int lanes_with(int digit, bool there) {
  unsigned int alike = __ballot_sync(0xffffffffu, there);
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned int with = __ballot_sync(0xffffffffu, set);
    alike &= set ? with : ~with;
  }
  return alike;
}

/// One pass; a block for every chunk of kChunk items of every row, `chunks` in a row of less than 2^30. From
/// `from`, null: from `in`; to `to`, null: to `out`. 0 before: `next`, the chunks that have begun, and
/// `states` [chunk][digit].
constexpr int kResident = sizeof(Item) <= 4 ? 3 : 2;  // blocks, for which there are registers
extern "C" __global__ void __launch_bounds__(256, kResident)
    sort_by_digit(Item* to, Out* out, const Item* from, const Bits* in, Rows rows, const uint32* counts,
                  uint32* states, uint32* next, int64 chunks, int pass, Bits* values) {
  __shared__ Item items[kChunk];
  __shared__ uint32 places[kWarps][kDigits];  // in the chunk, of the next item that a warp has of a digit
  __shared__ uint32 shift[kDigits];           // from a digit's places in the chunk to those in the row
  __shared__ uint32 began;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  // in this order, so that those before it are not waiting for a multiprocessor
  if (t == 0) began = atomicAdd(next, 1u);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) places[w][t] = 0;
  __syncthreads();
  const int64 unit = began, row = index_div(unit, chunks), chunk = unit - row * chunks,
              begin = chunk * kChunk;
  const int count = rows.length - begin < kChunk ? int(rows.length - begin) : kChunk;

  // Warps have neighbouring items, so that the order among equal digits is that of warps, then of steps, then
  // of lanes.
  const Bits* const source = begin_in(in, rows, row);
  Item mine[kPerThread];
  const int first = warp * 32 * kPerThread + lane;
  const int64 position = begin + first, step = 32 * rows.stride;
  if (from) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if (first + j * 32 < count) mine[j] = from[row * rows.length + position + j * 32];
  } else {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if (first + j * 32 < count)
        mine[j] = Order::make(key_at(source + j * step, rows, position), position + j * 32);
  }
  uint32 rank[kPerThread];  // among the warp's items of this digit
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const bool there = first + j * 32 < count;
    const int digit = there ? digit_of(Order::key(mine[j]), pass) : 0;
    const unsigned int alike = lanes_with(digit, there);
    const unsigned int before = alike & ((1u << lane) - 1);
    if (there) rank[j] = places[warp][digit] + __popc(before);
    __syncwarp();
    if (there && before == 0) places[warp][digit] += __popc(alike);
    __syncwarp();
  }
  __syncthreads();

  // From here to the shift, thread t has digit t.
  uint32 own = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const uint32 n = places[w][t];
    places[w][t] = own;
    own += n;
  }
  uint32* const state = states + unit * kDigits + t;
  publish(state, (chunk == 0 ? kUpToHere : kOwn) | own);
  uint32 all;
  const uint32 in_chunk = scan_block<Sum, kThreads>(own, 0u, all);
  const uint32 in_row = scan_block<Sum, kThreads>(counts[(row * kPasses + pass) * kDigits + t], 0u, all);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) places[w][t] += in_chunk;
  uint32 earlier = 0;
  bool complete = chunk == 0;
#pragma unroll 1
  for (int64 back = 1; !complete;) {
    constexpr int kSeen = 2;
    uint32 said[kSeen];
#pragma unroll
    for (int k = 0; k < kSeen; ++k)
      said[k] = published(state - (back + k < chunk ? back + k : chunk) * kDigits);
    bool next_known = true;
#pragma unroll
    for (int k = 0; k < kSeen; ++k) {
      next_known = next_known && !complete && said[k] != 0;
      if (!next_known) continue;
      earlier += said[k] & kCount;
      complete = (said[k] & kUpToHere) != 0;
      ++back;
    }
    // asking again at once takes the multiprocessor from those that are waited for
    if (!complete && !next_known) __nanosleep(200);
  }
  if (chunk > 0) publish(state, kUpToHere | (earlier + own));
  shift[t] = in_row + earlier - in_chunk;
  __syncthreads();

#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
    if (first + j * 32 < count) items[places[warp][digit_of(Order::key(mine[j]), pass)] + rank[j]] = mine[j];
  __syncthreads();
#pragma unroll 4
  for (int i = t; i < count; i += kThreads) {
    const Item item = items[i];
    const int64 place = shift[digit_of(Order::key(item), pass)] + uint32(i);
    if (to)
      to[row * rows.length + place] = item;
    else if (place < rows.kept)
      put(out, values, in, rows, row, place, item);
  }
}
