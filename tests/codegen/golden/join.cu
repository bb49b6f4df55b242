// 
extern "C" __global__ void __launch_bounds__(256) kiln_test(
    const float* __restrict__ in0,
    const float* __restrict__ in1,
    float* __restrict__ out2,
    const int p0,
    const int p1,
    const int p2,
    const int p3,
    const int p4,
    const int p5,
    const int p6,
    const int p7,
    const int p8,
    const int p9) {
  wait_for_previous_kernel();
  const int lane = threadIdx.x;
  for (int i0 = int(blockIdx.x); i0 < p9; i0 += gridDim.x * 1) {
    const int t0 = (i0 * 1024);
    const int n1 = min_of((p0 - t0), 1024);
    const int t3 = index_div(t0, 4);
    {
      const int i1 = lane * 4;
      if (i1 < n1) {
        const int t4 = index_div((t3 + index_div(i1, 4)), p1, p2);
        const int t6 = (t0 + i1);
        const int t7 = (t6 - (t4 * p3));
        const int t9 = (t7 + p7);
        bool whole10 = true;
        {
          const int v = 3;
          const int t2 = (t0 + (i1 + v));
          const int t5 = (t2 - (t4 * p3));
          const int t8 = (t5 + p7);
          whole10 = whole10 && (0 <= t7) == (0 <= t5) && (t7 < p4) == (t5 < p4) && (0 <= t9) == (0 <= t8) && (t9 < p8) == (t8 < p8);
        }
        if (whole10) {
          const bool t11 = ((unsigned int)(t7) < (unsigned int)(p4));
          if (t11) {
            const vec<float, 4> x12 = (t11 ? load<4>(in0 + ((t4 * p5) + t7)) : vec<float, 4>{});
            vec<float, 4> y13;
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              y13.at[v] = x12.at[v];
            }
            store(out2 + t6, y13);
          } else {
            const vec<float, 4> x14 = (((unsigned int)(t9) < (unsigned int)(p8)) ? load_any<4>(in1 + ((t4 * p6) + (-t7)) - 3) : vec<float, 4>{});
            vec<float, 4> y15;
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              y15.at[v] = x14.at[3 - v];
            }
            store(out2 + t6, y15);
          }
        } else {
#pragma unroll 1
          for (int v = 0; v < 4; ++v) {
            if (i1 + v < n1) {
              const int t16 = (t0 + (i1 + v));
              const int t17 = (t16 - (t4 * p3));
              const bool t18 = ((unsigned int)(t17) < (unsigned int)(p4));
              const float t19 = (t18 ? in0[((t4 * p5) + t17)] : 0.0f);
              const int t20 = (t17 + p7);
              const float t21 = (((unsigned int)(t20) < (unsigned int)(p8)) ? in1[((t4 * p6) + (-t17))] : 0.0f);
              out2[t16] = (t18 ? t19 : t21);
            }
          }
        }
      }
    }
  }
}

