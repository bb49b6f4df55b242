// A libnvrtc.so.13 whose machine is the host: g++ makes a shared library of a CUDA C source, and the fake
// driver runs it. A block's threads are contexts that take turns; they wait for each other in barriers and
// exchanges. So plans of a GPU are run, results and all, where there is none. It knows what most kernels use,
// but only the inline PTX that without_ptx has.
#include "device/cuda/fake_driver/hopper_twin.h"

#include <nvrtc.h>

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace {

constexpr const char* kDevice = R"(
#include <time.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>
#include <vector>
extern "C" {
float fabsf(float); float fminf(float, float); float fmaxf(float, float); float sqrtf(float); float rintf(float);
float expf(float); float logf(float); float sinf(float); float cosf(float); float tanhf(float);
float erff(float); float log10f(float);
float exp2f(float); float log2f(float); float floorf(float); float ceilf(float); float truncf(float);
float fmaf(float, float, float);
double fabs(double); double fmin(double, double); double fmax(double, double); double sqrt(double); double rint(double);
double floor(double); double ceil(double); double trunc(double);
double fma(double, double, double);
)"
#define KILN_MATH_FN(enumerator, symbol, arity) "double " #symbol "(double" KILN_OTHERS_##arity ");\n"
#define KILN_OTHERS_1
#define KILN_OTHERS_2 ", double"
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
                                R"(
}
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __CUDA_ARCH__ 700
struct Dim { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static Dim threadIdx, blockIdx, blockDim, gridDim;
static unsigned block_number;
// A block finds nothing in its shared memory that means something.
template <class T> static void begins_unset(T& x, unsigned& seen) {
  if (seen == block_number) return;
  seen = block_number;
  std::memset((void*)&x, 0xff, sizeof x);
}
template <class To, class From> static To bits_of(From x) { To y; std::memcpy(&y, &x, sizeof y); return y; }
static inline float __int_as_float(int x) { return bits_of<float>(x); }
static inline int __float_as_int(float x) { return bits_of<int>(x); }
static inline float __uint_as_float(unsigned x) { return bits_of<float>(x); }
static inline unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long all = a | (unsigned long long)b << 32;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) y |= (unsigned)(all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
  return y;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static inline float __double2float_rz(double x) { return (float)x; }
static inline int __float2int_rz(float x) { return (int)x; }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline long long __float2ll_rz(float x) { return (long long)x; }
static inline unsigned long long __float2ull_rz(float x) { return (unsigned long long)x; }
static inline int __double2int_rz(double x) { return (int)x; }
static inline unsigned __double2uint_rz(double x) { return (unsigned)x; }
static inline long long __double2ll_rz(double x) { return (long long)x; }
static inline unsigned long long __double2ull_rz(double x) { return (unsigned long long)x; }
static inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
static inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline float ptx_rcp(float x) { return 1.0f / x; }
static inline float ptx_ex2(float x) { return exp2f(x); }
static inline float ptx_lg2(float x) { return log2f(x); }
static inline float ptx_sqrt(float x) { return sqrtf(x); }
static inline float ptx_rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline float ptx_max(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }
static inline float ptx_min(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }
static inline unsigned long long nanoseconds() {
  timespec t;  // (including <chrono> takes half of the compile time of a kernel)
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __nanosleep(unsigned) {}
template <class T> static T atomicAdd(T* at, T x) { T old = *at; *at = old + x; return old; }
template <class T> static T atomicOr(T* at, T x) { T old = *at; *at = old | x; return old; }
template <class T> static T atomicAnd(T* at, T x) { T old = *at; *at = old & x; return old; }
template <class T> static T atomicMax(T* at, T x) { T old = *at; *at = old > x ? old : x; return old; }
template <class T> static T atomicMin(T* at, T x) { T old = *at; *at = old < x ? old : x; return old; }
template <class T> static T atomicCAS(T* at, T seen, T next) { T old = *at; if (old == seen) *at = next; return old; }
static inline float ptx_widen(unsigned short x) { return (float)bits_of<_Float16>(x); }
template <class T> static unsigned short ptx_narrow(T x) { return bits_of<unsigned short>((_Float16)x); }
static inline int ptx_extend(unsigned x, int bits) { return (int)(x << (32 - bits)) >> (32 - bits); }

struct Fiber {
  void* top = nullptr;  // of its stack, while another one runs
  std::vector<char> stack;
  unsigned long long value = 0;  // offered in an exchange
  long exchanges = 0;
  bool done = false;
};
// Saves the registers that a call keeps, and continues where another stack was left. (swapcontext saves the signals'
// mask too, which costs two system calls a turn: half of the time of a kernel with many barriers.)
extern "C" void switch_stack(void** left, void* to) __asm__("kiln_switch_stack");
asm(".text\n.type kiln_switch_stack,@function\nkiln_switch_stack:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size kiln_switch_stack, .-kiln_switch_stack\n");
static void* scheduler = nullptr;  // the top of its stack
static void (*new_block)() = nullptr;
static std::vector<Fiber>* fibers = nullptr;
static void (*entry)(void*) = nullptr;
static void* entry_argument = nullptr;
static void turn() {
  const unsigned me = threadIdx.x;
  switch_stack(&(*fibers)[me].top, scheduler);
  threadIdx.x = me;
}
// A barrier opens once all threads that still run have arrived.
static struct { unsigned arrived, ended; long opened; } barrier;
static void open_barrier() {
  if (barrier.arrived == 0 || barrier.arrived + barrier.ended != fibers->size()) return;
  barrier.arrived = 0;
  ++barrier.opened;
}
static void __syncthreads() {
  const long before = barrier.opened;
  ++barrier.arrived;
  open_barrier();
  while (barrier.opened == before) turn();
}
static int __syncthreads_or(int x) {
  static int votes;
  __syncthreads();
  if (threadIdx.x == 0) votes = 0;
  __syncthreads();
  votes |= x;
  __syncthreads();
  return votes;
}
// What a thread runs. Its stack is left for good at the end.
static void run_thread() {
  entry(entry_argument);
  Fiber& mine = (*fibers)[threadIdx.x];
  mine.done = true;
  ++barrier.ended;
  open_barrier();
  switch_stack(&mine.top, scheduler);
}
// A stack on which switch_stack finds six registers and the address of run_thread.
static void* new_stack(std::vector<char>& memory) {
  void** top = (void**)((unsigned long long)(memory.data() + memory.size()) / 16 * 16);
  *--top = nullptr;  // where run_thread would return to
  *--top = (void*)run_thread;
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}
static void meet(unsigned warp, unsigned members) {
  const long mine = ++(*fibers)[threadIdx.x].exchanges;
  for (;;) {
    bool all = true;
    for (unsigned l = 0; l < 32 && warp + l < fibers->size(); ++l)
      if (members >> l & 1) all = all && ((*fibers)[warp + l].done || (*fibers)[warp + l].exchanges >= mine);
    if (all) return;
    turn();
  }
}
static void __syncwarp() { meet(threadIdx.x / 32 * 32, ~0u); }
template <class T> static T offered_by(unsigned thread) {
  T x;
  std::memcpy(&x, &(*fibers)[thread < fibers->size() ? thread : threadIdx.x].value, sizeof x);
  return x;
}
// What `of` makes of the members' values, while all of them hold still.
template <class T, class Of> static auto exchange_of(unsigned members, T x, Of of) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32;
  std::memcpy(&(*fibers)[me].value, &x, sizeof x);
  meet(warp, members);
  const auto y = of(warp, me % 32);
  meet(warp, members);
  return y;
}
template <class T> static T __ldg(const T* p) { return *p; }
template <class T> static T __shfl_xor_sync(unsigned members, T x, int mask) {
  return exchange_of(members, x, [&](unsigned warp, unsigned lane) { return offered_by<T>(warp + (lane ^ mask)); });
}
template <class T> static T __shfl_up_sync(unsigned members, T x, unsigned d, int width = 32) {
  return exchange_of(members, x, [&](unsigned warp, unsigned lane) {
    return offered_by<T>(warp + (lane % width < d ? lane : lane - d));
  });
}
template <class T> static T __shfl_sync(unsigned members, T x, int from, int width = 32) {
  return exchange_of(members, x, [&](unsigned warp, unsigned lane) {
    return offered_by<T>(warp + lane / width * width + from % width);
  });
}
static unsigned __ballot_sync(unsigned members, bool x) {
  return exchange_of(members, x, [&](unsigned warp, unsigned) {
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; ++l)
      if (members >> l & 1) votes |= unsigned(offered_by<bool>(warp + l)) << l;
    return votes;
  });
}
static bool __any_sync(unsigned members, bool x) { return __ballot_sync(members, x) != 0; }
static bool __all_sync(unsigned members, bool x) { return __ballot_sync(members, !x) == 0; }
struct Bound {
  virtual ~Bound() = default;
  virtual void call() = 0;
  void run(Dim grid, Dim block) {
    gridDim = grid;
    blockDim = block;
    std::vector<Fiber> all(block.x);
    for (Fiber& f : all) f.stack.resize(1 << 16);
    for (unsigned b = 0; b < grid.x; ++b) {
      blockIdx = {b, 0, 0};
      ++block_number;
      fibers = &all;
      if (new_block) new_block();
      entry = [](void* self) { static_cast<Bound*>(self)->call(); };
      entry_argument = this;
      barrier = {};
      for (Fiber& f : all) {
        f.done = false;
        f.exchanges = 0;
        f.top = new_stack(f.stack);
      }
      for (unsigned left = block.x; left > 0;) {
        left = 0;
        for (unsigned t = 0; t < block.x; ++t) {
          if (all[t].done) continue;
          threadIdx = {t, 0, 0};
          switch_stack(&scheduler, all[t].top);
          left += !all[t].done;
        }
      }
    }
  }
};
template <class... A> struct BoundTo : Bound {
  void (*f)(A...);
  std::tuple<A...> arguments;
  BoundTo(void (*g)(A...), A... a) : f(g), arguments(a...) {}
  void call() override { std::apply(f, arguments); }
};
// Arguments may lie anywhere where the host has them; those with constant members have no empty state.
template <class A> static A copy_of(const void* from) {
  alignas(A) unsigned char bytes[sizeof(A)];
  std::memcpy(bytes, from, sizeof bytes);
  return *reinterpret_cast<const A*>(bytes);
}
template <class... A> static Bound* bind_kernel(void (*f)(A...), void** params) {
  int i = 0;
  std::tuple<A...> copies{copy_of<A>(params[i++])...};
  return std::apply([&](A... a) -> Bound* { return new BoundTo<A...>(f, a...); }, copies);
}
)";

