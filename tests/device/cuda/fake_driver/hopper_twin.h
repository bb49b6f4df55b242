// The functions of kernels_templates/hopper.cuh, which leaves its own out, for the compiler that takes the
// host for a GPU. What runs beside the threads on a GPU runs here when it does most harm: of the copy
// engine's boxes, some land at once, over what is still being read, and the others when nobody can wait any
// longer; products read their operands and write their sums when they are waited for. A wait that cannot end
// ends the program. Clusters have one block.
#pragma once

#include "device/cuda/fake_driver/ptx_twin.h"

namespace fake_gpu {
#pragma GCC visibility push(default)

[[noreturn]] void give_up(const char* what);
void begin_hopper();  // of a block

// As the fake driver's tensor_map.h writes it.
struct BoxMap {
  const unsigned char* address;
  int bytes, rank;
  long long strides[5];  // in bytes
  int dims[5];
  short box[5];
  short windows, lower[3], upper[3], step[3];
};
struct Box {
  unsigned to;
  BoxMap map;
  int c[5];
  int e[3];  // of windows: which of their elements
};

inline unsigned permuted(unsigned address) { return address ^ (address >> 7 & 7) << 4; }
inline void fence_barriers() {}
void barrier_init(unsigned at, int arrivals);
void barrier_arrive(unsigned at);
inline void barrier_arrive(unsigned at, int) { barrier_arrive(at); }
void barrier_expect(unsigned at, int bytes);
void barrier_wait(unsigned at, unsigned parity);
inline int cluster_rank() { return 0; }
inline void cluster_meet() { __syncthreads(); }

/// Sets the copy engine to work on a box that lies at these coordinates of a map.
void order_box(Box& box, const void* map, const int* c, int rank, unsigned barrier);
void order_windows(Box& box, const void* map, const int* c, int rank, const unsigned short* e, int axes,
                   unsigned barrier);

template <class Map>
void prefetch_map(const Map&) {}
template <int Rank, class Map>
void copy_box(unsigned to, const Map& map, const int (&c)[Rank], unsigned barrier) {
  static_assert(sizeof(BoxMap) <= sizeof map);
  Box box{to, {}, {}, {}};
  order_box(box, &map, c, Rank, barrier);
}
template <int Rank, class Map>
void copy_box(unsigned to, const Map& map, const int (&c)[Rank], unsigned barrier, unsigned short) {
  copy_box(to, map, c, barrier);
}
template <int Axes, int Rank, class Map>
void copy_windows(unsigned to, const Map& map, const int (&c)[Rank], const unsigned short (&e)[Axes],
                  unsigned barrier) {
  static_assert(Rank == Axes + 2 && sizeof(BoxMap) <= sizeof map);
  Box box{to, {}, {}, {}};
  order_windows(box, &map, c, Rank, e, Axes, barrier);
}
template <int Axes, int Rank, class Map>
void copy_windows(unsigned to, const Map& map, const int (&c)[Rank], const unsigned short (&e)[Axes],
                  unsigned barrier, unsigned short) {
  copy_windows(to, map, c, e, barrier);
}

/// A product that waits: of so many bytes of captured values.
void open_product(void (*run)(const void*), const void* captured, unsigned bytes);
template <class F>
void open_product(const F& product) {
  static_assert(__is_trivially_copyable(F));
  open_product([](const void* captured) { (*static_cast<const F*>(captured))(); }, &product, sizeof product);
}
inline void products_fence() {}
void products_commit();
void products_wait(unsigned pending);
template <int Pending>
void products_wait() {
  products_wait(Pending);
}

/// Where an element of an operand, of so many bytes, stands: line r of the other axis, k.
inline unsigned element_at(unsigned long long descriptor, bool transposed, unsigned r, unsigned k,
                           unsigned bytes) {
  const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                 stride = (descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != 1) give_up("a tile is not permuted over 128 bytes");
  if (transposed && bytes != 2) give_up("only halves have another order");
  return permuted(transposed ? start + r / 64 * leading + k / 8 * stride + k % 8 * 128 + r % 64 * 2
                             : start + r / 8 * stride + r % 8 * 128 + k * bytes);
}
/// What tensor cores read of the bits of an element, of operand 0 or 1.
template <class T>
float value_of(unsigned bits, int, T x) {
  x.bits = bits;
  return to_float(x);
}
inline float value_of(unsigned bits, int, float) { return __uint_as_float(bits & 0xffffe000u); }
template <template <bool, bool> class Pair, bool A, bool B>
inline float value_of(unsigned bits, int operand, Pair<A, B>) {
  return float8_of((unsigned char)bits, operand == 0 ? A : B);
}
template <int Operand, class T>
inline float operand_at(unsigned long long descriptor, bool transposed, unsigned r, unsigned k) {
  unsigned bits = 0;
  __builtin_memcpy(&bits, shared_window + element_at(descriptor, transposed, r, k, sizeof(T)), sizeof(T));
  return value_of(bits, Operand, T());
}
template <int TransposeB, class T, int Count, unsigned Steps>
inline void sum_products(float (&sums)[Count], const float (&a)[2][Steps], unsigned long long b, int keep) {
  const unsigned q = threadIdx.x % 4;
  for (int n = 0; n < Count / 4; ++n)
    for (unsigned e = 0; e < 2; ++e)
      for (unsigned h = 0; h < 2; ++h) {
        float& sum = sums[4 * n + 2 * h + e];
        if (!keep) sum = 0;
        for (unsigned k = 0; k < Steps; ++k)
          sum += a[h][k] * operand_at<1, T>(b, TransposeB, 8 * n + 2 * q + e, k);
      }
}
template <int TransposeA, int TransposeB, class T, int Count>
void group_multiply_add(float (&sums)[Count], unsigned long long a, unsigned long long b, int keep, T) {
  open_product([&sums, a, b, keep] {
    constexpr unsigned kSteps = 32 / sizeof(T);
    float rows[2][kSteps];
    for (unsigned h = 0; h < 2; ++h)
      for (unsigned k = 0; k < kSteps; ++k)
        rows[h][k] =
            operand_at<0, T>(a, TransposeA, threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h, k);
    sum_products<TransposeB, T>(sums, rows, b, keep);
  });
}
template <int TransposeB, class T, int Count>
void group_multiply_add(float (&sums)[Count], const unsigned (&a)[4], unsigned long long b, int keep, T) {
  open_product([&sums, &a, b, keep] {
    const unsigned me = threadIdx.x, warp = me / 32 * 32, g = me % 32 / 4;
    for (int i = 0; i < 4; ++i) fragments[me][i] = a[i];
    meet(warp, ~0u);
    float rows[2][16];
    for (unsigned h = 0; h < 2; ++h)
      for (unsigned k = 0; k < 16; ++k) {
        T x;
        x.bits = (unsigned short)(fragments[warp + 4 * g + k % 8 / 2][h + k / 8 * 2] >> 16 * (k % 2));
        rows[h][k] = to_float(x);
      }
    meet(warp, ~0u);
    sum_products<TransposeB, T>(sums, rows, b, keep);
  });
}
inline void pin(float&) {}
inline void forget(float&) {}

/// Of barriers by number: whether so many threads are there now, and whether any of them said so.
bool arrive_at(int number, int count, bool mine);
bool meet_or(int number, int count, bool mine);
template <int Count>
bool meet_or(int number, bool mine) {
  return meet_or(number, Count, mine);
}
template <int Count>
void meet(int number) {
  meet_or(number, Count, false);
}
template <int Count>
void let_pass(int number) {
  arrive_at(number, Count, false);
}
template <int Count>
void give_registers() {}
template <int Count>
void take_registers() {}

#pragma GCC visibility pop
}  // namespace fake_gpu
