// Lanes of a row exchange columns. mma.sync and wgmma alike leave pairs of adjacent columns in a lane; hooks
// of width 8 get eight adjacent columns, so that their loads and stores are 16 bytes wide. Must not touch
// shared memory.
#pragma once

/// Lane 4 g + q has columns 8 j + 2 q and + 1 of a row, for j of 0 to 3; afterwards columns 8 q to 8 q + 7.
__device__ __forceinline__ void gather_columns(float (&x)[4][2]) {
  const int q = threadIdx.x & 3;
#pragma unroll
  for (int bit = 1; bit <= 2; bit <<= 1)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float give = q & bit ? x[j][e] : x[j | bit][e];
        const float got = __shfl_xor_sync(~0u, give, bit);
        if (q & bit)
          x[j][e] = got;
        else
          x[j | bit][e] = got;
      }
    }
}
