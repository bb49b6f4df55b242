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
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p2; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p0);
    const int t1 = (t0 * 1024);
    const int n2 = min_of((p3 - t1), 1024);
    const int t3 = (t0 * p0);
    const int t4 = (i0 - t3);
    const int t5 = (t4 * p4);
    const int t6 = (p5 - t5);
    const int t7 = min_of(t6, p4);
    const int t11 = (t4 * p1);
    {
      const int i1 = lane * 4;
      if (i1 < n2) {
        float a8[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const int t10 = (t1 + i1);
#pragma unroll 4
        for (int i2 = 0; i2 < t7; ++i2) {
          const vec<float, 4> x9 = load<4>(in0 + (((t5 + i2) * p6) + t10));
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            a8[v] += x9.at[v];
          }
        }
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t12 = (t1 + (i1 + v));
          part1[(t11 + t12)] = a8[v];
        }
      }
    }
    const int n13 = index_div(p2, p7);
    const int i3 = index_div(i0, n13);
    if (last_of(arrivals + i3, n13)) {
      const int t14 = (i3 * 1024);
      const int n15 = min_of((p3 - t14), 1024);
      {
        const int i4 = lane * 4;
        if (i4 < n15) {
          float a16[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
          for (int i5 = 0; i5 < p0; ++i5) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              const int t17 = (t14 + (i4 + v));
              const float t18 = part1[((i5 * p1) + t17)];
              a16[v] += t18;
            }
          }
          const int t20 = (t14 + i4);
          vec<float, 4> y19;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            y19.at[v] = a16[v];
          }
          store(out2 + t20, y19);
        }
      }
    }
  }
}

