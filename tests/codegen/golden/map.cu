// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    const float* __restrict__ in1,
    float* __restrict__ out2,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const float s0) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p5; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = ((i0 - (t0 * p1)) * 2048);
    const int n2 = min_of((p0 - t1), 2048);
    const int t4 = (t0 * p4);
    const int t8 = (t0 * p3);
    vec<float, 4> x3[2];
    vec<float, 4> x6[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n2) {
        const int t5 = (t1 + i1);
        x3[k] = load<4>(in0 + (t4 + t5));
        x6[k] = load<4>(in1 + t5);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n2) {
        const int t9 = (t1 + i1);
        vec<float, 4> y7;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y7.at[v] = __fmaf_rn(expf(x3[k].at[v]), s0, x6[k].at[v]);
        }
        store(out2 + (t8 + t9), y7);
      }
    }
  }
}

