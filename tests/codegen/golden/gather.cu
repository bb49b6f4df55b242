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
    const int32 t3 = in0[t0];
    const int64 t4 = int64(t3);
    const bool t5 = (t4 < 0ll);
    const int64 t6 = wrap_add(t4, int64(p4));
    const int64 t7 = (t5 ? t6 : t4);
    const bool t8 = (0ll <= t7);
    const bool t9 = (t7 < int64(p6));
    const bool t10 = bool((t8 & t9));
    const int64 t12 = wrap_mul(t7, int64(p5));
    const int t15 = (t0 * p3);
    {
      const int i1 = lane * 4;
      if (i1 < n2) {
        const int t16 = (t1 + i1);
        vec<float, 4> y14;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int t11 = (t1 + (i1 + v));
          const float t13 = (t10 ? in1[wrap_add(int64(t11), t12)] : 0.0f);
          y14.at[v] = (t13 * s0);
        }
        store(out2 + (t15 + t16), y14);
      }
    }
  }
}

