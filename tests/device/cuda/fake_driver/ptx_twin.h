// The instructions of kernels_templates/ptx.cuh, which leaves its own out. Copies land as late as the wait
// allows: who reads too early reads what was there before.
#pragma once

#include "device/cuda/fake_driver/gpu.h"

#define KILN_FAKE_DEVICE

namespace fake_gpu {
#pragma GCC visibility push(default)

extern unsigned char shared_window[256 << 10];
inline unsigned shared_base() { return 0; }

void begin_copies();  // of a block
void copy_async(unsigned to, const void* from, int bytes, int there);
void copies_commit();
void copies_wait(unsigned pending);

template <int Bytes, bool Cached = true>
void copy_async(unsigned to, const void* from, int there) {
  copy_async(to, from, Bytes, there);
}
inline void copy_async_16(unsigned to, const void* from) { copy_async(to, from, 16, 16); }
template <int Pending>
void copies_wait() {
  copies_wait(Pending);
}
inline void store_shared(unsigned to, unsigned x) { __builtin_memcpy(shared_window + to, &x, 4); }
inline void store_shared(unsigned to, unsigned short x) { __builtin_memcpy(shared_window + to, &x, 2); }
inline unsigned load_shared(unsigned from) {
  unsigned x;
  __builtin_memcpy(&x, shared_window + from, 4);
  return x;
}
inline uint2 load_shared_8(unsigned from) {
  if (from % 8 != 0) __builtin_trap();
  uint2 x;
  __builtin_memcpy(&x, shared_window + from, 8);
  return x;
}
inline uint4 load_shared_16(unsigned from) {
  if (from % 16 != 0) __builtin_trap();
  uint4 x;
  __builtin_memcpy(&x, shared_window + from, 16);
  return x;
}
inline void store_shared(unsigned to, uint4 x) { __builtin_memcpy(shared_window + to, &x, 16); }
inline void store_shared_pair(unsigned to, const float (&x)[2]) {
  __builtin_memcpy(shared_window + to, x, 8);
}
inline unsigned fresh(unsigned address) { return address; }
inline void load_shared_pair(unsigned from, float (&x)[2]) { __builtin_memcpy(x, shared_window + from, 8); }
template <class T>
inline void load_shared_element(unsigned from, T& x) {
  if (from % sizeof(T) != 0) __builtin_trap();
  __builtin_memcpy(&x, shared_window + from, sizeof(T));
}
template <class T>
inline void load_shared_pair(unsigned from, T& x, T& y) {
  if (from % (2 * sizeof(T)) != 0) __builtin_trap();
  load_shared_element(from, x);
  load_shared_element(from + sizeof(T), y);
}
template <bool Transposed>
inline void load_matrices(unsigned (&to)[4], unsigned from) {
  if (from % 16 != 0) __builtin_trap();
  exchange_of(~0u, from, [&](unsigned warp, unsigned lane) {
    const unsigned g = lane / 4, q = lane % 4;
    for (unsigned j = 0; j < 4; ++j) {
      unsigned short pair[2];
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned row = Transposed ? 2 * q + e : g, column = Transposed ? g : 2 * q + e;
        __builtin_memcpy(&pair[e], shared_window + offered_by<unsigned>(warp + 8 * j + row) + 2 * column, 2);
      }
      __builtin_memcpy(&to[j], pair, 4);
    }
    return 0;
  });
}
extern unsigned fragments[1024][6];  // of products, of each thread
/// Shows a thread's fragments to its warp.
inline void show_fragments(const unsigned (&a)[4], unsigned b0, unsigned b1) {
  unsigned(&own)[6] = fragments[threadIdx.x];
  for (int i = 0; i < 4; ++i) own[i] = a[i];
  own[4] = b0;
  own[5] = b1;
  meet(threadIdx.x / 32 * 32, ~0u);
}
template <class T>
inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  show_fragments(a, b0, b1);
  const auto half_of = [&](unsigned lane, int word, int half) {
    T x;
    x.bits = (unsigned short)(fragments[warp + lane][word] >> 16 * half);
    return to_float(x);
  };
  for (int h = 0; h < 2; ++h)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 16; ++k)
        sum[2 * h + e] += half_of(4 * g + k % 8 / 2, h + k / 8 * 2, k % 2) *
                          half_of(4 * (2 * q + e) + k % 8 / 2, 4 + k / 8, k % 2);
  meet(warp, ~0u);
}
float float8_of(unsigned char x, bool e5m2);  // of 4 or 5 bits of exponent
template <template <bool, bool> class Pair, bool A, bool B>
inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Pair<A, B>) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  show_fragments(a, b0, b1);
  const auto byte_of = [&](unsigned lane, int word, int byte) {
    return (unsigned char)(fragments[warp + lane][word] >> 8 * byte);
  };
  for (int h = 0; h < 2; ++h)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 32; ++k)
        sum[2 * h + e] += float8_of(byte_of(4 * g + k % 16 / 4, h + k / 16 * 2, k % 4), A) *
                          float8_of(byte_of(4 * (2 * q + e) + k % 16 / 4, 4 + k / 16, k % 4), B);
  meet(warp, ~0u);
}
inline unsigned rounded_to_tf32(unsigned x) {
  return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & 0xffffe000u;
}
void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, float);
void multiply_add(double (&sum)[4], const double (&a)[4], double b0, double b1, double);

#pragma GCC visibility pop
}  // namespace fake_gpu
