// Nests over pairs: tiles of r[i, j], which is the reduction over k of a function of x[i, k] and y[j, k].
// What becomes of r is another text: nest_rows.cuh reduces it along j, nest_stores.cuh stores it.
//
// A unit is the texts that hooks use; then, generated, struct Config, struct Args and the hooks; then this
// text, that other one, and the main loop (nest_pairs.cuh). Config: kRows, kColumns, kDepth: a tile, and
// steps along k in shared memory at a time; kEachM, kEachN, kBlocks on a multiprocessor; kByWords: a thread
// has four adjacent columns each time, or one of each strip; kXByK, kYByK: whether k is the axis along which
// x, y are adjacent; kExtreme: r is the greatest (1) or the least (2) value; kCut: r is a sum, made of parts
// of kPart steps, so that sums of many are as exact as those of few; kStart, what r begins with, by the bits
// of a float; kWidth is 1, the length of all arrays that are not mentioned; kDouble: values are doubles.
//
//   void x_values(args, i, k, made)          made: kXRun values of x, adjacent along k or, without kXByK, i;
//                                            reals, or halves that nobody asked for as floats before
//   void y_values(args, j, k, made)          the same of y and kYRun
//   Real combined(args, k, given)            given: x, y, and r so far; an extreme's next value
//
// Rows and columns behind the last one are the last ones again, whole runs of them.
#pragma once

constexpr int kAlong = Config::kColumns / Config::kEachN;  // threads along columns
constexpr int kThreads = Config::kRows / Config::kEachM * kAlong, kBlocksPerSm = Config::kBlocks;
constexpr int kEachM = Config::kEachM, kEachN = Config::kEachN, kDepth = Config::kDepth;
constexpr int kPart = 32;
constexpr int kWords = 4;  // that a thread loads from shared memory at a time
constexpr bool kByWords = Config::kByWords;
static_assert(!kByWords || kEachN % kWords == 0, "");
static_assert(kAlong <= 32 && (kAlong & (kAlong - 1)) == 0, "");

template <bool Double>
struct NestReal {
  typedef float type;
};
template <>
struct NestReal<true> {
  typedef double type;
};
typedef NestReal<Config::kDouble>::type Real;
__device__ __forceinline__ Real real_of(int bits) { return Real(__int_as_float(bits)); }

template <int N>
struct alignas(sizeof(Real) * N < 16 ? sizeof(Real) * N : 16) Words {
  Real at[N];
};
template <int N>
__device__ __forceinline__ Words<N>& words_at(Real* first) {
  return *reinterpret_cast<Words<N>*>(first);
}
template <int N>
__device__ __forceinline__ const Words<N>& words_at(const Real* first) {
  return *reinterpret_cast<const Words<N>*>(first);
}

/// Steps along k of a tile, a row of shared memory for each, a few words longer to spread over the banks.
struct alignas(16) NestStage {
  Real x[kDepth][Config::kRows + kWords], y[kDepth][Config::kColumns + kWords];
};

/// The number of element n of a thread's rows or columns: by words, or one from each of equal strips.
template <int Each, int All, bool ByWords>
__device__ __forceinline__ int place_in_tile(int thread, int n) {
  constexpr int kThreadsAlong = All / Each;
  return ByWords ? n / kWords * (kThreadsAlong * kWords) + thread * kWords + n % kWords
                 : n * kThreadsAlong + thread;
}
template <int Each, int All, bool ByWords>
__device__ __forceinline__ void load_of_tile(Real (&to)[Each], const Real* line, int thread) {
  if constexpr (ByWords) {
#pragma unroll
    for (int n = 0; n < Each; n += kWords) {
      const Words<kWords> words = words_at<kWords>(line + place_in_tile<Each, All, true>(thread, n));
#pragma unroll
      for (int w = 0; w < kWords; ++w) to[n + w] = words.at[w];
    }
  } else {
#pragma unroll
    for (int n = 0; n < Each; ++n) to[n] = line[place_in_tile<Each, All, false>(thread, n)];
  }
}

/// What a hook makes: reals, or halves as they were loaded.
template <class Hook>
struct NestMade;
template <class T, int Run>
struct NestMade<void(const Args&, int, int, T (&)[1][Run])> {
  typedef T type;
};

/// A run of what a hook makes, kept as it was loaded: who asks for the floats of halves, or for halves of a
/// word, waits for the load.
template <class Made, int Run, bool Words = sizeof(Made) == 2 && Run % 2 == 0>
struct NestRun {
  Made values[Run];

