// Sorting rows: what sort_tiles.cuh, sort_merge.cuh and sort_radix.cuh share. The text before gives Element;
// KILN_ORDER, one of those below; and kValues: beside positions, which may be null then, elements are
// written.
//
// Items of a row are all different, or alike in everything: every way of sorting gives the same result.
#pragma once

typedef element<Element>::bits Bits;
struct Wide {
  uint64 key, position;
};
__device__ __forceinline__ bool operator<(const Wide& a, const Wide& b) {
  return (a.key < b.key) | ((a.key == b.key) & (a.position < b.position));
}

// What items are, how they are made, and what is stored of them. Staged: what is stored, narrower where a row
// is one tile. `numbers`: items may be compared as numbers of float64.

struct KeyAlone {
  typedef Bits Item;
  typedef Bits Out;
  typedef Bits Staged;
  static const bool merge_zeros = false, mended = false, numbers = false;
  static __device__ __forceinline__ Item make(Bits key, int64) { return key; }
  static __device__ __forceinline__ Item last() { return Item(~Item(0)); }
  static __device__ __forceinline__ Bits key(Item item) { return item; }
  static __device__ __forceinline__ int64 position(Item) { return 0; }
  static __device__ __forceinline__ Out out(Item item, bool descending) {
    return bits_of_key<Element>(descending ? Bits(~item) : item);
  }
};
/// Values in the order of positions that nobody asks for. Elements with equal keys differ in their bits at
/// most if they are zeros or NaN: rows that have such elements are mended when they have been written.
struct KeyMended : KeyAlone {
  static const bool merge_zeros = true, mended = true;
};
/// For keys of up to 32 bits and rows of less than 2^30 elements: items are numbers of float64 that are
/// positive and finite, which are in the order of their bits.
struct KeyAbovePosition {
  static const bool merge_zeros = true, mended = false, numbers = true;
  typedef uint64 Item;
  typedef int64 Out;
  typedef uint16 Staged;
  static const int kPositionBits = 30;
  static const uint64 kPositions = (1ull << kPositionBits) - 1;
  static __device__ __forceinline__ Item make(Bits key, int64 position) {
    return uint64(key) << kPositionBits | uint64(position);
  }
  static __device__ __forceinline__ Item last() { return ~0ull >> (32 - kPositionBits); }
  static __device__ __forceinline__ Bits key(Item item) { return Bits(item >> kPositionBits); }
  static __device__ __forceinline__ int64 position(Item item) { return int64(item & kPositions); }
  static __device__ __forceinline__ Out out(Item item, bool) { return position(item); }
};
/// For keys of up to 16 bits and rows of less than 2^16 elements.
struct KeyAboveShort {
  static const bool merge_zeros = true, mended = false, numbers = false;
  typedef uint32 Item;
  typedef int64 Out;
  typedef uint16 Staged;
  static __device__ __forceinline__ Item make(Bits key, int64 position) {
    return uint32(key) << 16 | uint32(position);
  }
  static __device__ __forceinline__ Item last() { return ~0u; }
  static __device__ __forceinline__ Bits key(Item item) { return Bits(item >> 16); }
  static __device__ __forceinline__ int64 position(Item item) { return int64(item & 0xffffu); }
  static __device__ __forceinline__ Out out(Item item, bool) { return position(item); }
};
struct KeyBesidePosition {
  static const bool merge_zeros = true, mended = false, numbers = false;
  typedef Wide Item;
  typedef int64 Out;
  typedef uint16 Staged;
  static __device__ __forceinline__ Item make(Bits key, int64 position) {
    return {uint64(key), uint64(position)};
  }
  static __device__ __forceinline__ Item last() { return {~0ull, ~0ull}; }
  static __device__ __forceinline__ Bits key(const Item& item) { return Bits(item.key); }
  static __device__ __forceinline__ int64 position(const Item& item) { return int64(item.position); }
  static __device__ __forceinline__ Out out(const Item& item, bool) { return position(item); }
};
typedef KILN_ORDER Order;
typedef Order::Item Item;
typedef Order::Out Out;

/// Items in registers: none narrower than a register.
template <class T>
struct held {
  typedef T type;
};
template <>
struct held<uint8> {
  typedef uint32 type;
};
template <>
struct held<uint16> {
  typedef uint32 type;
};
typedef held<Item>::type Held;

