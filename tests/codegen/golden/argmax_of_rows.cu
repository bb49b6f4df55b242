// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    int64* __restrict__ out1,
    const int p0,
    const int p1,
    const int p2) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  int turn = 0;
  for (int i0 = int(blockIdx.x); i0 < p2; i0 += gridDim.x * 1) {
    Best<float, int> a0[4] = {{__int_as_float(0xff800000), 0x7fffffff}, {__int_as_float(0xff800000), 0x7fffffff}, {__int_as_float(0xff800000), 0x7fffffff}, {__int_as_float(0xff800000), 0x7fffffff}};
    const int t2 = (i0 * p1);
    vec<float, 4> x1[4];
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
          a0[v] = ArgMax::then(a0[v], x1[k].at[v], int((i1 + v)));
        }
      }
    }
    const Best<float, int> r3 = reduce_block<ArgMax, 256>(ArgMax::of(ArgMax::of(a0[0], a0[1]), ArgMax::of(a0[2], a0[3])), turn);
    if (lane == 0) out1[i0] = found(r3.position);
  }
}