  __device__ __forceinline__ void keep(const Made (&made)[1][Run]) {
#pragma unroll
    for (int q = 0; q < Run; ++q) values[q] = made[0][q];
  }
  __device__ __forceinline__ Real at(int q) const {
    if constexpr (sizeof(Made) == 2)
      return to_float(values[q]);
    else
      return values[q];
  }
};
template <class Made, int Run>
struct NestRun<Made, Run, true> {
  uint32 words[Run / 2];

  __device__ __forceinline__ void keep(const Made (&made)[1][Run]) {
#pragma unroll
    for (int w = 0; w < Run / 2; ++w) words[w] = made[0][2 * w].bits | uint32(made[0][2 * w + 1].bits) << 16;
  }
  __device__ __forceinline__ float at(int q) const {
    return to_float(Made{uint16(words[q / 2] >> q % 2 * 16)});
  }
};

/// What a thread loads of an operand for the next steps along k: runs of `Run` values that are adjacent along
/// k (ByK), or along the operand's other axis, of which a tile has `All`.
template <class Made, int All, int Run, bool ByK>
struct NestRuns {
  static constexpr int kRuns = All * kDepth / Run, kCount = (kRuns + kThreads - 1) / kThreads;
  NestRun<Made, Run> values[kCount];

  static __device__ __forceinline__ int line(int n) {
    const int at = n * kThreads + int(threadIdx.x);
    return ByK ? at / (kDepth / Run) : at % (All / Run) * Run;
  }
  static __device__ __forceinline__ int step(int n) {
    const int at = n * kThreads + int(threadIdx.x);
    return ByK ? at % (kDepth / Run) * Run : at / (All / Run);
  }
  /// `get(line, k, values)`, from a line and a step on; `lines` and `depth` exist.
  template <class Get>
  __device__ __forceinline__ void load(int first, int lines, int k, int depth, const Get& get) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      Made made[1][Run];
      get(min_of(first + line(n), lines - (ByK ? 1 : Run)), min_of(k + step(n), depth - (ByK ? Run : 1)),
          made);
      values[n].keep(made);
    }
  }
  template <int Pitch>
  __device__ __forceinline__ void put(Real (&to)[kDepth][Pitch]) const {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (kRuns % kThreads != 0 && n * kThreads + int(threadIdx.x) >= kRuns) continue;
      if constexpr (!ByK && Run == kWords) {
        Words<Run> words;
#pragma unroll
        for (int q = 0; q < Run; ++q) words.at[q] = values[n].at(q);
        words_at<Run>(&to[step(n)][line(n)]) = words;
      } else {
#pragma unroll
        for (int q = 0; q < Run; ++q) to[step(n) + (ByK ? q : 0)][line(n) + (ByK ? 0 : q)] = values[n].at(q);
      }
    }
  }
};

/// Where a thread stands in its block's tiles, and the block among rows.
struct NestPlace {
  int row_blocks, row_block, part, first_row, row, column;

  __device__ __forceinline__ explicit NestPlace(const NestShape& shape) {
    row_blocks = (shape.rows + Config::kRows - 1) / Config::kRows;
    part = int(blockIdx.x) / row_blocks;
    row_block = int(blockIdx.x) - part * row_blocks;  // blocks side by side read the same columns
    first_row = row_block * Config::kRows;
    row = threadIdx.x / kAlong;
    column = threadIdx.x % kAlong;
  }
  __device__ __forceinline__ int row_at(int m) const {
    return first_row + place_in_tile<kEachM, Config::kRows, true>(row, m);
  }
};

typedef Real NestTile[kEachM][kEachN];

/// f(r) of each of a thread's r.
template <class F>
__device__ __forceinline__ void each_of_tile(NestTile& r, const F& f) {
#pragma unroll
  for (int m = 0; m < kEachM; ++m)
#pragma unroll
    for (int n = 0; n < kEachN; ++n) r[m][n] = f(m, n);
}
__device__ __forceinline__ void begin_tile(NestTile& r) {
  each_of_tile(r, [](int, int) { return real_of(Config::kStart); });
}
/// Combines step k of x and y into a thread's r.
__device__ __forceinline__ void combine_values(const Args& args, int k, const Real (&x)[kEachM],
                                               const Real (&y)[kEachN], NestTile& r) {
  each_of_tile(r, [&](int m, int n) {
    const Real given[3][1] = {{x[m]}, {y[n]}, {r[m][n]}};
    const Real value = combined(args, k, given);
    return Config::kExtreme == 1   ? Max::of(value, r[m][n])
           : Config::kExtreme == 2 ? Min::of(value, r[m][n])
                                   : value;
  });
}
