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
    const int p6,
    const int p7,
    const int p8,
    const int p9) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p9; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = ((i0 - (t0 * p1)) * 2048);
    const int n2 = min_of((p0 - t1), 2048);
    const int t5 = (t0 * p5);
    const int t8 = (t0 * p6);
    const int t11 = (t0 * p3);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n2) {
        const int t12 = (t1 + i1);
        vec<float, 4> y10;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t3 = (t1 + (i1 + v));
          const bool t4 = bool(((0 <= t3) & (t3 < p4)));
          const float t6 = (t4 ? in0[(t5 + t3)] : 0.0f);
          const int t7 = (t3 + p7);
          const float t9 = (bool(((0 <= t7) & (t7 < p8))) ? in1[(t8 + (-t3))] : 0.0f);
          y10.at[v] = (t4 ? t6 : t9);
        }
        store(out2 + (t11 + t12), y10);
      }
    }
  }
}

