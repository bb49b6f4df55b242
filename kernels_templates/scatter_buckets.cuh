// Whole rows that are added to more rows than the second cache has room for: values are moved to buckets
// first, each for as many rows of the output as a block has sums of in shared memory; then a block adds up a
// bucket, and writes its rows once. So all memory is read and written along its lines, whatever the indices
// are. After scatter.cuh and scatter_atomic.cuh.
#pragma once

/// The library's Buckets.
struct Buckets {
  int64 rows, count;          // of the output; of the values
  int64 width, value_stride;  // elements of a row; from a row of values to the next
  int log_rows, buckets;      // rows of the output of a bucket, as a power of two; of them in all
  int piece;                  // values of a bucket, at most, that one block adds up
  int inverse;                // index_div's number for the width
};

constexpr int kMostBuckets = 4096, kMoving = 1024, kOfThread = 16, kMoved = kMoving * kOfThread;
constexpr int kAdding = 1024;  // threads of a block that adds up values of a bucket

__device__ __forceinline__ uint4* shared_memory() {
#ifdef KILN_FAKE_DEVICE
  __shared__ uint4 memory[1 << 14];
  return memory;
#else
  extern __shared__ uint4 dynamic_memory[];
  return dynamic_memory;
#endif
}

__device__ __forceinline__ uint32 pieces_of(uint32 count, const Buckets& s) {
  return count > uint32(s.piece) ? (count + s.piece - 1) / s.piece : 1;
}

/// The sum over all threads of a block of 1,024 before this one; and over all of them.
__device__ __forceinline__ uint32 sum_before(uint32 x, uint32& all) {
  __shared__ uint32 sums[33];
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const auto scan = [&](uint32 y) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const uint32 other = __shfl_up_sync(0xffffffffu, y, apart);
      if (lane >= apart) y += other;
    }
    return y;
  };
  const uint32 up_to_here = scan(x);
  if (lane == 31) sums[warp] = up_to_here;
  __syncthreads();
  if (warp == 0) {
    const uint32 of_warp = sums[lane], up_to = scan(of_warp);
    sums[lane] = up_to - of_warp;
    if (lane == 31) sums[32] = up_to;
  }
  __syncthreads();
  const uint32 before = sums[warp] + up_to_here - x;
  all = sums[32];
  __syncthreads();
  return before;
}

/// How many values each bucket will have.
extern "C" __global__ void __launch_bounds__(1024)
    count_buckets(uint32* counts, const Index* indices, Buckets s) {
  __shared__ uint32 mine[kMostBuckets];
  for (int b = threadIdx.x; b < s.buckets; b += kMoving) mine[b] = 0;
  __syncthreads();
  constexpr int kAtOnce = 8;
  const int64 block = kAtOnce * kMoving;
  for (int64 first = blockIdx.x * block + threadIdx.x; first < s.count; first += gridDim.x * block) {
    Index index[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64 i = first + j * kMoving;
      index[j] = indices[i < s.count ? i : s.count - 1];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      int64 row;
      if (first + j * kMoving < s.count && resolve(index[j], s.rows, row))
        atomicAdd(mine + (row >> s.log_rows), 1u);
    }
  }
  __syncthreads();
  for (int b = threadIdx.x; b < s.buckets; b += kMoving)
    if (mine[b]) atomicAdd(counts + b, mine[b]);
}

