// Strips of windows (product_strips.cuh) by multiply-adds of single threads: each has a strip beside kBeside
// filters, and reads a segment once for all elements of a filter's row.
#pragma once

__device__ __forceinline__ float add_product(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double add_product(double a, double b, double c) { return __fma_rn(a, b, c); }

/// A thread's elements of a segment.
__device__ __forceinline__ void load_segment(Sum (&x)[kReach], uint32 from) {
  union {
    uint4 words;
    Held elements[kVector];
  } u;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    u.words = load_shared_16(from + i * 16);
#pragma unroll
    for (int e = 0; e < kVector; ++e)
      if (i * kVector + e < kReach) x[i * kVector + e] = widened(u.elements[e]);
  }
}

__device__ __forceinline__ void load_filters(Sum (&x)[kBeside], uint32 from) {
  union {
    uint4 words;
    Sum elements[kSums];
  } u;
#pragma unroll
  for (int i = 0; i < kBeside / kSums; ++i) {
    u.words = load_shared_16(from + i * 16);
#pragma unroll
    for (int e = 0; e < kSums; ++e) x[i * kSums + e] = u.elements[e];
  }
}

/// A strip of results: image, first window of the matrix and how many there are, first filter.
struct Results {
  int image, window, count, filter;
};

__device__ __forceinline__ Sum load_sum(uint32 from, float) { return __uint_as_float(load_shared(from)); }
__device__ __forceinline__ Sum load_sum(uint32 from, double) {
  union {
    uint2 words;
    double x;
  } u;
  u.words = load_shared_8(from);
  return u.x;
}

/// Hands sums to the epilogue, kWidth windows at a time. A warp's lanes exchange them by shared memory, so
/// that adjacent ones store adjacent windows.
__device__ __forceinline__ void finish_strips(const Args& args, const Sum (&sums)[kBeside][kEach],
                                              const Results& mine, uint32 shared) {
  constexpr int kParts = kEach / kWidth;  // of a strip
  const int lane = threadIdx.x % 32;
  const uint32 area = shared + threadIdx.x / 32 * (32 * kEach * kBytes);
  Results of[kParts];
#pragma unroll
  for (int r = 0; r < kParts; ++r) {
    const int q = r * 32 + lane, from = q / kParts, first = q % kParts * kWidth;
    of[r].image = __shfl_sync(~0u, mine.image, from);
    of[r].window = __shfl_sync(~0u, mine.window, from) + first;
    of[r].count = __shfl_sync(~0u, mine.count, from) - first;
    of[r].filter = __shfl_sync(~0u, mine.filter, from);
  }
#pragma unroll
  for (int j = 0; j < kBeside; ++j) {
    union {
      uint4 words[kEach / kSums];
      uint32 single[kEach * kBytes / 4];
      Sum elements[kEach];
    } u;
#pragma unroll
    for (int i = 0; i < kEach; ++i) u.elements[i] = sums[j][i];
#pragma unroll
    for (int i = 0; i < (kEach * kBytes + 3) / 4; ++i)
      if constexpr (kEach % kSums != 0) store_shared(area + lane * (kEach * kBytes) + i * 4, u.single[i]);
#pragma unroll
    for (int i = 0; i < kEach / kSums; ++i)
      if constexpr (kEach % kSums == 0) store_shared(area + lane * (kEach * kBytes) + i * 16, u.words[i]);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kParts; ++r) {
      Sum x[1][kWidth];
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        x[0][e] = load_sum(area + ((r * 32 + lane) * kWidth + e) * kBytes, Sum());
      if (of[r].count > 0 && of[r].filter + j < args.product.m)
        epilogue(args, 0, of[r].image, of[r].filter + j, of[r].window,
                 of[r].count < kWidth ? of[r].count : kWidth, x);
    }
    __syncwarp();
  }
}

struct ThreadSums {
  static constexpr bool kRounds = false;
  const int team = threadIdx.x / kStrips;
  const StripOfTile strip;
  const uint32 segment;
  Sum sums[kBeside][kEach];

  __device__ __forceinline__ ThreadSums(const Windows& w, const Sizes& s)
      : strip(w, threadIdx.x % kStrips), segment(strip.segment(w, s)) {}
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kBeside; ++j)
#pragma unroll
      for (int i = 0; i < kEach; ++i) sums[j][i] = 0;
  }
  __device__ __forceinline__ void multiply(const Windows& w, const Sizes& s, uint32 stage) {
    const int row = w.gap[1] * w.strips_x * kPitch;
    uint32 first = stage + segment, filters = stage + w.depth * s.plane + team * (kBeside * kBytes);
#pragma unroll 1
    for (int channel = 0; channel < w.depth; ++channel, first += s.plane) {
      uint32 from = first;
#pragma unroll 1
      for (int y = 0; y < w.taps[1]; ++y, from += row) {
        Sum x[kReach];
        load_segment(x, from);
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap, filters += kOtherPitch) {
          Sum of[kBeside];
          load_filters(of, filters);
#pragma unroll
          for (int j = 0; j < kBeside; ++j)
#pragma unroll
            for (int i = 0; i < kEach; ++i)
              sums[j][i] = add_product(of[j], x[kShift + i * kStep + tap * kGap], sums[j][i]);
        }
      }
    }
  }

  __device__ __forceinline__ void finish(const Args& args, const Sizes& s, const StripPlace& place) const {
    const Windows& w = args.windows;
    const int first = (place.x + strip.x) * kEach;
    const Results results = {place.image + strip.image, (place.y + strip.y) * w.count[0] + first,
                             strip.is_there(w, place) ? w.count[0] - first : 0,
                             place.beside + team * kBeside};
    finish_strips(args, sums, results, shared_base() + s.results);
  }
};

__device__ __forceinline__ void run_product(const Args& args) { run_strips<ThreadSums>(args); }
