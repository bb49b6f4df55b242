// 
extern "C" __global__ void __launch_bounds__(64) kiln_test(
    float* __restrict__ out0,
    const int p0,
    const int p1,
    const uint64 s0,
    const uint32 s1,
    const uint32 s2,
    const uint32 s3,
    const float s4,
    const float s5) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p1; i0 += gridDim.x * 1) {
    const int t0 = (i0 * 256);
    const int n1 = min_of((p0 - t0), 256);
    {
      const int i1 = lane * 4;
      const int left = int(n1 - i1);
      const int t25 = (t0 + i1);
      vec<float, 4> y24;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int t2 = (t0 + (i1 + v));
        const uint32 t3 = philox_word(uint64(t2), s0);
        const float t4 = ((float(int32((t3 & s3))) + s4) * s5);
        const bool t5 = (0.5f < t4);
        const float t6 = (t5 ? (1.0f - t4) : t4);
        const float t7 = ((t6 * (1.0f - t6)) * 4.0f);
        const float t8 = (mantissa(t7) - 1.0f);
        const float t9 = (t8 * t8);
        const float t10 = __fmaf_rn(__fmaf_rn(t8, (-0x1.710fe8p-5f), 0x1.ac8af6p-4f), t9, __fmaf_rn(t8, (-0x1.0d9192p-3f), 0x1.2886acp-3f));
        const float t11 = __fmaf_rn(__fmaf_rn(t10, t9, __fmaf_rn(t8, (-0x1.54ef08p-3f), 0x1.99696ep-3f)), t9, __fmaf_rn(t8, (-0x1.000044p-2f), 0x1.5555a4p-2f));
        const float t12 = __fmaf_rn(exponent(t7), 0x1.62e43p-1f, __fmaf_rn(__fmaf_rn(t11, t8, (-0.5f)), t9, t8));
        const float t13 = (-t12);
        const float t14 = (t13 * t13);
        const float t15 = __fmaf_rn(0x1.9ad13ep-24f, t14, __fmaf_rn(t13, (-0x1.4927fap-20f), (-0x1.dfd3e6p-22f)));
        const float t16 = __fmaf_rn(t15, t14, __fmaf_rn(t13, 0x1.417c46p-14f, (-0x1.9f4ff4p-13f)));
        const float t17 = __fmaf_rn(__fmaf_rn(t16, t14, __fmaf_rn(t13, (-0x1.af039ep-9f), 0x1.0b8366p-6f)), t14, __fmaf_rn(t13, 0x1.4ffe16p-2f, 0x1.40d932p+0f));
        const float t18 = square_root((t13 + __fmaf_rn(__fmaf_rn(t6, (-0.5f), (-1.0f)), t6, 0x1.62e43p+0f)));
        const float t19 = __fmaf_rn(__fmaf_rn((-0x1.7e93c6p-16f), t18, 0x1.be15a6p-1f), t18, 0x1.9372c4p+1f);
        const float t20 = __fmaf_rn(__fmaf_rn(t19, t18, (-0x1.9e1b64p-3f)), t18, (-0x1.4136b6p+1f));
        const float t21 = div_bounded(t20, __fmaf_rn(__fmaf_rn(0x1.3afc8ep-1f, t18, 0x1.20d08cp+1f), t18, 1.0f));
        const float t22 = ((t6 == 0.0f) ? __int_as_float(0x7f800000) : t21);
        const float t23 = ((t13 < 4.0f) ? (__fmaf_rn(t4, 2.0f, (-1.0f)) * t17) : (t5 ? t22 : (-t22)));
        y24.at[v] = (((t3 & s1) == s2) ? t23 : (-t23));
      }
      store(out0 + t25, y24, left);
    }
  }
}