/// Where buckets begin, and which of them the blocks that add add up, in pieces. One block.
extern "C" __global__ void __launch_bounds__(1024)
    begin_buckets(uint32* begins, uint32* taken, uint32* units, uint32* totals, const uint32* counts,
                  Buckets s) {
  constexpr int kOf = kMostBuckets / 1024;
  uint32 count[kOf], values = 0, pieces = 0;
#pragma unroll
  for (int k = 0; k < kOf; ++k) {
    const int b = threadIdx.x * kOf + k;
    count[k] = b < s.buckets ? counts[b] : 0;
    values += count[k];
    if (b < s.buckets) pieces += pieces_of(count[k], s);
  }
  uint32 all_values, all_pieces;
  uint32 begin = sum_before(values, all_values), unit = sum_before(pieces, all_pieces);
#pragma unroll
  for (int k = 0; k < kOf; ++k) {
    const int b = threadIdx.x * kOf + k;
    if (b >= s.buckets) continue;
    begins[b] = taken[b] = begin;
    const uint32 end = begin + count[k];
    do {
      units[2 * unit] = uint32(b);
      units[2 * unit + 1] = begin;
      ++unit;
      begin = end - begin > uint32(s.piece) ? begin + s.piece : end;
    } while (begin < end);
  }
  if (threadIdx.x == 0) {
    begins[s.buckets] = all_values;
    totals[0] = all_pieces;
  }
}

/// From how many values a block has for each bucket (`begins`): where they begin in its order, what `shift`s
/// these places to those in the buckets, which it takes, and how many values there are.
__device__ __forceinline__ uint32 begin_runs(uint32* begins, uint32* shift, uint32* taken, const Buckets& s) {
  constexpr int kOf = kMostBuckets / kMoving;
  uint32 count[kOf], sum = 0, all;
#pragma unroll
  for (int k = 0; k < kOf; ++k) {
    const int b = threadIdx.x * kOf + k;
    count[k] = b < s.buckets ? begins[b] : 0;
    sum += count[k];
  }
  uint32 begin = sum_before(sum, all);
#pragma unroll
  for (int k = 0; k < kOf; ++k) {
    const int b = threadIdx.x * kOf + k;
    if (b < s.buckets) {
      begins[b] = begin;
      if (count[k]) shift[b] = atomicAdd(taken + b, count[k]) - begin;
    }
    begin += count[k];
  }
  __syncthreads();
  return all;
}

/// Values to their buckets: a block orders its part of them by bucket, so that it writes runs. Word: what
/// rows are moved by.
template <class Word>
__device__ __forceinline__ void move_rows(uint16* places, Word* moved, uint32* taken, const Index* indices,
                                          const Word* values, const Buckets& s) {
  uint32* const rows = (uint32*)shared_memory();
  uint32* const begins = rows + kMoved;
  uint32* const shift = begins + kMostBuckets;  // from places in the block's order to those in a bucket
  uint16* const from = (uint16*)(shift + kMostBuckets);
  const int64 first = int64(blockIdx.x) * kMoved;
  for (int b = threadIdx.x; b < s.buckets; b += kMoving) begins[b] = 0;
  __syncthreads();
  Index index[kOfThread];
  uint32 row[kOfThread], rank[kOfThread];
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const int64 i = first + k * kMoving + threadIdx.x;
    index[k] = indices[i < s.count ? i : s.count - 1];
  }
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    int64 position;
    const bool there = first + k * kMoving + threadIdx.x < s.count && resolve(index[k], s.rows, position);
    row[k] = there ? uint32(position) : ~0u;
    if (there) rank[k] = atomicAdd(begins + (row[k] >> s.log_rows), 1u);
  }
  __syncthreads();
  const uint32 all = begin_runs(begins, shift, taken, s);
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    if (row[k] == ~0u) continue;
    const uint32 to = begins[row[k] >> s.log_rows] + rank[k];
    rows[to] = row[k];
    from[to] = uint16(k * kMoving + threadIdx.x);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < int(all); i += kMoving) {
    const uint32 r = rows[i];
    places[shift[r >> s.log_rows] + i] = uint16(r & ((1u << s.log_rows) - 1));
  }
  const int width = int(s.width), words = int(all) * width;
  const Word* const mine = values + first * s.value_stride;
