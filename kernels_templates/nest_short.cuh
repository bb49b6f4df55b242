// The main loop of nests over pairs (nest_tiles.cuh) with few steps along k, which are one stage: a thread
// has kEachM rows alone, whose x it keeps in registers, and goes along a part of the columns by kEachN, so
// that no threads have parts of a row. All threads of a block read the same y from shared memory, which has
// kStaged columns at a time; the next ones are loaded while the present ones are combined.
//
// Config, beside that of tiles and rows: kStaged; kColumns is kEachN.
#pragma once

constexpr int kStaged = Config::kStaged;
static_assert(kAlong == 1 && kByWords && kStaged % kEachN == 0, "");

struct alignas(16) NestStaged {
  Real y[kDepth][kStaged + kWords];
};

/// The same number, which the compiler keeps: it would make floats of halves again for each column.
__device__ __forceinline__ Real settled(Real x) {
#ifndef KILN_FAKE_DEVICE
  if constexpr (sizeof(Real) == 4) asm volatile("" : "+f"(x));
#endif
  return x;
}

/// x of a thread's rows. Of steps behind the last one they are some of the others.
__device__ __forceinline__ void load_rows(const Args& args, const NestPlace& at, Real (&x)[kDepth][kEachM]) {
  typedef NestMade<decltype(x_values)>::type X;
  constexpr int kRun = Config::kXRun, kOfRow = Config::kXByK ? kRun : 1, kOfRows = Config::kXByK ? 1 : kRun;
  const NestShape& shape = args.shape;
  NestRun<X, kRun> runs[kDepth / kOfRow][kEachM / kOfRows];
#pragma unroll
  for (int k = 0; k < kDepth; k += kOfRow)
#pragma unroll
    for (int m = 0; m < kEachM; m += kOfRows) {
      X made[1][kRun];
      x_values(args, min_of(at.row_at(m), shape.rows - kOfRows), min_of(k, shape.depth - kOfRow), made);
      runs[k / kOfRow][m / kOfRows].keep(made);
    }
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
#pragma unroll
    for (int m = 0; m < kEachM; ++m)
      x[k][m] = settled(runs[k / kOfRow][m / kOfRows].at(Config::kXByK ? k % kRun : m % kRun));
}

__device__ __forceinline__ void run_nest(const Args& args) {
  typedef NestMade<decltype(y_values)>::type Y;
  __shared__ NestStaged stages[2];
  const NestShape& shape = args.shape;
  const NestPlace at(shape);
  const int tiles = (shape.columns + kStaged - 1) / kStaged, each = tiles / shape.parts,
            more_of = tiles - each * shape.parts,
            begin = (each * at.part + min_of(at.part, more_of)) * kStaged,
            stop = begin + (each + (at.part < more_of ? 1 : 0)) * kStaged;
  NestRuns<Y, kStaged, Config::kYRun, Config::kYByK> next;
  const auto load = [&](int column) {
    next.load(column, shape.columns, 0, shape.depth,
              [&](int j, int k, Y(&made)[1][Config::kYRun]) { y_values(args, j, k, made); });
  };
  NestRows rows;
  rows.begin();
  Real x[kDepth][kEachM];
  load(begin);
  load_rows(args, at, x);
  next.put(stages[0].y);
  __syncthreads();
  int stage = 0;
  for (int first = begin; first < stop; first += kStaged) {
    const bool more = first + kStaged < stop;
    if (more) load(first + kStaged);
    const int end = min_of(kStaged, shape.columns - first);
#pragma unroll 1
    for (int column = 0; column < end; column += kEachN) {
      NestTile r;
      begin_tile(r);
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        if (k >= shape.depth) break;
        Real y[kEachN];
        load_of_tile<kEachN, kEachN, true>(y, stages[stage].y[k] + column, 0);
        combine_values(args, k, x[k], y, r);
      }
      rows.take(args, r, at, first + column);
    }
    stage ^= 1;
    if (more) next.put(stages[stage].y);
    __syncthreads();
  }
  rows.end(args, at);
}
