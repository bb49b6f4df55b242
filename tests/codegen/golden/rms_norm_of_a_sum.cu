// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    const bf16* __restrict__ in1,
    bf16* __restrict__ out3,
    const float* __restrict__ in4,
    float* __restrict__ out5,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const float s0,
    const float s1) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  const Divisor d9 = divisor(s0);
  in0 = leaves_last(in0, gridDim.x >= 4096);
  in1 = leaves_last(in1, gridDim.x >= 8192);
  for (int i0 = int(blockIdx.x); i0 < p6; i0 += gridDim.x * 1) {
    float kept2[16];
    float a0[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    const int t2 = (i0 * p1);
    const int t4 = (i0 * p2);
    vec<float, 8> x1[2];
    vec<bf16, 8> x3[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 8;
      if (i1 < p0) {
        x1[k] = load<8>(in0 + (t2 + i1));
        x3[k] = load<8>(in1 + (t4 + i1));
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i1 = (k * 256 + lane) * 8;
      if (i1 < p0) {
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          const float t5 = (x1[k].at[v] + to_float(x3[k].at[v]));
          a0[v] = __fmaf_rn(t5, t5, a0[v]);
          kept2[k * 8 + v] = t5;
        }
      }
    }
    const float r6 = reduce_block<Sum, 256>((((a0[0] + a0[1]) + (a0[2] + a0[3])) + ((a0[4] + a0[5]) + (a0[6] + a0[7]))), turn);
    const int t8 = (i0 * p4);
    const float t10 = divide(r6, d9);
    const float t11 = (t10 + s1);
    const float t12 = rsqrtf(t11);
    const int t15 = (i0 * p5);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int i2 = (k * 256 + lane) * 8;
      if (i2 < p0) {
        const vec<float, 8> x13 = load<8>(in4 + i2);
        vec<bf16, 8> y7;
        vec<float, 8> y14;
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          y7.at[v] = to_bf16(kept2[k * 8 + v]);
          y14.at[v] = ((kept2[k * 8 + v] * t12) * x13.at[v]);
        }
        store(out3 + (t8 + i2), y7);
        store(out5 + (t15 + i2), y14);
      }
    }
  }
}

