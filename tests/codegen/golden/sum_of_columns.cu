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
  for (int i0 = int(blockIdx.x); i0 < p2; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p0, p3);
    const int t1 = (t0 * 32);
    const int n2 = min_of((p4 - t1), 32);
    const int row3 = lane / 8, lane4 = lane % 8;
    const int t5 = (t0 * p0);
    const int t6 = (i0 - t5);
    const int t7 = (t6 * p5);
    const int t8 = (p6 - t7);
    const int t9 = min_of(t8, p5);
    const int t15 = (t6 * p1);
    {
      const int i1 = lane4 * 4;
      const int left = int(n2 - i1);
      float a10[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const int n11 = left > 0 ? t9 : 0;
      const int t13 = (t1 + i1);
      int b14 = row3;
      for (; b14 + 96 < n11; b14 += 128) {
        vec<float, 4> x12[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b14 + k * 32;
          x12[k] = load<4>(in0 + (((t7 + i2) * p7) + t13));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b14 + k * 32;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            a10[v] += x12[k].at[v];
          }
        }
      }
      if (b14 < n11) {
        vec<float, 4> x12[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b14 + k * 32;
          if (i2 < n11) {
            x12[k] = load<4>(in0 + (((t7 + i2) * p7) + t13));
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b14 + k * 32;
          if (i2 < n11) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              a10[v] += x12[k].at[v];
            }
          }
        }
      }
      reduce_rows<Sum, 8, 32>(a10);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int t16 = (t1 + (i1 + v));
        if (row3 == 0 && v < left) part1[(t15 + t16)] = a10[v];
      }
    }
    const int n17 = index_div(p2, p8);
    const int i3 = index_div(i0, n17);
    if (last_of(arrivals + i3, n17)) {
      const int t18 = (i3 * 32);
      const int n19 = min_of((p4 - t18), 32);
      const int row20 = lane / 8, lane21 = lane % 8;
      {
        const int i4 = lane21 * 4;
        const int left = int(n19 - i4);
        float a22[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const int n23 = left > 0 ? p0 : 0;
#pragma unroll 4
        for (int i5 = row20; i5 < n23; i5 += 32) {
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const int t24 = (t18 + (i4 + v));
            const float t25 = part1[((i5 * p1) + t24)];
            a22[v] += t25;
          }
        }
        reduce_rows<Sum, 8, 32>(a22);
        const int t27 = (t18 + i4);
        vec<float, 4> y26;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y26.at[v] = a22[v];
        }
        if (row20 == 0) store(out2 + t27, y26, left);
      }
    }
  }
}