// The instructions of kernels_templates/ptx.cuh, which leaves its own out. Copies land as late as the wait
// allows: who reads too early reads what was there before.
constexpr const char* kTwin = R"(
#define KILN_FAKE_DEVICE
alignas(1024) static unsigned char shared_window[256 << 10];
static inline unsigned shared_base() { return 0; }
struct Copy {
  unsigned to;
  const void* from;
  int bytes, there;
};
struct Copies {
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};
static Copies copies[1024];  // of each thread
template <int Bytes, bool Cached = true> static void copy_async(unsigned to, const void* from, int there) {
  if (to % Bytes != 0 || (there > 0 && (unsigned long long)from % Bytes != 0)) __builtin_trap();
  copies[threadIdx.x].open.push_back({to, from, Bytes, there});
}
static void copy_async_16(unsigned to, const void* from) { copy_async<16>(to, from, 16); }
static void copies_commit() {
  Copies& mine = copies[threadIdx.x];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}
template <int Pending> static void copies_wait() {
  auto& groups = copies[threadIdx.x].groups;
  for (; groups.size() > Pending; groups.erase(groups.begin()))
    for (const Copy& c : groups.front()) {
      std::memset(shared_window + c.to, 0, c.bytes);
      if (c.there > 0) std::memcpy(shared_window + c.to, c.from, c.there);
    }
}
static inline void store_shared(unsigned to, unsigned x) { std::memcpy(shared_window + to, &x, 4); }
static inline unsigned load_shared(unsigned from) {
  unsigned x;
  std::memcpy(&x, shared_window + from, 4);
  return x;
}
static inline uint2 load_shared_8(unsigned from) {
  if (from % 8 != 0) __builtin_trap();
  uint2 x;
  std::memcpy(&x, shared_window + from, 8);
  return x;
}
static inline uint4 load_shared_16(unsigned from) {
  if (from % 16 != 0) __builtin_trap();
  uint4 x;
  std::memcpy(&x, shared_window + from, 16);
  return x;
}
static inline void store_shared(unsigned to, uint4 x) { std::memcpy(shared_window + to, &x, 16); }
static inline void store_shared_pair(unsigned to, const float (&x)[2]) { std::memcpy(shared_window + to, x, 8); }
static inline unsigned fresh(unsigned address) { return address; }
static inline void load_shared_pair(unsigned from, float (&x)[2]) { std::memcpy(x, shared_window + from, 8); }
template <bool Transposed> static void load_matrices(unsigned (&to)[4], unsigned from) {
  if (from % 16 != 0) __builtin_trap();
  exchange_of(~0u, from, [&](unsigned warp, unsigned lane) {
    const unsigned g = lane / 4, q = lane % 4;
    for (unsigned j = 0; j < 4; ++j) {
      unsigned short pair[2];
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned row = Transposed ? 2 * q + e : g, column = Transposed ? g : 2 * q + e;
        std::memcpy(&pair[e], shared_window + offered_by<unsigned>(warp + 8 * j + row) + 2 * column, 2);
      }
      std::memcpy(&to[j], pair, 4);
    }
    return 0;
  });
}
static unsigned fragments[1024][6];
template <class T>
static void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  for (int i = 0; i < 4; ++i) fragments[me][i] = a[i];
  fragments[me][4] = b0;
  fragments[me][5] = b1;
  meet(warp, ~0u);
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
// An 8-bit float: of 4 or 5 bits of exponent.
static float float8_of(unsigned char x, bool e5m2) {
  const int mantissa = e5m2 ? 2 : 3, exponent = x >> mantissa & (e5m2 ? 31 : 15), bias = e5m2 ? 15 : 7;
  const int fraction = x & ((1 << mantissa) - 1), one = 1 << mantissa;
  float y = exponent == 0 ? fraction : fraction + one;
  for (int e = (exponent == 0 ? 1 : exponent) - bias - mantissa; e != 0; e += e < 0 ? 1 : -1) y *= e < 0 ? 0.5f : 2.0f;
  if (e5m2 ? exponent == 31 : (x & 127) == 127) y = __uint_as_float(e5m2 && fraction == 0 ? 0x7f800000 : 0x7fc00000);
  return x >> 7 ? -y : y;
}
template <template <bool, bool> class Pair, bool A, bool B>
static void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Pair<A, B>) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  for (int i = 0; i < 4; ++i) fragments[me][i] = a[i];
  fragments[me][4] = b0;
  fragments[me][5] = b1;
  meet(warp, ~0u);
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
static unsigned rounded_to_tf32(unsigned x) {
  return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & 0xffffe000u;
}
static void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, float) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4, q = me % 4;
  for (int i = 0; i < 4; ++i) fragments[me][i] = a[i];
  fragments[me][4] = b0;
  fragments[me][5] = b1;
  meet(warp, ~0u);
  const auto part_of = [&](unsigned lane, int word) {
    return __uint_as_float(fragments[warp + lane][word] & 0xffffe000u);
  };
  for (int h = 0; h < 2; ++h)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned k = 0; k < 8; ++k)
        sum[2 * h + e] += part_of(4 * g + k % 4, h + k / 4 * 2) * part_of(4 * (2 * q + e) + k % 4, 4 + k / 4);
  meet(warp, ~0u);
}
)";

}  // namespace

