// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    float* __restrict__ out2,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const int p7,
    const float s0) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  in0 = leaves_last(in0, gridDim.x >= 16384);
  for (int i0 = int(blockIdx.x); i0 < p7; i0 += gridDim.x * 1) {
    alignas(16) __shared__ float tile1[4160];
    const int t0 = index_div(i0, p1, p2);
    const int t1 = (t0 * 64);
    const int t2 = min_of((p0 - t1), 64);
    const int row3 = lane / 16, lane4 = lane % 16;
    const int t5 = (t0 * p1);
    const int t6 = (i0 - t5);
    const int t7 = (t6 * 64);
    const int t8 = (p3 - t7);
    const int t9 = min_of(t8, 64);
#pragma unroll 4
    for (int i1 = row3; i1 < t2; i1 += 16) {
      const int t11 = (t1 + i1);
      const int t12 = (t11 * p4);
      {
        const int i2 = lane4 * 4;
        if (i2 < t9) {
          const vec<float, 4> x10 = load<4>(in0 + ((t7 + i2) + t12));
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            tile1[(((i2 + v) * 65) + i1)] = x10.at[v];
          }
        }
      }
    }
    __syncthreads();
    const int row13 = lane / 16, lane14 = lane % 16;
#pragma unroll 4
    for (int i3 = row13; i3 < t9; i3 += 16) {
      const int t15 = (i3 * 65);
      const int t18 = (t7 + i3);
      const int t19 = (t18 * p6);
      {
        const int i4 = lane14 * 4;
        if (i4 < t2) {
          vec<float, 4> y17;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const float t16 = tile1[(t15 + (i4 + v))];
            y17.at[v] = (t16 + s0);
          }
          store(out2 + (t19 + (t1 + i4)), y17);
        }
      }
    }
    __syncthreads();
  }
}

