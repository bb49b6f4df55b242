// 
extern "C" __global__ void __launch_bounds__(128) kiln_test(
    const bf16* __restrict__ in0,
    bf16* __restrict__ out3,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  in0 = leaves_last(in0, gridDim.x >= 8192);
  for (int i0 = int(blockIdx.x); i0 < p5; i0 += gridDim.x * 1) {
    float kept2[32];
    vec<bf16, 8> x1[4];
    float a0[8] = {__int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000), __int_as_float(0xff800000)};
    const int t2 = (i0 * p1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 128 + lane) * 8;
      if (i1 < p0) {
        x1[k] = load<8>(in0 + (t2 + i1));
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 128 + lane) * 8;
      if (i1 < p0) {
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          const float t3 = to_float(x1[k].at[v]);
          a0[v] = Max::of(t3, a0[v]);
        }
      }
    }
    const float r4 = reduce_block<Max, 128>(Max::of(Max::of(Max::of(a0[0], a0[1]), Max::of(a0[2], a0[3])), Max::of(Max::of(a0[4], a0[5]), Max::of(a0[6], a0[7]))), turn);
    float a5[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i2 = (k * 128 + lane) * 8;
      if (i2 < p0) {
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          const float t6 = exp4_fast(((to_float(x1[k].at[v]) - r4) * 0x1.715476p-1f));
          a5[v] += t6;
          kept2[k * 8 + v] = t6;
        }
      }
    }
    const float r7 = reduce_block<Sum, 128>((((a5[0] + a5[1]) + (a5[2] + a5[3])) + ((a5[4] + a5[5]) + (a5[6] + a5[7]))), turn);
    const float t8 = fabsf(r7);
    const bool t9 = (t8 < 0x1p-100f);
    const bool t10 = (0x1p+100f < t8);
    const float t11 = (t10 ? 0x1p-64f : 1.0f);
    const float t12 = (t9 ? 0x1p+64f : t11);
    const float t13 = (r7 * t12);
    const float t14 = reciprocal_fast(t13);
    const int t16 = (i0 * p4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i3 = (k * 128 + lane) * 8;
      if (i3 < p0) {
        vec<bf16, 8> y15;
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          y15.at[v] = to_bf16(((kept2[k * 8 + v] * t12) * t14));
        }
        store(out3 + (t16 + i3), y15);
      }
    }
  }
}

