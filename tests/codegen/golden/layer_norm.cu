// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    const float* __restrict__ in2,
    float* __restrict__ out3,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const float s0,
    const float s1) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  const Divisor d5 = divisor(s0);
  in0 = leaves_last(in0, gridDim.x >= 4096);
  for (int i0 = int(blockIdx.x); i0 < p4; i0 += gridDim.x * 1) {
    vec<float, 4> x1[4];
    float a0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int t2 = (i0 * p1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < p0) {
        x1[k] = load<4>(in0 + (t2 + i1));
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i1 = (k * 256 + lane) * 4;
      if (i1 < p0) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          a0[v] += x1[k].at[v];
        }
      }
    }
    const float r3 = reduce_block<Sum, 256>(((a0[0] + a0[1]) + (a0[2] + a0[3])), turn);
    float a4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const float t6 = divide(r3, d5);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i2 = (k * 256 + lane) * 4;
      if (i2 < p0) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const float t7 = (x1[k].at[v] - t6);
          a4[v] = __fmaf_rn(t7, t7, a4[v]);
        }
      }
    }
    const float r8 = reduce_block<Sum, 256>(((a4[0] + a4[1]) + (a4[2] + a4[3])), turn);
    const float t9 = divide(r8, d5);
    const float t10 = (t9 + s1);
    const float t11 = rsqrtf(t10);
    const int t14 = (i0 * p3);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i3 = (k * 256 + lane) * 4;
      if (i3 < p0) {
        const vec<float, 4> x12 = load<4>(in2 + i3);
        vec<float, 4> y13;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          y13.at[v] = __fmaf_rn(((x1[k].at[v] - t6) * t11), x12.at[v], x12.at[v]);
        }
        store(out3 + (t14 + i3), y13);
      }
    }
  }
}

