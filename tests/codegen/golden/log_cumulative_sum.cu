// 
struct Custom0 {
  static __device__ __forceinline__ Pair<float, float> lift(float later) {
    return {later, 1.0f};
  }
  static __device__ __forceinline__ Pair<float, float> of(Pair<float, float> later, Pair<float, float> earlier) {
    const float t0 = greatest(later.first, earlier.first);
    const bool t1 = (earlier.first < later.first);
    const float t2 = (t1 ? earlier.second : later.second);
    const float t3 = (earlier.first - later.first);
    const float t4 = fabsf(t3);
    const float t5 = (-t4);
    const bool t6 = ((-87.0f) < t5);
    const float t7 = (t6 ? t5 : (-87.0f));
    const float t8 = (t7 * 0x1.715476p-1f);
    const float t9 = exp4_fast(t8);
    const float t10 = (t1 ? later.second : earlier.second);
    const float t11 = __fmaf_rn(t2, t9, t10);
    return {t0, t11};
  }
  static __device__ __forceinline__ float show(Pair<float, float> earlier) {
    const float t0 = logf(earlier.second);
    const float t1 = (earlier.first + t0);
    return t1;
  }
  typedef void Relative;
  static __device__ __forceinline__ float weight(float d) { return exp2_flushed(d * 0x1.715476p+0f); }
};
extern "C" __global__ void __launch_bounds__(1024) kiln_test(
    const float* __restrict__ in0,
    float* __restrict__ out1,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const float s0,
    const float s1) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p3; i0 += gridDim.x * 1) {
    Pair<float, float> a0 = {__int_as_float(0xff800000), 0.0f};
    const int t7 = (i0 * p1);
    const int t9 = (i0 * p2);
    for (int n1 = 0; n1 < p0; n1 += 4096) {
      const int n2 = n1 + int(lane) * 4;
      const bool on3 = n2 < p0;
      const int i1 = on3 ? n2 : p0 - 4;
      Pair<float, float> x4[4], first5;
      const vec<float, 4> x6 = load<4>(in0 + (t7 + i1));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        x4[v] = on3 ? Custom0::lift((x6.at[v] * s0)) : Pair<float, float>{__int_as_float(0xff800000), 0.0f};
      }
      scan_team<Custom0, 1024>(x4, Pair<float, float>{__int_as_float(0xff800000), 0.0f}, a0, first5);
      vec<float, 4> y8;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        y8.at[v] = (Custom0::show(x4[v]) + s1);
      }
      if (on3) store(out1 + (t9 + i1), y8);
    }
  }
}

