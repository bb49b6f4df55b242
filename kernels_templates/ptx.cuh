// Instructions that CUDA C has no words for: copies from global to shared memory that run beside the threads,
// matrix fragments, products of fragments. Each function is one instruction, or the least group that makes
// sense. All inline PTX of the product templates stands here and in hopper.cuh, so that a compiler for
// another machine (the tests' fake one) can replace the two texts: it defines KILN_FAKE_DEVICE and has
// functions of these names. Needs sm_80 or later. Must not decide anything: no loops, no tile sizes.
#pragma once

/// What products of 8-bit floats have: the first operand is float8_e5m2, not float8_e4m3fn, and the second.
template <bool A, bool B>
struct float8_pair {};

#ifndef KILN_FAKE_DEVICE

/// The block's dynamic shared memory, as an address of the shared window.
extern __shared__ uint4 dynamic_shared[];
__device__ __forceinline__ uint32 shared_base() {
  uint32 at;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
      : "=r"(at)
      : "l"(dynamic_shared));
  return at;
}

/// Copies Bytes (16, 8 or 4) to shared memory; only the first `there` of them are read, the others become 0.
/// Pre: both addresses are multiples of Bytes. Cached: in the first cache too, for what is read again.
template <int Bytes, bool Cached = Bytes != 16>
__device__ __forceinline__ void copy_async(uint32 to, const void* from, int there) {
  if constexpr (Bytes == 16 && !Cached)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes), "r"(there)
                 : "memory");
}
/// The same of all 16.
__device__ __forceinline__ void copy_async_16(uint32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// Ends a group of copies.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most Pending of this thread's latest groups are under way.
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ __forceinline__ void store_shared(uint32 to, uint32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared(uint32 to, uint16 x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}

__device__ __forceinline__ void store_shared(uint32 to, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

__device__ __forceinline__ uint32 load_shared(uint32 from) {
  uint32 x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}

/// Two floats at a multiple of 8 bytes. A load may move and be left out: its address comes from fresh(),
/// which is called behind the barrier that it must stay behind.
__device__ __forceinline__ void store_shared_pair(uint32 to, const float (&x)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x[0]), "f"(x[1]) : "memory");
}
__device__ __forceinline__ void load_shared_pair(uint32 from, float (&x)[2]) {
  asm("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(from));
}
__device__ __forceinline__ uint32 fresh(uint32 address) {
  asm volatile("" : "+r"(address)::"memory");
  return address;
}

__device__ __forceinline__ uint2 load_shared_8(uint32 from) {
  uint2 x;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
  return x;
}

__device__ __forceinline__ uint4 load_shared_16(uint32 from) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

__device__ __forceinline__ void load_shared_element(uint32 from, uint32& x) { x = load_shared(from); }
__device__ __forceinline__ void load_shared_element(uint32 from, double& x) {
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared_element(uint32 from, uint16& x) {
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
}
/// Two at a multiple of their bytes.
__device__ __forceinline__ void load_shared_pair(uint32 from, uint32& x, uint32& y) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_shared_pair(uint32 from, double& x, double& y) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x), "=d"(y) : "r"(from) : "memory");
}

/// Four 8 × 8 matrices of 16-bit elements; lane l has the address of row l % 8 of matrix l / 8. Lane 4 g + q
/// gets elements 2 q and 2 q + 1 of row g of each; transposed: of column g.
template <bool Transposed>
__device__ __forceinline__ void load_matrices(uint32 (&to)[4], uint32 from) {
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/// sum += a (16 × 16) times b (16 × 8). Lane 4 g + q holds sum rows g and g + 8, columns 2 q and 2 q + 1.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32 (&a)[4], uint32 b0, uint32 b1,
                                             bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32 (&a)[4], uint32 b0, uint32 b1,
                                             f16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// The same of floats whose last 13 bits do not count: a (16 × 8) times b (8 × 8). Lane 4 g + q holds of a
/// rows g and g + 8 of column q, then those of column q + 4, and of b rows q and q + 4 of column g.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32 (&a)[4], uint32 b0, uint32 b1,
                                             float) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// The same of doubles, in the places that those floats have.
__device__ __forceinline__ void multiply_add(double (&sum)[4], const double (&a)[4], double b0, double b1,
                                             double) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
#else
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(sum[2 * half]), "+d"(sum[2 * half + 1])
                   : "d"(a[2 * k + half]), "d"(k == 0 ? b0 : b1));
