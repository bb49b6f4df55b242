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
  for (int i0 = int(blockIdx.x); i0 < p8; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = ((i0 - (t0 * p1)) * 32);
    const int n2 = min_of((p0 - t1), 32);
    const int row3 = lane / 8, lane4 = lane % 8;
    const int t5 = (t0 * p4);
    const int t6 = (p3 - t5);
    const int t7 = min_of(t6, p4);
    const int t14 = (t0 * p6);
    {
      const int i1 = lane4 * 4;
      const int left = int(n2 - i1);
      float a8[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      float lost9[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const int n10 = left > 0 ? t7 : 0;
      const int t12 = (t1 + i1);
      int b13 = row3;
      for (; b13 + 96 < n10; b13 += 128) {
        vec<float, 4> x11[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b13 + k * 32;
          x11[k] = load<4>(in0 + (((t5 + i2) * p5) + t12));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b13 + k * 32;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            add_compensated(a8[v], lost9[v], x11[k].at[v]);
          }
        }
      }
      if (b13 < n10) {
        vec<float, 4> x11[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b13 + k * 32;
          if (i2 < n10) {
            x11[k] = load<4>(in0 + (((t5 + i2) * p5) + t12));
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i2 = b13 + k * 32;
          if (i2 < n10) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              add_compensated(a8[v], lost9[v], x11[k].at[v]);
            }
          }
        }
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) a8[v] = compensated(a8[v], lost9[v]);
      reduce_rows<Sum, 8, 32>(a8);
      if (row3 == 0) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t15 = (t1 + (i1 + v));
          if (v < left) part1[(t14 + t15)] = a8[v];
        }
      }
    }
    const int n16 = index_div(p8, p1);
    const int i3 = i0 - index_div(i0, p1) * p1;
    if (last_of(arrivals + i3, n16)) {
      const int t17 = (i3 * 32);
      const int n18 = min_of((p0 - t17), 32);
      const int row19 = lane / 32, lane20 = lane % 32;
      {
        const int i4 = lane20;
        const int left = int(n18 - i4);
        float a21 = 0.0f;
        float lost22 = 0.0f;
        const int n23 = left > 0 ? p7 : 0;
        const int t24 = (t17 + i4);
#pragma unroll 8
        for (int i5 = row19; i5 < n23; i5 += 8) {
          const float t25 = part1[((i5 * p6) + t24)];
          add_compensated(a21, lost22, t25);
        }
        a21 = compensated(a21, lost22);
        reduce_rows<Sum, 32, 8>(a21);
        if (row19 == 0 && left > 0) out2[t24] = a21;
      }
    }
  }
}

