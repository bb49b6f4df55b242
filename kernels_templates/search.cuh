// searchsorted: a thread for each value. The text before gives Element.
#pragma once

typedef element<Element>::bits Bits;

extern "C" __global__ void __launch_bounds__(256)
    search(int64* __restrict__ out, const Bits* __restrict__ sorted, const Bits* __restrict__ values,
           Axes axes, int64 count, int64 length, int64 stride, int right) {
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const Bits value = key_of<Element>(values[offset_of(axes, i)], true);
    int64 low = 0;
    for (int64 size = length; size > 0;) {
      const int64 half = size / 2;
      const Bits middle = key_of<Element>(sorted[(low + half) * stride], true);
      const bool before = right ? middle <= value : middle < value;
      low = before ? low + half + 1 : low;
      size = before ? size - half - 1 : half;
    }
    out[i] = low;
  }
}
