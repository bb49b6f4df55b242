// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    float* __restrict__ out0,
    const float* __restrict__ in1,
    const float* __restrict__ in2,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const float s0) {
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p0; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1);
    const int t1 = ((i0 - (t0 * p1)) * 2048);
    const int n2 = min_of((p2 - t1), 2048);
    const int t4 = (t0 * p4);
    const int t14 = (t0 * p3);
    vec<float, 4> x3[2];
    vec<float, 4> x12[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n2) {
        const int t5 = (t1 + i1);
        x3[k] = load<4>(in1 + (t4 + t5));
        x12[k] = load<4>(in2 + t5);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n2) {
        const int t15 = (t1 + i1);
        vec<float, 4> y13;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const float t6 = ((89.0f < x3[k].at[v]) ? 89.0f : x3[k].at[v]);
          const float t7 = ((t6 < (-104.0f)) ? (-104.0f) : t6);
          const float t8 = (__fmaf_rn(t7, 0x1.715476p+0f, 0x1.8p+23f) - 0x1.8p+23f);
          const float t9 = __fmaf_rn(t8, 0x1.05c61p-29f, __fmaf_rn(t8, (-0x1.62e43p-1f), t7));
          const float t10 = __fmaf_rn(__fmaf_rn(0x1.6ac8c8p-10f, t9, 0x1.123deep-7f), t9, 0x1.555858p-5f);
          const float t11 = __fmaf_rn(__fmaf_rn(__fmaf_rn(t10, t9, 0x1.55548cp-3f), t9, 0x1.fffffcp-2f), t9, 1.0f);
          y13.at[v] = __fmaf_rn(scale(__fmaf_rn(t11, t9, 1.0f), t8), s0, x12[k].at[v]);
        }
        store(out0 + (t14 + t15), y13);
      }
    }
  }
}

