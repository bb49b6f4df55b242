// Copies of rows to shared memory for main loops of mma.sync over pairs. Rows there are one 16-byte word
// longer than whole, so that the eight rows of a matrix load lie in different banks.
#pragma once

constexpr int kThreads = 32 * kWarps;

/// The elements of a word, of which the first `there` exist; from anywhere.
template <class T>
__device__ __forceinline__ void copy_elements(uint32 to, const T* from, int there) {
  uint32 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32 low = 2 * k < there ? from[2 * k].bits : 0,
                 high = 2 * k + 1 < there ? from[2 * k + 1].bits : 0;
    x[k] = low | high << 16;
  }
  store_shared(to, make_uint4(x[0], x[1], x[2], x[3]));
}
__device__ __forceinline__ void copy_elements(uint32 to, const float* from, int there) {
#pragma unroll
  for (int k = 0; k < 4; ++k) copy_async<4>(to + 4 * k, from + (k < there ? k : 0), k < there ? 4 : 0);
}

/// Rows first … first + Count of a matrix, with zeros for what lies outside of it.
template <int Count, int Words, int Width, int Pitch>
__device__ __forceinline__ void copy_rows(uint32 to, const Element* from, int64 stride, int first, int end) {
  constexpr int kEach = (Count * Words + kThreads - 1) / kThreads, kSize = sizeof(Element),
                kOfWord = 16 / kSize;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at / Words, word = at % Words;
    if (Count * Words % kThreads != 0 && at >= Count * Words) break;
    const int r = first + row;
    const uint32 place = to + row * Pitch + word * 16;
    const int there = r < end ? Width - word * kOfWord : 0;
    const Element* const source = from + (r < end ? r : 0) * stride + word * kOfWord;
    if constexpr (Config::kAligned) {
      copy_async<16>(place, there > 0 ? source : from, there >= kOfWord ? 16 : there > 0 ? kSize * there : 0);
    } else {
      copy_elements(place, source, there);
    }
  }
}
