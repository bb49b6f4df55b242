// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    float* part1,
    float* __restrict__ out2,
    unsigned int* arrivals,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const int p7) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  for (int i0 = int(blockIdx.x); i0 < p7; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = (t0 * p3);
    const int n2 = min_of((p0 - t1), p3);
    float a3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float lost4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int t7 = (t0 * p1);
    const int t8 = (i0 - t7);
    const int t9 = (t8 * p4);
    int b5 = lane * 4;
    for (; b5 + 3076 <= n2; b5 += 4096) {
      vec<float, 4> x6[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i1 = b5 + k * 1024;
        x6[k] = load<4>(in0 + (t9 + (t1 + i1)));
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i1 = b5 + k * 1024;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          add_compensated(a3[v], lost4[v], x6[k].at[v], x6[k].at[v]);
        }
      }
    }
#pragma unroll 1
    for (; b5 + 4 <= n2; b5 += 1024) {
      const int i1 = b5;
      const vec<float, 4> x10 = load<4>(in0 + (t9 + (t1 + i1)));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        add_compensated(a3[v], lost4[v], x10.at[v], x10.at[v]);
      }
    }
    if (b5 < n2) {
      const int i1 = b5;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if (i1 + v < n2) {
          const float t11 = in0[(t9 + (t1 + (i1 + v)))];
          add_compensated(a3[v], lost4[v], t11, t11);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) a3[v] = compensated(a3[v], lost4[v]);
    const float r12 = reduce_block<Sum, 256>(((a3[0] + a3[1]) + (a3[2] + a3[3])), turn);
    if (lane == 0) part1[((t0 * p5) + t8)] = r12;
    const int n13 = index_div(p7, p1);
    const int i2 = i0 - index_div(i0, p1) * p1;
    if (last_of(arrivals + i2, n13)) {
      float a14 = 0.0f;
      float lost15 = 0.0f;
#pragma unroll 4
      for (int i3 = lane; i3 < p6; i3 += 256) {
        const float t16 = part1[((i3 * p5) + i2)];
        add_compensated(a14, lost15, t16);
      }
      a14 = compensated(a14, lost15);
      const float r17 = reduce_block<Sum, 256>(a14, turn);
      if (lane == 0) out2[i2] = r17;
    }
  }
}