struct _nvrtcProgram {
  std::string source, image, log;
};

namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Shared arrays begin unset in each block: each declaration within a function is followed by that.
std::string with_unset_memory(const std::string& source) {
  static const std::regex declaration(R"re(\n[ ]+(?:extern |alignas\(16\) )?__shared__ [^;]+;)re"),
      name(R"re([ ,*](\w+)(?=\[|;))re");
  std::string out;
  auto at = source.begin();
  for (std::sregex_iterator m(source.begin(), source.end(), declaration), end; m != end; ++m) {
    out.append(at, (*m)[0].second);
    at = (*m)[0].second;
    const std::string text = (*m)[0];
    for (std::sregex_iterator n(text.begin(), text.end(), name); n != end; ++n)
      out += " static unsigned " + (*n)[1].str() + "_seen; begins_unset(" + (*n)[1].str() + ", " +
             (*n)[1].str() + "_seen);";
  }
  return out.append(at, source.end());
}

/// Shared arrays begin where their elements may, as on a GPU, unless they say otherwise.
std::string with_least_alignment(const std::string& source) {
  static const std::regex array(R"re((\n[ ]+)__shared__ (\w+) (\w+)\[([^\]]+)\];)re");
  return std::regex_replace(source, array,
                            "$1static struct { alignas(16) char before[sizeof($2)]; $2 at[$4]; } $3_memory; "
                            "$2(&$3)[$4] = $3_memory.at;");
}

