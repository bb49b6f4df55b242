// 
extern "C" __global__ void __launch_bounds__(64) kiln_test(
    const bf16* __restrict__ in0,
    bf16* __restrict__ out1,
    const int p0,
    const int p1,
    const bf16 s0,
    const bf16 s1) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  const float t4 = to_float(s0);
  const float t5 = to_float(s1);
  in0 = leaves_last(in0, gridDim.x >= 65536);
  for (int i0 = int(blockIdx.x); i0 < p1; i0 += gridDim.x * 1) {
    const int t0 = (i0 * 512);
    const int n1 = min_of((p0 - t0), 512);
    if (n1 == 512) {
      {
        const int i1 = lane * 8;
        const int t3 = (t0 + i1);
        const vec<bf16, 8> x2 = load<8>(in0 + t3);
        vec<bf16, 8> y6;
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          y6.at[v] = to_bf16(__fmaf_rn(to_float(x2.at[v]), t4, t5));
        }
        store(out1 + t3, y6);
      }
    } else {
      {
        const int i1 = lane * 8;
        if (i1 < n1) {
#pragma unroll 1
          for (int v = 0; v < 8; ++v) {
            if (i1 + v < n1) {
              const int t7 = (t0 + (i1 + v));
              const bf16 t8 = in0[t7];
              out1[t7] = to_bf16(__fmaf_rn(to_float(t8), t4, t5));
            }
          }
        }
      }
    }
  }
}