#pragma unroll 4
  for (int j = threadIdx.x; j < words; j += kMoving) {
    const int i = index_div(j, width, s.inverse), w = j - i * width;
    moved[(int64(shift[rows[i] >> s.log_rows]) + i) * width + w] = mine[int64(from[i]) * s.value_stride + w];
  }
}
extern "C" __global__ void __launch_bounds__(1024)
    move_elements(uint16* places, Bits* moved, uint32* taken, const Index* indices, const Bits* values,
                  Buckets s) {
  move_rows(places, moved, taken, indices, values, s);
}
extern "C" __global__ void __launch_bounds__(1024)
    move_words(uint16* places, uint32* moved, uint32* taken, const Index* indices, const uint32* values,
               Buckets s) {
  move_rows(places, moved, taken, indices, values, s);
}
extern "C" __global__ void __launch_bounds__(1024)
    move_vectors(uint16* places, uint4* moved, uint32* taken, const Index* indices, const uint4* values,
                 Buckets s) {
  move_rows(places, moved, taken, indices, values, s);
}

/// One of several blocks' sums of a bucket to those of them all. The last, which is told so, has them in
/// `sums` then, with the rows' own elements (`from`).
__device__ __forceinline__ bool add_in_turn(Kept* sums, volatile Kept* all, const Element* from, int count,
                                            uint32* turns, uint32 pieces) {
  __shared__ uint32 turn;
  if (threadIdx.x == 0) {
    while (atomicCAS(turns, 0u, 1u) != 0) {
    }
    __threadfence();
    turn = atomicAdd(turns + 1, 1u);
  }
  __syncthreads();
  const bool begins = turn == 0, ends = turn == pieces - 1;
  for (int i = threadIdx.x; i < count; i += kAdding) {
    if (!begins) sums[i] = met<kHow>(Kept(all[i]), sums[i]);
    if (!ends) all[i] = sums[i];
    Kept before;
    assign(before, from[i]);
    if (ends) sums[i] = met<kHow>(before, sums[i]);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicCAS(turns, 1u, 0u);
  return ends;
}

/// What one bucket's values add up to. Where they are several blocks', these add to `beside` one after the
/// other, of which the last writes the rows.
extern "C" __global__ void __launch_bounds__(1024)
    add_buckets(Element* out, const Element* x, Kept* beside, const uint16* places, const Element* moved,
                const uint32* begins, const uint32* units, const uint32* totals, uint32* turns, Buckets s) {
  Kept* const sums = (Kept*)shared_memory();
  if (blockIdx.x >= totals[0]) return;
  const uint32 bucket = units[2 * blockIdx.x], begin = units[2 * blockIdx.x + 1], first = begins[bucket],
               after = begins[bucket + 1];
  const uint32 end = after - begin > uint32(s.piece) ? begin + s.piece : after,
               pieces = pieces_of(after - first, s);
  const int64 base = int64(bucket) << s.log_rows, left = s.rows - base;
  const int width = int(s.width), here = int(left < 1 << s.log_rows ? left : 1 << s.log_rows) * width;
  const Element* const from = x + base * width;
  Element* const to = out + base * width;
  for (int i = threadIdx.x; i < here; i += kAdding) {
    if (pieces == 1)
      assign(sums[i], from[i]);
    else
      sums[i] = -Kept(0);
  }
  __syncthreads();
  constexpr int kAtOnce = 8;
  const uint16* const place = places + begin;
  const Element* const value = moved + int64(begin) * width;
  const int count = int(end - begin) * width;
#pragma unroll 1
  for (int j = threadIdx.x; j < count; j += kAtOnce * kAdding) {
    int at[kAtOnce];
    Element y[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int e = j + k * kAdding < count ? j + k * kAdding : count - 1, i = index_div(e, width, s.inverse);
      at[k] = int(place[i]) * width + e - i * width;
      y[k] = value[e];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (j + k * kAdding >= count) continue;
      Kept kept;
      assign(kept, y[k]);
      meet<kHow>(sums + at[k], kept);
    }
  }
  __syncthreads();
  if (pieces > 1 && !add_in_turn(sums, beside + base * width, from, here, turns + 2 * bucket, pieces)) return;
  for (int i = threadIdx.x; i < here; i += kAdding) {
    Element element = from[i];
    Kept before;
    assign(before, element);
    if (same_bits<KeptBits>(before) != same_bits<KeptBits>(sums[i])) assign(element, sums[i]);
    to[i] = element;
  }
}
