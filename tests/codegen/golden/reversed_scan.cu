// 
extern "C" __global__ void __launch_bounds__(1024) kiln_test(
    const float* __restrict__ in0,
    float* __restrict__ out1,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const float s0,
    const float s1,
    const float s2) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p4; i0 += gridDim.x * 1) {
    float a0 = 0.0f;
    const int t7 = (i0 * p1);
    const int t10 = (i0 * p2);
    int n1 = 0;
    for (; n1 + 12288 < p0; n1 += 16384) {
      vec<float, 4> x6[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int n2 = (n1 + k * 4096) + int(lane) * 4;
        const bool on3 = n2 < p0;
        const int i1 = on3 ? n2 : p0 - 4;
        const int t8 = (-i1);
        x6[k] = load<4>(in0 + (t7 + t8) - 3);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int n2 = (n1 + k * 4096) + int(lane) * 4;
        const bool on3 = n2 < p0;
        const int i1 = on3 ? n2 : p0 - 4;
        float x4[4], first5;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          x4[v] = on3 ? (x6[k].at[3 - v] * s0) : 0.0f;
        }
        scan_team<Sum, 1024>(x4, float(0.0f), a0, first5);
        const int t11 = (-i1);
        vec<float, 4> y9;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y9.at[3 - v] = __fmaf_rn(x4[v], s1, s2);
        }
        if (on3) store(out1 + ((t10 + t11) + p3) - 3, y9);
      }
    }
#pragma unroll 1
    for (; n1 < p0; n1 += 4096) {
      const int n2 = n1 + int(lane) * 4;
      const bool on3 = n2 < p0;
      const int i1 = on3 ? n2 : p0 - 4;
      float x12[4], first13;
      const int t15 = (-i1);
      const vec<float, 4> x14 = load<4>(in0 + (t7 + t15) - 3);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        x12[v] = on3 ? (x14.at[3 - v] * s0) : 0.0f;
      }
      scan_team<Sum, 1024>(x12, float(0.0f), a0, first13);
      vec<float, 4> y16;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        y16.at[3 - v] = __fmaf_rn(x12[v], s1, s2);
      }
      if (on3) store(out1 + ((t10 + t15) + p3) - 3, y16);
    }
  }
}

