// Whether what weights multiply is finite: where masks leave nothing of a tile, it may be left out then.
#pragma once

typedef Config::Element Element;

__device__ __forceinline__ constexpr uint32 exponent_bits(bf16) { return 0x7f80; }
__device__ __forceinline__ constexpr uint32 exponent_bits(f16) { return 0x7c00; }
__device__ __forceinline__ bool is_odd(uint32 pair) {
  constexpr uint32 kLow = exponent_bits(Element{}), kHigh = kLow << 16;
  return (pair & kLow) == kLow || (pair & kHigh) == kHigh;
}

/// Whether rows c0 … c1 - 1 of a matrix of kOut columns have a value that is not finite, of what `thread` of
/// kBeside threads looks at, with kAhead loads under way.
template <int kBeside, int kAhead>
__device__ __forceinline__ bool has_odd(const Element* from, int64 stride, int c0, int c1, int thread) {
  constexpr int kWords = (Config::kOut + 7) / 8, kAtOnce = kBeside / kWords;  // rows
  static_assert(kAtOnce > 0, "");
  const int row = thread / kWords, d = thread % kWords * 8;
  if (row >= kAtOnce) return false;
  const Element* here = from + (c0 + row) * stride + d;
  bool odd = false;
  // no load waits for what another one found
#pragma unroll kAhead
  for (int c = c0 + row; c < c1; c += kAtOnce, here += kAtOnce * stride) {
    if (Config::kAligned && (Config::kOut % 8 == 0 || d + 8 <= Config::kOut)) {
      const uint4 x = *reinterpret_cast<const uint4*>(here);
      odd |= is_odd(x.x) | is_odd(x.y) | is_odd(x.z) | is_odd(x.w);
    } else {
      for (int k = 0; k < 8 && d + k < Config::kOut; ++k) odd |= is_odd(here[k].bits);
    }
  }
  return odd;
}
