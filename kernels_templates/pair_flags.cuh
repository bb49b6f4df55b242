// Which tiles of columns of sums over pairs have to be looked at though masks leave nothing of them: those
// with a value that is not finite in what the weights multiply, and those with a column of which it is not
// known that its weights are 0. A block takes a tile of kFlagColumns columns. See pair_sums.cuh; kOperands
// are what the weights multiply.
#pragma once

constexpr int kThreads = 128, kBlocksPerSm = 8, kFlagColumns = 64, kFlagWarps = kThreads / 32;

/// Of what this thread looks at.
__device__ __forceinline__ bool has_odd(const Element* from, int64 stride, int c0, int c1) {
  return has_odd<kThreads, 8>(from, stride, c0, c1, threadIdx.x);
}

__device__ __forceinline__ void run_pair_flags(const Args& args) {
  __shared__ uint32 found[kFlagWarps];
  const PairShape& shape = args.shape;
  const int b = blockIdx.x / shape.blocks, tile = blockIdx.x - b * shape.blocks;
  const int c0 = tile * kFlagColumns,
            c1 = c0 + kFlagColumns < shape.columns ? c0 + kFlagColumns : shape.columns;
  bool odd = has_odd(y_matrix0(args, b), shape.y_row[0], c0, c1);
  if constexpr (Config::kOperands > 1) odd |= has_odd(y_matrix1(args, b), shape.y_row[1], c0, c1);
  if constexpr (Config::kOperands > 2) odd |= has_odd(y_matrix2(args, b), shape.y_row[2], c0, c1);
  if constexpr (Config::kOperands > 3) odd |= has_odd(y_matrix3(args, b), shape.y_row[3], c0, c1);
  for (int c = c0 + threadIdx.x; c < c1; c += kThreads) odd = odd || !column_adds_nothing(args, b, c);
  odd = __any_sync(0xffffffffu, odd);
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = odd;
  __syncthreads();
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int w = 1; w < kFlagWarps; ++w) odd |= found[w] != 0;
  *flag(args, b, tile) = odd;
}
