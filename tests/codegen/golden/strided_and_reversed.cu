// 
extern "C" __global__ void __launch_bounds__(64) kiln_test(
    const float* __restrict__ in0,
    float* __restrict__ out1,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const float s0) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x % 32;
  for (int i0 = int(blockIdx.x) * 2 + int(threadIdx.x / 32); i0 < p6; i0 += gridDim.x * 2) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = ((i0 - (t0 * p1)) * 32);
    const int n2 = min_of((p0 - t1), 32);
    const int t3 = (t0 * p4);
    const int t6 = (t0 * p3);
    {
      const int i1 = lane;
      if (i1 < n2) {
        const int t4 = (t1 + i1);
        const float t5 = in0[(t3 + (t4 * p5))];
        out1[(t6 + t4)] = (t5 + s0);
      }
    }
  }
}

