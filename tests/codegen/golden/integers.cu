// 
extern "C" __global__ void __launch_bounds__(64) kiln_test(
    const int32* __restrict__ in0,
    float* __restrict__ out1,
    const int p0,
    const int p1,
    const float s0,
    const int32 s1,
    const int32 s2) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  const Divisor d2 = divisor(s0);
  const bool t6 = (s1 < 0);
  const bool t8 = (0 <= s2);
  const bool t9 = (s2 < 32);
  const bool t10 = bool((t8 & t9));
  const int32 t11 = (t10 ? s2 : 0);
  in0 = leaves_last(in0, gridDim.x >= 65536);
  for (int i0 = int(blockIdx.x); i0 < p1; i0 += gridDim.x * 1) {
    const int t0 = (i0 * 256);
    const int n1 = min_of((p0 - t0), 256);
    if (n1 == 256) {
      {
        const int i1 = lane * 4;
        const int t4 = (t0 + i1);
        const vec<int32, 4> x3 = load<4>(in0 + t4);
        vec<float, 4> y13;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int32 t5 = int_rem(x3.at[v], s1);
          const float t7 = float((bool(((t5 != 0) & bool(((t5 < 0) ^ t6)))) ? wrap_add(t5, s1) : t5));
          const float t12 = ((divide(float(x3.at[v]), d2) + t7) + float((t10 ? wrap_shl(x3.at[v], t11) : 0)));
          y13.at[v] = t12;
        }
        store(out1 + t4, y13);
      }
    } else {
      {
        const int i1 = lane * 4;
        if (i1 < n1) {
#pragma unroll 1
          for (int v = 0; v < 4; ++v) {
            if (i1 + v < n1) {
              const int t14 = (t0 + (i1 + v));
              const int32 t15 = in0[t14];
              const int32 t16 = int_rem(t15, s1);
              const float t17 = float((bool(((t16 != 0) & bool(((t16 < 0) ^ t6)))) ? wrap_add(t16, s1) : t16));
              const float t18 = ((divide(float(t15), d2) + t17) + float((t10 ? wrap_shl(t15, t11) : 0)));
              out1[t14] = t18;
            }
          }
        }
      }
    }
  }
}

