// What CUDA C has without an include, of one thread: the language's words, functions of mathematics and bits,
// and the instructions of inline PTX that fake_nvrtc.cpp has words for. It includes nothing of the system's:
// each kernel is compiled with it, and the headers of the library take longer than most kernels.
#pragma once

extern "C" {
float fabsf(float);
float fminf(float, float);
float fmaxf(float, float);
float sqrtf(float);
float rintf(float);
float expf(float);
float logf(float);
float sinf(float);
float cosf(float);
float tanhf(float);
float erff(float);
float log10f(float);
float exp2f(float);
float log2f(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float fmaf(float, float, float);
double fabs(double);
double fmin(double, double);
double fmax(double, double);
double sqrt(double);
double rint(double);
double floor(double);
double ceil(double);
double trunc(double);
double fma(double, double, double);
#define KILN_MATH_FN(enumerator, symbol, arity) double symbol(double KILN_OTHERS_##arity);
#define KILN_OTHERS_1
#define KILN_OTHERS_2 , double
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
}
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __CUDA_ARCH__ 700
using size_t = decltype(sizeof 0);

namespace fake_gpu {

template <class To, class From>
inline To bits_of(From x) {
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
inline float __int_as_float(int x) { return bits_of<float>(x); }
inline int __float_as_int(float x) { return bits_of<int>(x); }
inline float __uint_as_float(unsigned x) { return bits_of<float>(x); }
inline unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long all = a | (unsigned long long)b << 32;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) y |= (unsigned)(all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline float __double2float_rz(double x) { return (float)x; }
inline int __float2int_rz(float x) { return (int)x; }
inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
inline long long __float2ll_rz(float x) { return (long long)x; }
inline unsigned long long __float2ull_rz(float x) { return (unsigned long long)x; }
inline int __double2int_rz(double x) { return (int)x; }
inline unsigned __double2uint_rz(double x) { return (unsigned)x; }
inline long long __double2ll_rz(double x) { return (long long)x; }
inline unsigned long long __double2ull_rz(double x) { return (unsigned long long)x; }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float ptx_rcp(float x) { return 1.0f / x; }
inline float ptx_ex2(float x) { return exp2f(x); }
inline float ptx_lg2(float x) { return log2f(x); }
inline float ptx_sqrt(float x) { return sqrtf(x); }
inline float ptx_rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float ptx_max(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }
inline float ptx_min(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
/// What stood there, of which `next` makes what stands there now. (Threads take turns.)
template <class T, class Next>
inline T exchanged(T* at, Next next) {
  const T old = *at;
  *at = next(old);
  return old;
}
template <class T>
inline T atomicAdd(T* at, T x) {
  return exchanged(at, [&](T old) { return old + x; });
}
template <class T>
inline T atomicOr(T* at, T x) {
  return exchanged(at, [&](T old) { return old | x; });
}
template <class T>
inline T atomicAnd(T* at, T x) {
  return exchanged(at, [&](T old) { return old & x; });
}
template <class T>
inline T atomicMax(T* at, T x) {
  return exchanged(at, [&](T old) { return old > x ? old : x; });
}
template <class T>
inline T atomicMin(T* at, T x) {
  return exchanged(at, [&](T old) { return old < x ? old : x; });
}
template <class T>
inline T atomicCAS(T* at, T seen, T next) {
  T old = *at;
  if (old == seen) *at = next;
  return old;
}
inline float ptx_widen(unsigned short x) { return (float)bits_of<_Float16>(x); }
template <class T>
inline unsigned short ptx_narrow(T x) {
  return bits_of<unsigned short>((_Float16)x);
}
inline int ptx_extend(unsigned x, int bits) { return (int)(x << (32 - bits)) >> (32 - bits); }

}  // namespace fake_gpu
using namespace fake_gpu;