/// Instructions of inline PTX that there are words for here.
std::string without_ptx(std::string source) {
  static const std::regex timer(R"re(asm volatile\("mov\.u64 %0, %globaltimer;" : "=l"\((\w+)\)\))re");
  source = std::regex_replace(source, timer, "$1 = nanoseconds()");
  for (const char* name : {"rcp", "ex2", "lg2", "sqrt", "rsqrt"}) {
    const std::regex one(std::string(R"re(asm\(")re") + name +
                         R"re(\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((\w+)\)\))re");
    source = std::regex_replace(source, one, std::string("$1 = ptx_") + name + "($2)");
  }
  static const std::regex widen(R"re(asm\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\(([\w.]+)\)\))re");
  source = std::regex_replace(source, widen, "$1 = ptx_widen($2)");
  static const std::regex narrow(
      R"re(asm\("cvt\.rn\.f16\.f(?:32|64) %0, %1;" : "=h"\(([\w.]+)\) : "[fd]"\((\w+)\)\))re");
  source = std::regex_replace(source, narrow, "$1 = ptx_narrow($2)");
  static const std::regex extend(R"re(asm\("bfe\.s32 %0, %1, 0, (\d+);" : "=r"\((\w+)\) : "r"\((\w+)\)\))re");
  source = std::regex_replace(source, extend, "$2 = ptx_extend($3, $1)");
  static const std::regex read(
      R"re(asm volatile\("ld\.relaxed\.gpu\.global\.u32 %0, \[%1\];" : "=r"\((\w+)\) : "l"\((\w+)\)\))re");
  source = std::regex_replace(source, read, "$1 = *$2");
  static const std::regex write(
      R"re(asm volatile\("st\.relaxed\.gpu\.global\.u32 \[%0\], %1;" ::"l"\((\w+)\), "r"\((\w+)\) : "memory"\))re");
  source = std::regex_replace(source, write, "*$1 = $2");
  struct Bytes {
    const char *name, *low, *high;
  };
  struct Rounding {
    const char *name, *function;
  };
  for (const auto& [type, low, high] : {Bytes{"s8", "-128", "127"}, Bytes{"u8", "0", "255"}})
    for (const auto& [rounding, function] : {Rounding{"rni", "rintf"}, Rounding{"rzi", "truncf"}}) {
      const std::regex one(std::string(R"re(asm\("cvt\.)re") + rounding + R"re(\.sat\.)re" + type +
                           R"re(\.f32 %0, %1;" : "=r"\((\w+)\) : "f"\((\w+)\)\))re");
      source = std::regex_replace(source, one,
                                  std::string("$1 = $2 != $2 ? 0 : int(fminf(fmaxf(") + function + "($2), " +
                                      low + "), " + high + "))");
    }
  static const std::regex dynamic(R"re(extern __shared__ (\w+) (\w+)\[\];)re");  // 128 KiB of it
  source = std::regex_replace(source, dynamic, "static $1 $2[(1 << 17) / sizeof($1)];");
  static const std::regex two(
      R"re(asm\("(max|min)\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\))re");
  return std::regex_replace(source, two, "$2 = ptx_$1($3, $4)");
}

