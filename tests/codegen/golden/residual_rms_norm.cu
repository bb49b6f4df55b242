// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    float* __restrict__ out2,
    const float* __restrict__ in3,
    float* __restrict__ out4,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const float s0,
    const float s1,
    const float s2) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  const Divisor d7 = divisor(s1);
  in0 = leaves_last(in0, gridDim.x >= 4096);
  for (int i0 = int(blockIdx.x); i0 < p5; i0 += gridDim.x * 1) {
    vec<float, 4> x1[4];
    float a0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int t2 = (i0 * p1);
    const int t5 = (i0 * p3);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < p0) {
        x1[k] = load<4>(in0 + (t2 + i1));
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < p0) {
        vec<float, 4> y4;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const float t3 = __fmaf_rn(x1[k].at[v], s0, x1[k].at[v]);
          a0[v] = __fmaf_rn(t3, t3, a0[v]);
          y4.at[v] = t3;
        }
        store(out2 + (t5 + i1), y4);
      }
    }
    const float r6 = reduce_block<Sum, 256>(((a0[0] + a0[1]) + (a0[2] + a0[3])), turn);
    const float t8 = divide(r6, d7);
    const float t9 = (t8 + s2);
    const float t10 = rsqrtf(t9);
    const int t13 = (i0 * p4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i2 = (k * 256 + lane) * 4;
      if (i2 < p0) {
        const vec<float, 4> x11 = load<4>(in3 + i2);
        vec<float, 4> y12;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y12.at[v] = ((__fmaf_rn(x1[k].at[v], s0, x1[k].at[v]) * t10) * x11.at[v]);
        }
        store(out4 + (t13 + i2), y12);
      }
    }
  }
}

