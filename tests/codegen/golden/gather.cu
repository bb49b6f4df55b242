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
    const int64 t6 = int64(t5);
    const bool t7 = (t6 < 0ll);
    const int64 t8 = wrap_add(t6, int64(p4));
    const int64 t9 = (t7 ? t8 : t6);
    const int64 t10 = wrap_mul(t9, int64(p5));
    const bool t11 = (0ll <= t9);
    const bool t12 = (t9 < int64(p6));
    const bool t13 = bool((t11 & t12));
    const int t15 = (t0 * p3);
    {
      const int i1 = lane * 4;
      if (i1 < n2) {
        const int t4 = (t1 + i1);
        const vec<float, 4> x3 = (t13 ? load<4>(in1 + wrap_add(int64(t4), t10)) : vec<float, 4>{});
        vec<float, 4> y14;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y14.at[v] = (x3.at[v] * s0);
        }
        store(out2 + (t15 + t4), y14);
      }
    }
  }
}

