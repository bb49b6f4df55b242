// 
extern "C" __global__ void __launch_bounds__(256, 4) kiln_test(
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
    const int p7,
    const int p8) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p7; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = (t0 * 32);
    const int n2 = min_of((p0 - t1), 32);
    const int row3 = lane / 8, lane4 = lane % 8;
    const int t5 = (t0 * p1);
    const int t6 = (i0 - t5);
    const int t7 = (t6 * p4);
    const int t8 = (p3 - t7);
    const int t9 = min_of(t8, p4);
    const int t16 = (t6 * p6);
    {
      const int i1 = lane4 * 4;
      const int left = int(n2 - i1);
      float a10[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      float lost11[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const int n12 = left > 0 ? t9 : 0;
      const int t14 = (t1 + i1);
      int b15 = row3;
      for (; b15 + 96 < n12; b15 += 128) {
        vec<float, 4> x13[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b15 + k * 32;
          x13[k] = load<4>(in0 + (((t7 + i2) * p5) + t14));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b15 + k * 32;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            add_compensated(a10[v], lost11[v], x13[k].at[v]);
          }
        }
      }
      if (b15 < n12) {
        vec<float, 4> x13[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b15 + k * 32;
          if (i2 < n12) {
            x13[k] = load<4>(in0 + (((t7 + i2) * p5) + t14));
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b15 + k * 32;
          if (i2 < n12) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              add_compensated(a10[v], lost11[v], x13[k].at[v]);
            }
          }
        }
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) a10[v] = compensated(a10[v], lost11[v]);
      reduce_rows<Sum, 8, 32>(a10);
      if (row3 == 0) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t17 = (t1 + (i1 + v));
          if (v < left) part1[(t16 + t17)] = a10[v];
        }
      }
    }
    const int n18 = index_div(p7, p8);
    const int i3 = index_div(i0, n18);
    if (last_of(arrivals + i3, n18)) {
      const int t19 = (i3 * 32);
      const int n20 = min_of((p0 - t19), 32);
      const int row21 = lane / 32, lane22 = lane % 32;
      {
        const int i4 = lane22;
        const int left = int(n20 - i4);
        float a23 = 0.0f;
        float lost24 = 0.0f;
        const int n25 = left > 0 ? p1 : 0;
        const int t26 = (t19 + i4);
#pragma unroll 8
        for (int i5 = row21; i5 < n25; i5 += 8) {
          const float t27 = part1[((i5 * p6) + t26)];
          add_compensated(a23, lost24, t27);
        }
        a23 = compensated(a23, lost24);
        reduce_rows<Sum, 32, 8>(a23);
        if (row21 == 0 && left > 0) out2[t26] = a23;
      }
    }
  }
}

