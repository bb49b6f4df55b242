// Writing at indices: what scatter_set.cuh, scatter_atomic.cuh and scatter_ordered.cuh share. The text before
// gives Element, Index and kHow (0 set, 1 add, 2 multiply, 3 max, 4 min); integers that are only moved, added
// or multiplied come as unsigned ones of their size.
//
// A place is where a value goes in the output. Values that meet at one place differ in their coordinate k
// along the axis alone, and in row-major order a greater k comes later. A slot numbers the places that
// indices tell apart: coordinates along which indices repeat are left out.
#pragma once

typedef element<Element>::bits Bits;

/// Axes of the values, outermost first; strides in elements. `place` and `slot` are 0 along the axis that
/// indices choose on.
struct Grid {
  int rank, axis;
  int64 count;
  int64 dims[16], value[16], index[16], place[16], slot[16];
  int64 extent, place_step, slot_step;  // of the axis that indices choose on
  int narrow;                           // the numbers of all three axes, which are all, are of 31 bits
  unsigned int inverses[3];             // index_div's numbers for the axes' extents
};

struct Spot {
  int64 k, value, index, place, slot;
};

/// The same where numbers are of 31 bits and axes few.
__device__ __forceinline__ Spot narrow_spot_of(const Grid& g, int i) {
  int k = 0, value = 0, index = 0, place = 0, slot = 0;
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    if (a >= g.rank) continue;
    const int outer = a > 0 ? index_div(i, int(g.dims[a]), int(g.inverses[a])) : 0;
    const int at = i - outer * int(g.dims[a]);
    if (a == g.axis) k = at;
    value += at * int(g.value[a]);
    index += at * int(g.index[a]);
    place += at * int(g.place[a]);
    slot += at * int(g.slot[a]);
    i = outer;
  }
  return {k, value, index, place, slot};
}

__device__ __forceinline__ Spot spot_of(const Grid& g, int64 i) {
  if (g.narrow) return narrow_spot_of(g, int(i));
  Spot s = {};
#pragma unroll 1
  for (int a = g.rank - 1; a >= 0; --a) {
    const int64 outer = a > 0 ? index_div(i, g.dims[a]) : 0;
    const int64 at = i - outer * g.dims[a];
    if (a == g.axis) s.k = at;
    s.value += at * g.value[a];
    s.index += at * g.index[a];
    s.place += at * g.place[a];
    s.slot += at * g.slot[a];
    i = outer;
  }
  return s;
}

/// The position along the axis; false where there is none.
__device__ __forceinline__ bool resolve(Index index, int64 extent, int64& position) {
  if (Index(-1) < Index(0)) {
    position = index < Index(0) ? int64(index) + extent : int64(index);
    return position >= 0 && position < extent;
  }
  position = int64(index);
  return uint64(index) < uint64(extent);
}

#define KILN_EACH(i, count)                                                                          \
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x, step = (int64)gridDim.x * blockDim.x; \
       i < count; i += step)

/// What elements are kept in until they are complete, and as bits.
template <class T, bool Sums>
struct kept {
  typedef T type;
};
template <>
struct kept<f16, true> {
  typedef float type;
};
template <>
struct kept<bf16, true> {
  typedef float type;
};
typedef kept<Element, kHow == 1 || kHow == 2>::type Kept;
typedef element<Kept>::bits KeptBits;

template <class T>
__device__ __forceinline__ void assign(T& to, T from) {
  to = from;
}
__device__ __forceinline__ void assign(float& to, f16 from) { to = to_float(from); }
__device__ __forceinline__ void assign(float& to, bf16 from) { to = to_float(from); }
__device__ __forceinline__ void assign(f16& to, float from) { to = to_f16(from); }
__device__ __forceinline__ void assign(bf16& to, float from) { to = to_bf16(from); }

template <class T>
__device__ __forceinline__ T product(T x, T y) {
  return T(x * y);
}
__device__ __forceinline__ uint16 product(uint16 x, uint16 y) { return uint16(uint32(x) * uint32(y)); }

/// An element after one value has met it. Of -0 and +0 max leaves +0 and min -0, whichever came first.
template <int How, class T>
__device__ __forceinline__ T met(T x, T y) {
  if constexpr (How == 1) {
    return T(x + y);
  } else if constexpr (How == 2) {
    return product(x, y);
  } else {
    typedef typename element<T>::bits B;
    const B a = same_bits<B>(x), b = same_bits<B>(y);
    if (is_nan<T>(a)) return x;
    if (is_nan<T>(b)) return y;
    const B first = key_of<T>(a, false), second = key_of<T>(b, false);
    return (How == 3 ? second > first : second < first) ? y : x;
  }
}