#endif
}
/// The same of 8-bit floats (sm_89): a (16 × 32) times b (32 × 8). Lane 4 g + q holds of a rows g and g + 8
/// of columns 4 q to 4 q + 3, then those of 16 columns on, and of b the same rows of column g.
#define KILN_PRODUCT(A, B, Types)                                                                         \
  __device__ __forceinline__ void multiply_add(float(&sum)[4], const uint32(&a)[4], uint32 b0, uint32 b1, \
                                               float8_pair<A, B>) {                                       \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." Types                                           \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                   \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                         \
  }
KILN_PRODUCT(false, false, "e4m3.e4m3")
KILN_PRODUCT(false, true, "e4m3.e5m2")
KILN_PRODUCT(true, false, "e5m2.e4m3")
KILN_PRODUCT(true, true, "e5m2.e5m2")
#undef KILN_PRODUCT
/// A float of 11 bits, the nearest one; of two the greater in magnitude.
__device__ __forceinline__ uint32 rounded_to_tf32(uint32 x) {
  uint32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

#endif

/// Byte i of a word as a number: a float's last bits, less what stands above them.
__device__ __forceinline__ float byte_of(uint32 word, int i, uint8) {
  return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7540 | i)) - 8388608.0f;
}
__device__ __forceinline__ float byte_of(uint32 word, int i, int8) {
  return __uint_as_float(__byte_perm(word ^ 0x80808080, 0x4b000000, 0x7540 | i)) - 8388736.0f;
}

/// Two numbers as adjacent halves.
#ifdef KILN_FAKE_DEVICE
__device__ __forceinline__ uint32 pair_of(float low, float high, bf16) {
  return to_bf16(low).bits | uint32(to_bf16(high).bits) << 16;
}
__device__ __forceinline__ uint32 pair_of(float low, float high, f16) {
  return to_f16(low).bits | uint32(to_f16(high).bits) << 16;
}
#else
__device__ __forceinline__ uint32 pair_of(float low, float high, bf16) {
  uint32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ uint32 pair_of(float low, float high, f16) {
  uint32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
#endif

/// Where bytes become halves without a float between: each half is a byte's number times this.
template <class Half>
constexpr float kHalfOfByte = 1.0f;
template <>
constexpr float kHalfOfByte<bf16> = 1.0f / 64;
#ifdef KILN_FAKE_DEVICE
template <class T, class Half>
__device__ __forceinline__ float half_of_byte(uint32 word, int i) {
  return kHalfOfByte<Half> * byte_of(word, i, T());
}
/// The four bytes of a word, two in each of the results.
template <class T, class Half>
__device__ __forceinline__ void halves_of(uint32 word, uint32& first, uint32& second) {
  first = pair_of(half_of_byte<T, Half>(word, 0), half_of_byte<T, Half>(word, 1), Half());
  second = pair_of(half_of_byte<T, Half>(word, 2), half_of_byte<T, Half>(word, 3), Half());
}
/// Byte i of two words.
template <class T, class Half>
__device__ __forceinline__ uint32 halves_of(uint32 low, uint32 high, int i) {
  return pair_of(half_of_byte<T, Half>(low, i), half_of_byte<T, Half>(high, i), Half());
}
#else
// The last bits of a half in place of a byte are a number in units of the half's least: of bfloat16, whose
// least is 2^-133, below the normal numbers and in the first of them; of float16, from 1024 on. A signed byte
// is the unsigned one with its sign changed, less 128.
template <class T>
constexpr uint32 kByteSigns = T(-1) < T(0) ? 0x80808080 : 0;
__device__ __forceinline__ uint32 moved_halves(uint32 pair, bool is_signed, bf16) {
  uint32 y;  // × 2^127, - 128 / 64 or + -0
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(y)
      : "r"(pair), "r"(0x7f007f00), "r"(is_signed ? 0xc000c000 : 0x80008000));
  return y;
}
__device__ __forceinline__ uint32 moved_halves(uint32 pair, bool is_signed, f16) {
  uint32 y;  // - 1152 or - 1024
  asm("add.f16x2 %0, %1, %2;" : "=r"(y) : "r"(pair), "r"(is_signed ? 0xe480e480 : 0xe400e400));
  return y;
}
template <class Half>
constexpr uint32 kAboveBytes = 0x64646464;
template <>
constexpr uint32 kAboveBytes<bf16> = 0;
/// The four bytes of a word, two in each of the results.
template <class T, class Half>
__device__ __forceinline__ void halves_of(uint32 word, uint32& first, uint32& second) {
  const uint32 bytes = word ^ kByteSigns<T>;
  first = moved_halves(__byte_perm(bytes, kAboveBytes<Half>, 0x4140), kByteSigns<T> != 0, Half());
  second = moved_halves(__byte_perm(bytes, kAboveBytes<Half>, 0x4342), kByteSigns<T> != 0, Half());
}
/// Byte i of two words.
template <class T, class Half>
__device__ __forceinline__ uint32 halves_of(uint32 low, uint32 high, int i) {
  constexpr uint32 kFlipped = (kByteSigns<T> & 0x00800080) | (kAboveBytes<Half> & 0xff00ff00);
  uint32 pair;  // bytes & 0x00ff00ff ^ kFlipped
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
      : "=r"(pair)
      : "r"(__byte_perm(low, high, 0x0400 | i << 8 | i)), "r"(0x00ff00ff), "r"(kFlipped));
  return moved_halves(pair, kByteSigns<T> != 0, Half());
}
#endif

