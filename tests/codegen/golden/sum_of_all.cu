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
  for (int i0 = int(blockIdx.x); i0 < p5; i0 += gridDim.x * 1) {
    const int t0 = (i0 - (index_div(i0, p1, p2) * p1));
    const int t1 = (t0 * p3);
    const int n2 = min_of((p0 - t1), p3);
    float a3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float lost4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int i1 = lane * 4; i1 < n2; i1 += 1024) {
      if (i1 + 4 <= n2) {
        const vec<float, 4> x5 = load<4>(in0 + (t1 + i1));
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          add_compensated(a3[v], lost4[v], x5.at[v], x5.at[v]);
        }
      } else {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          if (i1 + v < n2) {
            const float t6 = in0[(t1 + (i1 + v))];
            add_compensated(a3[v], lost4[v], t6, t6);
          }
        }
      }
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) a3[v] = compensated(a3[v], lost4[v]);
    const float r7 = reduce_block<Sum, 256>(((a3[0] + a3[1]) + (a3[2] + a3[3])), turn);
    if (lane == 0) part1[((t0 * p4) + 0)] = r7;
    const int n8 = index_div(p5, p6);
    const int i2 = index_div(i0, n8);
    if (last_of(arrivals + i2, n8)) {
      float a9 = 0.0f;
      float lost10 = 0.0f;
#pragma unroll 4
      for (int i3 = lane; i3 < p1; i3 += 256) {
        const float t11 = part1[((i3 * p4) + 0)];
        add_compensated(a9, lost10, t11);
      }
      a9 = compensated(a9, lost10);
      const float r12 = reduce_block<Sum, 256>(a9, turn);
      if (lane == 0) out2[0] = r12;
    }
  }
}

