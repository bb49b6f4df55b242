// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    float* part1,
    float* __restrict__ out2,
    unsigned int* arrivals,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const int p7) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p2; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p0);
    const int t1 = (t0 * 32);
    const int n2 = min_of((p3 - t1), 32);
    const int row3 = lane / 8, lane4 = lane % 8;
    const int t5 = (t0 * p0);
    const int t6 = (i0 - t5);
    const int t7 = (t6 * p4);
    const int t8 = (p5 - t7);
    const int t9 = min_of(t8, p4);
    const int t13 = (t6 * p1);
    {
      const int i1 = lane4 * 4;
      const int left = int(n2 - i1);
      float a10[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const int t12 = (t1 + i1);
#pragma unroll 4
      for (int i2 = row3; i2 < t9; i2 += 32) {
        const vec<float, 4> x11 = load<4>(in0 + (((t7 + i2) * p6) + t12), left);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          a10[v] += x11.at[v];
        }
      }
      reduce_rows<Sum, 8, 32>(a10);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int t14 = (t1 + (i1 + v));
        if (row3 == 0 && v < left) part1[(t13 + t14)] = a10[v];
      }
    }
    const int n15 = index_div(p2, p7);
    const int i3 = index_div(i0, n15);
    if (last_of(arrivals + i3, n15)) {
      const int t16 = (i3 * 32);
      const int n17 = min_of((p3 - t16), 32);
      const int row18 = lane / 8, lane19 = lane % 8;
      {
        const int i4 = lane19 * 4;
        const int left = int(n17 - i4);
        float a20[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
        for (int i5 = row18; i5 < p0; i5 += 32) {
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const int t21 = (t16 + (i4 + v));
            const float t22 = (v < left ? part1[((i5 * p1) + t21)] : 0.0f);
            a20[v] += t22;
          }
        }
        reduce_rows<Sum, 8, 32>(a20);
        const int t24 = (t16 + i4);
        vec<float, 4> y23;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y23.at[v] = a20[v];
        }
        if (row18 == 0) store(out2 + t24, y23, left);
      }
    }
  }
}