/// Element i of eight integers of four bits in a word, as a float.
__device__ __forceinline__ float nibble_of(uint32 word, int i, uint8) {
  return __uint_as_float((word >> 4 * i & 15) | 0x4b000000) - 8388608.0f;
}
__device__ __forceinline__ float nibble_of(uint32 word, int i, int8) {
  return __uint_as_float(((word >> 4 * i & 15) ^ 8) | 0x4b000000) - 8388616.0f;
}

/// Sums and products of two pairs of halves, and elements i and i + 4 of eight integers of four bits as such
/// a pair, for i from 0 to 3.
#ifdef KILN_FAKE_DEVICE
template <class Half>
__device__ __forceinline__ float half_of_pair(uint32 pair, int i) {
  Half half;
  half.bits = static_cast<unsigned short>(pair >> 16 * i);
  return to_float(half);
}
template <class Half>
__device__ __forceinline__ uint32 add_pairs(uint32 x, uint32 y, Half) {
  return pair_of(half_of_pair<Half>(x, 0) + half_of_pair<Half>(y, 0),
                 half_of_pair<Half>(x, 1) + half_of_pair<Half>(y, 1), Half());
}
template <class Half>
__device__ __forceinline__ uint32 multiply_pairs(uint32 x, uint32 y, Half) {
  return pair_of(half_of_pair<Half>(x, 0) * half_of_pair<Half>(y, 0),
                 half_of_pair<Half>(x, 1) * half_of_pair<Half>(y, 1), Half());
}
template <class T, class Half>
__device__ __forceinline__ void halves_of_nibbles(uint32 word, uint32 (&pairs)[4]) {
  for (int i = 0; i < 4; ++i)
    pairs[i] = pair_of(nibble_of(word, i, T()), nibble_of(word, i + 4, T()), Half());
}
#else
__device__ __forceinline__ uint32 add_pairs(uint32 x, uint32 y, bf16) {
  uint32 z;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(0x3f803f80), "r"(y));
  return z;
}
__device__ __forceinline__ uint32 add_pairs(uint32 x, uint32 y, f16) {
  uint32 z;
  asm("add.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
  return z;
}
__device__ __forceinline__ uint32 multiply_pairs(uint32 x, uint32 y, bf16) {
  uint32 z;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(0x80008000));
  return z;
}
__device__ __forceinline__ uint32 multiply_pairs(uint32 x, uint32 y, f16) {
  uint32 z;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
  return z;
}
// As the last bits of a half they are a number from 128 on (float16: 1024). A signed one is the unsigned one
// with its sign changed, less 8.
template <class Half>
constexpr uint32 kAboveNibbles = 0x64006400;
template <>
constexpr uint32 kAboveNibbles<bf16> = 0x43004300;
template <class T, class Half>
__device__ __forceinline__ void halves_of_nibbles(uint32 word, uint32 (&pairs)[4]) {
  constexpr uint32 kSigns = T(-1) < T(0) ? 0x00080008 : 0, kAbove = kAboveNibbles<Half> | kSigns;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32 pair;  // nibbles & 0x000f000f ^ kAbove
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(pair) : "r"(word >> 4 * i), "r"(0x000f000f), "r"(kAbove));
    pairs[i] = add_pairs(pair, kAbove ^ 0x80008000, Half());
  }
}
#endif
