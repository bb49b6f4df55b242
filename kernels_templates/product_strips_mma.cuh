// Strips of windows (product_strips.cuh) by tensor cores: windows are columns of fragments, eight terms are
// the steps of an instruction. Each warp has some strips beside all filters of the tile. Where a term is in a
// segment is in a table; it is the same for all strips.
//
// Tensor cores take 11 bits of a float. A float is the sum of two such numbers but for its last bit, and of
// the four products of two floats' parts the least is left out: what is lost is less than 2^-21 of a product.
// They also round towards zero when they add up, so that the sums of a stage are added to the others by
// threads.
#pragma once

typedef FragmentWord<Element>::type Word;

constexpr bool kSplit = sizeof(Element) == 4;  // else doubles
constexpr int kWarps = kThreads / 32, kRows = Config::kTileBeside / 16,
              kColumns = kStrips * kEach / 8 / kWarps;  // fragments of a warp
static_assert(kRows * 16 == Config::kTileBeside && kColumns * 8 * kWarps == kStrips * kEach && kWidth <= 2,
              "");

/// Floats rounded to 11 bits, and what that leaves of them; its sign is any, so that what is lost has no
/// bias.
template <int Count, int Each>
__device__ __forceinline__ void split_floats(uint32 (&x)[Count][Each], uint32 (&rest)[Count][Each]) {
#pragma unroll
  for (int i = 0; i < Count; ++i)
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const float whole = __uint_as_float(x[i][e]);
      x[i][e] = (x[i][e] + 0x1000u) & 0xffffe000u;
      rest[i][e] = __float_as_uint(whole - __uint_as_float(x[i][e]));
    }
}

struct WarpSums {
  static constexpr bool kRounds = kSplit;
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, first = threadIdx.x / 32 * (kColumns * 8);
  const uint32 terms;     // a term's place in a segment
  uint32 here[kColumns];  // of the lane's column of each fragment, of its first element, in a stage
  Sum sums[kRows][kColumns][4];

  __device__ __forceinline__ WarpSums(const Windows& w, const Sizes& s) : terms(shared_base() + s.results) {
    const int row = w.gap[1] * w.strips_x * kPitch;
    for (int i = threadIdx.x; i < s.lines; i += kThreads) {
      const int channel = divide(i, s.terms), rest = i - channel * s.terms, y = divide(rest, kTaps);
      const int at = channel * s.plane + y * row + (rest - y * kTaps) * (kGap * kHeld);
      store_shared(terms + i * 4, uint32(channel < w.depth ? at : 0));
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) here[j] = place_of(w, s, first + j * 8 + g);
  }
  static __device__ __forceinline__ uint32 place_of(const Windows& w, const Sizes& s, int column) {
    return StripOfTile(w, column / kEach).segment(w, s) + (kShift + column % kEach * kStep) * kHeld;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows * kColumns * 4; ++i) sum(i) = 0;
  }

  __device__ __forceinline__ void multiply(const Windows& w, const Sizes& s, uint32 stage) {
    if constexpr (kSplit) {
      Sum of_stage[kRows][kColumns][4] = {};
      multiply_to(of_stage, w, s, stage);
#pragma unroll
      for (int i = 0; i < kRows * kColumns * 4; ++i)
        sum(i) += of_stage[i / 4 / kColumns][i / 4 % kColumns][i % 4];
    } else {
      multiply_to(sums, w, s, stage);
    }
  }

  __device__ __forceinline__ bool is_finite() {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kRows * kColumns * 4; ++i) finite &= sum(i) - sum(i) == 0;
    return finite;
  }

  /// The same by single threads.
  __device__ __forceinline__ void multiply_exactly(const Windows& w, const Sizes& s, uint32 stage) {
    const uint32 filters = stage + w.depth * s.plane + g * kBytes;
#pragma unroll 1
    for (int k = 0; k < w.depth * s.terms; ++k) {
      const uint32 term = stage + load_shared(terms + k * 4);
      Word a[2 * kRows];
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i)
        load_shared_element(filters + k * kOtherPitch + 8 * i * kBytes, a[i]);
#pragma unroll 1
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          Word b;
          load_shared_element(term + place_of(w, s, first + j * 8 + 2 * q + e), b);
#pragma unroll
          for (int i = 0; i < 2 * kRows; ++i) add_exactly(i, j, e, a[i], b);
        }
    }
  }

  __device__ __forceinline__ void finish(const Args& args, const Sizes&, const StripPlace& place) const {
    const Windows& w = args.windows;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int column = first + j * 8 + 2 * q;
      const StripOfTile strip(w, column / kEach);
      const int x = (place.x + strip.x) * kEach + column % kEach, image = place.image + strip.image,
                window = (place.y + strip.y) * w.count[0] + x,
                count = strip.is_there(w, place) ? w.count[0] - x : 0;
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const int filter = place.beside + 8 * i + g;
        if (filter >= args.product.m) continue;
#pragma unroll
        for (int e = 0; e < 2; e += kWidth) {
          Sum y[1][kWidth];
#pragma unroll
          for (int v = 0; v < kWidth; ++v) y[0][v] = sums[i / 2][j][i % 2 * 2 + e + v];
          if (count > e)
            epilogue(args, 0, image, filter, window + e, count - e < kWidth ? count - e : kWidth, y);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ Sum& sum(int i) { return sums[i / 4 / kColumns][i / 4 % kColumns][i % 4]; }

  static __device__ __forceinline__ float rounded_once(uint32 a, uint32 b, float c) {
    return __fmaf_rn(__uint_as_float(a), __uint_as_float(b), c);
  }
  static __device__ __forceinline__ double rounded_once(double a, double b, double c) {
    return __fma_rn(a, b, c);
  }
  __device__ __forceinline__ void add_exactly(int i, int j, int e, Word a, Word b) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column)  // no array is indexed by what changes
      if (column == j) {
        Sum& to = sums[i / 2][column][i % 2 * 2 + e];
        to = rounded_once(a, b, to);
      }
  }

  __device__ __forceinline__ void multiply_to(Sum (&to)[kRows][kColumns][4], const Windows& w, const Sizes& s,
                                              uint32 stage) const {
    const uint32 filters = stage + w.depth * s.plane + g * kBytes;
#pragma unroll 1
    for (int k = 2 * q; k < s.lines; k += 8) {
      uint32 term[2];
      load_shared_pair(terms + k * 4, term[0], term[1]);
      Word a[kRows][4], b[kColumns][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          load_shared_element(filters + (k + e / 2) * kOtherPitch + (16 * i + e % 2 * 8) * kBytes, a[i][e]);
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) load_shared_element(stage + here[j] + term[e], b[j][e]);
      multiply_all(to, a, b);
    }
  }
  template <class T>
  static __device__ __forceinline__ void multiply_all(Sum (&to)[kRows][kColumns][4], T (&a)[kRows][4],
                                                      T (&b)[kColumns][2]) {
    if constexpr (kSplit) {
      T rest_a[kRows][4], rest_b[kColumns][2];
      split_floats(a, rest_a);
      split_floats(b, rest_b);
      multiply_fragments(to, rest_a, b);
      multiply_fragments(to, a, rest_b);
    }
    multiply_fragments(to, a, b);
  }
  template <class T>
  static __device__ __forceinline__ void multiply_fragments(Sum (&to)[kRows][kColumns][4],
                                                            const T (&a)[kRows][4],
                                                            const T (&b)[kColumns][2]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) multiply_add(to[i][j], a[i], b[j][0], b[j][1], Sum());
  }
};

__device__ __forceinline__ void run_product(const Args& args) { run_strips<WarpSums>(args); }
