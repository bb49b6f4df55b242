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
  for (int i0 = int(blockIdx.x); i0 < p2; i0 += gridDim.x * 1) {
    const int t0 = (i0 - (index_div(i0, p0, p3) * p0));
    const int t1 = (t0 * p4);
    const int n2 = min_of((p5 - t1), p4);
    float a3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int i1 = lane * 4; i1 < n2; i1 += 1024) {
      if (i1 + 4 <= n2) {
        const vec<float, 4> x4 = load<4>(in0 + (t1 + i1));
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          a3[v] = __fmaf_rn(x4.at[v], x4.at[v], a3[v]);
        }
      } else {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          if (i1 + v < n2) {
            const float t5 = in0[(t1 + (i1 + v))];
            a3[v] = __fmaf_rn(t5, t5, a3[v]);
          }
        }
      }
    }
    const float r6 = reduce_block<Sum, 256>(((a3[0] + a3[1]) + (a3[2] + a3[3])), turn);
    if (lane == 0) part1[((t0 * p1) + 0)] = r6;
    const int n7 = index_div(p2, p6);
    const int i2 = index_div(i0, n7);
    if (last_of(arrivals + i2, n7)) {
      float a8 = 0.0f;
#pragma unroll 4
      for (int i3 = lane; i3 < p0; i3 += 256) {
        const float t9 = part1[((i3 * p1) + 0)];
        a8 += t9;
      }
      const float r10 = reduce_block<Sum, 256>(a8, turn);
      if (lane == 0) out2[0] = r10;
    }
  }
}

