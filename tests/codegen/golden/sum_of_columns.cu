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
    const int t14 = (t6 * p1);
    {
      const int i1 = lane4 * 4;
      const int left = int(n2 - i1);
      float a10[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const int n11 = left > 0 ? t9 : 0;
      const int t13 = (t1 + i1);
#pragma unroll 4
      for (int i2 = row3; i2 < n11; i2 += 32) {
        const vec<float, 4> x12 = load<4>(in0 + (((t7 + i2) * p6) + t13));
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          a10[v] += x12.at[v];
        }
      }
      reduce_rows<Sum, 8, 32>(a10);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int t15 = (t1 + (i1 + v));
        if (row3 == 0 && v < left) part1[(t14 + t15)] = a10[v];
      }
    }
    const int n16 = index_div(p2, p7);
    const int i3 = index_div(i0, n16);
    if (last_of(arrivals + i3, n16)) {
      const int t17 = (i3 * 32);
      const int n18 = min_of((p3 - t17), 32);
      const int row19 = lane / 8, lane20 = lane % 8;
      {
        const int i4 = lane20 * 4;
        const int left = int(n18 - i4);
        float a21[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const int n22 = left > 0 ? p0 : 0;
#pragma unroll 4
        for (int i5 = row19; i5 < n22; i5 += 32) {
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const int t23 = (t17 + (i4 + v));
            const float t24 = part1[((i5 * p1) + t23)];
            a21[v] += t24;
          }
        }
        reduce_rows<Sum, 8, 32>(a21);
        const int t26 = (t17 + i4);
        vec<float, 4> y25;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y25.at[v] = a21[v];
        }
        if (row19 == 0) store(out2 + t26, y25, left);
      }
    }
  }
}