/// What the driver calls: made for each kernel of the source.
std::string entries(const std::string& source) {
  static const std::regex head(
      R"re(extern "C" __global__ void\s+(?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\s*\()re");
  std::string out;
  for (std::sregex_iterator m(source.begin(), source.end(), head), end; m != end; ++m) {
    const std::string name = (*m)[1];
    out += "extern \"C\" void* " + name + "__bind(void** params) { return bind_kernel(" + name +
           ", params); }\n";
  }
  out +=
      "extern \"C\" void kiln_fake_run(void* b, unsigned grid, unsigned block) {"
      " static_cast<Bound*>(b)->run({grid, 1, 1}, {block, 1, 1}); }\n"
      "extern \"C\" void kiln_fake_free(void* b) { delete static_cast<Bound*>(b); }\n";
  return out;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult) { return "the fake compiler refuses"; }
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* n) {
  *n = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* list) {
  *list = 90;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int,
                               const char* const*, const char* const*) {
  *program = new _nvrtcProgram{source, {}, {}};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  char folder[] = "/tmp/kiln-fake-nvrtc-XXXXXX";
  if (!mkdtemp(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
  const std::string base = std::string(folder) + "/k";
  const bool hopper = program->source.find("copy_box") != std::string::npos;  // what it includes takes long
  std::ofstream(base + ".cpp") << kDevice << kTwin << (hopper ? kHopperTwin : "")
                               << without_ptx(with_least_alignment(with_unset_memory(program->source)))
                               << entries(program->source);
  // An access that is not aligned ends the program here, as it ends the context of a GPU.
  // Without -fno-gnu-unique the shared arrays of inline functions of equal names would be one in all modules.
  const std::string command =
      "g++ -std=c++20 -O1 -w -fPIC -shared -fno-gnu-unique -ffp-contract=off -mfma "
      "-fsanitize=alignment -fsanitize-undefined-trap-on-error -o " +
      base + ".so " + base + ".cpp -lm 2>" + base + ".log";
  const int status = std::system(command.c_str());
  program->log = contents(base + ".log");
  program->image = contents(base + ".so");
  for (const char* extension : {".cpp", ".so", ".log"}) unlink((base + extension).c_str());
  rmdir(folder);
  return status == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* n) {
  *n = program->image.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* to) {
  std::memcpy(to, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* n) {
  *n = 14;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* to) {
  std::memcpy(to, ".version fake", 14);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* n) {
  *n = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* to) {
  std::memcpy(to, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

}  // extern "C"
