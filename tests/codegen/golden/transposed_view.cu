// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    float* __restrict__ out0,
    const float* __restrict__ in1,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const float s0) {
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p0; i0 += gridDim.x * 1) {
    const int t0 = (i0 * 4096);
    const int n1 = min_of((p1 - t0), 4096);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < n1) {
        const int t6 = (t0 + i1);
        vec<float, 4> y5;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t2 = (t0 + (i1 + v));
          const int t3 = index_div(t2, p2);
          const float t4 = in1[(t3 + ((t2 - (t3 * p2)) * p3))];
          y5.at[v] = (t4 + s0);
        }
        store(out0 + t6, y5);
      }
    }
  }
}

