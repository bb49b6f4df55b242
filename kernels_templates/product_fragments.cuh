// Windows of halves and of doubles by tensor cores, that cannot be copied as product_mma.cuh copies them
// (product_gather.cuh): each warp has a part of the block's tile, in fragments of 16 rows and of 8 columns. A
// lane's columns of a call of the epilogue are adjacent: which column of the tile a column of a fragment is,
// is chosen for that.
#pragma once

typedef FragmentWord<Element>::type Word;

constexpr int kSteps = kHalves ? 16 : 8;                   // of k, of an instruction
constexpr int kRows = kEachM / 16, kColumns = kEachN / 8;  // fragments of a warp
constexpr int kGroup = kWidth / 2;  // fragments that have a call's columns: each has two of a lane's
static_assert(kEachM % 16 == 0 && kEachN % 16 == 0 && kColumns % kGroup == 0 && kDepth % kSteps == 0, "");

struct WarpTile {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 / kTeamsN * kEachM,
            column = threadIdx.x / 32 % kTeamsN * kEachN;
  Sum sums[kRows][kColumns][4] = {};

  /// Where column `n` of the j-th fragment is, of the warp's.
  static __device__ __forceinline__ int column_of(int j, int n) {
    return j / kGroup * (kGroup * 8) + n / 2 * kWidth + j % kGroup * 2 + n % 2;
  }

  __device__ __forceinline__ void multiply(uint32 stage) {
    const uint32 of_rows = stage + (kOfColumns ? kLineBytes : 0),
                 of_columns = stage + (kOfColumns ? 0 : kLineBytes);
#pragma unroll
    for (int k = 0; k < kDepth; k += kSteps) {
      Word a[kRows][4], b[kColumns / 2][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) load_rows(a[i], of_rows, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) load_columns(b[j / 2], of_columns, j, k);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], Element());
    }
  }

  __device__ __forceinline__ void finish(const Args& args, const TilePlace& place) const {
    finish_tile<2 * kRows, kColumns / kGroup>(
        args, place, [&](int i) { return row + 8 * i + lane / 4; },
        [&](int j) { return column + j * (kGroup * 8) + lane % 4 * kWidth; },
        [&](int i, int j, int e) { return sums[i / 2][j * kGroup + e / 2][i % 2 * 2 + e % 2]; });
  }

 private:
  /// Rows first … first + 15 of steps k … k + kSteps - 1.
  template <class T>
  __device__ __forceinline__ void load_rows(T (&to)[4], uint32 from, int first, int k) const {
    if constexpr (kHalves) {
      load_matrices<false>(to, from + ((first + lane % 16) * kPitchTogether + k + lane / 16 * 8) * kBytes);
    } else {
      load_pair<!kOfColumns>(to[0], to[2], from, first + lane / 4, k);
      load_pair<!kOfColumns>(to[1], to[3], from, first + 8 + lane / 4, k);
    }
  }
  /// The j-th fragment of columns and the next one.
  template <class T>
  __device__ __forceinline__ void load_columns(T (&to)[4], uint32 from, int j, int k) const {
    if constexpr (kHalves) {
      const int at = column + column_of(j + lane / 16, lane % 8);
      load_matrices<false>(to, from + (at * kPitchTogether + k + lane / 8 % 2 * 8) * kBytes);
    } else {
      load_pair<kOfColumns>(to[0], to[1], from, column + column_of(j, lane / 4), k);
      load_pair<kOfColumns>(to[2], to[3], from, column + column_of(j + 1, lane / 4), k);
    }
  }
  /// A lane's two elements of a line: of adjacent k, which are not those that its instruction counts as its
  /// own, but are the same of both operands.
  template <bool OfWindows, class T>
  __device__ __forceinline__ void load_pair(T& x, T& y, uint32 from, int line, int k) const {
    const int mine = k + lane % 4 * 2;
    if constexpr (OfWindows && kTogether) {
      load_shared_pair(from + (line * kLinePitch + mine) * kBytes, x, y);
    } else {
      constexpr int kPitch = OfWindows ? kLinePitch : kOtherPitch;
      load_shared_element(from + (mine * kPitch + line) * kBytes, x);
      load_shared_element(from + ((mine + 1) * kPitch + line) * kBytes, y);
    }
  }
};

__device__ __forceinline__ void run_product(const Args& args) { run_tile<WarpTile>(args); }