/// The item of the lane whose number differs in `mask`.
__device__ __forceinline__ uint32 from_lane(uint32 x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ uint64 from_lane(uint64 x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ Wide from_lane(Wide x, int mask) {
  return {from_lane(x.key, mask), from_lane(x.position, mask)};
}

/// Where float64 has the rate that Order::numbers is for: one comparison of two numbers instead of two pairs
/// of 32 bits each, for the lesser and for the greater item.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
constexpr bool kByNumber = Order::numbers;
#else
constexpr bool kByNumber = false;
#endif
template <class T>
__device__ __forceinline__ bool precedes(const T& a, const T& b) {
  return a < b;
}
__device__ __forceinline__ bool precedes(uint64 a, uint64 b) {
  return kByNumber ? __longlong_as_double(int64(a)) < __longlong_as_double(int64(b)) : a < b;
}

struct Rows {
  Axes axes;  // of the input but the sorted one
  int64 count, length, stride, kept;
  int64 inner;  // elements behind the sorted axis: the distance of a row's results
  int descending;
};

/// Where row `row` begins in the input.
__device__ __forceinline__ const Bits* begin_in(const Bits* in, const Rows& rows, int64 row) {
  return in + offset_of(rows.axes, row);
}
/// What stands for an element among its equals. A device's sums of float32 have one NaN, whose key is the
/// greatest, and -0 is equal to +0 in a sum with it.
template <class T>
struct Equals {
  static __device__ __forceinline__ Bits key(Bits x) { return key_of<T>(x, Order::merge_zeros); }
  /// Whether an element's key stands for other bits than the element's: of a negative zero, of a NaN.
  static __device__ __forceinline__ bool lost(Bits x) {
    typedef element<T> E;
    return (x == E::sign) | (is_nan<T>(x) & (x != E::nan));
  }
};
#ifndef KILN_FAKE_DEVICE
template <>
struct Equals<float> {
  static __device__ __forceinline__ uint32 first(uint32 x) {
    uint32 y;
    if (Order::merge_zeros)
      asm("add.rn.f32 %0, %1, 0f00000000;" : "=r"(y) : "r"(x));
    else
      asm("{\n.reg .f32 z;\nmov.b32 z, 0x80000000;\nadd.rn.f32 %0, %1, z;\n}" : "=r"(y) : "r"(x));
    return y;
  }
  static __device__ __forceinline__ uint32 key(uint32 x) {
    const uint32 y = first(x);
    return y ^ (uint32(int(y) >> 31) | 0x80000000u);
  }
  static __device__ __forceinline__ bool lost(uint32 x) { return first(x) != x; }
};
#endif

/// An element's key, in the order that items have.
__device__ __forceinline__ Bits ordered_key(Bits element, const Rows& rows) {
  const Bits key = Equals<Element>::key(element);
  return rows.descending ? Bits(~key) : key;
}
/// The key at `position` of a row that begins there.
__device__ __forceinline__ Bits key_at(const Bits* begin, const Rows& rows, int64 position) {
  return ordered_key(begin[position * rows.stride], rows);
}

/// Where row `row` begins in the output.
template <class T>
__device__ __forceinline__ T* begin_out(T* out, const Rows& rows, int64 row) {
  const int64 outer = index_div(row, rows.inner);
  return out + outer * rows.kept * rows.inner + row - outer * rows.inner;
}
/// Item i of row `row`: what is stored of it, and its element.
__device__ __forceinline__ void put(Out* out, Bits* values, const Bits* in, const Rows& rows, int64 row,
                                    int64 i, const Item& item) {
  if (!kValues || out) begin_out(out, rows, row)[i * rows.inner] = Order::out(item, rows.descending);
  if (kValues)
    begin_out(values, rows, row)[i * rows.inner] =
        begin_in(in, rows, row)[Order::position(item) * rows.stride];
}

/// Of a row's results those that `is` holds for, which stand one after the other, become the first such
/// elements of the row. A warp's work.
template <class F>
__device__ __forceinline__ void mend(Bits* results, int64 apart, int kept, const Bits* row, const Rows& rows,
                                     F is) {
  const int lane = threadIdx.x & 31;
  int begin = 0, count = 0;
  for (int first = 0; first < kept; first += 32) {
    const int i = first + lane;
    const uint32 here = __ballot_sync(0xffffffffu, i < kept && is(results[(i < kept ? i : 0) * apart]));
    if (count == 0 && here) begin = first + __ffs(int(here)) - 1;
    count += __popc(here);
  }
  int met = 0;
  for (int first = 0; met < count; first += 32) {
    const int i = first + lane;
    const Bits element = row[(i < rows.length ? i : 0) * rows.stride];
    const bool chosen = i < rows.length && is(element);
    const uint32 here = __ballot_sync(0xffffffffu, chosen);
    const int number = met + __popc(here & ((1u << lane) - 1));
    if (chosen && number < count) results[(begin + number) * apart] = element;
    met += __popc(here);
  }
}
/// A row whose first `kept` results have been written: zeros and NaN in the order of their positions.
__device__ __forceinline__ void mend_row(Bits* out, const Bits* in, const Rows& rows, int64 row, int kept) {
  Bits* const results = begin_out(out, rows, row);
  const Bits* const source = begin_in(in, rows, row);
  mend(results, rows.inner, kept, source, rows,
       [](Bits x) { return Bits(x & ~element<Element>::sign) == 0; });
  mend(results, rows.inner, kept, source, rows, [](Bits x) { return is_nan<Element>(x); });
}
