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
    const int p6) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  for (int i0 = int(blockIdx.x); i0 < p6; i0 += gridDim.x * 1) {
    const int t0 = index_div(i0, p1, p2);
    const int t1 = (t0 * p3);
    const int n2 = min_of((p0 - t1), p3);
    float a3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float lost4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int b5 = lane * 4;
    for (; b5 + 3076 <= n2; b5 += 4096) {
      vec<float, 4> x6[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i1 = b5 + k * 1024;
        x6[k] = load<4>(in0 + (t1 + i1));
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
      const vec<float, 4> x7 = load<4>(in0 + (t1 + i1));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        add_compensated(a3[v], lost4[v], x7.at[v], x7.at[v]);
      }
    }
    if (b5 < n2) {
      const int i1 = b5;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if (i1 + v < n2) {
          const float t8 = in0[(t1 + (i1 + v))];
          add_compensated(a3[v], lost4[v], t8, t8);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) a3[v] = compensated(a3[v], lost4[v]);
    const float r9 = reduce_block<Sum, 256>(((a3[0] + a3[1]) + (a3[2] + a3[3])), turn);
    if (lane == 0) part1[((t0 * p4) + 0)] = r9;
    const int n10 = index_div(p6, p1);
    const int i2 = i0 - index_div(i0, p1) * p1;
    if (last_of(arrivals + i2, n10)) {
      float a11 = 0.0f;
      float lost12 = 0.0f;
#pragma unroll 4
      for (int i3 = lane; i3 < p5; i3 += 256) {
        const float t13 = part1[((i3 * p4) + 0)];
        add_compensated(a11, lost12, t13);
      }
      a11 = compensated(a11, lost12);
      const float r14 = reduce_block<Sum, 256>(a11, turn);
      if (lane == 0) out2[0] = r14;
    }
  }
}

