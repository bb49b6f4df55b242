// 
extern "C" __global__ void __launch_bounds__(64) kiln_test(
    const int32* __restrict__ in0,
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
    const float s0) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x % 32;
  for (int i0 = int(blockIdx.x) * 2 + int(threadIdx.x / 32); i0 < p7; i0 += gridDim.x * 2) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = ((i0 - (t0 * p1)) * 128);
    const int n2 = min_of((p0 - t1), 128);
    const int32 t5 = in0[t0];
    const int t6 = int(t5);
    const bool t7 = (t6 < 0);
    const int t8 = (t6 + p4);
    const int t9 = (t7 ? t8 : t6);
    const int t10 = (t9 * p5);
    const bool t11 = ((unsigned int)(t9) < (unsigned int)(p6));
    const int t13 = (t0 * p3);
    {
      const int i1 = lane * 4;
      if (i1 < n2) {
        const int t4 = (t1 + i1);
        const vec<float, 4> x3 = (t11 ? load<4>(in1 + (t4 + t10)) : vec<float, 4>{});
        vec<float, 4> y12;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y12.at[v] = (x3.at[v] * s0);
        }
        store(out2 + (t13 + t4), y12);
      }
    }
  }
}

