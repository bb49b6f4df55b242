// Windows of floats that are multiplied exactly (product_gather.cuh), by single threads: each has a small
// tile of sums, whose operands it reads 16 bytes at a time.
#pragma once

union Quad {
  uint4 words;
  Sum elements[kVector];
};

/// A thread's lines of an operand: runs of `Run` adjacent ones, one run for each round of all teams.
template <int Teams, int Run>
struct Owned {
  static __device__ __forceinline__ int line(int team, int i) {
    return i / Run * (Run * Teams) + team * Run + i % Run;
  }
};
constexpr int kRunM = kTogether && !kOfColumns ? 1
                      : kEachM < kVector       ? kEachM
                                               : kVector,
              kRunN = kWidth > kVector ? kWidth : kVector;
typedef Owned<kTeamsM, kRunM> Rows;
typedef Owned<kTeamsN, kRunN> Columns;
static_assert(kEachM % kRunM == 0 && kEachN % kRunN == 0 && kRunN % kVector == 0, "");
static_assert(kRunM == 1 || kRunM % kVector == 0, "");

/// A thread's elements of kVector steps of an operand, x[step][i].
template <bool Together, class Lines, int Each>
__device__ __forceinline__ void load_steps(Sum (&x)[kVector][Each], uint32 from, int pitch, int team, int k) {
  Quad q;
  if constexpr (Together) {
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      q.words = load_shared_16(from + (Lines::line(team, i) * pitch + k) * kBytes);
#pragma unroll
      for (int step = 0; step < kVector; ++step) x[step][i] = q.elements[step];
    }
  } else {
#pragma unroll
    for (int step = 0; step < kVector; ++step)
#pragma unroll
      for (int i = 0; i < Each; i += kVector) {
        q.words = load_shared_16(from + ((k + step) * pitch + Lines::line(team, i)) * kBytes);
#pragma unroll
        for (int e = 0; e < kVector; ++e) x[step][i + e] = q.elements[e];
      }
  }
}

struct ThreadTile {
  const int team_m = threadIdx.x / kTeamsN, team_n = threadIdx.x % kTeamsN;
  Sum sums[kEachM][kEachN] = {};

  __device__ __forceinline__ void multiply(uint32 stage) {
    constexpr int kPitchM = kOfColumns ? kOtherPitch : kLinePitch,
                  kPitchN = kOfColumns ? kLinePitch : kOtherPitch;
    const uint32 of_m = stage + (kOfColumns ? kLineBytes : 0), of_n = stage + (kOfColumns ? 0 : kLineBytes);
#pragma unroll
    for (int k = 0; k < kDepth; k += kVector) {
      Sum a[kVector][kEachM], b[kVector][kEachN];
      load_steps<kTogether && !kOfColumns, Rows>(a, of_m, kPitchM, team_m, k);
      load_steps<kTogether && kOfColumns, Columns>(b, of_n, kPitchN, team_n, k);
#pragma unroll
      for (int step = 0; step < kVector; ++step)
#pragma unroll
        for (int i = 0; i < kEachM; ++i)
#pragma unroll
          for (int j = 0; j < kEachN; ++j) sums[i][j] = __fmaf_rn(a[step][i], b[step][j], sums[i][j]);
    }
  }

  __device__ __forceinline__ void finish(const Args& args, const TilePlace& place) const {
    finish_tile<kEachM, kEachN / kWidth>(
        args, place, [&](int i) { return Rows::line(team_m, i); },
        [&](int j) { return Columns::line(team_n, j * kWidth); },
        [&](int i, int j, int e) { return sums[i][j * kWidth + e]; });
  }
};

__device__ __forceinline__ void run_product(const Args& args) { run_tile<ThreadTile>(args); }
