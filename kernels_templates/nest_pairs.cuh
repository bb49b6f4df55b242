// The main loop of nests over pairs (nest_tiles.cuh): a block goes along a part of the columns by tiles, of
// which each thread has kEachM x kEachN values of r in registers. The next steps along k, or the first ones
// of the next tile, are loaded while the present ones are combined.
#pragma once

/// What a thread loads of both operands.
struct NestOperands {
  typedef NestMade<decltype(x_values)>::type X;
  typedef NestMade<decltype(y_values)>::type Y;
  NestRuns<X, Config::kRows, Config::kXRun, Config::kXByK> x;
  NestRuns<Y, Config::kColumns, Config::kYRun, Config::kYByK> y;

  __device__ __forceinline__ void load(const Args& args, int row, int column, int step) {
    const NestShape& shape = args.shape;
    x.load(row, shape.rows, step, shape.depth,
           [&](int i, int k, X(&made)[1][Config::kXRun]) { x_values(args, i, k, made); });
    y.load(column, shape.columns, step, shape.depth,
           [&](int j, int k, Y(&made)[1][Config::kYRun]) { y_values(args, j, k, made); });
  }
  __device__ __forceinline__ void put(NestStage& to) const {
    x.put(to.x);
    y.put(to.y);
  }
};

/// Combines step k of a stage, whose first one is `first`, into a thread's r.
__device__ __forceinline__ void combine_step(const Args& args, const NestStage& stage, int first, int k,
                                             const NestPlace& at, NestTile& r) {
  Real x[kEachM], y[kEachN];
  load_of_tile<kEachM, Config::kRows, true>(x, stage.x[k], at.row);
  load_of_tile<kEachN, Config::kColumns, kByWords>(y, stage.y[k], at.column);
  combine_values(args, first + k, x, y, r);
}
__device__ __forceinline__ void combine_stage(const Args& args, const NestStage& stage, int first,
                                              const NestPlace& at, NestTile& r) {
  const int steps = args.shape.depth - first;
  if (steps >= kDepth) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) combine_step(args, stage, first, k, at, r);
  } else {
    for (int k = 0; k < steps; ++k) combine_step(args, stage, first, k, at, r);
  }
}

__device__ __forceinline__ void run_nest(const Args& args) {
  __shared__ NestStage stages[2];
  const NestShape& shape = args.shape;
  const NestPlace at(shape);
  const int tiles = (shape.columns + Config::kColumns - 1) / Config::kColumns, each = tiles / shape.parts,
            more_of = tiles - each * shape.parts,
            begin = (each * at.part + min_of(at.part, more_of)) * Config::kColumns,
            stop = begin + (each + (at.part < more_of ? 1 : 0)) * Config::kColumns;
  NestOperands next;
  NestRows rows;
  rows.begin();
  next.load(args, at.first_row, begin, 0);
  next.put(stages[0]);
  __syncthreads();
  int stage = 0;
  for (int column = begin; column < stop; column += Config::kColumns) {
    NestTile r, sum;
    begin_tile(r);
    for (int step = 0; step < shape.depth; step += kDepth) {
      const bool end = step + kDepth >= shape.depth, more = !end || column + Config::kColumns < stop;
      if (more)
        next.load(args, at.first_row, end ? column + Config::kColumns : column, end ? 0 : step + kDepth);
      if (Config::kCut && step % kPart == 0) begin_tile(sum);
      combine_stage(args, stages[stage], step, at, Config::kCut ? sum : r);
      if (Config::kCut && (end || (step + kDepth) % kPart == 0))
        each_of_tile(r, [&](int m, int n) { return r[m][n] + sum[m][n]; });
      stage ^= 1;
      if (more) next.put(stages[stage]);
      __syncthreads();
    }
    rows.take(args, r, at, column);
  }
  rows.end(args, at);
}
