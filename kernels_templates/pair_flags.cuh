// Which tiles of columns of sums over pairs have to be looked at though masks leave nothing of them: those
// with a value that is not finite in what the weights multiply, and those with a column of which it is not
// known that its weights are 0. A block takes a tile of kFlagColumns columns. See pair_sums.cuh; kOperands
// are what the weights multiply.
#pragma once

typedef Config::Element Element;
constexpr int kThreads = 128, kBlocksPerSm = 8, kFlagColumns = 64, kFlagWarps = kThreads / 32;

__device__ __forceinline__ constexpr uint32 exponent_bits(bf16) { return 0x7f80; }
__device__ __forceinline__ constexpr uint32 exponent_bits(f16) { return 0x7c00; }
__device__ __forceinline__ bool is_odd(uint32 pair) {
  constexpr uint32 kLow = exponent_bits(Element{}), kHigh = kLow << 16;
  return (pair & kLow) == kLow || (pair & kHigh) == kHigh;
}

/// Whether rows c0 … c1 - 1 of a matrix have a value that is not finite, of what this thread looks at.
__device__ __forceinline__ bool has_odd(const Element* from, int64 stride, int width, int c0, int c1) {
  const int words = (width + 7) / 8;
  bool odd = false;
  // no load waits for what another one found
#pragma unroll 8
  for (int at = threadIdx.x; at < (c1 - c0) * words; at += kThreads) {
    const int row = at / words, d = (at - row * words) * 8;
    const Element* const here = from + (c0 + row) * stride + d;
    if (Config::kAligned && d + 8 <= width) {
      const uint4 x = *reinterpret_cast<const uint4*>(here);
      odd |= is_odd(x.x) | is_odd(x.y) | is_odd(x.z) | is_odd(x.w);
    } else {
      for (int k = 0; k < 8 && d + k < width; ++k) odd |= is_odd(here[k].bits);
    }
  }
  return odd;
}

__device__ __forceinline__ void run_pair_flags(const Args& args) {
  __shared__ uint32 found[kFlagWarps];
  const PairShape& shape = args.shape;
  const int b = blockIdx.x / shape.blocks, tile = blockIdx.x - b * shape.blocks;
  const int c0 = tile * kFlagColumns,
            c1 = c0 + kFlagColumns < shape.columns ? c0 + kFlagColumns : shape.columns;
  bool odd = has_odd(y_matrix0(args, b), shape.y_row[0], Config::kOut, c0, c1);
  if constexpr (Config::kOperands > 1)
    odd |= has_odd(y_matrix1(args, b), shape.y_row[1], Config::kOut, c0, c1);
  if constexpr (Config::kOperands > 2)
    odd |= has_odd(y_matrix2(args, b), shape.y_row[2], Config::kOut, c0, c1);
  if constexpr (Config::kOperands > 3)
    odd |= has_odd(y_matrix3(args, b), shape.y_row[3], Config::kOut, c0, c1);
  for (int c = c0 + threadIdx.x; c < c1; c += kThreads) odd = odd || !column_adds_nothing(args, b, c);
  odd = __any_sync(0xffffffffu, odd);
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = odd;
  __syncthreads();
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int w = 1; w < kFlagWarps; ++w) odd |= found[w] != 0;
  *flag(args, b, tile) = odd;
}
